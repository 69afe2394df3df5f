//! Debugging case of lesson 11: a sum that is right and slow. Its source stays hidden until the counters have been read.

use super::Verdict;
use super::verdict::{self, none_wrong, wrong};
use gpulab::bench::Bench;
use gpulab::cpu;
use gpulab::error::Result;
use gpulab::gpu::{Gpu, Kernel};
use gpulab::launch::LaunchConfig;
use gpulab::warpsim::Counters;
use std::fmt;

const THREADS: u32 = 256;
/// The launch that the diagnosis is about.
const ASKED_BLOCKS: u32 = 16;

/// Each block is to add up its share of the array. Its loop ends where the share does, but it begins at element 0.
const SOURCE: &str = "extern \"C\" __global__ void total(const float *a, float *partial, int n) {
    __shared__ float sums[256];
    int thread = threadIdx.x;
    int share = (n + gridDim.x - 1) / gridDim.x;
    int first = blockIdx.x * share, end = min(first + share, n);
    float sum = 0.0f;
    for (int i = thread; i < end; i += 256) {
        // Elements of other blocks count nothing; they are read all the same.
        sum += a[i] * (i >= first ? 1.0f : 0.0f);
    }
    sums[thread] = sum;
    __syncthreads();
    for (int distance = 1; distance < 256; distance *= 2) {
        int left = 2 * distance * thread;
        if (left < 256) { sums[left] += sums[left + distance]; }
        __syncthreads();
    }
    if (thread == 0) { partial[blockIdx.x] = sums[0]; }
}";

/// What a kernel does more of than it must.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Excess {
    /// Elements are read more often than once.
    RepeatedReads,
    /// The lanes of a warp read addresses that lie far apart.
    LanesApart,
    /// Lanes want different words of one bank of shared memory.
    BankConflicts,
    /// The lanes of a warp go different ways.
    Divergence,
    /// Warps wait at barriers.
    Barriers,
    /// Atomic instructions queue up.
    Atomics,
}

/// What the simulator counted of one launch of the hidden kernel.
#[derive(Debug, Clone)]
#[must_use = "a report shows itself as the last expression of a cell, without a semicolon"]
pub struct TotalReport {
    /// Elements.
    pub n: usize,
    /// Blocks of 256 threads.
    pub blocks: u32,
    /// Whether the partial sums add up to the right sum.
    pub right: bool,
    /// The counters.
    pub counters: Counters,
}

/// Launches the hidden kernel `total` in the simulator: `n` ones, so many blocks of 256 threads.
///
/// # Errors
/// Those of [`Gpu::compile`] and [`Kernel::inspect`](gpulab::gpu::Kernel::inspect).
pub fn total_report(n: usize, blocks: u32) -> Result<TotalReport> {
    let gpu = Gpu::simulated()?;
    let (a, mut partial) = (gpu.to_device(&vec![1.0f32; n])?, gpu.poison::<f32>(blocks as usize)?);
    let seen = hidden(&gpu)?.inspect(LaunchConfig::new(blocks, THREADS), (&a, &mut partial, n as i32))?;
    let right = partial.to_host()?.iter().map(|&sum| f64::from(sum)).sum::<f64>() == n as f64;
    Ok(TotalReport { n, blocks, right, counters: seen.counters })
}

/// Microseconds of the hidden kernel on a GPU.
///
/// # Errors
/// Those of [`Gpu::compile`] and [`Gpu::time`].
pub fn total_us(gpu: &Gpu, n: usize, blocks: u32) -> Result<f64> {
    let (a, mut partial) = (gpu.to_device(&cpu::random_f32(n, 1))?, gpu.poison::<f32>(blocks as usize)?);
    let (kernel, config) = (hidden(gpu)?, LaunchConfig::new(blocks, THREADS));
    let time = gpu.time(&Bench::default().budget_ms(100.0), |_| kernel.launch(config, (&a, &mut partial, n as i32)))?;
    Ok(1e3 * time.median)
}

fn hidden(gpu: &Gpu) -> Result<Kernel> {
    gpu.compile(SOURCE)?.kernel("total")
}

/// Checks a diagnosis of the hidden kernel with 16 blocks: what it does too much of, and how many times as much as it must.
pub fn diagnose_total(diagnosis: Option<(Excess, f64)>) -> Verdict {
    verdict::verdict("diagnose_total", || {
        let Some((excess, times)) = diagnosis else {
            return wrong(
                "there is no diagnosis yet",
                "run `check::total_report` with 1, 2, 4, … blocks: which counters grow although the work stays the same?",
            );
        };
        let report = total_report(1 << 16, ASKED_BLOCKS)?;
        let alone = total_report(1 << 16, 1)?;
        against(excess, &report.counters, &alone.counters)?;
        let right = report.reads();
        // NaN is near nothing.
        let near = (times - right).abs() <= 0.02 * right;
        let what =
            format!("the cause is right, but with {ASKED_BLOCKS} blocks it is not {times} times as much as must be");
        none_wrong(
            (!near).then_some(what),
            "how many bytes does the array have, and how many do the sectors that the loads ask for?",
        )
    })
}

/// The evidence that speaks for an innocent suspect.
fn against(named: Excess, c: &Counters, alone: &Counters) -> verdict::Check {
    let what = match named {
        Excess::RepeatedReads => return Ok(()),
        Excess::LanesApart => {
            let each = c.global_load_sectors as f64 / c.global_load_requests as f64;
            format!("a load request touches {each:.1} sectors: neighbouring lanes read neighbouring floats")
        }
        Excess::BankConflicts => format!(
            "there are {} bank conflicts with {ASKED_BLOCKS} blocks and {} with one: the same number in each block, whose trees \
             run side by side. They would not keep {ASKED_BLOCKS} blocks from being faster than one",
            c.shared_load_bank_conflicts + c.shared_store_bank_conflicts,
            alone.shared_load_bank_conflicts + alone.shared_store_bank_conflicts
        ),
        Excess::Divergence => {
            let lanes = c.active_lanes_per_instruction();
            format!("{lanes:.1} of 32 lanes are active in the average instruction: warps hardly ever part")
        }
        Excess::Barriers => format!(
            "each warp arrives at {} barriers, with one block as with {ASKED_BLOCKS}",
            c.barriers / u64::from(ASKED_BLOCKS * THREADS / 32)
        ),
        Excess::Atomics => format!("{} atomic instructions were counted", c.global_atomics + c.shared_atomics),
    };
    wrong(what, "what grows faster than the number of blocks does?")
}

/// The hidden source, once the diagnosis is right.
pub fn revealed_total(diagnosis: Option<(Excess, f64)>) -> &'static str {
    diagnose_total(diagnosis).reveals(SOURCE)
}

gpulab::show_as_text!(TotalReport);

impl TotalReport {
    /// How many times each element is asked for, on average.
    fn reads(&self) -> f64 {
        (self.counters.global_load_sectors * 32) as f64 / (self.n * 4) as f64
    }
}

impl fmt::Display for TotalReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let c = &self.counters;
        let right = if self.right { "right" } else { "wrong" };
        writeln!(f, "total: {} elements, grid of {} × {THREADS} threads; the sum is {right}", self.n, self.blocks)?;
        for (what, count) in [
            ("instructions of warps", c.warp_instructions),
            ("load requests, global memory", c.global_load_requests),
            ("load sectors, global memory", c.global_load_sectors),
            ("wavefronts, shared memory", c.shared_load_wavefronts + c.shared_store_wavefronts),
            ("bank conflicts", c.shared_load_bank_conflicts + c.shared_store_bank_conflicts),
            ("divergent branches", c.divergent_branches),
            ("arrivals of warps at barriers", c.barriers),
            ("atomic instructions", c.global_atomics + c.shared_atomics),
        ] {
            writeln!(f, "{count:>10}  {what}")?;
        }
        writeln!(f, "{:>10.1}  active lanes in the average instruction", c.active_lanes_per_instruction())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_counters_convict() {
        let report = total_report(1 << 16, ASKED_BLOCKS).unwrap();
        // Block b reads the shares of all blocks up to its own: (blocks + 1) / 2 times the array.
        assert!(report.right && report.reads() == 8.5, "{report}");
        let right = Some((Excess::RepeatedReads, 8.5));
        assert!(diagnose_total(right).passed(), "{}", diagnose_total(right).text());
        assert_eq!(revealed_total(right), SOURCE);
        for (wrong, said) in [
            (None, "no diagnosis yet"),
            (Some((Excess::BankConflicts, 8.5)), "the same number in each block"),
            (Some((Excess::LanesApart, 8.5)), "touches 4.0 sectors"),
            (Some((Excess::Divergence, 8.5)), "lanes are active"),
            (Some((Excess::Barriers, 8.5)), "with one block as with 16"),
            (Some((Excess::Atomics, 8.5)), "0 atomic instructions"),
            (Some((Excess::RepeatedReads, 16.0)), "it is not 16 times"),
            (Some((Excess::RepeatedReads, 1.0)), "it is not 1 times"),
            (Some((Excess::RepeatedReads, f64::NAN)), "it is not NaN times"),
            (Some((Excess::RepeatedReads, f64::INFINITY)), "it is not inf times"),
        ] {
            let text = diagnose_total(wrong).text();
            assert!(text.starts_with("NOT YET") && text.contains(said), "{wrong:?}: {text}");
            assert!(!text.contains("first") && revealed_total(wrong).starts_with("The source shows itself"), "{text}");
        }
    }

    #[test]
    fn a_report_hides_the_source() {
        let text = total_report(1000, 3).unwrap().to_string();
        assert!(text.contains("the sum is right") && !text.contains("kernel.cu"), "{text}");
    }
}
