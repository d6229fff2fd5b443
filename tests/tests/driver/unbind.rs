//! One device bound by hand, without the services above it: taken down, cancelled, bound again.

use std::future::Future;
use std::pin::pin;
use std::task::{Context, Waker};
use std::time::Duration;

use axon_hosted::Machine;
use axon_memory::{MemoryConfig, MemoryService, MemorySet, PlatformMemory};
use axon_model::Product;
use axon_neuron::{DeviceConfig, DeviceTable, NeuronDevice, ProbeError, Probed, probe};
use axon_platform::{Errno, PciFunction, Platform};
use axon_ports::reset::{DeviceState, Requester, ResetRequest};
use axon_ports::{ClientId, CoreMap, Pools};

use crate::host::Host;

/// A published device with its tasks.
pub struct Bound {
    pub device: NeuronDevice<Machine>,
}

type Memory = MemorySet<PlatformMemory<Machine>>;

/// The rungs up to D18.
pub async fn climb(
    machine: &Machine,
    position: usize,
    config: &DeviceConfig,
    table: &DeviceTable,
) -> Result<Probed<Machine, Memory>, ProbeError> {
    let function = machine.functions().remove(position);
    let memory = PlatformMemory(machine.clone());
    let sizes = MemoryConfig { host_memory_size: 4 << 20, ..MemoryConfig::default() };
    probe(machine, &function, config, table, |geometry| MemorySet::new(sizes, *geometry, memory))
        .await
}

impl Bound {
    pub async fn bind(
        machine: &Machine,
        position: usize,
        config: &DeviceConfig,
        table: &DeviceTable,
    ) -> Result<Bound, ProbeError> {
        let Probed { pools, ladder } = climb(machine, position, config, table).await?;
        let (memory, service) = MemoryService::new(pools);
        let published = ladder.publish(memory)?;
        machine.spawn("memory", service.run()).expect("room");
        machine.spawn("completion", published.completion).expect("room");
        machine.spawn("reset", published.reset).expect("room");
        Ok(Bound { device: published.device })
    }

    /// Takes the device down and waits until its tasks have ended.
    pub async fn unbind(self, machine: &Machine) {
        self.device.shut_down().await;
        drop(self);
        machine.sleep(Duration::from_millis(200)).await;
    }
}

fn command(machine: &Machine, position: usize) -> u32 {
    machine.functions()[position].config_read32(4) & 0xffff
}

#[test]
fn dev_e18_a_bring_up_that_is_dropped_while_it_waits_leaves_nothing() {
    let host = Host::one(Product::Trn1).fault(0, "fw-late=30s");
    let machine = host.machine();
    let table = DeviceTable::new();
    let free = machine.free_dma_bytes();
    {
        let mut climbing = pin!(climb(&machine, 0, &host.config, &table));
        assert!(climbing.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_pending());
        assert_eq!(command(&machine, 0), 2, "decoding is on, bus mastering is not");
    }
    assert_eq!((command(&machine, 0), machine.free_dma_bytes()), (0, free));
    assert_eq!(table.published(), 0);
    machine
        .run(async {
            let bound = Bound::bind(&machine, 0, &host.config, &table).await.unwrap();
            assert_eq!(bound.device.settled().await, DeviceState::Ready);
            assert_eq!(command(&machine, 0), 6);
            bound.unbind(&machine).await;
        })
        .unwrap();
    assert_eq!(command(&machine, 0), 0);
    machine.shut_down();
    assert_eq!(machine.free_dma_bytes(), free, "every byte is back");
}

#[test]
fn dev_d09_a_refused_bring_up_gives_everything_back() {
    let faults =
        ["bar0-size", "bar-unassigned", "bad-device-id", "all-ones", "dead-reads", "fw-late=90s"];
    for product in [Product::Trn1, Product::Trn2] {
        for fault in faults {
            let host = Host::one(product).fault(0, fault);
            let machine = host.machine();
            let table = DeviceTable::new();
            let free = machine.free_dma_bytes();
            let refused = machine.run(climb(&machine, 0, &host.config, &table)).unwrap();
            assert_eq!(refused.map(drop).unwrap_err().errno(), Errno::ENODEV, "{fault}");
            assert_eq!(machine.free_dma_bytes(), free, "{fault}");
            // A function that is gone answers nothing, its command register included.
            assert!([0, 0xffff].contains(&command(&machine, 0)), "{fault}");
            machine.shut_down();
        }
    }
}

#[test]
fn dev_e35_st_e26_st_d15_a_device_that_leaves_does_not_wait_for_its_reset() {
    for product in [Product::Trn1, Product::Trn2] {
        let host = Host::one(product).fault(0, "never-ack");
        let machine = host.machine();
        let table = DeviceTable::new();
        machine
            .run(async {
                let bound = Bound::bind(&machine, 0, &host.config, &table).await.unwrap();
                let requester = Requester::Client(ClientId::new(1).unwrap());
                let request = ResetRequest { map: CoreMap(1), requester };
                let waiting = bound.device.reset(request).unwrap();
                machine.sleep(Duration::from_secs(5)).await;
                assert_eq!(bound.device.state(), DeviceState::Reset);
                let start = machine.now();
                bound.device.shut_down().await;
                assert_eq!(waiting.await.unwrap_err().errno(), Errno::ECANCELED);
                assert!(machine.now().since(start) <= Duration::from_millis(115));
                assert_eq!(bound.device.state(), DeviceState::Invalid);
                let writes = machine.report(0).unwrap().register_writes;
                machine.sleep(Duration::from_secs(60)).await;
                assert_eq!(machine.report(0).unwrap().register_writes, writes);
                assert_eq!(command(&machine, 0), 2, "bus mastering is off");
            })
            .unwrap();
        machine.shut_down();
    }
}

#[test]
fn st_e01_pools_that_refuse_say_at_which_rung() {
    use axon_ports::{AllocRequest, Chunk, Location, MemoryError};
    /// Gives `left` chunks, then nothing.
    struct Stingy {
        pools: Memory,
        left: u32,
    }
    impl Pools for Stingy {
        fn alloc(&mut self, request: &AllocRequest) -> Result<Chunk, MemoryError> {
            let Some(left) = self.left.checked_sub(1) else {
                let (asked, location) = (request.size, Location::Host);
                return Err(MemoryError::NoMemory { location, asked, free: 0, largest: 0 });
            };
            self.left = left;
            self.pools.alloc(request)
        }
    }
    let host = Host::one(Product::Inf2);
    let config = DeviceConfig { datastore_slabs: 2, ..host.config };
    for (left, rung) in [(0, "D16"), (1, "D16"), (2, "D17"), (3, "D18")] {
        let machine = host.machine();
        let free = machine.free_dma_bytes();
        let table = DeviceTable::new();
        let function = machine.functions().remove(0);
        let climbed = probe(&machine, &function, &config, &table, |geometry| {
            let sizes = MemoryConfig { host_memory_size: 4 << 20, ..MemoryConfig::default() };
            let pools = MemorySet::new(sizes, *geometry, PlatformMemory(machine.clone()))?;
            Ok(Stingy { pools, left })
        });
        let error = machine.run(climbed).unwrap().map(drop).unwrap_err();
        assert_eq!(error.errno(), Errno::ENOMEM);
        assert!(error.to_string().contains(rung), "{error}");
        assert_eq!((machine.free_dma_bytes(), command(&machine, 0)), (free, 0));
        machine.run(Bound::bind(&machine, 0, &config, &table)).unwrap().map(drop).unwrap();
        machine.shut_down();
    }
}
