//! `window`, `place`, `export`, `peer`, `hold`: memory and blocks of registers through the CPU, and
//! for other devices on the bus.

use alloc::sync::Arc;
use alloc::vec;

use axon::hal::{Block, Resource, SpecialWindow};
use axon::{BarView, ExportState, Peer, Shown};
use axon_platform::{DeviceAddr, Platform};

use crate::answer::{Failure, Fields, Outcome};
use crate::number;
use crate::session::Session;
use crate::words::Words;

/// Most bytes that `window read` answers.
const READ_LIMIT: u64 = 4096;

/// Blocks and their resources, in the words of the console.
const BLOCKS: [(&str, Block); 3] =
    [("core", Block::Core), ("topsp", Block::TopSp), ("hbm", Block::Hbm)];
const RESOURCES: [(&str, Resource); 4] = [
    ("semaphores", Resource::Semaphore),
    ("all", Resource::All),
    ("sbuf", Resource::StateBuffer),
    ("memory", Resource::Memory),
];

/// A peer that is a person: what became of the window shows in `export state` and `peer state`.
struct Watched;

impl Peer for Watched {
    fn revoke(&self, _: u64) {}
}

fn named<T: Copy>(what: &str, word: &str, names: &[(&str, T)]) -> Result<T, Failure> {
    let found = names.iter().find(|(name, _)| *name == word).map(|(_, value)| *value);
    found.ok_or_else(|| Failure::invalid(format_args!("there is no {what} `{word}`")))
}

fn unknown(word: &str) -> Failure {
    Failure::invalid(format_args!("`{word}` is no form of this command; `help` lists them"))
}

/// `window map|block|table|state|read|write|unmap …`
pub(super) async fn window<P: Platform>(
    session: &mut Session<P>,
    words: &mut Words<'_>,
    rows: &mut dyn FnMut(&Fields),
) -> Outcome {
    match words.word("form")? {
        "map" => {
            let (cookie, size) = (words.number("address")?, words.number("size")?);
            words.finish()?;
            let view = session.client()?.window(DeviceAddr(cookie), size).await?;
            Ok(open(session, view))
        }
        "block" => {
            let block = named("block", words.word("block")?, &BLOCKS)?;
            let number = words.limited("number", u32::MAX.into())? as u32;
            let resource = named("resource", words.word("resource")?, &RESOURCES)?;
            words.finish()?;
            let view = session.client()?.region(block, number, resource).await?;
            Ok(open(session, view))
        }
        "table" => table(session, words, rows),
        "unmap" => unmap(session, words),
        form => access(session, words, form),
    }
}

/// `window state W`, `window read W OFF LEN`, `window write W OFF HEX`
fn access<P: Platform>(session: &mut Session<P>, words: &mut Words<'_>, form: &str) -> Outcome {
    if !matches!(form, "state" | "read" | "write") {
        return Err(unknown(form));
    }
    let window = words.number("window")?;
    if form == "state" {
        words.finish()?;
        return Ok(describe(session.windows.get("window", window)?));
    }
    let offset = words.number("offset")?;
    if form == "read" {
        let len = words.limited("length", READ_LIMIT)?;
        words.finish()?;
        let mut bytes = vec![0; len as usize];
        session.windows.get("window", window)?.read(offset, &mut bytes)?;
        return Ok(Fields::new().with("hex", number::hex(&bytes)));
    }
    let data = number::bytes("data", words.word("data")?)?;
    words.finish()?;
    session.windows.get("window", window)?.write(offset, &data)?;
    Ok(Fields::new().with("bytes", data.len()))
}

/// `window unmap W [SIZE]`: all of it, as it was mapped.
fn unmap<P: Platform>(session: &mut Session<P>, words: &mut Words<'_>) -> Outcome {
    let window = words.number("window")?;
    let size = words.peek().map(|_| words.number("size")).transpose()?;
    words.finish()?;
    let all = session.windows.get("window", window)?.size();
    if size.is_some_and(|size| size != all) {
        return Err(Failure::invalid(format_args!("a window is unmapped as a whole: {all} bytes")));
    }
    session.windows.take("window", window)?;
    Ok(Fields::new())
}

/// `window table [DEV]`: the blocks of specification 04 §11.3.
fn table<P: Platform>(
    session: &Session<P>,
    words: &mut Words<'_>,
    rows: &mut dyn FnMut(&Fields),
) -> Outcome {
    let device = session.device(words, 0)?;
    words.finish()?;
    let mut count = 0u64;
    for (block, kind) in BLOCKS {
        for (resource, what) in RESOURCES {
            for number in 0..16 {
                let Ok(row) = device.hal().special_window(kind, number, what) else { continue };
                let SpecialWindow { token, len_bytes, writable, .. } = row;
                rows(
                    &Fields::new()
                        .with("block", block)
                        .with("number", number)
                        .with("resource", resource)
                        .address("token", token)
                        .with("size", len_bytes)
                        .with("mode", mode(writable)),
                );
                count += 1;
            }
        }
    }
    Ok(Fields::new().with("count", count))
}

fn mode(writable: bool) -> &'static str {
    if writable { "rw" } else { "ro" }
}

fn open<P: Platform>(session: &mut Session<P>, view: BarView<P>) -> Fields {
    let (size, writable, peer) = (view.size(), view.is_writable(), view.peer_address().0);
    let number = session.windows.insert(view);
    let fields = Fields::new().with("window", number).with("size", size);
    fields.with("mode", mode(writable)).address("peer", peer)
}

fn describe<P: Platform>(view: &BarView<P>) -> Fields {
    Fields::new()
        .address("address", view.address())
        .with("size", view.size())
        .with("mode", mode(view.is_writable()))
        .address("peer", view.peer_address().0)
        .with("open", view.is_open())
}

/// `place ADDRESS`: whose memory a window of the current client shows there.
pub(super) async fn place<P: Platform>(session: &Session<P>, words: &mut Words<'_>) -> Outcome {
    let address = words.number("address")?;
    words.finish()?;
    let client = session.client()?.id();
    let (device, shown) = session.driver.placement(client, address).await?;
    let fields = Fields::new().with("index", device.number());
    Ok(match shown {
        Shown::Host => fields.with("place", "host"),
        Shown::Channel(channel) => fields.with("place", "hbm").with("hbm", u32::from(channel)),
        Shown::Special => fields.with("place", "registers"),
    })
}

/// `export ADDRESS SIZE`, `export attach|map|unmap|detach|state|close E`
pub(super) async fn export<P: Platform>(
    session: &mut Session<P>,
    words: &mut Words<'_>,
) -> Outcome {
    let form = words.word("address")?;
    let operand = words.number("operand")?;
    words.finish()?;
    if form.starts_with(|first: char| first.is_ascii_digit()) {
        let address = number::number("address", form)?;
        let export = session.client()?.export(address, operand).await?;
        return Ok(Fields::new().with("export", session.exports.insert(export)));
    }
    let export = session.exports.get("export", operand)?;
    match form {
        "attach" => export.attach(Arc::new(Watched)).map_err(axon::Error::from)?,
        "unmap" => export.unmap().map_err(axon::Error::from)?,
        "detach" => export.detach(),
        "state" => {}
        "map" => {
            let pages = export.map().map_err(axon::Error::from)?;
            let fields = Fields::new().with("pages", pages.len());
            return Ok(match (pages.first(), pages.last()) {
                (Some(first), Some(last)) => {
                    fields.address("first", first.address.0).address("last", last.address.0)
                }
                _ => fields,
            });
        }
        "close" => {
            session.exports.take("export", operand)?;
            return Ok(Fields::new());
        }
        form => return Err(unknown(form)),
    }
    let state = match export.state() {
        ExportState::Idle => "idle",
        ExportState::Attached => "attached",
        ExportState::Mapped(_) => "mapped",
        ExportState::Revoking => "revoking",
        ExportState::Dead => "dead",
    };
    Ok(Fields::new().with("state", state))
}

/// `peer ADDRESS SIZE`, `peer state|close N`
pub(super) async fn peer<P: Platform>(session: &mut Session<P>, words: &mut Words<'_>) -> Outcome {
    let form = words.word("address")?;
    let operand = words.number("operand")?;
    words.finish()?;
    let registration = match form {
        "state" => session.peers.get("peer", operand)?,
        "close" => {
            session.peers.take("peer", operand)?;
            return Ok(Fields::new());
        }
        form if !form.starts_with(|first: char| first.is_ascii_digit()) => {
            return Err(unknown(form));
        }
        form => {
            let (client, address) = (session.client()?, number::number("address", form)?);
            let made = client.register_peer(address, operand, Arc::new(Watched)).await?;
            let number = session.peers.insert(made);
            return Ok(Fields::new().with("peer", number));
        }
    };
    Ok(Fields::new()
        .with("open", registration.is_open())
        .address("start", registration.start().0)
        .with("shift", registration.page_shift())
        .with("pages", registration.page_count()))
}

/// `hold ADDRESS LEN`: host memory against reuse, by tagged address; `hold release N`.
pub(super) async fn hold<P: Platform>(session: &mut Session<P>, words: &mut Words<'_>) -> Outcome {
    if words.peek() == Some("release") {
        words.word("form")?;
        let number = words.number("number")?;
        words.finish()?;
        session.holds.take("hold", number)?;
        return Ok(Fields::new());
    }
    let (address, len) = (words.number("address")?, words.number("length")?);
    words.finish()?;
    let held = session.client()?.hold_host_ranges(&[(DeviceAddr(address), len)]).await?;
    let bytes = held.bytes();
    Ok(Fields::new().with("hold", session.holds.insert(held)).with("bytes", bytes))
}
