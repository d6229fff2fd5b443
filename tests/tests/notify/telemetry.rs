//! What telemetry knows of notification queues: gauges, series, events (specification 06 §17.7, 07
//! §16.4, §16.5).

use axon::metrics::prometheus::Exposition;
use axon::ports::telemetry::EventKind;
use axon::ports::telemetry::events::EventQuery;
use axon::{HostAlloc, Placement, Producer, QueueKind, QueueSpec, WhenFull};

use crate::bench::{Bench, Queues, drain, spec, trn1, trn2};

/// The samples of notification queues, without their common start.
fn samples(bench: &Bench) -> Vec<String> {
    let snapshot = [bench.device.telemetry().unwrap().snapshot().unwrap()];
    let mut text = String::new();
    Exposition { devices: &snapshot, prefix: "neuron_nq_" }.render(&mut text).unwrap();
    let samples = text.lines().filter_map(|line| line.strip_prefix("neuron_nq_"));
    samples.map(|line| line.replace("device=\"0\",", "").replace("{device=\"0\"}", "")).collect()
}

/// Client and data of the events of a kind, oldest first.
fn events(bench: &Bench, kind: EventKind) -> Vec<(u32, u64)> {
    let mut events = Vec::new();
    let query = EventQuery { kind: Some(kind), ..EventQuery::default() };
    bench.device.records().events.dump(&query, |record| {
        events.push((record.client.map_or(0, |client| client.number()), record.data));
    });
    events
}

#[test]
fn every_queue_has_its_series_which_outlive_it() {
    trn2().telemetry().run(async |bench| {
        assert_eq!(samples(&bench), ["queues_armed 0"]);
        let mut own = bench.queue(spec(4096)).await;
        let topsp = QueueSpec { producer: Producer::TopSp(9), index: 1, ..spec(4096) };
        let _topsp = bench.queue(topsp).await;
        let kind = QueueKind::TraceDma;
        let trace = QueueSpec { kind, producer: Producer::Core(1), index: 3, ..spec(4096) };
        let _trace = bench.queue(trace).await;
        bench.control("post nc0 4 count=5 sequence=0");
        assert_eq!(drain(&mut own).len(), 5);
        let expected = |armed: u32, consumed: u32, overflows: u32| {
            vec![
                "overflows_total{block=\"nc0\",queue=\"4\"} ".to_owned() + &overflows.to_string(),
                "overflows_total{block=\"nc1.dma3\",queue=\"0\"} 0".into(),
                "overflows_total{block=\"ts9\",queue=\"1\"} 0".into(),
                format!("queues_armed {armed}"),
                "records_consumed_total{block=\"nc0\",queue=\"4\"} ".to_owned()
                    + &consumed.to_string(),
                "records_consumed_total{block=\"nc1.dma3\",queue=\"0\"} 0".into(),
                "records_consumed_total{block=\"ts9\",queue=\"1\"} 0".into(),
            ]
        };
        assert_eq!(samples(&bench), expected(3, 5, 0));
        own.close().await;
        assert_eq!(samples(&bench), expected(2, 5, 0));

        // Another ring on the same hardware queue goes on counting.
        let mut own = bench.queue(QueueSpec { when_full: WhenFull::Drop, ..spec(8192) }).await;
        bench.control("post nc0 4 count=600 sequence=0");
        while let Some(Ok(_)) = own.next().await {}
        assert_eq!(samples(&bench), expected(3, 5 + 511, 1));
    });
}

#[test]
fn queues_and_what_is_exposed_are_in_the_event_ring() {
    trn1().telemetry().run(async |bench| {
        let client = bench.client.id().number();
        let queue = bench.queue(spec(4096)).await;
        let memory = queue.memory().unwrap().bus().0;
        let own = (client, 0x3053_51a0);
        assert_eq!(events(&bench, EventKind::QueueArmed), [own]);
        assert_eq!(events(&bench, EventKind::BufferExposed), [(client, memory)]);

        // A new ring ends the old one.
        let queue = {
            let mut queue = queue;
            queue.resize(8192).await.unwrap();
            queue
        };
        assert_eq!(events(&bench, EventKind::QueueDestroyed), [own]);
        assert_eq!(events(&bench, EventKind::QueueArmed), [own, own]);
        queue.close().await;
        assert_eq!(events(&bench, EventKind::QueueDestroyed), [own, own]);

        // Memory is exposed once, when it is looked at for the first time.
        let buffer = bench.client.alloc_host(HostAlloc::new(4096)).await.unwrap();
        assert_eq!(events(&bench, EventKind::BufferExposed).len(), 1);
        let address = buffer.device_addr().0;
        for _ in 0..3 {
            assert!(buffer.memory().is_some());
        }
        assert_eq!(events(&bench, EventKind::BufferExposed)[1..], [(client, address)]);
    });
}

#[test]
fn no_way_out_leaves_a_queue_counted_as_armed() {
    trn1().telemetry().run(async |bench| {
        let armed = || bench.device.records().counters.queues_armed.get();
        let placement = Placement::Device { channel: 0, region: 0 };
        let _host = bench.queue(spec(4096)).await;
        let _device = bench.queue(QueueSpec { index: 5, placement, ..spec(4096) }).await;
        assert_eq!(armed(), 2);
        bench.reset().await;
        assert_eq!(armed(), 0);
        let _again = bench.queue(spec(4096)).await;
        assert_eq!(armed(), 1);
        // The device is gone: nothing is armed that could be told of.
        bench.control("fault all-ones");
        assert!(bench.device.identity().is_err());
        assert_eq!((armed(), bench.device.notification_counters().armed), (0, 0));
        let told = events(&bench, EventKind::QueueArmed).len();
        assert_eq!(events(&bench, EventKind::QueueDestroyed).len(), told);
    });
}
