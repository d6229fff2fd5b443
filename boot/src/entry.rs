//! First instructions of the image: from 32-bit protected mode, as PVH loaders enter it, to Rust.
//!
//! The loader leaves flat segments, paging off, interrupts off, and the address of its start
//! information in `ebx`. Page tables for the first GiB are part of the image, so that nothing has
//! to be built before Rust runs; the kernel replaces them by ones with rights.

use core::arch::global_asm;

use axon_kernel::memory::stacks;

global_asm!(
    // The note that makes a PVH loader enter at `axon_entry` (XEN_ELFNOTE_PHYS32_ENTRY = 18).
    ".pushsection .note.Xen, \"a\", @note",
    ".balign 4",
    ".long 4, 8, 18",
    ".asciz \"Xen\"",
    ".quad axon_entry",
    ".popsection",
    // Identity map of the first GiB in 2 MiB pages: present, writable, large.
    ".pushsection .data.boot_tables, \"aw\", @progbits",
    ".balign 4096",
    "axon_boot_level4:",
    ".quad axon_boot_level3 + 3",
    ".zero 4096 - 8",
    "axon_boot_level3:",
    ".quad axon_boot_level2 + 3",
    ".zero 4096 - 8",
    "axon_boot_level2:",
    ".set axon_boot_page, 0",
    ".rept 512",
    ".quad axon_boot_page * 0x200000 + 0x83",
    ".set axon_boot_page, axon_boot_page + 1",
    ".endr",
    "axon_boot_segments:",
    ".quad 0, 0x00af9b000000ffff, 0x00cf93000000ffff",
    "axon_boot_segments_end:",
    ".short 0",
    "axon_boot_segments_pointer:",
    ".short axon_boot_segments_end - axon_boot_segments - 1",
    ".long axon_boot_segments",
    ".popsection",
    ".pushsection .text.entry, \"ax\", @progbits",
    ".code32",
    ".global axon_entry",
    "axon_entry:",
    "cli",
    "cld",
    // The time-stamp counter at entry, kept in edi:esi until Rust takes it.
    "rdtsc",
    "mov edi, eax",
    "mov esi, edx",
    "mov eax, offset axon_boot_level4",
    "mov cr3, eax",
    // CR4: PAE, OSFXSR and OSXMMEXCPT, because compiled code uses SSE from its first function on.
    "mov eax, cr4",
    "or eax, 0x620",
    "mov cr4, eax",
    // EFER: long mode and no-execute.
    "mov ecx, 0xc0000080",
    "rdmsr",
    "or eax, 0x900",
    "wrmsr",
    // CR0: paging, write protection, native FPU errors, coprocessor present and not emulated.
    "mov eax, cr0",
    "and eax, 0xfffffff3",
    "or eax, 0x80010022",
    "mov cr0, eax",
    "lgdt [axon_boot_segments_pointer]",
    "mov esp, offset {stack} + {stack_top}",
    "mov eax, 8",
    "push eax",
    "mov eax, offset axon_entry_long",
    "push eax",
    "retf",
    ".code64",
    "axon_entry_long:",
    "mov eax, 16",
    "mov ds, eax",
    "mov es, eax",
    "mov ss, eax",
    "xor eax, eax",
    "mov fs, eax",
    "mov gs, eax",
    "mov esp, esp",
    "xor ebp, ebp",
    "shl rsi, 32",
    "or rsi, rdi",
    "mov edi, ebx",
    "call axon_start",
    "ud2",
    ".popsection",
    stack = sym stacks::MAIN,
    stack_top = const stacks::MAIN_TOP,
);
