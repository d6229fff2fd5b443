//! The queue engine against a naive one: any order of descriptors, partial doorbells, pauses and
//! queue resets gives the same bytes and the same pointers.

use std::collections::VecDeque;

use axon_model::Product;
use proptest::prelude::*;

use crate::bench::{Bench, COPY, FIRST, LAST, Rings, pattern};

const LENGTH: u32 = 32;
const HOST: u64 = 0x4000_0000;
const HBM: u64 = 0x10_0000;
const AREA: usize = 0x1_0000;

#[derive(Clone, Debug)]
enum Operation {
    /// A packet of Tx descriptors of these lengths.
    Packet(Vec<u16>),
    /// An Rx buffer of this length.
    Buffer(u16),
    /// Rings up to so many of the descriptors of a side that were not rung.
    Ring { rx: bool, most: usize },
    /// Clears the enable bits of a side, or sets them.
    Enable { rx: bool, on: bool },
    /// Queue init: everything rung is forgotten.
    Init,
}

fn operation() -> impl Strategy<Value = Operation> {
    prop_oneof![
        4 => proptest::collection::vec(1..200u16, 1..4).prop_map(Operation::Packet),
        5 => (1..300u16).prop_map(Operation::Buffer),
        8 => (any::<bool>(), 1..6usize).prop_map(|(rx, most)| Operation::Ring { rx, most }),
        2 => (any::<bool>(), any::<bool>()).prop_map(|(rx, on)| Operation::Enable { rx, on }),
        1 => Just(Operation::Init),
    ]
}

/// Bytes at an offset of the source area, or room at one of the destination area.
#[derive(Clone, Copy, Debug)]
struct Piece {
    offset: usize,
    len: usize,
    last: bool,
}

#[derive(Default, Debug)]
struct Side {
    put: VecDeque<Piece>,
    rung: VecDeque<Piece>,
    off: bool,
    done: u32,
    tail: u32,
}

/// What the engine should do, in the plainest way.
#[derive(Default)]
struct Naive {
    tx: Side,
    rx: Side,
    packet: Vec<u8>,
    complete: bool,
    memory: Vec<u8>,
}

impl Naive {
    fn run(&mut self, source: &[u8]) {
        loop {
            if !self.complete
                && !self.tx.off
                && let Some(piece) = self.tx.rung.pop_front()
            {
                self.packet.extend(&source[piece.offset..piece.offset + piece.len]);
                self.complete = piece.last;
                self.tx.done += 1;
            } else if self.complete
                && !self.rx.off
                && let Some(piece) = self.rx.rung.pop_front()
            {
                let len = piece.len.min(self.packet.len());
                let rest = self.packet.split_off(len);
                self.memory[piece.offset..piece.offset + len].copy_from_slice(&self.packet);
                self.packet = rest;
                self.complete = !self.packet.is_empty();
                self.rx.done += 1;
            } else {
                return;
            }
        }
    }

    fn init(&mut self) {
        let memory = std::mem::take(&mut self.memory);
        *self = Naive { memory, ..Naive::default() };
    }
}

fn register(slots: u32) -> u32 {
    (((1 + slots / LENGTH) % 4) << 30) + slots % LENGTH
}

fn check(bench: &mut Bench, naive: &Naive) -> Result<(), TestCaseError> {
    let (tx, rx) = bench.windows(128, 0);
    for (window, side) in [(tx, &naive.tx), (rx, &naive.rx)] {
        prop_assert_eq!(bench.read(window + 0x40), register(side.done), "current");
        prop_assert_eq!(bench.read(window + 0x3c), register(side.tail), "tail");
        prop_assert_eq!(bench.read(window + 0x24) & 0xff_ffff, side.rung.len() as u32, "count");
    }
    prop_assert_eq!(bench.hbm(HBM, AREA), naive.memory.as_slice());
    Ok(())
}

fn play(operations: &[Operation]) -> Result<(), TestCaseError> {
    let mut bench = Bench::new(Product::Trn2);
    let mut rings = Rings::ready(&mut bench, 128, 0, LENGTH);
    let source = pattern(AREA, 7);
    bench.poke(HOST, &source);
    let mut naive = Naive { memory: vec![0; AREA], ..Naive::default() };
    let (mut from, mut to) = (0, 0);
    let room = |side: &Side| LENGTH as usize - side.put.len() - side.rung.len();
    for operation in operations {
        match operation {
            Operation::Packet(lengths) if room(&naive.tx) >= lengths.len() => {
                for (place, &len) in lengths.iter().enumerate() {
                    let last = place + 1 == lengths.len();
                    let flags = if place == 0 { FIRST } else { 0 } | if last { LAST } else { 0 };
                    let address = bench.tagged(HOST + from as u64);
                    rings.tx(&bench, flags, COPY, address, u32::from(len));
                    let len = usize::from(len);
                    naive.tx.put.push_back(Piece { offset: from, len, last });
                    from = (from + len) % (AREA - 0x400);
                }
            }
            Operation::Buffer(len) if room(&naive.rx) > 0 => {
                rings.rx(&bench, 0, HBM + to as u64, u32::from(*len));
                let len = usize::from(*len);
                naive.rx.put.push_back(Piece { offset: to, len, last: false });
                to = (to + len) % (AREA - 0x400);
            }
            Operation::Packet(_) | Operation::Buffer(_) => {}
            Operation::Ring { rx, most } => {
                let side = if *rx { &mut naive.rx } else { &mut naive.tx };
                let count = side.put.len().min(*most);
                if count > 0 {
                    side.rung.extend(side.put.drain(..count));
                    side.tail += count as u32;
                    let (tx_window, rx_window) = bench.windows(128, 0);
                    let window = if *rx { rx_window } else { tx_window };
                    bench.write(window + 0x38, count as u32);
                }
            }
            Operation::Enable { rx, on } => {
                let side = if *rx { &mut naive.rx } else { &mut naive.tx };
                side.off = !on;
                let (tx_window, rx_window) = bench.windows(128, 0);
                let window = if *rx { rx_window } else { tx_window };
                bench.write(window + 0x20, if *on { 0x0303_0000 } else { 0x0300_0000 });
            }
            Operation::Init => {
                rings.restart(&mut bench);
                naive.init();
            }
        }
        naive.run(&source);
        check(&mut bench, &naive)?;
    }
    prop_assert!(bench.report().violations.is_empty());
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 128, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn the_engine_does_what_a_naive_one_does(
        operations in proptest::collection::vec(operation(), 1..120)
    ) {
        play(&operations)?;
    }
}
