//! Edge cases of the native API (specification 08 §8.14), named after their ids.

use std::pin::pin;
use std::task::{Context as TaskContext, Waker};

use axon::ports::{AllocRequest, CoreId, HbmIndex, Location};
use axon::{Client, Context, DeviceAlloc, Error, HostAlloc, raw};
use axon_hosted::Machine;
use axon_platform::{Errno, Platform};
use axon_tests::{is_v2, on_each};

/// The first device's first client.
async fn open(cx: &Context<Machine>) -> Client<Machine> {
    cx.driver.settled().await;
    cx.driver.device(0).expect("a device").open().await.expect("a client")
}

#[test]
fn api_e07_another_clients_chunk_is_for_reading() {
    on_each("{}", async |cx| {
        let owner = open(&cx).await;
        let chunk = owner.alloc_device(DeviceAlloc::new(4096)).await.unwrap();
        chunk.write(0, b"mine").await.unwrap();
        let other = open(&cx).await;
        assert_eq!(other.free(chunk.handle()).await.unwrap_err().errno(), Errno::EPERM);
        let view = other.by_handle(chunk.handle()).unwrap();
        assert_eq!(view.write(0, b"x").await.unwrap_err().errno(), Errno::EPERM);
        let mut bytes = [0; 4];
        view.read(0, &mut bytes).await.unwrap();
        assert_eq!(&bytes, b"mine");
    });
}

#[test]
fn api_e08_the_seventeenth_client_is_refused() {
    on_each("{}", async |cx| {
        let mut clients = Vec::new();
        for _ in 0..16 {
            clients.push(open(&cx).await);
        }
        let device = cx.driver.device(0).unwrap();
        let refused = device.open().await.err().unwrap();
        assert_eq!((refused, refused.errno()), (Error::TooManyClients, Errno::EBUSY));
        assert_eq!(device.clients().len(), 16);
        clients.pop().unwrap().close().await;
        device.open().await.unwrap();
    });
}

#[test]
fn api_e09_each_client_is_independent() {
    on_each("{}", async |cx| {
        let (first, second) = (open(&cx).await, open(&cx).await);
        let kept = second.alloc_device(DeviceAlloc::new(4096)).await.unwrap();
        let lost = first.alloc_device(DeviceAlloc::new(4096)).await.unwrap();
        first.close().await;
        assert_eq!(lost.write(0, b"x").await.unwrap_err(), Error::NotAttached);
        kept.write(0, b"x").await.unwrap();
    });
}

#[test]
fn api_e10_a_dropped_open_leaves_the_slots_as_they_were() {
    // The first reset takes 20 ms: the device is in RESET when the function is found.
    on_each("{}", async |cx| {
        while cx.driver.devices().is_empty() {
            cx.platform.sleep(std::time::Duration::from_micros(10)).await;
        }
        let device = cx.driver.device(0).unwrap();
        {
            let mut opening = pin!(device.open());
            let mut context = TaskContext::from_waker(Waker::noop());
            assert!(opening.as_mut().poll(&mut context).is_pending());
            assert_eq!(device.open_count(), 1);
        }
        assert_eq!((device.open_count(), device.clients().len()), (0, 0));
        device.open().await.unwrap();
    });
}

#[test]
fn api_e13_api_e14_sizes_that_cannot_be() {
    on_each("{}", async |cx| {
        let client = open(&cx).await;
        let alloc = async |size| client.alloc_device(DeviceAlloc::new(size)).await.err().unwrap();
        assert_eq!(alloc(0).await.errno(), Errno::ENOMEM);
        assert_eq!(alloc(1 << 63).await.errno(), Errno::EINVAL);
    });
}

#[test]
fn api_e15_host_memory_has_no_alignment() {
    on_each("{}", async |cx| {
        let client = open(&cx).await;
        let request =
            AllocRequest { align: 4096, size: 4096, location: Location::Host, ..client.request() };
        assert_eq!(client.alloc(request).await.err().unwrap().errno(), Errno::EINVAL);
    });
}

#[test]
fn api_e16_api_e17_numbers_are_checked_where_they_are_made() {
    assert!(HbmIndex::new(4).is_none());
    assert!(CoreId::new(8).is_none());
    on_each("{}", async |cx| {
        let client = open(&cx).await;
        let hbm = HbmIndex::new(2).unwrap();
        if !is_v2(&cx) {
            return;
        }
        let refused = client.alloc_device(DeviceAlloc { hbm, ..DeviceAlloc::new(4096) }).await;
        assert_eq!(refused.err().unwrap().errno(), Errno::EINVAL);
    });
}

#[test]
fn api_e18_a_freed_handle_names_nothing() {
    on_each("{}", async |cx| {
        let client = open(&cx).await;
        assert_eq!(client.free(0).await.unwrap_err().errno(), Errno::EINVAL);
        let chunk = client.alloc_device(DeviceAlloc::new(4096)).await.unwrap();
        let handle = chunk.handle();
        client.free(handle).await.unwrap();
        assert_eq!(client.free(handle).await.unwrap_err().errno(), Errno::EINVAL);
        // The buffer that lost its chunk reaches nothing, whatever has the number now.
        let next = client.alloc_device(DeviceAlloc::new(4096)).await.unwrap();
        assert_eq!(next.handle(), handle);
        assert_eq!(chunk.write(0, b"x").await.unwrap_err().errno(), Errno::EINVAL);
        drop(chunk);
        next.write(0, b"x").await.unwrap();
    });
}

#[test]
fn api_e19_dma_e01_mem_e38_size_0_is_refused_and_nothing_moves() {
    on_each("{}", async |cx| {
        let client = open(&cx).await;
        let host = client.alloc_host(HostAlloc::new(4096)).await.unwrap();
        let hbm = client.alloc_device(DeviceAlloc::new(4096)).await.unwrap();
        let before = client.device().counters();
        let mut refusals = vec![
            host.span(0..0).err().unwrap(),
            hbm.span(4096..4096).err().unwrap(),
            hbm.fill(8..8, 1).err().unwrap(),
        ];
        refusals.push(hbm.write(0, &[]).await.unwrap_err());
        refusals.push(hbm.read(0, &mut []).await.unwrap_err());
        refusals.push(host.write(0, &[]).await.unwrap_err());
        for refusal in refusals {
            assert_eq!(refusal.errno(), Errno::EINVAL, "{refusal}");
        }
        assert_eq!(client.device().counters(), before);
    });
}

#[test]
fn api_e20_api_e21_mem_e36_bounds_hold_and_nothing_wraps() {
    on_each("{}", async |cx| {
        let client = open(&cx).await;
        let host = client.alloc_host(HostAlloc::new(4096)).await.unwrap();
        let hbm = client.alloc_device(DeviceAlloc::new(4096)).await.unwrap();
        let before = client.device().counters();
        assert_eq!(hbm.write(4096, b"x").await.unwrap_err().errno(), Errno::EINVAL);
        assert_eq!(hbm.write(u64::MAX, b"xy").await.unwrap_err().errno(), Errno::EINVAL);
        assert!(matches!(
            host.span(1..4097),
            Err(Error::OutOfRange { offset: 1, len: 4096, limit: 4096 })
        ));
        let view = client.by_handle(hbm.handle()).unwrap();
        assert!(view.span_at(0xffff_ffff_ffff_f001, 0x1000).is_err());
        assert_eq!(client.device().counters(), before);
    });
}

#[test]
fn api_e23_dma_e05_a_native_copy_may_be_longer_than_a_batch() {
    on_each("{}", async |cx| {
        let client = open(&cx).await;
        for (len, batches) in [(0x7f0_0000u64, 1), (0x7f0_0001, 2)] {
            let wishes = DeviceAlloc::new(len);
            let from = client.alloc_device(wishes).await.unwrap();
            let to = client.alloc_device(wishes).await.unwrap();
            from.write(len - 4, b"last").await.unwrap();
            let before = client.device().counters().batches;
            from.span(..len).unwrap().copy_to(to.span(..len).unwrap()).unwrap().await.unwrap();
            assert_eq!(client.device().counters().batches - before, batches);
            let mut bytes = [0; 4];
            to.read(len - 4, &mut bytes).await.unwrap();
            assert_eq!(&bytes, b"last");
        }
    });
}

#[test]
fn api_e31_a_dropped_read_never_writes_to_its_slice() {
    on_each("{} fault=slow=50us", async |cx| {
        let client = open(&cx).await;
        let hbm = client.alloc_device(DeviceAlloc::new(65536)).await.unwrap();
        hbm.fill(.., 0x77).unwrap().await.unwrap();
        let before = client.device().counters().batches;
        let mut bytes = vec![0; 65536];
        {
            let mut reading = pin!(hbm.read(0, &mut bytes));
            let mut context = TaskContext::from_waker(Waker::noop());
            // A bounce chunk is asked for, then the transfer is staged; there it is dropped.
            while client.device().counters().batches == before {
                assert!(reading.as_mut().poll(&mut context).is_pending());
                cx.platform.sleep(std::time::Duration::from_micros(1)).await;
            }
        }
        assert_eq!(client.device().counters().batches, before + 1);
        cx.platform.sleep(std::time::Duration::from_millis(5)).await;
        assert!(bytes.iter().all(|byte| *byte == 0));
        hbm.read(0, &mut bytes).await.unwrap();
        assert!(bytes.iter().all(|byte| *byte == 0x77));
    });
}

#[test]
fn api_e32_mem_e63_memory_of_a_dropped_copy_is_reused_only_after_its_marker() {
    on_each("{} fault=late-marker=20ms", async |cx| {
        let client = open(&cx).await;
        let device = client.device().clone();
        let host = client.alloc_host(HostAlloc::new(4096)).await.unwrap();
        let hbm = client.alloc_device(DeviceAlloc::new(4096)).await.unwrap();
        let free_now = device.memory_totals();
        let copy = host.span(..).unwrap().copy_to(hbm.span(..).unwrap()).unwrap().start();
        drop((copy, host, hbm));
        cx.platform.sleep(std::time::Duration::from_millis(5)).await;
        assert_eq!(device.memory_totals().draining, 8192);
        cx.platform.sleep(std::time::Duration::from_millis(50)).await;
        assert_eq!(device.memory_totals().draining, 0);
        assert_eq!(device.memory_totals().device, free_now.device - 4096);
    });
}

#[test]
fn api_e69_api_e70_api_e81_registers_have_limits() {
    on_each("{}", async |cx| {
        let client = open(&cx).await;
        let (misc_ram, end) =
            if is_v2(&cx) { (0x30fa_0000, 1 << 30) } else { (0x06c8_4000, 1 << 32) };
        let write = |offset| raw::operator_write32(&client, offset, 0).err().map(|e| e.errno());
        assert_eq!(write(misc_ram + 0x1f0), Some(Errno::EINVAL), "deny list");
        assert_eq!(write(end), Some(Errno::EINVAL), "behind the window");
        assert_eq!(write(2), Some(Errno::EINVAL), "unaligned");
        assert!(client.device().read32(end).is_err());
        assert!(client.device().read32(misc_ram + 4).is_ok());
    });
}

#[test]
fn api_e72_a_device_without_clients_lists_none() {
    on_each("{}", async |cx| {
        cx.driver.settled().await;
        assert!(cx.driver.device(0).unwrap().clients().is_empty());
    });
}

#[test]
fn copies_of_unlike_ends_are_refused() {
    on_each("{},{}", async |cx| {
        let (first, second) = (open(&cx).await, cx.driver.device(1).unwrap().open().await.unwrap());
        let here = first.alloc_device(DeviceAlloc::new(8192)).await.unwrap();
        let there = second.alloc_device(DeviceAlloc::new(8192)).await.unwrap();
        let refused = here.span(..).unwrap().copy_to(there.span(..).unwrap()).err().unwrap();
        assert_eq!(refused.errno(), Errno::EINVAL);
        let refused = here.span(..8).unwrap().copy_to(here.span(8..17).unwrap()).err().unwrap();
        assert_eq!(refused.errno(), Errno::EINVAL);
    });
}

/// A future that is polled once keeps its place: nothing here needs a task of its own.
#[test]
fn everything_is_send() {
    fn is_send<T: Send>(_: &T) {}
    on_each("{}", async |cx| {
        let client = open(&cx).await;
        let hbm = client.alloc_device(DeviceAlloc::new(4096)).await.unwrap();
        is_send(&client);
        is_send(&hbm);
        is_send(&hbm.span(..).unwrap());
        is_send(&hbm.write(0, b"x"));
        let mut fill = pin!(hbm.fill(.., 1).unwrap());
        is_send(&fill);
        let mut context = TaskContext::from_waker(Waker::noop());
        while fill.as_mut().poll(&mut context).is_pending() {
            cx.platform.sleep(std::time::Duration::from_micros(1)).await;
        }
    });
}
