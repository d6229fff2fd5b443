//! What the service counts (specification 04 §9.4, §10): totals, one counter per category, client
//! totals. Words are atomic one by one, so that anybody may read them without a message; each may
//! be slightly old, none is torn. Only the service writes, except for the reset of a counter.

use core::sync::atomic::{AtomicU32, AtomicU64, Ordering::Relaxed};

use axon_ports::{Category, ClientId, ClientSlot, Location};

/// Counter ids of specification 04 §9.4: 0 host memory, 1 device memory, 2 to 20 categories.
pub const COUNTER_IDS: usize = 21;
const HOST_MEM: usize = 0;
const DEVICE_MEM: usize = 1;
const CORES: usize = 8;

/// Counter id of every category.
const COUNTER_OF: [u8; Category::COUNT] =
    [2, 3, 4, 5, 6, 7, 8, 10, 11, 12, 13, 14, 15, 16, 17, 18, 19, 9, 20, 14];

/// Where a category belongs.
const fn location_of(category: Category) -> Location {
    match category.0 {
        0..=6 | 17 => Location::Host,
        _ => Location::Device,
    }
}

/// The category under which memory at `location` is booked: UNKNOWN of the real location where
/// the two disagree or the number is unknown (specification 04 §9.3).
pub fn booked_category(category: Category, location: Location) -> Category {
    if (category.0 as usize) < Category::COUNT && location_of(category) == location {
        return category;
    }
    match location {
        Location::Host => Category::UNKNOWN_HOST,
        Location::Device => Category::UNKNOWN_DEVICE,
    }
}

/// One counter as it is now.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct CounterValue {
    /// Sum now.
    pub total: u64,
    /// Size of the last change, in either direction.
    pub present: u64,
    /// Highest total seen.
    pub peak: u64,
}

#[derive(Default)]
struct Counter {
    total: AtomicU64,
    present: AtomicU64,
    peak: AtomicU64,
}

impl Counter {
    #[inline]
    fn add(&self, bytes: u64) {
        let total = self.total.load(Relaxed).saturating_add(bytes);
        self.total.store(total, Relaxed);
        self.present.store(bytes, Relaxed);
        if total > self.peak.load(Relaxed) {
            self.peak.store(total, Relaxed);
        }
    }

    #[inline]
    fn sub(&self, bytes: u64) {
        self.total.store(self.total.load(Relaxed).saturating_sub(bytes), Relaxed);
        self.present.store(bytes, Relaxed);
    }

    fn value(&self) -> CounterValue {
        CounterValue {
            total: self.total.load(Relaxed),
            present: self.present.load(Relaxed),
            peak: self.peak.load(Relaxed),
        }
    }
}

/// Bytes of one attached client.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct ClientTotals {
    /// Host memory.
    pub host: u64,
    /// Device memory.
    pub device: u64,
}

#[derive(Default)]
struct ClientCell {
    id: AtomicU32,
    bytes: [AtomicU64; 2],
}

/// Counters of one device.
pub struct Counters {
    cores: u8,
    /// Live and draining chunks: host bytes, device bytes.
    bytes: [AtomicU64; 2],
    draining: AtomicU64,
    live: AtomicU32,
    counters: [[Counter; CORES]; COUNTER_IDS],
    clients: [ClientCell; ClientSlot::COUNT],
}

const fn side(location: Location) -> usize {
    match location {
        Location::Host => HOST_MEM,
        Location::Device => DEVICE_MEM,
    }
}

impl Counters {
    pub(crate) fn new(cores: u8) -> Self {
        Counters {
            cores,
            bytes: Default::default(),
            draining: AtomicU64::new(0),
            live: AtomicU32::new(0),
            counters: Default::default(),
            clients: Default::default(),
        }
    }

    /// Bytes of live and draining chunks at `location`.
    pub fn total(&self, location: Location) -> u64 {
        self.bytes[side(location)].load(Relaxed)
    }

    /// Bytes released but still pinned, or held up behind such memory.
    pub fn draining(&self) -> u64 {
        self.draining.load(Relaxed)
    }

    /// Live chunks.
    pub fn live_chunks(&self) -> u32 {
        self.live.load(Relaxed)
    }

    /// HOST_MEM or DEVICE_MEM of `core`.
    pub fn location(&self, location: Location, core: u32) -> CounterValue {
        self.counter(side(location), self.booked_core(core)).value()
    }

    /// Counter of `category`: device categories of `core`, host categories of the whole device.
    pub fn category(&self, category: Category, core: u32) -> CounterValue {
        let Some(&id) = COUNTER_OF.get(category.0 as usize) else {
            return CounterValue::default();
        };
        let core = match location_of(category) {
            Location::Host => 0,
            Location::Device => self.booked_core(core),
        };
        self.counter(id.into(), core).value()
    }

    /// Starts the counter of `category` again from 0; its total may afterwards be smaller than
    /// what lives, but never below 0.
    pub fn reset_category(&self, category: Category, core: u32) {
        let Some(&id) = COUNTER_OF.get(category.0 as usize) else { return };
        let core = if location_of(category) == Location::Host { 0 } else { self.booked_core(core) };
        let counter = self.counter(id.into(), core);
        counter.total.store(0, Relaxed);
        counter.present.store(0, Relaxed);
        counter.peak.store(0, Relaxed);
    }

    /// Totals of the client in `slot`; `None` where it is not that client.
    pub fn client(&self, client: ClientId, slot: ClientSlot) -> Option<ClientTotals> {
        let cell = self.clients.get(slot.index())?;
        (cell.id.load(Relaxed) == client.number()).then(|| ClientTotals {
            host: cell.bytes[HOST_MEM].load(Relaxed),
            device: cell.bytes[DEVICE_MEM].load(Relaxed),
        })
    }

    /// Totals of a client, in whatever attach slot it is; `None` where it is not attached.
    pub fn client_anywhere(&self, client: ClientId) -> Option<ClientTotals> {
        ClientSlot::all().find_map(|slot| self.client(client, slot))
    }

    /// Core under which bytes are shown: one that the device does not have is its last
    /// (specification 04 §15 MEM-D34).
    fn booked_core(&self, core: u32) -> usize {
        core.min(u32::from(self.cores).saturating_sub(1)) as usize % CORES
    }

    fn counter(&self, id: usize, core: usize) -> &Counter {
        &self.counters[id % COUNTER_IDS][core % CORES]
    }

    /// The two counters of one chunk.
    #[inline]
    fn counters_of(&self, location: Location, category: Category, core: u32) -> [&Counter; 2] {
        let core = self.booked_core(core);
        let id = COUNTER_OF.get(booked_category(category, location).0 as usize).copied();
        let shown = if location as u8 == Location::Host as u8 { 0 } else { core };
        [self.counter(side(location), core), self.counter(id.unwrap_or(0).into(), shown)]
    }

    #[inline]
    pub(crate) fn book(&self, location: Location, category: Category, core: u32, bytes: u64) {
        let total = &self.bytes[side(location)];
        total.store(total.load(Relaxed) + bytes, Relaxed);
        self.live.store(self.live.load(Relaxed) + 1, Relaxed);
        for counter in self.counters_of(location, category, core) {
            counter.add(bytes);
        }
    }

    #[inline]
    pub(crate) fn unbook(&self, location: Location, category: Category, core: u32, bytes: u64) {
        let total = &self.bytes[side(location)];
        total.store(total.load(Relaxed).saturating_sub(bytes), Relaxed);
        for counter in self.counters_of(location, category, core) {
            counter.sub(bytes);
        }
    }

    #[inline]
    pub(crate) fn chunk_ended(&self) {
        self.live.store(self.live.load(Relaxed).saturating_sub(1), Relaxed);
    }

    pub(crate) fn drain(&self, bytes: u64) {
        self.draining.store(self.draining.load(Relaxed) + bytes, Relaxed);
    }

    pub(crate) fn drained(&self, bytes: u64) {
        self.draining.store(self.draining.load(Relaxed).saturating_sub(bytes), Relaxed);
    }

    /// Starts a client with fresh totals, or ends it (`None`).
    pub(crate) fn set_client(&self, slot: ClientSlot, client: Option<ClientId>) {
        let Some(cell) = self.clients.get(slot.index()) else { return };
        for bytes in &cell.bytes {
            bytes.store(0, Relaxed);
        }
        cell.id.store(client.map_or(0, ClientId::number), Relaxed);
    }

    #[inline]
    pub(crate) fn charge(&self, slot: usize, location: Location, bytes: u64) {
        if let Some(cell) = self.clients.get(slot) {
            let total = &cell.bytes[side(location)];
            total.store(total.load(Relaxed) + bytes, Relaxed);
        }
    }

    /// Takes bytes off the client in `slot`, where it is still `owner`.
    #[inline]
    pub(crate) fn discharge(&self, slot: usize, owner: u32, location: Location, bytes: u64) {
        if let Some(cell) = self.clients.get(slot)
            && cell.id.load(Relaxed) == owner
        {
            let total = &cell.bytes[side(location)];
            total.store(total.load(Relaxed).saturating_sub(bytes), Relaxed);
        }
    }
}
