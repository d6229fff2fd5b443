//! `nq`, `post`: notification queues, and the model's side of them.

use alloc::string::String;
use core::time::Duration;

use axon::{
    Error, Notification, NotificationQueue, Placement, Producer, QueueKind, QueueSpec, Subtype,
    WhenFull,
};
use axon_platform::{Errno, Platform};
use embassy_futures::select::{Either, select};

use crate::answer::{Failure, Fields, Outcome, Value};
use crate::number;
use crate::session::Session;
use crate::words::Words;

/// How long `nq next` waits unless told otherwise.
const PATIENCE: Duration = Duration::from_secs(1);

/// `nq init …`, `nq next|peek|info|drain NQ`, `nq resize NQ SIZE`, `nq release NQ`, `nq totals
/// [DEV]`.
pub(super) async fn nq<P: Platform>(
    session: &mut Session<P>,
    words: &mut Words<'_>,
    rows: &mut dyn FnMut(&Fields),
) -> Outcome {
    match words.word("what")? {
        "init" => init(session, words).await,
        "next" => next(session, words, rows).await,
        "peek" => peek(session, words, rows).await,
        "drain" => drain(session, words),
        "info" => info(session, words),
        "resize" => resize(session, words).await,
        "release" => release(session, words).await,
        "totals" => totals(session, words),
        other => Err(Failure::invalid(format_args!(
            "`{other}` is none of init, next, peek, drain, info, resize, release, totals"
        ))),
    }
}

/// `nq init [nc=N|topsp=N] [index=N] [type=] [size=] [place=host|device channel= region=]
/// [full=stall|drop] [replace=1]`
async fn init<P: Platform>(session: &mut Session<P>, words: &mut Words<'_>) -> Outcome {
    let spec = spec(words)?;
    words.finish()?;
    let queue = session.client()?.notifications(spec).await?;
    let info = queue.info()?;
    Ok(Fields::new()
        .with("nq", session.queues.insert(queue))
        .with("handle", info.handle)
        .address("pa", info.address.0)
        .with("size", info.spec.size))
}

fn spec(words: &mut Words<'_>) -> Result<QueueSpec, Failure> {
    let mut number32 = |name| words.option_limited(name, u32::MAX.into());
    let (core, topsp, index) = (number32("nc")?, number32("topsp")?, number32("index")?);
    let (channel, region) = (number32("channel")?, number32("region")?);
    let producer = match (core, topsp) {
        (Some(_), Some(_)) => return Err(Failure::invalid("nc= or topsp=, not both")),
        (core, None) => Producer::Core(core.unwrap_or(0) as u32),
        (None, Some(topsp)) => Producer::TopSp(topsp as u32),
    };
    let placement = match words.option("place")? {
        None | Some("host") => Placement::Host,
        Some("device") => Placement::Device {
            channel: channel.unwrap_or(0) as u32,
            region: region.unwrap_or(0) as u32,
        },
        Some(other) => {
            return Err(Failure::invalid(format_args!("`{other}` is neither host nor device")));
        }
    };
    let when_full = match words.option("full")? {
        None | Some("stall") => WhenFull::Stall,
        Some("drop") => WhenFull::Drop,
        Some(other) => {
            return Err(Failure::invalid(format_args!("`{other}` is neither stall nor drop")));
        }
    };
    Ok(QueueSpec {
        producer,
        kind: words.option("type")?.map_or(Ok(QueueKind::Notify), kind)?,
        index: index.unwrap_or(4) as u32,
        size: words.option_number("size")?.unwrap_or(16 << 10),
        placement,
        when_full,
        replace: words.flag("replace")?,
    })
}

/// A name, or the number that the Linux interface has for it.
fn kind(word: &str) -> Result<QueueKind, Failure> {
    if let Some(kind) = QueueKind::from_name(word) {
        return Ok(kind);
    }
    let number = number::limited("type", word, u32::MAX.into())? as u32;
    QueueKind::from_number(number).ok_or_else(|| {
        Failure::invalid(format_args!(
            "there is no type {number} (trace, notify, event, error, trace-dma, throttle)"
        ))
    })
}

fn queue<'s, P: Platform>(
    session: &'s mut Session<P>,
    words: &mut Words<'_>,
) -> Result<&'s mut NotificationQueue<P>, Failure> {
    let number = words.number("queue")?;
    session.queues.get("queue", number)
}

/// `nq next NQ [count=N] [within=SPAN]`: waits for each; several are shown as rows.
async fn next<P: Platform>(
    session: &mut Session<P>,
    words: &mut Words<'_>,
    rows: &mut dyn FnMut(&Fields),
) -> Outcome {
    let number = words.number("queue")?;
    let count = words.option_number("count")?;
    let within = words.option("within")?.map(|span| number::span("within", span)).transpose()?;
    words.finish()?;
    let platform = session.platform.clone();
    let within = within.unwrap_or(PATIENCE);
    let queue = session.queues.get("queue", number)?;
    let Some(count) = count else {
        return Ok(fields(&one(&platform, queue, within).await?));
    };
    for _ in 0..count {
        rows(&fields(&one(&platform, queue, within).await?));
    }
    Ok(Fields::new().with("count", count))
}

async fn one<P: Platform>(
    platform: &P,
    queue: &mut NotificationQueue<P>,
    within: Duration,
) -> Result<Notification, Failure> {
    match select(queue.next(), platform.sleep(within)).await {
        Either::First(Some(notification)) => Ok(notification?),
        // A stream that is over says so once; a person asks again.
        Either::First(None) => match queue.info() {
            Ok(_) => Err(Failure::new(Errno::ECANCELED, "the queue is closed")),
            Err(error) => Err(error.into()),
        },
        Either::Second(()) => Err(Failure::new(
            Errno::ETIMEDOUT,
            format_args!("no notification within {} ms", within.as_millis()),
        )),
    }
}

fn fields(notification: &Notification) -> Fields {
    let fields = Fields::new()
        .with("time", notification.timestamp())
        .with("line", u32::from(notification.line()))
        .with("tag", u32::from(notification.tag()))
        .with("for_subscribers", notification.is_for_subscribers());
    match notification.subtype() {
        Some(Subtype::Custom(custom)) => {
            fields.with("subtype", "custom").with("custom", custom.name())
        }
        Some(subtype) => fields.with("subtype", subtype.name()),
        None => fields.with("raw", number::hex(&notification.bytes())),
    }
}

/// `nq peek NQ`: what is there, at most 64, without taking it.
async fn peek<P: Platform>(
    session: &mut Session<P>,
    words: &mut Words<'_>,
    rows: &mut dyn FnMut(&Fields),
) -> Outcome {
    let number = words.number("queue")?;
    words.finish()?;
    let queue = session.queues.get("queue", number)?;
    let seen = queue.peek().await?;
    for index in 0..seen.len() {
        match seen.get(index) {
            Some(notification) => rows(&fields(&notification)),
            None => rows(&Fields::new().with("garbage", true)),
        }
    }
    Ok(Fields::new().with("count", seen.len()))
}

/// `nq drain NQ`: takes what is there; says how many there were, the time stamps of the first and
/// of the last one, and how often the next one was not one more.
fn drain<P: Platform>(session: &mut Session<P>, words: &mut Words<'_>) -> Outcome {
    let queue = queue(session, words)?;
    words.finish()?;
    let (mut count, mut first, mut last, mut gaps) = (0u64, 0, 0u64, 0u64);
    loop {
        match queue.try_next() {
            Ok(Some(notification)) => {
                let time = notification.timestamp();
                if count == 0 {
                    first = time;
                } else if time != last.wrapping_add(1) {
                    gaps += 1;
                }
                last = time;
                count += 1;
            }
            Ok(None) => break,
            Err(error) if count == 0 => return Err(error.into()),
            // A loss behind them: it is told as rows are not, so say it in the same line.
            Err(Error::NotificationsLost(_)) => {
                return Ok(drained(count, first, last, gaps).with("lost", true));
            }
            Err(_) => break,
        }
    }
    Ok(drained(count, first, last, gaps))
}

fn drained(count: u64, first: u64, last: u64, gaps: u64) -> Fields {
    Fields::new().with("count", count).with("first", first).with("last", last).with("gaps", gaps)
}

/// `nq info NQ`
fn info<P: Platform>(session: &mut Session<P>, words: &mut Words<'_>) -> Outcome {
    let queue = queue(session, words)?;
    words.finish()?;
    let info = queue.info()?;
    Ok(Fields::new()
        .with("head", info.head)
        .with("tail", info.tail)
        .with("phase", u32::from(info.phase))
        .with("handle", info.handle)
        .with("size", info.spec.size)
        .with("type", info.spec.kind.name())
        .with("consumed", info.counters.consumed)
        .with("garbage", info.counters.garbage)
        .with("overflows", info.counters.overflows)
        .with("restarts", info.counters.restarts))
}

/// `nq resize NQ SIZE`: another ring; the old one drains first.
async fn resize<P: Platform>(session: &mut Session<P>, words: &mut Words<'_>) -> Outcome {
    let number = words.number("queue")?;
    let size = words.number("size")?;
    words.finish()?;
    let queue = session.queues.get("queue", number)?;
    queue.resize(size).await?;
    let info = queue.info()?;
    Ok(Fields::new().with("handle", info.handle).address("pa", info.address.0).with("size", size))
}

/// `nq release NQ`: answers when it is off and has drained.
async fn release<P: Platform>(session: &mut Session<P>, words: &mut Words<'_>) -> Outcome {
    let number = words.number("queue")?;
    words.finish()?;
    session.queues.take("queue", number)?.close().await;
    Ok(Fields::new())
}

/// `nq totals [DEV]`
fn totals<P: Platform>(session: &Session<P>, words: &mut Words<'_>) -> Outcome {
    let device = session.device(words, 0)?;
    words.finish()?;
    let counters = device.notification_counters();
    Ok(Fields::new()
        .with("armed", counters.armed)
        .with("quarantined", counters.quarantined)
        .with("consumed", counters.consumed)
        .with("garbage", counters.garbage)
        .with("overflows", counters.overflows)
        .with("restarts", counters.restarts))
}

/// `post [state] BLOCK QUEUE [options]`: the model posts records, or says how a queue of it stands.
/// BLOCK is `ncN`, `topspN`, `engineN` or `ncN.eM`.
pub(super) fn post<P: Platform>(session: &Session<P>, words: &[&str]) -> Outcome {
    let Some(model) = session.platform.model() else {
        return Err(Failure::new(
            Errno::EOPNOTSUPP,
            "no function here is emulated: hardware posts by itself",
        ));
    };
    let index = session.device.unwrap_or(0);
    let position = session.driver.device(index)?.position();
    let (command, rest) = match words.split_first() {
        Some((&"state", rest)) => ("queue", rest),
        _ => ("post", words),
    };
    let mut line = String::from(command);
    for word in rest {
        line.push(' ');
        line.push_str(word);
    }
    let answer = model.control(position, &line).map_err(Failure::invalid)?;
    Ok(counts(&answer))
}

/// The model's own words, those that count.
fn counts(answer: &str) -> Fields {
    const KEYS: [&str; 6] = ["posted", "written", "stalled", "dropped", "unarmed", "nowhere"];
    let value = |key: &str| {
        answer.split(' ').find_map(|word| word.strip_prefix(key)?.strip_prefix('=')?.parse().ok())
    };
    let known = KEYS.into_iter().filter_map(|key| Some((key, value(key)?)));
    known.fold(Fields::new(), |fields, (key, count)| fields.with(key, Value::Number(count)))
}
