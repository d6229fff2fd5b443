//! Brings every device up, copies in every direction, checks every byte.
#![no_std]
#![forbid(unsafe_code)]
extern crate alloc;
pub mod report;
