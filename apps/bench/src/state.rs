//! What clients and resets cost: open and close of a client that owns nothing, the way from a reset
//! request to firmware, and the end of a client that owns much, seen by another one.

use alloc::vec::Vec;
use core::pin::pin;

use axon::ports::CoreMap;
use axon::{Client, Device, DeviceAlloc, DeviceBuffer, Driver, HostAlloc, HostBuffer};
use axon_platform::Platform;

use crate::row::Row;
use crate::{Error, SAMPLES, WARM_UP};

/// What opening and closing may cost together.
const OPEN_CLOSE_GOAL: u64 = 1500;
/// From the call until firmware has been asked, where nothing is in flight.
const TRIGGER_GOAL: u64 = 5000;
/// Nanoseconds that the end of a client with much may take, beside what its copies take.
const END_GOAL: u64 = 50_000_000;
/// What such a client owns, and what it has in flight when it leaves.
const CHUNKS: usize = 10_000;
const IN_FLIGHT: u64 = 64;
/// Copies beside nothing: as long as the end takes, so that what the machine does every 50 ms falls
/// into both.
const ALONE: usize = 1 << 16;
const PAGE: u64 = 4096;

/// Names of the rows of one product.
struct Names {
    open_close: &'static str,
    core: &'static str,
    device: &'static str,
}

const NAMES: [Names; 2] = [
    Names {
        open_close: "open and close, V2",
        core: "reset of a core to its trigger, V2",
        device: "reset of the device to its trigger, V2",
    },
    Names {
        open_close: "open and close, V3",
        core: "reset of a core to its trigger, V3",
        device: "reset of the device to its trigger, V3",
    },
];

/// Measures every row on the first two devices of the machine.
///
/// # Errors
/// Where there is no device, or a call fails.
pub(crate) async fn measure<P: Platform>(machine: &P) -> Result<Vec<Row>, Error> {
    let driver = Driver::start(machine.clone());
    driver.settled().await;
    let devices = driver.devices();
    let first = devices.first().ok_or(Error::NoDevice)?;
    let mut rows = Vec::new();
    for (device, names) in devices.iter().zip(&NAMES) {
        let mut samples = Vec::with_capacity(WARM_UP + SAMPLES);
        for _ in 0..WARM_UP + SAMPLES {
            let before = machine.cycles();
            device.open().await?.close().await;
            samples.push(machine.cycles().wrapping_sub(before));
        }
        rows.push(Row::new(names.open_close, Some(OPEN_CLOSE_GOAL), samples.split_off(WARM_UP)));
        for (name, map) in [(names.core, CoreMap(1)), (names.device, CoreMap::DEVICE)] {
            rows.push(triggers(machine, device, name, map).await?);
        }
    }
    rows.extend(ends(machine, first).await?);
    Ok(rows)
}

/// From the request until firmware was asked.
async fn triggers<P: Platform>(
    machine: &P,
    device: &Device<P>,
    name: &'static str,
    map: CoreMap,
) -> Result<Row, Error> {
    let client = device.open().await?;
    // A reset takes long, in the emulated function too: ten say what there is to say.
    let mut samples = Vec::with_capacity(10);
    for _ in 0..10 {
        let before = machine.cycles();
        let ticket = client.reset(map)?;
        ticket.await.map_err(axon::Error::from)?;
        samples.push(device.last_reset_trigger().wrapping_sub(before));
    }
    client.close().await;
    Ok(Row::new(name, Some(TRIGGER_GOAL), samples))
}

/// A page in host memory and one in device memory.
struct Pages<P: Platform>(HostBuffer<P>, DeviceBuffer<P>);

impl<P: Platform> Pages<P> {
    async fn new(client: &Client<P>, pages: u64) -> Result<Self, axon::Error> {
        let host = client.alloc_host(HostAlloc::new(pages * PAGE)).await?;
        Ok(Pages(host, client.alloc_device(DeviceAlloc::new(pages * PAGE)).await?))
    }

    async fn copy(&self) -> Result<(), axon::Error> {
        self.0.span(..PAGE)?.copy_to(self.1.span(..PAGE)?)?.await
    }
}

/// A client of 10,000 chunks with 64 copies in flight is dropped while another one copies.
async fn ends<P: Platform>(machine: &P, device: &Device<P>) -> Result<Vec<Row>, Error> {
    let other = device.open().await?;
    let pages = Pages::new(&other, 1).await?;
    let mut alone = Vec::with_capacity(ALONE);
    for _ in 0..ALONE {
        let before = machine.cycles();
        pin!(pages.copy()).await?;
        alone.push(machine.cycles().wrapping_sub(before));
    }
    let client = device.open().await?;
    let mut chunks = Vec::with_capacity(CHUNKS);
    for _ in 0..CHUNKS {
        chunks.push(client.alloc_device(DeviceAlloc::new(PAGE)).await?);
    }
    let many = Pages::new(&client, IN_FLIGHT).await?;
    for page in 0..IN_FLIGHT {
        let part = page * PAGE..(page + 1) * PAGE;
        drop(many.0.span(part.clone())?.copy_to(many.1.span(part)?)?.start());
    }
    let since = machine.now();
    // What was dropped with the client goes by itself; forgetting the handles leaves all of it to
    // the client's end.
    core::mem::forget((chunks, many));
    drop(client);
    let mut beside = Vec::with_capacity(1 << 16);
    // The first one stands behind the 64 in its ring, which ends in order: it waits for all of them.
    let before = machine.cycles();
    pin!(pages.copy()).await?;
    let behind = machine.cycles().wrapping_sub(before);
    while device.open_count() > 1 {
        let before = machine.cycles();
        pin!(pages.copy()).await?;
        beside.push(machine.cycles().wrapping_sub(before));
    }
    let took = machine.now().since(since).as_nanos() as u64;
    let median = |samples: &[u64]| Row::new("", None, samples.to_vec()).median();
    let longest = |samples: &[u64]| samples.iter().max().copied().unwrap_or(0);
    let (usual, usual_longest) = (median(&alone), longest(&alone));
    let rows = [
        Row::new("copy 4 KiB beside nothing: median", None, alloc::vec![usual]),
        Row::new("copy 4 KiB beside nothing: longest", None, alloc::vec![usual_longest]),
        Row::new("copy 4 KiB behind those 64 in its ring", None, alloc::vec![behind]),
        Row::new(
            "copy 4 KiB beside that end: median",
            Some(usual * 105 / 100),
            alloc::vec![median(&beside)],
        ),
        Row::new(
            "copy 4 KiB beside that end: longest",
            Some(usual_longest * 2),
            alloc::vec![longest(&beside)],
        ),
        Row::new("end of 10,000 chunks, 64 copies, ns", Some(END_GOAL), alloc::vec![took]),
    ];
    other.close().await;
    Ok(rows.into_iter().collect())
}
