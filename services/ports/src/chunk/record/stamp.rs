//! What the service stamps on a new chunk.

use crate::chunk::ChunkFacts;
use crate::{ClientId, Lifespan, Location};

/// Address, location, channel, region, core and lifespan in one word.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Place(pub(super) u64);

impl Place {
    /// Packs numbers that the caller has checked: a page-aligned address, channel and region below
    /// 4, core below 8.
    #[inline(always)]
    pub const fn new(
        pa: u64,
        location: Location,
        channel: u32,
        region: u32,
        core: u32,
        lifespan: Lifespan,
    ) -> Place {
        let host = matches!(location, Location::Host) as u32;
        let low = host | channel << 1 | region << 3 | core << 5 | (lifespan as u32 - 1) << 8;
        Place(pa | low as u64)
    }
}

/// What the service stamps on a new chunk.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Stamp {
    /// Where it lies.
    pub place: Place,
    /// Bytes.
    pub size: u64,
    /// Bytes that may be reached from the first one.
    pub reach: u64,
    /// Number of the owner; 0 for the driver.
    pub owner: u32,
    /// Published handle; 0 for none.
    pub handle: u32,
    /// What for.
    pub category: u16,
    /// A number of the service's own.
    pub account: u16,
}

impl Stamp {
    /// The stamp of an unpublished chunk with these facts.
    pub fn of(facts: &ChunkFacts) -> Stamp {
        let (channel, region) = (u32::from(facts.channel & 3), u32::from(facts.region & 3));
        let core = facts.core.number();
        Stamp {
            place: Place::new(
                facts.pa.0 & !0xfff,
                facts.location,
                channel,
                region,
                core,
                facts.lifespan,
            ),
            size: facts.size,
            reach: facts.reach,
            owner: facts.owner.map_or(0, ClientId::number),
            handle: 0,
            category: facts.category.0.min(u32::from(u16::MAX)) as u16,
            account: 0,
        }
    }
}
