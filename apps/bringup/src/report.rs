//! The report: one line of JSON that a launcher or a test reads.
//!
//! The launcher adds what the emulated functions saw (`model`) and writes the file.

use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;

use axon_platform::Platform;
use serde::Serialize;

use crate::metrics::Metrics;

/// Start of the line that carries the report.
pub const MARK: &str = "axon-report: ";

/// Everything the program found out.
#[derive(Serialize, Default)]
pub struct Report {
    /// Every device READY and every byte as it has to be.
    pub ok: bool,
    /// What starting took; absent where nothing boots.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub boot: Option<Boot>,
    /// Every Neuron function, refused ones included, in bus order.
    pub devices: Vec<DeviceRow>,
    /// Every copy that was checked.
    pub copies: Vec<CopyRow>,
    /// What the driver counted, by name, added up over devices and cores.
    pub metrics: Metrics,
}

/// What it took to start.
#[derive(Serialize)]
pub struct Boot {
    /// Instructions from the entry point to the application, where the counter counts those.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub entry_to_main_instructions: Option<u64>,
    /// Time from the entry point to the application.
    pub entry_to_main_ns: u64,
    /// Time the processor was halted.
    pub halted: u64,
    /// Instructions from the entry point until every device was READY, INVALID or refused, where
    /// the counter counts those; what passed while the processor was halted is not among them.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub entry_to_ready_instructions: Option<u64>,
    /// Time the processor was halted until then.
    pub ready_halted: u64,
    /// Bytes of the image that are loaded.
    pub image_bytes: u64,
}

/// One Neuron function.
#[derive(Serialize)]
pub struct DeviceRow {
    /// Where it sits.
    pub bdf: String,
    /// Vendor and device id.
    pub pci_id: String,
    /// `V2`, `V3`, `V4`; null for an unknown id.
    pub generation: Option<String>,
    /// Device number; null where it was refused.
    pub index: Option<u32>,
    /// `READY`, `RESET` or `INVALID`.
    pub state: &'static str,
    /// From the start of its bring-up until it was settled.
    pub bringup_ns: u64,
    /// Why it is not READY.
    pub error: Option<String>,
}

/// One checked copy.
#[derive(Serialize, Clone, PartialEq, Eq, Debug)]
pub struct CopyRow {
    /// Device number.
    pub device: u32,
    /// Core whose ring served it.
    pub core: u32,
    /// `h2d`, `d2d`, `d2h`, `memset`.
    pub kind: &'static str,
    /// Bytes moved.
    pub bytes: u64,
    /// Every byte arrived and none beside them changed.
    pub verified: bool,
    /// Doorbell writes, by the driver's own count.
    pub doorbells: u64,
    /// Register reads, by the driver's own count.
    pub register_reads: u64,
    /// Descriptors of one side of the queue, the marker's included.
    pub descriptors: u64,
}

impl Boot {
    /// What the machine says of its start.
    pub fn of(platform: &impl Platform) -> Option<Boot> {
        let stats = platform.boot_stats()?;
        let counted = platform.arguments().iter().any(|word| word == "unit=instructions");
        Some(Boot {
            entry_to_main_instructions: counted.then_some(stats.entry_to_main_cycles),
            entry_to_main_ns: stats.entry_to_main.as_nanos() as u64,
            halted: stats.halted.as_nanos() as u64,
            entry_to_ready_instructions: None,
            ready_halted: 0,
            image_bytes: stats.image_bytes,
        })
    }

    /// Notes that every device is settled now.
    pub fn settled(&mut self, platform: &impl Platform) {
        let Some(stats) = platform.boot_stats() else { return };
        let counted = self.entry_to_main_instructions.is_some();
        self.entry_to_ready_instructions = counted.then_some(stats.busy_cycles);
        self.ready_halted = stats.halted.as_nanos() as u64;
    }
}

impl Report {
    /// The whole line, without its end.
    pub fn line(&self) -> String {
        // Structs, strings and numbers: nothing that JSON cannot say.
        let json = serde_json::to_string(self).unwrap_or_else(|_| "{\"ok\":false}".into());
        format!("{MARK}{json}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_keys_are_those_a_launcher_looks_for() {
        let report = Report {
            devices: [DeviceRow {
                bdf: "00:01.0".into(),
                pci_id: "1d0f:7164".into(),
                generation: Some("V2".into()),
                index: Some(0),
                state: "READY",
                bringup_ns: 5,
                error: None,
            }]
            .into(),
            copies: [CopyRow {
                device: 0,
                core: 1,
                kind: "h2d",
                bytes: 4096,
                verified: true,
                doorbells: 2,
                register_reads: 0,
                descriptors: 2,
            }]
            .into(),
            ..Report::default()
        };
        assert_eq!(
            report.line(),
            "axon-report: {\"ok\":false,\"devices\":[{\"bdf\":\"00:01.0\",\"pci_id\":\"1d0f:7164\",\
             \"generation\":\"V2\",\"index\":0,\"state\":\"READY\",\"bringup_ns\":5,\
             \"error\":null}],\"copies\":[{\"device\":0,\"core\":1,\"kind\":\"h2d\",\
             \"bytes\":4096,\"verified\":true,\"doorbells\":2,\"register_reads\":0,\
             \"descriptors\":2}],\"metrics\":{}}"
        );
    }
}
