//! The event ring of a device: who did what, newest overwrites oldest (specification 07 §16.5).
//!
//! Always on. Writers never wait and never block each other; a reader accepts a record only if it
//! carries the expected sequence number before and after copying.

use alloc::boxed::Box;
use core::fmt;
use core::sync::atomic::{AtomicU64, Ordering, fence};

use axon_platform::Instant;

use super::{Counter, NoRoom, slots};
use crate::{ClientId, DeviceIndex};

/// Records the ring holds.
pub const CAPACITY: usize = 1024;
/// Records a dump prints where no limit is given.
pub const DEFAULT_LIMIT: usize = 128;

macro_rules! kinds {
    ($($(#[$doc:meta])* $name:ident = $number:literal $text:literal;)*) => {
        /// What happened. The numbers are those in the record.
        #[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
        #[repr(u16)]
        pub enum EventKind {
            $($(#[$doc])* $name = $number,)*
        }

        impl EventKind {
            /// All kinds in order of their numbers.
            pub const ALL: &[EventKind] = &[$(EventKind::$name),*];

            /// Name in dumps and labels.
            pub const fn name(self) -> &'static str {
                match self {
                    $(EventKind::$name => $text,)*
                }
            }

            fn from_number(number: u16) -> Option<EventKind> {
                match number {
                    $($number => Some(EventKind::$name),)*
                    _ => None,
                }
            }
        }
    };
}

kinds! {
    /// A client attached.
    ClientAttach = 1 "client_attach";
    /// A client's last handle was dropped.
    ClientDrop = 2 "client_drop";
    /// A call of the API; data is the operation number.
    Call = 3 "call";
    /// A buffer was exposed to a client; data is its address.
    BufferExposed = 4 "buffer_exposed";
    /// A reset was asked for; data is the core map.
    ResetRequested = 5 "reset_requested";
    /// A reset ended; data is the result, 0 or an error number.
    ResetFinished = 6 "reset_finished";
    /// Firmware answered with an error; data is command and code.
    MailboxError = 7 "mailbox_error";
    /// A queue was armed.
    QueueArmed = 8 "queue_armed";
    /// A queue was destroyed.
    QueueDestroyed = 9 "queue_destroyed";
}

/// One record as a reader gets it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct EventRecord {
    /// Running number, from 1.
    pub sequence: u64,
    /// When.
    pub time: Instant,
    /// On whose behalf; `None` for the driver itself.
    pub client: Option<ClientId>,
    /// What.
    pub kind: EventKind,
    /// Device.
    pub device: DeviceIndex,
    /// Depends on the kind.
    pub data: u64,
}

impl fmt::Display for EventRecord {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let nanos = self.time.as_nanos();
        write!(
            f,
            "{} {}.{:06} {} {:<15} client={} data={:#x}",
            self.sequence,
            nanos / 1_000_000_000,
            nanos % 1_000_000_000 / 1_000,
            self.device,
            self.kind.name(),
            self.client.map_or(0, ClientId::number),
            self.data,
        )
    }
}

/// Which records a dump is about.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct EventQuery {
    /// Newest matching records wanted, at most [`CAPACITY`]; 0 stands for [`DEFAULT_LIMIT`].
    pub limit: usize,
    /// Only records of this client.
    pub client: Option<ClientId>,
    /// Only records of this kind.
    pub kind: Option<EventKind>,
}

impl EventQuery {
    fn matches(&self, record: &EventRecord) -> bool {
        self.client.is_none_or(|client| record.client == Some(client))
            && self.kind.is_none_or(|kind| record.kind == kind)
    }

    fn limit(&self) -> usize {
        match self.limit {
            0 => DEFAULT_LIMIT,
            limit => limit.min(CAPACITY),
        }
    }
}

/// 32 bytes: sequence (0 while it is written), nanoseconds, client | kind | device, data.
type Slot = [AtomicU64; 4];

/// 1024 records of one device.
pub struct EventRing {
    device: DeviceIndex,
    /// Sequence number given out last.
    last: AtomicU64,
    counts: [Counter; EventKind::ALL.len()],
    slots: Box<[Slot]>,
}

impl EventRing {
    pub(super) fn new(device: DeviceIndex) -> Result<Self, NoRoom> {
        Ok(EventRing {
            device,
            last: AtomicU64::new(0),
            counts: [const { Counter::new() }; EventKind::ALL.len()],
            slots: slots(CAPACITY, || [const { AtomicU64::new(0) }; 4])?,
        })
    }

    /// Writes one record.
    pub fn record(&self, time: Instant, client: Option<ClientId>, kind: EventKind, data: u64) {
        let sequence = self.last.fetch_add(1, Ordering::Relaxed) + 1;
        let Some([number, nanos, who, what]) = self.slot(sequence) else { return };
        number.store(0, Ordering::Relaxed);
        fence(Ordering::Release);
        nanos.store(time.as_nanos(), Ordering::Relaxed);
        let client = client.map_or(0, ClientId::number);
        who.store(
            u64::from(client)
                | u64::from(kind as u16) << 32
                | u64::from(self.device.number()) << 48,
            Ordering::Relaxed,
        );
        what.store(data, Ordering::Relaxed);
        number.store(sequence, Ordering::Release);
        if let Some(count) = self.counts.get(usize::from(kind as u16) - 1) {
            count.increment();
        }
    }

    /// Hands the newest matching records to `each`, oldest first. Answers how many.
    pub fn dump(&self, query: &EventQuery, mut each: impl FnMut(EventRecord)) -> usize {
        let last = self.last.load(Ordering::Acquire);
        let oldest = last.saturating_sub(CAPACITY as u64) + 1;
        let matching = |sequence: &u64| self.read(*sequence).filter(|r| query.matches(r)).is_some();
        let first = (oldest..=last).rev().filter(matching).take(query.limit()).last();
        let Some(first) = first else { return 0 };
        (first..=last)
            .filter_map(|sequence| self.read(sequence))
            .filter(|record| query.matches(record))
            .map(&mut each)
            .count()
    }

    /// Records of a kind written so far.
    pub fn count(&self, kind: EventKind) -> u64 {
        self.counts.get(usize::from(kind as u16) - 1).map_or(0, Counter::get)
    }

    /// Records that were overwritten so far.
    pub fn overwritten(&self) -> u64 {
        self.last.load(Ordering::Relaxed).saturating_sub(CAPACITY as u64)
    }

    fn read(&self, sequence: u64) -> Option<EventRecord> {
        let [number, nanos, who, what] = self.slot(sequence)?;
        if number.load(Ordering::Acquire) != sequence {
            return None;
        }
        let (nanos, who, data) = (
            nanos.load(Ordering::Relaxed),
            who.load(Ordering::Relaxed),
            what.load(Ordering::Relaxed),
        );
        fence(Ordering::Acquire);
        if number.load(Ordering::Relaxed) != sequence {
            return None;
        }
        Some(EventRecord {
            sequence,
            time: Instant::from_nanos(nanos),
            client: ClientId::new(who as u32),
            kind: EventKind::from_number((who >> 32) as u16)?,
            device: DeviceIndex::new((who >> 48) as u32)?,
            data,
        })
    }

    /// Sequence numbers are 64-bit and start at 1: no remainder is ever negative.
    fn slot(&self, sequence: u64) -> Option<&Slot> {
        self.slots.get((sequence.wrapping_sub(1) % CAPACITY as u64) as usize)
    }
}

#[cfg(test)]
mod tests {
    use alloc::vec::Vec;

    use proptest::prelude::*;

    use super::*;

    fn ring() -> EventRing {
        EventRing::new(DeviceIndex::new(3).unwrap()).unwrap()
    }

    fn client(number: u32) -> Option<ClientId> {
        ClientId::new(number)
    }

    fn data(ring: &EventRing, query: EventQuery) -> Vec<u64> {
        let mut data = Vec::new();
        let count = ring.dump(&query, |record| data.push(record.data));
        assert_eq!(count, data.len());
        data
    }

    fn fill(ring: &EventRing, count: u64) {
        for number in 1..=count {
            ring.record(Instant::from_nanos(number), client(7), EventKind::Call, number);
        }
    }

    #[test]
    fn tel_e40_tel_d26_the_newest_128_oldest_first() {
        let ring = ring();
        fill(&ring, 1500);
        let expected: Vec<u64> = (1373..=1500).collect();
        assert_eq!(data(&ring, EventQuery::default()), expected);
        assert_eq!(data(&ring, EventQuery { limit: 9999, ..EventQuery::default() }).len(), 1024);
        assert_eq!(ring.overwritten(), 1500 - 1024);
        assert_eq!(ring.count(EventKind::Call), 1500);
    }

    #[test]
    fn tel_e41_tel_d25_st_e57_st_d46_an_empty_ring_has_no_lines() {
        assert_eq!(data(&ring(), EventQuery::default()), [0; 0]);
    }

    #[test]
    fn tel_d25_more_than_two_to_the_31_records_still_end() {
        let ring = ring();
        ring.last.store((1 << 31) - 2, Ordering::Relaxed);
        fill(&ring, 4);
        assert_eq!(data(&ring, EventQuery::default()), [1, 2, 3, 4]);
    }

    #[test]
    fn tel_e42_the_newest_two_of_one_client() {
        let ring = ring();
        for number in 0..9 {
            let who = if number % 3 == 0 { client(1) } else { client(2) };
            ring.record(Instant::from_nanos(number), who, EventKind::Call, number);
        }
        let query = EventQuery { limit: 2, client: client(1), kind: None };
        assert_eq!(data(&ring, query), [3, 6]);
        let query = EventQuery { kind: Some(EventKind::ClientDrop), ..query };
        assert_eq!(data(&ring, query), [0; 0]);
    }

    #[test]
    fn tel_d27_a_record_half_written_is_not_shown() {
        let ring = ring();
        fill(&ring, 3);
        ring.slots[1][0].store(0, Ordering::Relaxed);
        assert_eq!(data(&ring, EventQuery::default()), [1, 3]);
        ring.slots[2][0].store(3 + CAPACITY as u64, Ordering::Relaxed);
        assert_eq!(data(&ring, EventQuery::default()), [1], "overwritten since");
    }

    #[test]
    fn a_record_is_32_bytes_and_prints_as_one_line() {
        assert_eq!(size_of::<Slot>(), 32);
        let ring = ring();
        let time = Instant::from_nanos(1_000_002_003);
        ring.record(time, client(9), EventKind::ResetFinished, 0x6e);
        let mut lines = Vec::new();
        ring.dump(&EventQuery::default(), |record| lines.push(alloc::format!("{record}")));
        assert_eq!(lines, ["1 1.000002 nd3 reset_finished  client=9 data=0x6e"]);
    }

    proptest! {
        /// Against a list of everything ever written.
        #[test]
        fn it_behaves_like_the_end_of_a_list(
            written in proptest::collection::vec((1..4_u32, 0..2_usize), 0..2500),
            limit in 0..1200_usize,
            who in 0..4_u32,
        ) {
            let kinds = [EventKind::ClientAttach, EventKind::Call];
            let ring = ring();
            for (at, (number, kind)) in written.iter().enumerate() {
                ring.record(Instant::default(), client(*number), kinds[*kind], at as u64);
            }
            let query = EventQuery { limit, client: client(who), kind: Some(EventKind::Call) };
            let start = written.len().saturating_sub(CAPACITY);
            let mut expected: Vec<u64> = (start..written.len())
                .filter(|at| written[*at].1 == 1 && (who == 0 || written[*at].0 == who))
                .map(|at| at as u64)
                .collect();
            let surplus = expected.len().saturating_sub(query.limit());
            expected.drain(..surplus);
            prop_assert_eq!(data(&ring, query), expected);
        }
    }
}
