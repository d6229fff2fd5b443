//! The 16 bytes of a descriptor, read (specification 02 §6).

/// One descriptor as fetched.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct Descriptor(pub [u32; 4]);

impl Descriptor {
    /// Size in bytes.
    pub const BYTES: usize = 16;

    pub fn from_bytes(bytes: &[u8; 16]) -> Self {
        let word = |at: usize| {
            u32::from_le_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]])
        };
        Descriptor([word(0), word(4), word(8), word(12)])
    }

    /// The length field as it stands; what 0 means is up to `cfg_len`.
    pub fn length_field(self) -> u32 {
        self.0[0] & 0xffff
    }

    pub fn ring_id(self) -> u8 {
        (self.0[0] >> 24 & 3) as u8
    }

    pub fn is_meta(self) -> bool {
        self.0[0] & 1 << 23 != 0
    }

    pub fn is_first(self) -> bool {
        self.0[0] & 1 << 26 != 0
    }

    pub fn is_last(self) -> bool {
        self.0[0] & 1 << 27 != 0
    }

    pub fn wants_interrupt(self) -> bool {
        self.0[0] & 1 << 28 != 0
    }

    pub fn address(self) -> u64 {
        u64::from(self.0[3]) << 32 | u64::from(self.0[2])
    }

    /// The word that names an operation the model does not have: only plain copies are (02 §13.4).
    pub fn unsupported_word(self) -> Option<u32> {
        let operation = self.0[1];
        let (class, kind, copies) =
            (operation >> 23 & 7, operation >> 20 & 7, operation & 1 << 19 != 0);
        if self.is_meta() {
            Some(self.0[0])
        } else if class != 2 || kind != 0 || !copies {
            Some(operation)
        } else {
            None
        }
    }
}
