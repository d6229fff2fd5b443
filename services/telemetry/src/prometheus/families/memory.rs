//! Memory by core, category and location.

use core::fmt;

use axon_ports::telemetry::cell::GaugeReading;

use super::super::text::Samples;
use super::cores::{each_core, each_core_name};
use super::each_name;
use crate::{CoreSnapshot, MemoryCounter, Snapshot};

type Result = fmt::Result;

pub(super) fn core_host_used(samples: &mut Samples<'_>, devices: &[Snapshot]) -> Result {
    each_core(samples, devices, |core| core.memory(MemoryCounter::HOST).total)
}

pub(super) fn core_host_peak(samples: &mut Samples<'_>, devices: &[Snapshot]) -> Result {
    each_core(samples, devices, |core| core.memory(MemoryCounter::HOST).peak)
}

pub(super) fn core_device_used(samples: &mut Samples<'_>, devices: &[Snapshot]) -> Result {
    each_core(samples, devices, |core| core.memory(MemoryCounter::DEVICE).total)
}

pub(super) fn core_device_peak(samples: &mut Samples<'_>, devices: &[Snapshot]) -> Result {
    each_core(samples, devices, |core| core.memory(MemoryCounter::DEVICE).peak)
}

pub(super) fn core_category_used(samples: &mut Samples<'_>, devices: &[Snapshot]) -> Result {
    each_core_name(samples, devices, "category", |core| device_categories(core, |r| r.total))
}

pub(super) fn core_category_peak(samples: &mut Samples<'_>, devices: &[Snapshot]) -> Result {
    each_core_name(samples, devices, "category", |core| device_categories(core, |r| r.peak))
}

pub(super) fn host_category_used(samples: &mut Samples<'_>, devices: &[Snapshot]) -> Result {
    each_name(samples, devices, "category", |device| host_categories(device, |r| r.total))
}

pub(super) fn host_category_peak(samples: &mut Samples<'_>, devices: &[Snapshot]) -> Result {
    each_name(samples, devices, "category", |device| host_categories(device, |r| r.peak))
}

pub(super) fn draining(samples: &mut Samples<'_>, devices: &[Snapshot]) -> Result {
    each_name(samples, devices, "location", |device| by_location(device.draining))
}

pub(super) fn quarantined(samples: &mut Samples<'_>, devices: &[Snapshot]) -> Result {
    each_name(samples, devices, "location", |device| by_location(device.quarantined))
}

fn device_categories(
    core: &CoreSnapshot,
    figure: fn(GaugeReading) -> u64,
) -> [(&'static str, u64); 11] {
    let mut categories = MemoryCounter::device_categories();
    core::array::from_fn(|_| {
        let counter = categories.next().unwrap_or(MemoryCounter::DEVICE);
        (counter.leaf(), figure(core.memory(counter)))
    })
}

fn host_categories(
    device: &Snapshot,
    figure: fn(GaugeReading) -> u64,
) -> [Option<(&'static str, u64)>; 8] {
    let mut categories = MemoryCounter::host_categories();
    core::array::from_fn(|_| {
        let counter = categories.next()?;
        Some((counter.leaf(), figure(device.host_memory(counter))))
    })
}

fn by_location([host, device]: [u64; 2]) -> [Option<(&'static str, u64)>; 2] {
    [Some(("host", host)), Some(("device", device))]
}
