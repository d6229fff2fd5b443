//! Entry points of an axon image.
#![no_std]
