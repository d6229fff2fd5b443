//! The x86_64 machine under an axon image.
#![no_std]
