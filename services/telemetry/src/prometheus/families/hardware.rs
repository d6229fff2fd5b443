//! Live hardware sources as they were read last. What could not be read is absent.

use core::fmt;

use super::super::text::{Decimal, Samples};
use super::{each_device, each_device_that};
use crate::{EccCount, PowerStatus, Snapshot};

type Result = fmt::Result;

pub(super) fn sram_uncorrected(samples: &mut Samples<'_>, devices: &[Snapshot]) -> Result {
    each_device_that(samples, devices, |device| Some(device.readings.ecc.sram?.uncorrected))
}

pub(super) fn sram_corrected(samples: &mut Samples<'_>, devices: &[Snapshot]) -> Result {
    each_device_that(samples, devices, |device| Some(device.readings.ecc.sram?.corrected))
}

pub(super) fn hbm_uncorrected(samples: &mut Samples<'_>, devices: &[Snapshot]) -> Result {
    each_channel(samples, devices, |count| count.uncorrected)
}

pub(super) fn hbm_corrected(samples: &mut Samples<'_>, devices: &[Snapshot]) -> Result {
    each_channel(samples, devices, |count| count.corrected)
}

fn each_channel(
    samples: &mut Samples<'_>,
    devices: &[Snapshot],
    figure: fn(EccCount) -> u16,
) -> Result {
    for device in devices {
        for (channel, count) in device.readings.ecc.hbm.iter().enumerate() {
            if let Some(count) = count {
                samples.put(
                    &[("device", &device.facts.device.number()), ("channel", &channel)],
                    figure(*count),
                )?;
            }
        }
    }
    Ok(())
}

pub(super) fn hbm_repair(samples: &mut Samples<'_>, devices: &[Snapshot]) -> Result {
    each_device_that(samples, devices, |device| device.readings.ecc.repair_state)
}

pub(super) fn power(samples: &mut Samples<'_>, devices: &[Snapshot]) -> Result {
    for device in devices {
        let window = &device.power;
        if window.status != PowerStatus::Valid {
            continue;
        }
        for (stat, figure) in [("avg", window.average), ("max", window.max), ("min", window.min)] {
            samples.put(
                &[("device", &device.facts.device.number()), ("stat", &stat)],
                Decimal { units: figure.into(), places: 4 },
            )?;
        }
    }
    Ok(())
}

pub(super) fn power_window_samples(samples: &mut Samples<'_>, devices: &[Snapshot]) -> Result {
    each_device(samples, devices, |device| device.power.samples)
}

pub(super) fn power_window_end(samples: &mut Samples<'_>, devices: &[Snapshot]) -> Result {
    each_device(samples, devices, |device| device.power.ended.as_secs())
}

pub(super) fn pe_cycles(samples: &mut Samples<'_>, devices: &[Snapshot]) -> Result {
    for device in devices {
        for core in &device.cores {
            let rows = device.readings.pe.get(core.core.index()).and_then(Option::as_ref);
            for (row_group, row) in rows.into_iter().flatten().enumerate() {
                for (activity, cycles) in
                    [("idle", row.idle), ("matmul", row.matmul), ("weight_load", row.weight_load)]
                {
                    samples.put(
                        &[
                            ("device", &device.facts.device.number()),
                            ("core", &core.core.number()),
                            ("row_group", &row_group),
                            ("activity", &activity),
                        ],
                        cycles,
                    )?;
                }
            }
        }
    }
    Ok(())
}
