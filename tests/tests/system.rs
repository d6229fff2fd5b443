//! Several clients, many devices, every order of tasks: what holds whatever the seed.

use std::time::Duration;

use axon::ports::reset::DeviceState;
use axon::ports::{AllocRequest, CoreMap, Location};
use axon::{Client, Context, DeviceAlloc, HostAlloc};
use axon_hosted::{Input, Machine};
use axon_platform::{Errno, PciFunction, Platform};
use axon_tests::{PRODUCTS, machine, on, on_each};

async fn open(cx: &Context<Machine>) -> Client<Machine> {
    cx.driver.settled().await;
    cx.driver.device(0).expect("a device").open().await.expect("a client")
}

#[test]
fn mem_e09_memory_for_a_core_that_v2_does_not_have_is_served_by_the_second_core() {
    on_each("{}", async |cx| {
        let client = open(&cx).await;
        let request =
            AllocRequest { size: 4096, core: 7, location: Location::Device, ..client.request() };
        let chunk = client.alloc(request).await.unwrap();
        chunk.write(1, b"seven").await.unwrap();
        let mut bytes = [0; 5];
        chunk.read(1, &mut bytes).await.unwrap();
        assert_eq!(&bytes, b"seven");
    });
}

#[test]
fn dma_e11_two_clients_copy_at_the_same_time_on_one_ring() {
    for seed in 0..3 {
        on_each(&format!("{{}} seed={seed}"), async |cx| {
            let clients = [open(&cx).await, open(&cx).await];
            let mut ends = Vec::new();
            let mut copies = Vec::new();
            for (client, byte) in clients.iter().zip([0x11, 0x22]) {
                let host = client.alloc_host(HostAlloc::new(65536)).await.unwrap();
                let hbm = client.alloc_device(DeviceAlloc::new(65536)).await.unwrap();
                host.memory().unwrap().fill(0, 65536, byte).unwrap();
                let copy = host.span(..).unwrap().copy_to(hbm.span(..).unwrap()).unwrap();
                copies.push(copy.start());
                ends.push((host, hbm, byte));
            }
            for copy in copies.into_iter().rev() {
                copy.await.unwrap();
            }
            for (_, hbm, byte) in &ends {
                let mut bytes = vec![0; 65536];
                hbm.read(0, &mut bytes).await.unwrap();
                assert!(bytes.iter().all(|found| found == byte));
            }
        });
    }
}

/// A client that leaves with two copies in flight, their markers `late`.
async fn leave_in_flight(cx: &Context<Machine>, late: &str) -> axon::Device<Machine> {
    let client = open(cx).await;
    let device = client.device().clone();
    let host = client.alloc_host(HostAlloc::new(8192)).await.unwrap();
    let hbm = client.alloc_device(DeviceAlloc::new(8192)).await.unwrap();
    cx.platform.model().unwrap().control(0, &format!("fault {late}")).unwrap();
    for at in [0, 4096] {
        let from = host.span(at..at + 4096).unwrap();
        drop(from.copy_to(hbm.span(at..at + 4096).unwrap()).unwrap().start());
    }
    drop((host, hbm, client));
    device
}

#[test]
fn dma_e39_copies_of_a_client_that_leaves_are_drained_first() {
    for product in PRODUCTS {
        let machine = machine(product);
        let cx = Context::start(machine.clone());
        let device = machine
            .run(async {
                let device = leave_in_flight(&cx, "late-marker=20ms").await;
                cx.platform.sleep(Duration::from_millis(15)).await;
                assert_eq!(device.memory_totals().draining, 16384);
                cx.platform.sleep(Duration::from_millis(40)).await;
                device
            })
            .expect("it ends");
        assert_eq!(device.memory_totals().draining, 0);
        assert!(device.clients().is_empty());
        assert_eq!(machine.stray_accesses(), 0);
        machine.shut_down();
    }
}

#[test]
fn dma_e39_memory_whose_marker_never_comes_is_kept_until_a_reset_covers_the_engine() {
    on_each("{}", async |cx| {
        let device = leave_in_flight(&cx, "drop-marker=2").await;
        cx.platform.sleep(Duration::from_secs(2)).await;
        assert!(device.clients().is_empty(), "1 s of drain, then the slot is free");
        assert_eq!(device.memory_totals().draining, 16384);
        device.reset().unwrap().await.unwrap();
        assert_eq!(device.state(), DeviceState::Ready);
        cx.platform.sleep(Duration::from_millis(1)).await;
        assert_eq!(device.memory_totals().draining, 0);
    });
}

#[test]
fn api_e51_st_e25_every_request_has_a_number_and_the_seventeenth_waits_for_none() {
    on_each("{}", async |cx| {
        let client = open(&cx).await;
        let tickets: Vec<_> = (0..16).map(|_| client.reset(CoreMap(1)).unwrap()).collect();
        let mut ids: Vec<u32> = tickets.iter().map(axon::ResetTicket::id).collect();
        ids.dedup();
        assert_eq!(ids.len(), 16);
        assert_eq!(client.reset(CoreMap(1)).unwrap_err().errno(), Errno::EBUSY);
        for ticket in tickets {
            ticket.await.unwrap();
        }
        client.reset(CoreMap(1)).unwrap().await.unwrap();
    });
}

#[test]
fn st_e30_a_reset_of_one_core_leaves_copies_of_another_alone() {
    on_each("{}", async |cx| {
        let client = open(&cx).await;
        // Of another pair than core 0 where there are pairs.
        let last = client.device().hal().core_ids().last();
        let core = last.unwrap();
        let hbm = client.alloc_device(DeviceAlloc { core, ..DeviceAlloc::new(1 << 20) }).await;
        let (hbm, host) = (hbm.unwrap(), client.alloc_host(HostAlloc::new(1 << 20)).await.unwrap());
        let reset = client.reset(CoreMap(1)).unwrap();
        for _ in 0..20 {
            host.span(..).unwrap().copy_to(hbm.span(..).unwrap()).unwrap().await.unwrap();
        }
        reset.await.unwrap();
    });
}

#[test]
fn st_e07_st_d08_mixed_generations_keep_their_own_constants() {
    on("trn2,trn3,inf2", async |cx| {
        cx.driver.settled().await;
        let cores: Vec<u8> = cx.driver.devices().iter().map(|d| d.hal().cores()).collect();
        assert_eq!(cores.iter().map(|c| u32::from(*c)).sum::<u32>(), 18);
        assert!(cx.driver.devices().iter().all(|d| d.state() == DeviceState::Ready));
    });
}

#[test]
fn a_host_may_have_64_devices() {
    let names = vec!["trn1"; 64].join(",");
    on(&names, async |cx| {
        cx.driver.settled().await;
        let devices = cx.driver.devices();
        assert_eq!(devices.len(), 64, "{:?}", cx.driver.refusals().first());
        let indices: Vec<u32> = devices.iter().map(|device| device.index().number()).collect();
        assert_eq!(indices, (0..64).collect::<Vec<_>>());
        let client = devices[63].open().await.unwrap();
        client.alloc_device(DeviceAlloc::new(4096)).await.unwrap().write(0, b"x").await.unwrap();
    });
}

/// Clients that come, copy, drop things half-way and leave, in every order of tasks: nothing is
/// left, and the device never touched memory that nobody had.
#[test]
fn nothing_is_left_whatever_the_order() {
    for seed in 0..16 {
        let product = PRODUCTS[seed % PRODUCTS.len()];
        let machine = machine(&format!("{product} seed={seed} fault=slow=30us"));
        let cx = Context::start(machine.clone());
        let device = machine
            .run(async {
                cx.driver.settled().await;
                cx.driver.device(0).unwrap()
            })
            .expect("it ends");
        let before = device.memory_totals();
        for _ in 0..4 {
            let (device, clock) = (device.clone(), machine.clone());
            let visit = async move {
                let Ok(client) = device.open().await else { return };
                let host = client.alloc_host(HostAlloc::new(4096)).await.unwrap();
                let hbm = client.alloc_device(DeviceAlloc::new(4096)).await.unwrap();
                hbm.write(7, b"visit").await.unwrap();
                let copy = hbm.span(..).unwrap().copy_to(host.span(..).unwrap()).unwrap();
                drop(copy.start());
                clock.sleep(Duration::from_micros(clock.random() % 50)).await;
                if clock.random() & 1 == 0 {
                    client.close().await;
                }
            };
            machine.spawn("visit", visit).unwrap();
        }
        machine.run_for(Duration::from_secs(3)).expect("it ends");
        assert!(device.clients().is_empty(), "seed {seed}");
        assert_eq!(device.memory_totals(), before, "seed {seed}");
        assert_eq!(machine.stray_accesses(), 0, "seed {seed}");
        assert!(machine.report(0).unwrap().violations.is_empty(), "seed {seed}");
        machine.shut_down();
    }
}

#[test]
fn json_has_the_same_keys_one_object_a_line() {
    let machine = Machine::builder()
        .device("trn1")
        .argument("json")
        .input(Input::Text("open 0\nalloc device 4097\ncopy 1 1 0\ndevices\n".into()))
        .build()
        .expect("a machine");
    let main = axon_console::main(Context::start(machine.clone()));
    let code: u8 = machine.run(main).expect("it ends").into();
    machine.shut_down();
    assert_eq!(code, 1, "an error that nobody expected");
    let output = machine.output();
    let lines: Vec<serde_json::Value> =
        output.lines().map(|line| serde_json::from_str(line).expect("JSON")).collect();
    assert_eq!(lines[0]["client"], 1);
    assert_eq!(
        output.lines().nth(1),
        Some("{\"ok\":true,\"handle\":1,\"pa\":\"0x3c0000000\",\"size\":8192}")
    );
    assert_eq!((&lines[2]["ok"], &lines[2]["error"]), (&false.into(), &"EINVAL".into()));
    assert_eq!(lines[3]["state"], "READY");
    assert_eq!(lines[4]["count"], 1);
}

#[test]
fn st_d09_st_d12_devices_that_were_taken_down_can_be_brought_up_again() {
    let machine = machine("trn1,inf2,trn2,trn3");
    for _ in 0..3 {
        let app = async |cx: Context<Machine>| {
            let client = open(&cx).await;
            let hbm = client.alloc_device(DeviceAlloc::new(4096)).await.unwrap();
            hbm.write(0, b"again").await.unwrap();
            axon::ExitCode::SUCCESS
        };
        let ended = machine.run(axon::run(machine.clone(), app)).expect("it ends");
        assert_eq!(ended, axon::ExitCode::SUCCESS);
        machine.run_for(Duration::from_millis(20)).expect("it ends");
        assert_eq!(machine.tasks(), [""; 0], "every task has ended");
        for function in machine.functions() {
            let command = function.config_read32(4);
            assert_eq!(command & 4, 0, "bus mastering is off");
        }
    }
    machine.shut_down();
}

#[test]
fn what_outlives_its_device_says_that_it_is_gone() {
    on_each("{}", async |cx| {
        let client = open(&cx).await;
        let device = client.device().clone();
        let hbm = client.alloc_device(DeviceAlloc::new(4096)).await.unwrap();
        cx.driver.shut_down().await;
        assert_eq!(hbm.write(0, b"x").await.unwrap_err().errno(), Errno::ENODEV);
        assert_eq!(device.open().await.err().unwrap().errno(), Errno::ENODEV);
        assert!(device.open_info().is_err());
        client.close().await;
        assert!(cx.driver.devices().is_empty());
    });
}

#[test]
fn more_writers_than_bounce_chunks_take_turns() {
    on_each("{}", async |cx| {
        let client = open(&cx).await;
        let hbm = client.alloc_device(DeviceAlloc::new(12 << 16)).await.unwrap();
        let data: Vec<Vec<u8>> = (0..12).map(|byte| vec![byte; 1 << 16]).collect();
        let mut writes: Vec<_> = data
            .iter()
            .zip(0..)
            .map(|(data, at): (_, u64)| Box::pin(hbm.write(at << 16, data)))
            .collect();
        // Polled in turns, as tasks would be.
        std::future::poll_fn(|cx| {
            writes.retain_mut(|write| match write.as_mut().poll(cx) {
                std::task::Poll::Ready(result) => result.is_err(),
                std::task::Poll::Pending => true,
            });
            if writes.is_empty() { std::task::Poll::Ready(()) } else { std::task::Poll::Pending }
        })
        .await;
        for (at, expected) in (0u64..).zip(&data) {
            let mut found = vec![0; 1 << 16];
            hbm.read(at << 16, &mut found).await.unwrap();
            assert!(found == *expected, "piece {at}");
        }
    });
}
