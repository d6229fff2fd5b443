//! Build script of every image crate (`build = "../../../boot/build.rs"`): links the program as a
//! bootable image instead of a Linux process.

use std::path::Path;

fn main() {
    let package = std::env::var("CARGO_MANIFEST_DIR").expect("cargo names the package");
    let script = Path::new(&package).join("../../../boot/image.ld");
    let script = script.canonicalize().expect("boot/image.ld lies three folders up");
    println!("cargo::rerun-if-changed={}", script.display());
    // Replaces the C runtime, the C library and position independence by our own entry point at a
    // fixed address.
    for argument in [
        "-nostartfiles",
        "-nostdlib",
        "-static",
        "-no-pie",
        "-Wl,--build-id=none",
        "-Wl,-z,norelro",
        "-Wl,-z,noexecstack",
    ] {
        println!("cargo::rustc-link-arg-bins={argument}");
    }
    println!("cargo::rustc-link-arg-bins=-Wl,-T,{}", script.display());
}
