//! The wire form of a post: records back to back, 128 bytes at most (specification 07 §5.5).

use core::fmt::{self, Write};

/// Bytes of a post: the data window of the mailbox.
pub const STREAM_BYTES: usize = 128;

/// Records of one post: id, length, text.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct PostStream {
    bytes: [u8; STREAM_BYTES],
    len: usize,
}

impl PostStream {
    /// No records.
    pub const fn new() -> Self {
        PostStream { bytes: [0; STREAM_BYTES], len: 0 }
    }

    /// Appends a record where it fits, header and all; a record that does not fit leaves no trace.
    pub fn push(&mut self, id: u8, value: fmt::Arguments<'_>) -> bool {
        let start = self.len;
        if self.put(&[id, 0]).and_then(|()| self.write_fmt(value)).is_err() {
            self.len = start;
            return false;
        }
        if let Some(length) = self.bytes.get_mut(start + 1) {
            *length = (self.len - start - 2) as u8;
        }
        true
    }

    /// What goes over the wire.
    pub fn as_bytes(&self) -> &[u8] {
        self.bytes.get(..self.len).unwrap_or_default()
    }

    /// Whether there are no records.
    pub const fn is_empty(&self) -> bool {
        self.len == 0
    }

    fn put(&mut self, bytes: &[u8]) -> fmt::Result {
        let room = self.bytes.get_mut(self.len..self.len + bytes.len()).ok_or(fmt::Error)?;
        room.copy_from_slice(bytes);
        self.len += bytes.len();
        Ok(())
    }
}

impl Default for PostStream {
    fn default() -> Self {
        PostStream::new()
    }
}

impl Write for PostStream {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        self.put(text.as_bytes())
    }
}

impl fmt::Debug for PostStream {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_map()
            .entries(records(self.as_bytes()).map(|(id, value)| (id, value.escape_ascii())))
            .finish()
    }
}

/// The records in `stream`; ends at one that runs past the end.
pub fn records(stream: &[u8]) -> impl Iterator<Item = (u8, &[u8])> {
    let mut rest = stream;
    core::iter::from_fn(move || {
        let ([id, length], tail) = rest.split_first_chunk()?;
        let (value, tail) = tail.split_at_checked(usize::from(*length))?;
        rest = tail;
        Some((*id, value))
    })
}

#[cfg(test)]
mod tests {
    use alloc::vec::Vec;

    use proptest::prelude::*;

    use super::*;

    #[test]
    fn the_example_of_the_specification() {
        let mut stream = PostStream::new();
        assert!(stream.push(200, format_args!("{}", 12345)));
        assert_eq!(stream.as_bytes(), [0xc8, 5, 0x31, 0x32, 0x33, 0x34, 0x35]);
    }

    #[test]
    fn a_record_that_does_not_fit_is_left_out_and_smaller_ones_still_go() {
        let mut stream = PostStream::new();
        assert!(stream.push(1, format_args!("{:>120}", "")));
        assert!(!stream.push(2, format_args!("12345")));
        assert!(stream.push(3, format_args!("1234")));
        assert_eq!(stream.as_bytes().len(), 128);
        assert!(!stream.push(4, format_args!("")), "no room for a header");
        let ids: Vec<u8> = records(stream.as_bytes()).map(|(id, _)| id).collect();
        assert_eq!(ids, [1, 3]);
    }

    #[test]
    fn a_record_past_the_end_ends_the_list() {
        assert_eq!(records(&[1, 1, b'x', 2, 5, b'y']).count(), 1);
        assert_eq!(records(&[9]).count(), 0);
    }

    proptest! {
        #[test]
        fn what_was_pushed_is_read_back(
            values in proptest::collection::vec((1..=255_u8, "[0-9.]{0,63}"), 0..40)
        ) {
            let mut stream = PostStream::new();
            let mut left = STREAM_BYTES;
            let mut expected = Vec::new();
            for (id, value) in &values {
                let fits = value.len() + 2 <= left;
                prop_assert_eq!(stream.push(*id, format_args!("{}", value)), fits);
                if fits {
                    left -= value.len() + 2;
                    expected.push((*id, value.as_bytes()));
                }
            }
            prop_assert_eq!(records(stream.as_bytes()).collect::<Vec<_>>(), expected);
        }
    }
}
