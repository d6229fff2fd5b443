//! Free runs of pages: contiguous allocation in constant time, with everything that has to be
//! remembered about a free run kept in the run itself.
//!
//! Runs hang in lists by size class: exact up to seven pages, then eight classes for each power of two
//! (a two-level segregated fit). Two bit maps find the first class that is large enough. A bit map
//! over all pages marks the first and the last page of each free run, so that a run that comes
//! back finds its neighbours and joins them. Nothing is initialised per page.
//!
//! Boot memory enters as *fresh*: handed out from the front, after memory that came back, and only
//! turned into runs when nothing else fits. Fresh memory may be known to be zero.
//!
//! Pure logic: memory is reached through [`Links`], which tests fake.

use core::ops::Range;

use heapless::Vec;

/// Bytes of a page.
pub const PAGE_BYTES: u64 = 4096;

/// Pages below 4 GiB, which is all this allocator manages.
pub const PAGES: usize = 1 << 20;

const CLASSES_PER_POWER: usize = 8;
const POWERS: usize = 19;
const CLASSES: usize = POWERS * CLASSES_PER_POWER;
/// No page: page 0 is never free, and a table of zeroes costs no byte of the image.
const NONE: u32 = 0;

/// The two records that a free run carries: one in its first page, one in its last.
pub trait Links {
    /// Reads the record of the first page of a run.
    fn head(&self, page: u32) -> Head;
    /// Writes it.
    fn set_head(&mut self, page: u32, head: Head);
    /// Reads the length of the run, in pages, from its last page.
    fn tail(&self, page: u32) -> u32;
    /// Writes it.
    fn set_tail(&mut self, page: u32, pages: u32);
}

/// What the first page of a free run says.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(C)]
pub struct Head {
    pages: u32,
    next: u32,
    previous: u32,
}

/// A run that was handed out.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Run {
    /// Its first page.
    pub page: u32,
    /// How many pages.
    pub pages: u32,
    /// Whether the pages are known to be zero.
    pub zero: bool,
}

/// Memory that has not been handed out yet.
struct Fresh {
    pages: Range<u32>,
    zero: bool,
}

/// Free runs of pages below 4 GiB.
pub struct Runs<L> {
    links: L,
    /// First run of each class.
    heads: [u32; CLASSES],
    /// Bit `p`: some class of power `p` has a run.
    powers: u32,
    /// Bit `c` of entry `p`: class `c` of power `p` has a run.
    classes: [u8; POWERS],
    /// First and last page of each free run.
    ends: [u64; PAGES / 64],
    fresh: Vec<Fresh, 32>,
    free_pages: u32,
}

impl<L: Links> Runs<L> {
    /// No memory.
    pub const fn new(links: L) -> Self {
        Runs {
            links,
            heads: [NONE; CLASSES],
            powers: 0,
            classes: [0; POWERS],
            ends: [0; PAGES / 64],
            fresh: Vec::new(),
            free_pages: 0,
        }
    }

    /// Adds memory that has not been handed out yet, and says whether it is known to be zero. What
    /// is added first goes first. Page 0 and pages above 4 GiB are left out.
    pub fn add_fresh(&mut self, pages: Range<u32>, zero: bool) {
        let pages = pages.start.max(1)..pages.end.min(PAGES as u32);
        if pages.is_empty() {
            return;
        }
        self.free_pages += pages.end - pages.start;
        if let Err(fresh) = self.fresh.push(Fresh { pages, zero }) {
            self.insert(fresh.pages.start, fresh.pages.len() as u32);
        }
    }

    /// Pages that are free.
    pub fn free_pages(&self) -> u32 {
        self.free_pages
    }

    /// Pages of the longest free run.
    pub fn largest(&self) -> u32 {
        let fresh = self.fresh.iter().map(|fresh| fresh.pages.len() as u32).max().unwrap_or(0);
        let Some(power) = self.powers.checked_ilog2() else { return fresh };
        let class = self.classes[power as usize].checked_ilog2().unwrap_or(0);
        let list = self.list(power as usize * CLASSES_PER_POWER + class as usize);
        list.map(|(_, pages)| pages).max().unwrap_or(0).max(fresh)
    }

    /// Takes `pages` pages whose first is a multiple of `align` pages (a power of two).
    pub fn take(&mut self, pages: u32, align: u32) -> Option<Run> {
        if pages == 0 || pages > self.free_pages {
            return None;
        }
        if let Some(page) = self.take_used(pages, align) {
            return Some(Run { page, pages, zero: false });
        }
        if let Some(run) = self.take_fresh(pages, align) {
            return Some(run);
        }
        // What is left of fresh memory may complete a run that came back beside it.
        while let Some(Fresh { pages, .. }) = self.fresh.pop() {
            self.insert(pages.start, pages.len() as u32);
        }
        self.take_used(pages, align).map(|page| Run { page, pages, zero: false })
    }

    /// Gives back a run, or any part of one.
    pub fn give(&mut self, page: u32, pages: u32) {
        self.free_pages += pages;
        self.insert(page, pages);
    }

    fn take_used(&mut self, pages: u32, align: u32) -> Option<u32> {
        // A run that is this much longer holds an aligned one wherever it starts.
        let enough = pages.checked_add(align - 1)?;
        let (first, length) = self.find(enough).or_else(|| self.search(pages, align))?;
        let page = first.next_multiple_of(align);
        self.remove(first, length);
        if page > first {
            self.insert(first, page - first);
        }
        let behind = page + pages;
        if first + length > behind {
            self.insert(behind, first + length - behind);
        }
        self.free_pages -= pages;
        Some(page)
    }

    fn take_fresh(&mut self, pages: u32, align: u32) -> Option<Run> {
        let fits = |fresh: &Fresh| {
            let page = fresh.pages.start.checked_next_multiple_of(align)?;
            (page.checked_add(pages)? <= fresh.pages.end).then_some(page)
        };
        let (index, page) = self
            .fresh
            .iter()
            .map(fits)
            .enumerate()
            .find_map(|(index, page)| Some((index, page?)))?;
        let fresh = &mut self.fresh[index];
        let zero = fresh.zero;
        let skipped = core::mem::replace(&mut fresh.pages.start, page + pages);
        if fresh.pages.is_empty() {
            self.fresh.remove(index);
        }
        if page > skipped {
            self.insert(skipped, page - skipped);
        }
        self.free_pages -= pages;
        Some(Run { page, pages, zero })
    }

    /// A run of at least `pages` pages, from the first class whose runs all are that long.
    fn find(&self, pages: u32) -> Option<(u32, u32)> {
        let class = class_of(round_up(pages)?);
        let (power, within) = (class / CLASSES_PER_POWER, class % CLASSES_PER_POWER);
        let here = self.classes.get(power)? >> within << within;
        let class = if here != 0 {
            power * CLASSES_PER_POWER + here.trailing_zeros() as usize
        } else {
            let above = self.powers.checked_shr(power as u32 + 1)?;
            let power = power + 1 + above.trailing_zeros() as usize;
            let classes = self.classes.get(power).filter(|_| above != 0)?;
            power * CLASSES_PER_POWER + classes.trailing_zeros() as usize
        };
        self.list(class).next()
    }

    /// The first run that holds `pages` pages at this alignment, looking at each that may. Slow, and
    /// only for requests that [`find`](Self::find) rounded past the last run, which is why no class
    /// above the rounded one needs a look.
    fn search(&self, pages: u32, align: u32) -> Option<(u32, u32)> {
        let above = pages.checked_add(align - 1).and_then(round_up).map_or(CLASSES, class_of);
        (class_of(pages)..above.min(CLASSES)).flat_map(|class| self.list(class)).find(
            |&(first, length)| {
                first.next_multiple_of(align).saturating_add(pages) <= first + length
            },
        )
    }

    fn list(&self, class: usize) -> impl Iterator<Item = (u32, u32)> {
        let mut page = self.heads[class];
        core::iter::from_fn(move || {
            (page != NONE).then(|| {
                let head = self.links.head(page);
                (core::mem::replace(&mut page, head.next), head.pages)
            })
        })
    }

    /// Adds a run to its list, joined with the free runs that touch it.
    fn insert(&mut self, mut page: u32, mut pages: u32) {
        if page > 0 && self.is_end(page - 1) {
            let before = self.links.tail(page - 1);
            page -= before;
            pages += before;
            self.remove(page, before);
        }
        let behind = page + pages;
        if (behind as usize) < PAGES && self.is_end(behind) {
            let after = self.links.head(behind).pages;
            self.remove(behind, after);
            pages += after;
        }
        let class = class_of(pages);
        let next = core::mem::replace(&mut self.heads[class], page);
        self.links.set_head(page, Head { pages, next, previous: NONE });
        self.links.set_tail(page + pages - 1, pages);
        if next != NONE {
            let head = self.links.head(next);
            self.links.set_head(next, Head { previous: page, ..head });
        }
        self.classes[class / CLASSES_PER_POWER] |= 1 << (class % CLASSES_PER_POWER);
        self.powers |= 1 << (class / CLASSES_PER_POWER);
        self.set_end(page, true);
        self.set_end(page + pages - 1, true);
    }

    fn remove(&mut self, page: u32, pages: u32) {
        let Head { next, previous, .. } = self.links.head(page);
        if next != NONE {
            let head = self.links.head(next);
            self.links.set_head(next, Head { previous, ..head });
        }
        if previous != NONE {
            let head = self.links.head(previous);
            self.links.set_head(previous, Head { next, ..head });
        } else {
            let class = class_of(pages);
            self.heads[class] = next;
            if next == NONE {
                let power = class / CLASSES_PER_POWER;
                self.classes[power] &= !(1 << (class % CLASSES_PER_POWER));
                if self.classes[power] == 0 {
                    self.powers &= !(1 << power);
                }
            }
        }
        self.set_end(page, false);
        self.set_end(page + pages - 1, false);
    }

    fn is_end(&self, page: u32) -> bool {
        self.ends[page as usize / 64] & (1 << (page % 64)) != 0
    }

    fn set_end(&mut self, page: u32, end: bool) {
        let word = &mut self.ends[page as usize / 64];
        *word = *word & !(1 << (page % 64)) | (u64::from(end) << (page % 64));
    }
}

/// The class that a run of this length hangs in: all its runs are at least as long as the class.
const fn class_of(pages: u32) -> usize {
    if pages < CLASSES_PER_POWER as u32 {
        return pages as usize;
    }
    let power = pages.ilog2();
    let within = (pages >> (power - 3)) as usize - CLASSES_PER_POWER;
    (power as usize - 2) * CLASSES_PER_POWER + within
}

/// The length at which the class begins that only holds runs of at least `pages`.
fn round_up(pages: u32) -> Option<u32> {
    match pages.checked_ilog2() {
        Some(power) if power > 3 => pages.checked_next_multiple_of(1 << (power - 3)),
        _ => Some(pages),
    }
}

#[cfg(test)]
mod tests {
    use std::boxed::Box;
    use std::collections::{BTreeSet, HashMap};
    use std::vec::Vec;

    use proptest::prelude::*;

    use super::*;

    /// Page contents, and what must not be touched: pages that are in use.
    #[derive(Default)]
    struct Pages {
        heads: HashMap<u32, Head>,
        tails: HashMap<u32, u32>,
    }

    impl Links for Pages {
        fn head(&self, page: u32) -> Head {
            self.heads[&page]
        }
        fn set_head(&mut self, page: u32, head: Head) {
            self.heads.insert(page, head);
        }
        fn tail(&self, page: u32) -> u32 {
            self.tails[&page]
        }
        fn set_tail(&mut self, page: u32, pages: u32) {
            self.tails.insert(page, pages);
        }
    }

    fn runs() -> Box<Runs<Pages>> {
        Box::new(Runs::new(Pages::default()))
    }

    #[test]
    fn classes_are_monotonic_and_end_below_the_table() {
        let mut last = 0;
        for pages in 1..PAGES as u32 {
            let class = class_of(pages);
            assert!(class == last || class == last + 1);
            last = class;
            assert!(class_of(round_up(pages).unwrap()) >= class);
        }
        assert!(class_of(PAGES as u32) < CLASSES);
    }

    #[test]
    fn fresh_memory_is_handed_out_in_order_and_comes_back_used() {
        let mut runs = runs();
        runs.add_fresh(512..1024, true);
        let first = runs.take(3, 1).unwrap();
        assert_eq!(first, Run { page: 512, pages: 3, zero: true });
        let aligned = runs.take(8, 8).unwrap();
        assert_eq!(aligned, Run { page: 520, pages: 8, zero: true });
        assert_eq!(runs.free_pages(), 501);
        runs.give(first.page, first.pages);
        // The gap of the alignment and the returned run have become one.
        assert_eq!(runs.take(8, 1), Some(Run { page: 512, pages: 8, zero: false }));
    }

    #[test]
    fn the_whole_memory_can_be_taken_as_one_run_after_use() {
        let mut runs = runs();
        runs.add_fresh(100..1100, true);
        let parts: Vec<Run> = (0..10).map(|_| runs.take(37, 1).unwrap()).collect();
        assert_eq!(runs.take(1000, 1), None);
        for part in parts {
            runs.give(part.page, part.pages);
        }
        assert_eq!(runs.largest(), 630);
        assert_eq!(runs.take(1000, 1), Some(Run { page: 100, pages: 1000, zero: false }));
        assert_eq!(runs.take(1, 1), None);
        assert_eq!(runs.largest(), 0);
    }

    #[test]
    fn impossible_requests_are_refused() {
        let mut runs = runs();
        assert_eq!(runs.take(1, 1), None);
        runs.add_fresh(1..9, false);
        assert_eq!(runs.take(0, 1), None);
        assert_eq!(runs.take(9, 1), None);
        assert_eq!(runs.take(u32::MAX, 1 << 31), None);
        assert_eq!(runs.take(8, 2), None);
        assert_eq!(runs.take(7, 2), Some(Run { page: 2, pages: 7, zero: false }));
    }

    #[derive(Clone, Debug)]
    enum Step {
        Take { pages: u32, align: u32 },
        Give { which: usize },
    }

    fn step() -> impl Strategy<Value = Step> {
        prop_oneof![
            (1u32..40, 0u32..5).prop_map(|(pages, align)| Step::Take { pages, align: 1 << align }),
            (0usize..64).prop_map(|which| Step::Give { which }),
        ]
    }

    fn longest(free: &BTreeSet<u32>, align: u32) -> u32 {
        let length = |&first: &u32| (first..).take_while(|page| free.contains(page)).count();
        let starts = free.iter().filter(|page| page.is_multiple_of(align));
        starts.map(length).max().unwrap_or(0) as u32
    }

    proptest! {
        /// Against a plain set of free pages: never twice the same page, never a refusal while an
        /// aligned run is long enough.
        #[test]
        fn behaves_as_a_set_of_pages(steps in proptest::collection::vec(step(), 1..120)) {
            let mut runs = runs();
            runs.add_fresh(16..200, true);
            runs.add_fresh(300..420, false);
            let mut free: BTreeSet<u32> = (16..200).chain(300..420).collect();
            let mut taken: Vec<Run> = Vec::new();
            for step in steps {
                match step {
                    Step::Take { pages, align } => match runs.take(pages, align) {
                        Some(run) => {
                            prop_assert!(run.page.is_multiple_of(align) && run.pages == pages);
                            for page in run.page..run.page + pages {
                                prop_assert!(free.remove(&page));
                            }
                            taken.push(run);
                        }
                        None => prop_assert!(longest(&free, align) < pages),
                    },
                    Step::Give { which } if !taken.is_empty() => {
                        let run = taken.swap_remove(which % taken.len());
                        free.extend(run.page..run.page + run.pages);
                        runs.give(run.page, run.pages);
                    }
                    Step::Give { .. } => {}
                }
                prop_assert_eq!(runs.free_pages() as usize, free.len());
                prop_assert!(runs.largest() <= longest(&free, 1));
            }
            for run in taken {
                runs.give(run.page, run.pages);
            }
            prop_assert_eq!(runs.take(184, 1).map(|run| run.page), Some(16));
            prop_assert_eq!(runs.take(120, 1).map(|run| run.page), Some(300));
        }
    }
}
