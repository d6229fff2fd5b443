//! The shared handle of one device: identity, state, registers.

use alloc::sync::Arc;
use core::future::Future;

use axon_platform::{Bdf, MmioWindow, PciFunction, Platform};
use axon_ports::reset::{DeviceState, ResetRequest};
use axon_ports::{DeviceIndex, RoutingId};

use crate::reset::ResetTicket;
use crate::{Dma, Error, Hal};

/// A mapped BAR on platform `P`.
pub type Window<P> = <<P as Platform>::Function as PciFunction>::Window;

/// Corrected and uncorrected errors of one memory (specification 01 §4).
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct EccCounts {
    /// Corrected.
    pub corrected: u16,
    /// Not corrected.
    pub uncorrected: u16,
}

/// What the driver has done on the data path since the device came up.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Counters {
    /// Doorbell writes, both sides.
    pub doorbells: u64,
    /// Registers read on the data path; stays 0 unless something fails.
    pub register_reads: u64,
    /// Descriptors staged on one side, markers included.
    pub descriptors: u64,
    /// Batches staged.
    pub batches: u64,
    /// Bytes of finished batches.
    pub bytes: u64,
    /// Batches that ended in time.
    pub completed: u64,
    /// Batches that did not.
    pub timeouts: u64,
    /// Aborts seen.
    pub aborts: u64,
    /// Batches ended by a reset, a fault of a neighbour, or a removal.
    pub cancelled: u64,
    /// Batches issued again after a reset.
    pub replays: u64,
    /// Batches whose memory is in quarantine now.
    pub quarantined: u64,
}

pub(crate) struct Shared<P: Platform> {
    hal: Hal,
    bdf: Bdf,
    index: DeviceIndex,
    routing_id: RoutingId,
    registers: Window<P>,
    dma: Dma<P>,
}

/// One device. Clones are handles on the same device.
pub struct NeuronDevice<P: Platform>(Arc<Shared<P>>);

impl<P: Platform> Clone for NeuronDevice<P> {
    fn clone(&self) -> Self {
        NeuronDevice(self.0.clone())
    }
}

impl<P: Platform> NeuronDevice<P> {
    /// What is known about the device without touching it.
    pub fn hal(&self) -> &Hal {
        &self.0.hal
    }

    /// Where the function sits.
    pub fn bdf(&self) -> Bdf {
        self.0.bdf
    }

    /// Public number.
    pub fn index(&self) -> DeviceIndex {
        self.0.index
    }

    /// Firmware's number.
    pub fn routing_id(&self) -> RoutingId {
        self.0.routing_id
    }

    /// Current state.
    pub fn state(&self) -> DeviceState {
        DeviceState::Reset
    }

    /// Resolves when the device is READY or INVALID; at once if it already is.
    pub fn settled(&self) -> impl Future<Output = DeviceState> + Send + 'static {
        core::future::ready(DeviceState::Invalid)
    }

    /// Serial number; `None` where firmware has not set one.
    ///
    /// # Errors
    /// [`Error::DeviceGone`].
    pub fn serial_number(&self) -> Result<Option<u64>, Error> {
        Err(Error::Unsupported { what: "serial number" })
    }

    /// Firmware API version; `None` where firmware has not set one.
    ///
    /// # Errors
    /// [`Error::DeviceGone`].
    pub fn firmware_version(&self) -> Result<Option<u32>, Error> {
        Err(Error::Unsupported { what: "firmware version" })
    }

    /// Reads the 32-bit register at `offset` of the register window.
    ///
    /// # Errors
    /// [`Error::InvalidArgument`] for an offset that is unaligned or outside,
    /// [`Error::DeviceGone`].
    pub fn read32(&self, offset: u64) -> Result<u32, Error> {
        self.0.hal.check_register(offset, self.0.registers.len_bytes())?;
        Ok(self.0.registers.read32(offset))
    }

    /// Writes the 32-bit register at `offset`, for a client.
    ///
    /// # Errors
    /// [`Error::InvalidArgument`], [`Error::RegisterDenied`], [`Error::DeviceGone`].
    pub fn write32(&self, offset: u64, value: u32) -> Result<(), Error> {
        self.0.hal.check_register_write(offset, self.0.registers.len_bytes())?;
        self.0.registers.write32(offset, value);
        Ok(())
    }

    /// Asks for a reset.
    ///
    /// # Errors
    /// [`Error::InvalidArgument`] for an empty or foreign core map, [`Error::Busy`] for the 17th
    /// uncollected request of a client, [`Error::Removed`]. Nothing has been touched.
    pub fn reset(&self, request: ResetRequest) -> Result<ResetTicket, Error> {
        let _ = request;
        Err(Error::Unsupported { what: "a reset" })
    }

    /// The DMA side.
    pub fn dma(&self) -> &Dma<P> {
        &self.0.dma
    }

    /// What has been done on the data path.
    pub fn counters(&self) -> Counters {
        Counters::default()
    }
}
