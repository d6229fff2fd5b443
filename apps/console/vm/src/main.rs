//! console as a bootable image.
#![no_std]
#![no_main]

use axon_platform::Platform;

axon_boot::entry!(|machine| async move {
    machine.console_write(b"axon: booted; the console application is not part of this image yet\n");
    1
});
