//! `sem`, `event`: semaphores and events of a core.

use alloc::string::ToString;
use core::time::Duration;

use axon::{NeuronCore, Semaphore};
use axon_platform::{Errno, Platform};
use embassy_futures::select::{Either, select};

use crate::answer::{Failure, Fields, Outcome, Value};
use crate::number;
use crate::session::Session;
use crate::words::Words;

/// How long `sem wait` and `event wait` wait unless told otherwise.
const PATIENCE: Duration = Duration::from_secs(1);

/// `sem read NC N`, `sem write NC N V`, `sem inc|dec NC N [V]`, `sem wait NC N V [within=SPAN]`.
pub(super) async fn sem<P: Platform>(session: &mut Session<P>, words: &mut Words<'_>) -> Outcome {
    let what = words.word("what")?;
    let semaphore = core(session, words)?.semaphore(index(words)?);
    let change = |words: &mut Words<'_>| -> Result<u32, Failure> {
        let amount = words.peek().map(|_| words.limited("amount", u32::MAX.into())).transpose()?;
        words.finish()?;
        Ok(amount.unwrap_or(1) as u32)
    };
    match what {
        "read" => {
            words.finish()?;
            Ok(value(semaphore?.get()?))
        }
        "write" => {
            let value = words.limited("value", u32::MAX.into())? as u32;
            words.finish()?;
            semaphore?.set(value as i32)?;
            Ok(Fields::new())
        }
        "inc" => {
            let amount = change(words)?;
            semaphore?.add(amount)?;
            Ok(Fields::new())
        }
        "dec" => {
            let amount = change(words)?;
            semaphore?.sub(amount)?;
            Ok(Fields::new())
        }
        "wait" => {
            let least = words.limited("value", u32::MAX.into())? as u32;
            let within = within(words)?;
            wait(session, &semaphore?, least as i32, within).await
        }
        other => {
            Err(Failure::invalid(format_args!("`{other}` is none of read, write, inc, dec, wait")))
        }
    }
}

async fn wait<P: Platform>(
    session: &Session<P>,
    semaphore: &Semaphore<P>,
    least: i32,
    within: Duration,
) -> Outcome {
    match select(semaphore.reached(least), session.platform.sleep(within)).await {
        Either::First(seen) => Ok(value(seen?)),
        Either::Second(()) => Err(late(within)),
    }
}

fn value(value: i32) -> Fields {
    Fields::new().with("value", value.to_string()).with("word", Value::Word(value as u32))
}

/// `event read NC N`, `event write NC N V`, `event wait NC N [within=SPAN]`.
pub(super) async fn event<P: Platform>(session: &mut Session<P>, words: &mut Words<'_>) -> Outcome {
    let what = words.word("what")?;
    let event = core(session, words)?.event(index(words)?);
    match what {
        "read" => {
            words.finish()?;
            Ok(Fields::new().with("value", event?.read()?))
        }
        "write" => {
            let value = words.limited("value", u32::MAX.into())? as u32;
            words.finish()?;
            event?.write(value)?;
            Ok(Fields::new())
        }
        "wait" => {
            let within = within(words)?;
            match select(event?.wait(), session.platform.sleep(within)).await {
                Either::First(set) => {
                    set?;
                    Ok(Fields::new())
                }
                Either::Second(()) => Err(late(within)),
            }
        }
        other => Err(Failure::invalid(format_args!("`{other}` is none of read, write, wait"))),
    }
}

fn core<P: Platform>(
    session: &Session<P>,
    words: &mut Words<'_>,
) -> Result<NeuronCore<P>, Failure> {
    let number = words.limited("core", u32::MAX.into())? as u32;
    Ok(session.client()?.core(number)?)
}

/// Its limit is the device's to know: what is too large is refused there, at full width.
fn index(words: &mut Words<'_>) -> Result<u32, Failure> {
    Ok(words.limited("index", u32::MAX.into())? as u32)
}

fn within(words: &mut Words<'_>) -> Result<Duration, Failure> {
    let within = words.option("within")?.map(|span| number::span("within", span)).transpose()?;
    words.finish()?;
    Ok(within.unwrap_or(PATIENCE))
}

fn late(within: Duration) -> Failure {
    Failure::new(Errno::ETIMEDOUT, format_args!("not within {} ms", within.as_millis()))
}
