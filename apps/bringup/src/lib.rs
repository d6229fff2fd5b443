//! axon application: bringup.
#![no_std]
