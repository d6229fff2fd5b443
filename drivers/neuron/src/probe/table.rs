//! The devices of a host: one place per device index, taken before the device is seen (specification
//! 05 §4.1, §4.2 rungs D3, D10, D24).

use alloc::sync::Arc;
use alloc::vec::Vec;
use core::cell::RefCell;

use axon_platform::Bdf;
use axon_ports::{DeviceIndex, RoutingId};
use embassy_sync::blocking_mutex::Mutex;
use embassy_sync::blocking_mutex::raw::CriticalSectionRawMutex;

use super::error::{ProbeError, Rung};

#[derive(Clone, Copy)]
struct Place {
    bdf: Bdf,
    visible: bool,
}

struct Places {
    by_index: [Option<Place>; DeviceIndex::COUNT],
    claimed: Vec<Bdf>,
}

/// The 64 places for devices of a host. Clones name the same table.
#[derive(Clone)]
pub struct DeviceTable(Arc<Mutex<CriticalSectionRawMutex, RefCell<Places>>>);

impl Default for DeviceTable {
    fn default() -> Self {
        DeviceTable::new()
    }
}

impl DeviceTable {
    /// An empty table.
    pub fn new() -> DeviceTable {
        DeviceTable(Arc::new(Mutex::new(RefCell::new(Places {
            by_index: [None; DeviceIndex::COUNT],
            claimed: Vec::new(),
        }))))
    }

    /// Devices that are visible now: what neighbour questions are answered for.
    pub fn published(&self) -> usize {
        self.with(|places| places.by_index.iter().flatten().filter(|place| place.visible).count())
    }

    fn with<R>(&self, work: impl FnOnce(&mut Places) -> R) -> R {
        self.0.lock(|places| work(&mut places.borrow_mut()))
    }

    pub(super) fn claim(&self, bdf: Bdf) -> Result<Claim, ProbeError> {
        self.with(|places| {
            if places.claimed.contains(&bdf) {
                return Err(ProbeError::AlreadyBound { bdf });
            }
            let room = places.claimed.try_reserve(1);
            room.map_err(|_| ProbeError::NoRecords { rung: Rung(3) })?;
            places.claimed.push(bdf);
            Ok(())
        })?;
        Ok(Claim { table: self.clone(), bdf })
    }

    pub(super) fn reserve(
        &self,
        bdf: Bdf,
        routing_id: RoutingId,
        index: DeviceIndex,
    ) -> Result<Slot, ProbeError> {
        self.with(|places| match places.by_index.get_mut(index.index()) {
            Some(Some(taken)) => {
                Err(ProbeError::DuplicateRoutingId { routing_id, index, holder: taken.bdf })
            }
            Some(free) => {
                *free = Some(Place { bdf, visible: false });
                Ok(())
            }
            None => Err(ProbeError::RoutingIdOutOfRange {
                routing_id: routing_id.number(),
                limit: DeviceIndex::COUNT as u32,
            }),
        })?;
        Ok(Slot { table: self.clone(), index })
    }
}

/// Nobody else drives the function.
pub(crate) struct Claim {
    table: DeviceTable,
    bdf: Bdf,
}

impl Drop for Claim {
    fn drop(&mut self) {
        self.table.with(|places| places.claimed.retain(|&bdf| bdf != self.bdf));
    }
}

/// A place in the table.
pub(crate) struct Slot {
    table: DeviceTable,
    index: DeviceIndex,
}

impl Slot {
    pub(crate) fn table(&self) -> &DeviceTable {
        &self.table
    }

    pub(crate) fn set_visible(&self, visible: bool) {
        self.table.with(|places| {
            if let Some(Some(place)) = places.by_index.get_mut(self.index.index()) {
                place.visible = visible;
            }
        });
    }
}

impl Drop for Slot {
    fn drop(&mut self) {
        self.table.with(|places| {
            if let Some(place) = places.by_index.get_mut(self.index.index()) {
                *place = None;
            }
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bdf(device: u8) -> Bdf {
        Bdf { device, ..Bdf::default() }
    }

    #[test]
    fn dev_e19_the_second_of_an_index_is_refused_until_the_first_is_gone() {
        let table = DeviceTable::new();
        let (id, index) = (RoutingId::new(4).unwrap(), DeviceIndex::new(3).unwrap());
        let first = table.reserve(bdf(1), id, index).unwrap();
        assert_eq!(
            table.reserve(bdf(2), id, index).err(),
            Some(ProbeError::DuplicateRoutingId { routing_id: id, index, holder: bdf(1) })
        );
        assert_eq!(table.published(), 0);
        first.set_visible(true);
        assert_eq!(table.published(), 1);
        drop(first);
        assert_eq!(table.published(), 0);
        assert!(table.reserve(bdf(2), id, index).is_ok());
    }

    #[test]
    fn a_function_is_claimed_once() {
        let table = DeviceTable::new();
        let claim = table.claim(bdf(1)).unwrap();
        assert_eq!(table.claim(bdf(1)).err(), Some(ProbeError::AlreadyBound { bdf: bdf(1) }));
        assert!(table.claim(bdf(2)).is_ok());
        drop(claim);
        assert!(table.claim(bdf(1)).is_ok());
    }
}
