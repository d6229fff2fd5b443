//! Prometheus text exposition, format 0.0.4 (specification 07 §16.4).
//!
//! Rendering streams into any [`fmt::Write`], or into one buffer of which nothing is touched where
//! it is too small. It only reads [`Snapshot`]s: the same snapshots give the same text.
//!
//! | module | what it holds |
//! |---|---|
//! | `families` | every family: name, kind, help, series |
//! | `text` | samples, labels, decimals |
//! | `frame` | comment lines around the text on a console |

use core::fmt::{self, Write};

use crate::{Error, Snapshot};

mod families;
mod frame;
mod text;

pub use frame::{FRAME_BYTES, Frame};

use text::Samples;

/// The text of one or more devices.
pub struct Exposition<'a> {
    /// The devices, in ascending order of their numbers.
    pub devices: &'a [Snapshot],
    /// Only families whose name starts with this; empty for all.
    pub prefix: &'a str,
}

impl<'a> Exposition<'a> {
    /// All families of `devices`.
    pub fn new(devices: &'a [Snapshot]) -> Self {
        Exposition { devices, prefix: "" }
    }

    /// Writes the text, family by family.
    ///
    /// # Errors
    /// Those of the sink.
    pub fn render(&self, sink: &mut dyn Write) -> fmt::Result {
        let wanted =
            families::FAMILIES.iter().filter(|family| family.name.starts_with(self.prefix));
        for family in wanted {
            writeln!(sink, "# HELP {} {}", family.name, family.help)?;
            writeln!(sink, "# TYPE {} {}", family.name, family.kind.name())?;
            let mut samples = Samples { sink: &mut *sink, name: family.name };
            (family.series)(&mut samples, self.devices)?;
        }
        Ok(())
    }

    /// Bytes of the text.
    pub fn len_bytes(&self) -> usize {
        let mut counter = Counting(0);
        // Counting cannot fail.
        let _ = self.render(&mut counter);
        counter.0
    }

    /// Writes the text into one buffer and answers its length.
    ///
    /// # Errors
    /// [`Error::TooSmall`] with the length needed; the buffer is as it was.
    pub fn render_into(&self, buffer: &mut [u8]) -> Result<usize, Error> {
        let needed = self.len_bytes();
        let Some(room) = buffer.get_mut(..needed) else {
            return Err(Error::TooSmall { needed });
        };
        self.render(&mut Filling { room, at: 0 }).map_err(|_| Error::TooSmall { needed })?;
        Ok(needed)
    }
}

struct Counting(usize);

impl Write for Counting {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        self.0 += text.len();
        Ok(())
    }
}

struct Filling<'a> {
    room: &'a mut [u8],
    at: usize,
}

impl Write for Filling<'_> {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        let to = self.room.get_mut(self.at..self.at + text.len()).ok_or(fmt::Error)?;
        to.copy_from_slice(text.as_bytes());
        self.at += text.len();
        Ok(())
    }
}

#[cfg(test)]
mod tests;
