//! What the function needs from the machine around it: guest memory and a clock.

use std::fmt;

/// A range of host memory that the guest does not share with the device, in whole or in part.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Unmapped {
    /// First byte asked for, as a bus address.
    pub address: u64,
    /// Bytes asked for.
    pub len_bytes: u64,
}

impl fmt::Display for Unmapped {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} bytes at bus address {:#x} are not shared", self.len_bytes, self.address)
    }
}

impl std::error::Error for Unmapped {}

/// Guest memory as the device reaches it, by bus address (the host-base bit is already stripped).
pub trait HostMemory: Send + Sync {
    /// Copies `into.len()` bytes out, whole or not at all.
    ///
    /// # Errors
    /// [`Unmapped`] where any byte is not shared.
    fn read(&self, address: u64, into: &mut [u8]) -> Result<(), Unmapped>;

    /// Copies `from` in, whole or not at all.
    ///
    /// # Errors
    /// [`Unmapped`] where any byte is not shared or not writable.
    fn write(&self, address: u64, from: &[u8]) -> Result<(), Unmapped>;

    /// Stores one aligned word at once, with release ordering: the guest polls it.
    ///
    /// # Errors
    /// [`Unmapped`] where the word is not shared, not writable, or not aligned to 4.
    fn store32(&self, address: u64, value: u32) -> Result<(), Unmapped>;
}

/// Time as the model counts it.
pub trait ModelClock: Send + Sync {
    /// Nanoseconds since some fixed moment; never goes back.
    fn now_ns(&self) -> u64;

    /// Called once for each register the guest reads, before the value is formed. A clock that
    /// counts reads moves here; others ignore it.
    fn register_was_read(&self) {}
}
