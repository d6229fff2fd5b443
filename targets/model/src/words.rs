//! Words of command lines that name sizes and faults, for every program that starts the model.

use std::fmt;
use std::str::FromStr;

use crate::{FunctionConfig, Product};

/// Bytes from `64K`, `2G`, `0x1000` or `4096`.
///
/// # Errors
/// A sentence.
pub fn parse_size(text: &str) -> Result<u64, String> {
    let (digits, unit) = match text.char_indices().next_back() {
        Some((at, 'K' | 'k')) => (&text[..at], 1 << 10),
        Some((at, 'M' | 'm')) => (&text[..at], 1 << 20),
        Some((at, 'G' | 'g')) => (&text[..at], 1 << 30),
        _ => (text, 1u64),
    };
    let number = match digits.strip_prefix("0x") {
        Some(hex) => u64::from_str_radix(hex, 16),
        None => digits.parse(),
    };
    number
        .ok()
        .and_then(|number| number.checked_mul(unit))
        .ok_or_else(|| format!("{text} is not a size (4096, 64K, 512M, 2G, 0x1000)"))
}

/// A fault for one function or for all: `NAME[=VALUE][@DEVICE][,after=N][,times=N]`. Name and
/// value are ones that the model takes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FaultWord {
    /// `NAME[=VALUE][,after=N][,times=N]`, as [`FunctionConfig::fault`] takes it.
    pub text: String,
    /// The one function it is for, by position; `None` for all.
    pub device: Option<usize>,
}

impl FromStr for FaultWord {
    type Err = String;

    fn from_str(text: &str) -> Result<FaultWord, String> {
        let (head, options) = match text.split_once(',') {
            Some((head, options)) => (head, Some(options)),
            None => (text, None),
        };
        let (name, device) = match head.split_once('@') {
            Some((name, device)) => {
                let number = device.parse();
                (name, Some(number.map_err(|_| format!("{device:?} is no device number"))?))
            }
            None => (head, None),
        };
        if name.is_empty() || name.starts_with('=') {
            return Err("a fault is NAME[=VALUE][@DEVICE][,after=N][,times=N]".to_string());
        }
        let text = match options {
            Some(options) => format!("{name},{options}"),
            None => name.to_string(),
        };
        let mut tried = FunctionConfig::new(Product::Trn1, 0);
        tried.fault(&text).map_err(|error| error.to_string())?;
        Ok(FaultWord { text, device })
    }
}

impl fmt::Display for FaultWord {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (head, rest) = self.text.split_at(self.text.find(',').unwrap_or(self.text.len()));
        match self.device {
            Some(device) => write!(f, "{head}@{device}{rest}"),
            None => f.write_str(&self.text),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_have_units() {
        for (text, bytes) in
            [("4096", 4096), ("64K", 65536), ("2g", 2 << 30), ("0x1000", 4096), ("3M", 3 << 20)]
        {
            assert_eq!(parse_size(text), Ok(bytes));
        }
        for wrong in ["", "G", "1T", "-1", "0x", "99999999999G", "1µ"] {
            assert!(parse_size(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn faults_name_a_device_and_counts() {
        let word = |text: &str| text.parse::<FaultWord>().map(|word| (word.text, word.device));
        assert_eq!(word("slow"), Ok(("slow".into(), None)));
        assert_eq!(word("slow=3@2,after=7"), Ok(("slow=3,after=7".into(), Some(2))));
        assert_eq!(word("bar4-absent@1"), Ok(("bar4-absent".into(), Some(1))));
        for wrong in
            ["", "=1", "@0", "slow@x", "slow,before=1", "slow,after=x", "nonsense", "drop-marker=x"]
        {
            assert!(word(wrong).is_err(), "{wrong}");
        }
        for text in ["slow", "slow=3@2,after=7"] {
            assert_eq!(text.parse::<FaultWord>().unwrap().to_string(), text);
        }
        assert!(word("nonsense").unwrap_err().contains("no fault is called \"nonsense\""));
    }
}
