//! The CPU beside the GPU: honest baselines, their times, and what this CPU is.
//!
//! Every function here is compiled with the crate, so a call from a cell runs at full speed. All-core functions
//! use as many threads as this process may run on; each has a one-core twin, `…_one_core`.

mod attention;
mod bf16;
mod convolution;
mod heap;
mod matmul;
mod pages;
pub mod random;
mod simd;
mod sparse;
mod stream;
mod sum;
mod time;

pub use attention::{
    AttentionBackward, AttentionMask, AttentionRow, AttentionShape, ElementAt, GradientRow, Rounding,
    attention_backward_f64, attention_f64, attention_inputs, attention_row, attention_wrong,
};
pub use bf16::{bf16_from_f32, f32_from_bf16, random_bf16};
pub use convolution::{ConvAlgorithm, ConvShape};
pub use gpulab_measure::cpu_info::{CpuCache, CpuInfo, info};
pub use heap::{Heap, heap, highest_heap};
pub use matmul::{MatrixRef, product};
pub use matmul::{matmul, matmul_one_core, matmul_shape};
pub use random::{mix, random_f32};
pub use sparse::{CsrRef, csr_matmul, csr_matmul_one_core};
pub use stream::{copy, copy_one_core, vector_add, vector_add_one_core};
pub use sum::{sum, sum_one_core};
pub use time::{TimedResult, time};

/// Elements below which the all-core functions stay on the calling thread (2 MiB): waking the others costs about
/// 10 µs, and one core is through so much in 20 while it lies in its caches.
const WORTH_SHARING: usize = 512 * 1024;
/// Elements that a thread takes at a time (256 KiB): large enough for the prefetcher, small enough to balance.
const CHUNK: usize = 64 * 1024;
