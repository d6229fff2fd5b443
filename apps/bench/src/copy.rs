//! What a copy costs: one at a time, and 64 at once.

use alloc::vec::Vec;
use core::future::{Future, poll_fn};
use core::pin::Pin;
use core::task::Poll;

use axon::{Client, DeviceAlloc, DeviceBuffer, Driver, HostAlloc, HostBuffer, Transfer};
use axon_platform::Platform;

use crate::row::Row;
use crate::{Error, SAMPLES, WARM_UP};

/// What a copy of 4 KiB may cost from the call until its caller goes on.
const COPY_GOAL: u64 = 750;
/// What it may cost from the call until both doorbells are rung, where nothing else is to be done.
const DOORBELL_GOAL: u64 = 450;
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
        let part = page * PAGE..(page + 1) * PAGE;
        self.host.span(part.clone())?.copy_to(self.device.span(part)?)
    }
}

/// Measures every row on the first device of the machine.
///
/// # Errors
/// Where there is no device, or a copy fails.
pub(crate) async fn measure<P: Platform>(machine: &P) -> Result<Vec<Row>, Error> {
    let bench = Bench::new(machine).await?;
    let mut rows = Vec::new();
    rows.push(
        sample(machine, "copy 4 KiB host to device", Some(COPY_GOAL), async || {
            bench.copy(0)?.await
        })
        .await?,
    );
    rows.push(started(machine, &bench).await?);
    rows.push(at_once(machine, &bench).await?);
    rows.push(
        sample(machine, "fill 4 KiB of device memory", None, async || {
            bench.device.span(..PAGE)?.fill(1)?.await
        })
        .await?,
    );
    rows.push(
        sample(machine, "copy 64 KiB host to device", None, async || {
            bench.host.span(..16 * PAGE)?.copy_to(bench.device.span(..16 * PAGE)?)?.await
        })
        .await?,
    );
    drop(bench.client);
    Ok(rows)
}

async fn sample<P: Platform>(
    machine: &P,
    name: &'static str,
    goal: Option<u64>,
    operation: impl AsyncFn() -> Result<(), axon::Error>,
) -> Result<Row, Error> {
    let mut samples = Vec::with_capacity(WARM_UP + SAMPLES);
    for _ in 0..WARM_UP + SAMPLES {
        let before = machine.cycles();
        operation().await?;
        samples.push(machine.cycles().wrapping_sub(before));
    }
    Ok(Row::new(name, goal, samples.split_off(WARM_UP)))
}

/// From the call until both doorbells are rung, for a copy that does not wait for the turn's end.
async fn started<P: Platform>(machine: &P, bench: &Bench<P>) -> Result<Row, Error> {
    let mut samples = Vec::with_capacity(WARM_UP + SAMPLES);
    for _ in 0..WARM_UP + SAMPLES {
        let before = machine.cycles();
        let copy = bench.copy(0)?.start();
        samples.push(machine.cycles().wrapping_sub(before));
        copy.await?;
    }
    Ok(Row::new("copy 4 KiB, call to doorbells", Some(DOORBELL_GOAL), samples.split_off(WARM_UP)))
}

/// Copies of 4 KiB, all polled in the same turn; a share of the whole each.
async fn at_once<P: Platform>(machine: &P, bench: &Bench<P>) -> Result<Row, Error> {
    let mut samples = Vec::with_capacity(WARM_UP + SAMPLES);
    let mut copies: Vec<Option<Transfer<P>>> = (0..DEPTH).map(|_| None).collect();
    for _ in 0..WARM_UP + SAMPLES {
        let before = machine.cycles();
        for (page, copy) in (0..).zip(copies.iter_mut()) {
            *copy = Some(bench.copy(page)?);
        }
        join(&mut copies).await?;
        samples.push(machine.cycles().wrapping_sub(before) / DEPTH as u64);
    }
    Ok(Row::new("one of 64 copies of 4 KiB at once", Some(SHARE_GOAL), samples.split_off(WARM_UP)))
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
