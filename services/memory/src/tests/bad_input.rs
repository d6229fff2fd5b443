//! Nothing a caller may say does harm.

use axon_platform::Errno;
use axon_ports::{
    AllocRequest, Category, ChunkName, ClientId, Lifespan, Location, MemoryError, Pools,
};

use super::rig::*;

const SIZES: [u64; 10] = [
    0,
    1,
    0xfff,
    (1 << 40) + 1,
    (1 << 44) - 1,
    i64::MAX as u64 - 0xfff,
    i64::MAX as u64,
    1 << 63,
    u64::MAX - 0xfff,
    u64::MAX,
];
const ALIGNS: [u64; 9] = [0, 1, 3, 0x1000, 0x3000, 0x8000_0000, 16 << 30, 1 << 63, u64::MAX];
const NUMBERS: [u32; 6] = [0, 1, 7, 8, 255, u32::MAX];

#[test]
fn every_combination_of_odd_numbers_is_answered() {
    let mut set = v2();
    let mut answered = 0;
    for size in SIZES {
        for align in ALIGNS {
            for number in NUMBERS {
                for location in [Location::Device, Location::Host] {
                    for odd in 0..4 {
                        let mut request = AllocRequest { size, align, location, ..device(0) };
                        match odd {
                            0 => request.channel = number,
                            1 => request.core = number,
                            2 => request.region = number,
                            _ => request.category = Category(number),
                        }
                        request.publish = number == 7;
                        if let Ok(chunk) = set.alloc(&request) {
                            assert!(chunk.facts().size >= size);
                            assert!(chunk.facts().size < size + 0x1000);
                        }
                        set.collect_all();
                        answered += 1;
                    }
                }
            }
        }
    }
    assert_eq!(answered, 10 * 9 * 6 * 2 * 4);
    assert_eq!(set.counters().live_chunks(), 2);
    assert_eq!(set.counters().total(Location::Host), 0);
}

#[test]
fn a_million_forged_handles_name_nothing() {
    let mut set = v2();
    let (me, other) = (client(1).0, client(2).0);
    let chunks: alloc::vec::Vec<_> =
        (0..100).map(|_| set.alloc(&published(device(0x1000))).unwrap()).collect();
    for freed in [10, 20, 30] {
        set.free(Some(me), freed).unwrap();
    }
    let before = fingerprint(&set);
    let mut state = 7u64;
    for number in 0..1_000_000u64 {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(number);
        let handle = match number % 4 {
            0 => state,
            1 => state % 4_194_304,
            2 => state % 128,
            _ => u64::MAX - state % 128,
        };
        let live = (1..=100).contains(&handle) && ![10, 20, 30].contains(&handle);
        assert_eq!(set.table().find(handle).is_some(), live);
        assert_eq!(set.table().pin(handle).is_some(), live, "anybody may read");
        let refusal = set.free(Some(other), handle).unwrap_err();
        let expected = if live { Errno::EPERM } else { Errno::EINVAL };
        assert_eq!(refusal.errno(), expected);
    }
    assert_eq!(fingerprint(&set), before);
    drop(chunks);
}

#[test]
fn forged_names_name_nothing() {
    let mut set = v2();
    let chunk = set.alloc(&device(0x1000)).unwrap();
    let name = chunk.header().name();
    let before = fingerprint(&set);
    for forged in [
        ChunkName { generation: name.generation + 1, ..name },
        ChunkName { generation: name.generation + 2, ..name },
        ChunkName { generation: 0, ..name },
        ChunkName { slot: name.slot + 1, generation: 0 },
        ChunkName { slot: name.slot + 1, generation: 1 },
        ChunkName { slot: u32::MAX, generation: 1 },
        ChunkName { slot: 1 << 22, generation: u32::MAX },
    ] {
        assert!(set.retain(forged).is_err(), "{forged:?}");
        assert!(set.publish(forged).is_err(), "{forged:?}");
        assert!(set.table().pin_name(forged).is_none(), "{forged:?}");
        assert!(set.table().facts(forged).is_none(), "{forged:?}");
    }
    assert_eq!(fingerprint(&set), before);
}

#[test]
fn a_stranger_in_anothers_attach_slot_gets_nothing() {
    let mut set = v2();
    let slot = client(1).1;
    for number in [2, 3, u32::MAX - 1] {
        let stranger = ClientId::new(number).unwrap();
        let request = AllocRequest { client: Some((stranger, slot)), ..device(0x1000) };
        assert_eq!(refused(&mut set, request), MemoryError::NotAttached);
        assert!(set.begin_detach(stranger, slot).is_err());
        let shared = AllocRequest { lifespan: Lifespan::AllClients, ..request };
        let chunk = set.alloc(&shared).unwrap();
        assert_eq!(set.counters().client(client(1).0, slot).unwrap().device, 0, "not charged");
        drop(chunk);
        set.collect_all();
    }
}

#[test]
fn errors_say_the_numbers() {
    use std::string::ToString;
    let mut set = v2();
    let no_memory = set.alloc(&device(17 << 30)).unwrap_err().to_string();
    assert!(no_memory.contains("asked=18253611008"), "{no_memory}");
    assert!(no_memory.contains("largest=16089350144"), "{no_memory}");
    let bad = set.free(Some(client(1).0), 77).unwrap_err().to_string();
    assert_eq!(bad, "handle 77 names no chunk");
    let core = set.alloc(&AllocRequest { core: 9, ..device(1) }).unwrap_err().to_string();
    assert_eq!(core, "core 0x9 is not allowed");
}
