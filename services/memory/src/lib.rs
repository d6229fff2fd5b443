//! The memory service of one device (specification 04).
#![no_std]
#![forbid(unsafe_code)]
