//! Exercises of lesson 15: a filter and a group-by, run in the simulator, which counts who takes turns.

use super::Verdict;
use super::kernels;
use super::verdict::{Check, none_wrong, wrong};
use gpulab::cpu;
use gpulab::error::Error;
use gpulab::gpu::{Gpu, Kernel};
use gpulab::inspect::AccessKind;
use gpulab::launch::LaunchConfig;
use gpulab::warpsim::Kind;

const BLOCK: u32 = 256;
/// Fares below this many cents go.
const LEAST: u32 = 200;
/// Zones of the group-by, and the blocks that it is launched with.
const ZONES: usize = 64;
const BLOCKS: u32 = 4;

/// Checks a kernel `keep(const unsigned *cents, unsigned *out, unsigned *count, int n)` that leaves the fares of at least 200 cents
/// in `out`, side by side and in any order, and how many there are in `count[0]`, which is 0 before. Launched with at least one
/// thread an element; a warp may go to the counter once.
pub fn keep_fares(source: &str) -> Verdict {
    kernels::verdict("keep_fares", source, "keep", mistake_hint, |gpu, kernel| {
        for n in [1, 31, 33, 256, 1000, 5000] {
            wrong_fares(gpu, kernel, n)?;
        }
        one_by_one(gpu, kernel)
    })
}

/// Whole numbers below `most`, random.
fn random(n: usize, most: usize, seed: u64) -> Vec<u32> {
    cpu::random_f32(n, seed).into_iter().map(|x| ((x + 1.0) / 2.0 * most as f32) as u32).collect()
}

fn wrong_fares(gpu: &Gpu, kernel: &Kernel, n: usize) -> Check {
    // A third is below the limit, and none is there twice: each keeps its row's number.
    let cents: Vec<u32> = random(n, 600, n as u64).into_iter().enumerate().map(|(i, x)| x + 1000 * i as u32).collect();
    let cents: Vec<u32> = cents.into_iter().map(|x| if x % 1000 < LEAST { x % LEAST } else { x }).collect();
    let (on_cents, mut out, mut count) = (gpu.to_device(&cents)?, gpu.poison::<u32>(n)?, gpu.zeros::<u32>(1)?);
    kernel.launch(LaunchConfig::for_elements(n, BLOCK), (&on_cents, &mut out, &mut count, n as i32))?;
    let mut expected: Vec<u32> = cents.into_iter().filter(|&fare| fare >= LEAST).collect();
    let counted = count.to_host()?[0] as usize;
    if counted != expected.len() {
        let what = format!("with n = {n} the count is {counted}, and {} fares are to be kept", expected.len());
        let hint = "each kept fare counts once: of a warp, __popc counts the ones of its ballot";
        return wrong(what, hint);
    }
    let mut given = out.to_host()?[..counted].to_vec();
    if let Some(at) = given.iter().position(|&fare| fare == u32::MAX) {
        let what = format!("with n = {n} place {at} of the {counted} was never written");
        let hint = "two lanes have one place, or a place is passed over: lane l comes after the kept lanes below it, which are \
                    __popc(ballot & ((1u << l) - 1))";
        return wrong(what, hint);
    }
    given.sort_unstable();
    expected.sort_unstable();
    let differ = given.iter().zip(&expected).find(|(given, expected)| given != expected).map(|(given, expected)| {
        format!("with n = {n} there is {given} where {expected} should be, both in rising order")
    });
    none_wrong(differ, "a lane stores its own fare, and only if that is at least 200")
}

/// Where lanes of a warp go to the counter one by one, and a hint.
fn one_by_one(gpu: &Gpu, kernel: &Kernel) -> Check {
    let n = 1024;
    let cents = vec![LEAST; n];
    let (cents, mut out, mut count) = (gpu.to_device(&cents)?, gpu.poison::<u32>(n)?, gpu.zeros::<u32>(1)?);
    let seen = kernel.inspect(LaunchConfig::for_elements(n, BLOCK), (&cents, &mut out, &mut count, n as i32))?;
    let lanes = |access: &gpulab::inspect::Access| access.offsets.iter().flatten().count();
    let most = seen.accesses.iter().filter(|access| access.kind == AccessKind::Atomic).map(lanes).max().unwrap_or(0);
    if most > 1 {
        let what = format!("it is right; but {most} lanes of one warp go to one counter, and take turns there");
        let hint = "let the lanes count themselves first: __ballot_sync(0xffffffff, stays) has a bit for each. Then lane 0 alone calls \
                    atomicAdd with their number, and __shfl_sync gives the others what it returned";
        return wrong(what, hint);
    }
    Ok(())
}

/// Checks a kernel `group(const unsigned *zone, const unsigned *cents, unsigned *sums, int n)` that adds each fare to the sum of its
/// zone, 0 to 63; the sums are 0 before. It is launched with 4 blocks of 256 threads, whatever `n` is, and each block may go to
/// the common sums once for each zone.
pub fn sums_by_zone(source: &str) -> Verdict {
    kernels::verdict("sums_by_zone", source, "group", mistake_hint, |gpu, kernel| {
        let config = LaunchConfig::new(BLOCKS, BLOCK);
        for n in [1, 31, 33, 1000, 5000, 40_003] {
            let (zone, cents) = (random(n, ZONES, 1), random(n, 5000, 2));
            let (on_zone, on_cents) = (gpu.to_device(&zone)?, gpu.to_device(&cents)?);
            let mut sums = gpu.zeros::<u32>(ZONES)?;
            kernel.launch(config, (&on_zone, &on_cents, &mut sums, n as i32))?;
            let mut expected = vec![0; ZONES];
            zone.iter().zip(&cents).for_each(|(&zone, &cents)| expected[zone as usize] += cents);
            wrong_sum(n, &sums.to_host()?, &expected)?;
        }
        let n = 40_003;
        let (zone, cents) = (gpu.to_device(&random(n, ZONES, 1))?, gpu.to_device(&vec![1u32; n])?);
        let mut sums = gpu.zeros::<u32>(ZONES)?;
        let seen = kernel.inspect(config, (&zone, &cents, &mut sums, n as i32))?;
        // An instruction of a warp serves up to 32 zones; with fewer lanes it is more of them, so this is generous.
        let most = u64::from(BLOCKS) * ZONES as u64;
        let asked = seen.counters.global_atomics;
        if asked > most {
            let what = format!(
                "it is right; but with n = {n} its warps send {asked} atomic instructions to the common sums, and {most} would be plenty"
            );
            let hint = "give each block sums of its own: __shared__ unsigned own[64], set to 0 by all, added to with atomicAdd, and handed \
                        over at the end, by one thread a zone";
            return wrong(what, hint);
        }
        Ok(())
    })
}

fn wrong_sum(n: usize, given: &[u32], expected: &[u32]) -> Check {
    let Some(at) = (0..ZONES).find(|&at| given[at] != expected[at]) else { return Ok(()) };
    let (given, expected) = (given[at], expected[at]);
    let hint = match given {
        0 => {
            "nothing arrived there: does each block add all its own sums to the common ones at the end, all 64 of them?"
        }
        given if given < expected => {
            "some fares are missing: does the loop go on to i + gridDim.x * blockDim.x, and is each hand-over an atomicAdd?"
        }
        _ => "some fares are in there more than once: one thread hands a zone over, and only once",
    };
    wrong(format!("with n = {n} zone {at} has {given} cents, and it should have {expected}"), hint)
}

/// What to ask oneself about the first mistake of threads that share a place.
fn mistake_hint(error: &Error) -> &'static str {
    let is = |kinds: &[Kind]| kernels::first_is(error, kinds);
    if is(&[Kind::GlobalRace]) {
        "two threads read and write one number in memory, and one of them is forgotten: atomicAdd makes them take turns"
    } else if is(&[Kind::SharedRace]) && kernels::two_write(error) {
        "threads of a block add to one word of shared memory: there too it takes atomicAdd"
    } else if is(&[Kind::SharedRace]) {
        "one of the two lines must be done by all threads before any thread begins with the other: \
         that is where a __syncthreads() belongs"
    } else if is(&[Kind::UninitialisedRead]) {
        "nobody has set that word: shared memory begins with anything, so the block sets its sums to 0 first"
    } else if is(&[Kind::BarrierDivergence, Kind::Deadlock]) {
        "every lane of the mask, or every thread of the block, must come by: no return and no `if` before it that only some take"
    } else {
        "compute the place by hand for that block and thread: does it exist?"
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::check::kernels::expect;

    const KEEP: &str =
        "extern \"C\" __global__ void keep(const unsigned *cents, unsigned *out, unsigned *count, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x, lane = threadIdx.x % 32;
    bool stays = i < n && cents[i] >= 200;
    unsigned ballot = __ballot_sync(0xffffffff, stays), first = 0;
    if (lane == 0) { first = atomicAdd(count, __popc(ballot)); }
    first = __shfl_sync(0xffffffff, first, 0);
    if (stays) { out[first + __popc(ballot & ((1u << lane) - 1))] = cents[i]; }
}";

    const GROUP: &str =
        "extern \"C\" __global__ void group(const unsigned *zone, const unsigned *cents, unsigned *sums, int n) {
    __shared__ unsigned own[64];
    if (threadIdx.x < 64) { own[threadIdx.x] = 0; }
    __syncthreads(); // all are 0
    for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x) {
        atomicAdd(&own[zone[i]], cents[i]);
    }
    __syncthreads(); // all are added
    if (threadIdx.x < 64) { atomicAdd(&sums[threadIdx.x], own[threadIdx.x]); }
}";

    #[test]
    fn keep_fares_knows_its_mistakes() {
        expect(
            keep_fares,
            KEEP,
            &[
                (
                    "first = atomicAdd(count, __popc(ballot));",
                    "first = *count; *count += __popc(ballot);",
                    "atomicAdd makes them",
                ),
                ("__popc(ballot & ((1u << lane) - 1))", "lane", "was never written"),
                ("__popc(ballot & ((1u << lane) - 1))", "0", "two threads"),
                ("i < n && cents", "cents", "does it exist"),
                ("cents[i] >= 200", "cents[i] > 300", "fares are to be kept"),
                ("atomicAdd(count, __popc(ballot))", "atomicAdd(count, 32)", "__popc counts"),
                ("] = cents[i]", "] = i", "stores its own fare"),
                ("__global__ void keep", "__global__ void kept", "no kernel `keep`"),
            ],
        );
        let each = "extern \"C\" __global__ void keep(const unsigned *cents, unsigned *out, unsigned *count, int n) {
        int i = blockIdx.x * blockDim.x + threadIdx.x;
        if (i < n && cents[i] >= 200) { out[atomicAdd(count, 1)] = cents[i]; }
    }";
        let text = keep_fares(each).text();
        assert!(text.contains("it is right; but 32 lanes of one warp") && text.contains("__ballot_sync"), "{text}");
    }

    #[test]
    fn sums_by_zone_knows_its_mistakes() {
        expect(
            sums_by_zone,
            GROUP,
            &[
                ("__syncthreads(); // all are 0", "", "a __syncthreads() belongs"),
                ("__syncthreads(); // all are added", "", "a __syncthreads() belongs"),
                ("own[threadIdx.x] = 0;", "", "begins with anything"),
                ("atomicAdd(&own[zone[i]], cents[i])", "own[zone[i]] += cents[i]", "shared memory"),
                (
                    "atomicAdd(&sums[threadIdx.x], own[threadIdx.x])",
                    "sums[threadIdx.x] += own[threadIdx.x]",
                    "take turns",
                ),
                (
                    "{ atomicAdd(&sums[threadIdx.x]",
                    "if (threadIdx.x < 32) { atomicAdd(&sums[threadIdx.x]",
                    "all 64 of them",
                ),
                ("i += gridDim.x * blockDim.x", "i += n", "some fares are missing"),
                ("atomicAdd(&own[zone[i]], cents[i])", "atomicAdd(&own[zone[i]], 2 * cents[i])", "more than once"),
            ],
        );
        let common = "extern \"C\" __global__ void group(const unsigned *zone, const unsigned *cents, unsigned *sums, int n) {
        for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x) { atomicAdd(&sums[zone[i]], cents[i]); }
    }";
        let text = sums_by_zone(common).text();
        assert!(text.contains("it is right; but with n = 40003") && text.contains("sums of its own"), "{text}");
    }
}
