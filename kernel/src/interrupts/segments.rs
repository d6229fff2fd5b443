//! Segment table and task state: what the processor still wants of them in 64-bit mode is the list
//! of stacks for the vectors.

use static_cell::StaticCell;
use x86_64::VirtAddr;
use x86_64::instructions::segmentation::{CS, DS, ES, SS, Segment};
use x86_64::instructions::tables::load_tss;
use x86_64::structures::gdt::{Descriptor, GlobalDescriptorTable};
use x86_64::structures::tss::TaskStateSegment;

use crate::memory::stacks;

/// Stack of a vector: index into the interrupt stack table, from 1 on.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub enum VectorStack {
    /// Double fault: whatever stack was in use may be the reason.
    DoubleFault = 1,
    /// Non-maskable interrupt.
    NonMaskable = 2,
    /// Machine check.
    MachineCheck = 3,
    /// Debug exception.
    Debug = 4,
    /// Every other exception.
    Exception = 5,
    /// Interrupts.
    Interrupt = 6,
}

/// Selector of the code segment.
pub const CODE: u16 = 8;

/// Loads the tables.
///
/// # Safety
/// Called once, early, interrupts off.
pub unsafe fn init() {
    static STATE: StaticCell<TaskStateSegment> = StaticCell::new();
    static TABLE: StaticCell<GlobalDescriptorTable> = StaticCell::new();
    let state = STATE.init(TaskStateSegment::new());
    for (stack, top) in [
        (VectorStack::DoubleFault, stacks::DOUBLE_FAULT.top()),
        (VectorStack::NonMaskable, stacks::NON_MASKABLE.top()),
        (VectorStack::MachineCheck, stacks::MACHINE_CHECK.top()),
        (VectorStack::Debug, stacks::DEBUG.top()),
        (VectorStack::Exception, stacks::EXCEPTION.top()),
        (VectorStack::Interrupt, stacks::INTERRUPT.top()),
    ] {
        state.interrupt_stack_table[stack as usize - 1] = VirtAddr::new_truncate(top);
    }
    let table = TABLE.init(GlobalDescriptorTable::new());
    let code = table.append(Descriptor::kernel_code_segment());
    let data = table.append(Descriptor::kernel_data_segment());
    let task = table.append(Descriptor::tss_segment(state));
    debug_assert_eq!(code.0, CODE);
    table.load();
    // SAFETY: the selectors are those of the table just loaded, which lives for ever.
    unsafe {
        CS::set_reg(code);
        SS::set_reg(data);
        DS::set_reg(data);
        ES::set_reg(data);
        load_tss(task);
    }
}
