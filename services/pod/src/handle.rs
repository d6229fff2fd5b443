//! What the rest of a host holds of the pod: status at any time, control requests, news of resets.

use alloc::sync::Arc;
use core::cell::Cell;
use core::sync::atomic::{AtomicU32, Ordering};
use core::time::Duration;

use axon_platform::Clock;
use axon_ports::desk::Desk;
use axon_ports::marks::Marks;
use embassy_sync::blocking_mutex::Mutex;
use embassy_sync::blocking_mutex::raw::CriticalSectionRawMutex;

use crate::config::PodConfig;
use crate::error::PodError;
use crate::machine::{Control, Leaving, Machine};
use crate::modes::Mode;
use crate::status::PodStatus;
use crate::task::PodTask;
use crate::wires::{NeighbourWords, OwnWords, PodDevice};

/// Requests on their way at a time.
pub(crate) const REQUESTS: usize = 16;

pub(crate) enum Request {
    Control(Control),
    Leave(PodDevice, Leaving),
}

pub(crate) type Answer = Result<(), PodError>;

pub(crate) struct Shared {
    pub(crate) desk: Desk<Request, Answer, REQUESTS>,
    pub(crate) status: Mutex<CriticalSectionRawMutex, Cell<PodStatus>>,
    pub(crate) marks: Arc<Marks>,
    pub(crate) resets: Resets,
}

/// News of whole-device resets that the task has not taken yet; the latest of each device counts.
pub(crate) struct Resets(AtomicU32);

/// Bits of a device whose reset succeeded, and of one whose failed: low and high half.
const OK: u32 = 1;
const FAILED: u32 = 1 << 16;

impl Resets {
    fn tell(&self, device: PodDevice, ok: bool) {
        let place = |bits: u32| bits << device.index();
        let news = if ok { place(OK) } else { place(FAILED) };
        let told = |bits: u32| Some(bits & !place(OK | FAILED) | news);
        let _ = self.0.fetch_update(Ordering::AcqRel, Ordering::Acquire, told);
    }

    pub(crate) fn is_pending(&self) -> bool {
        self.0.load(Ordering::Acquire) != 0
    }

    /// The news of the lowest device that has any.
    pub(crate) fn take(&self) -> Option<(PodDevice, bool)> {
        let bits = self.0.load(Ordering::Acquire);
        let device = PodDevice::new((bits | bits >> 16).trailing_zeros())?;
        let mask = (OK | FAILED) << device.index();
        let news = self.0.fetch_and(!mask, Ordering::AcqRel) & mask;
        Some((device, news < FAILED))
    }
}

/// The pod of a host. Clones reach the same.
#[derive(Clone)]
pub struct Pod(Option<Arc<Shared>>);

impl Pod {
    /// A host without pods: V2, and V3/V4 of standard type. Needs no task.
    pub const fn single() -> Self {
        Pod(None)
    }

    /// A host that may belong to a pod, and the task that finds out. `marks` is what the reservation
    /// task of the host shows.
    pub fn new<W: OwnWords + NeighbourWords, C: Clock>(
        config: PodConfig,
        marks: Arc<Marks>,
        words: W,
        clock: C,
    ) -> (Self, PodTask<W, C>) {
        let machine = Machine::new(config);
        let shared = Arc::new(Shared {
            desk: Desk::new(),
            status: Mutex::new(Cell::new(machine.status())),
            marks,
            resets: Resets(AtomicU32::new(0)),
        });
        (Pod(Some(shared.clone())), PodTask::new(shared, machine, words, clock))
    }

    /// The pod now.
    pub fn status(&self) -> PodStatus {
        match &self.0 {
            Some(shared) => shared.status.lock(Cell::get),
            None => PodStatus::SINGLE,
        }
    }

    /// Carries out a control request; [`Pod::status`] tells the state afterwards, also after a
    /// refusal. An election that it starts goes on by itself. The caller holds the grant
    /// `PodControl`.
    ///
    /// # Errors
    /// [`PodError`]
    pub async fn control(&self, control: Control) -> Result<(), PodError> {
        let Some(shared) = &self.0 else { return Ok(()) };
        shared.desk.call(Request::Control(control)).await?
    }

    /// `POD_CTRL`: `mode` is [`None`] in the form that has none.
    ///
    /// # Errors
    /// [`PodError`]; EINVAL for a number that is none, except where there are no pods.
    pub async fn command(
        &self,
        control: u32,
        timeout_seconds: u32,
        mode: Option<u32>,
    ) -> Result<(), PodError> {
        if self.0.is_none() {
            return Ok(());
        }
        let mode = mode.unwrap_or(Mode::Unset as u32);
        self.control(match control {
            0 => Control::Elect(Duration::from_secs(timeout_seconds.into())),
            1 => Control::SetMode(Mode::X1),
            2 => Control::Kill,
            3 => Control::SetMode(Mode::from_number(mode).ok_or(PodError::Unsupported { mode })?),
            _ => return Err(PodError::BadControl { control }),
        })
        .await
    }

    /// Reset task: a whole-device reset of the device with this index has ended.
    pub fn device_reset(&self, index: u32, ok: bool) {
        if let (Some(shared), Some(device)) = (&self.0, PodDevice::new(index)) {
            shared.resets.tell(device, ok);
            shared.desk.nudge();
        }
    }

    /// A device is about to be reset or removed: an election that it takes part in ends first, and
    /// its links are given back. Answers when that is done.
    pub async fn leave(&self, index: u32, why: Leaving) {
        if let (Some(shared), Some(device)) = (&self.0, PodDevice::new(index)) {
            // A task that has ended runs no election.
            let _ = shared.desk.call(Request::Leave(device, why)).await;
        }
    }

    /// The last device is gone: the task ends, after an election that is under way.
    pub fn stop(&self) {
        if let Some(shared) = &self.0 {
            shared.desk.close();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_latest_news_of_each_device_counts() {
        let resets = Resets(AtomicU32::new(0));
        let device = |index| PodDevice::new(index).unwrap();
        resets.tell(device(15), true);
        resets.tell(device(0), true);
        resets.tell(device(0), false);
        resets.tell(device(3), false);
        resets.tell(device(3), true);
        assert!(resets.is_pending());
        assert_eq!(resets.take(), Some((device(0), false)));
        assert_eq!(resets.take(), Some((device(3), true)));
        assert_eq!(resets.take(), Some((device(15), true)));
        assert_eq!((resets.take(), resets.is_pending()), (None, false));
    }
}
