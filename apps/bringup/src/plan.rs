//! What is copied: every size, at offsets that are odd and never aligned to each other.

/// Sizes around each limit of a descriptor, and two that take many.
pub const SIZES: [u64; 10] = [1, 4, 64, 4095, 4096, 65535, 65536, 65537, (1 << 20) + 12, 16 << 20];

/// Bytes beside the target that must not change, on each side.
pub const GUARD: u64 = 64;

/// Length of the buffers: the longest copy, its offset and the guards.
pub const BUFFER_BYTES: u64 = (16 << 20) + (64 << 10);

/// One size and where it goes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Step {
    /// Bytes.
    pub bytes: u64,
    /// First byte in the host buffer that data comes from.
    pub from: u64,
    /// First byte in the first device buffer.
    pub near: u64,
    /// First byte in the second device buffer.
    pub far: u64,
    /// First byte in the host buffer that data ends in.
    pub to: u64,
    /// Names the data.
    pub seed: u64,
}

/// Every step for one core.
pub fn steps() -> impl Iterator<Item = Step> {
    SIZES.into_iter().zip(0..).map(|(bytes, row)| Step {
        bytes,
        from: 2 * row + 1,
        near: 4096 - GUARD + 4 * row + 1,
        far: 2 * GUARD + 6 * row + 3,
        to: 8192 + 2 * GUARD + 10 * row + 7,
        seed: row + 1,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_offset_is_odd_and_everything_fits() {
        assert_eq!(steps().count(), SIZES.len());
        for step in steps() {
            for at in [step.from, step.near, step.far, step.to] {
                assert!(at % 2 == 1, "{step:?}");
                assert!(at + step.bytes + 2 * GUARD <= BUFFER_BYTES, "{step:?}");
            }
            assert!(step.near >= GUARD && step.far >= GUARD && step.to >= 2 * GUARD, "{step:?}");
        }
    }
}
