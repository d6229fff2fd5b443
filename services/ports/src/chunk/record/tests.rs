//! Facts, pins and references of one record.

use super::life::*;
use super::*;

fn facts() -> ChunkFacts {
    ChunkFacts {
        pa: DeviceAddr(0x8040_0100_0000),
        size: 0x3000,
        reach: 0x5000,
        location: Location::Device,
        channel: 3,
        region: 2,
        core: CoreId::new(7).unwrap(),
        category: Category(200),
        lifespan: Lifespan::AllClients,
        owner: ClientId::new(77),
    }
}

fn open(record: &ChunkRecord) -> u32 {
    let generation = record.next_generation();
    record.open(Stamp { handle: 5, account: 77, ..Stamp::of(&facts()) });
    assert_eq!((record.generation(), record.handle(), record.account()), (generation, 5, 77));
    generation
}

#[test]
fn a_record_is_one_cache_line_and_keeps_every_fact() {
    assert_eq!(size_of::<ChunkRecord>(), 64);
    let record = ChunkRecord::new();
    let generation = open(&record);
    assert_eq!(record.facts(), facts());
    assert_eq!(record.facts_of(generation), Some(facts()));
    assert_eq!(record.facts_of(generation + 2), None);
}

#[test]
fn pins_outlive_the_chunk_and_tell_once() {
    let record = ChunkRecord::new();
    let generation = open(&record);
    assert!(record.pin(generation));
    assert!(record.pin(generation));
    record.pin_held();
    assert_eq!(record.pins(), 3);
    assert_eq!(record.close(), 3);
    assert!(!record.pin(generation), "no pin on a dead chunk");
    assert!(!record.pin(generation + 1), "an even generation never lives");
    assert!(!ChunkRecord::new().pin(0), "nor does that of a fresh record");
    assert!(!record.unpin());
    assert!(!record.unpin());
    assert!(record.unpin(), "the last pin of a dead chunk tells the service");
    assert_eq!(record.collect(), Collected { dropped: 0, alive: false, pins: 0 });
}

#[test]
fn dropped_references_count_until_collected() {
    let record = ChunkRecord::new();
    let generation = open(&record);
    assert!(record.drop_reference(generation));
    assert!(!record.drop_reference(generation), "queued once");
    assert_eq!(record.collect(), Collected { dropped: 2, alive: true, pins: 0 });
    record.close();
    assert!(!record.drop_reference(generation), "the chunk is gone");
    let next = open(&record);
    assert!(!record.drop_reference(generation));
    assert!(record.drop_reference(next));
}

#[test]
fn a_slot_still_in_the_chain_is_not_queued_twice() {
    let record = ChunkRecord::new();
    let generation = open(&record);
    assert!(record.pin(generation));
    assert!(record.drop_reference(generation));
    record.close();
    assert!(!record.unpin(), "still in the chain from the reference");
    assert_eq!(record.collect(), Collected { dropped: 0, alive: false, pins: 0 });
}

#[test]
fn only_a_quiet_chunk_of_device_memory_is_closed_the_short_way() {
    let record = ChunkRecord::new();
    assert!(!record.close_quiet(), "nothing lives");
    let generation = open(&record);
    assert!(record.pin(generation));
    assert!(!record.close_quiet(), "pinned");
    assert!(!record.unpin());
    assert!(record.drop_reference(generation));
    assert!(!record.close_quiet(), "in the release chain");
    record.collect();
    assert!(record.close_quiet());
    assert_eq!(record.alive(), None);
    assert!(!record.pin(generation));
    assert!(!record.close_quiet(), "closed already");
}

#[test]
fn a_full_pin_count_sticks() {
    let record = ChunkRecord::new();
    let generation = open(&record);
    record.state.fetch_or(PINS - PIN, Ordering::Relaxed);
    assert!(record.pin(generation));
    assert!(record.pin(generation));
    record.close();
    assert!(!record.unpin());
    assert_eq!(record.pins(), 0xf_ffff, "never reused, never wrapped");
}
