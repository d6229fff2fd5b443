//! The words of one command: positions are taken from the left, options (`name=value`) by name,
//! and what nobody took is refused.

use alloc::vec::Vec;

use crate::answer::Failure;
use crate::number;

/// Words not yet taken.
pub struct Words<'a> {
    positions: Vec<&'a str>,
    next: usize,
    options: Vec<(&'a str, &'a str, bool)>,
}

impl<'a> Words<'a> {
    /// Sorts the words behind the command's name into positions and options.
    pub fn new(words: &[&'a str]) -> Self {
        let (options, positions): (Vec<&str>, Vec<&str>) =
            words.iter().partition(|word| word.contains('='));
        let options = options
            .into_iter()
            .filter_map(|word| word.split_once('='))
            .map(|(name, value)| (name, value, false))
            .collect();
        Words { positions, next: 0, options }
    }

    /// The next word, without taking it.
    pub fn peek(&self) -> Option<&'a str> {
        self.positions.get(self.next).copied()
    }

    /// How many positional words are left.
    pub fn left(&self) -> usize {
        self.positions.len().saturating_sub(self.next)
    }

    /// Takes the next word, which must be there.
    pub fn word(&mut self, what: &str) -> Result<&'a str, Failure> {
        let word =
            self.peek().ok_or_else(|| Failure::invalid(format_args!("{what} is missing")))?;
        self.next += 1;
        Ok(word)
    }

    /// Takes the next word as a number or size.
    pub fn number(&mut self, what: &str) -> Result<u64, Failure> {
        number::number(what, self.word(what)?)
    }

    /// Takes the next word as a number of at most `limit`.
    pub fn limited(&mut self, what: &str, limit: u64) -> Result<u64, Failure> {
        number::limited(what, self.word(what)?, limit)
    }

    /// Takes option `name`.
    pub fn option(&mut self, name: &str) -> Result<Option<&'a str>, Failure> {
        let mut found = None;
        for (_, value, taken) in self.options.iter_mut().filter(|(option, ..)| *option == name) {
            if found.is_some() {
                return Err(Failure::invalid(format_args!("option {name}= is given twice")));
            }
            *taken = true;
            found = Some(*value);
        }
        Ok(found)
    }

    /// Takes option `name` as a number or size.
    pub fn option_number(&mut self, name: &str) -> Result<Option<u64>, Failure> {
        self.option(name)?.map(|text| number::number(name, text)).transpose()
    }

    /// Takes option `name` as a number of at most `limit`.
    pub fn option_limited(&mut self, name: &str, limit: u64) -> Result<Option<u64>, Failure> {
        self.option(name)?.map(|text| number::limited(name, text, limit)).transpose()
    }

    /// Whether option `name` says `1`; `0` and absence say no.
    pub fn flag(&mut self, name: &str) -> Result<bool, Failure> {
        Ok(self.option_limited(name, 1)? == Some(1))
    }

    /// Everything must have been taken.
    pub fn finish(&self) -> Result<(), Failure> {
        if let Some(word) = self.peek() {
            return Err(Failure::invalid(format_args!("`{word}` is one word too many")));
        }
        match self.options.iter().find(|(.., taken)| !taken) {
            Some((name, ..)) => Err(Failure::invalid(format_args!("no option {name}= here"))),
            None => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn positions_and_options_mix_freely() {
        let mut words = Words::new(&["1", "soff=4K", "2", "async=1", "16"]);
        assert_eq!(words.left(), 3);
        assert_eq!(words.number("source").ok(), Some(1));
        assert_eq!(words.option_number("soff").ok(), Some(Some(4096)));
        assert_eq!(words.option_number("doff").ok(), Some(None));
        assert_eq!(words.flag("async").ok(), Some(true));
        assert_eq!(words.number("target").ok(), Some(2));
        assert!(words.finish().is_err(), "16 is left");
        assert_eq!(words.limited("length", 16).ok(), Some(16));
        assert!(words.finish().is_ok());
        assert!(words.number("more").is_err());
    }

    #[test]
    fn unknown_and_doubled_options_are_refused() {
        assert!(Words::new(&["x=1"]).finish().is_err());
        assert!(Words::new(&["x=1", "x=1"]).option("x").is_err());
        assert!(Words::new(&["async=2"]).flag("async").is_err());
        assert!(Words::new(&["="]).finish().is_err());
    }
}
