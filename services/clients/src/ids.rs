//! Client ids: one counter for all devices of a machine, never reused during a boot
//! (specification 05 §1).

use core::sync::atomic::{AtomicU32, Ordering};

use axon_ports::ClientId;

/// Source of [`ClientId`]s; a machine has one.
pub struct ClientIds(AtomicU32);

impl ClientIds {
    /// The first id will be 1.
    pub const fn new() -> Self {
        ClientIds(AtomicU32::new(1))
    }

    /// A fresh id; `None` once all 2³² − 2 of them were given out.
    pub fn mint(&self) -> Option<ClientId> {
        self.0
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, |next| {
                ClientId::new(next).map(|_| next + 1)
            })
            .ok()
            .and_then(ClientId::new)
    }
}

impl Default for ClientIds {
    fn default() -> Self {
        Self::new()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_start_at_one_and_go_up() {
        let ids = ClientIds::new();
        assert_eq!(ids.mint().unwrap().number(), 1);
        assert_eq!(ids.mint().unwrap().number(), 2);
    }

    #[test]
    fn an_exhausted_source_stays_exhausted() {
        let ids = ClientIds(AtomicU32::new(u32::MAX - 1));
        assert_eq!(ids.mint().unwrap().number(), u32::MAX - 1);
        assert!(ids.mint().is_none());
        assert!(ids.mint().is_none());
    }
}
