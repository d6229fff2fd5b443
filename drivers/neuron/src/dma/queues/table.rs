//! Who has which queue, and with what memory (specification 03 §1.2, §1.3).
//!
//! A queue that is not in the table is free, or carries the default ring of a core for good. Every
//! other state is one entry, which holds what that state needs and nothing else.

use alloc::vec::Vec;

use axon_platform::{Instant, MmioWindow};
use axon_ports::chunk::ChunkHeader;
use axon_ports::{ChunkName, ClientId, CoreId, EngineId, Pin, QueueId};

use super::scrub::{ScrubPart, Scrubs};
use super::staged::Staged;
use crate::dma::queue::{HardwareQueue, RingPlace};
use crate::dma::ring::RingCounters;
use crate::hal::Engine;
use crate::state::States;
use crate::{Error, QueueRefusal};

/// One of the two rings of a queue.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Side {
    /// M2S, "Tx": its descriptors name sources.
    Tx,
    /// S2M, "Rx": its descriptors name destinations.
    Rx,
}

/// One queue of one engine.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) struct Place {
    pub engine: EngineId,
    pub queue: QueueId,
}

impl Place {
    /// # Errors
    /// [`Error::InvalidArgument`] for an engine from 132 on and a queue from 16 on.
    pub(crate) fn new(engine: u32, queue: u32) -> Result<Self, Error> {
        let bad = |what, value: u32| Error::InvalidArgument { what, value: value.into() };
        let engine = EngineId::new(engine).ok_or(bad("engine", engine))?;
        let queue = QueueId::new(queue).ok_or(bad("queue", queue))?;
        Ok(Place { engine, queue })
    }

    pub(crate) fn refuse(self, why: QueueRefusal) -> Error {
        Error::Queue { engine: self.engine, queue: self.queue, why }
    }
}

/// Memory given up for a ring, and what is known of its slots.
pub(crate) struct RingMem {
    pub header: ChunkHeader,
    /// What its descriptors are: the words of the two sides mean different things.
    pub side: Side,
    pub staged: Staged,
    /// Somebody writes descriptors into it.
    pub writing: bool,
}

impl RingMem {
    pub(super) fn new(header: &ChunkHeader, side: Side) -> Self {
        RingMem { header: header.clone(), side, staged: Staged::default(), writing: false }
    }
}

/// One ring of a bound queue.
pub(crate) struct BoundRing {
    /// The memory; `None` where hardware manages the ring.
    pub memory: Option<(RingMem, Pin)>,
    pub place: RingPlace,
    /// Next slot that will be announced.
    pub tail: u32,
    /// Announced and not acknowledged.
    pub outstanding: u64,
}

impl BoundRing {
    /// `count` more descriptors were announced.
    pub(crate) fn announce(&mut self, count: u32) {
        let length = u64::from(self.place.length.max(1));
        self.tail = ((u64::from(self.tail) + u64::from(count)) % length) as u32;
        self.outstanding = self.outstanding.saturating_add(count.into());
    }
}

/// Both rings of a queue, programmed.
pub(crate) struct Bound {
    pub hardware: HardwareQueue,
    /// On-chip sequencers own it: it is never programmed again.
    pub sequencer: bool,
    pub tx: BoundRing,
    pub rx: BoundRing,
    /// The scrub that it is part of.
    pub scrub: Option<ScrubPart>,
}

impl Bound {
    /// Whether it has executed its last descriptor, which writes a marker, and no marker was seen: that
    /// write may still be on its way although nothing is under way in the queue.
    fn owes_marker<W: MmioWindow>(&self, registers: &W) -> bool {
        self.scrub.as_ref().is_some_and(|part| !part.is_marked())
            && self.hardware.currents(registers)[1] == self.rx.tail
    }

    pub(crate) fn side(&mut self, side: Side) -> &mut BoundRing {
        match side {
            Side::Tx => &mut self.tx,
            Side::Rx => &mut self.rx,
        }
    }
}

/// What a queue is used for, with what that use holds.
pub(crate) enum Holding {
    /// Carries zero-copy transfers; its ring is in the port of the queue.
    Copy,
    /// Claimed for hardware or runtime; bound by its owner.
    Service(Option<Bound>),
    /// Rings of an application.
    App(Bound),
    /// Part of a scrub, which alone starts and ends it.
    Scrub(Bound),
    /// Gone with a reset; remembered so that its owner is told.
    Stale,
}

/// What becomes of a queue once nothing is under way.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Then {
    /// It is free.
    Free,
    /// The claim stays.
    Claimed,
    /// Its owner is told that a reset took it.
    Stale,
}

/// A queue on its way out.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Leaving {
    /// What it becomes.
    pub then: Then,
    /// Hardware queues that have not drained by then go to quarantine.
    pub until: Instant,
}

/// One queue that is not free.
pub(crate) struct Entry {
    pub place: Place,
    pub client: ClientId,
    pub core: CoreId,
    /// Epoch of the core when it was taken.
    pub epoch: u32,
    pub holding: Holding,
    /// It is on its way out.
    pub leaving: Option<Leaving>,
}

impl Entry {
    pub(crate) fn bound(&mut self) -> Option<&mut Bound> {
        match &mut self.holding {
            Holding::App(bound) | Holding::Scrub(bound) | Holding::Service(Some(bound)) => {
                Some(bound)
            }
            _ => None,
        }
    }

    fn take_bound(&mut self) -> Option<Bound> {
        match core::mem::replace(&mut self.holding, Holding::Stale) {
            Holding::App(bound) | Holding::Scrub(bound) => Some(bound),
            Holding::Service(bound) => bound,
            Holding::Copy | Holding::Stale => None,
        }
    }

    /// Whether it belongs to the driver, which alone starts and ends it.
    pub(crate) fn is_drivers(&self) -> bool {
        matches!(self.holding, Holding::Copy | Holding::Scrub(_))
    }

    /// Whether it is part of a scrub.
    pub(crate) fn is_any_scrub(&self) -> bool {
        matches!(self.holding, Holding::Scrub(_))
    }

    /// Whether it is part of the scrub with this number.
    pub(crate) fn is_scrub(&self, number: u64) -> bool {
        matches!(&self.holding, Holding::Scrub(bound)
            if bound.scrub.as_ref().is_some_and(|part| part.number == number))
    }

    /// Whether a reset has gone over it.
    pub(crate) fn is_stale(&self, states: &States) -> bool {
        matches!(self.holding, Holding::Stale) || self.epoch != states.epoch(self.core)
    }
}

/// All queues of a device that are not free.
#[derive(Default)]
pub(crate) struct Table {
    /// In ascending order of place.
    pub entries: Vec<Entry>,
    /// Rings with checked descriptors that no queue has.
    loose: Vec<RingMem>,
    /// Memory that queues of an engine may still reach.
    quarantine: Vec<(EngineId, Bound)>,
    /// Scrubs that are under way, or whose end nobody has collected.
    pub scrubs: Scrubs,
    /// What was counted on rings that are gone.
    pub retired: RingCounters,
}

impl Table {
    fn position(&self, place: Place) -> Result<usize, usize> {
        self.entries.binary_search_by_key(&place, |entry| entry.place)
    }

    pub(crate) fn get(&mut self, place: Place) -> Option<&mut Entry> {
        self.position(place).ok().and_then(|at| self.entries.get_mut(at))
    }

    /// Makes room for `more` entries, whose memory also has a place in quarantine.
    ///
    /// # Errors
    /// [`Error::NoRecords`].
    pub(crate) fn reserve(&mut self, more: usize) -> Result<(), Error> {
        let all = self.entries.len() + more;
        let room = self.entries.try_reserve(more).and_then(|()| self.quarantine.try_reserve(all));
        room.map_err(|_| Error::NoRecords)
    }

    /// Puts an entry in, in place of what was there. There is room for it.
    pub(crate) fn insert(&mut self, entry: Entry) {
        match self.position(entry.place) {
            Ok(at) => {
                if let Some(old) = self.entries.get_mut(at) {
                    *old = entry;
                }
            }
            Err(at) => self.entries.insert(at, entry),
        }
    }

    pub(crate) fn remove(&mut self, place: Place) {
        if let Ok(at) = self.position(place) {
            self.entries.remove(at);
        }
    }

    /// The entry of a queue that `client` has and that is not on its way out.
    ///
    /// # Errors
    /// [`Error::Queue`] (ENODEV, EPERM), [`Error::Stale`].
    pub(crate) fn owned(
        &mut self,
        place: Place,
        client: ClientId,
        states: &States,
    ) -> Result<&mut Entry, Error> {
        let unbound = place.refuse(QueueRefusal::Unbound);
        let entry = self.get(place).ok_or(unbound)?;
        let stale = entry.is_stale(states);
        if entry.client != client {
            return Err(if stale { unbound } else { place.refuse(QueueRefusal::Foreign) });
        }
        if stale {
            return Err(Error::Stale { core: entry.core });
        }
        if entry.leaving.is_some() { Err(unbound) } else { Ok(entry) }
    }

    /// What is known of the slots of a ring; from now on if nothing was. Rings that are gone are
    /// forgotten.
    ///
    /// # Errors
    /// [`Error::InvalidArgument`] where the ring is one of the other side, [`Error::NoRecords`].
    pub(crate) fn ring(&mut self, header: &ChunkHeader, side: Side) -> Result<&mut RingMem, Error> {
        self.loose.retain(|ring| !ring.header.is_dead());
        let name = header.name();
        let is_bound = self.is_bound(name);
        if !is_bound && !self.loose.iter().any(|ring| ring.header.name() == name) {
            self.loose.try_reserve(1).map_err(|_| Error::NoRecords)?;
            self.loose.push(RingMem::new(header, side));
        }
        let ring = self.known_ring(name).ok_or(Error::NoRecords)?;
        match ring.side == side {
            true => Ok(ring),
            false => Err(Error::InvalidArgument { what: "side of the ring", value: side as u64 }),
        }
    }

    /// What is known of the slots of a ring.
    pub(crate) fn known_ring(&mut self, name: ChunkName) -> Option<&mut RingMem> {
        let bound = self.entries.iter_mut().filter_map(Entry::bound);
        let bound = bound.flat_map(|bound| [&mut bound.tx, &mut bound.rx]);
        let bound = bound.filter_map(|ring| Some(&mut ring.memory.as_mut()?.0));
        bound.chain(&mut self.loose).find(|ring| ring.header.name() == name)
    }

    /// Whether a queue has this ring.
    pub(crate) fn is_bound(&mut self, name: ChunkName) -> bool {
        self.entries.iter_mut().filter_map(Entry::bound).any(|bound| {
            [&bound.tx, &bound.rx].into_iter().any(|ring| {
                ring.memory.as_ref().is_some_and(|(memory, _)| memory.header.name() == name)
            })
        })
    }

    /// Takes a ring that no queue has.
    pub(crate) fn take_loose(&mut self, header: &ChunkHeader, side: Side) -> RingMem {
        let name = header.name();
        match self.loose.iter().position(|ring| ring.header.name() == name) {
            Some(at) => self.loose.swap_remove(at),
            None => RingMem::new(header, side),
        }
    }

    /// What is known of a ring that no queue has says which side it is for.
    pub(crate) fn loose_side(&self, name: ChunkName) -> Option<Side> {
        self.loose.iter().find(|ring| ring.header.name() == name).map(|ring| ring.side)
    }

    /// A client is gone, or its core was reset: rings that no queue has name nothing any more.
    pub(crate) fn forget_rings_of(&mut self, client: ClientId) {
        self.loose.retain(|ring| ring.header.facts().owner.is_some_and(|owner| owner != client));
    }

    /// Ends a queue whose hardware was paused: parked on the `dummy` ring where it is drained, else
    /// its memory stays until the engine is proven quiet. A ring of sequencers is left alone.
    pub(crate) fn settle<W: MmioWindow>(
        &mut self,
        place: Place,
        drained: bool,
        registers: &W,
        dummy: RingPlace,
    ) {
        let Some(entry) = self.get(place) else { return };
        let then = entry.leaving.take().map_or(Then::Free, |leaving| leaving.then);
        let bound = entry.take_bound();
        if then == Then::Claimed {
            entry.holding = Holding::Service(None);
        }
        if let Some(bound) = bound {
            let proven = drained && !bound.owes_marker(registers);
            if drained && !bound.sequencer {
                bound.hardware.program(registers, dummy, dummy);
            }
            if !proven || bound.sequencer {
                self.quarantine.push((place.engine, bound));
            }
        }
        if then == Then::Free {
            self.remove(place);
        }
    }

    /// Engines that `quiet` names can no longer reach any memory.
    pub(crate) fn release_quarantine(&mut self, quiet: impl Fn(EngineId) -> bool) {
        self.quarantine.retain(|(engine, _)| !quiet(*engine));
    }

    /// Bus mastering is off: nothing can reach any memory, and nobody uses a queue any more.
    pub(crate) fn clear(&mut self) {
        self.entries.clear();
        self.loose.clear();
        self.quarantine.clear();
    }

    /// Queues whose memory is not proven quiet.
    pub(crate) fn quarantined(&self) -> usize {
        self.quarantine.len()
    }

    /// Memory that queues in quarantine hold.
    pub(crate) fn each_quarantined_pin(&self, mut each: impl FnMut(&Pin)) {
        for (_, bound) in &self.quarantine {
            for (ring, pin) in [&bound.tx, &bound.rx].into_iter().filter_map(|r| r.memory.as_ref())
            {
                each(pin);
                ring.staged.pins().for_each(&mut each);
            }
        }
    }
}

/// The two windows of a queue.
pub(crate) fn hardware(engine: &Engine, queue: QueueId) -> HardwareQueue {
    HardwareQueue::new(engine.unit, queue.number().into())
}
