//! Tests of the whole set and of the task; edge cases carry their id of specification 04 §16.

mod allocation;
mod rig;
mod task;
