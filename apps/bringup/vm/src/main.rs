//! bringup as a bootable image.

#![no_std]
#![no_main]

axon_boot::entry!(|machine| axon_bringup::main(axon::Context::start(machine)));
