//! Descriptors into rings and out of them.

use axon::{Descriptor, DeviceAlloc, RingAlloc, Side};
use axon_neuron::DeviceConfig;
use axon_platform::{DeviceAddr, Errno};
use axon_ports::HbmIndex;

use crate::rig::{Rings, errno, ring, row};
use axon_tests::bench::{later, trn1, trn2};

#[test]
fn dma_e31_dma_d23_every_target_is_looked_at_to_its_last_byte() {
    later().run(async |bench| {
        let own = bench.hbm(8192).await;
        let stranger = bench.device.open().await.unwrap();
        let theirs = stranger.alloc_device(DeviceAlloc::new(4096)).await.unwrap();
        let tx = ring(&bench.client, Side::Tx, 64).await;
        let rx = ring(&bench.client, Side::Rx, 64).await;
        let queues = bench.client.queues();
        let good = |side| row(side, own.device_addr(), 4096);
        let at = |address: u64| DeviceAddr(address);
        let own_at = |offset: u64| DeviceAddr(own.device_addr().0 + offset);
        // The driver's rings and marker page lie in host memory without an owner.
        let driver = bench.device.queue_status(128, 0).unwrap().tx.base;
        let host = bench.host(4096).await;
        for (what, address, len) in [
            ("another client's chunk", theirs.device_addr(), 4),
            ("last byte outside", own_at(8192 - 4095), 4096),
            ("a ring of the driver", driver, 4),
            ("behind the driver's ring", at(driver.0 + 131_072), 4),
            ("firmware's part of HBM", at(0), 4),
            ("no memory at all", at(0x7000_0000_0000_0000), 4),
            ("a neighbour's window", at(0x10_0000_0000_0000), 4),
            ("a range that wraps", at(u64::MAX - 2), 4),
            ("host memory of nobody", at(host.device_addr().0 | 1 << 40), 4),
        ] {
            for (memory, side, number) in [(&tx, Side::Tx, 0), (&rx, Side::Rx, 1)] {
                let rows = [good(side), row(side, address, len), good(side)];
                let staged = queues.copy_descriptors(memory.handle(), 0, number, &rows).await;
                let error = staged.unwrap_err();
                assert_eq!(error.errno(), Errno::EINVAL, "{what}");
                assert!(error.to_string().contains("descriptor 1"), "{error}");
            }
        }
        queues.init(&Rings { tx, rx }.init(5, 0)).await.unwrap();
        let empty = queues.copy_out(5, 0, 0, 0, 3).await.unwrap();
        assert_eq!(empty, [Descriptor([0; 4]); 3], "the ring is unchanged");
    });
}

#[test]
fn dma_e32_a_length_of_0_needs_64_kib() {
    later().run(async |bench| {
        let own = bench.hbm(1 << 20).await;
        let tx = ring(&bench.client, Side::Tx, 64).await;
        let end = own.device_addr().0 + (1 << 20);
        let put = async |address| tx.stage(0, &[row(Side::Tx, DeviceAddr(address), 0)]).await;
        assert_eq!(errno(put(end - 65_535).await), Errno::EINVAL);
        put(end - 65_536).await.unwrap();
    });
}

#[test]
fn dma_e33_offsets_counts_and_sides() {
    later().run(async |bench| {
        let own = bench.hbm(4096).await;
        let tx = ring(&bench.client, Side::Tx, 32).await;
        let queues = bench.client.queues();
        let rows = [row(Side::Tx, own.device_addr(), 4)];
        let put = async |offset, side, rows: &[Descriptor]| {
            queues.copy_descriptors(tx.handle(), offset, side, rows).await
        };
        assert_eq!(errno(put(8, 0, &rows).await), Errno::EINVAL);
        assert_eq!(errno(put(0, 2, &rows).await), Errno::EINVAL);
        put(0, 0, &[]).await.unwrap();
        assert_eq!(errno(put(4096, 0, &rows).await), Errno::EINVAL, "behind the chunk");
        assert_eq!(errno(put(u64::MAX - 15, 0, &rows).await), Errno::EINVAL, "a sum that wraps");
        put(4096 - 16, 0, &rows).await.unwrap();
        assert_eq!(errno(put(0, 1, &rows).await), Errno::EINVAL, "it is a transmit ring");
        assert_eq!(errno(queues.copy_descriptors(77, 0, 0, &rows).await), Errno::EINVAL);
    });
}

#[test]
fn dma_e34_dma_d17_reading_a_ring() {
    later().run(async |bench| {
        let own = bench.hbm(4096).await;
        for hbm in [None, HbmIndex::new(0)] {
            let wishes = |side| RingAlloc { hbm, ..RingAlloc::new(side, 64) };
            let tx = bench.client.alloc_ring(wishes(Side::Tx)).await.unwrap();
            let rx = bench.client.alloc_ring(wishes(Side::Rx)).await.unwrap();
            let rows: Vec<_> = (1..=64).map(|n| row(Side::Tx, own.device_addr(), n)).collect();
            tx.stage(0, &rows).await.unwrap();
            let queue = bench.client.bind_queue(5, 1, &tx, &rx).await.unwrap();
            let queues = bench.client.queues();
            let out = async |start, count| queues.copy_out(5, 1, 0, start, count).await;
            assert_eq!(errno(out(0, 0).await), Errno::EINVAL);
            assert_eq!(out(0, 64).await.unwrap(), rows);
            assert_eq!(out(60, 4).await.unwrap(), rows[60..], "start counts for either ring");
            assert_eq!(errno(out(60, 5).await), Errno::EFBIG);
            assert_eq!(errno(out(0xffff_ffff, 2).await), Errno::EFBIG);
            assert_eq!(errno(queues.copy_out(5, 1, 2, 0, 1).await), Errno::EINVAL, "completion");
            assert_eq!(errno(queues.copy_out(5, 2, 0, 0, 1).await), Errno::ENODEV);
            queue.close().await.unwrap();
        }
    });
}

#[test]
fn dma_e49_windows_need_a_claim_and_metadata_a_permission() {
    // State buffer of core 0, as the device sees it.
    for (setup, window, beyond) in
        [(trn1(), 0xfff_c000_0000, 0xfff_c800_0000), (trn2(), 0x20_0000_0000, 0x20_0400_0000)]
    {
        let admitted = DeviceConfig { admit_metadata: true, ..setup.config };
        let meta = Descriptor([0x0480_0000, 0, 1, 2]);
        setup.clone().run(async |bench| {
            let tx = ring(&bench.client, Side::Tx, 64).await;
            let rows = [row(Side::Tx, DeviceAddr(window), 4)];
            assert_eq!(errno(tx.stage(0, &rows).await), Errno::EINVAL);
            let claim = bench.client.claim(1, 0..=0).await.unwrap();
            tx.stage(0, &rows).await.unwrap();
            let behind = [row(Side::Tx, DeviceAddr(beyond), 4)];
            assert_eq!(errno(tx.stage(0, &behind).await), Errno::EINVAL, "the rest of a core");
            assert_eq!(errno(tx.stage(0, &[meta]).await), Errno::EINVAL);
            drop(claim);
        });
        axon_tests::bench::Setup { config: admitted, ..setup }.run(async |bench| {
            let tx = ring(&bench.client, Side::Tx, 64).await;
            tx.stage(0, &[meta]).await.unwrap();
        });
    }
}

#[test]
fn udma_d19_strong_order_and_second_buffers() {
    for (setup, allowed) in [(trn1(), false), (trn2(), true)] {
        setup.run(async |bench| {
            let own = bench.hbm(4096).await;
            let rx = ring(&bench.client, Side::Rx, 64).await;
            let mut strong = row(Side::Rx, own.device_addr(), 4);
            strong.0[0] |= 1 << 29;
            assert_eq!(rx.stage(0, &[strong]).await.is_ok(), allowed);
            let mut second = row(Side::Rx, own.device_addr(), 4);
            second.0[1] = 0x1000;
            assert_eq!(errno(rx.stage(0, &[second]).await), Errno::EINVAL);
        });
    }
}

#[test]
fn a_ring_is_no_destination_and_what_is_named_stays() {
    later().run(async |bench| {
        let (tx, rx) =
            (ring(&bench.client, Side::Tx, 64).await, ring(&bench.client, Side::Rx, 64).await);
        let other = bench.client.by_handle(tx.handle()).unwrap().facts().pa;
        assert_eq!(errno(rx.stage(0, &[row(Side::Rx, other, 4)]).await), Errno::EINVAL);

        let named = bench.hbm(4096).await;
        let address = named.device_addr();
        rx.stage(3, &[row(Side::Rx, address, 4)]).await.unwrap();
        drop(named);
        bench.pause(std::time::Duration::from_millis(1)).await;
        assert_eq!(bench.device.memory_totals().draining, 4096, "named by a descriptor");
        // Written anew, it is let go.
        let host = bench.host(4096).await;
        rx.stage(3, &[row(Side::Rx, host.device_addr(), 4)]).await.unwrap();
        bench.pause(std::time::Duration::from_millis(1)).await;
        assert_eq!(bench.device.memory_totals().draining, 0);
        drop(rx);
    });
}
