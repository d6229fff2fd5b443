//! What a client holds of the host's cores: dropped, the cores are free.

use alloc::sync::Arc;

use axon_ports::{ClientId, GlobalCore};

use super::{CoreSet, Shared};

/// A set of cores that belongs to one client until it is dropped, unmarked by command, or the
/// client ends. Dropping marks and wakes; it never blocks and never fails.
#[must_use = "the cores are free again when the claim is dropped"]
pub struct CoreClaim {
    shared: Arc<Shared>,
    client: ClientId,
    cores: CoreSet,
    serial: u32,
}

impl CoreClaim {
    pub(super) fn new(shared: Arc<Shared>, client: ClientId, cores: CoreSet, serial: u32) -> Self {
        CoreClaim { shared, client, cores, serial }
    }

    /// Whose.
    pub fn client(&self) -> ClientId {
        self.client
    }

    /// Which cores of the host.
    pub fn cores(&self) -> &CoreSet {
        &self.cores
    }

    /// Gives some of the cores back; cores that are not in the claim are ignored.
    pub fn release(&mut self, cores: &CoreSet) {
        let given: CoreSet = cores.iter().filter(|core| self.cores.contains(*core)).collect();
        given.iter().for_each(|core: GlobalCore| self.cores.remove(core));
        self.shared.release(self.client, &given, self.serial);
    }
}

impl Drop for CoreClaim {
    fn drop(&mut self) {
        self.shared.release(self.client, &self.cores, self.serial);
    }
}
