//! How the control plane of a device reaches its DMA, its memory and time.

use core::future::Future;
use core::time::Duration;

use axon_clients::DevicePeers;
use axon_memory::MemoryClient;
use axon_neuron::NeuronDevice;
use axon_platform::Platform;
use axon_ports::reset::DeviceState;
use axon_ports::{ClientId, ClientSlot, MemoryError};

use crate::memory::pinned_bytes;

/// Most time that transfers in flight get when their client leaves (specification 03 §15).
const DRAIN: Duration = Duration::from_secs(1);
/// Pause between two looks at whether they are done: nobody is in a hurry here.
const LOOK: Duration = Duration::from_micros(100);

/// The other tasks of one device.
pub(crate) struct Peers<P: Platform> {
    pub(crate) platform: P,
    pub(crate) neuron: NeuronDevice<P>,
    pub(crate) memory: MemoryClient,
}

impl<P: Platform> DevicePeers for Peers<P> {
    fn state(&self) -> DeviceState {
        self.neuron.state()
    }

    fn state_changed(&self, _seen: DeviceState) -> impl Future<Output = ()> + Send {
        // Only RESET is waited out.
        let settled = self.neuron.settled();
        async move {
            settled.await;
        }
    }

    fn pause(&self, span: Duration) -> impl Future<Output = ()> + Send {
        self.platform.sleep(span)
    }

    async fn attach(&self, client: ClientId, slot: ClientSlot) -> Result<(), MemoryError> {
        self.memory.attach(client, slot).await
    }

    async fn resolve_resets(&self, _client: ClientId) {
        // A reset that a client of this device asked for ends with the drive, which holds no
        // memory of the client; its ticket was dropped with the client.
    }

    /// A transfer in flight shows as a pin on memory of its client.
    async fn drain(&self, client: ClientId) {
        let deadline = self.platform.now() + DRAIN;
        while pinned_bytes(&self.memory, client) != 0 && self.platform.now() < deadline {
            self.platform.sleep(LOOK).await;
        }
    }

    async fn sweep(&self, client: ClientId, slot: ClientSlot) {
        if let Err(error) = self.memory.detach(client, slot).await {
            log::warn!("the memory of {client} was not swept: {error}");
        }
    }

    async fn last_client_gone(&self) {
        if let Err(error) = self.memory.last_client_gone().await {
            log::warn!("memory of all clients was not swept: {error}");
        }
    }
}
