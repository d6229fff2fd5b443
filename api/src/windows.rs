//! Windows: memory and blocks of registers as the CPU and a peer device on the bus see them
//! (specification 04 §11, §13). The memory service keeps the table; this is the way through it.
//!
//! An application shares the machine's address space, so that a window is a right, a name and
//! checked accesses, not a pointer.

use alloc::sync::Arc;
use alloc::vec::Vec;
use core::ops::{Bound, RangeBounds};

use axon_clients::gates::{GateError, Grant};
use axon_memory::exports::{Export, Peer, Registration};
use axon_memory::windows::{BarMap, Rights, Shown, SpecialBlock, Window};
use axon_neuron::hal::{Block, Hal, Resource, SpecialWindow};
use axon_platform::{BusAddr, DeviceAddr, MmioWindow, PciFunction, Platform};
use axon_ports::{ClientId, CoreId, DeviceIndex, HbmIndex, Location, MemoryError, Pin};

use crate::calls::Call;
use crate::client::{CORE_0, Shared};
use crate::{Buffer, Client, Driver, Error};

/// Bytes that the driver moves at once through the memory window.
const PIECE: usize = 8192;

/// What BAR4 of a function shows of HBM, for the memory service; `None` without a BAR4.
pub(crate) fn bar_map(function: &impl PciFunction, hal: &Hal) -> Option<Arc<dyn BarMap>> {
    struct Bar4 {
        hal: Hal,
        base: u64,
    }

    impl BarMap for Bar4 {
        fn peer_address(&self, pa: DeviceAddr, len_bytes: u64) -> Option<BusAddr> {
            let offset = self.hal.memory_window_offset(pa, len_bytes).ok()?;
            self.base.checked_add(offset).map(BusAddr)
        }
    }

    let bar = function.bar(4).filter(|bar| bar.address != 0 && bar.len_bytes != 0)?;
    Some(Arc::new(Bar4 { hal: *hal, base: bar.address }))
}

/// What is behind a window.
#[derive(Clone, Copy)]
enum Behind {
    Host,
    /// HBM from this address on; this core's state decides whether it may be written.
    Memory {
        base: DeviceAddr,
        core: CoreId,
    },
    /// Registers from this offset on, of this core.
    Registers {
        offset: u64,
        core: Option<CoreId>,
    },
}

/// A window of a client. Dropping it unmaps it; it also ends with its client. The chunk behind it
/// may be freed: its memory is not given to anybody else while the window is there.
pub struct BarView<P: Platform> {
    client: Arc<Shared<P>>,
    window: Window,
    behind: Behind,
}

/// A window on a block of the device instead of a chunk.
pub type BarRegion<P> = BarView<P>;

impl<P: Platform> BarView<P> {
    /// The number that names its first byte, for [`Driver::placement`] and [`Client::export`]; no
    /// memory is there.
    pub fn address(&self) -> u64 {
        self.window.address()
    }

    /// Whose it is.
    pub fn client(&self) -> ClientId {
        self.client.access.client()
    }

    /// Bytes.
    pub fn size(&self) -> u64 {
        self.window.size()
    }

    /// Whether it was made for changing what is behind it.
    pub fn is_writable(&self) -> bool {
        self.window.rights().is_writable()
    }

    /// Where a peer on the bus finds its first byte.
    pub fn peer_address(&self) -> BusAddr {
        self.window.peer_address()
    }

    /// Whether it still shows anything: not once its client has ended.
    pub fn is_open(&self) -> bool {
        self.window.is_open()
    }

    /// Reads `into.len()` bytes from `offset` on with the CPU: registers in words of 32 bits,
    /// memory as it likes. Not ordered with DMA in flight (specification 03 §11.5).
    ///
    /// # Errors
    /// [`Error::InvalidArgument`] for no bytes, parts of a register, or a window that has ended;
    /// [`Error::OutOfRange`]; [`Error::Again`] in RESET, [`Error::DeviceFailed`],
    /// [`Error::DeviceGone`]; [`Error::NotAttached`].
    pub fn read(&self, offset: u64, into: &mut [u8]) -> Result<(), Error> {
        self.check(offset, into.len() as u64)?;
        match self.behind {
            Behind::Host => Ok(self.window.host().ok_or(self.ended())?.read(offset, into)?),
            Behind::Memory { base, .. } => {
                let neuron = self.client.device.neuron();
                self.client.device.neuron().check_ready()?;
                let (address, len) = (DeviceAddr(base.0 + offset), into.len() as u64);
                let at = neuron.hal().memory_window_offset(address, len)?;
                match neuron.memory_window() {
                    Some(window) if window.read_bytes(at, into) => Ok(()),
                    _ => Err(Error::Unsupported { what: "memory through BAR4 in this machine" }),
                }
            }
            Behind::Registers { offset: base, .. } => {
                let mut at = base + offset;
                for word in into.chunks_exact_mut(4) {
                    word.copy_from_slice(&self.client.device.read32(at)?.to_le_bytes());
                    at += 4;
                }
                Ok(())
            }
        }
    }

    /// Writes `data` from `offset` on with the CPU: device memory and registers in words of 32
    /// bits. Refused half-way, where the device is lost, it leaves a part written.
    ///
    /// # Errors
    /// As [`BarView::read`]; EPERM through a window that is for looking only, and [`Error::Gate`]
    /// (EPERM) where its core is not claimed any more; [`Error::Driver`] for a register that no
    /// client may write (specification 01 §3.11).
    pub fn write(&self, offset: u64, data: &[u8]) -> Result<(), Error> {
        self.check(offset, data.len() as u64)?;
        if !self.is_writable() {
            return Err(MemoryError::Forbidden { what: "a write through this window" }.into());
        }
        let neuron = self.client.device.neuron();
        match self.behind {
            Behind::Host => Ok(self.window.host().ok_or(self.ended())?.write(offset, data)?),
            Behind::Memory { base, core } => {
                if !(offset | data.len() as u64).is_multiple_of(4) {
                    return Err(Error::InvalidArgument {
                        what: "part of a word at",
                        value: offset,
                    });
                }
                let mut address = base.0 + offset;
                for piece in data.chunks(PIECE) {
                    neuron.write_memory_window(core, DeviceAddr(address), piece)?;
                    address += piece.len() as u64;
                }
                Ok(())
            }
            Behind::Registers { offset: base, core } => {
                check_claim(&self.client, core)?;
                self.client.device.neuron().check_ready()?;
                let mut at = base + offset;
                for word in data.chunks_exact(4) {
                    let word = word.iter().rev().fold(0, |word, &byte| word << 8 | u32::from(byte));
                    neuron.write32(at, word)?;
                    at += 4;
                }
                Ok(())
            }
        }
    }

    /// Hands a range to a peer that attaches, maps and unmaps, as a dma-buf does
    /// (specification 04 §13.1).
    ///
    /// # Errors
    /// [`Error::InvalidArgument`] for an empty range or one outside;
    /// [`Error::Driver`] (EPERM) for a window that is for looking only; [`Error::NotAttached`].
    pub async fn export(&self, range: impl RangeBounds<u64>) -> Result<Export, Error> {
        let (address, len) = self.range(range)?;
        Call::Map.admit(&self.client.access)?;
        let client = self.client.access.client();
        Ok(self.client.device.memory().export(client, address, len).await?)
    }

    /// Hands a range to a peer that reaches it from now on (specification 04 §13.2).
    ///
    /// # Errors
    /// As [`BarView::export`], and [`Error::InvalidArgument`] for a range that does not start on a
    /// page.
    pub async fn register_peer(
        &self,
        range: impl RangeBounds<u64>,
        peer: Arc<dyn Peer>,
    ) -> Result<Registration, Error> {
        let (address, len) = self.range(range)?;
        Call::Map.admit(&self.client.access)?;
        let client = self.client.access.client();
        Ok(self.client.device.memory().register(client, address, len, peer).await?)
    }

    /// Name and length of a range of the window.
    fn range(&self, range: impl RangeBounds<u64>) -> Result<(u64, u64), Error> {
        let start = match range.start_bound() {
            Bound::Included(&start) => Some(start),
            Bound::Excluded(before) => before.checked_add(1),
            Bound::Unbounded => Some(0),
        };
        let end = match range.end_bound() {
            Bound::Included(last) => last.checked_add(1),
            Bound::Excluded(&end) => Some(end),
            Bound::Unbounded => Some(self.size()),
        };
        let ends = start.zip(end).filter(|&(start, end)| start < end && end <= self.size());
        let (start, end) = ends.ok_or(Error::InvalidArgument {
            what: "start of a range of the window",
            value: start.unwrap_or(u64::MAX),
        })?;
        Ok((self.address() + start, end - start))
    }

    fn check(&self, offset: u64, len: u64) -> Result<(), Error> {
        Call::Map.admit(&self.client.access)?;
        if len == 0 {
            return Err(Error::EMPTY);
        }
        let limit = self.size();
        if len > limit || offset > limit - len {
            return Err(Error::OutOfRange { offset, len, limit });
        }
        if !self.is_open() {
            return Err(self.ended());
        }
        match self.behind {
            Behind::Registers { .. } if !(offset | len).is_multiple_of(4) => {
                Err(Error::InvalidArgument { what: "part of a register at", value: offset })
            }
            _ => Ok(()),
        }
    }

    #[cold]
    fn ended(&self) -> Error {
        Error::InvalidArgument { what: "a window that has ended", value: self.address() }
    }
}

/// Whether the client has claimed the core.
fn check_claim<P: Platform>(client: &Shared<P>, core: Option<CoreId>) -> Result<(), Error> {
    let Some(core) = core else { return Ok(()) };
    match client.device.core_owner(core) {
        Some(owner) if owner == client.access.client() => Ok(()),
        other => Err(GateError::CoreNotClaimed { claimed: other.is_some() }.into()),
    }
}

async fn map_chunk<P: Platform>(
    client: &Arc<Shared<P>>,
    cookie: u64,
    size: u64,
) -> Result<BarView<P>, Error> {
    client.enter_memory(Call::Map).await?;
    let owner = client.access.client();
    let window = client.device.memory().map_window(owner, cookie, size).await?;
    let behind = match window.facts() {
        Some(facts) if facts.location == Location::Device => {
            Behind::Memory { base: facts.pa, core: facts.core }
        }
        _ => Behind::Host,
    };
    Ok(BarView { client: client.clone(), window, behind })
}

impl<P: Platform> Buffer<P> {
    /// A window on the whole buffer; rings are for looking only (specification 04 §11.2).
    ///
    /// # Errors
    /// [`Error::InvalidArgument`] for device memory that BAR4 does not show; [`Error::BadHandle`]
    /// where the chunk was freed by its number; [`Error::NoRecords`]; [`Error::NotAttached`].
    pub async fn window(&self) -> Result<BarView<P>, Error> {
        self.window_len(self.size()).await
    }

    /// As [`Buffer::window`], for `size` bytes: those of the buffer, or for a contiguous scratchpad
    /// any number up to the end of its run.
    ///
    /// # Errors
    /// As there, and [`Error::InvalidArgument`] for another size.
    pub async fn window_len(&self, size: u64) -> Result<BarView<P>, Error> {
        let _held = self.pin()?;
        map_chunk(self.client(), self.device_addr().0, size).await
    }
}

/// Host chunks that hardware may be pointed at as long as this lives.
pub struct HeldRanges(Vec<Pin>);

impl HeldRanges {
    /// Bytes of the chunks.
    pub fn bytes(&self) -> u64 {
        self.0.iter().map(|pin| pin.facts().size).sum()
    }
}

impl<P: Platform> Client<P> {
    /// A window on the chunk that contains `cookie`, from its first byte on; `size` is that of the
    /// chunk, or for a contiguous scratchpad up to the end of its run. What another client owns is
    /// for looking only (specification 04 §11.2).
    ///
    /// # Errors
    /// [`Error::InvalidArgument`] for a cookie without a chunk, another size, or device memory that
    /// BAR4 does not show; [`Error::Driver`] (EPERM) for memory of the driver's own and another
    /// client's notification queue; [`Error::NoRecords`]; [`Error::NotAttached`].
    pub async fn window(&self, cookie: DeviceAddr, size: u64) -> Result<BarView<P>, Error> {
        map_chunk(self.shared(), cookie.0, size).await
    }

    /// A window on a block of the device: semaphores or state buffer of a core, a TopSP
    /// (specification 04 §11.3). It is writable where the table says so and this client has
    /// claimed the core, else for looking only.
    ///
    /// # Errors
    /// [`Error::InvalidArgument`] where the device has no such block; for HBM as
    /// [`Client::hbm_window`]; [`Error::NoRecords`]; [`Error::NotAttached`].
    pub async fn region(
        &self,
        block: Block,
        number: u32,
        resource: Resource,
    ) -> Result<BarRegion<P>, Error> {
        self.shared().enter_memory(Call::Map).await?;
        let hal = self.device().hal();
        let special = hal.special_window(block, number, resource)?;
        let core = match block {
            Block::Core => CoreId::new(number),
            Block::TopSp => Some(hal.core_of_topsp(number)?),
            Block::Hbm => {
                self.check_grant(Grant::RawDram)?;
                None
            }
        };
        let writable = special.writable && check_claim(self.shared(), core).is_ok();
        let rights = if writable { Rights::ReadWrite } else { Rights::ReadOnly };
        let peer = self.block_address(&special)?;
        let channel = block == Block::Hbm;
        let shown = if channel { Shown::Channel(number as u8) } else { Shown::Special };
        let block = SpecialBlock { size: special.len_bytes, peer, rights, shown };
        let window = self.device().memory().map_special(self.id(), block).await?;
        if let Some(core) = core.filter(|_| writable) {
            if let Some(core) = self.device().global_core(core) {
                self.device().claimed_windows().enter(core, &window)?;
            }
            // It may have ended meanwhile.
            if check_claim(self.shared(), Some(core)).is_err() {
                window.peers().withdraw();
            }
        }
        let behind = match special.in_memory_window {
            true => Behind::Memory { base: DeviceAddr(special.token), core: CORE_0 },
            false => Behind::Registers { offset: special.offset, core },
        };
        Ok(BarView { client: self.shared().clone(), window, behind })
    }

    /// A window on all of an HBM, whoever owns what is there: to diagnose a device. Trainium1 and
    /// Inferentia2 have none.
    ///
    /// # Errors
    /// [`Error::Gate`] (EPERM) without the grant of raw device memory; [`Error::InvalidArgument`]
    /// where the device has none or BAR4 is shorter.
    pub async fn hbm_window(&self, hbm: HbmIndex) -> Result<BarRegion<P>, Error> {
        self.region(Block::Hbm, hbm.number(), Resource::Memory).await
    }

    /// Where a peer finds a block.
    fn block_address(&self, special: &SpecialWindow) -> Result<BusAddr, Error> {
        let device = self.device();
        let neuron = device.neuron();
        let functions = neuron.platform().functions();
        let bar = if special.in_memory_window { 4 } else { device.hal().register_bar() };
        let bar = functions.get(device.position()).and_then(|function| function.bar(bar));
        let place = bar.filter(|bar| special.offset <= bar.len_bytes).and_then(|bar| {
            // A function that is gone answers all-ones: its BAR would reach behind the last address.
            bar.address.checked_add(bar.len_bytes)?;
            let left = bar.len_bytes - special.offset;
            (special.len_bytes <= left).then_some(BusAddr(bar.address + special.offset))
        });
        let (what, value) = ("block that the BAR does not show", special.token);
        place.ok_or(Error::InvalidArgument { what, value })
    }

    /// As [`BarView::export`], for an address inside one of the client's windows (DMABUF_FD).
    ///
    /// # Errors
    /// As there; [`Error::InvalidArgument`] for an address in none of them.
    pub async fn export(&self, address: u64, size: u64) -> Result<Export, Error> {
        Call::Map.admit(self.access())?;
        Ok(self.device().memory().export(self.id(), address, size).await?)
    }

    /// As [`BarView::register_peer`], for an address inside one of the client's windows.
    ///
    /// # Errors
    /// As there; [`Error::InvalidArgument`] for an address in none of them.
    pub async fn register_peer(
        &self,
        address: u64,
        size: u64,
        peer: Arc<dyn Peer>,
    ) -> Result<Registration, Error> {
        Call::Map.admit(self.access())?;
        Ok(self.device().memory().register(self.id(), address, size, peer).await?)
    }

    /// Holds the client's host memory in these ranges of addresses and lengths, each inside one
    /// chunk (specification 04 §6.4).
    ///
    /// # Errors
    /// [`Error::InvalidArgument`] with the address of the first that is not; [`Error::NoRecords`];
    /// [`Error::NotAttached`]. Nothing is held.
    pub async fn hold_host_ranges(
        &self,
        ranges: &[(DeviceAddr, u64)],
    ) -> Result<HeldRanges, Error> {
        Call::Map.admit(self.access())?;
        let mut list = Vec::new();
        list.try_reserve_exact(ranges.len()).map_err(|_| MemoryError::NoRecords)?;
        list.extend(ranges.iter().map(|&(address, len)| (address.0, len)));
        Ok(HeldRanges(self.device().memory().validate_host(self.id(), list).await?))
    }
}

impl<P: Platform> Driver<P> {
    /// Whose memory lies at an address inside one of the client's windows, on any device
    /// (GET_VA_PLACEMENT).
    ///
    /// # Errors
    /// [`Error::InvalidArgument`] for an address in none of them.
    pub async fn placement(
        &self,
        client: ClientId,
        address: u64,
    ) -> Result<(DeviceIndex, Shown), Error> {
        for device in self.devices() {
            if let Ok(shown) = device.memory().placement(client, address).await {
                return Ok((device.index(), shown));
            }
        }
        Err(Error::InvalidArgument { what: "address in a window", value: address })
    }
}
