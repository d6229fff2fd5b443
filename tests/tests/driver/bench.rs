//! One device, one client, and what a test wants to know about them.

use std::future::Future;
use std::time::Duration;

use axon::metrics::TelemetryConfig;
use axon::{
    Client, Device, DeviceAlloc, DeviceBuffer, Driver, DriverConfig, HostAlloc, HostBuffer,
};
use axon_hosted::Machine;
use axon_model::report::{DoorbellRecord, Report};
use axon_model::{FunctionConfig, Product};
use axon_neuron::DeviceConfig;
use axon_platform::{Instant, ModelControl, Platform};
use axon_ports::CoreId;
use axon_ports::reset::DeviceState;

/// A machine with one device that is READY, and a client of it.
pub struct Bench {
    pub machine: Machine,
    pub device: Device<Machine>,
    pub client: Client<Machine>,
}

/// What a machine of a test is made of.
#[derive(Clone)]
pub struct Setup {
    pub function: FunctionConfig,
    pub config: DeviceConfig,
    pub telemetry: Option<TelemetryConfig>,
    pub seed: u64,
}

/// The four products, and the second device id of the last one.
pub const PRODUCTS: [Product; 5] =
    [Product::Trn1, Product::Inf2, Product::Trn2, Product::Trn3, Product::Trn3Second];

/// A machine with one device of each product.
pub fn every() -> impl Iterator<Item = Setup> {
    PRODUCTS.into_iter().map(Setup::of)
}

pub fn trn1() -> Setup {
    Setup::of(Product::Trn1)
}

pub fn trn2() -> Setup {
    Setup::of(Product::Trn2)
}

impl Setup {
    pub fn of(product: Product) -> Self {
        let mut function = FunctionConfig::new(product, 0);
        function.strict = true;
        function.trace("doorbells").unwrap();
        function.trace("descriptors").unwrap();
        Setup { function, config: DeviceConfig::default(), telemetry: None, seed: 0 }
    }

    /// With datastore and poster.
    pub fn telemetry(mut self) -> Self {
        self.telemetry = Some(TelemetryConfig::default());
        self
    }

    /// Multiplies the time a batch may take.
    pub fn budget(mut self, multiplier: u32) -> Self {
        self.config.budget_multiplier = Some(multiplier);
        self
    }

    pub fn machine(&self) -> Machine {
        Machine::builder().function(self.function.clone()).seed(self.seed).build().unwrap()
    }

    /// Brings the device up and runs `test`; afterwards the model must have nothing to complain of.
    pub fn run<F: Future>(self, test: impl FnOnce(Bench) -> F) -> F::Output {
        let machine = self.machine();
        let output = machine.run(async {
            let config = DriverConfig { device: self.config, telemetry: self.telemetry };
            let driver = Driver::with_config(machine.clone(), config);
            driver.settled().await;
            let device = driver.devices().into_iter().next().expect("a device");
            assert_eq!(device.settled().await, DeviceState::Ready);
            let client = device.open().await.unwrap();
            test(Bench { machine: machine.clone(), device, client }).await
        });
        let report = machine.report(0).unwrap();
        assert_eq!(report.violations, [], "the model complains");
        assert_eq!(report.unmodelled, [], "registers that no block has");
        assert_eq!(machine.stray_accesses(), 0, "accesses to memory that was not given out");
        machine.shut_down();
        output.expect("nobody may wait for ever")
    }
}

impl Bench {
    pub fn report(&self) -> Report {
        self.machine.report(0).unwrap()
    }

    pub fn doorbells(&self) -> Vec<DoorbellRecord> {
        self.report().doorbell_trace
    }

    /// Values of the doorbells since the first `skip`.
    pub fn doorbell_values(&self, skip: usize) -> Vec<u32> {
        self.doorbells().into_iter().skip(skip).map(|record| record.value).collect()
    }

    pub fn control(&self, line: &str) -> String {
        self.machine.control(0, line).unwrap()
    }

    pub fn now(&self) -> Instant {
        self.machine.now()
    }

    pub async fn pause(&self, span: Duration) {
        self.machine.sleep(span).await;
    }

    pub async fn hbm(&self, size: u64) -> DeviceBuffer<Machine> {
        self.hbm_of(0, size).await
    }

    pub async fn hbm_of(&self, core: u32, size: u64) -> DeviceBuffer<Machine> {
        let core = CoreId::new(core).unwrap();
        let wishes = DeviceAlloc { core, ..DeviceAlloc::new(size) };
        self.client.alloc_device(wishes).await.unwrap()
    }

    pub async fn host(&self, size: u64) -> HostBuffer<Machine> {
        self.client.alloc_host(HostAlloc::new(size)).await.unwrap()
    }

    /// A host buffer with a pattern of its own in it.
    pub async fn pattern(&self, size: u64, seed: u64) -> HostBuffer<Machine> {
        let buffer = self.host(size).await;
        let mut bytes = vec![0; size as usize];
        axon::pattern::SplitMix64::new(seed).fill(&mut bytes);
        buffer.memory().unwrap().write(0, &bytes).unwrap();
        buffer
    }
}

/// What a host buffer holds.
pub fn bytes(buffer: &HostBuffer<Machine>) -> Vec<u8> {
    let mut bytes = vec![0; buffer.size() as usize];
    buffer.memory().unwrap().read(0, &mut bytes).unwrap();
    bytes
}
