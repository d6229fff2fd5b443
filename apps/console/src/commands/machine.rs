//! `fault`, `sleep`, `advance`, `tasks`.

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

/// `tasks [on|off]`: every task with how often it ran and for how long; time is taken only after
/// `tasks on`. The last line says what time it is.
pub(super) fn tasks<P: Platform>(
    session: &Session<P>,
    words: &mut Words<'_>,
    rows: &mut dyn FnMut(&Fields),
) -> Outcome {
    let switch = match words.peek() {
        None => None,
        Some("on") => Some(true),
        Some("off") => Some(false),
        Some(other) => {
            return Err(Failure::invalid(format_args!("`{other}` is neither on nor off")));
        }
    };
    if let Some(on) = switch {
        words.word("on or off")?;
        words.finish()?;
        session.platform.measure_tasks(on);
        return Ok(Fields::new());
    }
    words.finish()?;
    let mut count = 0u64;
    session.platform.tasks(&mut |task| {
        count += 1;
        let fields = Fields::new().with("task", String::from(task.name));
        rows(&fields.with("polls", task.polls).with("busy_us", task.busy.as_micros() as u64));
    });
    let now = session.platform.now().as_nanos() / 1000;
    Ok(Fields::new().with("count", count).with("now_us", now))
}
