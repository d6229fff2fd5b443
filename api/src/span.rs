//! Checked ranges, and the transfers between them. Nothing here allocates or sends a message.

use core::future::{Future, poll_fn};
use core::ops::Range;
use core::pin::Pin as FuturePin;
use core::task::{Context, Poll};

use axon_neuron::Target;
use axon_platform::{DeviceAddr, Platform};
use axon_ports::telemetry::TraceEvent;
use axon_ports::{CoreId, Location, Pin};

use crate::Error;
use crate::buffer::unwritable;
use crate::calls::Call;
use crate::client::Shared;

/// A range of a chunk that was checked and is pinned: hardware may be pointed at it.
pub struct Span<'a, P: Platform> {
    pub(crate) client: &'a Shared<P>,
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

    /// Whether this client may change it.
    pub fn is_writable(&self) -> bool {
        self.writable
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
        Call::Copy.admit(&self.client.access)?;
        self.check_pair(&target)?;
        let core = match target.location {
            Location::Device => target.core,
            Location::Host => self.core,
        };
        let (dma, len) = (self.client.device.neuron().dma(), self.len);
        let (source, destination) = (self.address.0, target.address.0);
        self.client.device.trace(TraceEvent::MemCopy { source, destination });
        Ok(Transfer(dma.copy(core, self.into_target(), target.into_target(), len)))
    }

    /// Sets every byte of the range by DMA.
    ///
    /// # Errors
    /// As [`Span::copy_to`].
    pub fn fill(self, byte: u8) -> Result<Fill<P>, Error> {
        Call::Fill.admit(&self.client.access)?;
        self.check_writable()?;
        let (core, len) = (self.core, self.len);
        let dma = self.client.device.neuron().dma();
        Ok(Fill(dma.fill(core, self.into_target(), byte, len)))
    }

    /// The core whose ring serves a copy of this range to `target`.
    pub(crate) fn ring_core(&self, target: &Span<'_, P>) -> CoreId {
        match target.location {
            Location::Device => target.core,
            Location::Host => self.core,
        }
    }

    /// Whether `target` may be the other end of a copy from here.
    #[inline(always)]
    pub(crate) fn check_pair(&self, target: &Span<'_, P>) -> Result<(), Error> {
        target.check_writable()?;
        if !core::ptr::eq(target.client, self.client) {
            target.check_device(self)?;
        }
        if target.len != self.len {
            return Err(Error::InvalidArgument { what: "length of the target", value: target.len });
        }
        Ok(())
    }

    #[cold]
    fn check_device(&self, other: &Span<'_, P>) -> Result<(), Error> {
        let index = self.client.device.index();
        if index == other.client.device.index() {
            return Ok(());
        }
        let value = index.number().into();
        Err(Error::InvalidArgument { what: "device of the target", value })
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
        if self.writable { Ok(()) } else { Err(unwritable(&self.pin, self.client.access.client())) }
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
    #[inline(always)]
    pub(crate) fn new(copy: axon_neuron::Copy<P>) -> Self {
        Transfer(copy)
    }

    /// Starts now instead of at the first poll; where the ring is full or in reset, at the first
    /// poll after all.
    ///
    /// The shortest way from the call to the doorbells. Copies that are made first and awaited then
    /// share their doorbells; one that is alone rings in its first poll.
    #[inline(always)]
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

    #[inline(always)]
    fn poll(mut self: FuturePin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        FuturePin::new(&mut self.0).poll(cx).map_err(Error::from)
    }
}

/// A fill by DMA. Dropping it cancels nothing in hardware.
#[must_use = "a fill does nothing unless it is awaited"]
pub struct Fill<P: Platform>(axon_neuron::Fill<P>);

impl<P: Platform> Fill<P> {
    #[inline(always)]
    pub(crate) fn new(fill: axon_neuron::Fill<P>) -> Self {
        Fill(fill)
    }

    /// As [`Transfer::start`].
    #[inline(always)]
    pub fn start(mut self) -> Self {
        self.0.start();
        self
    }
}

impl<P: Platform> Future for Fill<P> {
    type Output = Result<(), Error>;

    #[inline(always)]
    fn poll(mut self: FuturePin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        FuturePin::new(&mut self.0).poll(cx).map_err(Error::from)
    }
}
