//! Whole-system tests: the real driver, services and applications against the emulated function,
//! in one process, with a seeded executor and virtual time.
//!
//! | module | what it holds |
//! |---|---|
//! | [`mod@bench`] | one device that is READY, one client, and what a test wants to know about them |
//! | [`frail`] | a machine that refuses the n-th request for a resource |
//! | [`mod@machine`] | machines by a short description |
//! | [`transcript`] | console sessions kept as files: what was typed, what was answered |
//!
//! The tests are in `tests/`, the transcripts in `scripts/`. A run with `AXON_BLESS=1` writes the
//! answers it got into the transcripts; read the difference before it is committed.

#![forbid(unsafe_code)]

pub mod bench;
pub mod frail;
pub mod machine;
pub mod transcript;

pub use machine::{PRODUCTS, is_v2, machine, on, on_each};
