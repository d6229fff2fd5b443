//! One device: identity, state, registers, resets. It carries no rights; [`Device::open`] gives
//! them.

use alloc::sync::{Arc, Weak};
use alloc::vec::Vec;
use core::sync::atomic::{AtomicU64, Ordering};
use core::time::Duration;

use axon_clients::core_sync::{CoreSync, Cores};
use axon_clients::gates::{Grants, Lane};
use axon_clients::reservation::{FreedCores, Reservations};
use axon_clients::{ClientInfo, Clients};
use axon_memory::{ChunkLine, MemoryClient, MemoryService, Usage};
use axon_neuron::hal::Hal;
use axon_neuron::reset::ResetTicket;
use axon_neuron::{Counters, Health, Identity, NeuronDevice, Probed, Published, probe};
use axon_platform::{Bdf, PciFunction, Platform, is_emulated};
use axon_ports::reset::{DeviceState, Requester, ResetRequest};
use axon_ports::telemetry::{EventKind, TraceEvent, TraceKind};
use axon_ports::{ClientId, ClientSlot, CoreMap, DeviceIndex, RoutingId};
use axon_telemetry::Telemetry;
use embassy_futures::select::select;

use crate::calls::Call;
use crate::claimed::ClaimedWindows;
use crate::driver::Inner as DriverInner;
use crate::memory::{self, MemoryTotals};
use crate::peers::Peers;
use crate::telemetry::{self, DeviceTelemetry};
use crate::{Client, Driver, Error, InfoClient};

struct Shared<P: Platform> {
    driver: Arc<DriverInner<P>>,
    neuron: NeuronDevice<P>,
    memory: MemoryClient,
    clients: Clients<Peers<P>>,
    telemetry: Option<DeviceTelemetry<P>>,
    sync: CoreSync,
    claimed: Arc<ClaimedWindows>,
    /// Position in [`Platform::functions`].
    position: usize,
    device_id: u16,
    bringup_ns: AtomicU64,
}

/// Most time that the poster gets to end (rung T5): two sample periods.
const POSTER_ENDS: Duration = Duration::from_millis(100);

/// Rungs T6 to T9: nothing can write to memory any more, then the memory is given back.
async fn take_down<P: Platform>(neuron: &NeuronDevice<P>, memory: &MemoryClient) {
    neuron.shut_down().await;
    match memory.shutdown().await {
        Ok(report) => log::debug!("{}: {report:?}", neuron.index()),
        Err(error) => log::debug!("{}: {error}", neuron.index()),
    }
}

/// Who opens a device, and what that client may do; [`OpenOptions::default`] is a new client with
/// every right that the host has.
#[derive(Clone, Copy, Debug, Default)]
pub struct OpenOptions {
    /// A client that has, or had, handles here or elsewhere.
    pub client: Option<ClientId>,
    /// Its rights, where the host has them too ([`crate::HostConfig::grants`]). A client that is
    /// attached already keeps those it came with.
    pub grants: Grants,
}

/// A Neuron device. Clones are handles on the same one.
pub struct Device<P: Platform>(Arc<Shared<P>>);

impl<P: Platform> Clone for Device<P> {
    fn clone(&self) -> Self {
        Device(self.0.clone())
    }
}

impl<P: Platform> Device<P> {
    /// Climbs the ladder of specification 05 §4.2 and starts the tasks of the device. Its first
    /// reset is queued, not done.
    pub(crate) async fn bring_up(
        driver: &Arc<DriverInner<P>>,
        position: usize,
        function: &P::Function,
    ) -> Result<Self, Error> {
        let platform = &driver.platform;
        let mut config = driver.config.device;
        config.manage_notifications |= driver.config.manage_emulated && is_emulated(function);
        let Probed { mut pools, ladder } =
            probe(platform, function, &config, &driver.table, |geometry| {
                memory::make_pools(platform, driver.reserve_bytes, geometry)
            })
            .await?;
        pools.set_window_space(ladder.index());
        if let Some(map) = crate::windows::bar_map(function, ladder.hal()) {
            pools.set_bar_map(map);
        }
        let claimed = ClaimedWindows::new();
        driver.reservations.watch(Arc::downgrade(&claimed) as Weak<dyn FreedCores>)?;
        let (memory, service) = MemoryService::new(pools);
        let Published { device: neuron, completion, reset, notify } =
            ladder.publish(memory.clone())?;
        let last_words = Arc::downgrade(neuron.records());
        platform.on_fatal(last_words);
        let telemetry = match &driver.config.telemetry {
            Some(config) => telemetry::make(driver, config, &neuron, &memory),
            None => Ok(None),
        };
        let telemetry = match telemetry {
            Ok(telemetry) => telemetry,
            Err(error) => {
                // Nobody is going to serve the shutdown: without its service it answers at once.
                drop(service);
                take_down(&neuron, &memory).await;
                return Err(error);
            }
        };
        let hal = neuron.hal();
        let cores = Cores { count: hal.cores().into(), map: CoreMap(hal.core_map()) };
        let (sync, core_sync) = CoreSync::new(cores, platform.clone());
        let peers = Peers {
            platform: platform.clone(),
            neuron: neuron.clone(),
            memory: memory.clone(),
            telemetry: telemetry.clone(),
            sync: sync.clone(),
        };
        let (clients, control) = Clients::new(peers);
        let device = Device(Arc::new(Shared {
            driver: driver.clone(),
            neuron,
            memory,
            clients,
            telemetry,
            sync,
            claimed,
            position,
            device_id: (function.config_read32(0) >> 16) as u16,
            bringup_ns: AtomicU64::new(0),
        }));
        let started = platform
            .spawn("memory", service.run())
            .and_then(|()| platform.spawn("completion", completion))
            .and_then(|()| platform.spawn("reset", reset))
            .and_then(|()| platform.spawn("notify", notify))
            .and_then(|()| platform.spawn("core sync", core_sync.run()))
            .and_then(|()| platform.spawn("control", control.run()))
            .and_then(|()| match device.0.telemetry.as_ref().and_then(Telemetry::poster) {
                Some(poster) => platform.spawn("poster", poster.run()),
                None => Ok(()),
            });
        if let Err(error) = started {
            device.shut_down().await;
            return Err(error.into());
        }
        Ok(device)
    }

    /// Takes the device down (specification 05 §5): clients lose their access, transfers end, the
    /// engines stop, bus mastering goes off, then the memory is given back. What is left answers
    /// [`Error::Removed`].
    pub async fn shut_down(&self) {
        self.0.driver.pod.part(&self.0.neuron).await;
        self.0.clients.remove();
        self.0.sync.remove();
        if let Some(telemetry) = &self.0.telemetry {
            telemetry.stop();
            let bound = self.0.driver.platform.sleep(POSTER_ENDS);
            select(telemetry.stopped(), bound).await;
        }
        take_down(&self.0.neuron, &self.0.memory).await;
    }

    /// Public number.
    pub fn index(&self) -> DeviceIndex {
        self.0.neuron.index()
    }

    /// Where its function sits.
    pub fn bdf(&self) -> Bdf {
        self.0.neuron.bdf()
    }

    /// PCI vendor and device id.
    pub fn pci_id(&self) -> (u16, u16) {
        (axon_neuron::hal::identity::VENDOR, self.0.device_id)
    }

    /// Position of its function in [`Platform::functions`].
    pub fn position(&self) -> usize {
        self.0.position
    }

    /// What is known about it without touching it.
    pub fn hal(&self) -> &Hal {
        self.0.neuron.hal()
    }

    /// Firmware's number of it.
    pub fn routing_id(&self) -> RoutingId {
        self.0.neuron.routing_id()
    }

    /// Serial number; `None` where firmware has not set one.
    ///
    /// # Errors
    /// [`Error::DeviceGone`].
    pub fn serial_number(&self) -> Result<Option<u64>, Error> {
        Ok(self.0.neuron.serial_number()?)
    }

    /// Version of the firmware's interface; `None` where firmware has not set one.
    ///
    /// # Errors
    /// [`Error::DeviceGone`].
    pub fn firmware_version(&self) -> Result<Option<u32>, Error> {
        Ok(self.0.neuron.firmware_version()?)
    }

    /// Everything firmware says about who the device is.
    ///
    /// # Errors
    /// [`Error::DeviceGone`].
    pub fn identity(&self) -> Result<Identity, Error> {
        Ok(self.0.neuron.identity()?)
    }

    /// Everything firmware says about how the device is: memory errors, repair, power.
    ///
    /// # Errors
    /// [`Error::DeviceGone`].
    pub fn health(&self) -> Result<Health, Error> {
        Ok(self.0.neuron.health()?)
    }

    /// Number of its server in a switched pod, as firmware said at bring-up.
    pub fn server_id(&self) -> Option<u16> {
        self.0.neuron.server_id()
    }

    /// Neighbours in the order of the links, for the devices that are published now.
    pub fn neighbours(&self) -> Vec<DeviceIndex> {
        let published = self.0.neuron.table().published() as u8;
        let list = self.hal().neighbours(self.index().number() as u8, published);
        list.as_slice().iter().filter_map(|&index| DeviceIndex::new(index.into())).collect()
    }

    /// Why the last reset of the whole device failed; `None` where it did not. After bring-up this
    /// is the failure of rung D25, the first reset.
    pub fn failure(&self) -> Option<Error> {
        self.0.neuron.failure().map(Error::from)
    }

    /// State now.
    pub fn state(&self) -> DeviceState {
        self.0.neuron.state()
    }

    /// Resolves when the device is READY or INVALID.
    pub async fn settled(&self) -> DeviceState {
        self.0.neuron.settled().await
    }

    /// From the start of its bring-up until it was first settled; zero before.
    pub fn bringup(&self) -> Duration {
        Duration::from_nanos(self.0.bringup_ns.load(Ordering::Relaxed))
    }

    pub(crate) fn set_bringup(&self, span: Duration) {
        self.0.bringup_ns.store(span.as_nanos() as u64, Ordering::Relaxed);
    }

    #[inline]
    pub(crate) fn neuron(&self) -> &NeuronDevice<P> {
        &self.0.neuron
    }

    pub(crate) fn telemetry_or_none(&self) -> Option<&DeviceTelemetry<P>> {
        self.0.telemetry.as_ref()
    }

    pub(crate) fn memory(&self) -> &MemoryClient {
        &self.0.memory
    }

    pub(crate) fn sync(&self) -> &CoreSync {
        &self.0.sync
    }

    #[inline]
    pub(crate) fn reservations(&self) -> &Reservations {
        &self.0.driver.reservations
    }

    pub(crate) fn claimed_windows(&self) -> &ClaimedWindows {
        &self.0.claimed
    }

    pub(crate) fn driver(&self) -> Driver<P> {
        Driver::from_inner(self.0.driver.clone())
    }

    /// Queues a reset; whoever relied on the cores' init states is told (specification 05 §11.2).
    pub(crate) fn submit_reset(&self, request: ResetRequest) -> Result<ResetTicket, Error> {
        let told = || self.0.sync.core_reset(request.map);
        Ok(self.0.neuron.reset_with(request, told)?)
    }

    /// Attaches a new client. Waits while the device is in RESET.
    ///
    /// # Errors
    /// [`Error::TooManyClients`], [`Error::DeviceFailed`] (EINVAL), [`Error::Removed`].
    pub async fn open(&self) -> Result<Client<P>, Error> {
        self.open_with(OpenOptions::default()).await
    }

    /// Attaches a client that may be attached already, here or to another device. Waits also
    /// until an earlier attachment of this client is cleaned up.
    ///
    /// # Errors
    /// As [`Device::open`].
    pub async fn open_as(&self, client: ClientId) -> Result<Client<P>, Error> {
        self.open_with(OpenOptions { client: Some(client), ..OpenOptions::default() }).await
    }

    /// Attaches a client with fewer rights than the host has, as an appliance does for a tenant.
    ///
    /// # Errors
    /// As [`Device::open`], and [`Error::Gate`] (EACCES) without [`crate::Grant::Device`].
    pub async fn open_with(&self, options: OpenOptions) -> Result<Client<P>, Error> {
        let OpenOptions { client, grants } = options;
        let client = client.map_or_else(|| self.new_id(), Ok)?;
        let attachment = self.0.clients.open_with(client, self.granted(grants)).await?;
        let presence = self.0.driver.reservations.enter(client, Lane::Normal)?;
        Ok(Client::new(self.clone(), attachment, presence))
    }

    /// A client on the info lane: whatever the state, without an attach slot.
    ///
    /// # Errors
    /// [`Error::Removed`].
    pub fn open_info(&self) -> Result<InfoClient<P>, Error> {
        self.open_info_with(OpenOptions::default())
    }

    /// As [`Device::open_info`], for a certain client or with fewer rights.
    ///
    /// # Errors
    /// [`Error::Removed`]; [`Error::Gate`] (EACCES) without [`crate::Grant::Device`].
    pub fn open_info_with(&self, options: OpenOptions) -> Result<InfoClient<P>, Error> {
        let OpenOptions { client, grants } = options;
        let client = client.map_or_else(|| self.new_id(), Ok)?;
        let handle = self.0.clients.open_info(client, self.granted(grants))?;
        let presence = self.0.driver.reservations.enter(handle.client(), Lane::Info)?;
        Ok(InfoClient::new(self.clone(), handle, presence))
    }

    fn granted(&self, grants: Grants) -> Grants {
        self.0.driver.config.host.grants.and(grants)
    }

    fn new_id(&self) -> Result<ClientId, Error> {
        Ok(self.0.driver.ids.mint().ok_or(axon_clients::ClientError::NoIds)?)
    }

    pub(crate) fn table(&self) -> &Clients<Peers<P>> {
        &self.0.clients
    }

    /// Attached clients in slot order.
    pub fn clients(&self) -> Vec<ClientInfo> {
        let mut rows = [None; ClientSlot::COUNT];
        self.0.clients.list(&mut rows);
        rows.into_iter().flatten().collect()
    }

    /// Normal handles on the device, opens that wait included.
    pub fn open_count(&self) -> u32 {
        self.0.clients.open_count()
    }

    /// Reads the 32-bit register at `offset` of the register window.
    ///
    /// # Errors
    /// [`Error::Again`] in RESET, [`Error::DeviceFailed`] where INVALID,
    /// [`Error::InvalidArgument`] for an offset that is unaligned or outside,
    /// [`Error::DeviceGone`].
    pub fn read32(&self, offset: u64) -> Result<u32, Error> {
        self.0.neuron.check_ready()?;
        let value = self.0.neuron.read32(offset)?;
        let event = TraceEvent::BarRead { bar: 0, offset, value: value.into() };
        self.trace(event);
        Ok(value)
    }

    /// A trace point on behalf of a client.
    #[inline(always)]
    pub(crate) fn trace(&self, event: TraceEvent) {
        let neuron = &self.0.neuron;
        neuron.records().trace.emit(event, || neuron.platform().now());
    }

    /// Whether a trace point is on.
    #[inline]
    pub(crate) fn traces(&self, kind: TraceKind) -> bool {
        self.0.neuron.records().trace.is_on(kind)
    }

    /// A record of a call in the event ring, under the number of the Linux command that it
    /// replaces. assumed: what moves or allocates memory has trace points instead, which cost
    /// nothing while they are off.
    pub(crate) fn note_call(&self, client: ClientId, call: Call) {
        self.note(client, EventKind::Call, call.number());
    }

    /// A record in the event ring on behalf of a client.
    pub(crate) fn note(&self, client: ClientId, kind: EventKind, data: u64) {
        let neuron = &self.0.neuron;
        neuron.records().events.record(neuron.platform().now(), Some(client), kind, data);
    }

    /// The `reset` control of specification 05 §11.1: a whole-device reset that decides the state,
    /// for a device nobody has open.
    ///
    /// # Errors
    /// [`Error::Busy`] while clients are attached.
    pub fn reset(&self) -> Result<ResetTicket, Error> {
        if self.open_count() != 0 {
            return Err(Error::Busy { what: "the device" });
        }
        let request = ResetRequest { map: CoreMap::DEVICE, requester: Requester::Internal };
        self.submit_reset(request)
    }

    /// What [`Platform::cycles`] said when firmware was last asked for a reset.
    pub fn last_reset_trigger(&self) -> u64 {
        self.0.neuron.last_reset_trigger()
    }

    /// Whether the driver manages the notification queues of the device, or only programs their rings
    /// (06 §17.2).
    pub fn manages_notifications(&self) -> bool {
        self.0.neuron.manages_notifications()
    }

    /// What the driver did on the data path since the device came up.
    pub fn counters(&self) -> Counters {
        self.0.neuron.counters()
    }

    /// Live memory of one attached client.
    pub fn client_memory(&self, client: &ClientInfo) -> MemoryTotals {
        memory::client_totals(&self.0.memory, client.client, client.slot)
    }

    /// Totals of the memory service. `draining` includes what clients that are being cleaned up
    /// still have in flight.
    pub fn memory_totals(&self) -> MemoryTotals {
        let mut totals = memory::totals(&self.0.memory);
        totals.draining += self
            .clients()
            .iter()
            .filter(|info| info.closing)
            .map(|info| memory::pinned_bytes(&self.0.memory, info.client))
            .sum::<u64>();
        totals
    }

    /// How full arenas and reserve pools are.
    ///
    /// # Errors
    /// [`Error::Removed`].
    pub async fn memory_usage(&self) -> Result<Usage, Error> {
        Ok(self.0.memory.usage().await?)
    }

    /// Every device chunk of a channel by address, whoever owns it; an unknown channel has none.
    ///
    /// # Errors
    /// [`Error::Removed`].
    pub async fn chunks(&self, channel: u32) -> Result<Vec<ChunkLine>, Error> {
        Ok(self.0.memory.dump(channel, usize::MAX).await?)
    }

    /// As [`Device::chunks`], but nothing where there are more than `capacity` (DUMP_MEM_CHUNKS).
    ///
    /// # Errors
    /// [`Error::Driver`] (EAGAIN) with how many there are; [`Error::Removed`].
    pub async fn chunks_up_to(
        &self,
        channel: u32,
        capacity: usize,
    ) -> Result<Vec<ChunkLine>, Error> {
        Ok(self.0.memory.dump(channel, capacity).await?)
    }

    /// Every host chunk by address.
    ///
    /// # Errors
    /// [`Error::Removed`].
    pub async fn host_chunks(&self) -> Result<Vec<ChunkLine>, Error> {
        Ok(self.0.memory.dump_host(usize::MAX).await?)
    }
}
