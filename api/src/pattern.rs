//! Repeatable data for tests and tools: SplitMix64, little-endian words.

/// The generator of Steele, Lea and Flood: every seed gives its own sequence of 64-bit words.
#[derive(Clone, Debug)]
pub struct SplitMix64(u64);

impl SplitMix64 {
    /// The sequence of this seed.
    pub const fn new(seed: u64) -> Self {
        SplitMix64(seed)
    }

    /// The next word.
    pub const fn next_word(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut word = self.0;
        word = (word ^ (word >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        word = (word ^ (word >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        word ^ (word >> 31)
    }

    /// Fills `into` with words, little-endian; the last one is cut where it does not fit.
    pub fn fill(&mut self, into: &mut [u8]) {
        for piece in into.chunks_mut(8) {
            let word = self.next_word().to_le_bytes();
            piece.iter_mut().zip(word).for_each(|(byte, value)| *byte = value);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_sequence_of_seed_0_is_the_published_one() {
        let mut words = SplitMix64::new(0);
        assert_eq!(words.next_word(), 0xe220_a839_7b1d_cdaf);
        assert_eq!(words.next_word(), 0x6e78_9e6a_a1b9_65f4);
        assert_eq!(words.next_word(), 0x06c4_5d18_8009_454f);
    }

    #[test]
    fn bytes_are_the_words_in_little_endian_order() {
        let mut bytes = [0; 10];
        SplitMix64::new(0).fill(&mut bytes);
        assert_eq!(bytes, [0xaf, 0xcd, 0x1d, 0x7b, 0x39, 0xa8, 0x20, 0xe2, 0xf4, 0x65]);
    }
}
