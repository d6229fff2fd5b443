//! The seam to the rest of a device.

use core::future::Future;
use core::time::Duration;

use axon_ports::reset::DeviceState;
use axon_ports::{ClientId, ClientSlot};

/// What the control plane asks of the tasks of its device. Implemented where the device is put
/// together; every call is bounded in time.
pub trait DevicePeers: Send + Sync + 'static {
    /// State of the device now.
    fn state(&self) -> DeviceState;

    /// Resolves once the state differs from `seen`.
    fn state_changed(&self, seen: DeviceState) -> impl Future<Output = ()> + Send;

    /// Lets time pass.
    fn pause(&self, span: Duration) -> impl Future<Output = ()> + Send;

    /// A client has attached: for the records.
    fn entered(&self, client: ClientId);

    /// The last handle of a client is gone: for the records.
    fn leaving(&self, client: ClientId);

    /// Waits for the client's outstanding reset requests and discards their results
    /// (specification 05 §10.2 step 4).
    fn resolve_resets(&self, client: ClientId) -> impl Future<Output = ()> + Send;

    /// Gives the client's transfers in flight at most 1 s; what is not done then goes to
    /// quarantine (specification 03 §15).
    fn drain(&self, client: ClientId) -> impl Future<Output = ()> + Send;

    /// Frees the cores that carry the client's models, and those it was initialising
    /// (specification 05 §10.2 step 8).
    fn release_cores(&self, client: ClientId) -> impl Future<Output = ()> + Send;

    /// Folds the client's counters into those of the device and frees their slab (specification 05
    /// §10.2 step 9).
    fn fold_counters(&self, client: ClientId);

    /// Ends the client's windows, then frees its process-lifespan memory, newest first (specification 04 §5.3).
    fn sweep(&self, client: ClientId, slot: ClientSlot) -> impl Future<Output = ()> + Send;

    /// Frees all-clients memory: nobody has the device open any more (specification 05 §10.3).
    fn last_client_gone(&self) -> impl Future<Output = ()> + Send;
}
