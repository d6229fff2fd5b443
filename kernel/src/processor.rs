//! What the processor can do, and a few instructions by name.

use core::arch::asm;
use core::arch::x86_64::{__cpuid, __cpuid_count, _rdtsc, CpuidResult};

/// Whether a hypervisor runs this machine.
pub fn is_virtual() -> bool {
    __cpuid(1).ecx & (1 << 31) != 0
}

/// Signature of the hypervisor (`KVMKVMKVM`, `TCGTCGTCGTCG`); zeroes without one.
pub fn hypervisor() -> [u8; 12] {
    if !is_virtual() {
        return [0; 12];
    }
    let leaf = __cpuid(0x4000_0000);
    let mut name = [0; 12];
    for (part, register) in name.chunks_mut(4).zip([leaf.ebx, leaf.ecx, leaf.edx]) {
        part.copy_from_slice(&register.to_le_bytes());
    }
    name
}

/// A leaf of CPUID, where the processor has it.
pub fn leaf(number: u32) -> Option<CpuidResult> {
    let range = number & 0xf000_0000;
    if range == 0x4000_0000 && !is_virtual() {
        return None;
    }
    (__cpuid(range).eax >= number).then(|| __cpuid_count(number, 0))
}

/// Pages of 1 GiB.
pub fn has_gigabyte_pages() -> bool {
    leaf(0x8000_0001).is_some_and(|leaf| leaf.edx & (1 << 26) != 0)
}

/// The local APIC as model-specific registers.
pub fn has_x2apic() -> bool {
    __cpuid(1).ecx & (1 << 21) != 0
}

/// The local APIC timer takes a time-stamp as its deadline.
pub fn has_tsc_deadline() -> bool {
    __cpuid(1).ecx & (1 << 24) != 0
}

/// `RDRAND`.
pub fn has_random() -> bool {
    __cpuid(1).ecx & (1 << 30) != 0
}

/// Physical address bits.
pub fn address_bits() -> u32 {
    leaf(0x8000_0008).map_or(36, |leaf| leaf.eax & 0xff).clamp(32, 52)
}

/// The time-stamp counter.
#[inline(always)]
pub fn time_stamp() -> u64 {
    // SAFETY: reads a counter; available on every 64-bit processor.
    unsafe { _rdtsc() }
}

/// Orders earlier stores, write-combining ones too, before later ones.
#[inline(always)]
pub fn store_fence() {
    // SAFETY: an ordering instruction; being opaque, it also keeps the compiler's stores in order.
    unsafe { asm!("sfence", options(nostack, preserves_flags)) };
}

/// A random number of the hardware's, where it has such a thing and one ready.
pub fn random() -> Option<u64> {
    if !has_random() {
        return None;
    }
    (0..10).find_map(|_| {
        let (value, valid): (u64, u8);
        // SAFETY: the processor has the instruction; it touches registers only.
        unsafe {
            asm!("rdrand {}", "setc {}", out(reg) value, out(reg_byte) valid, options(nomem, nostack))
        };
        (valid != 0).then_some(value)
    })
}
