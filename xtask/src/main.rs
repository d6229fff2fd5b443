//! The commands of the axon repository.
fn main() {}
