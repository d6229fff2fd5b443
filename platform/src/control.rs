//! The control line of an emulated function, as a driver on the other side of a bus reaches it.
//!
//! The model puts a vendor-specific capability with two signature words into its configuration
//! space (`targets/model/src/port.rs` lists the registers). Looking for it is a walk over the
//! capability list, which only reads and which every function allows; without the signature nothing
//! is ever written. Hardware has no such capability, so hardware is refused.

use alloc::string::String;
use alloc::vec::Vec;

use crate::PciFunction;

const STATUS: u16 = 0x04;
const HAS_CAPABILITIES: u32 = 1 << 20;
const FIRST: u16 = 0x34;
const VENDOR_SPECIFIC: u32 = 0x09;
/// Id, length and version of the capability; the byte between is the next one's place.
const HEADER: u32 = VENDOR_SPECIFIC | 0x18 << 16 | 1 << 24;
const SIGNATURE: [u32; 2] = [0x4e4f_5841, 0x4c44_4f4d];
const INDEX: u16 = 0x0c;
const DATA: u16 = 0x10;
const RUN: u16 = 0x14;
const REFUSED: u32 = 1 << 31;
/// Capabilities that fit between the header and the end of the space.
const MOST_CAPABILITIES: usize = 48;
const LONGEST_LINE: usize = 1024;
const LONGEST_ANSWER: usize = 4096;

/// Whether a function is emulated and takes control lines. Only reads configuration space.
pub fn is_emulated<F: PciFunction>(function: &F) -> bool {
    find(function).is_some()
}

/// Carries out one control line in an emulated function.
///
/// # Errors
/// The model's sentence, or one that says that the function is not emulated; then nothing was
/// written to it.
pub fn control<F: PciFunction>(function: &F, line: &str) -> Result<String, String> {
    let bdf = function.bdf();
    let Some(port) = find(function) else {
        return Err(alloc::format!("{bdf} is no emulated function: nothing was written to it"));
    };
    if line.len() > LONGEST_LINE {
        return Err(alloc::format!("{} bytes are too long for a line", line.len()));
    }
    for (index, bytes) in (0..).zip(line.as_bytes().chunks(4)) {
        let mut word = [0; 4];
        word.iter_mut().zip(bytes).for_each(|(to, byte)| *to = *byte);
        function.config_write32(port + INDEX, index);
        function.config_write32(port + DATA, u32::from_le_bytes(word));
    }
    function.config_write32(port + RUN, line.len() as u32);
    let ended = function.config_read32(port + RUN);
    let len = (ended & !REFUSED) as usize;
    if ended == u32::MAX || len > LONGEST_ANSWER {
        return Err(alloc::format!("{bdf} does not answer"));
    }
    let mut answer = Vec::with_capacity(len.next_multiple_of(4));
    for index in 0..len.div_ceil(4) as u32 {
        function.config_write32(port + INDEX, index);
        answer.extend(function.config_read32(port + DATA).to_le_bytes());
    }
    answer.truncate(len);
    let answer = String::from_utf8_lossy(&answer).into_owned();
    if ended & REFUSED == 0 { Ok(answer) } else { Err(answer) }
}

/// Where the capability is.
fn find<F: PciFunction>(function: &F) -> Option<u16> {
    let status = function.config_read32(STATUS);
    if status == u32::MAX || status & HAS_CAPABILITIES == 0 {
        return None;
    }
    let mut at = function.config_read32(FIRST) as u16 & 0xfc;
    for _ in 0..MOST_CAPABILITIES {
        if !(0x40..=0xe8).contains(&at) {
            return None;
        }
        let header = function.config_read32(at);
        let signed = || SIGNATURE == [4, 8].map(|offset| function.config_read32(at + offset));
        if header & 0xffff_00ff == HEADER && signed() {
            return Some(at);
        }
        at = (header >> 8) as u16 & 0xfc;
    }
    None
}

#[cfg(test)]
mod tests {
    use alloc::sync::Arc;
    use core::sync::atomic::{AtomicU64, Ordering};

    use super::*;
    use crate::{BarInfo, Bdf, Caching, MapError, MmioWindow};

    /// Configuration space of a function that is no model; counts writes.
    #[derive(Clone)]
    struct Hardware {
        words: Arc<[u32; 64]>,
        writes: Arc<AtomicU64>,
    }

    #[derive(Clone)]
    struct NoWindow;

    impl MmioWindow for NoWindow {
        fn len_bytes(&self) -> u64 {
            0
        }
        fn read32(&self, _: u64) -> u32 {
            u32::MAX
        }
        fn write32(&self, _: u64, _: u32) {}
        fn read_bytes(&self, _: u64, _: &mut [u8]) -> bool {
            false
        }
        fn write_bytes(&self, _: u64, _: &[u8]) -> bool {
            false
        }
    }

    impl PciFunction for Hardware {
        type Window = NoWindow;

        fn bdf(&self) -> Bdf {
            Bdf::default()
        }
        fn config_read32(&self, offset: u16) -> u32 {
            self.words.get(usize::from(offset) / 4).copied().unwrap_or(u32::MAX)
        }
        fn config_write32(&self, _: u16, _: u32) {
            self.writes.fetch_add(1, Ordering::Relaxed);
        }
        fn config_write16(&self, _: u16, _: u16) {
            self.writes.fetch_add(1, Ordering::Relaxed);
        }
        fn bar(&self, _: u8) -> Option<BarInfo> {
            None
        }
        fn map_bar(&self, _: u8, _: Caching) -> Result<NoWindow, MapError> {
            Err(MapError::Absent)
        }
    }

    fn with(words: &[(u16, u32)]) -> Hardware {
        let mut space = [0; 64];
        words.iter().for_each(|(offset, word)| space[usize::from(*offset) / 4] = *word);
        Hardware { words: Arc::new(space), writes: Arc::default() }
    }

    #[test]
    fn hardware_is_refused_and_never_written_to() {
        let listed = (STATUS, HAS_CAPABILITIES);
        for space in [
            with(&[]),
            // All-ones: nobody is there.
            Hardware { words: Arc::new([u32::MAX; 64]), writes: Arc::default() },
            // Express and another vendor's own capability.
            with(&[listed, (FIRST, 0x40), (0x40, 0x0002_5010), (0x50, HEADER), (0x54, 1)]),
            // Half a signature.
            with(&[listed, (FIRST, 0x40), (0x40, HEADER), (0x44, SIGNATURE[0])]),
            // A list that goes round, and one that leads into the header.
            with(&[listed, (FIRST, 0x40), (0x40, 0x4010)]),
            with(&[listed, (FIRST, 0x10)]),
            // The right words where no list leads.
            with(&[(FIRST, 0x40), (0x40, HEADER), (0x44, SIGNATURE[0]), (0x48, SIGNATURE[1])]),
        ] {
            assert!(!is_emulated(&space));
            let refused = control(&space, "fault all-ones").unwrap_err();
            assert!(refused.contains("no emulated function"), "{refused}");
            assert_eq!(space.writes.load(Ordering::Relaxed), 0);
        }
    }

    #[test]
    fn an_answer_that_cannot_be_is_an_error() {
        let words = [
            (STATUS, HAS_CAPABILITIES),
            (FIRST, 0x60),
            (0x60, HEADER),
            (0x64, SIGNATURE[0]),
            (0x68, SIGNATURE[1]),
        ];
        let mut mad = words.to_vec();
        mad.push((0x60 + RUN, 5000));
        assert!(control(&with(&mad), "help").unwrap_err().contains("does not answer"));
        assert_eq!(control(&with(&words), "help").unwrap(), "");
        assert!(control(&with(&words), &"x".repeat(1025)).is_err());
    }
}
