//! MiscRAM: identity, health, mailbox and reset registers (specification 01 §4, §14.4–14.5).

use std::collections::BTreeMap;

use crate::config::FunctionConfig;
use crate::faults::Fault;
use crate::function::Function;

pub(crate) const API_VERSION: u64 = 0x000;
pub(crate) const DEVICE_ID: u64 = 0x024;
const SERIAL_LOW: u64 = 0x038;
const SERIAL_HIGH: u64 = 0x03c;
const POWER_DIE_0: u64 = 0x054;
const POWER_DIE_1: u64 = 0x058;
const SERVER_RACK_ID: u64 = 0x070;
pub(crate) const ACK: u64 = 0x0f0;
pub(crate) const DATA: u64 = 0x100;
pub(crate) const DATA_BYTES: usize = 128;
pub(crate) const RESET_MAP_HIGH: u64 = 0x1d4;
pub(crate) const RESET_MAP_LOW: u64 = 0x1d8;
pub(crate) const RESET: u64 = 0x1ec;
pub(crate) const REQUEST_HIGH: u64 = 0x1f0;
pub(crate) const REQUEST_LOW: u64 = 0x1f4;
pub(crate) const RESPONSE_HIGH: u64 = 0x1f8;
pub(crate) const RESPONSE_LOW: u64 = 0x1fc;
pub(crate) const TRIGGER: u64 = 0x800;
pub(crate) const FW_STATUS: u64 = 0x808;
/// `FW_STATUS`: not ready.
pub(crate) const NOT_READY: u32 = 0x8;

/// What MiscRAM reads while firmware is not there.
pub(crate) const NO_FIRMWARE: u32 = 0xdead_beef;

/// Share of the maximum power in 1/100 %, and how often a new sample comes.
const POWER: u32 = 2500;
const POWER_SAMPLE_NS: u64 = 100_000_000;

/// The words of MiscRAM.
#[derive(Debug)]
pub(crate) struct MiscRam {
    words: Vec<u32>,
    /// Reads give 0xdeadbeef and writes are ignored.
    pub dead: bool,
    power: [Option<u32>; 2],
    /// Words that read the same whatever happens.
    stuck: BTreeMap<u64, u32>,
}

impl MiscRam {
    pub fn new(config: &FunctionConfig) -> Self {
        let mut misc =
            MiscRam { words: vec![0; 1024], dead: false, power: [None; 2], stuck: BTreeMap::new() };
        misc.set(API_VERSION, config.api_version);
        misc.set(DEVICE_ID, config.routing_id);
        misc.set(SERIAL_LOW, config.serial as u32);
        misc.set(SERIAL_HIGH, (config.serial >> 32) as u32);
        misc.set(SERVER_RACK_ID, config.server_rack_id);
        misc
    }

    pub fn get(&self, offset: u64) -> u32 {
        self.words.get((offset / 4) as usize).copied().unwrap_or(0)
    }

    pub fn set(&mut self, offset: u64, value: u32) {
        if let Some(word) = self.words.get_mut((offset / 4) as usize) {
            *word = value;
        }
    }

    /// Sets a word from outside, power words included, which then stand still.
    pub fn poke(&mut self, offset: u64, value: u32) {
        match offset {
            POWER_DIE_0 => self.power[0] = Some(value),
            POWER_DIE_1 => self.power[1] = Some(value),
            _ => self.set(offset, value),
        }
    }

    /// Lets a word read `value` whatever happens; `None` frees it.
    pub fn stick(&mut self, offset: u64, value: Option<u32>) {
        match value {
            Some(value) => self.stuck.insert(offset, value),
            None => self.stuck.remove(&offset),
        };
    }
}

impl Function {
    pub(crate) fn misc_read(&mut self, offset: u64) -> u32 {
        if let Some(&value) = self.misc.stuck.get(&offset) {
            return value;
        }
        if self.misc.dead || self.faults.strike(Fault::DeadReads).is_some() {
            return NO_FIRMWARE;
        }
        match offset {
            POWER_DIE_0 => self.power(0),
            POWER_DIE_1 if self.config.dice() > 1 => self.power(1),
            _ => self.misc.get(offset),
        }
    }

    fn power(&self, die: usize) -> u32 {
        let sample = self.clock.now_ns() / POWER_SAMPLE_NS + 1;
        self.misc.power[die].unwrap_or((sample as u32) << 16 | POWER)
    }

    pub(crate) fn misc_write(&mut self, offset: u64, value: u32) {
        if self.misc.dead {
            return;
        }
        match offset {
            POWER_DIE_0 | POWER_DIE_1 | FW_STATUS => {}
            TRIGGER => {
                if value & 1 != 0 {
                    self.trigger();
                }
            }
            _ => self.misc.set(offset, value),
        }
    }

    /// The doorbell of firmware: a reset, a register-file request or a legacy request, in this
    /// order. Every trigger clears ACK, whether it is answered or not.
    fn trigger(&mut self) {
        let register_file = self.misc.get(ACK) & 1 != 0;
        self.misc.set(TRIGGER, 1);
        self.misc.set(ACK, 0);
        match self.misc.get(RESET) {
            1 | 2 => self.reset_trigger(),
            _ if register_file => self.register_file_request(),
            _ => self.legacy_request(),
        }
    }
}
