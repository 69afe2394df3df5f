//! Barriers and fences.

use core::arch::{asm, nvptx};

unsafe extern "unadjusted" {
    #[link_name = "llvm.nvvm.barrier0.popc"]
    fn barrier_popc(predicate: i32) -> i32;
    #[link_name = "llvm.nvvm.barrier0.and"]
    fn barrier_and(predicate: i32) -> i32;
    #[link_name = "llvm.nvvm.barrier0.or"]
    fn barrier_or(predicate: i32) -> i32;
    #[link_name = "llvm.nvvm.bar.warp.sync"]
    fn warp_sync(mask: u32);
}

/// Waits until all threads of the block are here, and makes what they wrote visible to each other (`__syncthreads`). All
/// threads of the block must come to the same one.
#[inline(always)]
pub fn sync_threads() {
    // SAFETY: threads that miss the barrier hang the block; memory stays what it was.
    unsafe { nvptx::_syncthreads() }
}

/// The barrier, and for how many threads the condition held (`__syncthreads_count`).
#[inline(always)]
pub fn sync_threads_count(condition: bool) -> u32 {
    // SAFETY: as `sync_threads`.
    unsafe { barrier_popc(condition.into()) as u32 }
}

/// The barrier, and whether the condition held for all threads (`__syncthreads_and`).
#[inline(always)]
pub fn sync_threads_all(condition: bool) -> bool {
    // SAFETY: as `sync_threads`.
    unsafe { barrier_and(condition.into()) != 0 }
}

/// The barrier, and whether the condition held for any thread (`__syncthreads_or`).
#[inline(always)]
pub fn sync_threads_any(condition: bool) -> bool {
    // SAFETY: as `sync_threads`.
    unsafe { barrier_or(condition.into()) != 0 }
}

/// Waits until the lanes of the mask are here (`__syncwarp`).
#[inline(always)]
pub fn sync_warp(mask: u32) {
    // SAFETY: as `sync_threads`, for the lanes of the mask.
    unsafe { warp_sync(mask) }
}

/// What this thread wrote before is seen by its block before what it writes after (`__threadfence_block`).
#[inline(always)]
pub fn fence_block() {
    // SAFETY: a fence orders accesses, and makes none.
    unsafe { asm!("membar.cta;", options(nostack, preserves_flags)) }
}

/// The same for all threads of the GPU (`__threadfence`).
#[inline(always)]
pub fn fence_device() {
    // SAFETY: as above.
    unsafe { asm!("membar.gl;", options(nostack, preserves_flags)) }
}

/// The same for other GPUs and the host, too (`__threadfence_system`).
#[inline(always)]
pub fn fence_system() {
    // SAFETY: as above.
    unsafe { asm!("membar.sys;", options(nostack, preserves_flags)) }
}

/// Stops the kernel with an error (`__trap`), as a panic does.
#[inline(always)]
pub fn trap() -> ! {
    // SAFETY: nothing runs after it.
    unsafe { nvptx::trap() }
}
