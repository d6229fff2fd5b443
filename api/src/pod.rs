//! The pod that the host belongs to, where it is an UltraServer or part of a switched pod
//! (specification 05 §16).
//!
//! The first device that says so starts the pod task; from then on the resets of all devices are told
//! to it. A host of any other kind has no task and answers for itself.

use alloc::sync::Arc;
use core::cell::RefCell;
use core::time::Duration;

use axon_clients::gates::Grant;
use axon_memory::MemoryClient;
use axon_neuron::NeuronDevice;
use axon_neuron::dma::Link;
use axon_neuron::hal::LinkSide;
use axon_neuron::hal::identity::PlatformType;
use axon_neuron::reset::ResetNews;
use axon_platform::Platform;
use axon_pod::wires::{DEVICES, Lane, PodDevice, Side};
use axon_pod::{
    Control, Leaving, Mode, NeighbourWords, OwnWords, Pod, PodConfig, PodKind, PodStatus, WireError,
};
use axon_ports::marks::Marks;
use axon_ports::reset::DeviceState;
use embassy_sync::blocking_mutex::Mutex;
use embassy_sync::blocking_mutex::raw::CriticalSectionRawMutex;

use crate::calls::Call;
use crate::{Client, Driver, Error, HostConfig, InfoClient};

/// A device of the node, and where memory for its links comes from.
struct Member<P: Platform> {
    neuron: NeuronDevice<P>,
    memory: MemoryClient,
}

impl<P: Platform> Clone for Member<P> {
    fn clone(&self) -> Self {
        Member { neuron: self.neuron.clone(), memory: self.memory.clone() }
    }
}

type Devices<P> = [Option<Member<P>>; DEVICES as usize];

/// The devices of the node, by index, as the pod task reaches their words.
struct Words<P: Platform>(Mutex<CriticalSectionRawMutex, RefCell<Devices<P>>>);

impl<P: Platform> Words<P> {
    fn add(&self, member: Member<P>) {
        self.0.lock(|devices| {
            if let Some(place) = devices.borrow_mut().get_mut(member.neuron.index().index()) {
                *place = Some(member);
            }
        });
    }

    fn remove(&self, device: &NeuronDevice<P>) {
        let gone = self.0.lock(|devices| {
            devices.borrow_mut().get_mut(device.index().index()).and_then(Option::take)
        });
        drop(gone);
    }

    fn member(&self, wanted: PodDevice) -> Result<Member<P>, WireError> {
        let index = usize::from(wanted.index());
        let found = self.0.lock(|devices| devices.borrow().get(index).cloned().flatten());
        found.ok_or(WireError::DeviceGone)
    }
}

/// What the pod task is given.
struct Wires<P: Platform>(Arc<Words<P>>);

impl<P: Platform> OwnWords for Wires<P> {
    fn read_own(&self, device: PodDevice, offset: u32) -> Result<u32, WireError> {
        self.0.member(device)?.neuron.pod_word(offset).map_err(|_| WireError::DeviceGone)
    }

    fn write_own(&self, device: PodDevice, offset: u32, value: u32) -> Result<(), WireError> {
        let neuron = self.0.member(device)?.neuron;
        neuron.set_pod_word(offset, value).map_err(|_| WireError::DeviceGone)
    }
}

/// What a link could not do, as the pod task has to know it.
fn wire_error(error: axon_neuron::Error) -> WireError {
    match error {
        axon_neuron::Error::DeviceGone | axon_neuron::Error::Removed => WireError::DeviceGone,
        axon_neuron::Error::Busy { .. } | axon_neuron::Error::Again { .. } => WireError::Busy,
        axon_neuron::Error::NoEngine { .. } => WireError::Unsupported,
        _ => WireError::NoAnswer,
    }
}

impl<P: Platform> NeighbourWords for Wires<P> {
    type Session = Link<P>;

    async fn open(&self, device: PodDevice, side: Side, lane: Lane) -> Result<Link<P>, WireError> {
        let Member { neuron, memory } = self.0.member(device)?;
        let side = match side {
            Side::Left => LinkSide::Left,
            Side::Right => LinkSide::Right,
        };
        let engine = neuron.hal().link_engine(side, lane == Lane::Second);
        let engine = engine.ok_or(WireError::Unsupported)?;
        neuron.open_link(&memory, engine).await.map_err(wire_error)
    }

    async fn read(
        &self,
        link: &mut Link<P>,
        offset: u32,
        into: &mut [u32],
    ) -> Result<(), WireError> {
        link.read(offset, into).await.map_err(wire_error)
    }

    async fn close(&self, link: Link<P>) {
        link.close().await;
    }
}

/// The pod of a host: none until a device says otherwise.
pub(crate) struct HostPod<P: Platform> {
    marks: Arc<Marks>,
    config: HostConfig,
    state: Mutex<CriticalSectionRawMutex, RefCell<Option<Joined<P>>>>,
}

struct Joined<P: Platform> {
    pod: Pod,
    words: Arc<Words<P>>,
}

impl<P: Platform> HostPod<P> {
    pub(crate) fn new(marks: Arc<Marks>, config: HostConfig) -> Self {
        HostPod { marks, config, state: Mutex::new(RefCell::new(None)) }
    }

    pub(crate) fn handle(&self) -> Pod {
        let joined = self.state.lock(|state| state.borrow().as_ref().map(|j| j.pod.clone()));
        joined.unwrap_or(Pod::single())
    }

    /// A device was published: its resets count from now on.
    ///
    /// # Errors
    /// No room for the tasks.
    pub(crate) fn join(
        &self,
        platform: &P,
        device: &NeuronDevice<P>,
        memory: &MemoryClient,
    ) -> Result<(), Error> {
        let kind = match device.hal().platform_type() {
            PlatformType::Standard => return Ok(()),
            PlatformType::UltraServer => PodKind::Links,
            PlatformType::Pds => PodKind::Switch,
        };
        let (pod, task) = self.state.lock(|state| {
            let state = &mut *state.borrow_mut();
            let mut task = None;
            let joined = state.get_or_insert_with(|| {
                let words = Arc::new(Words(Mutex::new(RefCell::new([const { None }; _]))));
                let (control, timeout) = (self.config.pod_control, self.config.pod_timeout);
                let config = PodConfig { control, timeout, ..PodConfig::new(kind) };
                let marks = self.marks.clone();
                let (pod, new) = Pod::new(config, marks, Wires(words.clone()), platform.clone());
                task = Some(new);
                Joined { pod, words }
            });
            joined.words.add(Member { neuron: device.clone(), memory: memory.clone() });
            (joined.pod.clone(), task)
        });
        if let Some(task) = task {
            platform.spawn("pod", task.run())?;
        }
        platform.spawn("pod watch", watch(pod, device.clone()))?;
        Ok(())
    }

    /// A device is removed (specification 05 §5 T3): an election that it takes part in ends first.
    pub(crate) async fn part(&self, device: &NeuronDevice<P>) {
        self.handle().leave(device.index().number(), Leaving::Removed).await;
        let words = self.state.lock(|state| state.borrow().as_ref().map(|j| j.words.clone()));
        if let Some(words) = words {
            words.remove(device);
        }
    }
}

/// Tells the pod how the whole-device resets of one device end; before every reset the pod lets go of
/// the device, and the drive waits for that. Ends with the device.
async fn watch<P: Platform>(pod: Pod, device: NeuronDevice<P>) {
    let index = device.index().number();
    match device.watch_resets() {
        DeviceState::Reset => {}
        state => pod.device_reset(index, state == DeviceState::Ready),
    }
    while let Some(news) = device.reset_news().await {
        match news {
            ResetNews::Begins { whole } => {
                let why = if whole { Leaving::DeviceReset } else { Leaving::CoreReset };
                pod.leave(index, why).await;
                device.allow_reset();
            }
            ResetNews::Ended { whole: true, ok } => pod.device_reset(index, ok),
            ResetNews::Ended { whole: false, .. } => {}
        }
    }
}

impl<P: Platform> Driver<P> {
    /// The pod now; an election that is running is a state, not an error.
    pub fn pod(&self) -> PodStatus {
        self.pod_handle().status()
    }

    /// What starts, ends and shapes elections.
    ///
    /// # Errors
    /// [`Error::Gate`] (EACCES) where the host has not the grant `PodControl`.
    pub fn pod_control(&self) -> Result<PodControl, Error> {
        self.grants().check(Grant::PodControl)?;
        Ok(PodControl(self.pod_handle()))
    }

    /// As [`PodControl::set_mode`], with the rights of the host.
    ///
    /// # Errors
    /// As [`Driver::pod_control`] and there.
    pub async fn pod_set_mode(&self, mode: Mode) -> Result<(), Error> {
        self.pod_control()?.set_mode(mode).await
    }

    /// As [`PodControl::elect`], with the rights of the host.
    ///
    /// # Errors
    /// As [`Driver::pod_control`] and there.
    pub async fn pod_elect(&self, timeout: Duration) -> Result<(), Error> {
        self.pod_control()?.elect(timeout).await
    }

    /// As [`PodControl::cancel`], with the rights of the host.
    ///
    /// # Errors
    /// As [`Driver::pod_control`] and there.
    pub async fn pod_cancel(&self) -> Result<(), Error> {
        self.pod_control()?.cancel().await
    }
}

impl<P: Platform> Client<P> {
    /// As [`Driver::pod_control`], with the rights of this client.
    ///
    /// # Errors
    /// [`Error::Gate`] (EACCES) where the client was not given `PodControl`.
    pub fn pod_control(&self) -> Result<PodControl, Error> {
        Call::PodControl.admit(self.access())?;
        Ok(PodControl(self.device().driver().pod_handle()))
    }
}

impl<P: Platform> InfoClient<P> {
    /// As [`Client::pod_control`]: elections need no attach slot.
    ///
    /// # Errors
    /// As there.
    pub fn pod_control(&self) -> Result<PodControl, Error> {
        self.admit(Call::PodControl)?;
        Ok(PodControl(self.device().driver().pod_handle()))
    }
}

/// The right to control the pod's elections.
pub struct PodControl(Pod);

impl PodControl {
    /// Uses the pod in this mode until no core is claimed any more.
    ///
    /// # Errors
    /// [`Error::Pod`]: EBUSY while electing, EEXIST where another mode is set, EOPNOTSUPP where the
    /// pod has not that mode.
    pub async fn set_mode(&self, mode: Mode) -> Result<(), Error> {
        Ok(self.0.control(Control::SetMode(mode)).await?)
    }

    /// Starts an election that gives up after this time.
    ///
    /// # Errors
    /// [`Error::Pod`]: EAGAIN while cores are claimed or devices are not reset.
    pub async fn elect(&self, timeout: Duration) -> Result<(), Error> {
        Ok(self.0.control(Control::Elect(timeout)).await?)
    }

    /// Ends an election, or sees to it that none begins.
    ///
    /// # Errors
    /// [`Error::Pod`] where the task has ended.
    pub async fn cancel(&self) -> Result<(), Error> {
        Ok(self.0.control(Control::Kill).await?)
    }
}
