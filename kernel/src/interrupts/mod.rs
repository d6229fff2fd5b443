//! Interrupts and exceptions.
//!
//! | module | what it owns |
//! |---|---|
//! | [`segments`] | segment table, task state with the stacks of the vectors |
//! | [`vectors`] | interrupt table, the stubs behind it |
//! | [`local`] | the local APIC: end of interrupt, one-shot timer |
//! | [`io`] | the I/O APIC: the serial port's interrupt |
//!
//! No Rust code runs in an interrupt. A stub sets a flag, ends the interrupt and returns; the
//! executor loop looks at the flags. Exceptions are fatal, all of them.

pub mod io;
pub mod local;
pub mod segments;
pub mod vectors;
