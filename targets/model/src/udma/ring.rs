//! One ring of a queue: pointers with lap counters, descriptors rung and fetched
//! (specification 02 §7, §13.2).

use std::collections::VecDeque;

use super::descriptor::Descriptor;

/// Slot of a ring with the lap it belongs to, as registers +0x34, +0x3C, +0x40 show it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Pointer {
    pub index: u32,
    pub id: u8,
}

impl Pointer {
    pub const START: Pointer = Pointer { index: 0, id: 1 };

    pub fn register(self) -> u32 {
        self.index | u32::from(self.id) << 30
    }

    /// Moves on by `count` slots of a ring of `length`; every wrap begins a lap.
    pub fn advance(&mut self, count: u32, length: u32) {
        let sum = u64::from(self.index) + u64::from(count);
        let length = u64::from(length.max(1));
        self.index = (sum % length) as u32;
        self.id = ((u64::from(self.id) + sum / length) % 4) as u8;
    }
}

/// Fetched descriptors that a queue holds at most.
pub(crate) const FIFO: u32 = 128;
/// A queue fetches again when it holds fewer.
const REFILL: u32 = 65;

/// What a doorbell was.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Rung {
    /// Value 0: ignored.
    Zero,
    /// The queue has no ring: ignored.
    NoRing,
    /// Taken; more is rung now than the ring holds.
    Overrun,
    /// Taken.
    Taken,
}

/// One direction of one queue.
#[derive(Debug)]
pub(crate) struct Ring {
    pub base: u64,
    pub length: u32,
    pub head: Pointer,
    pub tail: Pointer,
    pub current: Pointer,
    pub completion: Pointer,
    /// Descriptors rung and not fetched. An integer of its own, so that a full lap differs from
    /// an empty ring.
    pub pending: u32,
    /// Status bit 31.
    pub overrun: bool,
    /// No queue init since the last reset of the unit.
    pub fresh: bool,
    /// Packets completed.
    pub packets: u32,
    fifo: VecDeque<Descriptor>,
}

impl Default for Ring {
    fn default() -> Self {
        Ring {
            base: 0x40,
            length: 0,
            head: Pointer::START,
            tail: Pointer::START,
            current: Pointer::START,
            completion: Pointer::START,
            pending: 0,
            overrun: false,
            fresh: true,
            packets: 0,
            fifo: VecDeque::new(),
        }
    }
}

impl Ring {
    /// Register +0x38.
    pub fn ring(&mut self, value: u32) -> Rung {
        let count = value & 0xff_ffff;
        if count == 0 {
            return Rung::Zero;
        }
        if self.length == 0 {
            return Rung::NoRing;
        }
        self.tail.advance(count, self.length);
        self.pending = self.pending.saturating_add(count);
        if self.outstanding() > self.length {
            self.overrun = true;
            return Rung::Overrun;
        }
        Rung::Taken
    }

    /// Descriptors rung and not executed.
    pub fn outstanding(&self) -> u32 {
        self.pending.saturating_add(self.fifo.len() as u32)
    }

    /// Slots that may be fetched at once: address of the first, and their number. They never pass
    /// the end of the ring. Nothing is fetched while half the FIFO is full.
    pub fn fetchable(&self) -> Option<(u64, u32)> {
        let held = self.fifo.len() as u32;
        let room = if held < REFILL { FIFO - held } else { 0 };
        // A ring that was made shorter under way may leave the head behind its end.
        let until_end = self.length.checked_sub(self.head.index)?.max(1);
        let count = self.pending.min(room).min(until_end);
        let address = self.base.wrapping_add(u64::from(self.head.index) * 16);
        (count > 0).then_some((address, count))
    }

    /// Takes over a fetched descriptor.
    pub fn push(&mut self, descriptor: Descriptor) {
        self.fifo.push_back(descriptor);
        self.head.advance(1, self.length);
        self.pending = self.pending.saturating_sub(1);
    }

    /// Passes over the slot at the head without executing it.
    pub fn skip_fetch(&mut self) {
        self.head.advance(1, self.length);
        self.pending = self.pending.saturating_sub(1);
    }

    /// The next descriptor to execute.
    pub fn next(&self) -> Option<Descriptor> {
        self.fifo.front().copied()
    }

    /// The next descriptor is done.
    pub fn consume(&mut self) {
        if self.fifo.pop_front().is_some() {
            self.current.advance(1, self.length);
        }
    }

    /// Whether there is room for more fetched descriptors.
    pub fn has_room(&self) -> bool {
        (self.fifo.len() as u32) < FIFO
    }

    /// RST_Q: everything but geometry.
    pub fn reset_queue(&mut self) {
        self.head = Pointer::START;
        self.tail = Pointer::START;
        self.current = Pointer::START;
        self.completion = Pointer::START;
        self.pending = 0;
        self.overrun = false;
        self.fifo.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn udma_e07_laps_are_1_2_3_0() {
        let mut pointer = Pointer::START;
        for (pairs, id) in [(8192, 2), (8192, 3), (8192, 0), (8192, 1)] {
            pointer.advance(pairs, 8192);
            assert_eq!(pointer, Pointer { index: 0, id });
        }
        assert_eq!(pointer.register(), 0x4000_0000);
    }

    #[test]
    fn udma_e13_doorbells_of_0_len_and_more() {
        let mut ring = Ring::default();
        assert_eq!(ring.ring(2), Rung::NoRing);
        ring.length = 32;
        assert_eq!(ring.ring(0), Rung::Zero);
        assert_eq!(ring.ring(32), Rung::Taken);
        assert_eq!((ring.pending, ring.tail), (32, Pointer { index: 0, id: 2 }));
        assert_eq!(ring.ring(1), Rung::Overrun);
        ring.reset_queue();
        assert_eq!((ring.pending, ring.tail, ring.overrun), (0, Pointer::START, false));
    }

    #[test]
    fn fetches_stop_at_the_end_of_the_ring_and_at_the_fifo() {
        let mut ring = Ring { base: 0x1000, length: 200, ..Ring::default() };
        ring.ring(200);
        assert_eq!(ring.fetchable(), Some((0x1000, 128)));
        (0..128).for_each(|_| ring.push(Descriptor::default()));
        assert_eq!(ring.fetchable(), None);
        (0..100).for_each(|_| ring.consume());
        ring.ring(50);
        assert_eq!(ring.fetchable(), Some((0x1000 + 128 * 16, 72)));
    }
}
