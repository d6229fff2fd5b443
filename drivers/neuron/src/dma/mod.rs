//! Everything that moves bytes: engines, rings, copies, fills, the completion task
//! (specification 02, 03).

mod report;

use core::future::Future;
use core::marker::PhantomData;
use core::pin::Pin as FuturePin;
use core::task::{Context, Poll};

use axon_platform::{DeviceAddr, Platform};
use axon_ports::{CoreId, Pin};

use crate::Error;

pub use report::EngineReport;

/// One end of a copy: where, and what keeps the memory there from being reused.
///
/// The caller has checked that the range lies inside the chunk that `pin` holds.
#[derive(Debug)]
pub struct Target {
    /// First byte, as the device sees it.
    pub address: DeviceAddr,
    /// Holds the chunk until the hardware is done with it.
    pub pin: Pin,
}

/// The DMA side of a device. Clones reach the same rings.
pub struct Dma<P: Platform>(PhantomData<fn() -> P>);

impl<P: Platform> Clone for Dma<P> {
    fn clone(&self) -> Self {
        Dma(PhantomData)
    }
}

impl<P: Platform> Dma<P> {
    pub(crate) fn new() -> Self {
        Dma(PhantomData)
    }

    /// Copies `len_bytes` on the default ring of `core`, the core of the destination if that is
    /// device memory, else of the source (specification 03 §5.3).
    ///
    /// Nothing happens before the first poll or [`Copy::start`].
    pub fn copy(
        &self,
        core: CoreId,
        source: Target,
        destination: Target,
        len_bytes: u64,
    ) -> Copy<P> {
        let _ = (core, source, destination, len_bytes);
        Copy(PhantomData)
    }

    /// Sets `len_bytes` to `byte` by DMA on the default ring of `core` (specification 03 §9).
    pub fn fill(&self, core: CoreId, destination: Target, byte: u8, len_bytes: u64) -> Fill<P> {
        let _ = (core, destination, byte, len_bytes);
        Fill(PhantomData)
    }
}

/// A copy. Dropping it cancels nothing in hardware: the memory stays pinned until the hardware is
/// done (specification 03 §15).
///
/// # Errors
/// [`Error::InvalidArgument`] for size 0; the DMA errors of [`Error`].
#[must_use = "a copy does nothing unless it is started or awaited"]
pub struct Copy<P: Platform>(PhantomData<fn() -> P>);

impl<P: Platform> Copy<P> {
    /// Stages the copy and rings at once, without waiting for the end of the turn.
    ///
    /// Where the ring is full or in reset, the copy is left for the first poll.
    pub fn start(&mut self) {}

    /// As [`Copy::start`].
    ///
    /// # Errors
    /// [`Error::Again`] where the ring is full or in reset; nothing is staged. Any other error is
    /// the result of the copy.
    pub fn try_start(&mut self) -> Result<(), Error> {
        Err(Error::Unsupported { what: "a copy" })
    }
}

impl<P: Platform> Future for Copy<P> {
    type Output = Result<(), Error>;

    fn poll(self: FuturePin<&mut Self>, _cx: &mut Context<'_>) -> Poll<Self::Output> {
        Poll::Ready(Err(Error::Unsupported { what: "a copy" }))
    }
}

/// A fill. Dropping it cancels nothing in hardware.
///
/// # Errors
/// As [`Copy`].
#[must_use = "a fill does nothing unless it is started or awaited"]
pub struct Fill<P: Platform>(PhantomData<fn() -> P>);

impl<P: Platform> Future for Fill<P> {
    type Output = Result<(), Error>;

    fn poll(self: FuturePin<&mut Self>, _cx: &mut Context<'_>) -> Poll<Self::Output> {
        Poll::Ready(Err(Error::Unsupported { what: "a fill" }))
    }
}
