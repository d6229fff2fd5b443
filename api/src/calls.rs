//! Every native call that stands for a command, and which one (specification 08 §8.11): the one
//! place where methods and the table of gates (05 §8.4) meet.
//!
//! A call of a client, or of what belongs to it, names its row here and is admitted by it before it
//! looks at its arguments:
//!
//! ```ignore
//! Call::Free.admit(self.access())?;
//! ```
//!
//! The row is known while compiling, so that this is one load and one test. What hangs on `Device`
//! or `Driver` stands for commands that ask for no attach ("N" and "I"); only state and grants
//! are looked at there. A public method that is in no row and not listed as
//! none in `tests/tests/gates` fails the tests.

use axon_clients::gates::Command;
use axon_clients::{Access, Touched};

use crate::Error;

macro_rules! calls {
    ($($call:ident $command:ident [$($path:literal)+];)*) => {
        /// A native call. Methods that differ only in how they are written share a row.
        #[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
        #[allow(missing_docs, reason = "the methods of each are in its row")]
        pub enum Call {
            $($call,)*
        }

        /// Every native call.
        pub const CALLS: &[Call] = &[$(Call::$call,)*];

        impl Call {
            /// The command that it stands for: its gate.
            #[inline(always)]
            pub const fn command(self) -> Command {
                match self {
                    $(Call::$call => Command::$command,)*
                }
            }

            /// Its methods, as `Type::method`.
            pub const fn methods(self) -> &'static [&'static str] {
                match self {
                    $(Call::$call => &[$($path),+],)*
                }
            }
        }
    };
}

calls! {
    ReadRegister        BarRead             ["Device::read32"];
    WriteRegister       BarWrite            ["raw::write32" "raw::operator_write32"];
    PostMetric          PostMetric          ["Client::post_metric"];
    Alloc               MemAllocV2          ["Client::alloc" "Client::alloc_device" "Client::alloc_host" "Client::alloc_scratchpad" "Client::alloc_ring"];
    Free                MemFree             ["Client::free" "Buffer::close"];
    Copy                MemCopy             ["Span::copy_to" "Buffer::copy_to" "Client::batch" "Batch::copy" "Batch::add" "Batch::try_start" "Client::gather" "Client::scatter" "SegmentCopy::try_start"];
    Move                MemBufCopy          ["Buffer::write" "Buffer::write_by_dma" "Buffer::read" "View::write" "View::write_by_dma" "View::read"];
    WriteInline         MemBufZerocopy64    ["Buffer::write_inline" "View::write_inline"];
    Name                MemGetInfo          ["Client::by_handle" "Client::retain" "Buffer::span" "View::span" "View::span_at" "HostBuffer::memory"];
    Find                MemMcGetInfo        ["Client::search" "Client::within" "Client::find"];
    Map                 MemGetInfo          ["Client::window" "Client::region" "Client::hbm_window" "Client::export" "Client::register_peer" "Client::hold_host_ranges" "Buffer::window" "Buffer::window_len" "BarView::read" "BarView::write" "BarView::export" "BarView::register_peer"];
    Fill                Memset              ["Span::fill" "Buffer::fill"];
    EngineInit          DmaEngInit          ["QueueCommands::engine_init"];
    EngineSetState      DmaEngSetState      ["QueueCommands::engine_set_state"];
    EngineStatus        DmaEngGetState      ["Device::engine_status"];
    BindQueue           DmaQueueInit        ["Client::bind_queue" "QueueCommands::init"];
    BindQueues          DmaQueueInitBatch   ["QueueCommands::init_batch"];
    ReleaseQueue        DmaQueueRelease     ["DmaQueue::close" "QueueCommands::release"];
    StartQueue          DmaQueueCopyStart   ["DmaQueue::start" "QueueCommands::start"];
    Acknowledge         DmaAckCompleted     ["DmaQueue::acknowledge" "QueueCommands::acknowledge"];
    QueueStatus         DmaQueueGetState    ["DmaQueue::status" "Device::queue_status"];
    Stage               DmaCopyDescriptors  ["RingMem::stage" "QueueCommands::copy_descriptors"];
    CopyOut             DmaDescriptorCopyout ["QueueCommands::copy_out"];
    SemaphoreAdd        SemaphoreIncrement  ["Semaphore::add"];
    SemaphoreSubtract   SemaphoreDecrement  ["Semaphore::sub"];
    SemaphoreGet        SemaphoreRead       ["Semaphore::get" "Semaphore::reached"];
    SemaphoreSet        SemaphoreWrite      ["Semaphore::set"];
    EventSet            EventSet            ["Event::set" "Event::write"];
    EventGet            EventGet            ["Event::get" "Event::read" "Event::wait"];
    Notifications       NotificationsInitV2 ["Client::notifications"];
    ResizeNotifications NotificationsInitWithReallocV2 ["NotificationQueue::resize"];
    CloseNotifications  NotificationsDestroyV1 ["NotificationQueue::close"];
    ReadNotifications   NotificationsQueueInfo ["NotificationQueue::next" "NotificationQueue::try_next" "NotificationQueue::read" "NotificationQueue::peek" "NotificationQueue::info" "NotificationQueue::handle" "NotificationQueue::memory"];
    HardwareCounters    ReadHwCounters      ["Device::hardware_counters"];
    Datastore           AcquireNeuronDs     ["Client::datastore" "Client::datastore_of"];
    ReleaseDatastore    ReleaseNeuronDs     ["Client::release_datastore"];
    ReaderEnter         CrwlReaderEnter     ["NeuronCore::model_reader" "CoreCommands::reader_enter"];
    ReaderExit          CrwlReaderExit      ["CoreCommands::reader_exit"];
    WriterEnter         CrwlWriterEnter     ["NeuronCore::model_writer" "CoreCommands::writer_enter"];
    WriterDowngrade     CrwlWriterDowngrade ["CoreCommands::writer_downgrade"];
    Claim               CrwlNcRangeMark     ["Client::claim" "InfoClient::claim" "Driver::claim"];
    InitCore            CinitSetState       ["NeuronCore::begin_init" "CoreCommands::set_init_state"];
    ModelStarts         NcModelStartedCount ["NeuronCore::model_starts"];
    Reset               NcReset             ["Client::reset"];
    Program             ProgramEngineNc     ["Client::program_engine"];
    CopyNumbered        MemCopyAsync        ["AsyncCopies::submit"];
    WaitNumbered        MemCopyAsyncWait    ["AsyncCopies::wait"];
    Scrub               HbmScrubStart       ["Client::scrub"];
    Clients             DeviceGetAllAppsInfo ["Device::clients"];
    Chunks              DumpMemChunks       ["Device::chunks" "Device::chunks_up_to" "Device::host_chunks"];
    Pod                 PodStatus           ["Driver::pod"];
    PodControl          PodCtrl             ["Driver::pod_control" "Driver::pod_set_mode" "Driver::pod_elect" "Driver::pod_cancel" "Client::pod_control" "InfoClient::pod_control"];
    Log                 Printk              ["Driver::log"];
    ZeroCopy            MemBufZerocopy64Batches ["Client::zero_copy" "ZeroCopyQueue::submit"];
    Completions         GetAsyncH2tDmaComplQueues ["Client::zero_copy_queue" "Completions::next" "Completions::try_next"];
    TakeQueues          H2tDmaAllocQueues   ["Client::h2t_queues" "QueueCommands::h2t_alloc"];
    FreeQueues          H2tDmaFreeQueues    ["H2tQueues::close" "QueueCommands::h2t_free"];
    SetPowerProfile     PowerProfile        ["Client::set_power_profile"];
    PeriodicMetrics     MetricsCtrl         ["Client::periodic_metrics"];
    Throttling          ThrottlingNotifications ["Client::throttle_notifications"];
    PowerProfileNow     GetPerformanceProfile ["Device::power_profile"];
    PowerProfiles       AvailablePerfProfiles ["Device::power_profiles"];
}

impl Call {
    /// Passes the gate of the call.
    ///
    /// # Errors
    /// [`Error::NotAttached`], [`Error::Removed`], [`Error::Gate`] for a missing grant.
    #[inline(always)]
    pub(crate) fn admit(self, access: &Access) -> Result<(), Error> {
        access.admit(self.command()).map_err(Error::from)
    }

    /// Notes what the end of the client has to see to, then passes the gate.
    ///
    /// # Errors
    /// As [`Call::admit`].
    #[inline(always)]
    pub(crate) fn enter(self, access: &Access, what: Touched) -> Result<(), Error> {
        access.enter(self.command(), what).map_err(Error::from)
    }

    /// Whether the client may, where why not is found out later.
    #[inline(always)]
    pub(crate) fn is_admitted(self, access: &Access) -> bool {
        access.admit(self.command()).is_ok()
    }

    /// Number under which the call is noted in the event ring.
    #[inline]
    pub(crate) const fn number(self) -> u64 {
        self.command().number() as u64
    }
}
