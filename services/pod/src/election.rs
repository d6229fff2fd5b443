//! One election: fifteen secondaries, one after the other, then the primary; with fewer links where
//! that fails (specification 05 §16.5, §16.6).
//!
//! Every node goes through its devices in the same order, or two nodes would wait for each other
//! until the deadline. Each attempt ends with the words that neighbours read being cleared: no later
//! election can take old data for new.

mod links;
mod primary;
mod secondary;

use core::sync::atomic::{AtomicBool, Ordering};
use core::time::Duration;

use axon_platform::{Clock, Instant};

use crate::config::ControlBits;
use crate::error::ElectionError;
use crate::wires::{NeighbourWords, OwnWords, PodDevice};
use crate::words::{Elected, LinkMask, StatusWord, offset, split};

/// Pause before a neighbour that is not ready is read again.
const RETRY: Duration = Duration::from_millis(50);
/// Time that an attempt with fewer links has at least.
const EXTENSION: Duration = Duration::from_secs(120);
/// How often a long wait is noted in the text log.
const NOTE: Duration = Duration::from_secs(30);

/// What an election has to know.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Start {
    pub(crate) deadline: Instant,
    pub(crate) control: ControlBits,
}

pub(crate) struct Election<'a, W, C> {
    words: &'a W,
    clock: &'a C,
    /// Set by whoever wants it to end.
    cancel: &'a AtomicBool,
    control: ControlBits,
    deadline: Instant,
    noted: Instant,
}

impl<'a, W: OwnWords + NeighbourWords, C: Clock> Election<'a, W, C> {
    pub(crate) fn new(words: &'a W, clock: &'a C, cancel: &'a AtomicBool, start: Start) -> Self {
        let Start { deadline, control } = start;
        Election { words, clock, cancel, control, deadline, noted: clock.now() }
    }

    /// Runs to its end; the words of all devices are then what they should be.
    pub(crate) async fn run(mut self) -> Result<Elected, ElectionError> {
        let forced = self.control.forced();
        let mut links = forced.unwrap_or(LinkMask::BOTH);
        loop {
            let failure = match self.attempt(links).await {
                Ok(elected) => return Ok(elected),
                Err(_) if self.is_cancelled() => return Err(ElectionError::Cancelled),
                Err(failure) => failure,
            };
            log::info!("pod election over links {:#x} failed: {failure}", links.bits());
            let fewer = match links {
                _ if forced.is_some() => None,
                LinkMask::BOTH => Some(LinkMask::RIGHT),
                LinkMask::RIGHT => Some(LinkMask::LEFT),
                _ => None,
            };
            links = fewer.ok_or(failure)?;
            self.deadline = self.deadline.max(self.clock.now() + EXTENSION);
        }
    }

    async fn attempt(&mut self, links: LinkMask) -> Result<Elected, ElectionError> {
        let mut good = 0;
        for device in PodDevice::secondaries() {
            let result = self.secondary(device, links).await;
            if self.is_cancelled() {
                self.commit_failure(PodDevice::PRIMARY);
                return Err(ElectionError::Cancelled);
            }
            match result {
                Ok(()) => good += 1,
                Err(error) => log::info!("{device} is out of the pod election: {error}"),
            }
        }
        self.primary(links, good).await
    }

    /// Lets time pass before the next look at a neighbour.
    async fn pause(&mut self) -> Result<(), ElectionError> {
        if self.is_cancelled() {
            return Err(ElectionError::Cancelled);
        }
        let now = self.clock.now();
        if now >= self.deadline {
            return Err(ElectionError::TimedOut);
        }
        if now - self.noted >= NOTE {
            self.noted = now;
            log::info!("pod election waits for its neighbours; {:?} left", self.deadline - now);
        }
        self.clock.sleep_until((now + RETRY).min(self.deadline)).await;
        if self.is_cancelled() { Err(ElectionError::Cancelled) } else { Ok(()) }
    }

    fn is_cancelled(&self) -> bool {
        self.cancel.load(Ordering::Acquire)
    }

    fn read(&self, device: PodDevice, offset: u32) -> Result<u32, ElectionError> {
        self.words.read_own(device, offset).map_err(|error| own(device, error))
    }

    fn write(&self, device: PodDevice, offset: u32, value: u32) -> Result<(), ElectionError> {
        self.words.write_own(device, offset, value).map_err(|error| own(device, error))
    }

    /// An attempt begins on `device`.
    ///
    /// assumed: what a crash may have left for neighbours goes first.
    fn begin(&self, device: PodDevice) -> Result<(), ElectionError> {
        self.clear_told(device)?;
        self.write(device, offset::ELECTION_STATUS, StatusWord::INIT.encode())
    }

    /// Tells the neighbours two values; the word that they look at comes last.
    fn tell(&self, device: PodDevice, left: u64, right: u64) -> Result<(), ElectionError> {
        let words = [split(left), split(right)];
        for (at, word) in (offset::NEIGHBOURS..).step_by(4).zip(words.into_iter().flatten()) {
            self.write(device, at, word)?;
        }
        Ok(())
    }

    /// Takes them back, in the reverse order.
    fn clear_told(&self, device: PodDevice) -> Result<(), ElectionError> {
        for at in (offset::NEIGHBOURS..offset::NEIGHBOURS + 16).step_by(4).rev() {
            self.write(device, at, 0)?;
        }
        Ok(())
    }

    /// The last words of a failed attempt. A device that is gone keeps what it has.
    fn commit_failure(&self, device: PodDevice) {
        let _ = self.clear_told(device);
        let _ = self.write(device, offset::ELECTION_STATUS, StatusWord::FAILURE.encode());
        if device == PodDevice::PRIMARY {
            let _ = self.write_serial(0);
        }
    }

    fn write_serial(&self, serial: u64) -> Result<(), ElectionError> {
        let [high, low] = split(serial);
        self.write(PodDevice::PRIMARY, offset::POD_SERIAL_HIGH, high)?;
        self.write(PodDevice::PRIMARY, offset::POD_SERIAL_LOW, low)
    }
}

fn own(device: PodDevice, error: crate::wires::WireError) -> ElectionError {
    ElectionError::Wire { device, side: None, error }
}
