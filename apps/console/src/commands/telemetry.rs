//! `metrics`, `tree`, `counters`, `count`, `datastore`, `hwcounters`, `log`, `trace`, `poster` (specification 07 §16.6).

use alloc::string::{String, ToString};
use alloc::vec::Vec;
use core::future::poll_fn;
use core::task::Poll;

use axon::metrics::prometheus::{Exposition, Frame};
use axon::metrics::{
    CORE_COUNTERS, CoreCounter, DeviceCounter, PostOutcome, PostReport, PostingMode, Snapshot,
};
use axon::ports::telemetry::events::EventQuery;
use axon::ports::telemetry::trace::TraceTask;
use axon::ports::telemetry::{Trace, TraceKind};
use axon::ports::{ClientId, CoreId};
use axon::{Device, DeviceTelemetry};
use axon_platform::{Errno, Platform};

use crate::answer::{Failure, Fields, Outcome, Value};
use crate::number;
use crate::session::Session;
use crate::words::Words;

/// Records that `trace` shows of each task.
const TRACE_LIMIT: u64 = 128;

type Rows<'a> = &'a mut dyn FnMut(&Fields);

/// `metrics [PREFIX]`: Prometheus text of all devices between two comment lines.
pub(super) async fn metrics<P: Platform>(
    session: &mut Session<P>,
    words: &mut Words<'_>,
    rows: Rows<'_>,
) -> Outcome {
    let prefix = words.peek().map(|_| words.word("prefix")).transpose()?.unwrap_or_default();
    words.finish()?;
    let mut snapshots = Vec::new();
    for device in session.driver.devices() {
        snapshots.push(fresh(device.telemetry()?).await?);
    }
    session.frames += 1;
    let uptime = session.platform.now().since(axon_platform::Instant::default());
    let mut pieces: Vec<String> = Vec::new();
    let mut frame =
        Frame::begin(session.frames, uptime, |piece: &str| pieces.push(piece.to_string()));
    let exposition = Exposition { devices: &snapshots, prefix };
    exposition.render(&mut frame).map_err(|_| Failure::new(Errno::ENOMEM, "no memory"))?;
    let bytes = frame.end();
    for piece in &pieces {
        piece.lines().for_each(|line| rows(&Fields::line(line)));
        breathe().await;
    }
    Ok(Fields::new().with("seq", session.frames).with("bytes", bytes))
}

/// A snapshot with the hardware sources read anew.
async fn fresh<P: Platform>(telemetry: &DeviceTelemetry<P>) -> Result<Snapshot, Failure> {
    telemetry.refresh().await;
    Ok(telemetry.snapshot().map_err(axon::Error::from)?)
}

/// Lets every other task run.
async fn breathe() {
    let mut passed = false;
    poll_fn(|cx| {
        if core::mem::replace(&mut passed, true) {
            return Poll::Ready(());
        }
        cx.waker().wake_by_ref();
        Poll::Pending
    })
    .await;
}

/// `tree [DEV] [path=PREFIX]`: files of the metric tree.
pub(super) async fn tree<P: Platform>(
    session: &Session<P>,
    words: &mut Words<'_>,
    rows: Rows<'_>,
) -> Outcome {
    let device = session.device(words, 0)?;
    let prefix = words.option("path")?.unwrap_or_default();
    words.finish()?;
    let snapshot = fresh(device.telemetry()?).await?;
    let mut count = 0u64;
    snapshot.walk_tree(&mut |path, text| {
        if path.starts_with(prefix) {
            let text = alloc::format!("{text}");
            let fields = Fields::new().with("file", path.to_string());
            rows(&fields.with("text", text.trim_end().to_string()));
            count += 1;
        }
    });
    Ok(Fields::new().with("count", count))
}

/// `counters [DEV] [client=N]`: what the driver did on the data path; before it, what clients
/// counted for each core, or one of them.
pub(super) async fn counters<P: Platform>(
    session: &Session<P>,
    words: &mut Words<'_>,
    rows: Rows<'_>,
) -> Outcome {
    let device = session.device(words, 0)?;
    let client = client_option(words)?;
    words.finish()?;
    match (client, device.telemetry()) {
        (Some(client), telemetry) => {
            let copy = telemetry?.monitor(client).await.map_err(axon::Error::from)?;
            for core in device.hal().core_ids() {
                list(core, rows, |counter| copy.core_counter(core, counter));
            }
            for counter in (0..DeviceCounter::COUNT).filter_map(DeviceCounter::new) {
                match copy.device_counter(counter) {
                    0 => {}
                    value => rows(&row(counter.to_string(), value)),
                }
            }
        }
        (None, Ok(telemetry)) => {
            let snapshot = telemetry.snapshot().map_err(axon::Error::from)?;
            for core in &snapshot.cores {
                list(core.core, rows, |counter| core.total(counter));
            }
        }
        // Without telemetry nobody counts.
        (None, Err(_)) => {}
    }
    Ok(data_path(&device))
}

fn list(core: CoreId, rows: Rows<'_>, value: impl Fn(CoreCounter) -> u64) {
    for counter in (0..CORE_COUNTERS as u32).filter_map(CoreCounter::new) {
        match value(counter) {
            0 => {}
            value => rows(&row(counter.to_string(), value).with("nc", core.number())),
        }
    }
}

fn row(counter: String, value: u64) -> Fields {
    Fields::new().with("counter", counter).with("value", value)
}

fn data_path<P: Platform>(device: &Device<P>) -> Fields {
    let counters = device.counters();
    Fields::new()
        .with("doorbells", counters.doorbells)
        .with("register_reads", counters.register_reads)
        .with("descriptors", counters.descriptors)
        .with("batches", counters.batches)
        .with("bytes", counters.bytes)
        .with("completed", counters.completed)
        .with("timeouts", counters.timeouts)
        .with("aborts", counters.aborts)
        .with("cancelled", counters.cancelled)
        .with("replays", counters.replays)
        .with("quarantined", counters.quarantined)
}

/// `count NC|device COUNTER VALUE`: adds to a counter of the current client, or sets one of the
/// device. COUNTER is a name or a number.
pub(super) fn count<P: Platform>(session: &Session<P>, words: &mut Words<'_>) -> Outcome {
    let client = session.client()?;
    let (place, counter) = (words.word("core")?, words.word("counter")?);
    let value = words.number("value")?;
    words.finish()?;
    let unknown = || Failure::invalid(format_args!("there is no counter `{counter}`"));
    let datastore = client.datastore()?;
    let changed = if place == "device" {
        let by_number = || DeviceCounter::new(number::number("counter", counter).ok()? as u32);
        let counter = DeviceCounter::from_name(counter).or_else(by_number).ok_or_else(unknown)?;
        datastore.set_device(counter, value)
    } else {
        let core = number::limited("core", place, u32::MAX.into())? as u32;
        let core = CoreId::new(core).filter(|core| client.device().hal().has_core(*core));
        let core = core.ok_or_else(|| {
            Failure::new(Errno::E2BIG, format_args!("the device has no core {place}"))
        })?;
        let by_number = || CoreCounter::new(number::number("counter", counter).ok()? as u32);
        let counter = CoreCounter::from_name(counter).or_else(by_number).ok_or_else(unknown)?;
        datastore.add(core, counter, value)
    };
    changed.map_err(axon::Error::from)?;
    Ok(Fields::new())
}

/// `datastore acquire|release`: the current client's slab of counters.
pub(super) fn datastore<P: Platform>(session: &Session<P>, words: &mut Words<'_>) -> Outcome {
    let form = words.word("form")?;
    words.finish()?;
    let client = session.client()?;
    match form {
        "acquire" => {
            let datastore = client.datastore()?;
            let fields = Fields::new().with("client", datastore.client().number());
            Ok(fields
                .address("pa", datastore.address().0)
                .with("size", axon::metrics::datastore::SLAB_BYTES))
        }
        "release" => client.release_datastore().map(|()| Fields::new()).map_err(Failure::from),
        other => Err(Failure::invalid(format_args!("`{other}` is neither acquire nor release"))),
    }
}

/// `hwcounters ADDRESS|bar0+OFF [count=1 step=4] [dev=]`: has firmware read registers; the sum is that
/// of all values, of which at most 8 are shown.
pub(super) async fn hardware_counters<P: Platform>(
    session: &Session<P>,
    words: &mut Words<'_>,
    rows: Rows<'_>,
) -> Outcome {
    /// Values that are shown.
    const SHOWN: usize = 8;
    /// Far above what firmware is asked for, so that the driver refuses it.
    const MOST: u64 = 1 << 16;
    let device = device_option(session, words)?;
    let count = words.option_limited("count", MOST)?.unwrap_or(1) as usize;
    let step = words.option_number("step")?.unwrap_or(4);
    let first = first_address(&device, words.word("address")?)?;
    words.finish()?;
    let mut addresses = Vec::new();
    let no_memory = |_| Failure::new(Errno::ENOMEM, "no memory for the addresses");
    addresses.try_reserve_exact(count).map_err(no_memory)?;
    addresses.extend((0..count as u64).map(|n| first.wrapping_add(step.wrapping_mul(n))));
    let values = device.hardware_counters(&addresses).await?;
    for (address, value) in addresses.iter().zip(&values).take(SHOWN) {
        rows(&Fields::new().address("address", *address).with("value", Value::Word(*value)));
    }
    let sum = values.iter().map(|value| u64::from(*value)).sum::<u64>();
    Ok(Fields::new().with("count", values.len()).with("sum", sum))
}

/// An address as the device sees it, or an offset in the register window.
fn first_address<P: Platform>(device: &Device<P>, word: &str) -> Result<u64, Failure> {
    let Some(offset) = word.strip_prefix("bar0+") else {
        return number::number("address", word);
    };
    let offset = number::number("offset", offset)?;
    let address = device.hal().register_address(offset, 4);
    Ok(address.ok_or_else(|| Failure::invalid("the register window has no such offset"))?.0)
}

/// `log [LIMIT] [CLIENT] [dev=]`: the newest records of the event ring.
pub(super) fn log<P: Platform>(
    session: &Session<P>,
    words: &mut Words<'_>,
    rows: Rows<'_>,
) -> Outcome {
    let device = device_option(session, words)?;
    let limit = words.peek().map(|_| words.number("limit")).transpose()?.unwrap_or(0);
    let client = words.peek().map(|_| words.limited("client", u32::MAX.into())).transpose()?;
    words.finish()?;
    let query = EventQuery {
        limit: usize::try_from(limit).unwrap_or(usize::MAX),
        client: client.map(client_id).transpose()?,
        kind: None,
    };
    let records = &device.records().events;
    let count = records.dump(&query, |record| {
        rows(
            &Fields::new()
                .with("sequence", record.sequence)
                .with("time_ns", record.time.as_nanos())
                .with("client", record.client.map_or(0, ClientId::number))
                .with("kind", record.kind.name())
                .address("data", record.data),
        );
    });
    Ok(Fields::new().with("count", count).with("overwritten", records.overwritten()))
}

/// `trace on|off EVENT|all [dev=]`, `trace [LIMIT] [dev=]`.
pub(super) fn trace<P: Platform>(
    session: &Session<P>,
    words: &mut Words<'_>,
    rows: Rows<'_>,
) -> Outcome {
    let device = device_option(session, words)?;
    let trace = &device.records().trace;
    match words.peek() {
        Some("on" | "off") => {
            let on = words.word("on or off")? == "on";
            let name = words.word("event")?;
            words.finish()?;
            switch(trace, on, name)
        }
        _ => {
            let limit = words.peek().map(|_| words.number("limit")).transpose()?;
            words.finish()?;
            let limit = usize::try_from(limit.unwrap_or(TRACE_LIMIT)).unwrap_or(usize::MAX);
            Ok(show(trace, limit, rows))
        }
    }
}

fn switch(trace: &Trace, on: bool, name: &str) -> Outcome {
    let kinds: Vec<TraceKind> = match name {
        "all" => TraceKind::ALL.to_vec(),
        name => Vec::from([TraceKind::from_name(name)
            .ok_or_else(|| Failure::invalid(format_args!("there is no event `{name}`")))?]),
    };
    for kind in kinds {
        if on {
            let no_room = |_| Failure::new(Errno::ENOMEM, "no memory for the ring of the event");
            trace.switch_on(kind).map_err(no_room)?;
        } else {
            trace.switch_off(kind);
        }
    }
    let on = TraceKind::ALL.iter().filter(|kind| trace.is_on(**kind)).count();
    Ok(Fields::new().with("on", on))
}

/// The newest records of each task, one task after another.
fn show(trace: &Trace, limit: usize, rows: Rows<'_>) -> Fields {
    let tasks = [TraceTask::Dma, TraceTask::Memory, TraceTask::Registers, TraceTask::Poster];
    let shown = tasks.map(|task| {
        trace.dump(task, limit, |record| rows(&Fields::line(&alloc::format!("{record}"))))
    });
    Fields::new().with("count", shown.iter().sum::<usize>())
}

/// `poster on|off|now|status [DEV]`, `poster period SPAN [DEV]`.
pub(super) async fn poster<P: Platform>(
    session: &Session<P>,
    words: &mut Words<'_>,
    rows: Rows<'_>,
) -> Outcome {
    let action = words.word("on, off, now, period or status")?;
    let period = match action {
        "period" => Some(number::span("period", words.word("period")?)?),
        _ => None,
    };
    let device = session.device(words, 0)?;
    words.finish()?;
    let telemetry = device.telemetry()?;
    match action {
        "on" => telemetry.set_posting(PostingMode::Enabled),
        "off" => telemetry.set_posting(PostingMode::Disabled),
        "period" => {
            let period = period.unwrap_or_default();
            telemetry.set_period(period).map_err(axon::Error::from)?;
        }
        "now" => {
            let reports = telemetry.post_now().await.map_err(axon::Error::from)?;
            reports.iter().for_each(|report| rows(&post_row(report)));
        }
        "status" => {}
        other => return Err(Failure::invalid(format_args!("the poster cannot `{other}`"))),
    }
    let status = telemetry.poster_status();
    let sum = |pair: [u64; 2]| pair.iter().sum::<u64>();
    Ok(Fields::new()
        .with("state", status.state.name())
        .with("period_ms", status.period.as_millis() as u64)
        .with("next_band", status.next_band.index())
        .with("ok", sum(status.tallies.ok))
        .with("failed", sum(status.tallies.error))
        .with("bytes", status.tallies.bytes)
        .with("deferred", sum(status.tallies.deferred)))
}

fn post_row(report: &PostReport) -> Fields {
    let outcome = match report.outcome {
        PostOutcome::Ok => "ok".to_string(),
        PostOutcome::Empty => "empty".to_string(),
        PostOutcome::GivenUp => "given up".to_string(),
        PostOutcome::Failed(error) => error.to_string(),
    };
    Fields::new()
        .with("band", report.band.index())
        .with("records", report.records)
        .with("bytes", report.bytes)
        .with("deferred", report.deferred)
        .with("outcome", outcome)
}

fn client_option(words: &mut Words<'_>) -> Result<Option<ClientId>, Failure> {
    words.option_limited("client", u32::MAX.into())?.map(client_id).transpose()
}

fn client_id(number: u64) -> Result<ClientId, Failure> {
    u32::try_from(number)
        .ok()
        .and_then(ClientId::new)
        .ok_or_else(|| Failure::invalid(format_args!("no client has number {number}")))
}

/// Option `dev=`, else the default device: where positions are taken by other numbers.
fn device_option<P: Platform>(
    session: &Session<P>,
    words: &mut Words<'_>,
) -> Result<Device<P>, Failure> {
    match words.option("dev")? {
        Some(word) => session.device_named(word),
        None => session.device(&mut Words::new(&[]), 0),
    }
}
