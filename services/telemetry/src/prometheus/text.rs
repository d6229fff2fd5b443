//! The small change of the format: samples, labels, decimals without exponent.

use core::fmt::{self, Display, Write};

/// Writes the samples of one family.
pub(super) struct Samples<'a> {
    pub sink: &'a mut dyn Write,
    pub name: &'static str,
}

/// Labels of a sample in their order.
pub(super) type Labels<'a> = &'a [(&'a str, &'a dyn Display)];

impl Samples<'_> {
    /// One sample.
    pub(super) fn put(&mut self, labels: Labels<'_>, value: impl Display) -> fmt::Result {
        self.put_part("", labels, value)
    }

    /// One sample of a part of a histogram: `_bucket`, `_sum`, `_count`.
    pub(super) fn put_part(
        &mut self,
        part: &str,
        labels: Labels<'_>,
        value: impl Display,
    ) -> fmt::Result {
        write!(self.sink, "{}{part}", self.name)?;
        for (at, (name, label)) in labels.iter().enumerate() {
            self.sink.write_str(if at == 0 { "{" } else { "," })?;
            write!(self.sink, "{name}=\"")?;
            write!(Escaping(self.sink), "{label}")?;
            self.sink.write_char('"')?;
        }
        if !labels.is_empty() {
            self.sink.write_char('}')?;
        }
        writeln!(self.sink, " {value}")
    }
}

/// Escapes what goes into a label value.
pub(super) struct Escaping<'a>(pub &'a mut dyn Write);

impl Write for Escaping<'_> {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        for piece in text.split_inclusive(['"', '\\', '\n']) {
            let (plain, escape) = match piece.as_bytes().last() {
                Some(b'"') => (&piece[..piece.len() - 1], "\\\""),
                Some(b'\\') => (&piece[..piece.len() - 1], "\\\\"),
                Some(b'\n') => (&piece[..piece.len() - 1], "\\n"),
                _ => (piece, ""),
            };
            self.0.write_str(plain)?;
            self.0.write_str(escape)?;
        }
        Ok(())
    }
}

/// A number in units of 10^-places, as a plain decimal without trailing zeros.
#[derive(Clone, Copy)]
pub(super) struct Decimal {
    pub units: u64,
    pub places: u32,
}

impl Display for Decimal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let one = 10_u64.pow(self.places.min(19));
        let (whole, mut rest) = (self.units / one, self.units % one);
        write!(f, "{whole}")?;
        let mut places = self.places.min(19) as usize;
        while rest != 0 && rest % 10 == 0 {
            rest /= 10;
            places -= 1;
        }
        if rest != 0 { write!(f, ".{rest:0places$}") } else { Ok(()) }
    }
}

#[cfg(test)]
mod tests {
    use alloc::format;
    use alloc::string::String;

    use proptest::prelude::*;

    use super::*;

    #[test]
    fn tel_e47_label_values_are_escaped() {
        let mut text = String::new();
        let mut samples = Samples { sink: &mut text, name: "a" };
        samples.put(&[("x", &"say \"hi\"\\\nbye"), ("y", &1)], 5).unwrap();
        samples.put(&[], 7).unwrap();
        assert_eq!(text, "a{x=\"say \\\"hi\\\"\\\\\\nbye\",y=\"1\"} 5\na 7\n");
    }

    #[test]
    fn decimals_have_no_exponent_and_no_trailing_zeros() {
        let decimal = |units, places| format!("{}", Decimal { units, places });
        assert_eq!(decimal(0, 12), "0");
        assert_eq!(decimal(1, 12), "0.000000000001");
        assert_eq!(decimal(1_500, 3), "1.5");
        assert_eq!(decimal(2_000, 3), "2");
        assert_eq!(decimal(u64::MAX, 12), "18446744.073709551615");
        assert_eq!(decimal(7, 0), "7");
    }

    proptest! {
        #[test]
        fn decimals_mean_what_they_say(units in 0..1_u64 << 52, places in 0..10_u32) {
            let value: f64 = format!("{}", Decimal { units, places }).parse().unwrap();
            let expected = units as f64 / 10_f64.powi(places as i32);
            prop_assert!((value - expected).abs() <= expected * 1e-12);
        }
    }
}
