//! Start, acknowledge, engine state (specification 03 §13.1, §13.4, §13.5): nothing here waits.

use axon_platform::{MmioWindow, Platform};
use axon_ports::telemetry::TraceEvent;
use axon_ports::{ClientId, EngineId};

use super::table::{BoundRing, Place};
use super::{Dma, core_of, present};
use crate::registers::unit;
use crate::{Error, QueueRefusal};

/// What an engine can be told.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum EngineCommand {
    /// Stop behind the current packet.
    Disable,
    /// Run.
    Normal,
    /// Stop now, as on an error: only a reset ends that.
    Abort,
}

impl EngineCommand {
    /// The command with the number of the Linux interface.
    ///
    /// # Errors
    /// [`Error::InvalidArgument`] for 1 (idle), 4 (reset) and anything else.
    pub fn from_number(number: u32) -> Result<Self, Error> {
        match number {
            0 => Ok(EngineCommand::Disable),
            2 => Ok(EngineCommand::Normal),
            3 => Ok(EngineCommand::Abort),
            _ => Err(Error::InvalidArgument { what: "engine state", value: number.into() }),
        }
    }

    const fn word(self) -> u32 {
        match self {
            EngineCommand::Disable => unit::STATE_DISABLE,
            EngineCommand::Normal => unit::STATE_NORMAL,
            EngineCommand::Abort => unit::STATE_ABORT,
        }
    }
}

/// A doorbell value for a ring: no more than it has, and only slots that were checked.
fn check_start(ring: &BoundRing, count: u32, what: &'static str) -> Result<(), Error> {
    let refused = Error::InvalidArgument { what, value: count.into() };
    let length = ring.place.length;
    match &ring.memory {
        _ if count > length => Err(refused),
        Some((memory, _)) if !memory.staged.covers(ring.tail, count, length) => {
            let what = "start over slots without checked descriptors, count";
            Err(Error::InvalidArgument { what, value: count.into() })
        }
        _ => Ok(()),
    }
}

impl<P: Platform> Dma<P> {
    /// Announces `tx` and `rx` descriptors of a bound queue, the receive side first. No `tx` arms
    /// the receive side alone.
    ///
    /// # Errors
    /// [`Error::InvalidArgument`] for numbers that cannot be, for `rx` of 0, for more than a ring
    /// has, and for slots that hold no checked descriptor; [`Error::Queue`] (EALREADY, ENODEV,
    /// EPERM), [`Error::Stale`], [`Error::Again`] in a reset, [`Error::CoreDown`],
    /// [`Error::DeviceFailed`], [`Error::DeviceGone`], [`Error::Removed`]. No doorbell was rung.
    pub fn start(
        &self,
        client: ClientId,
        engine: u32,
        queue: u32,
        tx: u32,
        rx: u32,
    ) -> Result<(), Error> {
        let place = self.place(engine, queue)?;
        let shared = &self.0;
        shared.check_alive()?;
        shared.queues.with(|table| {
            let entry = table.owned(place, client, &shared.states)?;
            if entry.is_drivers() {
                return Err(place.refuse(QueueRefusal::Driver));
            }
            let core = entry.core;
            let bound = entry.bound().ok_or(place.refuse(QueueRefusal::Unbound))?;
            if rx == 0 {
                return Err(Error::InvalidArgument { what: "receive descriptors", value: 0 });
            }
            check_start(&bound.rx, rx, "receive descriptors")?;
            check_start(&bound.tx, tx, "transmit descriptors")?;
            shared.check_open(core)?;
            shared.platform.write_barrier();
            shared.registers.write32(bound.hardware.s2m_doorbell(), rx);
            bound.rx.announce(rx);
            if tx != 0 {
                shared.registers.write32(bound.hardware.m2s_doorbell(), tx);
                bound.tx.announce(tx);
            }
            Ok(())
        })?;
        let event = TraceEvent::DmaQueueCopyStart {
            engine: place.engine.number().into(),
            queue: place.queue.number().into(),
            tx_count: tx.into(),
            rx_count: rx.into(),
        };
        shared.records.trace.emit(event, || shared.platform.now());
        Ok(())
    }

    /// Counts `count` descriptors of both sides as done. Has no effect on hardware.
    ///
    /// # Errors
    /// As [`Dma::start`]; [`Error::InvalidArgument`] also for a ring that is no power of two and
    /// for more than was announced.
    pub fn acknowledge(
        &self,
        client: ClientId,
        engine: u32,
        queue: u32,
        count: u32,
    ) -> Result<(), Error> {
        let place = self.place(engine, queue)?;
        self.0.queues.with(|table| {
            let entry = table.owned(place, client, &self.0.states)?;
            if entry.is_drivers() {
                return Err(place.refuse(QueueRefusal::Driver));
            }
            let bound = entry.bound().ok_or(place.refuse(QueueRefusal::Unbound))?;
            for ring in [&bound.rx, &bound.tx] {
                let length = ring.place.length;
                if !length.is_power_of_two() {
                    let what = "acknowledge on a ring whose length is no power of two, length";
                    return Err(Error::InvalidArgument { what, value: length.into() });
                }
                if u64::from(count) > ring.outstanding {
                    let what = "acknowledge of more than was announced, count";
                    return Err(Error::InvalidArgument { what, value: count.into() });
                }
            }
            bound.rx.outstanding -= u64::from(count);
            bound.tx.outstanding -= u64::from(count);
            Ok(())
        })?;
        let event = TraceEvent::DmaAckCompleted {
            engine: place.engine.number().into(),
            queue: place.queue.number().into(),
            count: count.into(),
        };
        self.0.records.trace.emit(event, || self.0.platform.now());
        Ok(())
    }

    /// Gives a command to both directions of an engine that is private to a core; `claimed` says
    /// whether the caller has claimed that core.
    ///
    /// # Errors
    /// [`Error::InvalidArgument`], [`Error::NoEngine`]; [`Error::EngineForeign`] (EPERM) for a
    /// host-transfer engine and without the claim; and as [`Dma::start`] for the core's state.
    pub fn command(
        &self,
        engine: u32,
        command: u32,
        claimed: impl FnOnce(axon_ports::CoreId) -> bool,
    ) -> Result<(), Error> {
        let id = EngineId::new(engine);
        let id = id.ok_or(Error::InvalidArgument { what: "engine", value: engine.into() })?;
        let engine = present(&self.0.hal, id)?;
        let foreign = Error::EngineForeign { engine: id };
        let core = engine.core.filter(|&core| claimed(core)).ok_or(foreign)?;
        let word = EngineCommand::from_number(command)?.word();
        self.0.check_open(core)?;
        self.0.registers.write32(engine.unit + unit::M2S_CHANGE_STATE, word);
        self.0.registers.write32(engine.unit + unit::S2M_CHANGE_STATE, word);
        Ok(())
    }

    /// The core that a queue belongs to, if it is bound or claimed; else that of its engine.
    ///
    /// # Errors
    /// [`Error::InvalidArgument`], [`Error::NoEngine`].
    pub fn core_of_queue(&self, engine: u32, queue: u32) -> Result<axon_ports::CoreId, Error> {
        let place = Place::new(engine, queue)?;
        let taken = self.0.queues.with(|table| table.get(place).map(|entry| entry.core));
        match taken {
            Some(core) => Ok(core),
            None => core_of(&self.0.hal, &present(&self.0.hal, place.engine)?),
        }
    }
}
