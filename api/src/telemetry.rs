//! Telemetry of a device as this crate puts it together, and what a client may ask of it.

use alloc::sync::Arc;
use alloc::vec::Vec;

use axon_clients::Touched;
use axon_memory::MemoryClient;
use axon_neuron::hal::Hal;
use axon_neuron::hal::identity::{Environment, Generation};
use axon_neuron::{AvailableProfiles, CoreState, NeuronDevice};
use axon_platform::Platform;
use axon_pod::{PodState, PodStatus, PodType};
use axon_ports::reset::DeviceState;
use axon_ports::telemetry::DeviceRecords;
use axon_ports::telemetry::cell::GaugeReading;
use axon_ports::{Category, ClientId, CoreId, CoreMap, DeviceIndex, Location};
use axon_telemetry::{
    ClassVisitor, ClientMemory, Datastore, DatastoreSnapshot, DeviceFacts, DeviceNames,
    DeviceSensors, MemoryCounter, MetricSink, PeLayout, PodModes, PostError, PostingMode, QueueUse,
    Slab, Telemetry, TelemetryConfig,
};

use crate::calls::Call;
use crate::driver::Inner as DriverInner;
use crate::{Client, Device, Error};

/// Telemetry of a device on platform `P`.
pub type DeviceTelemetry<P> = Telemetry<P, Sensors<P>>;

/// What telemetry reads of one device, and the mailbox it posts to.
pub struct Sensors<P: Platform> {
    neuron: NeuronDevice<P>,
    memory: MemoryClient,
    driver: Arc<DriverInner<P>>,
}

impl<P: Platform> DeviceSensors for Sensors<P> {
    fn state(&self) -> DeviceState {
        self.neuron.state()
    }

    fn reset_running(&self) -> bool {
        let resetting = |core| self.neuron.core_state(core) == CoreState::Resetting;
        self.neuron.hal().core_ids().any(resetting)
    }

    fn misc_ram(&self, offset: u32) -> Option<u32> {
        self.neuron.firmware_word(offset)
    }

    fn register(&self, offset: u64) -> Option<u32> {
        self.neuron.read32(offset).ok()
    }

    fn memory(&self, counter: MemoryCounter, core: CoreId) -> GaugeReading {
        let (counters, core) = (self.memory.counters(), core.number());
        let value = match category_of(counter) {
            Some(category) => counters.category(category, core),
            None if counter == MemoryCounter::HOST => counters.location(Location::Host, core),
            None => counters.location(Location::Device, core),
        };
        GaugeReading { total: value.total, present: value.present, peak: value.peak }
    }

    fn rebase_memory_peak(
        &self,
        counter: MemoryCounter,
        core: CoreId,
    ) -> Result<(), axon_telemetry::Error> {
        let (counters, core) = (self.memory.counters(), core.number());
        match category_of(counter) {
            Some(category) => counters.rebase_category(category, core),
            None if counter == MemoryCounter::HOST => {
                counters.rebase_location(Location::Host, core)
            }
            None => counters.rebase_location(Location::Device, core),
        }
        Ok(())
    }

    fn draining_bytes(&self, location: Location) -> u64 {
        self.memory.counters().draining_at(location)
    }

    fn quarantined_bytes(&self, location: Location) -> u64 {
        let [host, device] = self.neuron.dma().quarantined_bytes();
        if location == Location::Host { host } else { device }
    }

    fn clients(&self, each: &mut dyn FnMut(ClientMemory)) {
        for (client, held) in self.memory.counters().attached() {
            each(ClientMemory { client, host_bytes: held.host, device_bytes: held.device });
        }
    }

    fn neighbours(&self, each: &mut dyn FnMut(DeviceIndex)) {
        let devices = u8::try_from(self.neuron.table().published()).unwrap_or(u8::MAX);
        let neighbours = self.neuron.hal().neighbours(self.neuron.index().number() as u8, devices);
        let indices = neighbours.as_slice().iter();
        indices.filter_map(|index| DeviceIndex::new((*index).into())).for_each(each);
    }

    fn performance_profile(&self) -> u32 {
        self.neuron.performance_profile().into()
    }

    fn pod(&self) -> Option<PodModes> {
        let status = self.driver.pod.handle().status();
        let known = status.pod_type != PodType::None && status.state != PodState::InProgress;
        let PodStatus { modes_supported: supported, mode, .. } = status;
        known.then_some(PodModes { supported, mode: mode as u32 })
    }

    /// What may be read before it is known reads `busy`. assumed: as the other attributes do.
    fn class_files(&self, each: ClassVisitor<'_>) {
        match self.neuron.hbm_7200() {
            Some(capable) => each("hbm_7200_capable", format_args!("{}", u8::from(capable))),
            None => each("hbm_7200_capable", format_args!("busy")),
        }
        each("current_perf_profile", format_args!("{}", self.neuron.performance_profile()));
        let status = self.driver.pod.handle().status();
        status.class_attributes(each);
    }

    fn queues(&self, each: &mut dyn FnMut(QueueUse<'_>)) {
        self.neuron.notification_queues(|queue| {
            each(QueueUse {
                block: &alloc::format!("{}", queue.block),
                queue: queue.position.into(),
                consumed: queue.counters.consumed,
                overflows: queue.counters.overflows,
            });
        });
    }
}

impl<P: Platform> MetricSink for Sensors<P> {
    async fn post(&self, stream: &[u8]) -> Result<(), PostError> {
        use axon_neuron::Error as Driver;
        self.neuron.post_metric(stream).await.map_err(|error| match error {
            Driver::MailboxTimeout { attempts, .. } => PostError::TimedOut { attempts },
            Driver::MailboxRefused { code, .. } => PostError::Refused { code },
            Driver::MailboxCorrupt { .. } => PostError::Corrupt,
            Driver::DeviceGone | Driver::Removed => PostError::Gone,
            _ => PostError::Unsupported,
        })
    }
}

/// The category behind a gauge; `None` for the two that count everything.
fn category_of(counter: MemoryCounter) -> Option<Category> {
    /// Categories of the gauges 2 to 20.
    const CATEGORIES: [Category; 19] = [
        Category::UNKNOWN_HOST,
        Category::CODE_HOST,
        Category::TENSORS_HOST,
        Category::CONSTANTS_HOST,
        Category::MISC_HOST,
        Category::NCDEV_HOST,
        Category::NOTIFICATION_HOST,
        Category::DMA_RINGS_HOST,
        Category::UNKNOWN_DEVICE,
        Category::CODE_DEVICE,
        Category::TENSORS_DEVICE,
        Category::CONSTANTS_DEVICE,
        Category::SCRATCHPAD_DEVICE,
        Category::MISC_DEVICE,
        Category::NCDEV_DEVICE,
        Category::COLLECTIVES_DEVICE,
        Category::SCRATCHPAD_NONSHARED_DEVICE,
        Category::NOTIFICATION_DEVICE,
        Category::DMA_RINGS_DEVICE,
    ];
    CATEGORIES.get(usize::from(counter.id()).checked_sub(2)?).copied()
}

/// Telemetry on the slabs that the ladder has taken; `None` where it took none.
pub(crate) fn make<P: Platform>(
    driver: &Arc<DriverInner<P>>,
    config: &TelemetryConfig,
    neuron: &NeuronDevice<P>,
    memory: &MemoryClient,
) -> Result<Option<DeviceTelemetry<P>>, Error> {
    if neuron.datastore().is_empty() {
        return Ok(None);
    }
    let pins = neuron.datastore().iter().filter_map(|chunk| chunk.pin());
    let slabs = pins.filter_map(Slab::from_pin).collect();
    let (neuron, memory, driver) = (neuron.clone(), memory.clone(), driver.clone());
    let facts = facts(neuron.hal(), neuron.index());
    let records = neuron.records().clone();
    let (config, platform) = (config.clone(), driver.platform.clone());
    let sensors = Sensors { neuron, memory, driver };
    Ok(Some(Telemetry::new(platform, facts, config, records, slabs, sensors)?))
}

fn facts(hal: &Hal, device: DeviceIndex) -> DeviceFacts {
    let names = hal.product().names();
    let pe = &hal.tables().pe_counters;
    let silicon = hal.environment() == Environment::Silicon;
    DeviceFacts {
        device,
        names: DeviceNames {
            device_type: names.device_type,
            core_type: names.core_type,
            instance: names.instance,
            device: names.device,
        },
        cores: CoreMap(hal.core_map()),
        cores_per_device: hal.cores(),
        hbm_channels: hal.memory_geometry().channel_count,
        dice: hal.dice(),
        knows_repair: hal.generation() != Generation::V2,
        samples_power: hal.has_power_samples(),
        takes_posts: silicon || hal.generation() == Generation::V2,
        pe: PeLayout {
            areas: pe.areas,
            group: pe.group,
            buses: pe.buses,
            weight_load_group: pe.weight_load_group,
            weight_load_is_fast_total: pe.weight_load_is_fast_total,
        },
    }
}

impl<P: Platform> Device<P> {
    /// Its telemetry: snapshots, exporters, the poster.
    ///
    /// # Errors
    /// [`Error::Unsupported`] where the driver was started without.
    pub fn telemetry(&self) -> Result<&DeviceTelemetry<P>, Error> {
        self.telemetry_or_none().ok_or(Error::Unsupported { what: "telemetry in this set-up" })
    }

    /// What everybody counts, notes and traces about the device.
    pub fn records(&self) -> &Arc<DeviceRecords> {
        self.neuron().records()
    }

    /// Has firmware read registers by their device-view addresses: 0 to 8190 of them.
    ///
    /// # Errors
    /// [`Error::InvalidArgument`] for too many or a foreign address, [`Error::Timeout`],
    /// [`Error::Device`] where firmware refuses, [`Error::DeviceGone`].
    pub async fn hardware_counters(&self, addresses: &[u64]) -> Result<Vec<u32>, Error> {
        self.neuron().ready().await?;
        Ok(self.neuron().hardware_counters(addresses).await?)
    }

    /// Performance profile that was set last.
    pub fn power_profile(&self) -> u8 {
        self.neuron().performance_profile()
    }

    /// Whether HBM can run at 7200 MT/s, as firmware says after the first reset; `None` before.
    pub fn hbm_7200(&self) -> Option<bool> {
        self.neuron().hbm_7200()
    }

    /// Profiles that firmware offers for a feature; 0 for all.
    ///
    /// # Errors
    /// [`Error::Unsupported`] by old firmware, and those of [`Device::hardware_counters`].
    pub async fn power_profiles(&self, feature: u8) -> Result<AvailableProfiles, Error> {
        self.neuron().ready().await?;
        Ok(self.neuron().available_profiles(feature).await?)
    }
}

impl<P: Platform> Client<P> {
    /// A record of the call under the number of the command it replaces, then its gate.
    fn enter(&self, call: Call) -> Result<(), Error> {
        self.device().note_call(self.id(), call);
        call.admit(self.access())
    }

    /// The client's own counters on this device.
    ///
    /// # Errors
    /// [`Error::NotAttached`], [`Error::NoRecords`] where all 16 slabs are taken.
    pub fn datastore(&self) -> Result<Datastore, Error> {
        self.access().touch(Touched::Counters);
        self.enter(Call::Datastore)?;
        Ok(self.device().telemetry()?.acquire(self.id())?)
    }

    /// A copy of another client's counters on this device.
    ///
    /// # Errors
    /// [`Error::NotFound`] (ENOENT) for a client without counters, [`Error::NotAttached`].
    pub async fn datastore_of(&self, client: ClientId) -> Result<DatastoreSnapshot, Error> {
        self.enter(Call::Datastore)?;
        Ok(self.device().telemetry()?.monitor(client).await?)
    }

    /// Gives the client's counters up; what they say goes into the totals of the device.
    ///
    /// # Errors
    /// [`Error::NotAttached`].
    pub fn release_datastore(&self) -> Result<(), Error> {
        self.enter(Call::ReleaseDatastore)?;
        self.device().telemetry()?.release(self.id());
        Ok(())
    }

    /// Switches periodic posting of metrics on or off.
    ///
    /// # Errors
    /// [`Error::NotAttached`].
    pub fn periodic_metrics(&self, on: bool) -> Result<(), Error> {
        self.enter(Call::PeriodicMetrics)?;
        let mode = if on { PostingMode::Enabled } else { PostingMode::Disabled };
        self.device().telemetry()?.set_posting(mode);
        Ok(())
    }

    /// Hands 1 to 128 bytes to firmware, which forwards them.
    ///
    /// # Errors
    /// [`Error::NotAttached`], [`Error::InvalidArgument`] for none, [`Error::TooBig`] for more,
    /// [`Error::Timeout`], [`Error::Device`].
    pub async fn post_metric(&self, bytes: &[u8]) -> Result<(), Error> {
        self.enter(Call::PostMetric)?;
        self.device().neuron().ready().await?;
        Ok(self.device().neuron().post_metric(bytes).await?)
    }

    /// Chooses a performance profile. Trainium1 and Inferentia2 take every one and do nothing.
    ///
    /// # Errors
    /// [`Error::NotAttached`], [`Error::Unsupported`] by old firmware, [`Error::Timeout`],
    /// [`Error::Device`].
    pub async fn set_power_profile(&self, profile: u8) -> Result<(), Error> {
        self.enter(Call::SetPowerProfile)?;
        self.device().neuron().ready().await?;
        Ok(self.device().neuron().set_performance_profile(profile).await?)
    }

    /// Switches throttling notifications.
    ///
    /// # Errors
    /// As [`Client::set_power_profile`].
    pub async fn throttle_notifications(&self, on: bool) -> Result<(), Error> {
        self.enter(Call::Throttling)?;
        self.device().neuron().ready().await?;
        Ok(self.device().neuron().set_throttling_notifications(on).await?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_gauge_has_the_category_of_the_specification() {
        // Specification 04 §9.4: category number and counter id.
        let pairs = [(0, 2), (6, 8), (17, 9), (7, 10), (11, 14), (16, 19), (18, 20)];
        for (category, id) in pairs {
            let counter = MemoryCounter::new(id).unwrap();
            assert_eq!(category_of(counter), Some(Category(category)), "{id}");
        }
        assert_eq!(category_of(MemoryCounter::DEVICE), None);
    }
}
