//! Where the image lies in memory, and which parts of the memory map are left for the kernel.

use core::ops::Range;

use crate::boot_info::{BootInfo, Region, RegionKind};

/// Addresses of the image, as the linker script laid it out.
#[derive(Clone, Copy, Debug)]
pub struct Image {
    /// First byte of code, and of the image.
    pub text: u64,
    /// End of code, start of constants.
    pub constants: u64,
    /// End of constants, start of data.
    pub data: u64,
    /// End of what the file holds; zeroed data and stacks follow.
    pub loaded_end: u64,
    /// End of the image in memory.
    pub end: u64,
}

/// The image that runs.
#[cfg(not(test))]
pub fn image() -> Image {
    unsafe extern "C" {
        static __text_start: u8;
        static __text_end: u8;
        static __constants_end: u8;
        static __loaded_end: u8;
        static __image_end: u8;
    }
    Image {
        text: (&raw const __text_start) as u64,
        constants: (&raw const __text_end) as u64,
        data: (&raw const __constants_end) as u64,
        loaded_end: (&raw const __loaded_end) as u64,
        end: (&raw const __image_end) as u64,
    }
}

/// Under test there is no image.
#[cfg(test)]
pub fn image() -> Image {
    Image { text: 0, constants: 0, data: 0, loaded_end: 0, end: 0 }
}

/// Hands each piece of RAM of the memory map that lies outside all of `taken` to `each`, rounded
/// inwards to whole pages.
pub fn free_ram(info: &BootInfo, taken: &[Range<u64>], mut each: impl FnMut(Range<u64>)) {
    let whole = |range: &Range<u64>| {
        range.start & !4095..range.end.checked_next_multiple_of(4096).unwrap_or(u64::MAX)
    };
    for region in info.memory.iter().filter(|region| region.kind == RegionKind::Ram) {
        let range = pages_inside(region);
        let mut start = range.start;
        while start < range.end {
            // Where `start` lies inside something taken, go behind it; else up to the next one.
            if let Some(inside) = taken.iter().map(whole).find(|taken| taken.contains(&start)) {
                start = inside.end;
                continue;
            }
            let next = taken.iter().map(|taken| whole(taken).start).filter(|&at| at > start).min();
            let end = next.map_or(range.end, |next| next.min(range.end));
            each(start..end);
            start = end;
        }
    }
}

fn pages_inside(region: &Region) -> Range<u64> {
    let end = region.start.saturating_add(region.len_bytes) & !4095;
    region.start.checked_next_multiple_of(4096).unwrap_or(end)..end
}

#[cfg(test)]
mod tests {
    use std::vec;
    use std::vec::Vec;

    use super::*;

    fn info(regions: &[(u64, u64, RegionKind)]) -> BootInfo {
        let mut info = BootInfo::new(0);
        for &(start, len_bytes, kind) in regions {
            info.add_region(Region { start, len_bytes, kind });
        }
        info
    }

    fn pieces(info: &BootInfo, taken: &[Range<u64>]) -> Vec<Range<u64>> {
        let mut pieces = Vec::new();
        free_ram(info, taken, |piece| pieces.push(piece));
        pieces
    }

    #[test]
    fn taken_ranges_are_cut_out_at_page_borders() {
        let info = info(&[
            (0, 0x9fc00, RegionKind::Ram),
            (0xf0000, 0x10000, RegionKind::Reserved),
            (0x100000, 0x700000, RegionKind::Ram),
        ]);
        let taken = [0..0x100000, 0x200000..0x345678, 0x400800..0x400900];
        assert_eq!(
            pieces(&info, &taken),
            vec![0x100000..0x200000, 0x346000..0x400000, 0x401000..0x800000]
        );
    }

    #[test]
    fn odd_regions_shrink_to_whole_pages_and_never_wrap() {
        let info = info(&[
            (0x1001, 0x1ffe, RegionKind::Ram),
            (0x10800, 0x400, RegionKind::Ram),
            (u64::MAX - 0x1fff, u64::MAX, RegionKind::Ram),
        ]);
        assert_eq!(pieces(&info, &[]), vec![u64::MAX - 0x1fff..!4095]);
    }

    #[test]
    fn overlapping_taken_ranges_are_passed_once() {
        let info = info(&[(0, 0x10000, RegionKind::Ram)]);
        let taken = [0..0x3000, 0x2000..0x5000, 0x4000..0x4001, 0xf000..0x20000];
        assert_eq!(pieces(&info, &taken), vec![0x5000..0xf000]);
    }
}
