//! Both firmware mailboxes (specification 01 §6–7, §14.5–14.7).

use crc::{CRC_32_ISCSI, Crc};

use crate::faults::Fault;
use crate::function::Function;
use crate::miscram::{
    DATA, DATA_BYTES, REQUEST_HIGH, REQUEST_LOW, RESPONSE_HIGH, RESPONSE_LOW, TRIGGER,
};
use crate::report::{EventKind, Post};
use crate::time::Later;

const CASTAGNOLI: Crc<u32> = Crc::<u32>::new(&CRC_32_ISCSI);

const HEADER_BYTES: usize = 8;
/// Bytes of either legacy buffer.
const LEGACY_BYTES: usize = 0xffff;

const READ: u8 = 1;
const POST_TO_CW: u8 = 2;
const SET_POWER_PROFILE: u8 = 3;
const GET_DATA: u8 = 4;
/// Feature of GET_DATA type 2.
const HBM_7200: u8 = 5;
const SET_FEATURE: u8 = 5;

const SUCCESS: u8 = 0;
const FAIL: u8 = 1;
const UNKNOWN_COMMAND: u8 = 2;

/// Most words one READ may ask for (06 §14.10).
const READ_LIMIT: usize = 8190;

/// CRC-32C of a message: the header with its CRC field zero, then the payload (01 §6).
pub fn message_crc(first_word: u32, payload: &[u8]) -> u32 {
    let mut digest = CASTAGNOLI.digest();
    digest.update(&first_word.to_le_bytes());
    digest.update(&[0; 4]);
    digest.update(payload);
    digest.finalize()
}

/// First word of a message header.
fn header(sequence: u8, second: u8, size: usize) -> u32 {
    u32::from(sequence) | u32::from(second) << 8 | (size as u32) << 16
}

/// An answer on its way.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) enum Answer {
    /// Into MiscRAM: first header word, CRC, payload.
    RegisterFile { header: u32, crc: u32, payload: Vec<u8> },
    /// Into host memory at this bus address, byte 0 last.
    Legacy { address: u64, bytes: Vec<u8> },
}

impl Function {
    /// A request in the registers of MiscRAM.
    pub(crate) fn register_file_request(&mut self) {
        let first = self.misc.get(REQUEST_HIGH);
        let [sequence, command, ..] = first.to_le_bytes();
        let size = (first >> 16) as usize;
        let data = self.data_window();
        let payload = size.checked_sub(HEADER_BYTES).and_then(|len| data.get(..len));
        let (error, answer) = match payload {
            Some(payload) if message_crc(first, payload) == self.misc.get(REQUEST_LOW) => {
                self.execute(command, payload)
            }
            _ => {
                self.violation(EventKind::MailboxMalformed, None, u64::from(first));
                (FAIL, Vec::new())
            }
        };
        let Some((sequence, error, oversize)) = self.answer_faults(sequence, error) else { return };
        let payload = if error == SUCCESS { answer } else { Vec::new() };
        let size = if oversize { 0xffff } else { HEADER_BYTES + payload.len() };
        let header = header(sequence, error, size);
        let mut crc = message_crc(header, &payload);
        if self.faults.strike(Fault::BadCrc).is_some() {
            crc ^= 0x5a5a_5a5a;
        }
        self.answer_later(Answer::RegisterFile { header, crc, payload });
    }

    /// A request in host memory.
    pub(crate) fn legacy_request(&mut self) {
        let request = self.mailbox_address(REQUEST_HIGH, REQUEST_LOW);
        let response = self.mailbox_address(RESPONSE_HIGH, RESPONSE_LOW);
        let mut head = [0; HEADER_BYTES];
        if self.host_read(request, &mut head).is_err() {
            return;
        }
        let [sequence, command, size_low, size_high, crc @ ..] = head;
        let size = usize::from(u16::from_le_bytes([size_low, size_high]));
        let first = u32::from_le_bytes([sequence, command, size_low, size_high]);
        let mut payload = vec![0; size.saturating_sub(HEADER_BYTES)];
        if self.host_read(request + HEADER_BYTES as u64, &mut payload).is_err() {
            return;
        }
        let sound = size >= HEADER_BYTES && message_crc(first, &payload) == u32::from_le_bytes(crc);
        let (error, answer) = if sound {
            self.check_post(command, &payload);
            self.execute(command, &payload)
        } else {
            self.violation(EventKind::MailboxMalformed, None, u64::from(first));
            (FAIL, Vec::new())
        };
        let Some((sequence, error, oversize)) = self.answer_faults(sequence, error) else { return };
        let answer = if error == SUCCESS { answer } else { Vec::new() };
        let size = if oversize { LEGACY_BYTES } else { 4 + answer.len() };
        let mut bytes = header(sequence, error, size).to_le_bytes().to_vec();
        bytes.extend(answer);
        self.answer_later(Answer::Legacy { address: response, bytes });
    }

    fn mailbox_address(&self, high: u64, low: u64) -> u64 {
        let tagged = u64::from(self.misc.get(high)) << 32 | u64::from(self.misc.get(low));
        self.map.host_address(tagged)
    }

    fn data_window(&self) -> [u8; DATA_BYTES] {
        let mut data = [0; DATA_BYTES];
        for (place, chunk) in data.as_chunks_mut::<4>().0.iter_mut().enumerate() {
            *chunk = self.misc.get(DATA + 4 * place as u64).to_le_bytes();
        }
        data
    }

    /// Carries out a command; gives error code and payload of the answer.
    fn execute(&mut self, command: u8, payload: &[u8]) -> (u8, Vec<u8>) {
        match command {
            READ => self.read_words(payload),
            POST_TO_CW if payload.len() <= DATA_BYTES => {
                let at_ns = self.clock.now_ns();
                self.recorder.post(Post { at_ns, bytes: payload.to_vec() });
                (SUCCESS, Vec::new())
            }
            SET_POWER_PROFILE if payload.len() == 8 => {
                self.profile = payload[4];
                (SUCCESS, Vec::new())
            }
            GET_DATA => self.get_data(payload),
            SET_FEATURE if payload.len() == 4 => (SUCCESS, Vec::new()),
            POST_TO_CW | SET_POWER_PROFILE | SET_FEATURE => (FAIL, Vec::new()),
            _ => (UNKNOWN_COMMAND, Vec::new()),
        }
    }

    /// READ: one word for each address; what leads nowhere reads 0 (06 §14.10).
    fn read_words(&mut self, payload: &[u8]) -> (u8, Vec<u8>) {
        let (addresses, rest) = payload.as_chunks::<8>();
        if !rest.is_empty() || addresses.len() > READ_LIMIT {
            return (FAIL, Vec::new());
        }
        let mut answer = Vec::with_capacity(4 * addresses.len());
        for address in addresses {
            let mut word = [0; 4];
            if self.dma_read(u64::from_le_bytes(*address), &mut word).is_err() {
                word = [0; 4];
            }
            answer.extend(word);
        }
        (SUCCESS, answer)
    }

    /// GET_DATA in the layout of 01 §7.
    ///
    /// assumed: profiles 0 to 2 exist; HBM-7200 has the first of its own where it is configured, no
    /// other feature has any.
    fn get_data(&self, payload: &[u8]) -> (u8, Vec<u8>) {
        match payload {
            [1, _, 0, 0] => (SUCCESS, vec![self.profile, 0, 0, 0]),
            [2, feature, 0, 0] => {
                let mut answer = vec![0; 36];
                if *feature == 0 {
                    answer[0] = 3;
                    answer[4] = 0b111;
                } else if *feature == HBM_7200 && self.config.hbm_7200 {
                    answer[0] = 1;
                    answer[4] = 0b1;
                }
                (SUCCESS, answer)
            }
            _ => (FAIL, Vec::new()),
        }
    }

    /// A legacy metric post repeats what stands in the value area (07 §13.2).
    fn check_post(&mut self, command: u8, payload: &[u8]) {
        if command == POST_TO_CW && self.data_window().get(..payload.len()) != Some(payload) {
            self.violation(EventKind::PostMismatch, None, payload.len() as u64);
        }
    }

    /// What the fault knobs make of an answer: sequence, error, whether the size is absurd.
    /// `None` holds it back.
    fn answer_faults(&mut self, sequence: u8, error: u8) -> Option<(u8, u8, bool)> {
        if self.faults.strike(Fault::MailboxSilent).is_some() {
            return None;
        }
        let mut answer = (sequence, error, false);
        if self.faults.strike(Fault::MailboxFail).is_some() {
            answer.1 = FAIL;
        }
        if self.faults.strike(Fault::MailboxUnknown).is_some() {
            answer.1 = UNKNOWN_COMMAND;
        }
        if self.faults.strike(Fault::MailboxSequence).is_some() {
            answer.0 = sequence.wrapping_sub(1);
        }
        answer.2 = self.faults.strike(Fault::MailboxOversize).is_some();
        Some(answer)
    }

    fn answer_later(&mut self, answer: Answer) {
        let late = self.faults.strike(Fault::MailboxDelay).unwrap_or(0);
        match self.config.mailbox_delay_ns.saturating_add(late) {
            0 => self.answer(answer),
            delay => {
                let reset = self.reset_number();
                self.after(delay, Later::Mailbox { reset, answer });
            }
        }
    }

    /// Delivers an answer; TRIGGER is cleared last.
    pub(crate) fn answer(&mut self, answer: Answer) {
        match answer {
            Answer::RegisterFile { header, crc, payload } => {
                for (place, chunk) in payload.chunks(4).enumerate() {
                    let mut word = [0; 4];
                    word[..chunk.len()].copy_from_slice(chunk);
                    self.misc.set(DATA + 4 * place as u64, u32::from_le_bytes(word));
                }
                self.misc.set(REQUEST_HIGH, header);
                self.misc.set(REQUEST_LOW, crc);
            }
            Answer::Legacy { address, bytes } => {
                if self.write_legacy(address, &bytes).is_err() {
                    return;
                }
            }
        }
        self.recorder.totals.mailbox_answers += 1;
        self.misc.set(TRIGGER, 0);
    }

    fn write_legacy(&mut self, address: u64, bytes: &[u8]) -> Result<(), crate::dma::Failed> {
        let (first, rest) = bytes.split_at(bytes.len().min(4));
        if !rest.is_empty() {
            self.host_write(address + 4, rest)?;
        }
        self.host_write(address + 1, &first[1..])?;
        // With the sequence byte the whole word goes out, as one store where it is aligned.
        self.host_write(address, first)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dev_e24_dev_e25_dev_e26_checksums() {
        let check = Crc::<u32>::new(&CRC_32_ISCSI).checksum(b"123456789");
        assert_eq!(check, 0xe306_9283);
        let profile = |number: u8| message_crc(0x0010_0302, &[0, 0, 0, 0, number, 0, 0, 0]);
        assert_eq!((profile(1), profile(0)), (0x847a_a309, 0x593f_09b1));
        let addresses = |list: &[u64]| -> Vec<u8> {
            list.iter().flat_map(|address| address.to_le_bytes()).collect()
        };
        let crc = |first, list: &[u64]| message_crc(first, &addresses(list)).to_le_bytes();
        assert_eq!(crc(0x0010_0102, &[0x80_06c8_4000]), [0x3c, 0xa8, 0x58, 0x5c]);
        assert_eq!(crc(0x0018_0102, &[0x80_06c8_4000, 0x80_06c8_4024]), [0xa5, 0xc1, 0x2f, 0xde]);
        assert_eq!(message_crc(0x0010_0102, &addresses(&[0x0fff_f0fa_0000])), 0xd387_5879);
        assert_eq!(message_crc(0x000b_02ff, b"abc").to_le_bytes(), [0xec, 0x2e, 0x7f, 0xfa]);
    }
}
