//! Host-transfer queues: allocate, free, separate queues for the two directions.

use std::time::Duration;

use axon::{Direction, HostRange, QueueInit, RingOwner, ZeroCopyRequest};
use axon_platform::Errno;
use axon_ports::CoreMap;

use crate::rig::{Rings, core, errno, host_used};
use axon_tests::bench::{later, v2};

#[test]
fn dma_e27_fifteen_queues_of_a_v2_core() {
    v2().run(async |bench| {
        let claims = bench.client.queues().h2t_alloc(0, 15, 0).await.unwrap();
        assert_eq!((claims.copy, claims.service, claims.default.number()), (0xfffe, 0, 0));
        assert_eq!(errno(bench.client.queues().h2t_alloc(0, 1, 0).await), Errno::ENOSPC);
        bench.client.queues().h2t_alloc(1, 1, 0).await.unwrap();
    });
}

#[test]
fn dma_e28_fourteen_queues_of_a_v3_engine() {
    later().run(async |bench| {
        let queues = bench.client.queues();
        let claims = queues.h2t_alloc(1, 14, 0).await.unwrap();
        assert_eq!((claims.copy, claims.default.number()), (0xfffc, 1));
        assert_eq!(errno(queues.h2t_alloc(1, 1, 0).await), Errno::ENOSPC);
        assert_eq!(errno(queues.h2t_alloc(0, 1, 0).await), Errno::ENOSPC, "shared by two cores");
        assert_eq!(errno(queues.h2t_alloc(1, 16, 0).await), Errno::E2BIG);
        assert_eq!(errno(queues.h2t_alloc(1, u32::MAX, u32::MAX).await), Errno::E2BIG);
    });
}

#[test]
fn dma_e29_a_call_that_fails_keeps_nothing() {
    later().run(async |bench| {
        let host = host_used(&bench).await;
        let queues = bench.client.queues();
        assert_eq!(errno(queues.h2t_alloc(0, 10, 5).await), Errno::ENOSPC);
        assert_eq!(host_used(&bench).await, host);
        queues.h2t_alloc(0, 14, 0).await.unwrap();
    });
}

#[test]
fn dma_e30_freeing_what_is_not_there() {
    v2().run(async |bench| {
        let queues = bench.client.queues();
        assert_eq!(errno(queues.h2t_alloc(2, 1, 0).await), Errno::E2BIG);
        assert_eq!(errno(queues.h2t_free(2, 2).await), Errno::E2BIG);
        queues.h2t_free(0, 1).await.unwrap();
        assert_eq!(errno(queues.h2t_free(0, 2).await), Errno::ENXIO);
        // The others are freed all the same.
        queues.h2t_alloc(0, 2, 0).await.unwrap();
        assert_eq!(errno(queues.h2t_free(0, 0b1110).await), Errno::ENXIO);
        assert_eq!(queues.h2t_alloc(0, 15, 0).await.unwrap().copy, 0xfffe);
        assert_eq!(errno(queues.h2t_free(1, 0b10).await), Errno::ENXIO, "another core's");
        let stranger = bench.device.open().await.unwrap();
        assert_eq!(errno(stranger.queues().h2t_free(0, 0b10).await), Errno::EPERM);
        assert_eq!(errno(queues.h2t_free(0, 1 << 16).await), Errno::EINVAL);
    });
}

#[test]
fn rings_go_back_to_the_pool_with_their_queues() {
    later().run(async |bench| {
        let before = host_used(&bench).await;
        let counters = bench.device.counters();
        for _ in 0..3 {
            let queues = bench.client.h2t_queues(core(0), 3, 1).await.unwrap();
            assert_eq!(host_used(&bench).await - before, 3 * (2 * 131_072 + 4096));
            queues.close().await.unwrap();
            bench.pause(Duration::from_millis(1)).await;
            assert_eq!(host_used(&bench).await, before);
        }
        drop(bench.client.h2t_queues(core(0), 3, 1).await.unwrap());
        bench.pause(Duration::from_millis(1)).await;
        assert_eq!(host_used(&bench).await, before);
        assert_eq!(bench.device.counters(), counters);
    });
}

#[test]
fn a_service_queue_is_bound_by_its_owner_and_stays_claimed() {
    later().run(async |bench| {
        let claims = bench.client.queues().h2t_alloc(0, 0, 1).await.unwrap();
        assert_eq!((claims.copy, claims.service), (0, 0b100));
        let rings = Rings::new(&bench.client, 64).await;
        let init = rings.init(128, 2);
        let stranger = bench.device.open().await.unwrap();
        let other = Rings::new(&stranger, 64).await;
        assert_eq!(errno(stranger.queues().init(&other.init(128, 2)).await), Errno::EBUSY);
        bench.client.queues().init(&init).await.unwrap();
        let owner = |bound| RingOwner::Service(core(0), bench.client.id(), bound);
        assert_eq!(bench.device.queue_owner(128, 2).unwrap(), owner(true));
        bench.client.queues().release(128, 2).await.unwrap();
        assert_eq!(bench.device.queue_owner(128, 2).unwrap(), owner(false));
        bench.client.queues().init(&QueueInit { ..init }).await.unwrap();
        bench.client.queues().h2t_free(0, 0b100).await.unwrap();
        assert_eq!(bench.device.queue_owner(128, 2).unwrap(), RingOwner::Free);
    });
}

#[test]
fn dma_d13_an_application_queue_is_not_handed_out_again() {
    later().run(async |bench| {
        let rings = Rings::new(&bench.client, 64).await;
        bench.client.queues().init(&rings.init(128, 2)).await.unwrap();
        assert_eq!(bench.client.queues().h2t_alloc(0, 1, 0).await.unwrap().copy, 0b1000);
        assert_eq!(errno(bench.client.queues().h2t_alloc(0, 13, 0).await), Errno::ENOSPC);
    });
}

/// A read that takes long on one queue, a write on the other.
#[test]
fn a_long_read_does_not_hold_up_a_write() {
    later().run(async |bench| {
        let queues = bench.client.h2t_queues(core(0), 2, 0).await.unwrap();
        let [reads, writes] = [0, 1].map(|at| queues.copy_queue(at).unwrap().number() as i32);
        let (big, hbm) = (bench.host(32 << 20).await, bench.hbm(32 << 20).await);
        let small = bench.pattern(4096, 4).await;
        let all = |buffer: u64, len| HostRange { handle: buffer, offset: 0, len };
        let read = ZeroCopyRequest::single(
            Direction::FromDevice,
            reads,
            hbm.handle(),
            0,
            all(big.handle(), 32 << 20),
        );
        let write = ZeroCopyRequest::single(
            Direction::ToDevice,
            writes,
            hbm.handle(),
            0,
            all(small.handle(), 4096),
        );
        bench.control("fault slow=10ms times=1");
        let mut read = Box::pin(bench.client.zero_copy(&read));
        assert!(embassy_futures::poll_once(read.as_mut()).is_pending());
        bench.pause(Duration::from_micros(100)).await;
        let start = bench.now();
        bench.client.zero_copy(&write).await.unwrap();
        let waited = bench.now().since(start);
        assert!(waited < Duration::from_millis(10), "{waited:?}");
        read.await.unwrap();
    });
}

#[test]
fn a_copy_queue_carries_nobody_elses_transfers() {
    later().run(async |bench| {
        let claims = bench.client.queues().h2t_alloc(0, 1, 0).await.unwrap();
        assert_eq!(claims.copy, 0b100);
        let stranger = bench.device.open().await.unwrap();
        let host = stranger.alloc_host(axon::HostAlloc::new(4096)).await.unwrap();
        let hbm = stranger.alloc_device(axon::DeviceAlloc::new(4096)).await.unwrap();
        let range = HostRange { handle: host.handle(), offset: 0, len: 4096 };
        let request = ZeroCopyRequest::single(Direction::ToDevice, 2, hbm.handle(), 0, range);
        assert_eq!(errno(stranger.zero_copy(&request).await), Errno::EPERM);
        // The ring of a copy queue is the driver's.
        let queues = bench.client.queues();
        assert_eq!(errno(queues.start(128, 2, 1, 1)), Errno::EALREADY);
        assert_eq!(errno(queues.acknowledge(128, 2, 1)), Errno::EALREADY);
        assert_eq!(errno(queues.release(128, 2).await), Errno::EALREADY);
        let rings = Rings::new(&bench.client, 64).await;
        let init = rings.init(128, 2);
        assert_eq!(errno(queues.init(&init).await), Errno::EALREADY);
    });
}

#[test]
fn a_claim_that_a_reset_has_ended_takes_nothing_along_that_came_behind_it() {
    later().run(async |bench| {
        let (first, second) = (bench.client.queues(), bench.client.queues());
        let mut early = Box::pin(first.h2t_alloc(0, 1, 1));
        assert!(embassy_futures::poll_once(early.as_mut()).is_pending(), "waits for memory");
        bench.client.reset(CoreMap::DEVICE).unwrap().await.unwrap();
        let late = second.h2t_alloc(0, 0, 1).await.unwrap();
        assert_eq!(late.service, 0b1000, "the queue that the first one had");
        assert!(early.await.is_err());
        let owner = bench.device.queue_owner(late.engine.number(), 3).unwrap();
        assert_eq!(owner, RingOwner::Service(core(0), bench.client.id(), false));
    });
}
