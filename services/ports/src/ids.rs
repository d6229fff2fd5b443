//! Numbers that name things. A wrong one is an error where it is made, not where it is used
//! (specification 08 §8.10.1 rule 6).

use core::fmt;
use core::num::NonZeroU32;

macro_rules! id {
    ($(#[$doc:meta])* $name:ident($inner:ty) < $limit:expr, $prefix:literal) => {
        $(#[$doc])*
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
        pub struct $name($inner);

        impl $name {
            /// How many there are: valid numbers are below this.
            pub const COUNT: usize = $limit;

            /// The id with this number; `None` where it is not below [`Self::COUNT`].
            pub const fn new(number: u32) -> Option<Self> {
                if (number as usize) < Self::COUNT { Some($name(number as $inner)) } else { None }
            }

            /// The number as an array index.
            #[inline]
            pub const fn index(self) -> usize {
                self.0 as usize
            }

            /// The number.
            #[inline]
            pub const fn number(self) -> u32 {
                self.0 as u32
            }

            /// All ids in ascending order.
            pub fn all() -> impl DoubleEndedIterator<Item = Self> + Clone {
                (0..Self::COUNT as u32).map(|n| $name(n as $inner))
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, concat!($prefix, "{}"), self.0)
            }
        }
    };
}

id!(
    /// Public number of a device on its host (specification 01 §10).
    DeviceIndex(u8) < 64, "nd"
);
id!(
    /// Firmware's number of a device (specification 01 §10); up to 127 on PDS platforms.
    RoutingId(u8) < 128, "rid"
);
id!(
    /// Core of a device. Whether the device has it is the HAL's knowledge.
    CoreId(u8) < 8, "nc"
);
id!(
    /// Core of the host, over all devices (specification 05 §14.1).
    GlobalCore(u16) < 512, "gnc"
);
id!(
    /// UDMA engine of a device (specification 02 §2). Whether it exists is the HAL's knowledge.
    EngineId(u8) < 132, "engine"
);
id!(
    /// Queue pair of an engine.
    QueueId(u8) < 16, "queue"
);
id!(
    /// HBM channel of a device. Whether the device has it is the HAL's knowledge.
    HbmIndex(u8) < 4, "hbm"
);
id!(
    /// One of the 16 attach slots of a device (specification 05 §7.2).
    ClientSlot(u8) < 16, "slot"
);

impl CoreId {
    /// Every core that a device can have, in ascending order.
    pub const ALL: [CoreId; Self::COUNT] = {
        let mut all = [CoreId(0); Self::COUNT];
        let mut at = 0;
        while at < Self::COUNT {
            all[at] = CoreId(at as u8);
            at += 1;
        }
        all
    };

    /// The core named by the low three bits of a packed word.
    pub(crate) const fn from_low_bits(word: u64) -> CoreId {
        CoreId((word & 7) as u8)
    }
}

impl GlobalCore {
    /// Core `core` of a device with `cores` cores; `None` behind the last slot.
    pub const fn of(device: DeviceIndex, cores: u32, core: CoreId) -> Option<Self> {
        GlobalCore::new((device.0 as u32).saturating_mul(cores).saturating_add(core.0 as u32))
    }
}

/// One application; never reused during a boot (specification 05 §1).
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct ClientId(NonZeroU32);

impl ClientId {
    /// The client with this number; `None` for 0 and all-ones, which name nobody.
    pub const fn new(number: u32) -> Option<Self> {
        if number == u32::MAX {
            return None;
        }
        match NonZeroU32::new(number) {
            Some(n) => Some(ClientId(n)),
            None => None,
        }
    }

    /// The number.
    pub const fn number(self) -> u32 {
        self.0.get()
    }
}

impl fmt::Display for ClientId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "client{}", self.0)
    }
}

/// Names one compiled model, as its runtime does: 32 opaque bytes.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct ModelUuid(pub [u8; 32]);

impl fmt::Display for ModelUuid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl fmt::Debug for ModelUuid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "model({self})")
    }
}

/// Set of device-local cores, or the whole device (specification 05 §1, `nc_map`).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct CoreMap(pub u32);

impl CoreMap {
    /// The whole device: not the same as all of its cores (specification 05 §11.3).
    pub const DEVICE: CoreMap = CoreMap(u32::MAX);

    /// Whether this is [`CoreMap::DEVICE`].
    pub const fn is_device(self) -> bool {
        self.0 == u32::MAX
    }

    /// Whether `core` is in the set.
    pub const fn contains(self, core: CoreId) -> bool {
        self.0 & (1 << core.0) != 0
    }

    /// The set and `core`.
    pub const fn with(self, core: CoreId) -> Self {
        CoreMap(self.0 | 1 << core.0)
    }
}
