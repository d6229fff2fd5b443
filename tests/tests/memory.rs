//! Memory end to end: what clients see of the memory service, on every product.

use axon::ports::Location;
use axon::{Client, Context, DeviceAlloc, HostAlloc};
use axon_hosted::Machine;
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
fn mem_e91_mem_d20_only_windows_may_be_programmed_and_only_by_who_claims_the_core() {
    on("trn1", async |cx| {
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
    on("trn2", async |cx| {
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
