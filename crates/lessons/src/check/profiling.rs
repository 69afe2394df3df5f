//! Exercises of lesson 16: two slow kernels, each beside a fast one with the same result. First the cause is named, with a
//! number that shows it; then the kernel is fixed. The simulator's counters are the evidence.

use super::Verdict;
use super::kernels::{self, first_wrong};
use super::verdict::{Check, none_wrong, wrong};
use gpulab::cpu;
use gpulab::error::Error;
use gpulab::gpu::{Gpu, Kernel};
use gpulab::inspect::Inspection;
use gpulab::launch::LaunchConfig;
use gpulab::warpsim::Kind;

/// Why a kernel is slow.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Cause {
    /// Not decided yet.
    Unknown,
    /// The lanes of a warp touch addresses that lie far apart.
    LanesApart,
    /// Lanes wait for one another at a bank of shared memory.
    BankConflicts,
    /// The lanes of a warp go different ways, and both ways are long.
    Divergence,
    /// One thread works while the others wait.
    OneThreadWorks,
    /// There are too few blocks to fill the GPU.
    TooFewBlocks,
    /// Registers did not suffice, and values live in local memory.
    Spills,
}

/// The fast kernel of the first case; its text is the solution of an exercise.
pub const FAST_SCALE: &str =
    "extern \"C\" __global__ void scale_rows(const float *x, const float *factor, float *y, int n) {
    int row = blockIdx.y * blockDim.y + threadIdx.y;
    int column = blockIdx.x * blockDim.x + threadIdx.x;
    if (row < n && column < n) { y[row * n + column] = factor[row] * x[row * n + column]; }
}";

/// The fast kernel of the second case; its text is the solution of an exercise.
pub const FAST_SUMS: &str = "extern \"C\" __global__ void block_sums(const float *x, float *sums, int n) {
    __shared__ float tile[1024];
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    tile[threadIdx.x] = i < n ? x[i] : 0.0f;
    __syncthreads();
    for (int half = 512; half > 0; half /= 2) {
        if (threadIdx.x < half) { tile[threadIdx.x] += tile[threadIdx.x + half]; }
        __syncthreads();
    }
    if (threadIdx.x == 0) { sums[blockIdx.x] = tile[0]; }
}";

const BLOCK: u32 = 1024;
const SIDES: [usize; 4] = [64, 1, 31, 33];
const SIZES: [usize; 5] = [WHOLE, 1, 31, 1025, 3000];
/// Whole blocks.
const WHOLE: usize = 4096;

/// Checks the answer to the first case: why a kernel `scale_rows` (as for [`fix_scale`]) is slow, and how many sectors
/// one load request of its `x` touches.
pub fn case_one(slow: &str, cause: Cause, sectors: u64) -> Verdict {
    kernels::verdict("case_one", slow, "scale_rows", mistake_hint, |gpu, kernel| {
        let seen = scaled(gpu, kernel, 64)?.1;
        acquitted(&seen, cause, Cause::LanesApart)?;
        let most = worst_load(&seen);
        if sectors != most {
            let what = format!("the cause is right, but no load of `x` touches {sectors} sectors a request");
            let hint = "the table of counters gives the mean over all loads, those of `factor` too; `scale_a.sectors(\"x[\")?` draws \
                        one of `x`";
            return wrong(what, hint);
        }
        Ok(())
    })
}

/// Checks the answer to the second case: why a kernel `block_sums` (as for [`fix_sums`]) is slow, and how many lanes are
/// active in the line that costs the most instructions.
pub fn case_two(slow: &str, cause: Cause, lanes: u64) -> Verdict {
    kernels::verdict("case_two", slow, "block_sums", mistake_hint, |gpu, kernel| {
        let seen = summed(gpu, kernel, WHOLE)?.1;
        acquitted(&seen, cause, Cause::OneThreadWorks)?;
        let dearest = dearest_lanes(&seen);
        if lanes as f64 != dearest.round() {
            let what = format!("the cause is right, but {lanes} lanes are not what the dearest line has");
            let hint =
                "`sums_a.source()` shows each line's instructions and how many lanes were active in them, on average";
            return wrong(what, hint);
        }
        Ok(())
    })
}

/// Checks a kernel `scale_rows(const float *x, const float *factor, float *y, int n)` that multiplies row r of an n × n
/// matrix by `factor[r]`, launched with a grid of blocks of 32 × 32 threads that covers the matrix: right, and no request of a
/// warp touches more sectors than it must.
pub fn fix_scale(source: &str) -> Verdict {
    kernels::verdict("fix_scale", source, "scale_rows", mistake_hint, |gpu, kernel| {
        for n in SIDES {
            let (what, seen) = scaled(gpu, kernel, n)?;
            none_wrong(what, "every element is its own times the factor of its row: which index is the row?")?;
            let c = &seen.counters;
            let (loads, stores) = (worst_load(&seen), c.global_store_sectors as f64 / c.global_store_requests as f64);
            // The rows of the smaller matrices begin within a sector.
            if n == 64 && (loads > 4 || stores > 4.0) {
                let what =
                    format!("a load request touches up to {loads} sectors, a store request {stores:.0}; 4 suffice");
                let hint = "the lanes of a warp differ in `threadIdx.x`: is that the index that runs along a row?";
                return wrong(what, hint);
            }
        }
        Ok(())
    })
}

/// Checks a kernel `block_sums(const float *x, float *sums, int n)` that leaves the sum of each 1024 elements in
/// `sums[blockIdx.x]`, launched with blocks of 1024 threads, one an element: right, and the work shared among the lanes.
pub fn fix_sums(source: &str) -> Verdict {
    kernels::verdict("fix_sums", source, "block_sums", mistake_hint, |gpu, kernel| {
        for n in SIZES {
            let (what, seen) = summed(gpu, kernel, n)?;
            none_wrong(
                what,
                "in each step half as many threads add as before, each one other value: which two are added?",
            )?;
            if n == WHOLE {
                alone(&seen)?;
            }
        }
        Ok(())
    })
}

/// What is wrong with the result, if anything, and what the launch did.
fn scaled(gpu: &Gpu, kernel: &Kernel, n: usize) -> Check<(Option<String>, Inspection)> {
    let (x, factor) = (cpu::random_f32(n * n, 1), cpu::random_f32(n, 2));
    let (on_x, on_factor, mut y) = (gpu.to_device(&x)?, gpu.to_device(&factor)?, gpu.poison::<f32>(n * n)?);
    // Square, so that x may run along rows or along columns.
    let blocks = n.div_ceil(32) as u32;
    let config = LaunchConfig { grid: (blocks, blocks, 1), block: (32, 32, 1), shared_bytes: 0 };
    kernel.launch(config, (&on_x, &on_factor, &mut y, n as i32))?;
    let seen = kernel.inspect(config, (&on_x, &on_factor, &mut y, n as i32))?;
    let expected: Vec<f32> = x.iter().enumerate().map(|(at, x)| x * factor[at / n]).collect();
    Ok((first_wrong(&format!("n = {n}"), &y.to_host()?, &expected, element), seen))
}

fn summed(gpu: &Gpu, kernel: &Kernel, n: usize) -> Check<(Option<String>, Inspection)> {
    // Small whole numbers: their sum is exact in any order.
    let x: Vec<f32> = cpu::random_f32(n, 3).iter().map(|x| (x * 8.0).trunc() + 1.0).collect();
    let blocks = n.div_ceil(BLOCK as usize);
    let (on_x, mut sums) = (gpu.to_device(&x)?, gpu.poison::<f32>(blocks)?);
    let config = LaunchConfig::for_elements(n, BLOCK);
    kernel.launch(config, (&on_x, &mut sums, n as i32))?;
    let seen = kernel.inspect(config, (&on_x, &mut sums, n as i32))?;
    let expected: Vec<f32> = x.chunks(BLOCK as usize).map(|part| part.iter().sum()).collect();
    Ok((first_wrong(&format!("n = {n}"), &sums.to_host()?, &expected, element), seen))
}

/// The most sectors that a load of the watched warp touches.
fn worst_load(seen: &Inspection) -> u64 {
    let loads = seen.accesses.iter().filter(|access| access.kind == gpulab::inspect::AccessKind::Load);
    loads.map(|access| access.sectors).max().unwrap_or(0)
}

/// Active lanes of the line with the most warp instructions.
fn dearest_lanes(seen: &Inspection) -> f64 {
    let dearest = seen.lines.iter().max_by_key(|line| line.counters.warp_instructions);
    dearest.map_or(0.0, |line| line.counters.active_lanes_per_instruction())
}

/// One thread, or lanes one after the other, where all could work.
fn alone(seen: &Inspection) -> Check {
    let c = &seen.counters;
    let lanes = c.active_lanes_per_instruction();
    if lanes < 16.0 {
        return wrong(
            format!("the sums are right, but {lanes:.1} of 32 lanes are active in the average instruction"),
            "let half of the threads add one value each, then half of those, and so on: `__syncthreads()` between the steps, \
             outside of the `if`",
        );
    }
    // Each warp may add its own sum.
    let warps = u64::from(seen.grid[0] * BLOCK / 32);
    if c.shared_atomic_wavefronts > 2 * warps || c.global_atomics > warps {
        return wrong(
            format!(
                "the lanes take turns at one address: {} passes of atomics in shared memory, {} atomics in global \
                     memory, for {warps} warps",
                c.shared_atomic_wavefronts, c.global_atomics
            ),
            "an atomic of a whole warp on one address is done lane after lane: add within the warp first (`__shfl_down_sync`)",
        );
    }
    Ok(())
}

/// Why the evidence speaks against a cause that was named; `None` when it is the right one.
fn acquitted(seen: &Inspection, named: Cause, right: Cause) -> Check {
    let c = &seen.counters;
    let conflicts = c.shared_load_bank_conflicts + c.shared_store_bank_conflicts;
    let each = c.global_load_sectors as f64 / c.global_load_requests.max(1) as f64;
    let said = match named {
        _ if named == right => return Ok(()),
        Cause::Unknown => {
            return wrong(
                "no cause is named yet".to_string(),
                "look at the counters of both kernels side by side: where do they differ most?",
            );
        }
        Cause::LanesApart => {
            format!("its loads touch {each:.1} sectors a request, and 4 is what neighbouring floats need")
        }
        Cause::BankConflicts => format!("it has {conflicts} bank conflicts in shared memory"),
        Cause::Divergence if right == Cause::OneThreadWorks => {
            "lanes do part, but the other way is empty: nobody runs two ways one after the other".to_string()
        }
        Cause::Divergence => format!("the lanes of a warp part at {} branches", c.divergent_branches),
        Cause::OneThreadWorks => {
            format!("{:.1} of 32 lanes are active in the average instruction", c.active_lanes_per_instruction())
        }
        Cause::TooFewBlocks => {
            "the fast kernel is launched with the same blocks; what differs must lie in the kernel".to_string()
        }
        Cause::Spills => {
            format!("it makes {} requests to local memory", c.local_load_requests + c.local_store_requests)
        }
    };
    wrong(
        format!("the evidence speaks against {named:?}: {said}"),
        "compare A and B counter by counter, then look at A line by line (`scale_a.source()`, or `sums_a.source()`)",
    )
}

fn element(at: usize) -> String {
    format!("element {at}")
}

fn mistake_hint(error: &Error) -> &'static str {
    if kernels::first_is(error, &[Kind::SharedRace, Kind::GlobalRace]) {
        "a value is read while another thread still writes it: every step needs its own `__syncthreads()`"
    } else if kernels::first_is(error, &[Kind::BarrierDivergence, Kind::Deadlock]) {
        "all threads of the block must come to each `__syncthreads()`: it stands outside of the `if`"
    } else if kernels::first_is(error, &[Kind::UninitialisedRead]) {
        "who writes that place before it is read? In the last block some threads have no element"
    } else {
        "do the index by hand for that block and thread: does that element exist?"
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SLOW_SCALE: &str =
        "extern \"C\" __global__ void scale_rows(const float *x, const float *factor, float *y, int n) {
    int row = blockIdx.x * blockDim.x + threadIdx.x;
    int column = blockIdx.y * blockDim.y + threadIdx.y;
    if (row < n && column < n) { y[row * n + column] = factor[row] * x[row * n + column]; }
}";

    const SLOW_SUMS: &str = "extern \"C\" __global__ void block_sums(const float *x, float *sums, int n) {
    __shared__ float tile[1024];
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    tile[threadIdx.x] = i < n ? x[i] : 0.0f;
    __syncthreads();
    if (threadIdx.x == 0) {
        float sum = 0.0f;
        for (int k = 0; k < 1024; ++k) { sum += tile[k]; }
        sums[blockIdx.x] = sum;
    }
}";

    fn red(verdict: Verdict, said: &str) {
        let text = verdict.text();
        assert!(text.starts_with("NOT YET") && text.contains(said), "`{said}` is not said: {text}");
    }

    #[test]
    fn the_first_case_has_one_answer() {
        assert!(case_one(SLOW_SCALE, Cause::LanesApart, 32).passed());
        red(case_one(SLOW_SCALE, Cause::LanesApart, 4), "no load of `x` touches 4 sectors");
        // The mean of the table, over loads of `x` and of `factor`.
        red(case_one(SLOW_SCALE, Cause::LanesApart, 18), "those of `factor` too");
        red(case_one(SLOW_SCALE, Cause::Unknown, 32), "no cause is named");
        red(case_one(SLOW_SCALE, Cause::BankConflicts, 32), "it has 0 bank conflicts");
        red(case_one(SLOW_SCALE, Cause::Divergence, 32), "part at 0 branches");
        red(case_one(SLOW_SCALE, Cause::OneThreadWorks, 32), "32.0 of 32 lanes");
        red(case_one(SLOW_SCALE, Cause::TooFewBlocks, 32), "the same blocks");
        red(case_one(SLOW_SCALE, Cause::Spills, 32), "0 requests to local memory");
    }

    #[test]
    fn the_second_case_has_one_answer() {
        assert!(case_two(SLOW_SUMS, Cause::OneThreadWorks, 1).passed());
        red(case_two(SLOW_SUMS, Cause::OneThreadWorks, 32), "32 lanes are not what the dearest line has");
        red(case_two(SLOW_SUMS, Cause::LanesApart, 1), "touch 4.0 sectors a request");
        red(case_two(SLOW_SUMS, Cause::BankConflicts, 1), "it has 0 bank conflicts");
        red(case_two(SLOW_SUMS, Cause::Divergence, 1), "the other way is empty");
    }

    #[test]
    fn rows_are_scaled_by_neighbours() {
        let right = FAST_SCALE;
        assert!(fix_scale(right).passed(), "{}", fix_scale(right).text());
        red(fix_scale(SLOW_SCALE), "up to 32 sectors");
        red(fix_scale(&right.replace("factor[row]", "factor[column]")), "element 1 is");
        red(fix_scale(&right.replace("row < n && ", "")), "past the end");
        red(fix_scale(&right.replace("if (row < n && column < n)", "if (row + 1 < n && column < n)")), "never written");
        red(fix_scale(&right.replace("scale_rows", "scale_row")), "no kernel `scale_rows`");
        red(
            fix_scale(&right.replace(", int n)", ")").replace("if (", "int n = 64; if (")),
            "keep its name and its parameters",
        );
    }

    #[test]
    fn block_sums_are_shared_work() {
        let right = FAST_SUMS;
        assert!(fix_sums(right).passed(), "{}", fix_sums(right).text());
        let by_warps = format!(
            "{}{}",
            SLOW_SUMS.split("__syncthreads").next().unwrap(),
            "float sum = tile[threadIdx.x];
    for (int far = 16; far > 0; far /= 2) { sum += __shfl_down_sync(0xffffffffu, sum, far); }
    __syncthreads();
    if (threadIdx.x % 32 == 0) { tile[threadIdx.x / 32] = sum; }
    __syncthreads();
    if (threadIdx.x < 32) {
        sum = tile[threadIdx.x];
        for (int far = 16; far > 0; far /= 2) { sum += __shfl_down_sync(0xffffffffu, sum, far); }
        if (threadIdx.x == 0) { sums[blockIdx.x] = sum; }
    }
}"
        );
        assert!(fix_sums(&by_warps).passed(), "{}", fix_sums(&by_warps).text());
        red(fix_sums(SLOW_SUMS), "lanes are active in the average instruction");
        let (barrier, outside) = ("        __syncthreads();\n    }\n    if", "    }\n    if");
        red(fix_sums(&right.replace(barrier, outside)), "needs its own `__syncthreads()`");
        let inside = right.replace("+ half]; }\n        __syncthreads();", "+ half]; __syncthreads(); }");
        red(fix_sums(&inside), "outside of the `if`");
        red(fix_sums(&right.replace("half = 512", "half = 256")), "element 0 is");
        red(fix_sums(&right.replace("i < n ? x[i] : 0.0f", "x[i]")), "does that element exist");
        let turns = format!(
            "{}{}",
            SLOW_SUMS.split("tile[threadIdx.x] =").next().unwrap().replace("float tile[1024];", "float sum;"),
            "if (threadIdx.x == 0) { sum = 0.0f; }
    __syncthreads();
    if (i < n) { atomicAdd(&sum, x[i]); }
    __syncthreads();
    if (threadIdx.x == 0) { sums[blockIdx.x] = sum; }
}"
        );
        red(fix_sums(&turns), "take turns at one address");
    }
}
