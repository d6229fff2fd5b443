//! The end of a machine that cannot go on: says why on the console and ends the virtual machine.
//!
//! Everything here works in any state: it writes straight to the serial port, allocates nothing,
//! borrows nothing that somebody may hold, and gives up where it fails itself. Lines start with `# `. Addresses in code are
//! those of the image file: `addr2line -e IMAGE ADDRESS`.

use alloc::sync::Weak;
use alloc::vec::Vec;
use core::cell::RefCell;
use core::fmt::{self, Write};
use core::panic::PanicInfo;
use core::sync::atomic::{AtomicBool, Ordering::Relaxed};

use axon_platform::LastWords;
use critical_section::Mutex;
use x86_64::registers::control::Cr2;

use crate::console::{serial, text_log};
use crate::exit::{self, Fatal};
use crate::memory::{layout, paging, stacks};

/// What an exception stub saved, from low addresses to high ones.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
#[expect(missing_docs, reason = "registers bear their names")]
pub struct Registers {
    pub rax: u64,
    pub rbx: u64,
    pub rcx: u64,
    pub rdx: u64,
    pub rsi: u64,
    pub rdi: u64,
    pub rbp: u64,
    pub r8: u64,
    pub r9: u64,
    pub r10: u64,
    pub r11: u64,
    pub r12: u64,
    pub r13: u64,
    pub r14: u64,
    pub r15: u64,
    pub vector: u64,
    pub error_code: u64,
    pub rip: u64,
    pub cs: u64,
    pub rflags: u64,
    pub rsp: u64,
    pub ss: u64,
}

/// Bytes of the text log that are printed.
const LOG_BYTES: usize = 4096;
/// Return addresses that are printed.
const CALLS: usize = 24;
/// Words of the stack that are searched for them.
const WORDS: u64 = 4096;

/// Ends the machine after a panic.
pub fn panic(info: &PanicInfo<'_>) -> ! {
    begin(Fatal::Panic);
    let _ = writeln!(Report, "{info}");
    let here = 0u64;
    end(Fatal::Panic, &raw const here as u64)
}

/// Ends the machine after a processor exception.
pub fn exception(registers: &Registers) -> ! {
    begin(Fatal::Exception);
    let r = registers;
    let name = NAMES.get(r.vector as usize).unwrap_or(&"unknown exception");
    let _ = writeln!(
        Report,
        "processor exception {} ({name}), error code {:#x}, at {:#x}",
        r.vector, r.error_code, r.rip
    );
    if r.vector == PAGE_FAULT {
        let address = Cr2::read_raw();
        let _ = writeln!(Report, "{} {address:#x}{}", PageFault(r.error_code), Place(address));
    }
    for line in [
        [("rax", r.rax), ("rbx", r.rbx), ("rcx", r.rcx), ("rdx", r.rdx)],
        [("rsi", r.rsi), ("rdi", r.rdi), ("rbp", r.rbp), ("rsp", r.rsp)],
        [("r8 ", r.r8), ("r9 ", r.r9), ("r10", r.r10), ("r11", r.r11)],
        [("r12", r.r12), ("r13", r.r13), ("r14", r.r14), ("r15", r.r15)],
        [("rip", r.rip), ("rfl", r.rflags), ("cs ", r.cs), ("ss ", r.ss)],
    ] {
        for (name, value) in line {
            let _ = write!(Report, " {name} {value:016x}");
        }
        let _ = writeln!(Report);
    }
    end(Fatal::Exception, r.rsp)
}

/// Ends the machine because it lacks something the kernel cannot do without.
pub fn unfit(what: &str) -> ! {
    begin(Fatal::Unfit);
    let _ = writeln!(Report, "axon cannot run on this machine: {what}");
    exit::fatal(Fatal::Unfit)
}

/// Starts the report; ends the machine at once where a report failed itself.
fn begin(why: Fatal) {
    static DYING: AtomicBool = AtomicBool::new(false);
    x86_64::instructions::interrupts::disable();
    if DYING.swap(true, Relaxed) {
        exit::fatal(why);
    }
    serial::write(b"\n# ");
}

fn end(why: Fatal, stack: u64) -> ! {
    let _ = write!(Report, "calls:");
    each_return_address(stack, |address| {
        let _ = write!(Report, " {address:#x}");
    });
    let _ = write!(Report, "\nlast lines of the log:");
    serial::write(b"\n");
    text_log::tail(LOG_BYTES, serial::write);
    // Last, because it runs code of others, which may be what has failed.
    say_last_words();
    exit::fatal(why)
}

/// What others want to have printed.
static LAST_WORDS: Mutex<RefCell<Vec<Weak<dyn LastWords>>>> = Mutex::new(RefCell::new(Vec::new()));

/// Has `words` printed at the end of a report. Without memory for it they are not.
pub fn add_last_words(words: Weak<dyn LastWords>) {
    critical_section::with(|section| {
        let mut list = LAST_WORDS.borrow_ref_mut(section);
        list.retain(|words| words.strong_count() != 0);
        if list.try_reserve(1).is_ok() {
            list.push(words);
        }
    });
}

fn say_last_words() {
    critical_section::with(|section| {
        // It may have been in use when the machine failed.
        let Ok(list) = LAST_WORDS.borrow(section).try_borrow() else { return };
        for words in list.iter().filter_map(Weak::upgrade) {
            serial::write(b"# ");
            let _ = words.say(&mut Report);
            serial::write(b"\n");
            // The last one to let go would free it, on a heap that may be broken.
            core::mem::forget(words);
        }
    });
}

/// Searches the stack for what looks like a return address: one behind a call in the image's code.
/// It finds every call that is under way, and possibly some that are over.
fn each_return_address(stack: u64, mut each: impl FnMut(u64)) {
    let image = layout::image();
    let mut found = 0;
    for word in (stack & !7..).step_by(8).take(WORDS as usize) {
        if found == CALLS || paging::is_mapped(word) != Some(true) {
            return;
        }
        // SAFETY: mapped, aligned memory; any bits are a number.
        let value = unsafe { (word as *const u64).read_volatile() };
        if (image.text + 8..image.constants).contains(&value) && follows_call(value) {
            found += 1;
            each(value);
        }
    }
}

/// Whether the bytes before `address`, which lies in the image's code, end a call instruction.
fn follows_call(address: u64) -> bool {
    // SAFETY: the caller checked that the eight bytes before the address are code of the image.
    let before = |count: u64| unsafe { ((address - count) as *const u8).read_volatile() };
    // A direct call, or an indirect one: opcode 0xff with 2 in the middle of the next byte.
    before(5) == 0xe8 || (2..=7).any(|len| before(len) == 0xff && before(len - 1) >> 3 & 7 == 2)
}

/// Writes straight to the serial port, every line behind `# `.
struct Report;

impl Write for Report {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        for part in text.split_inclusive('\n') {
            serial::write(part.as_bytes());
            if part.ends_with('\n') {
                serial::write(b"# ");
            }
        }
        Ok(())
    }
}

const PAGE_FAULT: u64 = 14;

/// Error code of a page fault in words.
struct PageFault(u64);

impl fmt::Display for PageFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let access = match self.0 {
            code if code & 16 != 0 => "executing",
            code if code & 2 != 0 => "writing",
            _ => "reading",
        };
        let why = if self.0 & 1 != 0 { "not allowed" } else { "nothing mapped" };
        write!(f, "{access} ({why}) at")
    }
}

/// What an address that faulted is, where it says something.
struct Place(u64);

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.0 < 4096 {
            return f.write_str(": a null pointer");
        }
        let guard = stacks::guards().into_iter().find(|&(_, guard)| self.0 & !4095 == guard);
        match guard {
            Some((name, _)) => write!(f, ": the {name} stack overflowed"),
            None => Ok(()),
        }
    }
}

const NAMES: [&str; 32] = [
    "division error",
    "debug",
    "non-maskable interrupt",
    "breakpoint",
    "overflow",
    "bound range exceeded",
    "invalid instruction",
    "no floating point unit",
    "double fault",
    "coprocessor segment overrun",
    "invalid task state",
    "segment not present",
    "stack segment fault",
    "general protection fault",
    "page fault",
    "reserved",
    "floating point error",
    "misaligned access",
    "machine check",
    "SIMD floating point error",
    "virtualization exception",
    "control protection exception",
    "reserved",
    "reserved",
    "reserved",
    "reserved",
    "reserved",
    "reserved",
    "hypervisor injection exception",
    "hypervisor communication exception",
    "security exception",
    "reserved",
];

#[cfg(test)]
mod tests {
    use std::string::ToString;

    use super::*;

    #[test]
    fn page_faults_are_told_in_words() {
        assert_eq!(PageFault(0).to_string(), "reading (nothing mapped) at");
        assert_eq!(PageFault(3).to_string(), "writing (not allowed) at");
        assert_eq!(PageFault(0x11).to_string(), "executing (not allowed) at");
        assert_eq!(Place(8).to_string(), ": a null pointer");
        let (name, guard) = stacks::guards()[0];
        let told = Place(guard + 5).to_string();
        assert!(told.contains(name) && told.contains("overflowed"));
    }

    #[test]
    fn calls_are_recognised_by_the_bytes_before() {
        let code = |bytes: &[u8; 8]| follows_call(bytes.as_ptr() as u64 + 8);
        assert!(code(&[0, 0, 0, 0xe8, 1, 2, 3, 4]));
        assert!(code(&[0, 0, 0, 0, 0, 0, 0xff, 0xd0]));
        assert!(code(&[0, 0, 0xff, 0x15, 1, 2, 3, 4]));
        assert!(!code(&[0x90; 8]));
        assert!(!code(&[0, 0, 0xff, 0x25, 1, 2, 3, 4]));
    }
}
