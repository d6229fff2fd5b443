//! Copies and fills, as futures (specification 03 §8, §9).

use alloc::sync::Arc;
use core::future::Future;
use core::pin::Pin as FuturePin;
use core::task::{Context, Poll, Waker};

use axon_platform::{DeviceAddr, Platform};
use axon_ports::Pin;

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
        let pins = [Some(source.pin), Some(destination.pin)];
        let (from, to) = (source.address, destination.address);
        Copy { transfer: Transfer::new(shared, port, from, to, len_bytes, pins) }
    }

    /// Stages the copy and rings at once, without waiting for the end of the turn. Where that is
    /// not possible the first poll does it, or tells why not.
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
enum Stage<P: Platform> {
    /// Waits for the fill buffer.
    New(Option<Ticket>),
    /// The fill buffer goes to the first 64 KiB.
    First(Transfer<P>),
    /// The first 64 KiB go to the rest.
    Rest(Transfer<P>),
}

/// A fill. Dropping it cancels nothing in hardware.
///
/// # Errors
/// As [`struct@Copy`].
#[must_use = "a fill does nothing unless it is awaited"]
pub struct Fill<P: Platform> {
    shared: Arc<Shared<P>>,
    stage: Stage<P>,
    pin: Option<Pin>,
    destination: DeviceAddr,
    len_bytes: u64,
    byte: u8,
    port: u8,
}

impl<P: Platform> Fill<P> {
    pub(super) fn new(
        shared: Arc<Shared<P>>,
        port: u8,
        destination: Target,
        byte: u8,
        len_bytes: u64,
    ) -> Self {
        Fill {
            shared,
            stage: Stage::New(None),
            pin: Some(destination.pin),
            destination: destination.address,
            len_bytes,
            byte,
            port,
        }
    }

    /// Takes the fill buffer and makes the transfer of the first 64 KiB.
    fn begin(&mut self, waker: Option<&Waker>) -> Result<Poll<()>, Error> {
        let Stage::New(ticket) = self.stage else { return Ok(Poll::Ready(())) };
        if self.len_bytes == 0 {
            return Err(NOTHING);
        }
        let first = self.len_bytes.min(FillSource::BYTES);
        if let Some(ticket) = self.shared.fill.acquire(self.byte, first, ticket, waker)? {
            self.stage = Stage::New(Some(ticket));
            return Ok(Poll::Pending);
        }
        let pin = if first == self.len_bytes { self.pin.take() } else { self.pin.clone() };
        let source = self.shared.fill.address();
        let transfer = self.transfer(source, self.destination, first, pin).with_fill_source();
        self.stage = Stage::First(transfer);
        Ok(Poll::Ready(()))
    }

    /// Makes the transfer of what is behind the first 64 KiB.
    fn go_on(&mut self) {
        let rest = self.len_bytes - FillSource::BYTES;
        let behind = DeviceAddr(self.destination.0.wrapping_add(FillSource::BYTES));
        let pin = self.pin.take();
        let transfer = self.transfer(self.destination, behind, rest, pin).with_fixed_source();
        self.stage = Stage::Rest(transfer);
    }

    fn transfer(
        &self,
        source: DeviceAddr,
        destination: DeviceAddr,
        bytes: u64,
        pin: Option<Pin>,
    ) -> Transfer<P> {
        let pins = [None, pin];
        Transfer::new(self.shared.clone(), self.port, source, destination, bytes, pins)
    }
}

impl<P: Platform> Future for Fill<P> {
    type Output = Result<(), Error>;

    fn poll(mut self: FuturePin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        loop {
            match &mut self.stage {
                Stage::New(_) => {
                    if self.begin(Some(cx.waker()))?.is_pending() {
                        return Poll::Pending;
                    }
                }
                Stage::First(transfer) => match transfer.poll(cx) {
                    Poll::Ready(Ok(())) if self.len_bytes > FillSource::BYTES => self.go_on(),
                    done => return done,
                },
                Stage::Rest(transfer) => return transfer.poll(cx),
            }
        }
    }
}

impl<P: Platform> Drop for Fill<P> {
    fn drop(&mut self) {
        if let Stage::New(Some(ticket)) = self.stage {
            self.shared.fill.leave(ticket);
        }
    }
}
