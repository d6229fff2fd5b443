//! Requests of the client, checked before they touch the model.

use std::fs::File;
use std::io::{self, Error, ErrorKind};
use std::sync::Arc;

use vfio_user::{DmaMapFlags, DmaUnmapFlags, ServerBackend};

use super::awake::Awake;
use super::regions::{CONFIG, CONFIG_BYTES};
use super::windows::GuestWindows;
use super::{Shared, State};

/// Most bytes of one access, as the server announces it.
const ACCESS_LIMIT: usize = 1 << 20;

/// What the crate's loop calls.
pub(crate) struct Backend {
    shared: Arc<Shared>,
    windows: Arc<GuestWindows>,
    awake: Option<Arc<Awake>>,
}

impl Backend {
    pub fn new(shared: Arc<Shared>, windows: Arc<GuestWindows>, awake: Option<Arc<Awake>>) -> Self {
        Backend { shared, windows, awake }
    }

    /// Runs `access` on the state and tells the timer if the next event moved.
    fn access(&self, access: impl FnOnce(&mut State)) {
        if let Some(awake) = &self.awake {
            awake.request();
        }
        let mut state = self.shared.lock();
        let before = state.function.next_event();
        access(&mut state);
        if state.function.next_event() != before {
            self.shared.changed.notify_one();
        }
    }

    fn refuse(&self, why: &str) -> Error {
        self.shared.lock().refused += 1;
        log::warn!("{why}");
        Error::new(ErrorKind::InvalidInput, why.to_owned())
    }
}

impl ServerBackend for Backend {
    fn region_read(&mut self, region: u32, offset: u64, data: &mut [u8]) -> io::Result<()> {
        if data.len() > ACCESS_LIMIT {
            return Err(self.refuse("a read of more than 1 MiB"));
        }
        self.access(|state| match (u8::try_from(region), config_offset(region, offset)) {
            (_, Some(offset)) => state.function.config_read(offset, data),
            (Ok(bar @ 0..6), None) => {
                state.function.bar_read(bar, offset, data);
                if data.len() == 4 && state.watchdog.read(offset) {
                    name_spin(state, bar, offset, data);
                }
            }
            _ => data.fill(0xff),
        });
        Ok(())
    }

    fn region_write(&mut self, region: u32, offset: u64, data: &[u8]) -> io::Result<()> {
        if data.len() > ACCESS_LIMIT {
            return Err(self.refuse("a write of more than 1 MiB"));
        }
        self.access(|state| match (u8::try_from(region), config_offset(region, offset)) {
            (_, Some(offset)) => state.function.config_write(offset, data),
            (Ok(bar @ 0..6), None) => {
                state.watchdog.other();
                state.function.bar_write(bar, offset, data);
            }
            _ => {}
        });
        Ok(())
    }

    fn dma_map(
        &mut self,
        flags: DmaMapFlags,
        offset: u64,
        address: u64,
        size: u64,
        file: Option<File>,
    ) -> io::Result<()> {
        let (readable, writable) =
            (flags.contains(DmaMapFlags::READ), flags.contains(DmaMapFlags::WRITE));
        log::debug!("guest memory {address:#x} + {size:#x}, {flags:?}");
        if size == 0 {
            return Err(self.refuse("a window of 0 bytes"));
        }
        let file = file.as_ref().map(|file| (file, offset));
        if file.is_none() {
            log::debug!("{size:#x} bytes at {address:#x} come without a file: no DMA there");
        }
        self.windows.map(address, size, file, readable, writable).map_err(|error| {
            self.refuse(&format!("guest memory {address:#x} + {size:#x}: {error}"))
        })
    }

    fn dma_unmap(&mut self, flags: DmaUnmapFlags, address: u64, size: u64) -> io::Result<()> {
        if flags.contains(DmaUnmapFlags::UNMAP_ALL) {
            self.windows.clear();
        } else {
            self.windows.unmap(address, size);
        }
        Ok(())
    }

    fn reset(&mut self) -> io::Result<()> {
        self.access(|state| state.function.bus_reset());
        Ok(())
    }

    fn set_irqs(
        &mut self,
        index: u32,
        _flags: u32,
        _start: u32,
        count: u32,
        _fds: Vec<File>,
    ) -> io::Result<()> {
        // There are none: to switch off what is off is fine.
        match count {
            0 => Ok(()),
            _ => Err(self.refuse(&format!("interrupt index {index} has no interrupts"))),
        }
    }
}

/// Offset in configuration space, if the access is one and fits.
fn config_offset(region: u32, offset: u64) -> Option<u16> {
    (region == CONFIG && offset < CONFIG_BYTES).then_some(offset as u16)
}

/// Says which register the guest spins on.
#[cold]
fn name_spin(state: &mut State, bar: u8, offset: u64, data: &[u8]) {
    let name = state.function.register_name(bar, offset);
    let spin = state.watchdog.note(name);
    log::warn!(
        "the guest read {} ({offset:#x}) {} times in a row; it reads {data:02x?}",
        spin.name,
        spin.reads
    );
}
