//! `nc`, `lock`, `unlock`, `reserve`, `unreserve`.

use axon::ports::{ClientId, ModelUuid};
use axon::{Hold, InitState, InitView, LockView};
use axon_platform::Platform;

use crate::answer::{Failure, Fields, Outcome, Value};
use crate::session::{Opened, Session};
use crate::words::Words;

/// `nc init NC`, `nc done NC`, `nc state [DEV] NC`.
pub(super) async fn nc<P: Platform>(session: &mut Session<P>, words: &mut Words<'_>) -> Outcome {
    let state = match words.word("what")? {
        "init" => InitState::Started,
        "done" => InitState::Completed,
        "state" => return state(session, words),
        other => {
            return Err(Failure::invalid(format_args!("`{other}` is none of init, done, state")));
        }
    };
    let core = core_number(words)?;
    words.finish()?;
    let commands = session.client()?.core_commands();
    let state = commands.set_init_state(core, state as u32).await?;
    Ok(Fields::new().with("state", state.name()))
}

fn state<P: Platform>(session: &Session<P>, words: &mut Words<'_>) -> Outcome {
    let device = session.device(words, 1)?;
    let core = core_number(words)?;
    words.finish()?;
    let core = device.core_id(core)?;
    let InitView { state, initialiser, .. } = device.init_state(core);
    let LockView { hold, key, waiting, loads } = device.model_lock(core);
    let (lock, readers) = match hold {
        Hold::Free => ("FREE", 0),
        Hold::Readers(readers) => ("READERS", readers),
        Hold::Writer => ("WRITER", 0),
    };
    Ok(Fields::new()
        .with("state", device.core_state(core).name())
        .with("init", state.name())
        .with("initialiser", client_or_none(initialiser))
        .with("lock", lock)
        .with("readers", readers)
        .with("model_of", client_or_none(key.map(|key| key.client)))
        .with("waiting", waiting)
        .with("loads", loads)
        .with("owner", client_or_none(device.core_owner(core))))
}

/// `lock read|write NC [model=N]`: waits as long as the command does.
pub(super) async fn lock<P: Platform>(session: &mut Session<P>, words: &mut Words<'_>) -> Outcome {
    let (writer, core, model) = lock_words(words)?;
    let client = session.client()?;
    let commands = client.core_commands();
    if writer {
        let loaded = commands.writer_enter(core, model).await?;
        return Ok(Fields::new().with("already_loaded", loaded));
    }
    commands.reader_enter(core, model).await?;
    Ok(readers(session, core))
}

/// `unlock read NC [model=N]`: one reader less. `unlock write NC [model=N]`: the model is loaded, the
/// writer becomes its first reader.
pub(super) async fn unlock<P: Platform>(
    session: &mut Session<P>,
    words: &mut Words<'_>,
) -> Outcome {
    let (writer, core, model) = lock_words(words)?;
    let commands = session.client()?.core_commands();
    match writer {
        true => commands.writer_downgrade(core, model).await?,
        false => commands.reader_exit(core, model).await?,
    }
    Ok(readers(session, core))
}

fn lock_words(words: &mut Words<'_>) -> Result<(bool, u32, ModelUuid), Failure> {
    let writer = match words.word("kind")? {
        "read" => false,
        "write" => true,
        other => {
            return Err(Failure::invalid(format_args!("`{other}` is neither read nor write")));
        }
    };
    let core = core_number(words)?;
    let model = words.option_number("model")?.unwrap_or(0);
    words.finish()?;
    let mut uuid = [0; 32];
    uuid.iter_mut().zip(model.to_le_bytes()).for_each(|(byte, given)| *byte = given);
    Ok((writer, core, ModelUuid(uuid)))
}

fn readers<P: Platform>(session: &Session<P>, core: u32) -> Fields {
    let readers = session.client().ok().and_then(|client| {
        let core = client.device().core_id(core).ok()?;
        match client.device().model_lock(core).hold {
            Hold::Readers(readers) => Some(readers),
            _ => None,
        }
    });
    Fields::new().with("readers", readers.unwrap_or(0))
}

/// `reserve START COUNT [end=N]`: claims COUNT cores in a row between START and END, which is just
/// behind them unless said otherwise. Either lane will do.
pub(super) async fn reserve<P: Platform>(
    session: &mut Session<P>,
    words: &mut Words<'_>,
) -> Outcome {
    let start = words.limited("start", u32::MAX.into())? as u32;
    let count = words.limited("count", u32::MAX.into())? as u32;
    let end = words.option_limited("end", u32::MAX.into())?.map(|end| end as u32);
    words.finish()?;
    let end = end.unwrap_or(start.saturating_add(count).saturating_sub(1));
    let claim = match session.opened()? {
        Opened::Normal(client) => client.claim(count, start..=end).await?,
        Opened::Info(client) => client.claim(count, start..=end).await?,
    };
    let device = session.opened()?.device();
    let base = device.index().number() * u32::from(device.hal().cores());
    let cores = claim.cores().relative_to(base);
    let [first, ..] = cores.0;
    let number = session.claims.insert(claim);
    Ok(Fields::new().with("claim", number).address("cores", first).with("count", cores.count()))
}

/// `unreserve CLAIM`
pub(super) fn unreserve<P: Platform>(session: &mut Session<P>, words: &mut Words<'_>) -> Outcome {
    let claim = words.number("claim")?;
    words.finish()?;
    drop(session.claims.take("claim", claim)?);
    Ok(Fields::new())
}

fn core_number(words: &mut Words<'_>) -> Result<u32, Failure> {
    Ok(words.limited("core", u32::MAX.into())? as u32)
}

fn client_or_none(client: Option<ClientId>) -> Value {
    match client {
        Some(client) => client.number().into(),
        None => "none".into(),
    }
}
