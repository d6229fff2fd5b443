//! Semaphores and events: registers, claims, gates, waits.

use std::time::Duration;

use axon::Error;
use axon::ports::CoreMap;
use axon_platform::Errno;
use embassy_futures::join::join;

use crate::bench::{Queues, trn1, trn2};

#[test]
fn nq_e25_the_registers_of_a_semaphore() {
    trn1().run(async |bench| {
        let _claim = bench.client.claim(1, 1..=1).await.unwrap();
        let semaphore = bench.client.core(1).unwrap().semaphore(5).unwrap();
        bench.writes();
        semaphore.set(7).unwrap();
        semaphore.add(3).unwrap();
        semaphore.sub(1).unwrap();
        let reads = bench.report().register_reads;
        assert_eq!(semaphore.get(), Ok(9));
        assert_eq!(bench.report().register_reads, reads + 1);
        assert_eq!(bench.writes(), [(0x0670_1414, 7), (0x0670_1814, 3), (0x0670_1c14, 1)]);
    });
}

#[test]
fn nq_e26_a_semaphore_wraps() {
    trn1().run(async |bench| {
        let _claim = bench.client.claim(1, 0..=0).await.unwrap();
        let semaphore = bench.client.core(0).unwrap().semaphore(0).unwrap();
        semaphore.set(i32::MAX).unwrap();
        semaphore.add(1).unwrap();
        assert_eq!(semaphore.get(), Ok(i32::MIN));
        semaphore.sub(2).unwrap();
        assert_eq!(semaphore.get(), Ok(i32::MAX - 1));
        semaphore.add(u32::MAX).unwrap();
        assert_eq!(semaphore.get(), Ok(i32::MAX - 2));
    });
}

#[test]
fn nq_e27_nq_e28_the_last_semaphore_and_the_one_behind() {
    trn2().run(async |bench| {
        let core = bench.client.core(3).unwrap();
        assert_eq!(
            bench.device.hal().semaphore(3, 255, axon::hal::SemaphoreView::Read),
            Ok(0xde70_13fc)
        );
        assert_eq!(core.semaphore(255).unwrap().get(), Ok(0));
        for index in [256, 0x1_0000, 0x1_0005, u32::MAX] {
            assert_eq!(core.semaphore(index).err().unwrap().errno(), Errno::EINVAL);
        }
    });
}

#[test]
fn nq_e29_nq_d01_nq_d19_cores_are_checked_and_have_to_be_claimed() {
    trn1().run(async |bench| {
        for core in [2, 8, 255, 0x102, u32::MAX] {
            assert_eq!(bench.client.core(core).err().unwrap().errno(), Errno::E2BIG);
        }
        let core = bench.client.core(1).unwrap();
        let (semaphore, event) = (core.semaphore(3).unwrap(), core.event(3).unwrap());
        let writes = || {
            [semaphore.set(1), semaphore.add(1), semaphore.sub(1), event.set(true)]
                .map(|result| result.err().map(|error| error.errno()))
        };
        bench.writes();
        assert_eq!(writes(), [Some(Errno::EPERM); 4], "nobody has claimed it");
        let other = bench.device.open().await.unwrap();
        let claim = other.claim(1, 1..=1).await.unwrap();
        assert_eq!(writes(), [Some(Errno::EPERM); 4], "another client has");
        assert_eq!(bench.writes(), [], "no register was touched");
        // Reads need no claim.
        assert_eq!((semaphore.get(), event.get()), (Ok(0), Ok(false)));
        drop(claim);
        bench.pause(Duration::from_millis(1)).await;
        let claim = bench.client.claim(1, 1..=1).await.unwrap();
        assert_eq!(writes(), [None; 4]);
        // A claim that is given up counts no more from that moment on.
        drop(claim);
        assert_eq!(writes(), [Some(Errno::EPERM); 4]);
        let Ok(value) = semaphore.get() else { panic!() };
        assert_eq!(value, 1);
        bench.client.close().await;
        assert_eq!(writes(), [Some(Errno::EACCES); 4]);
    });
}

#[test]
fn nq_e30_nq_e31_nq_d02_st_d47_events() {
    trn1().run(async |bench| {
        let _claim = bench.client.claim(1, 0..=0).await.unwrap();
        let core = bench.client.core(0).unwrap();
        for index in [256, 0x1_0000, 0x1_0001] {
            assert_eq!(core.event(index).err().unwrap().errno(), Errno::EINVAL);
        }
        let event = core.event(255).unwrap();
        bench.writes();
        event.set(true).unwrap();
        assert_eq!(event.get(), Ok(true));
        event.set(false).unwrap();
        assert_eq!(event.read(), Ok(0));
        event.write(0xffff_ffff).unwrap();
        assert_eq!(event.read(), Ok(1), "hardware keeps one bit");
        assert_eq!(
            bench.writes(),
            [(0x0270_03fc, 1), (0x0270_03fc, 0), (0x0270_03fc, 0xffff_ffff)]
        );
    });
}

#[test]
fn whoever_waits_for_a_semaphore_is_polled_for_in_one_place() {
    trn2().run(async |bench| {
        let _claim = bench.client.claim(8, 0..=7).await.unwrap();
        let core = bench.client.core(2).unwrap();
        let semaphore = core.semaphore(9).unwrap();
        let event = core.event(9).unwrap();
        let raise = async {
            bench.pause(Duration::from_millis(50)).await;
            for _ in 0..3 {
                semaphore.add(2).unwrap();
                bench.pause(Duration::from_millis(10)).await;
            }
            event.set(true).unwrap();
        };
        let reads = bench.report().register_reads;
        let waits = join(semaphore.reached(5), event.wait());
        let ((seen, set), ()) = join(waits, raise).await;
        assert_eq!((seen, set), (Ok(6), Ok(())));
        let reads = bench.report().register_reads - reads;
        assert!((80..260).contains(&reads), "{reads} register reads in 80 ms");
        // It is there already: no poll at all.
        assert_eq!(semaphore.reached(-5).await, Ok(6));
        let reads = bench.report().register_reads;
        bench.pause(Duration::from_secs(1)).await;
        assert_eq!(bench.report().register_reads, reads);
    });
}

#[test]
fn a_wait_that_is_dropped_is_not_polled_for() {
    trn1().run(async |bench| {
        let semaphore = bench.client.core(0).unwrap().semaphore(1).unwrap();
        let late = bench.pause(Duration::from_millis(5));
        let _ = embassy_futures::select::select(semaphore.reached(1), late).await;
        let reads = bench.report().register_reads;
        bench.pause(Duration::from_secs(1)).await;
        assert!(bench.report().register_reads <= reads + 1);
    });
}

#[test]
fn a_core_in_reset_is_not_touched_and_waits_end() {
    trn1().run(async |bench| {
        let _claim = bench.client.claim(2, 0..=1).await.unwrap();
        let core = bench.client.core(0).unwrap();
        let (semaphore, event) = (core.semaphore(1).unwrap(), core.event(1).unwrap());
        semaphore.set(5).unwrap();
        let other = bench.client.core(1).unwrap().semaphore(1).unwrap();
        let ticket = bench.client.reset(CoreMap(1)).unwrap();
        let refused = semaphore.get().err().unwrap();
        assert_eq!(refused.errno(), Errno::EAGAIN, "{refused}");
        assert_eq!(event.set(true).err().unwrap().errno(), Errno::EAGAIN);
        assert_eq!(other.get(), Ok(0), "the other core is not in reset");
        // A wait begins behind the reset.
        let raise = async {
            ticket.await.unwrap();
            assert_eq!(semaphore.get(), Ok(0), "a reset clears it");
            bench.pause(Duration::from_millis(1)).await;
            semaphore.set(3).unwrap();
        };
        let (seen, ()) = join(semaphore.reached(3), raise).await;
        assert_eq!(seen, Ok(3));
        // One that is under way ends with the next one.
        let reset = async {
            bench.pause(Duration::from_millis(1)).await;
            bench.client.reset(CoreMap(1)).unwrap().await.unwrap();
        };
        let (ended, ()) = join(event.wait(), reset).await;
        assert_eq!(ended.err().unwrap().errno(), Errno::ECANCELED);
    });
}

#[test]
fn all_ones_is_a_value_or_the_end_of_the_device() {
    trn1().run(async |bench| {
        let _claim = bench.client.claim(2, 0..=1).await.unwrap();
        let core = bench.client.core(0).unwrap();
        let (semaphore, event) = (core.semaphore(1).unwrap(), core.event(1).unwrap());
        semaphore.set(-7).unwrap();
        let fall = async {
            bench.pause(Duration::from_millis(1)).await;
            semaphore.add(6).unwrap();
        };
        let (seen, ()) = join(semaphore.reached(-1), fall).await;
        assert_eq!((seen, semaphore.get()), (Ok(-1), Ok(-1)));
        let gone = async {
            bench.pause(Duration::from_millis(1)).await;
            bench.control("fault all-ones");
        };
        let (told, ()) = join(event.wait(), gone).await;
        assert!(matches!(told, Err(Error::DeviceGone)), "{told:?}");
        assert!(matches!(semaphore.get(), Err(Error::DeviceGone)));
        bench.control("fault clear");
    });
    // Nobody waits: the first who reads finds out.
    trn1().run(async |bench| {
        let event = bench.client.core(0).unwrap().event(1).unwrap();
        bench.control("fault all-ones");
        assert!(matches!(event.get(), Err(Error::DeviceGone)));
        bench.control("fault clear");
    });
}
