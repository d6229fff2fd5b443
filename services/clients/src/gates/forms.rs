//! Every encoding of every command (specification 08 §8.2, §8.4) and how a word is told apart.

use Direction::{Both, None as Neither, Read, Write};
use LinuxGate::{Attached, Either, EitherAttachedIfNormal, Normal};

use super::Command as C;
use super::GateError;

/// Direction bits of a word. They are part of its identity and say nothing about the data flow.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub enum Direction {
    /// No bit.
    None = 0,
    /// W.
    Write = 1,
    /// R.
    Read = 2,
    /// RW.
    Both = 3,
}

/// What the Linux driver tests for one encoding; ours tests by number ([`super::Rule`]).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum LinuxGate {
    /// Any descriptor not opened write-only.
    Normal,
    /// The process must be attached besides.
    Attached,
    /// Write-only descriptors too.
    Either,
    /// Write-only descriptors too, an attached process on others.
    EitherAttachedIfNormal,
}

/// One encoding of a command.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Form {
    /// What it asks for.
    pub command: C,
    /// Its own name.
    pub name: &'static str,
    /// Direction, size, the letter `N`, number.
    pub word: u32,
    /// Bytes of the record behind the argument; 0 for none. The size in old words is that of a
    /// pointer.
    pub record_bytes: u16,
    /// What Linux tests.
    pub linux: LinuxGate,
}

/// Letter of all words: bits 15:8.
const LETTER: u32 = b'N' as u32;

const fn form(
    command: C,
    name: &'static str,
    direction: Direction,
    size: u32,
    record_bytes: u16,
    linux: LinuxGate,
) -> Form {
    let word = (direction as u32) << 30 | size << 16 | LETTER << 8 | command.number() as u32;
    Form { command, name, word, record_bytes, linux }
}

/// Every form, by number.
#[rustfmt::skip]
pub const FORMS: &[Form] = &[
    form(C::DeviceReset, "DEVICE_RESET", Neither, 0, 0, Normal),
    form(C::DeviceReady, "DEVICE_READY", Read, 1, 1, Normal),
    form(C::DeviceInfo, "DEVICE_INFO", Read, 8, 80, Normal),
    form(C::DeviceInit, "DEVICE_INIT", Read, 8, 4, Normal),
    form(C::DeviceRelease, "DEVICE_RELEASE", Neither, 0, 0, Normal),
    form(C::DeviceAppPid, "DEVICE_APP_PID", Read, 4, 4, Normal),
    form(C::DeviceGetAllAppsInfo, "DEVICE_GET_ALL_APPS_INFO", Read, 8, 16, Normal),
    form(C::BarRead, "BAR_READ", Read, 8, 32, Normal),
    form(C::BarWrite, "BAR_WRITE", Write, 8, 32, Attached),
    form(C::PostMetric, "POST_METRIC", Write, 8, 16, Attached),
    form(C::MemAlloc, "MEM_ALLOC", Read, 8, 32, Attached),
    form(C::MemFree, "MEM_FREE", Read, 8, 8, Attached),
    form(C::MemCopy, "MEM_COPY", Read, 8, 32, Attached),
    form(C::MemCopy, "MEM_COPY64", Read, 40, 40, Normal),
    form(C::MemBufCopy, "MEM_BUF_COPY", Both, 8, 32, Normal),
    form(C::MemBufCopy, "MEM_BUF_COPY64", Both, 40, 40, Normal),
    form(C::MemGetPa, "MEM_GET_PA", Read, 8, 16, Attached),
    form(C::MemGetInfo, "MEM_GET_INFO", Read, 8, 24, Attached),
    form(C::ProgramEngine, "PROGRAM_ENGINE", Both, 8, 24, Normal),
    form(C::Memset, "MEMSET", Read, 8, 24, Normal),
    form(C::Memset, "MEMSET64", Read, 32, 32, Normal),
    form(C::MemGetExtendedInfo, "MEM_GET_EXTENDED_INFO", Read, 8, 48, Normal),
    form(C::DmaEngInit, "DMA_ENG_INIT", Read, 8, 4, Attached),
    form(C::DmaEngSetState, "DMA_ENG_SET_STATE", Read, 8, 8, Attached),
    form(C::DmaEngGetState, "DMA_ENG_GET_STATE", Both, 8, 16, Normal),
    form(C::DmaQueueInit, "DMA_QUEUE_INIT", Read, 8, 48, Attached),
    form(C::DmaQueueRelease, "DMA_QUEUE_RELEASE", Read, 8, 8, Attached),
    form(C::DmaQueueCopyStart, "DMA_QUEUE_COPY_START", Read, 8, 16, Normal),
    form(C::DmaAckCompleted, "DMA_ACK_COMPLETED", Read, 8, 12, Attached),
    form(C::DmaQueueGetState, "DMA_QUEUE_GET_STATE", Both, 8, 24, Normal),
    form(C::DmaCopyDescriptors, "DMA_COPY_DESCRIPTORS", Read, 8, 32, Attached),
    form(C::DmaCopyDescriptors, "DMA_COPY_DESCRIPTORS64", Read, 40, 40, Normal),
    form(C::DmaDescriptorCopyout, "DMA_DESCRIPTOR_COPYOUT", Both, 8, 32, Normal),
    form(C::DmaQuiesceQueues, "DMA_QUIESCE_QUEUES", Read, 8, 264, Normal),
    form(C::SemaphoreIncrement, "SEMAPHORE_INCREMENT", Read, 8, 12, Normal),
    form(C::SemaphoreDecrement, "SEMAPHORE_DECREMENT", Read, 8, 12, Normal),
    form(C::SemaphoreRead, "SEMAPHORE_READ", Both, 8, 12, Normal),
    form(C::SemaphoreWrite, "SEMAPHORE_WRITE", Read, 8, 12, Normal),
    form(C::EventSet, "EVENT_SET", Read, 8, 12, Normal),
    form(C::EventGet, "EVENT_GET", Both, 8, 12, Normal),
    form(C::NotificationsInitV1, "NOTIFICATIONS_INIT_V1", Read, 8, 24, Attached),
    form(C::NotificationsDestroyV1, "NOTIFICATIONS_DESTROY_V1", Read, 8, 8, Normal),
    form(C::NotificationsInitV2, "NOTIFICATIONS_INIT_V2", Read, 8, 48, Attached),
    form(C::NotificationsInitWithReallocV2, "NOTIFICATIONS_INIT_WITH_REALLOC_V2", Read, 8, 56, Attached),
    form(C::NotificationsQueueInfo, "NOTIFICATIONS_QUEUE_INFO", Read, 8, 12, Normal),
    form(C::ReadHwCounters, "READ_HW_COUNTERS", Read, 8, 24, Normal),
    form(C::AcquireNeuronDs, "ACQUIRE_NEURON_DS", Read, 8, 24, Normal),
    form(C::ReleaseNeuronDs, "RELEASE_NEURON_DS", Read, 8, 24, Normal),
    form(C::CrwlReaderEnter, "CRWL_READER_ENTER", Write, 8, 36, Normal),
    form(C::CrwlReaderExit, "CRWL_READER_EXIT", Write, 8, 36, Normal),
    form(C::CrwlWriterEnter, "CRWL_WRITER_ENTER", Write, 8, 36, Normal),
    form(C::CrwlWriterDowngrade, "CRWL_WRITER_DOWNGRADE", Write, 8, 36, Normal),
    form(C::CrwlNcRangeMark, "CRWL_NC_RANGE_MARK", Write, 8, 24, Either),
    form(C::CrwlNcRangeMark, "CRWL_NC_RANGE_MARK_EXT0", Both, 80, 80, Either),
    form(C::CrwlNcRangeUnmark, "CRWL_NC_RANGE_UNMARK", Write, 8, 24, Either),
    form(C::CrwlNcRangeUnmark, "CRWL_NC_RANGE_UNMARK_EXT0", Write, 80, 80, Either),
    form(C::CinitSetState, "CINIT_SET_STATE", Write, 8, 12, Normal),
    form(C::NcModelStartedCount, "NC_MODEL_STARTED_COUNT", Write, 8, 16, Normal),
    form(C::CompatibleVersion, "COMPATIBLE_VERSION", Write, 8, 8, Either),
    form(C::DeviceBasicInfo, "DEVICE_BASIC_INFO", Write, 8, 8, Either),
    form(C::DeviceBdf, "DEVICE_BDF", Read, 8, 8, Normal),
    form(C::MemAllocV2, "MEM_ALLOC_V2", Read, 8, 40, Normal),
    form(C::MemAllocV2, "MEM_ALLOC_V2MT", Read, 48, 48, Normal),
    form(C::MemAllocV2, "MEM_ALLOC_V2MT64", Read, 56, 56, Normal),
    form(C::NcReset, "NC_RESET", Read, 8, 8, Normal),
    form(C::NcResetReady, "NC_RESET_READY", Read, 8, 8, Normal),
    form(C::ProgramEngineNc, "PROGRAM_ENGINE_NC", Both, 8, 32, Normal),
    form(C::ProgramEngineNc, "PROGRAM_ENGINE_NC64", Both, 40, 40, Normal),
    form(C::DeviceResetStatus, "DEVICE_RESET_STATUS", Read, 1, 1, Normal),
    form(C::DeviceBdfExt, "DEVICE_BDF_EXT", Read, 8, 16, Either),
    form(C::DmabufFd, "DMABUF_FD", Read, 8, 24, Either),
    form(C::MemCopyAsync, "MEM_COPY_ASYNC", Both, 48, 48, Attached),
    form(C::MemCopyAsync, "MEM_COPY_ASYNC64", Both, 56, 56, Normal),
    form(C::MemCopyAsyncWait, "MEM_COPY_ASYNC_WAIT", Write, 24, 24, Attached),
    form(C::DriverInfoGet, "DRIVER_INFO_GET", Read, 24, 24, Either),
    form(C::DriverInfoSet, "DRIVER_INFO_SET", Write, 24, 24, EitherAttachedIfNormal),
    form(C::MemMcGetInfo, "MEM_MC_GET_INFO", Both, 24, 24, Normal),
    form(C::MemMcGetInfo, "MEM_MC_GET_INFO_V2", Both, 32, 32, Normal),
    form(C::ResourceMmapInfo, "RESOURCE_MMAP_INFO", Both, 32, 32, Normal),
    form(C::Printk, "PRINTK", Write, 16, 16, Either),
    form(C::HostDeviceId, "HOST_DEVICE_ID", Read, 4, 4, Normal),
    form(C::HostDeviceIdToRidMap, "HOST_DEVICE_ID_TO_RID_MAP", Both, 260, 260, Either),
    form(C::DumpMemChunks, "DUMP_MEM_CHUNKS", Read, 8, 24, Normal),
    form(C::NcPidStateDump, "NC_PID_STATE_DUMP", Both, 16, 16, Either),
    form(C::HbmScrubStart, "HBM_SCRUB_START", Both, 16, 16, Normal),
    form(C::HbmScrubWait, "HBM_SCRUB_WAIT", Both, 8, 8, Normal),
    form(C::GetLogicalToPhysicalNcMap, "GET_LOGICAL_TO_PHYSICAL_NC_MAP", Both, 16, 16, Either),
    form(C::PodInfo, "POD_INFO", Both, 260, 260, Either),
    form(C::PodStatus, "POD_STATUS", Both, 268, 268, Either),
    form(C::PodStatus, "POD_STATUS_V2", Both, 276, 276, Either),
    form(C::PodCtrl, "POD_CTRL", Both, 16, 16, Either),
    form(C::PodCtrl, "POD_CTRL_V2", Both, 20, 20, Either),
    form(C::MemBufZerocopy64, "MEM_BUF_ZEROCOPY64", Both, 48, 48, Normal),
    form(C::H2tDmaAllocQueues, "H2T_DMA_ALLOC_QUEUES", Both, 20, 20, Normal),
    form(C::H2tDmaFreeQueues, "H2T_DMA_FREE_QUEUES", Both, 8, 8, Normal),
    form(C::PowerProfile, "POWER_PROFILE", Write, 8, 8, Normal),
    form(C::MetricsCtrl, "METRICS_CTRL", Write, 4, 4, Normal),
    form(C::MemBufZerocopy64Batches, "MEM_BUF_ZEROCOPY64_BATCHES", Both, 32, 32, Normal),
    form(C::ThrottlingNotifications, "THROTTLING_NOTIFICATIONS", Write, 4, 4, Normal),
    form(C::GetVaPlacement, "GET_VA_PLACEMENT", Write, 16, 16, Either),
    form(C::GetPerformanceProfile, "GET_PERFORMANCE_PROFILE", Both, 8, 8, Normal),
    form(C::DmaQueueInitBatch, "DMA_QUEUE_INIT_BATCH", Read, 12296, 12296, Normal),
    form(C::AvailablePerfProfiles, "AVAILABLE_PERF_PROFILES", Both, 36, 36, Normal),
    form(C::GetAsyncH2tDmaComplQueues, "GET_ASYNC_H2T_DMA_COMPL_QUEUES", Both, 264, 264, Normal),
];

impl Form {
    /// The form that a word encodes, by the rules of 08 §8.2: most by the whole word, some by number
    /// and size, `DRIVER_INFO` by number and direction.
    ///
    /// # Errors
    /// [`GateError::UnknownCommand`], also for a known number with an unknown size.
    pub fn find(word: u32) -> Result<&'static Form, GateError> {
        FORMS.iter().find(|form| form.matches(word)).ok_or(GateError::UnknownCommand { word })
    }

    /// The form of this name.
    pub fn named(name: &str) -> Option<&'static Form> {
        FORMS.iter().find(|form| form.name == name)
    }

    /// The size field of the word.
    pub const fn size(&self) -> u32 {
        size_of_word(self.word)
    }

    fn matches(&self, word: u32) -> bool {
        if word & 0xffff != self.word & 0xffff {
            return false;
        }
        let size = size_of_word(word);
        match self.command {
            C::MemMcGetInfo | C::HostDeviceIdToRidMap | C::MemBufZerocopy64 => size == self.size(),
            C::DriverInfoGet => word >> 30 == Read as u32 && size >= self.size(),
            C::DriverInfoSet => word >> 30 == Write as u32,
            // A description of 2.27 gives 24 bytes for the same fields: both are taken.
            C::H2tDmaAllocQueues => self.with_size(20) == word || self.with_size(24) == word,
            _ => word == self.word,
        }
    }

    const fn with_size(&self, size: u32) -> u32 {
        self.word & !(0x3fff << 16) | size << 16
    }
}

const fn size_of_word(word: u32) -> u32 {
    word >> 16 & 0x3fff
}

#[cfg(test)]
mod tests {
    use axon_platform::Errno;

    use super::*;
    use crate::gates::spec;

    #[test]
    fn words_records_and_linux_gates_are_those_of_the_catalogue() {
        let rows = spec::form_rows();
        assert_eq!(rows.len(), FORMS.len());
        for (row, form) in rows.iter().zip(FORMS) {
            assert_eq!((row.number, row.name), (form.command.number(), form.name));
            assert_eq!((row.word, row.size), (form.word, form.size()), "{}", row.name);
            assert_eq!((row.record_bytes, row.linux), (form.record_bytes, form.linux));
        }
    }

    #[test]
    fn every_word_finds_its_own_form() {
        for form in FORMS {
            assert_eq!(Form::find(form.word).unwrap().name, form.name);
        }
    }

    #[test]
    fn st_e14_a_range_mark_of_another_size_is_refused() {
        let mark = Form::named("CRWL_NC_RANGE_MARK").unwrap();
        assert_eq!(Form::find(mark.with_size(16)).unwrap_err().errno(), Errno::EINVAL);
        assert_eq!(Form::find(mark.word).unwrap().record_bytes, 24);
        let wide = Form::named("CRWL_NC_RANGE_MARK_EXT0").unwrap();
        assert_eq!((Form::find(wide.word).unwrap().name, wide.size()), (wide.name, 80));
    }

    #[test]
    fn driver_info_is_told_apart_by_direction() {
        let name = |word| Form::find(word).map(|form| form.name);
        let get = Form::named("DRIVER_INFO_GET").unwrap();
        assert_eq!(name(get.with_size(4000)), Ok("DRIVER_INFO_GET"));
        assert!(name(get.with_size(23)).is_err());
        let set = Form::named("DRIVER_INFO_SET").unwrap();
        assert_eq!(name(set.with_size(1)), Ok("DRIVER_INFO_SET"));
        assert!(name(get.word | 3 << 30).is_err(), "both bits are neither");
    }

    #[test]
    fn number_106_is_told_apart_by_size_and_foreign_words_are_no_commands() {
        assert_eq!(Form::find(0x8001_4e6a).unwrap().name, "DEVICE_RESET_STATUS");
        assert_eq!(Form::find(0x8008_4e6a).unwrap().name, "DEVICE_BDF_EXT");
        for word in [0, 0x8008_4e63, 0x8008_4f17, u32::MAX, 0x810b_4e7a] {
            assert_eq!(Form::find(word), Err(GateError::UnknownCommand { word }));
        }
    }
}
