//! How everybody else reaches the memory service: messages, and reads that need none.

use alloc::sync::Arc;
use alloc::vec::Vec;
use core::future::Future;

use axon_ports::{
    AllocRequest, Chunk, ChunkFacts, ChunkName, ChunkTable, ClientId, ClientSlot, MemoryError,
    MemoryGeometry, MemoryPort, Pin,
};

use crate::batch::Batch;
use crate::call::{AllocCall, Call, CloseCall, FreeCall};
use crate::counters::Counters;
use crate::exports::{Export, Peer, Registration};
use crate::faults::Faults;
use crate::host::HostSource;
use crate::mailbox::{FreeRequest, Mailbox};
use crate::messages::Request;
use crate::set::{ChunkInfo, ChunkLine, MemorySet, ScrubRange, ShutdownReport, Usage};
use crate::task::{NeverPassing, Passing};
use crate::windows::{Shown, SpecialBlock, Window};

/// A way to the memory service of one device; clones reach the same.
///
/// What changes state is a message and is awaited (the usual allocation and the usual release are
/// carried out in their first poll where the service has nothing else to do); what only looks is
/// answered at once from what the service publishes. Whether a client may ask at all (lane, attach: specification 05 §8) is
/// for the caller to test; whose chunk it is, is tested here.
#[derive(Clone)]
pub struct MemoryClient {
    table: Arc<ChunkTable>,
    pub(crate) mailbox: Arc<Mailbox>,
    pub(crate) passing: Arc<dyn Passing>,
    counters: Arc<Counters>,
    geometry: MemoryGeometry,
}

impl MemoryClient {
    pub(crate) fn new<S: HostSource>(
        set: &MemorySet<S>,
        mailbox: Arc<Mailbox>,
        passing: Arc<dyn Passing>,
    ) -> Self {
        MemoryClient {
            table: set.table().clone(),
            mailbox,
            passing,
            counters: set.counters().clone(),
            geometry: *set.geometry(),
        }
    }

    /// The same way for whoever wants the task to carry out even what could be done in passing.
    pub fn through_the_channel(&self) -> MemoryClient {
        MemoryClient { passing: Arc::new(NeverPassing), ..self.clone() }
    }

    fn call<T>(&self, request: Request) -> Call<'_, T> {
        Call::new(&self.mailbox, request)
    }

    /// The chunk a handle names, pinned; for reading. No message.
    ///
    /// # Errors
    /// [`MemoryError::BadHandle`].
    #[inline(always)]
    pub fn lookup(&self, handle: u64) -> Result<Pin, MemoryError> {
        self.table.pin(handle).ok_or(MemoryError::BadHandle { handle })
    }

    /// As [`Self::lookup`], for writing: only the owner may (specification 04 §9.1).
    ///
    /// # Errors
    /// [`MemoryError::BadHandle`]; [`MemoryError::WrongOwner`].
    #[inline]
    pub fn lookup_mut(&self, client: ClientId, handle: u64) -> Result<Pin, MemoryError> {
        let pin = self.lookup(handle)?;
        if pin.owner() == Some(client) {
            return Ok(pin);
        }
        Err(MemoryError::WrongOwner { handle })
    }

    /// The chunk a handle names, without a pin. No message.
    ///
    /// # Errors
    /// [`MemoryError::BadHandle`].
    #[inline]
    pub fn find(&self, handle: u64) -> Result<ChunkName, MemoryError> {
        self.table.find(handle).ok_or(MemoryError::BadHandle { handle })
    }

    /// Facts of the chunk a handle names (MEM_GET_INFO). No message.
    ///
    /// # Errors
    /// [`MemoryError::BadHandle`].
    #[inline]
    pub fn facts(&self, handle: u64) -> Result<ChunkFacts, MemoryError> {
        self.table.facts(self.find(handle)?).ok_or(MemoryError::BadHandle { handle })
    }

    /// Totals and counters. No message.
    pub fn counters(&self) -> &Counters {
        &self.counters
    }

    /// Channels, regions and sizes of the device.
    pub fn geometry(&self) -> &MemoryGeometry {
        &self.geometry
    }

    /// Records and handle snapshot.
    pub fn table(&self) -> &Arc<ChunkTable> {
        &self.table
    }

    /// Allocates; see [`AllocRequest`]. Dropping the future gives the chunk back.
    #[inline]
    pub fn alloc(
        &self,
        request: AllocRequest,
    ) -> impl Future<Output = Result<Chunk, MemoryError>> + Send {
        AllocCall::new(self, request)
    }

    /// Carries out all allocations of a batch or none; answers how many. The chunks are in the
    /// batch afterwards.
    pub fn alloc_many(
        &self,
        batch: &Batch,
    ) -> impl Future<Output = Result<usize, MemoryError>> + Send {
        self.call(Request::AllocMany(batch.shared.clone()))
    }

    /// Ends a handle of `client` (`None`: of the driver) and gives back one reference (MEM_FREE).
    #[inline]
    pub fn free(
        &self,
        client: Option<ClientId>,
        handle: u64,
    ) -> impl Future<Output = Result<(), MemoryError>> + Send {
        FreeCall::new(self, FreeRequest { client, handle })
    }

    /// As [`Self::free`], by the reference that is given back. Dropping the future gives it back too,
    /// whatever has become of the request.
    pub fn close(
        &self,
        client: Option<ClientId>,
        chunk: Chunk,
    ) -> impl Future<Output = Result<(), MemoryError>> + Send {
        CloseCall::new(self, client, chunk)
    }

    /// Frees the handles of a batch in order, up to the first that fails; answers how many.
    pub fn free_many(
        &self,
        client: Option<ClientId>,
        batch: &Batch,
    ) -> impl Future<Output = Result<usize, MemoryError>> + Send {
        self.call(Request::FreeMany { client, batch: batch.shared.clone() })
    }

    /// Another counted reference to a chunk.
    pub fn retain(
        &self,
        name: ChunkName,
    ) -> impl Future<Output = Result<Chunk, MemoryError>> + Send {
        self.call(Request::Retain(name))
    }

    /// Counts another reference to a client's own chunk; only [`Self::free`] or the end of its
    /// lifespan gives it back.
    pub fn retain_handle(
        &self,
        client: Option<ClientId>,
        handle: u64,
    ) -> impl Future<Output = Result<(), MemoryError>> + Send {
        self.call(Request::RetainHandle { client, handle })
    }

    /// Bytes of the chunks on the list of the client in `slot` that something pins now.
    pub fn pinned_bytes(
        &self,
        slot: ClientSlot,
    ) -> impl Future<Output = Result<u64, MemoryError>> + Send {
        self.call(Request::PinnedBytes(slot))
    }

    /// Mints a handle for a chunk, or answers the one it has.
    pub fn publish(
        &self,
        name: ChunkName,
    ) -> impl Future<Output = Result<u64, MemoryError>> + Send {
        self.call(Request::Publish(name))
    }

    /// The chunk that contains `pa`, host addresses in tagged form (MEM_MC_GET_INFO); with
    /// `publish` it also gets a handle.
    pub fn search_pa(
        &self,
        pa: u64,
        publish: bool,
    ) -> impl Future<Output = Result<ChunkInfo, MemoryError>> + Send {
        self.call(Request::SearchPa { pa, publish })
    }

    /// Pins the chunk in which all of `[pa, pa + len)` lies.
    pub fn within(
        &self,
        pa: u64,
        len: u64,
    ) -> impl Future<Output = Result<Pin, MemoryError>> + Send {
        self.call(Request::Within { pa, len })
    }

    /// A window on the chunk that contains `cookie`; see [`MemorySet::map_window`].
    pub fn map_window(
        &self,
        client: ClientId,
        cookie: u64,
        size: u64,
    ) -> impl Future<Output = Result<Window, MemoryError>> + Send {
        self.call(Request::MapWindow { client, cookie, size })
    }

    /// A window on a special block, which the caller has looked up and allowed.
    pub fn map_special(
        &self,
        client: ClientId,
        block: SpecialBlock,
    ) -> impl Future<Output = Result<Window, MemoryError>> + Send {
        self.call(Request::MapSpecial { client, block })
    }

    /// What lies at an address inside one of the client's windows (GET_VA_PLACEMENT).
    pub fn placement(
        &self,
        client: ClientId,
        address: u64,
    ) -> impl Future<Output = Result<Shown, MemoryError>> + Send {
        self.call(Request::Placement { client, address })
    }

    /// Exports part of one of the client's windows (DMABUF_FD).
    pub fn export(
        &self,
        client: ClientId,
        address: u64,
        size: u64,
    ) -> impl Future<Output = Result<Export, MemoryError>> + Send {
        self.call(Request::Export { client, address, size })
    }

    /// Registers part of one of the client's windows with a peer device.
    pub fn register(
        &self,
        client: ClientId,
        address: u64,
        size: u64,
        peer: Arc<dyn Peer>,
    ) -> impl Future<Output = Result<Registration, MemoryError>> + Send {
        self.call(Request::Register { client, address, size, peer })
    }

    /// Pins the client's host chunks that descriptors name, as ranges of tagged addresses.
    pub fn validate_host(
        &self,
        client: ClientId,
        ranges: Vec<(u64, u64)>,
    ) -> impl Future<Output = Result<Vec<Pin>, MemoryError>> + Send {
        self.call(Request::ValidateHost { client, ranges })
    }

    /// Admits a scrub of a channel; see [`MemorySet::begin_scrub`].
    pub fn begin_scrub(
        &self,
        client: ClientId,
        channel: u32,
    ) -> impl Future<Output = Result<ScrubRange, MemoryError>> + Send {
        self.call(Request::BeginScrub { client, channel })
    }

    /// Enters a client into its attach slot.
    pub fn attach(
        &self,
        client: ClientId,
        slot: ClientSlot,
    ) -> impl Future<Output = Result<(), MemoryError>> + Send {
        self.call(Request::Attach { client, slot })
    }

    /// Ends a client's chunks, newest first; resolves when all are released. What is still pinned
    /// is draining; nothing waits for it.
    pub fn detach(
        &self,
        client: ClientId,
        slot: ClientSlot,
    ) -> impl Future<Output = Result<(), MemoryError>> + Send {
        self.call(Request::Detach { client, slot })
    }

    /// Ends what lives as long as any client does.
    pub fn last_client_gone(&self) -> impl Future<Output = Result<(), MemoryError>> + Send {
        self.call(Request::LastClientGone)
    }

    /// All device chunks of a channel (DUMP_MEM_CHUNKS).
    pub fn dump(
        &self,
        channel: u32,
        capacity: usize,
    ) -> impl Future<Output = Result<Vec<ChunkLine>, MemoryError>> + Send {
        self.call(Request::Dump { channel, capacity })
    }

    /// All host chunks.
    pub fn dump_host(
        &self,
        capacity: usize,
    ) -> impl Future<Output = Result<Vec<ChunkLine>, MemoryError>> + Send {
        self.call(Request::DumpHost { capacity })
    }

    /// How full arenas and reserve pools are.
    pub fn usage(&self) -> impl Future<Output = Result<Usage, MemoryError>> + Send {
        self.call(Request::Usage)
    }

    /// Arms failures, for tests.
    pub fn arm(&self, faults: Faults) -> impl Future<Output = Result<(), MemoryError>> + Send {
        self.call(Request::Faults(faults))
    }

    /// Ends the service; every later request answers [`MemoryError::Gone`].
    pub fn shutdown(&self) -> impl Future<Output = Result<ShutdownReport, MemoryError>> + Send {
        self.call(Request::Shutdown)
    }
}

impl MemoryPort for MemoryClient {
    #[inline]
    fn alloc(
        &self,
        request: AllocRequest,
    ) -> impl Future<Output = Result<Chunk, MemoryError>> + Send {
        AllocCall::new(self, request)
    }
}
