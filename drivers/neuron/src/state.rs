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
    /// Cores that are UP while the device is READY, as a mask: what a call looks at that does not
    /// wait.
    open: AtomicU32,
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
            open: AtomicU32::new(0),
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
                self.publish(state);
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

    fn publish(&self, device: DeviceState) {
        let up = |core: &CoreId| device == DeviceState::Ready && self.core(*core) == CoreState::Up;
        let open = CoreId::all().filter(up).fold(0, |mask, core| mask | 1 << core.number());
        self.open.store(open, Ordering::Release);
    }

    /// Whether device and core can be used now.
    #[inline]
    pub(crate) fn is_open(&self, core: CoreId) -> bool {
        self.open.load(Ordering::Acquire) >> core.number() & 1 != 0
    }

    /// Resolves with the states of device and core once neither is in reset.
    pub(crate) fn settled(
        &self,
        core: CoreId,
    ) -> impl Future<Output = (DeviceState, CoreState)> + '_ {
        poll_fn(move |cx| {
            self.device.lock(|cell| {
                let mut cell = cell.borrow_mut();
                match (cell.state, self.core(core)) {
                    (DeviceState::Ready, CoreState::Resetting) | (DeviceState::Reset, _) => {
                        cell.waiting.register(cx.waker());
                        Poll::Pending
                    }
                    states => Poll::Ready(states),
                }
            })
        })
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

    /// All of these cores at once: one step for whoever looks.
    pub(crate) fn set_cores(&self, cores: impl Iterator<Item = CoreId>, state: CoreState) {
        self.device.lock(|cell| {
            let mut cell = cell.borrow_mut();
            let mut changed = false;
            for place in cores.filter_map(|core| self.cores.get(core.index())) {
                changed |= place.swap(state as u8, Ordering::AcqRel) != state as u8;
            }
            if changed {
                self.publish(cell.state);
                cell.waiting.wake_all();
            }
        });
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

#[cfg(test)]
mod tests {
    use core::pin::pin;
    use core::task::{Context, Waker};

    use super::*;

    #[test]
    fn a_core_is_open_while_device_and_core_are_usable() {
        let states = States::new();
        let [a, b] = [0, 1].map(|n| CoreId::new(n).unwrap());
        let open = |states: &States| [a, b].map(|core| states.is_open(core));
        states.set_cores([a].into_iter(), CoreState::Up);
        assert_eq!(open(&states), [false, false], "the device is in reset");
        states.set_device(DeviceState::Ready);
        assert_eq!(open(&states), [true, false]);
        states.set_cores([b].into_iter(), CoreState::Down);
        states.set_cores([a].into_iter(), CoreState::Resetting);
        assert_eq!(open(&states), [false, false]);
        states.set_cores([a].into_iter(), CoreState::Up);
        assert_eq!(open(&states), [true, false]);
        states.set_device(DeviceState::Invalid);
        assert_eq!(open(&states), [false, false]);
    }

    #[test]
    fn a_settled_core_is_told_with_its_state() {
        let states = States::new();
        let core = CoreId::new(1).unwrap();
        let mut settled = pin!(states.settled(core));
        let mut cx = Context::from_waker(Waker::noop());
        assert!(settled.as_mut().poll(&mut cx).is_pending());
        states.set_device(DeviceState::Ready);
        assert!(settled.as_mut().poll(&mut cx).is_pending());
        states.set_cores([core].into_iter(), CoreState::Down);
        let told = (DeviceState::Ready, CoreState::Down);
        assert_eq!(settled.poll(&mut cx), Poll::Ready(told));
    }
}
