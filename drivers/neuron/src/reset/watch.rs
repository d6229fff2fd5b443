//! Somebody who has to let go of the device before a drive begins, and hears how it ended: the pod
//! task (specification 05 §16.3, §17.1).

use core::cell::RefCell;
use core::future::poll_fn;
use core::task::Poll;
use core::time::Duration;

use axon_platform::Platform;
use axon_ports::CoreMap;
use axon_ports::reset::DeviceState;
use embassy_futures::select::select;
use embassy_sync::blocking_mutex::Mutex;
use embassy_sync::blocking_mutex::raw::CriticalSectionRawMutex;

use crate::NeuronDevice;
use crate::shared::Shared;
use crate::wake::WakerList;

/// Most time that a drive waits for whoever has to let go.
const LETTING_GO: Duration = Duration::from_secs(1);

/// What a watcher of resets is told, in this order for every drive. One that comes too late for a
/// begin is told of the end alone, and of several ends of the last.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ResetNews {
    /// A drive waits, 1 s at most, until [`NeuronDevice::allow_reset`].
    Begins {
        /// All of the device, not some cores.
        whole: bool,
    },
    /// A drive is over.
    Ended {
        /// All of the device, not some cores.
        whole: bool,
        /// It succeeded.
        ok: bool,
    },
}

#[derive(Default)]
struct State {
    watched: bool,
    begins: Option<bool>,
    ended: Option<(bool, bool)>,
    /// A drive waits to be allowed.
    held: bool,
    waiting: WakerList,
}

impl State {
    fn begin(&mut self, whole: bool) {
        self.begins = Some(whole);
        self.held = true;
        self.waiting.wake_all();
    }

    /// A watcher that has not heard of the begin hears of the end only.
    fn end(&mut self, whole: bool, ok: bool) {
        self.begins = None;
        self.ended = Some((whole, ok));
        self.waiting.wake_all();
    }

    fn take_news(&mut self) -> Option<ResetNews> {
        // A drive that ended was begun before the one that waits now.
        if let Some((whole, ok)) = self.ended.take() {
            return Some(ResetNews::Ended { whole, ok });
        }
        self.begins.take().map(|whole| ResetNews::Begins { whole })
    }
}

/// At most one watcher of a device's resets.
pub(crate) struct ResetWatch(Mutex<CriticalSectionRawMutex, RefCell<State>>);

impl ResetWatch {
    pub(crate) fn new() -> Self {
        ResetWatch(Mutex::new(RefCell::new(State::default())))
    }

    fn with<R>(&self, work: impl FnOnce(&mut State) -> R) -> R {
        self.0.lock(|state| work(&mut state.borrow_mut()))
    }

    /// Wakes watcher and drive: something has changed, the end of the device included.
    pub(crate) fn call(&self) {
        self.with(|state| state.waiting.wake_all());
    }

    /// Resolves once the watcher has let go, if there is one.
    pub(super) async fn ask<P: Platform>(shared: &Shared<P>, map: CoreMap) {
        let asked = shared.reset_watch.with(|state| {
            if state.watched {
                state.begin(map.is_device());
            }
            state.watched
        });
        if !asked {
            return;
        }
        let allowed = poll_fn(|cx| {
            shared.reset_watch.with(|state| {
                if !state.held || shared.is_stopped() {
                    return Poll::Ready(());
                }
                state.waiting.register(cx.waker());
                Poll::Pending
            })
        });
        select(allowed, shared.platform.sleep(LETTING_GO)).await;
        shared.reset_watch.with(|state| state.held = false);
    }

    /// A drive is over.
    pub(super) fn tell(&self, map: CoreMap, ok: bool) {
        self.with(|state| {
            if state.watched {
                state.end(map.is_device(), ok);
            }
        });
    }
}

impl<P: Platform> NeuronDevice<P> {
    /// From now on drives wait for [`NeuronDevice::allow_reset`]. Answers the state of the device,
    /// for drives that are over already.
    pub fn watch_resets(&self) -> DeviceState {
        self.shared().reset_watch.with(|state| state.watched = true);
        self.state()
    }

    /// The next news for the watcher; `None` once the device is being removed.
    pub async fn reset_news(&self) -> Option<ResetNews> {
        let shared = self.shared();
        poll_fn(|cx| {
            shared.reset_watch.with(|state| {
                if let Some(news) = state.take_news() {
                    return Poll::Ready(Some(news));
                }
                if shared.is_stopped() {
                    return Poll::Ready(None);
                }
                state.waiting.register(cx.waker());
                Poll::Pending
            })
        })
        .await
    }

    /// The watcher has let go of the device: the drive goes on.
    pub fn allow_reset(&self) {
        self.shared().reset_watch.with(|state| {
            state.held = false;
            state.waiting.wake_all();
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_drive_never_begins_behind_its_own_end() {
        let mut state = State::default();
        let (begins, ended) = (
            |whole| Some(ResetNews::Begins { whole }),
            |whole, ok| Some(ResetNews::Ended { whole, ok }),
        );
        state.begin(true);
        assert_eq!(state.take_news(), begins(true));
        state.end(true, true);
        state.begin(false);
        assert_eq!(state.take_news(), ended(true, true));
        assert_eq!(state.take_news(), begins(false));
        // The watcher was not patient enough: two drives came and went.
        state.end(false, true);
        state.begin(true);
        state.end(true, false);
        assert_eq!(state.take_news(), ended(true, false));
        assert_eq!(state.take_news(), None);
    }
}
