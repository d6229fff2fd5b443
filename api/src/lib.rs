//! What an axon application sees (specification 08 §8.10).
#![no_std]
pub mod pattern;
