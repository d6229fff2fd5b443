//! `fill`, `pattern`, `write`, `read`, `crc`, `copy`, `batch`, `memset`, `wait`.

use alloc::vec;
use alloc::vec::Vec;

use axon::pattern::SplitMix64;
use axon::ports::HbmIndex;
use axon::{Segment, View};
use axon_platform::Platform;
use crc::{CRC_32_ISCSI, Crc};

use crate::answer::{Failure, Fields, Outcome, Value};
use crate::number;
use crate::session::{Session, Waiting};
use crate::words::Words;

/// CRC-32C.
const CRC: Crc<u32> = Crc::<u32>::new(&CRC_32_ISCSI);
/// Most bytes that `read` answers.
const READ_LIMIT: u64 = 64 << 10;
/// Bytes moved at once by commands that go over whole chunks.
const PIECE: u64 = 64 << 10;

/// A range of a chunk, checked like a copy of it: size 0, then bounds.
fn range<P: Platform>(
    view: &View<'_, P>,
    off: Option<u64>,
    len: Option<u64>,
) -> Result<(u64, u64), Failure> {
    let off = off.unwrap_or(0);
    let size = view.facts().size;
    let len = match len {
        Some(len) => len,
        None => size.checked_sub(off).ok_or_else(|| beyond(off, 1, size))?,
    };
    let end = off.checked_add(len).ok_or_else(|| beyond(off, len, size))?;
    view.span(off..end)?;
    Ok((off, len))
}

fn beyond(offset: u64, len: u64, limit: u64) -> Failure {
    axon::Error::OutOfRange { offset, len, limit }.into()
}

/// The pieces of a range: offset and length of each.
fn pieces(off: u64, len: u64) -> impl Iterator<Item = (u64, usize)> {
    (0..len.div_ceil(PIECE)).map(move |at| {
        let start = at * PIECE;
        (off + start, (len - start).min(PIECE) as usize)
    })
}

fn moved(bytes: u64) -> Outcome {
    Ok(Fields::new().with("bytes", bytes))
}

/// `fill H BYTE [off= len=]`: from the CPU side.
pub(super) async fn fill<P: Platform>(session: &mut Session<P>, words: &mut Words<'_>) -> Outcome {
    let handle = words.number("handle")?;
    let byte = words.limited("byte", 255)?;
    let (off, len) = (words.option_number("off")?, words.option_number("len")?);
    words.finish()?;
    let view = session.client()?.by_handle(handle)?;
    view.check_writable()?;
    let (off, len) = range(&view, off, len)?;
    let data = vec![byte as u8; len.min(PIECE) as usize];
    for (at, size) in pieces(off, len) {
        view.write(at, data.get(..size).unwrap_or(&data)).await?;
    }
    moved(len)
}

/// `pattern H SEED`: the whole chunk, SplitMix64 of the seed, little-endian words.
pub(super) async fn pattern<P: Platform>(
    session: &mut Session<P>,
    words: &mut Words<'_>,
) -> Outcome {
    let handle = words.number("handle")?;
    let seed = words.number("seed")?;
    words.finish()?;
    let view = session.client()?.by_handle(handle)?;
    view.check_writable()?;
    let (off, len) = range(&view, None, None)?;
    let mut sequence = SplitMix64::new(seed);
    let mut data = vec![0; len.min(PIECE) as usize];
    for (at, size) in pieces(off, len) {
        data.truncate(size);
        sequence.fill(&mut data);
        view.write(at, &data).await?;
    }
    moved(len)
}

/// `write H OFF HEX [via=auto|window|dma]`
pub(super) async fn write<P: Platform>(session: &mut Session<P>, words: &mut Words<'_>) -> Outcome {
    let handle = words.number("handle")?;
    let off = words.number("offset")?;
    let data = number::bytes("data", words.word("data")?)?;
    let via = words.option("via")?;
    words.finish()?;
    let view = session.client()?.by_handle(handle)?;
    match via {
        None | Some("auto") => view.write(off, &data).await?,
        Some("window") => view.write_inline(off, &data)?,
        Some("dma") => view.write_by_dma(off, &data).await?,
        Some(other) => {
            return Err(Failure::invalid(format_args!(
                "`via` is auto, window or dma, not {other}"
            )));
        }
    }
    moved(data.len() as u64)
}

/// `read H OFF LEN`
pub(super) async fn read<P: Platform>(session: &mut Session<P>, words: &mut Words<'_>) -> Outcome {
    let handle = words.number("handle")?;
    let off = words.number("offset")?;
    let len = words.number("length")?;
    words.finish()?;
    let view = session.client()?.by_handle(handle)?;
    let (off, len) = range(&view, Some(off), Some(len))?;
    if len > READ_LIMIT {
        return Err(Failure::invalid(format_args!(
            "`read` shows {READ_LIMIT} bytes at most; `crc` takes any length"
        )));
    }
    let mut data = vec![0; len as usize];
    view.read(off, &mut data).await?;
    Ok(Fields::new().with("hex", number::hex(&data)))
}

/// `crc H [off= len=]`
pub(super) async fn crc<P: Platform>(session: &mut Session<P>, words: &mut Words<'_>) -> Outcome {
    let handle = words.number("handle")?;
    let (off, len) = (words.option_number("off")?, words.option_number("len")?);
    words.finish()?;
    let view = session.client()?.by_handle(handle)?;
    let (off, len) = range(&view, off, len)?;
    let mut digest = CRC.digest();
    let mut data: Vec<u8> = vec![0; len.min(PIECE) as usize];
    for (at, size) in pieces(off, len) {
        data.truncate(size);
        view.read(at, &mut data).await?;
        digest.update(&data);
    }
    Ok(Fields::new().with("crc", Value::Word(digest.finalize())))
}

/// `copy SRC DST LEN [soff= doff= async=1]`, and the forms for [`list`].
pub(super) async fn copy<P: Platform>(session: &mut Session<P>, words: &mut Words<'_>) -> Outcome {
    if let Some(form @ ("gather" | "scatter")) = words.peek() {
        words.word("form")?;
        return list(session, words, form == "gather").await;
    }
    let source = words.number("source")?;
    let target = words.number("target")?;
    let len = words.number("length")?;
    let soff = words.option_number("soff")?.unwrap_or(0);
    let doff = words.option_number("doff")?.unwrap_or(0);
    let later = words.flag("async")?;
    words.finish()?;
    let transfer = {
        let client = session.client()?;
        let (source, target) = (client.by_handle(source)?, client.by_handle(target)?);
        target.check_writable()?;
        source.span_at(soff, len)?.copy_to(target.span_at(doff, len)?)?
    };
    if later {
        let wait = session.waits.insert(Waiting::One(transfer.start()));
        return Ok(Fields::new().with("wait", wait));
    }
    transfer.await?;
    moved(len)
}

/// `copy gather|scatter H OFF H OFF LEN [H OFF LEN …] [async=1]`: the whole, then its segments.
async fn list<P: Platform>(
    session: &mut Session<P>,
    words: &mut Words<'_>,
    gathers: bool,
) -> Outcome {
    let (handle, offset) = (words.number("handle")?, words.number("offset")?);
    let later = words.flag("async")?;
    let (mut segments, mut len) = (Vec::new(), 0u64);
    while words.peek().is_some() {
        let (handle, offset) = (words.number("handle")?, words.number("offset")?);
        let segment = Segment { handle, offset, len: words.number("length")? };
        len = len.saturating_add(segment.len);
        segments.push(segment);
    }
    words.finish()?;
    let (client, whole) = (session.client()?, Segment { handle, offset, len });
    let copies = match gathers {
        true => client.gather(&segments, whole)?,
        false => client.scatter(whole, &segments)?,
    };
    if later {
        let wait = session.waits.insert(Waiting::List(copies.start()));
        return Ok(Fields::new().with("wait", wait));
    }
    copies.await?;
    moved(len)
}

/// `batch SRC DST LEN COUNT [soff= doff= sstep= dstep=]`: copies at regular distances, LEN apart
/// where no step is given, behind one marker.
pub(super) async fn batch<P: Platform>(session: &mut Session<P>, words: &mut Words<'_>) -> Outcome {
    let source = words.number("source")?;
    let target = words.number("target")?;
    let len = words.number("length")?;
    let count = words.limited("count", 2032)?;
    let soff = words.option_number("soff")?.unwrap_or(0);
    let doff = words.option_number("doff")?.unwrap_or(0);
    let sstep = words.option_number("sstep")?.unwrap_or(len);
    let dstep = words.option_number("dstep")?.unwrap_or(len);
    words.finish()?;
    let mut batch = {
        let client = session.client()?;
        let mut batch = client.batch(count as usize)?;
        let (source, target) = (client.by_handle(source)?, client.by_handle(target)?);
        target.check_writable()?;
        for n in 0..count {
            // What wraps is far behind the end of any chunk before it does.
            let (from, to) = (n.saturating_mul(sstep), n.saturating_mul(dstep));
            let source = source.span_at(soff.saturating_add(from), len)?;
            batch.add(source, target.span_at(doff.saturating_add(to), len)?)?;
        }
        batch
    };
    (&mut batch).await?;
    moved(count * len)
}

/// `memset H BYTE LEN [off=]`: by DMA of the device.
pub(super) async fn memset<P: Platform>(
    session: &mut Session<P>,
    words: &mut Words<'_>,
) -> Outcome {
    let handle = words.number("handle")?;
    let byte = words.limited("byte", 255)?;
    let len = words.number("length")?;
    let off = words.option_number("off")?.unwrap_or(0);
    words.finish()?;
    let view = session.client()?.by_handle(handle)?;
    view.check_writable()?;
    view.span_at(off, len)?.fill(byte as u8)?.await?;
    moved(len)
}

/// `wait W`
pub(super) async fn wait<P: Platform>(session: &mut Session<P>, words: &mut Words<'_>) -> Outcome {
    let wait = words.number("wait")?;
    words.finish()?;
    match session.waits.take("wait", wait)? {
        Waiting::One(transfer) => transfer.await?,
        Waiting::List(copies) => copies.await?,
    }
    Ok(Fields::new())
}

/// `scrub HBM WORD [async=1]`, `scrub wait|drop S`
pub(super) async fn scrub<P: Platform>(session: &mut Session<P>, words: &mut Words<'_>) -> Outcome {
    if let Some(form @ ("wait" | "drop")) = words.peek() {
        words.word("form")?;
        let scrub = words.number("scrub")?;
        words.finish()?;
        let scrub = session.scrubs.take("scrub", scrub)?;
        if form == "wait" {
            scrub.await?;
        }
        return Ok(Fields::new());
    }
    let hbm = words.limited("HBM", HbmIndex::COUNT as u64 - 1)? as u32;
    let hbm = HbmIndex::new(hbm).ok_or_else(|| Failure::invalid("there is no such HBM"))?;
    let word = words.limited("word", u32::MAX.into())? as u32;
    let later = words.flag("async")?;
    words.finish()?;
    let scrub = session.client()?.scrub(hbm, word).await?;
    if later {
        return Ok(Fields::new().with("scrub", session.scrubs.insert(scrub)));
    }
    scrub.await?;
    Ok(Fields::new())
}
