//! One PCI function as a driver sees it.

use alloc::sync::Arc;
use core::cell::OnceCell;

use axon_platform::{BarInfo, Bdf, Caching, MapError, PciFunction};
use critical_section::Mutex;

use super::bar::{self, Bars};
use super::config::Config;
use super::window::Window;
use crate::memory::paging::Rights;
use crate::memory::windows::Mapping;

/// A PCI function. Clones name the same one.
#[derive(Clone)]
pub struct Function {
    record: Arc<Record>,
}

struct Record {
    bdf: Bdf,
    config: Config,
    /// Read when first asked for: sizing takes decoding away for a moment, and most functions of a
    /// machine are none of ours.
    bars: Mutex<OnceCell<Bars>>,
}

impl Function {
    /// The function at `bdf`.
    pub(super) fn new(bdf: Bdf, config: Config) -> Function {
        let bars = Mutex::new(OnceCell::new());
        Function { record: Arc::new(Record { bdf, config, bars }) }
    }
}

impl PciFunction for Function {
    type Window = Window;

    fn bdf(&self) -> Bdf {
        self.record.bdf
    }

    fn config_read32(&self, offset: u16) -> u32 {
        self.record.config.read32(offset)
    }

    fn config_write32(&self, offset: u16, value: u32) {
        self.record.config.write32(offset, value);
    }

    fn config_write16(&self, offset: u16, value: u16) {
        self.record.config.write16(offset, value);
    }

    fn bar(&self, index: u8) -> Option<BarInfo> {
        critical_section::with(|section| {
            let bars = self.record.bars.borrow(section);
            let bars = bars.get_or_init(|| bar::read(&self.record.config));
            *bars.get(usize::from(index))?
        })
    }

    fn map_bar(&self, index: u8, caching: Caching) -> Result<Window, MapError> {
        let bar = self.bar(index).ok_or(MapError::Absent)?;
        if bar.address == 0 {
            return Err(MapError::Unassigned);
        }
        let rights = match caching {
            Caching::Uncached => Rights::Uncached,
            Caching::WriteCombining => Rights::WriteCombining,
        };
        let mapping = Mapping::new(bar.address, bar.len_bytes, rights)?;
        Ok(Window::new(mapping, bar.len_bytes, caching))
    }
}
