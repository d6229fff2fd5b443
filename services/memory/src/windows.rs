//! Windows: what a client may look at through the CPU, and the index by which an address inside one
//! is found again (specification 04 §11).
//!
//! A [`Window`] pins its chunk and closes when it is dropped, when its client goes or when the
//! service ends. Nothing here maps memory: there is no MMU between an application and the
//! machine, so a window is a right and a name. The name is an address that belongs to no memory and
//! is never given twice; its low 21 bits are those of the address that a peer device must use.

use alloc::sync::{Arc, Weak};
use alloc::vec::Vec;
use core::cell::RefCell;
use core::sync::atomic::{AtomicBool, Ordering};

use axon_platform::{BusAddr, DeviceAddr, DmaBuf};
use axon_ports::{Category, ChunkFacts, ClientId, Location, MemoryError, Pin};
use embassy_sync::blocking_mutex::Mutex;
use embassy_sync::blocking_mutex::raw::CriticalSectionRawMutex;

use crate::exports::Peer;

/// First address that names a window.
pub(crate) const FIRST_ADDRESS: u64 = 0x7f00_0000_0000;
/// Windows keep this much of their peer address, so that large pages stay large.
pub(crate) const LARGE_PAGE: u64 = 0x20_0000;

/// Where BAR4 shows HBM; made by whoever knows the function.
pub trait BarMap: Send + Sync {
    /// Bus address at which a peer finds `[pa, pa + len_bytes)` of HBM; `None` where BAR4 does not
    /// show all of it.
    fn peer_address(&self, pa: DeviceAddr, len_bytes: u64) -> Option<BusAddr>;
}

/// What may be done through a window; fixed when it is made.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Rights {
    /// Look.
    ReadOnly,
    /// Look and change.
    ReadWrite,
}

/// A block of registers or HBM that is not a chunk, as the HAL describes it
/// (specification 04 §11.3).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SpecialBlock {
    /// Bytes.
    pub size: u64,
    /// Bus address of its first byte.
    pub peer: BusAddr,
    /// What may be done through it.
    pub rights: Rights,
    /// What it is: [`Shown::Special`], or a channel.
    pub shown: Shown,
}

/// What a window shows.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Shown {
    /// Host memory.
    Host,
    /// HBM of this channel.
    Channel(u8),
    /// A special block.
    Special,
}

/// The part of a window that others share.
pub(crate) struct WindowRecord {
    pub(crate) address: u64,
    pub(crate) size: u64,
    pub(crate) peer: BusAddr,
    pub(crate) client: ClientId,
    pub(crate) shown: Shown,
    pub(crate) rights: Rights,
    open: AtomicBool,
    /// No peer may be given it any more.
    withdrawn: AtomicBool,
    held: Mutex<CriticalSectionRawMutex, RefCell<Held>>,
}

#[derive(Default)]
struct Held {
    pin: Option<Pin>,
    /// Who has to be told when the window goes, and under which number.
    peers: Vec<(u64, Arc<dyn Peer>)>,
}

impl WindowRecord {
    pub(crate) fn new(
        address: u64,
        size: u64,
        peer: BusAddr,
        client: ClientId,
        shown: Shown,
        rights: Rights,
        pin: Option<Pin>,
    ) -> Self {
        let held = Held { pin, peers: Vec::new() };
        let held = Mutex::new(RefCell::new(held));
        let (open, withdrawn) = (AtomicBool::new(true), AtomicBool::new(false));
        WindowRecord { address, size, peer, client, shown, rights, open, withdrawn, held }
    }

    pub(crate) fn is_open(&self) -> bool {
        self.open.load(Ordering::Acquire)
    }

    /// Whether all of `[address, address + len)` lies in the window.
    pub(crate) fn contains(&self, address: u64, len: u64) -> bool {
        address >= self.address
            && len <= self.size
            && address - self.address <= self.size - len
            && (len > 0 || address - self.address < self.size)
    }

    /// Whether peers may reach what it shows.
    pub(crate) fn serves_peers(&self) -> bool {
        self.is_open() && !self.withdrawn.load(Ordering::Acquire)
    }

    /// Takes it from every peer; the client keeps it.
    fn withdraw(&self) {
        if self.withdrawn.swap(true, Ordering::AcqRel) {
            return;
        }
        let peers = self.held.lock(|held| core::mem::take(&mut held.borrow_mut().peers));
        for (number, peer) in &peers {
            peer.revoke(*number);
        }
    }

    /// Ends the window: its pin goes, and every peer is told, outside any lock.
    pub(crate) fn close(&self) {
        if !self.open.swap(false, Ordering::AcqRel) {
            return;
        }
        let held = self.held.lock(|held| core::mem::take(&mut *held.borrow_mut()));
        for (number, peer) in &held.peers {
            peer.revoke(*number);
        }
    }

    /// A pin of the chunk behind the window; `None` for a special block and once it is closed.
    pub(crate) fn pin(&self) -> Option<Pin> {
        self.held.lock(|held| held.borrow().pin.clone())
    }

    /// Has `peer` told under `number` when the window goes.
    pub(crate) fn add_peer(&self, number: u64, peer: Arc<dyn Peer>) -> Result<(), MemoryError> {
        self.held.lock(|held| {
            let mut held = held.borrow_mut();
            if !self.serves_peers() {
                return Err(MemoryError::Invalid { what: "window", value: self.address });
            }
            held.peers.try_reserve(1).map_err(|_| MemoryError::NoRecords)?;
            held.peers.push((number, peer));
            Ok(())
        })
    }

    pub(crate) fn remove_peer(&self, number: u64) {
        self.held.lock(|held| held.borrow_mut().peers.retain(|(there, _)| *there != number));
    }
}

/// One window of a client. Dropping it unmaps it.
pub struct Window {
    pub(crate) record: Arc<WindowRecord>,
    facts: Option<ChunkFacts>,
}

impl Window {
    pub(crate) fn new(record: Arc<WindowRecord>, facts: Option<ChunkFacts>) -> Self {
        Window { record, facts }
    }

    /// The address that names its first byte.
    pub fn address(&self) -> u64 {
        self.record.address
    }

    /// Bytes.
    pub fn size(&self) -> u64 {
        self.record.size
    }

    /// What may be done through it.
    pub fn rights(&self) -> Rights {
        self.record.rights
    }

    /// Where a peer device finds its first byte.
    pub fn peer_address(&self) -> BusAddr {
        self.record.peer
    }

    /// Facts of the chunk behind it; `None` for a special block.
    pub fn facts(&self) -> Option<ChunkFacts> {
        self.facts
    }

    /// What peers have of it, for whoever may take it from them.
    pub fn peers(&self) -> WindowPeers {
        WindowPeers(Arc::downgrade(&self.record))
    }

    /// Whether it still shows anything.
    pub fn is_open(&self) -> bool {
        self.record.is_open()
    }

    /// The host memory behind it, cached; `None` for other windows and once it is closed.
    pub fn host(&self) -> Option<DmaBuf> {
        let pin = self.record.pin()?;
        pin.host()?.slice(0, self.record.size).ok()
    }
}

/// What peers have of one window.
pub struct WindowPeers(Weak<WindowRecord>);

impl WindowPeers {
    /// Takes the window from every peer, for good: those that reach it are told, and none is let in
    /// again. The client keeps the window.
    pub fn withdraw(&self) {
        if let Some(record) = self.0.upgrade() {
            record.withdraw();
        }
    }

    /// Whether there is nothing left to take.
    pub fn is_over(&self) -> bool {
        self.0.upgrade().is_none_or(|record| !record.serves_peers())
    }
}

impl Drop for Window {
    fn drop(&mut self) {
        self.record.close();
    }
}

impl core::fmt::Debug for Window {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("Window")
            .field("address", &self.record.address)
            .field("size", &self.record.size)
            .field("rights", &self.record.rights)
            .finish()
    }
}

/// Who may map a chunk, and how (specification 04 §9.1): the owner as it likes, others to look;
/// the driver's own chunks and another client's notification queue nobody. What rings are made of is
/// for looking only: descriptors enter it checked (specification 03 §5.4).
pub(crate) fn rights(facts: &ChunkFacts, client: ClientId) -> Result<Rights, MemoryError> {
    if facts.owner == Some(client) {
        return Ok(match facts.category {
            Category::DMA_RINGS_HOST | Category::DMA_RINGS_DEVICE => Rights::ReadOnly,
            _ => Rights::ReadWrite,
        });
    }
    if facts.owner.is_none() || crate::set::is_notification(facts.category) {
        return Err(MemoryError::Forbidden { what: "a window" });
    }
    Ok(Rights::ReadOnly)
}

/// Whether a window of `size` may be put on a chunk: all of it, or for a contiguous scratchpad as
/// far as an access may reach.
pub(crate) fn fits(facts: &ChunkFacts, size: u64) -> bool {
    let scratchpad = facts.category == Category::CONTIGUOUS_SCRATCHPAD_DEVICE
        && facts.location == Location::Device;
    size == facts.size || scratchpad && size > 0 && size <= facts.reach
}
