//! `memcpy` and its kin, which compiled code calls and the host target's `core` does not bring.
//!
//! Loops of 16-byte SSE moves, 64 bytes a turn: also under instruction counting, where a
//! `rep`-prefixed string instruction counts every byte, and without its start-up cost for the short
//! copies that dominate. Written as naked functions so that no compiler recognises the loop and
//! calls the function from within itself.
//!
//! Under test they carry other names and are called directly.

use core::arch::naked_asm;

/// Copies `len` bytes from `from` to `to`; answers `to`.
///
/// # Safety
/// As C's `memcpy`: both ranges valid, not overlapping.
#[unsafe(naked)]
#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "sysv64" fn memcpy(to: *mut u8, from: *const u8, len: usize) -> *mut u8 {
    naked_asm!(
        "mov rax, rdi",
        "cmp rdx, 16",
        "jb 5f",
        "cmp rdx, 32",
        "jbe 4f",
        // The last 16 bytes overlap what the loop wrote, so no tail loop is needed.
        "movups xmm4, [rsi + rdx - 16]",
        "lea r8, [rdi + rdx - 16]",
        "sub rdx, 64",
        "jb 3f",
        "2:",
        "movups xmm0, [rsi]",
        "movups xmm1, [rsi + 16]",
        "movups xmm2, [rsi + 32]",
        "movups xmm3, [rsi + 48]",
        "movups [rdi], xmm0",
        "movups [rdi + 16], xmm1",
        "movups [rdi + 32], xmm2",
        "movups [rdi + 48], xmm3",
        "add rsi, 64",
        "add rdi, 64",
        "sub rdx, 64",
        "jae 2b",
        "3:",
        // 0 to 63 bytes are left; rdx is 64 below that.
        "add rdx, 64",
        "cmp rdx, 16",
        "jbe 6f",
        "movups xmm0, [rsi]",
        "movups [rdi], xmm0",
        "cmp rdx, 32",
        "jbe 6f",
        "movups xmm1, [rsi + 16]",
        "movups [rdi + 16], xmm1",
        "cmp rdx, 48",
        "jbe 6f",
        "movups xmm2, [rsi + 32]",
        "movups [rdi + 32], xmm2",
        "6:",
        "movups [r8], xmm4",
        "ret",
        // 16 to 32 bytes: both ends.
        "4:",
        "movups xmm0, [rsi]",
        "movups xmm1, [rsi + rdx - 16]",
        "movups [rdi], xmm0",
        "movups [rdi + rdx - 16], xmm1",
        "ret",
        // 0 to 15 bytes: both ends of 8, 4, 2, or one.
        "5:",
        "cmp edx, 8",
        "jb 7f",
        "mov rcx, [rsi]",
        "mov r8, [rsi + rdx - 8]",
        "mov [rdi], rcx",
        "mov [rdi + rdx - 8], r8",
        "ret",
        "7:",
        "cmp edx, 4",
        "jb 8f",
        "mov ecx, [rsi]",
        "mov r8d, [rsi + rdx - 4]",
        "mov [rdi], ecx",
        "mov [rdi + rdx - 4], r8d",
        "ret",
        // One to three bytes: first, middle, last.
        "8:",
        "test edx, edx",
        "jz 9f",
        "mov r10, rdx",
        "shr r10, 1",
        "movzx ecx, byte ptr [rsi]",
        "movzx r9d, byte ptr [rsi + r10]",
        "movzx r8d, byte ptr [rsi + rdx - 1]",
        "mov [rdi], cl",
        "mov [rdi + r10], r9b",
        "mov [rdi + rdx - 1], r8b",
        "9:",
        "ret",
    )
}

/// Copies `len` bytes from `from` to `to`, which may overlap; answers `to`.
///
/// # Safety
/// As C's `memmove`: both ranges valid.
#[unsafe(naked)]
#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "sysv64" fn memmove(to: *mut u8, from: *const u8, len: usize) -> *mut u8 {
    naked_asm!(
        // Forward is right unless `to` lies inside the source; short copies load all first.
        "mov rax, rdi",
        "sub rax, rsi",
        "cmp rax, rdx",
        "jae {forward}",
        "cmp rdx, 32",
        "jbe {forward}",
        // Backward, ends first: the first 16 bytes are kept until the end.
        "mov rax, rdi",
        "movups xmm4, [rsi]",
        "sub rdx, 64",
        "jb 3f",
        "2:",
        "movups xmm0, [rsi + rdx]",
        "movups xmm1, [rsi + rdx + 16]",
        "movups xmm2, [rsi + rdx + 32]",
        "movups xmm3, [rsi + rdx + 48]",
        "movups [rdi + rdx], xmm0",
        "movups [rdi + rdx + 16], xmm1",
        "movups [rdi + rdx + 32], xmm2",
        "movups [rdi + rdx + 48], xmm3",
        "sub rdx, 64",
        "jae 2b",
        "3:",
        // 0 to 63 bytes are left at the front.
        "add rdx, 64",
        "4:",
        "cmp rdx, 16",
        "jbe 5f",
        "movups xmm0, [rsi + rdx - 16]",
        "movups [rdi + rdx - 16], xmm0",
        "sub rdx, 16",
        "jmp 4b",
        "5:",
        "movups [rdi], xmm4",
        "ret",
        forward = sym memcpy,
    )
}

/// Sets `len` bytes at `to` to `byte`; answers `to`.
///
/// # Safety
/// As C's `memset`: the range valid.
#[unsafe(naked)]
#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "sysv64" fn memset(to: *mut u8, byte: i32, len: usize) -> *mut u8 {
    naked_asm!(
        "mov rax, rdi",
        "movzx esi, sil",
        "mov rcx, 0x0101010101010101",
        "imul rsi, rcx",
        "cmp rdx, 16",
        "jb 5f",
        "movq xmm0, rsi",
        "punpcklqdq xmm0, xmm0",
        "lea r8, [rdi + rdx - 16]",
        "sub rdx, 128",
        "jb 3f",
        "2:",
        "movups [rdi], xmm0",
        "movups [rdi + 16], xmm0",
        "movups [rdi + 32], xmm0",
        "movups [rdi + 48], xmm0",
        "movups [rdi + 64], xmm0",
        "movups [rdi + 80], xmm0",
        "movups [rdi + 96], xmm0",
        "movups [rdi + 112], xmm0",
        "add rdi, 128",
        "sub rdx, 128",
        "jae 2b",
        "3:",
        // 0 to 127 bytes are left; the last 16 are stored once more.
        "add rdx, 128",
        "4:",
        "cmp rdx, 16",
        "jbe 6f",
        "movups [rdi], xmm0",
        "add rdi, 16",
        "sub rdx, 16",
        "jmp 4b",
        "6:",
        "movups [r8], xmm0",
        "ret",
        // 0 to 15 bytes: both ends of 8, 4, 2, or one.
        "5:",
        "cmp edx, 8",
        "jb 7f",
        "mov [rdi], rsi",
        "mov [rdi + rdx - 8], rsi",
        "ret",
        "7:",
        "cmp edx, 4",
        "jb 8f",
        "mov [rdi], esi",
        "mov [rdi + rdx - 4], esi",
        "ret",
        "8:",
        "test edx, edx",
        "jz 9f",
        "mov [rdi], sil",
        "mov [rdi + rdx - 1], sil",
        "shr edx, 1",
        "mov [rdi + rdx], sil",
        "9:",
        "ret",
    )
}

/// Compares `len` bytes: negative, zero or positive as the first difference says.
///
/// # Safety
/// As C's `memcmp`: both ranges valid.
#[unsafe(naked)]
#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "sysv64" fn memcmp(left: *const u8, right: *const u8, len: usize) -> i32 {
    naked_asm!(
        "xor eax, eax",
        "cmp rdx, 16",
        "jb 5f",
        "2:",
        "movups xmm0, [rdi + rax]",
        "movups xmm1, [rsi + rax]",
        "pcmpeqb xmm0, xmm1",
        "pmovmskb ecx, xmm0",
        "xor ecx, 0xffff",
        "jnz 4f",
        "add rax, 16",
        "sub rdx, 16",
        "cmp rdx, 16",
        "jae 2b",
        "test rdx, rdx",
        "jz 8f",
        // A tail after at least one turn: the last 16 bytes, most of them known to be equal.
        "lea rax, [rax + rdx - 16]",
        "mov edx, 16",
        "jmp 2b",
        "4:",
        "bsf ecx, ecx",
        "add rcx, rax",
        "movzx eax, byte ptr [rdi + rcx]",
        "movzx ecx, byte ptr [rsi + rcx]",
        "sub eax, ecx",
        "ret",
        // 0 to 15 bytes: both ends as big-endian words.
        "5:",
        "cmp edx, 8",
        "jb 6f",
        "mov rax, [rdi]",
        "mov rcx, [rsi]",
        "cmp rax, rcx",
        "jne 7f",
        "mov rax, [rdi + rdx - 8]",
        "mov rcx, [rsi + rdx - 8]",
        "cmp rax, rcx",
        "jne 7f",
        "8:",
        "xor eax, eax",
        "ret",
        "7:",
        "bswap rax",
        "bswap rcx",
        "cmp rax, rcx",
        "sbb eax, eax",
        "or eax, 1",
        "ret",
        "6:",
        "xor ecx, ecx",
        "9:",
        "cmp ecx, edx",
        "je 8b",
        "movzx eax, byte ptr [rdi + rcx]",
        "movzx r8d, byte ptr [rsi + rcx]",
        "inc ecx",
        "sub eax, r8d",
        "jz 9b",
        "ret",
    )
}

/// Compares `len` bytes: zero where they are equal.
///
/// # Safety
/// As `memcmp`.
#[unsafe(naked)]
#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "sysv64" fn bcmp(left: *const u8, right: *const u8, len: usize) -> i32 {
    naked_asm!("jmp {memcmp}", memcmp = sym memcmp)
}

#[cfg(test)]
mod tests {
    use std::vec::Vec;

    use proptest::prelude::*;

    fn bytes(seed: u8, len: usize) -> Vec<u8> {
        (0..len).map(|i| (i as u8).wrapping_mul(31).wrapping_add(seed)).collect()
    }

    #[test]
    fn every_short_length_copies_sets_and_compares() {
        for len in 0..300 {
            let from = bytes(7, len);
            let mut to = bytes(99, len + 2);
            let mut expected = to.clone();
            expected[1..=len].copy_from_slice(&from);
            // SAFETY: the ranges lie inside the two vectors.
            let answer = unsafe { super::memcpy(to.as_mut_ptr().add(1), from.as_ptr(), len) };
            assert_eq!(to, expected, "memcpy of {len}");
            assert_eq!(answer, to.as_mut_ptr().wrapping_add(1));

            expected[1..=len].fill(0xa5);
            // SAFETY: the range lies inside the vector.
            let answer = unsafe { super::memset(to.as_mut_ptr().add(1), 0x1a5, len) };
            assert_eq!(to, expected, "memset of {len}");
            assert_eq!(answer, to.as_mut_ptr().wrapping_add(1));
        }
    }

    proptest! {
        #[test]
        fn overlapping_moves_match_copy_within(
            len in 0usize..400, from in 0usize..200, to in 0usize..200, seed: u8,
        ) {
            let mut ours = bytes(seed, 600);
            let mut theirs = ours.clone();
            theirs.copy_within(from..from + len, to);
            let base = ours.as_mut_ptr();
            // SAFETY: both ranges end below 600.
            let answer = unsafe { super::memmove(base.add(to), base.add(from), len) };
            prop_assert_eq!(answer, base.wrapping_add(to));
            prop_assert_eq!(ours, theirs);
        }

        #[test]
        fn comparison_matches_slices(
            len in 0usize..100, change in proptest::option::of((0usize..100, 1u8..)), seed: u8,
        ) {
            let left = bytes(seed, len);
            let mut right = left.clone();
            if let Some((at, by)) = change && at < len {
                right[at] = right[at].wrapping_add(by);
            }
            // SAFETY: both ranges are whole vectors.
            let answer = unsafe { super::memcmp(left.as_ptr(), right.as_ptr(), len) };
            prop_assert_eq!(answer.cmp(&0), left.cmp(&right));
            // SAFETY: as above.
            let equal = unsafe { super::bcmp(left.as_ptr(), right.as_ptr(), len) } == 0;
            prop_assert_eq!(equal, left == right);
        }
    }
}
