//! Time: the time-stamp counter as the clock, timers, how long the processor was halted.
//!
//! | module | what it owns |
//! |---|---|
//! | [`clock`] | counter to nanoseconds and back |
//! | [`rate`] | how fast the counters run: asked for, or measured |
//! | [`timers`] | who sleeps until when |
//! | [`idle`] | halting the processor until something happens |

pub mod clock;
pub mod idle;
pub mod rate;
pub mod timers;
