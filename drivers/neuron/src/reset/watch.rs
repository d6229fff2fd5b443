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

/// What a watcher of resets is told, in this order for every drive.
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
                state.begins = Some(map.is_device());
                state.held = true;
                state.waiting.wake_all();
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
                state.ended = Some((map.is_device(), ok));
                state.waiting.wake_all();
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
                // A drive that ended was begun before the one that waits now.
                if let Some((whole, ok)) = state.ended.take() {
                    return Poll::Ready(Some(ResetNews::Ended { whole, ok }));
                }
                if let Some(whole) = state.begins.take() {
                    return Poll::Ready(Some(ResetNews::Begins { whole }));
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
