//! The table of gates (specification 05 §8.4), one row a command, in the letters of that table.

use core::fmt;

use super::{Gate, Grant, Rule};

/// "I": either lane.
const I: Rule = Rule::new(Gate::Either);
/// "N": normal lane.
const N: Rule = Rule::new(Gate::Normal);
/// "A": normal lane, live attach.
const A: Rule = Rule::new(Gate::Attached);
/// "I; A on the normal lane".
const S: Rule = Rule::new(Gate::EitherAttachedIfNormal);
/// Removed.
const X: Rule = Rule::new(Gate::Absent);

macro_rules! commands {
    ($($number:literal $command:ident $name:literal $rule:expr;)*) => {
        /// One command. Its widths and versions ([`super::Form`]) are not told apart here.
        #[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
        #[allow(missing_docs, reason = "the names are those of the catalogue, 08 §8.4")]
        pub enum Command {
            $($command,)*
        }

        /// Every command, by number.
        pub const COMMANDS: &[Command] = &[$(Command::$command,)*];

        impl Command {
            /// Its number. 106 and 110 carry two commands each.
            pub const fn number(self) -> u8 {
                match self {
                    $(Command::$command => $number,)*
                }
            }

            /// Its name in the catalogue; the narrowest form's where there are several.
            pub const fn name(self) -> &'static str {
                match self {
                    $(Command::$command => $name,)*
                }
            }

            /// Its row of the table.
            pub const fn rule(self) -> &'static Rule {
                match self {
                    $(Command::$command => const { &$rule },)*
                }
            }
        }
    };
}

commands! {
      1 DeviceReset                    "DEVICE_RESET"                       A.hardware();
      2 DeviceReady                    "DEVICE_READY"                       N;
      3 DeviceInfo                     "DEVICE_INFO"                        N;
      4 DeviceInit                     "DEVICE_INIT"                        N;
      5 DeviceRelease                  "DEVICE_RELEASE"                     N;
      6 DeviceAppPid                   "DEVICE_APP_PID"                     N;
      7 DeviceGetAllAppsInfo           "DEVICE_GET_ALL_APPS_INFO"           N;
     11 BarRead                        "BAR_READ"                           N.hardware();
     12 BarWrite                       "BAR_WRITE"                          A.hardware();
     13 PostMetric                     "POST_METRIC"                        A.hardware();
     21 MemAlloc                       "MEM_ALLOC"                          A;
     22 MemFree                        "MEM_FREE"                           A.owner();
     23 MemCopy                        "MEM_COPY"                           A.owner().hardware();
     24 MemBufCopy                     "MEM_BUF_COPY"                       A.owner_if_written().hardware();
     25 MemGetPa                       "MEM_GET_PA"                         A;
     26 MemGetInfo                     "MEM_GET_INFO"                       A;
     27 ProgramEngine                  "PROGRAM_ENGINE"                     A.core().hardware();
     28 Memset                         "MEMSET"                             A.owner().hardware();
     29 MemGetExtendedInfo             "MEM_GET_EXTENDED_INFO"              N;
     30 DmaEngInit                     "DMA_ENG_INIT"                       A;
     31 DmaEngSetState                 "DMA_ENG_SET_STATE"                  A.core().hardware();
     32 DmaEngGetState                 "DMA_ENG_GET_STATE"                  N.hardware();
     33 DmaQueueInit                   "DMA_QUEUE_INIT"                     A.owner().hardware();
     34 DmaQueueRelease                "DMA_QUEUE_RELEASE"                  A.owner().hardware();
     35 DmaQueueCopyStart              "DMA_QUEUE_COPY_START"               A.owner().hardware();
     36 DmaAckCompleted                "DMA_ACK_COMPLETED"                  A.owner().hardware();
     37 DmaQueueGetState               "DMA_QUEUE_GET_STATE"                N.hardware();
     38 DmaCopyDescriptors             "DMA_COPY_DESCRIPTORS"               A.owner().hardware();
     39 DmaDescriptorCopyout           "DMA_DESCRIPTOR_COPYOUT"             A.owner().hardware();
     40 DmaQuiesceQueues               "DMA_QUIESCE_QUEUES"                 X;
     41 SemaphoreIncrement             "SEMAPHORE_INCREMENT"                A.core().hardware();
     42 SemaphoreDecrement             "SEMAPHORE_DECREMENT"                A.core().hardware();
     43 SemaphoreRead                  "SEMAPHORE_READ"                     N.hardware();
     44 SemaphoreWrite                 "SEMAPHORE_WRITE"                    A.core().hardware();
     45 EventSet                       "EVENT_SET"                          A.core().hardware();
     46 EventGet                       "EVENT_GET"                          N.hardware();
     51 NotificationsInitV1            "NOTIFICATIONS_INIT_V1"              A.hardware();
     52 NotificationsDestroyV1         "NOTIFICATIONS_DESTROY_V1"           A.owner().hardware();
     53 NotificationsInitV2            "NOTIFICATIONS_INIT_V2"              A.hardware();
     54 NotificationsInitWithReallocV2 "NOTIFICATIONS_INIT_WITH_REALLOC_V2" A.hardware();
     58 NotificationsQueueInfo         "NOTIFICATIONS_QUEUE_INFO"           A.owner().hardware();
     61 ReadHwCounters                 "READ_HW_COUNTERS"                   N.hardware();
     71 AcquireNeuronDs                "ACQUIRE_NEURON_DS"                  A;
     72 ReleaseNeuronDs                "RELEASE_NEURON_DS"                  A;
     81 CrwlReaderEnter                "CRWL_READER_ENTER"                  A;
     82 CrwlReaderExit                 "CRWL_READER_EXIT"                   A;
     83 CrwlWriterEnter                "CRWL_WRITER_ENTER"                  A;
     84 CrwlWriterDowngrade            "CRWL_WRITER_DOWNGRADE"              A;
     85 CrwlNcRangeMark                "CRWL_NC_RANGE_MARK"                 I;
     86 CrwlNcRangeUnmark              "CRWL_NC_RANGE_UNMARK"               I;
     91 CinitSetState                  "CINIT_SET_STATE"                    A;
     92 NcModelStartedCount            "NC_MODEL_STARTED_COUNT"             N;
     93 CompatibleVersion              "COMPATIBLE_VERSION"                 I;
    100 DeviceBasicInfo                "DEVICE_BASIC_INFO"                  I;
    101 DeviceBdf                      "DEVICE_BDF"                         N;
    102 MemAllocV2                     "MEM_ALLOC_V2"                       A;
    103 NcReset                        "NC_RESET"                           A.hardware();
    104 NcResetReady                   "NC_RESET_READY"                     N;
    105 ProgramEngineNc                "PROGRAM_ENGINE_NC"                  A.core().hardware();
    106 DeviceResetStatus              "DEVICE_RESET_STATUS"                N;
    106 DeviceBdfExt                   "DEVICE_BDF_EXT"                     I;
    107 DmabufFd                       "DMABUF_FD"                          I.owner();
    108 MemCopyAsync                   "MEM_COPY_ASYNC"                     A.owner().hardware();
    109 MemCopyAsyncWait               "MEM_COPY_ASYNC_WAIT"                A.owner().hardware();
    110 DriverInfoGet                  "DRIVER_INFO_GET"                    I;
    110 DriverInfoSet                  "DRIVER_INFO_SET"                    S;
    111 MemMcGetInfo                   "MEM_MC_GET_INFO"                    A;
    112 ResourceMmapInfo               "RESOURCE_MMAP_INFO"                 N;
    113 Printk                         "PRINTK"                             I;
    114 HostDeviceId                   "HOST_DEVICE_ID"                     N;
    115 HostDeviceIdToRidMap           "HOST_DEVICE_ID_TO_RID_MAP"          I;
    116 DumpMemChunks                  "DUMP_MEM_CHUNKS"                    N;
    117 NcPidStateDump                 "NC_PID_STATE_DUMP"                  I;
    118 HbmScrubStart                  "HBM_SCRUB_START"                    A.owner().hardware();
    119 HbmScrubWait                   "HBM_SCRUB_WAIT"                     A.owner().hardware();
    120 GetLogicalToPhysicalNcMap      "GET_LOGICAL_TO_PHYSICAL_NC_MAP"     I;
    121 PodInfo                        "POD_INFO"                           I;
    122 PodStatus                      "POD_STATUS"                         I;
    123 PodCtrl                        "POD_CTRL"                           I.needs(Grant::PodControl);
    124 MemBufZerocopy64               "MEM_BUF_ZEROCOPY64"                 A.owner_if_written().hardware();
    125 H2tDmaAllocQueues              "H2T_DMA_ALLOC_QUEUES"               A.hardware();
    126 H2tDmaFreeQueues               "H2T_DMA_FREE_QUEUES"                A.owner().hardware();
    127 PowerProfile                   "POWER_PROFILE"                      A.hardware();
    128 MetricsCtrl                    "METRICS_CTRL"                       A;
    129 MemBufZerocopy64Batches        "MEM_BUF_ZEROCOPY64_BATCHES"         A.owner_if_written().hardware();
    130 ThrottlingNotifications        "THROTTLING_NOTIFICATIONS"           A.hardware();
    131 GetVaPlacement                 "GET_VA_PLACEMENT"                   I;
    132 GetPerformanceProfile          "GET_PERFORMANCE_PROFILE"            N;
    133 DmaQueueInitBatch              "DMA_QUEUE_INIT_BATCH"               A.owner().hardware();
    134 AvailablePerfProfiles          "AVAILABLE_PERF_PROFILES"            N.hardware();
    135 GetAsyncH2tDmaComplQueues      "GET_ASYNC_H2T_DMA_COMPL_QUEUES"     A;
}

impl fmt::Display for Command {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}
