//! The families in the order of their names.

use core::fmt;

use super::text::Samples;
use crate::Snapshot;

mod clients;
mod cores;
mod device;
mod driver;
mod hardware;
mod memory;

use Kind::{Counter, Gauge, Histogram};

/// What a family is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Kind {
    Counter,
    Gauge,
    Histogram,
}

impl Kind {
    pub(super) const fn name(self) -> &'static str {
        match self {
            Kind::Counter => "counter",
            Kind::Gauge => "gauge",
            Kind::Histogram => "histogram",
        }
    }
}

/// One family.
pub(super) struct Family {
    pub name: &'static str,
    pub kind: Kind,
    pub help: &'static str,
    pub series: fn(&mut Samples<'_>, &[Snapshot]) -> fmt::Result,
}

const fn family(
    name: &'static str,
    kind: Kind,
    series: fn(&mut Samples<'_>, &[Snapshot]) -> fmt::Result,
    help: &'static str,
) -> Family {
    Family { name, kind, help, series }
}

/// All families, sorted by name.
pub(super) static FAMILIES: &[Family] = &[
    family("neuron_client_memory_used_bytes", Gauge, clients::memory, "Memory a client holds."),
    family("neuron_client_slots", Gauge, clients::slots, "Clients that can be attached."),
    family("neuron_clients", Gauge, clients::attached, "Clients that are attached."),
    family(
        "neuron_component_version_clients",
        Gauge,
        clients::versions,
        "Live clients by version of a component.",
    ),
    family("neuron_core_busy_seconds_total", Counter, cores::busy, "Time the core was in use."),
    family(
        "neuron_core_device_memory_category_peak_bytes",
        Gauge,
        memory::core_category_peak,
        "Most device memory of a category that was ever allocated.",
    ),
    family(
        "neuron_core_device_memory_category_used_bytes",
        Gauge,
        memory::core_category_used,
        "Device memory allocated by category.",
    ),
    family(
        "neuron_core_device_memory_peak_bytes",
        Gauge,
        memory::core_device_peak,
        "Most device memory that was ever allocated.",
    ),
    family(
        "neuron_core_device_memory_used_bytes",
        Gauge,
        memory::core_device_used,
        "Device memory allocated.",
    ),
    family(
        "neuron_core_execution_status_total",
        Counter,
        cores::execution_status,
        "Completed and failed executions by outcome.",
    ),
    family(
        "neuron_core_flops_total",
        Counter,
        cores::flops,
        "Floating-point operations, two for each multiply-accumulate.",
    ),
    family(
        "neuron_core_host_memory_peak_bytes",
        Gauge,
        memory::core_host_peak,
        "Most host memory that was ever allocated for the core.",
    ),
    family(
        "neuron_core_host_memory_used_bytes",
        Gauge,
        memory::core_host_used,
        "Host memory allocated for the core.",
    ),
    family("neuron_core_inferences_total", Counter, cores::inferences, "Inferences."),
    family("neuron_core_info", Gauge, cores::info, "Kind of the core."),
    family("neuron_core_model_loads_total", Counter, cores::model_loads, "Models loaded."),
    family(
        "neuron_core_pe_cycles_total",
        Counter,
        hardware::pe_cycles,
        "Cycles of the PE array by activity, as read last.",
    ),
    family(
        "neuron_core_reset_failures_total",
        Counter,
        cores::reset_failures,
        "Resets of the core that failed.",
    ),
    family(
        "neuron_core_reset_requests_total",
        Counter,
        cores::reset_requests,
        "Resets of the core that were asked for.",
    ),
    family(
        "neuron_core_runtime_errors_total",
        Counter,
        cores::runtime_errors,
        "Errors of the runtime that are no outcome of an execution.",
    ),
    family("neuron_device_info", Gauge, device::info, "Identity of the device."),
    family("neuron_device_ready", Gauge, device::ready, "Whether the device is usable."),
    family(
        "neuron_device_utilization_ratio",
        Gauge,
        device::utilization,
        "Share of their time that the cores were in use over the last post window.",
    ),
    family("neuron_driver_info", Gauge, driver::info, "Version of the driver."),
    family("neuron_feature_in_use", Gauge, clients::features, "Features that live clients use."),
    family(
        "neuron_fwio_errors_total",
        Counter,
        driver::mailbox_errors,
        "Answers of firmware with an error.",
    ),
    family(
        "neuron_fwio_requests_total",
        Counter,
        driver::mailbox_requests,
        "Requests to firmware.",
    ),
    family(
        "neuron_fwio_timeouts_total",
        Counter,
        driver::mailbox_timeouts,
        "Requests that firmware did not answer in time.",
    ),
    family(
        "neuron_hbm_ecc_corrected_errors_total",
        Counter,
        hardware::hbm_corrected,
        "HBM errors that were corrected.",
    ),
    family(
        "neuron_hbm_ecc_uncorrected_errors_total",
        Counter,
        hardware::hbm_uncorrected,
        "HBM errors that were not corrected.",
    ),
    family(
        "neuron_hbm_repair_state",
        Gauge,
        hardware::hbm_repair,
        "Repair of HBM: 0 none, 1 pending, 2 failed.",
    ),
    family(
        "neuron_host_memory_category_peak_bytes",
        Gauge,
        memory::host_category_peak,
        "Most host memory of a category that was ever allocated.",
    ),
    family(
        "neuron_host_memory_category_used_bytes",
        Gauge,
        memory::host_category_used,
        "Host memory allocated by category.",
    ),
    family(
        "neuron_log_records_overwritten_total",
        Counter,
        driver::events_overwritten,
        "Records of the event ring that were overwritten.",
    ),
    family(
        "neuron_log_records_total",
        Counter,
        driver::events,
        "Records written to the event ring.",
    ),
    family(
        "neuron_memory_draining_bytes",
        Gauge,
        memory::draining,
        "Memory that was freed and is still pinned.",
    ),
    family(
        "neuron_memory_quarantined_bytes",
        Gauge,
        memory::quarantined,
        "Memory that the hardware may still reach.",
    ),
    family(
        "neuron_metrics_posted_bytes_total",
        Counter,
        driver::posted_bytes,
        "Bytes of metrics that firmware took.",
    ),
    family(
        "neuron_metrics_posting_paused",
        Gauge,
        driver::posting_paused,
        "Whether periodic posting is paused.",
    ),
    family("neuron_metrics_posts_total", Counter, driver::posts, "Posts to firmware."),
    family(
        "neuron_metrics_records_deferred_total",
        Counter,
        driver::deferred,
        "Records that did not fit into a post.",
    ),
    family(
        "neuron_nq_overflows_total",
        Counter,
        device::queue_overflows,
        "Overflows of a notification queue.",
    ),
    family(
        "neuron_nq_queues_armed",
        Gauge,
        device::queues_armed,
        "Notification queues that are armed.",
    ),
    family(
        "neuron_nq_records_consumed_total",
        Counter,
        device::queue_records,
        "Records read from a notification queue.",
    ),
    family(
        "neuron_performance_profile",
        Gauge,
        device::profile,
        "Number of the current performance profile.",
    ),
    family(
        "neuron_power_utilization_ratio",
        Gauge,
        hardware::power,
        "Power drawn above idle as a share of the most, over the last window.",
    ),
    family(
        "neuron_power_window_end_timestamp_seconds",
        Gauge,
        hardware::power_window_end,
        "When the last power window ended.",
    ),
    family(
        "neuron_power_window_samples",
        Gauge,
        hardware::power_window_samples,
        "Samples of the last power window.",
    ),
    family("neuron_reset_duration_seconds", Histogram, device::reset_duration, "Time resets took."),
    family("neuron_reset_failures_total", Counter, device::reset_failures, "Resets that failed."),
    family(
        "neuron_sram_ecc_corrected_errors_total",
        Counter,
        hardware::sram_corrected,
        "On-chip memory errors that were corrected.",
    ),
    family(
        "neuron_sram_ecc_uncorrected_errors_total",
        Counter,
        hardware::sram_uncorrected,
        "On-chip memory errors that were not corrected.",
    ),
    family("neuron_trace_events_total", Counter, driver::trace_events, "Trace events kept."),
];

/// One series for each device.
fn each_device<V: fmt::Display>(
    samples: &mut Samples<'_>,
    devices: &[Snapshot],
    value: impl Fn(&Snapshot) -> V,
) -> fmt::Result {
    each_device_that(samples, devices, |device| Some(value(device)))
}

/// One series for each device that has a value.
fn each_device_that<V: fmt::Display>(
    samples: &mut Samples<'_>,
    devices: &[Snapshot],
    value: impl Fn(&Snapshot) -> Option<V>,
) -> fmt::Result {
    for device in devices {
        if let Some(value) = value(device) {
            samples.put(&[("device", &device.facts.device.number())], value)?;
        }
    }
    Ok(())
}

/// One series for each device and name, sorted by name.
fn each_name<const N: usize>(
    samples: &mut Samples<'_>,
    devices: &[Snapshot],
    label: &str,
    values: impl Fn(&Snapshot) -> [Option<(&'static str, u64)>; N],
) -> fmt::Result {
    for device in devices {
        let mut values = values(device);
        values.sort_unstable();
        for (name, value) in values.into_iter().flatten() {
            samples.put(&[("device", &device.facts.device.number()), (label, &name)], value)?;
        }
    }
    Ok(())
}
