//! Headers, check sums and payloads on the wire (specification 01 §6, §7). What is inferred about
//! newer commands stands here and nowhere else.

use axon_ports::telemetry::counters::MailboxCommand;
use crc::{CRC_32_ISCSI, Crc};

/// Bytes of a request header, and of a response header in the register file.
pub(super) const HEADER_BYTES: usize = 8;
/// Bytes of a response header in host memory.
pub(super) const SHORT_HEADER_BYTES: usize = 4;

static CASTAGNOLI: Crc<u32> = Crc::<u32>::new(&CRC_32_ISCSI);

/// First word of a header: sequence, command or error code, size with header.
pub(super) fn first_word(sequence: u8, second: u8, size: usize) -> u32 {
    u32::from(sequence) | u32::from(second) << 8 | (size as u32) << 16
}

/// Sequence, command or error code, size with header.
pub(super) fn fields(first: u32) -> (u8, u8, usize) {
    (first as u8, (first >> 8) as u8, (first >> 16) as usize)
}

/// Check sum of a message: the header with its own word 0, then the payload.
pub(super) fn checksum(first: u32, payload: &[u8]) -> u32 {
    let mut digest = CASTAGNOLI.digest();
    digest.update(&first.to_le_bytes());
    digest.update(&[0; 4]);
    digest.update(payload);
    digest.finalize()
}

/// First word and check sum of a request.
pub(super) fn request(sequence: u8, command: MailboxCommand, payload: &[u8]) -> (u32, u32) {
    let first = first_word(sequence, command as u8, HEADER_BYTES + payload.len());
    (first, checksum(first, payload))
}

/// The sequence number after `last`; 0 is never used.
pub(super) const fn next_sequence(last: u8) -> u8 {
    match last.wrapping_add(1) {
        0 => 1,
        next => next,
    }
}

/// Bytes as words, the last one filled up with zeros.
pub(super) fn words(bytes: &[u8]) -> impl Iterator<Item = u32> {
    bytes.chunks(4).map(|chunk| {
        let mut word = [0; 4];
        word.iter_mut().zip(chunk).for_each(|(to, byte)| *to = *byte);
        u32::from_le_bytes(word)
    })
}

/// SET_POWER_PROFILE: profile in byte 4; margin, frequency and OCW index stay 0.
pub(super) const fn set_profile(profile: u8) -> [u8; 8] {
    [0, 0, 0, 0, profile, 0, 0, 0]
}

/// GET_DATA, type 1: the current profile. assumed layout: type, feature, two zeros.
pub(super) const CURRENT_PROFILE: [u8; 4] = [1, 0, 0, 0];
/// Bytes of its answer; the profile is the first.
pub(super) const CURRENT_PROFILE_ANSWER: usize = 4;

/// GET_DATA, type 2: the profiles of a feature, 0 for all. assumed layout as above.
pub(super) const fn available_profiles(feature: u8) -> [u8; 4] {
    [2, feature, 0, 0]
}

/// Bytes of its answer: count, three zeros, 32 bytes of bitmap.
pub(super) const AVAILABLE_PROFILES_ANSWER: usize = 36;

/// SET_FEATURE: bits in byte 0. assumed layout.
pub(super) const fn set_features(bits: u8) -> [u8; 4] {
    [bits, 0, 0, 0]
}

#[cfg(test)]
mod tests {
    use alloc::vec::Vec;

    use super::*;

    fn addresses(list: &[u64]) -> Vec<u8> {
        list.iter().flat_map(|address| address.to_le_bytes()).collect()
    }

    fn header(sequence: u8, command: MailboxCommand, payload: &[u8]) -> [u8; 8] {
        let (first, sum) = request(sequence, command, payload);
        let mut bytes = [0; 8];
        bytes[..4].copy_from_slice(&first.to_le_bytes());
        bytes[4..].copy_from_slice(&sum.to_le_bytes());
        bytes
    }

    #[test]
    fn dev_e24_profiles() {
        use MailboxCommand::SetPowerProfile;
        assert_eq!(request(2, SetPowerProfile, &set_profile(1)), (0x0010_0302, 0x847a_a309));
        assert_eq!(request(2, SetPowerProfile, &set_profile(0)).1, 0x593f_09b1);
    }

    #[test]
    fn dev_e25_reads() {
        let read = |list: &[u64]| header(2, MailboxCommand::Read, &addresses(list));
        assert_eq!(read(&[0x80_06c8_4000]), [2, 1, 0x10, 0, 0x3c, 0xa8, 0x58, 0x5c]);
        let two = [0x80_06c8_4000, 0x80_06c8_4024];
        assert_eq!(read(&two), [2, 1, 0x18, 0, 0xa5, 0xc1, 0x2f, 0xde]);
        let v2 = addresses(&[0x0fff_f0fa_0000]);
        assert_eq!(request(2, MailboxCommand::Read, &v2).1, 0xd387_5879);
    }

    #[test]
    fn dev_e26_sequence_numbers_leave_0_out() {
        assert_eq!((next_sequence(1), next_sequence(254), next_sequence(255)), (2, 255, 1));
        let post = header(255, MailboxCommand::PostMetric, b"abc");
        assert_eq!(post, [0xff, 2, 0x0b, 0, 0xec, 0x2e, 0x7f, 0xfa]);
    }

    #[test]
    fn dev_e30_a_last_partial_word_is_filled_up_with_zeros() {
        let all: Vec<u32> = words(&[1, 2, 3, 4, 5]).collect();
        assert_eq!(all, [0x0403_0201, 5]);
    }
}
