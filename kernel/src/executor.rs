//! The executor loop: polls tasks while there is work, halts the processor when there is none.
//! Counts how often each task runs, and on demand for how long.

use alloc::boxed::Box;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::cell::{Cell, RefCell};
use core::future::Future;
use core::pin::Pin;
use core::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use core::task::{Context, Poll};
use core::time::Duration;

use axon_platform::{SpawnError, TaskUse};
use critical_section::Mutex;
use embassy_executor::SendSpawner;
use embassy_executor::raw::{Executor, TaskStorage};
use static_cell::StaticCell;

use crate::console;
use crate::processor::time_stamp;
use crate::time::{clock, idle, timers};

type Task = Pin<Box<dyn Future<Output = ()> + Send>>;

/// What a task did.
struct Record {
    name: &'static str,
    polls: AtomicU64,
    /// Of the time-stamp counter.
    ticks: AtomicU64,
}

/// A task, counted.
struct Counted<F> {
    record: Arc<Record>,
    task: F,
}

/// The time of tasks is taken.
static MEASURED: AtomicBool = AtomicBool::new(false);
/// Records of the tasks, ended ones among them until the next is spawned.
static RECORDS: Mutex<RefCell<Vec<Arc<Record>>>> = Mutex::new(RefCell::new(Vec::new()));

/// Some task wants to run.
static PENDED: AtomicBool = AtomicBool::new(false);
static SPAWNER: Mutex<Cell<Option<SendSpawner>>> = Mutex::new(Cell::new(None));
/// Storage of every task ever spawned at the same time; an ended task's is used again.
static STORAGES: Mutex<RefCell<Vec<&'static TaskStorage<Task>>>> =
    Mutex::new(RefCell::new(Vec::new()));

/// Called by the executor when a task becomes ready.
#[unsafe(export_name = "__pender")]
fn pender(_context: *mut ()) {
    PENDED.store(true, Relaxed);
}

/// Runs `main`, and every task spawned, for ever.
pub fn run(main: impl Future<Output = ()> + 'static) -> ! {
    static EXECUTOR: StaticCell<Executor> = StaticCell::new();
    let executor = &*EXECUTOR.init(Executor::new(core::ptr::null_mut()));
    let spawner = executor.spawner();
    critical_section::with(|section| SPAWNER.borrow(section).set(Some(spawner.make_send())));
    let storage = Box::leak(Box::new(TaskStorage::new()));
    if let Ok(token) = storage.spawn(|| main) {
        spawner.spawn(token);
    }
    x86_64::instructions::interrupts::enable();
    loop {
        if PENDED.load(Relaxed) {
            PENDED.store(false, Relaxed);
            // SAFETY: the only call, and not from within a task.
            unsafe { executor.poll() };
        } else {
            idle::wait(|| PENDED.load(Relaxed) || timers::is_due());
        }
        timers::wake_due();
        console::input::wake();
    }
}

/// Runs `task` beside the others until it ends.
///
/// # Errors
/// [`SpawnError`] where there is no memory for its record, or no executor yet.
pub fn spawn(
    name: &'static str,
    task: impl Future<Output = ()> + Send + 'static,
) -> Result<(), SpawnError> {
    critical_section::with(|section| {
        let mut records = RECORDS.borrow_ref_mut(section);
        records.retain(is_alive);
        records.try_reserve(1).map_err(|_| SpawnError)?;
        let (polls, ticks) = (AtomicU64::new(0), AtomicU64::new(0));
        let record = Arc::new(Record { name, polls, ticks });
        records.push(record.clone());
        let task = Counted { record, task };
        let spawner = SPAWNER.borrow(section).get().ok_or(SpawnError)?;
        let mut storages = STORAGES.borrow_ref_mut(section);
        let mut task = Some(Box::pin(task) as Task);
        for storage in storages.iter() {
            // The closure runs only where the storage is free.
            if let Ok(token) = storage.spawn(|| task.take().expect("taken by one storage only")) {
                spawner.spawn(token);
                return Ok(());
            }
        }
        storages.try_reserve(1).map_err(|_| SpawnError)?;
        let storage: &'static TaskStorage<Task> = Box::leak(Box::new(TaskStorage::new()));
        storages.push(storage);
        let token = storage.spawn(|| task.take().expect("not taken above"));
        spawner.spawn(token.map_err(|_| SpawnError)?);
        Ok(())
    })
}

/// A task that has ended has let go of its record.
fn is_alive(record: &Arc<Record>) -> bool {
    Arc::strong_count(record) > 1
}

/// Hands every task that has not ended to `each`.
pub fn tasks(each: &mut dyn FnMut(TaskUse)) {
    critical_section::with(|section| {
        for record in RECORDS.borrow_ref(section).iter().filter(|record| is_alive(record)) {
            let (polls, ticks) = (record.polls.load(Relaxed), record.ticks.load(Relaxed));
            let busy = Duration::from_nanos(clock::nanos(ticks));
            each(TaskUse { name: record.name, polls, busy });
        }
    });
}

/// Switches on or off that the time of tasks is taken.
pub fn measure(on: bool) {
    MEASURED.store(on, Relaxed);
}

impl<F: Future<Output = ()>> Future for Counted<F> {
    type Output = ();

    #[inline]
    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        // SAFETY: `task` is pinned with the whole; nothing moves out of it, `record` is not pinned.
        let Counted { record, task } = unsafe { self.get_unchecked_mut() };
        // SAFETY: as above.
        let task = unsafe { Pin::new_unchecked(task) };
        // Only this task counts here: no locked instruction.
        record.polls.store(record.polls.load(Relaxed) + 1, Relaxed);
        if !MEASURED.load(Relaxed) {
            return task.poll(cx);
        }
        let before = time_stamp();
        let polled = task.poll(cx);
        let ticks = time_stamp().wrapping_sub(before);
        record.ticks.store(record.ticks.load(Relaxed).wrapping_add(ticks), Relaxed);
        polled
    }
}
