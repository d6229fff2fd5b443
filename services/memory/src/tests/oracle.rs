//! The service as it is meant, written as simply as possible: granules in lists, chunks in maps,
//! every question answered by looking at everything.

use alloc::collections::BTreeMap;
use alloc::vec;
use alloc::vec::Vec;

use axon_ports::{AllocRequest, Category, Lifespan};

/// Bytes of the regions of the histories: small enough to be scanned.
pub(super) const REGION: u64 = 21 << 20;
/// Bytes of their small arenas.
pub(super) const SMALL: u64 = 2 << 20;
/// Largest request that prefers the small arena.
pub(super) const SMALL_MAX: u64 = 0x8000;
const PAGE: u64 = 0x1000;
const CARVEOUT: u64 = 16 << 20;

/// Why a request is refused, as far as the oracle cares.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum No {
    Invalid,
    NotAttached,
    Memory,
}

#[derive(Clone, Debug)]
pub(super) struct Model {
    pub(super) pa: u64,
    pub(super) size: u64,
    pub(super) channel: usize,
    pub(super) scratchpad: bool,
    pub(super) owner: Option<usize>,
    pub(super) lifespan: Lifespan,
    pub(super) references: u32,
    pub(super) pins: u32,
    pub(super) handle: u64,
    pub(super) alive: bool,
    /// 0 to 15 a client, 16 LOCAL, 17 ALL_PROCESS, 18 DEVICE.
    list: usize,
    charged: bool,
}

struct Region {
    base: u64,
    /// Chunk of every granule.
    granules: Vec<Option<u32>>,
    /// Scratchpads, oldest first.
    pads: Vec<u32>,
}

pub(super) struct Oracle {
    regions: Vec<Region>,
    pub(super) chunks: BTreeMap<u32, Model>,
    /// Newest last.
    lists: Vec<Vec<u32>>,
    pub(super) attached: [bool; 3],
    free_handles: Vec<u64>,
    next_handle: u64,
}

impl Oracle {
    pub(super) fn new(bases: &[u64]) -> Self {
        let region = |&base: &u64| {
            let mut granules = vec![None; (REGION / PAGE) as usize];
            granules[..(CARVEOUT / PAGE) as usize].fill(Some(u32::MAX));
            Region { base, granules, pads: vec![] }
        };
        Oracle {
            regions: bases.iter().map(region).collect(),
            chunks: BTreeMap::new(),
            lists: vec![vec![]; 19],
            attached: [false; 3],
            free_handles: vec![],
            next_handle: 1,
        }
    }

    /// First byte behind main, in granules.
    const MAIN: usize = ((REGION - SMALL) / PAGE) as usize;

    fn frontier(&self, channel: usize) -> usize {
        let region = &self.regions[channel];
        match region.pads.last() {
            Some(pad) => ((self.chunks[pad].pa - region.base) / PAGE) as usize,
            None => Oracle::MAIN,
        }
    }

    /// Lowest fitting address in main (`false`) or small.
    fn fit(&self, channel: usize, small: bool, size: u64, align: u64) -> Option<u64> {
        let region = &self.regions[channel];
        let (from, to) =
            if small { (Oracle::MAIN, region.granules.len()) } else { (0, self.frontier(channel)) };
        let count = (size / PAGE) as usize;
        let mut run = 0;
        let mut at = from;
        while at < to {
            // `run` free granules end before `at`.
            run = if region.granules[at].is_some() { 0 } else { run + 1 };
            at += 1;
            if run >= count {
                let address = region.base + ((at - count) as u64) * PAGE;
                if address.is_multiple_of(align) {
                    return Some(address);
                }
            }
        }
        None
    }

    /// What an allocation of device memory has to answer: the address.
    pub(super) fn expect(&self, request: &AllocRequest) -> Result<u64, No> {
        let above_page = request.align > PAGE;
        let scratchpad = request.category == Category::CONTIGUOUS_SCRATCHPAD_DEVICE;
        if request.size > i64::MAX as u64
            || request.channel as usize >= self.regions.len()
            || request.core >= 8
            || above_page && !request.align.is_power_of_two()
            || !scratchpad && request.align > 0x7fff_ffff
        {
            return Err(No::Invalid);
        }
        let attached = request.client.is_some_and(|(_, slot)| self.attached[slot.index()]);
        if request.lifespan == Lifespan::Client && !attached {
            return Err(No::NotAttached);
        }
        let size = request.size.div_ceil(PAGE) * PAGE;
        if size == 0 || size > REGION {
            return Err(No::Memory);
        }
        let channel = request.channel as usize;
        if scratchpad {
            let frontier = self.frontier(channel);
            let count = (size / PAGE) as usize;
            let free = count <= frontier
                && self.regions[channel].granules[frontier - count..frontier]
                    .iter()
                    .all(Option::is_none);
            let base = self.regions[channel].base;
            return if free {
                Ok(base + (frontier - count) as u64 * PAGE)
            } else {
                Err(No::Memory)
            };
        }
        let align = request.align.max(PAGE);
        let small = size <= SMALL_MAX;
        self.fit(channel, small, size, align)
            .or_else(|| self.fit(channel, !small, size, align))
            .ok_or(No::Memory)
    }

    /// Enters what was allocated; answers the handle it must have.
    pub(super) fn enter(&mut self, id: u32, request: &AllocRequest, pa: u64) -> u64 {
        let size = request.size.div_ceil(PAGE) * PAGE;
        let channel = request.channel as usize;
        let owner = request.client.map(|(_, slot)| slot.index());
        let list = match request.lifespan {
            Lifespan::Local => owner.filter(|&owner| self.attached[owner]).unwrap_or(16),
            Lifespan::Client => owner.unwrap_or(0),
            Lifespan::AllClients => 17,
            Lifespan::Device => 18,
        };
        let handle = if request.publish { self.mint() } else { 0 };
        let scratchpad = request.category == Category::CONTIGUOUS_SCRATCHPAD_DEVICE;
        let first = ((pa - self.regions[channel].base) / PAGE) as usize;
        let last = first + (size / PAGE) as usize;
        self.regions[channel].granules[first..last].fill(Some(id));
        if scratchpad {
            self.regions[channel].pads.push(id);
        }
        self.lists[list].push(id);
        self.chunks.insert(
            id,
            Model {
                pa,
                size,
                channel,
                scratchpad,
                owner,
                lifespan: request.lifespan,
                references: 1,
                pins: 0,
                handle,
                alive: true,
                list,
                charged: owner.is_some_and(|owner| self.attached[owner]),
            },
        );
        handle
    }

    pub(super) fn mint(&mut self) -> u64 {
        self.free_handles.pop().unwrap_or_else(|| {
            self.next_handle += 1;
            self.next_handle - 1
        })
    }

    /// One reference less; the chunk may end.
    pub(super) fn release(&mut self, id: u32) {
        let chunk = self.chunks.get_mut(&id).unwrap();
        assert!(chunk.alive);
        chunk.references -= 1;
        if chunk.references == 0 {
            chunk.alive = false;
            let (list, handle) = (chunk.list, chunk.handle);
            self.lists[list].retain(|&there| there != id);
            if handle != 0 {
                self.free_handles.push(handle);
            }
            self.settle();
        }
    }

    pub(super) fn unpin(&mut self, id: u32) {
        self.chunks.get_mut(&id).unwrap().pins -= 1;
        self.settle();
    }

    /// Gives back whatever nothing holds up.
    fn settle(&mut self) {
        for channel in 0..self.regions.len() {
            while let Some(&pad) = self.regions[channel].pads.last() {
                let chunk = &self.chunks[&pad];
                if chunk.alive || chunk.pins > 0 {
                    break;
                }
                self.regions[channel].pads.pop();
                self.remove(pad);
            }
        }
        let gone: Vec<u32> = self
            .chunks
            .iter()
            .filter(|(_, chunk)| !chunk.alive && chunk.pins == 0 && !chunk.scratchpad)
            .map(|(&id, _)| id)
            .collect();
        gone.into_iter().for_each(|id| self.remove(id));
    }

    fn remove(&mut self, id: u32) {
        let chunk = self.chunks.remove(&id).unwrap();
        let region = &mut self.regions[chunk.channel];
        let first = ((chunk.pa - region.base) / PAGE) as usize;
        region.granules[first..first + (chunk.size / PAGE) as usize].fill(None);
    }

    /// Sweeps a list, newest first; survivors go to the front of `next`.
    fn sweep(&mut self, list: usize, next: usize) {
        while let Some(&id) = self.lists[list].last() {
            self.release(id);
            if self.chunks.get(&id).is_some_and(|chunk| chunk.alive) {
                self.lists[list].pop();
                self.lists[next].push(id);
                self.chunks.get_mut(&id).unwrap().list = next;
            }
        }
    }

    pub(super) fn attach(&mut self, client: usize) {
        self.attached[client] = true;
    }

    pub(super) fn detach(&mut self, client: usize) {
        self.sweep(client, 17);
        self.attached[client] = false;
    }

    pub(super) fn last_client(&mut self) {
        self.sweep(17, 18);
    }

    /// Bytes of live and draining device chunks, without carve-outs; draining; of client.
    pub(super) fn totals(&self, client: usize) -> [u64; 3] {
        let sum = |keep: &dyn Fn(&Model) -> bool| {
            self.chunks.values().filter(|chunk| keep(chunk)).map(|chunk| chunk.size).sum()
        };
        [
            sum(&|_| true),
            sum(&|chunk| !chunk.alive),
            sum(&|chunk| chunk.alive && chunk.charged && chunk.owner == Some(client)),
        ]
    }

    /// The live chunk that contains `pa`.
    pub(super) fn at(&self, pa: u64) -> Option<u32> {
        let inside = |chunk: &Model| chunk.alive && pa >= chunk.pa && pa - chunk.pa < chunk.size;
        self.chunks.iter().find(|(_, chunk)| inside(chunk)).map(|(&id, _)| id)
    }

    /// How far an access from the start of `id` may reach.
    pub(super) fn reach(&self, id: u32) -> u64 {
        let chunk = &self.chunks[&id];
        if !chunk.scratchpad {
            return chunk.size;
        }
        let pads = &self.regions[chunk.channel].pads;
        let place = pads.iter().position(|&pad| pad == id).unwrap();
        let mut reach = 0;
        for pad in pads[..=place].iter().rev().map(|pad| &self.chunks[pad]) {
            if !pad.alive || pad.owner != chunk.owner {
                break;
            }
            reach += pad.size;
        }
        reach
    }

    /// Live device chunks of a channel by address.
    pub(super) fn listing(&self, channel: usize) -> Vec<(u64, u64)> {
        let mut lines: Vec<_> = self
            .chunks
            .values()
            .filter(|chunk| chunk.alive && chunk.channel == channel)
            .map(|chunk| (chunk.pa, chunk.size))
            .collect();
        lines.sort_unstable();
        lines
    }

    /// Free granules, and the longest free run of main or small.
    pub(super) fn free(&self, channel: usize) -> (u64, u64) {
        let granules = &self.regions[channel].granules;
        let free = granules.iter().filter(|granule| granule.is_none()).count() as u64;
        let main = &granules[..self.frontier(channel)];
        let longest = main
            .split(Option::is_some)
            .chain(granules[Oracle::MAIN..].split(Option::is_some))
            .map(<[_]>::len)
            .max();
        (free * PAGE, longest.unwrap_or(0) as u64 * PAGE)
    }
}
