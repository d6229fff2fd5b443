//! Numbers as people write them: decimal or `0x…`, sizes with `K M G`, bytes as hex digits, spans
//! of time with a unit. Exact: anything else is refused with a sentence that names the word.

use alloc::string::String;
use alloc::vec::Vec;
use core::time::Duration;

use crate::answer::Failure;

/// A number or size: `17`, `0x1000`, `64K`, `2G`.
pub fn number(what: &str, text: &str) -> Result<u64, Failure> {
    let unit: u64 = match text.as_bytes().last() {
        Some(b'K') => 1 << 10,
        Some(b'M') => 1 << 20,
        Some(b'G') => 1 << 30,
        _ => 1,
    };
    let digits = if unit == 1 { text } else { &text[..text.len() - 1] };
    digits_of(digits)
        .and_then(|number| number.checked_mul(unit))
        .ok_or_else(|| wrong(what, text, "a number (17, 0x1000, 64K, 2G) below 2^64"))
}

/// A number of at most `limit`.
pub fn limited(what: &str, text: &str, limit: u64) -> Result<u64, Failure> {
    let number = number(what, text)?;
    if number <= limit {
        Ok(number)
    } else {
        Err(Failure::invalid(format_args!("{what} {text} is above {limit:#x}")))
    }
}

/// Bytes as an even number of hex digits, with or without `0x`.
pub fn bytes(what: &str, text: &str) -> Result<Vec<u8>, Failure> {
    let digits = text.strip_prefix("0x").unwrap_or(text).as_bytes();
    let pairs = digits.chunks_exact(2);
    if digits.is_empty() || !pairs.remainder().is_empty() {
        return Err(wrong(what, text, "an even number of hex digits"));
    }
    pairs
        .map(|pair| Some(nibble(pair[0])? << 4 | nibble(pair[1])?))
        .collect::<Option<Vec<u8>>>()
        .ok_or_else(|| wrong(what, text, "hex digits"))
}

/// Bytes as hex digits.
pub fn hex(bytes: &[u8]) -> String {
    const DIGITS: [char; 16] =
        ['0', '1', '2', '3', '4', '5', '6', '7', '8', '9', 'a', 'b', 'c', 'd', 'e', 'f'];
    bytes
        .iter()
        .flat_map(|byte| [byte >> 4, byte & 15])
        .filter_map(|nibble| DIGITS.get(usize::from(nibble)))
        .collect()
}

/// Longest span that anybody may wait for here: whoever asks for more has mistyped.
const LONGEST: Duration = Duration::from_secs(24 * 3600);

/// A span of time: `250ns`, `10us`, `10ms`, `3s`.
pub fn span(what: &str, text: &str) -> Result<Duration, Failure> {
    const UNITS: [(&str, u64); 4] =
        [("ns", 1), ("us", 1_000), ("ms", 1_000_000), ("s", 1_000_000_000)];
    UNITS
        .iter()
        .find_map(|(unit, nanos)| {
            digits_of(text.strip_suffix(unit)?)?.checked_mul(*nanos).map(Duration::from_nanos)
        })
        .filter(|span| *span <= LONGEST)
        .ok_or_else(|| wrong(what, text, "a span of time (250ns, 10us, 10ms, 3s; a day at most)"))
}

/// Plain digits; no sign, no blank, no separator.
fn digits_of(text: &str) -> Option<u64> {
    let (digits, radix) = match text.strip_prefix("0x") {
        Some(digits) => (digits, 16),
        None => (text, 10),
    };
    let plain = digits.bytes().all(|byte| byte.is_ascii_hexdigit());
    if plain { u64::from_str_radix(digits, radix).ok() } else { None }
}

fn nibble(digit: u8) -> Option<u8> {
    char::from(digit).to_digit(16).map(|nibble| nibble as u8)
}

fn wrong(what: &str, text: &str, expected: &str) -> Failure {
    Failure::invalid(format_args!("{what} `{text}` is not {expected}"))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn numbers_are_exact() {
        let read = |text| number("n", text).ok();
        assert_eq!(read("0"), Some(0));
        assert_eq!(read("0x1F"), Some(31));
        assert_eq!(read("64K"), Some(65536));
        assert_eq!(read("0x10M"), Some(16 << 20));
        assert_eq!(read("18446744073709551615"), Some(u64::MAX));
        assert_eq!(read("0xffffffffffffffff"), Some(u64::MAX));
        for wrong in [
            "",
            "K",
            "0x",
            "0xK",
            "-1",
            "+1",
            "1 ",
            "1_0",
            "1T",
            "1k",
            "0X1",
            "1KK",
            "é",
            "18446744073709551616",
            "17179869184G",
            "0x1_0",
        ] {
            assert_eq!(read(wrong), None, "{wrong}");
        }
    }

    #[test]
    fn limits_hold() {
        assert_eq!(limited("byte", "255", 255).ok(), Some(255));
        assert!(limited("byte", "256", 255).is_err());
    }

    #[test]
    fn bytes_need_pairs_of_digits() {
        assert_eq!(bytes("hex", "00ffA5").ok(), Some(alloc::vec![0, 255, 0xa5]));
        assert_eq!(bytes("hex", "0xdead").ok(), Some(alloc::vec![0xde, 0xad]));
        for wrong in ["", "0x", "f", "fg", "+f", "äö"] {
            assert!(bytes("hex", wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn spans_need_a_unit() {
        assert_eq!(span("t", "10ms").ok(), Some(Duration::from_millis(10)));
        assert_eq!(span("t", "3s").ok(), Some(Duration::from_secs(3)));
        assert_eq!(span("t", "7ns").ok(), Some(Duration::from_nanos(7)));
        assert_eq!(span("t", "86400s").ok(), Some(LONGEST));
        assert_eq!(span("t", "86400000000001ns").ok(), None);
        assert_eq!(span("t", "18446744073s").ok(), None);
        for wrong in ["", "s", "3", "3m", "1.5s", "-3s", "99999999999999s"] {
            assert!(span("t", wrong).is_err(), "{wrong}");
        }
    }

    proptest! {
        #[test]
        fn nothing_panics(text in "\\PC{0,12}") {
            let _ = (number("n", &text), bytes("b", &text), span("s", &text));
        }

        #[test]
        fn hex_round_trips(data in proptest::collection::vec(any::<u8>(), 1..40)) {
            prop_assert_eq!(bytes("b", &hex(&data)).ok(), Some(data));
        }
    }
}
