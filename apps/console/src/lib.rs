//! axon application: console.
#![no_std]
