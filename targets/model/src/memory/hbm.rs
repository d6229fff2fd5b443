//! HBM: bytes that a guest may map, and runs of one word over and over that take no memory.
//!
//! Scrubs and fills write gigabytes of the same word. Where no guest maps the bytes, such a run is
//! kept as an extent; where one does ([`SHOWN_BYTES`] at the start of each channel), it is written
//! out, so that whoever looks sees it.

use std::collections::BTreeMap;
use std::fs::File;
use std::io;
use std::os::fd::BorrowedFd;
use std::os::unix::fs::FileExt;

use super::shared::{Refused, SharedMemory};

/// Bytes at the start of each channel that can be mapped from outside.
pub(crate) const SHOWN_BYTES: u64 = 64 << 20;
/// Shortest write that may become an extent.
const LEAST: usize = 0x1_0000;
/// Bytes that are written out or compared at once.
const STEP: u64 = 1 << 20;

/// A run of one word: byte *o* of the store is byte *o* mod 4 of the word.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Extent {
    end: u64,
    word: u32,
}

/// All channels of a device, at their places in the memory window.
#[derive(Debug)]
pub(crate) struct Hbm {
    bytes: SharedMemory,
    /// Ranges that are mapped from outside.
    shown: Vec<(u64, u64)>,
    /// By first byte; they do not overlap, and neighbours differ in their word.
    extents: BTreeMap<u64, Extent>,
}

/// Writes a run of `word` that stands at `offset`.
pub(crate) fn lay_out(word: u32, offset: u64, into: &mut [u8]) {
    let word = word.rotate_right(8 * (offset % 4) as u32).to_le_bytes();
    let (words, rest) = into.as_chunks_mut::<4>();
    words.fill(word);
    rest.copy_from_slice(&word[..rest.len()]);
}

/// The word of a run of bytes that stands at `offset`.
fn word_of(bytes: &[u8], offset: u64) -> Option<u32> {
    let first = bytes.first_chunk::<4>()?;
    let same = bytes[4..] == bytes[..bytes.len() - 4];
    same.then(|| u32::from_le_bytes(*first).rotate_left(8 * (offset % 4) as u32))
}

impl Hbm {
    /// A store of `len_bytes` that reads zero; channels start at `channels`.
    pub fn new(len_bytes: u64, channels: impl Iterator<Item = u64>) -> io::Result<Self> {
        let shown = channels.map(|start| (start, start + SHOWN_BYTES)).collect();
        Ok(Hbm { bytes: SharedMemory::in_file(len_bytes)?, shown, extents: BTreeMap::new() })
    }

    /// The file behind the bytes that are shown.
    pub fn file(&self) -> Option<BorrowedFd<'_>> {
        self.bytes.file()
    }

    /// Copies `into.len()` bytes out.
    pub fn read(&self, offset: u64, into: &mut [u8]) -> Result<(), Refused> {
        self.bytes.read(offset, into)?;
        if !self.extents.is_empty() {
            let end = offset + into.len() as u64;
            for (from, to, word) in self.within(offset, end) {
                lay_out(word, from, &mut into[(from - offset) as usize..(to - offset) as usize]);
            }
        }
        Ok(())
    }

    /// As [`Hbm::read`], but takes no memory for what was never written.
    pub fn look(&self, offset: u64, into: &mut [u8]) -> io::Result<()> {
        let file = self.file().ok_or(io::ErrorKind::NotFound)?.try_clone_to_owned()?;
        File::from(file).read_exact_at(into, offset)?;
        for (from, to, word) in self.within(offset, offset + into.len() as u64) {
            lay_out(word, from, &mut into[(from - offset) as usize..(to - offset) as usize]);
        }
        Ok(())
    }

    /// Copies `from` in.
    pub fn write(&mut self, offset: u64, from: &[u8]) -> Result<(), Refused> {
        if from.len() >= LEAST
            && let Some(word) = word_of(from, offset)
        {
            return self.fill(offset, from.len() as u64, word);
        }
        self.bytes.write(offset, from)?;
        self.cut(offset, offset + from.len() as u64);
        Ok(())
    }

    /// Makes `len` bytes from `offset` on a run of `word`.
    pub fn fill(&mut self, offset: u64, len: u64, word: u32) -> Result<(), Refused> {
        let end = offset.checked_add(len).ok_or(Refused)?;
        if end > self.bytes.len_bytes() {
            return Err(Refused);
        }
        let mut at = offset;
        while at < end {
            let (shown, until) = self.shown_until(at);
            let until = until.min(end);
            if shown {
                self.write_out(at, until, word)?;
            } else {
                self.put(at, until, word);
            }
            at = until;
        }
        Ok(())
    }

    /// The word of which `len` bytes from `offset` on are a run, as far as extents tell.
    #[inline]
    pub fn run(&self, offset: u64, len: u64) -> Option<u32> {
        let (_, extent) = self.extents.range(..=offset).next_back()?;
        (offset.checked_add(len)? <= extent.end).then_some(extent.word)
    }

    /// The first byte in `[offset, end)` that is not part of a run of `word`; `None` where all are.
    pub fn first_unlike(&self, offset: u64, end: u64, word: u32) -> Option<u64> {
        let mut at = offset;
        let mut bytes = Vec::new();
        while at < end {
            let next = self.within(at, end).next();
            match next {
                Some((from, to, known)) if from == at => {
                    if known != word {
                        return Some(at);
                    }
                    at = to;
                    continue;
                }
                _ => {}
            }
            let until = next.map_or(end, |(from, ..)| from).min(at + STEP);
            bytes.resize((until - at) as usize, 0);
            if self.look(at, &mut bytes).is_err() {
                return Some(at);
            }
            let mut wanted = vec![0; bytes.len()];
            lay_out(word, at, &mut wanted);
            if let Some(wrong) = bytes.iter().zip(&wanted).position(|(is, want)| is != want) {
                return Some(at + wrong as u64);
            }
            at = until;
        }
        None
    }

    /// Whether `offset` is shown, and up to where that is so.
    fn shown_until(&self, offset: u64) -> (bool, u64) {
        let mut until = u64::MAX;
        for &(start, end) in &self.shown {
            if (start..end).contains(&offset) {
                return (true, end);
            }
            if start > offset {
                until = until.min(start);
            }
        }
        (false, until)
    }

    fn write_out(&mut self, start: u64, end: u64, word: u32) -> Result<(), Refused> {
        let mut bytes = vec![0; (end - start).min(STEP) as usize];
        let mut at = start;
        while at < end {
            let len = (end - at).min(STEP) as usize;
            lay_out(word, at, &mut bytes[..len]);
            self.bytes.write(at, &bytes[..len])?;
            at += len as u64;
        }
        self.cut(start, end);
        Ok(())
    }

    /// The parts of extents that lie in `[start, end)`: first byte, byte behind, word.
    fn within(&self, start: u64, end: u64) -> impl Iterator<Item = (u64, u64, u32)> + '_ {
        let before = self.extents.range(..start).next_back();
        let before = before.filter(|(_, extent)| extent.end > start);
        before
            .into_iter()
            .chain(self.extents.range(start..end.max(start)))
            .map(move |(&from, extent)| (from.max(start), extent.end.min(end), extent.word))
    }

    /// No extent covers any of `[start, end)` any more.
    fn cut(&mut self, start: u64, end: u64) {
        if self.extents.is_empty() || start >= end {
            return;
        }
        if let Some((&from, &extent)) = self.extents.range(..start).next_back()
            && extent.end > start
        {
            self.extents.insert(from, Extent { end: start, ..extent });
            if extent.end > end {
                self.extents.insert(end, extent);
            }
        }
        while let Some((&from, &extent)) = self.extents.range(start..end).next() {
            self.extents.remove(&from);
            if extent.end > end {
                self.extents.insert(end, extent);
            }
        }
    }

    fn put(&mut self, mut start: u64, mut end: u64, word: u32) {
        self.cut(start, end);
        if let Some((&from, extent)) = self.extents.range(..start).next_back()
            && extent.end == start
            && extent.word == word
        {
            start = from;
        }
        if let Some(&extent) = self.extents.get(&end)
            && extent.word == word
        {
            self.extents.remove(&end);
            end = extent.end;
        }
        self.extents.insert(start, Extent { end, word });
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const FAR: u64 = SHOWN_BYTES;

    fn store() -> Hbm {
        Hbm::new(SHOWN_BYTES + (4 << 20), std::iter::once(0)).unwrap()
    }

    #[test]
    fn sixteen_gibibytes_of_one_word_are_one_extent() {
        let mut hbm = Hbm::new(16 << 30, std::iter::once(0)).unwrap();
        for start in [1, 0] {
            for block in (start..(16 << 30) / 0x1_0000).step_by(2) {
                let offset = block * 0x1_0000;
                if offset >= FAR {
                    hbm.fill(offset, 0x1_0000, 0xa5a5_0001).unwrap();
                }
            }
        }
        assert_eq!(hbm.extents.len(), 1);
        assert_eq!(hbm.first_unlike(FAR, 16 << 30, 0xa5a5_0001), None);
        hbm.write((10 << 30) + 5, &[0x5a]).unwrap();
        assert_eq!(hbm.first_unlike(FAR, 16 << 30, 0xa5a5_0001), Some((10 << 30) + 5));
        assert_eq!(hbm.extents.len(), 2);
    }

    #[test]
    fn what_a_guest_maps_is_written_out() {
        let mut hbm = store();
        hbm.fill(FAR - 8, 16, 0x0403_0201).unwrap();
        let mut bytes = [0; 16];
        hbm.bytes.read(FAR - 8, &mut bytes).unwrap();
        assert_eq!(bytes, [1, 2, 3, 4, 1, 2, 3, 4, 0, 0, 0, 0, 0, 0, 0, 0]);
        hbm.read(FAR - 8, &mut bytes).unwrap();
        assert_eq!(bytes, [1, 2, 3, 4, 1, 2, 3, 4, 1, 2, 3, 4, 1, 2, 3, 4]);
    }

    #[test]
    fn a_run_that_leaves_the_store_is_refused() {
        let mut hbm = store();
        let end = hbm.bytes.len_bytes();
        assert_eq!(hbm.fill(end - 4, 8, 1), Err(Refused));
        assert_eq!(hbm.fill(u64::MAX, 8, 1), Err(Refused));
        assert!(hbm.extents.is_empty());
    }

    #[derive(Clone, Debug)]
    enum Step {
        Write(u64, Vec<u8>),
        Fill(u64, u64, u32),
        Copy(u64),
    }

    fn step() -> impl Strategy<Value = Step> {
        let words = prop_oneof![Just(0u32), Just(0x0403_0201), Just(0x0101_0101)];
        prop_oneof![
            (0u64..600, prop::collection::vec(any::<u8>(), 0..60))
                .prop_map(|(at, bytes)| Step::Write(at, bytes)),
            (0u64..600, 0u64..200, words).prop_map(|(at, len, word)| Step::Fill(at, len, word)),
            (0u64..600).prop_map(Step::Copy),
        ]
    }

    proptest! {
        /// Against plain bytes, around the end of what is shown.
        #[test]
        fn agrees_with_plain_bytes(steps in prop::collection::vec(step(), 1..40)) {
            let mut hbm = store();
            let base = FAR - 300;
            let mut plain = vec![0u8; 1024];
            for step in steps {
                match step {
                    Step::Write(at, bytes) => {
                        hbm.write(base + at, &bytes).unwrap();
                        plain[at as usize..][..bytes.len()].copy_from_slice(&bytes);
                    }
                    Step::Fill(at, len, word) => {
                        hbm.fill(base + at, len, word).unwrap();
                        for o in at..at + len {
                            plain[o as usize] = word.to_le_bytes()[((base + o) % 4) as usize];
                        }
                        prop_assert_eq!(hbm.first_unlike(base + at, base + at + len, word), None);
                    }
                    Step::Copy(at) => {
                        if let Some(word) = hbm.run(base + at, 64) {
                            let mut run = [0; 64];
                            lay_out(word, base + at, &mut run);
                            prop_assert_eq!(&plain[at as usize..][..64], &run);
                            prop_assert_eq!(word_of(&run, base + at), Some(word));
                        }
                    }
                }
                let mut all = vec![0; 1024];
                hbm.read(base, &mut all).unwrap();
                prop_assert_eq!(&all, &plain);
                let mut last: Option<(u64, Extent)> = None;
                for (&from, &extent) in &hbm.extents {
                    prop_assert!(from < extent.end && from >= FAR);
                    if let Some((_, before)) = last {
                        prop_assert!(before.end <= from);
                    }
                    last = Some((from, extent));
                }
            }
        }
    }
}
