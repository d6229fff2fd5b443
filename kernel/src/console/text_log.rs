//! The text log: what the `log` crate records, as lines in a ring that survives until the end.
//!
//! Lines from `info` up are taken at a limited rate. A line reads `# [seconds.micros] LEVEL target: message`. Lines up to the echo level also go to
//! the console at once; a machine that dies prints the last ones of the ring.

use core::cell::{RefCell, UnsafeCell};
use core::fmt::{self, Write};
use core::sync::atomic::{AtomicU8, AtomicUsize, Ordering::Relaxed};

use critical_section::Mutex;
use log::{Level, LevelFilter, Log, Metadata, Record};

use super::budget::Budget;
use crate::time::clock;

/// Bytes of the ring.
pub const RING_BYTES: usize = 64 * 1024;

static RING: Ring = Ring { bytes: UnsafeCell::new([0; RING_BYTES]), written: AtomicUsize::new(0) };
static ECHO: AtomicU8 = AtomicU8::new(0);
static BUDGET: Mutex<RefCell<Budget>> = Mutex::new(RefCell::new(Budget::new()));

/// Starts recording up to `record`, and echoing up to `echo`.
pub fn init(record: LevelFilter, echo: LevelFilter) {
    ECHO.store(echo as u8, Relaxed);
    // Fails only where a logger is set already.
    let _ = log::set_logger(&Recorder);
    log::set_max_level(record);
}

/// Hands the last `bytes` bytes of the log, from the start of a line on, to `each`, in order.
pub fn tail(bytes: usize, each: impl FnMut(&[u8])) {
    RING.tail(bytes, each);
}

struct Recorder;

impl Log for Recorder {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        metadata.level() <= log::max_level()
    }

    fn log(&self, record: &Record<'_>) {
        if !self.enabled(record.metadata()) {
            return;
        }
        let start = RING.position();
        let micros = clock::now().as_nanos() / 1000;
        if record.level() <= Level::Info {
            let taken =
                critical_section::with(|section| BUDGET.borrow_ref_mut(section).take(micros));
            match taken {
                None => return,
                Some(0) => {}
                Some(lines) => {
                    let _ = writeln!(Line, "# {lines} lines of the log were too many");
                }
            }
        }
        let (seconds, micros) = (micros / 1_000_000, micros % 1_000_000);
        let _ = writeln!(
            Line,
            "# [{seconds:4}.{micros:06}] {} {}: {}",
            name(record.level()),
            record.target(),
            Indented(record.args())
        );
        if record.level() as u8 <= ECHO.load(Relaxed) {
            RING.since(start, super::write_line);
        }
    }

    fn flush(&self) {}
}

fn name(level: Level) -> &'static str {
    match level {
        Level::Error => "error",
        Level::Warn => "warn ",
        Level::Info => "info ",
        Level::Debug => "debug",
        Level::Trace => "trace",
    }
}

/// A message whose further lines start with `# ` too.
struct Indented<'a>(&'a fmt::Arguments<'a>);

impl fmt::Display for Indented<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        struct Lines<'a, 'b>(&'a mut fmt::Formatter<'b>);
        impl Write for Lines<'_, '_> {
            fn write_str(&mut self, text: &str) -> fmt::Result {
                for (index, line) in text.split('\n').enumerate() {
                    if index > 0 {
                        self.0.write_str("\n#   ")?;
                    }
                    self.0.write_str(line)?;
                }
                Ok(())
            }
        }
        write!(Lines(f), "{}", self.0)
    }
}

/// Appends to the ring.
struct Line;

impl Write for Line {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        RING.push(text.as_bytes());
        Ok(())
    }
}

struct Ring {
    bytes: UnsafeCell<[u8; RING_BYTES]>,
    /// Bytes ever written; the next one goes to this index modulo the size.
    written: AtomicUsize,
}

// SAFETY: one processor, and no interrupt handler runs Rust code. Nothing between the start and the
// end of a method calls out, except `tail`, whose slices are read-only and short-lived; a panic
// while one of them prints may at worst mix lines, because bytes are always initialised.
unsafe impl Sync for Ring {}

impl Ring {
    fn position(&self) -> usize {
        self.written.load(Relaxed)
    }

    fn push(&self, text: &[u8]) {
        // Of a text longer than the ring only the end would survive.
        let text = &text[text.len().saturating_sub(RING_BYTES)..];
        let at = self.position() % RING_BYTES;
        let (first, second) = text.split_at(text.len().min(RING_BYTES - at));
        // SAFETY: both parts end inside the ring; see `Sync` for exclusion.
        unsafe {
            let ring = self.bytes.get().cast::<u8>();
            ring.add(at).copy_from_nonoverlapping(first.as_ptr(), first.len());
            ring.copy_from_nonoverlapping(second.as_ptr(), second.len());
        }
        self.written.fetch_add(text.len(), Relaxed);
    }

    fn since(&self, start: usize, mut each: impl FnMut(&[u8])) {
        let len = self.position().wrapping_sub(start).min(RING_BYTES);
        let from = self.position().wrapping_sub(len) % RING_BYTES;
        // SAFETY: see `Sync`; every byte is initialised.
        let ring = unsafe { &*self.bytes.get() };
        let first = len.min(RING_BYTES - from);
        each(&ring[from..from + first]);
        if len > first {
            each(&ring[..len - first]);
        }
    }

    fn tail(&self, bytes: usize, mut each: impl FnMut(&[u8])) {
        let mut whole_line = self.position() <= bytes;
        self.since(self.position().saturating_sub(bytes), |part| {
            let start = match part.iter().position(|&byte| byte == b'\n') {
                _ if whole_line => 0,
                Some(end) => end + 1,
                None => part.len(),
            };
            whole_line |= start < part.len();
            each(&part[start..]);
        });
    }
}

#[cfg(test)]
mod tests {
    use std::boxed::Box;
    use std::string::String;

    use proptest::prelude::*;

    use super::*;

    fn ring() -> Box<Ring> {
        Box::new(Ring { bytes: UnsafeCell::new([0; RING_BYTES]), written: AtomicUsize::new(0) })
    }

    #[test]
    fn the_tail_begins_with_a_whole_line() {
        let ring = ring();
        ring.push(b"# first\n# second\n");
        let mut text = String::new();
        ring.tail(12, |part| text.push_str(core::str::from_utf8(part).unwrap()));
        assert_eq!(text, "# second\n");
        text.clear();
        ring.tail(100, |part| text.push_str(core::str::from_utf8(part).unwrap()));
        assert_eq!(text, "# first\n# second\n");
    }

    #[test]
    fn further_lines_of_a_message_are_marked_too() {
        let text = std::format!("{}", Indented(&format_args!("one\ntwo {}", 3)));
        assert_eq!(text, "one\n#   two 3");
    }

    proptest! {
        #[test]
        fn the_ring_keeps_the_last_bytes(lengths in proptest::collection::vec(0usize..9000, 1..40)) {
            let ring = ring();
            let mut all = std::vec::Vec::new();
            for (index, len) in lengths.into_iter().enumerate() {
                let text = std::vec![b'a' + (index % 26) as u8; len];
                ring.push(&text);
                all.extend(text);
                let mut kept = std::vec::Vec::new();
                ring.since(0, |part| kept.extend_from_slice(part));
                prop_assert_eq!(&kept[..], &all[all.len().saturating_sub(RING_BYTES)..]);
            }
        }
    }
}
