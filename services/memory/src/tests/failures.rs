//! Nothing is lost when something fails: growth at every point, exhaustion to the last granule.

use alloc::vec::Vec;

use axon_platform::Errno;
use axon_ports::{AllocRequest, Chunk, Location, MemoryError, Pools};

use super::rig::*;
use crate::faults::{Countdown, Faults};
use crate::testing::HeapMemory;
use crate::{MemoryConfig, MemorySet};

/// Some of everything that can make a table grow.
fn requests() -> Vec<AllocRequest> {
    let mut requests = Vec::new();
    for number in 0..40 {
        requests.push(published(device(0x1000)));
        requests.push(published(device(0x900_0000 + number * 0x1000)));
        requests.push(AllocRequest { channel: 1, ..published(device(0x60_0000)) });
        requests.push(AllocRequest { align: 0x400_0000, ..published(device(0x10_0000)) });
        requests.push(scratchpad(0x180_0000));
        requests.push(published(host(0x1000 << (number % 8))));
    }
    requests
}

/// A set for the scenario with the `n`-th growth failing.
fn build_failing(n: u32) -> Result<TestSet, MemoryError> {
    let faults = Faults { growth: Countdown::nth(n), ..Faults::default() };
    let config = MemoryConfig { host_memory_size: 0x20_0000, ..MemoryConfig::default() };
    let source = HeapMemory::new(0x400_0000);
    let mut set = MemorySet::with_faults(config, v2_geometry(), source, faults)?;
    let (id, slot) = client(1);
    set.attach(id, slot).unwrap();
    Ok(set)
}

/// Runs the scenario with the `n`-th growth failing, beside a twin in which nothing fails; answers
/// whether any did.
fn scenario(n: u32) -> bool {
    let mut set = match build_failing(n) {
        Ok(set) => set,
        Err(error) => {
            assert_eq!(error, MemoryError::NoRecords, "at {n}");
            return true;
        }
    };
    let mut twin = build_failing(0).unwrap();
    let empty = fingerprint(&set);
    let mut chunks: Vec<Chunk> = Vec::new();
    for request in requests() {
        match set.alloc(&request) {
            Ok(chunk) => chunks.push(chunk),
            Err(error) => {
                assert!(
                    matches!(error, MemoryError::NoRecords | MemoryError::HandleTableDown),
                    "at {n}: {error}"
                );
                assert_eq!(fingerprint(&set), fingerprint(&twin), "at {n}: {request:?}");
                chunks.push(set.alloc(&request).unwrap());
            }
        }
        chunks.push(twin.alloc(&request).unwrap());
    }
    assert_eq!(fingerprint(&set), fingerprint(&twin), "at {n}");
    drop(chunks);
    set.collect_all();
    assert_eq!(fingerprint(&set).without_handles(), empty.without_handles(), "at {n}");
    !set.faults().growth.is_armed()
}

#[test]
fn growth_that_fails_at_any_point_changes_nothing() {
    let mut n = 1;
    while scenario(n) {
        n += 1;
    }
    assert!(n > 100, "only {n} growth points were reached");
}

#[test]
fn an_armed_allocation_fails_once_and_leaves_no_trace() {
    let mut set = v2();
    set.arm(Faults { allocation: Countdown::nth(2), ..Faults::default() });
    set.alloc(&device(0x1000)).unwrap().into_header();
    assert_eq!(refused(&mut set, device(0x1000)).errno(), Errno::ENOMEM);
    set.alloc(&device(0x1000)).unwrap().into_header();
    set.arm(Faults { allocation: Countdown::nth(1), ..Faults::default() });
    assert_eq!(refused(&mut set, AllocRequest { core: 8, ..host(1) }).errno(), Errno::ENOMEM);
}

#[test]
fn exhaustion_to_the_last_granule_and_back() {
    let mut geometry = v2_geometry();
    geometry.channels[0].size = 80 << 20;
    let config = MemoryConfig { small_pool_size: 16 << 20, ..config() };
    let mut set = build(config, geometry).unwrap();
    let (id, slot) = client(1);
    set.attach(id, slot).unwrap();
    let mut chunks: Vec<Chunk> = Vec::new();
    while let Ok(chunk) = set.alloc(&device(0x1000)) {
        chunks.push(chunk);
    }
    assert_eq!(chunks.len(), (64 << 20) / 0x1000);
    let arena = set.usage().arenas[0];
    assert_eq!((arena.free, arena.largest), (0, 0));
    assert_eq!(set.counters().total(Location::Device), (80 << 20) + (16 << 20));
    let refusal = refused(&mut set, device(0x1000));
    assert!(matches!(refusal, MemoryError::NoMemory { free: 0, largest: 0, .. }));
    // Back in an order that merges runs in every way.
    let mut state = 1usize;
    while !chunks.is_empty() {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        chunks.swap_remove((state >> 33) % chunks.len());
        if chunks.len().is_multiple_of(64) {
            set.collect_all();
        }
    }
    set.collect_all();
    assert_eq!(take(&mut set, device(48 << 20)), 16 << 20, "all of main again");
    assert_eq!(take(&mut set, device(16 << 20)), 64 << 20, "and all of small");
}

#[test]
fn exhaustion_of_the_reserve_and_back() {
    let config = MemoryConfig { host_memory_size: 0x20_0000, ..MemoryConfig::default() };
    let mut set = MemorySet::new(config, v2_geometry(), HeapMemory::new(0x80_0000)).unwrap();
    let driver = |size| AllocRequest::driver_host(size);
    let mut chunks: Vec<Chunk> = Vec::new();
    while let Ok(chunk) = set.alloc(&driver(0x3000)) {
        chunks.push(chunk);
    }
    // 64 pages of 4 KiB in each 256 KiB: 21 chunks of 3; and so on.
    assert_eq!(chunks.len(), 8 * 21 + 4 * 42 + 2 * 85 + 170);
    chunks.swap_remove(100);
    set.collect_all();
    chunks.push(set.alloc(&driver(0x3000)).unwrap());
    drop(chunks);
    set.collect_all();
    for pool in set.usage().pools {
        assert_eq!(pool.allocated, 0);
    }
    let whole: Vec<_> = (0..1).map(|_| set.alloc(&driver(0x20_0000)).unwrap()).collect();
    assert_eq!(set.usage().pools[3].allocated, 0x20_0000);
    drop(whole);
}

#[test]
fn host_memory_that_no_32_bit_address_reaches_is_not_taken() {
    let source = HeapMemory::at(0xffff_f000, 0x10_0000);
    let mut set = MemorySet::new(config(), v2_geometry(), source).unwrap();
    let driver = AllocRequest::driver_host(0x1000);
    assert_eq!(set.alloc(&driver).unwrap().facts().pa.0, 0x1000_ffff_f000);
    assert_eq!(set.alloc(&driver).unwrap_err().errno(), Errno::ENOMEM);
}

#[test]
fn low_zone_failures_are_served_from_the_reserve() {
    let config = MemoryConfig { host_memory_size: 0x20_0000, ..MemoryConfig::default() };
    let mut set = MemorySet::new(config, v2_geometry(), HeapMemory::new(0x200_0000)).unwrap();
    let driver = AllocRequest::driver_host(0x1000);
    set.arm(Faults { low_zone: Countdown::nth(1), ..Faults::default() });
    let first = set.alloc(&driver).unwrap();
    assert_eq!(set.usage().pools[0].allocated, 0x1000);
    let second = set.alloc(&driver).unwrap();
    assert_eq!(set.usage().pools[0].allocated, 0x1000);
    drop((first, second));
}
