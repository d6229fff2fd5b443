//! Tasks and the seeded choice among those that are ready.
//!
//! One thread. A woken task waits in `ready`; each step takes one of them at random, so that the
//! order is a function of the seed and of nothing else.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Wake, Waker};

/// Every task waits for something that can never come.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Stalled {
    /// Names of the tasks that were left.
    pub tasks: Vec<&'static str>,
}

impl fmt::Display for Stalled {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "what is waited for never comes; these tasks are left: {:?}", self.tasks)
    }
}

impl std::error::Error for Stalled {}

type BoxedTask = Pin<Box<dyn Future<Output = ()> + Send>>;

struct Task {
    name: &'static str,
    future: Option<BoxedTask>,
    waker: Arc<TaskWaker>,
    polls: u64,
}

struct TaskWaker {
    id: usize,
    queued: AtomicBool,
    ready: Arc<Ready>,
}

#[derive(Default)]
struct Ready(Mutex<Vec<usize>>);

impl Ready {
    fn lock(&self) -> MutexGuard<'_, Vec<usize>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Wake for TaskWaker {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        if !self.queued.swap(true, Ordering::AcqRel) {
            self.ready.lock().push(self.id);
        }
    }
}

/// Source of repeatable randomness (SplitMix64).
pub(crate) struct Seeded(AtomicU64);

impl Seeded {
    pub(crate) fn new(seed: u64) -> Seeded {
        Seeded(AtomicU64::new(seed))
    }

    pub(crate) fn next(&self) -> u64 {
        const STEP: u64 = 0x9e37_79b9_7f4a_7c15;
        let mut z = self.0.fetch_add(STEP, Ordering::Relaxed).wrapping_add(STEP);
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }
}

/// The tasks of one machine.
pub(crate) struct Executor {
    ready: Arc<Ready>,
    tasks: Mutex<Vec<Task>>,
    order: Seeded,
    polls: AtomicU64,
}

impl Executor {
    pub(crate) fn new(seed: u64) -> Executor {
        let ready = Arc::<Ready>::default();
        ready.lock().reserve(1024);
        Executor {
            ready,
            tasks: Mutex::default(),
            order: Seeded::new(seed ^ 0x5eed),
            polls: AtomicU64::new(0),
        }
    }

    /// Adds a task; it is ready at once.
    pub(crate) fn spawn(&self, name: &'static str, future: BoxedTask) {
        let mut tasks = self.tasks();
        let id = tasks.iter().position(|t| t.future.is_none() && t.name.is_empty());
        let id = id.unwrap_or(tasks.len());
        let waker =
            Arc::new(TaskWaker { id, queued: AtomicBool::new(false), ready: self.ready.clone() });
        let task = Task { name, future: Some(future), waker: waker.clone(), polls: 0 };
        if id == tasks.len() {
            tasks.push(task);
        } else {
            tasks[id] = task;
        }
        drop(tasks);
        waker.wake();
    }

    /// Runs one ready task; `false` where none is ready.
    pub(crate) fn step(&self) -> bool {
        let Some(id) = self.pick() else { return false };
        let (mut future, waker) = {
            let mut tasks = self.tasks();
            let task = &mut tasks[id];
            task.waker.queued.store(false, Ordering::Release);
            // A stale wake-up of a task that has ended.
            let Some(future) = task.future.take() else { return true };
            task.polls += 1;
            (future, task.waker.clone())
        };
        self.polls.fetch_add(1, Ordering::Relaxed);
        let waker = Waker::from(waker);
        let done = future.as_mut().poll(&mut Context::from_waker(&waker)).is_ready();
        if done {
            drop(future);
            self.tasks()[id].name = "";
        } else {
            self.tasks()[id].future = Some(future);
        }
        true
    }

    /// Names of the tasks that have not ended.
    pub(crate) fn names(&self) -> Vec<&'static str> {
        self.tasks().iter().filter(|t| t.future.is_some()).map(|t| t.name).collect()
    }

    /// Name and polls of the tasks that have not ended; of the one that runs now too.
    pub(crate) fn uses(&self) -> Vec<(&'static str, u64)> {
        let tasks = self.tasks();
        tasks.iter().filter(|t| !t.name.is_empty()).map(|t| (t.name, t.polls)).collect()
    }

    /// How often any task was polled.
    pub(crate) fn polls(&self) -> u64 {
        self.polls.load(Ordering::Relaxed)
    }

    /// Drops every task. Called at the end of a machine, because tasks hold handles on it.
    pub(crate) fn clear(&self) {
        let tasks: Vec<Task> = std::mem::take(&mut *self.tasks());
        drop(tasks);
        self.ready.lock().clear();
    }

    fn pick(&self) -> Option<usize> {
        let mut ready = self.ready.lock();
        let count = ready.len() as u64;
        if count == 0 {
            return None;
        }
        let at = (self.order.next() % count) as usize;
        Some(ready.swap_remove(at))
    }

    fn tasks(&self) -> MutexGuard<'_, Vec<Task>> {
        self.tasks.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The future that [`crate::Machine::run`] was asked for, beside the tasks.
pub(crate) struct Root<F: Future> {
    pub(crate) future: Pin<Box<F>>,
    woken: Arc<RootWaker>,
}

struct RootWaker(AtomicBool);

impl Wake for RootWaker {
    fn wake(self: Arc<Self>) {
        self.0.store(true, Ordering::Release);
    }

    fn wake_by_ref(self: &Arc<Self>) {
        self.0.store(true, Ordering::Release);
    }
}

impl<F: Future> Root<F> {
    pub(crate) fn new(future: F) -> Root<F> {
        Root { future: Box::pin(future), woken: Arc::new(RootWaker(AtomicBool::new(true))) }
    }

    /// Whether the future wants to be polled.
    pub(crate) fn is_ready(&self) -> bool {
        self.woken.0.load(Ordering::Acquire)
    }

    pub(crate) fn poll(&mut self) -> Poll<F::Output> {
        self.woken.0.store(false, Ordering::Release);
        let waker = Waker::from(self.woken.clone());
        self.future.as_mut().poll(&mut Context::from_waker(&waker))
    }
}
