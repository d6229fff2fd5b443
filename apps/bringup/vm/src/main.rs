//! bringup as a bootable image.
fn main() {}
