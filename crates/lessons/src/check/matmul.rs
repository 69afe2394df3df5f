//! Exercises of lesson 12: pieces of a matrix multiplication, run in the simulator, which counts what shared memory serves.

use super::Verdict;
use super::kernels::{self, whole};
use gpulab::error::{Error, Result};
use gpulab::gpu::{Gpu, Kernel};
use gpulab::inspect::{AccessKind, Inspection, Space};
use gpulab::launch::LaunchConfig;
use gpulab::warpsim::Kind;

/// Side of the tiles of `tiled`, and of its blocks.
const TILE: usize = 16;
/// Side of the tiles of `four_rows`, whose blocks have a quarter as many rows of threads.
const WIDE: usize = 32;
/// Rows that a block of `thin` takes, and columns of its matrix.
const ROWS: usize = 128;
const COLUMNS: usize = 8;

/// Rows, columns and the length of the sums: whole tiles first, then sides that are none.
const SHAPES: [(usize, usize, usize); 5] = [(32, 32, 64), (1, 1, 1), (17, 33, 5), (33, 17, 40), (50, 70, 100)];

/// Checks a kernel `tiled(const float *a, const float *b, float *c, int m, int n, int k)`: a matrix product by tiles of 16 × 16 in
/// shared memory, launched with one thread an element.
pub fn tiled(source: &str) -> Verdict {
    const NAME: &str = "tiled";
    let checked = || -> Result<Option<Verdict>> {
        let gpu = Gpu::simulated()?;
        let kernel = gpu.compile(source)?.kernel(NAME)?;
        for shape in SHAPES {
            let config = LaunchConfig::for_table(shape.0, shape.1, (TILE as u32, TILE as u32));
            let seen = match product(&gpu, &kernel, config, shape)? {
                Ok(seen) => seen,
                Err(what) => {
                    let hint =
                        "look at what the threads beyond an edge put into the tiles, and which of them may store";
                    return Ok(Some(Verdict::not_yet(NAME, what, hint)));
                }
            };
            if let Some((what, hint)) = not_by_tiles(&seen, shape) {
                return Ok(Some(Verdict::not_yet(NAME, what, hint)));
            }
        }
        Ok(None)
    };
    verdict(NAME, checked())
}

/// Where tiles do not save what they are there for, and a hint.
fn not_by_tiles(seen: &Inspection, (m, n, k): (usize, usize, usize)) -> Option<(String, &'static str)> {
    let c = &seen.counters;
    let blocks = m.div_ceil(TILE) * n.div_ceil(TILE);
    let (steps, warps) = (k.div_ceil(TILE), TILE * TILE / 32);
    // Each warp loads one number of a and one of b a step.
    let loads = (blocks * steps * warps * 2) as u64;
    if c.global_load_requests > loads {
        let what = format!(
            "with m, n, k = {m}, {n}, {k} warps load from global memory {} times, where {loads} are enough",
            c.global_load_requests
        );
        return Some((what, "the inner loop is to read the tiles alone, as they lie in shared memory"));
    }
    let barriers = (blocks * steps * warps * 2) as u64;
    (c.barriers > barriers).then(|| {
        let what = format!(
            "with m, n, k = {m}, {n}, {k} warps arrive at barriers {} times, where {barriers} are enough",
            c.barriers
        );
        (what, "it is right. Two barriers a tile: one when it is filled, one when all have used it; none in the inner loop")
    })
}

/// Checks a kernel `thin(const float *a, const float *x, float *y, int m)` that computes y = a · x for a matrix of 8 columns, launched
/// with 256 threads for every 128 rows: each sector fetched once, 16 bytes a read of the tile, and no bank conflict.
pub fn thin(source: &str) -> Verdict {
    const NAME: &str = "thin";
    let checked = || -> Result<Option<Verdict>> {
        let gpu = Gpu::simulated()?;
        let kernel = gpu.compile(source)?.kernel(NAME)?;
        for m in [ROWS, 1, 31, 33, 300] {
            let (a, x) = (whole(m * COLUMNS, 1), whole(COLUMNS, 2));
            let (on_a, on_x, mut y) = (gpu.to_device(&a)?, gpu.to_device(&x)?, gpu.poison::<f32>(m)?);
            let config = LaunchConfig::new(m.div_ceil(ROWS) as u32, 256);
            // First as any launch: its mistakes come as an error.
            kernel.launch(config, (&on_a, &on_x, &mut y, m as i32))?;
            let dot = |row: &[f32]| row.iter().zip(&x).map(|(a, x)| a * x).sum();
            let expected: Vec<f32> = a.chunks(COLUMNS).map(dot).collect();
            if let Some(what) = first_wrong(&format!("m = {m}"), 1, &y.to_host()?, &expected) {
                let hint = "row r of column k is tile[k][r], where it is written and where it is read";
                return Ok(Some(Verdict::not_yet(NAME, what, hint)));
            }
            let seen = kernel.inspect(config, (&on_a, &on_x, &mut y, m as i32))?;
            if let Some((what, hint)) = wasteful(&seen, m) {
                return Ok(Some(Verdict::not_yet(NAME, what, hint)));
            }
        }
        Ok(None)
    };
    verdict(NAME, checked())
}

/// Sectors that lie apart, conflicts, and reads that are not wide.
fn wasteful(seen: &Inspection, m: usize) -> Option<(String, &'static str)> {
    let c = &seen.counters;
    let of_a = |line: &&gpulab::inspect::Access| line.space == Space::Global && line.variable == "a";
    if let Some(load) = seen.accesses.iter().filter(of_a).find(|load| load.sectors > 4) {
        let what = format!("with m = {m} one load of `a` touches {} sectors, where 4 would do", load.sectors);
        return Some((
            what,
            "let the lanes read neighbours of `a`, as they did: the conflict is in the shape of the tile",
        ));
    }
    let (loads, stores) = (c.shared_load_bank_conflicts, c.shared_store_bank_conflicts);
    if loads + stores > 0 {
        let what =
            format!("with m = {m} there are {stores} bank conflicts of stores to shared memory, and {loads} of loads");
        if stores == 0 {
            let hint = "now the lanes meet where they read: keep tile[k][r] and the `float4` as they were, and change the \
                        length of the tile's rows alone";
            return Some((what, hint));
        }
        let hint = "word w lies in bank w % 32. A warp stores 4 rows of 8 columns, at word k * (length of a row) + r: \
                    which length puts k = 0 to 7, r = 0 to 3 into 32 banks? It must stay a multiple of 4";
        return Some((what, hint));
    }
    let narrow = |read: &&gpulab::inspect::Access| {
        read.space == Space::Shared && read.kind == AccessKind::Load && read.bytes < 16
    };
    seen.accesses.iter().find(narrow).map(|read| {
        let what = format!("no conflicts, but a lane reads {} bytes of the tile at a time, not 16", read.bytes);
        (what, "keep the `float4`: four times fewer instructions, and the rows' length can serve both sides")
    })
}

/// Checks a kernel `four_rows(const float *a, const float *b, float *c, int m, int n, int k)`: a matrix product by tiles of 32 × 32,
/// launched with blocks of 32 × 8 threads, four elements a thread; at most 5 reads of shared memory for 4 multiply-adds.
pub fn four_rows(source: &str) -> Verdict {
    const NAME: &str = "four_rows";
    let checked = || -> Result<Option<Verdict>> {
        let gpu = Gpu::simulated()?;
        let kernel = gpu.compile(source)?.kernel(NAME)?;
        for shape in SHAPES {
            let mut config = LaunchConfig::for_table(shape.0, shape.1, (WIDE as u32, WIDE as u32));
            config.block = (WIDE as u32, WIDE as u32 / 4, 1);
            let seen = match product(&gpu, &kernel, config, shape)? {
                Ok(seen) => seen,
                Err(what) => {
                    let hint = "a thread has four sums, of rows that are its own: are the rows of its sums those it stores to?";
                    return Ok(Some(Verdict::not_yet(NAME, what, hint)));
                }
            };
            if let Some((what, hint)) = too_many_reads(&seen, shape) {
                return Ok(Some(Verdict::not_yet(NAME, what, hint)));
            }
        }
        Ok(None)
    };
    verdict(NAME, checked())
}

/// More reads a multiply-add than four sums a thread need. Only whole tiles are judged.
fn too_many_reads(seen: &Inspection, (m, n, k): (usize, usize, usize)) -> Option<(String, &'static str)> {
    if [m, n, k].iter().any(|side| !side.is_multiple_of(WIDE)) {
        return None;
    }
    let c = &seen.counters;
    if c.local_load_requests > 0 {
        let what =
            format!("warps load from local memory {} times: the sums do not lie in registers", c.local_load_requests);
        return Some((
            what,
            "an array lies in registers only where each index is known to the compiler: unroll the loop over it",
        ));
    }
    let needed = (m * n * k / WIDE / WIDE * 2) as u64;
    let loads = seen.counters.global_load_requests;
    if loads > needed {
        let what = format!("warps load from global memory {loads} times, where {needed} are enough");
        return Some((
            what,
            "each value is to be loaded once a block: one walk over k in place of four, with four sums in registers, and the inner loop reads the tiles alone",
        ));
    }
    let (reads, multiplied) = (c.shared_load_wavefronts, (m * n * k / 32) as u64);
    // 5 for 4, and a little for a kernel that reads ahead.
    let each = reads as f64 / multiplied as f64;
    if each > 1.3 && c.shared_load_bank_conflicts > 0 {
        let what = format!(
            "{each:.2} turns of shared memory a multiply-add, {} of them conflicts",
            c.shared_load_bank_conflicts
        );
        return Some((
            what,
            "lanes of a warp that read different rows of a tile meet in one bank: let them read one row, or make the rows longer",
        ));
    }
    (each > 1.3).then(|| {
        let what = format!("it is right, and reads shared memory {each:.2} times a multiply-add; 1.25 is to be had");
        (what, "one walk over k in place of four, with four sums in registers: for each i a thread reads its value of b once, and uses it four times")
    })
}

/// What a launch did that multiplied two matrices, or what is wrong with its result.
fn product(
    gpu: &Gpu,
    kernel: &Kernel,
    config: LaunchConfig,
    (m, n, k): (usize, usize, usize),
) -> Result<std::result::Result<Inspection, String>> {
    let (a, b) = (whole(m * k, 1), whole(k * n, 2));
    let (on_a, on_b, mut c) = (gpu.to_device(&a)?, gpu.to_device(&b)?, gpu.poison::<f32>(m * n)?);
    let sides = (m as i32, n as i32, k as i32);
    // First as any launch: its mistakes come as an error.
    kernel.launch(config, (&on_a, &on_b, &mut c, sides.0, sides.1, sides.2))?;
    let given = c.to_host()?;
    let seen = kernel.inspect(config, (&on_a, &on_b, &mut c, sides.0, sides.1, sides.2))?;
    let at = |at: usize| (0..k).map(|i| a[at / n * k + i] * b[i * n + at % n]).sum();
    let expected: Vec<f32> = (0..m * n).map(at).collect();
    Ok(match first_wrong(&format!("m, n, k = {m}, {n}, {k}"), n, &given, &expected) {
        Some(what) => Err(what),
        None => Ok(seen),
    })
}

/// The first element that is not as it should be, in words; NaN never is.
fn first_wrong(with: &str, columns: usize, given: &[f32], expected: &[f32]) -> Option<String> {
    let at = given.iter().zip(expected).position(|(given, expected)| given != expected)?;
    let count = given.iter().zip(expected).filter(|(given, expected)| given != expected).count();
    let is = if given[at].is_nan() { "was never written".to_string() } else { format!("is {}", given[at]) };
    let (row, column, all) = (at / columns, at % columns, expected.len());
    let place = if columns > 1 { format!("row {row}, column {column}") } else { format!("row {row}") };
    Some(format!("with {with}: {place} {is}, and it should be {}; {count} of {all} are wrong", expected[at]))
}

fn verdict(name: &str, checked: Result<Option<Verdict>>) -> Verdict {
    kernels::verdict(name, checked, mistake_hint)
}

/// What to ask oneself about the first mistake of threads that share tiles.
fn mistake_hint(error: &Error) -> &'static str {
    let is = |kinds: &[Kind]| kernels::first_is(error, kinds);
    if is(&[Kind::SharedRace]) && reads_too_early(error) {
        "a thread reads what another one has perhaps not written yet: all must have filled the tiles before anyone reads them. \
         Where must they wait for each other?"
    } else if is(&[Kind::SharedRace]) {
        "a thread writes where another one perhaps still reads: a tile is filled, then used by all, and only then filled \
         anew. Where must they wait for each other?"
    } else if is(&[Kind::UninitialisedRead]) {
        "another thread of the block writes that word of the tile: all must have written before anyone reads, and none \
         may `return` before: one whose element does not exist puts a zero there"
    } else if is(&[Kind::BarrierDivergence, Kind::Deadlock]) {
        "every thread of the block must come by the barrier, also one whose element does not exist"
    } else if is(&[Kind::GlobalRace]) {
        "two threads write one element of the result: which rows are this thread's, and which its neighbour's?"
    } else if is(&[Kind::StepBudget]) {
        "what ends the loop, and does each step come nearer to it?"
    } else if is(&[Kind::Misaligned]) {
        "16 bytes are read at multiples of 16: so a row of the tile has a length that is a multiple of 4 floats"
    } else {
        "do the sum for that block and thread by hand: which element is its own, and does it exist?"
    }
}

/// Whether a race is one of a thread that reads what another wrote. The others are of threads that write too early.
fn reads_too_early(error: &Error) -> bool {
    let Error::Mistakes { shown, .. } = error else { return false };
    shown.iter().flat_map(|mistake| &mistake.what).any(|what| what.starts_with("reads"))
}

#[cfg(test)]
mod tests;
