//! [`Telemetry`]: the handle of one device's telemetry, and the state behind it.
//!
//! Slots, sums and schedule belong together and change in whole turns: one short closure under a
//! mutex that is never held across an await. That is what specification 07 calls "within one turn of
//! the telemetry task"; the poster takes its turns like everybody else.

use alloc::string::String;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::cell::RefCell;
use core::future::{Future, poll_fn};
use core::sync::atomic::{AtomicBool, Ordering};
use core::task::Poll;
use core::time::Duration;

use axon_platform::{Instant, Platform};
use axon_ports::telemetry::DeviceRecords;
use axon_ports::{ClientId, CoreId};
use embassy_sync::blocking_mutex::Mutex;
use embassy_sync::blocking_mutex::raw::CriticalSectionRawMutex;
use embassy_sync::signal::Signal;
use embassy_sync::waitqueue::MultiWakerRegistration;

use crate::datastore::{DatastoreSnapshot, Slab, Slots, layout};
use crate::poster::{PostReport, PostTallies, PosterStatus};
use crate::posting::{Constants, Ledger, PostingMode, STREAM_BYTES, Schedule};
use crate::power::PowerSampler;
use crate::readings::Readings;
use crate::totals::Retired;
use crate::{Datastore, DeviceFacts, DeviceSensors, Error, MemoryCounter, MetricSink, Snapshot};

/// How long a monitor waits before it looks at a bad header again.
const HEADER_RETRY: Duration = Duration::from_micros(500);

/// What may be chosen for the telemetry of a device.
#[derive(Clone, Debug)]
pub struct TelemetryConfig {
    /// Time between two posts.
    pub period: Duration,
    /// Whether posts go to firmware (bit 0 of the sink mask).
    pub posts: bool,
    /// Whether every record posted is also traced (bit 1 of the sink mask).
    pub traces: bool,
    /// Instance id to post, from boot configuration; `None` posts "0".
    pub instance_id: Option<String>,
    /// Version to post and to show.
    pub driver_version: String,
    /// Wall-clock time at which monotonic time was 0. assumed: a machine without a clock of its
    /// own counts from 1970.
    pub epoch: Duration,
}

impl Default for TelemetryConfig {
    fn default() -> Self {
        TelemetryConfig {
            period: Duration::from_millis(150_000),
            posts: true,
            traces: false,
            instance_id: None,
            driver_version: String::from(env!("CARGO_PKG_VERSION")),
            epoch: Duration::ZERO,
        }
    }
}

pub(crate) struct State {
    pub slots: Slots,
    pub retired: Retired,
    pub ledger: Ledger,
    pub power: PowerSampler,
    pub schedule: Schedule,
    pub readings: Readings,
    /// Posts asked for out of turn, and how many of them were made.
    pub wanted: u64,
    pub made: u64,
    pub last_extra: [Option<PostReport>; 2],
    pub ended: bool,
    waiters: MultiWakerRegistration<4>,
}

impl State {
    /// Folds what a client counted, then clears its slab.
    fn release(&mut self, facts: &DeviceFacts, client: ClientId) -> bool {
        let State { slots, retired, ledger, .. } = self;
        slots.release(client, |slab| {
            retired.fold(facts, &slab);
            ledger.departed.fold(&slab);
        })
    }

    pub(crate) fn wake_waiters(&mut self) {
        self.waiters.wake();
    }
}

pub(crate) struct Shared<P, D> {
    pub platform: P,
    pub facts: DeviceFacts,
    pub config: TelemetryConfig,
    pub constants: Constants,
    pub records: Arc<DeviceRecords>,
    pub device: D,
    pub tallies: PostTallies,
    /// Whether subscribers are told of changes.
    pub notifies: AtomicBool,
    /// The poster has something to look at.
    pub poke: Signal<CriticalSectionRawMutex, ()>,
    pub stopping: AtomicBool,
    state: Mutex<CriticalSectionRawMutex, RefCell<State>>,
}

impl<P: Platform, D> Shared<P, D> {
    /// One turn.
    pub(crate) fn turn<R>(&self, turn: impl FnOnce(&mut State) -> R) -> R {
        self.state.lock(|state| turn(&mut state.borrow_mut()))
    }

    /// Wall-clock time at a point of monotonic time.
    pub(crate) fn wall_clock(&self, at: Instant) -> Duration {
        self.config.epoch.saturating_add(Duration::from_nanos(at.as_nanos()))
    }

    /// Whether there is anything for a poster to do.
    pub(crate) fn has_sink(&self) -> bool {
        self.facts.takes_posts && (self.config.posts || self.config.traces)
    }
}

/// The telemetry of one device. Clones are handles on the same.
pub struct Telemetry<P, D>(pub(crate) Arc<Shared<P, D>>);

impl<P, D> Clone for Telemetry<P, D> {
    fn clone(&self) -> Self {
        Telemetry(self.0.clone())
    }
}

impl<P: Platform, D: DeviceSensors + MetricSink> Telemetry<P, D> {
    /// Telemetry on the given 16 slabs. `device` is read and posted through; whoever counts for
    /// the device writes into `records`.
    ///
    /// # Errors
    /// [`Error::BadSlabs`]; [`Error::Invalid`] for a period below a second; [`Error::NoRoom`].
    pub fn new(
        platform: P,
        facts: DeviceFacts,
        config: TelemetryConfig,
        records: Arc<DeviceRecords>,
        slabs: Vec<Slab>,
        device: D,
    ) -> Result<Self, Error> {
        let now = platform.now();
        let wall_clock = config.epoch.saturating_add(Duration::from_nanos(now.as_nanos()));
        let state = State {
            slots: Slots::new(slabs)?,
            retired: Retired::new(),
            ledger: Ledger::new(now),
            power: PowerSampler::new(facts.dice, wall_clock),
            schedule: Schedule::new(config.period)?,
            readings: Readings::new(&facts)?,
            wanted: 0,
            made: 0,
            last_extra: [None; 2],
            ended: false,
            waiters: MultiWakerRegistration::new(),
        };
        Ok(Telemetry(Arc::new(Shared {
            platform,
            constants: Constants::new(config.instance_id.as_deref(), &config.driver_version),
            facts,
            config,
            records,
            device,
            tallies: PostTallies::default(),
            notifies: AtomicBool::new(false),
            poke: Signal::new(),
            stopping: AtomicBool::new(false),
            state: Mutex::new(RefCell::new(state)),
        })))
    }

    /// What never changes about the device.
    pub fn facts(&self) -> &DeviceFacts {
        &self.0.facts
    }

    /// Where everybody counts, notes events and traces.
    pub fn records(&self) -> &Arc<DeviceRecords> {
        &self.0.records
    }

    /// The client's own counters: its slab, or the next free one. The caller has passed the attach
    /// gate.
    ///
    /// # Errors
    /// [`Error::NoSlab`] where 16 other clients have one.
    pub fn acquire(&self, client: ClientId) -> Result<Datastore, Error> {
        let (slab, tenancy) = self.0.turn(|state| state.slots.acquire(client))?;
        Ok(Datastore::new(client, slab, tenancy))
    }

    /// A copy of another client's slab, as it is.
    ///
    /// # Errors
    /// [`Error::NoEntry`] for a client without one, [`Error::NoRoom`].
    pub fn snapshot_of(&self, client: ClientId) -> Result<DatastoreSnapshot, Error> {
        self.0.turn(|state| {
            let memory = state.slots.find(client).ok_or(Error::NoEntry { client })?;
            DatastoreSnapshot::copy(client, memory)
        })
    }

    /// As [`Telemetry::snapshot_of`], for a slab that its owner has begun; a bad header is looked
    /// at once more 500 µs later.
    ///
    /// # Errors
    /// [`Error::BadHeader`] too.
    pub async fn monitor(&self, client: ClientId) -> Result<DatastoreSnapshot, Error> {
        let mut copy = self.snapshot_of(client)?;
        if copy.header() != layout::HEADER {
            self.0.platform.sleep(HEADER_RETRY).await;
            copy = self.snapshot_of(client)?;
        }
        match copy.header() {
            layout::HEADER => Ok(copy),
            header => Err(Error::BadHeader { header }),
        }
    }

    /// Ends the client's ownership of its slab: its counters go into the totals of the device, the
    /// slab is zeroed and free. Nothing happens for a client without one. Called by the client, and
    /// for it when it is dropped (specification 05 §10.2 step 9).
    pub fn release(&self, client: ClientId) {
        self.0.turn(|state| state.release(&self.0.facts, client));
    }

    /// As [`Telemetry::release`] for every slab still in use: the last client has gone.
    pub fn release_all(&self) {
        self.0.turn(|state| {
            let first = |state: &State| state.slots.walk().next().map(|slab| slab.client);
            while let Some(client) = first(state) {
                state.release(&self.0.facts, client);
            }
        });
    }

    /// Reads the live hardware sources into the cache that snapshots show. Leaves what was read
    /// before where the device is not ready or is being reset.
    pub async fn refresh(&self) {
        Readings::refresh(&self.0).await;
    }

    /// Everything there is to know now, from one turn; live sources as they were read last.
    ///
    /// # Errors
    /// [`Error::NoRoom`].
    pub fn snapshot(&self) -> Result<Snapshot, Error> {
        Snapshot::take(&self.0)
    }

    /// Makes the peak of a memory gauge its level now. No other value can be set.
    ///
    /// # Errors
    /// [`Error::Unsupported`] where the memory service cannot do that.
    pub fn rebase_peak(&self, counter: MemoryCounter, core: CoreId) -> Result<(), Error> {
        self.0.device.rebase_memory_peak(counter, core)
    }

    /// Switches periodic posting on or off; sampling goes on.
    pub fn set_posting(&self, mode: PostingMode) {
        if self.0.turn(|state| state.schedule.set_mode(mode)) {
            self.0.poke.signal(());
        }
    }

    /// Another time between posts, from the next tick on.
    ///
    /// # Errors
    /// [`Error::Invalid`] below a second.
    pub fn set_period(&self, period: Duration) -> Result<(), Error> {
        self.0.turn(|state| state.schedule.set_period(period))
    }

    /// What the poster is doing.
    pub fn poster_status(&self) -> PosterStatus {
        self.0.turn(|state| PosterStatus::of(&state.schedule, &self.0.tallies))
    }

    /// Posts both bands now, outside the schedule, which goes on as it was. Dropping the future
    /// does not take the request back.
    ///
    /// # Errors
    /// [`Error::PostingOff`] where the device has no poster, [`Error::Stopped`].
    pub async fn post_now(&self) -> Result<[PostReport; 2], Error> {
        if !self.0.has_sink() {
            return Err(Error::PostingOff);
        }
        let turn = self.0.turn(|state| {
            state.wanted += 1;
            state.wanted
        });
        self.0.poke.signal(());
        self.until(move |state| {
            if state.made >= turn {
                let [zero, one] = state.last_extra;
                Some(zero.zip(one).map(|(zero, one)| [zero, one]).ok_or(Error::Stopped))
            } else {
                state.ended.then_some(Err(Error::Stopped))
            }
        })
        .await
    }

    /// Posts a client's own bytes; they are not looked at. The caller has passed the attach gate.
    ///
    /// # Errors
    /// [`Error::Invalid`] for none, [`Error::TooBig`] for more than 128, [`Error::Post`].
    pub async fn post(&self, bytes: &[u8]) -> Result<(), Error> {
        match bytes.len() {
            0 => Err(Error::Invalid { what: "length of a post", value: 0 }),
            len if len > STREAM_BYTES => Err(Error::TooBig { len, limit: STREAM_BYTES }),
            _ => Ok(self.0.device.post(bytes).await?),
        }
    }

    /// Ends the poster, also in the middle of a post. Before the mailbox goes.
    pub fn stop(&self) {
        self.0.stopping.store(true, Ordering::Release);
        self.0.poke.signal(());
    }

    /// Resolves once the poster has ended; at once where it never ran.
    pub async fn stopped(&self) {
        use crate::posting::PostingState::Stopped;
        self.until(|state| (state.ended || state.schedule.state() == Stopped).then_some(())).await;
    }

    fn until<'a, R>(
        &'a self,
        mut look: impl FnMut(&State) -> Option<R> + 'a,
    ) -> impl Future<Output = R> + 'a {
        poll_fn(move |cx| {
            self.0.turn(|state| match look(state) {
                Some(found) => Poll::Ready(found),
                None => {
                    state.waiters.register(cx.waker());
                    Poll::Pending
                }
            })
        })
    }
}
