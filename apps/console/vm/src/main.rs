//! console as a bootable image.

#![no_std]
#![no_main]

axon_boot::entry!(|machine| axon::run(machine, axon_console::main));
