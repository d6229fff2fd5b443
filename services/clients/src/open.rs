//! The two lanes into a device (specification 05 §8, §9): a normal handle attaches, an info handle
//! only looks.

use alloc::sync::Arc;
use core::cell::RefCell;
use core::future::{Future, poll_fn};
use core::task::Poll;

use axon_ports::reset::DeviceState;
use axon_ports::{ClientId, ClientSlot};
use embassy_futures::select::select;
use embassy_sync::blocking_mutex::Mutex;
use embassy_sync::blocking_mutex::raw::CriticalSectionRawMutex;
use embassy_sync::waitqueue::{AtomicWaker, MultiWakerRegistration};

use crate::gates::{self, Caller, Command, GateError, Grant, Grants, Lane};
use crate::table::{Attach, Left, Table};
use crate::{Access, ClientError, ClientInfo, ControlTask, DevicePeers};

/// The attach table and who waits for it to change.
///
/// An accounting step is one short call under this mutex, never across an await: whoever looks
/// sees whole steps only, and an open that is dropped half-way has nothing to take back by message.
struct State {
    table: Table,
    removed: bool,
    waiters: MultiWakerRegistration<{ ClientSlot::COUNT }>,
}

pub(crate) struct Shared<D> {
    state: Mutex<CriticalSectionRawMutex, RefCell<State>>,
    /// Wakes the control task: a slot began to close, or the device was removed.
    pub(crate) control: AtomicWaker,
    pub(crate) peers: D,
}

impl<D> Shared<D> {
    /// An accounting step that nobody can have waited for.
    pub(crate) fn note<R>(&self, step: impl FnOnce(&mut Table) -> R) -> R {
        self.state.lock(|state| step(&mut state.borrow_mut().table))
    }

    /// One accounting step; whoever waits for a change looks again.
    pub(crate) fn change<R>(&self, step: impl FnOnce(&mut Table) -> R) -> R {
        self.state.lock(|state| {
            let mut state = state.borrow_mut();
            let answer = step(&mut state.table);
            state.waiters.wake();
            answer
        })
    }

    pub(crate) fn look<R>(&self, look: impl FnOnce(&Table) -> R) -> R {
        self.state.lock(|state| look(&state.borrow().table))
    }

    /// Resolves with the first `Some` that `look` gives, now or after a change.
    pub(crate) fn wait_for<R>(
        &self,
        mut look: impl FnMut(&mut Table, bool) -> Option<R>,
    ) -> impl Future<Output = R> {
        poll_fn(move |cx| {
            self.state.lock(|state| {
                let state = &mut *state.borrow_mut();
                match look(&mut state.table, state.removed) {
                    Some(found) => Poll::Ready(found),
                    None => {
                        state.waiters.register(cx.waker());
                        Poll::Pending
                    }
                }
            })
        })
    }

    pub(crate) fn is_removed(&self) -> bool {
        self.state.lock(|state| state.borrow().removed)
    }

    /// Removed, and every client cleaned up after.
    pub(crate) fn is_over(&self) -> bool {
        self.state.lock(|state| {
            let state = state.borrow();
            state.removed && state.table.is_settled()
        })
    }

    fn remove(&self) {
        self.state.lock(|state| {
            let mut state = state.borrow_mut();
            state.removed = true;
            state.table.revoke_all();
            state.waiters.wake();
        });
        self.control.wake();
    }
}

/// The control plane of one device. Clones reach the same device.
pub struct Clients<D>(Arc<Shared<D>>);

impl<D> Clone for Clients<D> {
    fn clone(&self) -> Self {
        Clients(self.0.clone())
    }
}

impl<D: DevicePeers> Clients<D> {
    /// An empty attach table, and the task that cleans up after its clients. Without the task
    /// running, slots of clients that left stay taken.
    pub fn new(peers: D) -> (Self, ControlTask<D>) {
        let state =
            State { table: Table::new(), removed: false, waiters: MultiWakerRegistration::new() };
        let shared = Arc::new(Shared {
            state: Mutex::new(RefCell::new(state)),
            control: AtomicWaker::new(),
            peers,
        });
        (Clients(shared.clone()), ControlTask::new(shared))
    }

    /// Attaches `client` on the normal lane, with every grant there is.
    ///
    /// # Errors
    /// As [`Clients::open_with`].
    pub async fn open(&self, client: ClientId) -> Result<Attachment<D>, ClientError> {
        self.open_with(client, Grants::ALL).await
    }

    /// Attaches `client` on the normal lane with these grants; a client that is attached already
    /// keeps those it came with. Waits while the device is in RESET and, for a client
    /// that left, until it is cleaned up. Dropping the future changes nothing.
    ///
    /// # Errors
    /// [`ClientError`]: no grant, INVALID device, 16 other clients, removed.
    pub async fn open_with(
        &self,
        client: ClientId,
        grants: Grants,
    ) -> Result<Attachment<D>, ClientError> {
        reach(grants)?;
        let counted = Counted::new(&self.0);
        let access = loop {
            self.settled().await?;
            // Device state and table are looked at in one poll: no change slips in between.
            let attach = self.0.wait_for(|table, removed| {
                if removed {
                    return Some(Err(ClientError::DeviceGone));
                }
                if self.0.peers.state() != DeviceState::Ready {
                    return Some(Ok(Attach::Wait));
                }
                match table.attach(client, grants) {
                    Ok(Attach::Wait) => None,
                    other => Some(other),
                }
            });
            match attach.await? {
                Attach::Wait => {}
                Attach::Again(access) => break Attachment::new(counted, access),
                Attach::Fresh(access) => {
                    self.0.peers.entered(client);
                    break Attachment::new(counted, access);
                }
            }
        };
        Ok(access)
    }

    /// A handle on the info lane: whatever the state, never attached.
    ///
    /// # Errors
    /// [`ClientError::NoGrant`], [`ClientError::DeviceGone`].
    pub fn open_info(&self, client: ClientId, grants: Grants) -> Result<InfoHandle, ClientError> {
        reach(grants)?;
        if self.0.is_removed() {
            return Err(ClientError::DeviceGone);
        }
        Ok(InfoHandle { client, grants })
    }

    /// Attached clients in slot order; answers how many were written.
    pub fn list(&self, into: &mut [Option<ClientInfo>]) -> usize {
        self.0.look(|table| table.list(into))
    }

    /// Normal handles on the device, opens that wait included.
    pub fn open_count(&self) -> u32 {
        self.0.look(Table::open_count)
    }

    /// Waits until the clean-up of a client that has left is over. A client that has not left is
    /// not waited for. Dropping the future stops nothing.
    pub async fn left(&self, access: &Arc<Access>) {
        if access.check().is_err() {
            self.0.wait_for(|table, removed| (removed || !table.holds(access)).then_some(())).await;
        }
    }

    /// The device was removed: every access ends, waiting opens fail, the control task ends after
    /// the clean-ups under way.
    pub fn remove(&self) {
        self.0.remove();
    }

    /// Waits until the device is READY.
    async fn settled(&self) -> Result<(), ClientError> {
        loop {
            if self.0.is_removed() {
                return Err(ClientError::DeviceGone);
            }
            match self.0.peers.state() {
                DeviceState::Ready => return Ok(()),
                DeviceState::Invalid => return Err(ClientError::DeviceFailed),
                DeviceState::Reset => {
                    let changed = self.0.peers.state_changed(DeviceState::Reset);
                    let removed = self.0.wait_for(|_, removed| removed.then_some(()));
                    select(changed, removed).await;
                }
            }
        }
    }
}

/// One unit of the open count, taken before an open waits.
struct Counted<D> {
    shared: Arc<Shared<D>>,
    attached: bool,
}

impl<D> Counted<D> {
    fn new(shared: &Arc<Shared<D>>) -> Self {
        shared.note(Table::begin_open);
        Counted { shared: shared.clone(), attached: false }
    }
}

impl<D> Drop for Counted<D> {
    fn drop(&mut self) {
        // An open that never attached leaves nothing behind, but others may have.
        if !self.attached && self.shared.note(Table::give_up_open) {
            self.shared.control.wake();
        }
    }
}

/// A normal handle: one open reference and one attach reference. Dropping the last one of a client
/// starts its clean-up; the drop itself only marks and wakes. A client that owns nothing, and leaves
/// nothing to see to, is gone with it.
pub struct Attachment<D: DevicePeers> {
    shared: Arc<Shared<D>>,
    access: Arc<Access>,
}

impl<D: DevicePeers> Attachment<D> {
    fn new(mut counted: Counted<D>, access: Arc<Access>) -> Self {
        counted.attached = true;
        Attachment { shared: counted.shared.clone(), access }
    }

    /// What buffers and queues of the client keep.
    pub fn access(&self) -> &Arc<Access> {
        &self.access
    }
}

impl<D: DevicePeers> Drop for Attachment<D> {
    fn drop(&mut self) {
        let left = self.shared.note(|table| {
            let left = table.detach(self.access.slot());
            if left == Left::Free {
                self.shared.peers.leaving(self.access.client());
            }
            left
        });
        if left == Left::Closing {
            self.shared.control.wake();
        }
    }
}

/// A handle on the info lane: identity only, no reference on anything.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct InfoHandle {
    client: ClientId,
    grants: Grants,
}

impl InfoHandle {
    /// Whose.
    pub fn client(&self) -> ClientId {
        self.client
    }

    /// The gate of a command on the info lane.
    ///
    /// # Errors
    /// [`ClientError::NotOnThisLane`], [`ClientError::NoGrant`].
    pub fn admit(&self, command: Command) -> Result<(), ClientError> {
        let caller = Caller { lane: Lane::Info, attached: false, grants: self.grants };
        gates::check(command, &caller).map_err(|refused| match refused {
            GateError::NoGrant { grant } => ClientError::NoGrant { grant },
            _ => ClientError::NotOnThisLane { command },
        })
    }
}

/// Gate 0 of specification 05 §8.1, on either lane.
fn reach(grants: Grants) -> Result<(), ClientError> {
    match grants.contains(Grant::Device) {
        true => Ok(()),
        false => Err(ClientError::NoGrant { grant: Grant::Device }),
    }
}

#[cfg(test)]
mod tests {
    extern crate std;

    use core::pin::pin;
    use core::task::Poll;
    use std::vec::Vec;

    use axon_platform::Errno;

    use super::*;
    use crate::Touched;
    use crate::testing::{Bench, client, now, poll};

    #[test]
    fn st_e08_the_seventeenth_client_is_refused() {
        let mut bench = Bench::new(DeviceState::Ready);
        let mut inside: Vec<_> =
            (1..=16).map(|n| now(bench.clients.open(client(n))).unwrap()).collect();
        let refused = now(bench.clients.open(client(17))).err().unwrap();
        assert_eq!(refused, ClientError::TooManyClients);
        assert_eq!(refused.errno(), Errno::EBUSY);
        assert_eq!(bench.clients.open_count(), 16);

        // The slot of one that leaves is free once it is cleaned up, not before.
        inside[15].access().touch(Touched::Cores);
        inside.pop();
        assert!(now(bench.clients.open(client(18))).is_err());
        assert!(!bench.turn());
        assert_eq!(now(bench.clients.open(client(19))).unwrap().access().slot().number(), 15);
    }

    #[test]
    fn st_e10_an_open_that_is_dropped_while_waiting_leaves_nothing() {
        let bench = Bench::new(DeviceState::Reset);
        {
            let mut waiting = pin!(bench.clients.open(client(1)));
            assert!(poll(waiting.as_mut()).is_pending());
            assert_eq!(bench.clients.open_count(), 1);
        }
        assert_eq!(bench.clients.open_count(), 0);
        assert_eq!(bench.clients.list(&mut [None; 16]), 0);
    }

    #[test]
    fn st_e11_an_invalid_device_lets_only_the_info_lane_in() {
        let bench = Bench::new(DeviceState::Invalid);
        let refused = now(bench.clients.open(client(1))).err().unwrap();
        assert_eq!(refused.errno(), Errno::EINVAL);
        assert_eq!(bench.clients.open_info(client(1), Grants::ALL).unwrap().client(), client(1));
        assert_eq!(bench.clients.open_count(), 0);
    }

    #[test]
    fn an_open_waits_for_the_reset_and_sees_how_it_ended() {
        for (end, expected) in
            [(DeviceState::Ready, None), (DeviceState::Invalid, Some(ClientError::DeviceFailed))]
        {
            let bench = Bench::new(DeviceState::Reset);
            let mut waiting = pin!(bench.clients.open(client(1)));
            assert!(poll(waiting.as_mut()).is_pending());
            bench.peers.set_state(end);
            let Poll::Ready(opened) = poll(waiting.as_mut()) else { panic!("still waits") };
            assert_eq!(opened.err(), expected);
        }
    }

    #[test]
    fn st_d18_a_reset_that_begins_between_the_wait_and_the_slot_is_waited_for_too() {
        let bench = Bench::new(DeviceState::Reset);
        let mut waiting = pin!(bench.clients.open(client(1)));
        for _ in 0..3 {
            // The device is READY for one look only: the one that ends the wait.
            assert!(poll(waiting.as_mut()).is_pending());
            bench.peers.ready_for_one_look();
            assert!(poll(waiting.as_mut()).is_pending(), "the state is looked at with the slot");
            assert_eq!(bench.clients.list(&mut [None; 16]), 0);
        }
        bench.peers.set_state(DeviceState::Ready);
        assert!(poll(waiting.as_mut()).is_ready());
    }

    #[test]
    fn removal_ends_everything() {
        let mut bench = Bench::new(DeviceState::Reset);
        let clients = bench.clients.clone();
        let mut waiting = pin!(clients.open(client(1)));
        assert!(poll(waiting.as_mut()).is_pending());
        bench.clients.remove();
        let Poll::Ready(opened) = poll(waiting.as_mut()) else { panic!("still waits") };
        assert_eq!(opened.err().unwrap().errno(), Errno::ENODEV);
        assert!(bench.clients.open_info(client(2), Grants::ALL).is_err());
        assert!(bench.turn(), "the control task ends");
    }
}
