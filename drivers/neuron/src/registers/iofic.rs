//! Error controllers of a UDMA unit (specification 02 §9).

/// One group of causes: offset of its block in the unit.
#[derive(Clone, Copy)]
pub(crate) struct Group(pub u64);

impl Group {
    /// Latched causes.
    pub(crate) const fn cause(self) -> u64 {
        self.0
    }

    /// 1 = masked.
    pub(crate) const fn mask(self) -> u64 {
        self.0 + 0x10
    }

    /// Bits written 0 are unmasked.
    pub(crate) const fn unmask(self) -> u64 {
        self.0 + 0x18
    }

    /// Latching.
    pub(crate) const fn control(self) -> u64 {
        self.0 + 0x28
    }

    /// 0 = the cause aborts the engine.
    pub(crate) const fn abort_mask(self) -> u64 {
        self.0 + 0x30
    }
}

/// Summary of the unit.
pub(crate) const PRIMARY_D: Group = Group(0x3_80c0);
/// Errors of the source side.
pub(crate) const SECONDARY_A: Group = Group(0x3_a000);
/// Errors of the destination side.
pub(crate) const SECONDARY_B: Group = Group(0x3_a040);
/// Parity errors of the AXI FIFOs of both.
pub(crate) const SECONDARY_C: Group = Group(0x3_a080);
/// Errors of single AXI ports; V2.
pub(crate) const AXI_PORTS: [Group; 6] = [
    Group(0x3_ad00),
    Group(0x3_ae00),
    Group(0x3_af00),
    Group(0x3_b000),
    Group(0x3_b100),
    Group(0x3_b200),
];

/// [`Group::control`]: latch on the rising edge, no message of its own.
pub(crate) const CONTROL: u32 = 0x28;

/// Complement of the armed causes of [`SECONDARY_A`].
pub(crate) const UNARMED_A: u32 = 0xf000_0000;
/// Complement of the armed causes of [`SECONDARY_B`].
pub(crate) const UNARMED_B: u32 = 0x0000_10f8;
/// Complement of the armed causes of [`SECONDARY_C`], both directions in one write.
pub(crate) const UNARMED_C: u32 = 0xffff_f000;
/// Complement of the summary bits of the three groups in [`PRIMARY_D`].
pub(crate) const UNARMED_D: u32 = 0xffff_f8ff;

/// Ring-id mismatch on the source side, in [`SECONDARY_A`] and the error log mask.
pub(crate) const RING_ID_A: u32 = 1 << 17;
/// Ring-id mismatch on the destination side, in [`SECONDARY_B`] and the error log mask.
pub(crate) const RING_ID_B: u32 = 1 << 11;

/// Error-trigger controller outside the unit: mask and bit of the source side's ring-id error.
pub(crate) const USER_FIS_M2S: (u64, u32) = (0x90, 1 << 11);
/// Mask and bit of the destination side's ring-id error.
pub(crate) const USER_FIS_S2M: (u64, u32) = (0xd0, 1 << 2);
