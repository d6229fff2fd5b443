//! Arenas alone: ours and others, doing the same work in a region of 24 GiB.

use std::collections::BTreeMap;
use std::hint::black_box;

use axon_memory::testing::BareArena;
use buddy_system_allocator::FrameAllocator;
use offset_allocator::{Allocation, Allocator};

use crate::measure::{Row, median};
use crate::setup::Random;
use crate::tlsf::TlsfPool;

/// Granules of 4 KiB in 24 GiB.
const GRANULES: u32 = ((24 << 30_u64) / 4096_u64) as u32;

/// Single-granule holes in front of the first longer run.
const HOLES: usize = 50_000;

/// An allocator of runs of granules.
pub trait Peer {
    /// Its name in the table.
    const NAME: &'static str;
    /// A run handed out.
    type Span: Copy;

    /// One that manages `granules` free granules.
    fn new(granules: u32) -> Self;

    /// A run of `count` granules.
    fn allocate(&mut self, count: u32) -> Option<Self::Span>;

    /// Gives it back.
    fn free(&mut self, span: Self::Span, count: u32);

    /// Takes all granules one by one.
    fn fill(&mut self) -> Vec<Self::Span> {
        std::iter::from_fn(|| self.allocate(1)).collect()
    }
}

impl Peer for BareArena {
    const NAME: &'static str = "axon";
    type Span = u32;

    fn new(granules: u32) -> Self {
        BareArena::new(granules).expect("the host has memory for an arena's tables")
    }

    #[inline]
    fn allocate(&mut self, count: u32) -> Option<u32> {
        BareArena::allocate(self, count, 1)
    }

    #[inline]
    fn free(&mut self, span: u32, count: u32) {
        assert!(self.release(span, count, 1));
    }
}

impl Peer for Allocator<u32> {
    const NAME: &'static str = "offset-allocator";
    type Span = Allocation<u32>;

    fn new(granules: u32) -> Self {
        Allocator::with_max_allocs(granules, granules + 1)
    }

    #[inline]
    fn allocate(&mut self, count: u32) -> Option<Allocation<u32>> {
        Allocator::allocate(self, count)
    }

    #[inline]
    fn free(&mut self, span: Allocation<u32>, _count: u32) {
        Allocator::free(self, span);
    }
}

impl Peer for FrameAllocator<33> {
    const NAME: &'static str = "buddy_system_allocator";
    type Span = usize;

    fn new(granules: u32) -> Self {
        let mut frames = FrameAllocator::new();
        frames.add_frame(0, granules as usize);
        frames
    }

    #[inline]
    fn allocate(&mut self, count: u32) -> Option<usize> {
        self.alloc(count as usize)
    }

    #[inline]
    fn free(&mut self, span: usize, count: u32) {
        self.dealloc(span, count as usize);
    }
}

/// One bit a granule, searched from the low end: what Linux does.
pub struct Bitmap {
    words: Vec<u64>,
    granules: u32,
}

impl Bitmap {
    /// First granule from `from` on whose bit is `set`.
    fn next(&self, from: u32, set: bool) -> u32 {
        let mut at = from / 64;
        let mut mask = u64::MAX << (from % 64);
        while let Some(&word) = self.words.get(at as usize) {
            let found = (if set { word } else { !word }) & mask;
            if found != 0 {
                return (at * 64 + found.trailing_zeros()).min(self.granules);
            }
            mask = u64::MAX;
            at += 1;
        }
        self.granules
    }

    fn mark(&mut self, start: u32, count: u32, set: bool) {
        for granule in start..start + count {
            let bit = 1 << (granule % 64);
            let word = &mut self.words[granule as usize / 64];
            *word = if set { *word | bit } else { *word & !bit };
        }
    }
}

impl Peer for Bitmap {
    const NAME: &'static str = "bitmap";
    type Span = u32;

    fn new(granules: u32) -> Self {
        Bitmap { words: vec![0; granules.div_ceil(64) as usize], granules }
    }

    fn allocate(&mut self, count: u32) -> Option<u32> {
        let mut from = 0;
        loop {
            let start = self.next(from, false);
            if count > self.granules - start {
                return None;
            }
            let end = self.next(start, true);
            if end - start >= count {
                self.mark(start, count, true);
                return Some(start);
            }
            from = end;
        }
    }

    fn free(&mut self, span: u32, count: u32) {
        self.mark(span, count, false);
    }

    /// Searching for each of them would take hours.
    fn fill(&mut self) -> Vec<u32> {
        self.words.fill(u64::MAX);
        (0..self.granules).collect()
    }
}

/// What a peer took, by row.
type Times = Vec<(String, usize, f64)>;

/// The rows of all arenas.
pub fn rows(loads: &[usize]) -> Vec<Row> {
    let ours = times::<BareArena>(loads);
    let others = [
        (Allocator::<u32>::NAME, times::<Allocator<u32>>(loads)),
        (FrameAllocator::<33>::NAME, times::<FrameAllocator<33>>(loads)),
        (TlsfPool::NAME, times::<TlsfPool>(loads)),
        (Bitmap::NAME, times::<Bitmap>(loads)),
    ];
    let row = |(at, (what, live, ours)): (usize, (String, usize, f64))| Row {
        what,
        live,
        ours,
        channel: None,
        peers: others
            .iter()
            .filter_map(|(name, times)| Some((*name, times.get(at)?.2)))
            .collect::<BTreeMap<_, _>>(),
    };
    ours.into_iter().enumerate().map(row).collect()
}

fn times<P: Peer>(loads: &[usize]) -> Times {
    let mut times = Times::new();
    for &live in loads {
        let (mut peer, mut spans) = fragmented::<P>(live);
        for (what, count) in [("4 KiB", 1), ("64 KiB", 16)] {
            let took = turn_over(&mut peer, count);
            times.push((format!("arena: allocate and free {what}"), live, took));
        }
        let took = replace(&mut peer, &mut spans);
        times.push(("arena: replace a random chunk of 4 KiB".to_string(), live, took));
    }
    let mut peer = holes::<P>();
    let took = turn_over(&mut peer, 2);
    times.push((format!("arena: allocate and free 8 KiB, {HOLES} holes"), HOLES, took));
    times
}

/// Filled with single granules, of which all but `live` went again in random order.
fn fragmented<P: Peer>(live: usize) -> (P, Vec<P::Span>) {
    let mut peer = P::new(GRANULES);
    let mut spans = peer.fill();
    let mut random = Random(live as u64);
    while spans.len() > live {
        let at = random.below(spans.len());
        peer.free(spans.swap_remove(at), 1);
    }
    (peer, spans)
}

/// Every second of the first single granules went.
fn holes<P: Peer>() -> P {
    let mut peer = P::new(GRANULES);
    let spans: Vec<_> = (0..2 * HOLES).filter_map(|_| peer.allocate(1)).collect();
    for span in spans.iter().skip(1).step_by(2) {
        peer.free(*span, 1);
    }
    peer
}

/// Allocates and frees 64 runs at a time.
fn turn_over<P: Peer>(peer: &mut P, count: u32) -> f64 {
    const AT_ONCE: usize = 64;
    let rounds = match P::NAME {
        Bitmap::NAME => 4,
        _ => 100,
    };
    let mut spans = Vec::with_capacity(AT_ONCE);
    median(rounds * AT_ONCE, || {
        for _ in 0..rounds {
            for _ in 0..AT_ONCE {
                spans.push(black_box(peer.allocate(black_box(count))));
            }
            for span in spans.drain(..).flatten() {
                peer.free(span, count);
            }
        }
    })
}

/// Frees a random run and allocates another in its place.
fn replace<P: Peer>(peer: &mut P, spans: &mut [P::Span]) -> f64 {
    const OPERATIONS: usize = 20_000;
    let mut random = Random(5);
    median(OPERATIONS, || {
        for _ in 0..OPERATIONS {
            let at = random.below(spans.len());
            peer.free(spans[at], 1);
            if let Some(span) = peer.allocate(1) {
                spans[at] = span;
            }
        }
    })
}
