//! The metric tree of the Linux driver as a view on a snapshot (specification 07 §9, §16.3).
//!
//! Every file has the text it has there, with three differences: counters include live clients,
//! nothing but `notify_delay` can be written, and what cannot be read now is empty.

use alloc::string::String;
use core::fmt::{self, Display, Write};

use axon_platform::Platform;
use axon_ports::telemetry::cell::GaugeReading;
use core::sync::atomic::Ordering;

use crate::sensors::PeText;
use crate::{
    CoreCounter, CoreSnapshot, CoreTotal, DeviceSensors, Error, MemoryCounter, STATUS_LEAVES,
    Snapshot, Telemetry,
};

/// Where Linux mounts the tree; may be left out of a path.
const ROOT: &str = "/sys/class/neuron_device/";

/// 16 hex digits, or nothing.
pub(crate) struct Serial(pub Option<u64>);

impl Display for Serial {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.map_or(Ok(()), |serial| write!(f, "{serial:016x}"))
    }
}

/// Gets path and text of every file.
pub type TreeVisitor<'a> = &'a mut dyn FnMut(&str, &dyn Display);

impl Snapshot {
    /// Hands every file of the device to `each`, in the order of the tree.
    pub fn walk_tree(&self, each: TreeVisitor<'_>) {
        let mut walk = Walk { path: String::new(), each };
        for (name, text) in &self.class_files {
            walk.line(name, text);
        }
        walk.directory(format_args!("neuron{}", self.facts.device.number()), |walk| {
            self.device_files(walk);
            for core in &self.cores {
                walk.directory(format_args!("neuron_core{}", core.core.number()), |walk| {
                    self.core_files(core, walk);
                });
            }
        });
    }

    /// Writes the text of one file, for example `neuron0/neuron_core1/stats/status/success/total`.
    ///
    /// # Errors
    /// [`Error::NoSuchPath`].
    pub fn legacy_read(&self, path: &str, sink: &mut dyn Write) -> Result<(), Error> {
        let path = path.strip_prefix(ROOT).unwrap_or(path);
        let mut found = Err(Error::NoSuchPath);
        self.walk_tree(&mut |here, text| {
            if here == path {
                found = write!(sink, "{text}").map_err(|_| Error::NoRoom);
            }
        });
        found
    }

    fn device_files(&self, walk: &mut Walk<'_>) {
        let names = self.facts.names;
        walk.file("reset", format_args!("{}\n", self.state as u8));
        walk.file("core_count", self.facts.cores_per_device);
        match self.readings.api_version {
            Some(version) => walk.file("fw_api_version", version),
            None => walk.file("fw_api_version", "busy"),
        }
        walk.file("connected_devices", Neighbours(self));
        walk.directory("info", |walk| {
            walk.line("notify_delay", if self.notifies { "0" } else { "-1" });
            walk.line("serial_number", Serial(self.readings.serial));
            walk.directory("architecture", |walk| {
                walk.line("arch_type", format_args!("ND{}", names.device_type));
                walk.line("instance_type", names.instance);
                walk.line("device_name", names.device);
            });
        });
        walk.directory("stats", |walk| {
            walk.directory("memory_usage", |walk| {
                walk.directory("host_mem", |walk| {
                    for counter in MemoryCounter::host_categories() {
                        walk.gauge(counter.leaf(), self.host_memory(counter), |_| ());
                    }
                });
            });
            let ecc = &self.readings.ecc;
            let (hbm, _) = ecc.hbm_errors(self.facts.knows_repair);
            walk.directory("hardware", |walk| {
                walk.line("sram_ecc_uncorrected", ecc.sram_uncorrected());
                walk.line("mem_ecc_uncorrected", hbm.other);
                walk.line("mem_ecc_repairable_uncorrected", hbm.repairable);
            });
            walk.directory("power", |walk| walk.line("utilization", self.power));
        });
    }

    fn core_files(&self, core: &CoreSnapshot, walk: &mut Walk<'_>) {
        let cell = |counter: CoreCounter| {
            core.totals.get(counter.number() as usize).copied().unwrap_or_default()
        };
        walk.directory("stats", |walk| {
            walk.directory("status", |walk| {
                for (leaf, counter) in STATUS_LEAVES {
                    walk.counter(leaf, cell(counter));
                }
            });
            walk.directory("memory_usage", |walk| {
                walk.gauge("host_mem", core.memory(MemoryCounter::HOST), |_| ());
                walk.gauge("device_mem", core.memory(MemoryCounter::DEVICE), |walk| {
                    for counter in MemoryCounter::device_categories() {
                        walk.gauge(counter.leaf(), core.memory(counter), |_| ());
                    }
                });
            });
            walk.directory("other_info", |walk| {
                let steps = |total: u64| CoreTotal { total, present: total.min(1) };
                let macs = cell(CoreCounter::MAC_COUNT);
                let flops = CoreTotal {
                    total: macs.total.wrapping_mul(2),
                    present: macs.present.wrapping_mul(2),
                };
                walk.counter("model_load_count", cell(CoreCounter::MODEL_LOAD_COUNT));
                walk.counter("reset_req_count", steps(core.reset_requests));
                walk.counter("reset_fail_count", steps(core.reset_failures));
                walk.counter("inference_count", cell(CoreCounter::INFERENCE_COUNT));
                walk.counter("flop_count", flops);
                walk.counter("nc_time_in_use", cell(CoreCounter::TIME_IN_USE));
            });
            walk.directory("tensor_engine", |walk| {
                let rows = self.readings.pe.get(core.core.index()).and_then(Option::as_ref);
                match rows {
                    Some(rows) => walk.file("pe_cntrs", PeText(rows)),
                    None => walk.file("pe_cntrs", ""),
                }
            });
        });
        walk.directory("info/architecture", |walk| {
            walk.line("arch_type", format_args!("NC{}", self.facts.names.core_type));
        });
    }
}

impl<P: Platform, D: DeviceSensors> Telemetry<P, D> {
    /// Writes a file of the tree: `notify_delay` takes "0" and "-1", which switch
    /// [`Telemetry::changed`] on and off.
    ///
    /// # Errors
    /// [`Error::Invalid`] for another text, [`Error::ReadOnly`] for any other file.
    pub fn legacy_write(&self, path: &str, text: &str) -> Result<(), Error> {
        let path = path.strip_prefix(ROOT).unwrap_or(path);
        let device = self.0.facts.device.number();
        let inside = path.strip_prefix("neuron").and_then(|rest| rest.split_once('/'));
        if inside != Some((alloc::format!("{device}").as_str(), "info/notify_delay")) {
            return Err(Error::ReadOnly);
        }
        let on = match text.trim_end() {
            "0" => true,
            "-1" => false,
            other => {
                return Err(Error::Invalid { what: "notify_delay", value: other.len() as u64 });
            }
        };
        self.0.notifies.store(on, Ordering::Relaxed);
        Ok(())
    }
}

struct Neighbours<'a>(&'a Snapshot);

impl Display for Neighbours<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (at, neighbour) in self.0.neighbours.iter().enumerate() {
            write!(f, "{}{}", if at == 0 { "" } else { ", " }, neighbour.number())?;
        }
        f.write_char('\n')
    }
}

/// Where a walk stands.
struct Walk<'a> {
    path: String,
    each: TreeVisitor<'a>,
}

impl Walk<'_> {
    fn directory(&mut self, name: impl Display, inside: impl FnOnce(&mut Self)) {
        let end = self.path.len();
        let _ = write!(self.path, "{name}/");
        inside(self);
        self.path.truncate(end);
    }

    fn file(&mut self, name: &str, text: impl Display) {
        let end = self.path.len();
        self.path.push_str(name);
        (self.each)(&self.path, &text);
        self.path.truncate(end);
    }

    fn line(&mut self, name: &str, text: impl Display) {
        self.file(name, format_args!("{text}\n"));
    }

    fn counter(&mut self, leaf: &str, cell: CoreTotal) {
        self.directory(leaf, |walk| {
            walk.line("total", cell.total);
            walk.line("present", cell.present);
        });
    }

    fn gauge(&mut self, leaf: &str, cell: GaugeReading, below: impl FnOnce(&mut Self)) {
        self.directory(leaf, |walk| {
            walk.line("total", cell.total);
            walk.line("present", cell.present);
            walk.line("peak", cell.peak);
            below(walk);
        });
    }
}

#[cfg(test)]
mod tests;
