//! Notification queues, semaphores and events against the emulated function (specification 06).
//! Cases are named after its edge cases (`nq_e…`) and after the defects of Linux (`nq_d…`) that
//! they would catch.

mod bench;
mod create;
mod device_rings;
mod ends;
mod flow;
mod garbage;
mod rig;
mod sync;
mod telemetry;
