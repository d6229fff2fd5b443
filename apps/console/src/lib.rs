//! The console: a line interpreter that drives devices by hand, by script and in tests.
#![no_std]
#![forbid(unsafe_code)]
extern crate alloc;
pub mod answer;
mod editor;
pub mod engine;
pub mod line;
pub mod number;
pub mod words;
