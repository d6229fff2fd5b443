//! One notification: 16 bytes that the hardware wrote (specification 06 §7.1).

use core::fmt;

use super::QueueKind;
use crate::hal::identity::Generation;

/// Bytes of one record.
pub const RECORD_BYTES: u32 = 16;
/// The phase bit, in the first word.
pub(super) const PHASE: u32 = 1 << 31;

const SUBTYPE_CUSTOM: u16 = 6;
/// Highest sub-id of a custom record.
const LAST_CUSTOM: u16 = 10;
/// Queue of a core that belongs to the DVE engine, and the tag of its records.
const DVE_QUEUE: u8 = 7;
const DVE_TAG: u8 = 0x0e;

/// One notification as it stood in its ring.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Notification {
    words: [u32; 4],
    /// The tag that the record should carry.
    tag: u8,
}

/// What a record of a queue of notifications says.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Subtype {
    /// An instruction started.
    Start,
    /// An instruction ended.
    End,
    /// Its sub-id says more.
    Custom(Custom),
    /// A collective operation started.
    CollectiveStart,
    /// A collective operation ended.
    CollectiveEnd,
}

/// Sub-ids of custom records, 0 to 10.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Custom(pub u16);

impl Custom {
    /// What the sub-id stands for.
    pub const fn name(self) -> &'static str {
        match self.0 {
            0 | 1 => "embedding-update-out-of-bounds",
            2 | 3 => "gather-scatter-out-of-bounds",
            4 | 5 => "generated-gather-scatter-out-of-bounds",
            6 => "debug-value",
            7 => "tensor-complete",
            8 => "debug-tensor-read",
            9 | 10 => "transposing-gather-scatter-out-of-bounds",
            _ => "unknown",
        }
    }
}

impl Subtype {
    fn read(subtype: u16, custom: u16) -> Option<Subtype> {
        match subtype {
            2 => Some(Subtype::Start),
            3 => Some(Subtype::End),
            SUBTYPE_CUSTOM if custom <= LAST_CUSTOM => Some(Subtype::Custom(Custom(custom))),
            7 => Some(Subtype::CollectiveStart),
            8 => Some(Subtype::CollectiveEnd),
            _ => None,
        }
    }

    /// Name on the console.
    pub const fn name(self) -> &'static str {
        match self {
            Subtype::Start => "start",
            Subtype::End => "end",
            Subtype::Custom(_) => "custom",
            Subtype::CollectiveStart => "collective-start",
            Subtype::CollectiveEnd => "collective-end",
        }
    }
}

/// How the records of one queue are read.
#[derive(Clone, Copy, Debug)]
pub(super) struct Reader {
    kind: QueueKind,
    /// Custom records carry a stale tag: they come from the DVE engine of a V3 or V4 core.
    stale_tag: bool,
}

impl Reader {
    /// `index` is the queue of a core; `None` for a TopSP.
    pub(super) fn new(generation: Generation, kind: QueueKind, index: Option<u8>) -> Self {
        let stale_tag = generation > Generation::V2 && index == Some(DVE_QUEUE);
        Reader { kind, stale_tag }
    }

    /// The notification in four words of a ring; `None` for words that are none.
    ///
    /// The layout of queues of notifications is known, so their records are checked; those of the
    /// other types are handed on as they are.
    ///
    /// assumed: a debug hint above 1 and a subtype without a meaning are no notification.
    #[inline]
    pub(super) fn read(self, words: [u32; 4]) -> Option<Notification> {
        let notification = Notification { words, tag: (words[0] >> 24 & 0x1f) as u8 };
        if self.kind != QueueKind::Notify {
            return Some(notification);
        }
        let subtype = notification.subtype().filter(|_| words[0] >> 20 & 0xf <= 1)?;
        match subtype {
            Subtype::Custom(_) if self.stale_tag => {
                Some(Notification { tag: DVE_TAG, ..notification })
            }
            _ => Some(notification),
        }
    }
}

impl Notification {
    /// The record, byte 0 first, phase bit included.
    pub fn bytes(&self) -> [u8; 16] {
        let mut bytes = [0; 16];
        for (place, word) in bytes.as_chunks_mut::<4>().0.iter_mut().zip(self.words) {
            *place = word.to_le_bytes();
        }
        bytes
    }

    /// Low 16 bits of the instruction line.
    pub const fn line(&self) -> u16 {
        self.words[0] as u16
    }

    /// Whether subscribers are to be told.
    pub const fn is_for_subscribers(&self) -> bool {
        self.words[0] >> 20 & 0xf == 1
    }

    /// Id of the producing queue.
    pub const fn tag(&self) -> u8 {
        self.tag
    }

    /// What a record of a queue of notifications says; `None` for what has no meaning there.
    pub fn subtype(&self) -> Option<Subtype> {
        Subtype::read((self.words[1] >> 16) as u16, self.words[1] as u16)
    }

    /// Device time, in the device's own clock units.
    pub const fn timestamp(&self) -> u64 {
        self.words[2] as u64 | (self.words[3] as u64) << 32
    }
}

impl fmt::Debug for Notification {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Notification")
            .field("line", &self.line())
            .field("tag", &self.tag)
            .field("subtype", &self.subtype())
            .field("timestamp", &self.timestamp())
            .finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(kind: QueueKind, words: [u32; 4]) -> Option<Notification> {
        Reader::new(Generation::V2, kind, Some(4)).read(words)
    }

    #[test]
    fn fields_are_where_the_layout_says() {
        let words = [0x8910_1234, 0x0003_0007, 0x89ab_cdef, 0x0123_4567];
        let n = read(QueueKind::Notify, words).unwrap();
        assert_eq!((n.line(), n.tag(), n.is_for_subscribers()), (0x1234, 9, true));
        assert_eq!((n.subtype(), n.timestamp()), (Some(Subtype::End), 0x0123_4567_89ab_cdef));
        assert_eq!(n.bytes()[..5], [0x34, 0x12, 0x10, 0x89, 0x07]);
    }

    #[test]
    fn what_is_no_notification_is_none() {
        for subtype in 0..=0xffff_u32 {
            let known = [2, 3, 6, 7, 8].contains(&subtype);
            assert_eq!(read(QueueKind::Notify, [0, subtype << 16, 0, 0]).is_some(), known);
        }
        assert!(read(QueueKind::Notify, [0, 6 << 16 | 10, 0, 0]).is_some());
        assert!(read(QueueKind::Notify, [0, 6 << 16 | 11, 0, 0]).is_none());
        assert!(read(QueueKind::Notify, [1 << 20, 2 << 16, 0, 0]).is_some());
        assert!(read(QueueKind::Notify, [2 << 20, 2 << 16, 0, 0]).is_none());
        for kind in QueueKind::ALL.into_iter().filter(|kind| *kind != QueueKind::Notify) {
            assert!(read(kind, [0x00f0_0000, u32::MAX, 0, 0]).is_some());
        }
    }

    #[test]
    fn custom_records_of_the_dve_engine_get_their_tag() {
        let words = [5 << 24, 6 << 16 | 7, 0, 0];
        let tag = |generation, index| {
            Reader::new(generation, QueueKind::Notify, index).read(words).unwrap().tag()
        };
        assert_eq!(tag(Generation::V2, Some(7)), 5);
        assert_eq!(tag(Generation::V3, Some(7)), 0x0e);
        assert_eq!(tag(Generation::V4, Some(6)), 5);
        assert_eq!(tag(Generation::V3, None), 5);
        let end =
            Reader::new(Generation::V3, QueueKind::Notify, Some(7)).read([5 << 24, 3 << 16, 0, 0]);
        assert_eq!(end.unwrap().tag(), 5);
        assert_eq!(Custom(7).name(), "tensor-complete");
    }
}
