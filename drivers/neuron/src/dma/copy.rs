//! Copies and fills, as futures (specification 03 §8, §9).

use alloc::sync::Arc;
use core::future::Future;
use core::pin::Pin as FuturePin;
use core::task::{Context, Poll, Waker};

use axon_platform::{DeviceAddr, Platform};
use axon_ports::{Pin, PinPair};

use super::fill_source::FillSource;
use super::transfer::{NOTHING, Transfer};
use crate::Error;
use crate::shared::Shared;
use crate::wake::Ticket;

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

/// A copy. Dropping it cancels nothing in hardware: the memory stays pinned until the hardware is
/// done (03 §15).
///
/// # Errors
/// [`Error::InvalidArgument`] for size 0, with nothing staged; [`Error::DmaTimeout`],
/// [`Error::DmaAborted`], [`Error::RingFaulted`], [`Error::QuarantineFull`], [`Error::Cancelled`],
/// [`Error::CoreDown`], [`Error::DeviceFailed`], [`Error::DeviceGone`], [`Error::Removed`].
#[must_use = "a copy does nothing unless it is started or awaited"]
pub struct Copy<P: Platform> {
    transfer: Transfer<P>,
}

impl<P: Platform> Copy<P> {
    #[inline]
    pub(super) fn new(
        shared: Arc<Shared<P>>,
        port: u8,
        source: Target,
        destination: Target,
        len_bytes: u64,
    ) -> Self {
        let pins = PinPair::new(source.pin, destination.pin);
        Copy::held(shared, port, source.address, destination.address, len_bytes, pins)
    }

    #[inline(always)]
    pub(super) fn held(
        shared: Arc<Shared<P>>,
        port: u8,
        source: DeviceAddr,
        destination: DeviceAddr,
        len_bytes: u64,
        pins: PinPair,
    ) -> Self {
        Copy { transfer: Transfer::new(shared, port, source, destination, len_bytes, pins) }
    }

    /// Stages the copy and rings at once, without waiting for the end of the turn. Where that is
    /// not possible the first poll does it, or tells why not.
    #[inline(always)]
    pub fn start(&mut self) {
        // The first poll meets the same refusal again.
        let _ = self.transfer.try_start();
    }

    /// Resolves once the first batch is staged, which for a copy of at most 127 MiB is all of it. An
    /// error is the result of the copy.
    pub fn poll_staged(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Error>> {
        self.transfer.poll_staged(cx)
    }

    /// Stages the copy and rings at once.
    ///
    /// # Errors
    /// [`Error::Again`] where the ring is full or in reset; nothing is staged and the copy may
    /// still be awaited. Any other error is the result of the copy.
    pub fn try_start(&mut self) -> Result<(), Error> {
        self.transfer.try_start()
    }
}

impl<P: Platform> Future for Copy<P> {
    type Output = Result<(), Error>;

    #[inline(always)]
    fn poll(mut self: FuturePin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        self.transfer.poll(cx)
    }
}

/// Where a fill stands.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Stage {
    /// Waits for the fill buffer.
    New(Option<Ticket>),
    /// Has it, or has had it: the fill buffer goes to the first 64 KiB, and those to the rest.
    Going,
}

/// A fill. Dropping it cancels nothing in hardware.
///
/// # Errors
/// As [`struct@Copy`].
#[must_use = "a fill does nothing unless it is started or awaited"]
pub struct Fill<P: Platform> {
    transfer: Transfer<P>,
    stage: Stage,
    byte: u8,
}

impl<P: Platform> Fill<P> {
    #[inline(always)]
    pub(super) fn new(
        shared: Arc<Shared<P>>,
        port: u8,
        destination: DeviceAddr,
        byte: u8,
        len_bytes: u64,
        pins: PinPair,
    ) -> Self {
        let source = shared.fill.address();
        let transfer = Transfer::new(shared, port, source, destination, len_bytes, pins);
        Fill { transfer, stage: Stage::New(None), byte }
    }

    /// As [`Copy::start`].
    #[inline(always)]
    pub fn start(&mut self) {
        // The first poll meets the same refusal again.
        let _ = self.try_start();
    }

    /// Takes the fill buffer, stages the first 64 KiB and rings at once.
    ///
    /// # Errors
    /// As [`Copy::try_start`]; [`Error::Again`] also while the fill buffer is in use for another
    /// byte.
    #[inline]
    pub fn try_start(&mut self) -> Result<(), Error> {
        if let Stage::New(ticket) = self.stage {
            // Without a waker there is no place in the queue.
            let _ready: Poll<()> = self.begin(ticket, None)?;
        }
        self.transfer.try_start()
    }

    /// Takes the fill buffer, or a place in the queue for it.
    #[inline(always)]
    fn begin(&mut self, ticket: Option<Ticket>, waker: Option<&Waker>) -> Result<Poll<()>, Error> {
        let bytes = self.transfer.remaining().min(FillSource::BYTES);
        let is_ready = ticket.is_none()
            && bytes != 0
            && self.transfer.fill_source().acquire_ready(self.byte, bytes);
        if !is_ready && self.ask(bytes, ticket, waker)?.is_pending() {
            return Ok(Poll::Pending);
        }
        self.transfer.read_fill_source();
        self.stage = Stage::Going;
        Ok(Poll::Ready(()))
    }

    #[cold]
    fn ask(
        &mut self,
        bytes: u64,
        ticket: Option<Ticket>,
        waker: Option<&Waker>,
    ) -> Result<Poll<()>, Error> {
        if bytes == 0 {
            return Err(NOTHING);
        }
        match self.transfer.fill_source().acquire(self.byte, bytes, ticket, waker)? {
            Some(ticket) => {
                self.stage = Stage::New(Some(ticket));
                Ok(Poll::Pending)
            }
            None => Ok(Poll::Ready(())),
        }
    }
}

impl<P: Platform> Future for Fill<P> {
    type Output = Result<(), Error>;

    #[inline]
    fn poll(mut self: FuturePin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        if let Stage::New(ticket) = self.stage
            && self.begin(ticket, Some(cx.waker()))?.is_pending()
        {
            return Poll::Pending;
        }
        self.transfer.poll(cx)
    }
}

impl<P: Platform> Drop for Fill<P> {
    #[inline]
    fn drop(&mut self) {
        if let Stage::New(Some(ticket)) = self.stage {
            self.transfer.fill_source().leave(ticket);
        }
    }
}
