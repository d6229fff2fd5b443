//! What happens later: the timed events of a function, in order of time, then of creation.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use crate::mailbox::Answer;

/// Something that happens by itself.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) enum Later {
    /// Firmware has started, unless a reset came in between.
    FirmwareUp { reset: u64 },
    /// The running reset ends.
    ResetDone,
    /// `FW_STATUS` turns to ready, unless another reset came in between.
    Ready { reset: u64 },
    /// The reset doorbell of the simulator reads 0 again.
    QemuDoorbellDone,
    /// A mailbox answer arrives, unless a reset came in between.
    Mailbox { reset: u64, answer: Answer },
    /// A queue held back by a fault goes on.
    Service { engine: usize, queue: usize, epoch: u32 },
    /// The next share of notifications that are posted by and by.
    Notifications { number: u64 },
    /// A marker held back by a fault is written, unless the unit was reset.
    Marker { engine: usize, generation: u32, address: u64, value: u32 },
}

/// The events to come.
#[derive(Default, Debug)]
pub(crate) struct Agenda {
    heap: BinaryHeap<Reverse<(u64, u64, Later)>>,
    made: u64,
}

impl Agenda {
    pub fn add(&mut self, at_ns: u64, later: Later) {
        self.made += 1;
        self.heap.push(Reverse((at_ns, self.made, later)));
    }

    /// When the first event is due.
    #[inline]
    pub fn first(&self) -> Option<u64> {
        self.heap.peek().map(|Reverse((at, ..))| *at)
    }

    /// The first event and its time, if it is due at `now_ns`.
    pub fn due(&mut self, now_ns: u64) -> Option<(u64, Later)> {
        if self.first()? > now_ns {
            return None;
        }
        self.heap.pop().map(|Reverse((at, _, later))| (at, later))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn events_come_in_order_of_time_then_of_creation() {
        let mut agenda = Agenda::default();
        agenda.add(5, Later::ResetDone);
        agenda.add(3, Later::QemuDoorbellDone);
        agenda.add(5, Later::FirmwareUp { reset: 0 });
        assert_eq!((agenda.first(), agenda.due(2)), (Some(3), None));
        let order: Vec<Later> =
            std::iter::from_fn(|| agenda.due(5)).map(|(_, later)| later).collect();
        assert_eq!(
            order,
            [Later::QemuDoorbellDone, Later::ResetDone, Later::FirmwareUp { reset: 0 }]
        );
    }
}
