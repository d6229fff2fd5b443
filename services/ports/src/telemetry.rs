//! What tasks write down about a device while they work: counters, event ring, trace ring
//! (specification 07 §3, §10, §11).
//!
//! Everybody writes through one shared [`DeviceRecords`], in as few instructions as possible and
//! without a lock, a message or the heap. Reading, adding up, posting and printing is the telemetry
//! service's business.
//!
//! | module | what it holds |
//! |---|---|
//! | [`cell`] | one counter, one gauge with its peak |
//! | [`counters`] | the counters that the driver and the services keep of a device |
//! | [`events`] | event ring: what happened, by client; always on |
//! | [`trace`] | trace rings: what the tasks do, step by step; off until asked for |

use alloc::boxed::Box;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::fmt;

use axon_platform::LastWords;

use crate::{CoreMap, DeviceIndex};

pub mod cell;
pub mod counters;
pub mod events;
pub mod trace;

pub use cell::{Counter, Gauge};
pub use counters::DeviceCounters;
pub use events::{EventKind, EventQuery, EventRing};
pub use trace::{Trace, TraceEvent, TraceKind};

/// There is no memory for a ring.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct NoRoom;

/// Everything that is written down about one device.
pub struct DeviceRecords {
    /// Which device.
    pub device: DeviceIndex,
    /// Counters.
    pub counters: DeviceCounters,
    /// Event ring.
    pub events: EventRing,
    /// Trace points.
    pub trace: Trace,
}

impl DeviceRecords {
    /// Empty records of a device whose cores are those in `present`.
    ///
    /// # Errors
    /// [`NoRoom`].
    pub fn new(device: DeviceIndex, present: CoreMap) -> Result<Arc<DeviceRecords>, NoRoom> {
        Ok(Arc::new(DeviceRecords {
            device,
            counters: DeviceCounters::new(present),
            events: EventRing::new(device)?,
            trace: Trace::new(device),
        }))
    }
}

/// `count` fresh slots of a ring.
fn slots<T>(count: usize, fresh: impl FnMut() -> T) -> Result<Box<[T]>, NoRoom> {
    let mut slots = Vec::new();
    slots.try_reserve_exact(count).map_err(|_| NoRoom)?;
    slots.resize_with(count, fresh);
    Ok(slots.into_boxed_slice())
}

/// Events that are printed where the machine ends.
const LAST_EVENTS: usize = 32;

impl LastWords for DeviceRecords {
    fn say(&self, to: &mut dyn fmt::Write) -> fmt::Result {
        write!(to, "last events of {}:", self.device)?;
        let mut result = Ok(());
        let query = EventQuery { limit: LAST_EVENTS, ..EventQuery::default() };
        self.events.dump(&query, |record| {
            result = result.and_then(|()| write!(to, "\n{record}"));
        });
        result
    }
}

#[cfg(test)]
mod tests {
    use alloc::string::String;

    use axon_platform::Instant;

    use super::*;

    #[test]
    fn the_last_words_of_a_device_are_its_newest_events() {
        let records = DeviceRecords::new(DeviceIndex::new(3).unwrap(), CoreMap(1)).unwrap();
        let say = || {
            let mut text = String::new();
            records.say(&mut text).unwrap();
            text
        };
        assert_eq!(say(), "last events of nd3:");
        for data in 0..40 {
            records.events.record(Instant::default(), None, EventKind::Call, data);
        }
        let text = say();
        assert_eq!(text.lines().count(), 1 + LAST_EVENTS);
        assert!(text.lines().next_back().unwrap().ends_with("call            client=0 data=0x27"));
    }
}
