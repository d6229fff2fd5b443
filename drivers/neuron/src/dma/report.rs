//! What an engine says about itself when a batch did not end (specification 02 §10, UDMA-D04).

use core::fmt;

/// State and cause registers of an engine, read after a timeout or an abort.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct EngineReport {
    /// `state` of the source side (M2S).
    pub m2s_state: u32,
    /// `state` of the destination side (S2M).
    pub s2m_state: u32,
    /// Latched causes of the source side (secondary group A).
    pub m2s_causes: u32,
    /// Latched causes of the destination side (secondary group B).
    pub s2m_causes: u32,
    /// Latched parity causes of both (secondary group C).
    pub parity_causes: u32,
    /// Descriptor that failed on the source side, as logged.
    pub m2s_log: [u32; 4],
    /// Descriptor that failed on the destination side, as logged.
    pub s2m_log: [u32; 4],
}

/// How far a queue came with a batch that did not end, by its pointers to what is executed (02 §3.4,
/// +0x40).
// assumed: they are good enough to name a descriptor; nothing is decided by them.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Stop {
    /// The pointers say nothing that can be.
    #[default]
    Unknown,
    /// All that comes before this descriptor was executed.
    At {
        /// Its number in the batch, from 0; that of the marker is the number of data descriptors.
        descriptor: u32,
        /// Its number in the ring.
        slot: u32,
        /// The engine has logged this very descriptor as the one that failed.
        is_logged: bool,
    },
    /// Every descriptor was executed: the marker is what is missing.
    Executed,
}

impl fmt::Display for Stop {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Stop::Unknown => f.write_str("descriptor unknown"),
            Stop::Executed => f.write_str("all were executed, the marker is missing"),
            Stop::At { descriptor, slot, is_logged } => {
                let where_ = if is_logged { "at" } else { "at or behind" };
                write!(f, "stopped {where_} descriptor {descriptor} ({slot} of the ring)")
            }
        }
    }
}

impl EngineReport {
    /// Whether one of the directions has stopped on an error.
    pub fn is_aborted(&self) -> bool {
        has_aborted(self.m2s_state) || has_aborted(self.s2m_state)
    }

    /// Whether both state registers read all-ones, as of a function that is gone.
    pub fn is_all_ones(&self) -> bool {
        self.m2s_state == u32::MAX && self.s2m_state == u32::MAX
    }
}

/// Whether one of the four 2-bit fields of a `state` register says "abort" (02 §5.4).
pub(crate) fn has_aborted(state: u32) -> bool {
    [0, 4, 8, 12].iter().any(|shift| (state >> shift) & 3 == 2)
}

/// Causes worth a name of their own; the rest is told by number (02 §9.3).
const M2S_NAMES: [(u32, &str); 7] = [
    (8, "source not accessible"),
    (11, "transmit ring not accessible"),
    (13, "packet too long"),
    (14, "too many descriptors in a packet"),
    (15, "FIRST bit wrong"),
    (16, "LAST bit wrong"),
    (17, "stale transmit descriptor"),
];
const S2M_NAMES: [(u32, &str); 3] = [
    (1, "destination not accessible"),
    (9, "receive ring not accessible"),
    (11, "stale receive descriptor"),
];

impl fmt::Display for EngineReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut separator = "";
        for (group, causes, names) in
            [('A', self.m2s_causes, &M2S_NAMES[..]), ('B', self.s2m_causes, &S2M_NAMES[..])]
        {
            for bit in (0..32).filter(|bit| causes & (1 << bit) != 0) {
                write!(f, "{separator}{group}.{bit}")?;
                if let Some((_, name)) = names.iter().find(|(number, _)| *number == bit) {
                    write!(f, " ({name})")?;
                }
                separator = ", ";
            }
        }
        if self.parity_causes != 0 {
            write!(f, "{separator}C {:#x} (parity)", self.parity_causes)?;
            separator = ", ";
        }
        if separator.is_empty() {
            f.write_str("no cause latched")?;
        }
        write!(f, "; states {:#x} and {:#x}", self.m2s_state, self.s2m_state)
    }
}

#[cfg(test)]
mod tests {
    use alloc::string::ToString;

    use super::*;

    #[test]
    fn a_report_names_what_happened() {
        let report = EngineReport {
            m2s_state: 0x2222,
            m2s_causes: 1 << 8 | 1 << 3,
            ..EngineReport::default()
        };
        assert!(report.is_aborted());
        assert_eq!(report.to_string(), "A.3, A.8 (source not accessible); states 0x2222 and 0x0");
        let stop = |descriptor, is_logged| Stop::At { descriptor, slot: 17, is_logged }.to_string();
        assert_eq!(stop(3, true), "stopped at descriptor 3 (17 of the ring)");
        assert_eq!(stop(0, false), "stopped at or behind descriptor 0 (17 of the ring)");
        assert!(!EngineReport { s2m_state: 0x1111, ..EngineReport::default() }.is_aborted());
        assert!(EngineReport { s2m_state: 0x2_2222, ..EngineReport::default() }.is_aborted());
    }
}
