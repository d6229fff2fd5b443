//! The shared handle of one device: identity, state, registers, resets.

use alloc::sync::Arc;
use core::future::Future;
use core::time::Duration;

use axon_platform::{Bdf, DeviceAddr, MmioWindow, PciFunction, Platform};
use axon_ports::reset::{DeviceState, Requester, ResetRequest};
use axon_ports::telemetry::{DeviceRecords, EventKind};
use axon_ports::{Chunk, ClientId, CoreId, DeviceIndex, RoutingId};

use crate::dma::engine;
use crate::registers::misc_ram;
use crate::reset::ResetTicket;
use crate::shared::Shared;
use crate::state::CoreState;
use crate::{DeviceTable, Dma, Error, Hal, notify};

/// A mapped BAR on platform `P`.
pub type Window<P> = <<P as Platform>::Function as PciFunction>::Window;

/// Time from switching bus mastering off until memory may be freed.
const MASTER_OFF: Duration = Duration::from_millis(1);
/// Time for engines to stop behind their current packet.
const ENGINES_OFF: Duration = Duration::from_millis(10);

/// What the driver has done on the data path since the device came up.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Counters {
    /// Doorbell writes, both sides.
    pub doorbells: u64,
    /// Registers read because of a batch; stays 0 unless one is late.
    pub register_reads: u64,
    /// Descriptors staged on one side, markers included.
    pub descriptors: u64,
    /// Batches staged.
    pub batches: u64,
    /// Bytes of finished batches.
    pub bytes: u64,
    /// Batches whose marker was seen.
    pub completed: u64,
    /// Rings that faulted because of a deadline.
    pub timeouts: u64,
    /// Rings that faulted because of an abort.
    pub aborts: u64,
    /// Batches ended by a reset, a fault of a neighbour, or a removal.
    pub cancelled: u64,
    /// Batches issued again after a reset.
    pub replays: u64,
    /// Batches whose memory is in quarantine now.
    pub quarantined: u64,
}

/// One device. Clones are handles on the same device.
pub struct NeuronDevice<P: Platform>(Dma<P>);

impl<P: Platform> Clone for NeuronDevice<P> {
    fn clone(&self) -> Self {
        NeuronDevice(self.0.clone())
    }
}

impl<P: Platform> NeuronDevice<P> {
    pub(crate) fn new(dma: Dma<P>) -> Self {
        NeuronDevice(dma)
    }

    #[inline]
    pub(crate) fn shared(&self) -> &Shared<P> {
        &self.0.0
    }

    /// What is known about the device without touching it.
    #[inline]
    pub fn hal(&self) -> &Hal {
        &self.shared().hal
    }

    /// The machine it is in.
    #[inline]
    pub fn platform(&self) -> &P {
        &self.shared().platform
    }

    /// Where the function sits.
    pub fn bdf(&self) -> Bdf {
        self.shared().bdf
    }

    /// Public number.
    #[inline]
    pub fn index(&self) -> DeviceIndex {
        self.shared().index
    }

    /// Firmware's number.
    pub fn routing_id(&self) -> RoutingId {
        self.shared().routing_id
    }

    /// Number of the server in a switched pod.
    pub fn server_id(&self) -> Option<u16> {
        self.shared().server_id
    }

    /// The table the device is in.
    pub fn table(&self) -> &DeviceTable {
        self.shared().rungs.slot.table()
    }

    /// What everybody counts, notes and traces about the device.
    #[inline]
    pub fn records(&self) -> &Arc<DeviceRecords> {
        &self.shared().records
    }

    /// The DMA side.
    #[inline]
    pub fn dma(&self) -> &Dma<P> {
        &self.0
    }

    /// Current state.
    pub fn state(&self) -> DeviceState {
        self.shared().states.device()
    }

    /// Why the last reset of the whole device failed; `None` where it did not. After bring-up this
    /// is the failure of rung D25.
    pub fn failure(&self) -> Option<Error> {
        self.shared().states.failure()
    }

    /// Resolves when the device is READY or INVALID; at once if it already is.
    pub fn settled(&self) -> impl Future<Output = DeviceState> + Send + 'static {
        let shared = self.0.0.clone();
        async move { shared.states.wait(|state| state != DeviceState::Reset).await }
    }

    /// Whether the hardware can be used now, for what does not wait (specification 05 §6).
    ///
    /// # Errors
    /// [`Error::Again`] in RESET, [`Error::DeviceFailed`], [`Error::DeviceGone`],
    /// [`Error::Removed`].
    pub fn check_ready(&self) -> Result<(), Error> {
        self.shared().check_ready()
    }

    /// As [`NeuronDevice::check_ready`], for what waits while the device is in RESET.
    ///
    /// # Errors
    /// As there but for [`Error::Again`].
    pub async fn ready(&self) -> Result<(), Error> {
        loop {
            match self.check_ready() {
                Err(Error::Again { .. }) => self.settled().await,
                result => return result,
            };
        }
    }

    /// Resolves with the first state that differs from `seen`.
    pub fn state_changed(
        &self,
        seen: DeviceState,
    ) -> impl Future<Output = DeviceState> + Send + 'static {
        let shared = self.0.0.clone();
        async move { shared.states.wait(|state| state != seen).await }
    }

    /// State of a core.
    pub fn core_state(&self, core: CoreId) -> CoreState {
        self.shared().states.core(core)
    }

    /// Number of reset drives that have covered a core: what was made under another number is
    /// stale (specification 05 §6).
    pub fn core_epoch(&self, core: CoreId) -> u32 {
        self.shared().states.epoch(core)
    }

    /// Reads the 32-bit register at `offset` of the register window.
    ///
    /// # Errors
    /// [`Error::InvalidArgument`] for an offset that is unaligned or outside,
    /// [`Error::DeviceGone`], [`Error::Removed`].
    pub fn read32(&self, offset: u64) -> Result<u32, Error> {
        let shared = self.shared();
        shared.hal.check_register(offset, shared.registers.len_bytes())?;
        shared.check_alive()?;
        // All-ones in a word of firmware may mean that nobody is there (01 §5); elsewhere it is data.
        let word = offset.checked_sub(shared.hal.tables().map.misc_ram);
        match word.filter(|word| *word < misc_ram::LEN) {
            Some(word) => shared.misc_ram(word),
            None => Ok(shared.registers.read32(offset)),
        }
    }

    /// Writes the 32-bit register at `offset`, for a client.
    ///
    /// # Errors
    /// [`Error::InvalidArgument`], [`Error::RegisterDenied`] (specification 01 §3.11),
    /// [`Error::DeviceGone`], [`Error::Removed`].
    pub fn write32(&self, offset: u64, value: u32) -> Result<(), Error> {
        let shared = self.shared();
        shared.hal.check_register_write(offset, shared.registers.len_bytes())?;
        shared.check_alive()?;
        shared.registers.write32(offset, value);
        Ok(())
    }

    /// Window onto HBM, where the function has one. What it shows: [`Hal::memory_window_offset`].
    pub fn memory_window(&self) -> Option<&Window<P>> {
        self.shared().rungs.memory_window.as_ref()
    }

    /// Writes `data` to HBM with the CPU, through the memory window: complete, and in front of every
    /// later doorbell, when this returns. Not ordered with DMA in flight (specification 03 §11.5).
    ///
    /// The caller has checked and holds the range; `core` is the one that the memory counts for.
    ///
    /// # Errors
    /// [`Error::InvalidArgument`] for an address or a length that is no multiple of 4,
    /// [`Error::TooBig`] above 8192 bytes, [`Error::NoMemoryWindow`] where the window does not show
    /// the range, [`Error::Again`] while device or core are in reset, [`Error::CoreDown`],
    /// [`Error::DeviceFailed`], [`Error::DeviceGone`], [`Error::Removed`]. Nothing was written.
    #[inline]
    pub fn write_memory_window(
        &self,
        core: CoreId,
        address: DeviceAddr,
        data: &[u8],
    ) -> Result<(), Error> {
        let shared = self.shared();
        let len = data.len() as u64;
        let fits = (address.0 | len).is_multiple_of(4) && len <= Hal::MEMORY_WINDOW_LIMIT.into();
        if !fits || !shared.hal.allows_memory_window_writes() || !shared.states.is_open(core) {
            return Err(self.memory_window_refusal(core, address, len));
        }
        let offset = shared.hal.memory_window_offset(address, len)?;
        match &shared.rungs.memory_window {
            Some(window) if window.write_bytes(offset, data) => {
                shared.platform.write_barrier();
                Ok(())
            }
            _ => Err(Error::NoMemoryWindow { address, len_bytes: len, window: 0 }),
        }
    }

    #[cold]
    fn memory_window_refusal(&self, core: CoreId, address: DeviceAddr, len: u64) -> Error {
        let limit = u64::from(Hal::MEMORY_WINDOW_LIMIT);
        if len > limit {
            let what = "length of a write through the memory window";
            return Error::TooBig { what, value: len, limit: limit + 1 };
        }
        if !len.is_multiple_of(4) {
            let what = "length of a write through the memory window";
            return Error::InvalidArgument { what, value: len };
        }
        if !address.0.is_multiple_of(4) {
            let what = "address of a write through the memory window";
            return Error::InvalidArgument { what, value: address.0 };
        }
        match self.shared().check_open(core) {
            Err(error) => error,
            Ok(()) => Error::NoMemoryWindow { address, len_bytes: len, window: 0 },
        }
    }

    /// Whether a slice of `len` bytes at `address` is written through the memory window rather than
    /// by DMA.
    #[inline]
    pub fn prefers_memory_window(&self, core: CoreId, address: DeviceAddr, len: u64) -> bool {
        let shared = self.shared();
        len <= shared.hal.memory_window_limit()
            && (address.0 | len).is_multiple_of(4)
            && shared.hal.memory_window_offset(address, len).is_ok()
            && shared.states.is_open(core)
    }

    /// Slabs of the datastore, zeroed, as many as [`crate::DeviceConfig::datastore_slabs`] says.
    pub fn datastore(&self) -> &[Chunk] {
        &self.shared().rungs.datastore
    }

    /// Length of the register window in bytes.
    pub fn register_window_len(&self) -> u64 {
        self.shared().registers.len_bytes()
    }

    /// Asks for a reset. A request of the driver itself puts the device into RESET at once.
    ///
    /// # Errors
    /// [`Error::InvalidArgument`] for an empty or foreign core map, [`Error::Busy`] for the 17th
    /// uncollected request of a client, [`Error::DeviceGone`], [`Error::Removed`]. Nothing has been
    /// touched.
    pub fn reset(&self, request: ResetRequest) -> Result<ResetTicket, Error> {
        self.reset_with(request, || {})
    }

    /// As [`NeuronDevice::reset`]; `accepted` is called once nothing stands in the way of the request
    /// any more, before its drive begins: whoever must hear of it wakes first.
    ///
    /// # Errors
    /// As there; then `accepted` was not called.
    pub fn reset_with(
        &self,
        request: ResetRequest,
        accepted: impl FnOnce(),
    ) -> Result<ResetTicket, Error> {
        let shared = self.shared();
        shared.hal.check_reset(request.map)?;
        shared.check_alive()?;
        let ticket = shared.resets.submit(request)?;
        shared.records.counters.resets.requested(request.map);
        let client = match request.requester {
            Requester::Internal => None,
            Requester::Client(client) => Some(client),
        };
        shared.note(client, EventKind::ResetRequested, request.map.0.into());
        if request.requester == Requester::Internal && request.map.is_device() {
            shared.states.set_device(DeviceState::Reset);
        }
        let cores = shared.hal.core_ids().filter(|&core| request.map.contains(core));
        shared.states.set_cores(cores, CoreState::Resetting);
        accepted();
        // Last: of the tasks that are woken in one turn the last one runs first.
        shared.resets.wake();
        Ok(ticket)
    }

    /// Resolves once no reset request of `client` waits or runs.
    pub fn resets_settled(&self, client: ClientId) -> impl Future<Output = ()> + Send + 'static {
        self.shared().resets.clone().settled(client)
    }

    /// What [`Platform::cycles`] said when firmware was last asked for a reset: how long a request
    /// takes to get there is a promise.
    pub fn last_reset_trigger(&self) -> u64 {
        self.shared().resets.last_trigger()
    }

    /// Whether the driver manages the notification queues of the device (06 §17.2).
    pub fn manages_notifications(&self) -> bool {
        self.shared().notifications.are_managed()
    }

    /// What has been done on the data path.
    pub fn counters(&self) -> Counters {
        self.0.counters()
    }

    /// Takes the device down: waiters are told, tasks end, engines stop, bus mastering goes off
    /// (specification 05 §5 T2 to T8). The rest is given back when the last handle is dropped.
    pub async fn shut_down(&self) {
        let shared = self.shared();
        shared.rungs.slot.set_visible(false);
        shared.remove();
        let gone = shared.check_alive() == Err(Error::DeviceGone);
        shared.stop();
        if !gone {
            notify::before_removal(shared).await;
            for engine in shared.hal.present_engines() {
                engine::disable(&shared.registers, engine.unit);
            }
            shared.platform.sleep(ENGINES_OFF).await;
        }
        shared.bus_master.switch_off();
        shared.platform.sleep(MASTER_OFF).await;
        self.0.release_quarantine();
        shared.notifications.release_all();
    }
}
