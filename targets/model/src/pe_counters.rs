//! PE activity counters: 64 bits each, low half first, counting up by themselves (specification 01
//! §3.8, 07 §14).

use std::collections::BTreeMap;

use crate::config::Generation;
use crate::function::Function;

/// First counter in the block.
const FIRST: u64 = 0x100;
/// Offset of the idle counter in the register group that holds it.
const IDLE: u64 = 0x10;
const IDLE_GROUP: u64 = 4;
const ROWS: u64 = 4;

/// What tests have set. Everything else is 0; nothing keeps the array busy, so that only the idle
/// counters advance, one a nanosecond.
#[derive(Debug, Default)]
pub(crate) struct PeCounters {
    /// Value and model time when it was set, by core and offset in the block.
    set: BTreeMap<(u8, u64), (u64, u64)>,
}

impl Function {
    pub(crate) fn pe_read(&self, core: u8, inside: u64) -> u32 {
        if inside < FIRST {
            return 0;
        }
        let at = inside & !7;
        let (value, since) = self.pe_counters.set.get(&(core, at)).copied().unwrap_or_default();
        let counts = if self.is_idle_counter(at) { self.clock.now_ns() - since } else { 0 };
        let value = value.wrapping_add(counts);
        if inside == at { value as u32 } else { (value >> 32) as u32 }
    }

    /// Sets the counter at `offset` of the block; it counts on from there.
    pub(crate) fn set_pe_counter(
        &mut self,
        core: u8,
        offset: u64,
        value: u64,
    ) -> Result<(), String> {
        if usize::from(core) >= self.config.cores() {
            return Err(format!("there is no core {core}"));
        }
        if !(FIRST..0x1000).contains(&offset) || !offset.is_multiple_of(8) {
            return Err(format!("there is no counter at {offset:#x}"));
        }
        self.pe_counters.set.insert((core, offset), (value, self.clock.now_ns()));
        Ok(())
    }

    fn is_idle_counter(&self, at: u64) -> bool {
        let (group, buses) = match self.config.generation() {
            Generation::V2 => (0x40, 5),
            Generation::V3 | Generation::V4 => (0x30, 9),
        };
        (0..ROWS).any(|row| at == FIRST + (row * buses + IDLE_GROUP) * group + IDLE)
    }
}
