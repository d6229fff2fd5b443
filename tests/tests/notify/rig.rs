//! The driver alone, with memory that fails on order: what a client never sees it take back.

use std::future::Future;

use axon_hosted::Machine;
use axon_memory::faults::{Countdown, Faults};
use axon_memory::{MemoryClient, MemoryConfig, MemoryService, MemorySet, PlatformMemory};
use axon_model::NotificationBlock;
use axon_neuron::notify::QueueSpec;
use axon_neuron::{DeviceConfig, DeviceTable, NeuronDevice, Probed, Published, probe};
use axon_platform::{Errno, ModelControl, Platform};
use axon_ports::reset::DeviceState;
use axon_ports::{AllocRequest, ClientId, ClientSlot, Lifespan, Location};

struct Rig {
    machine: Machine,
    device: NeuronDevice<Machine>,
    memory: MemoryClient,
    client: (ClientId, ClientSlot),
}

async fn rig(machine: &Machine) -> Rig {
    let function = machine.functions().into_iter().next().unwrap();
    let config = DeviceConfig { manage_notifications: true, ..DeviceConfig::default() };
    let table = DeviceTable::new();
    let Probed { pools, ladder } = probe(machine, &function, &config, &table, |geometry| {
        let config = MemoryConfig { host_memory_size: 8 << 20, ..MemoryConfig::default() };
        MemorySet::new(config, *geometry, PlatformMemory(machine.clone()))
    })
    .await
    .unwrap();
    let (memory, service) = MemoryService::new(pools);
    let Published { device, completion, reset, notify } = ladder.publish(memory.clone()).unwrap();
    machine.spawn("memory", service.run()).unwrap();
    machine.spawn("completion", completion).unwrap();
    machine.spawn("reset", reset).unwrap();
    machine.spawn("notify", notify).unwrap();
    assert_eq!(device.settled().await, DeviceState::Ready);
    let client = (ClientId::new(1).unwrap(), ClientSlot::new(0).unwrap());
    memory.attach(client.0, client.1).await.unwrap();
    Rig { machine: machine.clone(), device, memory, client }
}

fn on_rig<F: Future>(test: impl FnOnce(Rig) -> F) -> F::Output {
    let machine = Machine::builder().device("trn1").build().unwrap();
    let output = machine.run(async { test(rig(&machine).await).await });
    assert_eq!(machine.stray_accesses(), 0);
    machine.shut_down();
    output.unwrap()
}

fn armed(machine: &Machine, queue: u8) -> bool {
    let block = NotificationBlock::Core(0);
    machine.with_model(0, |model| model.queue_state(block, queue).unwrap().armed).unwrap()
}

#[test]
fn nq_d12_without_a_handle_there_is_no_queue() {
    on_rig(|rig| async move {
        let spec = QueueSpec::new(0, 4, 4096);
        let faults = Faults { handle_table: Countdown::nth(1), ..Faults::default() };
        rig.memory.arm(faults).await.unwrap();
        // Handles until the table cannot grow: from then on it is down.
        let page = AllocRequest {
            client: Some(rig.client),
            lifespan: Lifespan::Client,
            location: Location::Device,
            publish: true,
            ..AllocRequest::driver_host(4096)
        };
        let mut kept = Vec::new();
        while let Ok(chunk) = rig.memory.alloc(page).await {
            kept.push(chunk);
        }
        let before = rig.memory.counters().live_chunks();
        let refused = rig.device.notifications(&rig.memory, rig.client, &spec).await.err().unwrap();
        assert_eq!(refused.errno(), Errno::ENOENT, "{refused}");
        assert!(!armed(&rig.machine, 4));
        assert_eq!(rig.memory.counters().live_chunks(), before);
    });
}

#[test]
fn nq_d13_removal_ends_queues_while_the_device_listens() {
    on_rig(|rig| async move {
        let mut queues = Vec::new();
        for index in [2, 4] {
            let spec = QueueSpec::new(0, index, 4096);
            let queue = rig.device.notifications(&rig.memory, rig.client, &spec).await.unwrap();
            queues.push(queue);
        }
        rig.machine.control(0, "post nc0 4 count=50").unwrap();
        let waiting = queues[0].next();
        let shut_down = async {
            rig.machine.sleep(std::time::Duration::from_millis(1)).await;
            rig.device.shut_down().await;
        };
        let (told, ()) = embassy_futures::join::join(waiting, shut_down).await;
        assert_eq!(told.unwrap().err().unwrap().errno(), Errno::ENODEV);
        assert!(!armed(&rig.machine, 2) && !armed(&rig.machine, 4));
        // The hardware was told, before it could not hear any more.
        let state = rig
            .machine
            .with_model(0, |model| model.queue_state(NotificationBlock::Core(0), 4).unwrap());
        assert_eq!(state.unwrap().size, 0);
        assert_eq!(queues[1].try_next().err().unwrap().errno(), Errno::ENODEV);
        rig.machine.control(0, "post nc0 4 count=50").unwrap();
    });
}

#[test]
fn every_allocation_of_a_queue_may_fail() {
    on_rig(|rig| async move {
        let device = axon_neuron::notify::Placement::Device { channel: 0, region: 0 };
        for placement in [axon_neuron::notify::Placement::Host, device] {
            let spec = QueueSpec { placement, ..QueueSpec::new(0, 4, 8192) };
            rig.machine.sleep(std::time::Duration::from_millis(1)).await;
            let before = rig.memory.counters().live_chunks();
            let mut failed = 0;
            for allocation in 1.. {
                let faults = Faults { allocation: Countdown::nth(allocation), ..Faults::default() };
                rig.memory.arm(faults).await.unwrap();
                match rig.device.notifications(&rig.memory, rig.client, &spec).await {
                    Ok(queue) => {
                        rig.memory.arm(Faults::default()).await.unwrap();
                        queue.close().await;
                        break;
                    }
                    Err(error) => assert_eq!(error.errno(), Errno::ENOMEM, "{error}"),
                }
                failed += 1;
                assert!(!armed(&rig.machine, 4));
                rig.machine.sleep(std::time::Duration::from_millis(1)).await;
                assert_eq!(rig.memory.counters().live_chunks(), before);
            }
            let expected = if placement == device { 2 } else { 1 };
            assert_eq!(failed, expected);
        }
    });
}
