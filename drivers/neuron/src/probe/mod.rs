//! The bring-up ladder of one function (specification 05 §4.2), and the table of devices.

mod error;

use core::future::Future;
use core::marker::PhantomData;

use axon_platform::Platform;
use axon_ports::{MemoryError, MemoryGeometry, MemoryPort, Pools};

use crate::{DeviceConfig, NeuronDevice};

pub use error::{ProbeError, Rung};

/// The 64 slots for devices of a host. Clones name the same table.
#[derive(Clone, Default)]
pub struct DeviceTable(());

impl DeviceTable {
    /// An empty table.
    pub fn new() -> DeviceTable {
        DeviceTable(())
    }
}

/// A device with everything but its tasks: what [`probe`] hands over.
pub struct Probed<P: Platform, Q> {
    /// The pools, for the memory service to own from now on.
    pub pools: Q,
    /// The rungs taken; publish it, or drop it to give everything back.
    pub ladder: Ladder<P>,
}

/// The rungs taken so far; dropping it gives them back in reverse order.
pub struct Ladder<P: Platform>(PhantomData<fn() -> P>);

/// A published device and the tasks that have to run for it.
pub struct Published<P: Platform, C, R> {
    /// Handle for everybody.
    pub device: NeuronDevice<P>,
    /// Sweeps markers and rings doorbells; spawn it as `completion`.
    pub completion: C,
    /// Drives resets, the first one included; spawn it as `reset`.
    pub reset: R,
}

/// Climbs rungs D3 to D18 for one function.
///
/// `make_pools` makes the memory pools of the device (rung D15); the ladder takes its own memory
/// from them.
///
/// # Errors
/// [`ProbeError`] says which rung failed and why; everything below it has been given back.
pub async fn probe<P, Q>(
    platform: &P,
    function: &P::Function,
    config: &DeviceConfig,
    table: &DeviceTable,
    make_pools: impl FnOnce(&MemoryGeometry) -> Result<Q, MemoryError>,
) -> Result<Probed<P, Q>, ProbeError>
where
    P: Platform,
    Q: Pools,
{
    let _ = (platform, function, config, table, make_pools);
    Err(ProbeError::Unsupported)
}

impl<P: Platform> Ladder<P> {
    /// Climbs the last rungs: bus mastering on, device visible, first reset queued.
    ///
    /// # Errors
    /// [`ProbeError`]; everything has been given back.
    pub fn publish<M: MemoryPort>(
        self,
        memory: M,
    ) -> Result<
        Published<
            P,
            impl Future<Output = ()> + Send + 'static,
            impl Future<Output = ()> + Send + 'static,
        >,
        ProbeError,
    > {
        let _ = memory;
        if true {
            return Err(ProbeError::Unsupported);
        }
        Ok(Published { device: unreachable!(), completion: async {}, reset: async {} })
    }
}
