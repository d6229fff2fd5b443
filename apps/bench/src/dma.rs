//! What copies cost by size and depth, what each way of a small write costs, and how real time is
//! shared between driver and model (specification 03).
//!
//! A copy is *submitted* from the call until its doorbells are rung and *completed* from there,
//! where the sweep that sees its marker begins, until its caller goes on. At depths above 1 that is
//! a share of the whole. The figures include what the [probe](crate::probe) adds.

use alloc::format;
use alloc::string::String;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::future::{Future, poll_fn};
use core::pin::Pin;
use core::task::Poll;

use axon::{Batch, Client, Counters, DeviceAlloc, DeviceBuffer, Driver, HostAlloc, HostBuffer};
use axon_platform::Platform;
use embassy_sync::blocking_mutex::raw::CriticalSectionRawMutex;
use embassy_sync::signal::Signal;

use crate::Error;
use crate::probe::{Probe, WallClock};

const SIZES: [u64; 5] = [64, 4 << 10, 64 << 10, 1 << 20, 16 << 20];
const DEPTHS: [usize; 3] = [1, 8, 64];
const SMALL: [usize; 8] = [64, 128, 256, 512, 1024, 2048, 4096, 8192];
/// Most bytes that one row moves, warm-up and all, unless that is less than seven runs.
const ROW_BYTES: u64 = 2 << 30;
/// Host memory copied from, device memory copied to.
const BUFFER: u64 = 16 << 20;
/// Runs of a row that is short.
const RUNS: u64 = 40;
/// Runs that do not count.
const WARM_UP: usize = 2;

/// How the copies of a row are asked for.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Way {
    /// Awaited: the last copy that was made rings for all.
    Awaited,
    /// Started, then awaited.
    Started,
    /// All in one batch.
    Batch,
}

impl Way {
    fn name(self) -> &'static str {
        match self {
            Way::Awaited => "awaited",
            Way::Started => "started",
            Way::Batch => "batch",
        }
    }
}

/// One row; the first three are a copy's share, the others belong to all copies of a run.
pub(crate) struct DmaRow {
    kind: &'static str,
    way: &'static str,
    bytes: u64,
    depth: usize,
    samples: usize,
    submit: u64,
    complete: u64,
    total: u64,
    doorbells: u64,
    descriptors: u64,
    /// Because of a batch, and all there were.
    register_reads: u64,
    all_reads: u64,
    ring_bytes: u64,
    /// Real time of a run, and the model's part of it; 0 without a clock.
    wall_ns: u64,
    model_ns: u64,
}

impl DmaRow {
    pub(crate) fn heading(unit: &str) -> String {
        format!(
            "{unit:24}{:>10}{:>6}{:>9}{:>9}{:>9}{:>6}{:>7}{:>6}{:>8}\n",
            "bytes", "depth", "submit", "complete", "total", "bells", "descr.", "reads", "ring B"
        )
    }

    pub(crate) fn line(&self) -> String {
        let DmaRow { bytes, depth, submit, complete, total, doorbells, descriptors, .. } = self;
        format!(
            "{:24}{bytes:>10}{depth:>6}{submit:>9}{complete:>9}{total:>9}{doorbells:>6}\
             {descriptors:>7}{:>6}{:>8}\n",
            format!("{} {}", self.kind, self.way),
            self.register_reads,
            self.ring_bytes,
        )
    }

    pub(crate) fn json(&self, unit: &str) -> String {
        format!(
            concat!(
                r#"{{"operation":"{} {}","kind":"{}","way":"{}","unit":"{}","bytes":{},"#,
                r#""depth":{},"samples":{},"submit":{},"complete":{},"median":{},"#,
                r#""doorbells":{},"descriptors":{},"register_reads":{},"all_reads":{},"ring_bytes":{},"#,
                r#""wall_ns":{},"model_ns":{}}}"#
            ),
            self.kind,
            self.way,
            self.kind,
            self.way,
            unit,
            self.bytes,
            self.depth,
            self.samples,
            self.submit,
            self.complete,
            self.total,
            self.doorbells,
            self.descriptors,
            self.register_reads,
            self.all_reads,
            self.ring_bytes,
            self.wall_ns,
            self.model_ns,
        )
    }
}

/// What one run took.
struct Sample {
    submit: u64,
    complete: u64,
    total: u64,
}

type Outcome = Result<Vec<DmaRow>, axon::Error>;

/// Measures every row on the first device of the machine.
///
/// # Errors
/// Where there is no device, or a copy fails.
pub(crate) async fn measure<P: Platform>(
    machine: &P,
    clock: WallClock,
) -> Result<Vec<DmaRow>, Error> {
    let probe = Probe::new(machine.clone(), clock);
    let driver = Driver::start(probe.clone());
    driver.settled().await;
    let device = driver.devices().into_iter().next().ok_or(Error::NoDevice)?;
    let client = device.open().await?;
    let bench = Bench {
        host: client.alloc_host(HostAlloc::new(BUFFER)).await?,
        device: client.alloc_device(DeviceAlloc::new(BUFFER)).await?,
        client,
        probe: probe.clone(),
        clock,
    };
    let outcome = Arc::new(Signal::<CriticalSectionRawMutex, Outcome>::new());
    let tell = outcome.clone();
    probe.spawn("bench-dma", async move { tell.signal(ask(bench).await) })?;
    Ok(outcome.wait().await?)
}

struct Bench<P: Platform> {
    client: Client<Probe<P>>,
    host: HostBuffer<Probe<P>>,
    device: DeviceBuffer<Probe<P>>,
    probe: Probe<P>,
    clock: WallClock,
}

/// The task whose operations are counted.
async fn ask<P: Platform>(bench: Bench<P>) -> Outcome {
    let mut rows = Vec::new();
    for bytes in SIZES {
        for depth in DEPTHS {
            for way in [Way::Awaited, Way::Started, Way::Batch] {
                // What one marker cannot stand behind goes as so many copies.
                let fits = bytes.div_ceil(65_536) * depth as u64 <= 2032;
                if way != Way::Batch || fits {
                    rows.push(bench.copies(bytes, depth, way).await?);
                }
            }
        }
    }
    let data = alloc::vec![0x5a; 8192];
    for len in SMALL {
        for way in ["window", "window, awaited", "DMA"] {
            rows.push(bench.writes(way, &data[..len]).await?);
        }
    }
    for bytes in [4 << 10, 1 << 20, 16 << 20] {
        rows.push(bench.fills(bytes).await?);
    }
    rows.extend(bench.sweeps().await?);
    Ok(rows)
}

impl<P: Platform> Bench<P> {
    fn counters(&self) -> Counters {
        self.client.device().counters()
    }

    fn cycles(&self) -> u64 {
        self.probe.cycles()
    }

    async fn copies(&self, bytes: u64, depth: usize, way: Way) -> Result<DmaRow, axon::Error> {
        let runs = (ROW_BYTES / (bytes * depth as u64)).clamp(7, RUNS) as usize;
        let mut row = Recorder::new(self, runs);
        let mut batch = self.client.batch(depth)?;
        let mut copies = Vec::with_capacity(depth);
        for _ in 0..runs {
            row.begin();
            match (way, depth) {
                (Way::Batch, _) => self.batch(&mut batch, bytes, depth).await?,
                (Way::Awaited, 1) => self.host.copy_to(..bytes, &self.device, 0)?.await?,
                (Way::Started, 1) => self.host.copy_to(..bytes, &self.device, 0)?.start().await?,
                _ => {
                    for n in 0..depth as u64 {
                        let at = n * bytes % BUFFER;
                        let copy = self.host.copy_to(at..at + bytes, &self.device, at)?;
                        copies.push(Some(if way == Way::Started { copy.start() } else { copy }));
                    }
                    join(&mut copies).await?;
                }
            }
            row.end();
        }
        Ok(row.finish("copy", way.name(), bytes, depth))
    }

    #[inline(always)]
    async fn batch(
        &self,
        batch: &mut Batch<Probe<P>>,
        bytes: u64,
        depth: usize,
    ) -> Result<(), axon::Error> {
        for n in 0..depth as u64 {
            let at = n * bytes % BUFFER;
            batch.copy(&self.host, at, &self.device, at, bytes)?;
        }
        batch.await
    }

    async fn writes(&self, way: &'static str, data: &[u8]) -> Result<DmaRow, axon::Error> {
        let mut row = Recorder::new(self, RUNS as usize);
        for _ in 0..RUNS {
            row.begin();
            match way {
                "window" => self.device.write_inline(0, data)?,
                "DMA" => self.device.write_by_dma(0, data).await?,
                _ => self.device.write(0, data).await?,
            }
            row.end();
        }
        Ok(row.finish("write", way, data.len() as u64, 1))
    }

    async fn fills(&self, bytes: u64) -> Result<DmaRow, axon::Error> {
        let mut row = Recorder::new(self, RUNS as usize);
        for _ in 0..RUNS {
            row.begin();
            self.device.fill(..bytes, 7)?.start().await?;
            row.end();
        }
        Ok(row.finish("fill", "started", bytes, 1))
    }

    /// Turns of the completion task over 64 copies: one in which none ends, one that ends all. Both
    /// from the yield of the caller until it goes on.
    async fn sweeps(&self) -> Result<Vec<DmaRow>, axon::Error> {
        let mut looks = Recorder::new(self, RUNS as usize);
        let mut ends = Recorder::new(self, RUNS as usize);
        let page = |n: u64| n * 4096..(n + 1) * 4096;
        for _ in 0..RUNS {
            self.probe.notes().hold(true);
            let mut copies = Vec::with_capacity(65);
            for n in 0..64 {
                copies.push(Some(self.host.copy_to(page(n), &self.device, n * 4096)?.start()));
            }
            // All rang at once, but the device has not heard of it. Who yields runs in front of
            // whom it woke before, so the task's turn is behind the first yield.
            embassy_futures::yield_now().await;
            looks.begin();
            embassy_futures::yield_now().await;
            looks.end();
            self.probe.notes().hold(false);
            copies.push(Some(self.host.copy_to(page(0), &self.device, 0)?.start()));
            join(&mut copies).await?;
            for _ in 0..4 {
                embassy_futures::yield_now().await;
            }

            // A copy that was made and is never staged: so none of the others is the last, which
            // would ring and end them all, and the task does.
            let never = self.host.copy_to(page(0), &self.device, 0)?;
            for n in 0..64 {
                copies.push(Some(self.host.copy_to(page(n), &self.device, n * 4096)?));
            }
            poll_fn(|cx| {
                for copy in copies.iter_mut().flatten() {
                    let _ = Pin::new(copy).poll(cx);
                }
                Poll::Ready(())
            })
            .await;
            embassy_futures::yield_now().await;
            ends.begin();
            embassy_futures::yield_now().await;
            ends.end();
            drop(never);
            join(&mut copies).await?;
        }
        let looked = looks.finish("sweep", "64 outstanding", 64 * 4096, 1);
        Ok(alloc::vec![looked, ends.finish("sweep", "64 ended", 64 * 4096, 1)])
    }
}

/// Waits for every copy.
async fn join<P: Platform>(
    copies: &mut Vec<Option<axon::Transfer<Probe<P>>>>,
) -> Result<(), axon::Error> {
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
    .await?;
    copies.clear();
    Ok(())
}

/// Takes samples of one row.
struct Recorder<'a, P: Platform> {
    bench: &'a Bench<P>,
    samples: Vec<Sample>,
    before: u64,
    wall_before: u64,
    walls: Vec<(u64, u64)>,
    inside_before: u64,
    counters: Counters,
    /// Register reads and writes.
    notes: (u64, u64),
    last: (Counters, u64, u64),
}

impl<'a, P: Platform> Recorder<'a, P> {
    fn new(bench: &'a Bench<P>, runs: usize) -> Self {
        Recorder {
            bench,
            samples: Vec::with_capacity(runs),
            before: 0,
            wall_before: 0,
            walls: Vec::with_capacity(runs),
            inside_before: 0,
            counters: Counters::default(),
            notes: (0, 0),
            last: (Counters::default(), 0, 0),
        }
    }

    fn begin(&mut self) {
        let notes = self.bench.probe.notes();
        self.counters = self.bench.counters();
        self.notes = (notes.reads(), notes.writes());
        self.inside_before = notes.inside_ns();
        self.wall_before = self.bench.clock.map_or(0, |clock| clock());
        self.before = self.bench.cycles();
    }

    fn end(&mut self) {
        let now = self.bench.cycles();
        let wall = self.bench.clock.map_or(0, |clock| clock()) - self.wall_before;
        let notes = self.bench.probe.notes();
        self.walls.push((wall, notes.inside_ns() - self.inside_before));
        let rung = notes.writes() != self.notes.1;
        let last = if rung { notes.last_write() } else { now };
        self.samples.push(Sample {
            submit: last.wrapping_sub(self.before),
            complete: now.wrapping_sub(last),
            total: now.wrapping_sub(self.before),
        });
        self.last =
            (self.bench.counters(), notes.reads() - self.notes.0, notes.writes() - self.notes.1);
    }

    fn finish(self, kind: &'static str, way: &'static str, bytes: u64, depth: usize) -> DmaRow {
        let kept = &self.samples[WARM_UP.min(self.samples.len())..];
        let share = |of: fn(&Sample) -> u64| median(kept.iter().map(of)) / depth as u64;
        let (after, all_reads, doorbells) = self.last;
        let register_reads = after.register_reads - self.counters.register_reads;
        let descriptors = after.descriptors - self.counters.descriptors;
        let batches = after.batches - self.counters.batches;
        DmaRow {
            kind,
            way,
            bytes,
            depth,
            samples: kept.len(),
            submit: share(|sample| sample.submit),
            complete: share(|sample| sample.complete),
            total: share(|sample| sample.total),
            doorbells,
            descriptors,
            register_reads,
            all_reads,
            // A pair of descriptors is 32 bytes; a marker is two words armed, one read, one cleared.
            ring_bytes: descriptors * 32 + batches * 16,
            wall_ns: median(self.walls.iter().map(|wall| wall.0)),
            model_ns: median(self.walls.iter().map(|wall| wall.1)),
        }
    }
}

fn median(values: impl Iterator<Item = u64>) -> u64 {
    let mut values: Vec<u64> = values.collect();
    values.sort_unstable();
    values.get(values.len() / 2).copied().unwrap_or(0)
}
