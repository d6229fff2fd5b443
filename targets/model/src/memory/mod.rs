//! Memory behind the function: what a peer process may map too, and what the device keeps to itself.

pub(crate) mod hbm;
pub(crate) mod pages;
pub mod shared;
