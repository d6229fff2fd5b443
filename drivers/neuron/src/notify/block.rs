//! One NOTIFIC block: what is written to arm, to halt and to restart a queue, in which order
//! (specification 06 §4.3, §4.4, §17.2, §17.3).
//!
//! Block-wide registers are kept here as they were written and never read back. They are touched
//! only where the driver manages queues.

use core::fmt;

use axon_platform::{DeviceAddr, MmioWindow};
use axon_ports::CoreId;

use super::{Producer, QueueCounters, WhenFull};
use crate::hal::HardwareQueue;
use crate::registers::notific::{self, Queue};

/// Queues whose records go through a coalescer.
const COALESCED: u8 = 4;

/// Queues whose figures a block keeps; silicon has ten.
const POSITIONS: usize = 16;

/// A block as metrics name it: `nc3`, `ts9`, `nc0.dma4` (specification 07 §16.4).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct BlockName {
    /// Who fills its queues.
    pub producer: Producer,
    /// Engine of the core whose trace it holds.
    pub engine: Option<u8>,
}

impl fmt::Display for BlockName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.producer {
            Producer::Core(core) => write!(f, "nc{core}")?,
            Producer::TopSp(topsp) => write!(f, "ts{topsp}")?,
        }
        self.engine.map_or(Ok(()), |engine| write!(f, ".dma{engine}"))
    }
}

/// Registers of a block that several queues share, and what became of the queues that are gone.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Block {
    name: BlockName,
    start: u64,
    single: bool,
    core: CoreId,
    /// Brought up since the last reset.
    up: bool,
    enabled: u32,
    back_pressure: u32,
    ignore_full: u32,
    /// Queues that may have lost a record since they were looked after: the cause does not say
    /// which one it was.
    suspects: u32,
    /// By position; `None` for one that never was a queue.
    past: [Option<QueueCounters>; POSITIONS],
}

impl Block {
    /// The block of a queue, as after a reset.
    pub(super) const fn new(queue: &HardwareQueue, name: BlockName) -> Self {
        Block {
            name,
            past: [None; POSITIONS],
            start: queue.block,
            single: queue.single,
            core: queue.core,
            up: false,
            enabled: 0,
            back_pressure: 0,
            ignore_full: 0,
            suspects: 0,
        }
    }

    /// How metrics name it.
    pub(super) const fn name(&self) -> BlockName {
        self.name
    }

    /// A queue at this position is gone.
    pub(super) fn remember(&mut self, position: u8, counters: &QueueCounters) {
        if let Some(past) = self.past.get_mut(usize::from(position)) {
            let past = past.get_or_insert_default();
            *past = past.plus(counters);
        }
    }

    /// What became of the queues that are gone, by position; `None` where there was none.
    pub(super) const fn past(&self) -> &[Option<QueueCounters>; POSITIONS] {
        &self.past
    }

    /// First register.
    pub(super) const fn start(&self) -> u64 {
        self.start
    }

    /// Core whose reset puts it back.
    pub(super) const fn core(&self) -> CoreId {
        self.core
    }

    /// A reset has put every register back.
    pub(super) const fn forget(&mut self) {
        self.up = false;
        self.enabled = 0;
        self.back_pressure = 0;
        self.ignore_full = 0;
        self.suspects = 0;
    }

    /// Programs ring and size, then, where the driver manages queues, enables the queue.
    pub(super) fn arm<W: MmioWindow>(
        &mut self,
        window: &W,
        position: u8,
        ring: DeviceAddr,
        size: u32,
        managed: Option<WhenFull>,
    ) {
        let queue = Queue::new(self.start, position);
        window.write32(queue.base_high(), (ring.0 >> 32) as u32);
        window.write32(queue.base_low(), ring.0 as u32);
        window.write32(queue.size(), size);
        let Some(when_full) = managed else { return };
        self.set_policy(window, position, when_full);
        self.enable(window, position);
    }

    fn set_policy<W: MmioWindow>(&mut self, window: &W, position: u8, when_full: WhenFull) {
        let bit = 1 << position;
        let wanted = match when_full {
            WhenFull::Stall => self.back_pressure | bit,
            WhenFull::Drop => self.back_pressure & !bit,
        };
        if !self.up {
            self.bring_up(window, wanted);
        } else if wanted != self.back_pressure {
            window.write32(self.start + notific::BACK_PRESSURE, wanted);
        }
        self.back_pressure = wanted;
    }

    /// Once a block and reset.
    ///
    /// assumed: UART mode 0; no text says more than that it is written.
    fn bring_up<W: MmioWindow>(&mut self, window: &W, back_pressure: u32) {
        let write = |offset, value| window.write32(self.start + offset, value);
        write(notific::UART_MODE, 0);
        write(notific::WRITE_OUT_CONTROL, notific::WRITE_OUT_ROTATE);
        if !self.single {
            write(notific::COALESCER_TIMER, notific::COALESCER_TIME);
        }
        notific::WRITE_BUFFER_ENABLE.into_iter().for_each(|offset| write(offset, u32::MAX));
        write(notific::BACK_PRESSURE, back_pressure);
        notific::HARDWARE_BACK_PRESSURE.into_iter().for_each(|offset| write(offset, u32::MAX));
        self.up = true;
    }

    fn enable<W: MmioWindow>(&mut self, window: &W, position: u8) {
        let bit = 1 << position;
        self.suspects &= !bit;
        if self.ignore_full & bit != 0 {
            self.ignore_full &= !bit;
            window.write32(self.start + notific::IGNORE_FULL, self.ignore_full);
        }
        window.write32(Queue::new(self.start, position).head(), 0);
        self.enabled |= bit;
        window.write32(self.start + notific::ENABLE, self.enabled);
    }

    /// Switches the queue off: the size first, so that no record goes to address 0.
    pub(super) fn halt<W: MmioWindow>(&mut self, window: &W, position: u8) {
        let queue = Queue::new(self.start, position);
        window.write32(queue.size(), 0);
        window.write32(queue.base_high(), 0);
        window.write32(queue.base_low(), 0);
        let bit = 1 << position;
        if self.enabled & bit != 0 {
            self.enabled &= !bit;
            window.write32(self.start + notific::ENABLE, self.enabled);
        }
    }

    /// Holds the queue up so that it drains and starts anew; [`Self::resume`] lets it go on.
    pub(super) fn suspend<W: MmioWindow>(&mut self, window: &W, position: u8) {
        let bit = 1 << position;
        // A producer that waits for room in a queue nobody reads would never drain.
        self.ignore_full |= bit;
        window.write32(self.start + notific::IGNORE_FULL, self.ignore_full);
        self.enabled &= !bit;
        window.write32(self.start + notific::ENABLE, self.enabled);
        if !self.single && position < COALESCED {
            window.write32(self.start + notific::COALESCER_CONTROL, notific::COALESCER_CLEAR);
            window.write32(self.start + notific::COALESCER_CONTROL, 0);
        }
    }

    /// The ring is cleared: the queue starts at its first record.
    pub(super) fn resume<W: MmioWindow>(&mut self, window: &W, position: u8) {
        self.enable(window, position);
    }

    /// Whether the queue, which is full, may have lost a record since it was looked after. The
    /// block latches that some queue did: every one that is found full before it is told of more
    /// room counts, so that no loss is missed.
    pub(super) fn take_overflow<W: MmioWindow>(&mut self, window: &W, position: u8) -> bool {
        let cause = window.read32(self.start + notific::CAUSE);
        if cause & notific::OVERFLOW != 0 {
            window.write32(self.start + notific::CAUSE, !notific::OVERFLOW);
            self.suspects = u32::MAX;
        }
        let lost = self.suspects & 1 << position != 0;
        self.clear_suspicion(position);
        lost
    }

    /// The queue is not full: it has lost nothing.
    #[inline]
    pub(super) const fn clear_suspicion(&mut self, position: u8) {
        self.suspects &= !(1 << position);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::FakeWindow;

    const START: u64 = 0x3053_5000;
    const RING: DeviceAddr = DeviceAddr(0x1000_1234_5000);

    fn block(single: bool) -> Block {
        let core = CoreId::new(0).unwrap();
        let queue = HardwareQueue { block: START, position: 4, single, core, engine: None };
        Block::new(&queue, BlockName { producer: Producer::Core(0), engine: None })
    }

    fn offsets(writes: &[(u64, u32)]) -> std::vec::Vec<(u64, u32)> {
        writes.iter().map(|(offset, value)| (offset - START, *value)).collect()
    }

    #[test]
    fn nq_e01_nq_d08_the_order_of_writes() {
        let (window, mut block) = (FakeWindow::new(), block(false));
        block.arm(&window, 4, RING, 0x4000, None);
        let expected = [(0x3053_51a4, 0x1000), (0x3053_51a0, 0x1234_5000), (0x3053_51a8, 0x4000)];
        assert_eq!(window.take_writes(), expected);
        block.halt(&window, 4);
        let expected = [(0x3053_51a8, 0), (0x3053_51a4, 0), (0x3053_51a0, 0)];
        assert_eq!(window.take_writes(), expected);
    }

    #[test]
    fn a_block_is_brought_up_once_until_a_reset() {
        let (window, mut block) = (FakeWindow::new(), block(false));
        block.arm(&window, 4, RING, 0x4000, Some(WhenFull::Stall));
        let ones = u32::MAX;
        let bring_up = [
            (0x28, 0),
            (0xbc, 1),
            (0xb4, 0xa_ae60),
            (0x30, ones),
            (0x34, ones),
            (0x08, 0x10),
            (0x0c, ones),
            (0x10, ones),
            (0x1ac, 0),
            (0x14, 0x10),
        ];
        assert_eq!(offsets(&window.take_writes()[3..]), bring_up);
        block.arm(&window, 2, RING, 0x4000, Some(WhenFull::Drop));
        assert_eq!(offsets(&window.take_writes()[3..]), [(0x15c, 0), (0x14, 0x14)]);
        block.arm(&window, 3, RING, 0x4000, Some(WhenFull::Stall));
        assert_eq!(offsets(&window.take_writes()[3..]), [(0x08, 0x18), (0x184, 0), (0x14, 0x1c)]);
        block.halt(&window, 2);
        assert_eq!(offsets(&window.take_writes()[3..]), [(0x14, 0x18)]);
        block.forget();
        block.arm(&window, 4, RING, 0x4000, Some(WhenFull::Drop));
        assert_eq!(window.take_writes().len(), 13);
    }

    #[test]
    fn a_block_of_one_queue_has_no_coalescer() {
        let (window, mut block) = (FakeWindow::new(), block(true));
        block.arm(&window, 0, RING, 0x4000, Some(WhenFull::Drop));
        block.suspend(&window, 0);
        let written: std::vec::Vec<u64> =
            offsets(&window.take_writes()).into_iter().map(|(offset, _)| offset).collect();
        assert!(!written.contains(&0xb4) && !written.contains(&0xb8));
    }

    #[test]
    fn a_queue_is_held_up_and_let_go() {
        let (window, mut block) = (FakeWindow::new(), block(false));
        block.arm(&window, 2, RING, 0x4000, Some(WhenFull::Drop));
        window.take_writes();
        block.suspend(&window, 2);
        let held = [(0x18, 4), (0x14, 0), (0xb8, 0x200), (0xb8, 0)];
        assert_eq!(offsets(&window.take_writes()), held);
        block.resume(&window, 2);
        assert_eq!(offsets(&window.take_writes()), [(0x18, 0), (0x15c, 0), (0x14, 4)]);
    }

    #[test]
    fn blocks_are_named_as_metrics_name_them() {
        let name = |producer, engine| std::format!("{}", BlockName { producer, engine });
        assert_eq!(name(Producer::Core(3), None), "nc3");
        assert_eq!(name(Producer::TopSp(9), None), "ts9");
        assert_eq!(name(Producer::Core(0), Some(4)), "nc0.dma4");
    }

    #[test]
    fn what_became_of_queues_outlives_them() {
        let mut block = block(false);
        assert_eq!(*block.past(), [None; POSITIONS]);
        let counters = QueueCounters { consumed: 3, overflows: 1, ..QueueCounters::default() };
        block.remember(4, &counters);
        block.remember(4, &counters);
        block.remember(16, &counters);
        let twice = QueueCounters { consumed: 6, overflows: 2, ..QueueCounters::default() };
        assert_eq!((block.past()[4], block.past()[3]), (Some(twice), None));
    }

    #[test]
    fn a_lost_record_is_seen_once() {
        let (window, mut block) = (FakeWindow::new(), block(false));
        assert!(!block.take_overflow(&window, 4));
        assert!(window.take_writes().is_empty());
        window.set(START + 0xf40, 0x2000_0001);
        assert!(block.take_overflow(&window, 4));
        assert_eq!(offsets(&window.take_writes()), [(0xf40, !0x2000_0000)]);
        // Whoever else is full cannot know whose record it was; who is not knows that it was not.
        window.set(START + 0xf40, 0);
        block.clear_suspicion(3);
        assert!(!block.take_overflow(&window, 3) && block.take_overflow(&window, 2));
        assert!(!block.take_overflow(&window, 2) && !block.take_overflow(&window, 4));
    }
}
