//! Scenarios whose instructions are counted from outside (`valgrind --tool=callgrind`): every
//! measured operation is a function of its own that is not inlined.

use axon_memory::testing::HeapMemory;
use axon_memory::{MemoryConfig, MemorySet};
use axon_ports::{AllocRequest, Chunk, ChunkName, ChunkTable, ClientId, ClientSlot, Pin, Pools};
use std::hint::black_box;
use std::sync::Arc;

use crate::setup::{Random, client, request, trn1};

type Set = MemorySet<HeapMemory>;

#[inline(never)]
pub fn measured_alloc(set: &mut Set, request: &AllocRequest) -> Chunk {
    set.alloc(request).unwrap()
}

#[inline(never)]
pub fn measured_free(set: &mut Set, client: Option<ClientId>, handle: u64) {
    set.free(client, handle).unwrap();
}

#[inline(never)]
pub fn measured_drop(set: &mut Set, chunk: Chunk) {
    drop(chunk);
    set.collect_all();
}

#[inline(never)]
pub fn measured_find(table: &ChunkTable, handle: u64) -> Option<ChunkName> {
    table.find(handle)
}

#[inline(never)]
pub fn measured_pin(table: &Arc<ChunkTable>, handle: u64) -> Option<Pin> {
    table.pin(handle)
}

/// Runs every measured operation `rounds` times with `live` chunks there, `holes` of them freed.
pub fn run(live: usize, holes: usize, pages: u64, rounds: usize) {
    let mut set = trn1();
    let (id, slot): (ClientId, ClientSlot) = client();
    set.attach(id, slot).unwrap();
    let mut chunks: Vec<Chunk> = Vec::new();
    for _ in 0..live + 2 * holes {
        chunks.push(set.alloc(&request(4096)).unwrap());
    }
    // Every second one of the first: single-page holes that nothing else fits into.
    let mut kept: Vec<Chunk> = Vec::new();
    for (number, chunk) in chunks.drain(..).enumerate() {
        if number < 2 * holes && number % 2 == 1 {
            drop(chunk);
        } else {
            kept.push(chunk);
        }
    }
    set.collect_all();
    let mut random = Random(7);
    for _ in 0..rounds {
        let chunk = measured_alloc(&mut set, &request(4096 * pages));
        let handle = chunk.handle();
        black_box(measured_find(set.table(), handle));
        drop(black_box(measured_pin(set.table(), handle)));
        measured_free(&mut set, Some(id), handle);
        drop(chunk);
        let chunk = measured_alloc(&mut set, &request(4096 * pages));
        measured_drop(&mut set, chunk);
        if !kept.is_empty() {
            let at = random.below(kept.len());
            let chunk = kept.swap_remove(at);
            measured_drop(&mut set, chunk);
            kept.push(measured_alloc(&mut set, &request(4096)));
        }
    }
    let _ = MemoryConfig::default();
}
