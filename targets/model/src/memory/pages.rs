//! Register storage in pages of 4 KiB that are created on first write.

const WORDS: usize = 1024;

/// Storage of a block of registers.
#[derive(Debug, Default)]
pub(crate) struct Pages {
    pages: Vec<Option<Box<[u32]>>>,
}

impl Pages {
    /// The word at `offset`, if its page was ever written.
    #[inline]
    pub fn get(&self, offset: u64) -> Option<u32> {
        let page = self.pages.get((offset >> 12) as usize)?.as_ref()?;
        page.get((offset >> 2) as usize % WORDS).copied()
    }

    /// The word at `offset` to change; `reset` gives the values of a page that is created.
    #[inline]
    pub fn slot(&mut self, offset: u64, reset: impl Fn(u64) -> u32) -> &mut u32 {
        let number = (offset >> 12) as usize;
        if self.pages.len() <= number {
            self.pages.resize_with(number + 1, || None);
        }
        let page = self.pages[number].get_or_insert_with(|| {
            let start = offset & !0xfff;
            (0..WORDS as u64).map(|word| reset(start + 4 * word)).collect()
        });
        &mut page[(offset >> 2) as usize % WORDS]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_page_begins_with_its_reset_values() {
        let mut pages = Pages::default();
        assert_eq!(pages.get(0x2004), None);
        *pages.slot(0x2004, |offset| offset as u32) = 7;
        assert_eq!(pages.get(0x2004), Some(7));
        assert_eq!(pages.get(0x2ffc), Some(0x2ffc));
        assert_eq!(pages.get(0x1000), None);
    }
}
