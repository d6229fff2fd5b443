//! What the service counts (specification 04 §9.4, §10): totals, one counter per category, client
//! totals. Words are atomic one by one, so that anybody may read them without a message; each may
//! be slightly old, none is torn. Only the service writes, except for the reset of a counter.

use core::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering::Relaxed};

use axon_ports::{Category, ClientId, ClientSlot, Location};

/// Counter ids of specification 04 §9.4: 0 host memory, 1 device memory, 2 to 20 categories.
pub const COUNTER_IDS: usize = 21;
const HOST_MEM: usize = 0;
const DEVICE_MEM: usize = 1;
const CORES: usize = 8;

/// Counter id of every category.
const COUNTER_OF: [u8; Category::COUNT] =
    [2, 3, 4, 5, 6, 7, 8, 10, 11, 12, 13, 14, 15, 16, 17, 18, 19, 9, 20, 14];

/// Counter id under which a category is booked at each location: UNKNOWN of the real location where
/// the two disagree (specification 04 §9.3).
const BOOKED: [[u8; Category::COUNT]; 2] = {
    let mut booked = [[COUNTER_OF[0]; Category::COUNT], [COUNTER_OF[7]; Category::COUNT]];
    let mut number = 0;
    while number < Category::COUNT {
        let category = Category(number as u32);
        booked[side(location_of(category))][number] = COUNTER_OF[number];
        number += 1;
    }
    booked
};

/// Attach slot + 1 of whoever pays for a chunk; 0 is the driver itself.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Payer(pub(crate) u32);

impl Payer {
    pub(crate) const DRIVER: Payer = Payer(0);

    #[inline]
    pub(crate) const fn of(slot: ClientSlot) -> Payer {
        Payer(slot.number() + 1)
    }

    #[inline]
    const fn index(self) -> usize {
        self.0 as usize % PAYERS
    }
}

/// Attach slots and the driver, rounded up to a power of two.
const PAYERS: usize = 32;

/// A category counter of one core (the first for host categories), as a record keeps it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Account(pub(crate) u8);

impl Account {
    /// Id × 8 + core.
    #[inline]
    const fn new(id: usize, core: usize) -> Account {
        Account((id * CORES + core) as u8)
    }
}

/// Where a category belongs.
const fn location_of(category: Category) -> Location {
    match category.0 {
        0..=6 | 17 => Location::Host,
        _ => Location::Device,
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
    #[inline(always)]
    fn add(&self, bytes: u64) {
        self.total.store(self.total.load(Relaxed).wrapping_add(bytes), Relaxed);
        self.present.store(bytes, Relaxed);
    }

    /// A total is at its highest before it shrinks, so that is when the peak is taken.
    #[inline(always)]
    fn sub(&self, bytes: u64) {
        let total = self.total.load(Relaxed);
        if total > self.peak.load(Relaxed) {
            self.peak.store(total, Relaxed);
        }
        self.total.store(total.saturating_sub(bytes), Relaxed);
        self.present.store(bytes, Relaxed);
    }

    fn rebase(&self) {
        self.peak.store(self.total.load(Relaxed), Relaxed);
    }

    fn value(&self) -> CounterValue {
        let total = self.total.load(Relaxed);
        let peak = self.peak.load(Relaxed).max(total);
        CounterValue { total, present: self.present.load(Relaxed), peak }
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
struct PayerCell {
    /// To whom the bytes belong; stays when the client goes, because some of its chunks may.
    id: AtomicU32,
    attached: AtomicBool,
    bytes: [AtomicU64; 2],
}

/// Counters of one device.
pub struct Counters {
    last_core: u8,
    draining: [AtomicU64; 2],
    live: AtomicU32,
    /// By [`Account`].
    counters: [Counter; 256],
    payers: [PayerCell; PAYERS],
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
            last_core: cores.saturating_sub(1) % CORES as u8,
            draining: Default::default(),
            live: AtomicU32::new(0),
            counters: core::array::from_fn(|_| Counter::default()),
            payers: Default::default(),
        }
    }

    /// Bytes of live and draining chunks at `location`.
    pub fn total(&self, location: Location) -> u64 {
        let start = side(location) * CORES;
        let counters = self.counters.iter().skip(start).take(CORES);
        counters.map(|counter| counter.total.load(Relaxed)).sum()
    }

    /// Bytes released but still pinned, or held up behind such memory.
    pub fn draining(&self) -> u64 {
        self.draining_at(Location::Host) + self.draining_at(Location::Device)
    }

    /// As [`Self::draining`], at one location.
    pub fn draining_at(&self, location: Location) -> u64 {
        self.draining[side(location)].load(Relaxed)
    }

    /// Live chunks.
    pub fn live_chunks(&self) -> u32 {
        self.live.load(Relaxed)
    }

    /// HOST_MEM or DEVICE_MEM of `core`.
    pub fn location(&self, location: Location, core: u32) -> CounterValue {
        self.counter(Account::new(side(location), self.shown_core(core))).value()
    }

    /// Counter of `category`: device categories of `core`, host categories of the whole device.
    pub fn category(&self, category: Category, core: u32) -> CounterValue {
        self.shown(category, core).map_or_else(CounterValue::default, Counter::value)
    }

    /// Starts the counter of `category` again from 0; its total may afterwards be smaller than
    /// what lives, but never below 0.
    pub fn reset_category(&self, category: Category, core: u32) {
        if let Some(counter) = self.shown(category, core) {
            counter.total.store(0, Relaxed);
            counter.present.store(0, Relaxed);
            counter.peak.store(0, Relaxed);
        }
    }

    /// Makes the peak of the counter of `category` its total now.
    pub fn rebase_category(&self, category: Category, core: u32) {
        if let Some(counter) = self.shown(category, core) {
            counter.rebase();
        }
    }

    /// Makes the peak of HOST_MEM or DEVICE_MEM of `core` its total now.
    pub fn rebase_location(&self, location: Location, core: u32) {
        self.counter(Account::new(side(location), self.shown_core(core))).rebase();
    }

    fn shown(&self, category: Category, core: u32) -> Option<&Counter> {
        let id = *COUNTER_OF.get(category.0 as usize)?;
        let core = match location_of(category) {
            Location::Host => 0,
            Location::Device => self.shown_core(core),
        };
        Some(self.counter(Account::new(id.into(), core)))
    }

    /// Totals of the client in `slot`; `None` where it is not that client.
    pub fn client(&self, client: ClientId, slot: ClientSlot) -> Option<ClientTotals> {
        let cell = &self.payers[Payer::of(slot).index()];
        let here = cell.attached.load(Relaxed) && cell.id.load(Relaxed) == client.number();
        here.then(|| ClientTotals {
            host: cell.bytes[HOST_MEM].load(Relaxed),
            device: cell.bytes[DEVICE_MEM].load(Relaxed),
        })
    }

    /// Attached clients with their totals, in slot order.
    pub fn attached(&self) -> impl Iterator<Item = (ClientId, ClientTotals)> + '_ {
        ClientSlot::all().filter_map(|slot| {
            let cell = &self.payers[Payer::of(slot).index()];
            let client = ClientId::new(cell.id.load(Relaxed))?;
            Some((client, self.client(client, slot)?))
        })
    }

    /// Totals of a client, in whatever attach slot it is; `None` where it is not attached.
    pub fn client_anywhere(&self, client: ClientId) -> Option<ClientTotals> {
        ClientSlot::all().find_map(|slot| self.client(client, slot))
    }

    /// Core under which bytes are shown: one that the device does not have is its last
    /// (specification 04 §15 MEM-D34).
    #[inline]
    pub(crate) fn shown_core(&self, core: u32) -> usize {
        core.min(self.last_core.into()) as usize % CORES
    }

    #[inline]
    fn counter(&self, account: Account) -> &Counter {
        &self.counters[usize::from(account.0)]
    }

    /// Category counter and shown core of a chunk whose category and core exist.
    #[inline(always)]
    pub(crate) fn account(&self, location: Location, category: usize, core: u32) -> Account {
        let id = BOOKED[side(location)].get(category).copied().unwrap_or(COUNTER_OF[0]);
        let core = if side(location) == HOST_MEM { 0 } else { core as usize };
        Account::new(id.into(), core)
    }

    /// Counts a new chunk. `core` is one that the device has.
    #[inline(always)]
    pub(crate) fn book(
        &self,
        location: Location,
        core: u32,
        account: Account,
        payer: Payer,
        bytes: u64,
    ) {
        self.live.store(self.live.load(Relaxed).wrapping_add(1), Relaxed);
        self.counter(Account::new(side(location), core as usize)).add(bytes);
        self.counter(account).add(bytes);
        let total = &self.payers[payer.index()].bytes[side(location)];
        total.store(total.load(Relaxed).wrapping_add(bytes), Relaxed);
    }

    /// Takes the bytes of a chunk off whose memory is reusable again.
    #[inline(always)]
    pub(crate) fn unbook(&self, location: Location, core: u32, account: Account, bytes: u64) {
        self.counter(Account::new(side(location), self.shown_core(core))).sub(bytes);
        self.counter(account).sub(bytes);
    }

    /// A chunk has lost its last reference.
    #[inline]
    pub(crate) fn chunk_ended(&self) {
        self.live.store(self.live.load(Relaxed).wrapping_sub(1), Relaxed);
    }

    pub(crate) fn drain(&self, location: Location, bytes: u64) {
        let draining = &self.draining[side(location)];
        draining.store(draining.load(Relaxed) + bytes, Relaxed);
    }

    pub(crate) fn drained(&self, location: Location, bytes: u64) {
        let draining = &self.draining[side(location)];
        draining.store(draining.load(Relaxed).saturating_sub(bytes), Relaxed);
    }

    /// Starts a client, with fresh totals unless it is the one that was in this slot before.
    pub(crate) fn attach(&self, slot: ClientSlot, client: ClientId) {
        let cell = &self.payers[Payer::of(slot).index()];
        if cell.id.swap(client.number(), Relaxed) != client.number() {
            for bytes in &cell.bytes {
                bytes.store(0, Relaxed);
            }
        }
        cell.attached.store(true, Relaxed);
    }

    /// Ends a client.
    pub(crate) fn detach(&self, slot: ClientSlot) {
        self.payers[Payer::of(slot).index()].attached.store(false, Relaxed);
    }

    /// Takes bytes off whoever paid for them, where that is still `owner`.
    #[inline(always)]
    pub(crate) fn discharge(&self, payer: Payer, owner: u32, location: Location, bytes: u64) {
        let cell = &self.payers[payer.index()];
        if cell.id.load(Relaxed) == owner {
            let total = &cell.bytes[side(location)];
            total.store(total.load(Relaxed).saturating_sub(bytes), Relaxed);
        }
    }
}
