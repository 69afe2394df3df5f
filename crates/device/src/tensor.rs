//! What feeds tensor cores: copies that need no register, fragments of matrices, and their product.

use crate::{Bf16, Shared, SharedArray};
use core::arch::asm;

unsafe extern "unadjusted" {
    #[link_name = "llvm.nvvm.mma.m16n8k16.row.col.bf16"]
    fn mma_bf16(a0: u32, a1: u32, a2: u32, a3: u32, b0: u32, b1: u32, c0: f32, c1: f32, c2: f32, c3: f32) -> Four;
}

#[repr(C)]
struct Four(f32, f32, f32, f32);

/// Starts a copy of 16 bytes from global memory into shared memory (`cp.async.cg`). They are there when [`copies_done`]
/// has returned, for other threads after a barrier behind it.
///
/// # Safety
/// `from` is a multiple of 16 in global memory, with 16 bytes to read; the element is at a multiple of 16, with room for them.
#[inline(always)]
pub unsafe fn copy_16_async<T: Shared>(to: SharedArray<T>, index: usize, from: *const T) {
    // SAFETY: the caller's.
    unsafe {
        asm!("{{ .reg .u64 from; cvta.to.global.u64 from, {}; cp.async.cg.shared.global [{}], [from], 16; }}",
            in(reg64) from, in(reg32) to.address(index), options(nostack, preserves_flags));
    }
}

/// The same where `there` holds; else 16 zero bytes, and nothing is read.
///
/// # Safety
/// As [`copy_16_async`]; of the source only where `there` holds.
#[inline(always)]
pub unsafe fn copy_16_async_or_zeros<T: Shared>(to: SharedArray<T>, index: usize, from: *const T, there: bool) {
    let bytes = if there { 16_u32 } else { 0 };
    // SAFETY: the caller's.
    unsafe {
        asm!(
            "{{ .reg .u64 from; cvta.to.global.u64 from, {}; cp.async.cg.shared.global [{}], [from], 16, {}; }}",
            in(reg64) from, in(reg32) to.address(index), in(reg32) bytes, options(nostack, preserves_flags)
        );
    }
}

/// The copies that were started since the last call are one group (`cp.async.commit_group`).
#[inline(always)]
pub fn commit_copies() {
    // SAFETY: it touches no memory.
    unsafe { asm!("cp.async.commit_group;", options(nostack, preserves_flags)) }
}

/// Waits until at most `LEFT` of this thread's newest groups are in flight (`cp.async.wait_group`).
#[inline(always)]
pub fn copies_done<const LEFT: u32>() {
    // SAFETY: it waits.
    unsafe { asm!("cp.async.wait_group {};", const LEFT, options(nostack, preserves_flags)) }
}

/// Four 8 × 8 matrices of 16-bit numbers from shared memory, spread over the warp as [`mma`] takes them (`ldmatrix.x4`).
/// Lane l names row l % 8 of matrix l / 8.
///
/// All lanes of the warp must come to this call.
#[inline(always)]
pub fn load_matrices(from: SharedArray<Bf16>, row: usize) -> [u32; 4] {
    let (a, b, c, d);
    // SAFETY: rows of eight elements of the array, as the caller of `SharedArray::new` promised of its indices. Not `pure`:
    // it must stay where all lanes come.
    unsafe {
        asm!("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {{{}, {}, {}, {}}}, [{}];", out(reg32) a, out(reg32) b,
            out(reg32) c, out(reg32) d, in(reg32) from.address(row), options(nostack, preserves_flags));
    }
    [a, b, c, d]
}

/// The same matrices with rows and columns exchanged on the way (`ldmatrix.x4.trans`).
///
/// All lanes of the warp must come to this call.
#[inline(always)]
pub fn load_matrices_transposed(from: SharedArray<Bf16>, row: usize) -> [u32; 4] {
    let (a, b, c, d);
    // SAFETY: as above.
    unsafe {
        asm!("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {{{}, {}, {}, {}}}, [{}];", out(reg32) a, out(reg32) b,
            out(reg32) c, out(reg32) d, in(reg32) from.address(row), options(nostack, preserves_flags));
    }
    [a, b, c, d]
}

/// `a · b + c` of a 16 × 16 and a 16 × 8 matrix of bf16, in f32, by the whole warp (`mma.sync.m16n8k16`).
///
/// All lanes of the warp must come to this call.
#[inline(always)]
pub fn mma(a: [u32; 4], b: [u32; 2], c: [f32; 4]) -> [f32; 4] {
    // SAFETY: arithmetic on the warp's registers.
    let Four(x, y, z, w) = unsafe { mma_bf16(a[0], a[1], a[2], a[3], b[0], b[1], c[0], c[1], c[2], c[3]) };
    [x, y, z, w]
}
