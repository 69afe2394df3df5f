//! Exercise of lesson 11: an inclusive scan of each block's elements, from a blank page.

use super::Verdict;
use super::judged::{lanes_work, unchanged};
use super::kernels::{self, whole};
use super::verdict::{Check, none_wrong, wrong};
use gpulab::error::{Error, Result};
use gpulab::gpu::{Buffer, Gpu, Kernel};
use gpulab::inspect::Inspection;
use gpulab::launch::LaunchConfig;
use gpulab::warpsim::Kind;

const BLOCK: usize = 256;
/// Where cost is judged: whole blocks.
const JUDGED: usize = 4096;
/// One element, a warp and its neighbours, a block and its neighbours; the last takes three levels of sums.
const SIZES: [usize; 7] = [1, 31, 33, 256, 257, 1000, 70_000];
/// Instructions for each element: eight steps of a tree in shared memory stay well below, adding up one's predecessors does not.
const INSTRUCTIONS: f64 = 330.0;
/// Arrivals at barriers for each warp: two for each of the steps up and down a tree of 256, and a few more.
const BARRIERS: u64 = 36;

/// Checks a kernel `scan(const float *a, float *out, float *sums, int n)`, launched with blocks of 256 threads, one an
/// element: `out[i]` is the sum of the block's elements up to and with `a[i]`, and `sums[blockIdx.x]` that of all of them. With
/// it the check scans arrays of any length: the blocks, then their sums, then it adds those before each block.
pub fn scan(source: &str) -> Verdict {
    kernels::verdict("scan", source, "scan", mistake_hint, |gpu, kernel| {
        for n in SIZES {
            let a = whole(n, 1);
            let given = scanned(gpu, kernel, &a)?;
            none_wrong(
                first_wrong(&a, &given),
                "follow the first wrong element: which elements should it have added?",
            )?;
        }
        cost(&judged(gpu, kernel)?)
    })
}

/// The scan of the whole array, by as many levels of blocks as it takes. Each launch is checked for itself.
fn scanned(gpu: &Gpu, kernel: &Kernel, a: &[f32]) -> Check<Vec<f32>> {
    let (mut out, sums) = launched(gpu, kernel, a)?;
    if sums.len() > 1 {
        let before = scanned(gpu, kernel, &sums)?;
        for (block, own) in out.chunks_mut(BLOCK).enumerate().skip(1) {
            own.iter_mut().for_each(|x| *x += before[block - 1]);
        }
    }
    Ok(out)
}

/// One launch: what it leaves in `out` and in `sums`, which are compared block by block.
fn launched(gpu: &Gpu, kernel: &Kernel, a: &[f32]) -> Check<(Vec<f32>, Vec<f32>)> {
    let n = a.len();
    let (on_a, mut out, mut sums) = buffers(gpu, a)?;
    kernel.launch(LaunchConfig::for_elements(n, BLOCK as u32), (&on_a, &mut out, &mut sums, n as i32))?;
    let (out, sums) = (out.to_host()?, sums.to_host()?);
    for (block, own) in a.chunks(BLOCK).enumerate() {
        let from = block * BLOCK;
        none_wrong(
            first_wrong(own, &out[from..from + own.len()]).map(|what| format!("n = {n}, block {block}: {what}")),
            "follow that element: which elements of its block should it have added, and which did it add?",
        )?;
        let (total, given): (f32, f32) = (own.iter().sum(), sums[block]);
        let is = if given.is_nan() { "was never written".to_string() } else { format!("is {given}") };
        none_wrong(
            (given != total).then(|| format!("n = {n}: the sum of block {block} {is}, and it should be {total}")),
            "a block's sum is that of all its elements: which thread has it at the end, also in a block that is not full?",
        )?;
    }
    unchanged("a", &on_a, a)?;
    Ok((out, sums))
}

fn buffers(gpu: &Gpu, a: &[f32]) -> Result<(Buffer<f32>, Buffer<f32>, Buffer<f32>)> {
    Ok((gpu.to_device(a)?, gpu.poison(a.len())?, gpu.poison(a.len().div_ceil(BLOCK))?))
}

fn judged(gpu: &Gpu, kernel: &Kernel) -> Check<Inspection> {
    let (on_a, mut out, mut sums) = buffers(gpu, &whole(JUDGED, 1))?;
    let config = LaunchConfig::for_elements(JUDGED, BLOCK as u32);
    Ok(kernel.inspect(config, (&on_a, &mut out, &mut sums, JUDGED as i32))?)
}

/// The first element that is no sum of those up to it, in words. All numbers are whole, so any order gives the same.
fn first_wrong(a: &[f32], given: &[f32]) -> Option<String> {
    let mut sum = 0.0;
    for (at, (own, given)) in a.iter().zip(given).enumerate() {
        let before = sum;
        sum += own;
        if *given != sum {
            let is = match given {
                given if given.is_nan() => "was never written, or is NaN".to_string(),
                given if *given == before => format!("is {given}, the sum without its own element"),
                given => format!("is {given}"),
            };
            return Some(format!("element {at} {is}, and it should be {sum}"));
        }
    }
    None
}

/// More traffic, work or waiting than a scan needs.
fn cost(seen: &Inspection) -> Check {
    let (c, warps) = (&seen.counters, (JUDGED / 32) as u64);
    let least = (JUDGED * 4 / 32) as u64;
    if c.global_load_sectors > least {
        let what = format!(
            "right, but with n = {JUDGED} its loads ask for {} sectors of global memory, and `a` lies in {least}",
            c.global_load_sectors
        );
        return wrong(what, "how many times is each element of `a` read, and by whom?");
    }
    if c.global_atomics > 0 {
        return wrong(
            format!("right, but {} atomic instructions queue up in global memory", c.global_atomics),
            "each block has an element of `sums` of its own: who else writes there?",
        );
    }
    lanes_work(seen, 10.0)?;
    let each = c.thread_instructions as f64 / JUDGED as f64;
    if each > INSTRUCTIONS {
        return wrong(
            format!("right, but each element costs {each:.0} instructions of threads, and {INSTRUCTIONS} are plenty"),
            "count the additions of a block of 256: does their number grow like 256², or more slowly?",
        );
    }
    let what = (c.barriers > BARRIERS * warps)
        .then(|| format!("right, but each warp waits at {} barriers", c.barriers / warps));
    none_wrong(what, "how many steps does it take until an element 255 places away has arrived?")?;
    kernels::shared_out(seen, 0.15)
}

/// What to ask oneself about the first mistake.
fn mistake_hint(error: &Error) -> &'static str {
    let is = |kinds: &[Kind]| kernels::first_is(error, kinds);
    if is(&[Kind::SharedRace]) {
        "one thread reads what another writes in the same step: which of the two must come first, and what makes it wait?"
    } else if is(&[Kind::GlobalRace]) {
        "two threads write one element: compute by hand which elements these two take"
    } else if is(&[Kind::BarrierDivergence, Kind::Deadlock]) {
        "every thread of the block, or every lane of the mask, must come by: also those that have no element"
    } else if is(&[Kind::UninitialisedRead]) {
        "who should have written that word, and had it done so by then? A thread without an element counts too"
    } else {
        "compute the index by hand for that block and thread: does that element exist?"
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::check::kernels::expect;

    /// Hillis and Steele in shared memory.
    const SCAN: &str = "extern \"C\" __global__ void scan(const float *a, float *out, float *sums, int n) {
    __shared__ float x[256];
    int t = threadIdx.x, i = blockIdx.x * 256 + t;
    x[t] = i < n ? a[i] : 0.0f;
    __syncthreads(); // loaded
    for (int d = 1; d < 256; d *= 2) {
        float left = t >= d ? x[t - d] : 0.0f;
        __syncthreads(); // read
        x[t] += left;
        __syncthreads(); // added
    }
    if (i < n) { out[i] = x[t]; }
    if (t == 255) { sums[blockIdx.x] = x[255]; }
}";

    #[test]
    fn other_shapes_pass() {
        // Warps by shuffles, then the warps' sums.
        let shuffles = "extern \"C\" __global__ void scan(const float *a, float *out, float *sums, int n) {
    __shared__ float ends[8];
    int t = threadIdx.x, lane = t % 32, warp = t / 32, i = blockIdx.x * 256 + t;
    float x = i < n ? a[i] : 0.0f;
    for (int d = 1; d < 32; d *= 2) {
        float left = __shfl_up_sync(0xffffffff, x, d);
        if (lane >= d) { x += left; }
    }
    if (lane == 31) { ends[warp] = x; }
    __syncthreads();
    for (int w = 0; w < warp; ++w) { x += ends[w]; }
    if (i < n) { out[i] = x; }
    if (t == 255) { sums[blockIdx.x] = x; }
}";
        assert!(scan(shuffles).passed(), "{}", scan(shuffles).text());
        // Blelloch's tree, up and down.
        let tree = "extern \"C\" __global__ void scan(const float *a, float *out, float *sums, int n) {
    __shared__ float x[256];
    int t = threadIdx.x, i = blockIdx.x * 256 + t;
    float own = i < n ? a[i] : 0.0f;
    x[t] = own;
    __syncthreads();
    for (int d = 1; d < 256; d *= 2) {
        int at = (t + 1) * 2 * d - 1;
        if (at < 256) { x[at] += x[at - d]; }
        __syncthreads();
    }
    if (t == 255) { sums[blockIdx.x] = x[255]; x[255] = 0.0f; }
    __syncthreads();
    for (int d = 128; d > 0; d /= 2) {
        int at = (t + 1) * 2 * d - 1;
        if (at < 256) { float left = x[at - d]; x[at - d] = x[at]; x[at] += left; }
        __syncthreads();
    }
    if (i < n) { out[i] = x[t] + own; }
}";
        assert!(scan(tree).passed(), "{}", scan(tree).text());
    }

    #[test]
    fn wrong_ones_are_told_so() {
        expect(
            scan,
            SCAN,
            &[
                ("__syncthreads(); // loaded", "", "must come first"),
                ("__syncthreads(); // read", "", "must come first"),
                ("__syncthreads(); // added", "", "must come first"),
                ("if (i < n) { out[i] = x[t]; }", "out[i] = x[t];", "does that element exist"),
                ("out[i] = x[t];", "out[i] = x[t] - a[i];", "the sum without its own element"),
                ("d < 256", "d < 128", "the sum of block 0 is"),
                ("d *= 2", "d += 2", "element"),
                ("if (t == 255)", "if (i == n - 1)", "the sum of block 0 was never written"),
                ("= x[255]", "= x[254]", "the sum of block 0 is"),
                ("sums[blockIdx.x] =", "sums[0] =", "two threads write one element"),
                ("i < n ? a[i] : 0.0f", "i < n ? a[i] : 1.0f", "the sum of block 0 is"),
                ("        __syncthreads(); // added", "        if (t < 128) { __syncthreads(); }", "must come first"),
                ("void scan", "void prefix", "no kernel `scan`"),
            ],
        );
    }

    #[test]
    fn cheats_are_told_so() {
        let body = &SCAN[SCAN.find("for (int d").unwrap()..SCAN.find("    if (i < n) { out").unwrap()];
        let with = |new: &str| SCAN.replace(body, new);
        let told = |source: &str, said: &str| {
            let text = scan(source).text();
            assert!(text.starts_with("NOT YET") && text.contains(said), "{said}: {text}");
        };
        // One thread for the block.
        told(
            &with("if (t == 0) { for (int k = 1; k < 256; ++k) { x[k] += x[k - 1]; } } __syncthreads();\n"),
            "lanes are active",
        );
        // One block for all of them.
        let first = SCAN
            .replace(
                "int t = threadIdx.x, i = blockIdx.x * 256 + t;",
                "if (blockIdx.x > 0) { return; }
    for (int block = 0; block < gridDim.x; ++block) {
    int t = threadIdx.x, i = block * 256 + t;",
            )
            .replace("sums[blockIdx.x]", "sums[block]");
        told(&format!("{first}}}"), "the work is not shared out");
        // Everybody adds its predecessors, from shared memory and from global memory.
        told(
            &with(
                "float s = 0.0f; for (int k = 0; k <= t; ++k) { s += x[k]; } __syncthreads(); x[t] = s; __syncthreads();\n",
            ),
            "instructions of threads",
        );
        told(
            &with(
                "float s = 0.0f; for (int k = 0; k <= t && blockIdx.x * 256 + k < n; ++k) { s += a[blockIdx.x * 256 + k]; } x[t] = s; __syncthreads();\n",
            ),
            "sectors of global memory",
        );
        told(&with("x[t] = 1.0f; __syncthreads();\n"), "and it should be");
        told(&with("x[t] = 0.0f / 0.0f; __syncthreads();\n"), "is NaN");
        told(&SCAN.replace("i < n ? a[i]", "i <= n ? a[i]"), "does that element exist");
        told(&SCAN.replace("out[i] = x[t];", "out[i] = x[t]; ((float *)a)[i] = x[t];"), "`a` is no longer");
    }
}
