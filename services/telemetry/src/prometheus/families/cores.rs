//! Cores: what clients counted, resets.

use core::fmt;

use super::super::text::{Decimal, Samples};
use crate::{CoreCounter, CoreSnapshot, STATUS_LEAVES, Snapshot};

type Result = fmt::Result;

/// One series for each core.
pub(super) fn each_core<V: fmt::Display>(
    samples: &mut Samples<'_>,
    devices: &[Snapshot],
    value: impl Fn(&CoreSnapshot) -> V,
) -> Result {
    for device in devices {
        for core in &device.cores {
            samples.put(
                &[("device", &device.facts.device.number()), ("core", &core.core.number())],
                value(core),
            )?;
        }
    }
    Ok(())
}

/// One series for each core and name, sorted by name.
pub(super) fn each_core_name<const N: usize>(
    samples: &mut Samples<'_>,
    devices: &[Snapshot],
    label: &str,
    values: impl Fn(&CoreSnapshot) -> [(&'static str, u64); N],
) -> Result {
    for device in devices {
        for core in &device.cores {
            let mut values = values(core);
            values.sort_unstable();
            for (name, value) in values {
                samples.put(
                    &[
                        ("device", &device.facts.device.number()),
                        ("core", &core.core.number()),
                        (label, &name),
                    ],
                    value,
                )?;
            }
        }
    }
    Ok(())
}

pub(super) fn info(samples: &mut Samples<'_>, devices: &[Snapshot]) -> Result {
    for device in devices {
        for core in &device.cores {
            samples.put(
                &[
                    ("device", &device.facts.device.number()),
                    ("core", &core.core.number()),
                    ("arch", &format_args!("NC{}", device.facts.names.core_type)),
                ],
                1,
            )?;
        }
    }
    Ok(())
}

pub(super) fn execution_status(samples: &mut Samples<'_>, devices: &[Snapshot]) -> Result {
    each_core_name(samples, devices, "status", |core| {
        STATUS_LEAVES.map(|(leaf, counter)| (leaf, core.total(counter)))
    })
}

pub(super) fn runtime_errors(samples: &mut Samples<'_>, devices: &[Snapshot]) -> Result {
    each_core_name(samples, devices, "error", |core| {
        [
            ("numerical", CoreCounter::ERR_NUMERICAL),
            ("model", CoreCounter::ERR_MODEL),
            ("transient", CoreCounter::ERR_TRANSIENT),
            ("rt", CoreCounter::ERR_RT),
        ]
        .map(|(name, counter)| (name, core.total(counter)))
    })
}

pub(super) fn model_loads(samples: &mut Samples<'_>, devices: &[Snapshot]) -> Result {
    each_core(samples, devices, |core| core.total(CoreCounter::MODEL_LOAD_COUNT))
}

pub(super) fn inferences(samples: &mut Samples<'_>, devices: &[Snapshot]) -> Result {
    each_core(samples, devices, |core| core.total(CoreCounter::INFERENCE_COUNT))
}

pub(super) fn flops(samples: &mut Samples<'_>, devices: &[Snapshot]) -> Result {
    each_core(samples, devices, |core| 2 * u128::from(core.total(CoreCounter::MAC_COUNT)))
}

/// Clients count picoseconds.
pub(super) fn busy(samples: &mut Samples<'_>, devices: &[Snapshot]) -> Result {
    each_core(samples, devices, |core| Decimal {
        units: core.total(CoreCounter::TIME_IN_USE),
        places: 12,
    })
}

pub(super) fn reset_requests(samples: &mut Samples<'_>, devices: &[Snapshot]) -> Result {
    each_core(samples, devices, |core| core.reset_requests)
}

pub(super) fn reset_failures(samples: &mut Samples<'_>, devices: &[Snapshot]) -> Result {
    each_core(samples, devices, |core| core.reset_failures)
}
