//! Semaphores and events of every core of every product, as a client and as the registers see them.

use axon_platform::Errno;

use axon_tests::bench::every;

/// Where the semaphores and events of a core are in the register window (specification 01 §12).
fn tile(is_v2: bool, core: u32) -> u64 {
    let first = if is_v2 { 0 } else { 0xd000_0000 };
    first + u64::from(core) * 0x400_0000
}

#[test]
fn dev_e41_dev_e42_semaphores_of_every_core() {
    every().run(async |bench| {
        let last = u32::from(bench.device.hal().cores()) - 1;
        let _claim = bench.client.claim(last + 1, 0..=last).await.unwrap();
        for core in 0..=last {
            let place = tile(bench.is_v2(), core);
            let semaphore = bench.client.core(core).unwrap().semaphore(5).unwrap();
            bench.control("trace registers on");
            semaphore.set(i32::MAX).unwrap();
            semaphore.add(1).unwrap();
            assert_eq!(semaphore.get(), Ok(i32::MIN), "it wraps");
            semaphore.sub(3).unwrap();
            let writes = bench.report().register_trace;
            let writes: Vec<_> =
                writes.iter().map(|record| (record.offset, record.value)).collect();
            bench.control("trace registers off");
            bench.control("trace clear");
            let expected = [(0x270_1414, i32::MAX as u32), (0x270_1814, 1), (0x270_1c14, 3)];
            assert_eq!(writes, expected.map(|(offset, value)| (place + offset, value)));
            assert_eq!(semaphore.get(), Ok(i32::MAX - 2));
        }
        // Nobody else's word has moved.
        for core in 0..=last {
            let other = bench.client.core(core).unwrap().semaphore(6).unwrap();
            assert_eq!(other.get(), Ok(0));
        }
    });
}

#[test]
fn dev_e41_dev_d17_events_of_every_core_and_limits() {
    every().run(async |bench| {
        let last = u32::from(bench.device.hal().cores()) - 1;
        let _claim = bench.client.claim(last + 1, 0..=last).await.unwrap();
        for core in 0..=last {
            let event = bench.client.core(core).unwrap().event(255).unwrap();
            assert_eq!(event.get(), Ok(false));
            event.set(true).unwrap();
            assert_eq!(event.get(), Ok(true));
            let offset = tile(bench.is_v2(), core) + 0x270_03fc;
            assert_eq!(bench.device.read32(offset), Ok(1), "{offset:#x}");
            event.set(false).unwrap();
            assert_eq!(event.get(), Ok(false));
        }
        let reads = bench.report().register_reads;
        let core = bench.client.core(last).unwrap();
        assert_eq!(core.semaphore(256).err().unwrap().errno(), Errno::EINVAL);
        assert_eq!(core.event(256).err().unwrap().errno(), Errno::EINVAL);
        assert_eq!(bench.client.core(last + 1).err().unwrap().errno(), Errno::E2BIG);
        assert_eq!(bench.report().register_reads, reads, "refused before any access");
    });
}
