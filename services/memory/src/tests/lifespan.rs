//! References, lifespans, ends of clients and of the device, pins (specification 04 §5, §8.2).

use alloc::vec::Vec;

use axon_platform::Errno;
use axon_ports::{AllocRequest, Category, Chunk, Lifespan, Location, MemoryError, Pin, Pools};

use super::rig::*;

fn detach(set: &mut TestSet, number: u32) {
    let (id, slot) = client(number);
    let sweep = set.begin_detach(id, slot).unwrap();
    while !set.continue_detach(sweep) {}
}

fn last_client(set: &mut TestSet) {
    while !set.continue_last_client() {}
}

/// A published chunk of client 1 with this many references and no reference value.
fn referenced(set: &mut TestSet, references: u32) -> u64 {
    let chunk = set.alloc(&published(device(0x1000))).unwrap();
    for _ in 1..references {
        set.retain(chunk.header().name()).unwrap();
    }
    let handle = chunk.handle();
    chunk.into_header();
    handle
}

#[test]
fn mem_e51_each_rung_of_the_ladder_takes_one_reference() {
    let mut set = v2();
    let handle = referenced(&mut set, 3);
    detach(&mut set, 1);
    assert!(set.table().find(handle).is_some(), "survives on ALL_PROCESS");
    last_client(&mut set);
    assert!(set.table().find(handle).is_some(), "survives on DEVICE");
    let report = set.destroy();
    assert_eq!((report.leaked, report.left), (0, 0));
    assert!(set.table().find(handle).is_none());
    assert_eq!(set.counters().live_chunks(), 0);
}

#[test]
fn mem_e52_the_last_rung_forces_what_is_left() {
    let mut set = v2();
    referenced(&mut set, 4);
    detach(&mut set, 1);
    last_client(&mut set);
    let report = set.destroy();
    assert_eq!((report.leaked, report.left), (1, 0));
    assert_eq!(set.counters().total(Location::Device), 0);
}

#[test]
fn one_and_two_references_end_with_the_client_and_with_the_last_client() {
    let mut set = v2();
    let (one, two) = (referenced(&mut set, 1), referenced(&mut set, 2));
    detach(&mut set, 1);
    assert!(set.table().find(one).is_none());
    assert!(set.table().find(two).is_some());
    last_client(&mut set);
    assert!(set.table().find(two).is_none());
}

#[test]
fn mem_e53_a_client_drop_releases_newest_first() {
    let mut set = v2();
    let pages: Vec<_> = (0..3).map(|_| set.alloc(&scratchpad(0x1000)).unwrap()).collect();
    let [p1, p2, p3] = <[Chunk; 3]>::try_from(pages).ok().unwrap().map(|p| p.into_header());
    let (id, slot) = client(1);
    let sweep = set.begin_detach(id, slot).unwrap();
    assert!(set.continue_detach(sweep));
    assert!(p1.is_dead() && p2.is_dead() && p3.is_dead());
    assert_eq!(set.usage().arenas[0].scratchpad_size, 0);
    assert!(!set.was_out_of_order(), "in stack order, so nothing to log");
}

#[test]
fn other_lifespans_survive_the_client() {
    let mut set = v2();
    let with = |lifespan| AllocRequest { lifespan, ..device(0x1000) };
    let all = set.alloc(&with(Lifespan::AllClients)).unwrap().into_header();
    let forever = set.alloc(&with(Lifespan::Device)).unwrap().into_header();
    let drivers = AllocRequest { client: None, ..with(Lifespan::Local) };
    let local = set.alloc(&drivers).unwrap();
    detach(&mut set, 1);
    assert!(!all.is_dead() && !forever.is_dead());
    assert!(local.pin().is_some(), "a request's own chunk is the request's to end");
    last_client(&mut set);
    assert!(all.is_dead() && !forever.is_dead());
    drop(local);
    let report = set.destroy();
    assert!(forever.is_dead());
    assert_eq!(report.left, 0);
}

#[test]
fn mem_d26_a_request_ends_at_the_latest_with_its_client() {
    let mut set = v2();
    let local = AllocRequest { lifespan: Lifespan::Local, ..device(0x1000) };
    let before = set.counters().total(Location::Device);
    let (forgotten, held) = (set.alloc(&local).unwrap(), set.alloc(&local).unwrap());
    let (forgotten, pin) = (forgotten.into_header(), held.pin().unwrap());
    detach(&mut set, 1);
    assert!(forgotten.is_dead() && held.header().is_dead());
    assert_eq!(set.counters().draining(), 0x1000, "pinned by whoever still reads it");
    drop((pin, held));
    set.collect_all();
    assert_eq!((set.counters().draining(), set.counters().total(Location::Device)), (0, before));
    assert_eq!(set.destroy().left, 0);
}

#[test]
fn destruction_reports_what_nobody_released() {
    let mut set = v2();
    let local = AllocRequest { client: None, lifespan: Lifespan::Local, ..device(0x1000) };
    set.alloc(&local).unwrap().into_header();
    set.alloc(&device(0x1000)).unwrap().into_header();
    let report = set.destroy();
    assert_eq!((report.clients, report.left), (1, 1));
    assert_eq!(set.counters().total(Location::Device), 0);
}

#[test]
fn a_client_being_dropped_gets_no_memory_and_its_slot_is_not_free_yet() {
    let mut set = v2();
    let (id, slot) = client(1);
    for _ in 0..300 {
        take(&mut set, device(0x1000));
    }
    let sweep = set.begin_detach(id, slot).unwrap();
    assert!(!set.continue_detach(sweep), "more than one slice");
    assert_eq!(refused(&mut set, device(0x1000)), MemoryError::NotAttached);
    assert!(set.attach(client(2).0, slot).is_err());
    assert!(set.begin_detach(id, slot).is_err());
    while !set.continue_detach(sweep) {}
    set.attach(client(2).0, slot).unwrap();
    let theirs = AllocRequest { client: Some((client(2).0, slot)), ..device(0x1000) };
    set.alloc(&theirs).unwrap();
}

#[test]
fn mem_e94_attach_slots_are_the_callers_to_hand_out() {
    let mut set = v2();
    for number in 2..=16 {
        let (id, slot) = client(number);
        set.attach(id, slot).unwrap();
    }
    let before = fingerprint(&set);
    let refusal = set.attach(axon_ports::ClientId::new(17).unwrap(), client(1).1).unwrap_err();
    assert_eq!(refusal.errno(), Errno::EBUSY);
    assert_eq!(fingerprint(&set), before);
}

#[test]
fn mem_e48_mem_e49_a_handle_ends_once_and_is_issued_again_at_once() {
    let mut set = v2();
    let me = Some(client(1).0);
    let a = set.alloc(&published(device(0x1000))).unwrap();
    assert_eq!(a.handle(), 1);
    set.free(me, 1).unwrap();
    assert_eq!(set.free(me, 1).unwrap_err().errno(), Errno::EINVAL);
    let b = set.alloc(&published(device(0x1000))).unwrap();
    assert_eq!(b.handle(), 1);
    assert_eq!(set.table().pin(1).unwrap().pa(), b.facts().pa, "the old holder now names B");
    drop(a);
    set.collect_all();
    assert!(b.pin().is_some(), "the reference to A was of A");
}

#[test]
fn mem_e46_a_poisoned_table_finds_nothing_but_memory_still_comes_back() {
    let mut set = v2();
    let before = set.counters().total(Location::Device);
    let first = set.alloc(&published(device(0x1000))).unwrap().into_header();
    for _ in 2..8191 {
        set.alloc(&published(device(0x1000))).unwrap().into_header();
    }
    set.arm(crate::faults::Faults {
        handle_table: crate::faults::Countdown::nth(1),
        ..Default::default()
    });
    let live = set.counters().live_chunks();
    let refusal = set.alloc(&published(device(0x1000))).unwrap_err();
    assert_eq!(refusal, MemoryError::HandleTableDown);
    assert_eq!(refusal.errno(), Errno::ENOENT);
    assert_eq!(set.counters().live_chunks(), live, "the chunk was released");
    assert!(set.table().find(5).is_none());
    assert!(!first.is_dead());
    assert_eq!(set.alloc(&published(host(0x1000))).unwrap_err(), MemoryError::HandleTableDown);
    set.alloc(&device(0x1000)).unwrap().into_header();
    detach(&mut set, 1);
    assert_eq!(set.counters().total(Location::Device), before);
    assert_eq!(set.counters().total(Location::Host), 0);
}

#[test]
fn mem_e60_mem_e61_only_the_owner_frees_and_nobody_a_notification_queue() {
    let mut set = v2();
    let (other, _) = client(2);
    let chunk = set.alloc(&published(device(0x1000))).unwrap();
    let handle = chunk.handle();
    assert_eq!(set.free(Some(other), handle).unwrap_err().errno(), Errno::EPERM);
    assert_eq!(set.free(None, handle).unwrap_err().errno(), Errno::EPERM);
    assert!(chunk.pin().is_some());
    for (category, request) in [
        (Category::NOTIFICATION_DEVICE, device(0x1000)),
        (Category::NOTIFICATION_HOST, host(0x1000)),
    ] {
        let queue = set.alloc(&published(AllocRequest { category, ..request })).unwrap();
        let refusal = set.free(Some(client(1).0), queue.handle()).unwrap_err();
        assert_eq!(refusal.errno(), Errno::EPERM);
        assert!(queue.pin().is_some());
    }
}

#[test]
fn mem_e63_pinned_memory_is_not_issued_again() {
    let mut set = v2();
    let me = Some(client(1).0);
    let whole = published(device(0x3_bf00_0000));
    let chunk = set.alloc(&whole).unwrap();
    let pin = chunk.pin().unwrap();
    set.free(me, chunk.handle()).unwrap();
    assert!(set.table().find(1).is_none(), "the handle is gone at once");
    assert!(chunk.pin().is_none(), "no new access");
    assert_eq!(set.counters().draining(), 0x3_bf00_0000);
    let totals = set.counters().client(client(1).0, client(1).1).unwrap();
    assert_eq!(totals.device, 0, "the client does not pay any more");
    assert_eq!(set.usage().arenas[0].allocated, 0x3_c000_0000, "the arena does");
    assert_eq!(refused(&mut set, whole).errno(), Errno::ENOMEM);
    let again = pin.clone();
    drop(pin);
    set.collect_all();
    assert_eq!(refused(&mut set, whole).errno(), Errno::ENOMEM);
    drop(again);
    assert_eq!(pa(&set.alloc(&whole).unwrap()), 0x100_0000);
}

#[test]
fn pinned_host_memory_goes_back_with_its_last_pin() {
    let reserve = crate::MemoryConfig { host_memory_size: 0x20_0000, ..config() };
    let mut set =
        crate::MemorySet::new(reserve, v2_geometry(), crate::testing::HeapMemory::new(0x80_0000))
            .unwrap();
    let request = AllocRequest::driver_host(0x10_0000);
    let chunk = set.alloc(&request).unwrap();
    let pin: Pin = chunk.pin().unwrap();
    chunk.host().unwrap().store32(0, 7).unwrap();
    drop(chunk);
    set.collect_all();
    assert_eq!(set.usage().pools[2].allocated, 0x10_0000);
    assert_eq!(pin.host().unwrap().load32(0).unwrap(), 7, "still there for the hardware");
    drop(pin);
    set.collect_all();
    assert_eq!(set.usage().pools[2].allocated, 0);
}

#[test]
fn references_have_a_limit() {
    let mut set = v2();
    let chunk = set.alloc(&device(0x1000)).unwrap();
    let name = chunk.header().name();
    while set.retain(name).is_ok() {}
    assert_eq!(set.retain(name).unwrap_err().errno(), Errno::EBUSY);
    drop(chunk);
    set.collect_all();
    assert!(set.retain(name).is_ok(), "still alive");
}

#[test]
fn mem_e54_mem_e55_mem_e56_mem_e57_search_by_address() {
    let mut set = v2();
    for pa in [0, 0xff_ffff] {
        let found = set.search_pa(pa, false).unwrap();
        assert_eq!((found.facts.pa.0, found.facts.size), (0, 0x100_0000));
    }
    assert_eq!(set.search_pa(0x100_0000, false).unwrap_err().errno(), Errno::ENOMEM);
    assert_eq!(set.search_pa(0, true).unwrap_err().errno(), Errno::EPERM);
    let chunk = set.alloc(&device(0x20_0000)).unwrap();
    assert_eq!(pa(&chunk), 0x100_0000);
    let found = set.search_pa(0x100_0800, false).unwrap();
    assert_eq!((found.facts, found.handle), (chunk.facts(), 0));
    let found = set.search_pa(0x100_0800, true).unwrap();
    assert_eq!(found.handle, chunk.handle());
    assert_ne!(found.handle, 0);
    for pa in [0x120_0000, 0x3_ffff_f000, 0x4_0000_0000, 0xf_ffff_ffff, 1 << 63, u64::MAX] {
        assert!(set.search_pa(pa, true).is_err(), "{pa:#x}");
    }
    for tagged in [1 << 44, (1 << 44) + 0x1_0000_0000, (1 << 44) | 0xfff_ffff_ffff] {
        assert!(set.search_pa(tagged, true).is_err(), "{tagged:#x}");
    }
}

#[test]
fn mem_e58_mem_e59_dumps_tell_the_true_count() {
    let mut set = v2();
    let refusal = set.dump(0, 0).unwrap_err();
    assert_eq!(refusal, MemoryError::TooSmall { needed: 1 });
    assert_eq!(refusal.errno(), Errno::EAGAIN);
    let lines = set.dump(0, 1).unwrap();
    assert_eq!((lines[0].pa.0, lines[0].size, lines[0].category.0), (0, 0x100_0000, 13));
    for channel in [2, 9, u32::MAX] {
        assert_eq!(set.dump(channel, 0).unwrap(), []);
    }
    let chunks: Vec<_> = (1..6).map(|n| set.alloc(&device(n * 0x10_0000)).unwrap()).collect();
    let pin = chunks[2].pin();
    let mut kept: Vec<_> = chunks.into_iter().collect();
    drop(kept.remove(2));
    set.collect_all();
    let lines = set.dump(0, 99).unwrap();
    let shown: Vec<_> = lines.iter().skip(1).map(|line| (line.pa, line.size)).collect();
    let expected: Vec<_> = kept.iter().map(|c| (c.facts().pa, c.facts().size)).collect();
    assert_eq!(shown, expected, "ascending, and without the draining one");
    drop(pin);
}
