//! Exercises of lesson 16: two slow kernels whose sources stay hidden until the trouble is named from counters, with a number that
//! shows it. Then one of them is written anew, from a blank page.

use super::Verdict;
use super::judged::loads_shared;
use super::kernels;
use super::verdict::{Check, none_wrong, verdict, wrong};
use gpulab::bench::Bench;
use gpulab::cpu;
use gpulab::error::{Error, Result};
use gpulab::gpu::{Buffer, Gpu, Kernel};
use gpulab::inspect::Inspection;
use gpulab::launch::LaunchConfig;
use gpulab::measurement::Measurement;
use gpulab::warpsim::{Counters, Kind};
use std::fmt;

/// Why a kernel is slow.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Cause {
    /// Not decided yet.
    Unknown,
    /// The lanes of a warp touch addresses that lie far apart.
    LanesApart,
    /// Lanes wait for one another at a bank of shared memory.
    BankConflicts,
    /// Lanes add to one word of shared memory, one after the other.
    SharedAtomics,
    /// Warps add to one word of global memory, one after the other.
    GlobalAtomics,
    /// The lanes of a warp take different paths, and both are long.
    Divergence,
    /// One thread works while the others wait.
    OneThreadWorks,
    /// Values that should be in registers live in local memory.
    LocalMemory,
}

/// A slow kernel whose source is hidden: what it must do is known, and what it asks of the GPU can be counted.
#[derive(Debug, Clone)]
pub struct Case(&'static Hidden);

/// A version of a hidden kernel.
struct Version {
    name: &'static str,
    source: &'static str,
}

struct Hidden {
    name: &'static str,
    entry: &'static str,
    task: &'static str,
    /// The slow kernel, then what is compared with it.
    versions: &'static [Version],
    cause: Cause,
    evidence: fn(&Gpu, &Kernel) -> Result<Inspection>,
    time: fn(&Gpu, &Kernel, &Bench) -> Result<(usize, gpulab::measurement::Summary)>,
}

impl fmt::Debug for Hidden {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name)
    }
}

static ROWS: Hidden = Hidden {
    name: "rows",
    entry: "scale_rows",
    task: "scale_rows(const float *x, const float *factor, float *y, int n): each element of row r of an n × n matrix, row-major, times \
           factor[r]. Launched with a square grid of blocks of 32 × 32 threads that covers the matrix.",
    versions: &[Version { name: "hidden", source: SLOW_ROWS }, Version { name: "reference", source: FAST_ROWS }],
    cause: Cause::LanesApart,
    evidence: scaled,
    time: |gpu, kernel, bench| {
        let n = 8192;
        let (x, factor) = (gpu.to_device(&cpu::random_f32(n * n, 1))?, gpu.to_device(&cpu::random_f32(n, 2))?);
        let mut y = gpu.alloc::<f32>(n * n)?;
        let ms = gpu.time(bench, |_| kernel.launch(square(n), (&x, &factor, &mut y, n as i32)))?;
        Ok((n, ms))
    },
};

static BINS: Hidden = Hidden {
    name: "bins",
    entry: "bins",
    task: "bins(const unsigned *x, unsigned *counts, int n): how many of the n elements have the remainder b when they are divided by 16, \
           added to counts[b] for b from 0 to 15. Launched with any number of blocks of 256 threads, which walk over the elements.",
    versions: &[
        Version { name: "hidden", source: SLOW_BINS },
        Version { name: "hidden, few shared atomics", source: SLOW_BINS_FEW_ATOMICS },
        Version { name: "reference", source: FAST_BINS },
    ],
    cause: Cause::LocalMemory,
    evidence: |gpu, kernel| Ok(binned(gpu, kernel, WHOLE, 0)?.seen),
    time: |gpu, kernel, bench| {
        let n = 1 << 26;
        let (x, mut counts) = (gpu.to_device(&numbers(n, 1))?, gpu.zeros::<u32>(BINS_IN_ALL)?);
        let config = LaunchConfig::new(8 * gpu.multiprocessors().max(1), BLOCK);
        let ms = gpu.time(bench, |_| kernel.launch(config, (&x, &mut counts, n as i32)))?;
        Ok((n, ms))
    },
};

const SLOW_ROWS: &str =
    "extern \"C\" __global__ void scale_rows(const float *x, const float *factor, float *y, int n) {
    int row = blockIdx.x * blockDim.x + threadIdx.x;
    int column = blockIdx.y * blockDim.y + threadIdx.y;
    if (row < n && column < n) { y[row * n + column] = factor[row] * x[row * n + column]; }
}";

const FAST_ROWS: &str =
    "extern \"C\" __global__ void scale_rows(const float *x, const float *factor, float *y, int n) {
    int row = blockIdx.y * blockDim.y + threadIdx.y;
    int column = blockIdx.x * blockDim.x + threadIdx.x;
    if (row < n && column < n) { y[row * n + column] = factor[row] * x[row * n + column]; }
}";

const SLOW_BINS: &str = "extern \"C\" __global__ void bins(const unsigned *x, unsigned *counts, int n) {
    __shared__ unsigned block[16];
    if (threadIdx.x < 16) { block[threadIdx.x] = 0; }
    __syncthreads();
    unsigned mine[16] = {0};
    for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x) {
        mine[x[i] % 16] += 1; // registers have no index: an array that is indexed by data lies in local memory
    }
    for (int b = 0; b < 16; ++b) { atomicAdd(&block[b], mine[b]); }
    __syncthreads();
    if (threadIdx.x < 16) { atomicAdd(&counts[threadIdx.x], block[threadIdx.x]); }
}";

const SLOW_BINS_FEW_ATOMICS: &str = "extern \"C\" __global__ void bins(const unsigned *x, unsigned *counts, int n) {
    __shared__ unsigned block[16];
    if (threadIdx.x < 16) { block[threadIdx.x] = 0; }
    __syncthreads();
    unsigned mine[16] = {0};
    for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x) {
        mine[x[i] % 16] += 1;
    }
    for (int b = 0; b < 16; ++b) {
        unsigned sum = mine[b];
        for (int far = 16; far > 0; far /= 2) { sum += __shfl_down_sync(0xffffffffu, sum, far); }
        if (threadIdx.x % 32 == 0) { atomicAdd(&block[b], sum); }
    }
    __syncthreads();
    if (threadIdx.x < 16) { atomicAdd(&counts[threadIdx.x], block[threadIdx.x]); }
}";

const FAST_BINS: &str = "extern \"C\" __global__ void bins(const unsigned *x, unsigned *counts, int n) {
    __shared__ unsigned block[16];
    if (threadIdx.x < 16) { block[threadIdx.x] = 0; }
    __syncthreads();
    unsigned mine[16] = {0};
    for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x) {
        unsigned bin = x[i] % 16;
#pragma unroll
        for (int b = 0; b < 16; ++b) { mine[b] += bin == b; } // the index is known when it is compiled: registers
    }
#pragma unroll
    for (int b = 0; b < 16; ++b) {
        unsigned sum = mine[b];
        for (int far = 16; far > 0; far /= 2) { sum += __shfl_down_sync(0xffffffffu, sum, far); }
        if (threadIdx.x % 32 == 0) { atomicAdd(&block[b], sum); }
    }
    __syncthreads();
    if (threadIdx.x < 16) { atomicAdd(&counts[threadIdx.x], block[threadIdx.x]); }
}";

impl Case {
    /// A kernel that scales the rows of a matrix.
    pub fn rows() -> Case {
        Case(&ROWS)
    }

    /// A kernel that counts elements by their remainder.
    pub fn bins() -> Case {
        Case(&BINS)
    }

    /// What the kernel computes, and how it is launched.
    pub fn task(&self) -> &'static str {
        self.0.task
    }

    /// What the simulator counts of each version: the hidden kernel first.
    ///
    /// # Errors
    /// Those of [`Gpu::compile`] and [`Kernel::inspect`].
    pub fn evidence(&self) -> Result<Evidence> {
        let gpu = Gpu::simulated()?;
        let count = |version: &Version| {
            let kernel = gpu.compile(version.source)?.kernel(self.0.entry)?;
            Ok((version.name, (self.0.evidence)(&gpu, &kernel)?.counters))
        };
        Ok(Evidence { versions: self.0.versions.iter().map(count).collect::<Result<_>>()? })
    }

    /// The time of each version on this GPU, as rows.
    ///
    /// # Errors
    /// Those of [`Gpu::compile`] and [`Gpu::time`].
    pub fn measure(&self, gpu: &Gpu, bench: &Bench) -> Result<Vec<Measurement>> {
        let one = |version: &Version| {
            let kernel = gpu.compile(version.source)?.kernel(self.0.entry)?;
            let (n, ms) = (self.0.time)(gpu, &kernel, bench)?;
            Ok(Measurement::time_ms(version.name, gpu.backend(), n, ms))
        };
        self.0.versions.iter().map(one).collect()
    }

    /// The source of the hidden kernel, for who has named its trouble.
    pub fn reveal(&self, cause: Cause) -> &'static str {
        if cause == self.0.cause {
            self.0.versions[0].source
        } else {
            "The source stays hidden until the cause is named."
        }
    }
}

/// What each version of a kernel asks of the GPU. As a cell's last line it shows itself.
#[derive(Debug, Clone)]
#[must_use = "evidence shows itself as the last expression of a cell, without a semicolon"]
pub struct Evidence {
    versions: Vec<(&'static str, Counters)>,
}

gpulab::show_as_text!(Evidence);

impl Evidence {
    /// The counters of the hidden kernel.
    pub fn hidden(&self) -> &Counters {
        &self.versions[0].1
    }
}

impl fmt::Display for Evidence {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        type Row = (&'static str, fn(&Counters) -> String);
        let rows: [Row; 12] = [
            ("instructions of warps", |c| c.warp_instructions.to_string()),
            ("active lanes per instruction", |c| format!("{:.1}", c.active_lanes_per_instruction())),
            ("divergent branches", |c| c.divergent_branches.to_string()),
            ("global loads: requests", |c| c.global_load_requests.to_string()),
            ("global loads: sectors", |c| c.global_load_sectors.to_string()),
            ("global stores: requests", |c| c.global_store_requests.to_string()),
            ("global stores: sectors", |c| c.global_store_sectors.to_string()),
            ("global atomics", |c| c.global_atomics.to_string()),
            ("shared memory: bank conflicts", |c| {
                (c.shared_load_bank_conflicts + c.shared_store_bank_conflicts).to_string()
            }),
            ("shared atomics: wavefronts", |c| c.shared_atomic_wavefronts.to_string()),
            ("local memory: requests", |c| (c.local_load_requests + c.local_store_requests).to_string()),
            ("local memory: sectors", |c| (c.local_load_sectors + c.local_store_sectors).to_string()),
        ];
        let wide = |name: &str| name.chars().count().max(10);
        write!(f, "{:30}", "counted in the simulator")?;
        self.versions.iter().try_for_each(|(name, _)| write!(f, "  {name:>0$}", wide(name)))?;
        for (what, of) in rows {
            write!(f, "\n{what:30}")?;
            self.versions.iter().try_for_each(|(name, c)| write!(f, "  {:>1$}", of(c), wide(name)))?;
        }
        writeln!(f)
    }
}

const BLOCK: u32 = 256;
const BINS_IN_ALL: usize = 16;
/// Rows and columns of the matrix whose rows are scaled.
const SIDE: usize = 64;
const SIZES: [usize; 6] = [1, 31, 257, 1025, 3000, WHOLE];
/// 64 elements per thread of four blocks.
const WHOLE: usize = 1 << 16;
const BLOCKS: u32 = 4;

/// Checks the answer to the first case: why the kernel is slow, and how many sectors one of its store requests touches.
pub fn case_one(cause: Cause, sectors: u64) -> Verdict {
    verdict("case_one", || {
        let evidence = Case::rows().evidence()?;
        let c = evidence.hidden();
        acquitted(c, cause, Cause::LanesApart)?;
        let right = c.global_store_sectors / c.global_store_requests.max(1);
        let what = format!("the cause is right, but its stores do not touch {sectors} sectors a request");
        none_wrong((sectors != right).then_some(what), "the table has the sectors and the requests of all stores")
    })
}

/// Checks the answer to the second case: why the kernel is slow, and how many times as many sectors go to and from local memory
/// as the input has.
pub fn case_two(cause: Cause, times: f64) -> Verdict {
    verdict("case_two", || {
        let evidence = Case::bins().evidence()?;
        let c = evidence.hidden();
        acquitted(c, cause, Cause::LocalMemory)?;
        let right = (c.local_load_sectors + c.local_store_sectors) as f64 / c.global_load_sectors as f64;
        let near = (times / right - 1.0).abs() < 0.1;
        let what = format!("the cause is right, but it is not {times} times as many sectors");
        none_wrong(
            (!near).then_some(what),
            "sectors of local memory, loads and stores together, over those of the global loads",
        )
    })
}

/// Checks a kernel `bins` as [`Case::bins`] describes it: right with any number of blocks, without local memory, the work shared.
pub fn write_bins(source: &str) -> Verdict {
    kernels::verdict("write_bins", source, "bins", mistake_hint, |gpu, kernel| {
        for n in SIZES {
            let run = binned(gpu, kernel, n, 0)?;
            none_wrong(run.wrong, "follow one element: which count does it raise, and by whom is that one read?")?;
        }
        for warp in [0, 7] {
            let run = binned(gpu, kernel, WHOLE, warp)?;
            let c = &run.seen.counters;
            let local = c.local_load_requests + c.local_store_requests;
            if local > 0 {
                let what = format!("it is right; but it makes {local} requests to local memory");
                return wrong(what, "which of a thread's values has an index that only the data tell?");
            }
            if c.global_atomics > 64 * u64::from(BLOCKS) {
                let what = format!(
                    "it is right; but its warps send {} atomic instructions to global memory",
                    c.global_atomics
                );
                return wrong(what, "16 counts and 4 blocks: how often must a block tell the others what it has?");
            }
            let part = WHOLE / 32 / (BLOCKS * BLOCK / 32) as usize;
            loads_shared(&run.seen, part / 4, 4 * part)?;
            let what = format!(
                "it is right; but its loads touch {} sectors, and the elements lie in {}",
                c.global_load_sectors,
                WHOLE / 8
            );
            let apart = c.global_load_sectors > (WHOLE / 4) as u64;
            none_wrong(apart.then_some(what), "which elements do the 32 lanes of a warp read in the same moment?")?;
        }
        Ok(())
    })
}

/// What a launch gave, and what it did.
struct Run {
    wrong: Option<String>,
    seen: Inspection,
}

fn square(n: usize) -> LaunchConfig {
    // As many blocks along x as along y: x runs along rows in one version, along columns in the other.
    let blocks = n.div_ceil(32) as u32;
    LaunchConfig { grid: (blocks, blocks, 1), block: (32, 32, 1), shared_bytes: 0 }
}

fn scaled(gpu: &Gpu, kernel: &Kernel) -> Result<Inspection> {
    let (n, mut y) = (SIDE, gpu.poison::<f32>(SIDE * SIDE)?);
    let (x, factor) = (gpu.to_device(&cpu::random_f32(n * n, 1))?, gpu.to_device(&cpu::random_f32(n, 2))?);
    kernel.inspect(square(n), (&x, &factor, &mut y, n as i32))
}

/// Whole numbers, random.
fn numbers(n: usize, seed: u64) -> Vec<u32> {
    cpu::random_f32(n, seed).into_iter().map(|x| ((x + 1.0) * 1e6) as u32).collect()
}

fn binned(gpu: &Gpu, kernel: &Kernel, n: usize, warp: u32) -> Result<Run> {
    let x = numbers(n, n as u64);
    let (on_x, mut counts) = (gpu.to_device(&x)?, gpu.zeros::<u32>(BINS_IN_ALL)?);
    // One block, then several.
    let mut expected = [0u32; BINS_IN_ALL];
    for blocks in [1, BLOCKS] {
        kernel.launch(LaunchConfig::new(blocks, BLOCK), (&on_x, &mut counts, n as i32))?;
        x.iter().for_each(|x| expected[(x % 16) as usize] += 1);
    }
    let given = counts.to_host()?;
    let at = (0..BINS_IN_ALL).find(|&at| given[at] != expected[at]);
    let result = at.map(|at| {
        format!("with n = {n}, launched twice: counts[{at}] is {}, and it should be {}", given[at], expected[at])
    });
    let wrong = result.or(spoilt("x", &on_x, &x)?);
    let config = LaunchConfig::new(BLOCKS, BLOCK);
    let seen = kernel.inspect_warp(config, (&on_x, &mut counts, n as i32), (BLOCKS - 1, 0, 0), warp)?;
    Ok(Run { wrong, seen })
}

/// Where an input is no longer what it was.
fn spoilt<T: gpulab::launch::Element + PartialEq>(
    name: &str,
    buffer: &Buffer<T>,
    before: &[T],
) -> Result<Option<String>> {
    let at = buffer.to_host()?.iter().zip(before).position(|(after, before)| after != before);
    Ok(at.map(|at| format!("element {at} of the input `{name}` is no longer what it was before the launch")))
}

/// Why the evidence speaks against a cause that was named.
fn acquitted(c: &Counters, named: Cause, right: Cause) -> Check {
    let each = c.global_load_sectors as f64 / c.global_load_requests.max(1) as f64;
    let said = match named {
        _ if named == right => return Ok(()),
        Cause::Unknown => {
            return wrong(
                "no cause is named yet".to_string(),
                "look at the counters of the versions side by side: where do they differ most?",
            );
        }
        Cause::LanesApart => {
            format!("its loads touch {each:.1} sectors a request, and 4 is what neighbouring numbers of 4 bytes need")
        }
        Cause::BankConflicts => {
            let conflicts = c.shared_load_bank_conflicts + c.shared_store_bank_conflicts;
            format!("its loads from and stores to shared memory have {conflicts} bank conflicts")
        }
        Cause::SharedAtomics if c.shared_atomics == 0 => "it makes no atomics in shared memory".to_string(),
        Cause::SharedAtomics => {
            "many they are; but the version with few of them asks for as much of everything else".to_string()
        }
        Cause::GlobalAtomics => format!("it makes {} atomics in global memory", c.global_atomics),
        Cause::Divergence => format!("the threads of a warp diverge at {} branches", c.divergent_branches),
        Cause::OneThreadWorks => {
            format!("{:.1} of 32 lanes are active in the average instruction", c.active_lanes_per_instruction())
        }
        Cause::LocalMemory => {
            format!("it makes {} requests to local memory", c.local_load_requests + c.local_store_requests)
        }
    };
    wrong(format!("the evidence speaks against {named:?}: {said}"), "compare the versions counter by counter")
}

fn mistake_hint(error: &Error) -> &'static str {
    if kernels::first_is(error, &[Kind::SharedRace, Kind::GlobalRace]) {
        "two threads use one word, one of them writes, and nothing says who comes first"
    } else if kernels::first_is(error, &[Kind::BarrierDivergence, Kind::Deadlock]) {
        "all threads of the block must come to each `__syncthreads()`"
    } else if kernels::first_is(error, &[Kind::UninitialisedRead]) {
        "who writes that place before it is read?"
    } else {
        "do the index by hand for that block and thread: does that element exist?"
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn red(verdict: Verdict, said: &str) {
        let text = verdict.text();
        assert!(text.starts_with("NOT YET") && text.contains(said), "`{said}` is not said: {text}");
    }

    fn green(verdict: Verdict) {
        assert!(verdict.passed(), "{}", verdict.text());
    }

    /// The hidden kernel and its reference.
    #[test]
    fn both_versions_scale_the_rows() {
        let gpu = Gpu::simulated().unwrap();
        let (x, factor) = (cpu::random_f32(SIDE * SIDE, 1), cpu::random_f32(SIDE, 2));
        let expected: Vec<f32> = x.iter().enumerate().map(|(at, x)| x * factor[at / SIDE]).collect();
        for version in ROWS.versions {
            let kernel = gpu.compile(version.source).unwrap().kernel(ROWS.entry).unwrap();
            let mut y = gpu.poison::<f32>(SIDE * SIDE).unwrap();
            let (on_x, on_factor) = (gpu.to_device(&x).unwrap(), gpu.to_device(&factor).unwrap());
            kernel.launch(square(SIDE), (&on_x, &on_factor, &mut y, SIDE as i32)).unwrap();
            assert_eq!(y.to_host().unwrap(), expected, "{}", version.name);
        }
    }

    /// A kernel with the head of `like` and this body.
    fn body(like: &str, text: &str) -> String {
        format!("{}{{\n{text}\n}}", &like[..like.find('{').unwrap()])
    }

    #[test]
    fn the_first_case_has_one_answer() {
        green(case_one(Cause::LanesApart, 32));
        red(case_one(Cause::LanesApart, 4), "do not touch 4 sectors");
        // The mean over loads of `x` and of `factor`.
        red(case_one(Cause::LanesApart, 18), "do not touch 18 sectors");
        red(case_one(Cause::Unknown, 32), "no cause is named");
        red(case_one(Cause::BankConflicts, 32), "have 0 bank conflicts");
        red(case_one(Cause::SharedAtomics, 32), "no atomics in shared memory");
        red(case_one(Cause::Divergence, 32), "diverge at 0 branches");
        red(case_one(Cause::OneThreadWorks, 32), "32.0 of 32 lanes");
        red(case_one(Cause::LocalMemory, 32), "0 requests to local memory");
    }

    #[test]
    fn the_obvious_suspect_of_the_second_case_is_innocent() {
        let evidence = Case::bins().evidence().unwrap();
        let [(_, slow), (_, few), (_, fast)] = &evidence.versions[..] else { panic!("three versions") };
        let local = |c: &Counters| c.local_load_sectors + c.local_store_sectors;
        assert!(slow.shared_atomic_wavefronts > 8 * few.shared_atomic_wavefronts, "{evidence}");
        assert_eq!((local(slow), local(fast)), (local(few), 0), "{evidence}");
        assert!(local(slow) > 8 * slow.global_load_sectors, "{evidence}");
        let right = local(slow) as f64 / slow.global_load_sectors as f64;
        green(case_two(Cause::LocalMemory, right));
        green(case_two(Cause::LocalMemory, 1.05 * right));
        red(case_two(Cause::LocalMemory, 1.0), "not 1 times");
        red(case_two(Cause::LocalMemory, f64::NAN), "not NaN times");
        red(case_two(Cause::SharedAtomics, right), "as much of everything else");
        red(case_two(Cause::LanesApart, right), "touch 4.0 sectors");
        red(case_two(Cause::GlobalAtomics, right), "atomics in global memory");
        red(case_two(Cause::BankConflicts, right), "bank conflicts");
        red(case_two(Cause::Unknown, right), "no cause is named");
    }

    #[test]
    fn sources_show_themselves_to_who_knows() {
        assert!(Case::rows().reveal(Cause::LanesApart).contains("scale_rows"));
        assert!(Case::bins().reveal(Cause::SharedAtomics).contains("stays hidden"));
        let debug = format!("{:?} {:?}", Case::bins(), Case::bins().evidence().unwrap());
        assert!(!debug.contains("mine[") && !Case::bins().task().contains("mine"), "{debug}");
    }

    #[test]
    fn bins_are_counted_in_registers_or_shared_memory() {
        green(write_bins(FAST_BINS));
        let shared = "__shared__ unsigned block[16];
    if (threadIdx.x < 16) { block[threadIdx.x] = 0; }
    __syncthreads();
    for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x) { atomicAdd(&block[x[i] % 16], 1u); }
    __syncthreads();
    if (threadIdx.x < 16) { atomicAdd(&counts[threadIdx.x], block[threadIdx.x]); }";
        let shared = body(FAST_BINS, shared);
        green(write_bins(&shared));
        red(write_bins(SLOW_BINS), "requests to local memory");
        red(write_bins(SLOW_BINS_FEW_ATOMICS), "requests to local memory");
        let barrier = "    __syncthreads();\n    if (threadIdx.x < 16) { atomicAdd";
        red(write_bins(&shared.replace(barrier, "    if (threadIdx.x < 16) { atomicAdd")), "who comes first");
        red(
            write_bins(&shared.replace("atomicAdd(&block[x[i] % 16], 1u)", "block[x[i] % 16] += 1u")),
            "who comes first",
        );
        red(write_bins(&shared.replace("block[threadIdx.x] = 0;", "")), "before it is read");
        red(write_bins(&shared.replace("i < n;", "i <= n;")), "does that element exist");
        red(write_bins(&shared.replace("% 16]", "& 7]")), "launched twice");
        red(
            write_bins(&shared.replace(
                "atomicAdd(&counts[threadIdx.x], block[threadIdx.x])",
                "counts[threadIdx.x] = block[threadIdx.x]",
            )),
            "",
        );
        let straight = "for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x) { atomicAdd(&counts[x[i] % 16], 1u); }";
        red(write_bins(&body(FAST_BINS, straight)), "atomic instructions to global memory");
        let volatile = shared.replace(
            "atomicAdd(&counts[threadIdx.x], block[threadIdx.x])",
            "*(volatile unsigned *)&counts[threadIdx.x] = *(volatile unsigned *)&counts[threadIdx.x] + block[threadIdx.x]",
        );
        red(write_bins(&volatile), "lost update");
        // Cheats: one thread, one warp, a constant, a neighbour's memory.
        let alone = "if (blockIdx.x + threadIdx.x == 0) { for (int b = 0; b < 16; ++b) { unsigned c = 0; for (int i = 0; i < n; ++i) c += x[i] % 16 == b; counts[b] += c; } }";
        red(write_bins(&body(FAST_BINS, alone)), "would be its part");
        let warp = shared.replace(
            "int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x",
            "int i = blockIdx.x == 0 && threadIdx.x < 32 ? threadIdx.x : n; i < n; i += 32",
        );
        red(write_bins(&warp), "would be its part");
        red(
            write_bins(&body(FAST_BINS, "if (threadIdx.x < 16 && blockIdx.x == 0) { counts[threadIdx.x] = n / 16; }")),
            "launched twice",
        );
        red(write_bins(&body(FAST_BINS, "counts[16 + threadIdx.x] = 1;")), "does that element exist");
    }
}
