//! Register offsets and values, grouped by block (specification 01 §4, 02 §3).
//!
//! Offsets are bytes from the start of the block; every register has 32 bits.

pub(crate) mod iofic;
pub(crate) mod misc_ram;
pub(crate) mod notific;
pub(crate) mod queue;
pub(crate) mod sdma;
pub(crate) mod unit;
