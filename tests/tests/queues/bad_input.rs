//! Every call of chapter 03 with every value that it may not have: the chapter's error, and nothing
//! started.

use axon::{Direction, HostRange, QueueInit, Side, ZeroCopyRequest};
use axon_platform::{DeviceAddr, Errno};
use axon_ports::CoreMap;

use crate::rig::{Rings, core, row, writes};
use axon_tests::bench::{Bench, every};

/// What is wrong with a queue, where it is, and what the calls on it say: bind, release, start,
/// acknowledge, copy out, state.
type Row = (&'static str, u32, u32, [Option<Errno>; 6]);

/// Numbers that are none, of whatever width they are cut to.
const BEYOND: [u32; 5] = [0x100, 0x1_0000, 0x8000_0000, u32::MAX - 1, u32::MAX];

fn of<T>(result: Result<T, axon::Error>) -> Option<Errno> {
    result.err().map(|error| error.errno())
}

/// The six calls on one queue, with arguments that are right otherwise.
async fn six(bench: &Bench, rings: &Rings, engine: u32, queue: u32) -> [Option<Errno>; 6] {
    let queues = bench.client.queues();
    [
        of(queues.init(&rings.init(engine, queue)).await),
        of(queues.release(engine, queue).await),
        of(queues.start(engine, queue, 1, 1)),
        of(queues.acknowledge(engine, queue, 1)),
        of(queues.copy_out(engine, queue, 0, 0, 1).await),
        of(bench.device.queue_status(engine, queue)),
    ]
}

#[test]
fn every_call_on_every_queue_that_is_not_there() {
    every().run(async |bench| {
        let rings = Rings::new(&bench.client, 64).await;
        let stranger = bench.device.open().await.unwrap();
        let theirs = Rings::new(&stranger, 64).await;
        stranger.queues().init(&theirs.init(3, 1)).await.unwrap();
        let taken = bench.client.queues().h2t_alloc(0, 1, 1).await.unwrap();
        let transfer = taken.engine.number();
        let (copy, service) = (taken.copy.trailing_zeros(), taken.service.trailing_zeros());
        let foreign = stranger.queues().h2t_alloc(0, 1, 1).await.unwrap();
        let their_copy = foreign.copy.trailing_zeros();
        let their_service = foreign.service.trailing_zeros();
        let none = [Some(Errno::EINVAL); 6];
        let absent = [Some(Errno::ENODEV); 6];
        let mut table: Vec<Row> = vec![
            ("engine 132", 132, 0, none),
            ("queue 16", 0, 16, none),
            ("queue 16 of the last engine", transfer, 16, none),
            (
                "the default queue",
                transfer,
                0,
                [
                    Some(Errno::EALREADY),
                    Some(Errno::EALREADY),
                    Some(Errno::EALREADY),
                    Some(Errno::EALREADY),
                    Some(Errno::ENODEV),
                    None,
                ],
            ),
            (
                "a copy queue",
                transfer,
                copy,
                [
                    Some(Errno::EALREADY),
                    Some(Errno::EALREADY),
                    Some(Errno::EALREADY),
                    Some(Errno::EALREADY),
                    Some(Errno::ENODEV),
                    None,
                ],
            ),
            (
                "another client's copy queue",
                transfer,
                their_copy,
                [
                    Some(Errno::EALREADY),
                    Some(Errno::EPERM),
                    Some(Errno::EPERM),
                    Some(Errno::EPERM),
                    Some(Errno::EPERM),
                    None,
                ],
            ),
            (
                "a service queue that is not bound",
                transfer,
                service,
                [
                    Some(Errno::EBUSY),
                    Some(Errno::ENODEV),
                    Some(Errno::ENODEV),
                    Some(Errno::ENODEV),
                    Some(Errno::ENODEV),
                    None,
                ],
            ),
            (
                "another client's service queue",
                transfer,
                their_service,
                [
                    Some(Errno::EBUSY),
                    Some(Errno::EPERM),
                    Some(Errno::EPERM),
                    Some(Errno::EPERM),
                    Some(Errno::EPERM),
                    None,
                ],
            ),
            (
                "another client's queue",
                3,
                1,
                [
                    Some(Errno::EBUSY),
                    Some(Errno::EPERM),
                    Some(Errno::EPERM),
                    Some(Errno::EPERM),
                    Some(Errno::EPERM),
                    None,
                ],
            ),
            (
                "a queue that was never bound",
                5,
                5,
                [
                    Some(Errno::EBUSY),
                    Some(Errno::ENODEV),
                    Some(Errno::ENODEV),
                    Some(Errno::ENODEV),
                    Some(Errno::ENODEV),
                    None,
                ],
            ),
        ];
        if bench.is_v2() {
            table.push(("an engine that V2 has not", 34, 0, absent));
            table.push(("the last engine that V2 has not", 131, 15, absent));
        }
        for beyond in BEYOND {
            table.push(("an engine beyond", beyond, 0, none));
            table.push(("a queue beyond", 0, beyond, none));
            table.push(("both beyond", beyond, beyond, none));
        }
        // The rings are on a queue already: a bind that gets that far says so.
        bench.client.queues().init(&rings.init(2, 1)).await.unwrap();
        let (before, rung) = (writes(&bench), bench.doorbells().len());
        let mut wrong = Vec::new();
        for (what, engine, queue, expected) in table {
            let found = six(&bench, &rings, engine, queue).await;
            if found != expected {
                wrong.push((what, engine, queue, found));
            }
        }
        assert!(wrong.is_empty(), "{wrong:#?}");
        assert_eq!((writes(&bench), bench.doorbells().len()), (before, rung));
    });
}

#[test]
fn every_call_on_a_queue_from_before_a_reset() {
    every().run(async |bench| {
        let rings = Rings::new(&bench.client, 64).await;
        bench.client.queues().init(&rings.init(2, 1)).await.unwrap();
        bench.client.reset(CoreMap(1)).unwrap().await.unwrap();
        let queues = bench.client.queues();
        let rung = bench.doorbells().len();
        for _ in 0..2 {
            assert_eq!(of(queues.start(2, 1, 1, 1)), Some(Errno::ESTALE));
            assert_eq!(of(queues.acknowledge(2, 1, 1)), Some(Errno::ESTALE));
            assert_eq!(of(queues.copy_out(2, 1, 0, 0, 1).await), Some(Errno::ESTALE));
        }
        assert_eq!(of(queues.release(2, 1).await), Some(Errno::ESTALE), "once");
        assert_eq!(of(queues.release(2, 1).await), Some(Errno::ENODEV));
        assert_eq!(of(queues.start(2, 1, 1, 1)), Some(Errno::ENODEV));
        assert_eq!(bench.doorbells().len(), rung);
        queues.init(&rings.init(2, 1)).await.unwrap();
    });
}

#[test]
fn every_field_of_a_binding() {
    every().run(async |bench| {
        let rings = Rings::new(&bench.client, 256).await;
        let stranger = bench.device.open().await.unwrap();
        let theirs = Rings::new(&stranger, 256).await;
        let plain = bench.host(4096).await.into_handle();
        let gone = bench.host(4096).await.into_handle();
        bench.client.free(gone).await.unwrap();
        let good = rings.init(2, 1);
        let counts = [0, 1, 16, 31, 33, 40, 255, 257, 272, 0xff_fff1, 0x100_0000, u32::MAX];
        let handles = [
            (0, Errno::EINVAL),
            (777, Errno::EINVAL),
            (u64::MAX, Errno::EINVAL),
            (gone, Errno::EINVAL),
            (plain, Errno::EINVAL),
            (theirs.tx.handle(), Errno::EPERM),
            (theirs.rx.handle(), Errno::EPERM),
        ];
        let before = writes(&bench);
        let queues = bench.client.queues();
        for count in counts {
            let tx = QueueInit { tx_count: count, ..good };
            let rx = QueueInit { rx_count: count, ..good };
            assert_eq!(of(queues.init(&tx).await), Some(Errno::EINVAL), "tx {count}");
            assert_eq!(of(queues.init(&rx).await), Some(Errno::EINVAL), "rx {count}");
            // The error of a batch names the entry, and the good one before it is not bound.
            let other = QueueInit { queue: 2, ..rx };
            let failed = queues.init_batch(&[good, other]).await.unwrap_err();
            assert_eq!((failed.entry, failed.error.errno()), (Some(1), Errno::EINVAL), "{count}");
        }
        for (handle, errno) in handles {
            let tx = QueueInit { tx: handle, ..good };
            let rx = QueueInit { rx: handle, ..good };
            assert_eq!(of(queues.init(&tx).await), Some(errno), "tx {handle}");
            assert_eq!(of(queues.init(&rx).await), Some(errno), "rx {handle}");
        }
        for completion in [1, rings.tx.handle(), u64::MAX] {
            let init = QueueInit { completion, ..good };
            assert_eq!(
                of(queues.init(&init).await),
                Some(Errno::EINVAL),
                "completion {completion}"
            );
        }
        assert_eq!(writes(&bench), before, "no register was written");
        queues.init(&good).await.unwrap();
    });
}

#[test]
fn every_count_of_start_acknowledge_and_copy_out() {
    every().run(async |bench| {
        let memory = bench.host(4096).await;
        let rings = Rings::new(&bench.client, 64).await;
        let fill = |side| vec![row(side, memory.device_addr(), 4); 64];
        rings.tx.stage(0, &fill(Side::Tx)).await.unwrap();
        rings.rx.stage(0, &fill(Side::Rx)).await.unwrap();
        let queues = bench.client.queues();
        queues.init(&rings.init(2, 1)).await.unwrap();
        let (before, rung) = (writes(&bench), bench.doorbells().len());
        for bad in [65, 128, 0x1_0000, 0xff_ffff, 0x100_0001, 0x8000_0000, u32::MAX] {
            for (tx, rx) in [(bad, 1), (0, bad), (1, bad), (bad, bad), (bad, 0), (1, 0)] {
                assert_eq!(of(queues.start(2, 1, tx, rx)), Some(Errno::EINVAL), "start {tx} {rx}");
            }
            assert_eq!(of(queues.acknowledge(2, 1, bad)), Some(Errno::EINVAL), "ack {bad}");
            for (start, count) in [(0, bad), (bad, 1), (bad, bad), (1, 64), (64, 1)] {
                for side in [0, 1] {
                    let found = of(queues.copy_out(2, 1, side, start, count).await);
                    assert_eq!(found, Some(Errno::EFBIG), "copy out {start} {count}");
                }
            }
            assert_eq!(of(queues.copy_out(2, 1, 0, bad, 0).await), Some(Errno::EINVAL));
            for side in [2, 3, bad] {
                assert_eq!(
                    of(queues.copy_out(2, 1, side, 0, 1).await),
                    Some(Errno::EINVAL),
                    "{side}"
                );
            }
        }
        assert_eq!(of(queues.acknowledge(2, 1, 1)), Some(Errno::EINVAL), "nothing was announced");
        assert_eq!((writes(&bench), bench.doorbells().len()), (before, rung));
        assert_eq!(queues.copy_out(2, 1, 1, 63, 1).await.unwrap(), fill(Side::Rx)[..1]);
    });
}

#[test]
fn every_place_of_a_descriptor() {
    every().run(async |bench| {
        let memory = bench.host(4096).await;
        let rings = Rings::new(&bench.client, 256).await;
        let stranger = bench.device.open().await.unwrap();
        let theirs = Rings::new(&stranger, 64).await;
        let queues = bench.client.queues();
        let one = [row(Side::Tx, memory.device_addr(), 4)];
        let ring = rings.tx.handle();
        let kept = [row(Side::Tx, memory.device_addr(), 9)];
        rings.tx.stage(0, &kept).await.unwrap();
        for offset in [1, 8, 15, 17, 4096, 4088, u64::MAX - 15, u64::MAX] {
            let found = of(queues.copy_descriptors(ring, offset, 0, &one).await);
            assert_eq!(found, Some(Errno::EINVAL), "offset {offset}");
        }
        for side in [1, 2, 3, 0x100, u32::MAX] {
            let found = of(queues.copy_descriptors(ring, 0, side, &one).await);
            assert_eq!(found, Some(Errno::EINVAL), "side {side}");
        }
        for (handle, errno) in [
            (0, Errno::EINVAL),
            (777, Errno::EINVAL),
            (u64::MAX, Errno::EINVAL),
            (memory.handle(), Errno::EINVAL),
            (theirs.tx.handle(), Errno::EPERM),
        ] {
            let found = of(queues.copy_descriptors(handle, 0, 0, &one).await);
            assert_eq!(found, Some(errno), "handle {handle}");
        }
        let too_many = vec![one[0]; 257];
        assert_eq!(of(queues.copy_descriptors(ring, 0, 0, &too_many).await), Some(Errno::EINVAL));
        // What a descriptor names: addresses and lengths.
        let at = memory.device_addr().0;
        let foreign = theirs.tx.handle();
        let foreign = stranger.by_handle(foreign).unwrap().facts().pa.0;
        for (what, address, len) in [
            ("nothing", 0, 4),
            ("one byte behind", at + 4093, 4),
            ("in front", at - 1, 4),
            ("64 KiB", at, 0),
            ("wraps", u64::MAX - 2, 4),
            ("another client's", foreign, 4),
            ("registers", if bench.is_v2() { 0x3060_0000 } else { 0x0680_0000 }, 4),
            ("another device's HBM", 0x10_0000_0000_0000, 4),
            ("no window of the neighbours", 0x20_0000_0000_0000, 4),
        ] {
            for side in [Side::Tx, Side::Rx] {
                let number = u32::from(side == Side::Rx);
                let ring = if side == Side::Tx { ring } else { rings.rx.handle() };
                let rows =
                    [row(side, memory.device_addr(), 4), row(side, DeviceAddr(address), len)];
                let found = of(queues.copy_descriptors(ring, 0, number, &rows).await);
                assert_eq!(found, Some(Errno::EINVAL), "{what} {side:?}");
            }
        }
        queues.init(&rings.init(2, 1)).await.unwrap();
        assert_eq!(queues.copy_out(2, 1, 0, 0, 1).await.unwrap(), kept, "the ring is unchanged");
        assert!(bench.doorbells().is_empty());
    });
}

#[test]
fn every_number_of_engines_cores_and_handles() {
    every().run(async |bench| {
        let (host, hbm) = (bench.pattern(4096, 1).await, bench.hbm(4096).await);
        let cores = u32::from(bench.device.hal().cores());
        let queues = bench.client.queues();
        let (before, rung) = (writes(&bench), bench.doorbells().len());
        for engine in BEYOND.into_iter().chain([132]) {
            assert_eq!(of(bench.device.engine_status(engine)), Some(Errno::EINVAL), "{engine}");
            assert_eq!(of(queues.engine_set_state(engine, 2)), Some(Errno::EINVAL), "{engine}");
        }
        assert_eq!(of(queues.engine_set_state(5, 2)), Some(Errno::EPERM), "not claimed");
        let _claim = bench.client.claim(1, 0..=0).await.unwrap();
        for state in [1, 4, 5, 0x102, u32::MAX] {
            assert_eq!(of(queues.engine_set_state(5, state)), Some(Errno::EINVAL), "state {state}");
        }
        for core in BEYOND.into_iter().chain([cores, cores + 1]) {
            assert_eq!(of(queues.h2t_alloc(core, 1, 0).await), Some(Errno::E2BIG), "{core}");
            assert_eq!(of(queues.h2t_free(core, 1).await), Some(Errno::E2BIG), "{core}");
        }
        for (copy, service) in [(16, 0), (0, 16), (8, 8), (u32::MAX, 1), (1, u32::MAX)] {
            assert_eq!(of(queues.h2t_alloc(0, copy, service).await), Some(Errno::E2BIG));
        }
        for pwait in [-2, 3, 4, i32::MIN, i32::MAX] {
            let copies = bench.client.async_copies(core(0));
            let (from, to) = (host.span(..).unwrap(), hbm.span(..).unwrap());
            assert_eq!(of(copies.submit(pwait, from, to).await), Some(Errno::EINVAL), "{pwait}");
            assert_eq!(of(copies.wait(pwait).await), Some(Errno::EINVAL), "{pwait}");
        }
        for wait in [-1, 0, 1, 2] {
            assert_eq!(
                of(bench.client.async_copies(core(0)).wait(wait).await),
                Some(Errno::EINVAL)
            );
        }
        for queue in [-2, 16, 17, 0x100, i32::MIN, i32::MAX] {
            let whole = HostRange { handle: host.handle(), offset: 0, len: 4096 };
            let request =
                ZeroCopyRequest::single(Direction::ToDevice, queue, hbm.handle(), 0, whole);
            let found = of(bench.client.zero_copy(&request).await);
            assert_eq!(found, Some(Errno::ENOENT), "queue {queue}");
        }
        assert_eq!((writes(&bench), bench.doorbells().len()), (before, rung));
        assert_eq!(bench.client.in_flight_bytes(), 0);
    });
}

/// Offsets, lengths and handles of copies, fills, slices and zero-copy, in every combination.
#[test]
fn every_range_of_every_copy() {
    every().with(|setup| setup.config.zero_copy_on_v2 = true).run(async |bench| {
        let (host, hbm) = (bench.pattern(4096, 1).await, bench.hbm(4096).await);
        let client = &bench.client;
        let rung = bench.doorbells().len();
        for (offset, len) in [
            (0, 0),
            (4096, 0),
            (4096, 1),
            (4095, 2),
            (0, 4097),
            (1, u64::MAX),
            (u64::MAX, 1),
            (u64::MAX, 2),
            (u64::MAX, u64::MAX),
            (u64::MAX / 2 + 1, u64::MAX / 2 + 1),
        ] {
            let told = |result: Option<Errno>, what: &str| {
                assert_eq!(result, Some(Errno::EINVAL), "{what}: {len} bytes at {offset}");
            };
            for view in [host.handle(), hbm.handle()].map(|handle| client.by_handle(handle)) {
                told(of(view.unwrap().span_at(offset, len)), "span");
            }
            let mut batch = client.batch(1).unwrap();
            told(of(batch.copy(&host, offset, &hbm, 0, len)), "source of a batch");
            told(of(batch.copy(&host, 0, &hbm, offset, len)), "target of a batch");
            if let Some(end) = offset.checked_add(len) {
                told(of(host.span(offset..end)), "span");
                told(of(host.copy_to(offset..end, &hbm, 0)), "source of a copy");
                told(of(hbm.fill(offset..end, 1)), "fill");
            }
            if len <= 4096 {
                let data = vec![0; len as usize];
                if len != 0 {
                    told(of(host.copy_to(..len, &hbm, offset)), "target of a copy");
                }
                told(of(hbm.write(offset, &data).await), "write");
                told(of(hbm.write_by_dma(offset, &data).await), "write by DMA");
                told(of(hbm.write_inline(offset, &data)), "write by window");
                told(of(hbm.read(offset, &mut data.clone()).await), "read");
            }
            for direction in [Direction::ToDevice, Direction::FromDevice] {
                let range = HostRange { handle: host.handle(), offset, len };
                let request = ZeroCopyRequest::single(direction, -1, hbm.handle(), 0, range);
                told(of(client.zero_copy(&request).await), "host of a zero-copy");
                if len != 0 {
                    let range = HostRange { handle: host.handle(), offset: 0, len: len.min(4096) };
                    let at = offset.max(1 + 4096 - len.min(4096));
                    let request = ZeroCopyRequest::single(direction, -1, hbm.handle(), at, range);
                    told(of(client.zero_copy(&request).await), "device of a zero-copy");
                }
            }
        }
        assert_eq!(bench.doorbells().len(), rung, "nothing was started");
        assert_eq!(client.in_flight_bytes(), 0);
    });
}
