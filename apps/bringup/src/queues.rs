//! A notification queue of each core: armed, looked at, switched off.

use axon::ports::CoreId;
use axon::{Client, Error, QueueSpec};
use axon_platform::{Errno, Platform};

/// Queue of a core that notifications of its pooling engine go to (specification 06 §3.2).
const INDEX: u32 = 4;
const BYTES: u64 = 4096;

/// Arms a queue of `core`, sees that the hardware stands at its start, and lets it drain.
///
/// # Errors
/// Those of the queue; [`Error::DeviceFailed`] for a producer that is ahead of an empty ring.
pub async fn check_core<P: Platform>(client: &Client<P>, core: CoreId) -> Result<(), Error> {
    let queue = client.notifications(QueueSpec::new(core.number(), INDEX, BYTES)).await?;
    let info = queue.info()?;
    queue.close().await;
    match (info.head, info.tail) {
        (0, 0) => Ok(()),
        _ => Err(Error::DeviceFailed { errno: Errno::EIO }),
    }
}
