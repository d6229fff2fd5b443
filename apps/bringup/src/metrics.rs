//! The metrics of the report: what the driver counted, under the names of `metrics`.
//!
//! Each is the sum over devices and cores; what tells series of a family apart otherwise stays in
//! the name: `neuron_fwio_requests_total{command="read"}`.

use alloc::collections::BTreeMap;
use alloc::format;
use alloc::string::{String, ToString};
use core::fmt;
use core::time::Duration;

use axon::metrics::Snapshot;
use axon::metrics::prometheus::Exposition;
use axon::{Device, Error};
use axon_platform::Platform;
use embassy_futures::select::select;

/// Metrics by name.
pub type Metrics = BTreeMap<String, u64>;

/// Time that firmware gets to take a post.
const POST: Duration = Duration::from_secs(2);

/// Adds what became of one device. Firmware is posted to first; that it stays silent is no error,
/// but among the metrics.
///
/// # Errors
/// [`Error::NoRecords`] for want of memory.
pub async fn collect<P: Platform>(
    platform: &P,
    device: &Device<P>,
    metrics: &mut Metrics,
) -> Result<(), Error> {
    let counters = device.counters();
    for (name, value) in [
        ("dma_batches", counters.batches),
        ("dma_bytes", counters.bytes),
        ("dma_descriptors", counters.descriptors),
        ("dma_doorbells", counters.doorbells),
        ("dma_register_reads", counters.register_reads),
        ("dma_timeouts", counters.timeouts),
    ] {
        add(metrics, name.to_string(), value);
    }
    let Ok(telemetry) = device.telemetry() else { return Ok(()) };
    select(telemetry.post_now(), platform.sleep(POST)).await;
    telemetry.refresh().await;
    let snapshot = telemetry.snapshot()?;
    add_families(&[snapshot], metrics);
    Ok(())
}

fn add_families(snapshots: &[Snapshot], metrics: &mut Metrics) {
    let mut lines = Lines { line: String::new(), metrics };
    // The sink takes everything.
    let _ = Exposition::new(snapshots).render(&mut lines);
}

fn add(metrics: &mut Metrics, name: String, value: u64) {
    *metrics.entry(name).or_default() += value;
}

/// Takes an exposition apart, line by line.
struct Lines<'a> {
    line: String,
    metrics: &'a mut Metrics,
}

impl fmt::Write for Lines<'_> {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        let mut pieces = text.split('\n');
        self.line.push_str(pieces.next().unwrap_or_default());
        for piece in pieces {
            if let Some((name, value)) = sample(&self.line) {
                add(self.metrics, name, value);
            }
            self.line.clear();
            self.line.push_str(piece);
        }
        Ok(())
    }
}

/// Name and value of a sample; `None` for comments, for what is no whole number, and for identities.
fn sample(line: &str) -> Option<(String, u64)> {
    if line.starts_with('#') {
        return None;
    }
    let (series, value) = line.rsplit_once(' ')?;
    let value = value.parse().ok()?;
    let (family, labels) = match series.split_once('{') {
        Some((family, labels)) => (family, labels.strip_suffix('}')?),
        None => (series, ""),
    };
    if family.ends_with("_info") {
        return None;
    }
    let place = |label: &&str| label.starts_with("device=") || label.starts_with("core=");
    let kept: alloc::vec::Vec<&str> =
        labels.split(',').filter(|label| !label.is_empty() && !place(label)).collect();
    Some(match kept.as_slice() {
        [] => (family.to_string(), value),
        kept => (format!("{family}{{{}}}", kept.join(",")), value),
    })
}

#[cfg(test)]
mod tests {
    use core::fmt::Write;

    use super::*;

    #[test]
    fn series_are_added_up_over_devices_and_cores() {
        let mut metrics = Metrics::new();
        let mut lines = Lines { line: String::new(), metrics: &mut metrics };
        let text = "# HELP a b\n# TYPE a counter\na{device=\"0\",core=\"0\",kind=\"x\"} 3\n\
                    a{device=\"0\",core=\"1\",kind=\"x\"} 4\na{device=\"1\",kind=\"y\"} 5\nb 1\n\
                    c{device=\"0\"} 0.5\nd_info{device=\"0\",serial=\"9\"} 1\n";
        // In pieces, as a renderer writes.
        text.as_bytes().chunks(7).for_each(|piece| {
            lines.write_str(core::str::from_utf8(piece).unwrap()).unwrap();
        });
        let expected = [("a{kind=\"x\"}", 7), ("a{kind=\"y\"}", 5), ("b", 1)];
        assert!(metrics.iter().map(|(name, value)| (name.as_str(), *value)).eq(expected));
    }
}
