//! Exercises of lesson 11: kernels whose threads work together, run in the simulator, which sees who waits for whom.

use super::Verdict;
use super::kernels::{self, first_wrong, whole};
use super::verdict::{Check, none_wrong, wrong};
use gpulab::cpu;
use gpulab::error::Error;
use gpulab::gpu::{Gpu, Kernel};
use gpulab::inspect::{AccessKind, Inspection};
use gpulab::launch::LaunchConfig;
use gpulab::warpsim::Kind;

const BLOCK: u32 = 256;
/// One element, a warp and its neighbours, a few blocks with a ragged end.
const SIZES: [usize; 5] = [1, 31, 33, 256, 1000];
/// What `row_sums` has in a row.
const COLUMNS: usize = 32;
/// So many blocks `dot` is launched with, whatever the length.
const DOT_BLOCKS: u32 = 8;

/// Checks a kernel `largest(const float *a, float *partial, int n)` that leaves the largest of each 256 elements in
/// `partial[blockIdx.x]`, launched with blocks of 256 threads, one an element.
pub fn largest(source: &str) -> Verdict {
    kernels::verdict("largest", source, "largest", mistake_hint, |gpu, kernel| {
        // The largest one is the last, the first, anywhere.
        let order: [fn(usize) -> Vec<f32>; 3] = [
            |n| (0..n).map(|i| i as f32).collect(),
            |n| (0..n).map(|i| -1.0 - i as f32).collect(),
            |n| cpu::random_f32(n, 1),
        ];
        for (n, a) in SIZES.into_iter().flat_map(|n| order.map(|order| (n, order(n)))) {
            let blocks = n.div_ceil(BLOCK as usize);
            let (on_a, mut partial) = (gpu.to_device(&a)?, gpu.poison::<f32>(blocks)?);
            kernel.launch(LaunchConfig::for_elements(n, BLOCK), (&on_a, &mut partial, n as i32))?;
            let expected: Vec<f32> =
                a.chunks(BLOCK as usize).map(|part| part.iter().copied().fold(f32::MIN, f32::max)).collect();
            let hint = "each step halves how many threads compare, until one is left: which two does it compare?";
            none_wrong(
                first_wrong(&format!("n = {n}"), &partial.to_host()?, &expected, |at| format!("block {at}")),
                hint,
            )?;
        }
        Ok(())
    })
}

/// Checks a kernel `row_sums(const float *a, float *sums, int rows)` for rows of 32 elements, launched with one warp for every
/// 32 rows: right, each sector of `a` fetched once, and no bank conflict.
pub fn row_sums(source: &str) -> Verdict {
    kernels::verdict("row_sums", source, "row_sums", mistake_hint, |gpu, kernel| {
        for rows in [64, 1, 31, 33, 100] {
            let a = whole(rows * COLUMNS, 1);
            let (on_a, mut sums) = (gpu.to_device(&a)?, gpu.poison::<f32>(rows)?);
            let config = LaunchConfig::for_elements(rows, COLUMNS as u32);
            // First as any launch: its mistakes come as an error.
            kernel.launch(config, (&on_a, &mut sums, rows as i32))?;
            let expected: Vec<f32> = a.chunks(COLUMNS).map(|row| row.iter().sum()).collect();
            let hint = "thread t adds up row t of the tile: its first index is the row, in the store and in the load";
            none_wrong(
                first_wrong(&format!("{rows} rows"), &sums.to_host()?, &expected, |at| format!("row {at}")),
                hint,
            )?;
            let seen = kernel.inspect(config, (&on_a, &mut sums, rows as i32))?;
            wasteful(&seen, rows)?;
        }
        Ok(())
    })
}

/// Sectors fetched more than once, and conflicts.
fn wasteful(seen: &Inspection, rows: usize) -> Check {
    let c = &seen.counters;
    let needed = (rows * COLUMNS * 4 / 32) as u64;
    if c.global_load_sectors > needed {
        return wrong(
            format!("with {rows} rows its loads touch {} sectors, and the matrix has {needed}", c.global_load_sectors),
            "the way through shared memory is there so that the lanes read neighbours of `a`: keep that loop",
        );
    }
    let (loads, stores) = (c.shared_load_bank_conflicts, c.shared_store_bank_conflicts);
    if loads + stores > 0 {
        let what = format!(
            "with {rows} rows there are {loads} bank conflicts of loads from shared memory, and {stores} of stores"
        );
        let hint = if loads == 0 {
            "now the lanes meet where they store: put the store back as it was. Lane t reads word \
                 t * (length of a row) + column: which length puts the 32 lanes into 32 banks, w % 32?"
        } else {
            "word w lies in bank w % 32. Lane t reads word t * (length of a row) + column: \
                 which length puts the 32 lanes into 32 banks?"
        };
        return wrong(what, hint);
    }
    Ok(())
}

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

/// What is wrong with the result for that length, and a hint.
fn wrong_product(gpu: &Gpu, kernel: &Kernel, n: usize) -> Check {
    let (a, b) = (whole(n, 1), whole(n, 2));
    let (on_a, on_b, mut result) = (gpu.to_device(&a)?, gpu.to_device(&b)?, gpu.zeros::<f32>(1)?);
    kernel.launch(LaunchConfig::new(DOT_BLOCKS, BLOCK), (&on_a, &on_b, &mut result, n as i32))?;
    let first = |count: usize| -> f64 { a.iter().zip(&b).take(count).map(|(a, b)| f64::from(a * b)).sum() };
    let (given, exact) = (f64::from(result.to_host()?[0]), first(n));
    let hint = match given == first((DOT_BLOCKS * BLOCK) as usize) {
        true => "that is the sum of the first 2048 products: a thread must go on to i + gridDim.x * blockDim.x",
        false => "is every element taken once, and every warp's sum added once? Lane 0 alone has the sum of its warp",
    };
    // NaN equals nothing.
    let what = (given != exact).then(|| format!("with n = {n} the result is {given}, and it should be {exact}"));
    none_wrong(what, hint)
}

/// Where threads wait for each other more than they must, and a hint.
fn took_turns(gpu: &Gpu, kernel: &Kernel) -> Check {
    let n = 5000;
    let (a, b, mut result) = (gpu.to_device(&whole(n, 1))?, gpu.to_device(&whole(n, 2))?, gpu.zeros::<f32>(1)?);
    let seen = kernel.inspect(LaunchConfig::new(DOT_BLOCKS, BLOCK), (&a, &b, &mut result, n as i32))?;
    let (warps, c) = (u64::from(DOT_BLOCKS * BLOCK / 32), &seen.counters);
    let atomics = seen.accesses.iter().filter(|access| access.kind == AccessKind::Atomic);
    let lanes = atomics.map(|access| access.offsets.iter().flatten().count()).max().unwrap_or(0);
    if lanes > 1 || c.global_atomics > warps {
        let count = c.global_atomics + c.shared_atomics;
        let what = format!(
            "with n = {n} warps make {count} atomic additions, of up to {lanes} lanes each, and all take turns"
        );
        let hint = "first add up in a register what a thread takes, then over the warp with __shfl_down_sync, \
                    and let lane 0 alone call atomicAdd";
        return wrong(what, hint);
    }
    // One barrier serves a block whose warps leave their sums in shared memory.
    if c.barriers > 2 * warps {
        let what = format!("its {warps} warps arrive at barriers {} times", c.barriers);
        return wrong(what, "that is a tree in shared memory, and it is right; within a warp shuffles need no barrier");
    }
    Ok(())
}

/// What to ask oneself about the first mistake of threads that work together.
fn mistake_hint(error: &Error) -> &'static str {
    let is = |kinds: &[Kind]| kernels::first_is(error, kinds);
    if is(&[Kind::SharedRace]) && kernels::two_write(error) {
        "two threads write one word: a barrier does not fix that. Does each thread have a word of its own, and is a \
         row of the array as long as what is written into it?"
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

    const LARGEST: &str = "extern \"C\" __global__ void largest(const float *a, float *partial, int n) {
    __shared__ float most[256];
    int thread = threadIdx.x;
    most[thread] = a[min(blockIdx.x * 256 + thread, n - 1)];
    __syncthreads(); // all are there
    for (int distance = 128; distance > 0; distance /= 2) {
        if (thread < distance) {
            most[thread] = fmaxf(most[thread], most[thread + distance]);
        }
        __syncthreads(); // all are done
    }
    if (thread == 0) { partial[blockIdx.x] = most[0]; }
}";

    const ROW_SUMS: &str = "extern \"C\" __global__ void row_sums(const float *a, float *sums, int rows) {
    __shared__ float tile[32][33];
    int lane = threadIdx.x, first = blockIdx.x * 32;
    for (int row = 0; row < 32 && first + row < rows; ++row) {
        tile[row][lane] = a[(first + row) * 32 + lane];
    }
    __syncthreads();
    if (first + lane < rows) {
        float sum = 0.0f;
        for (int column = 0; column < 32; ++column) { sum += tile[lane][column]; }
        sums[first + lane] = sum;
    }
}";

    const DOT: &str = "extern \"C\" __global__ void dot(const float *a, const float *b, float *result, int n) {
    float sum = 0.0f;
    for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x) { sum += a[i] * b[i]; }
    for (int distance = 16; distance > 0; distance /= 2) { sum += __shfl_down_sync(0xffffffff, sum, distance); }
    if (threadIdx.x % 32 == 0) { atomicAdd(result, sum); }
}";

    #[test]
    fn largest_knows_its_mistakes() {
        expect(
            largest,
            LARGEST,
            &[
                ("__syncthreads(); // all are there", "", "it must have done so by then"),
                ("__syncthreads(); // all are done", "", "done by all threads before"),
                ("most[thread] = fmaxf(most[thread], most[thread + distance]);", "__syncthreads();", "no `if` keeps"),
                ("distance = 128", "distance = 64", "which two does it compare"),
                ("fmaxf", "fminf", "block 0 is"),
                ("min(blockIdx.x * 256 + thread, n - 1)", "blockIdx.x * 256 + thread", "which element is its own"),
                ("if (thread == 0)", "if (thread == 256)", "was never written"),
                ("__shared__ float", "__shared__ flaot", "the compiler"),
                ("void largest", "void biggest", "no kernel `largest`"),
                ("partial[blockIdx.x]", "partial[0]", "two threads meet"),
            ],
        );
        // A barrier more than needed is no mistake.
        let careful = LARGEST.replace("if (thread == 0)", "__syncthreads(); if (thread == 0)");
        assert!(largest(&careful).passed(), "{}", largest(&careful).text());
    }

    #[test]
    fn row_sums_counts_conflicts() {
        expect(
            row_sums,
            ROW_SUMS,
            &[
                ("[32][33]", "[32][32]", "bank conflicts of loads"),
                ("[32][33]", "[32][34]", "bank conflicts of loads"),
                ("[32][33]", "[32][31]", "a barrier does not fix that"),
                ("tile[row][lane]", "tile[lane][row]", "its first index is the row"),
                ("tile[lane][column]", "a[(first + lane) * 32 + column]", "the matrix has"),
                ("sums[first + lane] = sum", "sums[lane] = sum", "two threads meet"),
                ("&& first + row < rows", "", "which element is its own"),
                ("__syncthreads();", "if (lane < 16) { __syncthreads(); }", "no `if` keeps"),
            ],
        );
        // Turned over, the conflict is in the store.
        let over = ROW_SUMS
            .replace("[32][33]", "[32][32]")
            .replace("tile[row][lane]", "tile[lane][row]")
            .replace("tile[lane][column]", "tile[column][lane]");
        assert!(row_sums(&over).text().contains("put the store back"), "{}", row_sums(&over).text());
        // Turning the columns is as good as a longer row.
        let turned =
            ROW_SUMS.replace("[32][33]", "[32][32]").replace("tile[lane][column]", "tile[lane][(column + lane) % 32]");
        assert!(row_sums(&turned).passed(), "{}", row_sums(&turned).text());
    }

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
                ("if (threadIdx.x % 32 == 0) { atomicAdd(result, sum); }", "atomicAdd(result, sum);", "Lane 0 alone"),
                ("distance = 16", "distance = 8", "is every element taken once"),
                ("sum += a[i] * b[i]", "atomicAdd(result, a[i] * b[i])", "lane 0 alone call atomicAdd"),
                ("atomicAdd(result, sum)", "*result += sum", "atomicAdd makes them take turns"),
                ("for (int distance", &format!("{tree} for (int distance"), "within a warp shuffles need no barrier"),
                (
                    "float sum = 0.0f;",
                    "float sum = 0.0f; if (blockIdx.x * blockDim.x + threadIdx.x >= n) return;",
                    "every lane of the mask",
                ),
                ("i < n;", "i <= n;", "which element is its own"),
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
