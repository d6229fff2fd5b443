//! HBM scrub: one word over all memory of an HBM that clients may have (specification 04 §9.3).

use core::future::Future;
use core::pin::Pin;
use core::task::{Context, Poll, ready};

use axon_neuron::dma::{self, ScrubOrder};
use axon_platform::Platform;
use axon_ports::HbmIndex;

use crate::calls::Call;
use crate::{Client, Error};

/// A scrub under way; ends once all of the HBM holds the word and the engines are given back.
///
/// It stops when this is dropped, when the client ends and with a reset of one of the two cores that
/// own its engines; what was written until then stays. Errors: [`Error::Timeout`] and
/// [`Error::Device`] name the engine, [`Error::Stale`] after a reset, [`Error::Cancelled`] after the
/// client's end, [`Error::DeviceGone`], [`Error::Removed`].
#[must_use = "a scrub that is dropped stops"]
pub struct Scrub<P: Platform>(dma::Scrub<P>);

impl<P: Platform> Client<P> {
    /// Starts to fill an HBM, from behind the carve-out to its end, with `word`. Memory of this
    /// client in it is filled too. It runs whether the result is awaited or not, on queue 0 of 16
    /// engines, which nobody else may use meanwhile; nor does anybody else get memory in that HBM.
    ///
    /// # Errors
    /// [`Error::Busy`] while another client, or the driver, holds memory in that HBM or a scrub of it
    /// runs; EBUSY as well where queue 0 of one of the engines is in use;
    /// [`Error::InvalidArgument`] for an HBM that is not there; [`Error::NoMemory`],
    /// [`Error::NotAttached`], [`Error::Device`], [`Error::DeviceFailed`], [`Error::DeviceGone`],
    /// [`Error::Removed`]. Nothing was started and nothing is held.
    pub async fn scrub(&self, hbm: HbmIndex, word: u32) -> Result<Scrub<P>, Error> {
        self.shared().enter_memory(Call::Scrub).await?;
        let (client, slot) = (self.id(), self.access().slot());
        let memory = self.device().memory();
        let range = memory.begin_scrub(client, hbm.number()).await?;
        let (start, end, hold) = (range.start, range.end, range.hold);
        let order = ScrubOrder { client, slot, hbm, start, end, word, hold };
        Ok(Scrub(self.device().neuron().dma().scrub(memory, order).await?))
    }
}

impl<P: Platform> Future for Scrub<P> {
    type Output = Result<(), Error>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let result = ready!(Pin::new(&mut self.0).poll(cx));
        Poll::Ready(result.map_err(Error::from))
    }
}
