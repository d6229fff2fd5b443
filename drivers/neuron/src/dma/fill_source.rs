//! The 64 KiB of host memory that fills read from (specification 03 §9). Fills of the same byte
//! share it; one of another byte waits until nobody reads it any more.

use core::cell::RefCell;
use core::task::Waker;

use axon_platform::{DeviceAddr, DmaBuf};
use axon_ports::{Chunk, Pin};
use embassy_sync::blocking_mutex::Mutex;
use embassy_sync::blocking_mutex::raw::CriticalSectionRawMutex;

use super::descriptor::MAX_BYTES;
use crate::wake::{Queue, Ticket};
use crate::{Error, Hal};

/// The fill buffer of a device.
pub(crate) struct FillSource {
    buffer: DmaBuf,
    address: DeviceAddr,
    _held: (Chunk, Pin),
    state: Mutex<CriticalSectionRawMutex, RefCell<State>>,
}

#[derive(Default)]
struct State {
    byte: u8,
    /// Bytes at the start that have the value.
    ready: u64,
    /// Batches that read them, from the grant until their marker.
    readers: u32,
    queue: Queue,
}

impl FillSource {
    /// Bytes of the buffer.
    pub(crate) const BYTES: u64 = MAX_BYTES;

    /// Wraps the chunk of rung D18.
    pub(crate) fn new(chunk: Chunk, hal: &Hal) -> Result<Self, Error> {
        let facts = chunk.facts();
        let misplaced = Error::InvalidArgument { what: "fill buffer address", value: facts.pa.0 };
        let buffer = chunk.host().cloned().ok_or(misplaced)?;
        if !hal.is_host(facts.pa) || buffer.len_bytes() < Self::BYTES {
            return Err(misplaced);
        }
        let pin = chunk.pin().ok_or(misplaced)?;
        Ok(FillSource {
            buffer,
            address: facts.pa,
            _held: (chunk, pin),
            state: Mutex::new(RefCell::new(State::default())),
        })
    }

    /// First byte, as the device sees it.
    pub(crate) fn address(&self) -> DeviceAddr {
        self.address
    }

    /// As [`FillSource::acquire`] where the buffer is ready for it and nobody waits; `false` where
    /// that has to be asked.
    #[inline]
    pub(crate) fn acquire_ready(&self, byte: u8, len_bytes: u64) -> bool {
        self.state.lock(|state| {
            let mut state = state.borrow_mut();
            let is_ready = state.byte == byte && len_bytes <= state.ready && state.queue.is_empty();
            state.readers += u32::from(is_ready);
            is_ready
        })
    }

    /// Asks for `len_bytes` (at most [`FillSource::BYTES`]) of `byte`: `None` is a grant, which
    /// counts as one reader until [`FillSource::release`]; otherwise the place in the queue.
    ///
    /// # Errors
    /// [`Error::Again`] where it is not the caller's turn and there is no waker to keep.
    pub(crate) fn acquire(
        &self,
        byte: u8,
        len_bytes: u64,
        ticket: Option<Ticket>,
        waker: Option<&Waker>,
    ) -> Result<Option<Ticket>, Error> {
        self.state.lock(|state| {
            let mut state = state.borrow_mut();
            let usable = state.byte == byte || state.readers == 0;
            if !usable || !state.queue.is_turn(ticket) {
                let waker = waker.ok_or(Error::Again { what: "the fill buffer" })?;
                return state.queue.wait(ticket, waker).map(Some);
            }
            if state.byte != byte {
                state.byte = byte;
                state.ready = 0;
            }
            // Readers of the same byte never look behind what is ready.
            if state.ready < len_bytes {
                let missing = len_bytes - state.ready;
                self.buffer.fill(state.ready, missing, byte).map_err(|_| Error::NoRecords)?;
                state.ready = len_bytes;
            }
            state.readers += 1;
            if let Some(ticket) = ticket {
                state.queue.leave(ticket);
                state.queue.call();
            }
            Ok(None)
        })
    }

    /// `count` readers have ended.
    #[inline(never)]
    pub(crate) fn release(&self, count: u32) {
        self.state.lock(|state| {
            let mut state = state.borrow_mut();
            state.readers = state.readers.saturating_sub(count);
            if !state.queue.is_empty() {
                state.queue.call();
            }
        });
    }

    /// Gives a place in the queue up.
    pub(crate) fn leave(&self, ticket: Ticket) {
        self.state.lock(|state| {
            let mut state = state.borrow_mut();
            state.queue.leave(ticket);
            state.queue.call();
        });
    }
}
