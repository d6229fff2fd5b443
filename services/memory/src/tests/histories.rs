//! Long random histories of the whole set against the oracle.
//!
//! The suite runs a few hundred thousand steps; with `AXON_LONG=1` in the environment it runs more
//! than ten million.

use alloc::collections::BTreeMap;
use alloc::vec;
use alloc::vec::Vec;

use axon_platform::DeviceAddr;
use axon_ports::{
    AllocRequest, Category, Chunk, ClientId, ClientSlot, Lifespan, Location, MemoryError,
    MemoryGeometry, Pin, Pools,
};
use proptest::prelude::*;

use super::oracle::{No, Oracle, REGION, SMALL, SMALL_MAX};
use super::rig::{TestSet, client, v2_geometry};
use crate::MemorySet;
use crate::config::MemoryConfig;
use crate::testing::HeapMemory;

#[derive(Clone, Debug)]
enum Step {
    Alloc {
        client: u8,
        lifespan: u8,
        pages: u32,
        align: u8,
        channel: u8,
        kind: u8,
    },
    /// Drops a reference value.
    Drop(u16),
    /// Frees by handle.
    Free(u16),
    Retain(u16),
    Publish(u16),
    Pin(u16),
    Unpin(u16),
    Attach(u8),
    Detach(u8),
    LastClient,
    Search(u32),
}

fn step() -> impl Strategy<Value = Step> {
    let pages = prop_oneof![6 => 1u32..9, 3 => 1u32..40, 1 => 1u32..1300];
    let alloc = (0u8..4, 0u8..8, pages, 0u8..16, 0u8..2, 0u8..8);
    prop_oneof![
        20 => alloc.prop_map(|(client, lifespan, pages, align, channel, kind)| {
            Step::Alloc { client, lifespan, pages, align, channel, kind }
        }),
        14 => any::<u16>().prop_map(Step::Drop),
        5 => any::<u16>().prop_map(Step::Free),
        2 => any::<u16>().prop_map(Step::Retain),
        2 => any::<u16>().prop_map(Step::Publish),
        4 => any::<u16>().prop_map(Step::Pin),
        4 => any::<u16>().prop_map(Step::Unpin),
        2 => (0u8..3).prop_map(Step::Attach),
        1 => (0u8..3).prop_map(Step::Detach),
        1 => Just(Step::LastClient),
        3 => any::<u32>().prop_map(Step::Search),
    ]
}

fn geometry() -> MemoryGeometry {
    let mut geometry = v2_geometry();
    for channel in &mut geometry.channels {
        channel.size = REGION;
    }
    geometry
}

/// The set, the oracle, and the values that an application would hold.
struct History {
    set: TestSet,
    oracle: Oracle,
    chunks: Vec<(u32, Chunk)>,
    pins: Vec<(u32, Pin)>,
    /// Chunk of every live id, for questions about its record.
    names: BTreeMap<u32, axon_ports::ChunkName>,
    next: u32,
    general_only: bool,
}

impl History {
    fn new(general_only: bool) -> Self {
        let config = MemoryConfig {
            host_memory_size: 0,
            small_pool_size: SMALL,
            small_alloc_max: SMALL_MAX,
            ..MemoryConfig::default()
        };
        let geometry = geometry();
        let bases = [geometry.channels[0].base.0, geometry.channels[1].base.0];
        let mut set = MemorySet::new(config, geometry, HeapMemory::new(0)).unwrap();
        if general_only {
            set.forbid_hot_way();
        }
        History {
            set,
            oracle: Oracle::new(&bases),
            chunks: Vec::new(),
            pins: Vec::new(),
            names: BTreeMap::new(),
            next: 0,
            general_only,
        }
    }

    fn run(&mut self, steps: impl Iterator<Item = Step>, check_every: usize) {
        for (number, step) in steps.enumerate() {
            self.apply(&step);
            self.set.collect_all();
            if number % check_every == 0 {
                self.check(number as u64);
            }
        }
        self.check(0);
    }

    fn apply(&mut self, step: &Step) {
        match *step {
            Step::Alloc { client, lifespan, pages, align, channel, kind } => {
                self.alloc(&request(client, lifespan, pages, align, channel, kind));
            }
            Step::Drop(which) if !self.chunks.is_empty() => {
                let (id, chunk) = self.chunks.swap_remove(which as usize % self.chunks.len());
                drop(chunk);
                if self.is_alive(id) {
                    self.oracle.release(id);
                }
            }
            Step::Free(which) => self.free(which),
            Step::Retain(which) if !self.chunks.is_empty() => {
                let (id, chunk) = &self.chunks[which as usize % self.chunks.len()];
                let (id, name) = (*id, chunk.header().name());
                let alive = self.is_alive(id);
                assert_eq!(self.set.retain(name).is_ok(), alive);
                if alive {
                    self.oracle.chunks.get_mut(&id).unwrap().references += 1;
                    self.chunks.push((id, self.set.table().reference(name)));
                }
            }
            Step::Publish(which) if !self.chunks.is_empty() => {
                let (id, chunk) = &self.chunks[which as usize % self.chunks.len()];
                let (id, name) = (*id, chunk.header().name());
                let got = self.set.publish(name);
                assert_eq!(got.is_ok(), self.is_alive(id));
                if let Ok(handle) = got {
                    let known = self.oracle.chunks[&id].handle;
                    let expected = if known == 0 { self.oracle.mint() } else { known };
                    assert_eq!(u64::from(handle), expected);
                    self.oracle.chunks.get_mut(&id).unwrap().handle = expected;
                }
            }
            Step::Pin(which) if !self.chunks.is_empty() => {
                let (id, chunk) = &self.chunks[which as usize % self.chunks.len()];
                let (id, pin) = (*id, chunk.pin());
                assert_eq!(pin.is_some(), self.is_alive(id));
                if let Some(pin) = pin {
                    self.oracle.chunks.get_mut(&id).unwrap().pins += 1;
                    self.pins.push((id, pin));
                }
            }
            Step::Unpin(which) if !self.pins.is_empty() => {
                let (id, pin) = self.pins.swap_remove(which as usize % self.pins.len());
                drop(pin);
                self.oracle.unpin(id);
            }
            Step::Attach(number) if !self.oracle.attached[number as usize] => {
                let (id, slot) = client(u32::from(number) + 1);
                self.set.attach(id, slot).unwrap();
                self.oracle.attach(number as usize);
            }
            Step::Detach(number) => {
                let (id, slot) = client(u32::from(number) + 1);
                let sweep = self.set.begin_detach(id, slot);
                assert_eq!(sweep.is_ok(), self.oracle.attached[number as usize]);
                if let Ok(sweep) = sweep {
                    while !self.set.continue_detach(sweep) {}
                    self.oracle.detach(number as usize);
                }
            }
            Step::LastClient => {
                while !self.set.continue_last_client() {}
                self.oracle.last_client();
            }
            Step::Search(place) => self.search(place),
            _ => {}
        }
    }

    fn is_alive(&self, id: u32) -> bool {
        self.oracle.chunks.get(&id).is_some_and(|chunk| chunk.alive)
    }

    fn alloc(&mut self, request: &AllocRequest) {
        let expected = self.oracle.expect(request);
        if self.general_only {
            self.set.forbid_hot_way();
        }
        match (self.set.alloc(request), expected) {
            (Ok(chunk), Ok(pa)) => {
                assert_eq!(chunk.facts().pa, DeviceAddr(pa), "{request:?}");
                let id = self.next;
                self.next += 1;
                let handle = self.oracle.enter(id, request, pa);
                assert_eq!(chunk.handle(), handle);
                self.names.insert(id, chunk.header().name());
                self.chunks.push((id, chunk));
            }
            (Err(MemoryError::Invalid { .. }), Err(No::Invalid))
            | (Err(MemoryError::NotAttached), Err(No::NotAttached))
            | (Err(MemoryError::NoMemory { .. }), Err(No::Memory)) => {}
            (got, expected) => panic!("{request:?}: {got:?}, expected {expected:?}"),
        }
    }

    fn free(&mut self, which: u16) {
        let handle = u64::from(which % 400);
        let id = self
            .oracle
            .chunks
            .iter()
            .find(|(_, chunk)| chunk.alive && chunk.handle == handle && handle != 0)
            .map(|(&id, _)| id);
        let owner = id.map_or(Some(0), |id| self.oracle.chunks[&id].owner);
        let owner = owner.map(|owner| client(owner as u32 + 1).0);
        let stranger = ClientId::new(99);
        if id.is_some() {
            let refusal = self.set.free(stranger, handle).unwrap_err();
            assert_eq!(refusal, MemoryError::WrongOwner { handle });
        }
        assert_eq!(self.set.free(owner, handle).is_ok(), id.is_some());
        if let Some(id) = id {
            self.oracle.release(id);
        }
    }

    fn search(&mut self, place: u32) {
        let channel = place as u64 % 2;
        let base = geometry().channels[channel as usize].base.0;
        let pa = base + (16 << 20) + u64::from(place) % (5 << 20);
        let expected = self.oracle.at(pa).map(|id| (self.names[&id], self.oracle.reach(id)));
        let found = self.set.find_pa(pa);
        assert_eq!(found, expected.map(|(name, _)| name), "{pa:#x}");
        if let Some((name, reach)) = expected {
            let start = self.set.table().facts(name).unwrap().pa.0;
            let left = reach - (pa - start);
            assert!(self.set.within(pa, left).is_ok());
            assert!(self.set.within(pa, left + 1).is_err());
        }
    }

    /// Everything that can be seen from outside.
    fn check(&mut self, salt: u64) {
        let counters = self.set.counters();
        let carve_outs = 2 * (16 << 20);
        for number in 0..3 {
            let [total, draining, mine] = self.oracle.totals(number);
            assert_eq!(counters.total(Location::Device), total + carve_outs);
            assert_eq!(counters.draining(), draining);
            let (id, slot): (ClientId, ClientSlot) = client(number as u32 + 1);
            let totals = counters.client(id, slot);
            assert_eq!(totals.is_some(), self.oracle.attached[number]);
            if let Some(totals) = totals {
                assert_eq!(totals.device, mine);
            }
        }
        let usage = self.set.usage();
        for channel in 0..2 {
            let arena = &usage.arenas[channel];
            assert_eq!((arena.free, arena.largest), self.oracle.free(channel));
            let lines = self.set.dump(channel as u32, usize::MAX).unwrap();
            let shown: Vec<_> = lines[1..].iter().map(|line| (line.pa.0, line.size)).collect();
            assert_eq!(shown, self.oracle.listing(channel));
        }
        for (&id, chunk) in &self.oracle.chunks {
            let name = self.names[&id];
            let facts = self.set.table().facts(name);
            assert_eq!(facts.is_some(), chunk.alive);
            if let Some(facts) = facts {
                assert_eq!(facts.reach, self.oracle.reach(id));
                assert_eq!((facts.lifespan, facts.size), (chunk.lifespan, chunk.size));
            }
            if chunk.alive && chunk.handle != 0 {
                assert_eq!(self.set.table().find(chunk.handle), Some(name), "I-7");
            }
        }
        assert_eq!(self.set.table().find(1000 + salt), None);
    }

    /// Lets everything go and takes the whole of both regions again.
    fn finish(mut self) {
        self.chunks.clear();
        self.pins.clear();
        self.set.collect_all();
        for number in 1..=3 {
            let (id, slot) = client(number);
            if let Ok(sweep) = self.set.begin_detach(id, slot) {
                while !self.set.continue_detach(sweep) {}
            }
        }
        while !self.set.continue_last_client() {}
        for channel in 0..2 {
            // What lives with the device may be in the way of one run, but nothing else is.
            let usage = self.set.usage().arenas[channel as usize];
            let left: u64 =
                self.set.dump(channel, usize::MAX).unwrap().iter().map(|line| line.size).sum();
            assert_eq!(usage.free, REGION - left);
        }
        let report = self.set.destroy();
        assert_eq!((report.left, report.draining), (0, 0));
        assert_eq!(self.set.counters().total(Location::Device), 0);
    }
}

fn request(who: u8, lifespan: u8, pages: u32, align: u8, channel: u8, kind: u8) -> AllocRequest {
    AllocRequest {
        client: (who < 3).then(|| client(u32::from(who) + 1)),
        lifespan: match lifespan {
            0 => Lifespan::Local,
            1 => Lifespan::AllClients,
            2 => Lifespan::Device,
            _ => Lifespan::Client,
        },
        size: u64::from(pages) * 0x1000 - u64::from(kind % 3) * 0x7ff,
        align: match align {
            0..9 => 0,
            9 => 0x1000,
            10 => 0x3000,
            n => 0x1000 << (n - 10),
        },
        location: Location::Device,
        channel: channel.into(),
        region: 0,
        core: 0,
        category: match kind {
            7 => Category::CONTIGUOUS_SCRATCHPAD_DEVICE,
            _ => Category::TENSORS_DEVICE,
        },
        publish: kind & 1 == 0,
    }
}

fn is_long() -> bool {
    std::env::var_os("AXON_LONG").is_some_and(|value| value == "1")
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: if is_long() { 6000 } else { 130 },
        max_shrink_iters: 20_000,
        ..ProptestConfig::default()
    })]

    #[test]
    fn the_set_agrees_with_the_oracle(
        steps in prop::collection::vec(step(), 1..3500), general_only in any::<bool>())
    {
        let mut history = History::new(general_only);
        history.run(steps.into_iter(), 64);
        history.finish();
    }
}

/// The same with one history after the other from a simple generator: no shrinking, more steps.
#[test]
fn long_histories_agree_with_the_oracle() {
    let histories = if is_long() { 200 } else { 2 };
    for seed in 0..histories {
        let mut state = 0x9e37_79b9_7f4a_7c15u64.wrapping_mul(seed + 1);
        let mut random = move |limit: u64| {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            (state >> 11) % limit
        };
        let mut history = History::new(seed % 2 == 1);
        let steps = (0..25_000).map(|_| match random(60) {
            0..20 => Step::Alloc {
                client: random(4) as u8,
                lifespan: random(8) as u8,
                pages: {
                    let limit = [8, 8, 40, 600][random(4) as usize];
                    1 + random(limit) as u32
                },
                align: random(16) as u8,
                channel: random(2) as u8,
                kind: random(8) as u8,
            },
            20..34 => Step::Drop(random(1 << 16) as u16),
            34..39 => Step::Free(random(1 << 16) as u16),
            39..41 => Step::Retain(random(1 << 16) as u16),
            41..43 => Step::Publish(random(1 << 16) as u16),
            43..48 => Step::Pin(random(1 << 16) as u16),
            48..53 => Step::Unpin(random(1 << 16) as u16),
            53..55 => Step::Attach(random(3) as u8),
            55 => Step::Detach(random(3) as u8),
            56 => Step::LastClient,
            _ => Step::Search(random(1 << 32) as u32),
        });
        history.run(steps, 500);
        history.finish();
    }
}
