//! What the service needs of the heap for its own records.

use allocation_counter::measure;
use axon_ports::Pools;
use serde_json::{Value, json};

use crate::setup::{client, full_region, request};

/// Bytes that a live chunk may cost.
const PER_CHUNK: u64 = 96;
/// Share of the region that may come on top, in thousandths.
const OF_REGION: u64 = 2;
/// Bytes of the region that [`full_region`] manages.
const REGION: u64 = 24 << 30;

/// Heap of a set with `live` chunks of 4 KiB, beside what it may be.
pub fn rows(loads: &[usize]) -> Vec<Value> {
    loads.iter().map(|&live| at(live)).collect()
}

fn at(live: usize) -> Value {
    let (id, slot) = client();
    let mut kept = None;
    let taken = measure(|| {
        let mut set = full_region();
        set.attach(id, slot).expect("the slot is free");
        for _ in 0..live {
            // The handle keeps the reference.
            let _ = set.alloc(&request(4096)).expect("there is room").into_header();
        }
        kept = Some(set);
    });
    let bytes = taken.bytes_current.max(0) as u64;
    let limit = live as u64 * PER_CHUNK + REGION * OF_REGION / 1000;
    json!({
        "live_chunks": live,
        "heap_bytes": bytes,
        "bytes_per_chunk": (live > 0).then(|| bytes as f64 / live as f64),
        "limit": limit,
    })
}
