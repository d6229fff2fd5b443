//! One allocated span of HBM or host memory, as everybody but the memory service sees it
//! (specification 04 §1.1, §8.2).
//!
//! Two counts exist and mean different things. A [`Chunk`] is a *reference*: it governs the logical
//! life, and dropping it only sets a mark that the memory service sweeps. A [`Pin`] governs reuse:
//! as long as one exists the span stays out of its arena, whatever happened to the references.
//! Neither drop blocks, fails, allocates or sends.
//!
//! | module | what it holds |
//! |---|---|
//! | [`record`] | the 64 shared bytes of one chunk |
//! | [`pair`] | the pins of one transfer |
//! | [`table`] | all records of a device, the handle snapshot, the release chain |

use alloc::sync::Arc;
use core::fmt;

use axon_platform::{DeviceAddr, DmaBuf};

use crate::{Category, ClientId, CoreId, Lifespan, Location, MemoryError};

pub mod pair;
pub mod record;
pub mod table;

pub use pair::PinPair;
pub use table::{ChunkName, ChunkTable};

use record::ChunkRecord;

/// What never changes while a chunk lives.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ChunkFacts {
    /// First byte as the device sees it: an HBM address, or a tagged host address.
    pub pa: DeviceAddr,
    /// Bytes, a multiple of 4096; 0 only in the facts of a released chunk.
    pub size: u64,
    /// Bytes that an access starting at `pa` may reach: `size`, or for a contiguous scratchpad the
    /// distance to the end of its run (specification 04 §6.2). The one fact that may shrink.
    pub reach: u64,
    /// Where it lies.
    pub location: Location,
    /// HBM channel; for host memory what the caller said.
    pub channel: u8,
    /// Region of the channel.
    pub region: u8,
    /// Core it belongs to.
    pub core: CoreId,
    /// What it is used for.
    pub category: Category,
    /// How long it lives, as asked for.
    pub lifespan: Lifespan,
    /// Who asked; `None` for the driver itself.
    pub owner: Option<ClientId>,
}

impl ChunkFacts {
    /// Facts of a chunk that was released behind the reference's back: nothing can be reached.
    const RELEASED: ChunkFacts = ChunkFacts {
        pa: DeviceAddr(0),
        size: 0,
        reach: 0,
        location: Location::Device,
        channel: 0,
        region: 0,
        core: CoreId::from_low_bits(0),
        category: Category::UNKNOWN_DEVICE,
        lifespan: Lifespan::Local,
        owner: None,
    };

    /// Checks an access of `len` bytes at `offset` against [`ChunkFacts::reach`]; by subtraction,
    /// so that nothing can wrap (specification 04 §6.2). An access of size 0 at the end passes.
    ///
    /// # Errors
    /// [`MemoryError::OutOfBounds`].
    #[inline]
    pub fn check(&self, offset: u64, len: u64) -> Result<(), MemoryError> {
        check_range(self.reach, offset, len)
    }
}

#[inline]
fn check_range(limit: u64, offset: u64, len: u64) -> Result<(), MemoryError> {
    if len <= limit && offset <= limit - len {
        Ok(())
    } else {
        Err(MemoryError::OutOfBounds { offset, len, limit })
    }
}

/// Names one chunk, alive or not, without counting anything.
#[derive(Clone)]
pub struct ChunkHeader {
    table: Arc<ChunkTable>,
    host: Option<Arc<DmaBuf>>,
    name: ChunkName,
}

impl ChunkHeader {
    /// The shared record; its contents are this chunk's only while the generation matches.
    #[inline(always)]
    pub fn record(&self) -> &ChunkRecord {
        self.table.known(self.name.slot)
    }

    /// What never changes. A released chunk without pins answers a size of 0.
    pub fn facts(&self) -> ChunkFacts {
        self.record().facts_of(self.name.generation).unwrap_or(ChunkFacts::RELEASED)
    }

    /// The CPU's view; `None` for device memory and for a released chunk.
    #[inline]
    pub fn host(&self) -> Option<&DmaBuf> {
        if self.is_dead() { None } else { self.host.as_deref() }
    }

    /// Record of the memory service this chunk has.
    #[inline]
    pub fn slot(&self) -> u32 {
        self.name.slot
    }

    /// Slot and generation.
    #[inline]
    pub fn name(&self) -> ChunkName {
        self.name
    }

    /// The table the chunk belongs to.
    pub fn table(&self) -> &Arc<ChunkTable> {
        &self.table
    }

    /// Published handle; 0 for none.
    #[inline]
    pub fn handle(&self) -> u64 {
        let handle = u64::from(self.record().handle());
        if self.is_dead() { 0 } else { handle }
    }

    /// Takes a pin; `None` where the chunk is dead.
    #[inline]
    pub fn pin(&self) -> Option<Pin> {
        self.record().pin(self.name.generation).then(|| Pin(self.clone()))
    }

    /// Takes a pin and shows the record, which says what the chunk is as long as the pin is held;
    /// `None` where the chunk is dead.
    #[inline(always)]
    pub fn pin_and_record(&self) -> Option<(Pin, &ChunkRecord)> {
        let record = self.record();
        record.pin(self.name.generation).then(|| (Pin(self.clone()), record))
    }

    /// Takes a pin for as long as the header is borrowed: for what the CPU does at once. `None`
    /// where the chunk is dead.
    #[inline(always)]
    pub fn hold(&self) -> Option<Held<'_>> {
        let record = self.record();
        // Not made where there is no pin: it would give one back.
        record.hold(self.name.generation).map(|state| Held { header: self, record, state })
    }

    /// Whether the chunk was released.
    #[inline]
    pub fn is_dead(&self) -> bool {
        self.record().generation() != self.name.generation
    }

    /// Pins held now.
    pub fn pins(&self) -> u32 {
        self.record().pins()
    }
}

/// One reference to a live chunk. Dropping it gives the reference back (specification 04 §5.1).
pub struct Chunk(ChunkHeader);

impl Chunk {
    /// Keeps the reference counted but stops tracking it: from now on only a request to the
    /// service by handle gives it back.
    pub fn into_header(mut self) -> ChunkHeader {
        let header = self.0.clone();
        self.0.name.generation = 0;
        header
    }

    /// What never changes.
    #[inline]
    pub fn facts(&self) -> ChunkFacts {
        self.0.facts()
    }

    /// The shared header.
    #[inline]
    pub fn header(&self) -> &ChunkHeader {
        &self.0
    }

    /// Published handle; 0 for none.
    #[inline]
    pub fn handle(&self) -> u64 {
        self.0.handle()
    }

    /// The CPU's view; `None` for device memory and for a released chunk.
    #[inline]
    pub fn host(&self) -> Option<&DmaBuf> {
        self.0.host()
    }

    /// Takes a pin; `None` where the chunk was released behind the reference's back.
    #[inline]
    pub fn pin(&self) -> Option<Pin> {
        self.0.pin()
    }
}

impl Drop for Chunk {
    #[inline]
    fn drop(&mut self) {
        let ChunkName { slot, generation } = self.0.name;
        let record = self.0.record();
        if record.drop_reference(generation) {
            self.0.table.release(slot, record);
        }
    }
}

impl fmt::Debug for Chunk {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Chunk").field(&self.facts()).finish()
    }
}

/// Keeps the memory of a chunk from being reused: held by whatever lets hardware reach it.
pub struct Pin(ChunkHeader);

impl Pin {
    /// What never changes.
    #[inline]
    pub fn facts(&self) -> ChunkFacts {
        self.0.record().facts()
    }

    /// First byte as the device sees it.
    #[inline]
    pub fn pa(&self) -> DeviceAddr {
        DeviceAddr(self.0.record().pa())
    }

    /// Bytes.
    #[inline]
    pub fn size(&self) -> u64 {
        self.0.record().size()
    }

    /// Who asked for it; `None` for the driver itself.
    #[inline]
    pub fn owner(&self) -> Option<ClientId> {
        ClientId::new(self.0.record().owner())
    }

    /// Checks an access of `len` bytes at `offset`, as [`ChunkFacts::check`].
    ///
    /// # Errors
    /// [`MemoryError::OutOfBounds`].
    #[inline]
    pub fn check(&self, offset: u64, len: u64) -> Result<(), MemoryError> {
        check_range(self.0.record().reach(), offset, len)
    }

    /// The shared header.
    #[inline]
    pub fn header(&self) -> &ChunkHeader {
        &self.0
    }

    /// The CPU's view; `None` for device memory. Stays valid when the chunk is released.
    #[inline]
    pub fn host(&self) -> Option<&DmaBuf> {
        self.0.host.as_deref()
    }
}

impl Clone for Pin {
    /// Another pin; allowed on a dead chunk, because this one already holds the memory.
    #[inline(always)]
    fn clone(&self) -> Pin {
        self.0.record().pin_held();
        Pin(self.0.clone())
    }
}

impl Pin {
    /// Gives the pin of a dead chunk back, or one of very many; one that was taken over is not there.
    #[cold]
    #[inline(never)]
    fn give_back(&self) {
        if self.0.name.slot == table::NO_SLOT {
            return;
        }
        let record = self.0.record();
        if record.unpin() {
            self.0.table.release(self.0.name.slot, record);
        }
    }
}

/// A pin that counts no reference to the table: it lives shorter than the header it came from.
pub struct Held<'a> {
    header: &'a ChunkHeader,
    record: &'a ChunkRecord,
    /// The record's word with the pin, where that was seen.
    state: u64,
}

impl Held<'_> {
    /// What the chunk is; does not change while it is held.
    #[inline]
    pub fn record(&self) -> &ChunkRecord {
        self.record
    }

    #[cold]
    #[inline(never)]
    fn give_back(header: &ChunkHeader, record: &ChunkRecord) {
        if record.unpin() {
            header.table.release(header.name.slot, record);
        }
    }
}

impl Drop for Held<'_> {
    #[inline(always)]
    fn drop(&mut self) {
        if !self.record.let_go(self.state) {
            Held::give_back(self.header, self.record);
        }
    }
}

impl Drop for Pin {
    #[inline(always)]
    fn drop(&mut self) {
        if !self.0.record().unpin_live() {
            self.give_back();
        }
    }
}

impl fmt::Debug for Pin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Pin").field(&self.facts()).finish()
    }
}

#[cfg(test)]
mod tests {
    use super::record::Stamp;
    use super::table::HANDLE_LIMIT;
    use super::*;

    fn facts(pa: u64) -> ChunkFacts {
        ChunkFacts { pa: DeviceAddr(pa), size: 0x2000, reach: 0x2000, ..ChunkFacts::RELEASED }
    }

    #[test]
    fn mem_e36_mem_e37_bounds_are_tested_by_subtraction() {
        let one_page = ChunkFacts { size: 0x1000, reach: 0x1000, ..facts(0x1000) };
        assert!(one_page.check(0xffff_ffff_ffff_f001, 0x1000).is_err());
        assert!(one_page.check(0x1000, 0).is_ok());
        assert!(one_page.check(0, 0x1000).is_ok());
        assert!(one_page.check(0, 0x1001).is_err());
        assert!(one_page.check(u64::MAX, u64::MAX).is_err());
    }

    #[test]
    fn dropping_a_reference_reaches_the_release_chain() {
        let table = ChunkTable::with_pages(1).unwrap();
        let a = table.lone(3, facts(0x1000), None).unwrap();
        let b = table.lone(4, facts(0x4000), None).unwrap();
        assert!(!table.has_released());
        drop(a);
        drop(b);
        let first = table.take_released();
        assert_eq!(first, HANDLE_LIMIT + 4);
        let (second, _, collected) = table.next_released(first).unwrap();
        assert_eq!((second, collected.dropped), (HANDLE_LIMIT + 3, 1));
        assert_eq!(table.next_released(second).unwrap().0, table::NO_SLOT);
        assert!(!table.has_released());
    }

    #[test]
    fn a_released_chunk_reaches_nothing() {
        let table = ChunkTable::with_pages(1).unwrap();
        let chunk = table.lone(0, facts(0x1000), None).unwrap();
        let pin = chunk.pin().unwrap();
        chunk.header().record().close();
        assert!(chunk.pin().is_none());
        assert_eq!(chunk.facts().size, 0);
        assert!(chunk.facts().check(0, 1).is_err());
        assert_eq!(pin.size(), 0x2000, "a pin goes on holding the memory");
        drop(chunk);
        assert!(!table.has_released(), "the reference died with the chunk");
        drop(pin.clone());
        assert!(!table.has_released());
        drop(pin);
        assert!(table.has_released());
    }

    #[test]
    fn into_header_leaves_the_reference_counted() {
        let table = ChunkTable::with_pages(1).unwrap();
        let header = table.lone(0, facts(0x1000), None).unwrap().into_header();
        assert!(!header.is_dead());
        assert!(!table.has_released());
    }

    #[test]
    fn handles_resolve_until_their_record_or_the_gate_changes() {
        let table = ChunkTable::with_pages(1).unwrap();
        assert!(table.find(5).is_none(), "no table yet");
        table.grow(0).unwrap();
        assert!(table.find(5).is_none(), "fresh record");
        let record = table.record_of_handle(5).unwrap();
        record.open(Stamp { handle: 5, ..Stamp::of(&facts(0x1000)) });
        assert_eq!(table.find(5), Some(ChunkName { slot: 5, generation: 1 }));
        assert_eq!(table.pin(5).unwrap().pa(), DeviceAddr(0x1000));
        assert!(table.find(1 << 32 | 5).is_none());
        assert!(table.find(u64::MAX).is_none());
        table.set_gate(table::GATE_DOWN, true);
        assert!(table.find(5).is_none());
    }

    #[test]
    fn a_handle_may_name_a_chunk_that_lives_elsewhere() {
        let table = ChunkTable::with_pages(1).unwrap();
        table.grow(0).unwrap();
        let chunk = table.lone(2, facts(0x1000), None).unwrap();
        let dead = table.record_of_handle(7).unwrap();
        assert!(table.find(7).is_none());
        dead.set_handle(HANDLE_LIMIT + 2);
        assert!(table.find(7).is_none(), "the chunk does not say so");
        chunk.header().record().set_handle(7);
        assert_eq!(table.find(7), Some(chunk.header().name()));
        chunk.header().record().close();
        assert!(table.find(7).is_none());
        dead.set_handle(3);
        assert!(table.find(7).is_none(), "a handle never names another handle's record");
    }
}
