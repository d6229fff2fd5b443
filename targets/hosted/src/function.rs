//! PCI functions and BAR windows over the in-process model.
//!
//! What firmware does on a real machine happens here at start: memory BARs get addresses, in
//! order, each aligned to its size. A function whose BAR registers do not take an address is left
//! unassigned, as firmware would.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, TryLockError};

use axon_model::Function;
use axon_platform::{BarInfo, Bdf, Caching, MapError, MmioWindow, PciFunction};

/// Where the BARs of the first function are placed: above 4 GiB, below 2^52.
pub(crate) const BAR_SPACE: u64 = 0x100_0000_0000;
const COMMAND: u16 = 0x04;
const MEMORY_DECODE: u32 = 1 << 1;

/// The model behind one function, with the count of register accesses of the whole machine.
pub(crate) struct Slot {
    model: Mutex<Function>,
    accesses: Arc<AtomicU64>,
    bdf: Bdf,
}

impl Slot {
    pub(crate) fn new(model: Function, bdf: Bdf, accesses: Arc<AtomicU64>) -> Arc<Slot> {
        Arc::new(Slot { model: Mutex::new(model), accesses, bdf })
    }

    pub(crate) fn model(&self) -> MutexGuard<'_, Function> {
        self.model.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The model, unless it is in the middle of an access.
    pub(crate) fn try_model(&self) -> Option<MutexGuard<'_, Function>> {
        match self.model.try_lock() {
            Ok(model) => Some(model),
            Err(TryLockError::Poisoned(model)) => Some(model.into_inner()),
            Err(TryLockError::WouldBlock) => None,
        }
    }

    /// Gives every memory BAR an address at or above `next`; returns the first address behind.
    pub(crate) fn assign_bars(&self, mut next: u64) -> u64 {
        let mut model = self.model();
        for (index, bar) in model.bars().into_iter().enumerate() {
            let Some(bar) = bar else { continue };
            let address = next.next_multiple_of(bar.size_bytes.max(1));
            let register = 0x10 + 4 * index as u16;
            model.config_write(register, &(address as u32).to_le_bytes());
            if bar.is_64_bit {
                model.config_write(register + 4, &((address >> 32) as u32).to_le_bytes());
            }
            next = address + bar.size_bytes;
        }
        next
    }
}

fn config32(model: &mut Function, offset: u16) -> u32 {
    let mut word = [0xff; 4];
    model.config_read(offset, &mut word);
    u32::from_le_bytes(word)
}

/// One emulated function of a hosted machine.
#[derive(Clone)]
pub struct HostedFunction(pub(crate) Arc<Slot>);

impl PciFunction for HostedFunction {
    type Window = HostedWindow;

    fn bdf(&self) -> Bdf {
        self.0.bdf
    }

    fn config_read32(&self, offset: u16) -> u32 {
        if offset >= 4096 || !offset.is_multiple_of(4) {
            return u32::MAX;
        }
        config32(&mut self.0.model(), offset)
    }

    fn config_write32(&self, offset: u16, value: u32) {
        if offset < 4096 && offset.is_multiple_of(4) {
            self.0.model().config_write(offset, &value.to_le_bytes());
        }
    }

    fn config_write16(&self, offset: u16, value: u16) {
        if offset < 4096 && offset.is_multiple_of(2) {
            self.0.model().config_write(offset, &value.to_le_bytes());
        }
    }

    fn bar(&self, index: u8) -> Option<BarInfo> {
        let mut model = self.0.model();
        let spec = model.bars().into_iter().nth(usize::from(index))??;
        let register = 0x10 + 4 * u16::from(index);
        let low = config32(&mut model, register) & !0xf;
        let high = if spec.is_64_bit { config32(&mut model, register + 4) } else { 0 };
        Some(BarInfo {
            address: u64::from(high) << 32 | u64::from(low),
            len_bytes: spec.size_bytes,
            prefetchable: spec.prefetchable,
            is_64bit: spec.is_64_bit,
        })
    }

    fn map_bar(&self, index: u8, _caching: Caching) -> Result<HostedWindow, MapError> {
        let bar = self.bar(index).filter(|bar| bar.len_bytes > 0).ok_or(MapError::Absent)?;
        if bar.address == 0 {
            return Err(MapError::Unassigned);
        }
        Ok(HostedWindow { slot: self.0.clone(), bar: index, len: bar.len_bytes })
    }
}

/// One mapped BAR of an emulated function.
#[derive(Clone)]
pub struct HostedWindow {
    slot: Arc<Slot>,
    bar: u8,
    len: u64,
}

impl HostedWindow {
    fn fits(&self, offset: u64, len: u64) -> bool {
        len <= self.len && offset <= self.len - len
    }
}

impl MmioWindow for HostedWindow {
    fn len_bytes(&self) -> u64 {
        self.len
    }

    fn read32(&self, offset: u64) -> u32 {
        if !self.fits(offset, 4) || !offset.is_multiple_of(4) {
            return u32::MAX;
        }
        self.slot.accesses.fetch_add(1, Ordering::Relaxed);
        let mut word = [0xff; 4];
        let mut model = self.slot.model();
        // A window stays mapped when decoding is switched off; the bus then answers nothing.
        if config32(&mut model, COMMAND) & MEMORY_DECODE != 0 {
            model.bar_read(self.bar, offset, &mut word);
        }
        u32::from_le_bytes(word)
    }

    fn write32(&self, offset: u64, value: u32) {
        if !self.fits(offset, 4) || !offset.is_multiple_of(4) {
            return;
        }
        self.slot.accesses.fetch_add(1, Ordering::Relaxed);
        let mut model = self.slot.model();
        if config32(&mut model, COMMAND) & MEMORY_DECODE != 0 {
            model.bar_write(self.bar, offset, &value.to_le_bytes());
        }
    }

    fn read_bytes(&self, offset: u64, into: &mut [u8]) -> bool {
        let fits = self.fits(offset, into.len() as u64);
        if fits {
            self.slot.model().bar_read(self.bar, offset, into);
        }
        fits
    }

    fn write_bytes(&self, offset: u64, from: &[u8]) -> bool {
        let fits = self.fits(offset, from.len() as u64);
        if fits {
            self.slot.model().bar_write(self.bar, offset, from);
        }
        fits
    }
}
