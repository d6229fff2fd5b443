//! UDMA units: registers, rings, error controller, and the state machine that executes
//! descriptors (specification 02).
//!
//! A unit never touches memory itself: [`unit::Unit`] says what to fetch, read or write next, and
//! the function does it, because a destination may be any register or memory of the device.

pub(crate) mod descriptor;
pub(crate) mod execute;
pub(crate) mod iofic;
pub(crate) mod registers;
pub(crate) mod ring;
pub(crate) mod unit;

/// Queue pairs of a unit.
pub(crate) const QUEUES: usize = 16;
