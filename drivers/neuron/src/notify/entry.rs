//! One notification queue: its ring, its reader, its place in life (specification 06 §6.1, §17.5).

use axon_platform::{Instant, MmioWindow, WordRing};
use axon_ports::{Chunk, ClientId, Pin};

use super::block::Block;
use super::cursor::Cursor;
use super::record::{Notification, RECORD_BYTES, Reader};
use super::{QueueCounters, QueueSpec, WhenFull};
use crate::Error;
use crate::hal::HardwareQueue;
use crate::registers::notific::Queue;
use crate::wake::WakerList;

/// Records without meaning that one call skips; the next call goes on.
const SKIPPED_AT_ONCE: u32 = 64;
/// The hardware is told at the latest when this share of the ring was read.
const TOLD_SHARE: u32 = 4;
/// It is told at the latest after so many records.
const TOLD_RECORDS: u32 = 64;

/// Where a queue stands.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Status {
    /// The record is unused.
    Free,
    /// A ring is being made for it.
    Creating,
    /// The hardware fills its ring.
    Armed,
    /// Records were lost: it drains, to start anew.
    Suspended {
        /// Since when; [`Instant::FAR_FUTURE`] before the hardware is told.
        since: Instant,
    },
    /// It has drained; its ring has to be cleared.
    Drained,
    /// It is switched off and drains.
    Halting {
        /// Since when.
        since: Instant,
        /// Its producer pointer was seen at 0.
        drained: bool,
        /// Its memory is kept until whoever halted it says so.
        keep: bool,
    },
    /// It is off; a reset or a replacement under way decides about its memory.
    Held {
        /// It has drained.
        drained: bool,
    },
    /// It is off, but hardware may still write its memory.
    Quarantined,
}

/// Memory of a ring. As long as it exists nobody else gets the memory.
pub(super) struct Ring {
    chunk: Chunk,
    pin: Pin,
    /// The CPU's view; `None` for device memory.
    words: Option<WordRing>,
}

impl Ring {
    /// A ring of `size` bytes at the start of `chunk`.
    pub(super) fn new(chunk: Chunk, size: u32) -> Result<Ring, Error> {
        let pin = chunk.pin().ok_or(Error::NoRecords)?;
        let words = match pin.host() {
            Some(memory) => {
                let words = memory.slice(0, size.into()).and_then(|ring| ring.word_ring());
                Some(words.map_err(|_| Error::NoRecords)?)
            }
            None => None,
        };
        Ok(Ring { chunk, pin, words })
    }

    /// Sets all of it to 0, which is "nothing new". `false` for device memory: that takes DMA.
    pub(super) fn clear(&self, size: u32) -> bool {
        self.pin.host().is_some_and(|memory| memory.fill(0, size.into(), 0).is_ok())
    }

    pub(super) fn pin(&self) -> &Pin {
        &self.pin
    }

    pub(super) fn chunk(&self) -> &Chunk {
        &self.chunk
    }

    pub(super) fn words(&self) -> Option<&WordRing> {
        self.words.as_ref()
    }
}

/// What one step of reading gave.
#[derive(Debug)]
pub(super) enum Step {
    /// A notification.
    Record(Notification),
    /// Nothing that is new.
    Nothing,
    /// Much that is no notification; more may be behind it.
    Garbage,
    /// Behind what was read so far, records were lost.
    Lost,
}

/// One queue.
pub(super) struct Entry {
    pub generation: u32,
    pub status: Status,
    pub hardware: HardwareQueue,
    /// Number of its block in the registry.
    pub block: usize,
    pub spec: QueueSpec,
    pub size: u32,
    pub owner: ClientId,
    /// Epoch of its core when it was armed.
    pub epoch: u32,
    /// Handles that name it.
    pub handles: u32,
    pub ring: Option<Ring>,
    pub cursor: Cursor,
    /// Records after which the hardware is told.
    pub told_after: u32,
    pub reader: Reader,
    /// Place of the ring behind which records were lost.
    pub gap: Option<u32>,
    /// Rises whenever those who wait have to be told that their ring is no more.
    pub round: u32,
    pub waiting: WakerList,
    pub idle: Idle,
    pub counters: QueueCounters,
}

/// What is known of a queue on which somebody waits in vain.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Idle {
    /// When the producer pointer is looked at next; `None` before the first turn.
    pub next_look: Option<Instant>,
    /// Since when it is ahead although nothing is new.
    pub ahead_since: Option<Instant>,
    /// Since when the next record is passed over.
    pub passed_since: Option<Instant>,
}

/// Records after which the hardware is told of a ring of `size` bytes.
pub(super) fn told_after(size: u32) -> u32 {
    TOLD_RECORDS.min(size / RECORD_BYTES / TOLD_SHARE)
}

impl Entry {
    /// Whether the hardware fills its ring, or will again without anybody's help.
    pub(super) fn is_live(&self) -> bool {
        matches!(self.status, Status::Armed | Status::Suspended { .. } | Status::Drained)
    }

    /// Whether it is live, or will be when its new ring is there.
    pub(super) fn is_kept(&self) -> bool {
        self.is_live() || self.status == Status::Creating
    }

    /// Whether its hardware queue is taken.
    pub(super) fn holds_hardware(&self) -> bool {
        self.is_kept() || matches!(self.status, Status::Halting { .. })
    }

    /// Registers of the queue.
    pub(super) fn registers(&self) -> Queue {
        Queue::new(self.hardware.block, self.hardware.position)
    }

    /// Takes the next record where it is a notification. Whether the hardware has to be told is
    /// [`Self::is_tell_due`]'s answer, afterwards.
    #[inline(always)]
    pub(super) fn step_once(&mut self) -> Option<Notification> {
        let place = self.cursor.next();
        let words = self.ring.as_ref().and_then(Ring::words)?;
        let first = words.load(place * 4);
        if !self.cursor.is_new(first) || self.gap == Some(place) {
            return None;
        }
        let rest = [1, 2, 3].map(|word| words.load(place * 4 + word));
        let notification = self.reader.read([first, rest[0], rest[1], rest[2]])?;
        self.cursor.advance();
        self.counters.consumed += 1;
        Some(notification)
    }

    /// As [`Self::step_once`], saying why there is none; leaves out what is no notification.
    pub(super) fn step(&mut self) -> Step {
        for _ in 0..SKIPPED_AT_ONCE {
            if let Some(notification) = self.step_once() {
                return Step::Record(notification);
            }
            if self.gap == Some(self.cursor.next()) {
                return Step::Lost;
            }
            if !self.has_news() {
                return Step::Nothing;
            }
            self.skip();
        }
        Step::Garbage
    }

    /// Whether so much was read that the hardware has to be told, `at_end` where nothing is left.
    #[inline(always)]
    pub(super) fn is_tell_due(&self, at_end: bool) -> bool {
        let taken = self.cursor.taken();
        taken >= self.told_after || at_end && taken != 0
    }

    /// Whether the next call of [`Self::step`] gives something.
    #[inline]
    pub(super) fn has_news(&self) -> bool {
        let place = self.cursor.next();
        if self.gap == Some(place) {
            return true;
        }
        let Some(words) = self.ring.as_ref().and_then(Ring::words) else { return false };
        self.cursor.is_new(words.load(place * 4))
    }

    /// Whether the record that comes next looks stale although the one behind it is new. Writes of
    /// neighbours may overtake each other; where it stays so, no producer wrote it.
    pub(super) fn is_passed_over(&self) -> bool {
        let Some(words) = self.ring.as_ref().and_then(Ring::words) else { return false };
        let (behind, stale) = self.cursor.look_ahead(1);
        Cursor::is_new_at(words.load(behind * 4), stale)
            && !self.cursor.is_new(words.load(self.cursor.next() * 4))
    }

    /// Leaves a record out.
    pub(super) fn skip(&mut self) {
        self.counters.garbage += 1;
        self.cursor.advance();
    }

    /// Tells the hardware how far the ring was read, unless it has lost something: then it is to
    /// lose all that comes, until the queue starts anew.
    pub(super) fn tell<W: MmioWindow>(&mut self, window: &W, block: Option<&mut Block>) {
        let Some(block) = block.filter(|_| self.gap.is_none()) else { return };
        let position = self.hardware.position;
        let full = self.spec.when_full == WhenFull::Drop && self.is_full();
        if full && block.take_overflow(window, position) {
            self.gap = Some(self.cursor.gap());
            return;
        }
        let gap = self.cursor.gap();
        window.write32(self.registers().head(), self.cursor.tell());
        if !full {
            block.clear_suspicion(position);
        } else if block.take_overflow(window, position) {
            // Lost between the look and the word of more room.
            self.gap = Some(gap);
        }
    }

    /// Whether the hardware has filled every place it may fill.
    fn is_full(&self) -> bool {
        let (place, stale) = self.cursor.last_place();
        let words = self.ring.as_ref().and_then(Ring::words);
        words.is_some_and(|words| Cursor::is_new_at(words.load(place * 4), stale))
    }

    /// Whoever waits comes to look.
    pub(super) fn wake(&mut self) {
        self.waiting.wake_all();
    }
}
