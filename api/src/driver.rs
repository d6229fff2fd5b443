//! Bring-up of every Neuron function of the machine, side by side.

use alloc::sync::Arc;
use alloc::vec::Vec;
use core::cell::RefCell;
use core::future::poll_fn;
use core::task::Poll;
use core::time::Duration;

use axon_clients::ClientIds;
use axon_clients::gates::Grants;
use axon_clients::reservation::Reservations;
use axon_neuron::{DeviceConfig, DeviceTable};
use axon_platform::{Bdf, Errno, PciFunction, Platform};
use axon_pod::{ControlBits, Pod, PodConfig};
use axon_ports::marks::Marks;
use axon_telemetry::TelemetryConfig;
use axon_telemetry::datastore::SLABS;
use embassy_sync::blocking_mutex::Mutex;
use embassy_sync::blocking_mutex::raw::CriticalSectionRawMutex;
use embassy_sync::waitqueue::MultiWakerRegistration;

use crate::memory::reserve_bytes;
use crate::pod::HostPod;
use crate::{Device, Error, Topology};

/// PCI vendor of every Neuron function.
const VENDOR: u16 = axon_neuron::hal::identity::VENDOR;

/// All devices of the machine. Clones are handles on the same ones.
pub struct Driver<P: Platform>(Arc<Inner<P>>);

impl<P: Platform> Clone for Driver<P> {
    fn clone(&self) -> Self {
        Driver(self.0.clone())
    }
}

/// What may be chosen for all devices of a machine.
#[derive(Clone, Debug, Default)]
pub struct DriverConfig {
    /// The devices.
    pub device: DeviceConfig,
    /// Their telemetry; `None` for none, and no poster.
    pub telemetry: Option<TelemetryConfig>,
    /// The host as a whole.
    pub host: HostConfig,
    /// Functions that say themselves that they are emulated have their notification queues managed,
    /// whatever [`DeviceConfig::manage_notifications`] says for the others.
    pub manage_emulated: bool,
}

/// What may be chosen for the host as a whole (specification 05 §8.1, §14.4, §16.3, §16.9).
#[derive(Clone, Copy, Debug)]
pub struct HostConfig {
    /// Cores that one client may reserve.
    pub core_quota: u32,
    /// What clients may do at most; [`crate::OpenOptions`] gives single ones less (§8.1).
    pub grants: Grants,
    /// How elections are held: `userver_ctl`.
    pub pod_control: ControlBits,
    /// After that an election gives up: `userver_etimeout`.
    pub pod_timeout: Duration,
}

impl Default for HostConfig {
    fn default() -> Self {
        HostConfig {
            core_quota: Reservations::DEFAULT_QUOTA,
            grants: Grants::ALL,
            pod_control: ControlBits(0),
            pod_timeout: PodConfig::DEFAULT_TIMEOUT,
        }
    }
}

impl DriverConfig {
    /// Everything on, with the usual values.
    pub fn full() -> Self {
        DriverConfig {
            device: DeviceConfig::default(),
            telemetry: Some(TelemetryConfig::default()),
            host: HostConfig::default(),
            manage_emulated: false,
        }
    }
}

impl From<DeviceConfig> for DriverConfig {
    /// These devices, without telemetry.
    fn from(device: DeviceConfig) -> Self {
        DriverConfig { device, ..DriverConfig::default() }
    }
}

pub(crate) struct Inner<P: Platform> {
    pub(crate) platform: P,
    pub(crate) ids: ClientIds,
    pub(crate) table: DeviceTable,
    pub(crate) config: DriverConfig,
    pub(crate) reservations: Reservations,
    pub(crate) pod: HostPod<P>,
    /// Bytes of each host reserve pool of each device.
    pub(crate) reserve_bytes: u64,
    progress: Mutex<CriticalSectionRawMutex, RefCell<Progress<P>>>,
}

struct Progress<P: Platform> {
    devices: Vec<Device<P>>,
    refusals: Vec<Refusal>,
    /// [`Driver::shut_down`] was called.
    ending: bool,
    /// Functions whose bring-up, first reset included, is not over.
    unsettled: usize,
    waiters: MultiWakerRegistration<8>,
}

impl<P: Platform> Progress<P> {
    /// Lists a device; answers whether it has to go at once.
    fn enter(&mut self, device: &Device<P>) -> bool {
        if !self.ending {
            let at = self.devices.partition_point(|other| other.index() < device.index());
            self.devices.insert(at, device.clone());
        }
        self.ending
    }
}

/// A function that did not become a device.
#[derive(Clone, Debug)]
pub struct Refusal {
    /// Where it sits.
    pub bdf: Bdf,
    /// PCI vendor id.
    pub vendor_id: u16,
    /// PCI device id.
    pub device_id: u16,
    /// Why.
    pub error: Error,
    /// How long it took to find out.
    pub bringup: Duration,
}

impl<P: Platform> Driver<P> {
    /// Starts one probe task for every function of the vendor. Against emulated functions the
    /// driver manages notification queues; on silicon that has to be confirmed first (specification
    /// 06 §17.2).
    pub fn start(platform: P) -> Self {
        let config = DriverConfig { manage_emulated: true, ..DriverConfig::full() };
        Self::with_config(platform, config)
    }

    /// As [`Driver::start`], with a configuration for all devices.
    pub fn with_config(platform: P, config: impl Into<DriverConfig>) -> Self {
        let mut config: DriverConfig = config.into();
        let host = config.host;
        if config.telemetry.is_some() {
            config.device.datastore_slabs = SLABS as u8;
        }
        let functions: Vec<_> = platform
            .functions()
            .into_iter()
            .enumerate()
            .filter(|(_, function)| function.config_read32(0) as u16 == VENDOR)
            .collect();
        let progress = Progress {
            devices: Vec::new(),
            refusals: Vec::new(),
            ending: false,
            unsettled: functions.len(),
            waiters: MultiWakerRegistration::new(),
        };
        let marks = Arc::new(Marks::new());
        let (reservations, reservation) = Reservations::new(config.host.core_quota, marks.clone());
        if let Err(error) = platform.spawn("reservation", reservation.run()) {
            // Without the task every claim ends in an error of its own.
            log::error!("cores cannot be claimed: {error}");
        }
        let inner = Arc::new(Inner {
            platform: platform.clone(),
            ids: ClientIds::new(),
            table: DeviceTable::new(),
            config,
            reservations,
            pod: HostPod::new(marks, host),
            reserve_bytes: reserve_bytes(&platform, functions.len()),
            progress: Mutex::new(RefCell::new(progress)),
        });
        for (position, function) in functions {
            let probe = inner.clone().probe(position, function.clone());
            if let Err(error) = platform.spawn("probe", probe) {
                inner.refuse(&function, error.into(), Duration::ZERO);
            }
        }
        Driver(inner)
    }

    pub(crate) fn from_inner(inner: Arc<Inner<P>>) -> Self {
        Driver(inner)
    }

    pub(crate) fn pod_handle(&self) -> Pod {
        self.0.pod.handle()
    }

    pub(crate) fn grants(&self) -> Grants {
        self.0.config.host.grants
    }

    pub(crate) fn reservations(&self) -> &Reservations {
        &self.0.reservations
    }

    /// Resolves once every function is READY, INVALID or refused.
    pub async fn settled(&self) {
        poll_fn(|cx| {
            self.0.change(|progress| {
                if progress.unsettled == 0 {
                    return Poll::Ready(());
                }
                progress.waiters.register(cx.waker());
                Poll::Pending
            })
        })
        .await;
    }

    /// Takes every device down, one after the other; see [`Device::shut_down`]. Functions that are
    /// still being brought up follow when they are.
    pub async fn shut_down(&self) {
        let devices = self.0.change(|progress| {
            progress.ending = true;
            core::mem::take(&mut progress.devices)
        });
        for device in devices {
            device.shut_down().await;
        }
        self.0.end_host_tasks();
    }

    /// Every device, by index.
    pub fn devices(&self) -> Vec<Device<P>> {
        self.0.change(|progress| progress.devices.clone())
    }

    /// Who is linked to whom.
    pub fn topology(&self) -> Topology {
        let devices = self.devices();
        Topology::new(devices.iter().map(|d| (d.index(), d.neighbours())).collect())
    }

    /// Every function that did not become a device, in bus order.
    pub fn refusals(&self) -> Vec<Refusal> {
        self.0.change(|progress| progress.refusals.clone())
    }

    /// Puts a program's own words into the text log, a record a line, under the name `client`
    /// (PRINTK). The log limits how many lines a second reach the console.
    pub fn log(&self, text: &str) {
        text.lines().for_each(|line| log::info!(target: "client", "{line}"));
    }

    /// The device with this index.
    ///
    /// # Errors
    /// [`Error::NotFound`].
    pub fn device(&self, index: u32) -> Result<Device<P>, Error> {
        let found = |progress: &mut Progress<P>| {
            progress.devices.iter().find(|device| device.index().number() == index).cloned()
        };
        self.0.change(found).ok_or(Error::NotFound {
            what: "device",
            value: index.into(),
            errno: Errno::ENODEV,
        })
    }
}

impl<P: Platform> Drop for Inner<P> {
    fn drop(&mut self) {
        self.end_host_tasks();
    }
}

impl<P: Platform> Inner<P> {
    /// Ends the tasks that exist once a host.
    fn end_host_tasks(&self) {
        self.pod.handle().stop();
        self.reservations.stop();
    }

    /// The probe task of one function: ends when its first reset has.
    async fn probe(self: Arc<Self>, position: usize, function: P::Function) {
        let started = self.platform.now();
        match Device::bring_up(&self, position, &function).await {
            Ok(device) => {
                if self.change(|progress| progress.enter(&device)) {
                    device.shut_down().await;
                } else if let Err(error) =
                    self.pod.join(&self.platform, device.neuron(), device.memory())
                {
                    log::error!("{} takes no part in a pod: {error}", device.index());
                }
                let state = device.settled().await;
                device.set_bringup(self.platform.now().since(started));
                log::info!("{} at {} is {}", device.index(), device.bdf(), state.name());
                self.settle_one(|_| {});
            }
            Err(error) => self.refuse(&function, error, self.platform.now().since(started)),
        }
    }

    fn refuse(&self, function: &P::Function, error: Error, bringup: Duration) {
        let id = function.config_read32(0);
        let bdf = function.bdf();
        log::error!("{bdf} was refused: {error}");
        let refusal =
            Refusal { bdf, vendor_id: id as u16, device_id: (id >> 16) as u16, error, bringup };
        self.settle_one(|progress| {
            let at = progress.refusals.partition_point(|other| other.bdf < bdf);
            progress.refusals.insert(at, refusal);
        });
    }

    fn settle_one(&self, change: impl FnOnce(&mut Progress<P>)) {
        self.change(|progress| {
            change(progress);
            progress.unsettled = progress.unsettled.saturating_sub(1);
            progress.waiters.wake();
        });
    }

    fn change<R>(&self, step: impl FnOnce(&mut Progress<P>) -> R) -> R {
        self.progress.lock(|progress| step(&mut progress.borrow_mut()))
    }
}
