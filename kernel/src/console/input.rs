//! Bytes typed on the console.
//!
//! The receiver interrupts; the byte stays in its FIFO until a reader takes it, so that a sender with
//! flow control (QEMU's is one) is held back and nothing is lost. Where the interrupt could not be
//! routed, a waiting reader looks every few milliseconds.

use core::cell::RefCell;
use core::future::poll_fn;
use core::sync::atomic::{AtomicBool, Ordering::Relaxed};
use core::task::{Poll, Waker};
use core::time::Duration;

use critical_section::Mutex;
use embassy_time::Timer;

use super::serial;
use crate::interrupts::vectors;

/// Byte that ends the input (Ctrl-D).
pub const END: u8 = 0x04;

/// Between two looks at a receiver that does not interrupt.
const LOOK: Duration = Duration::from_millis(5);

static INTERRUPTS: AtomicBool = AtomicBool::new(false);
static READER: Mutex<RefCell<Option<Waker>>> = Mutex::new(RefCell::new(None));

/// The receiver's interrupt reaches the processor.
pub fn has_interrupt() {
    INTERRUPTS.store(true, Relaxed);
}

/// Wakes the reader after an interrupt. Called by the executor loop.
#[inline]
pub fn wake() {
    if vectors::SERIAL_ARRIVED.load(Relaxed) {
        wake_now();
    }
}

#[cold]
fn wake_now() {
    vectors::SERIAL_ARRIVED.store(false, Relaxed);
    critical_section::with(|section| {
        if let Some(reader) = READER.borrow_ref_mut(section).take() {
            reader.wake();
        }
    });
}

/// Next byte; `None` for [`END`].
pub async fn read() -> Option<u8> {
    let byte = if INTERRUPTS.load(Relaxed) { interrupted().await } else { polled().await };
    (byte != END).then_some(byte)
}

async fn interrupted() -> u8 {
    poll_fn(|context| {
        // Registered before the look: a byte that comes in between interrupts and wakes.
        critical_section::with(|section| {
            *READER.borrow_ref_mut(section) = Some(context.waker().clone());
        });
        match serial::read() {
            Some(byte) => Poll::Ready(byte),
            None => Poll::Pending,
        }
    })
    .await
}

async fn polled() -> u8 {
    loop {
        match serial::read() {
            Some(byte) => return byte,
            None => Timer::after_nanos(LOOK.as_nanos() as u64).await,
        }
    }
}
