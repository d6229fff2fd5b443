//! The window table, and who may scrub a channel (specification 04 §11.2, §9.3).

use alloc::sync::Arc;
use alloc::vec::Vec;

use axon_platform::BusAddr;
use axon_ports::{ChunkFacts, ClientId, DeviceIndex, Location, MemoryError, Pin, ScrubHold};

use super::MemorySet;
use crate::config::{CARVEOUT, PAGE};
use crate::exports::{Export, Peer, Registration};
use crate::host::HostSource;
use crate::windows::{
    BarMap, FIRST_ADDRESS, LARGE_PAGE, Rights, Shown, SpecialBlock, Window, WindowRecord, fits,
    rights,
};

/// Windows of a device, oldest first. Closed ones are forgotten by whoever looks next.
pub(super) struct Windows {
    records: Vec<Arc<WindowRecord>>,
    next_address: u64,
    next_number: u64,
    bar_map: Option<Arc<dyn BarMap>>,
}

/// The part of a channel that a scrub fills.
#[derive(Debug)]
pub struct ScrubRange {
    /// First byte behind the carve-out.
    pub start: u64,
    /// First byte behind the channel.
    pub end: u64,
    /// Dropped when nothing can write there any more.
    pub hold: ScrubHold,
}

impl Windows {
    pub(super) const fn new() -> Self {
        Windows { records: Vec::new(), next_address: FIRST_ADDRESS, next_number: 1, bar_map: None }
    }

    fn enter(
        &mut self,
        client: ClientId,
        size: u64,
        peer: BusAddr,
        shown: Shown,
        rights: Rights,
        pin: Option<Pin>,
    ) -> Result<Arc<WindowRecord>, MemoryError> {
        self.records.retain(|record| record.is_open());
        self.records.try_reserve(1).map_err(|_| MemoryError::NoRecords)?;
        let address = self.next_address + peer.0 % LARGE_PAGE;
        let end = address.checked_add(size).and_then(|end| end.checked_add(2 * LARGE_PAGE));
        let end = end.filter(|&end| end < 1 << 63).ok_or(MemoryError::NoRecords)?;
        self.next_address = end & !(LARGE_PAGE - 1);
        let record = Arc::new(WindowRecord::new(address, size, peer, client, shown, rights, pin));
        self.records.push(record.clone());
        Ok(record)
    }

    /// The open window of `client` that contains `address`.
    fn find(&mut self, client: ClientId, address: u64) -> Option<&Arc<WindowRecord>> {
        self.records.retain(|record| record.is_open());
        let last = self.records.partition_point(|record| record.address <= address);
        let record = self.records.get(last.checked_sub(1)?)?;
        (record.client == client && record.contains(address, 1)).then_some(record)
    }

    fn number(&mut self) -> u64 {
        self.next_number += 1;
        self.next_number - 1
    }

    /// Closes the windows of a client, or all.
    pub(super) fn close(&mut self, client: Option<ClientId>) {
        for record in &self.records {
            if client.is_none_or(|client| record.client == client) {
                record.close();
            }
        }
        self.records.retain(|record| record.is_open());
    }
}

impl<S: HostSource> MemorySet<S> {
    /// Says where BAR4 shows HBM. Without it device memory has no windows.
    pub fn set_bar_map(&mut self, bar_map: Arc<dyn BarMap>) {
        self.state.windows.bar_map = Some(bar_map);
    }

    /// Gives the windows of this device addresses that no other device's have.
    pub fn set_window_space(&mut self, device: DeviceIndex) {
        self.state.windows.next_address = FIRST_ADDRESS + (u64::from(device.number()) << 48);
    }

    /// A window on the chunk that contains `cookie`: all of it from its base, or the part of a
    /// contiguous scratchpad's run that an access may reach. The owner may change it, others may look.
    ///
    /// # Errors
    /// [`MemoryError::Invalid`] for a cookie without a chunk, another size, or device memory that
    /// BAR4 does not show; [`MemoryError::Forbidden`]; [`MemoryError::NoRecords`];
    /// [`MemoryError::NoSpace`] where a failure was armed.
    pub fn map_window(
        &mut self,
        client: ClientId,
        cookie: u64,
        size: u64,
    ) -> Result<Window, MemoryError> {
        let name = self.find_pa(cookie);
        let name = name.ok_or(MemoryError::Invalid { what: "window cookie", value: cookie })?;
        let facts = self.record(name.slot)?.facts();
        let rights = rights(&facts, client)?;
        if !fits(&facts, size) {
            return Err(MemoryError::Invalid { what: "window size", value: size });
        }
        let (peer, shown) = self.shown(&facts, size)?;
        let pin = self.table.pin_name(name).ok_or(MemoryError::NoSuchAddress { pa: cookie })?;
        let record = self.state.windows.enter(client, size, peer, shown, rights, Some(pin))?;
        Ok(Window::new(record, Some(facts)))
    }

    /// What a window on a chunk shows, and where a peer finds it.
    fn shown(&mut self, facts: &ChunkFacts, size: u64) -> Result<(BusAddr, Shown), MemoryError> {
        if facts.location == Location::Host {
            if self.state.faults.window.hit() {
                return Err(MemoryError::NoSpace { what: "host windows" });
            }
            let bus = facts.pa.0 & !self.state.geometry.host_base;
            return Ok((BusAddr(bus), Shown::Host));
        }
        let bar_map = self.state.windows.bar_map.as_ref();
        let peer = bar_map.and_then(|map| map.peer_address(facts.pa, size));
        let peer = peer.ok_or(MemoryError::Invalid {
            what: "device address for a window",
            value: facts.pa.0,
        })?;
        Ok((peer, Shown::Channel(facts.channel)))
    }

    /// A window on a special block. The caller has tested that the client may have it.
    ///
    /// # Errors
    /// [`MemoryError::Invalid`] for a block of no or odd size; [`MemoryError::NoRecords`].
    pub fn map_special(
        &mut self,
        client: ClientId,
        block: SpecialBlock,
    ) -> Result<Window, MemoryError> {
        if block.size == 0 || !block.size.is_multiple_of(PAGE) {
            return Err(MemoryError::Invalid { what: "window size", value: block.size });
        }
        let (peer, rights) = (block.peer, block.rights);
        let windows = &mut self.state.windows;
        let record = windows.enter(client, block.size, peer, block.shown, rights, None)?;
        Ok(Window::new(record, None))
    }

    /// What lies at `address` inside one of the client's own windows (GET_VA_PLACEMENT).
    ///
    /// # Errors
    /// [`MemoryError::Invalid`].
    pub fn placement(&mut self, client: ClientId, address: u64) -> Result<Shown, MemoryError> {
        Ok(self.own_window(client, address)?.shown)
    }

    /// Exports `[address, address + size)` of one of the client's windows.
    ///
    /// # Errors
    /// [`MemoryError::Invalid`] where no window contains all of it, or for a size of 0;
    /// [`MemoryError::Forbidden`] for a window that is for looking only.
    pub fn export(
        &mut self,
        client: ClientId,
        address: u64,
        size: u64,
    ) -> Result<Export, MemoryError> {
        let window = self.peer_window(client, address)?;
        Export::new(self.state.windows.number(), window, address, size)
    }

    /// Registers `[address, address + size)` of one of the client's windows with a peer.
    ///
    /// # Errors
    /// [`MemoryError::Invalid`] where no window contains all of it, it does not start on a page, or
    /// for a size of 0; [`MemoryError::Forbidden`] for a window that is for looking only.
    pub fn register(
        &mut self,
        client: ClientId,
        address: u64,
        size: u64,
        peer: Arc<dyn Peer>,
    ) -> Result<Registration, MemoryError> {
        let window = self.peer_window(client, address)?;
        Registration::new(self.state.windows.number(), window, address, size, peer)
    }

    /// A window that a peer may be given, which writes as it likes.
    fn peer_window(
        &mut self,
        client: ClientId,
        address: u64,
    ) -> Result<Arc<WindowRecord>, MemoryError> {
        let window = self.own_window(client, address)?;
        match window.rights {
            Rights::ReadWrite if window.serves_peers() => Ok(window),
            _ => Err(MemoryError::Forbidden { what: "giving a peer this window" }),
        }
    }

    fn own_window(
        &mut self,
        client: ClientId,
        address: u64,
    ) -> Result<Arc<WindowRecord>, MemoryError> {
        let found = self.state.windows.find(client, address).cloned();
        found.ok_or(MemoryError::Invalid { what: "address in a window", value: address })
    }

    /// Pins every host chunk that a descriptor names: all of each range must lie in a live chunk
    /// of the client (specification 04 §6.4).
    ///
    /// # Errors
    /// [`MemoryError::Invalid`] for an address that is not the client's host memory;
    /// [`MemoryError::NoRecords`].
    pub fn validate_host(
        &mut self,
        client: ClientId,
        ranges: &[(u64, u64)],
    ) -> Result<Vec<Pin>, MemoryError> {
        let mut pins = Vec::new();
        pins.try_reserve_exact(ranges.len()).map_err(|_| MemoryError::NoRecords)?;
        for &(address, len) in ranges {
            let wrong = MemoryError::Invalid { what: "host address", value: address };
            if !self.is_host_address(address) {
                return Err(wrong);
            }
            let name = self.within(address, len).map_err(|_| wrong)?;
            let pin = self.table.pin_name(name).ok_or(wrong)?;
            if pin.owner() != Some(client) {
                return Err(wrong);
            }
            pins.push(pin);
        }
        Ok(pins)
    }

    /// Admits a scrub of `channel` by `client`: no chunk of anybody else on it, and no scrub under
    /// way. Until the hold is dropped nobody else gets memory there, whether the client lives or not.
    ///
    /// # Errors
    /// [`MemoryError::Invalid`] for a channel that is not there; [`MemoryError::Busy`].
    pub fn begin_scrub(
        &mut self,
        client: ClientId,
        channel: u32,
    ) -> Result<ScrubRange, MemoryError> {
        let wrong = MemoryError::Invalid { what: "channel", value: channel.into() };
        let place = channel as usize;
        let geometry = self.state.geometry.channels.get(place).copied();
        let geometry = geometry.filter(|_| channel < self.state.channels).ok_or(wrong)?;
        self.state.forget_scrubs();
        if self.state.scrubs.get(place).is_some_and(Option::is_some) {
            return Err(MemoryError::Busy { what: "the channel's scrub" });
        }
        if self.holds_foreign_chunk(client, channel) {
            return Err(MemoryError::Busy { what: "memory of the channel" });
        }
        let (hold, watch) = ScrubHold::new();
        if let Some(scrub) = self.state.scrubs.get_mut(place) {
            *scrub = Some((client, watch));
        }
        self.state.refresh_hot_channels();
        let start = geometry.base.0 + CARVEOUT;
        Ok(ScrubRange { start, end: geometry.base.0 + geometry.size, hold })
    }

    /// Whether anything but carve-outs and the client's own chunks lies on a channel, draining
    /// chunks included.
    fn holds_foreign_chunk(&self, client: ClientId, channel: u32) -> bool {
        let regions = self.state.regions as usize;
        let cells = self.state.cells.iter().skip(channel as usize * regions).take(regions);
        let mut foreign = false;
        for cell in cells {
            cell.for_each(|slot| {
                let Some(record) = self.table.record(slot) else { return };
                let carve_out = record.pa() == cell.base && record.owner() == 0;
                foreign |= !carve_out && record.owner() != client.number();
            });
        }
        foreign
    }
}

impl Rights {
    /// Whether changes are allowed.
    pub const fn is_writable(self) -> bool {
        matches!(self, Rights::ReadWrite)
    }
}
