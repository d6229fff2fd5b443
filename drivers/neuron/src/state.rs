//! State of the device and of its cores, for everybody to see (specification 05 §6).

use core::cell::{Cell as Copied, RefCell};
use core::future::{Future, poll_fn};
use core::sync::atomic::{AtomicU8, AtomicU32, Ordering};
use core::task::Poll;

use axon_ports::CoreId;
pub use axon_ports::reset::CoreState;
use axon_ports::reset::DeviceState;
use embassy_sync::blocking_mutex::Mutex;
use embassy_sync::blocking_mutex::raw::CriticalSectionRawMutex;

use crate::Error;
use crate::wake::WakerList;

struct Cell {
    state: DeviceState,
    waiting: WakerList,
}

/// State of the device and of its cores.
pub(crate) struct States {
    device: Mutex<CriticalSectionRawMutex, RefCell<Cell>>,
    cores: [AtomicU8; CoreId::COUNT],
    epochs: [AtomicU32; CoreId::COUNT],
    /// Why the last reset of the whole device failed.
    failure: Mutex<CriticalSectionRawMutex, Copied<Option<Error>>>,
}

impl States {
    /// A device in reset.
    pub(crate) const fn new() -> Self {
        States {
            device: Mutex::new(RefCell::new(Cell {
                state: DeviceState::Reset,
                waiting: WakerList::new(),
            })),
            cores: [const { AtomicU8::new(CoreState::Resetting as u8) }; CoreId::COUNT],
            epochs: [const { AtomicU32::new(0) }; CoreId::COUNT],
            failure: Mutex::new(Copied::new(None)),
        }
    }

    pub(crate) fn device(&self) -> DeviceState {
        self.device.lock(|cell| cell.borrow().state)
    }

    pub(crate) fn set_device(&self, state: DeviceState) {
        self.device.lock(|cell| {
            let mut cell = cell.borrow_mut();
            if cell.state != state {
                cell.state = state;
                cell.waiting.wake_all();
            }
        });
    }

    /// Why the last reset of the whole device failed; `None` where it did not.
    pub(crate) fn failure(&self) -> Option<Error> {
        self.failure.lock(Copied::get)
    }

    pub(crate) fn set_failure(&self, failure: Option<Error>) {
        self.failure.lock(|cell| cell.set(failure));
    }

    /// Resolves with the first state that `wanted` accepts.
    pub(crate) fn wait(
        &self,
        wanted: impl Fn(DeviceState) -> bool,
    ) -> impl Future<Output = DeviceState> {
        poll_fn(move |cx| {
            self.device.lock(|cell| {
                let mut cell = cell.borrow_mut();
                if wanted(cell.state) {
                    return Poll::Ready(cell.state);
                }
                cell.waiting.register(cx.waker());
                Poll::Pending
            })
        })
    }

    pub(crate) fn core(&self, core: CoreId) -> CoreState {
        let state = self.cores.get(core.index()).map(|cell| cell.load(Ordering::Acquire));
        [CoreState::Up, CoreState::Down]
            .into_iter()
            .find(|known| state == Some(*known as u8))
            .unwrap_or(CoreState::Resetting)
    }

    pub(crate) fn set_core(&self, core: CoreId, state: CoreState) {
        if let Some(cell) = self.cores.get(core.index()) {
            cell.store(state as u8, Ordering::Release);
        }
    }

    /// Number of reset drives that have covered the core.
    pub(crate) fn epoch(&self, core: CoreId) -> u32 {
        self.epochs.get(core.index()).map_or(0, |cell| cell.load(Ordering::Acquire))
    }

    pub(crate) fn raise_epoch(&self, core: CoreId) {
        if let Some(cell) = self.epochs.get(core.index()) {
            cell.fetch_add(1, Ordering::AcqRel);
        }
    }
}
