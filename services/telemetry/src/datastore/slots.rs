//! Who owns which slab (specification 07 §2.5). Plain data: no lock, no await.

use alloc::boxed::Box;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::sync::atomic::{AtomicBool, AtomicU32, Ordering};

use axon_platform::{DeviceAddr, DmaBuf};
use axon_ports::{Chunk, ClientId, CoreId, Pin};

use super::{SLAB_BYTES, SLABS, layout};
use crate::{CORE_COUNTERS, CoreCounter, DeviceCounter, Error};

/// The memory of one slab, held against reuse.
pub struct Slab {
    memory: DmaBuf,
    pin: Pin,
    _chunk: Option<Chunk>,
}

impl Slab {
    /// The slab in `chunk`; `None` for a chunk that is no live host memory of 256 KiB.
    pub fn from_chunk(chunk: Chunk) -> Option<Slab> {
        let pin = chunk.pin()?;
        Slab::new(pin, Some(chunk))
    }

    /// The slab behind `pin`, whose chunk somebody else keeps.
    pub fn from_pin(pin: Pin) -> Option<Slab> {
        Slab::new(pin, None)
    }

    fn new(pin: Pin, chunk: Option<Chunk>) -> Option<Slab> {
        let memory = pin.host()?.slice(0, SLAB_BYTES).ok()?;
        Some(Slab { memory, pin, _chunk: chunk })
    }
}

/// A slab as the slot table and its owner's handle share it.
pub(crate) struct SlabShared {
    slab: Slab,
    /// Odd while somebody owns the slab; every change of owner is a step.
    tenancy: AtomicU32,
}

impl SlabShared {
    pub(crate) fn memory(&self) -> &DmaBuf {
        &self.slab.memory
    }

    pub(crate) fn address(&self) -> DeviceAddr {
        self.slab.pin.pa()
    }

    pub(crate) fn is_tenancy(&self, tenancy: u32) -> bool {
        self.tenancy.load(Ordering::Acquire) == tenancy
    }
}

struct Slot {
    owner: Option<ClientId>,
    /// When it was cleared last; 0 for never used.
    clear_tick: u64,
    shared: Arc<SlabShared>,
}

/// The 16 slots of a device.
pub(crate) struct Slots {
    slots: Box<[Slot]>,
    next_tick: u64,
    reported: AtomicBool,
}

/// The counters in one used slab.
#[derive(Clone, Copy)]
pub(crate) struct SlabView<'a> {
    /// Whose.
    pub client: ClientId,
    memory: &'a DmaBuf,
    reported: &'a AtomicBool,
}

impl SlabView<'_> {
    /// A device counter.
    pub fn device_counter(&self, counter: DeviceCounter) -> u64 {
        self.load(layout::device_counter(counter))
    }

    /// A core counter. One that does not exist reads 0 and is reported once.
    pub fn core_counter(&self, core: u32, counter: u32) -> u64 {
        let offset = CoreCounter::new(counter).and_then(|id| layout::core_counter(core, id));
        match offset {
            Some(offset) => self.load(offset),
            None => {
                if !self.reported.swap(true, Ordering::Relaxed) {
                    log::warn!("no counter {counter} of core {core} exists in a slab");
                }
                0
            }
        }
    }

    /// The counters of a core that have a meaning.
    pub fn core_counters(&self, core: CoreId) -> [u64; CORE_COUNTERS] {
        core::array::from_fn(|counter| self.core_counter(core.number(), counter as u32))
    }

    fn load(&self, offset: u64) -> u64 {
        self.memory.load64(offset).unwrap_or(0)
    }
}

impl Slots {
    /// Sixteen free slots.
    pub(crate) fn new(slabs: Vec<Slab>) -> Result<Self, Error> {
        let usable = slabs.len();
        let mut slots = Vec::new();
        slots.try_reserve_exact(SLABS).map_err(|_| Error::NoRoom)?;
        slots.extend(slabs.into_iter().take(SLABS).map(|slab| Slot {
            owner: None,
            clear_tick: 0,
            shared: Arc::new(SlabShared { slab, tenancy: AtomicU32::new(0) }),
        }));
        if slots.len() != SLABS {
            return Err(Error::BadSlabs { usable });
        }
        let mut slots = Slots {
            slots: slots.into_boxed_slice(),
            next_tick: 1,
            reported: AtomicBool::new(false),
        };
        for slot in &mut slots.slots {
            slot.zero();
        }
        Ok(slots)
    }

    /// The client's own slab, found or taken: a slot that was never used before one that was, the
    /// longest unused first.
    pub(crate) fn acquire(&mut self, client: ClientId) -> Result<(Arc<SlabShared>, u32), Error> {
        if let Some(own) = self.slots.iter().find(|slot| slot.owner == Some(client)) {
            return Ok((own.shared.clone(), own.shared.tenancy.load(Ordering::Relaxed)));
        }
        let free = self.slots.iter_mut().filter(|slot| slot.owner.is_none());
        let slot = free.min_by_key(|slot| slot.clear_tick).ok_or(Error::NoSlab)?;
        slot.owner = Some(client);
        let tenancy = slot.shared.tenancy.fetch_add(1, Ordering::AcqRel).wrapping_add(1);
        Ok((slot.shared.clone(), tenancy))
    }

    /// The memory of another client's slab.
    pub(crate) fn find(&self, client: ClientId) -> Option<&DmaBuf> {
        self.slots.iter().find(|slot| slot.owner == Some(client)).map(|slot| slot.shared.memory())
    }

    /// Ends the client's ownership, if it has any: `fold` sees the counters, then they are zeroed.
    pub(crate) fn release(&mut self, client: ClientId, fold: impl FnOnce(SlabView<'_>)) -> bool {
        let Some(slot) = self.slots.iter_mut().find(|slot| slot.owner == Some(client)) else {
            return false;
        };
        // The writer's handle dies first, so that nothing is counted between fold and clearing.
        slot.shared.tenancy.fetch_add(1, Ordering::AcqRel);
        fold(SlabView { client, memory: slot.shared.memory(), reported: &self.reported });
        slot.owner = None;
        slot.clear_tick = self.next_tick;
        self.next_tick += 1;
        slot.zero();
        true
    }

    /// Used slots in order.
    pub(crate) fn walk(&self) -> impl Iterator<Item = SlabView<'_>> {
        let reported = &self.reported;
        self.slots.iter().filter_map(move |slot| {
            Some(SlabView { client: slot.owner?, memory: slot.shared.memory(), reported })
        })
    }
}

impl Slot {
    fn zero(&mut self) {
        // Cannot leave the slab: the slice was cut to this length.
        let _ = self.shared.memory().fill(0, SLAB_BYTES, 0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{client, slabs};

    fn slots() -> Slots {
        Slots::new(slabs()).unwrap()
    }

    /// Which slot the client has.
    fn place(slots: &Slots, number: u32) -> Option<usize> {
        slots.slots.iter().position(|slot| slot.owner == Some(client(number)))
    }

    fn acquire(slots: &mut Slots, number: u32) -> usize {
        slots.acquire(client(number)).unwrap();
        place(slots, number).unwrap()
    }

    #[test]
    fn tel_e23_the_17th_client_finds_no_slab() {
        let mut slots = slots();
        for number in 1..=16 {
            assert_eq!(acquire(&mut slots, number), number as usize - 1);
        }
        assert!(matches!(slots.acquire(client(17)), Err(Error::NoSlab)));
        assert_eq!(acquire(&mut slots, 5), 4, "who has one gets the same again");
    }

    #[test]
    fn tel_e25_never_used_first_then_the_longest_unused() {
        let mut slots = slots();
        for number in 1..=4 {
            acquire(&mut slots, number);
        }
        for number in [4, 2, 3, 1] {
            assert!(slots.release(client(number), |_| ()));
        }
        assert_eq!(acquire(&mut slots, 20), 4, "slot 4 was never used");
        for number in 21..=31 {
            acquire(&mut slots, number);
        }
        let order: [usize; 4] = core::array::from_fn(|at| acquire(&mut slots, 40 + at as u32));
        assert_eq!(order, [3, 1, 2, 0], "in the order of their release");
    }

    #[test]
    fn mem_e80_release_folds_then_clears_and_is_only_for_the_owner() {
        let mut slots = slots();
        assert!(slots.find(client(1)).is_none(), "nobody has one yet");
        let (shared, tenancy) = slots.acquire(client(1)).unwrap();
        shared.memory().store64(0x108, 7).unwrap();
        shared.memory().write(SLAB_BYTES - 1, &[9]).unwrap();
        assert!(!slots.release(client(2), |_| panic!("nothing to fold")));
        assert!(shared.is_tenancy(tenancy));
        let mut folded = 0;
        slots.release(client(1), |slab| folded = slab.core_counter(0, 1));
        assert_eq!(folded, 7);
        assert!(!shared.is_tenancy(tenancy));
        let mut all = alloc::vec![1; SLAB_BYTES as usize];
        shared.memory().read(0, &mut all).unwrap();
        assert!(all.iter().all(|byte| *byte == 0), "the whole slab is zero");
        assert!(slots.find(client(1)).is_none());
    }

    #[test]
    fn mem_e79_who_asks_twice_gets_the_same_slab() {
        let mut slots = slots();
        let (first, tenancy) = slots.acquire(client(1)).unwrap();
        let (again, still) = slots.acquire(client(1)).unwrap();
        assert!(Arc::ptr_eq(&first, &again));
        assert_eq!(tenancy, still);
        assert_eq!(SLAB_BYTES, 262_144);
    }

    #[test]
    fn mem_e81_a_slab_that_was_never_cleared_comes_first_then_the_longest_unused() {
        let mut slots = slots();
        assert_eq!([acquire(&mut slots, 1), acquire(&mut slots, 2)], [0, 1]);
        assert!(slots.release(client(2), |_| ()));
        assert!(slots.release(client(1), |_| ()));
        for number in 3..=16 {
            assert_eq!(acquire(&mut slots, number), number as usize - 1);
        }
        assert_eq!([acquire(&mut slots, 17), acquire(&mut slots, 18)], [1, 0]);
    }

    #[test]
    fn mem_e83_tel_e08_a_counter_that_does_not_exist_reads_zero() {
        let mut slots = slots();
        let (shared, _) = slots.acquire(client(1)).unwrap();
        shared.memory().fill(0, SLAB_BYTES, 0xff).unwrap();
        let view = slots.walk().next().unwrap();
        assert_eq!((view.core_counter(0, 95), view.core_counter(16, 0)), (0, 0));
        assert_eq!(view.core_counter(4, 95), 0);
        assert!(slots.reported.load(Ordering::Relaxed));
        assert_eq!(view.core_counter(15, 94), u64::MAX);
    }

    #[test]
    fn fewer_than_16_slabs_are_refused() {
        let mut few = slabs();
        few.pop();
        assert!(matches!(Slots::new(few), Err(Error::BadSlabs { usable: 15 })));
    }
}
