//! Names of registers, for people.

use crate::function::Function;
use crate::map::{Block, Owner};
use crate::udma::registers::{Place, place};

impl Function {
    /// What is at an offset of a BAR, by PCI index: block, number and offset in it.
    pub fn register_name(&self, bar: u8, offset: u64) -> String {
        if bar == 4 {
            return format!("BAR4 +{offset:#x}");
        }
        let Some(span) = self.map.span(offset) else { return format!("no block +{offset:#x}") };
        let inside = offset - span.start;
        match span.block {
            Block::Udma { engine } => format!("UDMA {engine} {}", unit_register(inside)),
            Block::MiscRam => format!("MiscRAM +{inside:#x}{}", misc_name(inside)),
            Block::Sync { bank } => format!("events and semaphores {bank} +{inside:#x}"),
            Block::Storage { owner } => format!("{} block +{inside:#x}", owner_name(owner)),
            Block::Notific { owner } => format!("{} NOTIFIC +{inside:#x}", owner_name(owner)),
            Block::PeCounters { core } => format!("core {core} PE counters +{inside:#x}"),
            Block::QemuDoorbell => format!("reset doorbell +{inside:#x}"),
            Block::Memory { .. } => format!("on-chip memory {offset:#x}"),
        }
    }
}

fn unit_register(inside: u64) -> String {
    let half = |s2m: bool| if s2m { "S2M" } else { "M2S" };
    match place(inside) {
        Place::Queue { s2m, queue, register } => {
            format!("{} queue {queue} +{register:#x}", half(s2m))
        }
        Place::Global { s2m, register } => format!("{} +{register:#x}", half(s2m)),
        Place::Iofic(_) => format!("IOFIC +{inside:#x}"),
        Place::Other => format!("+{inside:#x}"),
    }
}

fn owner_name(owner: Owner) -> String {
    match owner {
        Owner::Engine(engine) => format!("engine {engine}"),
        Owner::Core(core) => format!("core {core}"),
        Owner::TopSp(physical) => format!("TopSP {physical} (physical)"),
    }
}

fn misc_name(inside: u64) -> &'static str {
    use crate::miscram::{DEVICE_ID, FW_STATUS, RESET, TRIGGER};
    match inside {
        DEVICE_ID => " DEVICE_ID",
        RESET => " RESET",
        TRIGGER => " TRIGGER",
        FW_STATUS => " FW_STATUS",
        _ => "",
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use crate::{Function, FunctionConfig, HostMemory, ModelClock, Product, Unmapped};

    struct Nothing;

    impl HostMemory for Nothing {
        fn read(&self, address: u64, into: &mut [u8]) -> Result<(), Unmapped> {
            Err(Unmapped { address, len_bytes: into.len() as u64 })
        }

        fn write(&self, address: u64, from: &[u8]) -> Result<(), Unmapped> {
            Err(Unmapped { address, len_bytes: from.len() as u64 })
        }

        fn store32(&self, address: u64, _: u32) -> Result<(), Unmapped> {
            Err(Unmapped { address, len_bytes: 4 })
        }
    }

    impl ModelClock for Nothing {
        fn now_ns(&self) -> u64 {
            0
        }
    }

    #[test]
    fn registers_are_named_by_block_and_place() {
        let config = FunctionConfig::new(Product::Trn2, 0);
        let function = Function::new(config, Arc::new(Nothing), Arc::new(Nothing)).unwrap();
        for (offset, name) in [
            (0x06c8_41ec, "MiscRAM +0x1ec RESET"),
            (0x0682_1024, "UDMA 128 S2M queue 0 +0x24"),
            (0x8200_0200, "UDMA 0 M2S +0x200"),
            (0x8204_1108, "engine 0 NOTIFIC +0x108"),
            (0xd270_1000, "events and semaphores 0 +0x1000"),
            (0x0700_0000, "no block +0x7000000"),
        ] {
            assert_eq!(function.register_name(0, offset), name);
        }
    }
}
