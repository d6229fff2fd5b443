//! The driver itself: mailbox, poster, rings.

use core::fmt;

use axon_ports::telemetry::counters::MailboxCommand;

use super::super::text::Samples;
use super::{each_device, each_name};
use crate::Snapshot;
use crate::posting::{Band, PostingState};

type Result = fmt::Result;

pub(super) fn info(samples: &mut Samples<'_>, devices: &[Snapshot]) -> Result {
    let Some(device) = devices.first() else { return Ok(()) };
    samples.put(&[("version", &device.driver_version)], 1)
}

pub(super) fn mailbox_errors(samples: &mut Samples<'_>, devices: &[Snapshot]) -> Result {
    each_device(samples, devices, |device| device.mailbox_errors)
}

pub(super) fn mailbox_requests(samples: &mut Samples<'_>, devices: &[Snapshot]) -> Result {
    each_name(samples, devices, "command", |device| {
        device.mailbox.map(|(command, requests, _)| shown(command, requests))
    })
}

pub(super) fn mailbox_timeouts(samples: &mut Samples<'_>, devices: &[Snapshot]) -> Result {
    each_name(samples, devices, "command", |device| {
        device.mailbox.map(|(command, _, timeouts)| shown(command, timeouts))
    })
}

/// Commands of new firmware show once they were used.
fn shown(command: MailboxCommand, value: u64) -> Option<(&'static str, u64)> {
    let always = !matches!(command, MailboxCommand::GetData | MailboxCommand::SetFeature);
    (always || value != 0).then_some((command.name(), value))
}

pub(super) fn posts(samples: &mut Samples<'_>, devices: &[Snapshot]) -> Result {
    for device in devices {
        let tallies = &device.posting.tallies;
        for band in Band::ALL {
            let results = [("empty", tallies.empty), ("error", tallies.error), ("ok", tallies.ok)];
            for (result, counts) in results {
                samples.put(
                    &[
                        ("device", &device.facts.device.number()),
                        ("band", &band.index()),
                        ("result", &result),
                    ],
                    counts[band.index()],
                )?;
            }
        }
    }
    Ok(())
}

pub(super) fn deferred(samples: &mut Samples<'_>, devices: &[Snapshot]) -> Result {
    each_name(samples, devices, "band", |device| {
        let [zero, one] = device.posting.tallies.deferred;
        [Some(("0", zero)), Some(("1", one))]
    })
}

pub(super) fn posted_bytes(samples: &mut Samples<'_>, devices: &[Snapshot]) -> Result {
    each_device(samples, devices, |device| device.posting.tallies.bytes)
}

pub(super) fn posting_paused(samples: &mut Samples<'_>, devices: &[Snapshot]) -> Result {
    each_device(samples, devices, |device| u8::from(device.posting.state == PostingState::Paused))
}

pub(super) fn events(samples: &mut Samples<'_>, devices: &[Snapshot]) -> Result {
    each_name(samples, devices, "kind", |device| {
        device.events.map(|(kind, count)| Some((kind.name(), count)))
    })
}

pub(super) fn events_overwritten(samples: &mut Samples<'_>, devices: &[Snapshot]) -> Result {
    each_device(samples, devices, |device| device.events_overwritten)
}

/// Trace events are counted for all devices together.
pub(super) fn trace_events(samples: &mut Samples<'_>, devices: &[Snapshot]) -> Result {
    let Some(first) = devices.first() else { return Ok(()) };
    let mut sums = first.traces.map(|(kind, _)| (kind.name(), 0_u64));
    for device in devices {
        for ((_, sum), (_, count)) in sums.iter_mut().zip(&device.traces) {
            *sum = sum.wrapping_add(*count);
        }
    }
    sums.sort_unstable();
    sums.iter().try_for_each(|(event, count)| samples.put(&[("event", event)], count))
}
