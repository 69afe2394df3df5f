//! What kernels in Rust are written with, on top of `core`. A kernel that `gpulab` compiles has this crate by its name:
//!
//! ```ignore
//! use gpulab_device::*;
//!
//! #[unsafe(no_mangle)]
//! pub unsafe extern "ptx-kernel" fn add(a: *const f32, b: *const f32, c: *mut f32, n: u32) {
//!     // SAFETY: a launch in one dimension passes buffers of n elements, and c is none of the other two.
//!     let (a, b, mut c) = unsafe { (Slice::new(a, n as usize), Slice::new(b, n as usize), DisjointSlice::new(c, n as usize)) };
//!     let i = index_1d();
//!     if let Some(c) = c.own(i) {
//!         *c = a[i.get()] + b[i.get()];
//!     }
//! }
//! ```
//!
//! | module | what it holds | in CUDA C |
//! | --- | --- | --- |
//! | [`index`] | which thread this is, and indices that no other thread has | `threadIdx.x`, `blockIdx.x * blockDim.x + threadIdx.x` |
//! | [`slice`] | buffers with their lengths | `const float *`, `float *` |
//! | [`shared`](mod@shared) | shared memory, of a fixed size or sized at launch | `__shared__`, `extern __shared__` |
//! | [`sync`] | barriers and fences | `__syncthreads()`, `__threadfence()` |
//! | [`warp`] | shuffles and votes | `__shfl_down_sync`, `__ballot_sync` |
//! | [`atomic`] | atomics of a block, of the GPU, of the system | `atomicAdd`, `atomicCAS` |
//! | [`float`] | fused multiply-add, fast functions, 16-bit floats | `fmaf`, `__expf`, `__nv_bfloat16` |
//! | [`vector`] | two or four numbers in one access | `float4` |
//! | [`tensor`] | asynchronous copies, matrix fragments and their product | `cp.async`, `ldmatrix`, `mma.sync` |
//! | [`hopper`] | the TMA, barriers that count bytes, products of warpgroups | `cp.async.bulk.tensor`, `mbarrier`, `wgmma` |
//!
//! A kernel's parameters are raw pointers and numbers. A `&mut f32` would compile as well, and be the same reference in all
//! threads: what a thread may write, [`DisjointSlice`] gives it.
//!
//! Two checks differ from those of `core`'s slices: an index into [`Slice`] and shared memory is compared with the length in
//! a kernel compiled with debug assertions, and costs nothing without them. The simulator names an access out of bounds either way.
#![no_std]
#![feature(abi_unadjusted, asm_experimental_arch, core_intrinsics, link_llvm_intrinsics, stdarch_nvptx)]
#![allow(internal_features, improper_ctypes)]

pub mod atomic;
pub mod float;
pub mod hopper;
pub mod index;
pub mod shared;
pub mod slice;
pub mod sync;
pub mod tensor;
pub mod vector;
pub mod warp;

pub use atomic::{AtomicSlice, Scope};
pub use float::{Bf16, F16, Float};
pub use index::*;
pub use shared::{Shared, SharedArray};
pub use slice::{DisjointSlice, PerBlock, PerThread, PerThread2d, Slice, Unchecked};
pub use sync::*;
pub use vector::{Vec2, Vec4};

/// What macros of this crate write into a kernel.
#[doc(hidden)]
pub mod macros {
    pub use core::arch::{asm, global_asm};
}
