//! Windows whose rights come from the claim of a core: where the claim ends, peers on the bus lose
//! them before anybody else can claim the core.

use alloc::sync::Arc;
use alloc::vec::Vec;
use core::cell::RefCell;

use axon_clients::reservation::{CoreSet, FreedCores};
use axon_memory::windows::{Window, WindowPeers};
use axon_ports::{GlobalCore, MemoryError};
use embassy_sync::blocking_mutex::Mutex;
use embassy_sync::blocking_mutex::raw::CriticalSectionRawMutex;

type List = RefCell<Vec<(GlobalCore, WindowPeers)>>;

/// Writable windows on the blocks of a device's cores.
///
/// assumed: the specification says nothing of a claim that ends while a peer is mapped (04 §13.4 is
/// about memory). The client itself cannot write any more from that moment on, so a peer that writes
/// for it is told to stop; its answer is not waited for, because registers are not handed out again as
/// memory is: whoever claims the core next starts it anew.
pub(crate) struct ClaimedWindows(Mutex<CriticalSectionRawMutex, List>);

impl ClaimedWindows {
    pub(crate) fn new() -> Arc<Self> {
        Arc::new(ClaimedWindows(Mutex::new(RefCell::new(Vec::new()))))
    }

    /// Notes a window on a block of `core`.
    pub(crate) fn enter(&self, core: GlobalCore, window: &Window) -> Result<(), MemoryError> {
        self.0.lock(|list| {
            let mut list = list.borrow_mut();
            list.retain(|(_, peers)| !peers.is_over());
            list.try_reserve(1).map_err(|_| MemoryError::NoRecords)?;
            list.push((core, window.peers()));
            Ok(())
        })
    }
}

impl FreedCores for ClaimedWindows {
    fn freed(&self, cores: &CoreSet) {
        // Peers are told outside the lock, one by one.
        while let Some(peers) = self.0.lock(|list| {
            let mut list = list.borrow_mut();
            let at = list.iter().position(|(core, _)| cores.contains(*core))?;
            Some(list.swap_remove(at).1)
        }) {
            peers.withdraw();
        }
    }
}
