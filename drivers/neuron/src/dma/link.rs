//! Reading a neighbouring node's MiscRAM over a link: two descriptors on queue 0 of the link's engine
//! (specification 05 §16.4).
//!
//! A link is a lease on the engine: nobody else binds its queues meanwhile. Its memory goes back once
//! the queue has drained and is parked; where it does not, it waits for a reset that covers the
//! engine or for the end of bus mastering (05 §17.3).

use alloc::sync::Arc;
use alloc::vec::Vec;
use core::cell::RefCell;
use core::time::Duration;

use axon_platform::{DescriptorRing, DeviceAddr, MmioWindow, Platform, WordRing};
use axon_ports::{AllocRequest, Category, Chunk, CoreId, CoreMap, EngineId, MemoryPort, Pin};
use embassy_sync::blocking_mutex::Mutex;
use embassy_sync::blocking_mutex::raw::CriticalSectionRawMutex;

use super::DRAIN;
use super::cursor::Cursor;
use super::descriptor::{Barrier, pair};
use super::engine;
use super::queue::{HardwareQueue, RingPlace};
use crate::hal::{Engine, Hal};
use crate::shared::Shared;
use crate::{Error, NeuronDevice};

/// Descriptors of a side.
const DESCRIPTORS: u32 = 1024;
const RING_BYTES: u64 = DESCRIPTORS as u64 * 16;
/// Marker, completion, payload.
const PAGE_BYTES: u64 = 4096;
/// Words of the page: the marker, where it lands, and what was read.
const MARKER: u32 = 0;
const DONE: u32 = 1;
const PAYLOAD: u32 = 2;
/// A read is over after so many looks.
const LOOKS: u32 = 1000;
const LOOK: Duration = Duration::from_micros(4);
const DRAIN_LOOK: Duration = Duration::from_micros(50);
/// Queue of the engine that is used.
const QUEUE: u64 = 0;

/// Leases on link engines, and memory that a link may still write.
pub(crate) struct Links(Mutex<CriticalSectionRawMutex, RefCell<State>>);

struct State {
    leased: Vec<EngineId>,
    kept: Vec<(EngineId, Memory)>,
}

impl Links {
    pub(crate) const fn new() -> Self {
        Links(Mutex::new(RefCell::new(State { leased: Vec::new(), kept: Vec::new() })))
    }

    fn with<R>(&self, work: impl FnOnce(&mut State) -> R) -> R {
        self.0.lock(|state| work(&mut state.borrow_mut()))
    }

    /// Whether an election has the engine.
    pub(crate) fn has(&self, engine: EngineId) -> bool {
        self.with(|state| state.leased.contains(&engine))
    }

    /// A reset of `map` has succeeded: what it covers can no longer be written.
    pub(crate) fn release(&self, hal: &Hal, map: CoreMap) {
        self.with(|state| state.kept.retain(|(engine, _)| !hal.reset_covers(map, *engine)));
    }

    /// Bus mastering is off.
    pub(crate) fn release_all(&self) {
        self.with(|state| state.kept.clear());
    }

    fn lease(&self, engine: EngineId) -> Result<(), Error> {
        self.with(|state| {
            if state.leased.contains(&engine) {
                return Err(Error::Busy { what: "the engine of the link", limit: 1 });
            }
            // Each lease may leave its memory behind.
            let all = state.leased.len() + 1;
            let room = state.leased.try_reserve(1).and_then(|()| state.kept.try_reserve(all));
            room.map_err(|_| Error::NoRecords)?;
            state.leased.push(engine);
            Ok(())
        })
    }

    /// The lease ends; `memory` stays where the hardware may still write it.
    fn give_back(&self, engine: EngineId, memory: Option<Memory>) {
        self.with(|state| {
            state.leased.retain(|leased| *leased != engine);
            if let Some(memory) = memory {
                state.kept.push((engine, memory));
            }
        });
    }
}

/// Rings and page of one link.
struct Memory {
    tx: DescriptorRing,
    rx: DescriptorRing,
    words: WordRing,
    tx_place: RingPlace,
    rx_place: RingPlace,
    page: DeviceAddr,
    _held: [(Chunk, Pin); 3],
}

impl Memory {
    async fn allocate<M: MemoryPort>(memory: &M) -> Result<Self, Error> {
        let host = |bytes| {
            let request = AllocRequest::driver_host(bytes);
            memory.alloc(AllocRequest { category: Category::NCDEV_HOST, ..request })
        };
        let (tx, rx) = (host(RING_BYTES).await?, host(RING_BYTES).await?);
        let page = host(PAGE_BYTES).await?;
        let view = |chunk: &Chunk, bytes| {
            let host = chunk.host().ok_or(Error::NoRecords)?;
            host.slice(0, bytes).map_err(|_| Error::NoRecords)
        };
        let ring = |chunk: &Chunk| {
            view(chunk, RING_BYTES)?.descriptor_ring().map_err(|_| Error::NoRecords)
        };
        let place = |chunk: &Chunk| RingPlace { base: chunk.facts().pa, length: DESCRIPTORS };
        let words = view(&page, PAGE_BYTES)?.word_ring().map_err(|_| Error::NoRecords)?;
        let hold = |chunk: Chunk| {
            let pin = chunk.pin().ok_or(Error::NoRecords)?;
            Ok::<_, Error>((chunk, pin))
        };
        Ok(Memory {
            tx: ring(&tx)?,
            rx: ring(&rx)?,
            words,
            tx_place: place(&tx),
            rx_place: place(&rx),
            page: page.facts().pa,
            _held: [hold(tx)?, hold(rx)?, hold(page)?],
        })
    }

    fn word(&self, number: u32) -> DeviceAddr {
        DeviceAddr(self.page.0 + u64::from(number) * 4)
    }
}

/// A link to a neighbour, ready to read. [`Link::close`] waits until the hardware is quiet; dropped,
/// it looks once and keeps its memory where it is not.
pub struct Link<P: Platform> {
    shared: Arc<Shared<P>>,
    engine: Engine,
    core: CoreId,
    epoch: u32,
    queue: HardwareQueue,
    cursor: Cursor,
    memory: Option<Memory>,
    /// A read did not end: what comes later would not be the answer to its own question.
    failed: bool,
}

impl<P: Platform> NeuronDevice<P> {
    /// Takes the engine of a link, initialises it and sets its queue 0 up.
    ///
    /// # Errors
    /// [`Error::NoEngine`], [`Error::Busy`] where a client has a queue of the engine or another link
    /// its lease, [`Error::Again`] in a reset, [`Error::Memory`], [`Error::DeviceGone`],
    /// [`Error::Removed`]. Nothing is leased.
    pub async fn open_link<M: MemoryPort>(
        &self,
        memory: &M,
        engine: EngineId,
    ) -> Result<Link<P>, Error> {
        let shared = self.dma().0.clone();
        let found = shared.hal.present_engines().find(|present| present.id == engine);
        let found = found.ok_or(Error::NoEngine { engine })?;
        let core = found.core.ok_or(Error::NoEngine { engine })?;
        shared.links.lease(engine)?;
        let mut link = Link {
            queue: HardwareQueue::new(found.unit, QUEUE),
            cursor: Cursor::new(DESCRIPTORS - 1),
            epoch: 0,
            memory: None,
            failed: true,
            engine: found,
            core,
            shared,
        };
        let memory = Memory::allocate(memory).await?;
        let shared = &link.shared;
        shared.check_alive()?;
        if !shared.states.is_open(core) {
            return Err(Error::Again { what: "the core of the link is in reset" });
        }
        // Initialising the engine would end whatever its queues do.
        let taken = |table: &mut super::queues::Table| {
            table.entries.iter().any(|entry| entry.place.engine == engine)
        };
        if shared.queues.with(taken) {
            return Err(Error::Busy { what: "the engine of the link", limit: 1 });
        }
        link.epoch = shared.states.epoch(core);
        engine::initialise(&shared.registers, &link.engine, &shared.hal.tables().engine);
        link.queue.program(&shared.registers, memory.tx_place, memory.rx_place);
        link.memory = Some(memory);
        link.failed = false;
        Ok(link)
    }
}

impl<P: Platform> Link<P> {
    fn is_stale(&self) -> bool {
        self.shared.states.epoch(self.core) != self.epoch
    }

    /// Reads consecutive words of the neighbour's MiscRAM; about 4 ms at most.
    ///
    /// # Errors
    /// [`Error::LinkSilent`] (EIO) where no answer came, and after a reset: the link is of no use
    /// from then on. [`Error::InvalidArgument`] for no words and for more than a page holds,
    /// [`Error::DeviceGone`], [`Error::Removed`].
    pub async fn read(&mut self, offset: u32, into: &mut [u32]) -> Result<(), Error> {
        let engine = self.engine.id;
        self.shared.check_alive()?;
        if into.is_empty() || into.len() as u64 * 4 + 8 > PAGE_BYTES {
            let value = into.len() as u64;
            return Err(Error::InvalidArgument { what: "words of a neighbour", value });
        }
        if self.is_stale() || self.failed {
            return Err(Error::LinkSilent { engine });
        }
        // Until the answer is there: a read that is dropped leaves its descriptors behind.
        self.failed = true;
        let Some(memory) = &self.memory else { return Err(Error::LinkSilent { engine }) };
        memory.words.store(MARKER, 1);
        memory.words.store(DONE, 0);
        let from = self.shared.hal.neighbour_word(engine, offset);
        let copies = [
            (from, memory.word(PAYLOAD), into.len() as u32 * 4),
            (memory.word(MARKER), memory.word(DONE), 4),
        ];
        for (source, target, bytes) in copies {
            let ring_id = self.cursor.ring_id();
            let (tx, rx) = pair(ring_id, source, target, bytes, Barrier::Write);
            memory.tx.store(self.cursor.producer(), tx);
            memory.rx.store(self.cursor.producer(), rx);
            self.cursor.advance();
        }
        self.shared.platform.write_barrier();
        self.shared.registers.write32(self.queue.s2m_doorbell(), copies.len() as u32);
        self.shared.registers.write32(self.queue.m2s_doorbell(), copies.len() as u32);
        for _ in 0..LOOKS {
            if memory.words.load(DONE) == 1 {
                self.cursor.acknowledge(copies.len() as u32);
                for (number, word) in (PAYLOAD..).zip(into.iter_mut()) {
                    *word = memory.words.load(number);
                }
                self.failed = false;
                return Ok(());
            }
            self.shared.platform.sleep(LOOK).await;
        }
        Err(Error::LinkSilent { engine })
    }

    /// Parks the queue, waits until the hardware is quiet, 10 ms at most, and gives the engine back.
    pub async fn close(self) {
        if self.memory.is_some() && !self.is_stale() && self.shared.check_alive().is_ok() {
            self.queue.pause(&self.shared.registers);
            let deadline = self.shared.platform.now() + DRAIN;
            while !self.queue.is_drained(&self.shared.registers)
                && self.shared.platform.now() < deadline
            {
                self.shared.platform.sleep(DRAIN_LOOK).await;
            }
        }
    }
}

impl<P: Platform> Drop for Link<P> {
    /// After a reset of its core the queue is no longer this link's: no register is touched.
    fn drop(&mut self) {
        let mut memory = self.memory.take();
        if memory.is_some() && !self.is_stale() && self.shared.check_alive().is_ok() {
            let registers = &self.shared.registers;
            self.queue.pause(registers);
            if self.queue.is_drained(registers) {
                let dummy = self.shared.dummy();
                self.queue.program(registers, dummy, dummy);
                memory = None;
            }
        }
        self.shared.links.give_back(self.engine.id, memory);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn there_is_room_for_what_every_lease_may_leave_behind() {
        let links = Links::new();
        for number in 0..40 {
            links.lease(EngineId::new(number).unwrap()).unwrap();
        }
        assert!(links.with(|state| state.kept.capacity()) >= 40);
        let first = EngineId::new(0).unwrap();
        assert!(links.lease(first).is_err(), "one lease an engine");
    }
}
