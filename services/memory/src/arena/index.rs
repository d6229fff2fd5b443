//! Where spans start: two bits and one number a granule, in pages that exist where needed.
//!
//! A span, used or free, is known by its first granule only; nothing is written for the granules
//! behind it, so a chunk of 16 GiB costs as much as one of 4 KiB. The number of a used span is its
//! record, that of a free run its length.

use alloc::boxed::Box;
use alloc::vec::Vec;

use super::tournament::Tournament;
use crate::faults::Faults;

/// Granules of one page.
pub(super) const PAGE_GRANULES: usize = 4096;
const WORDS: usize = 64;
/// Pages of one group, and groups of an index.
pub(super) const GROUP_PAGES: usize = 64;
/// Granules an index can hold: 64 GiB at 4 KiB each.
pub(crate) const MAX_GRANULES: u32 = (PAGE_GRANULES * GROUP_PAGES * 64) as u32;

/// Mark on the number of a used span: the granule before it is free.
const AFTER_FREE: u32 = 1 << 31;

/// There is no memory for another page of the index.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct NoRoom;

/// What starts at a granule.
pub(super) enum Span {
    Used,
    /// A free run of this length.
    Free(u32),
}

/// Bits of one page, and the longest free run that starts in each of its words. `used_words` and
/// `free_words` have a bit set for every word that has or had one.
pub(super) struct Bits {
    used: [u64; WORDS],
    free: [u64; WORDS],
    used_words: u64,
    free_words: u64,
    pub(super) runs: Tournament,
}

pub(super) struct Page {
    bits: Box<[Bits; 1]>,
    numbers: Box<[u32; PAGE_GRANULES]>,
}

/// Splits a granule into page, word and bit.
#[inline]
const fn split(granule: u32) -> (usize, usize, u32) {
    (granule as usize / PAGE_GRANULES, granule as usize / 64 % WORDS, granule % 64)
}

#[inline]
const fn below(bit: u32) -> u64 {
    (1 << bit) - 1
}

impl Page {
    fn new() -> Result<Page, NoRoom> {
        let bits = boxed(1, || Bits {
            used: [0; WORDS],
            free: [0; WORDS],
            used_words: 0,
            free_words: 0,
            runs: Tournament::new(),
        })?;
        Ok(Page { bits, numbers: boxed(PAGE_GRANULES, || 0)? })
    }

    #[inline]
    pub(super) fn bits(&self) -> &Bits {
        &self.bits[0]
    }

    #[inline]
    fn bits_mut(&mut self) -> &mut Bits {
        &mut self.bits[0]
    }

    #[inline]
    fn number(&self, granule: u32) -> u32 {
        self.numbers[granule as usize % PAGE_GRANULES]
    }

    #[inline]
    fn number_mut(&mut self, granule: u32) -> &mut u32 {
        &mut self.numbers[granule as usize % PAGE_GRANULES]
    }

    /// Lowest free run of `word` with at least `count` granules, among those whose bits are in
    /// `mask`: granule within the page, length.
    #[inline]
    pub(super) fn run_in_word(&self, word: usize, mask: u64, count: u32) -> Option<(usize, u32)> {
        let mut left = self.bits[0].free[word % WORDS] & mask;
        while left != 0 {
            let granule = word % WORDS * 64 + left.trailing_zeros() as usize;
            let length = self.numbers[granule % PAGE_GRANULES];
            if length >= count {
                return Some((granule, length));
            }
            left &= left - 1;
        }
        None
    }

    /// Longest free run that starts in `word`; no run is longer than `at_most`.
    #[inline]
    fn longest_in_word(&self, word: usize, at_most: u32) -> u32 {
        let mut left = self.bits[0].free[word % WORDS];
        let mut longest = 0;
        while left != 0 {
            let granule = word % WORDS * 64 + left.trailing_zeros() as usize;
            longest = longest.max(self.numbers[granule % PAGE_GRANULES]);
            if longest == at_most {
                break;
            }
            left &= left - 1;
        }
        longest
    }
}

/// Starts of the spans of one address range.
pub(crate) struct Index {
    pages: Vec<Option<Page>>,
    /// One bit a page: a used span starts in it; a free run starts in it.
    used_pages: Vec<u64>,
    free_pages: Vec<u64>,
}

impl Index {
    /// An index of `granules` granules without spans.
    pub(crate) fn new(granules: u32, faults: &mut Faults) -> Result<Index, NoRoom> {
        if granules > MAX_GRANULES || faults.growth.hit() {
            return Err(NoRoom);
        }
        let pages = (granules as usize).div_ceil(PAGE_GRANULES);
        let groups = pages.div_ceil(GROUP_PAGES);
        Ok(Index {
            pages: filled(pages, || None)?,
            used_pages: filled(groups, || 0)?,
            free_pages: filled(groups, || 0)?,
        })
    }

    /// Makes sure that the page of `granule` exists.
    #[inline]
    pub(crate) fn prepare(&mut self, granule: u32, faults: &mut Faults) -> Result<(), NoRoom> {
        match self.pages.get(granule as usize / PAGE_GRANULES) {
            Some(Some(_)) => Ok(()),
            _ => self.make(granule, faults),
        }
    }

    #[cold]
    #[inline(never)]
    fn make(&mut self, granule: u32, faults: &mut Faults) -> Result<(), NoRoom> {
        let missing = self.pages.get_mut(granule as usize / PAGE_GRANULES).ok_or(NoRoom)?;
        if faults.growth.hit() {
            return Err(NoRoom);
        }
        *missing = Some(Page::new()?);
        Ok(())
    }

    #[inline]
    pub(super) fn page(&self, page: usize) -> Option<&Page> {
        self.pages.get(page)?.as_ref()
    }

    #[inline]
    fn page_mut(&mut self, page: usize) -> Option<&mut Page> {
        self.pages.get_mut(page)?.as_mut()
    }

    /// Record of the used span that starts at `granule`, and whether the granule before it is free.
    #[inline]
    pub(crate) fn used(&self, granule: u32) -> Option<(u32, bool)> {
        let (page, word, bit) = split(granule);
        let page = self.page(page)?;
        if page.bits().used[word] >> bit & 1 == 0 {
            return None;
        }
        let number = page.number(granule);
        Some((number & !AFTER_FREE, number & AFTER_FREE != 0))
    }

    /// What starts at `granule`; `None` inside a span.
    #[inline]
    pub(super) fn span(&self, granule: u32) -> Option<Span> {
        let (page, word, bit) = split(granule);
        let page = self.page(page)?;
        if page.bits().free[word] >> bit & 1 != 0 {
            return Some(Span::Free(page.number(granule)));
        }
        (page.bits().used[word] >> bit & 1 != 0).then_some(Span::Used)
    }

    /// Length of the free run that starts at `granule`.
    #[inline]
    pub(super) fn free(&self, granule: u32) -> Option<u32> {
        let (page, word, bit) = split(granule);
        let page = self.page(page)?;
        (page.bits().free[word] >> bit & 1 != 0).then(|| page.number(granule))
    }

    /// Enters a used span at the start of the wilderness, in a page that may be new.
    #[inline(always)]
    pub(super) fn append_used(
        &mut self,
        granule: u32,
        record: u32,
        faults: &mut Faults,
    ) -> Result<(), NoRoom> {
        let (number, word, bit) = split(granule);
        let Some(Some(page)) = self.pages.get_mut(number) else {
            self.make(granule, faults)?;
            self.insert_used(granule, record, false);
            return Ok(());
        };
        *page.number_mut(granule) = record;
        let bits = page.bits_mut();
        bits.used[word] |= 1 << bit;
        if bits.used_words >> word & 1 == 0 {
            self.first_used(number, word);
        }
        Ok(())
    }

    #[cold]
    #[inline(never)]
    fn first_used(&mut self, number: usize, word: usize) {
        let Some(page) = self.page_mut(number) else { return };
        page.bits_mut().used_words |= 1 << (word % WORDS);
        set_page(&mut self.used_pages, number);
    }

    /// Enters a used span; its page must exist.
    #[inline]
    pub(crate) fn insert_used(&mut self, granule: u32, record: u32, after_free: bool) {
        let (number, word, bit) = split(granule);
        let Some(page) = self.page_mut(number) else { return };
        *page.number_mut(granule) = record | if after_free { AFTER_FREE } else { 0 };
        let bits = page.bits_mut();
        bits.used[word] |= 1 << bit;
        if bits.used_words >> word & 1 == 0 {
            self.first_used(number, word);
        }
    }

    /// Takes out a used span.
    #[inline]
    pub(crate) fn remove_used(&mut self, granule: u32) {
        let (number, word, bit) = split(granule);
        let Some(page) = self.page_mut(number) else { return };
        page.bits_mut().used[word] &= !(1 << bit);
    }

    /// Takes out the used span of `record`; answers whether the granule before it is free, or
    /// `None`, with nothing changed, where that span is not there.
    #[inline(always)]
    pub(super) fn take_used(&mut self, granule: u32, record: u32) -> Option<bool> {
        let (number, word, bit) = split(granule);
        let page = self.page_mut(number)?;
        let entry = page.number(granule);
        let used = &mut page.bits_mut().used[word];
        if *used >> bit & 1 == 0 || entry & !AFTER_FREE != record {
            return None;
        }
        *used &= !(1 << bit);
        Some(entry & AFTER_FREE != 0)
    }

    /// Passes the used span `[granule, end)` of `record` on to another one; `false`, with nothing
    /// changed, where there is none, or not in one page, or the granule before it is free.
    #[inline(always)]
    pub(super) fn pass_on(&mut self, granule: u32, end: u32, record: u32, to: u32) -> bool {
        let (number, word, bit) = split(granule);
        let (end_number, end_word, end_bit) = split(end);
        let Some(page) = self.page_mut(number) else { return false };
        let bits = page.bits();
        let begins = bits.used[word] >> bit;
        let ends = (bits.used[end_word] | bits.free[end_word]) >> end_bit;
        let owner = page.number_mut(granule);
        if end_number != number || begins & ends & 1 == 0 || *owner != record {
            return false;
        }
        *owner = to;
        true
    }

    /// Gives the used span at `granule`, behind one in use, to another record.
    #[inline(always)]
    pub(super) fn set_record(&mut self, granule: u32, record: u32) {
        let Some(page) = self.page_mut(granule as usize / PAGE_GRANULES) else { return };
        *page.number_mut(granule) = record;
    }

    /// Notes for the used span at `granule` whether the granule before it is free.
    #[inline]
    pub(super) fn set_after_free(&mut self, granule: u32, after_free: bool) {
        let Some(page) = self.page_mut(granule as usize / PAGE_GRANULES) else { return };
        let number = page.number_mut(granule);
        *number = *number & !AFTER_FREE | if after_free { AFTER_FREE } else { 0 };
    }

    /// Enters a free run whose page must exist; answers the page's longest run where it has grown.
    #[inline]
    pub(super) fn insert_free(&mut self, granule: u32, length: u32) -> Option<u32> {
        let (number, word, bit) = split(granule);
        let page = self.page_mut(number)?;
        *page.number_mut(granule) = length;
        let bits = page.bits_mut();
        bits.free[word] |= 1 << bit;
        let grown = bits.runs.raise(word, length).then_some(length);
        if bits.free_words >> word & 1 == 0 {
            self.first_free(number, word);
        }
        grown
    }

    #[cold]
    #[inline(never)]
    fn first_free(&mut self, number: usize, word: usize) {
        let Some(page) = self.page_mut(number) else { return };
        page.bits_mut().free_words |= 1 << (word % WORDS);
        set_page(&mut self.free_pages, number);
    }

    /// Gives the free run at `granule` another length; answers the page's longest run where it has
    /// changed.
    #[inline]
    pub(super) fn resize_free(&mut self, granule: u32, old: u32, length: u32) -> Option<u32> {
        let (page, word, _) = split(granule);
        let page = self.page_mut(page)?;
        *page.number_mut(granule) = length;
        if length > old {
            return page.bits_mut().runs.raise(word, length).then_some(length);
        }
        shrink(page, word, old)
    }

    /// Takes out the free run at `granule`; answers the page's longest run where it has changed.
    #[inline]
    pub(super) fn remove_free(&mut self, granule: u32, length: u32) -> Option<u32> {
        let (number, word, bit) = split(granule);
        let page = self.page_mut(number)?;
        page.bits_mut().free[word] &= !(1 << bit);
        shrink(page, word, length)
    }

    /// Turns the free run at `granule` into a used span of `count` granules and a free run behind
    /// it, both in the same word; answers the page's longest run where it has changed.
    #[inline]
    pub(super) fn take_front(
        &mut self,
        granule: u32,
        length: u32,
        count: u32,
        record: u32,
    ) -> Option<u32> {
        let (number, word, bit) = split(granule);
        let page = self.page_mut(number)?;
        *page.number_mut(granule) = record;
        *page.number_mut(granule + count) = length - count;
        let bits = page.bits_mut();
        // The run behind it keeps word and page marked as having free runs.
        bits.free[word] = bits.free[word] & !(1 << bit) | 1 << ((bit + count) % 64);
        bits.used[word] |= 1 << bit;
        let known = bits.used_words >> word & 1 != 0;
        let longest = shrink(page, word, length);
        if !known {
            self.first_used(number, word);
        }
        longest
    }

    /// The last free run that starts before `granule`.
    pub(super) fn free_before(&mut self, granule: u32) -> Option<u32> {
        let (number, word, bit) = split(granule);
        // Mostly it is near.
        if let Some(page) = self.page(number) {
            let here = page.bits().free[word] & below(bit);
            if here != 0 {
                return Some(granule - bit + 63 - here.leading_zeros());
            }
        }
        last_before(&mut self.pages, &mut self.free_pages, number, word as u32, |bits| {
            (&bits.free, &mut bits.free_words)
        })
    }

    /// The last used span that starts at or before `granule`: its start and record.
    pub(crate) fn used_at_or_before(&mut self, granule: u32) -> Option<(u32, u32)> {
        let next = granule.checked_add(1)?;
        let (number, word, bit) = split(next);
        let here = self.page(number).map_or(0, |page| page.bits().used[word] & below(bit));
        let start = if here != 0 {
            next - bit + 63 - here.leading_zeros()
        } else {
            last_before(&mut self.pages, &mut self.used_pages, number, word as u32, |bits| {
                (&bits.used, &mut bits.used_words)
            })?
        };
        self.used(start).map(|(record, _)| (start, record))
    }

    /// Calls `visit` with start and record of every used span, in ascending order.
    pub(crate) fn for_each_used(&self, mut visit: impl FnMut(u32, u32)) {
        for (number, page) in self.pages.iter().enumerate() {
            let Some(page) = page else { continue };
            for (word, bits) in page.bits[0].used.iter().enumerate() {
                let mut left = *bits;
                while left != 0 {
                    let at = word * 64 + left.trailing_zeros() as usize;
                    visit(
                        (number * PAGE_GRANULES + at) as u32,
                        page.numbers[at % PAGE_GRANULES] & !AFTER_FREE,
                    );
                    left &= left - 1;
                }
            }
        }
    }

    /// Bytes of heap the index holds now.
    pub(crate) fn bytes(&self) -> usize {
        let page = size_of::<Bits>() + size_of::<[u32; PAGE_GRANULES]>();
        self.pages.iter().flatten().count() * page
            + self.pages.len() * size_of::<Option<Page>>()
            + (self.used_pages.len() + self.free_pages.len()) * size_of::<u64>()
    }
}

/// Recomputes the longest run of a word that had one of length `old` and has it no more.
#[inline]
fn shrink(page: &mut Page, word: usize, old: u32) -> Option<u32> {
    if page.bits().runs.get(word) > old {
        return None;
    }
    let longest = page.longest_in_word(word, old);
    if longest == old {
        return None;
    }
    let runs = &mut page.bits_mut().runs;
    runs.set(word, longest).then(|| runs.largest())
}

/// Last granule with a set bit in the words before word `word` of page `number`.
///
/// Marks of words and pages are set with the first bit and never cleared with the last one; whoever
/// meets a stale mark here clears it, so that the search costs no more than the changes before it.
fn last_before(
    pages: &mut [Option<Page>],
    marks: &mut [u64],
    number: usize,
    word: u32,
    of: impl Fn(&mut Bits) -> (&[u64; WORDS], &mut u64),
) -> Option<u32> {
    let mut words = below(word);
    let mut number = number;
    loop {
        if let Some(Some(page)) = pages.get_mut(number) {
            let (bits, marked) = of(page.bits_mut());
            while *marked & words != 0 {
                let word = 63 - (*marked & words).leading_zeros();
                let found = bits[word as usize % WORDS];
                if found != 0 {
                    let at = word * 64 + 63 - found.leading_zeros();
                    return Some((number * PAGE_GRANULES) as u32 + at);
                }
                *marked &= !(1 << word);
            }
            if *marked == 0
                && let Some(group) = marks.get_mut(number / GROUP_PAGES)
            {
                *group &= !(1 << (number % GROUP_PAGES));
            }
        }
        number = page_before(marks, number)?;
        words = u64::MAX;
    }
}

/// Last page before `page` that is marked.
fn page_before(marks: &[u64], page: usize) -> Option<usize> {
    let group = (page / GROUP_PAGES).min(marks.len());
    let here = marks.get(group).map_or(0, |word| word & below(page as u32 % 64));
    let (group, word) = if here != 0 {
        (group, here)
    } else {
        let group = marks.get(..group)?.iter().rposition(|word| *word != 0)?;
        (group, *marks.get(group)?)
    };
    Some(group * GROUP_PAGES + 63 - word.leading_zeros() as usize)
}

#[inline]
fn set_page(pages: &mut [u64], page: usize) {
    if let Some(word) = pages.get_mut(page / GROUP_PAGES) {
        *word |= 1 << (page % GROUP_PAGES);
    }
}

fn filled<T>(count: usize, value: impl FnMut() -> T) -> Result<Vec<T>, NoRoom> {
    let mut values = Vec::new();
    values.try_reserve_exact(count).map_err(|_| NoRoom)?;
    values.resize_with(count, value);
    Ok(values)
}

fn boxed<T, const N: usize>(count: usize, value: impl FnMut() -> T) -> Result<Box<[T; N]>, NoRoom> {
    filled(count, value)?.into_boxed_slice().try_into().map_err(|_| NoRoom)
}
