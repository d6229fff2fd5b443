//! console as a bootable image.

#![no_std]
#![no_main]

axon_boot::entry!(|machine| axon_console::main(axon::Context::start(machine)));
