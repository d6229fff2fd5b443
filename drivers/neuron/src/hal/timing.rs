//! How long a batch may take (specification 03 §7.6).

use core::time::Duration;

use super::Hal;

/// What a batch is part of: decides its first wait.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum BatchKind {
    /// A copy somebody waits for.
    Sync,
    /// A copy with a wait handle, or zero-copy.
    Async,
    /// HBM to HBM, many at once (scrub).
    IntraDevice,
}

/// Times of one batch.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Budget {
    /// Nothing is expected before this has passed; µs.
    pub first_us: u64,
    /// What it may take behind that; µs.
    pub budget_us: u64,
}

impl Budget {
    /// From the doorbell to the deadline.
    pub const fn total(&self) -> Duration {
        Duration::from_micros(self.first_us.saturating_add(self.budget_us))
    }
}

impl Hal {
    /// Times of a batch with `data` data descriptors. 64-bit and saturating: never wraps, never
    /// below 1 µs.
    #[inline]
    pub const fn budget(&self, data: u32, kind: BatchKind) -> Budget {
        let wait = &self.tables.wait;
        let data = if data == 0 { 1 } else { data as u64 };
        let estimate = wait.estimate * data;
        let first_us = match kind {
            BatchKind::Sync => estimate.saturating_sub(wait.lead),
            BatchKind::Async | BatchKind::IntraDevice => 1,
        };
        let first_us = if first_us == 0 { 1 } else { first_us };
        let budget = (wait.factor * estimate)
            .saturating_sub(first_us)
            .saturating_mul(100)
            .saturating_mul(self.budget_multiplier as u64);
        match kind {
            BatchKind::IntraDevice => Budget { first_us: 10, budget_us: budget / 200 },
            _ => Budget { first_us, budget_us: budget },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::hal;
    use super::*;
    use crate::DeviceConfig;

    fn times(device: u16, data: u32, kind: BatchKind) -> (u64, u64) {
        let budget = hal(device).budget(data, kind);
        (budget.first_us, budget.budget_us)
    }

    #[test]
    fn dev_e44_udma_d17_nothing_wraps() {
        assert_eq!(times(0x7364, 0, BatchKind::Sync), (1, 79_900));
        assert_eq!(times(0x7364, 1, BatchKind::Sync), (1, 79_900));
        assert_eq!(times(0x7164, 1, BatchKind::Sync), (1, 39_900));
    }

    #[test]
    fn the_table_of_the_specification() {
        let rows = [
            (1, (1, 39_900), (1, 79_900), 39_900, 79_900),
            (2, (5, 79_500), (3, 159_700), 79_900, 159_900),
            (17, (65, 673_500), (33, 1_356_700), 679_900, 1_359_900),
            (64, (253, 2_534_700), (127, 5_107_300), 2_559_900, 5_119_900),
            (2032, (8125, 80_467_500), (4063, 162_153_700), 81_279_900, 162_559_900),
        ];
        for (data, v2, v3, v2_async, v3_async) in rows {
            assert_eq!(times(0x7164, data, BatchKind::Sync), v2);
            assert_eq!(times(0x7364, data, BatchKind::Sync), v3);
            assert_eq!(times(0x7164, data, BatchKind::Async), (1, v2_async));
            assert_eq!(times(0x7364, data, BatchKind::Async), (1, v3_async));
        }
    }

    #[test]
    fn the_multiplier_comes_from_the_revision_or_from_configuration() {
        let mut config = DeviceConfig::default();
        let at = |config: &DeviceConfig, revision| {
            let h = Hal::new(0x7164, revision, None, config, 1 << 35).unwrap();
            h.budget(1, BatchKind::Sync)
        };
        assert_eq!(at(&config, 0xff), Budget { first_us: 1, budget_us: 3_990_000_000 });
        config.budget_multiplier = Some(3);
        assert_eq!(at(&config, 0xf0), Budget { first_us: 1, budget_us: 119_700 });
        config.budget_multiplier = Some(u32::MAX);
        let huge = Hal::new(0x7364, 1, None, &config, 0).unwrap();
        assert!(huge.budget(u32::MAX, BatchKind::Sync).total() > Duration::from_secs(1));
    }
}
