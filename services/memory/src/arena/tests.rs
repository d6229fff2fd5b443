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
        let span = self.spans.swap_remove(at);
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
                    assert_eq!(arena.release(start, count, record ^ 1), Err(WrongSpan));
                    arena.release(start, count, record).unwrap();
                    assert_eq!(arena.release(start, count, record), Err(WrongSpan));
                }
            }
        }
        if number % check_every == 0 {
            assert_eq!(arena.free_granules(), naive.free());
            assert_eq!(arena.largest(), naive.largest());
            let probe = number * 7919 % granules as usize;
            let found = arena.span_at(probe as u32);
            if let Some(record) = naive.record_at(probe) {
                assert_eq!(found.map(|(_, record)| record), Some(record));
            } else if let Some((start, record)) = found {
                assert_eq!(naive.record_at(start as usize), Some(record));
            }
        }
    }
    let mut listed = vec![];
    arena.index().for_each_used(|start, record| listed.push((start, record)));
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
