//! Accesses of the guest to the two windows: gates, widths, which block answers
//! (specification 01 §14.1–14.3).

use crate::faults::Fault;
use crate::function::Function;
use crate::map::Block;

/// PCI index of the memory window.
const BAR4: u8 = 4;

impl Function {
    /// The guest reads `into.len()` bytes of a BAR, by PCI index. What no bus would answer reads
    /// all-ones.
    pub fn bar_read(&mut self, bar: u8, offset: u64, into: &mut [u8]) {
        if !self.is_open(bar, offset, into.len()) {
            into.fill(0xff);
            return;
        }
        if bar == BAR4 {
            return self.memory_window_read(offset, into);
        }
        match into.len() {
            4 if offset.is_multiple_of(4) => self.window_read_word(offset, into),
            8 if offset.is_multiple_of(8) => {
                let (low, high) = into.split_at_mut(4);
                self.window_read_word(offset, low);
                self.window_read_word(offset + 4, high);
            }
            _ => self.window_read_bytes(offset, into),
        }
        self.turn_over();
    }

    /// The guest writes a BAR, by PCI index.
    pub fn bar_write(&mut self, bar: u8, offset: u64, from: &[u8]) {
        if !self.is_open(bar, offset, from.len()) {
            return;
        }
        if bar == BAR4 {
            return self.memory_window_write(offset, from);
        }
        match from.len() {
            4 if offset.is_multiple_of(4) => self.window_write_word(offset, from),
            8 if offset.is_multiple_of(8) => {
                let (low, high) = from.split_at(4);
                self.window_write_word(offset, low);
                self.window_write_word(offset + 4, high);
            }
            _ => self.window_write_bytes(offset, from),
        }
        self.turn_over();
    }

    /// Whether an access reaches the device at all.
    fn is_open(&mut self, bar: u8, offset: u64, len: usize) -> bool {
        if self.faults.strike(Fault::AllOnes).is_some() {
            self.gone = true;
        }
        let Some(Some(spec)) = self.pci.bars().get(usize::from(bar)).copied() else {
            return false;
        };
        let len = len as u64;
        if len > spec.size_bytes || offset > spec.size_bytes - len {
            self.recorder.irregular(if bar == BAR4 { 4 } else { 0 }, offset);
            return false;
        }
        !self.gone && self.pci.memory_enabled()
    }

    /// What follows an access before it is answered.
    #[inline]
    pub(crate) fn turn_over(&mut self) {
        if !self.ready.is_empty() {
            self.moved = 0;
            self.drain();
        }
    }

    fn window_read_word(&mut self, offset: u64, into: &mut [u8]) {
        let value = match self.memory_run(offset, 4) {
            Some((place, 4)) => {
                self.recorder.totals.memory_accesses += 1;
                let mut word = [0; 4];
                // The run is inside the arena.
                let _ = self.onchip.read(place, &mut word);
                u32::from_le_bytes(word)
            }
            _ => {
                self.clock.register_was_read();
                self.tick();
                self.recorder.totals.register_reads += 1;
                self.read_word(offset)
            }
        };
        into.copy_from_slice(&value.to_le_bytes());
    }

    fn window_write_word(&mut self, offset: u64, from: &[u8]) {
        let Ok(bytes) = <[u8; 4]>::try_from(from) else { return };
        match self.memory_run(offset, 4) {
            Some((place, 4)) => {
                self.recorder.totals.memory_accesses += 1;
                let _ = self.onchip.write(place, &bytes);
            }
            _ => {
                self.tick();
                let value = u32::from_le_bytes(bytes);
                self.recorder.register_write(offset, value, || self.clock.now_ns());
                self.write_word(offset, value);
            }
        }
    }

    /// A width or alignment that only memory takes.
    fn window_read_bytes(&mut self, offset: u64, into: &mut [u8]) {
        match self.memory_run(offset, into.len()) {
            Some((place, run)) if run == into.len() => {
                self.recorder.totals.memory_accesses += 1;
                let _ = self.onchip.read(place, into);
            }
            _ => {
                self.recorder.irregular(0, offset);
                into.fill(0xff);
            }
        }
    }

    fn window_write_bytes(&mut self, offset: u64, from: &[u8]) {
        match self.memory_run(offset, from.len()) {
            Some((place, run)) if run == from.len() => {
                self.recorder.totals.memory_accesses += 1;
                let _ = self.onchip.write(place, from);
            }
            _ => self.recorder.irregular(0, offset),
        }
    }

    fn memory_window_read(&mut self, offset: u64, into: &mut [u8]) {
        self.recorder.totals.memory_accesses += 1;
        match self.map.bar4(offset, into.len() as u64) {
            Some(place) => {
                let _ = self.hbm.read(place, into);
            }
            None => {
                self.recorder.unmodelled(4, offset);
                into.fill(0);
            }
        }
    }

    fn memory_window_write(&mut self, offset: u64, from: &[u8]) {
        self.recorder.totals.memory_accesses += 1;
        match self.map.bar4(offset, from.len() as u64) {
            Some(place) => {
                let _ = self.hbm.write(place, from);
            }
            None => self.recorder.unmodelled(4, offset),
        }
    }

    /// One aligned word of the register window that is no memory, from wherever the access comes.
    pub(crate) fn read_word(&mut self, offset: u64) -> u32 {
        let Some(span) = self.map.span(offset) else {
            self.recorder.unmodelled(0, offset);
            return 0;
        };
        let inside = offset - span.start;
        match span.block {
            Block::Udma { engine } => self.units[usize::from(engine)].read(inside),
            Block::MiscRam => self.misc_read(inside),
            Block::Sync { bank } => self.banks[usize::from(bank)].read(inside),
            Block::Storage { .. } => self.stored(span.start, inside),
            Block::Notific { .. } => self.notific_read(span.start, inside),
            Block::PeCounters { core } => self.pe_read(core, inside),
            Block::QemuDoorbell => match inside {
                0x10 => self.reset.doorbell,
                _ => self.stored(span.start, inside),
            },
            Block::Memory { base } => {
                let mut word = [0; 4];
                let _ = self.onchip.read(base + inside, &mut word);
                u32::from_le_bytes(word)
            }
        }
    }

    /// Writes one aligned word of the register window, with its side effects.
    pub(crate) fn write_word(&mut self, offset: u64, value: u32) {
        let Some(span) = self.map.span(offset) else {
            self.recorder.unmodelled(0, offset);
            return;
        };
        let inside = offset - span.start;
        match span.block {
            Block::Udma { engine } => {
                let engine = usize::from(engine);
                let effect = self.units[engine].write(inside, value);
                self.apply(engine, effect);
            }
            Block::MiscRam => self.misc_write(inside, value),
            Block::Sync { bank } => self.banks[usize::from(bank)].write(inside, value),
            Block::Notific { .. } => self.notific_write(span.start, inside, value),
            Block::QemuDoorbell if inside == 0x10 => self.qemu_doorbell(value),
            Block::Storage { .. } | Block::QemuDoorbell => self.store(span.start, inside, value),
            // Counters count by themselves.
            Block::PeCounters { .. } => {}
            Block::Memory { base } => {
                let _ = self.onchip.write(base + inside, &value.to_le_bytes());
            }
        }
    }

    pub(crate) fn stored(&self, start: u64, inside: u64) -> u32 {
        self.storage.get(&(start >> 12)).and_then(|page| page.get(inside)).unwrap_or(0)
    }

    pub(crate) fn store(&mut self, start: u64, inside: u64, value: u32) {
        *self.storage.entry(start >> 12).or_default().slot(inside, |_| 0) = value;
    }
}
