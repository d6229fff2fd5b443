//! One arena: a range of HBM from which spans are cut, lowest address first (specification 04 §3).
//!
//! Free memory is held as runs that are never adjacent. The last one, the *wilderness*, which ends
//! at the frontier, is two numbers. All others are bits in an [`Index`] with a tournament of run
//! lengths on top (words of 64 granules, pages of 64 words, groups of 64 pages, 64 groups). Finding
//! the lowest run that is long enough is three descents of six comparisons; a change climbs only as
//! far as it changes a maximum. Contiguous scratchpads grow down from the top by moving the
//! frontier. Nothing is ever written to the managed memory itself.
//!
//! Spans of the length that was cut last, given back below that cut, are [`Kept`]: the index learns
//! of them when something else is asked, and the next ones of their length take their places by a
//! change of record. Every answer is that of an arena without this.

mod index;
mod kept;
mod tournament;

use alloc::vec::Vec;

#[cfg(test)]
pub(crate) use index::MAX_GRANULES;
pub(crate) use index::{Index, NoRoom};

use crate::faults::Faults;
use index::{GROUP_PAGES, Span};
use kept::{Kept, NOBODY};
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
    free: u32,
    kept: Kept,
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
            free: granules,
            kept: Kept::new(),
            index,
            groups,
            top: Tournament::new(),
        })
    }

    /// Free granules.
    pub(crate) fn free_granules(&self) -> u32 {
        self.free + self.kept.granules()
    }

    /// Longest free run.
    pub(crate) fn largest(&self) -> u32 {
        let known = self.top.largest().max(self.frontier - self.wilderness);
        if self.kept.is_empty() { known } else { known.max(self.largest_kept()) }
    }

    /// Longest run that a kept span begins. Before those that begin one lies a used granule.
    fn largest_kept(&self) -> u32 {
        let mut run = Run { start: 0, length: 0 };
        let mut largest = 0;
        for start in self.kept.starts() {
            if start != run.end() {
                run = Run { start, length: 0 };
            }
            run.length += self.kept.count();
            let behind = match run.end() {
                end if end == self.wilderness => self.frontier - end,
                end => self.index.free(end).unwrap_or(0),
            };
            largest = largest.max(run.length + behind);
        }
        largest
    }

    /// Calls `visit` with start and record of every span, in ascending order.
    pub(crate) fn for_each_used(&self, mut visit: impl FnMut(u32, u32)) {
        self.index.for_each_used(|start, record| {
            if record != NOBODY {
                visit(start, record);
            }
        });
    }

    /// The last span that starts at or before `granule`: its start and record.
    pub(crate) fn span_at(&mut self, granule: u32) -> Option<(u32, u32)> {
        self.settle();
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
        if !self.kept.is_empty() {
            if count == u64::from(self.kept.count())
                && let Some(start) = self.kept.take_lowest()
            {
                self.index.set_record(start, record);
                return Ok(start);
            }
            self.settle_now();
        }
        let start = if u64::from(self.top.largest()) >= count {
            self.allocate_from_runs(count as u32, record, faults)?
        } else {
            self.append(count, record, faults)?
        };
        self.kept.expect(count as u32, start + 1);
        Ok(start)
    }

    /// Cuts from the start of the wilderness.
    #[inline(always)]
    fn append(&mut self, count: u64, record: u32, faults: &mut Faults) -> Result<u32, ArenaError> {
        let start = self.wilderness;
        if count > u64::from(self.frontier - start) {
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
        count: u32,
        record: u32,
        faults: &mut Faults,
    ) -> Result<u32, ArenaError> {
        if count == 0 {
            return Err(ArenaError::Full);
        }
        let run = self.first_fit(count).ok_or(ArenaError::Full)?;
        self.cut(run, run.start, count, record, faults)
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
        self.settle();
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
        self.settle();
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
        self.settle();
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
        if end == self.wilderness && start < end {
            return self.release_last(start, count, record);
        }
        if count == self.kept.count()
            && self.kept.reaches(start)
            && self.kept.is_next(start)
            && self.index.pass_on(start, end, record, NOBODY)
        {
            self.kept.append(start);
            return Ok(());
        }
        self.release_any(start, count, record)
    }

    /// Takes back the span before the wilderness.
    #[inline(always)]
    fn release_last(&mut self, start: u32, count: u32, record: u32) -> Result<(), WrongSpan> {
        let after_free = self.index.take_used(start, record).ok_or(WrongSpan)?;
        self.free += count;
        if after_free {
            return self.join(start, count, true);
        }
        self.wilderness = start;
        Ok(())
    }

    #[inline(never)]
    fn release_any(&mut self, start: u32, count: u32, record: u32) -> Result<(), WrongSpan> {
        if start >= self.wilderness || count > self.wilderness - start {
            return Err(WrongSpan);
        }
        if count == self.kept.count()
            && self.kept.reaches(start)
            && self.index.used(start) == Some((record, false))
            && self.index.span(start + count).is_some()
        {
            self.index.set_record(start, NOBODY);
            if let Some(surplus) = self.kept.add(start) {
                self.enter_surplus(surplus);
            }
            return Ok(());
        }
        self.release_now(start, count, record)
    }

    /// Enters the highest kept span, for which there is no room, as free.
    #[inline(never)]
    fn enter_surplus(&mut self, start: u32) {
        let count = self.kept.count();
        self.index.remove_used(start);
        self.free += count;
        let _ = self.join(start, count, false);
        self.kept.lower(start);
    }

    /// Enters all kept spans as free. Never needs memory.
    #[inline]
    fn settle(&mut self) {
        if !self.kept.is_empty() {
            self.settle_now();
        }
        self.kept.expect(0, 0);
    }

    #[inline(never)]
    fn settle_now(&mut self) {
        let count = self.kept.count();
        let mut next = self.kept.take_lowest();
        while let Some(start) = next {
            let mut run = Run { start, length: 0 };
            while next == Some(run.end()) {
                self.index.remove_used(run.end());
                run.length += count;
                next = self.kept.take_lowest();
            }
            self.free += run.length;
            let _ = self.join(start, run.length, false);
        }
        self.kept.expect(0, 0);
    }

    /// Takes back a span that is not kept.
    fn release_now(&mut self, start: u32, count: u32, record: u32) -> Result<(), WrongSpan> {
        if self.kept.reaches(start) {
            // What is kept may not be the lowest of its length any more.
            self.settle();
        }
        let after_free = self.index.take_used(start, record).ok_or(WrongSpan)?;
        self.free += count;
        let joined = self.join(start, count, after_free);
        if joined.is_err() {
            // Nothing begins behind it, so the length is wrong.
            self.index.insert_used(start, record, after_free);
            self.free -= count;
        }
        joined
    }

    /// Enters a span just taken out as free, joined with its free neighbours.
    #[inline(never)]
    fn join(&mut self, start: u32, count: u32, after_free: bool) -> Result<(), WrongSpan> {
        let end = start + count;
        let mut length = count;
        if end != self.wilderness {
            match self.index.span(end).ok_or(WrongSpan)? {
                Span::Used => self.index.set_after_free(end, true),
                Span::Free(behind) => {
                    let longest = self.index.remove_free(end, behind);
                    self.note(end, longest);
                    length += behind;
                }
            }
        }
        if after_free {
            return self.extend(start, end, length);
        }
        if end == self.wilderness {
            self.wilderness = start;
        } else {
            let longest = self.index.insert_free(start, length);
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
