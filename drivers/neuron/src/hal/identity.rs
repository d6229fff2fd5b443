//! Which accelerator a function is: PCI ids, generation, environment, platform type
//! (specification 01 §1).

use core::fmt;

/// Vendor id of every supported function.
pub const VENDOR: u16 = 0x1d0f;

/// Product, by PCI device id. Two ids name a Trainium3.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Product {
    /// Trainium1, device id 0x7164.
    Trn1,
    /// Inferentia2, device id 0x7264.
    Inf2,
    /// Trainium2, device id 0x7364.
    Trn2,
    /// Trainium3, device ids 0x7564 and 0x7565.
    Trn3,
}

impl Product {
    /// The product with this PCI device id; `None` for an id that is not claimed.
    pub const fn from_device_id(device_id: u16) -> Option<Product> {
        match device_id {
            0x7164 => Some(Product::Trn1),
            0x7264 => Some(Product::Inf2),
            0x7364 => Some(Product::Trn2),
            0x7564 | 0x7565 => Some(Product::Trn3),
            _ => None,
        }
    }

    /// Generation of the product.
    pub const fn generation(self) -> Generation {
        match self {
            Product::Trn1 | Product::Inf2 => Generation::V2,
            Product::Trn2 => Generation::V3,
            Product::Trn3 => Generation::V4,
        }
    }

    /// Names shown to monitoring (specification 01 §1.4); not derived from the generation.
    pub const fn names(self) -> &'static Names {
        match self {
            Product::Trn1 => &NAMES[0],
            Product::Inf2 => &NAMES[1],
            Product::Trn2 => &NAMES[2],
            Product::Trn3 => &NAMES[3],
        }
    }
}

/// Presentation strings of a product.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Names {
    /// Behind `ND`.
    pub device_type: &'static str,
    /// Behind `NC`.
    pub core_type: &'static str,
    /// Instance family.
    pub instance: &'static str,
    /// Full name.
    pub device: &'static str,
}

const NAMES: [Names; 4] = [
    Names { device_type: "v2", core_type: "v2", instance: "Trn1", device: "Trainium1" },
    // Inferentia2 really has device suffix v3.
    Names { device_type: "v3", core_type: "v2", instance: "Inf2", device: "Inferentia2" },
    Names { device_type: "v3", core_type: "v3", instance: "Trn2", device: "Trainium2" },
    Names { device_type: "v4", core_type: "v4", instance: "Trn3", device: "Trainium3" },
];

/// Hardware generation. The numbers are visible to applications and never renumbered.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
#[repr(u8)]
pub enum Generation {
    /// Trainium1, Inferentia2.
    V2 = 2,
    /// Trainium2.
    V3 = 3,
    /// Trainium3.
    V4 = 4,
}

impl fmt::Display for Generation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "V{}", *self as u8)
    }
}

/// What the function really is, told by the PCI revision (specification 01 §1.2).
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Environment {
    /// Silicon, or a model that presents itself as such.
    Silicon,
    /// Functional simulator, revision 0xff.
    Qemu,
    /// Hardware emulator, revision 0xf0.
    Emulator,
}

impl Environment {
    /// The environment that a PCI revision byte stands for.
    pub const fn from_revision(revision: u8) -> Environment {
        match revision {
            0xff => Environment::Qemu,
            0xf0 => Environment::Emulator,
            _ => Environment::Silicon,
        }
    }
}

/// Server family, told by the SMBIOS product name (specification 01 §1.3).
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[repr(u8)]
pub enum PlatformType {
    /// One node.
    Standard = 0,
    /// Nodes joined into a pod.
    UltraServer = 1,
    /// Switched pod.
    Pds = 2,
}

impl PlatformType {
    /// The type that `product_name` stands for on this generation. No name is a standard platform.
    pub fn from_name(generation: Generation, product_name: Option<&str>) -> PlatformType {
        let Some(name) = product_name else { return PlatformType::Standard };
        let (ultra, pds): (&[&str], &[&str]) = match generation {
            Generation::V2 => (&[], &[]),
            Generation::V3 => (
                &["trn2p.48xlarge", "trn2eu.48xlarge", "trn2u.48xlarge", "trn2u-ac.24xlarge"],
                &["trn2es.48xlarge"],
            ),
            // The short prefix is the superset that the stock driver accepts by mistake.
            Generation::V4 => (&["trn3p.48xlarge"], &["trn3s.48xlarge", "trn3-dev0.48xl"]),
        };
        if ultra.iter().any(|prefix| name.starts_with(prefix)) {
            PlatformType::UltraServer
        } else if pds.iter().any(|prefix| name.starts_with(prefix)) {
            PlatformType::Pds
        } else {
            PlatformType::Standard
        }
    }
}

/// Whether `product_name` is the one-device instance whose routing id is 0 without asking
/// (specification 01 §10 step 1).
pub fn is_single_device_instance(generation: Generation, product_name: Option<&str>) -> bool {
    generation == Generation::V4
        && product_name.is_some_and(|name| name.starts_with("trn3pd98.3xlarge"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dev_e06_platform_type_by_prefix() {
        use Generation::{V2, V3, V4};
        use PlatformType::{Pds, Standard, UltraServer};
        let cases = [
            (V3, Some("trn2u.48xlarge"), UltraServer),
            (V3, Some("trn2u.48xlarge-extra"), UltraServer),
            (V3, Some("Trn2u.48xlarge"), Standard),
            (V3, Some("trn2.48xlarge"), Standard),
            (V3, Some("trn2es.48xlarge"), Pds),
            (V4, Some("trn3p.48xlarge"), UltraServer),
            (V4, Some("trn3-dev0.48xlarge"), Pds),
            (V4, Some("trn3-dev0.48xl"), Pds),
            (V4, Some("trn2u.48xlarge"), Standard),
            (V2, Some("trn2u.48xlarge"), Standard),
            (V4, None, Standard),
            (V3, Some(""), Standard),
        ];
        for (generation, name, expected) in cases {
            assert_eq!(PlatformType::from_name(generation, name), expected, "{name:?}");
        }
    }

    #[test]
    fn only_the_claimed_ids_name_a_product() {
        assert_eq!(Product::from_device_id(0x7565), Some(Product::Trn3));
        assert_eq!(Product::from_device_id(0x7064), None);
        assert_eq!(Product::Inf2.names().device_type, "v3");
        assert_eq!(Product::Inf2.generation(), Generation::V2);
    }
}
