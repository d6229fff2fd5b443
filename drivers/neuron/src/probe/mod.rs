//! The bring-up ladder of one function (specification 05 §4.2), and the table of devices.
//!
//! Every rung is a guard; a failure drops what was taken, in reverse, before the error is returned.
//! Bus mastering comes last, after all memory that the device may reach exists, so that on the way
//! down it goes off before any of that memory is freed.
//!
//! | rungs | taken by |
//! |---|---|
//! | D3 claim, D4 HAL, D5 decoding, D6 and D7 BARs, D8 mailbox memory | [`probe`] |
//! | D9 routing id, D10 place in the table, D11 reach of host memory | [`probe`] |
//! | D14, D15 handles and pools | the memory service, through `make_pools` |
//! | D16 datastore, D17 dummy ring, D18 fill buffer | [`probe`], from the pools |
//! | D13 engines, D20 bus mastering, D21 reset task, D24 visible, D25 first reset | [`Ladder::publish`] |

mod error;
mod identify;
mod pci;
mod table;

use alloc::string::String;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::future::Future;
use core::time::Duration;

use axon_platform::{BarInfo, Bdf, Caching, DmaBuf, MapError, MmioWindow, PciFunction, Platform};
use axon_ports::reset::{Requester, ResetRequest};
use axon_ports::telemetry::DeviceRecords;
use axon_ports::{
    AllocRequest, Chunk, CoreMap, DeviceIndex, MemoryError, MemoryGeometry, MemoryPort, Pin, Pools,
};

use crate::dma::{Dma, FillSource, completion};
use crate::shared::Shared;
use crate::{DeviceConfig, Hal, NeuronDevice, Window, notify, reset};

pub use error::{ProbeError, Rung};
pub use table::DeviceTable;

pub(crate) use pci::BusMaster;

use identify::Identified;
use pci::Decode;
use table::{Claim, Slot};

/// Bytes of each of the two buffers of the mailbox.
const MAILBOX_BYTES: u64 = 0x1_0000;
/// Bytes of the ring on which unused queues are parked: 64 descriptors.
const DUMMY_RING_BYTES: u64 = 64 * 16;
/// Bytes of one slab of the datastore.
const DATASTORE_SLAB_BYTES: u64 = 256 << 10;
/// A function needs this long after it left another power state.
const POWER_ON: Duration = Duration::from_millis(10);

/// A device with everything but its tasks: what [`probe`] hands over.
pub struct Probed<P: Platform, Q> {
    /// The pools, for the memory service to own from now on.
    pub pools: Q,
    /// The rungs taken; publish it, or drop it to give everything back.
    pub ladder: Ladder<P>,
}

/// A published device and the tasks that have to run for it.
pub struct Published<P: Platform, C, R, N> {
    /// Handle for everybody.
    pub device: NeuronDevice<P>,
    /// Sweeps markers and rings doorbells; spawn it as `completion`.
    pub completion: C,
    /// Drives resets, the first one included; spawn it as `reset`.
    pub reset: R,
    /// Polls for notifications, semaphores and events; spawn it as `notify`.
    pub notify: N,
}

/// The rungs taken so far; dropping it gives them back in reverse order.
pub struct Ladder<P: Platform> {
    platform: P,
    function: P::Function,
    hal: Hal,
    index: DeviceIndex,
    identified: Identified,
    fill: FillSource,
    records: Arc<DeviceRecords>,
    rungs: Rungs<P>,
    manage_notifications: bool,
}

/// What is held as long as the device lives, in the order in which it is given back.
pub(crate) struct Rungs<P: Platform> {
    /// Slabs of the datastore.
    pub datastore: Vec<Chunk>,
    /// Ring on which unused queues are parked.
    pub dummy_ring: (Chunk, Pin),
    pub slot: Slot,
    /// Request and response buffer of the legacy mailbox.
    pub mailbox: [DmaBuf; 2],
    pub memory_window: Option<Window<P>>,
    pub registers: Window<P>,
    _decode: Decode<P::Function>,
    _claim: Claim,
}

/// Climbs rungs D3 to D18 for one function.
///
/// `make_pools` makes the memory pools of the device (rungs D14 and D15); the ladder takes its own
/// memory from them.
///
/// # Errors
/// [`ProbeError`] says which rung failed and why; everything below it has been given back.
pub async fn probe<P, Q>(
    platform: &P,
    function: &P::Function,
    config: &DeviceConfig,
    table: &DeviceTable,
    make_pools: impl FnOnce(&MemoryGeometry) -> Result<Q, MemoryError>,
) -> Result<Probed<P, Q>, ProbeError>
where
    P: Platform,
    Q: Pools,
{
    let bdf = function.bdf();
    let claim = table.claim(bdf)?;
    let mut hal = make_hal(platform, function, config)?;
    if pci::power_on(function) {
        platform.sleep(POWER_ON).await;
    }
    let decode = Decode::switch_on(function)?;
    let registers = map_registers(function, &hal)?;
    let memory_window = map_memory_window(function, &hal, config);
    if memory_window.is_none() {
        hal = hal.without_memory_window();
    }
    let mailbox = [mailbox_buffer(platform)?, mailbox_buffer(platform)?];
    let identified =
        identify::identify(platform, &registers, &hal, config.routing_id_deadline).await?;
    let (slot, index) = reserve(table, bdf, &hal, &identified)?;
    check_reach(&hal, &mailbox)?;

    let mut pools = make_pools(&hal.memory_geometry())
        .map_err(|reason| ProbeError::Memory { rung: Rung(15), reason })?;
    let datastore = take_datastore(&mut pools, config)?;
    let dummy_ring = take_dummy_ring(&mut pools)?;
    let fill = take_fill_source(&mut pools, &hal)?;
    let records = DeviceRecords::new(index, CoreMap(hal.core_map()))
        .map_err(|_| ProbeError::NoRecords { rung: Rung(16) })?;
    let rungs = Rungs {
        datastore,
        dummy_ring,
        slot,
        mailbox,
        memory_window,
        registers,
        _decode: decode,
        _claim: claim,
    };
    let ladder = Ladder {
        platform: platform.clone(),
        function: function.clone(),
        hal,
        index,
        identified,
        fill,
        records,
        rungs,
        manage_notifications: config.manage_notifications,
    };
    Ok(Probed { pools, ladder })
}

fn make_hal<P: Platform>(
    platform: &P,
    function: &P::Function,
    config: &DeviceConfig,
) -> Result<Hal, ProbeError> {
    let (vendor, device, revision) = pci::identity(function);
    if vendor == u16::MAX {
        return Err(ProbeError::DeviceGone);
    }
    if vendor != crate::hal::identity::VENDOR {
        return Err(ProbeError::WrongId { vendor, device });
    }
    let name: Option<String> = platform.product_name();
    let bar4_len = memory_bar(function).map_or(0, |bar| bar.len_bytes);
    Hal::new(device, revision, name.as_deref(), config, bar4_len).map_err(|error| match error {
        crate::hal::HalError::UnknownDevice { .. } => ProbeError::WrongId { vendor, device },
        error => ProbeError::Configuration(error),
    })
}

fn memory_bar<F: PciFunction>(function: &F) -> Option<BarInfo> {
    function.bar(4).filter(|bar| bar.address != 0 && bar.len_bytes != 0)
}

/// Rung D6. A window that ends before the last register is refused before anything is mapped.
fn map_registers<F: PciFunction>(function: &F, hal: &Hal) -> Result<F::Window, ProbeError> {
    let bar = hal.register_bar();
    let info = function.bar(bar).filter(|info| info.len_bytes != 0);
    let info = info.ok_or(ProbeError::BarAbsent { bar })?;
    if info.address == 0 {
        return Err(ProbeError::BarUnassigned { bar });
    }
    let needed = hal.tables().map.register_len;
    if info.len_bytes < needed {
        return Err(ProbeError::BarTooShort { bar, len_bytes: info.len_bytes, needed });
    }
    let window = function.map_bar(bar, Caching::Uncached).map_err(|reason| match reason {
        MapError::Absent => ProbeError::BarAbsent { bar },
        MapError::Unassigned => ProbeError::BarUnassigned { bar },
        reason => ProbeError::BarNotMapped { bar, reason },
    })?;
    if window.len_bytes() < needed {
        return Err(ProbeError::BarTooShort { bar, len_bytes: window.len_bytes(), needed });
    }
    Ok(window)
}

/// Rung D7: a device without a memory window works by DMA alone.
fn map_memory_window<F: PciFunction>(
    function: &F,
    hal: &Hal,
    config: &DeviceConfig,
) -> Option<F::Window> {
    memory_bar(function)?;
    let caching = if config.wc_enable { Caching::WriteCombining } else { Caching::Uncached };
    match function.map_bar(hal.memory_bar(), caching) {
        Ok(window) => Some(window),
        Err(reason) => {
            log::warn!("{}: no memory window: {reason}", function.bdf());
            None
        }
    }
}

fn mailbox_buffer<P: Platform>(platform: &P) -> Result<DmaBuf, ProbeError> {
    platform.alloc_dma(MAILBOX_BYTES, 4096).map_err(ProbeError::HostMemory)
}

/// Rung D10.
fn reserve(
    table: &DeviceTable,
    bdf: Bdf,
    hal: &Hal,
    identified: &Identified,
) -> Result<(Slot, DeviceIndex), ProbeError> {
    let routing_id = identified.routing_id;
    let index = hal.device_index(routing_id).ok_or(ProbeError::RoutingIdOutOfRange {
        routing_id: routing_id.number(),
        limit: hal.routing_id_limit(),
    })?;
    Ok((table.reserve(bdf, routing_id, index)?, index))
}

/// Rung D11: the machine hands out memory that the device can name.
fn check_reach(hal: &Hal, buffers: &[DmaBuf]) -> Result<(), ProbeError> {
    for buffer in buffers {
        if hal.host_address(buffer.bus(), buffer.len_bytes()).is_err() {
            let limit = hal.tables().map.host_base;
            return Err(ProbeError::HostUnreachable { address: buffer.bus().0, limit });
        }
    }
    Ok(())
}

fn take<Q: Pools>(pools: &mut Q, bytes: u64, rung: Rung) -> Result<Chunk, ProbeError> {
    pools
        .alloc(&AllocRequest::driver_host(bytes))
        .map_err(|reason| ProbeError::Memory { rung, reason })
}

/// Rung D16.
fn take_datastore<Q: Pools>(
    pools: &mut Q,
    config: &DeviceConfig,
) -> Result<Vec<Chunk>, ProbeError> {
    let count = usize::from(config.datastore_slabs);
    let mut slabs = Vec::new();
    let room = slabs.try_reserve_exact(count);
    room.map_err(|_| ProbeError::NoRecords { rung: Rung(16) })?;
    for _ in 0..count {
        let slab = take(pools, DATASTORE_SLAB_BYTES, Rung(16))?;
        if let Some(host) = slab.host() {
            let cleared = host.fill(0, DATASTORE_SLAB_BYTES, 0);
            cleared.map_err(|_| ProbeError::NoRecords { rung: Rung(16) })?;
        }
        slabs.push(slab);
    }
    Ok(slabs)
}

/// Rung D17.
fn take_dummy_ring<Q: Pools>(pools: &mut Q) -> Result<(Chunk, Pin), ProbeError> {
    let rung = Rung(17);
    let chunk = take(pools, DUMMY_RING_BYTES, rung)?;
    let cleared = chunk.host().is_some_and(|host| host.fill(0, DUMMY_RING_BYTES, 0).is_ok());
    match chunk.pin() {
        Some(pin) if cleared => Ok((chunk, pin)),
        _ => Err(ProbeError::NoRecords { rung }),
    }
}

/// Rung D18.
fn take_fill_source<Q: Pools>(pools: &mut Q, hal: &Hal) -> Result<FillSource, ProbeError> {
    let rung = Rung(18);
    let chunk = take(pools, FillSource::BYTES, rung)?;
    FillSource::new(chunk, hal).map_err(|_| ProbeError::NoRecords { rung })
}

impl<P: Platform> Ladder<P> {
    /// What is known about the device without touching it.
    pub fn hal(&self) -> &Hal {
        &self.hal
    }

    /// Public number of the device.
    pub fn index(&self) -> DeviceIndex {
        self.index
    }

    /// Climbs the last rungs: bus mastering on, device visible, first reset queued.
    ///
    /// # Errors
    /// [`ProbeError`]; everything has been given back.
    pub fn publish<M: MemoryPort>(
        self,
        memory: M,
    ) -> Result<
        Published<
            P,
            impl Future<Output = ()> + Send + 'static,
            impl Future<Output = ()> + Send + 'static,
            impl Future<Output = ()> + Send + 'static,
        >,
        ProbeError,
    > {
        let bus_master = BusMaster::switch_on(&self.function)?;
        let shared = Arc::new(Shared::new(
            self.platform,
            self.hal,
            self.function.bdf(),
            self.index,
            self.identified.routing_id,
            self.identified.server_id,
            bus_master,
            self.fill,
            self.records,
            self.rungs,
            self.manage_notifications,
        ));
        shared.rungs.slot.set_visible(true);
        let device = NeuronDevice::new(Dma(shared.clone()));
        let first = ResetRequest { map: CoreMap::DEVICE, requester: Requester::Internal };
        // The outcome shows in the device state; nobody waits for this request.
        drop(device.reset(first).map_err(|_| ProbeError::NoRecords { rung: Rung::FIRST_RESET })?);
        Ok(Published {
            device,
            completion: completion::run(shared.clone()),
            notify: notify::run(shared.clone()),
            reset: reset::run(shared, memory),
        })
    }
}
