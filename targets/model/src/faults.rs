//! Faults that a test or a user arms: `NAME[=VALUE] [after=N] [times=N]` (specification 00 §8).
//!
//! `after` occasions pass untouched, then `times` of them are hit. What an occasion is (a marker,
//! a reset, a mailbox request, a register read) and the default of `times` belong to the fault:
//! [`Fault::TABLE`].

use std::fmt;

/// A fault with an occasion at which it strikes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(usize)]
pub(crate) enum Fault {
    DeadReads,
    AllOnes,
    ResetStuck,
    NeverAck,
    LostTrigger,
    RefuseCoreReset,
    MailboxSilent,
    MailboxDelay,
    MailboxFail,
    MailboxUnknown,
    MailboxSequence,
    MailboxOversize,
    BadCrc,
    HangEngine,
    DropMarker,
    LateMarker,
    WrongMarker,
    AbortDescriptor,
    ShortWrite,
    Slow,
    Jitter,
    StuckTail,
}

const FAULTS: usize = Fault::StuckTail as usize + 1;
const FOREVER: u64 = u64::MAX;

/// What the value of a fault means.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Value {
    /// No value.
    None,
    /// The value is the number of occasions hit; without it so many.
    Times(u64),
    /// Time; without a unit nanoseconds.
    Duration(u64),
    /// Any number.
    Number(u64),
    /// A cause such as `a8` or `b1`: group × 32 + bit.
    Cause(u64),
}

impl Fault {
    /// Name, fault, meaning and default of the value, default of `times`.
    const TABLE: [(&'static str, Fault, Value, u64); FAULTS] = [
        // a MiscRAM read: it gives 0xdeadbeef
        ("dead-reads", Fault::DeadReads, Value::None, FOREVER),
        // any register access: from now on everything reads all-ones (surprise removal)
        ("all-ones", Fault::AllOnes, Value::None, FOREVER),
        // the end of a reset: FW_STATUS stays "not ready" so long
        ("reset-stuck", Fault::ResetStuck, Value::Duration(FOREVER), FOREVER),
        // a reset: RESET never clears
        ("never-ack", Fault::NeverAck, Value::None, FOREVER),
        // a reset trigger: lost
        ("lost-trigger", Fault::LostTrigger, Value::Times(1), 1),
        // a core reset: lost like `never-ack`
        ("refuse-core-reset", Fault::RefuseCoreReset, Value::None, FOREVER),
        // a mailbox request: no answer; late answer; error FAIL; error UNKNOWN_COMMAND; the
        // sequence number before; a size that nothing holds; a wrong CRC
        ("mailbox-silent", Fault::MailboxSilent, Value::Times(FOREVER), FOREVER),
        ("mailbox-delay", Fault::MailboxDelay, Value::Duration(2_000_000_000), FOREVER),
        ("mailbox-fail", Fault::MailboxFail, Value::Times(FOREVER), FOREVER),
        ("mailbox-unknown", Fault::MailboxUnknown, Value::Times(FOREVER), FOREVER),
        ("mailbox-sequence", Fault::MailboxSequence, Value::Times(1), 1),
        ("mailbox-oversize", Fault::MailboxOversize, Value::Times(1), 1),
        ("bad-crc", Fault::BadCrc, Value::Times(FOREVER), FOREVER),
        // a Tx doorbell of that engine (without a value: any Tx doorbell in a reset window): the
        // queue executes nothing until RST_Q, with a value until its unit is reset
        ("hang-engine", Fault::HangEngine, Value::Number(FOREVER), FOREVER),
        // a marker (4-byte copy from host to host): not written; written so much later; written
        // with that value
        ("drop-marker", Fault::DropMarker, Value::Times(1), 1),
        ("late-marker", Fault::LateMarker, Value::Duration(10_000_000), FOREVER),
        ("wrong-marker", Fault::WrongMarker, Value::Number(0xbad0_bad0), 1),
        // a descriptor, markers included: aborts with that cause instead of being executed
        ("abort-descriptor", Fault::AbortDescriptor, Value::Cause(8), 1),
        // a written descriptor that is no marker: so many bytes fewer at its end
        ("short-write", Fault::ShortWrite, Value::Number(1), 1),
        // a Tx doorbell: executed so much later
        ("slow", Fault::Slow, Value::Duration(1_000_000), FOREVER),
        // a Tx doorbell: executed up to so much later, a delay drawn from `Faults::seed`
        ("jitter", Fault::Jitter, Value::Duration(1_000_000), FOREVER),
        // a notification queue is stopped with records behind it: its tail stays where it is
        ("stuck-tail", Fault::StuckTail, Value::Times(FOREVER), FOREVER),
    ];
}

/// Names that decide what the function is, taken by [`FunctionConfig::fault`] only.
///
/// [`FunctionConfig::fault`]: crate::FunctionConfig::fault
const STATIC_NAMES: [&str; 8] = [
    "bar4-absent",
    "bar4-size",
    "bar0-size",
    "bar-unassigned",
    "bad-device-id",
    "revision",
    "dup-routing-id",
    "fw-late",
];

/// Why the text of a fault was not taken.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum FaultError {
    /// No fault has that name.
    UnknownName(String),
    /// The value does not fit the fault.
    BadValue {
        /// The fault.
        name: String,
        /// Its value as given.
        value: String,
    },
    /// Only a function that does not exist yet takes this fault.
    TooLate(String),
}

impl fmt::Display for FaultError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            FaultError::UnknownName(name) => {
                write!(f, "no fault is called {name:?}; there are")?;
                for (known, ..) in Fault::TABLE {
                    write!(f, " {known}")?;
                }
                STATIC_NAMES.iter().try_for_each(|known| write!(f, " {known}"))
            }
            FaultError::BadValue { name, value } => {
                write!(f, "{value:?} is no value for {name}")
            }
            FaultError::TooLate(name) => {
                write!(f, "{name} must be given before the function exists")
            }
        }
    }
}

impl std::error::Error for FaultError {}

/// The text of a fault, taken apart.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct FaultOrder {
    pub name: String,
    value: Option<String>,
    after: u64,
    times: Option<u64>,
}

impl FaultOrder {
    pub fn parse(text: &str) -> Result<Self, FaultError> {
        let mut words = text.split([' ', ',', '\t']).filter(|word| !word.is_empty());
        let first = words.next().unwrap_or_default();
        let (name, value) = match first.split_once('=') {
            Some((name, value)) => (name, Some(value.to_owned())),
            None => (first, None),
        };
        let mut order = FaultOrder { name: name.to_owned(), value, after: 0, times: None };
        for word in words {
            let bad = || FaultError::BadValue { name: name.to_owned(), value: word.to_owned() };
            let (key, number) = word.split_once('=').ok_or_else(bad)?;
            let number = parse_number(number).ok_or_else(bad)?;
            match key {
                "after" => order.after = number,
                "times" => order.times = Some(number),
                _ => return Err(bad()),
            }
        }
        Ok(order)
    }

    pub fn number_or(&self, default: u64) -> Result<u64, FaultError> {
        self.value_or(default, parse_number)
    }

    pub fn duration_or(&self, default: u64) -> Result<u64, FaultError> {
        self.value_or(default, parse_duration)
    }

    fn value_or(&self, default: u64, parse: fn(&str) -> Option<u64>) -> Result<u64, FaultError> {
        let Some(value) = &self.value else { return Ok(default) };
        parse(value).ok_or_else(|| self.bad_value())
    }

    fn bad_value(&self) -> FaultError {
        FaultError::BadValue {
            name: self.name.clone(),
            value: self.value.clone().unwrap_or_default(),
        }
    }
}

#[derive(Clone, Copy, Debug)]
struct Shot {
    value: u64,
    after: u64,
    times: u64,
}

/// The armed faults of one function.
#[derive(Clone, Debug, Default)]
pub struct Faults {
    shots: [Option<Shot>; FAULTS],
    /// State of the sequence that delays are drawn from.
    sequence: u64,
}

impl Faults {
    /// Arms a fault from its text; a fault armed before under the same name is replaced.
    ///
    /// # Errors
    /// [`FaultError`].
    pub fn arm_text(&mut self, text: &str) -> Result<(), FaultError> {
        self.arm(&FaultOrder::parse(text)?)
    }

    pub(crate) fn arm(&mut self, order: &FaultOrder) -> Result<(), FaultError> {
        let name = order.name.as_str();
        if STATIC_NAMES.contains(&name) {
            return Err(FaultError::TooLate(name.to_owned()));
        }
        let (_, fault, kind, times) = *Fault::TABLE
            .iter()
            .find(|row| row.0 == name)
            .ok_or_else(|| FaultError::UnknownName(name.to_owned()))?;
        let (value, times) = match kind {
            Value::None if order.value.is_some() => return Err(order.bad_value()),
            Value::None => (0, times),
            Value::Times(default) => (0, order.number_or(default)?),
            Value::Duration(default) => (order.duration_or(default)?, times),
            Value::Number(default) => (order.number_or(default)?, times),
            Value::Cause(default) => (order.value_or(default, parse_cause)?, times),
        };
        let times = order.times.unwrap_or(times);
        self.shots[fault as usize] = Some(Shot { value, after: order.after, times });
        Ok(())
    }

    /// Disarms all.
    pub fn clear(&mut self) {
        self.shots = [None; FAULTS];
    }

    /// Begins the sequence of random delays anew.
    pub fn seed(&mut self, seed: u64) {
        self.sequence = seed;
    }

    /// The delay of a Tx doorbell, where one is armed: fixed, or from the sequence (SplitMix64).
    pub(crate) fn delay(&mut self) -> Option<u64> {
        if let Some(delay) = self.strike(Fault::Slow) {
            return Some(delay);
        }
        let most = self.strike(Fault::Jitter)?;
        self.sequence = self.sequence.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut word = self.sequence;
        word = (word ^ word >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        word = (word ^ word >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        Some((word ^ word >> 31) % most.saturating_add(1).max(1))
    }

    /// An occasion of `fault` came: its value if it strikes.
    #[inline]
    pub(crate) fn strike(&mut self, fault: Fault) -> Option<u64> {
        match &mut self.shots[fault as usize] {
            None => None,
            Some(shot) => shot.strike(),
        }
    }

    /// The value of an armed fault, without using up an occasion.
    #[inline]
    pub(crate) fn armed(&self, fault: Fault) -> Option<u64> {
        self.shots[fault as usize].map(|shot| shot.value)
    }
}

impl Shot {
    #[cold]
    fn strike(&mut self) -> Option<u64> {
        if self.after > 0 {
            self.after -= 1;
            return None;
        }
        if self.times == 0 {
            return None;
        }
        if self.times != FOREVER {
            self.times -= 1;
        }
        Some(self.value)
    }
}

/// A number, decimal or `0x…`.
pub(crate) fn parse_number(text: &str) -> Option<u64> {
    match text.strip_prefix("0x") {
        Some(hex) => u64::from_str_radix(hex, 16).ok(),
        None => text.parse().ok(),
    }
}

/// A duration in nanoseconds: a number with `ns`, `us`, `ms`, `s` or nothing behind it.
pub(crate) fn parse_duration(text: &str) -> Option<u64> {
    let digits = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    let (number, unit) = text.split_at(digits);
    let scale = match unit {
        "" | "ns" => 1,
        "us" => 1_000,
        "ms" => 1_000_000,
        "s" => 1_000_000_000,
        _ => return None,
    };
    number.parse::<u64>().ok()?.checked_mul(scale)
}

fn parse_cause(text: &str) -> Option<u64> {
    let group = match text.as_bytes().first()? {
        b'a' | b'A' => 0,
        b'b' | b'B' => 1,
        b'c' | b'C' => 2,
        _ => return None,
    };
    let bit = text.get(1..)?.parse::<u64>().ok().filter(|bit| *bit < 32)?;
    Some(group * 32 + bit)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn strikes_after_and_as_often_as_told() {
        let mut faults = Faults::default();
        faults.arm_text("drop-marker=2 after=1").unwrap();
        let hits: Vec<bool> = (0..5).map(|_| faults.strike(Fault::DropMarker).is_some()).collect();
        assert_eq!(hits, [false, true, true, false, false]);
        assert_eq!(faults.strike(Fault::LateMarker), None);
    }

    #[test]
    fn reads_values_of_every_kind() {
        let mut faults = Faults::default();
        faults.arm_text("late-marker=20ms,after=3,times=1").unwrap();
        assert_eq!(faults.armed(Fault::LateMarker), Some(20_000_000));
        faults.arm_text("abort-descriptor=b11").unwrap();
        assert_eq!(faults.armed(Fault::AbortDescriptor), Some(43));
        faults.arm_text("wrong-marker=0x10").unwrap();
        assert_eq!(faults.armed(Fault::WrongMarker), Some(16));
        faults.clear();
        assert_eq!(faults.armed(Fault::WrongMarker), None);
    }

    #[test]
    fn refuses_what_it_does_not_know() {
        let mut faults = Faults::default();
        for text in ["nonsense", "slow=fast", "never-ack=1", "slow after", "slow often=2", ""] {
            assert!(faults.arm_text(text).is_err(), "{text}");
        }
        assert_eq!(
            faults.arm_text("bar4-absent"),
            Err(FaultError::TooLate("bar4-absent".to_owned()))
        );
    }
}
