//! Allocation: checks, placement, host path (specification 04 §4; MEM-E01 to MEM-E24).

use axon_platform::Errno;
use axon_ports::{AllocRequest, Category, Location, MemoryError, Pools};

use super::rig::*;
use crate::MemoryConfig;
use crate::testing::HeapMemory;
use crate::{ClientTotals, MemorySet};

#[test]
fn mem_e01_device_size_0_is_no_memory() {
    let mut set = v2();
    assert_eq!(refused(&mut set, device(0)).errno(), Errno::ENOMEM);
    assert_eq!(refused(&mut set, published(device(0))).errno(), Errno::ENOMEM);
}

#[test]
fn mem_e02_host_size_0_is_no_memory() {
    assert_eq!(refused(&mut v2(), host(0)).errno(), Errno::ENOMEM);
}

#[test]
fn mem_e03_mem_e04_sizes_are_rounded_up_to_pages() {
    let mut set = v2();
    let before = set.counters().total(Location::Device);
    let one = set.alloc(&device(1)).unwrap();
    assert_eq!(one.facts().size, 0x1000);
    assert_eq!(set.counters().total(Location::Device), before + 0x1000);
    let two = set.alloc(&device(0x1001)).unwrap();
    assert_eq!(two.facts().size, 0x2000);
}

#[test]
fn mem_e05_mem_e06_huge_sizes() {
    let mut set = v2();
    for size in [1 << 63, u64::MAX] {
        assert_eq!(refused(&mut set, device(size)).errno(), Errno::EINVAL);
        assert_eq!(refused(&mut set, host(size)).errno(), Errno::EINVAL);
    }
    let size = i64::MAX as u64;
    assert_eq!(refused(&mut set, device(size)).errno(), Errno::ENOMEM);
    assert_eq!(refused(&mut set, host(size)).errno(), Errno::ENOMEM);
}

#[test]
fn mem_e07_the_channel_counts_for_host_memory_too() {
    let request = AllocRequest { channel: 2, ..host(0x1000) };
    assert_eq!(refused(&mut v2(), request).errno(), Errno::EINVAL);
}

#[test]
fn mem_e08_mem_e09_eight_cores_may_be_named_on_every_generation() {
    let mut set = v2();
    for core in [8, 9, u32::MAX] {
        let request = AllocRequest { core, ..device(0x1000) };
        assert_eq!(refused(&mut set, request).errno(), Errno::EINVAL);
    }
    let chunk = set.alloc(&AllocRequest { core: 7, ..device(0x1000) }).unwrap();
    assert_eq!(chunk.facts().core.number(), 7);
    let shown = set.counters().category(Category::TENSORS_DEVICE, 1);
    assert_eq!(shown.total, 0x1000, "booked under the last core there is (MEM-D34)");
}

#[test]
fn mem_e10_one_region_takes_every_region_number() {
    let chunk = v2().alloc(&AllocRequest { region: 99, ..device(0x1000) }).unwrap();
    assert_eq!(chunk.facts().region, 0);
}

#[test]
fn mem_e11_a_region_that_is_not_there() {
    let mut geometry = v2_geometry();
    geometry.regions_per_channel = 4;
    let mut set = build(config(), geometry).unwrap();
    let driver =
        AllocRequest { client: None, lifespan: axon_ports::Lifespan::Device, ..device(2 * MIB) };
    let refusal = refused(&mut set, AllocRequest { region: 4, ..driver });
    assert_eq!(refusal.errno(), Errno::EINVAL);
    let last = take(&mut set, AllocRequest { region: 3, ..driver });
    assert_eq!(last, 3 * 4 * GIB + 16 * MIB);
    assert_eq!(set.usage().arenas.len(), 8);
}

#[test]
fn mem_e12_the_size_is_checked_first() {
    let request = AllocRequest { channel: 2, core: 9, ..device(1 << 63) };
    let refusal = refused(&mut v2(), request);
    assert_eq!(refusal, MemoryError::Invalid { what: "size", value: 1 << 63 });
}

#[test]
fn mem_e13_host_memory_takes_no_alignment() {
    let mut set = v2();
    for align in [1, 3, 0x1000, 0x2000, 1 << 63, u64::MAX] {
        let refusal = refused(&mut set, AllocRequest { align, ..host(0x1000) });
        assert_eq!(refusal.errno(), Errno::EINVAL, "align {align}");
    }
    set.alloc(&host(0x1000)).unwrap();
}

#[test]
fn mem_e14_alignments_up_to_a_page_are_met_anyway() {
    let mut set = v2();
    for align in [1, 3000, 0x1000] {
        set.alloc(&AllocRequest { align, ..device(0x10_0000) }).unwrap();
    }
}

#[test]
fn mem_e15_a_large_alignment_takes_the_lowest_aligned_address() {
    let mut set = v2();
    let aligned = AllocRequest { align: 0x4000_0000, ..device(0x10_0000) };
    assert_eq!(take(&mut set, aligned), 0x4000_0000);
    assert_eq!(take(&mut set, aligned), 0x8000_0000);
    let second_channel = AllocRequest { channel: 1, ..aligned };
    assert_eq!(take(&mut set, second_channel), 0x10_4000_0000);
}

#[test]
fn mem_e16_mem_e17_alignments_that_are_refused() {
    let mut set = v2();
    for align in [0x8000_0000, 0x3000, 0x1001, 1 << 63, u64::MAX, 16 * GIB] {
        let refusal = refused(&mut set, AllocRequest { align, ..device(0x10_0000) });
        assert_eq!(refusal.errno(), Errno::EINVAL, "align {align:#x}");
    }
}

#[test]
fn mem_e18_mem_e19_512_kib_is_the_largest_small_request() {
    let mut set = v2();
    let small = take(&mut set, device(0x8_0000));
    assert!((0x3_c000_0000..0x4_0000_0000).contains(&small));
    let large = set.alloc(&device(0x8_0001)).unwrap();
    assert_eq!(large.facts().size, 0x8_1000);
    assert!((0x100_0000..0x3_c000_0000).contains(&pa(&large)));
}

#[test]
fn mem_e20_small_requests_fall_back_to_main() {
    let mut set = v2();
    for number in 0..2048 {
        assert!(take(&mut set, device(0x8_0000)) >= 0x3_c000_0000, "number {number}");
    }
    assert_eq!(take(&mut set, device(0x8_0000)), 0x100_0000);
}

#[test]
fn mem_e21_mem_e22_mem_e23_large_requests_fall_back_to_small() {
    let mut set = v2();
    assert_eq!(take(&mut set, device(0x3_bf00_0000)), 0x100_0000);
    assert_eq!(set.usage().arenas[0].allocated, 0x3_c000_0000);
    assert!(take(&mut set, device(0x10_0000)) >= 0x3_c000_0000);
    let refusal = refused(&mut set, device(0x4000_0000));
    let MemoryError::NoMemory { asked, free, largest, .. } = refusal else { panic!("{refusal}") };
    assert_eq!((asked, free, largest), (0x4000_0000, 0x3ff0_0000, 0x3ff0_0000));
}

#[test]
fn mem_e24_main_and_small_never_join() {
    let mut set = v2();
    assert_eq!(refused(&mut set, device(0x3_bf00_1000)).errno(), Errno::ENOMEM);
    take(&mut set, device(0x3_bf00_0000));
}

#[test]
fn an_allocation_needs_an_attached_client_for_its_lifespan() {
    let mut set = v2();
    for who in [None, Some(client(2)), Some((client(1).0, client(2).1))] {
        let refusal = refused(&mut set, AllocRequest { client: who, ..device(0x1000) });
        assert_eq!(refusal, MemoryError::NotAttached);
    }
}

#[test]
fn chunks_are_charged_to_their_owner_both_ways() {
    let mut set = v2();
    let (id, slot) = client(1);
    let a = set.alloc(&device(0x3000)).unwrap();
    let b = set.alloc(&host(0x1000)).unwrap();
    let totals = |set: &TestSet| set.counters().client(id, slot).unwrap();
    assert_eq!(totals(&set), ClientTotals { host: 0x1000, device: 0x3000 });
    drop(a);
    set.collect_all();
    assert_eq!(totals(&set), ClientTotals { host: 0x1000, device: 0 });
    drop(b);
    set.collect_all();
    assert_eq!(totals(&set), ClientTotals::default());
}

#[test]
fn mem_e69_mem_e70_mem_e72_mem_d10_mem_d32_reserve_pools_serve_when_the_low_zone_is_empty() {
    let reserve = MemoryConfig::default();
    let mut set = MemorySet::new(reserve, v2_geometry(), HeapMemory::new(4 * 0x200_0000)).unwrap();
    let (id, slot) = client(1);
    set.attach(id, slot).unwrap();
    let pages: alloc::vec::Vec<_> =
        set.usage().pools.iter().map(|pool| (pool.page_size, pool.page_count)).collect();
    assert_eq!(pages, [(256 << 10, 128), (512 << 10, 64), (1 << 20, 32), (2 << 20, 16)]);
    let allocated = |set: &TestSet| set.usage().pools.iter().map(|p| p.allocated).collect();
    let some: alloc::vec::Vec<u64> = allocated(&set);
    assert_eq!(some, [0; 4]);
    let a = set.alloc(&host(300 << 10)).unwrap();
    let b = set.alloc(&host(256 << 10)).unwrap();
    let some: alloc::vec::Vec<u64> = allocated(&set);
    assert_eq!(some, [256 << 10, 300 << 10, 0, 0]);
    assert_eq!(refused(&mut set, host(0x20_0001)).errno(), Errno::ENOMEM);
    let rest: alloc::vec::Vec<_> = (0..127).map(|_| set.alloc(&host(256 << 10)).unwrap()).collect();
    let overflow = set.alloc(&host(256 << 10)).unwrap();
    assert_eq!(set.usage().pools[1].allocated, (300 + 256) << 10, "MEM-E70");
    drop((a, b, rest, overflow));
    set.collect_all();
    let some: alloc::vec::Vec<u64> = allocated(&set);
    assert_eq!(some, [0; 4], "MEM-E72: back to exactly 0");
}

#[test]
fn mem_e71_host_addresses_are_tagged() {
    for (geometry, tagged) in
        [(v2_geometry(), 0x1000_1234_0000), (v3_geometry(24 * GIB), 0x4000_1234_0000)]
    {
        let mut set = MemorySet::new(config(), geometry, HeapMemory::at(0x1234_0000, MIB)).unwrap();
        let request = AllocRequest::driver_host(0x1000);
        let chunk = set.alloc(&request).unwrap();
        assert_eq!(pa(&chunk), tagged);
        assert_eq!(chunk.host().unwrap().bus().0, 0x1234_0000);
        assert!(set.is_host_address(tagged));
        assert_eq!(set.search_pa(tagged + 0xfff, false).unwrap().facts.pa.0, tagged);
    }
}

#[test]
fn mem_e73_region_sizes_that_work_and_that_do_not() {
    let with = |size: u64| {
        let mut geometry = v2_geometry();
        geometry.channels[0].size = size;
        geometry.channel_count = 1;
        build(config(), geometry)
    };
    assert_eq!(with(0x4080_0000).err().unwrap().errno(), Errno::EINVAL);
    assert_eq!(with(0x80_0000).err().unwrap().errno(), Errno::ENOMEM);
    let without = with(0x4000_0000).unwrap().usage().arenas[0];
    assert_eq!((without.small_size, without.main_end), (0, 0x4000_0000));
    let full = with(0x4100_0000).unwrap().usage().arenas[0];
    assert_eq!((full.small_size, full.main_end), (0x4000_0000, 0x100_0000));
}

#[test]
fn mem_e74_a_larger_granule_costs_the_arena_more_than_the_chunk_says() {
    let config = MemoryConfig { min_alloc_size: 0x1_0000, ..config() };
    let mut set = build(config, v2_geometry()).unwrap();
    let (id, slot) = client(1);
    set.attach(id, slot).unwrap();
    let first = set.alloc(&device(0x1000)).unwrap();
    let second = set.alloc(&device(0x1000)).unwrap();
    assert_eq!(first.facts().size, 0x1000);
    assert!(pa(&second).abs_diff(pa(&first)) >= 0x1_0000);
    assert_eq!(refused(&mut set, scratchpad(0x1000)).errno(), Errno::ENOMEM);
    set.alloc(&scratchpad(0x1_0000)).unwrap();
}

#[test]
fn mem_e75_a_granule_that_is_no_multiple_of_a_page_is_refused() {
    for min_alloc_size in [0x1800, 0, 1] {
        let config = MemoryConfig { min_alloc_size, ..config() };
        assert_eq!(build(config, v2_geometry()).err().unwrap().errno(), Errno::EINVAL);
    }
}

#[test]
fn mem_e76_an_unknown_category_is_booked_as_unknown() {
    let mut set = v2();
    let request = AllocRequest { category: Category(20), ..device(0x1000) };
    let _chunk = set.alloc(&request).unwrap();
    assert_eq!(set.counters().category(Category::UNKNOWN_DEVICE, 0).total, 0x1000);
    let request = AllocRequest { category: Category::CODE_HOST, ..device(0x1000) };
    let _chunk = set.alloc(&request).unwrap();
    assert_eq!(set.counters().category(Category::UNKNOWN_DEVICE, 0).total, 0x2000, "MEM-D29");
}

#[test]
fn mem_e77_counters_keep_total_present_and_peak() {
    let mut set = v2();
    let first = set.alloc(&device(0x2000)).unwrap();
    let _second = set.alloc(&device(0x1000)).unwrap();
    drop(first);
    set.collect_all();
    let counter = set.counters().category(Category::TENSORS_DEVICE, 0);
    assert_eq!((counter.total, counter.present, counter.peak), (0x1000, 0x2000, 0x3000));
    assert_eq!(set.counters().location(Location::Device, 0).total, 0x100_1000);
}

#[test]
fn mem_e96_one_host_chunk_may_be_as_long_as_the_low_zone_allows() {
    let mut set = v2();
    for size in [4 * MIB, 8 * MIB, 16 * MIB] {
        assert_eq!(set.alloc(&host(size)).unwrap().facts().size, size);
    }
}

#[test]
fn bring_up_takes_a_carve_out_of_every_region_and_nothing_else() {
    for (geometry, free) in [
        (v2_geometry(), 0x3_bf00_0000),
        (v3_geometry(24 * GIB), 0x5_bf00_0000),
        (v3_geometry(36 * GIB), 0x8_bf00_0000),
    ] {
        let set = build(config(), geometry).unwrap();
        let count = u64::from(geometry.channel_count);
        assert_eq!(set.counters().total(Location::Device), count * 0x100_0000);
        assert_eq!(set.counters().total(Location::Host), 0);
        for channel in 0..geometry.channel_count {
            let lines = set.dump(channel.into(), 1).unwrap();
            assert_eq!(lines[0].pa, geometry.channels[usize::from(channel)].base);
            assert_eq!((lines[0].size, lines[0].category), (0x100_0000, Category(13)));
            let usage = set.usage().arenas[usize::from(channel)];
            assert_eq!(usage.free - usage.small_size, free);
            let counter = set.counters().category(Category::NCDEV_DEVICE, channel.into());
            assert_eq!(counter.total, 0x100_0000);
        }
    }
}
