//! `queue …`, `engine …`, `h2t …`, `zcopy`: rings of a client, host-transfer queues, zero-copy.

use alloc::vec::Vec;

use axon::{Descriptor, Direction, HostRange, QueueInit, QueueSide, RingOwner, ZeroCopyRequest};
use axon_platform::{DeviceAddr, Platform};

use crate::answer::{Failure, Fields, Outcome, Value};
use crate::number;
use crate::session::Session;
use crate::words::Words;

/// Largest numbers that are handed on: what lies behind is refused by the API itself.
const WIDE: u64 = u32::MAX as u64;
/// Descriptors that `queue read` shows at most.
const SHOWN: u64 = 256;

fn place(words: &mut Words<'_>) -> Result<(u32, u32), Failure> {
    let engine = words.limited("engine", WIDE)? as u32;
    Ok((engine, words.limited("queue", WIDE)? as u32))
}

/// The side that a word names: 0 and 1 as on Linux.
fn side(words: &mut Words<'_>) -> Result<u32, Failure> {
    match words.peek() {
        Some("tx" | "rx") => Ok(u32::from(words.word("side")? == "rx")),
        _ => Ok(words.limited("side", WIDE)? as u32),
    }
}

/// A ring of a binding: its handle, or `hw` for one that hardware manages.
fn ring(words: &mut Words<'_>, name: &'static str) -> Result<(u64, bool), Failure> {
    match words.option(name)? {
        None => Err(Failure::invalid(format_args!("{name}= is missing"))),
        Some("hw") => Ok((0, true)),
        Some(text) => Ok((number::number(name, text)?, false)),
    }
}

/// `queue init|release|start|ack|state|desc|write|read|list`
pub(super) async fn queue<P: Platform>(
    session: &mut Session<P>,
    words: &mut Words<'_>,
    rows: &mut dyn FnMut(&Fields),
) -> Outcome {
    match words.word("what to do with the queue")? {
        "init" => init(session, words).await,
        "release" => {
            let (engine, queue) = place(words)?;
            words.finish()?;
            session.client()?.queues().release(engine, queue).await?;
            Ok(Fields::new())
        }
        "start" => {
            let (engine, queue) = place(words)?;
            let tx = words.limited("transmit count", WIDE)? as u32;
            let rx = words.limited("receive count", WIDE)? as u32;
            words.finish()?;
            session.client()?.queues().start(engine, queue, tx, rx)?;
            Ok(Fields::new())
        }
        "ack" => {
            let (engine, queue) = place(words)?;
            let count = words.limited("count", WIDE)? as u32;
            words.finish()?;
            session.client()?.queues().acknowledge(engine, queue, count)?;
            Ok(Fields::new())
        }
        "state" => state(session, words, rows),
        "copy" => copy(session, words).await,
        "write" => write(session, words).await,
        "read" => read(session, words, rows).await,
        other => Err(Failure::invalid(format_args!("`queue {other}` is no command"))),
    }
}

/// `queue init E Q tx=H|hw rx=H|hw [count= txcount= rxcount= rxc=]`
async fn init<P: Platform>(session: &mut Session<P>, words: &mut Words<'_>) -> Outcome {
    let (engine, queue) = place(words)?;
    let (tx, tx_by_hardware) = ring(words, "tx")?;
    let (rx, rx_by_hardware) = ring(words, "rx")?;
    let both = words.option_limited("count", WIDE)?.unwrap_or(64);
    let tx_count = words.option_limited("txcount", WIDE)?.unwrap_or(both) as u32;
    let rx_count = words.option_limited("rxcount", WIDE)?.unwrap_or(both) as u32;
    let completion = words.option_number("rxc")?.unwrap_or(0);
    words.finish()?;
    let init = QueueInit {
        engine,
        queue,
        tx_count,
        rx_count,
        tx,
        rx,
        completion,
        tx_by_hardware,
        rx_by_hardware,
    };
    session.client()?.queues().init(&init).await?;
    Ok(Fields::new().with("engine", engine).with("queue", queue))
}

fn owner(owner: RingOwner) -> (&'static str, u64) {
    match owner {
        RingOwner::Free => ("free", 0),
        RingOwner::Default => ("default", 0),
        RingOwner::Copy(_, client) => ("copy", client.number().into()),
        RingOwner::Service(_, client, false) => ("service", client.number().into()),
        RingOwner::Service(_, client, true) => ("service-bound", client.number().into()),
        RingOwner::App(client) => ("app", client.number().into()),
        RingOwner::Scrub(client) => ("scrub", client.number().into()),
        RingOwner::Stale(client) => ("stale", client.number().into()),
        RingOwner::Leaving(client) => ("leaving", client.number().into()),
    }
}

fn row(name: &'static str, side: &QueueSide) -> Fields {
    Fields::new()
        .with("side", name)
        .with("status", side.sw_status)
        .with("hw", Value::Word(side.hw_status))
        .address("base", side.base.0)
        .with("length", side.length)
        .with("head", side.head)
        .with("tail", side.tail)
        .with("current", side.current)
        .address("cbase", side.completion_base.0)
        .with("chead", side.completion_head)
}

/// `queue state [DEV] E Q`: both sides, then who has it.
fn state<P: Platform>(
    session: &mut Session<P>,
    words: &mut Words<'_>,
    rows: &mut dyn FnMut(&Fields),
) -> Outcome {
    let device = session.device(words, 2)?;
    let (engine, queue) = place(words)?;
    words.finish()?;
    let status = device.queue_status(engine, queue)?;
    let (used, client) = owner(device.queue_owner(engine, queue)?);
    rows(&row("tx", &status.tx));
    rows(&row("rx", &status.rx));
    Ok(Fields::new().with("used", used).with("client", client))
}

/// `queue copy RING tx|rx SLOT ADDRESS LEN [id=]`: one descriptor of a plain copy.
async fn copy<P: Platform>(session: &mut Session<P>, words: &mut Words<'_>) -> Outcome {
    let handle = words.number("ring")?;
    let side = side(words)?;
    let slot = words.number("slot")?;
    let address = DeviceAddr(words.number("address")?);
    let len = words.limited("length", 65_536)? as u32;
    let id = words.option_limited("id", 3)?.unwrap_or(1) as u32;
    words.finish()?;
    let (first, word1) = if side == 0 { (0x0c00_0000, 0x0108_0003) } else { (0, 0) };
    let control = first | id << 24 | (len & 0xffff);
    let row = Descriptor([control, word1, address.low(), address.high()]);
    let offset = slot.checked_mul(16).ok_or_else(|| Failure::invalid("slot is too large"))?;
    session.client()?.queues().copy_descriptors(handle, offset, side, &[row]).await?;
    Ok(Fields::new().with("descriptors", 1u64))
}

/// `queue write RING tx|rx OFFSET HEX`: raw descriptors, checked as all are.
async fn write<P: Platform>(session: &mut Session<P>, words: &mut Words<'_>) -> Outcome {
    let handle = words.number("ring")?;
    let side = side(words)?;
    let offset = words.number("offset")?;
    let data = number::bytes("descriptors", words.word("descriptors")?)?;
    words.finish()?;
    if data.len() % 16 != 0 {
        return Err(Failure::invalid("a descriptor has 16 bytes"));
    }
    let word = |at: &[u8]| at.try_into().map(u32::from_le_bytes).unwrap_or(0);
    let rows: Vec<Descriptor> = data
        .chunks_exact(16)
        .map(|row| {
            let mut words = [0; 4];
            words.iter_mut().zip(row.chunks_exact(4)).for_each(|(to, from)| *to = word(from));
            Descriptor(words)
        })
        .collect();
    session.client()?.queues().copy_descriptors(handle, offset, side, &rows).await?;
    Ok(Fields::new().with("descriptors", rows.len()))
}

/// `queue read E Q tx|rx START COUNT`
async fn read<P: Platform>(
    session: &mut Session<P>,
    words: &mut Words<'_>,
    rows: &mut dyn FnMut(&Fields),
) -> Outcome {
    let (engine, queue) = place(words)?;
    let side = side(words)?;
    let start = words.limited("start", WIDE)? as u32;
    let count = words.limited("count", WIDE)? as u32;
    words.finish()?;
    let found = session.client()?.queues().copy_out(engine, queue, side, start, count).await?;
    for (slot, Descriptor([control, word1, low, high])) in
        (u64::from(start)..).zip(&found).take(SHOWN as usize)
    {
        let address = u64::from(*high) << 32 | u64::from(*low);
        let words = Fields::new()
            .with("slot", slot)
            .with("word0", Value::Word(*control))
            .with("word1", Value::Word(*word1));
        rows(&words.address("address", address));
    }
    Ok(Fields::new().with("descriptors", found.len()))
}

/// `engine init|set|state`
pub(super) fn engine<P: Platform>(session: &mut Session<P>, words: &mut Words<'_>) -> Outcome {
    match words.word("what to do with the engine")? {
        "init" => {
            let engine = words.limited("engine", WIDE)? as u32;
            words.finish()?;
            session.client()?.queues().engine_init(engine)?;
            Ok(Fields::new())
        }
        "set" => {
            let engine = words.limited("engine", WIDE)? as u32;
            let state = match words.peek() {
                Some("disable" | "normal" | "abort") => match words.word("state")? {
                    "disable" => 0,
                    "normal" => 2,
                    _ => 3,
                },
                _ => words.limited("state", WIDE)? as u32,
            };
            words.finish()?;
            session.client()?.queues().engine_set_state(engine, state)?;
            Ok(Fields::new())
        }
        "state" => {
            let device = session.device(words, 1)?;
            let engine = words.limited("engine", WIDE)? as u32;
            words.finish()?;
            let status = device.engine_status(engine)?;
            Ok(Fields::new()
                .with("tx", status.tx as u32)
                .with("rx", status.rx as u32)
                .with("revision", status.revision)
                .with("queues", status.queues)
                .with("max", status.max_queues))
        }
        other => Err(Failure::invalid(format_args!("`engine {other}` is no command"))),
    }
}

/// `h2t alloc NC COPY [SERVICE]`, `h2t free NC MAP`
pub(super) async fn h2t<P: Platform>(session: &mut Session<P>, words: &mut Words<'_>) -> Outcome {
    match words.word("what to do with host-transfer queues")? {
        "alloc" => {
            let core = words.limited("core", WIDE)? as u32;
            let copy = words.limited("copy queues", WIDE)? as u32;
            let service = match words.peek() {
                Some(_) => words.limited("service queues", WIDE)? as u32,
                None => 0,
            };
            words.finish()?;
            let claims = session.client()?.queues().h2t_alloc(core, copy, service).await?;
            Ok(Fields::new()
                .address("copy", claims.copy.into())
                .address("service", claims.service.into())
                .with("default", claims.default.number())
                .with("engine", claims.engine.number()))
        }
        "free" => {
            let core = words.limited("core", WIDE)? as u32;
            let queues = words.limited("map", WIDE)? as u32;
            words.finish()?;
            session.client()?.queues().h2t_free(core, queues).await?;
            Ok(Fields::new())
        }
        other => Err(Failure::invalid(format_args!("`h2t {other}` is no command"))),
    }
}

/// `zcopy in|out HBM HOST LEN [doff= hoff= queue=]`: without a bounce, on a queue of the client.
pub(super) async fn zcopy<P: Platform>(session: &mut Session<P>, words: &mut Words<'_>) -> Outcome {
    let direction = match words.word("direction")? {
        "in" => Direction::ToDevice,
        "out" => Direction::FromDevice,
        other => return Err(Failure::invalid(format_args!("direction {other}: in or out"))),
    };
    let device = words.number("device chunk")?;
    let handle = words.number("host chunk")?;
    let len = words.number("length")?;
    let to = words.option_number("doff")?.unwrap_or(0);
    let offset = words.option_number("hoff")?.unwrap_or(0);
    let queue = words.option_limited("queue", i32::MAX as u64)?.map_or(-1, |queue| queue as i32);
    words.finish()?;
    let host = HostRange { handle, offset, len };
    let request = ZeroCopyRequest::single(direction, queue, device, to, host);
    session.client()?.zero_copy(&request).await?;
    Ok(Fields::new().with("bytes", len))
}
