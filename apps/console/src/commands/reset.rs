//! `reset`, `state`.

use axon::ports::CoreMap;
use axon_platform::Platform;

use crate::answer::{Failure, Fields, Outcome};
use crate::session::Session;
use crate::words::Words;

/// `reset [nc=MAP]`, `reset wait R`. With a client it is the client's request; where nobody has
/// the device open it is the control that decides the device's state.
pub(super) async fn reset<P: Platform>(session: &mut Session<P>, words: &mut Words<'_>) -> Outcome {
    if words.peek() == Some("wait") {
        return wait(session, words).await;
    }
    let device = session.device(words, 0)?;
    let map = words.option_limited("nc", u32::MAX.into())?;
    words.finish()?;
    let ticket = match (session.client(), map) {
        (Ok(client), map) if client.device().index() == device.index() => {
            client.reset(map.map_or(CoreMap::DEVICE, |map| CoreMap(map as u32)))?
        }
        (_, None) => device.reset()?,
        (_, Some(_)) => {
            return Err(Failure::invalid("a reset of cores needs a client of the device"));
        }
    };
    Ok(Fields::new().with("request", session.resets.insert(ticket)))
}

async fn wait<P: Platform>(session: &mut Session<P>, words: &mut Words<'_>) -> Outcome {
    words.word("wait")?;
    let request = words.number("request")?;
    words.finish()?;
    session.resets.take("request", request)?.await.map_err(axon::Error::from)?;
    Ok(Fields::new())
}

/// `state [DEV]`
pub(super) fn state<P: Platform>(session: &Session<P>, words: &mut Words<'_>) -> Outcome {
    let device = session.device(words, 0)?;
    words.finish()?;
    Ok(Fields::new().with("state", device.state().name()).with("open", device.open_count()))
}
