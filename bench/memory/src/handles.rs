//! The handle table alone beside `slotmap`.

use std::hint::black_box;

use axon_memory::testing::BareHandles;
use axon_ports::ChunkFacts;
use slotmap::{DefaultKey, SlotMap};

use crate::measure::{Row, medians};
use crate::setup::{Random, facts};

const LOOKUPS: usize = 100_000;
const AT_ONCE: usize = 64;
const ROUNDS: usize = 500;

/// What a slot map holds in place of a chunk.
type Facts = ChunkFacts;

/// The rows of the handle table.
pub fn rows(loads: &[usize]) -> Vec<Row> {
    loads.iter().flat_map(|&live| at(live)).collect()
}

fn at(live: usize) -> Vec<Row> {
    let facts = facts();
    let mut ours = BareHandles::new().expect("the host has memory for a handle table");
    let handles: Vec<u32> = (0..live).filter_map(|_| ours.mint(&facts)).collect();
    let mut other: SlotMap<DefaultKey, Facts> = SlotMap::new();
    let keys: Vec<DefaultKey> = (0..live).map(|_| other.insert(facts)).collect();
    let mut random = Random(3);
    let order: Vec<usize> = (0..LOOKUPS).map(|_| random.below(live)).collect();

    let [find, get] = medians(
        LOOKUPS,
        [
            &mut || {
                for &at in &order {
                    black_box(ours.table().find(black_box(u64::from(handles[at]))));
                }
            },
            &mut || {
                for &at in &order {
                    black_box(other.get(black_box(keys[at])));
                }
            },
        ],
    );
    // It writes to every record, which would push the others' out of the caches.
    let [pin] = medians(
        LOOKUPS,
        [&mut || {
            for &at in &order {
                black_box(ours.table().pin(black_box(u64::from(handles[at]))));
            }
        }],
    );
    let mut minted = Vec::with_capacity(AT_ONCE);
    let mut inserted = Vec::with_capacity(AT_ONCE);
    let [mint, insert] = medians(
        ROUNDS * AT_ONCE,
        [
            &mut || {
                for _ in 0..ROUNDS {
                    minted.extend((0..AT_ONCE).filter_map(|_| black_box(ours.mint(&facts))));
                    minted.drain(..).for_each(|handle| assert!(ours.free(handle)));
                }
            },
            &mut || {
                for _ in 0..ROUNDS {
                    inserted.extend((0..AT_ONCE).map(|_| black_box(other.insert(facts))));
                    inserted.drain(..).for_each(|key| _ = other.remove(key));
                }
            },
        ],
    );
    let row = |what: &str, ours, theirs: f64| Row {
        what: what.to_string(),
        live,
        ours,
        channel: None,
        peers: [("slotmap", theirs)].into(),
    };
    vec![
        row("handle: look up", find, get),
        row("handle: look up with a pin, pin given back", pin, get),
        row("handle: mint and free", mint, insert),
    ]
}
