//! The mailbox in MiscRAM, from firmware API version 7 on (specification 01 §7).

use core::time::Duration;

use axon_platform::{MmioWindow, Platform};

use super::codec::{self, HEADER_BYTES};
use super::{Attempt, Request, Turn, keep_waiting};
use crate::Error;
use crate::registers::misc_ram;
use crate::shared::Shared;

/// Bytes of the data window.
pub(super) const WINDOW_BYTES: usize = 128;
/// Firmware API version that brought this mailbox.
const OLDEST_API: u32 = 7;

/// Whether firmware has this mailbox. Nothing is written.
///
/// # Errors
/// [`Error::FirmwareUnknown`] where it does not tell its version, [`Error::Unsupported`] for an
/// older one, [`Error::DeviceGone`], [`Error::Removed`].
pub(super) fn check<P: Platform>(shared: &Shared<P>) -> Result<(), Error> {
    shared.check_alive()?;
    match shared.misc_ram(misc_ram::API_VERSION)? {
        misc_ram::NOT_READY => Err(Error::FirmwareUnknown),
        version if version < OLDEST_API => {
            Err(Error::Unsupported { what: "a register mailbox in this firmware" })
        }
        _ => Ok(()),
    }
}

/// Writes a payload into the data window.
pub(super) fn fill_window<P: Platform>(shared: &Shared<P>, payload: &[u8]) {
    let data = shared.hal.tables().map.misc_ram + misc_ram::DATA;
    for (offset, word) in (0..).step_by(4).zip(codec::words(payload)) {
        shared.registers.write32(data + offset, word);
    }
}

/// Takes a request back, so that the next one is not taken for it.
pub(super) fn give_up<P: Platform>(shared: &Shared<P>) {
    shared.registers.write32(shared.hal.tables().map.misc_ram + misc_ram::ACK, 0);
}

/// One attempt.
pub(super) async fn attempt<P: Platform>(
    shared: &Shared<P>,
    turn: &mut Turn<'_>,
    request: &Request<'_>,
    limit: Duration,
    answer: &mut [u8],
) -> Result<Attempt, Error> {
    let sequence = turn.next_sequence();
    let (first, sum) = codec::request(sequence, request.command, request.payload);
    let base = shared.hal.tables().map.misc_ram;
    let started = shared.platform.now();
    turn.busy(started + limit);
    fill_window(shared, request.payload);
    for (offset, value) in [
        (misc_ram::REQUEST_HIGH, first),
        (misc_ram::REQUEST_LOW, sum),
        (misc_ram::RESPONSE_HIGH, 0),
        (misc_ram::RESPONSE_LOW, 0),
        (misc_ram::ACK, 1),
        (misc_ram::TRIGGER, 1),
    ] {
        shared.registers.write32(base + offset, value);
    }

    while shared.misc_ram(misc_ram::TRIGGER)? != 0 {
        if !keep_waiting(shared, turn, started, limit).await? {
            turn.idle();
            return Ok(Attempt::Silent);
        }
    }
    turn.idle();
    read_answer(shared, sequence, sum, answer)
}

/// Takes the answer apart. Nothing in it is believed before its check sum was looked at.
fn read_answer<P: Platform>(
    shared: &Shared<P>,
    sequence: u8,
    request_sum: u32,
    answer: &mut [u8],
) -> Result<Attempt, Error> {
    let first = shared.misc_ram(misc_ram::REQUEST_HIGH)?;
    let (answered, error, size) = codec::fields(first);
    let len = size.checked_sub(HEADER_BYTES).filter(|len| *len <= WINDOW_BYTES);
    let (true, Some(len)) = (answered == sequence, len) else { return Ok(Attempt::Corrupt) };
    let mut data = [0; WINDOW_BYTES];
    for (offset, word) in (0..).step_by(4).zip(data.chunks_mut(4)).take(len.div_ceil(4)) {
        let read = shared.misc_ram(misc_ram::DATA + offset)?;
        word.copy_from_slice(&read.to_le_bytes());
    }
    let payload = data.get(..len).unwrap_or_default();
    let sum = shared.misc_ram(misc_ram::REQUEST_LOW)?;
    if sum == 0 || sum == request_sum {
        // Firmware that does not supply a check sum leaves the word as it was.
        shared.records.counters.mailbox.unverified.increment();
    } else if sum != codec::checksum(first, payload) {
        return Ok(Attempt::Corrupt);
    }
    if error != 0 {
        return Ok(Attempt::Refused(error));
    }
    let taken = len.min(answer.len());
    answer.iter_mut().zip(payload).for_each(|(to, byte)| *to = *byte);
    Ok(Attempt::Done(taken))
}
