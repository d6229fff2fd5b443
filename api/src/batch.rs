//! Many copies as one: a list that is filled, awaited, and filled again (specification 03 §7.3).
//!
//! ```no_run
//! use axon::{Client, DeviceBuffer, Error, HostBuffer};
//! use axon_platform::Platform;
//!
//! /// Sends 64 rows of a matrix to every other row of another one.
//! async fn scatter<P: Platform>(
//!     client: &Client<P>,
//!     host: &HostBuffer<P>,
//!     hbm: &DeviceBuffer<P>,
//! ) -> Result<(), Error> {
//!     let mut batch = client.batch(64)?;
//!     for row in 0..64 {
//!         batch.copy(host, row * 4096, hbm, row * 8192, 4096)?;
//!     }
//!     batch.await
//! }
//! ```

use alloc::sync::Arc;
use core::future::Future;
use core::pin::Pin as FuturePin;
use core::task::{Context, Poll};

use axon_platform::{DeviceAddr, Platform};
use axon_ports::telemetry::TraceEvent;
use axon_ports::{ChunkName, CoreId, Location, Pin};

use crate::buffer::{is_ring, unwritable};
use crate::calls::Call;
use crate::client::{CORE_0, Shared};
use crate::{Buffer, Error, Span};

/// Most copies of a batch: the data descriptors that one marker may stand behind.
const MOST: usize = 2032;

/// One end of the copy that was added last. The batch pins its chunk, so what is noted here of it
/// stays true until the batch has ended.
#[derive(Clone, Copy)]
struct End {
    name: ChunkName,
    pa: u64,
    reach: u64,
    core: CoreId,
    location: Location,
    writable: bool,
}

impl End {
    /// No chunk: records that live have odd generations.
    const NONE: End = End {
        name: ChunkName { slot: u32::MAX, generation: 0 },
        pa: 0,
        reach: 0,
        core: CORE_0,
        location: Location::Device,
        writable: false,
    };

    fn of<P: Platform>(pin: &Pin, client: &Shared<P>) -> End {
        let facts = pin.facts();
        End {
            name: pin.header().name(),
            pa: facts.pa.0,
            reach: facts.reach,
            core: facts.core,
            location: facts.location,
            writable: facts.owner == Some(client.access.client()) && !is_ring(facts.category),
        }
    }

    /// Where `len` bytes at `offset` start.
    #[inline(always)]
    fn at(&self, offset: u64, len: u64) -> Result<DeviceAddr, Error> {
        if len > self.reach || offset > self.reach - len {
            return Err(Error::OutOfRange { offset, len, limit: self.reach });
        }
        // Chunks end far below the end of the address space.
        Ok(DeviceAddr(self.pa.wrapping_add(offset)))
    }
}

/// Copies that share one marker, one pair of doorbells and one future. Awaiting the batch, or a
/// reference to it, carries them out in the order in which they were added; then it is empty and
/// may be filled again. All go over one ring: that of the first copy.
///
/// Dropping it cancels nothing in hardware: the memory stays pinned until the hardware is done. A
/// copy that reads what an earlier one of the batch writes reads undefined bytes.
///
/// # Errors
/// The future ends as that of a [`crate::Transfer`] does, and where it fails the targets of all its
/// copies are undefined; [`Error::InvalidArgument`] for a batch without copies.
#[must_use = "a batch does nothing unless it is started or awaited"]
pub struct Batch<P: Platform> {
    batch: axon_neuron::Batch<P>,
    client: Arc<Shared<P>>,
    source: End,
    target: End,
}

impl<P: Platform> Batch<P> {
    pub(crate) fn new(client: Arc<Shared<P>>, limit: usize) -> Result<Self, Error> {
        if limit > MOST {
            let (value, limit) = (limit as u64, MOST as u64 + 1);
            return Err(Error::TooBig { what: "room of a batch", value, limit });
        }
        let batch = client.device.neuron().dma().batch(limit)?;
        Ok(Batch { batch, client, source: End::NONE, target: End::NONE })
    }

    /// Adds a copy of `len` bytes between two buffers of the client; offsets are bytes from their
    /// starts.
    ///
    /// # Errors
    /// [`Error::OutOfRange`], [`Error::TooBig`] where there is no room for another copy or more than
    /// 127 MiB would be moved, [`Error::Busy`] while the batch is in flight, and as
    /// [`Span::copy_to`]. Nothing was added.
    #[inline]
    pub fn copy(
        &mut self,
        source: &Buffer<P>,
        source_offset: u64,
        target: &Buffer<P>,
        target_offset: u64,
        len: u64,
    ) -> Result<(), Error> {
        Call::Copy.admit(&self.client.access)?;
        let known = source.name() == self.source.name
            && target.name() == self.target.name
            && source.is_of(&self.client)
            && target.is_of(&self.client);
        if !known {
            self.meet(source, target)?;
        }
        if len == 0 {
            return Err(Error::EMPTY);
        }
        let from = self.source.at(source_offset, len)?;
        let to = self.target.at(target_offset, len)?;
        self.client.device.trace(TraceEvent::MemCopy { source: from.0, destination: to.0 });
        Ok(self.batch.push(from, to, len)?)
    }

    /// Adds a copy between two checked ranges, also of another client's chunk where it is read.
    ///
    /// # Errors
    /// As [`Batch::copy`].
    pub fn add(&mut self, source: Span<'_, P>, target: Span<'_, P>) -> Result<(), Error> {
        Call::Copy.admit(&self.client.access)?;
        source.check_pair(&target)?;
        let index = source.client.device.index();
        if index != self.client.device.index() {
            let value = index.number().into();
            return Err(Error::InvalidArgument { what: "device of the copy", value });
        }
        let (from, to, len) = (source.address, target.address, source.len);
        self.adopt(source.pin, target.pin)?;
        self.client.device.trace(TraceEvent::MemCopy { source: from.0, destination: to.0 });
        Ok(self.batch.push(from, to, len)?)
    }

    /// Copies added so far.
    pub fn len(&self) -> usize {
        self.batch.len()
    }

    /// Whether there is nothing to do.
    pub fn is_empty(&self) -> bool {
        self.batch.is_empty()
    }

    /// Forgets the copies that were added. A batch in flight goes on alone.
    pub fn clear(&mut self) {
        self.batch.clear();
        self.forget();
    }

    /// Starts now or not at all.
    ///
    /// # Errors
    /// [`Error::Again`] where the ring is full or in reset: nothing is staged, and the batch may
    /// still be awaited. Any other error is the result of the batch.
    pub fn try_start(&mut self) -> Result<(), Error> {
        Ok(self.batch.try_start()?)
    }

    /// Takes note of two chunks that are not those of the last copy.
    #[inline(never)]
    fn meet(&mut self, source: &Buffer<P>, target: &Buffer<P>) -> Result<(), Error> {
        for buffer in [source, target] {
            if !buffer.is_of(&self.client) {
                return Err(Error::WrongOwner { handle: buffer.handle() });
            }
        }
        self.adopt(source.pin()?, target.pin()?)
    }

    /// Holds two chunks, unless it does already, and notes what copies between them have to know.
    fn adopt(&mut self, source: Pin, target: Pin) -> Result<(), Error> {
        let ends = (End::of(&source, &self.client), End::of(&target, &self.client));
        if !ends.1.writable {
            return Err(unwritable(&target, self.client.access.client()));
        }
        let core = match ends.1.location {
            Location::Device => ends.1.core,
            Location::Host => ends.0.core,
        };
        if !self.batch.is_open() {
            return Err(Error::Busy { what: "the batch" });
        }
        if !self.batch.serve(core) {
            let (what, value) = ("core of the copy", core.number().into());
            return Err(Error::InvalidArgument { what, value });
        }
        let held = [self.source.name, self.target.name];
        for (pin, end) in [(source, ends.0), (target, ends.1)] {
            if !held.contains(&end.name) {
                self.batch.hold(pin)?;
            }
        }
        (self.source, self.target) = ends;
        Ok(())
    }

    fn forget(&mut self) {
        self.source = End::NONE;
        self.target = End::NONE;
    }
}

impl<P: Platform> Future for Batch<P> {
    type Output = Result<(), Error>;

    fn poll(mut self: FuturePin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let ended = FuturePin::new(&mut self.batch).poll(cx);
        if ended.is_ready() {
            self.forget();
        }
        ended.map_err(Error::from)
    }
}
