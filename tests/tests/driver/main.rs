//! The driver against the emulated function: bring-up, copies, faults, resets. Cases are named after
//! the edge cases of the specification.

mod batches;
mod bringup;
mod copies;
mod core_words;
mod defects;
mod endurance;
mod environments;
mod faults;
mod firmware_words;
mod host;
mod identity;
mod mailbox;
mod many;
mod resets;
mod telemetry;
mod unbind;
mod window;
