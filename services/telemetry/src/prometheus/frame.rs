//! Comment lines around an exposition on a console, so that a captured console can be taken apart
//! again (specification 07 §16.6).

use alloc::string::String;
use core::fmt::{self, Write};
use core::time::Duration;

/// The console is taken for at most this many bytes at a time.
pub const FRAME_BYTES: usize = 4096;

static CRC: crc::Crc<u32> = crc::Crc::<u32>::new(&crc::CRC_32_ISCSI);

/// Cuts a text into pieces of whole lines. Each piece is to be written without a break; others may
/// write between two pieces.
///
/// The comment lines are outside the byte count and the check sum.
pub struct Frame<E> {
    sequence: u64,
    emit: E,
    piece: String,
    /// Start in `piece` of the line that is not complete yet.
    line: usize,
    bytes: u64,
    digest: crc::Digest<'static, u32>,
}

impl<E: FnMut(&str)> Frame<E> {
    /// Begins frame `sequence`; `emit` gets the pieces.
    pub fn begin(sequence: u64, uptime: Duration, emit: E) -> Self {
        let mut frame =
            Frame { sequence, emit, piece: String::new(), line: 0, bytes: 0, digest: CRC.digest() };
        let _ = writeln!(
            frame.piece,
            "# neuron-metrics-begin seq={sequence} uptime_seconds={}",
            uptime.as_secs()
        );
        frame.line = frame.piece.len();
        frame
    }

    /// Ends the frame. Answers the bytes between its comment lines.
    pub fn end(mut self) -> u64 {
        let last = alloc::format!(
            "# neuron-metrics-end seq={} bytes={} crc32c={:08x}\n",
            self.sequence,
            self.bytes,
            self.digest.clone().finalize()
        );
        if self.piece.len() + last.len() > FRAME_BYTES {
            self.flush(self.piece.len());
        }
        self.piece.push_str(&last);
        (self.emit)(&self.piece);
        self.bytes
    }

    /// Emits everything before `end`, and says that there is more.
    fn flush(&mut self, end: usize) {
        let rest = self.piece.split_off(end);
        let _ = writeln!(self.piece, "# neuron-metrics-cont seq={}", self.sequence);
        (self.emit)(&self.piece);
        self.piece = rest;
        self.line = 0;
    }
}

/// Longest comment line that goes between two pieces.
const CONTINUATION: usize = "# neuron-metrics-cont seq=18446744073709551615\n".len();

impl<E: FnMut(&str)> Write for Frame<E> {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        self.bytes += text.len() as u64;
        self.digest.update(text.as_bytes());
        for part in text.split_inclusive('\n') {
            let full = self.piece.len() + part.len() + CONTINUATION > FRAME_BYTES;
            if full && self.line > 0 {
                self.flush(self.line);
            }
            self.piece.push_str(part);
            if part.ends_with('\n') {
                self.line = self.piece.len();
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use alloc::format;
    use alloc::vec::Vec;

    use proptest::prelude::*;

    use super::*;

    fn frame(text: &str, step: usize) -> Vec<String> {
        let mut pieces = Vec::new();
        let mut frame =
            Frame::begin(3, Duration::from_millis(12_900), |piece: &str| pieces.push(piece.into()));
        for part in text.as_bytes().chunks(step.max(1)) {
            frame.write_str(core::str::from_utf8(part).unwrap()).unwrap();
        }
        frame.end();
        pieces
    }

    #[test]
    fn a_short_text_is_one_piece() {
        let pieces = frame("123456789", 2);
        let expected = "# neuron-metrics-begin seq=3 uptime_seconds=12\n\
                        123456789# neuron-metrics-end seq=3 bytes=9 crc32c=e3069283\n";
        assert_eq!(pieces, [expected], "the check value of CRC-32C");
    }

    proptest! {
        /// Whatever the text and however it is written, the pieces are short, end at line
        /// boundaries, and give the text back.
        #[test]
        fn pieces_give_the_text_back(
            lines in proptest::collection::vec("[a-z ]{0,200}", 0..120), step in 1..500_usize
        ) {
            let text: String = lines.iter().map(|line| format!("{line}\n")).collect();
            let pieces = frame(&text, step);
            let mut body = String::new();
            for piece in &pieces {
                prop_assert!(piece.len() <= FRAME_BYTES && piece.ends_with('\n'));
                let inner = piece.lines().filter(|line| !line.starts_with("# neuron-metrics-"));
                inner.for_each(|line| { body.push_str(line); body.push('\n'); });
            }
            prop_assert_eq!(&body, &text);
            let end = format!("bytes={} crc32c={:08x}\n", text.len(), CRC.checksum(text.as_bytes()));
            prop_assert!(pieces.last().unwrap().ends_with(&end));
        }
    }
}
