//! Which block an offset of the register window belongs to, and where a device address leads
//! (specification 01 §3). The tables of the generations are in `v2` and `v3`.

mod v2;
mod v3;

pub(crate) use v3::physical_top_sp;

use crate::config::{FunctionConfig, Generation, HbmGeometry, REVISION_QEMU};

/// A piece of the register window with one owner.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Block {
    /// On-chip memory of any access width; `base` is its offset in the on-chip arena.
    Memory { base: u64 },
    /// Events and semaphores; the first `cores` banks belong to cores, the rest to TopSPs.
    Sync { bank: u16 },
    /// One UDMA unit.
    Udma { engine: u16 },
    /// Plain register storage; cleared with the engine where there is one.
    Storage { owner: Owner },
    /// NOTIFIC block.
    Notific { owner: Owner },
    /// PE activity counters of a core.
    PeCounters { core: u8 },
    /// MiscRAM.
    MiscRam,
    /// Reset doorbell of the simulator, at +0x10.
    QemuDoorbell,
}

/// Whose reset clears a block.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Owner {
    Engine(u16),
    Core(u8),
    /// Physical number.
    TopSp(u8),
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct Span {
    pub start: u64,
    pub len: u64,
    pub block: Block,
}

/// A window of device addresses that shows a part of the register window.
#[derive(Clone, Copy, Debug)]
struct Window {
    device: u64,
    bar0: u64,
    len: u64,
}

/// Where a device address leads.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Target {
    /// Host memory at this bus address.
    Host(u64),
    /// Offset in the HBM store.
    Hbm(u64),
    /// Offset in the register window.
    OnChip(u64),
    /// The unmapped rest of a V3/V4 core range: reads 0, ignores writes (01 §3.10).
    CoreHole,
    /// The neighbouring device behind this link, at this address inside it.
    Peer { link: u8, address: u64 },
}

/// Size of a TopSP window, a core tile, a register block.
pub(crate) const TOP_SP_BYTES: u64 = 0x40_0000;
const TILE_BYTES: u64 = 0x400_0000;
const CORE_RANGE_BYTES: u64 = 0x8_0400_0000;
const SYNC_OFFSET: u64 = 0x270_0000;
const SYNC_BYTES: u64 = 0x2000;
pub(crate) const UNIT_BYTES: u64 = 0x3_c800;
const WRAPPER_BYTES: u64 = 0x1000;
pub(crate) const PAGE: u64 = 0x1000;

/// The map of one function.
#[derive(Debug)]
pub(crate) struct Map {
    spans: Vec<Span>,
    windows: Vec<Window>,
    hbm: Vec<(u64, u64)>,
    hbm_bytes: u64,
    core_ranges: Vec<u64>,
    host_mask: u64,
    host_base: u64,
    peers: bool,
    /// Bytes of on-chip memory behind [`Block::Memory`].
    pub onchip_bytes: u64,
    /// UDMA units, banks of semaphores and events.
    pub engines: usize,
    pub banks: usize,
}

impl Map {
    pub fn new(config: &FunctionConfig, hbm: HbmGeometry) -> Self {
        let simulated = config.revision == REVISION_QEMU;
        let mut builder = Builder { onchip_bytes: 0, spans: Vec::new() };
        let mut map = match config.generation() {
            Generation::V2 => v2::map(&mut builder, simulated),
            Generation::V3 | Generation::V4 => v3::map(&mut builder, simulated),
        };
        builder.spans.sort_by_key(|span| span.start);
        map.onchip_bytes = builder.onchip_bytes;
        map.spans = builder.spans;
        map.hbm_bytes = hbm.active_bytes;
        for (channel, slot) in map.hbm.iter_mut().enumerate() {
            slot.1 = channel as u64 * hbm.pitch_bytes;
        }
        map
    }

    /// The span that holds `offset`.
    #[inline]
    pub fn span(&self, offset: u64) -> Option<Span> {
        let after = self.spans.partition_point(|span| span.start <= offset);
        let span = self.spans.get(after.checked_sub(1)?)?;
        (offset - span.start < span.len).then_some(*span)
    }

    /// All blocks.
    pub fn spans(&self) -> &[Span] {
        &self.spans
    }

    /// Where the `len` bytes at a device address lead; `None` is a decode error, also for a range
    /// that crosses the end of a region (02 §13.5).
    pub fn decode(&self, address: u64, len: u64) -> Option<Target> {
        if self.peers && address & PEER_BIT != 0 {
            let link = (address >> 50 & 3) as u8;
            return Some(Target::Peer { link, address: address & PEER_INSIDE });
        }
        if address & self.host_mask == self.host_base {
            return Some(Target::Host(address & !self.host_base));
        }
        let inside = |start: u64, size: u64| {
            let offset = address.checked_sub(start)?;
            (size >= len && offset <= size - len).then_some(offset)
        };
        for &(start, store) in &self.hbm {
            if let Some(offset) = inside(start, self.hbm_bytes) {
                return Some(Target::Hbm(store + offset));
            }
        }
        for window in &self.windows {
            if let Some(offset) = inside(window.device, window.len) {
                return Some(Target::OnChip(window.bar0 + offset));
            }
        }
        for &start in &self.core_ranges {
            if inside(start + TILE_BYTES, CORE_RANGE_BYTES - TILE_BYTES).is_some() {
                return Some(Target::CoreHole);
            }
        }
        None
    }

    /// Offset in the HBM store of an offset in BAR4; the two are laid out alike, with gaps.
    pub fn bar4(&self, offset: u64, len: u64) -> Option<u64> {
        self.hbm.iter().find_map(|&(_, store)| {
            let inside = offset.checked_sub(store)?;
            (self.hbm_bytes >= len && inside <= self.hbm_bytes - len).then_some(offset)
        })
    }

    /// Offsets of the channels in the HBM store, and their size.
    pub fn channels(&self) -> impl Iterator<Item = (u64, u64)> + '_ {
        self.hbm.iter().map(|&(_, store)| (store, self.hbm_bytes))
    }

    /// Host bus address behind a tagged address, as mailbox buffers carry it.
    pub fn host_address(&self, address: u64) -> u64 {
        address & !self.host_base
    }
}

const PEER_BIT: u64 = 1 << 52;
const PEER_INSIDE: u64 = (1 << 50) - 1;

/// Collects the spans of a generation and hands out on-chip memory.
struct Builder {
    onchip_bytes: u64,
    spans: Vec<Span>,
}

impl Builder {
    fn add(&mut self, start: u64, len: u64, block: Block) {
        self.spans.push(Span { start, len, block });
    }

    fn memory(&mut self, start: u64, len: u64) {
        let base = self.onchip_bytes;
        self.onchip_bytes += len;
        self.add(start, len, Block::Memory { base });
    }

    /// A core tile: SBUF, PSUM and the block of events and semaphores inside the PSUM half.
    ///
    /// assumed: what the half holds besides that block is memory.
    fn tile(&mut self, start: u64, core: u8) {
        self.memory(start, SYNC_OFFSET);
        self.add(start + SYNC_OFFSET, SYNC_BYTES, Block::Sync { bank: u16::from(core) });
        let behind = SYNC_OFFSET + SYNC_BYTES;
        self.memory(start + behind, TILE_BYTES - behind);
    }

    /// assumed: a TopSP window is memory behind its block of events and semaphores.
    fn top_sp(&mut self, start: u64, bank: u16) {
        self.add(start, SYNC_BYTES, Block::Sync { bank });
        self.memory(start + SYNC_BYTES, TOP_SP_BYTES - SYNC_BYTES);
    }

    /// The SDMA wrapper of a unit, with the NOTIFIC block of its trace behind it.
    fn wrapper(&mut self, start: u64, engine: u16) {
        let owner = Owner::Engine(engine);
        self.add(start, WRAPPER_BYTES, Block::Storage { owner });
        self.add(start + WRAPPER_BYTES, PAGE, Block::Notific { owner });
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Product;

    fn map(product: Product) -> (FunctionConfig, Map) {
        let config = FunctionConfig::new(product, 0);
        let geometry = config.hbm_geometry().unwrap();
        let map = Map::new(&config, geometry);
        (config, map)
    }

    #[test]
    fn blocks_do_not_overlap_and_fit_the_window() {
        for product in [Product::Trn1, Product::Trn2] {
            let (config, map) = map(product);
            let mut end = 0;
            for span in map.spans() {
                assert!(span.start >= end, "{span:x?} overlaps");
                end = span.start + span.len;
            }
            assert!(end <= config.bar0_bytes().unwrap());
            let units =
                map.spans().iter().filter(|span| matches!(span.block, Block::Udma { .. })).count();
            assert_eq!(units, map.engines);
        }
    }

    #[test]
    fn addresses_decode_as_the_tables_say() {
        let (_, v2) = map(Product::Trn1);
        for (address, target) in [
            (0x0, Some(Target::Hbm(0))),
            (0x3_ffff_fffc, Some(Target::Hbm(0x3_ffff_fffc))),
            (0x3_ffff_fffd, None),
            (0x10_0000_0000, Some(Target::Hbm(0x4_0000_0000))),
            (0xfff_f0fa_0000, Some(Target::OnChip(0x30fa_0000))),
            (0x1000_0123_4000, Some(Target::Host(0x123_4000))),
            (0x3000_0123_4000, None),
            (0x4000_0123_4000, None),
        ] {
            assert_eq!(v2.decode(address, 4), target, "{address:#x}");
        }
        let (_, v3) = map(Product::Trn2);
        for (address, target) in [
            (0x6_0000_0000, None),
            (0x40_0000_0000, Some(Target::Hbm(0x10_0000_0000))),
            (0x8040_0000_1000, Some(Target::Hbm(0x30_0000_1000))),
            (0x4000_1234_5000, Some(Target::Host(0x1234_5000))),
            (0x80_06c8_4000, Some(Target::OnChip(0x06c8_4000))),
            (0x8080_0680_0000, Some(Target::OnChip(0x4680_0000))),
            (0x8050_0400_0000, Some(Target::OnChip(0xb400_0000))),
            (0x30_03ff_fffc, Some(Target::OnChip(0xd7ff_fffc))),
            (0x30_0400_0000, Some(Target::CoreHole)),
            (0x38_03ff_fffc, Some(Target::CoreHole)),
            (0x38_0400_0000, None),
            (0x8084_c000_0000, Some(Target::OnChip(0xf4c0_0000))),
            (0x18_0080_06c8_4000, Some(Target::Peer { link: 2, address: 0x80_06c8_4000 })),
        ] {
            assert_eq!(v3.decode(address, 4), target, "{address:#x}");
        }
    }
}
