//! The owner's handle on a slab: what a client library does with a datastore.

use alloc::sync::Arc;

use axon_platform::DeviceAddr;
use axon_ports::{ClientId, CoreId};

use super::layout::{self, Record};
use super::slots::SlabShared;
use crate::{CoreCounter, DeviceCounter, Error};

/// A client's own counters on one device. Clones write to the same slab.
///
/// Counters are changed in one step each, without a lock or a message. The handle dies when the
/// slab is released: from then on every call answers [`Error::Released`], and the next owner of
/// the memory is safe from it.
#[derive(Clone)]
pub struct Datastore {
    client: ClientId,
    slab: Arc<SlabShared>,
    tenancy: u32,
}

impl Datastore {
    pub(crate) fn new(client: ClientId, slab: Arc<SlabShared>, tenancy: u32) -> Self {
        let datastore = Datastore { client, slab, tenancy };
        // The header is the client's to write; whoever holds the handle is the client.
        let _ = datastore.slab.memory().store64(0, layout::HEADER);
        datastore
    }

    /// Whose counters these are.
    pub fn client(&self) -> ClientId {
        self.client
    }

    /// Address of the slab as the device sees it.
    pub fn address(&self) -> DeviceAddr {
        self.slab.address()
    }

    /// Adds to a counter of a core.
    ///
    /// # Errors
    /// [`Error::Released`].
    #[inline]
    pub fn add(&self, core: CoreId, counter: CoreCounter, amount: u64) -> Result<(), Error> {
        self.change(layout::core_counter(core.number(), counter), amount)
    }

    /// Takes away from a counter of a core (memory use goes down as well as up).
    ///
    /// # Errors
    /// [`Error::Released`].
    #[inline]
    pub fn subtract(&self, core: CoreId, counter: CoreCounter, amount: u64) -> Result<(), Error> {
        self.change(layout::core_counter(core.number(), counter), amount.wrapping_neg())
    }

    /// Adds to a counter of the device.
    ///
    /// # Errors
    /// [`Error::Released`].
    pub fn add_device(&self, counter: DeviceCounter, amount: u64) -> Result<(), Error> {
        self.change(Some(layout::device_counter(counter)), amount)
    }

    /// Sets a counter of the device: versions, ids.
    ///
    /// # Errors
    /// [`Error::Released`].
    pub fn set_device(&self, counter: DeviceCounter, value: u64) -> Result<(), Error> {
        self.check()?;
        let _ = self.slab.memory().store64(layout::device_counter(counter), value);
        Ok(())
    }

    /// Sets bits of a counter of the device.
    ///
    /// # Errors
    /// [`Error::Released`].
    pub fn set_bits(&self, counter: DeviceCounter, bits: u64) -> Result<(), Error> {
        self.check()?;
        let _ = self.slab.memory().fetch_or64(layout::device_counter(counter), bits);
        Ok(())
    }

    /// Writes one of the records that start with a check sum; `content` follows it.
    ///
    /// # Errors
    /// [`Error::Invalid`] where `content` is longer than the record, [`Error::Released`].
    pub fn write_record(&self, record: Record, content: &[u8]) -> Result<(), Error> {
        self.check()?;
        let mut bytes = [0; 672];
        let room = bytes.get_mut(..record.len as usize).unwrap_or_default();
        match room.get_mut(4..4 + content.len()) {
            Some(to) => to.copy_from_slice(content),
            None => {
                return Err(Error::Invalid { what: "record length", value: content.len() as u64 });
            }
        }
        let sum = layout::checksum(room);
        room.iter_mut().zip(sum.to_le_bytes()).for_each(|(to, byte)| *to = byte);
        let _ = self.slab.memory().write(record.offset, room);
        Ok(())
    }

    /// A counter of a core as it is now.
    ///
    /// # Errors
    /// [`Error::Released`].
    pub fn core_counter(&self, core: CoreId, counter: CoreCounter) -> Result<u64, Error> {
        self.check()?;
        let offset = layout::core_counter(core.number(), counter);
        Ok(offset.and_then(|offset| self.slab.memory().load64(offset).ok()).unwrap_or(0))
    }

    #[inline]
    fn change(&self, offset: Option<u64>, amount: u64) -> Result<(), Error> {
        self.check()?;
        // Every core and counter has a place: the types allow no others.
        if let Some(offset) = offset {
            let _ = self.slab.memory().fetch_add64(offset, amount);
        }
        Ok(())
    }

    #[inline]
    fn check(&self) -> Result<(), Error> {
        if self.slab.is_tenancy(self.tenancy) {
            Ok(())
        } else {
            Err(Error::Released { client: self.client })
        }
    }
}
