//! What the Linux driver gets wrong between clients, resets and removal, one test a defect
//! (specification 05 §20). Those that other suites catch bear the same kind of name there.

use std::time::Duration;

use axon::ports::reset::CoreState;
use axon::ports::{AllocRequest, Lifespan};
use axon::{DeviceAlloc, HostAlloc, Producer, QueueSpec};
use axon_model::{FunctionConfig, Product};
use axon_neuron::DeviceTable;
use axon_platform::{Errno, PciFunction, Platform};
use axon_ports::reset::DeviceState;
use axon_ports::{CoreId, CoreMap};

use crate::host::{Host, firmware_writes};
use crate::unbind::climb;
use axon_tests::bench::{Setup, every, trn1, trn2};

const A_MOMENT: Duration = Duration::from_millis(1);

#[test]
fn st_d07_what_is_not_a_known_device_is_never_enabled_and_spoils_no_other() {
    let mut functions = vec![FunctionConfig::new(Product::Trn1, 0)];
    functions[0].fault("bad-device-id=0x7065").unwrap();
    functions.push(FunctionConfig::new(Product::Trn2, 1));
    let settled = Host::of(functions).settle();
    assert_eq!(settled.driver.refusals()[0].error.errno(), Errno::ENODEV);
    let functions = settled.machine.functions();
    let commands: Vec<u32> = functions.iter().map(|f| f.config_read32(4) & 7).collect();
    assert_eq!(commands, [0, 6]);
    let device = &settled.driver.devices()[0];
    assert_eq!((device.state(), device.hal().cores()), (DeviceState::Ready, 8));
}

#[test]
fn st_d11_bring_ups_that_fail_with_a_mailbox_leave_no_entry_of_it() {
    // The table of firmware's read regions in Linux has 128 places and is never cleared.
    let host = Host::one(Product::Trn1).fault(0, "all-ones");
    let machine = host.machine();
    let table = DeviceTable::new();
    let free = machine.free_dma_bytes();
    for round in 0..130 {
        let refused = machine.run(climb(&machine, 0, &host.config, &table)).unwrap().map(drop);
        assert!(refused.unwrap_err().to_string().contains("D9"), "behind the mailbox, {round}");
        assert_eq!(machine.free_dma_bytes(), free, "{round}");
    }
    machine.shut_down();
}

#[test]
fn st_d13_nothing_is_written_once_the_function_is_off_and_handles_reach_no_freed_memory() {
    for setup in every() {
        setup.run(async |bench| {
            let (from, to) = (bench.pattern(8192, 1).await, bench.hbm(8192).await);
            bench.control("fault drop-marker=1");
            let copy = from.span(..).unwrap().copy_to(to.span(..).unwrap()).unwrap().start();
            bench.device.shut_down().await;
            assert_eq!(copy.await.unwrap_err().errno(), Errno::ECANCELED);
            let writes = bench.report().register_writes;
            let open = bench.client.clone();
            drop((from, to));
            assert_eq!(
                open.alloc_host(HostAlloc::new(1)).await.err().unwrap().errno(),
                Errno::ENODEV
            );
            assert_eq!(open.reset(CoreMap(1)).unwrap_err().errno(), Errno::ENODEV);
            open.close().await;
            bench.pause(Duration::from_secs(3)).await;
            assert_eq!(bench.report().register_writes, writes);
        });
    }
}

#[test]
fn a_fill_that_waits_for_the_buffer_is_told_that_the_device_is_removed() {
    for setup in every() {
        setup.run(async |bench| {
            let (one, other) = (bench.hbm(4096).await, bench.hbm(4096).await);
            bench.control("fault drop-marker=1");
            let mut first = Box::pin(one.fill(.., 1).unwrap());
            let mut second = Box::pin(other.fill(.., 2).unwrap());
            assert!(embassy_futures::poll_once(first.as_mut()).is_pending());
            assert!(embassy_futures::poll_once(second.as_mut()).is_pending());
            let ended = embassy_futures::join::join3(first, second, bench.device.shut_down()).await;
            assert_eq!(ended.0.unwrap_err().errno(), Errno::ECANCELED);
            assert_eq!(ended.1.unwrap_err().errno(), Errno::ENODEV);
        });
    }
}

#[test]
fn st_d19_a_slot_starts_with_no_memory_of_whoever_had_it() {
    trn1().run(async |bench| {
        let first = bench.device.open().await.unwrap();
        let kept = first.alloc_host(HostAlloc::new(8192)).await.unwrap();
        let slot = |client: axon_ports::ClientId| {
            bench.device.clients().into_iter().find(|info| info.client == client).unwrap()
        };
        let before = slot(first.id());
        assert_eq!(bench.device.client_memory(&before).host, 8192);
        first.close().await;
        let second = bench.device.open().await.unwrap();
        let after = slot(second.id());
        assert_eq!(after.slot, before.slot);
        let memory = bench.device.client_memory(&after);
        assert_eq!((memory.host, memory.device), (0, 0));
        drop(kept);
        bench.pause(A_MOMENT).await;
        assert_eq!(bench.device.client_memory(&after).host, 0, "nor is the new one credited");
    });
}

#[test]
fn st_d20_memory_is_charged_to_its_owner_and_told_for_whoever_is_asked_about() {
    trn1().run(async |bench| {
        let [a, b] = [bench.device.open().await.unwrap(), bench.device.open().await.unwrap()];
        let of = |client: axon_ports::ClientId| {
            let rows = bench.device.clients();
            let row = rows.iter().find(|info| info.client == client).unwrap();
            let memory = bench.device.client_memory(row);
            (memory.host, memory.device)
        };
        let shared = AllocRequest { size: 65_536, lifespan: Lifespan::AllClients, ..a.request() };
        let shared = a.alloc(shared).await.unwrap();
        let _own = b.alloc_device(DeviceAlloc::new(4096)).await.unwrap();
        assert_eq!((of(a.id()), of(b.id())), ((65_536, 0), (0, 4096)));
        let refused = b.free(shared.handle()).await.unwrap_err();
        assert_eq!(refused.errno(), Errno::EPERM);
        a.free(shared.handle()).await.unwrap();
        drop(shared);
        bench.pause(A_MOMENT).await;
        assert_eq!((of(a.id()), of(b.id())), ((0, 0), (0, 4096)));
    });
}

#[test]
fn st_d21_copies_of_a_handle_count_once() {
    trn1().run(async |bench| {
        let client = bench.device.open().await.unwrap();
        let clones = [client.clone(), client.clone()];
        assert_eq!(bench.device.open_count(), 2, "the one of the bench and this one");
        drop(clones);
        bench.pause(Duration::from_millis(50)).await;
        client.alloc_host(HostAlloc::new(1)).await.unwrap();
        assert_eq!(bench.device.open_count(), 2);
    });
}

#[test]
fn st_d23_the_end_of_a_client_waits_for_its_reset() {
    for setup in every() {
        setup.run(async |bench| {
            let client = bench.device.open().await.unwrap();
            let id = client.id();
            bench.control("fault lost-trigger=1");
            drop(client.reset(CoreMap(1)).unwrap());
            drop(client);
            bench.pause(Duration::from_secs(9)).await;
            let rows = bench.device.clients();
            let row = rows.iter().find(|info| info.client == id).expect("its slot is not free");
            assert!(row.closing);
            // The others come and go meanwhile.
            bench.device.open().await.unwrap().close().await;
            bench.pause(Duration::from_secs(2)).await;
            assert!(bench.device.clients().iter().all(|info| info.client != id));
            assert_eq!(bench.device.core_state(CoreId::new(0).unwrap()), CoreState::Up);
        });
    }
}

#[test]
fn st_d24_what_a_client_leaves_behind_belongs_to_nobody() {
    for setup in every() {
        setup.run(async |bench| {
            let core = CoreId::new(1).unwrap();
            let first = bench.device.open().await.unwrap();
            let queue = first.notifications(QueueSpec::new(1, 4, 4096)).await.unwrap();
            let host = first.alloc_host(HostAlloc { core, ..HostAlloc::new(4096) }).await.unwrap();
            let wishes = DeviceAlloc { core, ..DeviceAlloc::new(4096) };
            let hbm = first.alloc_device(wishes).await.unwrap();
            bench.control("fault late-marker=20ms times=1");
            // On a host-transfer engine: the walk of the exit does not leave those out.
            drop(host.span(..).unwrap().copy_to(hbm.span(..).unwrap()).unwrap().start());
            let since = bench.now();
            drop((host, hbm));
            first.close().await;
            assert!(bench.now().since(since) >= Duration::from_millis(20), "its copy was awaited");
            assert_eq!(bench.device.memory_totals().draining, 0);
            let second = bench.device.open().await.unwrap();
            let again = second.notifications(QueueSpec::new(1, 4, 4096)).await.unwrap();
            assert_eq!(queue.info().unwrap_err().errno(), Errno::EACCES);
            drop(again);
        });
    }
}

#[test]
fn st_d25_a_request_too_many_has_no_effect_and_says_busy() {
    trn2().run(async |bench| {
        let map = CoreMap(0b10);
        let tickets: Vec<_> = (0..16).map(|_| bench.client.reset(map).unwrap()).collect();
        bench.pause(Duration::from_secs(1)).await;
        let (writes, core) = (bench.report().register_writes, CoreId::new(0).unwrap());
        let refused = bench.client.reset(CoreMap(1)).unwrap_err();
        assert_eq!(refused.errno(), Errno::EBUSY);
        assert_eq!(bench.device.core_state(core), CoreState::Up, "nothing was submitted");
        bench.pause(Duration::from_secs(1)).await;
        assert_eq!(bench.report().register_writes, writes);
        assert_eq!(bench.report().core_resets, 1, "sixteen requests, one reset");
        for ticket in tickets {
            ticket.await.unwrap();
        }
        bench.client.reset(CoreMap(1)).unwrap().await.unwrap();
    });
}

#[test]
fn st_d28_a_reset_by_the_driver_itself_sets_the_engines_up_again() {
    for setup in every() {
        let mut setup = setup;
        setup.function.trace("registers").unwrap();
        setup.run(async |bench| {
            let engines = |bench: &axon_tests::bench::Bench| {
                // Outstanding reads of the first host-transfer engine: written at initialisation.
                let unit = bench.device.hal().engines().find(|e| e.core.is_none()).unwrap().unit;
                let writes = bench.report().register_trace;
                writes.iter().filter(|write| write.offset == unit + 0x310).count()
            };
            let before = engines(&bench);
            bench.client.clone().close().await;
            let device = bench.device.clone();
            // The control is for devices that nobody has open.
            let client = bench.client;
            client.close().await;
            device.reset().unwrap().await.unwrap();
            let client = device.open().await.unwrap();
            let hbm = client.alloc_device(DeviceAlloc::new(4096)).await.unwrap();
            hbm.write(0, b"works").await.unwrap();
            let bench = axon_tests::bench::Bench { client, device, machine: bench.machine };
            assert!(engines(&bench) > before);
        });
    }
}

#[test]
fn st_d30_every_failed_stage_is_counted_on_every_core() {
    let failures = |setup: Setup, fault: &str| {
        setup.run(async |bench| {
            let core = CoreId::new(1).unwrap();
            let count = || bench.device.records().counters.resets.failures[core.index()].get();
            assert_eq!(count(), 0);
            bench.control(fault);
            let result = bench.client.reset(CoreMap::DEVICE).unwrap().await;
            assert!(result.is_err(), "{fault}");
            count()
        })
    };
    for setup in every() {
        // Never accepted, never finished, gone while the engines are set up.
        for fault in ["fault never-ack", "fault reset-stuck times=1"] {
            assert_eq!(failures(setup.clone(), fault), 1, "{fault}");
        }
    }
}

#[test]
fn st_d34_memory_of_a_topsp_queue_is_kept_until_the_reset_has_succeeded() {
    trn2().run(async |bench| {
        let spec = QueueSpec { producer: Producer::TopSp(0), ..QueueSpec::new(0, 4, 65_536) };
        let _queue = bench.client.notifications(spec).await.unwrap();
        let before = bench.device.memory_totals().host;
        let started = bench.now();
        let reset = bench.client.reset(CoreMap(1)).unwrap();
        bench.pause(Duration::from_micros(900)).await;
        assert_eq!(bench.device.memory_totals().host, before, "halted, not drained yet");
        reset.await.unwrap();
        assert!(bench.now().since(started) >= Duration::from_millis(1));
        assert!(bench.device.memory_totals().host < before);
    });
}

#[test]
fn a_reset_control_is_for_devices_that_nobody_has_open() {
    trn1().run(async |bench| {
        assert_eq!(bench.device.reset().unwrap_err().errno(), Errno::EBUSY);
        assert_eq!(bench.device.state(), DeviceState::Ready);
        assert_eq!(firmware_writes(&bench.report(), Product::Trn1), []);
    });
}
