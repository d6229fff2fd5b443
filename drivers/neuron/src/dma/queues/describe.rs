//! What a descriptor of a client may name (specification 03 §5.4): checked on a private copy, and
//! that copy is what goes into the ring.

use axon_platform::{Descriptor, DeviceAddr, Platform};
use axon_ports::{CoreId, Pin};

use super::Dma;
use super::table::Side;
use crate::dma::descriptor::MAX_BYTES;
use crate::{Error, Hal};

/// Bits of word 0.
const META: u32 = 1 << 23;
const STRONG_ORDER: u32 = 1 << 29;
/// Bytes of a descriptor.
const BYTES: u64 = 16;

/// What a descriptor names.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Named {
    /// Host memory or HBM: a chunk of the client has to hold all of it.
    Memory {
        /// First byte.
        address: DeviceAddr,
        /// Bytes, 1 to 65,536.
        len_bytes: u64,
    },
    /// A window of this core, which the client has to have claimed.
    Window(CoreId),
    /// Nothing: a metadata descriptor, which configuration admits.
    Nothing,
}

/// Reads a descriptor of a client.
///
/// # Errors
/// [`Error::BadDescriptor`] with `index`: a range that wraps; metadata, where it is not admitted; a
/// strong-order write on V2; a second buffer.
// assumed: the second buffer pointer of a receive descriptor (word 1) is refused, because nobody has
// said what the unit writes there.
pub fn describe(hal: &Hal, side: Side, index: u64, descriptor: Descriptor) -> Result<Named, Error> {
    let [control, word1, low, high] = descriptor.0;
    let address = DeviceAddr(u64::from(high) << 32 | u64::from(low));
    let bad = |what| Error::BadDescriptor { index, what, address };
    let len_bytes = match u64::from(control & 0xffff) {
        0 => MAX_BYTES,
        len => len,
    };
    if side == Side::Tx && control & META != 0 {
        return match hal.admits_metadata() {
            true => Ok(Named::Nothing),
            false => Err(bad("metadata is not admitted")),
        };
    }
    if side == Side::Rx && (word1 != 0 || control & META != 0) {
        return Err(bad("a second buffer or metadata in a receive descriptor"));
    }
    if side == Side::Rx && control & STRONG_ORDER != 0 && !hal.has_strong_order() {
        return Err(bad("this generation has no strong-order writes"));
    }
    if address.0.checked_add(len_bytes).is_none() {
        return Err(bad("the range wraps"));
    }
    match hal.core_of_window(address, len_bytes) {
        Some(core) => Ok(Named::Window(core)),
        None => Ok(Named::Memory { address, len_bytes }),
    }
}

/// Slots of a ring that are being written: nobody else writes the ring meanwhile, and none of them
/// can be started over before [`Staging::commit`].
pub struct Staging<'a, P: Platform> {
    dma: &'a Dma<P>,
    ring: Pin,
    first: u32,
}

impl<P: Platform> Staging<'_, P> {
    /// The slots hold checked descriptors now, which name the memory that `targets` holds.
    ///
    /// # Errors
    /// [`Error::NoRecords`]: the slots hold nothing that could be started.
    pub fn commit(self, targets: &[Option<Pin>]) -> Result<(), Error> {
        self.dma.0.queues.with(|table| match table.known_ring(self.ring.header().name()) {
            Some(ring) => ring.staged.replace(self.first, targets),
            None => Ok(()),
        })
    }
}

impl<P: Platform> Drop for Staging<'_, P> {
    fn drop(&mut self) {
        self.dma.0.queues.with(|table| {
            if let Some(ring) = table.known_ring(self.ring.header().name()) {
                ring.writing = false;
            }
        });
    }
}

impl<P: Platform> Dma<P> {
    /// Begins to write `count` descriptors from byte `offset` of a ring on: what is there is let go.
    ///
    /// # Errors
    /// [`Error::InvalidArgument`] for an offset that is no multiple of 16 and for a ring of the other
    /// side; [`Error::Memory`] outside the ring; [`Error::Busy`] while somebody writes it;
    /// [`Error::NoRecords`]. Nothing has changed.
    pub fn stage(
        &self,
        ring: &Pin,
        side: Side,
        offset: u64,
        count: u64,
    ) -> Result<Staging<'_, P>, Error> {
        let bad = Error::InvalidArgument { what: "offset in a ring", value: offset };
        if !offset.is_multiple_of(BYTES) {
            return Err(bad);
        }
        ring.check(offset, count.saturating_mul(BYTES))?;
        let first = u32::try_from(offset / BYTES).map_err(|_| bad)?;
        let count = u32::try_from(count).map_err(|_| bad)?;
        self.0.queues.with(|table| {
            let known = table.ring(ring.header(), side)?;
            if known.writing {
                return Err(Error::Busy { what: "the ring", limit: 1 });
            }
            known.staged.forget(first, count)?;
            known.writing = true;
            Ok(Staging { dma: self, ring: ring.clone(), first })
        })
    }
}
