//! Waiting for a number to change (specification 07 §16.1).
//!
//! Nothing is added to the places that count: whoever waits looks ten times a second.

use core::sync::atomic::Ordering;
use core::time::Duration;

use axon_platform::Platform;
use axon_ports::CoreId;
use axon_ports::telemetry::Counter;

use crate::{CoreCounter, DeviceSensors, MemoryCounter, Telemetry};

/// At most one wake-up in this time.
const PAUSE: Duration = Duration::from_millis(100);

/// One number of a device.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Metric {
    /// What clients counted for a core.
    Core(CoreId, CoreCounter),
    /// Level of a memory gauge.
    Memory(CoreId, MemoryCounter),
    /// Peak of a memory gauge.
    MemoryPeak(CoreId, MemoryCounter),
    /// Resets of a core that were asked for.
    ResetRequests(CoreId),
    /// Resets of a core that failed.
    ResetFailures(CoreId),
}

impl<P: Platform, D: DeviceSensors> Telemetry<P, D> {
    /// A number as it is now; 0 for a core that is not there.
    pub fn get(&self, metric: Metric) -> u64 {
        let resets = &self.0.records.counters.resets;
        let of_core =
            |counters: &[Counter], core: CoreId| counters.get(core.index()).map_or(0, Counter::get);
        match metric {
            Metric::Core(core, counter) => self.0.turn(|state| {
                let totals = state.retired.with_live(core, &state.slots);
                totals.get(counter.number() as usize).map_or(0, |cell| cell.total)
            }),
            Metric::Memory(core, counter) => self.0.device.memory(counter, core).total,
            Metric::MemoryPeak(core, counter) => self.0.device.memory(counter, core).peak,
            Metric::ResetRequests(core) => of_core(&resets.requests, core),
            Metric::ResetFailures(core) => of_core(&resets.failures, core),
        }
    }

    /// Resolves with the number once it differs from `seen`, while change notification is on. It
    /// is off until `notify_delay` is written.
    pub async fn changed(&self, metric: Metric, seen: u64) -> u64 {
        loop {
            if self.0.notifies.load(Ordering::Relaxed) {
                let now = self.get(metric);
                if now != seen {
                    return now;
                }
            }
            self.0.platform.sleep(PAUSE).await;
        }
    }
}
