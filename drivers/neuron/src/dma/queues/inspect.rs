//! What the hardware says about a queue or an engine, and who has a queue (specification 02 §5.4,
//! §5.5; 03 §13.1, §13.6).

use axon_platform::{DeviceAddr, MmioWindow, Platform};
use axon_ports::{ClientId, CoreId, EngineId};

use super::table::{Holding, Place, Side};
use super::{Dma, present};
use crate::registers::queue::{self, INDEX_MASK};
use crate::registers::{misc_ram, unit};
use crate::shared::Shared;
use crate::{Error, QueueRefusal};

/// State of one direction of an engine.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u32)]
pub enum EngineState {
    /// Nothing to do.
    Idle = 1,
    /// At work.
    Normal = 2,
    /// Stopped on an error.
    Abort = 3,
}

/// An engine as the query shows it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct EngineStatus {
    /// Revision of the unit: always 4.
    pub revision: u32,
    /// Queues that it can have.
    pub max_queues: u32,
    /// Queues that it has.
    pub queues: u32,
    /// Source side.
    pub tx: EngineState,
    /// Destination side.
    pub rx: EngineState,
}

/// One side of a queue as the query shows it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct QueueSide {
    /// Status register.
    pub hw_status: u32,
    /// 1 disabled, 2 enabled, 3 aborted.
    pub sw_status: u32,
    /// First descriptor, as the device sees it.
    pub base: DeviceAddr,
    /// Descriptors.
    pub length: u32,
    /// Next descriptor that the hardware fetches.
    pub head: u32,
    /// Next descriptor that will be announced.
    pub tail: u32,
    /// Descriptor that is being executed (02 §3.4, +0x40).
    pub current: u32,
    /// Completion ring; never used.
    pub completion_base: DeviceAddr,
    /// Its head.
    pub completion_head: u32,
}

/// Both sides of a queue.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct QueueStatus {
    /// Sources.
    pub tx: QueueSide,
    /// Destinations.
    pub rx: QueueSide,
}

/// What a queue is used for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum RingOwner {
    /// Nothing.
    Free,
    /// Copies of the driver for all clients, for good.
    Default,
    /// Zero-copy transfers of one client.
    Copy(CoreId, ClientId),
    /// Claimed for hardware or runtime; `true` once it is bound.
    Service(CoreId, ClientId, bool),
    /// Rings of an application.
    App(ClientId),
    /// A scrub of this client.
    Scrub(ClientId),
    /// Taken from this client by a reset.
    Stale(ClientId),
    /// On its way out.
    Leaving(ClientId),
}

/// 2-bit fields of a `state` register.
fn field(state: u32, shift: u32) -> u32 {
    (state >> shift) & 3
}

fn reduce(state: u32, fields: &[u32]) -> EngineState {
    let any = |value| fields.iter().any(|&shift| field(state, shift) == value);
    match () {
        () if any(2) => EngineState::Abort,
        () if any(1) => EngineState::Normal,
        () => EngineState::Idle,
    }
}

/// The stream field of the destination side can stick at 1 while the stream is off: then it does
/// not count (02 §5.4).
fn stream_counts<W: MmioWindow>(registers: &W, base: u64) -> bool {
    if registers.read32(base + unit::S2M_STREAM) & unit::S2M_STREAM_OFF != unit::S2M_STREAM_OFF {
        return true;
    }
    (0..queue::COUNT).any(|q| {
        let cfg = registers.read32(base + queue::S2M + q * queue::PITCH + queue::CFG);
        cfg & queue::CFG_STREAM != 0
    })
}

fn side<W: MmioWindow>(registers: &W, at: u64, aborted: bool) -> QueueSide {
    let read = |offset| registers.read32(at + offset);
    let address =
        |high: u32, low: u32| DeviceAddr(u64::from(high) << 32 | u64::from(low & queue::BASE_MASK));
    let hw_status = read(queue::STATUS);
    let length = read(queue::LENGTH) & INDEX_MASK;
    let base = address(read(queue::BASE_HIGH), read(queue::BASE_LOW));
    let completion_base =
        address(read(queue::COMPLETION_BASE_HIGH), read(queue::COMPLETION_BASE_LOW));
    let (head, tail) = (read(queue::HEAD) & INDEX_MASK, read(queue::TAIL) & INDEX_MASK);
    let current = read(queue::CURRENT) & INDEX_MASK;
    let completion_head = read(queue::COMPLETION_HEAD) & INDEX_MASK;
    let enabled = read(queue::CFG) & (queue::CFG_PREFETCH | queue::CFG_STREAM);
    let sw_status = match (aborted, enabled) {
        (true, _) => 3,
        (false, 0) => 1,
        (false, _) => 2,
    };
    QueueSide {
        hw_status,
        sw_status,
        base,
        length,
        head,
        tail,
        current,
        completion_base,
        completion_head,
    }
}

impl<P: Platform> Shared<P> {
    /// What was read is worth nothing where the function is gone.
    fn still_there(&self) -> Result<(), Error> {
        self.misc_ram(misc_ram::DEVICE_ID).map(drop)
    }
}

impl<P: Platform> Dma<P> {
    /// State of an engine.
    ///
    /// # Errors
    /// [`Error::InvalidArgument`], [`Error::NoEngine`], [`Error::DeviceGone`], [`Error::Removed`].
    pub fn engine_status(&self, engine: u32) -> Result<EngineStatus, Error> {
        let id = EngineId::new(engine);
        let id = id.ok_or(Error::InvalidArgument { what: "engine", value: engine.into() })?;
        let base = self.usable(id)?;
        let registers = &self.0.registers;
        let (m2s, s2m) = crate::dma::engine::states(registers, base);
        if m2s == u32::MAX && s2m == u32::MAX {
            self.0.still_there()?;
        }
        let fields: &[u32] =
            if stream_counts(registers, base) { &[0, 4, 8, 12] } else { &[0, 8, 12] };
        Ok(EngineStatus {
            revision: 4,
            max_queues: queue::COUNT as u32,
            queues: queue::COUNT as u32,
            tx: reduce(m2s, &[0, 4, 8, 12]),
            rx: reduce(s2m, fields),
        })
    }

    /// Where the registers of an engine are that may be read now: a reset of its core can leave
    /// them unanswered (specification 05 §6).
    fn usable(&self, id: EngineId) -> Result<u64, Error> {
        let engine = present(&self.0.hal, id)?;
        match super::core_of(&self.0.hal, &engine) {
            Ok(core) => self.0.check_open(core)?,
            Err(_) => self.0.check_ready()?,
        }
        Ok(engine.unit)
    }

    /// State of a queue, read from the hardware.
    ///
    /// # Errors
    /// As [`Dma::engine_status`].
    pub fn queue_status(&self, engine: u32, queue: u32) -> Result<QueueStatus, Error> {
        let place = Place::new(engine, queue)?;
        let base = self.usable(place.engine)?;
        let registers = &self.0.registers;
        let (m2s, s2m) = crate::dma::engine::states(registers, base);
        let fields = [0, 4, 8, 12];
        let at = u64::from(queue) * queue::PITCH;
        let aborted = |state| reduce(state, &fields) == EngineState::Abort;
        let status = QueueStatus {
            tx: side(registers, base + queue::M2S + at, aborted(m2s)),
            rx: side(registers, base + queue::S2M + at, aborted(s2m)),
        };
        if status.tx.hw_status == u32::MAX || status.rx.hw_status == u32::MAX {
            self.0.still_there()?;
        }
        Ok(status)
    }

    /// What a queue is used for, as the driver knows it.
    ///
    /// # Errors
    /// [`Error::InvalidArgument`], [`Error::NoEngine`].
    pub fn queue_owner(&self, engine: u32, queue: u32) -> Result<RingOwner, Error> {
        let place = Place::new(engine, queue)?;
        present(&self.0.hal, place.engine)?;
        if self.0.hal.is_default_queue(place.engine, place.queue) {
            return Ok(RingOwner::Default);
        }
        Ok(self.0.queues.with(|table| {
            let Some(entry) = table.get(place) else { return RingOwner::Free };
            let client = entry.client;
            match &entry.holding {
                _ if entry.leaving.is_some() => RingOwner::Leaving(client),
                _ if entry.is_stale(&self.0.states) => RingOwner::Stale(client),
                Holding::Copy => RingOwner::Copy(entry.core, client),
                Holding::Service(bound) => RingOwner::Service(entry.core, client, bound.is_some()),
                Holding::App(_) => RingOwner::App(client),
                Holding::Scrub(_) => RingOwner::Scrub(client),
                Holding::Stale => RingOwner::Stale(client),
            }
        }))
    }

    /// The memory of one side of a queue that `client` has bound, and its descriptors by the
    /// length register. For looking at them.
    ///
    /// # Errors
    /// [`Error::InvalidArgument`]; [`Error::Queue`], [`Error::Stale`] as [`Dma::start`];
    /// [`Error::InvalidArgument`] too where hardware manages the ring.
    pub fn ring_of(
        &self,
        client: ClientId,
        engine: u32,
        queue: u32,
        side: Side,
    ) -> Result<(axon_ports::Pin, u32), Error> {
        let place = Place::new(engine, queue)?;
        let unit = present(&self.0.hal, place.engine)?.unit;
        self.0.check_alive()?;
        let pin = self.0.queues.with(|table| {
            let entry = table.owned(place, client, &self.0.states)?;
            let bound = entry.bound().ok_or(place.refuse(QueueRefusal::Unbound))?;
            let unknown = Error::InvalidArgument { what: "ring without memory", value: 0 };
            bound.side(side).memory.as_ref().map(|(_, pin)| pin.clone()).ok_or(unknown)
        })?;
        let window = match side {
            Side::Tx => queue::M2S,
            Side::Rx => queue::S2M,
        };
        let at = unit + window + u64::from(queue) * queue::PITCH;
        let length = self.0.registers.read32(at + queue::LENGTH);
        if length == u32::MAX {
            self.0.still_there()?;
        }
        Ok((pin, length & INDEX_MASK))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::FakeWindow;

    #[test]
    fn udma_e25_states_of_a_direction() {
        let all = [0, 4, 8, 12];
        assert_eq!(reduce(0, &all), EngineState::Idle);
        assert_eq!(reduce(0x0101, &all), EngineState::Normal);
        assert_eq!(reduce(0x2101, &all), EngineState::Abort);
        assert_eq!(reduce(0x0030, &all), EngineState::Idle, "3 is reserved");
        assert_eq!(reduce(0x0010, &[0, 8, 12]), EngineState::Idle, "a stream that is off");
    }

    #[test]
    fn a_stream_that_is_off_does_not_count() {
        let window = FakeWindow::new();
        assert!(stream_counts(&window, 0));
        window.set(unit::S2M_STREAM, 0x111);
        assert!(!stream_counts(&window, 0), "no queue is enabled");
        window.set(queue::S2M + 3 * queue::PITCH + queue::CFG, 0x0301_0000);
        assert!(!stream_counts(&window, 0));
        window.set(queue::S2M + 5 * queue::PITCH + queue::CFG, 0x0303_0000);
        assert!(stream_counts(&window, 0), "the two views disagree");
    }
}
