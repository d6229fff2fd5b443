//! The serial port: a 16550 at [`BASE`], written in batches as its FIFO allows.
//!
//! Own code instead of a crate, because the fatal paths must be able to print at any moment,
//! whatever was borrowed when they struck: there is no state but one flag, every operation is a
//! few port accesses, and every wait ends.

use core::sync::atomic::{AtomicBool, AtomicU16, Ordering::Relaxed};

use x86_64::instructions::port::Port;

/// First I/O port of COM1.
pub const BASE: u16 = 0x3f8;

/// Bytes the transmitter takes once it is empty.
const FIFO_BYTES: usize = 16;
/// Looks at a transmitter that does not empty before its bytes are given up: a byte takes 87 µs
/// at 115,200 baud, a look about 1 µs.
const PATIENCE: u32 = 100_000;

const DATA: u16 = 0;
const INTERRUPT_ENABLE: u16 = 1;
const FIFO_CONTROL: u16 = 2;
const LINE_CONTROL: u16 = 3;
const MODEM_CONTROL: u16 = 4;
const LINE_STATUS: u16 = 5;

const DATA_READY: u8 = 1 << 0;
const HOLDING_EMPTY: u8 = 1 << 5;
const TRANSMITTER_EMPTY: u8 = 1 << 6;

/// Tells the other side that it may send from now on; the launcher waits for it.
const XON: u8 = 0x11;

static PRESENT: AtomicBool = AtomicBool::new(false);

/// A byte that was there before the port was set up, above [`EARLY_VALID`]: turning the FIFOs on
/// would lose it.
static EARLY: AtomicU16 = AtomicU16::new(0);
const EARLY_VALID: u16 = 0x100;

/// Sets the port up: 115,200 baud, 8 data bits, no parity, FIFOs on, received data interrupts.
pub fn init() {
    // A port that nobody decodes reads all-ones.
    let status = inb(LINE_STATUS);
    PRESENT.store(status != 0xff, Relaxed);
    if status != 0xff && status & DATA_READY != 0 {
        EARLY.store(EARLY_VALID | u16::from(inb(DATA)), Relaxed);
    }
    outb(INTERRUPT_ENABLE, 0);
    // Divisor latch: 115,200 / 1.
    outb(LINE_CONTROL, 0x80);
    outb(DATA, 1);
    outb(INTERRUPT_ENABLE, 0);
    outb(LINE_CONTROL, 0x03);
    outb(FIFO_CONTROL, 0x07);
    // Terminal ready, request to send, and the pin that lets interrupts out.
    outb(MODEM_CONTROL, 0x0b);
    outb(INTERRUPT_ENABLE, 0x01);
    write(&[XON]);
}

/// Writes all of `bytes`, or drops what a transmitter that got stuck does not take.
pub fn write(bytes: &[u8]) {
    for batch in bytes.chunks(FIFO_BYTES) {
        if !wait_for(HOLDING_EMPTY) {
            return;
        }
        for &byte in batch {
            outb(DATA, byte);
        }
    }
}

/// The next byte received, if there is one.
pub fn read() -> Option<u8> {
    let early = EARLY.load(Relaxed);
    if early != 0 {
        EARLY.store(0, Relaxed);
        return Some(early as u8);
    }
    (PRESENT.load(Relaxed) && inb(LINE_STATUS) & DATA_READY != 0).then(|| inb(DATA))
}

/// Waits until everything written has left.
pub fn flush() {
    wait_for(TRANSMITTER_EMPTY);
}

fn wait_for(condition: u8) -> bool {
    PRESENT.load(Relaxed) && (0..PATIENCE).any(|_| inb(LINE_STATUS) & condition != 0)
}

fn inb(register: u16) -> u8 {
    // SAFETY: the eight ports from `BASE` belong to this module; reading them touches no memory.
    unsafe { Port::new(BASE + register).read() }
}

fn outb(register: u16, value: u8) {
    // SAFETY: as in `inb`; no register of a 16550 touches memory.
    unsafe { Port::new(BASE + register).write(value) };
}
