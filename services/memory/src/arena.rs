//! One arena: a range of HBM from which spans are cut, lowest address first (specification 04 §3).
//!
//! Free memory is kept as runs that are never adjacent. Two of them are two numbers each: the
//! *wilderness*, which ends at the frontier, and the *front*, the lowest of all, from which small
//! spans are cut one after the other. All others are bits in an [`Index`] with a tournament of run
//! lengths on top (words of 64 granules, pages of 64 words, groups of 64 pages, 64 groups). Finding
//! the lowest run that is long enough is three descents of six comparisons; a change climbs only as
//! far as it changes a maximum. Contiguous scratchpads grow down from the top by moving the
//! frontier. Nothing is ever written to the managed memory itself.

mod index;
mod tournament;

use alloc::vec::Vec;

#[cfg(test)]
pub(crate) use index::MAX_GRANULES;
pub(crate) use index::{Index, NoRoom};

use crate::faults::Faults;
use index::{GROUP_PAGES, Span};
use tournament::Tournament;

/// Why an arena did not hand out a span. Nothing has changed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum ArenaError {
    /// No free run fits.
    Full,
    /// No memory for the index.
    NoRoom,
}

impl From<NoRoom> for ArenaError {
    fn from(_: NoRoom) -> Self {
        ArenaError::NoRoom
    }
}

/// The span given back was not handed out like that (specification 04 §3.4 A-8).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct WrongSpan;

/// A free run: first granule, length.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Run {
    start: u32,
    length: u32,
}

impl Run {
    const fn end(self) -> u32 {
        self.start + self.length
    }

    const NONE: Run = Run { start: 0, length: 0 };

    const fn fits(self, start: u32, count: u32) -> bool {
        start >= self.start && count <= self.length && start - self.start <= self.length - count
    }
}

/// One arena. All positions are granules from its base.
pub(crate) struct Arena {
    granules: u32,
    /// Ordinary spans lie below it, contiguous scratchpads above.
    frontier: u32,
    /// Start of the wilderness `[wilderness, frontier)`.
    wilderness: u32,
    /// The lowest free run where it is not in the index; its page exists. Length 0 for none.
    front: Run,
    free: u32,
    index: Index,
    /// Longest run of every page, by group of pages.
    groups: Vec<Tournament>,
    /// Longest run of every group.
    top: Tournament,
}

impl Arena {
    /// An arena of `granules` free granules.
    pub(crate) fn new(granules: u32, faults: &mut Faults) -> Result<Arena, NoRoom> {
        let index = Index::new(granules, faults)?;
        let count = (granules as usize).div_ceil(index::PAGE_GRANULES * GROUP_PAGES);
        let mut groups = Vec::new();
        groups.try_reserve_exact(count).map_err(|_| NoRoom)?;
        groups.resize_with(count, Tournament::new);
        Ok(Arena {
            granules,
            frontier: granules,
            wilderness: 0,
            front: Run::NONE,
            free: granules,
            index,
            groups,
            top: Tournament::new(),
        })
    }

    /// Free granules.
    pub(crate) fn free_granules(&self) -> u32 {
        self.free
    }

    /// Longest free run.
    pub(crate) fn largest(&self) -> u32 {
        self.top.largest().max(self.front.length).max(self.frontier - self.wilderness)
    }

    /// Where spans start.
    pub(crate) fn index(&self) -> &Index {
        &self.index
    }

    /// The last span that starts at or before `granule`: its start and record.
    pub(crate) fn span_at(&mut self, granule: u32) -> Option<(u32, u32)> {
        self.index.used_at_or_before(granule)
    }

    /// First granule of the contiguous scratchpads; all granules where there are none.
    pub(crate) fn frontier(&self) -> u32 {
        self.frontier
    }

    /// Bytes of heap that the arena's own tables take now.
    pub(crate) fn bytes(&self) -> usize {
        self.index.bytes() + self.groups.len() * size_of::<Tournament>()
    }

    /// Cuts `count` granules for `record` from the lowest run that is long enough.
    #[inline(always)]
    pub(crate) fn allocate(
        &mut self,
        count: u64,
        record: u32,
        faults: &mut Faults,
    ) -> Result<u32, ArenaError> {
        if self.front.length != 0 || u64::from(self.top.largest()) >= count {
            return self.allocate_from_runs(count, record, faults);
        }
        self.append(count, record, faults)
    }

    /// Cuts from the start of the wilderness.
    #[inline(always)]
    fn append(&mut self, count: u64, record: u32, faults: &mut Faults) -> Result<u32, ArenaError> {
        let start = self.wilderness;
        if count == 0 || count > u64::from(self.frontier - start) {
            return Err(ArenaError::Full);
        }
        self.index.append_used(start, record, faults)?;
        self.wilderness = start + count as u32;
        self.free -= count as u32;
        Ok(start)
    }

    #[inline(never)]
    fn allocate_from_runs(
        &mut self,
        count: u64,
        record: u32,
        faults: &mut Faults,
    ) -> Result<u32, ArenaError> {
        if count == 0 {
            return Err(ArenaError::Full);
        }
        if self.front.length == 0 {
            self.take_out_front();
        }
        if count <= u64::from(self.front.length) {
            return self.cut_front(count as u32, record, faults);
        }
        if count <= u64::from(self.top.largest()) {
            let run = self.first_fit(count as u32).ok_or(ArenaError::Full)?;
            return self.cut(run, run.start, count as u32, record, faults);
        }
        self.append(count, record, faults)
    }

    /// Takes the lowest run out of the index, as the front. There is none yet.
    fn take_out_front(&mut self) {
        if self.top.largest() == 0 {
            return;
        }
        if let Some(run) = self.first_fit(1) {
            let longest = self.index.remove_free(run.start, run.length);
            self.note(run.start, longest);
            self.front = run;
        }
    }

    /// Puts the front back into the index.
    fn put_back_front(&mut self) {
        let front = core::mem::replace(&mut self.front, Run::NONE);
        if front.length != 0 {
            let longest = self.index.insert_free(front.start, front.length);
            self.note(front.start, longest);
        }
    }

    /// Cuts the first `count` granules of the front, which is long enough.
    #[inline(always)]
    fn cut_front(
        &mut self,
        count: u32,
        record: u32,
        faults: &mut Faults,
    ) -> Result<u32, ArenaError> {
        let Run { start, length } = self.front;
        let next = start + count;
        if length == count {
            self.index.set_after_free(next, false);
        } else if start as usize / index::PAGE_GRANULES != next as usize / index::PAGE_GRANULES {
            self.index.prepare(next, faults)?;
        }
        self.index.insert_used(start, record, false);
        self.front = Run { start: next, length: length - count };
        self.free -= count;
        Ok(start)
    }

    /// As [`Self::allocate`], with `start + phase` a multiple of `align` granules (a power of two).
    pub(crate) fn allocate_aligned(
        &mut self,
        count: u32,
        align: u64,
        phase: u64,
        record: u32,
        faults: &mut Faults,
    ) -> Result<u32, ArenaError> {
        self.put_back_front();
        let aligned = |start: u32| -> Option<u32> {
            let absolute = phase.checked_add(u64::from(start))?;
            u32::try_from(absolute.checked_next_multiple_of(align)? - phase).ok()
        };
        let mut from = 0;
        while let Some(run) = self.next_fit(from, count) {
            if let Some(start) = aligned(run.start).filter(|&start| run.fits(start, count)) {
                return self.cut(run, start, count, record, faults);
            }
            from = run.end();
        }
        let start = aligned(self.wilderness).ok_or(ArenaError::Full)?;
        self.cut_wilderness(start, count, record, faults)
    }

    /// Cuts exactly `[start, start + count)`, or nothing.
    #[allow(dead_code)]
    pub(crate) fn allocate_fixed(
        &mut self,
        start: u32,
        count: u32,
        record: u32,
        faults: &mut Faults,
    ) -> Result<(), ArenaError> {
        self.put_back_front();
        if start >= self.wilderness {
            return self.cut_wilderness(start, count, record, faults).map(drop);
        }
        let at = self.index.free_before(start + 1).ok_or(ArenaError::Full)?;
        let run = Run { start: at, length: self.index.free(at).unwrap_or(0) };
        if !run.fits(start, count) {
            return Err(ArenaError::Full);
        }
        self.cut(run, start, count, record, faults).map(drop)
    }

    /// Moves the frontier down by `count` granules and gives them to `record`: a contiguous
    /// scratchpad (specification 04 §4.4 A).
    pub(crate) fn push_down(
        &mut self,
        count: u32,
        record: u32,
        faults: &mut Faults,
    ) -> Result<u32, ArenaError> {
        if count > self.frontier - self.wilderness {
            return Err(ArenaError::Full);
        }
        let start = self.frontier - count;
        self.index.prepare(start, faults)?;
        self.frontier = start;
        self.free -= count;
        self.index.insert_used(start, record, false);
        Ok(start)
    }

    /// Moves the frontier up again over the scratchpad of `record`, which must be the lowest.
    pub(crate) fn pull_up(&mut self, count: u32, record: u32) -> Result<(), WrongSpan> {
        if self.index.used(self.frontier).map(|(owner, _)| owner) != Some(record)
            || count > self.granules - self.frontier
        {
            return Err(WrongSpan);
        }
        self.index.remove_used(self.frontier);
        self.frontier += count;
        self.free += count;
        Ok(())
    }

    /// Takes back `[start, start + count)`, which `record` holds. Never needs memory.
    #[inline(always)]
    pub(crate) fn release(&mut self, start: u32, count: u32, record: u32) -> Result<(), WrongSpan> {
        let end = start.wrapping_add(count);
        if start >= self.wilderness || count > self.wilderness - start {
            return Err(WrongSpan);
        }
        let after_free = self.index.take_used(start, record).ok_or(WrongSpan)?;
        self.free += count;
        if end == self.wilderness && !after_free {
            self.wilderness = start;
            return Ok(());
        }
        self.merge(start, count, record, after_free)
    }

    /// Joins a span just taken out with its free neighbours.
    #[inline(never)]
    fn merge(
        &mut self,
        start: u32,
        count: u32,
        record: u32,
        after_free: bool,
    ) -> Result<(), WrongSpan> {
        let end = start + count;
        let mut run = Run { start, length: count };
        let front = self.front;
        let mut is_front = false;
        if front.length != 0 && end == front.start {
            run.length += front.length;
            is_front = true;
        } else if end != self.wilderness {
            match self.index.span(end) {
                Some(Span::Used) => self.index.set_after_free(end, true),
                Some(Span::Free(length)) => {
                    let longest = self.index.remove_free(end, length);
                    self.note(end, longest);
                    run.length += length;
                }
                None => {
                    // Nothing begins there, so the length is wrong.
                    self.index.insert_used(start, record, after_free);
                    self.free -= count;
                    return Err(WrongSpan);
                }
            }
        }
        if front.length != 0 && front.end() == start {
            run = Run { start: front.start, length: front.length + run.length };
            is_front = true;
        } else if after_free {
            // Not below the front, so it is in the index and stays there.
            return self.extend(start, end, run.length);
        }
        if end == self.wilderness {
            self.wilderness = run.start;
            self.front = if is_front { Run::NONE } else { front };
        } else if is_front {
            self.front = run;
        } else if front.length != 0 && start < front.start {
            self.put_back_front();
            self.front = run;
        } else {
            let longest = self.index.insert_free(start, run.length);
            self.note(start, longest);
        }
        Ok(())
    }

    /// Makes the free run of the index before `start` longer by `more`, up to the wilderness where
    /// the span just taken out ended there.
    fn extend(&mut self, start: u32, end: u32, more: u32) -> Result<(), WrongSpan> {
        // The span said that there is one.
        let left = self.index.free_before(start).ok_or(WrongSpan)?;
        let length = start - left;
        let longest = if end == self.wilderness {
            self.wilderness = left;
            self.index.remove_free(left, length)
        } else {
            self.index.resize_free(left, length, length + more)
        };
        self.note(left, longest);
        Ok(())
    }

    /// Lowest run of the index with at least `count` granules. The caller knows that there
    /// is one.
    #[inline]
    fn first_fit(&self, count: u32) -> Option<Run> {
        let group = self.top.first(count);
        let page = group * GROUP_PAGES + self.groups.get(group)?.first(count);
        let in_page = self.index.page(page)?;
        let word = in_page.bits().runs.first(count);
        let (start, length) = in_page.run_in_word(word, u64::MAX, count)?;
        Some(Run { start: (page * index::PAGE_GRANULES + start) as u32, length })
    }

    /// As [`Self::first_fit`], from granule `from` on.
    fn next_fit(&self, from: u32, count: u32) -> Option<Run> {
        let page = from as usize / index::PAGE_GRANULES;
        let run = |page: usize, (start, length): (usize, u32)| Run {
            start: (page * index::PAGE_GRANULES + start) as u32,
            length,
        };
        if let Some(in_page) = self.index.page(page) {
            let word = from as usize / 64 % 64;
            let mask = u64::MAX << (from % 64);
            if let Some(found) = in_page.run_in_word(word, mask, count) {
                return Some(run(page, found));
            }
            if let Some(word) = in_page.bits().runs.first_from(word + 1, count) {
                return Some(run(page, in_page.run_in_word(word, u64::MAX, count)?));
            }
        }
        let group = page / GROUP_PAGES;
        let in_group = self.groups.get(group)?.first_from(page % GROUP_PAGES + 1, count);
        let page = match in_group {
            Some(in_group) => group * GROUP_PAGES + in_group,
            None => {
                let group = self.top.first_from(group + 1, count)?;
                group * GROUP_PAGES + self.groups.get(group)?.first(count)
            }
        };
        let in_page = self.index.page(page)?;
        let word = in_page.bits().runs.first(count);
        Some(run(page, in_page.run_in_word(word, u64::MAX, count)?))
    }

    /// Cuts `[start, start + count)` out of `run`.
    #[inline]
    fn cut(
        &mut self,
        run: Run,
        start: u32,
        count: u32,
        record: u32,
        faults: &mut Faults,
    ) -> Result<u32, ArenaError> {
        let head = start - run.start;
        let tail = run.length - count - head;
        let end = start + count;
        if head == 0 && tail > 0 && start / 64 == end / 64 {
            let longest = self.index.take_front(start, run.length, count, record);
            self.note(start, longest);
            self.free -= count;
            return Ok(start);
        }
        if head > 0 {
            self.index.prepare(start, faults)?;
        }
        if tail > 0 {
            self.index.prepare(end, faults)?;
        }
        let longest = if head > 0 {
            self.index.resize_free(run.start, run.length, head)
        } else {
            self.index.remove_free(run.start, run.length)
        };
        self.note(run.start, longest);
        if tail > 0 {
            let longest = self.index.insert_free(end, tail);
            self.note(end, longest);
        } else {
            self.index.set_after_free(end, false);
        }
        self.index.insert_used(start, record, head > 0);
        self.free -= count;
        Ok(start)
    }

    /// Cuts `[start, start + count)` out of the wilderness.
    #[inline]
    fn cut_wilderness(
        &mut self,
        start: u32,
        count: u32,
        record: u32,
        faults: &mut Faults,
    ) -> Result<u32, ArenaError> {
        let wilderness = Run { start: self.wilderness, length: self.frontier - self.wilderness };
        if !wilderness.fits(start, count) {
            return Err(ArenaError::Full);
        }
        let head = start - wilderness.start;
        self.index.prepare(start, faults)?;
        if head > 0 {
            self.index.prepare(wilderness.start, faults)?;
            let longest = self.index.insert_free(wilderness.start, head);
            self.note(wilderness.start, longest);
        }
        self.index.insert_used(start, record, head > 0);
        self.wilderness = start + count;
        self.free -= count;
        Ok(start)
    }

    /// Carries a new longest run of the page of `granule` up.
    #[inline]
    fn note(&mut self, granule: u32, longest: Option<u32>) {
        let Some(longest) = longest else { return };
        let page = granule as usize / index::PAGE_GRANULES;
        let Some(group) = self.groups.get_mut(page / GROUP_PAGES) else { return };
        if group.set(page % GROUP_PAGES, longest) {
            self.top.set(page / GROUP_PAGES, group.largest());
        }
    }
}

#[cfg(test)]
mod tests;
