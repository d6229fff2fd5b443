//! What holds however often and wherever: calls dropped at every await, resets under copies.

use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::task::Poll;
use std::time::Duration;

use axon::ports::{CoreMap, ModelUuid};
use axon::{
    Client, Direction, HostAlloc, HostRange, MemoryTotals, QueueSpec, RingAlloc, Side,
    ZeroCopyRequest,
};
use axon_hosted::Machine;
use axon_platform::Platform;
use axon_ports::{CoreId, DeviceIndex, HbmIndex};
use embassy_futures::join::join;

use axon_tests::bench::{Bench, Setup, bytes, trn1, trn2};

const MODEL: ModelUuid = ModelUuid([3; 32]);

fn is_long() -> bool {
    std::env::var_os("AXON_LONG").is_some()
}

/// How a call that is given up after some polls has gone.
#[derive(PartialEq, Eq, Debug)]
enum Given {
    Up,
    Ended,
}

/// Polls a future that many times, as often as it is woken, then drops it where it waits.
async fn give_up_after<F: Future<Output = ()>>(polls: u32, future: F) -> Given {
    let mut future = Box::pin(future);
    let mut left = polls;
    poll_fn(|cx| {
        if future.as_mut().poll(cx).is_ready() {
            return Poll::Ready(Given::Ended);
        }
        left -= 1;
        if left == 0 { Poll::Ready(Given::Up) } else { Poll::Pending }
    })
    .await
}

type MakeCall = for<'a> fn(&'a Scene<'a>) -> Call<'a>;
type Call<'a> = Pin<Box<dyn Future<Output = ()> + 'a>>;

/// What a call is tried with: its client, and what was made for it beforehand.
struct Scene<'a> {
    bench: &'a Bench,
    client: Client<Machine>,
}

/// Every call that may wait, by the name of what it does. Results do not matter here.
const CALLS: &[(&str, MakeCall)] = &[
    ("open", |scene| Box::pin(async { drop(scene.bench.device.open().await) })),
    ("open and close", |scene| {
        Box::pin(async {
            let client = scene.bench.device.open().await.unwrap();
            client.alloc_host(HostAlloc::new(1)).await.unwrap();
            client.close().await;
        })
    }),
    ("alloc, retain, search, within, free", |scene| {
        Box::pin(async {
            let client = &scene.client;
            let chunk = client.alloc_host(HostAlloc::new(4096)).await.unwrap();
            client.retain(chunk.handle()).await.unwrap();
            client.search(chunk.device_addr()).await.unwrap();
            drop(client.within(chunk.device_addr(), 16).await.unwrap());
            client.free(chunk.handle()).await.unwrap();
        })
    }),
    ("write and read through a bounce chunk", |scene| {
        Box::pin(async {
            let wishes = axon::DeviceAlloc::new(200_000);
            let hbm = scene.client.alloc_device(wishes).await.unwrap();
            let mut data = vec![7; 200_000];
            hbm.write(0, &data).await.unwrap();
            hbm.read(0, &mut data).await.unwrap();
        })
    }),
    ("copy and fill", |scene| {
        Box::pin(async {
            let host = scene.client.alloc_host(HostAlloc::new(1 << 20)).await.unwrap();
            let hbm = scene.client.alloc_device(axon::DeviceAlloc::new(1 << 20)).await.unwrap();
            host.span(..).unwrap().copy_to(hbm.span(..).unwrap()).unwrap().await.unwrap();
            hbm.span(..).unwrap().fill(9).unwrap().await.unwrap();
        })
    }),
    ("reset", |scene| Box::pin(async { scene.client.reset(CoreMap(1)).unwrap().await.unwrap() })),
    ("copy in a reset", |scene| {
        Box::pin(async {
            let host = scene.client.alloc_host(HostAlloc::new(4096)).await.unwrap();
            let hbm = scene.client.alloc_device(axon::DeviceAlloc::new(4096)).await.unwrap();
            drop(scene.client.reset(CoreMap(1)).unwrap());
            host.span(..).unwrap().copy_to(hbm.span(..).unwrap()).unwrap().await.unwrap();
        })
    }),
    ("claim", |scene| Box::pin(async { drop(scene.client.claim(1, 0..=1).await.unwrap()) })),
    ("lock: write, downgrade, read", |scene| {
        Box::pin(async {
            let core = scene.client.core(1).unwrap();
            let reader = core.model_writer(MODEL).await.unwrap().downgrade().unwrap();
            drop(core.model_reader(MODEL).await.unwrap());
            drop(reader);
        })
    }),
    ("lock commands that stay", |scene| {
        Box::pin(async {
            let commands = scene.client.core_commands();
            commands.writer_enter(0, MODEL).await.unwrap();
            commands.writer_downgrade(0, MODEL).await.unwrap();
            commands.reader_enter(0, MODEL).await.unwrap();
        })
    }),
    ("lock that somebody holds", |scene| {
        Box::pin(async {
            let other = scene.bench.client.core(0).unwrap();
            let _held = other.model_writer(MODEL).await.unwrap();
            drop(scene.client.core(0).unwrap().model_writer(MODEL).await);
        })
    }),
    ("init that somebody does", |scene| {
        Box::pin(async {
            let _held = scene.bench.client.core(0).unwrap().begin_init().await.unwrap();
            drop(scene.client.core(0).unwrap().begin_init().await);
        })
    }),
    ("notifications", |scene| {
        Box::pin(async {
            let spec = QueueSpec::new(0, 4, 4096);
            let mut queue = scene.client.notifications(spec).await.unwrap();
            scene.bench.control("post nc0 4 sequence=1");
            queue.next().await.unwrap().unwrap();
            queue.resize(8192).await.unwrap();
            queue.close().await;
        })
    }),
    ("queues", |scene| {
        Box::pin(async {
            let client = &scene.client;
            let tx = client.alloc_ring(RingAlloc::new(Side::Tx, 64)).await.unwrap();
            let rx = client.alloc_ring(RingAlloc::new(Side::Rx, 64)).await.unwrap();
            client.bind_queue(3, 2, &tx, &rx).await.unwrap().close().await.unwrap();
            let core = CoreId::new(0).unwrap();
            client.h2t_queues(core, 2, 1).await.unwrap().close().await.unwrap();
        })
    }),
    ("zero-copy", |scene| {
        Box::pin(async {
            let host = scene.client.alloc_host(HostAlloc::new(4096)).await.unwrap();
            let hbm = scene.client.alloc_device(axon::DeviceAlloc::new(4096)).await.unwrap();
            let piece = HostRange { handle: host.handle(), offset: 0, len: 4096 };
            let (to, hbm) = (Direction::ToDevice, hbm.handle());
            // V2 refuses it: also a way to end.
            let _ = scene.client.zero_copy(&ZeroCopyRequest::single(to, -1, hbm, 0, piece)).await;
        })
    }),
    ("firmware", |scene| {
        Box::pin(async {
            let _ = scene.client.post_metric(b"x").await;
            let _ = scene.client.set_power_profile(1).await;
            drop(scene.bench.device.hardware_counters(&[]).await);
            let _own = scene.client.datastore().unwrap();
            drop(scene.client.datastore_of(scene.client.id()).await);
        })
    }),
    ("windows and peers", |scene| {
        Box::pin(async {
            let client = &scene.client;
            let hbm = client.alloc_device(axon::DeviceAlloc::new(8192)).await.unwrap();
            let window = hbm.window().await.unwrap();
            drop(window.export(..).await);
            drop(client.window(hbm.device_addr(), 4096).await);
            drop(client.hbm_window(HbmIndex::new(0).unwrap()).await);
            let host = client.alloc_host(HostAlloc::new(4096)).await.unwrap();
            drop(client.hold_host_ranges(&[(host.device_addr(), 4096)]).await);
        })
    }),
    ("look-ups and dumps", |scene| {
        Box::pin(async {
            let client = &scene.client;
            let hbm = HbmIndex::new(0).unwrap();
            let core = CoreId::new(0).unwrap();
            let chunk = client.alloc_scratchpad(4096, hbm, core).await.unwrap();
            drop(client.find(chunk.device_addr()).await.unwrap());
            let device = &scene.bench.device;
            device.memory_usage().await.unwrap();
            drop((device.chunks(0).await, device.chunks_up_to(0, 9).await));
            drop(device.host_chunks().await.unwrap());
        })
    }),
    ("copies with wait handles", |scene| {
        Box::pin(async {
            let host = scene.client.alloc_host(HostAlloc::new(4096)).await.unwrap();
            let hbm = scene.client.alloc_device(axon::DeviceAlloc::new(4096)).await.unwrap();
            let copies = scene.client.async_copies(CoreId::new(0).unwrap());
            let spans = || (host.span(..).unwrap(), hbm.span(..).unwrap());
            let (from, to) = spans();
            let first = copies.submit(-1, from, to).await.unwrap();
            let (from, to) = spans();
            let second = copies.submit(first, from, to).await.unwrap();
            copies.wait(second).await.unwrap();
        })
    }),
    ("queue commands", |scene| {
        Box::pin(async {
            let queues = scene.client.queues();
            let claims = queues.h2t_alloc(0, 1, 1).await.unwrap();
            let taken = u32::from(claims.copy | claims.service);
            queues.h2t_free(0, taken).await.unwrap();
            let _ = queues.release(3, 2).await;
        })
    }),
    ("semaphore and event", |scene| {
        Box::pin(async {
            let _claim = scene.client.claim(1, 0..=0).await.unwrap();
            let core = scene.client.core(0).unwrap();
            let (semaphore, event) = (core.semaphore(3).unwrap(), core.event(3).unwrap());
            semaphore.set(0).unwrap();
            let raise = async {
                scene.bench.pause(Duration::from_micros(20)).await;
                semaphore.set(5).unwrap();
                event.set(true).unwrap();
            };
            join(raise, async {
                semaphore.reached(5).await.unwrap();
                event.wait().await.unwrap();
            })
            .await;
            event.set(false).unwrap();
            semaphore.set(0).unwrap();
        })
    }),
    ("init commands and firmware's lists", |scene| {
        Box::pin(async {
            let commands = scene.client.core_commands();
            let _ = commands.set_init_state(0, 1).await;
            let _ = commands.reader_exit(0, MODEL).await;
            let _ = scene.bench.device.power_profiles(0).await;
            let _ = scene.client.throttle_notifications(true).await;
        })
    }),
];

/// What must be as before, however a client went.
#[derive(PartialEq, Eq, Debug)]
struct Counters {
    memory: MemoryTotals,
    clients: usize,
    opens: u32,
    owners: Vec<Option<axon_ports::ClientId>>,
    locks: Vec<axon::LockView>,
    tasks: Vec<&'static str>,
    index: DeviceIndex,
}

fn counters(bench: &Bench) -> Counters {
    let device = &bench.device;
    let mut tasks = bench.machine.tasks();
    tasks.sort_unstable();
    Counters {
        memory: device.memory_totals(),
        clients: device.clients().len(),
        opens: device.open_count(),
        owners: device.hal().core_ids().map(|core| device.core_owner(core)).collect(),
        locks: device.hal().core_ids().map(|core| device.model_lock(core)).collect(),
        tasks,
        index: device.index(),
    }
}

/// Tries every call on a device, dropped at its first await, its second, and so on to its end.
fn drop_everywhere(setup: Setup) {
    let telemetry = Some(axon::metrics::TelemetryConfig::default());
    let mut setup = Setup { telemetry, ..setup };
    // The shortest reset that still waits.
    setup.function.reset_ns = 1_500_000;
    setup.run(async |bench| {
        let settle = Duration::from_millis(60);
        // What is made once and kept: bounce chunks, first use of engines.
        bench.hbm(4096).await.write(0, b"warm").await.unwrap();
        bench.pause(settle).await;
        for (name, call) in CALLS {
            let before = counters(&bench);
            let mut polls = 0;
            loop {
                polls += 1;
                let scene = Scene { bench: &bench, client: bench.device.open().await.unwrap() };
                let given = give_up_after(polls, call(&scene)).await;
                scene.client.close().await;
                bench.pause(settle).await;
                let after = counters(&bench);
                for (core, lock) in bench.device.hal().core_ids().zip(&after.locks) {
                    assert_eq!(lock.hold, axon::Hold::Free, "{name}, await {polls}, {core}");
                }
                let locks = after.locks.clone();
                let before = Counters { locks, ..counters_of(&before) };
                assert_eq!(after, before, "{name}, dropped at await {polls}");
                if given == Given::Ended {
                    break;
                }
                assert!(polls < 400, "{name} never ends");
            }
        }
    });
}

fn counters_of(counters: &Counters) -> Counters {
    Counters {
        memory: counters.memory,
        owners: counters.owners.clone(),
        locks: Vec::new(),
        tasks: counters.tasks.clone(),
        ..*counters
    }
}

#[test]
fn v2_a_client_dropped_at_every_await_of_every_call_leaves_nothing() {
    drop_everywhere(trn1());
}

#[test]
fn v3_a_client_dropped_at_every_await_of_every_call_leaves_nothing() {
    drop_everywhere(trn2());
}

/// Resets of core 1 while copies run on core 0: none is lost, none is wrong.
fn reset_beside_copies(setup: Setup, resets: u32) {
    let mut setup = setup;
    setup.function.reset_ns = 200_000;
    setup.run(async |bench| {
        const PAGES: u64 = 16;
        let (from, back) = (bench.pattern(PAGES * 4096, 5).await, bench.host(PAGES * 4096).await);
        let hbm = bench.hbm(PAGES * 4096).await;
        let before = bench.device.counters();
        let over = std::cell::Cell::new(false);
        let resetting = async {
            for _ in 0..resets {
                bench.client.reset(CoreMap(0b10)).unwrap().await.unwrap();
            }
            over.set(true);
        };
        let copying = async {
            let mut copies = 0;
            while !over.get() {
                let page = copies % PAGES * 4096..(copies % PAGES + 1) * 4096;
                back.memory().unwrap().fill(page.start, 4096, 0).unwrap();
                let there = hbm.span(page.clone()).unwrap();
                from.span(page.clone()).unwrap().copy_to(there).unwrap().await.unwrap();
                let here = back.span(page.clone()).unwrap();
                hbm.span(page.clone()).unwrap().copy_to(here).unwrap().await.unwrap();
                let at = page.start as usize..page.end as usize;
                assert!(bytes(&back)[at.clone()] == bytes(&from)[at], "copy {copies}");
                copies += 1;
                // Not always at the same moment of a drive.
                bench.pause(Duration::from_micros(bench.machine.random() % 97)).await;
            }
            copies
        };
        let ((), copies) = join(resetting, copying).await;
        let after = bench.device.counters();
        assert_eq!(bench.report().core_resets, u64::from(resets));
        assert_eq!(after.completed - before.completed, 2 * copies);
        assert_eq!((after.cancelled, after.timeouts, after.replays), (0, 0, 0));
        assert!(copies > u64::from(resets), "{copies} copies beside {resets} resets");
    });
}

#[test]
fn resets_of_core_1_under_a_copy_loop_on_core_0_lose_nothing() {
    let resets = if is_long() { 1000 } else { 25 };
    for setup in [trn1(), trn2()] {
        reset_beside_copies(setup, resets);
    }
}
