//! Checks of page tables, heap and DMA memory.

use alloc::vec::Vec;
use alloc::{format, vec};

use axon_kernel::Machine;
use axon_kernel::memory::{layout, paging, stacks};
use axon_platform::{DmaBuf, Platform};

use crate::checks::{Outcome, equal, holds};

pub fn rights() -> Outcome {
    let found = paging::audit();
    equal("pages both writable and executable", found.both, 0)?;
    holds("some pages execute", found.executable > 0)?;
    holds("some pages are written", found.writable > 0)?;
    let (code, _) = paging::translate(layout::image().text).ok_or("code is not mapped")?;
    equal("code lies at its physical address", code, layout::image().text)
}

pub fn holes() -> Outcome {
    equal("page 0", paging::translate(8), None)?;
    for (name, guard) in stacks::guards() {
        equal(name, paging::translate(guard + 8), None)?;
        holds("the page above is there", paging::translate(guard + 4096).is_some())?;
    }
    Ok(())
}

pub fn heap() -> Outcome {
    for round in 0..3u8 {
        let large = vec![round; 40 << 20];
        let small: Vec<Vec<u8>> = (0..1000).map(|len| vec![round; len]).collect();
        holds("large block", large.iter().step_by(4096).all(|byte| *byte == round))?;
        holds("small blocks", small.iter().flatten().all(|byte| *byte == round))?;
    }
    Ok(())
}

pub fn refusals(machine: Machine) -> Outcome {
    holds("heap", Vec::<u8>::new().try_reserve(1 << 45).is_err())?;
    let free = machine.free_dma_bytes();
    let refused = machine.alloc_dma(free + 4096, 1).err().ok_or("more than all was granted")?;
    equal("asked", refused.asked, free + 4096)?;
    holds("the longest run fits", machine.alloc_dma(refused.largest, 1).is_ok())?;
    holds("length 0", machine.alloc_dma(0, 1).is_err())?;
    equal("nothing was lost", machine.free_dma_bytes(), free)
}

pub fn dma(machine: Machine) -> Outcome {
    let free = machine.free_dma_bytes();
    for (len, align) in [(1, 1), (4096, 4096), (12_288, 65_536), (5 << 20, 2 << 20), (64 << 10, 1)]
    {
        let buffer = take(machine, len, align)?;
        let start = buffer.bus().0;
        equal("alignment", start % align, 0)?;
        holds("below 4 GiB", start + buffer.len_bytes() <= 1 << 32)?;
        zeroed(&buffer)?;
        buffer.fill(0, buffer.len_bytes(), 0xff).map_err(|error| format!("{error}"))?;
        let part = buffer.slice(0, 1).map_err(|error| format!("{error}"))?;
        drop(buffer);
        holds("a slice keeps its buffer", machine.free_dma_bytes() < free)?;
        drop(part);
        equal("all came back", machine.free_dma_bytes(), free)?;
        // The same memory again: what was written must be gone.
        zeroed(&take(machine, len, align)?)?;
    }
    Ok(())
}

/// Whether the memory that the allocator believes to be zero is, all of it.
pub fn boot_memory_is_zero(machine: Machine) -> u8 {
    let mut kept = Vec::new();
    let mut wrong = 0;
    while let Ok(buffer) = machine.alloc_dma(1 << 20, 1) {
        if let Err(why) = zeroed(&buffer) {
            machine.console_write(format!("{why} in {:#x}\n", buffer.bus()).as_bytes());
            wrong += 1;
        }
        kept.push(buffer);
    }
    machine.console_write(format!("{} MiB, {wrong} not zero\n", kept.len()).as_bytes());
    u8::from(wrong > 0)
}

fn take(machine: Machine, len: u64, align: u64) -> Result<DmaBuf, alloc::string::String> {
    machine.alloc_dma(len, align).map_err(|error| format!("{error}"))
}

fn zeroed(buffer: &DmaBuf) -> Outcome {
    let mut page = [0; 4096];
    for offset in (0..buffer.len_bytes()).step_by(page.len()) {
        buffer.read(offset, &mut page).map_err(|error| format!("{error}"))?;
        if page != [0; 4096] {
            return Err(format!("memory at offset {offset:#x} is not zero"));
        }
    }
    Ok(())
}
