//! A device that does what a test says.

extern crate std;

use alloc::collections::{BTreeMap, VecDeque};
use alloc::vec::Vec;
use std::sync::{Arc, Mutex, MutexGuard};

use axon_platform::{BusAddr, DeviceAddr, DmaBuf};
use axon_ports::chunk::{ChunkFacts, ChunkTable};
use axon_ports::reset::DeviceState;
use axon_ports::telemetry::cell::GaugeReading;
use axon_ports::telemetry::counters::MailboxCommand;
use axon_ports::telemetry::{DeviceRecords, Gauge};
use axon_ports::{Category, ClientId, CoreId, CoreMap, DeviceIndex, Lifespan, Location};

use crate::datastore::{SLAB_BYTES, SLABS, Slab};
use crate::device::{DeviceNames, PodModes, QueueUse};
use crate::sensors::misc;
use crate::{
    ClientMemory, DeviceFacts, DeviceSensors, Error, MemoryCounter, MetricSink, PeLayout, PostError,
};

pub(crate) const V2_PE: PeLayout = PeLayout {
    areas: &[0x305b_1100, 0x30cb_1100],
    group: 0x40,
    buses: 5,
    weight_load_group: 1,
    weight_load_is_fast_total: true,
};

pub(crate) const V3_PE: PeLayout = PeLayout {
    areas: &[
        0x0614_1100,
        0x062c_1100,
        0x0654_1100,
        0x066c_1100,
        0x4614_1100,
        0x462c_1100,
        0x4654_1100,
        0x466c_1100,
    ],
    group: 0x30,
    buses: 9,
    weight_load_group: 8,
    weight_load_is_fast_total: false,
};

/// A Trainium1.
pub(crate) fn facts_v2() -> DeviceFacts {
    DeviceFacts {
        device: DeviceIndex::new(0).unwrap(),
        names: DeviceNames {
            device_type: "v2",
            core_type: "v2",
            instance: "Trn1",
            device: "Trainium1",
        },
        cores: CoreMap(0b11),
        cores_per_device: 2,
        hbm_channels: 2,
        dice: 1,
        knows_repair: false,
        samples_power: true,
        takes_posts: true,
        pe: V2_PE,
    }
}

/// A Trainium2.
pub(crate) fn facts_v3() -> DeviceFacts {
    DeviceFacts {
        device: DeviceIndex::new(1).unwrap(),
        names: DeviceNames {
            device_type: "v3",
            core_type: "v3",
            instance: "Trn2",
            device: "Trainium2",
        },
        cores: CoreMap(0xff),
        cores_per_device: 8,
        hbm_channels: 4,
        dice: 2,
        knows_repair: true,
        pe: V3_PE,
        ..facts_v2()
    }
}

pub(crate) fn client(number: u32) -> ClientId {
    ClientId::new(number).unwrap()
}

pub(crate) fn core(number: u32) -> CoreId {
    CoreId::new(number).unwrap()
}

/// The 16 slabs of a device, on chunks that no service stands behind.
pub(crate) fn slabs() -> Vec<Slab> {
    let table = ChunkTable::with_pages(1).unwrap();
    let slab = |slot| {
        let facts = ChunkFacts {
            pa: DeviceAddr(0x1000),
            size: SLAB_BYTES,
            reach: SLAB_BYTES,
            location: Location::Host,
            channel: 0,
            region: 0,
            core: core(0),
            category: Category::NCDEV_HOST,
            lifespan: Lifespan::Device,
            owner: None,
        };
        let memory = DmaBuf::on_heap(SLAB_BYTES, BusAddr(0x1000)).unwrap();
        Slab::from_chunk(table.lone(slot, facts, Some(memory)).unwrap()).unwrap()
    };
    (0..SLABS as u32).map(slab).collect()
}

/// What firmware does with posts.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Firmware {
    Takes,
    Refuses(u8),
    /// Never answers; the future does not resolve.
    Hangs,
    /// Gives up at once.
    TimesOut,
}

pub(crate) struct Inside {
    pub(crate) state: DeviceState,
    pub(crate) resetting: bool,
    gone: bool,
    misc: BTreeMap<u32, u32>,
    registers: BTreeMap<u64, u32>,
    scripts: BTreeMap<u64, VecDeque<u32>>,
    pub(crate) register_reads: u64,
    pub(crate) firmware: Firmware,
    pub(crate) posts: Vec<Vec<u8>>,
    pub(crate) clients: Vec<ClientMemory>,
    pub(crate) pod: Option<PodModes>,
    pub(crate) neighbours: Vec<u32>,
}

#[derive(Clone)]
pub(crate) struct FakeDevice {
    pub(crate) records: Arc<DeviceRecords>,
    memory: Arc<[[Gauge; 21]; 8]>,
    inside: Arc<Mutex<Inside>>,
}

impl FakeDevice {
    pub(crate) fn v2() -> Self {
        FakeDevice::new(&facts_v2())
    }

    pub(crate) fn v3() -> Self {
        FakeDevice::new(&facts_v3())
    }

    fn new(facts: &DeviceFacts) -> Self {
        let inside = Inside {
            state: DeviceState::Ready,
            resetting: false,
            gone: false,
            misc: [(misc::API_VERSION, 7), (misc::SERIAL_LOW, 1), (misc::SERIAL_HIGH, 1)].into(),
            registers: BTreeMap::new(),
            scripts: BTreeMap::new(),
            register_reads: 0,
            firmware: Firmware::Takes,
            posts: Vec::new(),
            clients: Vec::new(),
            pod: None,
            neighbours: alloc::vec![1, 4, 3, 12],
        };
        FakeDevice {
            records: DeviceRecords::new(facts.device, facts.cores).unwrap(),
            memory: Arc::default(),
            inside: Arc::new(Mutex::new(inside)),
        }
    }

    pub(crate) fn inside(&self) -> MutexGuard<'_, Inside> {
        self.inside.lock().unwrap()
    }

    pub(crate) fn set_misc(&self, offset: u32, value: u32) {
        self.inside().misc.insert(offset, value);
    }

    pub(crate) fn set_register(&self, offset: u64, value: u32) {
        self.inside().registers.insert(offset, value);
    }

    /// The next reads of a register, in order.
    pub(crate) fn script_register(&self, offset: u64, values: &[u32]) {
        self.inside().scripts.insert(offset, values.iter().copied().collect());
    }

    pub(crate) fn gone(&self) {
        self.inside().gone = true;
    }

    pub(crate) fn set_firmware(&self, firmware: Firmware) {
        self.inside().firmware = firmware;
    }

    pub(crate) fn gauge(&self, counter: MemoryCounter, core: CoreId) -> &Gauge {
        // Host categories are kept once.
        let core = if (2..10).contains(&counter.id()) { 0 } else { core.index() };
        &self.memory[core][usize::from(counter.id())]
    }
}

impl DeviceSensors for FakeDevice {
    fn state(&self) -> DeviceState {
        self.inside().state
    }

    fn reset_running(&self) -> bool {
        self.inside().resetting
    }

    fn misc_ram(&self, offset: u32) -> Option<u32> {
        let mut inside = self.inside();
        inside.register_reads += 1;
        let value = inside.misc.get(&offset).copied().unwrap_or(0);
        (!inside.gone && value != 0xdead_beef).then_some(value)
    }

    fn register(&self, offset: u64) -> Option<u32> {
        let mut inside = self.inside();
        inside.register_reads += 1;
        let scripted = inside.scripts.get_mut(&offset).and_then(VecDeque::pop_front);
        let value = scripted.or_else(|| inside.registers.get(&offset).copied());
        (!inside.gone).then_some(value.unwrap_or(0))
    }

    fn memory(&self, counter: MemoryCounter, core: CoreId) -> GaugeReading {
        self.gauge(counter, core).read()
    }

    fn rebase_memory_peak(&self, counter: MemoryCounter, core: CoreId) -> Result<(), Error> {
        self.gauge(counter, core).rebase_peak();
        Ok(())
    }

    fn draining_bytes(&self, location: Location) -> u64 {
        if location == Location::Host { 4096 } else { 8192 }
    }

    fn quarantined_bytes(&self, _location: Location) -> u64 {
        0
    }

    fn clients(&self, each: &mut dyn FnMut(ClientMemory)) {
        let clients = self.inside().clients.clone();
        clients.into_iter().for_each(each);
    }

    fn neighbours(&self, each: &mut dyn FnMut(DeviceIndex)) {
        let neighbours = self.inside().neighbours.clone();
        neighbours.into_iter().filter_map(DeviceIndex::new).for_each(each);
    }

    fn pod(&self) -> Option<PodModes> {
        self.inside().pod
    }

    fn class_files(&self, each: crate::ClassVisitor<'_>) {
        for name in ["node_id_2", "node_id_4", "server_id_2", "server_id_4", "ultraserver_mode"] {
            each(name, format_args!("-1"));
        }
    }

    fn queues(&self, each: &mut dyn FnMut(QueueUse<'_>)) {
        each(QueueUse { block: "nc0", queue: 2, consumed: 9, overflows: 1 });
    }
}

impl MetricSink for FakeDevice {
    async fn post(&self, stream: &[u8]) -> Result<(), PostError> {
        let mailbox = &self.records.counters.mailbox;
        mailbox.requests(MailboxCommand::PostMetric).increment();
        let firmware = self.inside().firmware;
        match firmware {
            Firmware::Takes => {
                self.inside().posts.push(stream.to_vec());
                Ok(())
            }
            Firmware::Refuses(code) => {
                mailbox.errors.increment();
                Err(PostError::Refused { code })
            }
            Firmware::Hangs => core::future::pending().await,
            Firmware::TimesOut => {
                mailbox.timeouts(MailboxCommand::PostMetric).increment();
                Err(PostError::TimedOut { attempts: 30 })
            }
        }
    }
}
