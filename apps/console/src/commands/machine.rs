//! `fault`, `sleep`, `advance`.

use alloc::string::String;

use axon_platform::{Errno, Platform};

use crate::answer::{Failure, Fields, Outcome};
use crate::number;
use crate::session::Session;
use crate::words::Words;

/// `fault NAME[=VALUE][@DEV] [after=N]`, `fault clear`: for the default device or the one named;
/// without either, for every function.
pub(super) fn fault<P: Platform>(session: &Session<P>, words: &[&str]) -> Outcome {
    let Some(model) = session.platform.model() else {
        return Err(Failure::new(
            Errno::EOPNOTSUPP,
            "the emulated functions are not in this process; arm faults where they run",
        ));
    };
    let Some((head, rest)) = words.split_first() else {
        return Err(Failure::invalid("which fault?"));
    };
    let (head, named) = match head.split_once('@') {
        Some((head, device)) => (head, Some(device)),
        None => (*head, None),
    };
    let mut line = String::from("fault ");
    line.push_str(head);
    for word in rest {
        line.push(' ');
        line.push_str(word);
    }
    for position in positions(session, named)? {
        model.control(position, &line).map_err(Failure::invalid)?;
    }
    Ok(Fields::new())
}

/// Positions on the bus of the functions that are meant. A function that was refused has no index;
/// then the number counts functions.
fn positions<P: Platform>(
    session: &Session<P>,
    named: Option<&str>,
) -> Result<core::ops::Range<usize>, Failure> {
    let functions = axon_platform::Platform::functions(&session.platform).len();
    let position = match (named, session.device) {
        (Some(word), _) => match session.device_named(word) {
            Ok(device) => device.position(),
            Err(failure) => number::number("device", word).map_err(|_| failure)? as usize,
        },
        (None, Some(index)) => session.driver.device(index)?.position(),
        (None, None) => return Ok(0..functions),
    };
    if position < functions {
        Ok(position..position + 1)
    } else {
        Err(Failure::new(Errno::ENODEV, format_args!("there is no function {position}")))
    }
}

/// `sleep SPAN`, `advance SPAN`
pub(super) async fn sleep<P: Platform>(session: &Session<P>, words: &mut Words<'_>) -> Outcome {
    let span = number::span("time", words.word("time")?)?;
    words.finish()?;
    session.platform.sleep(span).await;
    Ok(Fields::new())
}
