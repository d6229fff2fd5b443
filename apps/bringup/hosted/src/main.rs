//! bringup in a Linux process.
fn main() {}
