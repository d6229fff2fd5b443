//! A device side that only takes notes, and a way to poll by hand.

extern crate std;

use core::future::{Future, poll_fn};
use core::pin::Pin;
use core::task::{Context, Poll, Waker};
use core::time::Duration;
use std::boxed::Box;
use std::string::String;
use std::sync::{Arc, Mutex};
use std::vec::Vec;

use axon_ports::reset::DeviceState;
use axon_ports::{ClientId, ClientSlot};

use crate::{Clients, DevicePeers};

#[derive(Clone)]
pub(crate) struct Peers(pub(crate) Arc<Mutex<Notes>>);

pub(crate) struct Notes {
    pub(crate) state: DeviceState,
    pub(crate) calls: Vec<String>,
    /// Clients whose drain does not end.
    pub(crate) hanging: Vec<ClientId>,
    /// Looks at the state that still see READY.
    pub(crate) looks: Option<u32>,
}

impl Peers {
    pub(crate) fn set_state(&self, state: DeviceState) {
        self.0.lock().unwrap().state = state;
    }

    /// The state is READY until it has been looked at once, then RESET.
    pub(crate) fn ready_for_one_look(&self) {
        let mut notes = self.0.lock().unwrap();
        (notes.state, notes.looks) = (DeviceState::Ready, Some(1));
    }

    fn note(&self, call: String) {
        self.0.lock().unwrap().calls.push(call);
    }

    pub(crate) fn calls(&self) -> Vec<String> {
        core::mem::take(&mut self.0.lock().unwrap().calls)
    }
}

impl DevicePeers for Peers {
    fn state(&self) -> DeviceState {
        let mut notes = self.0.lock().unwrap();
        match &mut notes.looks {
            Some(0) => (notes.state, notes.looks) = (DeviceState::Reset, None),
            Some(looks) => *looks -= 1,
            None => {}
        }
        notes.state
    }

    async fn state_changed(&self, seen: DeviceState) {
        poll_fn(|_| match self.0.lock().unwrap().state == seen {
            true => Poll::Pending,
            false => Poll::Ready(()),
        })
        .await;
    }

    async fn pause(&self, span: Duration) {
        self.note(std::format!("pause {span:?}"));
    }

    fn entered(&self, client: ClientId) {
        self.note(std::format!("entered {client}"));
    }

    fn leaving(&self, client: ClientId) {
        self.note(std::format!("leaving {client}"));
    }

    fn fold_counters(&self, client: ClientId) {
        self.note(std::format!("counters {client}"));
    }

    async fn resolve_resets(&self, client: ClientId) {
        self.note(std::format!("resets {client}"));
    }

    async fn drain(&self, client: ClientId) {
        poll_fn(|_| match self.0.lock().unwrap().hanging.contains(&client) {
            true => Poll::Pending,
            false => Poll::Ready(()),
        })
        .await;
        self.note(std::format!("drain {client}"));
    }

    async fn release_cores(&self, client: ClientId) {
        self.note(std::format!("cores {client}"));
    }

    async fn sweep(&self, client: ClientId, slot: ClientSlot) {
        self.note(std::format!("sweep {client} {slot}"));
    }

    async fn last_client_gone(&self) {
        self.note("last".into());
    }
}

/// A device whose control task runs whenever the test says so.
pub(crate) struct Bench {
    pub(crate) clients: Clients<Peers>,
    pub(crate) peers: Peers,
    control: Pin<Box<dyn Future<Output = ()>>>,
}

impl Bench {
    pub(crate) fn new(state: DeviceState) -> Self {
        let peers = Peers(Arc::new(Mutex::new(Notes {
            state,
            calls: Vec::new(),
            hanging: Vec::new(),
            looks: None,
        })));
        let (clients, control) = Clients::new(peers.clone());
        Bench { clients, peers, control: Box::pin(control.run()) }
    }

    /// Lets the control task do all it can; answers whether it has ended.
    pub(crate) fn turn(&mut self) -> bool {
        poll(self.control.as_mut()).is_ready()
    }
}

pub(crate) fn poll<F: Future + ?Sized>(future: Pin<&mut F>) -> Poll<F::Output> {
    future.poll(&mut Context::from_waker(Waker::noop()))
}

/// The result of a future that needs no waiting.
pub(crate) fn now<F: Future>(future: F) -> F::Output {
    match poll(core::pin::pin!(future)) {
        Poll::Ready(output) => output,
        Poll::Pending => panic!("had to wait"),
    }
}

pub(crate) fn client(number: u32) -> ClientId {
    ClientId::new(number).unwrap()
}
