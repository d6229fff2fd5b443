//! How an axon image starts: entry point, loader's start information, linker script.
//!
//! An image crate is ten lines: it names [`entry!`] with its application, and takes
//! `boot/build.rs` as its build script, which links it with `image.ld` instead of a C runtime.
//!
//! ```text
//! #![no_std]
//! #![no_main]
//! axon_boot::entry!(|machine| axon::run(machine, axon_bringup::main));
//! ```
//!
//! | module | what it holds |
//! |---|---|
//! | `entry` | the PVH note, the way from 32-bit protected mode to Rust |
//! | [`pvh`] | the loader's start information, checked and copied |

#![no_std]

mod entry;
pub mod pvh;

#[doc(hidden)]
pub use axon_kernel as kernel;

/// Makes the crate a bootable image that runs one application.
///
/// Takes a closure from [`kernel::Machine`](axon_kernel::Machine) to a future whose output converts
/// into the exit code of the application, 0 to 99.
#[macro_export]
macro_rules! entry {
    ($application:expr) => {
        /// Called once by the entry code, on the main stack, interrupts off.
        #[unsafe(no_mangle)]
        extern "C" fn axon_start(start_info: u64, entry_tsc: u64) -> ! {
            // SAFETY: the entry code calls this once, with what the loader left in `ebx`.
            unsafe {
                let info = $crate::pvh::read(start_info, entry_tsc);
                $crate::kernel::start(&info, $application)
            }
        }
    };
}

#[panic_handler]
fn panic(info: &core::panic::PanicInfo<'_>) -> ! {
    axon_kernel::fatal::panic(info)
}

// The precompiled `core` and `alloc` know how to unwind and name what that takes. The image aborts
// on panic, so neither function is ever called.

#[unsafe(no_mangle)]
extern "C" fn rust_eh_personality() {}

#[unsafe(no_mangle)]
extern "C" fn _Unwind_Resume() -> ! {
    axon_kernel::exit::fatal(axon_kernel::exit::Fatal::Panic)
}
