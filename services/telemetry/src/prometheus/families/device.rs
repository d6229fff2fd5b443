//! The device as a whole: identity, state, resets, queues.

use core::fmt;

use axon_ports::reset::DeviceState;
use axon_ports::telemetry::counters::RESET_BUCKETS_MS;

use super::super::text::{Decimal, Samples};
use super::{each_device, each_device_that, each_name};
use crate::snapshot::ResetSnapshot;
use crate::tree::Serial;
use crate::{QueueSnapshot, Snapshot};

type Result = fmt::Result;

pub(super) fn info(samples: &mut Samples<'_>, devices: &[Snapshot]) -> Result {
    for device in devices {
        let names = device.facts.names;
        samples.put(
            &[
                ("device", &device.facts.device.number()),
                ("arch", &format_args!("ND{}", names.device_type)),
                ("instance_type", &names.instance),
                ("device_name", &names.device),
                ("serial_number", &Serial(device.readings.serial)),
            ],
            1,
        )?;
    }
    Ok(())
}

pub(super) fn ready(samples: &mut Samples<'_>, devices: &[Snapshot]) -> Result {
    each_device(samples, devices, |device| u8::from(device.state == DeviceState::Ready))
}

pub(super) fn utilization(samples: &mut Samples<'_>, devices: &[Snapshot]) -> Result {
    each_device_that(samples, devices, |device| {
        Some(Decimal { units: device.utilisation_ppm?, places: 6 })
    })
}

pub(super) fn profile(samples: &mut Samples<'_>, devices: &[Snapshot]) -> Result {
    each_device(samples, devices, |device| device.profile)
}

pub(super) fn reset_failures(samples: &mut Samples<'_>, devices: &[Snapshot]) -> Result {
    each_name(samples, devices, "scope", |device| {
        let [of_device, of_core] = &device.resets;
        [Some(("device", of_device.failures)), Some(("core", of_core.failures))]
    })
}

pub(super) fn reset_duration(samples: &mut Samples<'_>, devices: &[Snapshot]) -> Result {
    for device in devices {
        let [of_device, of_core] = &device.resets;
        for (scope, times) in [("core", of_core), ("device", of_device)] {
            histogram(samples, device.facts.device.number(), scope, times)?;
        }
    }
    Ok(())
}

fn histogram(samples: &mut Samples<'_>, device: u32, scope: &str, times: &ResetSnapshot) -> Result {
    let mut count = 0;
    let bounds = RESET_BUCKETS_MS.iter().map(|bound| Some(Decimal { units: *bound, places: 3 }));
    for (bound, bucket) in bounds.chain([None]).zip(times.buckets) {
        count += bucket;
        let bound: &dyn fmt::Display = match &bound {
            Some(bound) => bound,
            None => &"+Inf",
        };
        let labels: &[(&str, &dyn fmt::Display)] =
            &[("device", &device), ("scope", &scope), ("le", bound)];
        samples.put_part("_bucket", labels, count)?;
    }
    let labels: &[(&str, &dyn fmt::Display)] = &[("device", &device), ("scope", &scope)];
    samples.put_part("_sum", labels, Decimal { units: times.sum_ns, places: 9 })?;
    samples.put_part("_count", labels, count)
}

pub(super) fn queues_armed(samples: &mut Samples<'_>, devices: &[Snapshot]) -> Result {
    each_device(samples, devices, |device| device.queues_armed)
}

pub(super) fn queue_records(samples: &mut Samples<'_>, devices: &[Snapshot]) -> Result {
    each_queue(samples, devices, |queue| queue.consumed)
}

pub(super) fn queue_overflows(samples: &mut Samples<'_>, devices: &[Snapshot]) -> Result {
    each_queue(samples, devices, |queue| queue.overflows)
}

fn each_queue(
    samples: &mut Samples<'_>,
    devices: &[Snapshot],
    value: impl Fn(&QueueSnapshot) -> u64,
) -> Result {
    for device in devices {
        for queue in &device.queues {
            samples.put(
                &[
                    ("device", &device.facts.device.number()),
                    ("block", &queue.block),
                    ("queue", &queue.queue),
                ],
                value(queue),
            )?;
        }
    }
    Ok(())
}
