//! The console: one serial line for the application's output and the text log.
//!
//! | module | what it owns |
//! |---|---|
//! | [`serial`] | the 16550 |
//! | [`text_log`] | the text log: a ring of recent lines, echoed with `# ` in front |
//! | `budget` | how many lines the log takes |
//! | [`input`] | bytes typed, as a future |

mod budget;
pub mod input;
pub mod serial;
pub mod text_log;

use core::sync::atomic::{AtomicBool, Ordering::Relaxed};

/// The last byte written did not end a line.
static MID_LINE: AtomicBool = AtomicBool::new(false);

/// Writes to the console.
pub fn write(bytes: &[u8]) {
    if let Some(last) = bytes.last() {
        MID_LINE.store(*last != b'\n', Relaxed);
        serial::write(bytes);
    }
}

/// Writes at the start of a line, ending first the one that was begun.
pub fn write_line(bytes: &[u8]) {
    if MID_LINE.swap(false, Relaxed) {
        serial::write(b"\n");
    }
    write(bytes);
}
