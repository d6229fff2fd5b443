//! Writes by the CPU through the memory window (specification 03 §11.5), and when DMA takes over.

use axon::{DeviceAlloc, Error};
use axon_model::Bar4;
use axon_platform::Errno;
use axon_ports::CoreMap;
use proptest::prelude::*;
use proptest::test_runner::TestRunner;

use axon_tests::bench::{Bench, Setup, bytes, every, trn1, trn2};

fn errno<T>(result: Result<T, Error>) -> Errno {
    result.map(drop).unwrap_err().errno()
}

async fn read(bench: &Bench, target: &axon::DeviceBuffer<axon_hosted::Machine>) -> Vec<u8> {
    let back = bench.host(target.size()).await;
    target.copy_to(.., &back, 0).unwrap().await.unwrap();
    bytes(&back)
}

#[test]
fn dma_e38_mem_e89_api_e27_what_goes_through_the_window() {
    every().run(async |bench| {
        let target = bench.hbm(16_384).await;
        for (offset, len, doorbells) in
            [(0, 8192, 0), (4, 64, 0), (0, 8196, 2), (0, 6, 2), (2, 64, 2), (1, 3, 2)]
        {
            let rung = bench.doorbells().len();
            let data: Vec<u8> = (0..len).map(|n| n as u8 ^ 0x5a).collect();
            target.write(offset, &data).await.unwrap();
            assert_eq!(bench.doorbells().len() - rung, doorbells, "{len} bytes at {offset}");
            let all = read(&bench, &target).await;
            assert_eq!(all[offset as usize..][..len], data, "{len} bytes at {offset}");
        }
        let rung = bench.doorbells().len();
        target.read(0, &mut [0; 64]).await.unwrap();
        assert_eq!(bench.doorbells().len() - rung, 2, "reading is by DMA");
    });
}

#[test]
fn api_e26_api_e27_a_write_that_must_not_wait() {
    every().run(async |bench| {
        let (target, host) = (bench.hbm(16_384).await, bench.host(4096).await);
        target.write_inline(0, &[7; 8192]).unwrap();
        assert_eq!(read(&bench, &target).await[..8192], [7; 8192]);
        let refused = target.write_inline(0, &[7; 8196]).unwrap_err();
        assert!(matches!(refused, Error::OutOfRange { limit: 8192, .. }), "{refused:?}");
        let refused = target.write_inline(0, &[7; 6]).unwrap_err();
        assert!(matches!(refused, Error::InvalidArgument { .. }), "{refused:?}");
        assert_eq!(errno(target.write_inline(2, &[7; 4])), Errno::EINVAL);
        assert_eq!(errno(target.write_inline(0, &[])), Errno::EINVAL);
        assert_eq!(errno(target.write_inline(16_384, &[7; 4])), Errno::EINVAL);
        assert_eq!(errno(target.write_inline(u64::MAX - 3, &[7; 4])), Errno::EINVAL);
        assert_eq!(errno(host.write_inline(0, &[7; 4])), Errno::EINVAL);

        let other = bench.device.open().await.unwrap();
        let foreign = other.by_handle(target.handle()).unwrap();
        assert_eq!(errno(foreign.write_inline(0, &[7; 4])), Errno::EPERM);
        drop(foreign);
        let theirs = other.alloc_device(DeviceAlloc::new(4096)).await.unwrap();
        let handle = theirs.handle();
        other.free(handle).await.unwrap();
        assert_eq!(errno(theirs.write_inline(0, &[7; 4])), Errno::EINVAL);
        other.close().await;
        assert_eq!(errno(theirs.write_inline(0, &[7; 4])), Errno::EACCES);

        let reset = bench.client.reset(CoreMap::DEVICE).unwrap();
        let meanwhile = target.write_inline(0, &[9; 4]);
        assert_eq!(errno(meanwhile), Errno::EAGAIN, "05 §6: it may not wait");
        reset.await.unwrap();
        target.write_inline(0, &[9; 4]).unwrap();
        assert_eq!(bench.client.in_flight_bytes(), 0);
    });
}

#[test]
fn dev_e05_without_an_image_small_writes_go_by_dma() {
    for bar4 in [Bar4::Absent, Bar4::Size(64 << 20)] {
        let mut setup: Setup = trn2();
        setup.function.bar4 = bar4;
        setup.run(async |bench| {
            // Behind the first 64 MiB of its HBM, where a small window shows nothing.
            let _first = bench.hbm(64 << 20).await;
            let target = bench.hbm(4096).await;
            let rung = bench.doorbells().len();
            target.write(0, &[3; 64]).await.unwrap();
            assert_eq!(bench.doorbells().len() - rung, 2);
            assert_eq!(read(&bench, &target).await[..65], [&[3; 64][..], &[0]].concat());
            assert_eq!(errno(target.write_inline(0, &[3; 64])), Errno::EINVAL);
        });
    }
}

#[test]
fn the_limit_is_a_choice() {
    for (limit, doorbells) in [(0, [2, 2]), (64, [0, 2]), (u32::MAX, [0, 0])] {
        let mut setup = trn1();
        setup.config.memory_window_limit = limit;
        setup.run(async |bench| {
            let target = bench.hbm(8192).await;
            for (len, expected) in [64, 68].into_iter().zip(doorbells) {
                let rung = bench.doorbells().len();
                target.write(0, &vec![1; len]).await.unwrap();
                assert_eq!(bench.doorbells().len() - rung, expected, "{len} of {limit}");
                target.write_by_dma(0, &vec![1; len]).await.unwrap();
                target.write_inline(0, &vec![1; len]).unwrap();
            }
        });
    }
}

/// Against plain memory, whichever way each write takes.
#[test]
fn writes_of_any_size_and_place_arrive() {
    let mut runner = TestRunner::new(ProptestConfig::with_cases(12));
    let writes = prop::collection::vec((0u64..16_384, 0usize..9000, any::<u8>(), 0u8..3), 1..12);
    runner
        .run(&writes, |writes| {
            trn1().run(async |bench| {
                let target = bench.hbm(16_384).await;
                target.fill(.., 0).unwrap().await.unwrap();
                let mut expected = vec![0u8; 16_384];
                for &(offset, len, seed, way) in &writes {
                    let (offset, len) =
                        if way == 2 { (offset & !3, len & !3) } else { (offset, len) };
                    let data: Vec<u8> = (0..len).map(|n| seed.wrapping_add(n as u8)).collect();
                    let result = match way {
                        0 => target.write(offset, &data).await,
                        1 => target.write_by_dma(offset, &data).await,
                        _ => target.write_inline(offset, &data),
                    };
                    let fits = len > 0 && offset as usize + len <= expected.len();
                    let expect = fits && (way != 2 || len <= 8192);
                    assert_eq!(result.is_ok(), expect, "{way} {len} at {offset}: {result:?}");
                    if expect {
                        expected[offset as usize..][..len].copy_from_slice(&data);
                    }
                }
                assert!(read(&bench, &target).await == expected);
                assert_eq!(bench.client.in_flight_bytes(), 0);
            });
            Ok(())
        })
        .unwrap();
}
