//! One UDMA unit: its registers and the state of its 16 queue pairs (specification 02 §13).

use super::QUEUES;
use super::iofic::Cause;
use super::registers::{self as reg, Place, S2M, queue};
use super::ring::{Ring, Rung};
use crate::memory::pages::Pages;

/// One direction of a unit.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Direction {
    /// Stopped by a cause or a command; only a reset of the unit ends it.
    pub aborted: bool,
    /// Commanded off; NORMAL ends it.
    pub disabled: bool,
    /// One bit a queue.
    pub prefetch: u16,
}

/// A packet on its way from M2S to S2M.
#[derive(Default, Debug)]
pub(crate) struct Packet {
    /// Holds at least `used` bytes, unless it is a `run`.
    pub bytes: Vec<u8>,
    /// All of it is a run of this word in HBM; the bytes were not looked at.
    pub run: Option<u32>,
    pub used: usize,
    /// Bytes already written to destinations.
    pub written: usize,
    /// Descriptors taken since FIRST; 0 is "no packet".
    pub descriptors: u32,
    /// LAST was taken.
    pub complete: bool,
    /// Source of the first descriptor.
    pub source: u64,
    /// Some Tx descriptor asked for an interrupt.
    pub interrupt: bool,
}

impl Packet {
    /// Forgets the packet and keeps the buffer.
    pub fn clear(&mut self) {
        *self = Packet { bytes: std::mem::take(&mut self.bytes), ..Packet::default() };
    }
}

/// How long a queue executes nothing because of a fault knob.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Hang {
    No,
    UntilQueueReset,
    UntilUnitReset,
}

/// A queue pair.
#[derive(Debug)]
pub(crate) struct Queue {
    /// M2S, S2M.
    pub rings: [Ring; 2],
    pub cfg: [u32; 2],
    pub packet: Packet,
    pub hang: Hang,
    /// Its work waits for a timed event or for [`Function::advance`](crate::Function::advance).
    pub waiting: bool,
    /// Counts what makes a waiting event of this queue stale.
    pub epoch: u32,
}

impl Queue {
    fn new() -> Self {
        Queue {
            rings: [Ring::default(), Ring::default()],
            cfg: [
                reg::reset_value(reg::QUEUE_WINDOWS + queue::CFG),
                reg::reset_value(S2M + reg::QUEUE_WINDOWS + queue::CFG),
            ],
            packet: Packet::default(),
            hang: Hang::No,
            waiting: false,
            epoch: 0,
        }
    }

    fn has_work(&self, s2m: bool) -> bool {
        self.rings[usize::from(s2m)].outstanding() > 0 || self.packet.descriptors > 0
    }
}

/// What a register write asks the function to do.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Effect {
    None,
    /// Queue may have become runnable.
    Service(usize),
    /// All queues may have.
    ServiceAll,
    Doorbell {
        queue: usize,
        s2m: bool,
        value: u32,
        rung: Rung,
        fresh: bool,
    },
    /// Ring geometry changed while descriptors were pending.
    RingChanged(usize),
    Stopped(Cause),
}

/// One unit.
#[derive(Debug)]
pub(crate) struct Unit {
    pages: Pages,
    /// Resets of the unit so far; what was begun before one is dropped.
    pub generation: u32,
    pub directions: [Direction; 2],
    pub queues: Vec<Queue>,
}

impl Unit {
    pub fn new() -> Self {
        let direction = Direction { aborted: false, disabled: false, prefetch: 0xffff };
        Unit {
            pages: Pages::default(),
            generation: 0,
            directions: [direction; 2],
            queues: (0..QUEUES).map(|_| Queue::new()).collect(),
        }
    }

    /// Power-on state: registers, rings, aborts, hangs. Stale events see a new epoch.
    pub fn reset(&mut self) {
        let epochs: Vec<u32> = self.queues.iter().map(|queue| queue.epoch).collect();
        *self = Unit { generation: self.generation.wrapping_add(1), ..Unit::new() };
        for (queue, epoch) in self.queues.iter_mut().zip(epochs) {
            queue.epoch = epoch.wrapping_add(1);
        }
    }

    /// The stored value of a register.
    #[inline]
    pub fn stored(&self, offset: u64) -> u32 {
        self.pages.get(offset).unwrap_or_else(|| reg::reset_value(offset))
    }

    /// The stored register, to change.
    #[inline]
    pub fn slot(&mut self, offset: u64) -> &mut u32 {
        self.pages.slot(offset, reg::reset_value)
    }

    pub fn abort(&mut self, s2m: bool) {
        self.directions[usize::from(s2m)].aborted = true;
    }

    /// Whether the queue may fetch descriptors of that direction.
    #[inline]
    pub fn may_fetch(&self, s2m: bool, q: usize) -> bool {
        let direction = &self.directions[usize::from(s2m)];
        self.is_running(s2m, q, queue::ENABLE_PREFETCH) && direction.prefetch & 1 << q != 0
    }

    /// Whether the queue may execute descriptors of that direction. S2M needs both enables.
    #[inline]
    pub fn may_execute(&self, s2m: bool, q: usize) -> bool {
        let needed = queue::ENABLE_EXECUTION | if s2m { queue::ENABLE_PREFETCH } else { 0 };
        self.is_running(s2m, q, needed)
    }

    fn is_running(&self, s2m: bool, q: usize, needed: u32) -> bool {
        let direction = &self.directions[usize::from(s2m)];
        let queue = &self.queues[q];
        !direction.aborted
            && !direction.disabled
            && queue.hang == Hang::No
            && queue.cfg[usize::from(s2m)] & needed == needed
    }

    /// A 32-bit read.
    pub fn read(&self, offset: u64) -> u32 {
        match reg::place(offset) {
            Place::Queue { s2m, queue, register } => self.read_queue(s2m, queue, register, offset),
            Place::Global { s2m, register } => match register {
                reg::STATE => self.state(s2m),
                reg::CHANGE_STATE | reg::CLEAR_ERROR_LOG => 0,
                _ => self.stored(offset),
            },
            Place::Iofic(register) => self.read_iofic(register),
            Place::Other => self.stored(offset),
        }
    }

    fn read_queue(&self, s2m: bool, q: usize, register: u64, offset: u64) -> u32 {
        let pair = &self.queues[q];
        let ring = &pair.rings[usize::from(s2m)];
        match (register, s2m) {
            (queue::CFG, _) => pair.cfg[usize::from(s2m)],
            (queue::STATUS, _) => self.status(s2m, q),
            (queue::BASE_LOW, _) => ring.base as u32,
            (queue::BASE_HIGH, _) => (ring.base >> 32) as u32,
            (queue::LENGTH, _) => ring.length,
            (queue::HEAD, _) => ring.head.register(),
            (queue::TAIL, _) => ring.tail.register(),
            (queue::CURRENT, _) => ring.current.register(),
            (queue::COMPLETION_HEAD | queue::COMPLETION_HEAD_INTERNAL, _) => {
                ring.completion.register()
            }
            (queue::PACKETS_M2S, false) | (queue::PACKETS_S2M, true) => ring.packets,
            (queue::DOORBELL, _)
            | (queue::SW_CTRL_M2S | queue::DATA_TAIL_INC | queue::DATA_TAIL, false)
            | (queue::SW_CTRL_S2M, true) => 0,
            _ => self.stored(offset),
        }
    }

    /// `state`: every field 2 when aborted, 1 while there is work, else 0.
    fn state(&self, s2m: bool) -> u32 {
        let ones = if s2m { 0x1_1111 } else { 0x1111 };
        let busy = |q: usize| self.may_execute(s2m, q) && self.queues[q].has_work(s2m);
        if self.directions[usize::from(s2m)].aborted {
            2 * ones
        } else if (0..QUEUES).any(busy) {
            ones
        } else {
            0
        }
    }

    /// Queue `status`. A hung queue with work never counts as drained.
    fn status(&self, s2m: bool, q: usize) -> u32 {
        let pair = &self.queues[q];
        let ring = &pair.rings[usize::from(s2m)];
        let hung = pair.hang != Hang::No && ring.outstanding() > 0;
        let fetching = self.may_fetch(s2m, q) && ring.pending > 0 && ring.has_room();
        let in_packet = if s2m { pair.packet.written > 0 } else { pair.packet.descriptors > 0 };
        let waits = pair.waiting && ring.outstanding() > 0 && self.may_execute(s2m, q);
        ring.outstanding().min(0x1ff_ffff)
            | u32::from(fetching) << 28
            | u32::from(in_packet || hung || waits) << 29
            | u32::from(ring.overrun) << 31
    }

    /// A 32-bit write.
    pub fn write(&mut self, offset: u64, value: u32) -> Effect {
        match reg::place(offset) {
            Place::Queue { s2m, queue, register } => {
                self.write_queue(s2m, queue, register, offset, value)
            }
            Place::Global { s2m, register } => self.write_global(s2m, register, offset, value),
            Place::Iofic(register) => {
                self.write_iofic(register, value).map_or(Effect::None, Effect::Stopped)
            }
            Place::Other => {
                *self.slot(offset) = value;
                Effect::None
            }
        }
    }

    fn write_global(&mut self, s2m: bool, register: u64, offset: u64, value: u32) -> Effect {
        let prefetch = if s2m { reg::PREFETCH_ENABLE_S2M } else { reg::PREFETCH_ENABLE_M2S };
        match register {
            reg::STATE | reg::FEATURE | reg::DMA_VERSION => Effect::None,
            reg::ERROR_LOG..reg::CLEAR_ERROR_LOG => Effect::None,
            reg::CHANGE_STATE => self.command(s2m, value),
            reg::CLEAR_ERROR_LOG => {
                if value & 1 != 0 {
                    (0..4).for_each(|word| {
                        *self.slot(offset - reg::CLEAR_ERROR_LOG + reg::ERROR_LOG + 4 * word) = 0;
                    });
                }
                Effect::None
            }
            _ => {
                *self.slot(offset) = value;
                if register == prefetch {
                    self.directions[usize::from(s2m)].prefetch = value as u16;
                    return Effect::ServiceAll;
                }
                Effect::None
            }
        }
    }

    fn command(&mut self, s2m: bool, value: u32) -> Effect {
        let direction = &mut self.directions[usize::from(s2m)];
        match value {
            1 => {
                direction.disabled = false;
                return Effect::ServiceAll;
            }
            2 => direction.disabled = true,
            4 => direction.aborted = true,
            _ => {}
        }
        Effect::None
    }

    fn write_queue(
        &mut self,
        s2m: bool,
        q: usize,
        register: u64,
        offset: u64,
        value: u32,
    ) -> Effect {
        let pair = &mut self.queues[q];
        let ring = &mut pair.rings[usize::from(s2m)];
        let geometry = if ring.pending > 0 { Effect::RingChanged(q) } else { Effect::None };
        match (register, s2m) {
            (queue::DOORBELL, _) => {
                let fresh = ring.fresh;
                let rung = ring.ring(value);
                return Effect::Doorbell { queue: q, s2m, value, rung, fresh };
            }
            (queue::CFG, _) => {
                pair.cfg[usize::from(s2m)] = value;
                return Effect::Service(q);
            }
            (queue::BASE_LOW, _) => {
                ring.base = ring.base & !0xffff_ffff | u64::from(value & !0x3f);
                return geometry;
            }
            (queue::BASE_HIGH, _) => {
                ring.base = ring.base & 0xffff_ffff | u64::from(value) << 32;
                return geometry;
            }
            (queue::LENGTH, _) => {
                ring.length = value & 0xff_ffff;
                ring.fresh = false;
                return geometry;
            }
            (queue::SW_CTRL_M2S, false) | (queue::SW_CTRL_S2M, true) => {
                pair.control(s2m, value);
            }
            (queue::STATUS | queue::HEAD | queue::TAIL | queue::CURRENT, _)
            | (queue::COMPLETION_HEAD | queue::COMPLETION_HEAD_INTERNAL, _)
            | (queue::PACKETS_M2S | queue::DATA_TAIL, false)
            | (queue::PACKETS_S2M, true) => {}
            (queue::COMPLETION_BASE_LOW, _) => *self.slot(offset) = value & !0x3f,
            _ => *self.slot(offset) = value,
        }
        Effect::None
    }
}

impl Queue {
    /// `q_sw_ctrl`.
    fn control(&mut self, s2m: bool, value: u32) {
        use super::ring::Pointer;
        let ring = &mut self.rings[usize::from(s2m)];
        let bit = |number: u32| value & 1 << number != 0;
        if bit(1) {
            ring.tail = Pointer::START;
        }
        if bit(2) {
            ring.head = Pointer::START;
        }
        if bit(3) {
            ring.current = Pointer::START;
        }
        if value & queue::RST_Q != 0 {
            ring.reset_queue();
            if !s2m || self.packet.written > 0 {
                self.packet.clear();
            }
            self.epoch = self.epoch.wrapping_add(1);
            self.waiting = false;
            if self.hang == Hang::UntilQueueReset {
                self.hang = Hang::No;
            }
        }
    }
}
