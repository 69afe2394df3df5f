//! An exercise of lesson 11: a kernel whose threads work together, run in the simulator, which sees who waits for whom.

use super::Verdict;
use super::kernels::{self, shared_out, unchanged, whole};
use super::verdict::{Check, told};
use gpulab::error::Error;
use gpulab::gpu::{Gpu, Kernel};
use gpulab::inspect::AccessKind;
use gpulab::launch::LaunchConfig;
use gpulab::warpsim::Kind;

const BLOCK: u32 = 256;
/// So many blocks `dot` is launched with, whatever the length.
const DOT_BLOCKS: u32 = 8;

/// Checks a kernel `dot(const float *a, const float *b, float *result, int n)` that adds the sum of all `a[i] * b[i]` to `result[0]`.
/// It is launched with 8 blocks of 256 threads, whatever `n` is: every thread takes many elements, and a warp hands its
/// sum over in registers.
pub fn dot(source: &str) -> Verdict {
    kernels::verdict("dot", source, "dot", mistake_hint, |gpu, kernel| {
        for n in [1, 31, 33, 2048, 5000, 100_003] {
            wrong_product(gpu, kernel, n)?;
        }
        took_turns(gpu, kernel)
    })
}

/// What is wrong with the result for that length, and hints.
fn wrong_product(gpu: &Gpu, kernel: &Kernel, n: usize) -> Check {
    // What is there already stays.
    let before = 3.0f32;
    let (a, b) = (whole(n, 1), whole(n, 2));
    let (on_a, on_b, mut result) = (gpu.to_device(&a)?, gpu.to_device(&b)?, gpu.to_device(&[before])?);
    kernel.launch(LaunchConfig::new(DOT_BLOCKS, BLOCK), (&on_a, &on_b, &mut result, n as i32))?;
    let first = |count: usize| -> f64 { a.iter().zip(&b).take(count).map(|(a, b)| f64::from(a * b)).sum() };
    let (given, sum) = (f64::from(result.to_host()?[0]), first(n));
    let exact = f64::from(before) + sum;
    // NaN equals nothing.
    if given != exact {
        let what = format!("with n = {n} and {before} in result[0] the result is {given}, and it should be {exact}");
        return if given == f64::from(before) + first((DOT_BLOCKS * BLOCK) as usize) {
            told(
                what,
                "that is the sum of the first 2048 products: each thread of the launch has taken one",
                "8 blocks of 256 threads, whatever n is: which elements does thread 0 take after its first one?",
            )
        } else if given == sum {
            told(
                what,
                "that is the sum alone: what was in result[0] is gone",
                "the kernel adds to result[0]; what is there may be the sum of another launch",
            )
        } else {
            told(
                what,
                "some products are missing, or are added more than once",
                "is every element taken once, and every warp's sum added once? Which lanes have the sum of their warp?",
            )
        };
    }
    unchanged("a", &on_a, &a)?;
    unchanged("b", &on_b, &b)
}

/// Where threads wait for each other more than they must, and hints.
fn took_turns(gpu: &Gpu, kernel: &Kernel) -> Check {
    for n in [5000, 40_000] {
        let (a, b, mut result) = (gpu.to_device(&whole(n, 1))?, gpu.to_device(&whole(n, 2))?, gpu.zeros::<f32>(1)?);
        let seen = kernel.inspect(LaunchConfig::new(DOT_BLOCKS, BLOCK), (&a, &b, &mut result, n as i32))?;
        let (warps, c) = (u64::from(DOT_BLOCKS * BLOCK / 32), &seen.counters);
        shared_out(&seen, 0.3)?;
        let atomics = seen.accesses.iter().filter(|access| access.kind == AccessKind::Atomic);
        let lanes = atomics.map(|access| access.offsets.iter().flatten().count()).max().unwrap_or(0);
        let count = c.global_atomics + c.shared_atomics;
        if lanes > 1 || count > warps {
            let what = format!(
                "with n = {n} warps make {count} atomic additions, of up to {lanes} lanes each, and all take turns"
            );
            return told(
                what,
                "additions to one place are done one after the other: the more there are, the longer all wait",
                "let each thread add up what it takes, and let each warp add up its lanes; who then has something to add to \
                 result[0]?",
            );
        }
        // One barrier serves a block whose warps leave their sums in shared memory.
        if c.barriers > 2 * warps {
            return told(
                format!("with n = {n} its {warps} warps arrive at barriers {} times", c.barriers),
                "that is a tree in shared memory, and it is right; at each of its steps all warps of a block wait",
                "within a warp shuffles need no barrier",
            );
        }
    }
    Ok(())
}

/// What to ask oneself about the first mistake of threads that work together.
fn mistake_hint(error: &Error) -> &'static str {
    let is = |kinds: &[Kind]| kernels::first_is(error, kinds);
    if is(&[Kind::SharedRace]) && kernels::two_write(error) {
        "two threads write one word: a barrier does not fix that. Does each thread have a word of its own?"
    } else if is(&[Kind::SharedRace]) {
        "one of the two lines must be done by all threads before any thread begins with the other: \
         that is where a __syncthreads() belongs, or a second one"
    } else if is(&[Kind::GlobalRace]) {
        "two threads meet at one number in memory: one thread of each block has a place of its own, or atomicAdd makes them take turns"
    } else if is(&[Kind::BarrierDivergence, Kind::Deadlock]) {
        "every thread of the block, or every lane of the mask, must come by: put it where no `if` keeps some of them away"
    } else if is(&[Kind::UninitialisedRead]) {
        "which thread writes that word? If another one does, it must have done so by then: a __syncthreads() belongs \
         between. If nobody does, a thread without an element must put something there too"
    } else {
        "do the sum for that block and thread by hand: which element is its own, and does it exist?"
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::check::kernels::expect;

    const DOT: &str = "extern \"C\" __global__ void dot(const float *a, const float *b, float *result, int n) {
    float sum = 0.0f;
    for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x) { sum += a[i] * b[i]; }
    for (int distance = 16; distance > 0; distance /= 2) { sum += __shfl_down_sync(0xffffffff, sum, distance); }
    if (threadIdx.x % 32 == 0) { atomicAdd(result, sum); }
}";

    #[test]
    fn dot_counts_atomics_and_barriers() {
        let tree = "__shared__ float sums[256]; int t = threadIdx.x; sums[t] = sum; __syncthreads();
    for (int d = 128; d > 0; d /= 2) { if (t < d) { sums[t] += sums[t + d]; } __syncthreads(); }
    if (t == 0) { atomicAdd(result, sums[0]); } return;";
        expect(
            dot,
            DOT,
            &[
                ("i += gridDim.x * blockDim.x", "i += n", "first 2048 products"),
                ("if (threadIdx.x % 32 == 0) { atomicAdd(result, sum); }", "atomicAdd(result, sum);", "Which lanes have the sum"),
                ("distance = 16", "distance = 8", "is every element taken once"),
                ("sum += a[i] * b[i]", "atomicAdd(result, a[i] * b[i])", "who then has something to add"),
                ("atomicAdd(result, sum)", "*result += sum", "atomicAdd makes them take turns"),
                ("for (int distance", &format!("{tree} for (int distance"), "within a warp shuffles need no barrier"),
                (
                    "float sum = 0.0f;",
                    "float sum = 0.0f; if (blockIdx.x * blockDim.x + threadIdx.x >= n) return;",
                    "every lane of the mask",
                ),
                ("i < n;", "i <= n;", "which element is its own"),
                // Volatile in place of an atomic; read and exchanged; one thread, one warp a block; the sum stored; an input changed.
                ("atomicAdd(result, sum)", "*(volatile float *)result += sum", "lost update"),
                ("atomicAdd(result, sum)", "atomicExch(result, atomicAdd(result, 0.0f) + sum)", "lost update"),
                ("if (threadIdx.x % 32 == 0)", "if (threadIdx.x % 32 == 0 && (sum += 1.0f, true))", "added more than once"),
                (
                    "float sum = 0.0f;",
                    "if (blockIdx.x + threadIdx.x == 0) { float s = 0.0f; for (int i = 0; i < n; ++i) { s += a[i] * b[i]; }
        *result += s; } return; float sum = 0.0f;",
                    "the work is not shared out",
                ),
                (
                    "i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x",
                    "i = threadIdx.x < 32 ? blockIdx.x * 32 + threadIdx.x : n; i < n; i += gridDim.x * 32",
                    "the work is not shared out",
                ),
                ("sum += a[i] * b[i];", "sum += a[i] * b[i]; ((float *)b)[i] = 0.0f;", "the input `b` has changed"),
                ("atomicAdd(result, sum)", "atomicAdd(result, __int_as_float(0x7fc00000))", "the result is NaN"),
                (
                    "for (int distance = 16",
                    "if (threadIdx.x % 32 < 16) for (int distance = 16",
                    "every lane of the mask",
                ),
            ],
        );
        // One atomic a block is better still.
        let block = DOT.replace(
            "if (threadIdx.x % 32 == 0) { atomicAdd(result, sum); }",
            "__shared__ float sums[8];
        if (threadIdx.x % 32 == 0) { sums[threadIdx.x / 32] = sum; }
        __syncthreads();
        if (threadIdx.x == 0) { for (int w = 1; w < 8; ++w) { sum += sums[w]; } atomicAdd(result, sum); }",
        );
        assert!(dot(&block).passed(), "{}", dot(&block).text());
    }
}
