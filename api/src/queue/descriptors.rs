//! Descriptors into rings and out of them (specification 03 §5.4, §13.7, §13.8). All of a call are
//! checked before the first is stored.

use alloc::vec::Vec;

use axon_neuron::dma::{Named, Side, describe};
use axon_platform::{Descriptor, DeviceAddr, Platform};
use axon_ports::{MemoryError, Pin};

use super::commands::QueueCommands;
use crate::bounce::Bounce;
use crate::buffer::is_ring;
use crate::calls::Call;
use crate::{Error, View};

/// Bytes of a descriptor.
const BYTES: u64 = 16;
/// Chunks that a call remembers, so that neighbouring descriptors cost one look-up.
const KNOWN: usize = 4;
/// Descriptors that are moved at once.
const PIECE: usize = 4096;

/// The side with this number of the Linux interface: 0 transmit, 1 receive.
fn side_of(number: u32) -> Result<Side, Error> {
    match number {
        0 => Ok(Side::Tx),
        1 => Ok(Side::Rx),
        _ => Err(Error::InvalidArgument { what: "ring side", value: number.into() }),
    }
}

/// Chunks that were found, the newest first.
#[derive(Default)]
struct Known(heapless::Vec<Pin, KNOWN>);

impl Known {
    fn find(&self, address: DeviceAddr, len_bytes: u64) -> Option<Pin> {
        let holds = |pin: &&Pin| {
            address.0.checked_sub(pin.pa().0).is_some_and(|at| pin.check(at, len_bytes).is_ok())
        };
        self.0.iter().find(holds).cloned()
    }

    fn note(&mut self, pin: &Pin) {
        if self.0.is_full() {
            self.0.pop();
        }
        // There is room.
        let _ = self.0.insert(0, pin.clone());
    }
}

impl<P: Platform> QueueCommands<'_, P> {
    /// `DMA_COPY_DESCRIPTORS`: checks `descriptors` and stores them from byte `offset` of a ring on.
    /// Each has to name memory of this client, or a window of a core that it has claimed. What they
    /// name stays pinned until the slots are written anew or the ring goes. The ring must not be
    /// running over them.
    ///
    /// # Errors
    /// [`Error::BadHandle`], [`Error::WrongOwner`], [`Error::InvalidArgument`],
    /// [`Error::OutOfRange`]; EINVAL with the number of the descriptor that may not be there;
    /// [`Error::Busy`] while somebody writes the ring. Nothing was stored.
    pub async fn copy_descriptors(
        &self,
        ring: u64,
        offset: u64,
        side: u32,
        descriptors: &[Descriptor],
    ) -> Result<(), Error> {
        Call::Stage.admit(&self.shared.access)?;
        self.shared.device.neuron().ready().await?;
        let ring = self.ring_memory(ring)?;
        self.stage(&ring, side_of(side)?, offset, descriptors).await
    }

    pub(super) async fn stage(
        &self,
        ring: &Pin,
        side: Side,
        offset: u64,
        descriptors: &[Descriptor],
    ) -> Result<(), Error> {
        Call::Stage.admit(&self.shared.access)?;
        ring.check(offset, (descriptors.len() as u64).saturating_mul(BYTES))?;
        if !offset.is_multiple_of(BYTES) {
            return Err(Error::InvalidArgument { what: "offset in a ring", value: offset });
        }
        let mut known = Known::default();
        let mut targets = Vec::new();
        let room = targets.try_reserve_exact(descriptors.len());
        room.map_err(|_| axon_neuron::Error::NoRecords)?;
        for (index, &descriptor) in (0..).zip(descriptors) {
            targets.push(self.target(side, index, descriptor, &mut known).await?);
        }
        if descriptors.is_empty() {
            return Ok(());
        }
        let staging = self.dma().stage(ring, side, offset, descriptors.len() as u64)?;
        self.store(ring, offset, descriptors).await?;
        Ok(staging.commit(&targets)?)
    }

    /// What holds the memory that a descriptor names; `None` for a window.
    async fn target(
        &self,
        side: Side,
        index: u64,
        descriptor: Descriptor,
        known: &mut Known,
    ) -> Result<Option<Pin>, Error> {
        let named = describe(self.shared.device.hal(), side, index, descriptor)?;
        let (address, len_bytes) = match named {
            Named::Nothing => return Ok(None),
            Named::Window(core) if self.has_claimed(core) => return Ok(None),
            Named::Window(_) => {
                return Err(refused(index, "a window of a core not claimed", descriptor));
            }
            Named::Memory { address, len_bytes } => (address, len_bytes),
        };
        let pin = match known.find(address, len_bytes) {
            Some(pin) => pin,
            None => {
                let foreign = refused(index, "no memory of this client", descriptor);
                let pin = self.own_memory(address, len_bytes).await?.ok_or(foreign)?;
                known.note(&pin);
                pin
            }
        };
        if side == Side::Rx && is_ring(pin.header().record().category()) {
            return Err(refused(index, "a ring is no destination", descriptor));
        }
        Ok(Some(pin))
    }

    /// The chunk of this client that holds a range: on this device, or host memory of another one
    /// that the client is attached to.
    // assumed: HBM of another device is not named here, exported or not. 03 §5.4 would allow it, but
    // nothing says which neighbour window shows which device, so nobody can check who owns what is
    // there.
    async fn own_memory(&self, address: DeviceAddr, len: u64) -> Result<Option<Pin>, Error> {
        let device = &self.shared.device;
        let client = self.shared.access.client();
        let own = |pin: Pin| (pin.owner() == Some(client)).then_some(pin);
        match device.memory().within(address.0, len).await {
            Ok(pin) => return Ok(own(pin)),
            Err(MemoryError::Gone) => return Err(Error::Removed),
            Err(_) if !device.hal().is_host(address) => return Ok(None),
            Err(_) => {}
        }
        for other in device.driver().devices() {
            if other.index() != device.index()
                && let Ok(pin) = other.memory().within(address.0, len).await
            {
                return Ok(own(pin));
            }
        }
        Ok(None)
    }

    async fn store(&self, ring: &Pin, offset: u64, rows: &[Descriptor]) -> Result<(), Error> {
        if let Some(memory) = ring.host() {
            for (at, &row) in (0..).zip(rows) {
                memory.store_descriptor(offset + at * BYTES, row)?;
            }
            return Ok(());
        }
        let view = View { client: self.shared, pin: ring.clone() };
        let mut at = offset;
        for piece in rows.chunks(PIECE) {
            let bytes: Vec<u8> =
                piece.iter().flat_map(|row| row.0).flat_map(u32::to_le_bytes).collect();
            let mut span = view.span_at(at, bytes.len() as u64)?;
            span.writable = true;
            Bounce::new(self.shared).write(span, &bytes).await?;
            at += bytes.len() as u64;
        }
        Ok(())
    }

    /// `DMA_DESCRIPTOR_COPYOUT`: the descriptors of a ring of this client, from `start` on.
    ///
    /// # Errors
    /// [`Error::InvalidArgument`] for no descriptor at all, a side that is none, and a ring without
    /// memory; EFBIG behind its end; EPERM, ENODEV, [`Error::Stale`].
    pub async fn copy_out(
        &self,
        engine: u32,
        queue: u32,
        side: u32,
        start: u32,
        count: u32,
    ) -> Result<Vec<Descriptor>, Error> {
        Call::CopyOut.admit(&self.shared.access)?;
        self.shared.device.neuron().ready().await?;
        if count == 0 {
            return Err(Error::InvalidArgument { what: "descriptors", value: 0 });
        }
        let client = self.shared.access.client();
        let (pin, length) = self.dma().ring_of(client, engine, queue, side_of(side)?)?;
        let (start, count, length) = (u64::from(start), u64::from(count), u64::from(length));
        if start + count > length {
            return Err(axon_neuron::Error::PastEnd { start, count, length }.into());
        }
        self.load(&pin, start * BYTES, count).await
    }

    pub(super) async fn load(
        &self,
        ring: &Pin,
        offset: u64,
        count: u64,
    ) -> Result<Vec<Descriptor>, Error> {
        let view = View { client: self.shared, pin: ring.clone() };
        let mut rows = Vec::new();
        let mut bytes = Vec::new();
        let piece = count.min(PIECE as u64) * BYTES;
        let room = rows.try_reserve_exact(count as usize);
        let room = room.and_then(|()| bytes.try_reserve_exact(piece as usize));
        room.map_err(|_| axon_neuron::Error::NoRecords)?;
        let (mut at, end) = (offset, offset + count * BYTES);
        while at < end {
            bytes.resize((end - at).min(piece) as usize, 0);
            view.read(at, &mut bytes).await?;
            rows.extend(bytes.as_chunks().0.iter().map(descriptor));
            at += bytes.len() as u64;
        }
        Ok(rows)
    }
}

fn descriptor(bytes: &[u8; BYTES as usize]) -> Descriptor {
    let mut words = [0; 4];
    let places = words.iter_mut().zip(bytes.as_chunks().0);
    places.for_each(|(word, bytes)| *word = u32::from_le_bytes(*bytes));
    Descriptor(words)
}

fn refused(index: u64, what: &'static str, descriptor: Descriptor) -> Error {
    let [.., low, high] = descriptor.0;
    let address = DeviceAddr(u64::from(high) << 32 | u64::from(low));
    axon_neuron::Error::BadDescriptor { index, what, address }.into()
}
