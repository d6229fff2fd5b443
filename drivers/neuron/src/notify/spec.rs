//! What a notification queue is asked to be (specification 06 §3.1, §5.2, §17.2).

use core::fmt;

use axon_platform::Errno;

use crate::Error;

/// Smallest ring in bytes.
pub const MIN_BYTES: u64 = 4096;
/// Largest ring in bytes.
pub const MAX_BYTES: u64 = 0x4000_0000;

/// What fills a queue. Plain numbers, because a caller may get them wrong and has to be told.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Producer {
    /// A core.
    Core(u32),
    /// A TopSP, by its logical number.
    TopSp(u32),
}

impl Producer {
    /// The producer of the Linux interface: kind 0 is a core, 1 a TopSP.
    ///
    /// # Errors
    /// [`Errno::ENOSYS`] for another kind.
    pub const fn from_numbers(kind: u32, id: u32) -> Result<Producer, Errno> {
        match kind {
            0 => Ok(Producer::Core(id)),
            1 => Ok(Producer::TopSp(id)),
            _ => Err(Errno::ENOSYS),
        }
    }
}

impl fmt::Display for Producer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Producer::Core(number) => write!(f, "nc{number}"),
            Producer::TopSp(number) => write!(f, "topsp{number}"),
        }
    }
}

/// What a queue reports. The numbers are those of the Linux interface.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[repr(u8)]
pub enum QueueKind {
    /// Instruction tracing.
    Trace = 0,
    /// An explicit notify instruction, or the end of an instruction.
    Notify = 1,
    /// An event was set or cleared.
    Event = 2,
    /// An error condition.
    Error = 3,
    /// DMA transfers of an engine.
    TraceDma = 4,
    /// Throttling.
    Throttle = 5,
}

impl QueueKind {
    /// Every kind, by number.
    pub const ALL: [QueueKind; 6] = [
        QueueKind::Trace,
        QueueKind::Notify,
        QueueKind::Event,
        QueueKind::Error,
        QueueKind::TraceDma,
        QueueKind::Throttle,
    ];

    /// The kind with this number, at full width.
    pub fn from_number(number: u32) -> Option<QueueKind> {
        QueueKind::ALL.into_iter().find(|kind| *kind as u32 == number)
    }

    /// Name on the console.
    pub const fn name(self) -> &'static str {
        match self {
            QueueKind::Trace => "trace",
            QueueKind::Notify => "notify",
            QueueKind::Event => "event",
            QueueKind::Error => "error",
            QueueKind::TraceDma => "trace-dma",
            QueueKind::Throttle => "throttle",
        }
    }

    /// The kind with this name.
    pub fn from_name(name: &str) -> Option<QueueKind> {
        QueueKind::ALL.into_iter().find(|kind| kind.name() == name)
    }
}

/// Where the ring lies.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Placement {
    /// Host memory: read in place.
    Host,
    /// HBM: read by DMA.
    Device {
        /// Channel.
        channel: u32,
        /// Region of the channel.
        region: u32,
    },
}

/// What the producer does with a full ring. Counts only where the driver manages queues
/// ([`crate::DeviceConfig::manage_notifications`]).
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum WhenFull {
    /// It waits until there is room.
    #[default]
    Stall,
    /// It drops the record.
    Drop,
}

/// A queue that is wished for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct QueueSpec {
    /// Who fills it.
    pub producer: Producer,
    /// What it reports.
    pub kind: QueueKind,
    /// Queue of the producer; the engine of the core for [`QueueKind::TraceDma`].
    pub index: u32,
    /// Bytes of the ring: a power of two from 4096 to 1 GiB.
    pub size: u64,
    /// Where the ring lies.
    pub placement: Placement,
    /// What happens when it is full.
    pub when_full: WhenFull,
    /// Take the place of the queue that is there, if it is the same client's.
    pub replace: bool,
}

impl QueueSpec {
    /// A queue of notifications of core `core` in `size` bytes of host memory.
    pub const fn new(core: u32, index: u32, size: u64) -> Self {
        QueueSpec {
            producer: Producer::Core(core),
            kind: QueueKind::Notify,
            index,
            size,
            placement: Placement::Host,
            when_full: WhenFull::Stall,
            replace: false,
        }
    }

    /// Checks the size (06 §5.2): a power of two, no smaller than a page, no larger than what an
    /// aligned allocation can be.
    pub(super) fn check_size(&self) -> Result<u32, Error> {
        match u32::try_from(self.size) {
            Ok(size) if size.is_power_of_two() && (MIN_BYTES..=MAX_BYTES).contains(&self.size) => {
                Ok(size)
            }
            _ => Err(Error::InvalidArgument { what: "size of a queue", value: self.size }),
        }
    }

    /// Whether a queue made from `other` is the one that this asks for; type and owner apart.
    pub(super) fn same_ring(&self, other: &QueueSpec) -> bool {
        self.size == other.size
            && self.placement == other.placement
            && self.when_full == other.when_full
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nq_e08_nq_e09_nq_e10_nq_d10_sizes() {
        let check = |size| QueueSpec::new(0, 4, size).check_size();
        for size in [0, 1, 2, 4, 8, 16, 2048, 0x3000, 0x8000_0000, 0x1_0000_1000, u64::MAX] {
            assert_eq!(check(size).unwrap_err().errno(), Errno::EINVAL, "{size:#x}");
        }
        for size in [0x1000, 0x4000, 0x4000_0000] {
            assert_eq!(check(size), Ok(size as u32));
        }
    }

    #[test]
    fn nq_e14_nq_d14_a_third_kind_of_producer_is_no_command() {
        assert_eq!(Producer::from_numbers(0, 300), Ok(Producer::Core(300)));
        assert_eq!(Producer::from_numbers(1, 5), Ok(Producer::TopSp(5)));
        for kind in [2, 256, u32::MAX] {
            assert_eq!(Producer::from_numbers(kind, 0), Err(Errno::ENOSYS));
        }
    }

    #[test]
    fn kinds_have_numbers_and_names() {
        for (number, kind) in QueueKind::ALL.into_iter().enumerate() {
            assert_eq!(kind as usize, number);
            assert_eq!(QueueKind::from_name(kind.name()), Some(kind));
        }
        assert_eq!(QueueKind::from_name("Notify"), None);
    }
}
