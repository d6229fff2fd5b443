//! How the control plane of a device reaches its DMA, its memory and time.

use core::future::Future;
use core::time::Duration;

use axon_clients::DevicePeers;
use axon_clients::core_sync::CoreSync;
use axon_memory::MemoryClient;
use axon_neuron::NeuronDevice;
use axon_platform::Platform;
use axon_ports::reset::DeviceState;
use axon_ports::telemetry::EventKind;
use axon_ports::{ClientId, ClientSlot, MemoryError};

use crate::telemetry::DeviceTelemetry;

/// The other tasks of one device.
pub(crate) struct Peers<P: Platform> {
    pub(crate) platform: P,
    pub(crate) neuron: NeuronDevice<P>,
    pub(crate) memory: MemoryClient,
    pub(crate) telemetry: Option<DeviceTelemetry<P>>,
    pub(crate) sync: CoreSync,
}

impl<P: Platform> Peers<P> {
    fn note(&self, client: ClientId, kind: EventKind) {
        self.neuron.records().events.record(self.platform.now(), Some(client), kind, 0);
    }
}

impl<P: Platform> DevicePeers for Peers<P> {
    fn state(&self) -> DeviceState {
        self.neuron.state()
    }

    async fn state_changed(&self, seen: DeviceState) {
        self.neuron.state_changed(seen).await;
    }

    fn pause(&self, span: Duration) -> impl Future<Output = ()> + Send {
        self.platform.sleep(span)
    }

    fn entered(&self, client: ClientId) {
        self.note(client, EventKind::ClientAttach);
    }

    fn leaving(&self, client: ClientId) {
        self.note(client, EventKind::ClientDrop);
    }

    async fn resolve_resets(&self, client: ClientId) {
        self.neuron.resets_settled(client).await;
    }

    async fn drain(&self, client: ClientId) {
        self.neuron.dma().drain(client).await;
        self.neuron.dma().park(client).await;
        self.neuron.end_notifications(client).await;
    }

    async fn release_cores(&self, client: ClientId) {
        self.sync.client_gone(client).await;
    }

    fn fold_counters(&self, client: ClientId) {
        if let Some(telemetry) = &self.telemetry {
            telemetry.release(client);
        }
    }

    async fn sweep(&self, client: ClientId, slot: ClientSlot) {
        match self.memory.detach(client, slot).await {
            // It touched memory of others only.
            Ok(()) | Err(MemoryError::NotAttached) => {}
            Err(error) => log::warn!("the memory of {client} was not swept: {error}"),
        }
    }

    async fn last_client_gone(&self) {
        if let Some(telemetry) = &self.telemetry {
            telemetry.release_all();
        }
        if let Err(error) = self.memory.last_client_gone().await {
            log::warn!("memory of all clients was not swept: {error}");
        }
    }
}
