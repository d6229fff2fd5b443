//! bench as a bootable image.

#![no_std]
#![no_main]

axon_boot::entry!(axon_bench::main);
