//! The sweeping task of a device: the one place that polls for notifications, semaphores and events
//! (specification 06 §17.5, §17.6).
//!
//! Only what somebody waits for is looked at: one load a turn for a ring in host memory, one
//! register for anything else. Between two turns the task rests 10 µs, then longer, up to 1 ms;
//! whoever begins to wait starts that anew. Where nobody waits it sleeps.

use alloc::sync::Arc;
use core::cell::RefCell;
use core::future::poll_fn;
use core::pin::pin;
use core::sync::atomic::{AtomicBool, Ordering};
use core::task::{Poll, Waker};
use core::time::Duration;

use axon_platform::{Instant, MmioWindow, Platform};
use axon_ports::CoreId;
use axon_ports::telemetry::DeviceRecords;
use embassy_sync::blocking_mutex::Mutex;
use embassy_sync::blocking_mutex::raw::CriticalSectionRawMutex;
use embassy_sync::waitqueue::AtomicWaker;

use super::entry::{Entry, Idle, Status};
use super::registry::Registry;
use super::teardown::{DRAIN_LOOK, Moved};
use super::watch::Until;
use crate::Error;
use crate::registers::misc_ram;
use crate::shared::Shared;
use crate::wake::yield_now;

/// Shortest and longest rest while somebody waits.
const REST: (Duration, Duration) = (Duration::from_micros(10), Duration::from_millis(1));
/// A record that is passed over for so long will not come.
const OVERTAKEN: Duration = Duration::from_millis(10);
/// The producer pointer of a queue on which somebody waits in vain is looked at this often.
const IDLE_LOOK: Duration = Duration::from_millis(100);
/// A producer pointer that is ahead for so long, without a record, is a loss (06 §7.2-4).
const AHEAD: Duration = Duration::from_secs(1);

/// The queues of a device, behind a lock that is held within one poll only.
pub(crate) struct Notifications {
    registry: Mutex<CriticalSectionRawMutex, RefCell<Registry>>,
    task: AtomicWaker,
    /// There is news for the task.
    called: AtomicBool,
}

impl Notifications {
    pub(crate) const fn new(managed: bool, records: Arc<DeviceRecords>) -> Self {
        Notifications {
            registry: Mutex::new(RefCell::new(Registry::new(managed, records))),
            task: AtomicWaker::new(),
            called: AtomicBool::new(false),
        }
    }

    /// Works on the queues. `work` does not come back here.
    #[inline]
    pub(super) fn with<R>(&self, work: impl FnOnce(&mut Registry) -> R) -> R {
        self.registry.lock(|registry| work(&mut registry.borrow_mut()))
    }

    /// Has the task look now.
    #[inline]
    pub(crate) fn call(&self) {
        if !self.called.swap(true, Ordering::AcqRel) {
            self.task.wake();
        }
    }

    /// Everybody who waits looks again: the answer has changed.
    pub(crate) fn call_everybody(&self) {
        self.with(|registry| {
            registry.entries.iter_mut().for_each(Entry::wake);
            registry.changed.wake_all();
        });
        self.call();
    }

    /// Nothing can be read any more.
    pub(crate) fn end_waits(&self, error: Error) {
        self.with(|registry| registry.watches.end_all(error));
        self.call_everybody();
    }

    /// Begins to wait for a register; answers the number of the wait.
    pub(crate) fn begin_watch(
        &self,
        core: CoreId,
        register: u64,
        until: Until,
        waker: &Waker,
    ) -> Result<u64, Error> {
        let id = self.with(|registry| registry.watches.begin(core, register, until, waker))?;
        self.call();
        Ok(id)
    }

    /// The result of a wait, once.
    pub(crate) fn collect_watch(&self, id: u64, waker: &Waker) -> Option<Result<u32, Error>> {
        self.with(|registry| registry.watches.collect(id, waker))
    }

    /// Nobody waits any more.
    pub(crate) fn forget_watch(&self, id: u64) {
        self.with(|registry| registry.watches.forget(id));
    }

    /// Nothing can be switched off any more.
    pub(crate) fn quarantine(&self, now: Instant) {
        self.with(|registry| registry.quarantine_all(now));
    }

    /// Nothing can be written any more.
    pub(crate) fn release_all(&self) {
        self.with(Registry::release_all);
    }

    /// Moves queues on that are between two states.
    pub(super) fn move_on<P: Platform>(&self, shared: &Shared<P>, now: Instant) -> Moved {
        let barrier = || shared.platform.write_barrier();
        self.with(|registry| registry.move_on(&shared.registers, now, barrier))
    }
}

/// What one turn came to.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Turn {
    /// Somebody was woken.
    Progress,
    /// A queue is between two states.
    Unfinished,
    /// Somebody waits.
    Waiting,
    /// Nobody waits.
    Idle,
}

/// What was found on the queues.
#[derive(Clone, Copy, Default)]
struct Found {
    woken: u32,
    waiting: u32,
    all_ones: bool,
}

/// Runs until the device is stopped.
pub(crate) async fn run<P: Platform>(shared: Arc<Shared<P>>) {
    let mut rest = REST.0;
    while !shared.is_stopped() {
        if shared.notifications.called.swap(false, Ordering::AcqRel) {
            rest = REST.0;
        }
        let pause = match turn(&shared) {
            Turn::Progress => {
                rest = REST.0;
                yield_now().await;
                continue;
            }
            Turn::Unfinished => Some(DRAIN_LOOK),
            Turn::Waiting => {
                let now = rest;
                rest = (rest * 2).min(REST.1);
                Some(now)
            }
            Turn::Idle => None,
        };
        sleep(&shared, pause.map(|pause| shared.platform.now() + pause)).await;
    }
    shared.notifications.end_waits(Error::Removed);
}

/// One look at everything that somebody waits for.
fn turn<P: Platform>(shared: &Shared<P>) -> Turn {
    let now = shared.platform.now();
    let barrier = || shared.platform.write_barrier();
    let (found, moved, unheard) = shared.notifications.with(|registry| {
        let window = &shared.registers;
        if core::mem::take(&mut registry.released) {
            registry.halt(window, now, false, |entry| entry.handles == 0 && entry.is_live());
        }
        let mut moved = Moved::default();
        if registry.is_moving() {
            moved = registry.move_on(window, now, barrier);
        }
        let mut found = registry.sweep(window, now);
        if registry.watches.are_open() {
            found.woken += registry.watches.sweep(window);
        }
        (found, moved, registry.watches.are_open())
    });
    if found.all_ones || moved.all_ones {
        // Tells everybody where the device is gone.
        let _ = shared.misc_ram(misc_ram::DEVICE_ID);
    }
    match () {
        () if found.woken != 0 => Turn::Progress,
        () if moved.unfinished => Turn::Unfinished,
        () if found.waiting != 0 || unheard => Turn::Waiting,
        () => Turn::Idle,
    }
}

/// Rests until `until`, a call, or the end of the device.
async fn sleep<P: Platform>(shared: &Shared<P>, until: Option<Instant>) {
    let mut timer = pin!(until.map(|until| shared.platform.sleep_until(until)));
    poll_fn(|cx| {
        let notifications = &shared.notifications;
        notifications.task.register(cx.waker());
        if notifications.called.load(Ordering::Acquire) || shared.is_stopped() {
            return Poll::Ready(());
        }
        match timer.as_mut().as_pin_mut() {
            Some(timer) => timer.poll(cx),
            None => Poll::Pending,
        }
    })
    .await;
}

impl Registry {
    /// Whether a queue is between two states.
    fn is_moving(&self) -> bool {
        let moving = |entry: &Entry| {
            matches!(entry.status, Status::Halting { .. } | Status::Suspended { .. })
        };
        self.entries.iter().any(moving)
    }

    /// Looks once at every queue on which somebody waits.
    #[inline]
    fn sweep<W: MmioWindow>(&mut self, window: &W, now: Instant) -> Found {
        let mut found = Found::default();
        for slot in Registry::waiting_slots(self.waiting) {
            let managed = self.managed;
            let Some(entry) = self.entries.get_mut(slot) else { continue };
            if entry.status != Status::Armed {
                // Whoever waits is woken when that changes.
                continue;
            }
            let in_host = entry.ring.as_ref().is_some_and(|ring| ring.words().is_some());
            let news = match in_host {
                true => entry.has_news() || entry.look_after(window, now, managed, &mut found),
                false => entry.is_ahead(window, &mut found),
            };
            if news {
                entry.idle = Idle::default();
                entry.wake();
                self.set_waiting(slot, false);
                found.woken += 1;
            } else {
                found.waiting += 1;
            }
        }
        found
    }
}

impl Entry {
    /// Whether the producer pointer of a ring in device memory is ahead of the reader.
    fn is_ahead<W: MmioWindow>(&mut self, window: &W, found: &mut Found) -> bool {
        if self.gap == Some(self.cursor.next()) {
            return true;
        }
        let tail = window.read32(self.registers().tail());
        match self.cursor.behind(tail) {
            Some(records) => records != 0,
            None => {
                found.all_ones |= tail == misc_ram::ALL_ONES;
                false
            }
        }
    }

    /// Somebody waits in vain: records that were overtaken for good are left out, and a producer
    /// that is ahead for too long has lost its reader. Answers whether that gives something to
    /// read.
    fn look_after<W: MmioWindow>(
        &mut self,
        window: &W,
        now: Instant,
        managed: bool,
        found: &mut Found,
    ) -> bool {
        if self.is_passed_over() {
            let since = *self.idle.passed_since.get_or_insert(now);
            if now.since(since) >= OVERTAKEN {
                self.idle.passed_since = None;
                self.skip();
                return true;
            }
        } else {
            self.idle.passed_since = None;
        }
        let look = *self.idle.next_look.get_or_insert(now + IDLE_LOOK);
        if !managed || now < look {
            return false;
        }
        self.idle.next_look = Some(now + IDLE_LOOK);
        let tail = window.read32(self.registers().tail());
        match self.cursor.behind(tail) {
            Some(0) => self.idle.ahead_since = None,
            Some(_) => {
                let since = *self.idle.ahead_since.get_or_insert(now);
                if now.since(since) >= AHEAD && !self.has_news() {
                    self.gap = Some(self.cursor.next());
                    return true;
                }
            }
            None => {
                found.all_ones |= tail == misc_ram::ALL_ONES;
                self.counters.garbage += 1;
            }
        }
        false
    }
}
