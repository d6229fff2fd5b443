//! Memory of a client, and the ways in and out of it.

use alloc::sync::Arc;
use core::ops::{Bound, Deref, RangeBounds};
use core::sync::atomic::{AtomicBool, Ordering};

use axon_platform::{DeviceAddr, DmaBuf, Platform};
use axon_ports::chunk::record::ChunkRecord;
use axon_ports::telemetry::{EventKind, TraceEvent};
use axon_ports::{
    Category, Chunk, ChunkFacts, ChunkName, ClientId, CoreId, Location, MemoryError, Pin,
};

use crate::bounce::Bounce;
use crate::calls::Call;
use crate::client::Shared;
use crate::{Device, Error, Fill, Span, Transfer};

/// One reference to a published chunk. Dropping it gives the reference back; the memory is reused
/// once no transfer needs it any more.
pub struct Buffer<P: Platform> {
    client: Arc<Shared<P>>,
    chunk: Chunk,
    /// The client was shown the memory itself, which is in the event ring.
    exposed: AtomicBool,
}

/// Memory of the device.
pub struct DeviceBuffer<P: Platform>(Buffer<P>);

/// Host memory that the device reaches.
pub struct HostBuffer<P: Platform>(Buffer<P>);

impl<P: Platform> Buffer<P> {
    pub(crate) fn new(client: Arc<Shared<P>>, chunk: Chunk) -> Self {
        Buffer { client, chunk, exposed: AtomicBool::new(false) }
    }

    /// Address, size, place, core.
    pub fn facts(&self) -> ChunkFacts {
        self.chunk.facts()
    }

    /// First byte as the device sees it.
    pub fn device_addr(&self) -> DeviceAddr {
        self.chunk.facts().pa
    }

    /// Bytes: what was asked for, rounded up to 4096.
    pub fn size(&self) -> u64 {
        self.chunk.facts().size
    }

    /// Number under which [`crate::Client::by_handle`] finds it.
    pub fn handle(&self) -> u64 {
        self.chunk.handle()
    }

    /// A checked range.
    ///
    /// # Errors
    /// [`Error::InvalidArgument`] for an empty range, [`Error::OutOfRange`], [`Error::NotAttached`],
    /// [`Error::BadHandle`] where the chunk was freed by its number.
    #[inline(always)]
    pub fn span(&self, range: impl RangeBounds<u64>) -> Result<Span<'_, P>, Error> {
        // Whether the client is attached is seen below, but comes first where the chunk is gone.
        match self.chunk.header().pin_and_record() {
            Some((pin, record)) => Ok(span_of(&self.client, record, range)?.with(pin)),
            None => Err(self.refusal()),
        }
    }

    /// A copy of a range to `target`, from `offset` on: what [`Span::copy_to`] makes of two spans,
    /// in one step and with half the instructions.
    ///
    /// # Errors
    /// As [`Buffer::span`] and [`Span::copy_to`].
    #[inline]
    pub fn copy_to(
        &self,
        range: impl RangeBounds<u64>,
        target: &Buffer<P>,
        offset: u64,
    ) -> Result<Transfer<P>, Error> {
        let Some((pins, source, record)) = self.chunk.header().pin_both(target.chunk.header())
        else {
            let (start, end) = ends_of(range, self.chunk.header().record());
            return self.copy_with_care(start, end, target, offset);
        };
        let (start, end) = ends_of(range, source);
        let len = end.wrapping_sub(start);
        let plain = is_inside(source, start, len)
            & is_inside(record, offset, len)
            & (end > start)
            & self.is_of(&target.client)
            & (record.owner() == self.client.access.client().number())
            & !is_ring(record.category());
        if !plain || !Call::Copy.is_admitted(&self.client.access) {
            return self.copy_with_care(start, end, target, offset);
        }
        let (from, source_core, _) = source.whereabouts();
        let (to, core, is_host) = record.whereabouts();
        let core = if is_host { source_core } else { core };
        let (from, to) = (DeviceAddr(from.0 + start), DeviceAddr(to.0 + offset));
        let device = &self.client.device;
        device.trace(TraceEvent::MemCopy { source: from.0, destination: to.0 });
        Ok(Transfer::new(device.neuron().dma().copy_held(core, [from, to], len, pins)))
    }

    /// Finds out what is not plain about a copy.
    #[cold]
    #[inline(never)]
    fn copy_with_care(
        &self,
        start: u64,
        end: u64,
        target: &Buffer<P>,
        offset: u64,
    ) -> Result<Transfer<P>, Error> {
        // Handles come first.
        if let Some(dead) = [self, target].into_iter().find(|end| end.chunk.header().is_dead()) {
            return Err(dead.refusal());
        }
        let source = self.span(start..end)?;
        let len = source.len;
        let end = offset.checked_add(len);
        let end = end.ok_or(Error::OutOfRange { offset, len, limit: target.facts().reach })?;
        source.copy_to(target.span(offset..end)?)
    }

    /// Writes `data` from `offset` on: to device memory as [`Buffer::write_inline`] does where that
    /// is possible and the slice is short, else through a bounce chunk by DMA. Dropped half-way it
    /// leaves the memory partly written. Copies that were started before and not awaited may come
    /// later.
    ///
    /// # Errors
    /// As [`Buffer::span`], and those of the copy.
    pub async fn write(&self, offset: u64, data: &[u8]) -> Result<(), Error> {
        self.view(Call::Move)?.write(offset, data).await
    }

    /// Writes `data` to device memory with the CPU, through the memory window of the device: done
    /// when this returns, and in front of every copy that is started later. It is not ordered with
    /// copies in flight (specification 03 §11.5).
    ///
    /// # Errors
    /// [`Error::InvalidArgument`] for an offset or a length that is no multiple of 4, for host
    /// memory, and where the window does not show the memory; [`Error::OutOfRange`] above 8192
    /// bytes or outside of the buffer; [`Error::Again`] while device or core are in reset,
    /// [`Error::Device`] for a core that is DOWN; and as [`Buffer::span`]. Nothing was written.
    #[inline]
    pub fn write_inline(&self, offset: u64, data: &[u8]) -> Result<(), Error> {
        let Some(held) = self.chunk.header().hold() else { return Err(self.refusal()) };
        let record = held.record();
        let len = data.len() as u64;
        let (first, core, is_host) = record.whereabouts();
        let plain = is_inside(record, offset, len)
            & (len != 0)
            & !is_host
            & (record.owner() == self.client.access.client().number())
            & !is_ring(record.category());
        if !plain || !Call::WriteInline.is_admitted(&self.client.access) {
            return self.view(Call::WriteInline)?.write_inline(offset, data);
        }
        self.client.device.trace(TraceEvent::MemCopyIn {
            chunk: first.0,
            buffer: data.as_ptr().addr() as u64,
            offset,
            size: len,
        });
        let address = DeviceAddr(first.0 + offset);
        let neuron = self.client.device.neuron();
        neuron.write_memory_window(core, address, data).map_err(inline_refusal)
    }

    /// As [`Buffer::write`], but to device memory always by DMA: behind copies in flight on the
    /// ring of the memory's core.
    ///
    /// # Errors
    /// As [`Buffer::write`].
    pub async fn write_by_dma(&self, offset: u64, data: &[u8]) -> Result<(), Error> {
        self.view(Call::Move)?.write_by_dma(offset, data).await
    }

    /// Reads `into.len()` bytes from `offset` on. Bytes are moved into `into` only while the
    /// future is polled: dropped or forgotten, it never writes to `into` again.
    ///
    /// # Errors
    /// As [`Buffer::write`].
    pub async fn read(&self, offset: u64, into: &mut [u8]) -> Result<(), Error> {
        self.view(Call::Move)?.read(offset, into).await
    }

    /// Sets a range by DMA.
    ///
    /// # Errors
    /// As [`Buffer::span`].
    #[inline]
    pub fn fill(&self, range: impl RangeBounds<u64>, byte: u8) -> Result<Fill<P>, Error> {
        let Some((pins, record)) = self.chunk.header().pin_one() else {
            return Err(self.refusal());
        };
        let (start, end) = ends_of(range, record);
        let len = end.wrapping_sub(start);
        let plain = is_inside(record, start, len)
            & (end > start)
            & (record.owner() == self.client.access.client().number())
            & !is_ring(record.category());
        if !plain || !Call::Fill.is_admitted(&self.client.access) {
            return self.span(start..end)?.fill(byte);
        }
        let (first, core, _) = record.whereabouts();
        let dma = self.client.device.neuron().dma();
        Ok(Fill::new(dma.fill_held(core, DeviceAddr(first.0 + start), byte, len, pins)))
    }

    /// Stops tracking the reference: from now on only [`crate::Client::free`] gives it back, or the
    /// end of the client.
    pub fn into_handle(self) -> u64 {
        let handle = self.chunk.handle();
        self.chunk.into_header();
        handle
    }

    /// Gives the reference back and waits until that is done. It is given back too where the future
    /// is dropped, polled or not.
    ///
    /// # Errors
    /// [`Error::BadHandle`] where the chunk was freed by its number, [`Error::NotAttached`].
    pub async fn close(self) -> Result<(), Error> {
        let Buffer { client, chunk, .. } = self;
        Call::Free.admit(&client.access)?;
        let owner = Some(client.access.client());
        Ok(client.device.memory().close(owner, chunk).await?)
    }

    pub(crate) fn client(&self) -> &Arc<Shared<P>> {
        &self.client
    }

    /// Which chunk it is.
    #[inline(always)]
    pub(crate) fn name(&self) -> ChunkName {
        self.chunk.header().name()
    }

    /// Whether `client` is who it was made for.
    #[inline(always)]
    pub(crate) fn is_of(&self, client: &Arc<Shared<P>>) -> bool {
        Arc::ptr_eq(&self.client, client)
    }

    /// Holds the memory.
    pub(crate) fn pin(&self) -> Result<Pin, Error> {
        self.chunk.pin().ok_or_else(|| self.refusal())
    }

    #[inline(always)]
    fn view(&self, call: Call) -> Result<View<'_, P>, Error> {
        call.admit(&self.client.access)?;
        let Some(pin) = self.chunk.pin() else { return Err(self.refusal()) };
        Ok(View { client: &self.client, pin })
    }

    /// Once a handle: what looks at its memory often would push everything else out of the ring.
    #[cold]
    fn note_exposed(&self) {
        self.exposed.store(true, Ordering::Relaxed);
        let address = self.chunk.facts().pa.0;
        self.client.device.note(self.client.access.client(), EventKind::BufferExposed, address);
    }

    /// Why there is no pin.
    #[cold]
    fn refusal(&self) -> Error {
        match self.client.access.check() {
            Ok(()) => Error::BadHandle { handle: self.chunk.handle() },
            Err(error) => error.into(),
        }
    }
}

macro_rules! kind {
    ($name:ident) => {
        impl<P: Platform> $name<P> {
            pub(crate) fn new(buffer: Buffer<P>) -> Self {
                $name(buffer)
            }

            /// As [`Buffer::into_handle`].
            pub fn into_handle(self) -> u64 {
                self.0.into_handle()
            }

            /// As [`Buffer::close`].
            ///
            /// # Errors
            /// As there.
            pub async fn close(self) -> Result<(), Error> {
                self.0.close().await
            }
        }

        impl<P: Platform> Deref for $name<P> {
            type Target = Buffer<P>;

            #[inline]
            fn deref(&self) -> &Buffer<P> {
                &self.0
            }
        }
    };
}

kind!(DeviceBuffer);
kind!(HostBuffer);

impl<P: Platform> HostBuffer<P> {
    /// The CPU's view of the memory. Every access is checked; what a running transfer moves is some
    /// mixture of old and new bytes. `None` where the chunk was freed by its number, and for the
    /// memory of a ring: descriptors enter that only checked.
    pub fn memory(&self) -> Option<&DmaBuf> {
        if is_ring(self.0.chunk.header().record().category()) {
            return None;
        }
        if !self.0.exposed.load(Ordering::Relaxed) {
            self.0.note_exposed();
        }
        self.0.chunk.host()
    }
}

/// Why a client may not write a chunk.
#[cold]
pub(crate) fn unwritable(pin: &Pin, client: ClientId) -> Error {
    match pin.owner() {
        Some(owner) if owner == client => {
            let what = "a write that bypasses the check of descriptors";
            axon_neuron::Error::Memory(MemoryError::Forbidden { what }).into()
        }
        _ => Error::WrongOwner { handle: pin.header().handle() },
    }
}

/// Whether memory is given up for rings: nobody but the driver writes it (specification 03 §5.4).
#[inline]
pub(crate) fn is_ring(category: Category) -> bool {
    matches!(category, Category::DMA_RINGS_HOST | Category::DMA_RINGS_DEVICE)
}

/// A pinned chunk as a client sees it: its own, or another client's to read.
pub struct View<'a, P: Platform> {
    pub(crate) client: &'a Shared<P>,
    pub(crate) pin: Pin,
}

impl<'a, P: Platform> View<'a, P> {
    /// Any chunk may be looked at, but for rings of notification queues: those are their owner's
    /// alone (specification 04 §9.1).
    #[inline]
    pub(crate) fn of(client: &'a Shared<P>, pin: Pin) -> Result<Self, Error> {
        let view = View { client, pin };
        match view.pin.header().record().category() {
            Category::NOTIFICATION_HOST | Category::NOTIFICATION_DEVICE => {
                view.check_writable()?;
                Ok(view)
            }
            _ => Ok(view),
        }
    }

    /// Address, size, place, core, owner.
    pub fn facts(&self) -> ChunkFacts {
        self.pin.facts()
    }

    /// The access rule of specification 04 §9.1: what another client owns is for reading only.
    ///
    /// # Errors
    /// [`Error::WrongOwner`].
    pub fn check_writable(&self) -> Result<(), Error> {
        if self.is_writable() {
            Ok(())
        } else {
            Err(unwritable(&self.pin, self.client.access.client()))
        }
    }

    fn is_writable(&self) -> bool {
        self.pin.owner() == Some(self.client.access.client())
            && !is_ring(self.pin.header().record().category())
    }

    /// A checked range.
    ///
    /// # Errors
    /// As [`Buffer::span`].
    pub fn span(&self, range: impl RangeBounds<u64>) -> Result<Span<'a, P>, Error> {
        let loose = span_of(self.client, self.pin.header().record(), range)?;
        Ok(loose.with(self.pin.clone()))
    }

    /// A checked range by offset and length, for numbers whose sum may wrap.
    ///
    /// # Errors
    /// As [`Buffer::span`].
    pub fn span_at(&self, offset: u64, len: u64) -> Result<Span<'a, P>, Error> {
        match offset.checked_add(len) {
            Some(end) => self.span(offset..end),
            None => Err(Error::OutOfRange { offset, len, limit: self.facts().reach }),
        }
    }

    /// As [`Buffer::write`].
    ///
    /// # Errors
    /// As there, and [`Error::WrongOwner`].
    pub async fn write(&self, offset: u64, data: &[u8]) -> Result<(), Error> {
        self.check_writable()?;
        let span = self.span_at(offset, data.len() as u64)?;
        self.client.device.trace(TraceEvent::MemCopyIn {
            chunk: self.pin.pa().0,
            buffer: data.as_ptr().addr() as u64,
            offset,
            size: data.len() as u64,
        });
        if let Some(memory) = self.pin.host() {
            return Ok(memory.write(offset, data)?);
        }
        let neuron = self.client.device.neuron();
        if neuron.prefers_memory_window(span.core, span.address, span.len) {
            return Ok(neuron.write_memory_window(span.core, span.address, data)?);
        }
        Bounce::new(self.client).write(span, data).await
    }

    /// As [`Buffer::write_inline`].
    ///
    /// # Errors
    /// As there, and [`Error::WrongOwner`].
    pub fn write_inline(&self, offset: u64, data: &[u8]) -> Result<(), Error> {
        self.check_writable()?;
        let span = self.span_at(offset, data.len() as u64)?;
        if span.is_host() {
            let (what, value) = ("host memory for a write through the window", span.address.0);
            return Err(Error::InvalidArgument { what, value });
        }
        let neuron = self.client.device.neuron();
        neuron.write_memory_window(span.core, span.address, data).map_err(inline_refusal)
    }

    /// As [`Buffer::write_by_dma`].
    ///
    /// # Errors
    /// As [`View::write`].
    pub async fn write_by_dma(&self, offset: u64, data: &[u8]) -> Result<(), Error> {
        self.check_writable()?;
        let span = self.span_at(offset, data.len() as u64)?;
        match self.pin.host() {
            Some(memory) => Ok(memory.write(offset, data)?),
            None => Bounce::new(self.client).write(span, data).await,
        }
    }

    /// As [`Buffer::read`].
    ///
    /// # Errors
    /// As there.
    pub async fn read(&self, offset: u64, into: &mut [u8]) -> Result<(), Error> {
        let span = self.span_at(offset, into.len() as u64)?;
        self.client.device.trace(TraceEvent::MemCopyOut {
            chunk: self.pin.pa().0,
            buffer: into.as_ptr().addr() as u64,
            offset,
            size: into.len() as u64,
        });
        match self.pin.host() {
            Some(memory) => Ok(memory.read(offset, into)?),
            None => Bounce::new(self.client).read(span, into).await,
        }
    }

    /// The device.
    pub fn device(&self) -> &'a Device<P> {
        &self.client.device
    }

    pub(crate) fn into_pin(self) -> Pin {
        self.pin
    }
}

/// A checked range that nobody holds yet.
struct Loose<'a, P: Platform> {
    client: &'a Shared<P>,
    address: DeviceAddr,
    len: u64,
    core: CoreId,
    location: Location,
    writable: bool,
}

impl<'a, P: Platform> Loose<'a, P> {
    #[inline(always)]
    fn with(self, pin: Pin) -> Span<'a, P> {
        let Loose { client, address, len, core, location, writable } = self;
        Span { client, pin, address, len, core, location, writable }
    }
}

/// What is too long for the window is out of range (specification 08 API-E26).
#[cold]
fn inline_refusal(error: axon_neuron::Error) -> Error {
    match error {
        axon_neuron::Error::TooBig { value: len, limit, .. } => {
            Error::OutOfRange { offset: 0, len, limit: limit - 1 }
        }
        error => error.into(),
    }
}

/// First byte of a range and the one behind it.
#[inline(always)]
fn ends_of(range: impl RangeBounds<u64>, record: &ChunkRecord) -> (u64, u64) {
    let start = match range.start_bound() {
        Bound::Included(start) => *start,
        Bound::Excluded(before) => before.saturating_add(1),
        Bound::Unbounded => 0,
    };
    let end = match range.end_bound() {
        Bound::Included(last) => last.saturating_add(1),
        Bound::Excluded(end) => *end,
        Bound::Unbounded => record.size(),
    };
    (start, end)
}

/// Whether `len` bytes at `offset` are there; by subtraction, so that nothing can wrap.
#[inline(always)]
fn is_inside(record: &ChunkRecord, offset: u64, len: u64) -> bool {
    let reach = record.reach();
    len <= reach && offset <= reach - len
}

/// A range of the chunk in `record`, which is pinned. Handles come first, then size 0, then bounds
/// (specification 03 §8 rule 2).
#[inline(always)]
fn span_of<'a, P: Platform>(
    client: &'a Shared<P>,
    record: &ChunkRecord,
    range: impl RangeBounds<u64>,
) -> Result<Loose<'a, P>, Error> {
    Call::Name.admit(&client.access)?;
    let (start, end) = ends_of(range, record);
    let len = end.checked_sub(start).filter(|len| *len > 0).ok_or(Error::EMPTY)?;
    if !is_inside(record, start, len) {
        return Err(Error::OutOfRange { offset: start, len, limit: record.reach() });
    }
    let address = DeviceAddr(record.pa()).checked_add(start).ok_or(Error::EMPTY)?;
    let location = if record.is_host() { Location::Host } else { Location::Device };
    let core = CoreId::new(record.core()).ok_or(Error::EMPTY)?;
    let writable = record.owner() == client.access.client().number() && !is_ring(record.category());
    Ok(Loose { client, address, len, core, location, writable })
}

impl<P: Platform> Span<'_, P> {
    /// Whether the range lies in host memory.
    pub fn is_host(&self) -> bool {
        self.location == Location::Host
    }
}
