//! One queue as the hardware sees it: where the next record goes, and what could not go
//! (specification 06 §7.2).

use std::collections::VecDeque;

use super::RECORD_BYTES;
use super::burst::Burst;

/// Counts since the function was made.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(super) struct Counts {
    pub posted: u64,
    pub written: u64,
    pub dropped: u64,
    pub unarmed: u64,
    pub nowhere: u64,
}

/// Where the next record goes.
pub(super) struct Next {
    pub address: u64,
    pub phase: bool,
    /// The producer pointer behind it.
    pub tail: u32,
}

/// The producer's side of one queue.
#[derive(Debug, Default)]
pub(super) struct Producer {
    base: u64,
    /// Whole records; 0 while the queue is off.
    size: u32,
    position: u32,
    /// How often the ring wrapped.
    laps: u64,
    stalled: VecDeque<Burst>,
    pub counts: Counts,
}

impl Producer {
    /// Takes another ring.
    pub fn arm(&mut self, base: u64, size: u32) {
        self.stop();
        self.base = base;
        self.size = size - size % RECORD_BYTES;
    }

    /// Goes off; what waits is lost.
    pub fn stop(&mut self) {
        self.restart();
        self.base = 0;
        self.size = 0;
    }

    /// Begins the ring anew; what waits is lost.
    pub fn restart(&mut self) {
        self.counts.dropped += self.stalled();
        self.stalled.clear();
        self.position = 0;
        self.laps = 0;
    }

    pub fn base(&self) -> u64 {
        self.base
    }

    pub fn size(&self) -> u32 {
        self.size
    }

    /// The first pass writes 1, every wrap inverts it.
    pub fn phase(&self) -> bool {
        self.laps.is_multiple_of(2)
    }

    /// Whether one more record would reach the consumer pointer.
    pub fn is_full(&self, head: u32) -> bool {
        self.behind() == head
    }

    pub fn next(&self) -> Next {
        let address = self.base.wrapping_add(u64::from(self.position));
        Next { address, phase: self.phase(), tail: self.behind() }
    }

    pub fn advance(&mut self) {
        self.position = self.behind();
        if self.position == 0 {
            self.laps += 1;
        }
    }

    fn behind(&self) -> u32 {
        match self.position + RECORD_BYTES {
            end if end >= self.size => 0,
            next => next,
        }
    }

    pub fn hold(&mut self, burst: Burst) {
        self.stalled.push_back(burst);
    }

    pub fn hold_first(&mut self, burst: Burst) {
        self.stalled.push_front(burst);
    }

    pub fn take_stalled(&mut self) -> Option<Burst> {
        self.stalled.pop_front()
    }

    pub fn has_stalled(&self) -> bool {
        !self.stalled.is_empty()
    }

    pub fn stalled(&self) -> u64 {
        self.stalled.iter().map(Burst::left).sum()
    }
}
