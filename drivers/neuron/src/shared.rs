//! What the tasks of one device and its handles share.

use alloc::sync::Arc;
use core::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use axon_platform::{Bdf, MmioWindow, Platform};
use axon_ports::reset::DeviceState;
use axon_ports::{ClientId, CoreId, DeviceIndex, RoutingId};
use embassy_sync::waitqueue::AtomicWaker;

use axon_ports::telemetry::{DeviceRecords, EventKind};

use crate::dma::{FillSource, Links, Outcome, Port, PortCell, Queues, Ring};
use crate::fwio::Mailbox;
use crate::notify::Notifications;
use crate::probe::{BusMaster, Rungs};
use crate::registers::misc_ram;
use crate::reset::{ResetQueue, ResetWatch};
use crate::state::CoreState;
use crate::state::States;
use crate::{CancelCause, Error, Hal, Window};

/// Host-transfer queues a device can have: 4 engines with 16 each.
pub(crate) const PORTS: usize = 64;

/// One device. Fields are dropped in the order of the tear-down ladder: bus mastering goes off
/// with [`Rungs`] only after the rings are unreachable, and before any memory is freed.
pub(crate) struct Shared<P: Platform> {
    pub platform: P,
    pub hal: Hal,
    pub bdf: Bdf,
    pub index: DeviceIndex,
    pub routing_id: RoutingId,
    pub server_id: Option<u16>,
    pub registers: Window<P>,
    pub states: States,
    pub resets: Arc<ResetQueue>,
    /// What everybody counts and notes about the device.
    pub records: Arc<DeviceRecords>,
    pub notifications: Notifications,
    /// The tasks have to end.
    stopped: AtomicBool,
    /// The function answers all-ones.
    gone: AtomicBool,
    /// Wakes the completion task.
    pub work: AtomicWaker,
    /// Ports with something staged since the last turn of the completion task.
    pub dirty: AtomicU64,
    /// Ports with batches in quarantine.
    pub quarantine: AtomicU64,
    /// Registers read because of a batch.
    pub data_path_reads: AtomicU64,
    /// Default port of each core; [`PORTS`] for none.
    default_ports: [u8; CoreId::COUNT],
    /// Switches bus mastering off before the memory below is freed.
    pub bus_master: BusMaster<P::Function>,
    pub mailbox: Mailbox,
    pub ports: [PortCell; PORTS],
    /// Queues that clients have.
    pub queues: Queues,
    /// Links to neighbouring nodes.
    pub links: Links,
    /// Who has to let go before a reset.
    pub reset_watch: ResetWatch,
    pub fill: FillSource,
    pub rungs: Rungs<P>,
}

/// Default port of each core. A core number that the device does not have is served by the last
/// engine of the silicon where one of its cores is there, else by the first core (04 MEM-E09).
fn default_ports(hal: &Hal) -> [u8; CoreId::COUNT] {
    let port = |core| {
        let (engine, queue) = hal.host_transfer(core)?;
        let local = hal.host_transfer_number(engine.id)?;
        Some(port_number(local, queue.number()) as u8)
    };
    let present = |wanted: u8| hal.core_ids().any(|core| port(core) == Some(wanted));
    let first = hal.core_ids().next().and_then(port).unwrap_or(PORTS as u8);
    let mut ports = [first; CoreId::COUNT];
    for (place, core) in ports.iter_mut().zip(CoreId::all()) {
        if let Some(port) = port(core).filter(|&port| present(port)) {
            *place = port;
        }
    }
    ports
}

/// Number of the port of a host-transfer queue.
pub(crate) fn port_number(host_engine: u8, queue: u32) -> usize {
    usize::from(host_engine) * 16 + queue as usize
}

/// Bits of a set, lowest first.
#[inline]
pub(crate) fn bits(mut set: u64) -> impl Iterator<Item = usize> {
    core::iter::from_fn(move || {
        if set == 0 {
            return None;
        }
        let bit = set.trailing_zeros();
        set &= set - 1;
        Some(bit as usize)
    })
}

impl<P: Platform> Shared<P> {
    #[allow(clippy::too_many_arguments)] // the rungs of the ladder, once
    pub fn new(
        platform: P,
        hal: Hal,
        bdf: Bdf,
        index: DeviceIndex,
        routing_id: RoutingId,
        server_id: Option<u16>,
        bus_master: BusMaster<P::Function>,
        fill: FillSource,
        records: Arc<DeviceRecords>,
        rungs: Rungs<P>,
        manage_notifications: bool,
    ) -> Self {
        Shared {
            default_ports: default_ports(&hal),
            platform,
            hal,
            bdf,
            index,
            routing_id,
            server_id,
            registers: rungs.registers.clone(),
            states: States::new(),
            resets: Arc::new(ResetQueue::new()),
            notifications: Notifications::new(manage_notifications, records.clone()),
            stopped: AtomicBool::new(false),
            gone: AtomicBool::new(false),
            work: AtomicWaker::new(),
            dirty: AtomicU64::new(0),
            quarantine: AtomicU64::new(0),
            data_path_reads: AtomicU64::new(0),
            bus_master,
            records,
            mailbox: Mailbox::new(rungs.mailbox.clone()),
            ports: core::array::from_fn(|_| PortCell::new(Port::in_reset())),
            queues: Queues::new(),
            links: Links::new(),
            reset_watch: ResetWatch::new(),
            fill,
            rungs,
        }
    }

    /// Default port of a core; not a valid index where the device has no such core.
    #[inline]
    pub fn default_port(&self, core: CoreId) -> u8 {
        self.default_ports.get(core.index()).copied().unwrap_or(PORTS as u8)
    }

    /// Tells the completion task that something was staged on a port.
    #[inline]
    pub fn mark_dirty(&self, port: u8) {
        let bit = 1 << (port % 64);
        if self.dirty.fetch_or(bit, Ordering::AcqRel) & bit == 0 {
            self.work.wake();
        }
    }

    /// Batches of a ring that have read the fill buffer, and have ended, no longer keep it from the
    /// fills that wait for it.
    #[inline(always)]
    pub(crate) fn release_fill(&self, ring: &mut Ring) {
        let over = core::mem::take(&mut ring.fill_reads_over);
        if over != 0 {
            self.fill.release(over);
        }
    }

    /// Writes a record into the event ring.
    pub fn note(&self, client: Option<ClientId>, kind: EventKind, data: u64) {
        self.records.events.record(self.platform.now(), client, kind, data);
    }

    /// Whether something was staged, or the device is stopped.
    #[inline]
    pub fn has_work(&self) -> bool {
        self.dirty.load(Ordering::Acquire) != 0 || self.is_stopped()
    }

    /// Whether the tasks have to end.
    #[inline]
    pub fn is_stopped(&self) -> bool {
        self.stopped.load(Ordering::Acquire)
    }

    /// Tells the tasks to end.
    pub fn stop(&self) {
        self.stopped.store(true, Ordering::Release);
        self.work.wake();
        self.resets.wake();
        self.reset_watch.call();
        self.mailbox.call_all();
        self.notifications.call_everybody();
    }

    /// Fails where the device cannot be touched any more.
    ///
    /// # Errors
    /// [`Error::DeviceGone`], [`Error::Removed`].
    pub fn check_alive(&self) -> Result<(), Error> {
        if self.gone.load(Ordering::Acquire) {
            return Err(Error::DeviceGone);
        }
        if self.is_stopped() { Err(Error::Removed) } else { Ok(()) }
    }

    /// Fails where the hardware cannot be used now, for what does not wait (05 §6).
    ///
    /// # Errors
    /// [`Error::Again`] in RESET, [`Error::DeviceFailed`], [`Error::DeviceGone`],
    /// [`Error::Removed`].
    #[inline]
    pub fn check_ready(&self) -> Result<(), Error> {
        self.check_alive()?;
        match self.states.device() {
            DeviceState::Ready => Ok(()),
            DeviceState::Reset => Err(Error::Again { what: "the device is in RESET" }),
            DeviceState::Invalid => Err(Error::DeviceFailed),
        }
    }

    /// Whether a call that does not wait may touch the hardware of a core.
    ///
    /// # Errors
    /// [`Error::Again`] in a reset, [`Error::CoreDown`], [`Error::DeviceFailed`],
    /// [`Error::DeviceGone`], [`Error::Removed`].
    pub(crate) fn check_open(&self, core: CoreId) -> Result<(), Error> {
        self.check_alive()?;
        if self.states.is_open(core) {
            return Ok(());
        }
        match (self.states.device(), self.states.core(core)) {
            (DeviceState::Invalid, _) => Err(Error::DeviceFailed),
            (DeviceState::Ready, CoreState::Down) => Err(Error::CoreDown { core }),
            _ => Err(Error::Again { what: "the core is in reset" }),
        }
    }

    /// Reads a word of MiscRAM; all-ones is looked into (01 §5).
    ///
    /// # Errors
    /// [`Error::DeviceGone`].
    pub fn misc_ram(&self, offset: u64) -> Result<u32, Error> {
        let base = self.hal.tables().map.misc_ram;
        let value = self.registers.read32(base + offset);
        if value == misc_ram::ALL_ONES
            && self.registers.read32(base + misc_ram::DEVICE_ID) == misc_ram::ALL_ONES
        {
            self.device_gone();
            return Err(Error::DeviceGone);
        }
        Ok(value)
    }

    /// The function answers all-ones: tells every waiter, refuses all work from now on.
    pub fn device_gone(&self) {
        if self.gone.swap(true, Ordering::AcqRel) {
            return;
        }
        log::error!("{} ({}): the device answers all-ones", self.index, self.bdf);
        self.notifications.quarantine(self.platform.now());
        self.end_everything(Error::DeviceGone, Outcome::Gone);
    }

    /// The device is being removed: as above, with another reason.
    pub fn remove(&self) {
        self.end_everything(Error::Removed, Outcome::Cancelled(CancelCause::Removal));
    }

    fn end_everything(&self, refusal: Error, outcome: Outcome) {
        self.states.set_device(DeviceState::Invalid);
        self.mailbox.call_all();
        self.notifications.end_waits(refusal);
        for (number, cell) in self.ports.iter().enumerate() {
            cell.with(|port| {
                port.set_refused(Some(refusal));
                if let Some(ring) = port.ring() {
                    ring.end_all(outcome);
                    self.release_fill(ring);
                    if ring.quarantined() > 0 {
                        self.quarantine.fetch_or(1 << number, Ordering::AcqRel);
                    }
                }
            });
        }
    }
}
