//! Numbers and names of the counters (specification 07 §2.3, §2.4, §3.1).

use core::fmt;

/// Core counters that mean something; the rest of the 95 in a slab is reserved.
pub const CORE_COUNTERS: usize = 41;

/// A counter that a client keeps for one core: 0 to 94.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct CoreCounter(u8);

/// A counter that a client keeps for the whole device: 0 to 30.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct DeviceCounter(u8);

macro_rules! counters {
    ($type:ident $limit:literal: $($name:ident = $number:literal,)*) => {
        impl $type {
            /// How many a slab holds: numbers are below this.
            pub const COUNT: u32 = $limit;

            $(#[doc = concat!("Counter ", $number, ".")]
            pub const $name: $type = $type($number);)*

            /// The counter with this number; `None` where a slab has no such.
            pub const fn new(number: u32) -> Option<Self> {
                if number < Self::COUNT { Some($type(number as u8)) } else { None }
            }

            /// The number.
            pub const fn number(self) -> u32 {
                self.0 as u32
            }

            /// Name of specification 07; `None` for a reserved number.
            pub const fn name(self) -> Option<&'static str> {
                match self.0 {
                    $($number => Some(stringify!($name)),)*
                    _ => None,
                }
            }

            /// The counter with this name, in any case.
            pub fn from_name(name: &str) -> Option<Self> {
                let is_it = |one: &Self| one.name().is_some_and(|n| n.eq_ignore_ascii_case(name));
                [$($type::$name),*].into_iter().find(is_it)
            }
        }

        impl fmt::Display for $type {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                match self.name() {
                    Some(name) => f.write_str(name),
                    None => write!(f, "RESERVED_{}", self.0),
                }
            }
        }
    };
}

counters! { CoreCounter 95:
    TIME_IN_USE = 0,
    INFER_COMPLETED = 1,
    INFER_COMPLETED_WITH_ERR = 2,
    INFER_COMPLETED_WITH_NUM_ERR = 3,
    INFER_TIMED_OUT = 4,
    INFER_INCORRECT_INPUT = 5,
    INFER_FAILED_TO_QUEUE = 6,
    ERR_GENERIC = 7,
    ERR_NUMERICAL = 8,
    ERR_MODEL = 9,
    ERR_TRANSIENT = 10,
    ERR_HW = 11,
    ERR_RT = 12,
    LATENCY_DEVICE = 13,
    LATENCY_TOTAL = 14,
    NC_TIME = 15,
    GENERIC_FAIL = 16,
    ERR_RESOURCE = 17,
    ERR_RESOURCE_NC = 18,
    ERR_INVALID = 19,
    ERR_UNSUPPORTED_NEFF_VERSION = 20,
    CC_TIME = 21,
    MEM_USAGE_CODE_DEVICE = 22,
    MEM_USAGE_TENSORS_DEVICE = 23,
    MEM_USAGE_CONSTANTS_DEVICE = 24,
    MEM_USAGE_SCRATCHPAD_DEVICE = 25,
    MEM_USAGE_MISC_DEVICE = 26,
    MODEL_LOAD_COUNT = 27,
    INFERENCE_COUNT = 28,
    MAC_COUNT = 29,
    OOB = 30,
    HW_ERR_COLLECTIVES = 31,
    HW_ERR_HBM_UE = 32,
    HW_ERR_NC_UE = 33,
    HW_ERR_DMA_ABORT = 34,
    ERR_SW_NQ_OVERFLOW = 35,
    ERR_SW_SEMAPHORE_ERROR = 36,
    ERR_SW_EVENT_ERROR = 37,
    ERR_SW_PSUM_COLLISION = 38,
    ERR_SW_SEQUENCER_FATAL = 39,
    HW_ERR_REPAIRABLE_HBM_UE = 40,
}

counters! { DeviceCounter 31:
    RUNTIME_VERSION = 0,
    FRAMEWORK_VERSION = 1,
    FAL_VERSION = 2,
    FEATURE_BITMAP = 3,
    MIN_NEFF_VERSION = 4,
    MAX_NEFF_VERSION = 5,
    MEM_USAGE_CODE_HOST = 6,
    MEM_USAGE_TENSORS_HOST = 7,
    MEM_USAGE_CONSTANTS_HOST = 8,
    MEM_USAGE_SCRATCHPAD_HOST = 9,
    MEM_USAGE_MISC_HOST = 10,
    DYNAMIC_SYSFS_METRIC_BITMAP = 11,
    DEVICE_CLUSTER_ID = 12,
    AGG_NEFF_ID = 13,
}

/// The 24 leaves of `stats/status` with the counter behind each, in the order of the tree.
pub(crate) const STATUS_LEAVES: [(&str, CoreCounter); 24] = [
    ("success", CoreCounter::INFER_COMPLETED),
    ("failure", CoreCounter::GENERIC_FAIL),
    ("timeout", CoreCounter::INFER_TIMED_OUT),
    ("exec_bad_input", CoreCounter::INFER_INCORRECT_INPUT),
    ("hw_error", CoreCounter::ERR_HW),
    ("execute_completed_with_error", CoreCounter::INFER_COMPLETED_WITH_ERR),
    ("execute_completed_with_num_error", CoreCounter::INFER_COMPLETED_WITH_NUM_ERR),
    ("generic_error", CoreCounter::ERR_GENERIC),
    ("resource_error", CoreCounter::ERR_RESOURCE),
    ("resource_nc_error", CoreCounter::ERR_RESOURCE_NC),
    ("execute_failed_to_queue", CoreCounter::INFER_FAILED_TO_QUEUE),
    ("invalid_error", CoreCounter::ERR_INVALID),
    ("unsupported_neff_version", CoreCounter::ERR_UNSUPPORTED_NEFF_VERSION),
    ("oob_error", CoreCounter::OOB),
    ("hw_collectives_error", CoreCounter::HW_ERR_COLLECTIVES),
    ("hw_hbm_ue_error", CoreCounter::HW_ERR_HBM_UE),
    ("hw_nc_ue_error", CoreCounter::HW_ERR_NC_UE),
    ("hw_dma_abort_error", CoreCounter::HW_ERR_DMA_ABORT),
    ("execute_sw_nq_overflow", CoreCounter::ERR_SW_NQ_OVERFLOW),
    ("execute_sw_semaphore_error", CoreCounter::ERR_SW_SEMAPHORE_ERROR),
    ("execute_sw_event_error", CoreCounter::ERR_SW_EVENT_ERROR),
    ("execute_sw_psum_collision", CoreCounter::ERR_SW_PSUM_COLLISION),
    ("execute_sw_sequencer_fatal", CoreCounter::ERR_SW_SEQUENCER_FATAL),
    ("hw_repairable_hbm_ue_error", CoreCounter::HW_ERR_REPAIRABLE_HBM_UE),
];

/// A memory gauge by its driver counter id: 0 and 1 for everything on the host or device side of a
/// core, 2 to 9 host categories of the device, 10 to 20 device categories of a core.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct MemoryCounter(u8);

impl MemoryCounter {
    /// All host memory of a core.
    pub const HOST: MemoryCounter = MemoryCounter(0);
    /// All device memory of a core.
    pub const DEVICE: MemoryCounter = MemoryCounter(1);

    /// The gauge with this driver counter id; `None` above 20.
    pub const fn new(id: u8) -> Option<Self> {
        if id as usize >= MEMORY_LEAVES.len() { None } else { Some(MemoryCounter(id)) }
    }

    /// Host categories, kept per device, in the order of the tree.
    pub fn host_categories() -> impl Iterator<Item = MemoryCounter> {
        [3, 4, 5, 6, 7, 8, 9, 2].into_iter().map(MemoryCounter)
    }

    /// Device categories, kept per core, in the order of the tree.
    pub fn device_categories() -> impl Iterator<Item = MemoryCounter> {
        (11..=20).chain([10]).map(MemoryCounter)
    }

    /// The driver counter id.
    pub const fn id(self) -> u8 {
        self.0
    }

    /// Leaf of the metric tree, and value of the label `category`.
    pub fn leaf(self) -> &'static str {
        MEMORY_LEAVES.get(usize::from(self.0)).copied().unwrap_or("uncategorized")
    }
}

const MEMORY_LEAVES: [&str; 21] = [
    "host_mem",
    "device_mem",
    "uncategorized",
    "dma_buffers",
    "tensors",
    "constants",
    "application_memory",
    "driver_memory",
    "notifications",
    "dma_rings",
    "uncategorized",
    "model_code",
    "tensors",
    "constants",
    "model_shared_scratchpad",
    "runtime_memory",
    "driver_memory",
    "collectives",
    "nonshared_scratchpad",
    "notifications",
    "dma_rings",
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counters_have_the_numbers_of_the_specification() {
        assert_eq!(CoreCounter::new(94).map(CoreCounter::number), Some(94));
        assert_eq!(CoreCounter::new(95), None);
        assert_eq!(DeviceCounter::new(31), None);
        assert_eq!(CoreCounter::from_name("oob"), CoreCounter::new(30));
        assert_eq!(DeviceCounter::from_name("AGG_NEFF_ID"), DeviceCounter::new(13));
        assert_eq!(CoreCounter::new(41).and_then(CoreCounter::name), None);
        // The order of these is relied on by clients.
        let errors = ["ERR_GENERIC", "ERR_NUMERICAL", "ERR_MODEL", "ERR_TRANSIENT", "ERR_HW"];
        for (number, name) in (7..).zip(errors) {
            assert_eq!(CoreCounter::from_name(name), CoreCounter::new(number));
        }
    }

    #[test]
    fn the_tree_has_24_status_leaves_each_with_a_counter_of_its_own() {
        for (at, (leaf, counter)) in STATUS_LEAVES.iter().enumerate() {
            for (other, of_other) in &STATUS_LEAVES[..at] {
                assert!(leaf != other && counter != of_other, "{leaf} {other}");
            }
        }
    }

    #[test]
    fn memory_gauges_are_21() {
        assert_eq!(MemoryCounter::new(21), None);
        assert_eq!(MemoryCounter::host_categories().count(), 8);
        assert_eq!(MemoryCounter::device_categories().count(), 11);
        assert_eq!(
            MemoryCounter::new(14).map(MemoryCounter::leaf),
            Some("model_shared_scratchpad")
        );
    }
}
