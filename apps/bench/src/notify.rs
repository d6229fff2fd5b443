//! What synchronisation with a device costs, and what telling about it does: semaphores, events,
//! notifications, counters, trace points.
//!
//! A notification is put into the ring by the processor, as the device would write it, so that what
//! is counted begins where the record is visible in memory. Rows of single operations leave out
//! what reading the counter costs.

use alloc::sync::Arc;
use alloc::vec::Vec;
use core::future::{Future, poll_fn};
use core::pin::pin;
use core::time::Duration;

use axon::ports::DeviceIndex;
use axon::ports::telemetry::{DeviceRecords, TraceEvent, TraceKind};
use axon::ports::{CoreMap, telemetry::EventKind};
use axon::{Client, Device, Driver, NotificationQueue, QueueSpec};
use axon_platform::{DmaBuf, Platform};
use embassy_sync::blocking_mutex::raw::CriticalSectionRawMutex;
use embassy_sync::signal::Signal;

use crate::row::{Row, samples};
use crate::{Error, SAMPLES, WARM_UP};

/// What reading a semaphore may cost, its register included.
const READ_GOAL: u64 = 40;
/// What adding to one may cost.
const ADD_GOAL: u64 = 30;
/// From a record that is visible in memory until its reader goes on.
const DELIVERY_GOAL: u64 = 250;
/// Adding to a counter.
const COUNTER_GOAL: u64 = 5;
/// A trace point that is off: one load, and what it is tested with.
const OFF_GOAL: u64 = 4;
/// A trace point that is on.
const ON_GOAL: u64 = 40;

const RECORD_BYTES: u64 = 16;
const RING_BYTES: u64 = 4096;
/// First and second word of a record: phase of the first pass, the end of an instruction.
const WORDS: (u32, u32) = (1 << 31 | 1 << 20, 3 << 16);

type Slot<T> = Signal<CriticalSectionRawMutex, T>;

/// Measures every row on the first device of the machine.
///
/// # Errors
/// Where there is no device, or something it does fails.
pub(crate) async fn measure<P: Platform>(machine: &P) -> Result<Vec<Row>, Error> {
    let driver = Driver::start(machine.clone());
    driver.settled().await;
    let device = driver.devices().into_iter().next().ok_or(Error::NoDevice)?;
    let client = device.open().await?;
    let mut rows = words(machine, &client).await?;
    rows.extend(notifications(machine, &device, &client).await?);
    rows.extend(records(machine));
    client.close().await;
    Ok(rows)
}

/// Samples of an operation that does not wait, without what reading the counter takes. A function of
/// its own for each operation, so that none pays for what its neighbours keep in registers.
#[inline(never)]
fn row<P: Platform>(
    machine: &P,
    name: &'static str,
    goal: Option<u64>,
    mut operation: impl FnMut(),
) -> Row {
    let overhead = samples!(machine, {}).into_iter().min().unwrap_or(0);
    let mut took = samples!(machine, operation());
    took.iter_mut().for_each(|sample| *sample = sample.saturating_sub(overhead));
    Row::new(name, goal, took)
}

async fn words<P: Platform>(machine: &P, client: &Client<P>) -> Result<Vec<Row>, Error> {
    let _claim = client.claim(1, 0..=0).await?;
    let core = client.core(0)?;
    let (semaphore, event) = (core.semaphore(7)?, core.event(7)?);
    semaphore.set(0)?;
    let mut failed = 0;
    let mut keep = |ok: bool| failed += u32::from(!ok);
    let rows = [
        row(machine, "reading a semaphore", Some(READ_GOAL), || keep(semaphore.get().is_ok())),
        row(machine, "adding to a semaphore", Some(ADD_GOAL), || keep(semaphore.add(1).is_ok())),
        row(machine, "reading an event", None, || keep(event.get().is_ok())),
        row(machine, "setting an event", None, || keep(event.set(true).is_ok())),
    ];
    // Whatever failed does so again, and says why.
    let (value, set) = (semaphore.get()?, event.get()?);
    match failed == 0 && value == (WARM_UP + SAMPLES) as i32 && set {
        true => Ok(rows.into()),
        false => Err(Error::Wrong("semaphore or event")),
    }
}

/// Puts records into a ring as a device does.
struct Producer {
    ring: DmaBuf,
    next: u64,
}

impl Producer {
    /// The words that make a record new come last.
    fn put(&mut self) {
        let place = self.next * RECORD_BYTES % RING_BYTES;
        let pass = self.next * RECORD_BYTES / RING_BYTES;
        let first = if pass.is_multiple_of(2) { WORDS.0 } else { WORDS.0 & !(1 << 31) };
        // Inside the ring, whatever comes.
        let _ = self.ring.store64(place + 8, self.next);
        let _ = self.ring.store32(place + 4, WORDS.1);
        let _ = self.ring.store32(place, first);
        self.next += 1;
    }
}

async fn notifications<P: Platform>(
    machine: &P,
    device: &Device<P>,
    client: &Client<P>,
) -> Result<Vec<Row>, Error> {
    let mut queue = client.notifications(QueueSpec::new(0, 4, RING_BYTES)).await?;
    let ring = queue.memory().ok_or(Error::NoDevice)?;
    let mut producer = Producer { ring, next: 0 };
    let mut taken = 0;
    let mut took = Vec::with_capacity(WARM_UP + SAMPLES);
    for _ in 0..WARM_UP + SAMPLES {
        producer.put();
        let before = machine.cycles();
        taken += usize::from(matches!(queue.try_next(), Ok(Some(_))));
        took.push(machine.cycles().wrapping_sub(before));
    }
    let taking = Row::new("taking a notification that is there", None, took.split_off(WARM_UP));
    let delivery = deliver(machine, device, queue, producer).await?;
    match taken == WARM_UP + SAMPLES {
        true => Ok([taking, delivery].into()),
        false => Err(Error::Wrong("notification")),
    }
}

/// Tells the counter's value whenever it was given a notification; ends with its queue.
async fn listen<P: Platform>(machine: P, mut queue: NotificationQueue<P>, seam: Arc<Seam>) {
    for _ in 0..WARM_UP + SAMPLES {
        seam.ready.signal(());
        if !matches!(queue.next().await, Some(Ok(_))) {
            break;
        }
        seam.heard.signal(machine.cycles());
    }
}

/// What the two tasks share.
#[derive(Default)]
struct Seam {
    ready: Slot<()>,
    heard: Slot<u64>,
    took: Slot<Vec<u64>>,
}

/// Puts records into the ring while the listener waits and the driver rests. Counts from the end of
/// its own turn, in which the record became visible and the driver was told to look, as it does at
/// the end of a rest.
async fn tell<P: Platform>(machine: P, device: Device<P>, mut producer: Producer, seam: Arc<Seam>) {
    let mut took = Vec::with_capacity(WARM_UP + SAMPLES);
    for _ in 0..WARM_UP + SAMPLES {
        seam.ready.wait().await;
        machine.sleep(Duration::from_micros(100)).await;
        producer.put();
        device.look_for_notifications();
        let mut told_at = 0;
        let mut wait = pin!(seam.heard.wait());
        let heard = poll_fn(|cx| {
            let polled = wait.as_mut().poll(cx);
            if polled.is_pending() {
                told_at = machine.cycles();
            }
            polled
        })
        .await;
        took.push(heard.wrapping_sub(told_at));
    }
    seam.took.signal(took.split_off(WARM_UP));
}

/// From a record that is there to its reader; both ends are tasks of their own.
async fn deliver<P: Platform>(
    machine: &P,
    device: &Device<P>,
    queue: NotificationQueue<P>,
    producer: Producer,
) -> Result<Row, Error> {
    let seam = Arc::new(Seam::default());
    machine.spawn("bench-listener", listen(machine.clone(), queue, seam.clone()))?;
    machine.spawn("bench-teller", tell(machine.clone(), device.clone(), producer, seam.clone()))?;
    let took = seam.took.wait().await;
    Ok(Row::new("a notification, from memory to its reader", Some(DELIVERY_GOAL), took))
}

/// What telling costs whoever does something.
fn records<P: Platform>(machine: &P) -> Vec<Row> {
    let index = DeviceIndex::new(0);
    let Some(records) = index.and_then(|index| DeviceRecords::new(index, CoreMap(1)).ok()) else {
        return Vec::new();
    };
    let (counter, trace) = (&records.counters.mailbox.errors, &records.trace);
    let point = || {
        let event = TraceEvent::BarRead { bar: 0, offset: 4, value: 5 };
        trace.emit(event, || machine.now());
    };
    let mut rows = Vec::new();
    rows.push(row(machine, "adding to a counter", Some(COUNTER_GOAL), || counter.increment()));
    rows.push(row(machine, "a trace point that is off", Some(OFF_GOAL), point));
    if trace.switch_on(TraceKind::BarRead).is_ok() {
        rows.push(row(machine, "a trace point that is on", Some(ON_GOAL), point));
    }
    rows.push(row(machine, "a record in the event ring", None, || {
        records.events.record(machine.now(), None, EventKind::Call, 0);
    }));
    rows
}
