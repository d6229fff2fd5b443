//! Windows handed to another device on the bus, so that it reaches HBM or host memory directly
//! (specification 04 §13).
//!
//! Both kinds are values that hold a pin: a [`Export`] goes through attach and map, as a dma-buf
//! does, a [`Registration`] is mapped from the start, as with the kernel's peer interface. When
//! the client closes the window, drops its chunk or goes, that completes at once; the peer is told,
//! and until it lets go the memory stays out of circulation. A peer is told too when the window is
//! one of a core's blocks and the client's claim of the core ends.

use alloc::sync::Arc;
use alloc::vec::Vec;
use core::sync::atomic::{AtomicBool, AtomicU32, Ordering};

use axon_platform::BusAddr;
use axon_ports::{MemoryError, Pin};

use crate::config::PAGE;
use crate::windows::{LARGE_PAGE, WindowRecord};

/// Lengths from here on may use large pages.
const LARGE_FROM: u64 = 0x1000_0000;

/// A third party that reaches memory through a window.
pub trait Peer: Send + Sync {
    /// The window behind export or registration `number` has gone: stop, then unmap. Called from
    /// wherever the window went; must neither block nor call back.
    fn revoke(&self, number: u64);
}

/// Life of an export.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ExportState {
    /// Nobody uses it.
    Idle,
    /// A peer is attached.
    Attached,
    /// Mapped so often.
    Mapped(u32),
    /// The window has gone, or was taken from peers, while mapped; the peer was told and has not let
    /// go.
    Revoking,
    /// The window has gone, or was taken from peers.
    Dead,
}

/// One page of a mapping.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct PeerPage {
    /// Where the peer finds it.
    pub address: BusAddr,
    /// Bytes; always a page.
    pub len_bytes: u64,
}

/// A part of a window that one peer at a time may map.
pub struct Export {
    number: u64,
    window: Arc<WindowRecord>,
    /// Where the peer finds the first byte.
    start: BusAddr,
    size: u64,
    pin: Option<Pin>,
    attached: AtomicBool,
    mapped: AtomicU32,
}

impl Export {
    /// The part `[address, address + size)` of a window that contains it.
    pub(crate) fn new(
        number: u64,
        window: Arc<WindowRecord>,
        address: u64,
        size: u64,
    ) -> Result<Export, MemoryError> {
        if size == 0 || !window.contains(address, size) {
            return Err(MemoryError::Invalid { what: "size of the export", value: size });
        }
        let start = BusAddr(window.peer.0 + (address - window.address));
        let pin = window.pin();
        let (attached, mapped) = (AtomicBool::new(false), AtomicU32::new(0));
        Ok(Export { number, window, start, size, pin, attached, mapped })
    }

    /// Number under which a peer is told.
    pub fn number(&self) -> u64 {
        self.number
    }

    /// Where it is in its life.
    pub fn state(&self) -> ExportState {
        let mapped = self.mapped.load(Ordering::Acquire);
        match (self.window.serves_peers(), mapped) {
            (false, 0) => ExportState::Dead,
            (false, _) => ExportState::Revoking,
            (true, 0) if self.attached.load(Ordering::Acquire) => ExportState::Attached,
            (true, 0) => ExportState::Idle,
            (true, mapped) => ExportState::Mapped(mapped),
        }
    }

    /// Attaches a peer.
    ///
    /// # Errors
    /// [`MemoryError::Forbidden`] where one is attached already.
    pub fn attach(&self, peer: Arc<dyn Peer>) -> Result<(), MemoryError> {
        if self.attached.swap(true, Ordering::AcqRel) {
            return Err(MemoryError::Forbidden { what: "a second attachment" });
        }
        self.window.add_peer(self.number, peer).inspect_err(|_| {
            self.attached.store(false, Ordering::Release);
        })
    }

    /// The pages of the part, ascending.
    ///
    /// # Errors
    /// [`MemoryError::Forbidden`] where nobody is attached; [`MemoryError::Invalid`] where the
    /// window has gone or the part does not start on a page; [`MemoryError::NoRecords`].
    pub fn map(&self) -> Result<Vec<PeerPage>, MemoryError> {
        if !self.attached.load(Ordering::Acquire) {
            return Err(MemoryError::Forbidden { what: "mapping without an attachment" });
        }
        if !self.window.serves_peers() {
            return Err(MemoryError::Invalid { what: "window", value: self.window.address });
        }
        if !self.start.0.is_multiple_of(PAGE) {
            return Err(MemoryError::Invalid { what: "start of the export", value: self.start.0 });
        }
        let count = self.size.div_ceil(PAGE);
        let mut pages = Vec::new();
        pages.try_reserve_exact(count as usize).map_err(|_| MemoryError::NoRecords)?;
        pages.extend((0..count).map(|page| PeerPage {
            address: BusAddr(self.start.0 + page * PAGE),
            len_bytes: PAGE,
        }));
        self.mapped.fetch_add(1, Ordering::AcqRel);
        Ok(pages)
    }

    /// The peer has let go of one mapping; tolerated when the window has gone.
    ///
    /// # Errors
    /// [`MemoryError::Invalid`] where nothing is mapped.
    pub fn unmap(&self) -> Result<(), MemoryError> {
        let less = |mapped: u32| mapped.checked_sub(1);
        let changed = self.mapped.fetch_update(Ordering::AcqRel, Ordering::Acquire, less);
        changed.map(drop).map_err(|_| MemoryError::Invalid { what: "unmap", value: self.number })
    }

    /// The peer goes; a second time is nothing.
    pub fn detach(&self) {
        if self.attached.swap(false, Ordering::AcqRel) {
            self.window.remove_peer(self.number);
        }
    }

    /// The pin that holds the memory as long as the export exists.
    pub fn pin(&self) -> Option<&Pin> {
        self.pin.as_ref()
    }
}

impl Drop for Export {
    fn drop(&mut self) {
        self.detach();
    }
}

/// A part of a window that a peer reaches; dropping it unregisters it.
pub struct Registration {
    number: u64,
    window: Arc<WindowRecord>,
    address: u64,
    size: u64,
    start: BusAddr,
    page_shift: u32,
    pin: Option<Pin>,
}

impl Registration {
    pub(crate) fn new(
        number: u64,
        window: Arc<WindowRecord>,
        address: u64,
        size: u64,
        peer: Arc<dyn Peer>,
    ) -> Result<Registration, MemoryError> {
        if size == 0 || !window.contains(address, size) {
            return Err(MemoryError::Invalid { what: "length", value: size });
        }
        let start = window.peer.0 + (address - window.address);
        if !start.is_multiple_of(PAGE) {
            return Err(MemoryError::Invalid { what: "address", value: address });
        }
        let large = size >= LARGE_FROM
            && [size, address, start].iter().all(|number| number.is_multiple_of(LARGE_PAGE));
        let page_shift = if large { LARGE_PAGE.trailing_zeros() } else { PAGE.trailing_zeros() };
        let pin = window.pin();
        window.add_peer(number, peer)?;
        Ok(Registration { number, window, address, size, start: BusAddr(start), page_shift, pin })
    }

    /// Number under which the peer is told.
    pub fn number(&self) -> u64 {
        self.number
    }

    /// The address that was registered.
    pub fn address(&self) -> u64 {
        self.address
    }

    /// Bytes.
    pub fn size(&self) -> u64 {
        self.size
    }

    /// log2 of the page size: 12, or 21 for large aligned parts.
    pub fn page_shift(&self) -> u32 {
        self.page_shift
    }

    /// Where the peer finds the one contiguous range.
    pub fn start(&self) -> BusAddr {
        self.start
    }

    /// Pages of the range, the last one perhaps in part.
    pub fn page_count(&self) -> u64 {
        self.size.div_ceil(1 << self.page_shift)
    }

    /// Whether the window is still there, for peers too.
    pub fn is_open(&self) -> bool {
        self.window.serves_peers()
    }

    /// The pin that holds the memory as long as the registration exists.
    pub fn pin(&self) -> Option<&Pin> {
        self.pin.as_ref()
    }
}

impl Drop for Registration {
    fn drop(&mut self) {
        self.window.remove_peer(self.number);
    }
}
