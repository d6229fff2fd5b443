//! Clients: how many, what they hold, what they run.

use core::fmt;

use axon_ports::ClientSlot;

use super::super::text::Samples;
use super::each_device;
use crate::Snapshot;
use crate::posting::Version;

pub(super) fn slots(samples: &mut Samples<'_>, devices: &[Snapshot]) -> fmt::Result {
    each_device(samples, devices, |_| ClientSlot::COUNT)
}

pub(super) fn attached(samples: &mut Samples<'_>, devices: &[Snapshot]) -> fmt::Result {
    each_device(samples, devices, |device| device.clients.len())
}

pub(super) fn memory(samples: &mut Samples<'_>, devices: &[Snapshot]) -> fmt::Result {
    for device in devices {
        for held in &device.clients {
            for (location, bytes) in [("device", held.device_bytes), ("host", held.host_bytes)] {
                samples.put(
                    &[
                        ("device", &device.facts.device.number()),
                        ("client", &held.client.number()),
                        ("location", &location),
                    ],
                    bytes,
                )?;
            }
        }
    }
    Ok(())
}

pub(super) fn versions(samples: &mut Samples<'_>, devices: &[Snapshot]) -> fmt::Result {
    for device in devices {
        for version in &device.versions {
            samples.put(
                &[
                    ("device", &device.facts.device.number()),
                    ("component", &version.component),
                    ("version", &Version(version.word)),
                ],
                version.clients,
            )?;
        }
    }
    Ok(())
}

pub(super) fn features(samples: &mut Samples<'_>, devices: &[Snapshot]) -> fmt::Result {
    for device in devices {
        for bit in (0..64_u32).filter(|bit| device.features & 1 << bit != 0) {
            samples.put(&[("device", &device.facts.device.number()), ("bit", &bit)], 1)?;
        }
    }
    Ok(())
}
