//! Hosts with any number of functions, and what became of each of them.

use std::time::Duration;

use axon::{Device, Driver, Refusal};
use axon_hosted::Machine;
use axon_model::report::Report;
use axon_model::{FunctionConfig, Product};
use axon_neuron::DeviceConfig;
use axon_platform::{Instant, ModelControl, Platform};
use axon_ports::reset::DeviceState;

/// What a host is made of.
#[derive(Clone, Default)]
pub struct Host {
    pub functions: Vec<FunctionConfig>,
    pub config: DeviceConfig,
    pub name: Option<&'static str>,
    pub seed: u64,
    /// Control lines for the function at a position, carried out before anything is touched.
    pub control: Vec<(usize, String)>,
}

/// A host whose functions are all READY, INVALID or refused. Ends with it.
pub struct Settled {
    pub machine: Machine,
    pub driver: Driver<Machine>,
    /// When the last function was settled.
    pub at: Instant,
}

impl Host {
    pub fn of(functions: impl IntoIterator<Item = FunctionConfig>) -> Self {
        Host { functions: functions.into_iter().collect(), ..Host::default() }
    }

    /// `count` functions of a product with the indices 0, 1, …
    pub fn many(product: Product, count: u32) -> Self {
        Host::of((0..count).map(|index| FunctionConfig::new(product, index)))
    }

    pub fn one(product: Product) -> Self {
        Host::many(product, 1)
    }

    /// Arms a fault in the function at `position`.
    pub fn fault(mut self, position: usize, fault: &str) -> Self {
        self.functions[position].fault(fault).unwrap();
        self
    }

    pub fn control(mut self, position: usize, line: impl Into<String>) -> Self {
        self.control.push((position, line.into()));
        self
    }

    pub fn trace_registers(mut self) -> Self {
        self.functions.iter_mut().for_each(|function| function.trace("registers").unwrap());
        self
    }

    pub fn machine(&self) -> Machine {
        // Small: what is freed while a machine runs is filled, and reserve pools are a share of it.
        let memory = (self.functions.len() as u64).max(1) * (64 << 20);
        let mut builder = Machine::builder().seed(self.seed).memory(memory);
        for function in &self.functions {
            builder = builder.function(function.clone());
        }
        if let Some(name) = self.name {
            builder = builder.product_name(name);
        }
        let machine = builder.build().unwrap();
        for (position, line) in &self.control {
            machine.control(*position, line).unwrap();
        }
        machine
    }

    /// Brings every function up.
    pub fn settle(&self) -> Settled {
        let machine = self.machine();
        let driver = Driver::with_config(machine.clone(), self.config);
        machine.run(driver.settled()).expect("nobody may wait for ever");
        let at = machine.now();
        Settled { machine, driver, at }
    }
}

impl Settled {
    pub fn device(&self, index: u32) -> Device<Machine> {
        self.driver.device(index).expect("a device")
    }

    pub fn only_device(&self) -> Device<Machine> {
        let mut devices = self.driver.devices();
        assert_eq!(devices.len(), 1, "{:?}", self.driver.refusals());
        devices.remove(0)
    }

    pub fn only_refusal(&self) -> Refusal {
        let mut refusals = self.driver.refusals();
        assert_eq!((refusals.len(), self.driver.devices().len()), (1, 0));
        refusals.remove(0)
    }

    /// Indices of the devices that are READY, ascending.
    pub fn ready(&self) -> Vec<u32> {
        let devices = self.driver.devices();
        let ready = devices.iter().filter(|device| device.state() == DeviceState::Ready);
        ready.map(|device| device.index().number()).collect()
    }

    pub fn report(&self, position: usize) -> Report {
        self.machine.report(position).unwrap()
    }

    pub fn millis(&self) -> u128 {
        self.at.since(Instant::from_nanos(0)).as_millis()
    }

    /// Runs a future on the machine, which must end by itself.
    pub fn run<F: Future>(&self, future: F) -> F::Output {
        self.machine.run(future).expect("nobody may wait for ever")
    }

    /// Copies a pattern to every core of a device and back.
    pub fn check_copies(&self, device: &Device<Machine>) {
        self.run(async {
            let client = device.open().await.unwrap();
            for core in device.hal().core_ids() {
                let host = axon::HostAlloc { core, ..axon::HostAlloc::new(70_000) };
                let hbm = axon::DeviceAlloc { core, ..axon::DeviceAlloc::new(70_000) };
                let from = client.alloc_host(host).await.unwrap();
                let to = client.alloc_host(host).await.unwrap();
                let middle = client.alloc_device(hbm).await.unwrap();
                let mut data = vec![0; 70_000];
                let seed = u64::from(device.index().number()) << 8 | u64::from(core.number());
                axon::pattern::SplitMix64::new(seed).fill(&mut data);
                from.memory().unwrap().write(0, &data).unwrap();
                let out = from.span(..).unwrap().copy_to(middle.span(..).unwrap()).unwrap();
                out.await.unwrap();
                let back = middle.span(..).unwrap().copy_to(to.span(..).unwrap()).unwrap();
                back.await.unwrap();
                let mut found = vec![0; 70_000];
                to.memory().unwrap().read(0, &mut found).unwrap();
                assert!(found == data, "{} {core}", device.index());
            }
            client.close().await;
        });
    }

    pub fn sleep(&self, span: Duration) {
        self.run(self.machine.sleep(span));
    }
}

impl Drop for Settled {
    /// Devices and driver know each other; taking the devices down lets go of both.
    fn drop(&mut self) {
        let ended = self.machine.run(self.driver.shut_down());
        self.machine.shut_down();
        assert!(ended.is_ok() || std::thread::panicking(), "a device does not go");
    }
}

/// MiscRAM in the register window.
pub fn misc_ram(product: Product) -> u64 {
    match product {
        Product::Trn1 | Product::Inf2 => 0x30fa_0000,
        _ => 0x06c8_4000,
    }
}

/// Writes to MiscRAM, by offset in it, up to the first question to firmware.
pub fn firmware_writes(report: &Report, product: Product) -> Vec<(u64, u32)> {
    let base = misc_ram(product);
    let inside = |offset: u64| offset.checked_sub(base).filter(|&at| at < 0x1000);
    let trace = report.register_trace.iter();
    let writes = trace.filter_map(|record| Some((inside(record.offset)?, record.value)));
    writes.take_while(|(offset, _)| *offset != 0x100).collect()
}
