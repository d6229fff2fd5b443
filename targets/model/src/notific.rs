//! NOTIFIC blocks: register storage, device time, and what a write of a ring size does
//! (specification 06 §4, §14).

use crate::function::Function;

const TIMESTAMP_LOW: u64 = 0x00;
const TIMESTAMP_HIGH: u64 = 0x04;
const QUEUES: u64 = 0x100;
const QUEUE_BYTES: u64 = 0x28;
const QUEUE_COUNT: u64 = 16;
const SIZE: u64 = 0x08;
const HEAD: u64 = 0x0c;
const TAIL: u64 = 0x10;

/// The register of a queue at `inside`: where the queue begins, offset in it.
fn queue_register(inside: u64) -> Option<(u64, u64)> {
    let offset = inside.checked_sub(QUEUES).filter(|offset| *offset < QUEUE_COUNT * QUEUE_BYTES)?;
    Some((inside - offset % QUEUE_BYTES, offset % QUEUE_BYTES))
}

impl Function {
    pub(crate) fn notific_read(&self, start: u64, inside: u64) -> u32 {
        match inside {
            TIMESTAMP_LOW => self.clock.now_ns() as u32,
            TIMESTAMP_HIGH => (self.clock.now_ns() >> 32) as u32,
            _ => self.stored(start, inside),
        }
    }

    pub(crate) fn notific_write(&mut self, start: u64, inside: u64, value: u32) {
        match queue_register(inside) {
            Some((_, TAIL..)) => {}
            Some((queue, SIZE)) => {
                self.store(start, inside, value);
                self.store(start, queue + HEAD, 0);
                self.store(start, queue + TAIL, 0);
            }
            _ => self.store(start, inside, value),
        }
    }
}
