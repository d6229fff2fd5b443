//! One device, one client, and what a test wants to know about its notification queues.

use std::future::Future;
use std::time::Duration;

use axon::metrics::TelemetryConfig;
use axon::{
    Client, Device, Driver, DriverConfig, Error, Notification, NotificationQueue, QueueSpec,
};
use axon_hosted::Machine;
use axon_model::report::{RegisterRecord, Report};
use axon_model::{FunctionConfig, NotificationBlock, Product, QueueState};
use axon_neuron::DeviceConfig;
use axon_platform::{ModelControl, Platform};

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
    /// What the model may complain of.
    pub violations: usize,
}

pub fn trn1() -> Setup {
    Setup::of(Product::Trn1)
}

pub fn trn2() -> Setup {
    Setup::of(Product::Trn2)
}

impl Setup {
    pub fn of(product: Product) -> Self {
        let config = DeviceConfig { manage_notifications: true, ..DeviceConfig::default() };
        let function = FunctionConfig::new(product, 0);
        Setup { function, config, telemetry: None, seed: 0, violations: 0 }
    }

    /// Somebody else manages the queues: the driver only programs rings.
    pub fn unmanaged(mut self) -> Self {
        self.config.manage_notifications = false;
        self
    }

    /// With datastore and poster.
    pub fn telemetry(mut self) -> Self {
        self.telemetry = Some(TelemetryConfig::default());
        self
    }

    pub fn machine(&self) -> Machine {
        Machine::builder().function(self.function.clone()).seed(self.seed).build().unwrap()
    }

    /// Brings the device up and runs `test`; afterwards the model must have nothing to complain of.
    pub fn run<F: Future>(self, test: impl FnOnce(Bench) -> F) -> F::Output {
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
            let client = device.open().await.unwrap();
            machine.control(0, "trace registers on").unwrap();
            machine.control(0, "trace clear").unwrap();
            test(Bench { machine: machine.clone(), device, client }).await
        });
        let report = machine.report(0).unwrap();
        assert_eq!(report.violations.len(), self.violations, "{:?}", report.violations);
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

    pub fn control(&self, line: &str) -> String {
        self.machine.control(0, line).unwrap()
    }

    /// Register writes since the last call.
    pub fn writes(&self) -> Vec<(u64, u32)> {
        let trace = self.report().register_trace;
        self.control("trace clear");
        trace.into_iter().map(|RegisterRecord { offset, value, .. }| (offset, value)).collect()
    }

    pub async fn pause(&self, span: Duration) {
        self.machine.sleep(span).await;
    }

    pub async fn queue(&self, spec: QueueSpec) -> NotificationQueue<Machine> {
        self.client.notifications(spec).await.unwrap()
    }

    pub fn state(&self, core: u8, index: u8) -> QueueState {
        self.state_of(NotificationBlock::Core(core), index)
    }

    pub fn state_of(&self, block: NotificationBlock, index: u8) -> QueueState {
        self.machine.with_model(0, |model| model.queue_state(block, index)).unwrap().unwrap()
    }

    /// Resets the whole device and waits for its end.
    pub async fn reset(&self) {
        self.client.reset(axon::ports::CoreMap::DEVICE).unwrap().await.unwrap();
    }
}

/// `size` bytes of queue 4 of core 0.
pub fn spec(size: u64) -> QueueSpec {
    QueueSpec::new(0, 4, size)
}

/// Everything that is there, by time stamp.
pub fn drain(queue: &mut NotificationQueue<Machine>) -> Vec<u64> {
    let take = || queue.try_next().unwrap().map(|notification| notification.timestamp());
    std::iter::from_fn(take).collect()
}

/// The next notification's time stamp; a notification is expected.
pub async fn next(queue: &mut NotificationQueue<Machine>) -> Result<u64, Error> {
    let told: Option<Result<Notification, Error>> = queue.next().await;
    told.expect("the stream goes on").map(|notification| notification.timestamp())
}
