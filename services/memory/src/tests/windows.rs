//! Windows, exports, peers, host ranges, scrub admission (specification 04 §6.4, §9.3, §11, §13).

use alloc::sync::Arc;
use alloc::vec::Vec;
use core::sync::atomic::{AtomicU64, Ordering};

use axon_platform::{BusAddr, DeviceAddr, Errno};
use axon_ports::{AllocRequest, Category, Chunk, Lifespan, MemoryError, Pools};

use super::rig::*;
use crate::exports::{ExportState, Peer};
use crate::faults::{Countdown, Faults};
use crate::windows::{BarMap, Rights, Shown, SpecialBlock, Window};

/// BAR4 at 1 TiB; shows HBM 0 from its start.
struct Bar4 {
    len: u64,
}

const BAR4: u64 = 1 << 40;

impl BarMap for Bar4 {
    fn peer_address(&self, pa: DeviceAddr, len_bytes: u64) -> Option<BusAddr> {
        (pa.0 + len_bytes <= self.len).then_some(BusAddr(BAR4 + pa.0))
    }
}

#[derive(Default)]
struct Told(AtomicU64);

impl Peer for Told {
    fn revoke(&self, number: u64) {
        self.0.fetch_add(number, Ordering::Relaxed);
    }
}

impl Told {
    fn sum(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

fn with_bar4() -> TestSet {
    let mut set = v2();
    set.set_bar_map(Arc::new(Bar4 { len: 16 << 30 }));
    let (id, slot) = client(2);
    set.attach(id, slot).unwrap();
    set
}

fn map(set: &mut TestSet, number: u32, chunk: &Chunk) -> Result<Window, MemoryError> {
    let facts = chunk.facts();
    set.map_window(client(number).0, facts.pa.0, facts.size)
}

fn errno<T>(result: Result<T, MemoryError>) -> Errno {
    result.map(drop).unwrap_err().errno()
}

#[test]
fn mem_e62_memory_behind_a_window_is_not_issued_again() {
    let mut set = with_bar4();
    let me = Some(client(1).0);
    let whole = published(device(0x3_bf00_0000));
    let chunk = set.alloc(&whole).unwrap();
    let window = map(&mut set, 1, &chunk).unwrap();
    assert_eq!(window.rights(), Rights::ReadWrite);
    assert_eq!(window.peer_address(), BusAddr(BAR4 + 0x100_0000));
    set.free(me, chunk.handle()).unwrap();
    assert!(set.table().find(1).is_none(), "the handle is dead");
    assert!(window.is_open());
    assert_eq!(refused(&mut set, whole).errno(), Errno::ENOMEM);
    let again = set.map_window(client(1).0, 0x100_0000, 0x3_bf00_0000);
    assert_eq!(errno(again), Errno::EINVAL, "no second window");
    drop(window);
    set.alloc(&whole).unwrap();
}

#[test]
fn mem_e64_mem_e65_a_window_shows_all_of_a_chunk_from_its_base() {
    let mut set = with_bar4();
    let chunk = set.alloc(&device(0x10_0000)).unwrap();
    let (me, start) = (client(1).0, pa(&chunk));
    for size in [0, 0x1000, 0xf_f000, 0x10_0001, 0x10_1000, u64::MAX] {
        assert_eq!(errno(set.map_window(me, start, size)), Errno::EINVAL, "{size:#x}");
    }
    let window = set.map_window(me, start + 0x8_0800, 0x10_0000).unwrap();
    assert_eq!(window.peer_address(), BusAddr(BAR4 + start));
    assert_eq!(window.facts(), Some(chunk.facts()));
    for cookie in [start + 0x10_0000, 1 << 63, u64::MAX, chunk.handle()] {
        let refusal = set.map_window(me, cookie, 0x10_0000);
        assert!(matches!(errno(refusal), Errno::EINVAL | Errno::EPERM), "{cookie:#x}");
    }
}

#[test]
fn a_scratchpad_window_may_cross_into_older_pages() {
    let mut set = with_bar4();
    let p1 = set.alloc(&scratchpad(0x2000)).unwrap();
    let p2 = set.alloc(&scratchpad(0x1000)).unwrap();
    let me = client(1).0;
    assert_eq!(set.map_window(me, pa(&p2), 0x3000).unwrap().size(), 0x3000);
    assert_eq!(errno(set.map_window(me, pa(&p2), 0x3001)), Errno::EINVAL);
    assert_eq!(errno(set.map_window(me, pa(&p1), 0x3000)), Errno::EINVAL);
    assert_eq!(errno(set.map_window(me, pa(&p1), 0)), Errno::EINVAL);
}

#[test]
fn mem_e66_others_may_look_but_not_into_queues_or_driver_memory() {
    let mut set = with_bar4();
    let chunk = set.alloc(&device(0x1000)).unwrap();
    assert_eq!(map(&mut set, 2, &chunk).unwrap().rights(), Rights::ReadOnly);
    assert!(!Rights::ReadOnly.is_writable() && Rights::ReadWrite.is_writable());
    let queue = AllocRequest { category: Category::NOTIFICATION_HOST, ..host(0x1000) };
    let queue = set.alloc(&queue).unwrap();
    assert_eq!(map(&mut set, 1, &queue).unwrap().rights(), Rights::ReadWrite);
    assert_eq!(errno(map(&mut set, 2, &queue)), Errno::EPERM);
    let ring = set.alloc(&AllocRequest::driver_host(0x1000)).unwrap();
    assert_eq!(errno(map(&mut set, 1, &ring)), Errno::EPERM);
    assert_eq!(errno(set.map_window(client(1).0, 0, 0x100_0000)), Errno::EPERM, "carve-out");
}

#[test]
fn mem_e67_device_memory_needs_bar4_to_show_it_to_its_last_byte() {
    let mut set = v2();
    let chunk = set.alloc(&device(0x1000)).unwrap();
    assert_eq!(errno(map(&mut set, 1, &chunk)), Errno::EINVAL, "no BAR4");
    set.set_bar_map(Arc::new(Bar4 { len: 16 << 30 }));
    take(&mut set, device(0x3_bf00_0000));
    take(&mut set, device(0x3fff_e000));
    let end = set.alloc(&device(0x1000)).unwrap();
    assert_eq!(pa(&end), 0x3_ffff_f000);
    let window = map(&mut set, 1, &end).unwrap();
    assert_eq!(window.peer_address(), BusAddr(BAR4 + 0x3_ffff_f000));
    assert!(window.host().is_none());
    set.set_bar_map(Arc::new(Bar4 { len: (16 << 30) - 1 }));
    assert_eq!(errno(map(&mut set, 1, &end)), Errno::EINVAL);
}

#[test]
fn host_windows_show_the_bytes_and_a_bus_address() {
    let mut set = with_bar4();
    let chunk = set.alloc(&host(0x2000)).unwrap();
    let window = map(&mut set, 1, &chunk).unwrap();
    assert_eq!(window.peer_address(), chunk.host().unwrap().bus(), "no tag");
    window.host().unwrap().store32(8, 5).unwrap();
    assert_eq!(chunk.host().unwrap().load32(8).unwrap(), 5);
    set.arm(Faults { window: Countdown::nth(1), ..Faults::default() });
    assert_eq!(errno(map(&mut set, 1, &chunk)), Errno::ENOSPC);
    map(&mut set, 1, &chunk).unwrap();
}

#[test]
fn a_windows_address_is_found_by_its_owner_only() {
    let mut set = with_bar4();
    let chunks: Vec<_> = (0..9).map(|_| set.alloc(&device(0x3000)).unwrap()).collect();
    let windows: Vec<_> = chunks.iter().map(|chunk| map(&mut set, 1, chunk).unwrap()).collect();
    let buffer = set.alloc(&host(0x1000)).unwrap();
    let on_host = map(&mut set, 1, &buffer).unwrap();
    let (me, other) = (client(1).0, client(2).0);
    for window in &windows {
        for at in [0, 1, 0x2fff] {
            assert_eq!(set.placement(me, window.address() + at).unwrap(), Shown::Channel(0));
            assert_eq!(errno(set.placement(other, window.address() + at)), Errno::EINVAL);
        }
        assert_eq!(errno(set.placement(me, window.address() + 0x3000)), Errno::EINVAL);
        assert_eq!(errno(set.placement(me, window.address() - 1)), Errno::EINVAL);
    }
    assert_eq!(set.placement(me, on_host.address()).unwrap(), Shown::Host);
    let gone = on_host.address();
    drop(on_host);
    assert_eq!(errno(set.placement(me, gone)), Errno::EINVAL);
    for address in [0, u64::MAX, 1 << 63] {
        assert_eq!(errno(set.placement(me, address)), Errno::EINVAL);
    }
}

#[test]
fn special_blocks_have_windows_without_a_chunk() {
    let mut set = with_bar4();
    let block = SpecialBlock {
        size: 0x2000,
        peer: BusAddr(0x9000_0000),
        rights: Rights::ReadOnly,
        shown: Shown::Special,
    };
    let window = set.map_special(client(1).0, block).unwrap();
    assert_eq!((window.size(), window.rights()), (0x2000, Rights::ReadOnly));
    assert_eq!(set.placement(client(1).0, window.address() + 1).unwrap(), Shown::Special);
    assert_eq!(errno(set.export(client(1).0, window.address(), 0x1000)), Errno::EPERM);
    for size in [0, 1, 0x1001] {
        assert!(set.map_special(client(1).0, SpecialBlock { size, ..block }).is_err());
    }
    let huge = SpecialBlock { size: !0xfff, ..block };
    assert_eq!(errno(set.map_special(client(1).0, huge)), Errno::ENOMEM);
}

#[test]
fn mem_e84_an_export_has_one_peer_and_pages_of_4096() {
    let mut set = with_bar4();
    let chunk = set.alloc(&device(0x10_0000)).unwrap();
    let window = map(&mut set, 1, &chunk).unwrap();
    let me = client(1).0;
    let export = set.export(me, window.address() + 0x3000, 10_000).unwrap();
    assert_eq!(export.state(), ExportState::Idle);
    assert_eq!(errno(export.map()), Errno::EPERM, "map before attach");
    let peer = Arc::new(Told::default());
    export.attach(peer.clone()).unwrap();
    assert_eq!(errno(export.attach(peer.clone())), Errno::EPERM);
    let pages = export.map().unwrap();
    let addresses: Vec<_> = pages.iter().map(|page| page.address.0).collect();
    let first = BAR4 + pa(&chunk) + 0x3000;
    assert_eq!(addresses, [first, first + 0x1000, first + 0x2000]);
    assert!(pages.iter().all(|page| page.len_bytes == 0x1000));
    assert_eq!(export.state(), ExportState::Mapped(1));
    export.unmap().unwrap();
    assert_eq!(errno(export.unmap()), Errno::EINVAL);
    export.detach();
    export.detach();
    assert_eq!(export.state(), ExportState::Idle);
    drop(window);
    assert_eq!((export.state(), peer.sum()), (ExportState::Dead, 0), "a detached peer is not told");
}

#[test]
fn mem_e85_an_export_stays_inside_its_window() {
    let mut set = with_bar4();
    let chunk = set.alloc(&device(0x2000)).unwrap();
    let window = map(&mut set, 1, &chunk).unwrap();
    let me = client(1).0;
    for (offset, size) in [(0x1000, 0x2000), (0, 0x2001), (0, 0), (0x2000, 1), (0, u64::MAX)] {
        let refusal = set.export(me, window.address() + offset, size);
        assert_eq!(errno(refusal), Errno::EINVAL, "{offset:#x} {size:#x}");
    }
    assert_eq!(errno(set.export(client(2).0, window.address(), 0x1000)), Errno::EINVAL);
    let inside = set.export(me, window.address() + 0x800, 0x800).unwrap();
    inside.attach(Arc::new(Told::default())).unwrap();
    assert_eq!(errno(inside.map()), Errno::EINVAL, "does not start on a page");
    assert_eq!(inside.state(), ExportState::Attached);
}

#[test]
fn mem_e86_mem_e87_peers_get_large_pages_for_large_aligned_parts() {
    let mut set = with_bar4();
    let request = AllocRequest { align: 0x20_0000, ..device(0x1000_0000) };
    let chunk = set.alloc(&request).unwrap();
    let window = map(&mut set, 1, &chunk).unwrap();
    assert_eq!(window.address() % 0x20_0000, 0);
    let me = client(1).0;
    let peer = Arc::new(Told::default());
    let mut register = |offset: u64, size| {
        let found = set.register(me, window.address() + offset, size, peer.clone());
        found.map(|part| (part.page_shift(), part.page_count(), part.start().0))
    };
    let start = BAR4 + pa(&chunk);
    assert_eq!(register(0, 0x1000_0000), Ok((21, 128, start)));
    assert_eq!(register(0, 0xfe0_0000), Ok((12, 65_024, start)));
    assert_eq!(register(0, 4097), Ok((12, 2, start)));
    assert_eq!(register(0x1000, 0x1000), Ok((12, 1, start + 0x1000)));
    for (offset, size) in [(0, 0), (1, 0x1000), (0x1000, 0x1000_0000), (0x1000_0000, 1)] {
        assert_eq!(register(offset, size).unwrap_err().errno(), Errno::EINVAL);
    }
    assert_eq!(errno(set.register(me, 0, 1, peer)), Errno::EINVAL);
}

#[test]
fn mem_e88_memory_a_peer_has_mapped_waits_for_the_peer() {
    let mut set = with_bar4();
    let me = Some(client(1).0);
    let whole = published(device(0x3_bf00_0000));
    let chunk = set.alloc(&whole).unwrap();
    let window = map(&mut set, 1, &chunk).unwrap();
    let export = set.export(client(1).0, window.address(), 0x1000).unwrap();
    let peer = Arc::new(Told::default());
    export.attach(peer.clone()).unwrap();
    export.map().unwrap();
    drop(window);
    set.free(me, chunk.handle()).unwrap();
    assert_eq!(peer.sum(), export.number(), "told once");
    assert_eq!(export.state(), ExportState::Revoking);
    assert_eq!(refused(&mut set, whole).errno(), Errno::ENOMEM);
    export.unmap().unwrap();
    assert_eq!(export.state(), ExportState::Dead);
    drop(export);
    set.alloc(&whole).unwrap();
}

#[test]
fn a_registered_peer_is_told_when_the_client_goes() {
    let mut set = with_bar4();
    let chunk = set.alloc(&device(0x1000)).unwrap();
    let window = map(&mut set, 1, &chunk).unwrap();
    let peer = Arc::new(Told::default());
    let (me, slot) = client(1);
    let first = set.register(me, window.address(), 0x1000, peer.clone()).unwrap();
    let second = set.register(me, window.address(), 0x1000, peer.clone()).unwrap();
    let sum = first.number() + second.number();
    let sweep = set.begin_detach(me, slot).unwrap();
    assert_eq!(peer.sum(), sum, "both are told (MEM-D18)");
    assert!(!window.is_open() && !first.is_open());
    while !set.continue_detach(sweep) {}
    assert_eq!(set.counters().draining(), 0x1000);
    drop(first);
    set.collect_all();
    assert_eq!(set.counters().draining(), 0x1000);
    drop(second);
    set.collect_all();
    assert_eq!(set.counters().draining(), 0);
    assert!(window.host().is_none());
}

#[test]
fn mem_e93_descriptors_name_the_clients_own_host_memory_to_the_last_byte() {
    let mut set = with_bar4();
    let chunk = set.alloc(&host(0x3000)).unwrap();
    let theirs = AllocRequest { client: Some(client(2)), ..host(0x1000) };
    let theirs = set.alloc(&theirs).unwrap();
    let on_device = set.alloc(&device(0x1000)).unwrap();
    let (me, start) = (client(1).0, pa(&chunk));
    let pins = set.validate_host(me, &[(start, 0x3000), (start + 0x2fff, 1)]).unwrap();
    assert_eq!(pins.len(), 2);
    assert_eq!(chunk.header().pins(), 2);
    drop(pins);
    for range in [
        (start, 0x3001),
        (start + 0x2fff, 2),
        (start - 1, 1),
        (start + 0x3000, 0),
        (start, u64::MAX),
        (start & !(1 << 44), 1),
        (pa(&theirs), 1),
        (pa(&on_device), 1),
        (u64::MAX, 1),
    ] {
        assert_eq!(errno(set.validate_host(me, &[(start, 1), range])), Errno::EINVAL, "{range:x?}");
    }
    assert_eq!(chunk.header().pins(), 0, "a refused list pins nothing");
}

#[test]
fn a_scrub_has_its_channel_to_itself() {
    let mut set = with_bar4();
    let (me, other) = (client(1), client(2));
    assert_eq!(errno(set.begin_scrub(me.0, 2)), Errno::EINVAL);
    let mine = set.alloc(&device(0x1000)).unwrap();
    let theirs = AllocRequest { client: Some(other), ..device(0x1000) };
    let foreign = set.alloc(&theirs).unwrap();
    assert_eq!(errno(set.begin_scrub(me.0, 0)), Errno::EBUSY);
    let pin = foreign.pin();
    drop(foreign);
    set.collect_all();
    assert_eq!(errno(set.begin_scrub(me.0, 0)), Errno::EBUSY, "still draining");
    drop(pin);
    set.collect_all();
    let ring = AllocRequest { client: None, lifespan: Lifespan::Device, ..device(0x1000) };
    let ring = set.alloc(&ring).unwrap();
    assert_eq!(errno(set.begin_scrub(me.0, 0)), Errno::EBUSY, "memory of the driver");
    drop(ring);
    set.collect_all();
    let range = set.begin_scrub(me.0, 0).unwrap();
    assert_eq!((range.start, range.end), (0x100_0000, 0x4_0000_0000));
    assert_eq!(errno(set.begin_scrub(me.0, 0)), Errno::EBUSY);
    assert_eq!(errno(set.alloc(&theirs)), Errno::EBUSY);
    set.alloc(&AllocRequest { channel: 1, ..theirs }).unwrap();
    set.alloc(&device(0x1000)).unwrap();
    drop(range);
    let foreign = set.alloc(&theirs).unwrap();
    drop((mine, foreign));
    set.collect_all();
    let range = set.begin_scrub(me.0, 0).unwrap();
    let hardware = range.hold.clone();
    drop(range);
    let sweep = set.begin_detach(me.0, me.1).unwrap();
    while !set.continue_detach(sweep) {}
    assert_eq!(errno(set.alloc(&theirs)), Errno::EBUSY, "an engine may still write there");
    assert_eq!(errno(set.begin_scrub(other.0, 0)), Errno::EBUSY);
    drop(hardware);
    set.alloc(&theirs).unwrap();
}
