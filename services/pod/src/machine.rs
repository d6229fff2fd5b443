//! State of the pod as plain data (specification 05 §16.3, §16.7): which devices are ready, what was
//! elected, which mode is set.

use core::time::Duration;

use axon_platform::Instant;

use crate::config::{ControlBits, PodConfig, PodKind};
use crate::election::Start;
use crate::error::{ElectionError, PodError};
use crate::modes::{Mode, is_supported};
use crate::status::{Outcome, PodStatus};
use crate::wires::{DEVICES, PodDevice};
use crate::words::Elected;

/// A control request (specification 05 §16.7).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Control {
    /// Elect, within this time.
    Elect(Duration),
    /// End an election, or see to it that none begins.
    Kill,
    /// Use the pod in this mode until no core is reserved.
    SetMode(Mode),
}

/// Why a device takes no part any more.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Leaving {
    /// Some cores of it are about to be reset.
    CoreReset,
    /// All of it is about to be reset.
    DeviceReset,
    /// It is removed.
    Removed,
}

/// What a control request leads to.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Action {
    Nothing,
    Start(Start),
    Cancel,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Phase {
    Init,
    Electing,
    Elected(Elected),
    Failed,
}

/// Every device of a node.
const ALL: u16 = ((1_u32 << DEVICES) - 1) as u16;

pub(crate) struct Machine {
    config: PodConfig,
    phase: Phase,
    mode: Mode,
    /// Devices whose last whole-device reset has succeeded.
    done: u16,
    first_done: Option<Instant>,
}

impl Machine {
    pub(crate) const fn new(config: PodConfig) -> Self {
        Machine { config, phase: Phase::Init, mode: Mode::Unset, done: 0, first_done: None }
    }

    pub(crate) fn config(&self) -> &PodConfig {
        &self.config
    }

    pub(crate) fn status(&self) -> PodStatus {
        let outcome = match self.phase {
            Phase::Init | Phase::Electing => Outcome::Open,
            Phase::Elected(elected) => Outcome::Elected(elected),
            Phase::Failed => Outcome::Failed,
        };
        PodStatus::new(self.config.kind, outcome, self.mode)
    }

    /// A whole-device reset succeeded. `found` is what device 0 says about the node: an earlier
    /// election, or the location in a switched pod.
    pub(crate) fn device_ready(
        &mut self,
        device: PodDevice,
        found: Option<Elected>,
        now: Instant,
    ) -> Action {
        self.done |= 1 << device.index();
        self.first_done.get_or_insert(now);
        let skip = self.config.control.has(ControlBits::SKIP);
        if device == PodDevice::PRIMARY && self.phase != Phase::Electing {
            match (found, self.config.kind) {
                (Some(elected), _) => self.settle(Ok(elected)),
                (None, PodKind::Links) if skip => self.settle(Err(ElectionError::Skipped)),
                (None, PodKind::Links) => {}
                (None, PodKind::Switch) => self.settle(Err(ElectionError::NotReady)),
            }
        }
        if self.phase != Phase::Init || self.done != ALL || self.config.kind == PodKind::Switch {
            return Action::Nothing;
        }
        self.start(self.config.timeout, now)
    }

    /// A whole-device reset failed.
    pub(crate) fn device_failed(&mut self, device: PodDevice) {
        self.done &= !(1 << device.index());
        if self.phase == Phase::Init {
            self.settle(Err(ElectionError::NotReady));
        }
    }

    /// A device is about to be reset or removed. Answers whether an election has to end first.
    pub(crate) fn device_leaves(&mut self, device: PodDevice, why: Leaving) -> bool {
        if why != Leaving::CoreReset {
            self.done &= !(1 << device.index());
        }
        self.phase == Phase::Electing
    }

    /// When [`Self::expire`] gives up.
    pub(crate) fn deadline(&self) -> Option<Instant> {
        let first = self.first_done.filter(|_| self.phase == Phase::Init)?;
        Some(first + self.config.timeout)
    }

    /// Not all devices were ready in time.
    pub(crate) fn expire(&mut self, now: Instant) {
        if self.deadline().is_some_and(|deadline| deadline <= now) {
            self.settle(Err(ElectionError::NotReady));
        }
    }

    /// No core is reserved any more.
    pub(crate) fn marks_emptied(&mut self) {
        self.mode = Mode::Unset;
    }

    pub(crate) fn control(
        &mut self,
        control: Control,
        marks: u32,
        now: Instant,
    ) -> Result<Action, PodError> {
        match control {
            Control::SetMode(mode) => self.set_mode(mode).map(|()| Action::Nothing),
            Control::Elect(_) | Control::Kill if self.config.kind == PodKind::Switch => {
                Ok(Action::Nothing)
            }
            Control::Elect(timeout) => self.elect(timeout, marks, now),
            Control::Kill => Ok(self.kill()),
        }
    }

    /// How an election ended.
    pub(crate) fn settle(&mut self, result: Result<Elected, ElectionError>) {
        self.phase = match result {
            Ok(elected) => {
                log::info!("pod {:#x}: {elected:?}", elected.serial);
                Phase::Elected(elected)
            }
            Err(error) => {
                log::info!("no pod: {error}");
                Phase::Failed
            }
        };
    }

    fn elect(&mut self, timeout: Duration, marks: u32, now: Instant) -> Result<Action, PodError> {
        if marks > 0 {
            return Err(PodError::Reserved { marks });
        }
        if self.done != ALL {
            return Err(PodError::NotAllReset { done: self.done.count_ones() as u8 });
        }
        Ok(match self.phase {
            Phase::Electing => Action::Nothing,
            _ => self.start(timeout, now),
        })
    }

    fn kill(&mut self) -> Action {
        match self.phase {
            Phase::Electing => return Action::Cancel,
            Phase::Init => self.settle(Err(ElectionError::Cancelled)),
            Phase::Elected(_) | Phase::Failed => {}
        }
        Action::Nothing
    }

    fn set_mode(&mut self, mode: Mode) -> Result<(), PodError> {
        let elected = match &self.phase {
            Phase::Init | Phase::Electing => return Err(PodError::Electing),
            Phase::Elected(elected) => Some(elected),
            Phase::Failed => None,
        };
        if self.mode != Mode::Unset && self.mode != mode {
            return Err(PodError::OtherModeSet { mode: self.mode });
        }
        if !is_supported(mode, elected) {
            return Err(PodError::Unsupported { mode: mode as u32 });
        }
        self.mode = mode;
        Ok(())
    }

    fn start(&mut self, timeout: Duration, now: Instant) -> Action {
        self.phase = Phase::Electing;
        Action::Start(Start { deadline: now + timeout, control: self.config.control })
    }
}
