//! Elections of simulated nodes under virtual time.

mod control;
mod elections;
mod failures;
mod world;

use core::time::Duration;

use crate::{PodConfig, PodKind};
use world::{End, Node, World, serial};

const LINKS: PodConfig = PodConfig::new(PodKind::Links);

fn secs(span: u64) -> Duration {
    Duration::from_secs(span)
}

fn ms(span: u64) -> Duration {
    Duration::from_millis(span)
}
