//! Contiguous scratchpads: a stack that grows down (specification 04 §4.4 A, §6.2, §6.3).

use axon_platform::Errno;
use axon_ports::{AllocRequest, Chunk, Pools};

use super::rig::*;

const CEILING: u64 = 0x3_c000_0000;
const P1: u64 = 0x2000_0000;
const P2: u64 = 0x1000_0000;

fn size(set: &TestSet) -> u64 {
    set.usage().arenas[0].scratchpad_size
}

fn release(set: &mut TestSet, chunk: Chunk) {
    drop(chunk);
    set.collect_all();
}

#[test]
fn mem_e25_mem_e32_pages_grow_down_and_are_reused_in_stack_order() {
    let mut set = v2();
    let p1 = set.alloc(&scratchpad(P1)).unwrap();
    let p2 = set.alloc(&scratchpad(P2)).unwrap();
    assert_eq!((pa(&p1), pa(&p2)), (0x3_a000_0000, 0x3_9000_0000));
    assert_eq!(size(&set), P1 + P2);
    release(&mut set, p2);
    let p3 = set.alloc(&scratchpad(0x800_0000)).unwrap();
    assert_eq!(pa(&p3), 0x3_9800_0000);
    assert_eq!(size(&set), P1 + 0x800_0000);
    release(&mut set, p3);
    release(&mut set, p1);
    assert_eq!(size(&set), 0);
}

#[test]
fn mem_e26_mem_e27_small_and_aligned_pages_lie_in_main_too() {
    for align in [0, 0x20_0000] {
        let mut set = v2();
        let request = AllocRequest { align, ..scratchpad(0x1000) };
        assert_eq!(take(&mut set, request), 0x3_bfff_f000);
    }
}

#[test]
fn mem_e28_mem_e29_all_of_main_and_not_a_page_more() {
    let mut set = v2();
    assert_eq!(refused(&mut set, scratchpad(0x3_bf00_1000)).errno(), Errno::ENOMEM);
    assert_eq!(refused(&mut set, scratchpad(0x3_c000_1000)).errno(), Errno::ENOMEM);
    assert_eq!(refused(&mut set, scratchpad(0)).errno(), Errno::ENOMEM);
    assert_eq!(take(&mut set, scratchpad(0x3_bf00_0000)), 0x100_0000);
    assert_eq!(refused(&mut set, scratchpad(0x1000)).errno(), Errno::ENOMEM);
}

#[test]
fn mem_e30_an_ordinary_chunk_at_the_top_is_in_the_way() {
    let mut set = v2();
    // All of main but its last page, then all of the small arena: the next page is that one.
    let all = set.alloc(&device(0x3_beff_f000)).unwrap();
    take(&mut set, device(0x1000));
    take(&mut set, device(0x3fff_f000));
    let last = set.alloc(&device(0x1000)).unwrap();
    assert_eq!(pa(&last), 0x3_bfff_f000);
    release(&mut set, all);
    assert_eq!(refused(&mut set, scratchpad(0x1000)).errno(), Errno::ENOMEM);
    release(&mut set, last);
    assert_eq!(take(&mut set, scratchpad(0x1000)), 0x3_bfff_f000);
}

#[test]
fn mem_e31_scratchpads_are_device_memory() {
    let request = AllocRequest { location: axon_ports::Location::Host, ..scratchpad(0x1000) };
    assert_eq!(refused(&mut v2(), request).errno(), Errno::EINVAL);
}

#[test]
fn mem_e33_mem_e34_a_page_released_early_stays_reserved_until_newer_ones_are_gone() {
    let mut set = v2();
    let p1 = set.alloc(&scratchpad(P1)).unwrap();
    let p2 = set.alloc(&scratchpad(P2)).unwrap();
    let before = set.counters().total(axon_ports::Location::Device);
    release(&mut set, p1);
    assert_eq!(set.counters().draining(), P1);
    assert_eq!(set.counters().total(axon_ports::Location::Device), before);
    assert!(set.search_pa(0x3_a000_0000, false).is_err(), "invisible");
    assert_eq!(p2.facts().reach, P2, "no longer into the page above");
    let next = set.alloc(&scratchpad(P2)).unwrap();
    assert_eq!(pa(&next), 0x3_8000_0000);
    release(&mut set, p2);
    release(&mut set, next);
    assert_eq!((size(&set), set.counters().draining()), (0, 0));
    assert_eq!(set.counters().total(axon_ports::Location::Device), before - P1 - P2);
    assert_eq!(take(&mut set, scratchpad(0x3_bf00_0000)), 0x100_0000, "all of it is back");
}

#[test]
fn mem_e35_an_access_may_cross_into_older_pages() {
    let mut set = v2();
    let p1 = set.alloc(&scratchpad(P1)).unwrap();
    let p2 = set.alloc(&scratchpad(P2)).unwrap();
    assert_eq!((p1.facts().reach, p2.facts().reach), (P1, P1 + P2));
    let facts = p2.facts();
    assert!(facts.check(0x2fff_ffff, 1).is_ok());
    assert!(facts.check(0x3000_0000, 0).is_ok());
    assert!(facts.check(0x3000_0000, 1).is_err());
    assert!(facts.check(1, u64::MAX).is_err());
    assert!(set.within(pa(&p2), 0x3000_0000).is_ok());
    assert!(set.within(pa(&p2) + 1, 0x3000_0000).is_err());
    assert!(set.within(CEILING - 1, 1).is_ok());
    assert!(set.within(CEILING - 1, 2).is_err());
}

#[test]
fn reach_ends_where_another_client_begins() {
    let mut set = v2();
    let (id, slot) = client(2);
    set.attach(id, slot).unwrap();
    let theirs = AllocRequest { client: Some((id, slot)), ..scratchpad(0x1000) };
    let oldest = set.alloc(&scratchpad(0x1000)).unwrap();
    let other = set.alloc(&theirs).unwrap();
    let mine = set.alloc(&scratchpad(0x1000)).unwrap();
    let newest = set.alloc(&scratchpad(0x1000)).unwrap();
    let reach = |chunk: &Chunk| chunk.facts().reach;
    assert_eq!([&oldest, &other, &mine, &newest].map(reach), [0x1000, 0x1000, 0x1000, 0x2000]);
    release(&mut set, mine);
    assert_eq!(reach(&newest), 0x1000);
    release(&mut set, oldest);
    assert_eq!(reach(&other), 0x1000);
    drop((other, newest));
    set.collect_all();
    assert_eq!(size(&set), 0);
}

#[test]
fn a_pinned_page_keeps_the_frontier_down() {
    let mut set = v2();
    let p1 = set.alloc(&scratchpad(0x1000)).unwrap();
    let p2 = set.alloc(&scratchpad(0x1000)).unwrap();
    let (pin1, pin2) = (p1.pin().unwrap(), p2.pin().unwrap());
    release(&mut set, p2);
    release(&mut set, p1);
    assert_eq!((size(&set), set.counters().draining()), (0x2000, 0x2000));
    drop(pin1);
    set.collect_all();
    assert_eq!(size(&set), 0x2000, "the newer page is still pinned");
    drop(pin2);
    set.collect_all();
    assert_eq!((size(&set), set.counters().draining()), (0, 0));
}

#[test]
fn pages_released_in_any_order_cost_little_and_all_come_back() {
    let mut set = v2();
    let mut pages: alloc::vec::Vec<_> =
        (0..4000).map(|_| Some(set.alloc(&scratchpad(0x1000)).unwrap())).collect();
    assert_eq!(pages.last().unwrap().as_ref().unwrap().facts().reach, 4000 * 0x1000);
    let mut order: alloc::vec::Vec<usize> = (0..4000).collect();
    for at in 0..4000 {
        order.swap(at, (at * 2_654_435_761) % 4000);
    }
    for at in order {
        drop(pages[at].take());
        set.collect_all();
        let check = (at + 1).min(3999);
        if let Some(page) = &pages[check] {
            let live = pages[..=check].iter().rev().take_while(|page| page.is_some()).count();
            assert_eq!(page.facts().reach, live as u64 * 0x1000);
        }
    }
    assert_eq!((size(&set), set.counters().draining()), (0, 0));
}
