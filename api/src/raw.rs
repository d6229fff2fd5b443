//! Register writes: the one call with which an application can make a device write anywhere.

#![allow(unsafe_code)]

use axon_platform::Platform;
use axon_ports::telemetry::TraceEvent;

use crate::calls::Call;
use crate::{Client, Error};

/// Writes the 32-bit register at `offset` of the register window (specification 08 §8.6.2).
///
/// Offsets of the deny list of specification 01 §3.11 are refused.
///
/// # Safety
/// A register can start DMA to any address, this program's memory included. The caller knows that
/// this write to this register does not make the device reach memory that Rust code owns.
///
/// # Errors
/// [`Error::NotAttached`], [`Error::Again`] in RESET, [`Error::InvalidArgument`] for an unaligned or foreign offset,
/// [`Error::Driver`] for a denied one, [`Error::DeviceGone`].
pub unsafe fn write32<P: Platform>(
    client: &Client<P>,
    offset: u64,
    value: u32,
) -> Result<(), Error> {
    operator_write32(client, offset, value)
}

/// The same write, asked for by a person at a console.
///
/// Safe to call in the sense in which opening `/proc/self/mem` is: what an operator does to the
/// machine happens from outside the program. Applications use [`write32`].
///
/// # Errors
/// As [`write32`].
pub fn operator_write32<P: Platform>(
    client: &Client<P>,
    offset: u64,
    value: u32,
) -> Result<(), Error> {
    Call::WriteRegister.admit(client.access())?;
    client.device().neuron().check_ready()?;
    client.device().note_call(client.id(), Call::WriteRegister);
    client.device().neuron().write32(offset, value)?;
    client.device().trace(TraceEvent::BarWrite { bar: 0, offset, value: value.into() });
    Ok(())
}
