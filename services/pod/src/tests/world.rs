//! Nodes that exist only as words, cables that lead from one to another, and time that is virtual.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard};
use std::vec::Vec;

use alloc::boxed::Box;
use core::future::Future;
use core::time::Duration;

use axon_hosted::Machine;
use axon_platform::Platform;
use axon_ports::marks::Marks;

use crate::wires::{Lane, NeighbourWords, OwnWords, PodDevice, Side, WireError};
use crate::words::offset;
use crate::{Pod, PodConfig, PodKind};

/// Where a link ends.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum End {
    /// Nowhere: reads never complete.
    Open,
    /// The same device of another node.
    Node(usize),
    /// Another device of another node: mis-wired.
    Device(usize, u8),
}

/// Answers a read of a neighbour's word: node, device, side, lane, offset.
type Stub = Box<dyn Fn(PodDevice, Side, Lane, u32) -> Option<u32> + Send>;

#[derive(Default)]
pub(super) struct State {
    /// Words of each node and device; what was never written is 0.
    words: BTreeMap<(usize, u8, u32), u32>,
    /// Cables by node and side.
    cables: BTreeMap<(usize, bool), End>,
    stub: Option<Stub>,
    pub(super) open_links: usize,
    pub(super) link_reads: usize,
    /// Every write to an election status word.
    pub(super) status_log: Vec<(usize, u8, u32)>,
}

#[derive(Clone)]
pub(super) struct World {
    pub(super) machine: Machine,
    state: Arc<Mutex<State>>,
}

/// One node: its words, its pod, what its reservation task shows.
pub(super) struct Node {
    pub(super) world: World,
    pub(super) at: usize,
    pub(super) pod: Pod,
    pub(super) marks: Arc<Marks>,
}

#[derive(Clone)]
pub(super) struct Words {
    world: World,
    node: usize,
}

/// Serial number of a node's device 0, as the specification's examples name it: the high word is
/// that of real devices, so that no serial looks like a device number.
pub(super) const fn serial(name: u32) -> u64 {
    1 << 32 | name as u64
}

impl World {
    pub(super) fn new(seed: u64) -> Self {
        let machine = Machine::builder().seed(seed).memory(1 << 16).build().unwrap();
        World { machine, state: Arc::default() }
    }

    pub(super) fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap()
    }

    /// Cables that join two nodes on one side, both ways.
    pub(super) fn join(&self, side: Side, a: usize, b: usize) {
        self.cable(a, side, End::Node(b));
        self.cable(b, side, End::Node(a));
    }

    pub(super) fn cable(&self, node: usize, side: Side, end: End) {
        self.state().cables.insert((node, side == Side::Left), end);
    }

    /// All neighbours are what `stub` says; `None` is a read that never completes.
    pub(super) fn stub(
        &self,
        stub: impl Fn(PodDevice, Side, Lane, u32) -> Option<u32> + Send + 'static,
    ) {
        self.state().stub = Some(Box::new(stub));
    }

    pub(super) fn word(&self, node: usize, device: u8, at: u32) -> u32 {
        self.state().words.get(&(node, device, at)).copied().unwrap_or(0)
    }

    pub(super) fn set_word(&self, node: usize, device: u8, at: u32, value: u32) {
        self.state().words.insert((node, device, at), value);
    }

    /// A node with the serial numbers of 16 devices and a pod task.
    pub(super) fn node(&self, at: usize, name: u32) -> Node {
        self.node_with(at, name, PodConfig::new(PodKind::Links))
    }

    pub(super) fn node_with(&self, at: usize, name: u32, config: PodConfig) -> Node {
        for device in 0..16 {
            self.set_word(at, device, offset::DEVICE_ID, device.into());
            self.set_word(at, device, offset::SERIAL_HIGH, 1);
            self.set_word(at, device, offset::SERIAL_LOW, name + 1000 * u32::from(device));
        }
        self.start(at, config)
    }

    /// A pod task on words that are there already: a driver that starts again.
    pub(super) fn start(&self, at: usize, config: PodConfig) -> Node {
        let marks = Arc::new(Marks::new());
        let words = Words { world: self.clone(), node: at };
        let (pod, task) = Pod::new(config, marks.clone(), words, self.machine.clone());
        self.machine.spawn("pod", task.run()).unwrap();
        Node { world: self.clone(), at, pod, marks }
    }

    pub(super) fn run<F: Future>(&self, future: F) -> F::Output {
        self.machine.run(future).unwrap()
    }

    pub(super) fn pass(&self, span: Duration) {
        self.machine.run_for(span).unwrap();
    }

    pub(super) fn nanos(&self) -> u64 {
        self.machine.now().as_nanos()
    }
}

impl Node {
    /// The whole-device resets of the load have succeeded, in this order.
    pub(super) fn all_reset(&self) {
        (0..16).for_each(|index| self.pod.device_reset(index, true));
    }

    pub(super) fn word(&self, device: u8, at: u32) -> u32 {
        self.world.word(self.at, device, at)
    }

    pub(super) fn status_word(&self) -> u32 {
        self.word(0, offset::ELECTION_STATUS)
    }

    /// Nothing is left that a later election of a neighbour could take for new.
    pub(super) fn assert_tidy(&self) {
        for device in 0..16 {
            for at in (offset::NEIGHBOURS..offset::NEIGHBOURS + 16).step_by(4) {
                assert_eq!(self.word(device, at), 0, "device {device} {at:#x}");
            }
        }
        assert_eq!(self.world.state().open_links, 0, "links are given back");
    }
}

impl OwnWords for Words {
    fn read_own(&self, device: PodDevice, at: u32) -> Result<u32, WireError> {
        Ok(self.world.word(self.node, device.index(), at))
    }

    fn write_own(&self, device: PodDevice, at: u32, value: u32) -> Result<(), WireError> {
        self.world.set_word(self.node, device.index(), at, value);
        if at == offset::ELECTION_STATUS {
            self.world.state().status_log.push((self.node, device.index(), value));
        }
        Ok(())
    }
}

pub(super) struct Session {
    world: World,
    node: usize,
    device: PodDevice,
    side: Side,
    lane: Lane,
}

impl Drop for Session {
    fn drop(&mut self) {
        self.world.state().open_links -= 1;
    }
}

impl Session {
    fn word(&self, at: u32) -> Option<u32> {
        let state = self.world.state();
        if let Some(stub) = &state.stub {
            return stub(self.device, self.side, self.lane, at);
        }
        let cable = state.cables.get(&(self.node, self.side == Side::Left)).copied();
        let (node, device) = match cable.unwrap_or(End::Open) {
            End::Open => return None,
            End::Node(node) => (node, self.device.index()),
            End::Device(node, device) => (node, device),
        };
        Some(state.words.get(&(node, device, at)).copied().unwrap_or(0))
    }
}

impl NeighbourWords for Words {
    type Session = Session;

    async fn open(&self, device: PodDevice, side: Side, lane: Lane) -> Result<Session, WireError> {
        self.world.state().open_links += 1;
        Ok(Session { world: self.world.clone(), node: self.node, device, side, lane })
    }

    async fn read(
        &self,
        session: &mut Session,
        at: u32,
        into: &mut [u32],
    ) -> Result<(), WireError> {
        self.world.state().link_reads += 1;
        self.world.machine.sleep(Duration::from_micros(10)).await;
        for (word, at) in into.iter_mut().zip((at..).step_by(4)) {
            let Some(value) = session.word(at) else {
                self.world.machine.sleep(Duration::from_millis(4)).await;
                return Err(WireError::NoAnswer);
            };
            *word = value;
        }
        Ok(())
    }

    async fn close(&self, session: Session) {
        self.world.machine.sleep(Duration::from_micros(10)).await;
        drop(session);
    }
}
