//! What is copied: every size in every direction, at odd offsets, the same on every core.

/// Sizes around each limit of a descriptor, and two that take many.
pub const SIZES: [u64; 10] = [1, 4, 64, 4095, 4096, 65535, 65536, 65537, (1 << 20) + 12, 16 << 20];

/// Bytes beside the target that must not change, on each side.
pub const GUARD: u64 = 64;

/// Length of the buffers: the longest copy, its offset and the guards.
pub const BUFFER_BYTES: u64 = (16 << 20) + (64 << 10);

/// Which way bytes go.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Direction {
    /// Host memory to device memory.
    HostToDevice,
    /// Device memory to device memory.
    DeviceToDevice,
    /// Device memory to host memory.
    DeviceToHost,
}

impl Direction {
    /// All of them, in the order in which data travels.
    pub const ALL: [Direction; 3] =
        [Direction::HostToDevice, Direction::DeviceToDevice, Direction::DeviceToHost];

    /// As the report names it.
    pub const fn name(self) -> &'static str {
        match self {
            Direction::HostToDevice => "h2d",
            Direction::DeviceToDevice => "d2d",
            Direction::DeviceToHost => "d2h",
        }
    }
}

/// One copy of the plan.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Step {
    /// Which way.
    pub direction: Direction,
    /// Bytes.
    pub bytes: u64,
    /// First byte of the source.
    pub source: u64,
    /// First byte of the target.
    pub target: u64,
}

/// Every step for one core.
pub fn steps() -> impl Iterator<Item = Step> {
    SIZES.into_iter().zip(0..).flat_map(|(bytes, row)| {
        Direction::ALL.into_iter().zip(0..).map(move |(direction, column)| {
            let odd = 2 * (3 * row + column) + 1;
            // Neighbours of a page boundary and far from one, source and target never aligned to
            // each other.
            Step { direction, bytes, source: GUARD + odd, target: 4096 + 2 * GUARD + 3 * odd }
        })
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_step_is_odd_and_fits() {
        assert_eq!(steps().count(), SIZES.len() * 3);
        for step in steps() {
            assert!(step.source % 2 == 1 && step.target % 2 == 1, "{step:?}");
            assert!(step.source >= GUARD && step.target >= GUARD, "{step:?}");
            assert!(step.target + step.bytes + GUARD <= BUFFER_BYTES, "{step:?}");
            assert!(step.source + step.bytes + GUARD <= BUFFER_BYTES, "{step:?}");
        }
    }
}
