//! One device, one client, and what a test wants to know about them.

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
    /// What it runs on.
    pub machine: Machine,
    /// The first device.
    pub device: Device<Machine>,
    /// Its client.
    pub client: Client<Machine>,
}

/// What a machine of a test is made of.
#[derive(Clone)]
pub struct Setup {
    /// The emulated function.
    pub function: FunctionConfig,
    /// How the driver handles it.
    pub config: DeviceConfig,
    /// Datastore and poster.
    pub telemetry: Option<TelemetryConfig>,
    /// Order of tasks.
    pub seed: u64,
    /// What the model is told before the test begins.
    pub controls: Vec<&'static str>,
}

/// The four products, and the second device id of the last one.
pub const PRODUCTS: [Product; 5] =
    [Product::Trn1, Product::Inf2, Product::Trn2, Product::Trn3, Product::Trn3Second];

/// Machines of one device each, of every product of a kind: what is tried on one is tried on all.
#[derive(Clone)]
pub struct Setups(Vec<Setup>);

/// Every product.
pub fn every() -> Setups {
    Setups(PRODUCTS.into_iter().map(Setup::of).collect())
}

/// The products of the first register map.
pub fn v2() -> Setups {
    Setups(PRODUCTS[..2].iter().copied().map(Setup::of).collect())
}

/// The products of the later register map.
pub fn later() -> Setups {
    Setups(PRODUCTS[2..].iter().copied().map(Setup::of).collect())
}

/// One product of each register map, for what takes long; all of them with `AXON_LONG=1`.
pub fn one_of_each_map() -> Setups {
    match std::env::var_os("AXON_LONG") {
        Some(_) => every(),
        None => Setups([PRODUCTS[0], PRODUCTS[2]].map(Setup::of).to_vec()),
    }
}

impl Setups {
    /// Changes each.
    pub fn with(mut self, change: impl FnMut(&mut Setup)) -> Self {
        self.0.iter_mut().for_each(change);
        self
    }

    /// Those of one product.
    pub fn only(mut self, product: Product) -> Self {
        self.0.retain(|setup| setup.function.product == product);
        self
    }

    /// Arms a fault.
    pub fn fault(self, fault: &str) -> Self {
        self.with(|setup| setup.function.fault(fault).unwrap())
    }

    /// Multiplies the time a batch may take.
    pub fn budget(self, multiplier: u32) -> Self {
        self.with(|setup| setup.config.budget_multiplier = Some(multiplier))
    }

    /// With datastore and poster.
    pub fn telemetry(self) -> Self {
        self.with(|setup| setup.telemetry = Some(TelemetryConfig::default()))
    }

    /// Order of tasks.
    pub fn seed(self, seed: u64) -> Self {
        self.with(|setup| setup.seed = seed)
    }

    /// Runs `test` on each, see [`Setup::run`].
    pub fn run(self, test: impl AsyncFn(Bench)) {
        for setup in self.0 {
            let product = setup.function.product;
            eprintln!("{product:?}");
            setup.run(&test);
        }
    }
}

impl IntoIterator for Setups {
    type Item = Setup;
    type IntoIter = std::vec::IntoIter<Setup>;

    fn into_iter(self) -> Self::IntoIter {
        self.0.into_iter()
    }
}

/// One product of the first register map.
pub fn trn1() -> Setup {
    Setup::of(Product::Trn1)
}

/// One product of the later register map.
pub fn trn2() -> Setup {
    Setup::of(Product::Trn2)
}

impl Setup {
    /// A strict function whose doorbells and descriptors are recorded.
    pub fn of(product: Product) -> Self {
        let mut function = FunctionConfig::new(product, 0);
        function.strict = true;
        function.trace("doorbells").unwrap();
        function.trace("descriptors").unwrap();
        Setup {
            function,
            config: DeviceConfig::default(),
            telemetry: None,
            seed: 0,
            controls: Vec::new(),
        }
    }

    /// With datastore and poster.
    pub fn telemetry(mut self) -> Self {
        self.telemetry = Some(TelemetryConfig::default());
        self
    }

    /// A machine with that device and nothing brought up.
    pub fn machine(&self) -> Machine {
        Machine::builder().function(self.function.clone()).seed(self.seed).build().unwrap()
    }

    /// Brings the device up and runs `test`; afterwards the model must have nothing to complain of.
    pub fn run<R>(self, test: impl AsyncFnOnce(Bench) -> R) -> R {
        let machine = self.machine();
        let output = machine.run(async {
            let config = DriverConfig {
                device: self.config,
                telemetry: self.telemetry,
                ..DriverConfig::default()
            };
            let driver = Driver::with_config(machine.clone(), config);
            driver.settled().await;
            let device = driver.devices().into_iter().next().expect("a device");
            assert_eq!(device.settled().await, DeviceState::Ready);
            let client = device.open().await.unwrap();
            for line in self.controls {
                machine.control(0, line).unwrap();
            }
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
    /// Whether this is a product of the first register map.
    pub fn is_v2(&self) -> bool {
        self.device.hal().cores() == 2
    }

    /// Where MiscRAM is in the register window.
    pub fn misc_ram(&self) -> u64 {
        if self.is_v2() { 0x30fa_0000 } else { 0x06c8_4000 }
    }

    /// Where the engine of the first core's copies is in the register window, and its number.
    pub fn copy_engine(&self) -> (u64, u32) {
        if self.is_v2() { (0x3060_0000, 32) } else { (0x0680_0000, 128) }
    }

    /// The device address of a word of MiscRAM.
    pub fn firmware_word(&self, offset: u64) -> u64 {
        offset + if self.is_v2() { 0xfff_f0fa_0000 } else { 0x80_06c8_4000 }
    }

    /// What the model says about the first function.
    pub fn report(&self) -> Report {
        self.machine.report(0).unwrap()
    }

    /// Every doorbell so far.
    pub fn doorbells(&self) -> Vec<DoorbellRecord> {
        self.report().doorbell_trace
    }

    /// Values of the doorbells since the first `skip`.
    pub fn doorbell_values(&self, skip: usize) -> Vec<u32> {
        self.doorbells().into_iter().skip(skip).map(|record| record.value).collect()
    }

    /// Tells the model something; its answer.
    pub fn control(&self, line: &str) -> String {
        self.machine.control(0, line).unwrap()
    }

    /// Virtual time.
    pub fn now(&self) -> Instant {
        self.machine.now()
    }

    /// Lets virtual time pass.
    pub async fn pause(&self, span: Duration) {
        self.machine.sleep(span).await;
    }

    /// HBM of core 0.
    pub async fn hbm(&self, size: u64) -> DeviceBuffer<Machine> {
        self.hbm_of(0, size).await
    }

    /// HBM of a core.
    pub async fn hbm_of(&self, core: u32, size: u64) -> DeviceBuffer<Machine> {
        let core = CoreId::new(core).unwrap();
        let wishes = DeviceAlloc { core, ..DeviceAlloc::new(size) };
        self.client.alloc_device(wishes).await.unwrap()
    }

    /// Host memory.
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
