//! Records to be posted: a number of them, and what each one says (specification 06 §7.1).

/// The phase bit in the first word.
const PHASE: u32 = 1 << 31;

/// What the phase bit of a record becomes.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(super) enum PhaseRule {
    /// What the pass over the ring asks for.
    #[default]
    Right,
    /// The opposite: a record that looks stale.
    Wrong,
    /// Whatever the record carries.
    AsIs,
}

/// One record, its phase still open.
#[derive(Clone, Copy, Debug)]
pub(super) struct Record {
    words: [u32; 4],
    rule: PhaseRule,
}

impl Record {
    /// The bytes, for a pass that writes `phase`.
    pub fn bytes(&self, phase: bool) -> [u8; 16] {
        let mut words = self.words;
        let set = match self.rule {
            PhaseRule::Right => phase,
            PhaseRule::Wrong => !phase,
            PhaseRule::AsIs => words[0] & PHASE != 0,
        };
        words[0] = if set { words[0] | PHASE } else { words[0] & !PHASE };
        let mut bytes = [0; 16];
        for (place, word) in bytes.as_chunks_mut::<4>().0.iter_mut().zip(words) {
            *place = word.to_le_bytes();
        }
        bytes
    }
}

/// What fills a record.
#[derive(Clone, Copy, Debug)]
pub(super) enum Content {
    /// The three words of a notification; the time stamp is the device's, or counts up.
    Fields {
        /// Line, hint, tag.
        first: u32,
        /// Custom sub-id, subtype.
        second: u32,
        /// Time stamp of the first record, the next ones count up; `None` is device time.
        sequence: Option<u64>,
    },
    /// These 16 bytes.
    Raw([u32; 4]),
    /// Random bytes.
    Noise {
        /// Of the first record.
        seed: u64,
    },
}

/// Records that are not posted yet.
#[derive(Clone, Debug)]
pub(super) struct Burst {
    pub content: Content,
    pub rule: PhaseRule,
    next: u64,
    left: u64,
}

impl Burst {
    pub fn new(content: Content, rule: PhaseRule, count: u64) -> Self {
        Burst { content, rule, next: 0, left: count }
    }

    /// One record of these bytes.
    pub fn raw(bytes: [u8; 16]) -> Self {
        let mut words = [0; 4];
        for (word, place) in words.iter_mut().zip(bytes.as_chunks::<4>().0) {
            *word = u32::from_le_bytes(*place);
        }
        Burst::new(Content::Raw(words), PhaseRule::Right, 1)
    }

    pub fn left(&self) -> u64 {
        self.left
    }

    /// The first record, as posted at `now_ns`.
    pub fn peek(&self, now_ns: u64) -> Option<Record> {
        if self.left == 0 {
            return None;
        }
        let words = match self.content {
            Content::Fields { first, second, sequence } => {
                let time = sequence.map_or(now_ns, |start| start.wrapping_add(self.next));
                [first, second, time as u32, (time >> 32) as u32]
            }
            Content::Raw(words) => words,
            Content::Noise { seed } => noise(seed.wrapping_add(self.next)),
        };
        Some(Record { words, rule: self.rule })
    }

    pub fn advance(&mut self) {
        self.next += 1;
        self.left = self.left.saturating_sub(1);
    }

    /// Takes the first `count` records off.
    pub fn split(&mut self, count: u64) -> Burst {
        let share = Burst { left: self.left.min(count), ..self.clone() };
        self.next += share.left;
        self.left -= share.left;
        share
    }
}

/// A burst that goes out in shares.
#[derive(Debug)]
pub(super) struct Pace {
    pub start: u64,
    pub queue: u8,
    pub burst: Burst,
    pub share: u64,
    pub every_ns: u64,
}

/// Two steps of SplitMix64.
fn noise(seed: u64) -> [u32; 4] {
    let step = |state: u64| {
        let z = state.wrapping_mul(0x9e37_79b9_7f4a_7c15);
        let z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    };
    let (a, b) = (step(seed.wrapping_mul(2) | 1), step(seed.wrapping_mul(2).wrapping_add(2)));
    [a as u32, (a >> 32) as u32, b as u32, (b >> 32) as u32]
}
