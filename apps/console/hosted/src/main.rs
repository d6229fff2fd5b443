//! console in a Linux process.
fn main() {}
