//! Attach table and lanes of one device (specification 05 §7, §8).
#![no_std]
#![forbid(unsafe_code)]
