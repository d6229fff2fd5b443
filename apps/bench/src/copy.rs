//! What a copy costs: one at a time, and 64 at once.

use alloc::sync::Arc;
use alloc::vec::Vec;
use core::future::{Future, poll_fn};
use core::pin::Pin;
use core::task::Poll;

use axon::{Client, DeviceAlloc, DeviceBuffer, Driver, HostAlloc, HostBuffer, Transfer};
use axon_platform::Platform;
use embassy_sync::blocking_mutex::raw::CriticalSectionRawMutex;
use embassy_sync::signal::Signal;

use crate::Error;
use crate::row::{Row, samples};

/// What a copy of 4 KiB may cost from the call until its caller goes on.
const COPY_GOAL: u64 = 750;
/// What a fill of 4 KiB may cost.
const FILL_GOAL: u64 = 800;
/// What the CPU may take to write 64 bytes into device memory.
const INLINE_GOAL: u64 = 120;
/// What writing a slice of 4 KiB may cost, with every copy on the way.
const WRITE_GOAL: u64 = 2500;
/// What one of [`DEPTH`] copies may cost.
const SHARE_GOAL: u64 = 150;
/// Copies at once.
const DEPTH: usize = 64;
const PAGE: u64 = 4096;

/// A client with a host and a device buffer.
struct Bench<P: Platform> {
    client: Client<P>,
    host: HostBuffer<P>,
    device: DeviceBuffer<P>,
}

impl<P: Platform> Bench<P> {
    async fn new(machine: &P) -> Result<Self, Error> {
        let driver = Driver::start(machine.clone());
        driver.settled().await;
        let device = driver.devices().into_iter().next().ok_or(Error::NoDevice)?;
        let client = device.open().await?;
        let size = DEPTH as u64 * PAGE;
        let host = client.alloc_host(HostAlloc::new(size)).await?;
        let device = client.alloc_device(DeviceAlloc::new(size)).await?;
        Ok(Bench { client, host, device })
    }

    fn copy(&self, page: u64) -> Result<Transfer<P>, axon::Error> {
        self.host.copy_to(page * PAGE..(page + 1) * PAGE, &self.device, page * PAGE)
    }
}

/// Measures every row on the first device of the machine.
///
/// # Errors
/// Where there is no device, or a copy fails.
pub(crate) async fn measure<P: Platform>(machine: &P) -> Result<Vec<Row>, Error> {
    let bench = Bench::new(machine).await?;
    let outcome = Arc::new(Signal::<CriticalSectionRawMutex, Outcome>::new());
    let (task_machine, tell) = (machine.clone(), outcome.clone());
    machine.spawn("bench-copies", async move {
        tell.signal(ask(task_machine, bench).await);
    })?;
    Ok(outcome.wait().await?)
}

type Outcome = Result<Vec<Row>, axon::Error>;

/// The task whose copies are counted.
async fn ask<P: Platform>(machine: P, bench: Bench<P>) -> Outcome {
    let mut rows = Vec::new();
    let copies = samples!(machine, bench.copy(0)?.await?);
    rows.push(Row::new("copy 4 KiB host to device", Some(COPY_GOAL), copies));
    let copies = samples!(machine, bench.copy(0)?.start().await?);
    rows.push(Row::new("copy 4 KiB, started at once", Some(COPY_GOAL), copies));
    let spans = samples!(machine, {
        bench.host.span(..PAGE)?.copy_to(bench.device.span(..PAGE)?)?.start().await?;
    });
    rows.push(Row::new("copy 4 KiB between spans, started at once", Some(COPY_GOAL), spans));

    let mut batch = bench.client.batch(DEPTH)?;
    let batches = samples!(machine, before => {
        for page in 0..DEPTH as u64 {
            batch.copy(&bench.host, page * PAGE, &bench.device, page * PAGE, PAGE)?;
        }
        (&mut batch).await?;
        machine.cycles().wrapping_sub(before) / DEPTH as u64
    });
    rows.push(Row::new("one of a batch of 64 copies of 4 KiB", Some(SHARE_GOAL), batches));
    let mut copies: Vec<Option<Transfer<P>>> = (0..DEPTH).map(|_| None).collect();
    let shares = samples!(machine, before => {
        for (page, copy) in (0..).zip(copies.iter_mut()) {
            *copy = Some(bench.copy(page)?);
        }
        join(&mut copies).await?;
        machine.cycles().wrapping_sub(before) / DEPTH as u64
    });
    rows.push(Row::new("one of 64 copies of 4 KiB at once", None, shares));

    let fills = samples!(machine, bench.device.fill(..PAGE, 1)?.await?);
    rows.push(Row::new("fill 4 KiB of device memory", Some(FILL_GOAL), fills));
    let fills = samples!(machine, bench.device.fill(..PAGE, 1)?.start().await?);
    rows.push(Row::new("fill 4 KiB, started at once", Some(FILL_GOAL), fills));
    let data = alloc::vec![0x5a; PAGE as usize];
    let writes = samples!(machine, bench.device.write_by_dma(0, &data).await?);
    rows.push(Row::new("write a slice of 4 KiB", Some(WRITE_GOAL), writes));
    let few = &data[..64];
    let writes = samples!(machine, bench.device.write_inline(0, few)?);
    rows.push(Row::new("write 64 bytes through the window", Some(INLINE_GOAL), writes));
    let len = 16 * PAGE;
    let copies = samples!(machine, bench.host.copy_to(..len, &bench.device, 0)?.start().await?);
    rows.push(Row::new("copy 64 KiB host to device", None, copies));
    Ok(rows)
}

/// Waits for every copy.
async fn join<P: Platform>(copies: &mut [Option<Transfer<P>>]) -> Result<(), axon::Error> {
    poll_fn(|cx| {
        let mut pending = false;
        for place in copies.iter_mut() {
            let Some(copy) = place else { continue };
            match Pin::new(copy).poll(cx) {
                Poll::Ready(Ok(())) => *place = None,
                Poll::Ready(Err(error)) => return Poll::Ready(Err(error)),
                Poll::Pending => pending = true,
            }
        }
        if pending { Poll::Pending } else { Poll::Ready(Ok(())) }
    })
    .await
}
