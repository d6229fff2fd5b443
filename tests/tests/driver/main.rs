//! The driver against the emulated function: bring-up, copies, faults, resets. Cases are named after
//! the edge cases of the specification.

mod bench;
mod bringup;
mod copies;
mod faults;
mod mailbox;
mod resets;
mod telemetry;
