//! Questions to firmware: both mailboxes (specification 01 §6, §7).
//!
//! Exchanges take turns in order of arrival, one at a time; a reset goes before all that wait, and
//! holds the mailbox until firmware has accepted it and is ready again. An exchange is one future:
//! dropped in the middle it leaves the mailbox dirty, which the next holder waits out.
//!
//! | module | what it does |
//! |---|---|
//! | `turn` | who holds the mailbox |
//! | `codec` | headers, check sums, payloads |
//! | `legacy` | request and response in host memory |
//! | `register_file` | request and response in MiscRAM |
//! | `commands` | what a [`NeuronDevice`](crate::NeuronDevice) can ask |

mod codec;
mod commands;
mod legacy;
mod register_file;
mod turn;

use core::time::Duration;

use axon_platform::{DmaBuf, Instant, Platform};
use axon_ports::telemetry::EventKind;
use axon_ports::telemetry::counters::MailboxCommand;

use crate::shared::Shared;
use crate::{Error, Hal};

pub use commands::AvailableProfiles;
pub(crate) use commands::after_device_reset;

pub(crate) use turn::{Mailbox, Turn};

/// How often an answer is looked for.
const LOOK: Duration = Duration::from_millis(1);
/// An attempt that has run this long is given up where a reset waits.
const GRACE: Duration = Duration::from_secs(1);
/// Answer code: firmware does not know the command.
const UNKNOWN_COMMAND: u8 = 2;

/// Which mailbox.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Protocol {
    Legacy,
    RegisterFile,
}

/// One request.
#[derive(Clone, Copy)]
struct Request<'a> {
    command: MailboxCommand,
    payload: &'a [u8],
    /// The payload is to stand in the data window of MiscRAM too.
    in_window: bool,
}

/// How one attempt ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Attempt {
    /// Answered with so many bytes.
    Done(usize),
    /// Answered with an error code.
    Refused(u8),
    /// The answer is damaged, or another request's.
    Corrupt,
    /// No answer in time.
    Silent,
}

/// Attempts of a command, and the time each is given (01 §6, §7).
const fn patience(protocol: Protocol, command: MailboxCommand) -> (u32, Duration) {
    match (protocol, command) {
        (Protocol::Legacy, _) => (30, Duration::from_secs(1)),
        (_, MailboxCommand::Read | MailboxCommand::PostMetric) => (15, Duration::from_secs(1)),
        (_, MailboxCommand::SetPowerProfile) => (3, Duration::from_secs(90)),
        (_, MailboxCommand::GetData) => (3, Duration::from_secs(10)),
        (_, MailboxCommand::SetFeature) => (3, Duration::from_secs(60)),
    }
}

/// Asks until firmware answers or patience ends. Answers the bytes put into `answer`.
///
/// # Errors
/// [`Error::MailboxTimeout`] where no attempt was answered, [`Error::MailboxRefused`],
/// [`Error::MailboxCorrupt`], [`Error::DeviceGone`], [`Error::Removed`].
async fn exchange<P: Platform>(
    shared: &Shared<P>,
    protocol: Protocol,
    request: Request<'_>,
    answer: &mut [u8],
) -> Result<usize, Error> {
    let command = request.command;
    let cells = &shared.records.counters.mailbox;
    let (attempts, limit) = patience(protocol, command);
    let mut last = Attempt::Silent;
    let mut turn = begin(shared, &request).await?;
    cells.requests(command).increment();
    for _ in 0..attempts {
        if turn.reset_waits() {
            drop(turn);
            turn = begin(shared, &request).await?;
        }
        let outcome = match protocol {
            Protocol::Legacy => legacy::attempt(shared, &mut turn, &request, limit, answer).await?,
            Protocol::RegisterFile => {
                register_file::attempt(shared, &mut turn, &request, limit, answer).await?
            }
        };
        match outcome {
            Attempt::Done(len) => return Ok(len),
            Attempt::Refused(code) => {
                refused(shared, command, code);
                if code == UNKNOWN_COMMAND {
                    return Err(Error::MailboxRefused { command, code });
                }
                last = outcome;
            }
            Attempt::Corrupt => last = outcome,
            Attempt::Silent => {}
        }
    }
    if protocol == Protocol::RegisterFile {
        register_file::give_up(shared);
    }
    Err(match last {
        Attempt::Refused(code) => Error::MailboxRefused { command, code },
        Attempt::Corrupt => Error::MailboxCorrupt { command },
        _ => {
            cells.timeouts(command).increment();
            Error::MailboxTimeout { command, attempts }
        }
    })
}

/// Takes the mailbox and puts into the data window what belongs there.
async fn begin<'a, P: Platform>(
    shared: &'a Shared<P>,
    request: &Request<'_>,
) -> Result<Turn<'a>, Error> {
    let turn = shared.mailbox.enter(shared).await?;
    if request.in_window {
        register_file::fill_window(shared, request.payload);
    }
    Ok(turn)
}

fn refused<P: Platform>(shared: &Shared<P>, command: MailboxCommand, code: u8) {
    shared.records.counters.mailbox.errors.increment();
    let data = (command as u64) << 8 | u64::from(code);
    shared.note(None, EventKind::MailboxError, data);
}

/// Lets time pass between two looks; `false` where the attempt is over.
///
/// # Errors
/// [`Error::Removed`], [`Error::DeviceGone`].
async fn keep_waiting<P: Platform>(
    shared: &Shared<P>,
    turn: &Turn<'_>,
    started: Instant,
    limit: Duration,
) -> Result<bool, Error> {
    shared.check_alive()?;
    let waited = shared.platform.now().since(started);
    if waited >= limit || turn.reset_waits() && waited >= GRACE {
        return Ok(false);
    }
    shared.platform.sleep(LOOK).await;
    Ok(true)
}

/// Device-view addresses of the two host buffers.
fn host_addresses(hal: &Hal, buffers: &[DmaBuf; 2]) -> Result<[u64; 2], Error> {
    let [request, response] = buffers;
    let address = |buffer: &DmaBuf| hal.host_address(buffer.bus(), buffer.len_bytes());
    Ok([address(request)?.0, address(response)?.0])
}

/// A response in host memory cannot be longer, header included.
const LEGACY_BYTES: usize = 0xffff;
