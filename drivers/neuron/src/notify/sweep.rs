//! The sweeping task of a device: the one place that polls for notifications, semaphores and events
//! (specification 06 §17.5, §17.6).
//!
//! Only what somebody waits for is looked at: one load a turn for a ring in host memory, one
//! register for anything else. Between two turns the task rests 10 µs, then longer, up to 1 ms;
//! whoever begins to wait starts that anew. Where nobody waits it sleeps.

use alloc::sync::Arc;
use core::cell::RefCell;
use core::future::{Future, poll_fn};
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

    /// Whether the driver manages queues, or only programs rings.
    pub(crate) fn are_managed(&self) -> bool {
        self.with(|registry| registry.managed)
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

/// What is to be done after a turn.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Turn {
    /// A queue is between two states.
    Unfinished,
    /// Somebody waits.
    Waiting,
    /// Nobody waits.
    Idle,
}

/// What a turn has seen.
#[derive(Clone, Copy, Default)]
struct Found {
    /// Somebody was woken.
    woken: bool,
    /// Somebody waits.
    waiting: bool,
    /// A queue is between two states.
    unfinished: bool,
    /// A register reads all-ones.
    all_ones: bool,
}

/// Runs until the device is stopped.
pub(crate) async fn run<P: Platform>(shared: Arc<Shared<P>>) {
    let notifications = &shared.notifications;
    let mut rest = REST.0;
    let mut timer = pin!(None);
    poll_fn(|cx| {
        if shared.is_stopped() {
            return Poll::Ready(());
        }
        // Somebody called, or the rest is over.
        if notifications.called.swap(false, Ordering::AcqRel) {
            rest = REST.0;
        } else if let Some(timer) = timer.as_mut().as_pin_mut()
            && Future::poll(timer, cx).is_pending()
        {
            notifications.task.register(cx.waker());
            return Poll::Pending;
        }
        // Whoever is woken runs before the next turn, and calls if it waits again.
        let (turn, woke) = turn(&shared);
        if woke {
            rest = REST.0;
        }
        let pause = match turn {
            Turn::Unfinished => Some(DRAIN_LOOK),
            Turn::Waiting => {
                let longer = (rest * 2).min(REST.1);
                Some(core::mem::replace(&mut rest, longer))
            }
            Turn::Idle => None,
        };
        timer.set(pause.map(|pause| shared.platform.sleep_until(shared.platform.now() + pause)));
        notifications.task.register(cx.waker());
        let over = timer.as_mut().as_pin_mut().is_some_and(|timer| timer.poll(cx).is_ready());
        if over || notifications.called.load(Ordering::Acquire) || shared.is_stopped() {
            // Others first.
            cx.waker().wake_by_ref();
        }
        Poll::Pending
    })
    .await;
    notifications.end_waits(Error::Removed);
}

/// One look at everything that somebody waits for; answers also whether somebody was woken.
#[inline(always)]
fn turn<P: Platform>(shared: &Shared<P>) -> (Turn, bool) {
    let mut found = shared.notifications.with(|registry| registry.turn(shared));
    if found.all_ones {
        found.woken |= look_into(shared);
    }
    let turn = match () {
        () if found.unfinished => Turn::Unfinished,
        () if found.waiting => Turn::Waiting,
        () => Turn::Idle,
    };
    (turn, found.woken)
}

/// All-ones was read: tells everybody where the device is gone, else takes it for a value.
#[cold]
fn look_into<P: Platform>(shared: &Shared<P>) -> bool {
    let swept = |registry: &mut Registry| registry.watches.sweep(&shared.registers, true);
    shared.misc_ram(misc_ram::DEVICE_ID).is_ok() && shared.notifications.with(swept).over != 0
}

impl Registry {
    #[inline(always)]
    fn turn<P: Platform>(&mut self, shared: &Shared<P>) -> Found {
        let mut found = Found::default();
        if self.released || self.moving {
            self.tidy(shared, &mut found);
        }
        self.sweep(shared, &mut found);
        if self.watches.are_open() {
            let swept = self.watches.sweep(&shared.registers, false);
            found.woken |= swept.over != 0;
            found.all_ones |= swept.all_ones;
            found.waiting |= self.watches.are_open();
        }
        found
    }

    /// Queues that lost their last handle go off; those between two states move on.
    #[cold]
    fn tidy<P: Platform>(&mut self, shared: &Shared<P>, found: &mut Found) {
        let (window, now) = (&shared.registers, shared.platform.now());
        if core::mem::take(&mut self.released) {
            self.halt(window, now, false, |entry| entry.handles == 0 && entry.is_live());
        }
        let moved = self.move_on(window, now, || shared.platform.write_barrier());
        self.moving = moved.unfinished;
        found.unfinished = moved.unfinished;
        found.all_ones |= moved.all_ones;
    }

    /// Looks once at every queue on which somebody waits.
    #[inline(always)]
    fn sweep<P: Platform>(&mut self, shared: &Shared<P>, found: &mut Found) {
        let mut from = 0;
        while let Some(slot) = self.waiting.next(from) {
            from = slot + 1;
            let managed = self.managed;
            let Some(entry) = self.entries.get_mut(slot) else { continue };
            if entry.status != Status::Armed {
                // Whoever waits is woken when that changes.
                continue;
            }
            let in_host = entry.ring.as_ref().is_some_and(|ring| ring.words().is_some());
            let news = match in_host {
                true => entry.has_news() || entry.look_after(shared, managed, found),
                false => entry.is_ahead(&shared.registers, found),
            };
            if news {
                entry.idle = Idle::default();
                entry.wake();
                self.set_waiting(slot, false);
                found.woken = true;
            } else {
                found.waiting = true;
            }
        }
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
    fn look_after<P: Platform>(
        &mut self,
        shared: &Shared<P>,
        managed: bool,
        found: &mut Found,
    ) -> bool {
        let now = shared.platform.now();
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
        let tail = shared.registers.read32(self.registers().tail());
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
