//! `alloc`, `free`, `retain`, `lookup`, `pa`, `search`, `within`, `find`, `program`, `mem`,
//! `chunks`, `handles`.

use axon::ChunkLine;
use axon::ports::{AllocRequest, Category, ChunkFacts, ClientId, CoreId, Lifespan, Location};
use axon_platform::{DeviceAddr, Platform};

use crate::answer::{Failure, Fields, Outcome};
use crate::number;
use crate::session::Session;
use crate::words::Words;

/// `alloc device|host SIZE [align= channel= region= nc= life= type=]`
pub(super) async fn alloc<P: Platform>(session: &mut Session<P>, words: &mut Words<'_>) -> Outcome {
    let location = match words.word("place")? {
        "device" => Location::Device,
        "host" => Location::Host,
        other => {
            return Err(Failure::invalid(format_args!("`{other}` is neither device nor host")));
        }
    };
    let size = words.number("size")?;
    let mut option32 = |name| words.option_limited(name, u32::MAX.into());
    let (channel, region, core) = (option32("channel")?, option32("region")?, option32("nc")?);
    let align = words.option_number("align")?;
    let lifespan = words.option("life")?.map(lifespan).transpose()?;
    let category = words.option("type")?.map(category).transpose()?;
    words.finish()?;
    let client = session.client()?;
    let request = AllocRequest {
        size,
        location,
        align: align.unwrap_or(0),
        channel: channel.unwrap_or(0) as u32,
        region: region.unwrap_or(0) as u32,
        core: core.unwrap_or(0) as u32,
        lifespan: lifespan.unwrap_or(Lifespan::Client),
        category: category.unwrap_or(match location {
            Location::Device => Category::UNKNOWN_DEVICE,
            Location::Host => Category::UNKNOWN_HOST,
        }),
        ..client.request()
    };
    let buffer = client.alloc(request).await?;
    let facts = buffer.facts();
    Ok(Fields::new()
        .with("handle", buffer.into_handle())
        .address("pa", facts.pa.0)
        .with("size", facts.size))
}

fn lifespan(word: &str) -> Result<Lifespan, Failure> {
    match word {
        "local" => Ok(Lifespan::Local),
        "client" => Ok(Lifespan::Client),
        "all" => Ok(Lifespan::AllClients),
        "device" => Ok(Lifespan::Device),
        other => Err(Failure::invalid(format_args!(
            "there is no lifespan `{other}` (local, client, all, device)"
        ))),
    }
}

/// A number, or a name of specification 04 §9.4.
fn category(word: &str) -> Result<Category, Failure> {
    match Category::from_name(word) {
        Some(category) => Ok(category),
        None => Ok(Category(number::limited("type", word, u32::MAX.into())? as u32)),
    }
}

/// `free H`
pub(super) async fn free<P: Platform>(session: &mut Session<P>, words: &mut Words<'_>) -> Outcome {
    let handle = words.number("handle")?;
    words.finish()?;
    session.client()?.free(handle).await?;
    Ok(Fields::new())
}

/// `retain H`
pub(super) async fn retain<P: Platform>(
    session: &mut Session<P>,
    words: &mut Words<'_>,
) -> Outcome {
    let handle = words.number("handle")?;
    words.finish()?;
    session.client()?.retain(handle).await?;
    Ok(Fields::new())
}

/// `lookup H`
pub(super) fn lookup<P: Platform>(session: &Session<P>, words: &mut Words<'_>) -> Outcome {
    let handle = words.number("handle")?;
    words.finish()?;
    let facts = session.client()?.by_handle(handle)?.facts();
    Ok(describe(Fields::new().with("handle", handle), &facts))
}

/// `pa H`: the address that the device uses, tagged for host memory; also the cookie of a window.
pub(super) fn address<P: Platform>(session: &Session<P>, words: &mut Words<'_>) -> Outcome {
    let handle = words.number("handle")?;
    words.finish()?;
    let facts = session.client()?.by_handle(handle)?.facts();
    Ok(Fields::new().address("pa", facts.pa.0))
}

/// `search PA`: the chunk that contains an address.
pub(super) async fn search<P: Platform>(
    session: &mut Session<P>,
    words: &mut Words<'_>,
) -> Outcome {
    let address = words.number("address")?;
    words.finish()?;
    let found = session.client()?.search(DeviceAddr(address)).await?;
    Ok(describe(Fields::new(), &found.facts).with("handle", found.handle))
}

/// `within PA LEN`: whether one chunk holds the whole range.
pub(super) async fn within<P: Platform>(
    session: &mut Session<P>,
    words: &mut Words<'_>,
) -> Outcome {
    let address = words.number("address")?;
    let len = words.number("length")?;
    words.finish()?;
    let facts = session.client()?.within(DeviceAddr(address), len).await?.facts();
    Ok(describe(Fields::new(), &facts))
}

/// `find PA`: the chunk that contains an address, as something to copy from or to.
pub(super) async fn find<P: Platform>(session: &Session<P>, words: &mut Words<'_>) -> Outcome {
    let address = words.number("address")?;
    words.finish()?;
    let span = session.client()?.find(DeviceAddr(address)).await?;
    let fields = Fields::new().address("pa", span.address().0).with("size", span.len());
    Ok(fields.with("writable", span.is_writable()))
}

/// `program NC ADDRESS HEX`: writes into an engine of a core by one copy on its ring.
pub(super) async fn program<P: Platform>(session: &Session<P>, words: &mut Words<'_>) -> Outcome {
    let core = words.limited("core", u32::MAX.into())? as u32;
    let address = words.number("address")?;
    let data = number::bytes("data", words.word("data")?)?;
    words.finish()?;
    let outside = axon::Error::NoSuchAddress { address };
    let core = CoreId::new(core).ok_or(outside)?;
    session.client()?.program_engine(core, DeviceAddr(address), &data).await?;
    Ok(Fields::new().with("bytes", data.len()))
}

fn describe(fields: Fields, facts: &ChunkFacts) -> Fields {
    let fields = fields
        .address("pa", facts.pa.0)
        .with("size", facts.size)
        .with("place", place(facts.location))
        .with("channel", u32::from(facts.channel))
        .with("region", u32::from(facts.region))
        .with("nc", facts.core.number())
        .with("type", facts.category.name().unwrap_or("UNKNOWN"));
    with_owner(fields, facts.owner)
}

fn place(location: Location) -> &'static str {
    match location {
        Location::Device => "device",
        Location::Host => "host",
    }
}

/// `mem [DEV]`: bytes by place, and what hardware may still reach although it was given up.
pub(super) async fn totals<P: Platform>(
    session: &mut Session<P>,
    words: &mut Words<'_>,
) -> Outcome {
    let device = session.device(words, 0)?;
    words.finish()?;
    let arenas = device.memory_usage().await?.arenas;
    let totals = device.memory_totals();
    Ok(Fields::new()
        .with("host", totals.host)
        .with("device", totals.device)
        .with("draining", totals.draining)
        .with("chunks", totals.chunks)
        .with("free", arenas.iter().map(|arena| arena.free).sum::<u64>())
        .with("largest", arenas.iter().map(|arena| arena.largest).max().unwrap_or(0)))
}

/// `chunks [DEV] [channel= limit=]`: device chunks by address, whoever owns them; EAGAIN where a
/// channel has more than `limit`.
pub(super) async fn chunks<P: Platform>(
    session: &mut Session<P>,
    words: &mut Words<'_>,
    rows: &mut dyn FnMut(&Fields),
) -> Outcome {
    let device = session.device(words, 0)?;
    let only = words.option_limited("channel", u32::MAX.into())?;
    let limit = words.option_number("limit")?.map_or(usize::MAX, |limit| limit as usize);
    words.finish()?;
    let channels = match only {
        Some(channel) => channel as u32..=channel as u32,
        None => 0..=u32::from(device.hal().memory_geometry().channel_count).saturating_sub(1),
    };
    let mut count = 0;
    for channel in channels {
        let lines = device.chunks_up_to(channel, limit).await?;
        count += lines.len();
        lines.iter().for_each(|line| rows(&line_row(line)));
    }
    Ok(Fields::new().with("count", count))
}

/// `handles [DEV]`: chunks that have one, by number.
pub(super) async fn handles<P: Platform>(
    session: &mut Session<P>,
    words: &mut Words<'_>,
    rows: &mut dyn FnMut(&Fields),
) -> Outcome {
    let device = session.device(words, 0)?;
    words.finish()?;
    let mut lines = device.host_chunks().await?;
    for channel in 0..u32::from(device.hal().memory_geometry().channel_count) {
        lines.extend(device.chunks(channel).await?);
    }
    lines.retain(|line| line.handle != 0);
    lines.sort_unstable_by_key(|line| line.handle);
    lines.iter().for_each(|line| rows(&line_row(line)));
    Ok(Fields::new().with("count", lines.len()))
}

fn line_row(line: &ChunkLine) -> Fields {
    let fields = Fields::new()
        .with("handle", line.handle)
        .address("pa", line.pa.0)
        .with("size", line.size)
        .with("type", line.category.name().unwrap_or("UNKNOWN"));
    with_owner(fields, line.owner)
}

fn with_owner(fields: Fields, owner: Option<ClientId>) -> Fields {
    match owner {
        Some(client) => fields.with("owner", client.number()),
        None => fields.with("owner", "driver"),
    }
}
