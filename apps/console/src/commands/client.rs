//! `open`, `close`, `use`, `clients`.

use axon::{Client, Device};
use axon_platform::Platform;

use crate::answer::{Failure, Fields, Outcome};
use crate::session::{Opened, Session};
use crate::words::Words;

/// `open [DEV] [lane=info]`: the new client becomes the current one, its device the default one.
pub(super) async fn open<P: Platform>(session: &mut Session<P>, words: &mut Words<'_>) -> Outcome {
    let device = session.device(words, 0)?;
    let lane = words.option("lane")?;
    words.finish()?;
    let opened = match lane {
        None | Some("normal") => Opened::Normal(device.open().await?),
        Some("info") => Opened::Info(device.open_info()?),
        Some(lane) => return Err(Failure::invalid(format_args!("there is no lane `{lane}`"))),
    };
    let number = match &opened {
        Opened::Normal(client) => client.id(),
        Opened::Info(client) => client.id(),
    };
    let number = u64::from(number.number());
    session.clients.insert(number, opened);
    select(session, number, &device);
    Ok(Fields::new().with("client", number))
}

/// `close CLIENT`: answers when everything the client owned is cleaned up; where transfers of it
/// are in flight, at once, while the clean-up goes on.
pub(super) async fn close<P: Platform>(session: &mut Session<P>, words: &mut Words<'_>) -> Outcome {
    let number = words.number("client")?;
    words.finish()?;
    let opened = session.clients.remove(&number).ok_or_else(|| no_client(number))?;
    if session.current == Some(number) {
        session.current = None;
    }
    session.windows.retain(|window| u64::from(window.client().number()) != number);
    session.claims.retain(|claim| u64::from(claim.client().number()) != number);
    if let Opened::Normal(client) = opened {
        end(client).await;
    }
    Ok(Fields::new())
}

async fn end<P: Platform>(client: Client<P>) {
    if client.in_flight_bytes() == 0 {
        client.close().await;
    }
}

/// `use CLIENT`
pub(super) fn switch<P: Platform>(session: &mut Session<P>, words: &mut Words<'_>) -> Outcome {
    let number = words.number("client")?;
    words.finish()?;
    let device = session.clients.get(&number).ok_or_else(|| no_client(number))?.device().clone();
    select(session, number, &device);
    Ok(Fields::new().with("client", number))
}

fn select<P: Platform>(session: &mut Session<P>, client: u64, device: &Device<P>) {
    session.current = Some(client);
    session.device = Some(device.index().number());
}

fn no_client(number: u64) -> Failure {
    Failure::invalid(format_args!("client {number} is not open here"))
}

/// `clients [DEV]`: attach slots in use, in slot order.
pub(super) fn list<P: Platform>(
    session: &Session<P>,
    words: &mut Words<'_>,
    rows: &mut dyn FnMut(&Fields),
) -> Outcome {
    let device = session.device(words, 0)?;
    words.finish()?;
    let clients = device.clients();
    for info in &clients {
        let used = device.client_memory(info);
        rows(
            &Fields::new()
                .with("slot", info.slot.number())
                .with("client", info.client.number())
                .with("handles", info.handles)
                .with("host", used.host)
                .with("device", used.device)
                .with("closing", info.closing),
        );
    }
    Ok(Fields::new().with("count", clients.len()).with("open", device.open_count()))
}
