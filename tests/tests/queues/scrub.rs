//! HBM scrubs: what is written, who is refused, and every way to end (specification 04 §9.3).

use std::pin::pin;
use std::time::Duration;

use axon::ports::telemetry::TraceKind;
use axon::ports::telemetry::trace::TraceTask;
use axon::{Client, DeviceAlloc, Error, RingOwner, Scrub, Side};
use axon_hosted::Machine;
use axon_platform::Errno;
use axon_ports::{CoreMap, HbmIndex};
use embassy_futures::poll_once;

use crate::rig::{Rings, errno, host_used, ring};
use axon_tests::bench::{Bench, every, one_of_each_map, trn1};

const WORD: u32 = 0xa5a5_a5a5;

fn hbm(number: u32) -> HbmIndex {
    HbmIndex::new(number).unwrap()
}

/// First byte, first byte that is scrubbed, byte behind the last, engines.
fn channel(bench: &Bench, number: u32) -> (u64, u64, u64, Vec<u32>) {
    let hal = bench.device.hal();
    let channel = hal.memory_geometry().channels[number as usize];
    let engines = hal.host_connected(hbm(number)).map(|engine| engine.number()).collect();
    let base = channel.base.0;
    (base, base + 0x100_0000, base + channel.size, engines)
}

fn first_unlike(bench: &Bench, start: u64, end: u64, word: u32) -> Option<u64> {
    bench.machine.with_model(0, |model| model.first_unlike(start, end, word)).unwrap()
}

/// Whether the queues of all engines are free and parked, and nothing is held any more.
async fn assert_baseline(bench: &Bench, number: u32, host: u64) {
    bench.pause(Duration::from_millis(1)).await;
    for engine in channel(bench, number).3 {
        assert_eq!(bench.device.queue_owner(engine, 0).unwrap(), RingOwner::Free, "{engine}");
        // The dummy ring; 0 behind a reset.
        let length = bench.device.queue_status(engine, 0).unwrap().tx.length;
        assert!(matches!(length, 64 | 0), "{engine}: {length}");
    }
    assert_eq!(bench.device.counters().quarantined, 0);
    assert_eq!(bench.device.memory_totals().draining, 0);
    assert_eq!(host_used(bench).await, host);
    let other = bench.device.open().await.unwrap();
    let wishes = DeviceAlloc { hbm: hbm(number), ..DeviceAlloc::new(4096) };
    other.alloc_device(wishes).await.expect("the channel is open to all again");
    other.close().await;
}

async fn started(bench: &Bench, number: u32) -> Scrub<Machine> {
    bench.client.scrub(hbm(number), WORD).await.unwrap()
}

async fn scrub(client: &Client<Machine>, number: u32, word: u32) -> Result<(), Error> {
    client.scrub(hbm(number), word).await?.await
}

#[test]
fn mem_e92_the_whole_channel_and_nothing_else() {
    every().run(async |bench| {
        let last = bench.device.hal().memory_geometry().channel_count as u32 - 1;
        for number in [0, last] {
            let (base, start, end, _) = channel(&bench, number);
            bench.pause(Duration::from_millis(1)).await;
            let host = host_used(&bench).await;
            let mut before = vec![0; 0x100_0000];
            let mut after = before.clone();
            let look = |into: &mut [u8]| bench.machine.with_model(0, |m| m.look(base, into));
            look(&mut before).unwrap().unwrap();
            let (report, counters) = (bench.report(), bench.device.counters());
            scrub(&bench.client, number, WORD).await.unwrap();
            look(&mut after).unwrap().unwrap();
            assert!(before == after, "the carve-out is not touched");
            assert_eq!(first_unlike(&bench, start, end, WORD), None);
            // 16 first blocks, the chain, 16 read-backs, 16 completions; one pair each.
            let blocks = (end - start) / 0x1_0000;
            let pairs = 16 + (blocks - 16) + 16 + 16;
            let now = bench.report();
            assert_eq!(now.descriptors - report.descriptors, 2 * pairs);
            assert_eq!(now.markers - report.markers, 16);
            assert_eq!(now.doorbells - report.doorbells, 32);
            let counted = bench.device.counters();
            assert_eq!(counted.descriptors - counters.descriptors, pairs);
            assert_eq!(counted.bytes - counters.bytes, end - start);
            assert_eq!(counted.completed - counters.completed, 16);
            assert_baseline(&bench, number, host).await;
            // Again, with a word of four different bytes.
            scrub(&bench.client, number, 0x1122_3344).await.unwrap();
            assert_eq!(first_unlike(&bench, start, end, 0x1122_3344), None);
        }
    });
}

#[test]
fn mem_e92_v2_exact() {
    trn1().run(async |bench| {
        assert_eq!(channel(&bench, 0).2, 0x4_0000_0000);
        let before = bench.report().descriptors;
        scrub(&bench.client, 0, WORD).await.unwrap();
        let pairs = (bench.report().descriptors - before) / 2;
        assert_eq!(pairs, 16 + 261_872 + 16 + 16);
        assert_eq!(first_unlike(&bench, 0x100_0000, 0x4_0000_0000, WORD), None);
        assert_ne!(first_unlike(&bench, 0xff_ffff, 0x100_0000, WORD), None);
    });
}

#[test]
fn mem_d08_api_d42_who_is_refused() {
    every().run(async |bench| {
        // Bounce memory of the client is there from now on.
        bench.hbm(4096).await.read(0, &mut [0; 4]).await.unwrap();
        let host = host_used(&bench).await;
        let (_, start, ..) = channel(&bench, 0);
        let other = bench.device.open().await.unwrap();
        let theirs = other.alloc_device(DeviceAlloc::new(4096)).await.unwrap();
        let refused = bench.client.scrub(hbm(0), WORD).await.err().unwrap();
        assert_eq!(refused.errno(), Errno::EBUSY, "{refused}");
        scrub(&bench.client, 1, WORD).await.expect("another channel is free");
        drop(theirs);
        bench.pause(Duration::from_millis(1)).await;
        // One's own memory is scrubbed like the rest.
        let mine = bench.hbm(4096).await;
        bench.control("fault slow=2ms");
        let running = started(&bench, 0).await;
        assert_eq!(errno(scrub(&bench.client, 0, 1).await), Errno::EBUSY);
        assert_eq!(errno(scrub(&other, 0, 1).await), Errno::EBUSY);
        assert_eq!(errno(other.alloc_device(DeviceAlloc::new(4096)).await.map(drop)), Errno::EBUSY);
        bench.hbm(4096).await;
        // The queues are claimed.
        let engine = channel(&bench, 0).3[3];
        let id = bench.client.id();
        assert_eq!(bench.device.queue_owner(engine, 0).unwrap(), RingOwner::Scrub(id));
        for client in [&other, &bench.client] {
            let rings = Rings::new(client, 64).await;
            let bound = client.queues().init(&rings.init(engine, 0)).await;
            assert_eq!(errno(bound), Errno::EBUSY);
            let queues = client.queues();
            let own = client.id() == id;
            let wanted = if own { Errno::EALREADY } else { Errno::EPERM };
            assert_eq!(errno(queues.start(engine, 0, 1, 1)), wanted);
            assert_eq!(errno(queues.acknowledge(engine, 0, 1)), wanted);
            assert_eq!(errno(queues.release(engine, 0).await), wanted);
        }
        running.await.unwrap();
        bench.control("fault clear");
        let mut word = [0; 4];
        mine.read(0, &mut word).await.unwrap();
        assert_eq!((u32::from_le_bytes(word), mine.device_addr().0 >= start), (WORD, true));
        drop((mine, other));
        bench.pause(Duration::from_millis(1)).await;
        assert_baseline(&bench, 0, host).await;
        let absent = bench.device.hal().memory_geometry().channel_count;
        if let Some(absent) = HbmIndex::new(absent.into()) {
            assert_eq!(errno(bench.client.scrub(absent, 1).await.map(drop)), Errno::EINVAL);
        }
    });
}

#[test]
fn a_start_that_fails_leaves_nothing() {
    every().run(async |bench| {
        let engine = channel(&bench, 0).3[15];
        let rings = Rings::new(&bench.client, 64).await;
        bench.client.queues().init(&rings.init(engine, 0)).await.unwrap();
        let host = host_used(&bench).await;
        let doorbells = bench.doorbells().len();
        assert_eq!(errno(bench.client.scrub(hbm(0), WORD).await.map(drop)), Errno::EBUSY);
        assert_eq!(bench.doorbells().len(), doorbells);
        assert_eq!(host_used(&bench).await, host);
        bench.client.queues().release(engine, 0).await.unwrap();
        scrub(&bench.client, 0, WORD).await.unwrap();
        // A ring from before stays what it is.
        bench.client.queues().init(&rings.init(engine, 0)).await.unwrap();
        drop(ring(&bench.client, Side::Tx, 64).await);
    });
}

#[test]
fn dma_d28_one_engine_hangs_and_all_are_drained() {
    every().run(async |bench| {
        let host = host_used(&bench).await;
        let (_, _, _, engines) = channel(&bench, 0);
        let counters = bench.device.counters();
        bench.control(&format!("fault hang-engine={}", engines[5]));
        let began = bench.now();
        let failed = scrub(&bench.client, 0, WORD).await.unwrap_err();
        assert_eq!(failed.errno(), Errno::ETIMEDOUT, "{failed}");
        assert!(failed.to_string().contains(&format!("engine{} ", engines[5])), "{failed}");
        let waited = bench.now().since(began);
        let data = bench.device.hal().memory_geometry().channels[0].size / 0x10_0000 - 16 + 1;
        let budget = bench.device.hal().budget(data as u32, axon::hal::BatchKind::IntraDevice);
        assert!(waited >= budget.total() && waited < budget.total() * 11 / 10, "{waited:?}");
        let now = bench.device.counters();
        assert_eq!(now.completed - counters.completed, 15);
        assert_eq!((now.timeouts, now.cancelled), (counters.timeouts + 1, counters.cancelled + 1));
        // 15 are parked, one keeps what it may reach, and the channel stays closed to others.
        for &engine in &engines {
            assert_eq!(bench.device.queue_owner(engine, 0).unwrap(), RingOwner::Free);
            let length = bench.device.queue_status(engine, 0).unwrap().tx.length;
            assert_eq!(length == 64, engine != engines[5], "{engine}");
        }
        assert_eq!(now.quarantined - counters.quarantined, 1);
        bench.pause(Duration::from_millis(1)).await;
        let held = bench.device.memory_totals().draining;
        assert!(held > 0x10_0000, "{held}");
        assert_eq!(errno(scrub(&bench.client, 0, 1).await), Errno::EBUSY);
        let other = bench.device.open().await.unwrap();
        assert_eq!(errno(other.alloc_device(DeviceAlloc::new(4096)).await.map(drop)), Errno::EBUSY);
        other.close().await;
        bench.control("fault clear");
        bench.client.reset(CoreMap::DEVICE).unwrap().await.unwrap();
        assert_baseline(&bench, 0, host).await;
        scrub(&bench.client, 0, WORD).await.unwrap();
    });
}

#[test]
fn dma_d28_the_count_acknowledged_is_exact() {
    trn1().run(async |bench| {
        let trace = &bench.device.records().trace;
        trace.switch_on(TraceKind::DmaAckCompleted).unwrap();
        scrub(&bench.client, 0, WORD).await.unwrap();
        let mut counts = Vec::new();
        trace.dump(TraceTask::Dma, 64, |record| counts.push(format!("{:?}", record.event)));
        assert_eq!(counts.len(), 16, "{counts:?}");
        assert!(counts.iter().all(|count| count.contains("16370")), "{counts:?}");
    });
}

#[test]
fn an_engine_that_stops_is_named_at_once() {
    for fault in ["abort-descriptor=b1 after=40000", "abort-descriptor=a8 after=100"] {
        one_of_each_map().run(async |bench| {
            let host = host_used(&bench).await;
            bench.control(&format!("fault {fault}"));
            let began = bench.now();
            let failed = scrub(&bench.client, 0, WORD).await.unwrap_err();
            assert_eq!(failed.errno(), Errno::EIO, "{failed}");
            assert!(failed.to_string().contains("stopped while it served queue0"), "{failed}");
            assert!(bench.now().since(began) < Duration::from_millis(100));
            bench.control("fault clear");
            bench.client.reset(CoreMap::DEVICE).unwrap().await.unwrap();
            assert_baseline(&bench, 0, host).await;
        });
    }
}

#[test]
fn markers_that_are_lost_late_or_wrong() {
    for (fault, wanted) in [
        ("drop-marker=1 after=3", Some(Errno::ETIMEDOUT)),
        ("wrong-marker=7 after=9", Some(Errno::ETIMEDOUT)),
        ("late-marker=20ms times=16", None),
        ("late-marker=60s", Some(Errno::ETIMEDOUT)),
    ] {
        one_of_each_map().run(async |bench| {
            let host = host_used(&bench).await;
            bench.control(&format!("fault {fault}"));
            let result = scrub(&bench.client, 0, WORD).await;
            assert_eq!(result.err().map(|error| error.errno()), wanted, "{fault}");
            bench.control("fault clear");
            if wanted.is_some() {
                // The engine says that it is done; where its marker is, it cannot say.
                assert!(bench.device.counters().quarantined > 0);
                bench.pause(Duration::from_secs(70)).await;
                assert_eq!(errno(scrub(&bench.client, 0, 1).await), Errno::EBUSY);
                bench.client.reset(CoreMap::DEVICE).unwrap().await.unwrap();
            }
            assert_baseline(&bench, 0, host).await;
            scrub(&bench.client, 0, 1).await.unwrap();
        });
    }
}

#[test]
fn what_does_not_read_back_is_an_error() {
    one_of_each_map().run(async |bench| {
        let host = host_used(&bench).await;
        // The write of some first block comes short, and its whole chain with it.
        bench.control("fault short-write=8 times=1");
        let failed = scrub(&bench.client, 0, WORD).await.unwrap_err();
        assert_eq!(failed.errno(), Errno::EIO, "{failed}");
        assert!(failed.to_string().contains("does not read back"), "{failed}");
        assert_baseline(&bench, 0, host).await;
    });
}

#[test]
fn dropped_at_every_await() {
    one_of_each_map().run(async |bench| {
        let host = host_used(&bench).await;
        bench.control("fault slow=300us");
        for polls in 0.. {
            let mut over = false;
            {
                let mut whole = pin!(scrub(&bench.client, 1, WORD));
                for _ in 0..polls {
                    over = poll_once(whole.as_mut()).is_ready();
                    if over {
                        break;
                    }
                    bench.pause(Duration::from_micros(20)).await;
                }
            }
            if over {
                assert!(polls > 50, "{polls} polls");
                break;
            }
            bench.pause(Duration::from_millis(12)).await;
            assert_baseline(&bench, 1, host).await;
        }
        assert_baseline(&bench, 1, host).await;
    });
}

#[test]
fn a_client_that_leaves_ends_its_scrub() {
    every().run(async |bench| {
        let host = host_used(&bench).await;
        bench.control("fault slow=5ms");
        let leaving = bench.device.open().await.unwrap();
        let running = leaving.scrub(hbm(0), WORD).await.unwrap();
        leaving.close().await;
        assert_eq!(errno(running.await), Errno::ECANCELED);
        bench.control("fault clear");
        bench.pause(Duration::from_millis(20)).await;
        if bench.device.counters().quarantined > 0 {
            bench.client.reset(CoreMap::DEVICE).unwrap().await.unwrap();
        }
        assert_baseline(&bench, 0, host).await;
    });
}

#[test]
fn st_e29_a_reset_ends_a_scrub() {
    every().run(async |bench| {
        let host = host_used(&bench).await;
        for map in [CoreMap(1), CoreMap(if bench.is_v2() { 1 } else { 2 }), CoreMap::DEVICE] {
            bench.control("fault slow=200ms");
            let running = started(&bench, 0).await;
            bench.pause(Duration::from_micros(300)).await;
            let ticket = bench.client.reset(map).unwrap();
            assert_eq!(errno(running.await), Errno::ESTALE);
            ticket.await.unwrap();
            bench.control("fault clear");
            bench.pause(Duration::from_millis(500)).await;
            if bench.device.counters().quarantined > 0 {
                bench.client.reset(CoreMap::DEVICE).unwrap().await.unwrap();
            }
            assert_baseline(&bench, 0, host).await;
            scrub(&bench.client, 0, WORD).await.unwrap();
        }
    });
}

#[test]
fn a_device_that_goes_ends_a_scrub() {
    every().run(async |bench| {
        bench.control("fault slow=200ms");
        let running = started(&bench, 0).await;
        bench.control("fault all-ones");
        let ended = errno(running.await);
        assert_eq!(ended, Errno::EIO);
        let refused = errno(scrub(&bench.client, 0, WORD).await);
        assert_eq!(refused, Errno::EBUSY, "nobody knows what still writes there");
    });
}

#[test]
fn a_removal_ends_a_scrub() {
    every().run(async |bench| {
        bench.control("fault slow=5ms");
        let running = started(&bench, 0).await;
        bench.device.shut_down().await;
        // Nothing of it may be reached any more: the machine counts stray accesses.
        let ended = running.await.unwrap_err();
        assert!(matches!(ended, Error::Removed | Error::Cancelled(_)), "{ended}");
        bench.pause(Duration::from_secs(1)).await;
        assert_eq!(errno(bench.client.scrub(hbm(0), WORD).await.map(drop)), Errno::ENODEV);
    });
}

/// A little more host memory each time: the start fails at one step after the other.
#[test]
fn memory_that_runs_out_in_the_middle_of_a_start() {
    one_of_each_map().run(async |bench| {
        let mut blocks = Vec::new();
        for size in [16 << 20, 1 << 20, 64 << 10, 4096] {
            while let Ok(block) = bench.client.alloc_host(axon::HostAlloc::new(size)).await {
                blocks.push(block);
            }
        }
        blocks.sort_by_key(|block| block.size());
        let (queues, rung) = (channel(&bench, 0).3, bench.doorbells().len());
        let mut failures = 0;
        loop {
            let host = host_used(&bench).await;
            let failed = match bench.client.scrub(hbm(0), WORD).await {
                Ok(running) => {
                    running.await.unwrap();
                    break;
                }
                Err(failed) => failed,
            };
            failures += 1;
            assert_eq!(failed.errno(), Errno::ENOMEM, "{failed}");
            bench.pause(Duration::from_millis(1)).await;
            assert_eq!(host_used(&bench).await, host, "after {failures}");
            assert_eq!(bench.doorbells().len(), rung);
            for &engine in &queues {
                assert_eq!(bench.device.queue_owner(engine, 0).unwrap(), RingOwner::Free);
            }
            drop(blocks.drain(..blocks.len().min(3)));
            bench.pause(Duration::from_millis(1)).await;
        }
        assert!(failures > 16, "{failures}");
    });
}
