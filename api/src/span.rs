//! Checked ranges, and the transfers between them. Nothing here allocates or sends a message.

use core::future::{Future, poll_fn};
use core::ops::Range;
use core::pin::Pin as FuturePin;
use core::task::{Context, Poll};

use axon_clients::Access;
use axon_neuron::Target;
use axon_platform::{DeviceAddr, Platform};
use axon_ports::telemetry::TraceEvent;
use axon_ports::{CoreId, Location, Pin};

use crate::buffer::unwritable;
use crate::{Device, Error};

/// A range of a chunk that was checked and is pinned: hardware may be pointed at it.
pub struct Span<'a, P: Platform> {
    pub(crate) device: &'a Device<P>,
    pub(crate) access: &'a Access,
    pub(crate) pin: Pin,
    pub(crate) address: DeviceAddr,
    pub(crate) len: u64,
    pub(crate) core: CoreId,
    pub(crate) location: Location,
    pub(crate) writable: bool,
}

impl<'a, P: Platform> Span<'a, P> {
    /// Bytes, never 0.
    #[allow(clippy::len_without_is_empty)]
    pub fn len(&self) -> u64 {
        self.len
    }

    /// First byte as the device sees it.
    pub fn address(&self) -> DeviceAddr {
        self.address
    }

    /// A transfer of all of this range to `target`, of the same length. Nothing happens before
    /// its first poll or [`Transfer::start`].
    ///
    /// The ring of the target's core serves it where the target is device memory, else the ring of
    /// the source's core (specification 03 §5.3). Ranges that overlap end with undefined bytes.
    ///
    /// # Errors
    /// [`Error::InvalidArgument`] for another length or another device, [`Error::WrongOwner`] for
    /// a target of another client, [`Error::NotAttached`]. Nothing was moved.
    #[inline(always)]
    pub fn copy_to(self, target: Span<'_, P>) -> Result<Transfer<P>, Error> {
        self.access.check()?;
        target.check_writable()?;
        if target.device.index() != self.device.index() {
            return Err(Error::InvalidArgument {
                what: "device of the target",
                value: target.device.index().number().into(),
            });
        }
        if target.len != self.len {
            return Err(Error::InvalidArgument { what: "length of the target", value: target.len });
        }
        let core = match target.location {
            Location::Device => target.core,
            Location::Host => self.core,
        };
        let (dma, len) = (self.device.neuron().dma(), self.len);
        let (source, destination) = (self.address.0, target.address.0);
        self.device.trace(TraceEvent::MemCopy { source, destination });
        Ok(Transfer(dma.copy(core, self.into_target(), target.into_target(), len)))
    }

    /// Sets every byte of the range by DMA.
    ///
    /// # Errors
    /// As [`Span::copy_to`].
    pub fn fill(self, byte: u8) -> Result<Fill<P>, Error> {
        self.check_writable()?;
        let (core, len) = (self.core, self.len);
        let dma = self.device.neuron().dma();
        Ok(Fill(dma.fill(core, self.into_target(), byte, len)))
    }

    /// The core whose ring serves a copy of this range to `target`.
    pub(crate) fn ring_core(&self, target: &Span<'_, P>) -> CoreId {
        match target.location {
            Location::Device => target.core,
            Location::Host => self.core,
        }
    }

    /// `range` of this range, which the caller knows to lie inside it.
    pub(crate) fn part(&self, range: Range<u64>) -> Result<Span<'a, P>, Error> {
        let len = range.end.saturating_sub(range.start);
        let outside = Error::OutOfRange { offset: range.start, len, limit: self.len };
        if range.end > self.len {
            return Err(outside);
        }
        let address = self.address.checked_add(range.start).ok_or(outside)?;
        Ok(Span { address, len, pin: self.pin.clone(), ..*self })
    }

    #[inline(always)]
    fn check_writable(&self) -> Result<(), Error> {
        self.access.check()?;
        if self.writable { Ok(()) } else { Err(unwritable(&self.pin, self.access.client())) }
    }

    #[inline(always)]
    fn into_target(self) -> Target {
        Target { address: self.address, pin: self.pin }
    }
}

/// A copy by DMA. Dropping it cancels nothing in hardware: the memory stays pinned until the
/// hardware is done with it, and the content of the target is unspecified.
#[must_use = "a transfer does nothing unless it is started or awaited"]
pub struct Transfer<P: Platform>(axon_neuron::Copy<P>);

impl<P: Platform> Transfer<P> {
    /// Starts now instead of at the first poll; where the ring is full or in reset, at the first
    /// poll after all.
    pub fn start(mut self) -> Self {
        self.0.start();
        self
    }

    /// Resolves once the whole transfer, which is one batch at most, is in its ring.
    pub(crate) async fn staged(&mut self) -> Result<(), Error> {
        Ok(poll_fn(|cx| self.0.poll_staged(cx)).await?)
    }

    /// Starts now or not at all.
    ///
    /// # Errors
    /// [`Error::Again`] where the ring is full or in reset: nothing is staged. Any other error is
    /// the result of the transfer.
    pub fn try_start(&mut self) -> Result<(), Error> {
        Ok(self.0.try_start()?)
    }
}

impl<P: Platform> Future for Transfer<P> {
    type Output = Result<(), Error>;

    fn poll(mut self: FuturePin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        FuturePin::new(&mut self.0).poll(cx).map_err(Error::from)
    }
}

/// A fill by DMA. Dropping it cancels nothing in hardware.
#[must_use = "a fill does nothing unless it is awaited"]
pub struct Fill<P: Platform>(axon_neuron::Fill<P>);

impl<P: Platform> Future for Fill<P> {
    type Output = Result<(), Error>;

    fn poll(mut self: FuturePin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        FuturePin::new(&mut self.0).poll(cx).map_err(Error::from)
    }
}
