//! How a time is taken, and what becomes of it.

use std::collections::BTreeMap;
use std::time::Instant;

use serde_json::{Value, json};

/// Runs whose median counts.
const RUNS: usize = 15;

/// Median nanoseconds of one operation, from runs of `operations` of them.
pub fn median(operations: usize, mut run: impl FnMut()) -> f64 {
    let [took] = medians(operations, [&mut run]);
    took
}

/// As [`median`], for several that are compared: they take turns, so that whatever the machine does
/// meanwhile befalls all of them. Each runs once untimed right before it is timed: the caches are its
/// own then, not those of whoever ran in between.
pub fn medians<const N: usize>(operations: usize, mut runs: [&mut dyn FnMut(); N]) -> [f64; N] {
    let mut took: [Vec<f64>; N] = std::array::from_fn(|_| Vec::with_capacity(RUNS));
    for _ in 0..RUNS {
        for (run, took) in runs.iter_mut().zip(&mut took) {
            run();
            let started = Instant::now();
            run();
            took.push(started.elapsed().as_nanos() as f64 / operations as f64);
        }
    }
    took.map(|mut took| {
        took.sort_unstable_by(f64::total_cmp);
        took[RUNS / 2]
    })
}

/// One row of the comparison.
pub struct Row {
    /// What was done.
    pub what: String,
    /// With so many chunks there.
    pub live: usize,
    /// Ours, in nanoseconds.
    pub ours: f64,
    /// Ours through the service's channel.
    pub channel: Option<f64>,
    /// Others, by name.
    pub peers: BTreeMap<&'static str, f64>,
}

impl Row {
    /// As it stands in the report. `ratio` is how many times as fast ours is as the fastest other.
    pub fn json(&self) -> Value {
        let fastest = self.peers.values().copied().reduce(f64::min);
        let peers: serde_json::Map<String, Value> =
            self.peers.iter().map(|(name, took)| (name.to_string(), tenth(*took))).collect();
        json!({
            "what": self.what,
            "live_chunks": self.live,
            "ours_ns": tenth(self.ours),
            "channel_ns": self.channel.map(tenth),
            "peers": peers,
            "ratio": fastest.map(|fastest| (fastest / self.ours * 100.0).round() / 100.0),
        })
    }
}

fn tenth(value: f64) -> Value {
    json!((value * 10.0).round() / 10.0)
}
