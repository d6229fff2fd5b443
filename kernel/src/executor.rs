//! The executor loop: polls tasks while there is work, halts the processor when there is none.

use alloc::boxed::Box;
use alloc::vec::Vec;
use core::cell::{Cell, RefCell};
use core::future::Future;
use core::pin::Pin;
use core::sync::atomic::{AtomicBool, Ordering::Relaxed};

use axon_platform::SpawnError;
use critical_section::Mutex;
use embassy_executor::SendSpawner;
use embassy_executor::raw::{Executor, TaskStorage};
use static_cell::StaticCell;

use crate::console;
use crate::time::{idle, timers};

type Task = Pin<Box<dyn Future<Output = ()> + Send>>;

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
pub fn spawn(task: impl Future<Output = ()> + Send + 'static) -> Result<(), SpawnError> {
    critical_section::with(|section| {
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
