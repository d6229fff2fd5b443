//! Windows onto a device: one mapped BAR each.

/// A mapped BAR, or part of one.
///
/// Clones share the mapping; the last one to be dropped unmaps it. Accesses reach the device in
/// program order. Offsets are bytes from the start of the BAR. No access can leave the window: one
/// that is unaligned or ends behind it reads all-ones or is ignored, as on a bus that nobody
/// answers.
pub trait MmioWindow: Clone + Send + Sync + 'static {
    /// Length in bytes.
    fn len_bytes(&self) -> u64;

    /// Reads the 32-bit register at `offset`.
    fn read32(&self, offset: u64) -> u32;

    /// Writes the 32-bit register at `offset`.
    fn write32(&self, offset: u64, value: u32);

    /// Reads memory behind the window (BAR4, SBUF), any alignment and length.
    ///
    /// Returns `false`, with nothing read, where the range leaves the window.
    fn read_bytes(&self, offset: u64, into: &mut [u8]) -> bool;

    /// Writes memory behind the window (BAR4, SBUF), any alignment and length.
    ///
    /// The stores of a write-combining window are visible to the device after
    /// [`crate::Platform::write_barrier`]. Returns `false`, with nothing written, where the range
    /// leaves the window.
    fn write_bytes(&self, offset: u64, from: &[u8]) -> bool;
}
