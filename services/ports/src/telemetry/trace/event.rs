//! The fifteen trace events (specification 07 §11) and how each fits into five words.

use core::fmt::{self, Write};

use super::TraceTask;

/// Declares the events: name, text, task, then the five words as lists of fields with their bits.
macro_rules! events {
    ($(
        $(#[$doc:meta])*
        $name:ident = $number:literal $text:literal $task:ident
        $([$($field:ident $bits:literal)+])+;
    )*) => {
        /// Kinds of trace events; each can be switched on and off.
        #[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
        #[repr(u8)]
        pub enum TraceKind {
            $($(#[$doc])* $name = $number,)*
        }

        impl TraceKind {
            /// All kinds.
            pub const ALL: &[TraceKind] = &[$(TraceKind::$name),*];
            /// How many there are.
            pub const COUNT: usize = TraceKind::ALL.len();

            /// Name on the console and in labels.
            pub const fn name(self) -> &'static str {
                match self {
                    $(TraceKind::$name => $text,)*
                }
            }

            /// The kind with this name.
            pub fn from_name(name: &str) -> Option<TraceKind> {
                TraceKind::ALL.iter().copied().find(|kind| kind.name() == name)
            }

            /// Whose ring its records go to.
            pub const fn task(self) -> TraceTask {
                match self {
                    $(TraceKind::$name => TraceTask::$task,)*
                }
            }

            pub(super) fn from_number(number: u8) -> Option<TraceKind> {
                TraceKind::ALL.get(usize::from(number)).copied()
            }

            pub(super) const fn index(self) -> usize {
                self as usize
            }

            pub(super) const fn bit(self) -> u32 {
                1 << self as u8
            }
        }

        /// One event with its values, captured where it happened. Values wider than their place
        /// in the record lose their upper bits.
        #[derive(Clone, Copy, PartialEq, Eq, Debug)]
        #[allow(missing_docs)] // the fields say what they are
        pub enum TraceEvent {
            $($(#[$doc])* $name { $($($field: u64,)+)+ },)*
        }

        impl TraceEvent {
            /// What kind it is.
            #[inline(always)]
            pub const fn kind(&self) -> TraceKind {
                match self {
                    $(TraceEvent::$name { .. } => TraceKind::$name,)*
                }
            }

            #[inline(always)]
            pub(super) fn words(self) -> [u64; 5] {
                let mut words = [0; 5];
                let mut next = words.iter_mut();
                match self {
                    $(TraceEvent::$name { $($($field,)+)+ } => {
                        $(if let Some(word) = next.next() {
                            *word = pack([$(($field, $bits)),+]);
                        })+
                    })*
                }
                words
            }

            pub(super) fn from_words(kind: TraceKind, words: [u64; 5]) -> TraceEvent {
                let mut next = words.into_iter();
                match kind {
                    $(TraceKind::$name => {
                        $(
                            let mut word = next.next().unwrap_or_default();
                            $(let $field = take(&mut word, $bits);)+
                        )+
                        TraceEvent::$name { $($($field,)+)+ }
                    })*
                }
            }
        }

        impl fmt::Display for TraceEvent {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(self.kind().name())?;
                if let TraceEvent::MetricsPost { id, length, .. } = *self {
                    write!(f, " id={id} length={length} value=")?;
                    let shown = self.text().filter(u8::is_ascii_graphic);
                    return shown.map(char::from).try_for_each(|letter| f.write_char(letter));
                }
                match *self {
                    $(TraceEvent::$name { $($($field,)+)+ } => {
                        $($(write!(f, concat!(" ", stringify!($field), "={:#x}"), $field)?;)+)+
                        Ok(())
                    })*
                }
            }
        }
    };
}

#[inline(always)]
fn pack<const N: usize>(fields: [(u64, u32); N]) -> u64 {
    fields.into_iter().rev().fold(0, |word, (field, bits)| {
        let above = if bits == 64 { 0 } else { word << bits };
        above | field & u64::MAX >> (64 - bits)
    })
}

fn take(word: &mut u64, bits: u32) -> u64 {
    let field = *word & u64::MAX >> (64 - bits);
    *word = word.checked_shr(bits).unwrap_or(0);
    field
}

events! {
    /// An engine was initialised.
    DmaEngineInit = 0 "dma_engine_init" Dma [engine 64];
    /// A queue was initialised.
    DmaQueueInit = 1 "dma_queue_init" Dma
        [engine 16 queue 16 port 32] [tx_count 32 rx_count 32]
        [tx_ring 64] [rx_ring 64] [completion_ring 64];
    /// A queue was released.
    DmaQueueRelease = 2 "dma_queue_release" Dma [engine 64] [queue 64];
    /// Descriptors were started.
    DmaQueueCopyStart = 3 "dma_queue_copy_start" Dma
        [engine 64] [queue 64] [tx_count 64] [rx_count 64];
    /// Completions were acknowledged.
    DmaAckCompleted = 4 "dma_ack_completed" Dma [engine 64] [queue 64] [count 64];
    /// Descriptors were copied into a ring.
    DmaDescCopy = 5 "dma_desc_copy" Dma
        [engine 16 queue 16 ring_type 32] [buffer 64] [source_offset 64] [destination_offset 64]
        [size 64];
    /// A copy was submitted.
    DmaMemcpy = 6 "dma_memcpy" Dma [core 64] [source 64] [destination 64] [size 64] [pending 64];
    /// A chunk was allocated.
    MemAlloc = 7 "ioctl_mem_alloc" Memory
        [core 32 location 32] [address 64] [size 64] [channel 32 region 32];
    /// A chunk was freed.
    MemFree = 8 "ioctl_mem_free" Memory [core 32 location 32] [address 64] [size 64];
    /// A copy between chunks was asked for.
    MemCopy = 9 "ioctl_mem_copy" Memory [source 64] [destination 64];
    /// Bytes of the application go into a chunk.
    MemCopyIn = 10 "ioctl_mem_copyin" Memory [chunk 64] [buffer 64] [offset 64] [size 64];
    /// Bytes of a chunk go to the application.
    MemCopyOut = 11 "ioctl_mem_copyout" Memory [chunk 64] [buffer 64] [offset 64] [size 64];
    /// A register was read for a client.
    BarRead = 12 "bar_read" Registers [bar 64] [offset 64] [value 64];
    /// A register was written for a client.
    BarWrite = 13 "bar_write" Registers [bar 64] [offset 64] [value 64];
    /// A metric record was posted: see [`TraceEvent::metrics_post`].
    MetricsPost = 14 "metrics_post" Poster
        [id 32 length 32] [text_0 64] [text_1 64] [text_2 64] [text_3 64];
}

impl TraceEvent {
    /// A posted record: its id, the length of its value, and the value's first 32 bytes.
    pub fn metrics_post(id: u8, value: &[u8]) -> TraceEvent {
        let mut text = value
            .chunks(8)
            .map(|chunk| chunk.iter().rev().fold(0, |word, byte| word << 8 | u64::from(*byte)));
        let mut next = || text.next().unwrap_or_default();
        TraceEvent::MetricsPost {
            id: id.into(),
            length: value.len() as u64,
            text_0: next(),
            text_1: next(),
            text_2: next(),
            text_3: next(),
        }
    }

    /// The bytes of the value of [`TraceEvent::MetricsPost`]; nothing for other events.
    fn text(&self) -> impl Iterator<Item = u8> {
        let (words, length) = match *self {
            TraceEvent::MetricsPost { length, text_0, text_1, text_2, text_3, .. } => {
                ([text_0, text_1, text_2, text_3], length as usize)
            }
            _ => ([0; 4], 0),
        };
        words.into_iter().flat_map(u64::to_le_bytes).take(length)
    }
}

#[cfg(test)]
mod tests {
    use alloc::format;

    use super::*;

    fn round_trip(event: TraceEvent) -> TraceEvent {
        TraceEvent::from_words(event.kind(), event.words())
    }

    #[test]
    fn tel_d28_every_value_is_kept_under_its_own_name() {
        let init = TraceEvent::DmaQueueInit {
            engine: 131,
            queue: 15,
            port: 1,
            tx_count: 64,
            rx_count: 128,
            tx_ring: 0x1000,
            rx_ring: 0x2000,
            completion_ring: u64::MAX,
        };
        assert_eq!(round_trip(init), init);
        assert_eq!(
            format!("{init}"),
            "dma_queue_init engine=0x83 queue=0xf port=0x1 tx_count=0x40 rx_count=0x80 \
             tx_ring=0x1000 rx_ring=0x2000 completion_ring=0xffffffffffffffff"
        );
        let copy = TraceEvent::MemCopyIn { chunk: 1, buffer: 2, offset: 3, size: 4 };
        assert_eq!(round_trip(copy), copy);
        let alloc = TraceEvent::MemAlloc {
            core: 7,
            location: 2,
            address: 1 << 47,
            size: 1 << 40,
            channel: 3,
            region: 0,
        };
        assert_eq!(round_trip(alloc), alloc);
    }

    #[test]
    fn fifteen_kinds_each_with_a_bit_and_a_name() {
        assert_eq!(TraceKind::COUNT, 15);
        for (at, kind) in TraceKind::ALL.iter().enumerate() {
            assert_eq!(kind.index(), at);
            assert_eq!(TraceKind::from_name(kind.name()), Some(*kind));
        }
        assert_eq!(TraceKind::from_name("bar_peek"), None);
    }

    #[test]
    fn posted_text_is_captured_up_to_32_bytes() {
        let event = TraceEvent::metrics_post(180, b"2.31.24");
        assert_eq!(format!("{}", round_trip(event)), "metrics_post id=180 length=7 value=2.31.24");
        let long = TraceEvent::metrics_post(12, &[b'x'; 63]);
        assert!(format!("{long}").ends_with(&format!("length=63 value={}", "x".repeat(32))));
    }
}
