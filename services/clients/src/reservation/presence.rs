//! When a client has left the host: its handles over all devices, counted by lane (specification 05
//! §10.1).
//!
//! A client that ever looked through an info handle keeps its reservations until the last of those is
//! gone; any other one until its last handle of any kind.

use alloc::sync::Arc;
use alloc::vec::Vec;

use axon_ports::ClientId;

use super::{ReservationError, Shared};
use crate::gates::Lane;

/// One client with handles, or one that has left and whose cores are not free yet.
struct Entry {
    client: ClientId,
    info: u32,
    normal: u32,
    ever_info: bool,
    /// It asked for cores.
    claimed: bool,
    /// Its reservations end.
    left: bool,
}

impl Entry {
    fn handles(&mut self, lane: Lane) -> &mut u32 {
        match lane {
            Lane::Info => &mut self.info,
            Lane::Normal => &mut self.normal,
        }
    }

    fn is_over(&self) -> bool {
        self.info + self.normal == 0
    }
}

/// All clients of the host.
pub(super) struct Roll(Vec<Entry>);

impl Roll {
    pub(super) const fn new() -> Self {
        Roll(Vec::new())
    }

    /// One more handle.
    pub(super) fn enter(&mut self, client: ClientId, lane: Lane) -> Result<(), ReservationError> {
        if !self.0.iter().any(|entry| entry.client == client) {
            self.0.try_reserve(1).map_err(|_| ReservationError::NoRecords)?;
            let new =
                Entry { client, info: 0, normal: 0, ever_info: false, claimed: false, left: false };
            self.0.push(new);
        }
        if let Some(entry) = self.0.iter_mut().find(|entry| entry.client == client) {
            *entry.handles(lane) += 1;
            entry.ever_info |= lane == Lane::Info;
        }
        Ok(())
    }

    /// The client asks for cores: its end has to see to them.
    pub(super) fn claims(&mut self, client: ClientId) {
        if let Some(entry) = self.0.iter_mut().find(|entry| entry.client == client) {
            entry.claimed = true;
        }
    }

    /// One handle less; answers whether the client's reservations end with it.
    fn leave(&mut self, client: ClientId, lane: Lane) -> bool {
        let Some(entry) = self.0.iter_mut().find(|entry| entry.client == client) else {
            return false;
        };
        let handles = entry.handles(lane);
        *handles = handles.saturating_sub(1);
        let ends = match lane {
            Lane::Info => entry.info == 0,
            Lane::Normal => entry.is_over() && !entry.ever_info,
        };
        // Nobody has to look for cores that were never asked for.
        let ends = ends && entry.claimed;
        entry.left |= ends;
        let over = entry.is_over();
        if over && !entry.left {
            self.0.retain(|entry| entry.client != client);
        }
        ends
    }

    /// A client whose reservations end; each is answered once.
    pub(super) fn take_left(&mut self) -> Option<ClientId> {
        let at = self.0.iter().position(|entry| entry.left)?;
        let entry = self.0.get_mut(at)?;
        entry.left = false;
        let client = entry.client;
        if entry.is_over() {
            self.0.swap_remove(at);
        }
        Some(client)
    }
}

/// A handle of a client counts as long as this lives. Dropping it never blocks.
#[must_use = "the client's reservations end with its last presence"]
pub struct Presence {
    shared: Arc<Shared>,
    client: ClientId,
    lane: Lane,
}

impl Presence {
    pub(super) fn new(
        shared: &Arc<Shared>,
        client: ClientId,
        lane: Lane,
    ) -> Result<Self, ReservationError> {
        shared.roll(|roll| roll.enter(client, lane))?;
        Ok(Presence { shared: shared.clone(), client, lane })
    }
}

impl Drop for Presence {
    fn drop(&mut self) {
        if self.shared.roll(|roll| roll.leave(self.client, self.lane)) {
            self.shared.tell();
        }
    }
}
