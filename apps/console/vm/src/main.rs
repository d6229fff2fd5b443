//! console as a bootable image.
fn main() {}
