//! `fault`, `sleep`, `advance`.

use alloc::string::String;
use alloc::vec::Vec;

use axon_platform::{Errno, PciFunction, Platform};

use crate::answer::{Failure, Fields, Outcome};
use crate::number;
use crate::session::Session;
use crate::words::Words;

/// PCI vendor of the accelerators.
const VENDOR: u16 = 0x1d0f;

/// `fault NAME[=VALUE][@DEV] [after=N]`, `fault clear`: for the default device or the one named;
/// without either, for every function.
pub(super) fn fault<P: Platform>(session: &Session<P>, words: &[&str]) -> Outcome {
    let Some(model) = session.platform.model() else {
        return Err(Failure::new(
            Errno::EOPNOTSUPP,
            "no function here is emulated: hardware takes no faults",
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
) -> Result<Vec<usize>, Failure> {
    // A machine has functions of other makers too.
    let functions = axon_platform::Platform::functions(&session.platform);
    let ours = functions.iter().map(|function| function.config_read32(0) as u16 == VENDOR);
    let ours: Vec<usize> = ours.enumerate().filter_map(|(at, ours)| ours.then_some(at)).collect();
    let position = match (named, session.device) {
        (Some(word), _) => match session.device_named(word) {
            Ok(device) => device.position(),
            Err(failure) => {
                let number = number::number("device", word).map_err(|_| failure)?;
                *ours.get(number as usize).ok_or_else(|| {
                    Failure::new(Errno::ENODEV, format_args!("there is no function {number}"))
                })?
            }
        },
        (None, Some(index)) => session.driver.device(index)?.position(),
        (None, None) => return Ok(ours),
    };
    Ok(alloc::vec![position])
}

/// `sleep SPAN`, `advance SPAN`
pub(super) async fn sleep<P: Platform>(session: &Session<P>, words: &mut Words<'_>) -> Outcome {
    let span = number::span("time", words.word("time")?)?;
    words.finish()?;
    session.platform.sleep(span).await;
    Ok(Fields::new())
}
