//! Tests of the whole set and of the task; edge cases carry their id of specification 04 §16.

mod allocation;
mod bad_input;
mod failures;
mod histories;
mod lifespan;
mod oracle;
mod rig;
mod scratchpad;
mod task;
mod windows;
