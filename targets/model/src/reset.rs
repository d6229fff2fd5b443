//! Resets by scope: what stops at the trigger, what is clean at the end (specification 01 §9,
//! §14.8–14.9).

use crate::config::{Generation, REVISION_QEMU};
use crate::faults::Fault;
use crate::function::Function;
use crate::map::{Block, Owner, physical_top_sp};
use crate::miscram::{
    ACK, FW_STATUS, MiscRam, NOT_READY, RESET, RESET_MAP_HIGH, RESET_MAP_LOW, TRIGGER,
};
use crate::time::Later;

/// What a reset covers.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Scope {
    Device,
    /// The words of 0x1d8 and 0x1d4.
    Map {
        low: u32,
        high: u32,
    },
}

/// Where the reset machine stands.
#[derive(Default, Debug)]
pub(crate) struct ResetState {
    running: Option<Scope>,
    /// Resets begun so far.
    number: u64,
    /// Value the reset doorbell of the simulator shows.
    pub doorbell: u32,
}

impl Scope {
    fn has_core(self, core: u8) -> bool {
        match self {
            Scope::Device => true,
            Scope::Map { low, .. } => low & 1 << core != 0,
        }
    }

    fn has_top_sp(self, generation: Generation, logical: u8) -> bool {
        let (first, share) = if generation == Generation::V2 { (8, 1) } else { (16, 2) };
        match self {
            Scope::Device => true,
            Scope::Map { low, .. } => low & 1 << (first + logical / share) != 0,
        }
    }

    /// On V2 the core's 16 engines and its host-transfer engine go with the core; later ones have
    /// a bit of their own for both.
    fn has_engine(self, generation: Generation, engine: u16) -> bool {
        let Scope::Map { low, high } = self else { return true };
        let bit = |word: u32, number: u16| word & 1 << number != 0;
        match (generation, engine) {
            (Generation::V2, 0..32) => bit(low, engine / 16),
            (Generation::V2, _) => bit(low, engine - 32),
            (_, 0..128) => bit(low, 8 + engine / 16),
            _ => bit(high, engine - 128),
        }
    }

    fn covers(self, generation: Generation, owner: Owner) -> bool {
        match owner {
            Owner::Engine(engine) => self.has_engine(generation, engine),
            Owner::Core(core) => self.has_core(core),
            Owner::TopSp(physical) => {
                let logical =
                    (0..16).find(|&logical| physical_number(generation, logical) == physical);
                logical.map_or(self == Scope::Device, |t| self.has_top_sp(generation, t))
            }
        }
    }
}

fn physical_number(generation: Generation, logical: u8) -> u8 {
    match generation {
        Generation::V2 => logical,
        Generation::V3 | Generation::V4 => physical_top_sp(logical),
    }
}

impl Function {
    pub(crate) fn reset_is_running(&self) -> bool {
        self.reset.running.is_some()
    }

    /// Number of the latest reset; what was begun before it is dropped.
    pub(crate) fn reset_number(&self) -> u64 {
        self.reset.number
    }

    /// A trigger with RESET = 1 or 2.
    pub(crate) fn reset_trigger(&mut self) {
        let device = self.misc.get(RESET) == 1;
        if self.faults.strike(Fault::LostTrigger).is_some()
            || self.faults.strike(Fault::NeverAck).is_some()
            || !device && self.faults.strike(Fault::RefuseCoreReset).is_some()
        {
            return;
        }
        let scope = if device {
            Scope::Device
        } else {
            Scope::Map { low: self.misc.get(RESET_MAP_LOW), high: self.misc.get(RESET_MAP_HIGH) }
        };
        self.begin_reset(scope);
        self.misc.dead = true;
        match self.config.reset_ns {
            0 => self.end_reset(),
            length => self.after(length, Later::ResetDone),
        }
    }

    /// Stops what the reset covers at once: nothing of it moves from here on.
    fn begin_reset(&mut self, scope: Scope) {
        self.reset.number += 1;
        self.reset.running = Some(scope);
        self.clear(scope);
    }

    /// The end of the reset: what was programmed meanwhile is gone, firmware is back.
    pub(crate) fn end_reset(&mut self) {
        let Some(scope) = self.reset.running.take() else { return };
        self.clear(scope);
        match scope {
            Scope::Device => self.recorder.totals.device_resets += 1,
            Scope::Map { .. } => self.recorder.totals.core_resets += 1,
        }
        let stuck = self.faults.strike(Fault::ResetStuck);
        match stuck.unwrap_or(self.config.ready_delay_ns) {
            0 => self.misc.set(FW_STATUS, 0),
            delay => {
                self.misc.set(FW_STATUS, NOT_READY);
                let reset = self.reset.number;
                self.after(delay, Later::Ready { reset });
            }
        }
        self.misc.set(ACK, 0);
        self.misc.set(RESET, 0);
        self.misc.set(TRIGGER, 0);
        self.misc.dead = false;
    }

    /// Firmware says "ready", unless another reset began since.
    pub(crate) fn firmware_ready(&mut self, reset: u64) {
        if reset == self.reset.number {
            self.misc.set(FW_STATUS, 0);
        }
    }

    /// The reset doorbell of the simulator (01 §9.6): on V2 it precedes the handshake of firmware,
    /// on V3/V4 it is the whole reset.
    ///
    /// assumed: MiscRAM stays readable meanwhile.
    pub(crate) fn qemu_doorbell(&mut self, value: u32) {
        debug_assert_eq!(self.config.revision, REVISION_QEMU);
        if self.config.generation() != Generation::V2 {
            let scope = if value == 0 { Scope::Device } else { Scope::Map { low: value, high: 0 } };
            self.begin_reset(scope);
        }
        self.reset.doorbell = value;
        self.after(self.config.reset_ns, Later::QemuDoorbellDone);
    }

    pub(crate) fn qemu_doorbell_done(&mut self) {
        self.reset.doorbell = 0;
        if self.config.generation() != Generation::V2 {
            self.end_reset();
        }
    }

    /// A reset by the bus: as a device reset, and firmware starts afresh.
    pub(crate) fn power_cycle(&mut self) {
        self.begin_reset(Scope::Device);
        self.reset.running = None;
        self.reset.doorbell = 0;
        self.misc = MiscRam::new(&self.config);
        self.start_firmware();
    }

    /// Firmware needs its configured time from power-on.
    pub(crate) fn start_firmware(&mut self) {
        if self.config.firmware_late_ns > 0 {
            self.misc.dead = true;
            let reset = self.reset.number;
            self.after(self.config.firmware_late_ns, Later::FirmwareUp { reset });
        }
    }

    pub(crate) fn firmware_up(&mut self, reset: u64) {
        if reset == self.reset.number {
            self.misc.dead = false;
        }
    }

    /// Reset values for all queues, engines, semaphores, events and NOTIFIC blocks of the scope;
    /// HBM, on-chip memory and MiscRAM stay.
    fn clear(&mut self, scope: Scope) {
        let generation = self.config.generation();
        for (engine, unit) in self.units.iter_mut().enumerate() {
            if scope.has_engine(generation, engine as u16) {
                unit.reset();
            }
        }
        let cores = self.config.cores();
        for (bank, state) in self.banks.iter_mut().enumerate() {
            let owner = match bank.checked_sub(cores) {
                None => Owner::Core(bank as u8),
                Some(physical) => Owner::TopSp(physical as u8),
            };
            if scope.covers(generation, owner) {
                *state = crate::sync_bank::SyncBank::new();
            }
        }
        for span in self.map.spans() {
            match span.block {
                Block::Storage { owner } if scope.covers(generation, owner) => {
                    self.storage.remove(&(span.start >> 12));
                }
                Block::Notific { owner } if scope.covers(generation, owner) => {
                    self.storage.remove(&(span.start >> 12));
                    self.notifications.reset(span.start);
                }
                _ => {}
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dev_e33_maps_name_cores_engines_and_top_sps() {
        let v2 = Scope::Map { low: 0x3802, high: 0 };
        assert!(v2.covers(Generation::V2, Owner::Core(1)) && !v2.has_core(0));
        assert!(v2.has_engine(Generation::V2, 33) && v2.has_engine(Generation::V2, 16));
        assert!(!v2.has_engine(Generation::V2, 32) && !v2.has_engine(Generation::V2, 15));
        assert!(v2.has_top_sp(Generation::V2, 3) && !v2.has_top_sp(Generation::V2, 2));

        let v3 = Scope::Map { low: 0x000c_0c0c, high: 0x2 };
        let engines: Vec<u16> =
            (0..132).filter(|&engine| v3.has_engine(Generation::V3, engine)).collect();
        assert_eq!(engines, (32..64).chain([129]).collect::<Vec<u16>>());
        assert!(v3.covers(Generation::V3, Owner::TopSp(4)));
        assert!(!v3.covers(Generation::V3, Owner::TopSp(8)));
        let last = Scope::Map { low: 0x0080_8080, high: 0 };
        assert!(last.covers(Generation::V3, Owner::TopSp(17)));
        assert!(!last.covers(Generation::V3, Owner::TopSp(18)));
        assert!(Scope::Device.covers(Generation::V3, Owner::TopSp(19)));
    }
}
