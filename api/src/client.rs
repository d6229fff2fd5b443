//! A client: one attach slot of one device, and what it may ask for.

use alloc::sync::Arc;
use core::cell::Cell;
use core::sync::atomic::{AtomicUsize, Ordering};

use axon_clients::gates::Grant;
use axon_clients::reservation::Presence;
use axon_clients::{Access, Attachment, InfoHandle, Touched};
use axon_memory::ChunkInfo;
use axon_platform::{DeviceAddr, Platform};
use axon_ports::reset::{Requester, ResetRequest};
use axon_ports::telemetry::{TraceEvent, TraceKind};
use axon_ports::{
    AllocRequest, Category, ClientId, CoreId, CoreMap, HbmIndex, Lifespan, Location, MemoryError,
};
use embassy_sync::blocking_mutex::Mutex;
use embassy_sync::blocking_mutex::raw::CriticalSectionRawMutex;

use crate::bounce::Pool;
use crate::calls::Call;
use crate::memory::pinned_bytes;
use crate::peers::Peers;
use crate::queue::Slots;
use crate::{Batch, Buffer, Device, DeviceBuffer, Error, HostBuffer, Span, View};

/// Core 0 and HBM 0, which every device has. Evaluated while compiling.
pub(crate) const CORE_0: CoreId = CoreId::new(0).unwrap();
const HBM_0: HbmIndex = HbmIndex::new(0).unwrap();

/// What the buffers of a client keep of it: enough to move bytes, not enough to stay attached.
pub(crate) struct Shared<P: Platform> {
    pub(crate) device: Device<P>,
    pub(crate) access: Arc<Access>,
    pub(crate) bounce: Pool,
    /// Copies with wait handles.
    pub(crate) numbered: Slots<P>,
    /// Clones of the client.
    clones: AtomicUsize,
    /// What the last of them takes along.
    hold: Mutex<CriticalSectionRawMutex, Cell<Option<Hold<P>>>>,
}

/// What makes a client one: buffers do not have it. Goes in this order.
struct Hold<P: Platform> {
    _attachment: Attachment<Peers<P>>,
    /// Claimed cores are free at the latest when it goes.
    _presence: Presence,
}

impl<P: Platform> Shared<P> {
    /// Passes the attach gate of a call that gives the client memory; the memory service is told
    /// of the client with its first one.
    ///
    /// Whoever calls this keeps the client open meanwhile, so that the client's end comes behind.
    pub(crate) async fn enter_memory(&self, call: Call) -> Result<(), Error> {
        call.enter(&self.access, Touched::Transfers)?;
        if !self.access.is_known() {
            let (client, slot) = (self.access.client(), self.access.slot());
            self.device.memory().attach(client, slot).await?;
            self.access.set_known();
        }
        Ok(())
    }
}

/// One application on one device. Clones count once; when the last one is dropped everything the
/// client owns is cleaned up in the order of specification 05 §10.2, in the background.
pub struct Client<P: Platform>(Arc<Shared<P>>);

impl<P: Platform> Clone for Client<P> {
    fn clone(&self) -> Self {
        self.0.clones.fetch_add(1, Ordering::Relaxed);
        Client(self.0.clone())
    }
}

impl<P: Platform> Drop for Client<P> {
    fn drop(&mut self) {
        if self.0.clones.fetch_sub(1, Ordering::AcqRel) == 1 {
            drop(self.0.hold.lock(Cell::take));
            // Whatever buffers are left.
            self.0.bounce.close();
        }
    }
}

/// Wishes for device memory; [`DeviceAlloc::new`] has the usual ones.
#[derive(Clone, Copy, Debug)]
pub struct DeviceAlloc {
    /// Bytes.
    pub size: u64,
    /// Alignment, a power of two above 4096; 0 for none.
    pub align: u64,
    /// HBM.
    pub hbm: HbmIndex,
    /// Region of the HBM; 0 where the device has one.
    pub region: u32,
    /// Core whose ring serves copies to it.
    pub core: CoreId,
    /// What for.
    pub category: Category,
}

impl DeviceAlloc {
    /// `size` bytes on HBM 0 for core 0.
    pub const fn new(size: u64) -> Self {
        let category = Category::UNKNOWN_DEVICE;
        DeviceAlloc { size, align: 0, hbm: HBM_0, region: 0, core: CORE_0, category }
    }
}

/// Wishes for host memory.
#[derive(Clone, Copy, Debug)]
pub struct HostAlloc {
    /// Bytes.
    pub size: u64,
    /// Core it counts for.
    pub core: CoreId,
    /// What for.
    pub category: Category,
}

impl HostAlloc {
    /// `size` bytes for core 0.
    pub const fn new(size: u64) -> Self {
        HostAlloc { size, core: CORE_0, category: Category::UNKNOWN_HOST }
    }
}

impl<P: Platform> Client<P> {
    pub(crate) fn new(
        device: Device<P>,
        attachment: Attachment<Peers<P>>,
        presence: Presence,
    ) -> Self {
        let access = attachment.access().clone();
        let hold = Hold { _attachment: attachment, _presence: presence };
        Client(Arc::new(Shared {
            device,
            access,
            bounce: Pool::new(),
            numbered: Slots::new(),
            clones: AtomicUsize::new(1),
            hold: Mutex::new(Cell::new(Some(hold))),
        }))
    }

    /// Who this is.
    pub fn id(&self) -> ClientId {
        self.access().client()
    }

    /// The device it is attached to.
    pub fn device(&self) -> &Device<P> {
        &self.shared().device
    }

    pub(crate) fn shared(&self) -> &Arc<Shared<P>> {
        &self.0
    }

    pub(crate) fn access(&self) -> &Arc<Access> {
        &self.shared().access
    }

    /// Allocates device memory and publishes it.
    ///
    /// # Errors
    /// [`Error::NoMemory`] with asked, free and largest run, [`Error::InvalidArgument`],
    /// [`Error::NotAttached`]. Nothing has changed.
    pub async fn alloc_device(&self, wishes: DeviceAlloc) -> Result<DeviceBuffer<P>, Error> {
        let request = AllocRequest {
            size: wishes.size,
            align: wishes.align,
            location: Location::Device,
            channel: wishes.hbm.number(),
            region: wishes.region,
            core: wishes.core.number(),
            category: wishes.category,
            ..self.request()
        };
        Ok(DeviceBuffer::new(self.alloc(request).await?))
    }

    /// Allocates from the contiguous scratchpad of an HBM, which grows down from its end and is
    /// given back newest first (specification 04 §4.5).
    ///
    /// # Errors
    /// As [`Client::alloc_device`].
    pub async fn alloc_scratchpad(
        &self,
        size: u64,
        hbm: HbmIndex,
        core: CoreId,
    ) -> Result<DeviceBuffer<P>, Error> {
        let category = Category::CONTIGUOUS_SCRATCHPAD_DEVICE;
        self.alloc_device(DeviceAlloc { hbm, core, category, ..DeviceAlloc::new(size) }).await
    }

    /// Allocates host memory that the device reaches, and publishes it.
    ///
    /// # Errors
    /// As [`Client::alloc_device`].
    pub async fn alloc_host(&self, wishes: HostAlloc) -> Result<HostBuffer<P>, Error> {
        let request = AllocRequest {
            size: wishes.size,
            core: wishes.core.number(),
            category: wishes.category,
            ..self.request()
        };
        Ok(HostBuffer::new(self.alloc(request).await?))
    }

    /// Allocates by plain numbers, as the console and the C ABI do; `client` and `publish` of the
    /// request are set here.
    ///
    /// # Errors
    /// As [`Client::alloc_device`].
    pub async fn alloc(&self, request: AllocRequest) -> Result<Buffer<P>, Error> {
        self.shared().enter_memory(Call::Alloc).await?;
        let client = Some((self.id(), self.access().slot()));
        let request = AllocRequest { client, publish: true, ..request };
        let chunk = self.device().memory().alloc(request).await?;
        self.device().trace(TraceEvent::MemAlloc {
            core: request.core.into(),
            location: request.location as u64,
            address: chunk.facts().pa.0,
            size: request.size,
            channel: request.channel.into(),
            region: request.region.into(),
        });
        Ok(Buffer::new(self.shared().clone(), chunk))
    }

    /// A request of this client for host memory of the process lifespan.
    pub fn request(&self) -> AllocRequest {
        AllocRequest {
            client: Some((self.id(), self.access().slot())),
            lifespan: Lifespan::Client,
            category: Category::UNKNOWN_HOST,
            publish: true,
            ..AllocRequest::driver_host(0)
        }
    }

    /// The chunk with this handle, whoever owns it; pinned as long as the view lives.
    ///
    /// # Errors
    /// [`Error::BadHandle`] for a number that was never given out, was freed, or is forged;
    /// [`Error::WrongOwner`] for the ring of another client's notification queue;
    /// [`Error::NotAttached`].
    #[inline]
    pub fn by_handle(&self, handle: u64) -> Result<View<'_, P>, Error> {
        Call::Name.admit(self.access())?;
        View::of(self.shared(), self.device().memory().lookup(handle)?)
    }

    /// An empty batch with room for `limit` copies, at most 2032: the most descriptors that share a
    /// marker. The room is taken now; filling and awaiting the batch, again and again, takes none.
    ///
    /// # Errors
    /// [`Error::TooBig`], [`Error::NoRecords`], [`Error::NotAttached`].
    pub fn batch(&self, limit: usize) -> Result<Batch<P>, Error> {
        Call::Copy.admit(self.access())?;
        Batch::new(self.shared().clone(), limit)
    }

    /// Gives one reference back.
    ///
    /// # Errors
    /// [`Error::BadHandle`], [`Error::WrongOwner`].
    pub async fn free(&self, handle: u64) -> Result<(), Error> {
        Call::Free.admit(self.access())?;
        if self.device().traces(TraceKind::MemFree) {
            self.trace_free(handle);
        }
        Ok(self.device().memory().free(Some(self.id()), handle).await?)
    }

    #[cold]
    fn trace_free(&self, handle: u64) {
        if let Ok(facts) = self.device().memory().facts(handle) {
            self.device().trace(TraceEvent::MemFree {
                core: facts.core.number().into(),
                location: facts.location as u64,
                address: facts.pa.0,
                size: facts.size,
            });
        }
    }

    /// Takes one more reference.
    ///
    /// # Errors
    /// As [`Client::free`].
    pub async fn retain(&self, handle: u64) -> Result<(), Error> {
        Call::Name.admit(self.access())?;
        let memory = self.device().memory();
        let pin = memory.lookup_mut(self.id(), handle)?;
        if let Category::NOTIFICATION_HOST | Category::NOTIFICATION_DEVICE = pin.facts().category {
            // It goes with its queue and with nothing else: the reference could never be given back.
            let what = "another reference to a notification queue";
            return Err(MemoryError::Forbidden { what }.into());
        }
        let name = pin.header().name();
        drop(pin);
        memory.retain(name).await?.into_header();
        Ok(())
    }

    /// The chunk that contains this address, host addresses in their tagged form.
    ///
    /// # Errors
    /// [`Error::NoSuchAddress`] (ENOMEM, as the command it replaces).
    pub async fn search(&self, address: DeviceAddr) -> Result<ChunkInfo, Error> {
        Call::Find.admit(self.access())?;
        Ok(self.device().memory().search_pa(address.0, false).await?)
    }

    /// The chunk in which all of `[address, address + len)` lies; pinned as long as the view lives.
    ///
    /// # Errors
    /// [`Error::NoSuchAddress`], [`Error::OutOfRange`], and as [`Client::by_handle`].
    pub async fn within(&self, address: DeviceAddr, len: u64) -> Result<View<'_, P>, Error> {
        Call::Find.admit(self.access())?;
        View::of(self.shared(), self.device().memory().within(address.0, len).await?)
    }

    /// All of the chunk that contains this address, for reading unless it is this client's own
    /// (MEM_MC_GET_INFO).
    ///
    /// # Errors
    /// [`Error::NoSuchAddress`]; [`Error::Driver`] (EPERM) for memory of the driver's own; as
    /// [`Client::by_handle`].
    pub async fn find(&self, address: DeviceAddr) -> Result<Span<'_, P>, Error> {
        Call::Find.admit(self.access())?;
        let found = self.device().memory().search_pa(address.0, true).await?;
        View::of(self.shared(), self.device().memory().lookup(found.handle)?)?.span(..)
    }

    /// Asks for a reset of these cores, or of the whole device.
    ///
    /// # Errors
    /// [`Error::InvalidArgument`] for an empty or foreign map, [`Error::Busy`] for the 17th request
    /// whose result was not collected. Nothing has been touched.
    pub fn reset(&self, map: CoreMap) -> Result<axon_neuron::reset::ResetTicket, Error> {
        Call::Reset.enter(self.access(), Touched::Resets)?;
        let requester = Requester::Client(self.id());
        self.device().submit_reset(ResetRequest { map, requester })
    }

    /// Whether the client was given a right (specification 05 §8.1 gate 0).
    ///
    /// # Errors
    /// [`Error::Gate`]: EACCES, EPERM for raw device memory.
    pub fn check_grant(&self, grant: Grant) -> Result<(), Error> {
        Ok(self.access().check_grant(grant)?)
    }

    /// Bytes of the client's memory that transfers may reach now.
    pub fn in_flight_bytes(&self) -> u64 {
        pinned_bytes(self.device().memory(), self.id())
    }

    /// Ends the client and waits until everything it owned is cleaned up. Dropping the future does
    /// not stop the clean-up; with other clones around nothing ends.
    pub async fn close(self) {
        let shared = self.0.clone();
        drop(self);
        shared.device.table().left(&shared.access).await;
    }
}

/// The info lane: identity and state, no attach slot, no commands that change anything.
pub struct InfoClient<P: Platform> {
    device: Device<P>,
    handle: InfoHandle,
    _presence: Presence,
}

impl<P: Platform> InfoClient<P> {
    pub(crate) fn new(device: Device<P>, handle: InfoHandle, presence: Presence) -> Self {
        InfoClient { device, handle, _presence: presence }
    }

    /// Who this is.
    pub fn id(&self) -> ClientId {
        self.handle.client()
    }

    /// The device it looks at.
    pub fn device(&self) -> &Device<P> {
        &self.device
    }

    /// What the lane lets through: `Ok` for the commands of the info lane.
    ///
    /// # Errors
    /// [`Error::Gate`]: EINVAL for a command that only the normal lane has, EACCES for a grant that
    /// the client was not given.
    pub fn admit(&self, call: Call) -> Result<(), Error> {
        Ok(self.handle.admit(call.command())?)
    }
}
