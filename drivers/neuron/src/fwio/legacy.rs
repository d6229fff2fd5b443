//! The mailbox in host memory (specification 01 §6).

use core::time::Duration;

use axon_platform::{MmioWindow, OutOfBounds, Platform};

use super::codec::{self, HEADER_BYTES, SHORT_HEADER_BYTES};
use super::{Attempt, LEGACY_BYTES, Request, Turn, host_addresses, keep_waiting};
use crate::Error;
use crate::registers::misc_ram;
use crate::shared::Shared;

/// Bytes of payload that a request can carry.
pub(super) const PAYLOAD_LIMIT: usize = LEGACY_BYTES - HEADER_BYTES;

/// One attempt.
pub(super) async fn attempt<P: Platform>(
    shared: &Shared<P>,
    turn: &mut Turn<'_>,
    request: &Request<'_>,
    limit: Duration,
    answer: &mut [u8],
) -> Result<Attempt, Error> {
    let sequence = turn.next_sequence();
    name_buffers(shared)?;
    let started = shared.platform.now();
    turn.busy(started + limit);
    write_request(shared, request, sequence).map_err(|_| too_long(request))?;
    let base = shared.hal.tables().map.misc_ram;
    shared.platform.write_barrier();
    shared.registers.write32(base + misc_ram::TRIGGER, 1);

    let [_, response] = &shared.mailbox.buffers;
    while response.load32(0).map_err(|_| Error::NoRecords)? as u8 != sequence {
        if !keep_waiting(shared, turn, started, limit).await? {
            turn.idle();
            // A deadline passed and no register was read: is anybody there (01 §5)?
            shared.misc_ram(misc_ram::TRIGGER)?;
            return Ok(Attempt::Silent);
        }
    }
    turn.idle();
    read_answer(shared, request, answer)
}

/// Tells firmware where the buffers are; the register-file mailbox uses the same words.
fn name_buffers<P: Platform>(shared: &Shared<P>) -> Result<(), Error> {
    let [request, response] = host_addresses(&shared.hal, &shared.mailbox.buffers)?;
    let base = shared.hal.tables().map.misc_ram;
    for (offset, value) in [
        (misc_ram::REQUEST_LOW, request as u32),
        (misc_ram::REQUEST_HIGH, (request >> 32) as u32),
        (misc_ram::RESPONSE_LOW, response as u32),
        (misc_ram::RESPONSE_HIGH, (response >> 32) as u32),
    ] {
        shared.registers.write32(base + offset, value);
    }
    Ok(())
}

/// Fills the request and marks the response as not there.
fn write_request<P: Platform>(
    shared: &Shared<P>,
    request: &Request<'_>,
    sequence: u8,
) -> Result<(), OutOfBounds> {
    let (first, sum) = codec::request(sequence, request.command, request.payload);
    let [to, response] = &shared.mailbox.buffers;
    to.write(HEADER_BYTES as u64, request.payload)?;
    to.store32(0, first)?;
    to.store32(4, sum)?;
    response.store32(0, 0)
}

/// Takes the answer apart. One that is longer than its room is not asked for again.
fn read_answer<P: Platform>(
    shared: &Shared<P>,
    request: &Request<'_>,
    answer: &mut [u8],
) -> Result<Attempt, Error> {
    let [_, response] = &shared.mailbox.buffers;
    let first = response.load32(0).map_err(|_| Error::NoRecords)?;
    let (_, error, size) = codec::fields(first);
    if error != 0 {
        return Ok(Attempt::Refused(error));
    }
    let Some(len) = size.checked_sub(SHORT_HEADER_BYTES) else { return Ok(Attempt::Corrupt) };
    let damaged = Error::MailboxCorrupt { command: request.command };
    let room = answer.get_mut(..len).ok_or(damaged)?;
    response.read(SHORT_HEADER_BYTES as u64, room).map_err(|_| damaged)?;
    Ok(Attempt::Done(len))
}

fn too_long(request: &Request<'_>) -> Error {
    Error::TooBig {
        what: "bytes of a request to firmware",
        value: request.payload.len() as u64,
        limit: PAYLOAD_LIMIT as u64 + 1,
    }
}
