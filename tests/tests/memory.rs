//! Memory end to end: what clients see of the memory service, on every product.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use axon::ports::Location;
use axon::{
    Client, Context, DeviceAlloc, ExportState, Grant, Grants, HostAlloc, OpenOptions, Peer,
};
use axon_hosted::Machine;
use axon_neuron::hal::{Block, Resource};
use axon_platform::{DeviceAddr, Errno};
use axon_ports::CoreId;
use axon_tests::{on, on_each};

async fn open(cx: &Context<Machine>) -> Client<Machine> {
    cx.driver.settled().await;
    cx.driver.device(0).expect("a device").open().await.expect("a client")
}

#[test]
fn mem_e39_a_fill_changes_exactly_its_bytes() {
    on_each("{}", async |cx| {
        let client = open(&cx).await;
        let hbm = client.alloc_device(DeviceAlloc::new(0x11000)).await.unwrap();
        hbm.write(0, &vec![0x11; 0x11000]).await.unwrap();
        // Only the low byte counts; a native call takes nothing else.
        let [value, ..] = 0x1234_5678_u32.to_le_bytes();
        hbm.fill(0x800..0x800 + 0x10001, value).unwrap().await.unwrap();
        let mut bytes = vec![0; 0x11000];
        hbm.read(0, &mut bytes).await.unwrap();
        for (at, byte) in bytes.iter().enumerate() {
            let inside = (0x800..0x800 + 0x10001).contains(&at);
            assert_eq!(*byte, if inside { 0x78 } else { 0x11 }, "{at:#x}");
        }
    });
}

#[test]
fn mem_e78_what_is_allocated_after_bring_up() {
    on_each("{}", async |cx| {
        cx.driver.settled().await;
        let device = cx.driver.device(0).unwrap();
        let totals = device.memory_totals();
        let channels = device.hal().memory_geometry().channel_count;
        assert_eq!(totals.device, u64::from(channels) * 0x100_0000);
        let rings = (totals.host - 0x41_1000) / 0x4_1000;
        assert_eq!(totals.host, 0x41_1000 + rings * 0x4_1000);
        assert!((1..=8).contains(&rings), "{rings} rings");
    });
}

#[test]
fn a_close_that_nobody_polls_gives_the_memory_back() {
    on_each("{}", async |cx| {
        let client = open(&cx).await;
        let device = cx.driver.device(0).unwrap();
        let before = device.memory_totals().device;
        let hbm = client.alloc_device(DeviceAlloc::new(0x4000)).await.unwrap();
        assert_eq!(device.memory_totals().device, before + 0x4000);
        drop(hbm.close());
        // Whoever asks next finds it taken back.
        client.alloc_device(DeviceAlloc::new(0x1000)).await.unwrap().close().await.unwrap();
        assert_eq!(device.memory_totals().device, before);
    });
}

/// Runs a test on two products of a kind.
fn each(products: [&str; 2], test: impl AsyncFn(Context<Machine>)) {
    products.iter().for_each(|product| on(product, &test));
}

#[test]
fn mem_e91_mem_d20_only_windows_may_be_programmed_and_only_by_who_claims_the_core() {
    each(["trn1", "inf2"], async |cx| {
        let client = open(&cx).await;
        let core = CoreId::ALL[0];
        let last = DeviceAddr(0xfff_c7ff_ffff);
        let errno = async |address, data: &[u8]| {
            client.program_engine(core, address, data).await.err().map(|error| error.errno())
        };
        let before = client.device().counters();
        assert_eq!(errno(last, &[]).await, Some(Errno::EINVAL));
        assert_eq!(errno(last, &[1, 2]).await, Some(Errno::ENOMEM));
        assert_eq!(errno(DeviceAddr(u64::MAX), &[1, 2]).await, Some(Errno::ENOMEM));
        assert_eq!(errno(last, &[1]).await, Some(Errno::EPERM), "not claimed");
        let other = client.claim(1, 0..=0).await.unwrap();
        assert_eq!(errno(last, &[1]).await, Some(Errno::EPERM), "the other core is");
        assert_eq!(client.device().counters(), before, "nothing was moved");
        let claim = client.claim(1, 1..=1).await.unwrap();
        assert_eq!(errno(last, &[1]).await, None);
        // From the last byte of the first core to the first of the second.
        assert_eq!(errno(DeviceAddr(0xfff_c3ff_ffff), &[1, 2]).await, None);
        drop(other);
        assert_eq!(errno(DeviceAddr(0xfff_c3ff_ffff), &[1, 2]).await, Some(Errno::EPERM));
        let bytes: Vec<u8> = (0..100_000_u32).map(|at| at as u8).collect();
        assert_eq!(errno(DeviceAddr(0xfff_c400_0000), &bytes).await, None);
        drop(claim);
    });
}

#[test]
fn a_program_engine_write_into_hbm_needs_a_chunk_of_ones_own() {
    each(["trn2", "trn3"], async |cx| {
        let [client, other] = [open(&cx).await, open(&cx).await];
        let core = CoreId::ALL[0];
        let mine = client.alloc_device(DeviceAlloc::new(4096)).await.unwrap();
        let theirs = other.alloc_device(DeviceAlloc::new(4096)).await.unwrap();
        client.program_engine(core, DeviceAddr(mine.device_addr().0 + 8), b"here").await.unwrap();
        let mut bytes = [0; 4];
        mine.read(8, &mut bytes).await.unwrap();
        assert_eq!(&bytes, b"here");
        let errno =
            async |address| client.program_engine(core, address, b"no").await.unwrap_err().errno();
        assert_eq!(errno(theirs.device_addr()).await, Errno::EPERM);
        assert_eq!(errno(DeviceAddr(0)).await, Errno::EPERM, "the firmware's");
        assert_eq!(errno(DeviceAddr(0x3_0000_0000)).await, Errno::ENOMEM, "nobody's");
    });
}

#[derive(Default)]
struct Told(AtomicU64);

impl Peer for Told {
    fn revoke(&self, _number: u64) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }
}

/// Not in the specification: what a client may not write any more no peer writes for it.
#[test]
fn a_peer_loses_the_block_of_a_core_whose_claim_ends() {
    on_each("{}", async |cx| {
        let client = open(&cx).await;
        let other = cx.driver.device(0).unwrap().open().await.unwrap();
        let claim = client.claim(1, 0..=0).await.unwrap();
        let block = client.region(Block::Core, 0, Resource::Semaphore).await.unwrap();
        let looking = client.region(Block::Core, 1, Resource::Semaphore).await.unwrap();
        assert!(looking.export(..).await.is_err(), "nobody claimed that core");
        let told = Arc::new(Told::default());
        let export = block.export(..).await.unwrap();
        export.attach(told.clone()).unwrap();
        export.map().unwrap();
        let registration = block.register_peer(.., told.clone()).await.unwrap();
        assert_eq!(export.state(), ExportState::Mapped(1));
        drop(claim);
        // Told before anybody else has the core.
        let next = other.claim(1, 0..=0).await.unwrap();
        assert_eq!(told.0.load(Ordering::Relaxed), 2);
        assert_eq!(export.state(), ExportState::Revoking);
        assert!(export.map().is_err() && !registration.is_open());
        export.unmap().unwrap();
        assert_eq!(export.state(), ExportState::Dead);
        assert!(block.export(..).await.is_err());
        // Its client still looks, and may not write.
        block.read(0, &mut [0; 4]).unwrap();
        let refused = block.write(0, &[0; 4]).unwrap_err();
        assert_eq!(refused.errno(), Errno::EPERM);
        drop(next);
        let _again = client.claim(1, 0..=0).await.unwrap();
        assert!(block.export(..).await.is_err(), "for good");
        let fresh = client.region(Block::Core, 0, Resource::Semaphore).await.unwrap();
        fresh.export(..).await.unwrap();
        // One core's claim is nothing to another's window.
        drop(other.claim(1, 1..=1).await.unwrap());
        assert_eq!(fresh.export(..).await.unwrap().state(), ExportState::Idle);
    });
}

/// Moves 4 GiB and a byte, which takes a minute of memory traffic: with `AXON_LONG=1` only.
#[test]
fn mem_e90_mem_d05_buffer_copies_count_in_64_bits() {
    if std::env::var_os("AXON_LONG").is_none_or(|value| value != "1") {
        return;
    }
    on("trn2", async |cx| {
        let client = open(&cx).await;
        const SIZE: usize = (1 << 32) + 1;
        let hbm = client.alloc_device(DeviceAlloc::new(SIZE as u64)).await.unwrap();
        let data = vec![0x5a; SIZE];
        for len in [SIZE - 2, SIZE - 1, SIZE] {
            hbm.fill(0..SIZE as u64, 0).unwrap().await.unwrap();
            hbm.write(0, &data[..len]).await.unwrap();
            let mut found = [0; 8];
            hbm.read(len as u64 - 8, &mut found).await.unwrap();
            assert_eq!(found, [0x5a; 8], "the last bytes of {len}");
            if len < SIZE {
                let mut behind = [1];
                hbm.read(len as u64, &mut behind).await.unwrap();
                assert_eq!(behind, [0], "and not one more");
            }
        }
    });
}

#[test]
fn host_memory_is_counted_for_its_client_and_given_back() {
    on_each("{}", async |cx| {
        let client = open(&cx).await;
        let before = client.device().memory_totals();
        let host = client.alloc_host(HostAlloc::new(0x1001)).await.unwrap();
        assert_eq!(host.facts().location, Location::Host);
        assert_eq!(client.device().memory_totals().host, before.host + 0x2000);
    });
}

#[test]
fn a_window_ends_with_its_client_and_holds_its_memory_until_then() {
    on_each("{}", async |cx| {
        let client = open(&cx).await;
        let hbm = client.alloc_device(DeviceAlloc::new(8192)).await.unwrap();
        let view = hbm.window().await.unwrap();
        view.write(0, &[1, 2, 3, 4]).unwrap();
        let device = client.device().clone();
        hbm.close().await.unwrap();
        let other = open(&cx).await;
        let next = other.alloc_device(DeviceAlloc::new(8192)).await.unwrap();
        next.write(0, &[9; 4]).await.unwrap();
        let mut bytes = [0; 4];
        view.read(0, &mut bytes).unwrap();
        assert_eq!(bytes, [1, 2, 3, 4], "mem_e62: not given to anybody else");
        client.close().await;
        assert!(!view.is_open());
        assert_eq!(view.read(0, &mut bytes).unwrap_err().errno(), Errno::EACCES);
        drop(view);
        next.close().await.unwrap();
        other.close().await;
        assert_eq!(device.memory_totals().draining, 0);
    });
}

#[test]
fn mem_e66_windows_on_what_others_own_and_on_rings_are_for_looking() {
    on_each("{}", async |cx| {
        let [client, other] = [open(&cx).await, open(&cx).await];
        let mine = client.alloc_host(HostAlloc::new(4096)).await.unwrap();
        let view = other.window(mine.device_addr(), 4096).await.unwrap();
        assert!(!view.is_writable());
        assert_eq!(view.write(0, &[1; 4]).unwrap_err().errno(), Errno::EPERM);
        assert_eq!(view.export(..).await.err().unwrap().errno(), Errno::EPERM);
        let category = axon_ports::Category::DMA_RINGS_HOST;
        let ring = client.alloc_host(HostAlloc { category, ..HostAlloc::new(4096) }).await.unwrap();
        let view = ring.window().await.unwrap();
        assert_eq!(view.write(0, &[1; 4]).unwrap_err().errno(), Errno::EPERM);
        let own = mine.window().await.unwrap();
        for (start, end) in [(0, 0), (0, 4097), (4097, u64::MAX), (1, 0), (u64::MAX, u64::MAX)] {
            assert_eq!(own.export(start..end).await.err().unwrap().errno(), Errno::EINVAL);
        }
        assert_eq!(own.export(0..=u64::MAX).await.err().unwrap().errno(), Errno::EINVAL);
        own.export(..).await.unwrap();
    });
}

#[test]
fn all_of_an_hbm_is_for_who_has_the_grant() {
    on("trn2", async |cx| {
        let client = open(&cx).await;
        let hbm = client.alloc_device(DeviceAlloc::new(4096)).await.unwrap();
        hbm.write_by_dma(0, b"here").await.unwrap();
        let window = client.hbm_window(axon_ports::HbmIndex::new(0).unwrap()).await.unwrap();
        let mut bytes = [0; 4];
        window.read(hbm.device_addr().0, &mut bytes).unwrap();
        assert_eq!(&bytes, b"here");
        let grants = Grants::ALL.without(Grant::RawDram);
        let device = cx.driver.device(0).unwrap();
        let poor =
            device.open_with(OpenOptions { grants, ..OpenOptions::default() }).await.unwrap();
        let refused = poor.hbm_window(axon_ports::HbmIndex::new(0).unwrap()).await;
        assert_eq!(refused.err().unwrap().errno(), Errno::EPERM);
    });
    on("trn1", async |cx| {
        let refused = open(&cx).await.hbm_window(axon_ports::HbmIndex::new(0).unwrap()).await;
        assert_eq!(refused.err().unwrap().errno(), Errno::EINVAL);
    });
}

#[test]
fn mem_e57_found_chunks_and_scratchpads() {
    on_each("{}", async |cx| {
        let client = open(&cx).await;
        let hbm = axon_ports::HbmIndex::new(0).unwrap();
        let core = CoreId::ALL[0];
        let first = client.alloc_scratchpad(8192, hbm, core).await.unwrap();
        let second = client.alloc_scratchpad(4096, hbm, core).await.unwrap();
        assert_eq!(second.device_addr().0 + 4096, first.device_addr().0, "grows down");
        assert_eq!(
            second.window_len(12_288).await.unwrap().size(),
            12_288,
            "to the end of the run"
        );
        assert!(second.window_len(12_289).await.is_err());
        let found = client.find(DeviceAddr(first.device_addr().0 + 5)).await.unwrap();
        assert_eq!((found.address(), found.len()), (first.device_addr(), 8192));
        let errno = async |address| client.find(DeviceAddr(address)).await.err().unwrap().errno();
        assert_eq!(errno(0).await, Errno::EPERM, "mem_e57");
        assert_eq!(errno(1 << 63).await, Errno::ENOMEM);
        assert_eq!(errno(u64::MAX).await, Errno::ENOMEM);
        drop(found);
        second.close().await.unwrap();
        first.close().await.unwrap();
    });
}

#[test]
fn placement_names_the_device() {
    on("trn1,trn2", async |cx| {
        cx.driver.settled().await;
        let first = cx.driver.device(0).unwrap().open().await.unwrap();
        let second = cx.driver.device(1).unwrap().open_as(first.id()).await.unwrap();
        let mut views = Vec::new();
        for client in [&first, &second] {
            let buffer = client.alloc_host(HostAlloc::new(4096)).await.unwrap();
            views.push(buffer.window().await.unwrap());
        }
        for (index, view) in views.iter().enumerate() {
            let (device, shown) = cx.driver.placement(first.id(), view.address()).await.unwrap();
            assert_eq!((device.number() as usize, shown), (index, axon::Shown::Host));
        }
    });
}
