//! One core of the host as everybody sees it: owner, and which reservation made it so.
//!
//! The reservation task writes whole words. The holder of a claim sets the released bit, and only
//! while the word still names its own reservation, so that a late drop cannot free what somebody
//! else has reserved since.

use core::sync::atomic::{AtomicU64, Ordering};

use axon_ports::ClientId;

const RELEASED: u64 = 1;
const OWNER_SHIFT: u32 = 32;
/// Serial numbers have 31 bits: the word shares its low half with the released bit.
pub(super) const SERIAL_MASK: u32 = u32::MAX >> 1;

pub(super) struct Slot(AtomicU64);

impl Slot {
    pub(super) const fn new() -> Self {
        Slot(AtomicU64::new(0))
    }

    /// Who owns the core; nobody from the moment its claim is given up.
    pub(super) fn owner(&self) -> Option<ClientId> {
        let word = self.0.load(Ordering::Acquire);
        if word & RELEASED != 0 { None } else { ClientId::new((word >> OWNER_SHIFT) as u32) }
    }

    /// Whether `client` owns the core.
    #[inline]
    pub(super) fn is_owned_by(&self, client: ClientId) -> bool {
        let word = self.0.load(Ordering::Acquire);
        (word >> OWNER_SHIFT) as u32 == client.number() && word & RELEASED == 0
    }

    /// Task: the core belongs to `client` by reservation `serial`.
    pub(super) fn take(&self, client: ClientId, serial: u32) {
        self.0.store(word(client, serial), Ordering::Release);
    }

    /// Task: the core is free.
    pub(super) fn clear(&self) {
        self.0.store(0, Ordering::Release);
    }

    /// Claim: gives the core up, where it is still its own. Answers whether it was.
    pub(super) fn release(&self, client: ClientId, serial: u32) -> bool {
        let held = word(client, serial);
        self.0.compare_exchange(held, held | RELEASED, Ordering::AcqRel, Ordering::Relaxed).is_ok()
    }

    /// Task: whether the core was given up.
    pub(super) fn is_released(&self) -> bool {
        self.0.load(Ordering::Acquire) & RELEASED != 0
    }
}

fn word(client: ClientId, serial: u32) -> u64 {
    u64::from(client.number()) << OWNER_SHIFT | u64::from(serial & SERIAL_MASK) << 1
}
