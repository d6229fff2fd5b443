//! Resets: requests, the drive, the firmware handshake (specification 05 §11).

use core::future::Future;
use core::pin::Pin;
use core::task::{Context, Poll};

use crate::Error;

/// A reset that was asked for; resolves with its result. Dropping it detaches: the reset still
/// runs. Clones wait for the same reset.
///
/// # Errors
/// [`Error::ResetTimeout`], [`Error::DeviceGone`], [`Error::Cancelled`], or what re-initialisation
/// of the engines met.
#[must_use = "a ticket may be awaited for the result of the reset"]
#[derive(Clone, Debug)]
pub struct ResetTicket(pub(crate) ());

impl Future for ResetTicket {
    type Output = Result<(), Error>;

    fn poll(self: Pin<&mut Self>, _cx: &mut Context<'_>) -> Poll<Self::Output> {
        Poll::Ready(Err(Error::Unsupported { what: "a reset" }))
    }
}
