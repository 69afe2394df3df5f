//! Exercises of lesson 15: a filter that is repaired and a group-by from a blank page, run in the simulator, which counts what each
//! warp asks of memory.

use super::Verdict;
use super::judged::{loads_shared, unchanged};
use super::kernels;
use super::verdict::{Check, none_wrong, verdict, wrong};
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
        let hint = "each kept fare counts once: what does one warp add to the counter?";
        return wrong(what, hint);
    }
    let mut given = out.to_host()?[..counted].to_vec();
    if let Some(at) = given.iter().position(|&fare| fare == u32::MAX) {
        let what = format!("with n = {n} place {at} of the {counted} was never written");
        let hint = "two lanes have one place, or a place is passed over: how many kept fares come before a lane's own in its warp?";
        return wrong(what, hint);
    }
    given.sort_unstable();
    expected.sort_unstable();
    let differ = given.iter().zip(&expected).find(|(given, expected)| given != expected).map(|(given, expected)| {
        format!("with n = {n} there is {given} where {expected} should be, both in rising order")
    });
    none_wrong(differ, "a lane stores its own fare, and only if that is at least 200")
}

/// Where lanes of a warp go to the counter one by one, or warps have nothing to do, and a hint.
fn one_by_one(gpu: &Gpu, kernel: &Kernel) -> Check {
    let n = 1024;
    let before = vec![LEAST; n];
    let (cents, mut out, mut count) = (gpu.to_device(&before)?, gpu.poison::<u32>(n)?, gpu.zeros::<u32>(1)?);
    for (block, warp) in [(0, 0), (3, 7)] {
        count.copy_from(&[0])?;
        let config = LaunchConfig::for_elements(n, BLOCK);
        let seen = kernel.inspect_warp(config, (&cents, &mut out, &mut count, n as i32), (block, 0, 0), warp)?;
        let lanes = |access: &gpulab::inspect::Access| access.offsets.iter().flatten().count();
        let most =
            seen.accesses.iter().filter(|access| access.kind == AccessKind::Atomic).map(lanes).max().unwrap_or(0);
        if most > 1 {
            let what = format!("it is right; but {most} lanes of one warp add to one counter, one after the other");
            let hint = "a warp can count its own kept fares without memory, and ask the counter for all their places at once: \
                        the listing of `keep` above begins so";
            return wrong(what, hint);
        }
        loads_shared(&seen, n / 1024, n / 16)?;
    }
    unchanged("cents", &cents, &before)
}

/// Checks a kernel `group(const unsigned *zone, const unsigned *cents, unsigned long long *sums, unsigned *rides, int n)` that adds
/// each fare to the sum of its zone, 0 to 63, and counts its rides; sums and counts are 0 before. It is launched with 4 blocks
/// of 256 threads, whatever `n` is. A sum may need more than 32 bits.
pub fn group_by_zone(source: &str) -> Verdict {
    kernels::verdict("group_by_zone", source, "group", mistake_hint, |gpu, kernel| {
        for n in [1, 31, 33, 1000, 5000, 40_003] {
            grouped(gpu, kernel, &format!("n = {n}"), random(n, ZONES, 1), random(n, 5000, 2))?;
        }
        let (n, far) = (100_003, ZONES as u32 - 1);
        grouped(gpu, kernel, "all rides in one zone, at 2,500 each", vec![far; n], vec![250_000; n])?;
        let n = 40_003;
        for (block, warp) in [(0, 0), (BLOCKS - 1, BLOCK / 32 - 1)] {
            economical(gpu, kernel, n, block, warp)?;
        }
        Ok(())
    })
}

fn grouped(gpu: &Gpu, kernel: &Kernel, case: &str, zone: Vec<u32>, cents: Vec<u32>) -> Check {
    let n = zone.len();
    let (on_zone, on_cents) = (gpu.to_device(&zone)?, gpu.to_device(&cents)?);
    let (mut sums, mut rides) = (gpu.zeros::<u64>(ZONES)?, gpu.zeros::<u32>(ZONES)?);
    kernel.launch(LaunchConfig::new(BLOCKS, BLOCK), (&on_zone, &on_cents, &mut sums, &mut rides, n as i32))?;
    let mut expected = vec![(0u64, 0u64); ZONES];
    for (&zone, &cents) in zone.iter().zip(&cents) {
        expected[zone as usize].0 += u64::from(cents);
        expected[zone as usize].1 += 1;
    }
    let (sums, rides) = (sums.to_host()?, rides.to_host()?);
    for (at, (sum, count)) in expected.into_iter().enumerate() {
        wrong_number(case, at, "rides", u64::from(rides[at]), count)?;
        wrong_number(case, at, "cents", sums[at], sum)?;
    }
    unchanged("zone", &on_zone, &zone)?;
    unchanged("cents", &on_cents, &cents)
}

fn wrong_number(case: &str, zone: usize, what: &str, given: u64, expected: u64) -> Check {
    if given == expected {
        return Ok(());
    }
    let lost = expected.wrapping_sub(given);
    let hint = match given {
        0 => "nothing arrived there: follow one ride of that zone through the kernel",
        // Whole multiples of 2³².
        _ if lost.is_multiple_of(1 << 32) && lost < 1 << 40 => {
            "what is missing is a multiple of 4,294,967,296: which number on the way to the sum is too narrow for it?"
        }
        given if given < expected => {
            "some rides are missing: which of them does no thread come to, or who overwrites whom?"
        }
        _ => "some rides are in there more than once: who else adds the same?",
    };
    wrong(format!("with {case}: zone {zone} has {given} {what}, and it should have {expected}"), hint)
}

/// What a right kernel asks of the GPU's memory.
fn economical(gpu: &Gpu, kernel: &Kernel, n: usize, block: u32, warp: u32) -> Check {
    let (zone, cents) = (gpu.to_device(&random(n, ZONES, 1))?, gpu.to_device(&vec![1u32; n])?);
    let (mut sums, mut rides) = (gpu.zeros::<u64>(ZONES)?, gpu.zeros::<u32>(ZONES)?);
    let config = LaunchConfig::new(BLOCKS, BLOCK);
    let seen = kernel.inspect_warp(config, (&zone, &cents, &mut sums, &mut rides, n as i32), (block, 0, 0), warp)?;
    // Two results of each zone and block, and each zone's by an instruction of its own: a warp's lanes can do 32 at once.
    let (most, asked) = (u64::from(2 * BLOCKS) * ZONES as u64, seen.counters.global_atomics);
    if asked > most {
        let what = format!(
            "it is right; but with n = {n} its warps send {asked} atomic instructions to the sums in global memory, and {most} \
             would be plenty"
        );
        return wrong(what, "there are 64 zones and 4 blocks: how often must a block tell all others what it has?");
    }
    // Two columns, of which a part of a row's load serves four rides.
    let part = n / 32 / (BLOCKS * BLOCK / 32) as usize;
    loads_shared(&seen, part / 4, 8 * part)?;
    let bytes = 32 * seen.counters.global_load_sectors;
    let what = format!("it is right; but it loads {bytes} bytes, where the two columns have {}", 8 * n);
    none_wrong(
        (bytes > 16 * n as u64).then_some(what),
        "which rides do the 32 lanes of a warp read in the same moment?",
    )?;
    Ok(())
}

/// Checks a number found on paper: the bytes that lesson 15a's masked mean moves for a million rows, operation by operation.
pub fn pass_bytes(answer: u64) -> Verdict {
    verdict("pass_bytes", || {
        const ROWS: u64 = 1_000_000;
        // ge, le, product of masks, to_dtype, product, two sums.
        let right = ROWS * (5 + 5 + 3 + 5 + 12 + 8);
        let hint = match answer {
            _ if answer == right => return Ok(()),
            0 => "begin with `ge`: 4 bytes are read for each row, and how many are written?",
            _ if answer == right / ROWS => "that is one row's",
            _ if answer == ROWS * 8 => {
                "that is a kernel that knows all of it; here each operation reads its inputs, and writes its output"
            }
            _ if answer == ROWS * 30 => "the two sums read whole columns, too",
            _ if answer == ROWS * 27 => "what one operation writes the next one has to read: count the writes as well",
            _ if answer == ROWS * (8 + 8 + 12 + 8 + 12 + 8) => "a mask has one byte a row, not four",
            _ if answer == ROWS * 34 => "the product of two columns reads both of them",
            _ => "a table helps: an operation a line, bytes read, bytes written",
        };
        wrong(format!("{answer} bytes are not what is moved"), hint)
    })
}

/// What to ask oneself about the first mistake of threads that share a place.
fn mistake_hint(error: &Error) -> &'static str {
    let is = |kinds: &[Kind]| kernels::first_is(error, kinds);
    if is(&[Kind::GlobalRace]) {
        "two threads read and write one number in memory, and one is forgotten: which instruction reads, adds and writes as one?"
    } else if is(&[Kind::SharedRace]) && kernels::two_write(error) {
        "threads of a block add to one word of shared memory: between the read and the write of one, another one comes"
    } else if is(&[Kind::SharedRace]) {
        "one of the two lines must be done by all threads before any thread begins with the other: \
         that is where a __syncthreads() belongs"
    } else if is(&[Kind::UninitialisedRead]) {
        "nobody has set that word: shared memory begins with anything"
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

    const GROUP: &str = "extern \"C\" __global__ void group(const unsigned *zone, const unsigned *cents, unsigned long long *sums, unsigned *rides, int n) {
    __shared__ unsigned long long own[64];
    __shared__ unsigned count[64];
    if (threadIdx.x < 64) { own[threadIdx.x] = 0; count[threadIdx.x] = 0; }
    __syncthreads(); // all are 0
    for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x) {
        atomicAdd(&own[zone[i]], (unsigned long long)cents[i]);
        atomicAdd(&count[zone[i]], 1u);
    }
    __syncthreads(); // all are added
    if (threadIdx.x < 64) { atomicAdd(&sums[threadIdx.x], own[threadIdx.x]); atomicAdd(&rides[threadIdx.x], count[threadIdx.x]); }
}";

    /// A group-by whose body is this.
    fn group(body: &str) -> String {
        let end = GROUP.find('{').unwrap();
        format!("{}{{\n{body}\n}}", &GROUP[..end])
    }

    fn red(verdict: Verdict, said: &str) {
        let text = verdict.text();
        assert!(text.starts_with("NOT YET") && text.contains(said), "`{said}` is not said: {text}");
    }

    #[test]
    fn keep_fares_knows_its_mistakes() {
        expect(
            keep_fares,
            KEEP,
            &[
                (
                    "first = atomicAdd(count, __popc(ballot));",
                    "first = *count; *count += __popc(ballot);",
                    "one is forgotten",
                ),
                ("__popc(ballot & ((1u << lane) - 1))", "lane", "was never written"),
                ("__popc(ballot & ((1u << lane) - 1))", "0", "two threads"),
                ("i < n && cents", "cents", "does it exist"),
                ("cents[i] >= 200", "cents[i] > 300", "fares are to be kept"),
                ("atomicAdd(count, __popc(ballot))", "atomicAdd(count, 32)", "each kept fare counts once"),
                ("] = cents[i]", "] = i", "stores its own fare"),
                ("__global__ void keep", "__global__ void kept", "no kernel `keep`"),
            ],
        );
        let keep = |body: &str| format!("{}{{\n{body}\n}}", &KEEP[..KEEP.find('{').unwrap()]);
        let each = "int i = blockIdx.x * blockDim.x + threadIdx.x;
        if (i < n && cents[i] >= 200) { out[atomicAdd(count, 1)] = cents[i]; }";
        red(keep_fares(&keep(each)), "it is right; but 32 lanes of one warp");
        let alone = "if (blockIdx.x == 0 && threadIdx.x == 0) { for (int i = 0; i < n; ++i) if (cents[i] >= 200) out[atomicAdd(count, 1)] = cents[i]; }";
        red(keep_fares(&keep(alone)), "a fair part is at most");
        let volatile = KEEP.replace(
            "first = atomicAdd(count, __popc(ballot));",
            "first = *(volatile unsigned*)count; *(volatile unsigned*)count = first + __popc(ballot);",
        );
        red(keep_fares(&volatile), "lost update");
        let constant = keep("if (blockIdx.x == 0 && threadIdx.x == 0) { count[0] = 1; out[0] = 200; }");
        red(keep_fares(&constant), "with n = ");
    }

    #[test]
    fn group_by_zone_knows_its_mistakes() {
        expect(
            group_by_zone,
            GROUP,
            &[
                ("__syncthreads(); // all are 0", "", "a __syncthreads() belongs"),
                ("__syncthreads(); // all are added", "", "a __syncthreads() belongs"),
                ("own[threadIdx.x] = 0;", "", "begins with anything"),
                ("atomicAdd(&count[zone[i]], 1u)", "count[zone[i]] += 1u", "shared memory"),
                (
                    "atomicAdd(&rides[threadIdx.x], count[threadIdx.x])",
                    "rides[threadIdx.x] += count[threadIdx.x]",
                    "one is forgotten",
                ),
                (
                    "if (threadIdx.x < 64) { atomicAdd(&sums",
                    "if (threadIdx.x < 32) { atomicAdd(&sums",
                    "nothing arrived there",
                ),
                ("i += gridDim.x * blockDim.x", "i += n", "some rides are missing"),
                ("(unsigned long long)cents[i]", "2ull * cents[i]", "more than once"),
                ("__shared__ unsigned long long own[64];", "__shared__ unsigned own[64];", ""),
                ("i < n;", "i <= n;", "does it exist"),
            ],
        );
        // Sums of 32 bits.
        let narrow = GROUP
            .replace("unsigned long long own[64]", "unsigned own[64]")
            .replace("(unsigned long long)cents[i]", "cents[i]");
        let narrow = narrow.replace("own[threadIdx.x]);", "(unsigned long long)own[threadIdx.x]);");
        red(group_by_zone(&narrow), "too narrow");
        let volatile = GROUP
            .replace("atomicAdd(&sums[threadIdx.x], own", "add(&sums[threadIdx.x], own")
            .replace("atomicAdd(&rides[threadIdx.x], count", "add(&rides[threadIdx.x], count");
        let volatile =
            format!("template <class T> __device__ void add(volatile T *to, T x) {{ *to = *to + x; }}\n{volatile}");
        red(group_by_zone(&volatile), "lost update");
        // Straight to global memory.
        let common = "for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x) {
            atomicAdd(&sums[zone[i]], (unsigned long long)cents[i]); atomicAdd(&rides[zone[i]], 1u); }";
        red(group_by_zone(&group(common)), "it is right; but with n = 40003");
        // One thread does all, and one warp.
        let alone = "if (blockIdx.x == 0 && threadIdx.x == 0) { unsigned long long own[64]; unsigned count[64];
            for (int z = 0; z < 64; ++z) { own[z] = 0; count[z] = 0; }
            for (int i = 0; i < n; ++i) { own[zone[i]] += cents[i]; count[zone[i]] += 1; }
            for (int z = 0; z < 64; ++z) { sums[z] = own[z]; rides[z] = count[z]; } }";
        red(group_by_zone(&group(alone)), "a fair part is at most");
        let warp = GROUP.replace(
            "int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x",
            "int i = threadIdx.x + (blockIdx.x == 0 && threadIdx.x < 32 ? 0 : n); i < n; i += 32",
        );
        red(group_by_zone(&warp), "a fair part is at most");
        // A thread for each zone, which reads all rides.
        let zones = "int z = blockIdx.x * blockDim.x + threadIdx.x;
            if (z < 64) { unsigned long long own = 0; unsigned count = 0;
            for (int i = 0; i < n; ++i) { if (zone[i] == z) { own += cents[i]; count += 1; } } sums[z] = own; rides[z] = count; }";
        red(group_by_zone(&group(zones)), "a fair part is at most");
        // Each thread reads rides that lie one after the other.
        let apart = GROUP.replace("for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x)",
            "int each = (n + 1023) / 1024, first = (blockIdx.x * blockDim.x + threadIdx.x) * each; for (int i = first; i < n && i < first + each; ++i)");
        red(group_by_zone(&apart), "the two columns have");
        // Inputs as a notebook, constants, a neighbour's memory.
        let spoils = GROUP
            .replace("atomicAdd(&count[zone[i]], 1u);", "atomicAdd(&count[zone[i]], 1u); ((unsigned *)cents)[i] = 0;");
        red(group_by_zone(&spoils), "no longer what it was");
        red(
            group_by_zone(&group(
                "if (threadIdx.x < 64 && blockIdx.x == 0) { sums[threadIdx.x] = 5000; rides[threadIdx.x] = 1; }",
            )),
            "zone 0 has",
        );
        red(group_by_zone(&group("sums[64 + threadIdx.x] = 1;")), "does it exist");
        let again =
            GROUP.replace("__shared__ unsigned count[64];", "__shared__ unsigned count[64]; if (n == 0) return;");
        assert!(group_by_zone(&again).passed(), "{}", group_by_zone(&again).text());
    }

    #[test]
    fn bytes_on_paper() {
        assert!(pass_bytes(38_000_000).passed());
        let wrong = [
            (0, "begin with `ge`"),
            (38, "one row's"),
            (8_000_000, "knows all of it"),
            (30_000_000, "two sums"),
            (27_000_000, "count the writes"),
            (56_000_000, "one byte"),
            (34_000_000, "reads both"),
            (1, "a table helps"),
        ];
        wrong.into_iter().for_each(|(answer, said)| red(pass_bytes(answer), said));
    }
}
