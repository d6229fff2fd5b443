//! `pod status`, `pod ctrl`.

use axon::{Mode, PodStatus};
use axon_platform::Platform;
use core::time::Duration;

use crate::answer::{Failure, Fields, Outcome};
use crate::session::Session;
use crate::words::Words;

/// Seconds that an election may take unless said otherwise.
const TIMEOUT: u64 = 600;

/// `pod status`, `pod ctrl elect|kill|single|mode [MODE] [timeout=SECONDS]`. Both answer the state of
/// the pod afterwards; a running election is a state.
pub(super) async fn pod<P: Platform>(session: &mut Session<P>, words: &mut Words<'_>) -> Outcome {
    match words.word("what")? {
        "status" => {}
        "ctrl" => return control(session, words).await,
        other => {
            return Err(Failure::invalid(format_args!("`{other}` is neither status nor ctrl")));
        }
    }
    words.finish()?;
    Ok(describe(&session.driver.pod()))
}

async fn control<P: Platform>(session: &mut Session<P>, words: &mut Words<'_>) -> Outcome {
    let request = words.word("request")?;
    let mode = match request {
        "mode" => Some(mode(words.word("mode")?)?),
        _ => None,
    };
    let timeout = words.option_limited("timeout", u32::MAX.into())?;
    words.finish()?;
    let driver = &session.driver;
    match (request, mode) {
        ("elect", _) => driver.pod_elect(Duration::from_secs(timeout.unwrap_or(TIMEOUT))).await?,
        ("kill", _) => driver.pod_cancel().await?,
        ("single", _) => driver.pod_set_mode(Mode::X1).await?,
        (_, Some(mode)) => driver.pod_set_mode(mode).await?,
        (other, None) => {
            return Err(Failure::invalid(format_args!(
                "`{other}` is none of elect, kill, single, mode"
            )));
        }
    }
    Ok(describe(&driver.pod()))
}

fn mode(word: &str) -> Result<Mode, Failure> {
    let found = Mode::SETTABLE.into_iter().find(|mode| mode.name() == word);
    found.ok_or_else(|| {
        Failure::invalid(format_args!("there is no mode `{word}` (X4, X2H, X2V, X1)"))
    })
}

fn describe(status: &PodStatus) -> Fields {
    let fields = Fields::new()
        .with("state", status.state.name())
        .with("type", status.pod_type.name())
        .with("size", u32::from(status.membership.size));
    let fields = match status.membership.node {
        Some(node) => fields.with("node", u32::from(node)),
        None => fields.with("node", "none"),
    };
    fields
        .address("serial", status.membership.serial)
        .with("mode", status.mode.name())
        .address("modes", status.modes_supported.into())
}
