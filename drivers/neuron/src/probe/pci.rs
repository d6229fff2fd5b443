//! Configuration space of the function: identity, memory decoding, power state, bus mastering
//! (specification 05 §4.2 rungs D4, D5, D20).

use axon_platform::PciFunction;

use super::error::ProbeError;

const ID: u16 = 0x00;
const COMMAND: u16 = 0x04;
const REVISION: u16 = 0x08;
const CAPABILITIES: u16 = 0x34;

const COMMAND_MEMORY: u16 = 1 << 1;
const COMMAND_MASTER: u16 = 1 << 2;
const STATUS_CAPABILITIES: u32 = 1 << 20;
const CAPABILITY_POWER: u32 = 0x01;
/// A list of capabilities that is longer than this goes round in circles.
const MOST_CAPABILITIES: usize = 48;

/// Vendor, device and revision.
pub(super) fn identity<F: PciFunction>(function: &F) -> (u16, u16, u8) {
    let id = function.config_read32(ID);
    (id as u16, (id >> 16) as u16, function.config_read32(REVISION) as u8)
}

fn command<F: PciFunction>(function: &F) -> u16 {
    function.config_read32(COMMAND) as u16
}

fn change<F: PciFunction>(function: &F, set: u16, clear: u16) -> u16 {
    function.config_write16(COMMAND, (command(function) | set) & !clear);
    command(function)
}

/// Puts the function into power state D0, where it has a choice; answers whether it changed.
pub(super) fn power_on<F: PciFunction>(function: &F) -> bool {
    if function.config_read32(COMMAND) & STATUS_CAPABILITIES == 0 {
        return false;
    }
    let mut at = function.config_read32(CAPABILITIES) as u16 & 0xfc;
    for _ in 0..MOST_CAPABILITIES {
        if at < 0x40 {
            return false;
        }
        let header = function.config_read32(at);
        if header & 0xff == CAPABILITY_POWER {
            let control = function.config_read32(at + 4);
            if control & 3 != 0 {
                function.config_write16(at + 4, control as u16 & !3);
            }
            return control & 3 != 0;
        }
        at = (header >> 8) as u16 & 0xfc;
    }
    false
}

/// Memory decoding is on.
pub(crate) struct Decode<F: PciFunction>(F);

impl<F: PciFunction> Decode<F> {
    pub(super) fn switch_on(function: &F) -> Result<Self, ProbeError> {
        let command = change(function, COMMAND_MEMORY, 0);
        if command & COMMAND_MEMORY == 0 || command == u16::MAX {
            return Err(ProbeError::DecodeOff { command });
        }
        Ok(Decode(function.clone()))
    }
}

impl<F: PciFunction> Drop for Decode<F> {
    fn drop(&mut self) {
        change(&self.0, 0, COMMAND_MEMORY);
    }
}

/// Bus mastering is on: the function may write host memory.
pub(crate) struct BusMaster<F: PciFunction>(F);

impl<F: PciFunction> BusMaster<F> {
    pub(super) fn switch_on(function: &F) -> Result<Self, ProbeError> {
        let command = change(function, COMMAND_MASTER, 0);
        if command & COMMAND_MASTER == 0 || command == u16::MAX {
            return Err(ProbeError::BusMasterOff { command });
        }
        Ok(BusMaster(function.clone()))
    }

    /// Switches it off; reading back flushes what was under way.
    pub(crate) fn switch_off(&self) {
        change(&self.0, 0, COMMAND_MASTER);
    }
}

impl<F: PciFunction> Drop for BusMaster<F> {
    fn drop(&mut self) {
        self.switch_off();
    }
}
