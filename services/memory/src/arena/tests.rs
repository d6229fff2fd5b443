//! The arena against a list of granules.

use alloc::vec;
use alloc::vec::Vec;

use proptest::prelude::*;

use super::*;

/// Every granule with its record, and scratchpads from the top: as simple as it gets.
struct Naive {
    granules: Vec<Option<u32>>,
    frontier: usize,
    spans: Vec<(u32, u32, u32)>,
    pads: Vec<(u32, u32, u32)>,
}

impl Naive {
    fn new(count: usize) -> Self {
        Naive { granules: vec![None; count], frontier: count, spans: vec![], pads: vec![] }
    }

    fn fits(&self, start: usize, count: usize) -> bool {
        start + count <= self.frontier
            && self.granules[start..start + count].iter().all(Option::is_none)
    }

    fn find(&self, count: usize, align: usize, phase: usize) -> Option<u32> {
        if count == 0 {
            return None;
        }
        (0..self.frontier)
            .find(|&at| (at + phase).is_multiple_of(align) && self.fits(at, count))
            .map(|at| at as u32)
    }

    fn take(&mut self, start: u32, count: u32, record: u32) {
        self.granules[start as usize..(start + count) as usize].fill(Some(record));
        self.spans.push((start, count, record));
    }

    fn give(&mut self, at: usize) -> (u32, u32, u32) {
        let last = self.spans.len() - 1;
        self.spans.swap(at, last);
        self.give_in_order(last)
    }

    /// As [`Self::give`]; the spans stay in order of their age.
    fn give_in_order(&mut self, at: usize) -> (u32, u32, u32) {
        let span = self.spans.remove(at);
        self.granules[span.0 as usize..(span.0 + span.1) as usize].fill(None);
        span
    }

    fn free(&self) -> u32 {
        self.granules.iter().filter(|g| g.is_none()).count() as u32
    }

    fn largest(&self) -> u32 {
        let runs = self.granules[..self.frontier].split(Option::is_some);
        runs.map(<[_]>::len).max().unwrap_or(0) as u32
    }

    fn record_at(&self, granule: usize) -> Option<u32> {
        self.granules[granule]
    }
}

#[derive(Clone, Debug)]
pub(super) enum Step {
    Plain(u32),
    Aligned(u32, u32),
    Fixed(u32, u32),
    Push(u32),
    Pull,
    Free(usize),
    /// The last so many spans, oldest first or newest first.
    FreeLast(usize, bool),
    /// So many spans of one length.
    Burst(usize, u32),
}

fn step(granules: u32) -> impl Strategy<Value = Step> {
    let size = prop_oneof![8 => 1u32..9, 4 => 1u32..200, 1 => 1..granules + 2];
    prop_oneof![
        8 => size.clone().prop_map(Step::Plain),
        2 => (size.clone(), 0u32..10).prop_map(|(s, a)| Step::Aligned(s, a)),
        1 => (0..granules, size.clone()).prop_map(|(at, s)| Step::Fixed(at, s)),
        1 => size.prop_map(Step::Push),
        1 => Just(Step::Pull),
        10 => any::<usize>().prop_map(Step::Free),
        4 => (1usize..90, any::<bool>()).prop_map(|(n, newest)| Step::FreeLast(n, newest)),
        2 => (1usize..90, 1u32..4).prop_map(|(n, size)| Step::Burst(n, size)),
    ]
}

fn run(granules: u32, phase: u32, steps: &[Step], check_every: usize) {
    let mut faults = Faults::default();
    let mut arena = Arena::new(granules, &mut faults).unwrap();
    let mut naive = Naive::new(granules as usize);
    for (number, step) in steps.iter().enumerate() {
        let record = number as u32;
        match *step {
            Step::Plain(count) => {
                let expected = naive.find(count as usize, 1, 0);
                let got = arena.allocate(u64::from(count), record, &mut faults).ok();
                assert_eq!(got, expected, "plain {count}");
                if let Some(start) = got {
                    naive.take(start, count, record);
                }
            }
            Step::Aligned(count, align) => {
                let align = 1usize << align;
                let expected = naive.find(count as usize, align, phase as usize);
                let got = arena.allocate_aligned(
                    count,
                    align as u64,
                    u64::from(phase),
                    record,
                    &mut faults,
                );
                assert_eq!(got.ok(), expected, "aligned {count} to {align}");
                if let Some(start) = expected {
                    naive.take(start, count, record);
                }
            }
            Step::Fixed(at, count) => {
                let expected = count > 0 && naive.fits(at as usize, count as usize);
                let got = arena.allocate_fixed(at, count, record, &mut faults);
                assert_eq!(got.is_ok(), expected, "fixed {count} at {at}");
                if expected {
                    naive.take(at, count, record);
                }
            }
            Step::Push(count) => {
                let fits = count > 0
                    && count as usize <= naive.frontier
                    && naive.fits(naive.frontier - count as usize, count as usize);
                let got = arena.push_down(count, record, &mut faults);
                assert_eq!(got.is_ok(), fits, "push {count}");
                if let Ok(start) = got {
                    assert_eq!(start as usize + count as usize, naive.frontier);
                    naive.granules[start as usize..naive.frontier].fill(Some(record));
                    naive.frontier = start as usize;
                    naive.pads.push((start, count, record));
                }
            }
            Step::Pull => {
                if let Some((start, count, record)) = naive.pads.pop() {
                    assert_eq!(arena.pull_up(count, record + 1), Err(WrongSpan));
                    arena.pull_up(count, record).unwrap();
                    naive.granules[start as usize..(start + count) as usize].fill(None);
                    naive.frontier += count as usize;
                }
            }
            Step::Free(which) => {
                if !naive.spans.is_empty() {
                    let (start, count, record) = naive.give(which % naive.spans.len());
                    // What is refused makes the arena carry out what it put off: not every time.
                    if which % 3 == 0 {
                        assert_eq!(arena.release(start, count, record ^ 1), Err(WrongSpan));
                        if count > 1 {
                            assert_eq!(arena.release(start, count - 1, record), Err(WrongSpan));
                        }
                    }
                    arena.release(start, count, record).unwrap();
                    if which % 3 == 1 {
                        assert_eq!(arena.release(start, count, record), Err(WrongSpan));
                    }
                }
            }
            Step::FreeLast(count, newest_first) => {
                let from = naive.spans.len().saturating_sub(count);
                for _ in from..naive.spans.len() {
                    let at = if newest_first { naive.spans.len() - 1 } else { from };
                    let (start, count, record) = naive.give_in_order(at);
                    arena.release(start, count, record).unwrap();
                }
            }
            Step::Burst(many, count) => {
                for _ in 0..many {
                    let expected = naive.find(count as usize, 1, 0);
                    let got = arena.allocate(u64::from(count), record, &mut faults).ok();
                    assert_eq!(got, expected, "one of {many} of {count}");
                    let Some(start) = got else { break };
                    naive.take(start, count, record);
                }
            }
        }
        if number % check_every == 0 {
            assert_eq!(arena.free_granules(), naive.free());
            assert_eq!(arena.largest(), naive.largest());
        }
        if number % (check_every * 8) == 0 {
            let probe = number * 7919 % granules as usize;
            let found = arena.span_at(probe as u32);
            if let Some(record) = naive.record_at(probe) {
                assert_eq!(found.map(|(_, record)| record), Some(record));
            } else if let Some((start, record)) = found {
                assert_eq!(naive.record_at(start as usize), Some(record));
            }
        }
    }
    assert_eq!(arena.free_granules(), naive.free());
    assert_eq!(arena.largest(), naive.largest());
    let mut listed = vec![];
    arena.for_each_used(|start, record| listed.push((start, record)));
    let mut expected: Vec<_> =
        naive.spans.iter().chain(&naive.pads).map(|&(start, _, record)| (start, record)).collect();
    expected.sort_unstable();
    assert_eq!(listed, expected);
    while let Some((_, count, record)) = naive.pads.pop() {
        arena.pull_up(count, record).unwrap();
    }
    while !naive.spans.is_empty() {
        let (start, count, record) = naive.give(0);
        arena.release(start, count, record).unwrap();
    }
    assert_eq!(arena.free_granules(), granules);
    assert_eq!(arena.allocate(u64::from(granules), 0, &mut faults), Ok(0), "whole again");
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 48, ..ProptestConfig::default() })]

    #[test]
    fn small_arena_agrees_with_a_list_of_granules(
        steps in prop::collection::vec(step(300), 1..400), phase in 0u32..70)
    {
        run(300, phase, &steps, 1);
    }

    #[test]
    fn arena_of_several_pages_agrees_with_a_list_of_granules(
        steps in prop::collection::vec(step(9000), 1..120), phase in 0u32..9000)
    {
        run(9000, phase, &steps, 5);
    }
}

#[test]
fn a_wrong_length_or_start_is_refused() {
    let mut faults = Faults::default();
    let mut arena = Arena::new(100, &mut faults).unwrap();
    let at = arena.allocate(10, 5, &mut faults).unwrap();
    assert_eq!(arena.release(at + 1, 9, 5), Err(WrongSpan));
    assert_eq!(arena.release(at, 11, 5), Err(WrongSpan));
    assert_eq!(arena.release(at, 9, 5), Err(WrongSpan));
    assert_eq!(arena.release(99, 1, 5), Err(WrongSpan));
    assert_eq!(arena.release(1 << 30, 1, 5), Err(WrongSpan));
    assert_eq!(arena.free_granules(), 90);
    arena.release(at, 10, 5).unwrap();
    assert_eq!(arena.largest(), 100);
}

#[test]
fn an_index_page_that_cannot_be_made_changes_nothing() {
    for nth in 1..4 {
        let mut faults = Faults::default();
        let mut arena = Arena::new(20_000, &mut faults).unwrap();
        faults.growth = crate::faults::Countdown::nth(nth);
        let mut failed = 0;
        for record in 0..4 {
            let before = (arena.free_granules(), arena.largest());
            if arena.allocate_aligned(3000, 4096, 5, record, &mut faults).is_err() {
                failed += 1;
                assert_eq!((arena.free_granules(), arena.largest()), before);
            }
        }
        assert_eq!(failed, 1);
    }
}

#[test]
fn a_tournament_of_64_groups_spans_64_gib() {
    let mut faults = Faults::default();
    assert!(Arena::new(MAX_GRANULES + 1, &mut faults).is_err());
    let mut arena = Arena::new(MAX_GRANULES, &mut faults).unwrap();
    let first = arena.allocate(1, 1, &mut faults).unwrap();
    let huge = arena.allocate(u64::from(MAX_GRANULES - 2), 2, &mut faults).unwrap();
    let last = arena.allocate(1, 3, &mut faults).unwrap();
    assert_eq!((first, huge, last), (0, 1, MAX_GRANULES - 1));
    assert_eq!(arena.allocate(1, 4, &mut faults), Err(ArenaError::Full));
    arena.release(huge, MAX_GRANULES - 2, 2).unwrap();
    assert_eq!(arena.largest(), MAX_GRANULES - 2);
    assert_eq!(arena.allocate(u64::from(MAX_GRANULES - 2), 5, &mut faults), Ok(1));
    assert_eq!(arena.span_at(MAX_GRANULES - 2), Some((1, 5)));
}

/// An arena with spans of two granules at 0, 2, 4 and so on.
fn pairs(granules: u32, count: u32) -> Arena {
    let mut faults = Faults::default();
    let mut arena = Arena::new(granules, &mut faults).unwrap();
    for record in 0..count {
        assert_eq!(arena.allocate(2, record, &mut faults), Ok(record * 2));
    }
    arena
}

#[test]
fn spans_given_back_are_cut_again_lowest_first_whoever_asks() {
    let mut faults = Faults::default();
    let mut arena = pairs(100, 8);
    for record in [5, 1, 3] {
        arena.release(record * 2, 2, record).unwrap();
        assert_eq!(arena.release(record * 2, 2, record), Err(WrongSpan), "twice");
        arena.release(record * 2, 2, NOBODY).unwrap_err();
    }
    assert_eq!((arena.free_granules(), arena.largest()), (90, 84));
    for (record, start) in [(20, 2), (21, 6), (22, 10), (23, 16)] {
        assert_eq!(arena.allocate(2, record, &mut faults), Ok(start));
    }
    assert_eq!(arena.release(2, 2, 1), Err(WrongSpan), "it has another owner");
    arena.release(2, 2, 20).unwrap();
}

#[test]
fn spans_given_back_join_their_neighbours_when_another_length_is_asked() {
    let mut faults = Faults::default();
    let mut arena = pairs(40, 8);
    for record in [2, 4, 3] {
        arena.release(record * 2, 2, record).unwrap();
    }
    assert_eq!(arena.largest(), 24);
    assert_eq!(arena.allocate(5, 9, &mut faults), Ok(4), "three of them are one run");
    assert_eq!(arena.allocate(1, 10, &mut faults), Ok(9));
}

#[test]
fn a_hole_of_another_length_below_is_taken_first() {
    let mut faults = Faults::default();
    let mut arena = Arena::new(100, &mut faults).unwrap();
    assert_eq!(arena.allocate(5, 0, &mut faults), Ok(0));
    for record in 1..8 {
        assert_eq!(arena.allocate(2, record, &mut faults), Ok(3 + record * 2));
    }
    arena.release(9, 2, 3).unwrap();
    arena.release(0, 5, 0).unwrap();
    assert_eq!(arena.allocate(2, 8, &mut faults), Ok(0));
    assert_eq!(arena.allocate(2, 9, &mut faults), Ok(2));
    // Behind one free granule, so the run begins there.
    arena.release(5, 2, 1).unwrap();
    assert_eq!(arena.allocate(2, 10, &mut faults), Ok(4));
}

#[test]
fn what_is_kept_is_free_for_every_other_way_of_asking() {
    let mut faults = Faults::default();
    let kept = |count: u32| {
        let mut arena = pairs(20, count);
        arena.release(2, 2, 1).unwrap();
        arena.release(4, 2, 2).unwrap();
        arena
    };
    assert_eq!(kept(5).allocate_fixed(3, 2, 9, &mut faults), Ok(()));
    assert_eq!(kept(5).allocate_aligned(1, 4, 0, 9, &mut faults), Ok(4));
    assert_eq!(kept(5).span_at(5), Some((0, 0)));
    let mut arena = kept(4);
    arena.release(6, 2, 3).unwrap();
    assert_eq!(arena.largest(), 18);
    assert_eq!(arena.push_down(18, 9, &mut faults), Ok(2));
    // What did not fit has changed where a length goes first all the same.
    let mut arena = kept(6);
    assert_eq!(arena.allocate(21, 9, &mut faults), Err(ArenaError::Full));
    arena.release(8, 2, 4).unwrap();
    assert_eq!(arena.allocate(2, 9, &mut faults), Ok(2));
}

#[test]
fn a_wrong_length_is_not_kept() {
    let mut faults = Faults::default();
    let mut arena = Arena::new(20, &mut faults).unwrap();
    assert_eq!(arena.allocate(3, 0, &mut faults), Ok(0));
    for record in 1..6 {
        assert_eq!(arena.allocate(2, record, &mut faults), Ok(1 + record * 2));
    }
    assert_eq!(arena.release(0, 2, 0), Err(WrongSpan));
    assert_eq!(arena.allocate(2, 6, &mut faults), Ok(13));
    arena.release(5, 2, 2).unwrap();
    assert_eq!(arena.release(0, 2, 0), Err(WrongSpan), "one is kept already");
    assert_eq!(arena.free_granules(), 7);
    // It seems to end where something begins, but a page of the index further up.
    let mut arena = Arena::new(9000, &mut faults).unwrap();
    for (count, record) in [(4, 0), (4086, 1), (20, 2), (10, 3), (10, 4)] {
        arena.allocate(count, record, &mut faults).unwrap();
    }
    assert_eq!(arena.release(4090, 10, 2), Err(WrongSpan));
}

#[test]
fn more_spans_than_are_kept_are_entered_from_the_highest_down() {
    let limit = kept::LIMIT as u32;
    for newest_first in [false, true] {
        let mut faults = Faults::default();
        let count = 2 * limit;
        let mut arena = pairs(4 * limit + 10, count + 2);
        for at in 0..count - 1 {
            let record = if newest_first { count - 2 - at } else { at };
            arena.release(record * 2, 2, record).unwrap();
        }
        assert_eq!(arena.largest(), 2 * count - 2);
        // With room again for one above those that were entered.
        assert_eq!(arena.allocate(2, 0, &mut faults), Ok(0));
        arena.release(2 * count, 2, count).unwrap();
        for record in (1..count - 1).chain([count]) {
            assert_eq!(arena.allocate(2, record, &mut faults), Ok(record * 2));
        }
    }
}
