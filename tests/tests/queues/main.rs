//! Queues of clients: their own rings, host-transfer queues, zero-copy, copies with wait handles
//! (specification 03 §10 to §13, §15).

mod bad_input;
mod bound;
mod claims;
mod defects;
mod descriptors;
mod ends;
mod numbered;
mod rig;
mod scrub;
mod segments;
mod zero_copy;
