//! The regions and interrupts that a function presents over vfio-user.

use std::os::fd::AsRawFd;

use vfio_bindings::bindings::vfio::{
    VFIO_PCI_CONFIG_REGION_INDEX, VFIO_PCI_NUM_IRQS, VFIO_PCI_NUM_REGIONS,
    VFIO_REGION_INFO_FLAG_MMAP, VFIO_REGION_INFO_FLAG_READ, VFIO_REGION_INFO_FLAG_WRITE,
    vfio_region_info, vfio_region_sparse_mmap_area,
};
use vfio_user::{IrqInfo, ServerRegion, SparseArea};

use crate::Function;

/// Index of the region that is configuration space.
pub(crate) const CONFIG: u32 = VFIO_PCI_CONFIG_REGION_INDEX;
/// Size of configuration space: a function without extended capabilities.
pub(crate) const CONFIG_BYTES: u64 = 256;
/// Index of the region that is BAR4.
const BAR4: u32 = 4;

/// All regions, by vfio's numbers.
pub(crate) fn of(function: &Function) -> Vec<ServerRegion> {
    let bars = function.bars();
    (0..VFIO_PCI_NUM_REGIONS)
        .map(|index| match bars.get(index as usize) {
            Some(Some(bar)) if index == BAR4 => memory(function, bar.size_bytes),
            Some(Some(bar)) => plain(index, bar.size_bytes),
            _ if index == CONFIG => plain(index, CONFIG_BYTES),
            _ => plain(index, 0),
        })
        .collect()
}

/// No interrupt of any kind.
pub(crate) fn interrupts() -> Vec<IrqInfo> {
    (0..VFIO_PCI_NUM_IRQS).map(|index| IrqInfo { index, flags: 0, count: 0 }).collect()
}

fn plain(index: u32, size: u64) -> ServerRegion {
    let access = VFIO_REGION_INFO_FLAG_READ | VFIO_REGION_INFO_FLAG_WRITE;
    let region_info = vfio_region_info {
        argsz: size_of::<vfio_region_info>() as u32,
        flags: if size > 0 { access } else { 0 },
        index,
        cap_offset: 0,
        size,
        offset: 0,
    };
    ServerRegion { region_info, sparse_areas: Vec::new(), mmap_fd: None }
}

/// BAR4: the channels of HBM can be mapped, the gaps between them cannot. The file is laid out as
/// the BAR is.
fn memory(function: &Function, size: u64) -> ServerRegion {
    let mut region = plain(BAR4, size);
    for segment in function.hbm_segments() {
        debug_assert_eq!(segment.file_offset, segment.bar_offset);
        let area =
            vfio_region_sparse_mmap_area { offset: segment.bar_offset, size: segment.len_bytes };
        region.sparse_areas.push(SparseArea { area });
        region.mmap_fd = Some(segment.file.as_raw_fd());
        region.region_info.flags |= VFIO_REGION_INFO_FLAG_MMAP;
    }
    region
}
