//! The SMBIOS tables, for one thing: the product name, which says what kind of instance this is.

use alloc::string::String;
use core::ops::Range;

use crate::memory::paging;

/// Where firmware leaves the entry point, at a multiple of 16.
const ENTRY_POINTS: Range<u64> = 0xf_0000..0x10_0000;

/// Longest tables taken.
const LIMIT_BYTES: usize = 1 << 20;

/// Structure type of system information.
const SYSTEM: u8 = 1;
/// Structure type that ends the tables.
const END: u8 = 127;

/// The product name of the system; `None` without SMBIOS, or without a name.
pub fn product_name() -> Option<String> {
    let entry_points = physical(ENTRY_POINTS.start, 0x1_0000)?;
    let (address, len) = entry_points.chunks(16).enumerate().find_map(|(index, line)| {
        line.starts_with(b"_SM").then(|| tables(&entry_points[16 * index..])).flatten()
    })?;
    find_product_name(physical(address, len)?)
}

/// Memory of the firmware, which stays as it is while we run.
fn physical(address: u64, len: usize) -> Option<&'static [u8]> {
    paging::map_firmware(address, len as u64).ok()?;
    // SAFETY: mapped at its physical address, for good; nobody writes it.
    Some(unsafe { core::slice::from_raw_parts(address as *const u8, len) })
}

/// Address and length of the tables that an entry point names.
fn tables(entry: &[u8]) -> Option<(u64, usize)> {
    let sums_to_zero = |len: u8| {
        let bytes = entry.get(..usize::from(len))?;
        (bytes.iter().fold(0u8, |sum, byte| sum.wrapping_add(*byte)) == 0).then_some(())
    };
    let (address, len) = if entry.starts_with(b"_SM3_") {
        sums_to_zero(*entry.get(6)?)?;
        let len = u32::from_le_bytes(entry.get(12..16)?.try_into().ok()?);
        (u64::from_le_bytes(entry.get(16..24)?.try_into().ok()?), len as usize)
    } else if entry.starts_with(b"_SM_") {
        sums_to_zero(*entry.get(5)?)?;
        let len = u16::from_le_bytes(entry.get(22..24)?.try_into().ok()?);
        (u64::from(u32::from_le_bytes(entry.get(24..28)?.try_into().ok()?)), usize::from(len))
    } else {
        return None;
    };
    Some((address, len.min(LIMIT_BYTES)))
}

fn find_product_name(mut tables: &[u8]) -> Option<String> {
    // A structure: type, length of the fixed part, handle, …; then texts, each ended by NUL, and
    // one NUL more (two where there is no text).
    while let [kind, len, ..] = *tables {
        let fixed = tables.get(..usize::from(len)).filter(|fixed| fixed.len() >= 4)?;
        let texts = &tables[fixed.len()..];
        let end = texts.windows(2).position(|pair| pair == [0, 0])?;
        match kind {
            SYSTEM => {
                let number = usize::from(*fixed.get(5)?).checked_sub(1)?;
                let text = texts[..end].split(|&byte| byte == 0).nth(number)?;
                let text = String::from_utf8_lossy(text);
                return (!text.trim().is_empty()).then(|| text.trim().into());
            }
            END => return None,
            _ => tables = &texts[end + 2..],
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use std::vec::Vec;

    use proptest::prelude::*;

    use super::*;

    fn structure(kind: u8, fixed: &[u8], texts: &[u8]) -> Vec<u8> {
        let mut bytes = std::vec![kind, fixed.len() as u8 + 4, 0, 0];
        bytes.extend(fixed);
        bytes.extend(texts);
        bytes
    }

    #[test]
    fn the_product_name_is_the_second_field_of_system_information() {
        let mut tables = structure(0, &[1, 2], b"bios\x001.0\0\0");
        tables.extend(structure(2, &[], b"\0\0"));
        tables.extend(structure(1, &[1, 2, 0], b"maker\0trn2u.48xlarge \0\0"));
        assert_eq!(find_product_name(&tables).as_deref(), Some("trn2u.48xlarge"));
        let nameless = structure(1, &[1, 0, 0], b"maker\0\0");
        assert_eq!(find_product_name(&nameless), None);
    }

    #[test]
    fn both_entry_points_are_understood_and_a_wrong_sum_is_not() {
        let mut old = std::vec![0u8; 31];
        old[..4].copy_from_slice(b"_SM_");
        old[5] = 31;
        old[22..24].copy_from_slice(&300u16.to_le_bytes());
        old[24..28].copy_from_slice(&0xf5a20u32.to_le_bytes());
        old[4] = 0u8.wrapping_sub(old.iter().fold(0, |sum, byte| byte.wrapping_add(sum)));
        assert_eq!(tables(&old), Some((0xf5a20, 300)));
        old[30] ^= 1;
        assert_eq!(tables(&old), None);
        let mut new = std::vec![0u8; 24];
        new[..5].copy_from_slice(b"_SM3_");
        new[6] = 24;
        new[12..16].copy_from_slice(&u32::MAX.to_le_bytes());
        new[16..24].copy_from_slice(&0x7ff0_0000u64.to_le_bytes());
        new[5] = 0u8.wrapping_sub(new.iter().fold(0, |sum, byte| byte.wrapping_add(sum)));
        assert_eq!(tables(&new), Some((0x7ff0_0000, LIMIT_BYTES)));
    }

    proptest! {
        #[test]
        fn no_tables_panic(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
            let _ = find_product_name(&bytes);
            let _ = tables(&bytes);
        }
    }
}
