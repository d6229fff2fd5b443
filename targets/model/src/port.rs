//! The control line in configuration space: how a guest on the other side of a bus reaches
//! [`Function::control`](crate::Function::control).
//!
//! A vendor-specific capability at 0x40 that no hardware has: whoever finds its two signature words
//! knows that the function is emulated. Reading it changes nothing. A guest that does not look for
//! it sees a function as any other.
//!
//! | offset | register |
//! |---|---|
//! | +0x00 | capability id 9, next, length 0x18, version 1 |
//! | +0x04, +0x08 | `AXON`, `MODL` |
//! | +0x0c | index of a word of the line and of the answer |
//! | +0x10 | write: that word of the line; read: that word of the answer |
//! | +0x14 | write: carry out so many bytes of the line; read: bytes of the answer, bit 31: refused |

/// Where the capability is in configuration space.
pub(crate) const CAPABILITY: u16 = 0x40;

const LENGTH: u16 = 0x18;
const HEADER: u32 = 0x09 | (LENGTH as u32) << 16 | 1 << 24;
const SIGNATURE: [u32; 2] = [0x4e4f_5841, 0x4c44_4f4d];
const INDEX: u16 = 0x0c;
const DATA: u16 = 0x10;
const RUN: u16 = 0x14;
const REFUSED: u32 = 1 << 31;

/// Words of the longest line, and of the longest answer; what is longer is cut.
const LINE_WORDS: usize = 256;
const ANSWER_BYTES: usize = 4096;

/// The registers of the capability.
#[derive(Debug, Default)]
pub(crate) struct ControlPort {
    index: u32,
    line: Vec<u32>,
    answer: Vec<u8>,
    refused: bool,
}

impl ControlPort {
    /// Whether an access to configuration space is one to the capability.
    pub fn covers(offset: u16) -> bool {
        (CAPABILITY..CAPABILITY + LENGTH).contains(&offset)
    }

    /// The byte at an offset of configuration space inside the capability.
    pub fn read_byte(&self, offset: u16) -> u8 {
        let inside = offset - CAPABILITY;
        self.word(inside & !3).to_le_bytes()[usize::from(inside & 3)]
    }

    fn word(&self, register: u16) -> u32 {
        match register {
            0x00 => HEADER,
            0x04 => SIGNATURE[0],
            0x08 => SIGNATURE[1],
            INDEX => self.index,
            DATA => {
                let at = self.index as usize * 4;
                let byte = |k| self.answer.get(at + k).copied().unwrap_or(0);
                u32::from_le_bytes([byte(0), byte(1), byte(2), byte(3)])
            }
            _ => self.answer.len() as u32 | if self.refused { REFUSED } else { 0 },
        }
    }

    /// A write to configuration space; answers the line to carry out. Only whole aligned words act.
    pub fn write(&mut self, offset: u16, from: &[u8]) -> Option<String> {
        let register = offset.checked_sub(CAPABILITY)?;
        let value = u32::from_le_bytes(from.try_into().ok()?);
        match register {
            INDEX => self.index = value % 0x1000,
            DATA => {
                let index = self.index as usize;
                if index < LINE_WORDS {
                    self.line.resize(self.line.len().max(index + 1), 0);
                    self.line[index] = value;
                }
            }
            RUN => {
                let bytes: Vec<u8> = self.line.drain(..).flat_map(u32::to_le_bytes).collect();
                let line = bytes.get(..value as usize).unwrap_or(&bytes);
                return Some(String::from_utf8_lossy(line).into_owned());
            }
            _ => {}
        }
        None
    }

    /// What became of the line.
    pub fn finish(&mut self, result: Result<String, String>) {
        self.refused = result.is_err();
        let (Ok(text) | Err(text)) = result;
        self.answer = text.into_bytes();
        self.answer.truncate(ANSWER_BYTES);
        self.index = 0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(port: &ControlPort, register: u16) -> u32 {
        let byte = |k| port.read_byte(CAPABILITY + register + k);
        u32::from_le_bytes([byte(0), byte(1), byte(2), byte(3)])
    }

    fn write(port: &mut ControlPort, register: u16, value: u32) -> Option<String> {
        port.write(CAPABILITY + register, &value.to_le_bytes())
    }

    #[test]
    fn a_line_goes_in_and_an_answer_comes_out() {
        let mut port = ControlPort::default();
        assert_eq!(read(&port, 4).to_le_bytes(), *b"AXON");
        for (index, word) in [(0, *b"faul"), (1, *b"t cl"), (2, *b"ear\0")] {
            assert_eq!(write(&mut port, INDEX, index), None);
            assert_eq!(write(&mut port, DATA, u32::from_le_bytes(word)), None);
        }
        assert_eq!(write(&mut port, RUN, 11).as_deref(), Some("fault clear"));
        port.finish(Ok("no faults".into()));
        assert_eq!(read(&port, RUN), 9);
        assert_eq!(write(&mut port, INDEX, 2), None);
        assert_eq!(read(&port, DATA), u32::from(b's'));
        port.finish(Err("no".into()));
        assert_eq!(read(&port, RUN), REFUSED | 2);
        assert_eq!(write(&mut port, RUN, 4).as_deref(), Some(""), "the line was used up");
    }

    #[test]
    fn what_makes_no_sense_does_nothing() {
        let mut port = ControlPort::default();
        for index in [LINE_WORDS as u32, u32::MAX] {
            assert_eq!(write(&mut port, INDEX, index), None);
            assert_eq!(write(&mut port, DATA, 1), None);
            assert_eq!(read(&port, DATA), 0);
        }
        assert_eq!(port.write(CAPABILITY + INDEX + 1, &[1, 2]), None);
        assert_eq!(port.write(0x10, &[0; 4]), None);
        assert_eq!(write(&mut port, 0, u32::MAX), None);
        assert_eq!(read(&port, 0), HEADER);
        assert_eq!(write(&mut port, RUN, u32::MAX).as_deref(), Some(""));
    }
}
