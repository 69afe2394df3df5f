//! A matrix transposed by a kernel in Rust, from a blank page.

use crate::check::Verdict;
use crate::check::judged::{lanes_work, unchanged, warp_shares};
use crate::check::kernels::{self, first_wrong};
use crate::check::verdict::{Check, ask_timed, none_told, none_wrong, told};
use gpulab::cpu;
use gpulab::error::Error;
use gpulab::gpu::{Gpu, Kernel};
use gpulab::inspect::Inspection;
use gpulab::launch::{LaunchConfig, Source};
use gpulab::warpsim::Kind;

/// Rows and columns: single ones, a warp and its neighbours, whole tiles, and tiles cut on both sides.
const SHAPES: [(usize, usize); 7] = [(1, 1), (1, 33), (33, 1), (31, 65), (64, 64), (100, 201), JUDGED];
/// Where traffic and shares are judged: whole tiles of any usual size.
const JUDGED: (usize, usize) = (256, 512);
/// So many times the least a side may ask for.
const MOST: f64 = 1.3;
/// Stores of one warp at most: a tile of 32 × 32 for each 256 threads is 4, one warp for such a tile 32.
const SHARE: usize = 64;

/// Checks a kernel in Rust, `transpose(a: *const f32, out: *mut f32, rows: u32, columns: u32)`: `a` has `rows` rows of `columns`
/// numbers, and `out` gets `columns` rows of `rows`. The launch goes with it.
pub fn transpose(source: &str, launch: fn(usize, usize) -> LaunchConfig) -> Verdict {
    kernels::verdict("transpose", source, "transpose", mistake_hint, |gpu, kernel| {
        none_told(
            (!Source::text(source).is_rust()).then(|| "this kernel is CUDA C".to_string()),
            "the exercise asks for one in Rust",
            "begin with `use gpulab_device::*;` and a function `extern \"ptx-kernel\"`, as in part 1",
        )?;
        for (rows, columns) in SHAPES {
            let config = ask_timed(&format!("{rows} rows, {columns} columns"), move || launch(rows, columns))?;
            let seen = transposed(gpu, kernel, config, (rows, columns), ((0, 0, 0), 0))?;
            if (rows, columns) == JUDGED {
                lanes_work(&seen, 16.0)?;
                traffic(&seen)?;
                warp_shares(&seen, SHARE)?;
                // The last block's first warp has a part, too: the grid fits the matrix.
                let last = (config.grid.0 - 1, config.grid.1 - 1, config.grid.2 - 1);
                if last != (0, 0, 0) {
                    warp_shares(&transposed(gpu, kernel, config, JUDGED, (last, 0))?, SHARE)?;
                }
            }
        }
        // What a release build does not ask: indices of slices, the launch's dimensions, overflow.
        let checked = gpu.compile(Source::text(source).checked())?.kernel("transpose")?;
        for (rows, columns) in [(31, 65), (64, 64)] {
            drop(transposed(gpu, &checked, launch(rows, columns), (rows, columns), ((0, 0, 0), 0))?);
        }
        Ok(())
    })
}

/// What the launch did, or what is wrong with its result.
fn transposed(
    gpu: &Gpu,
    kernel: &Kernel,
    config: LaunchConfig,
    (rows, columns): (usize, usize),
    (block, warp): ((u32, u32, u32), u32),
) -> Check<Inspection> {
    let a = cpu::random_f32(rows * columns, 17 + rows as u64);
    let (on_a, mut out) = (gpu.to_device(&a)?, gpu.poison::<f32>(rows * columns)?);
    // First as any launch: its mistakes come as an error.
    kernel.launch(config, (&on_a, &mut out, rows as u32, columns as u32))?;
    let expected: Vec<f32> = (0..rows * columns).map(|at| a[at % rows * columns + at / rows]).collect();
    let place = |at: usize| format!("row {}, column {} of `out`", at / rows, at % rows);
    let with = format!("{rows} rows, {columns} columns");
    none_told(
        first_wrong(&with, &out.to_host()?, &expected, place),
        "row r, column c of `a` goes to row c, column r of `out`, whose rows are as long as `a` has rows",
        "write down for that element: which thread has it, where did it read it, where should it write it?",
    )?;
    unchanged("a", &on_a, &a)?;
    Ok(kernel.inspect_warp(config, (&on_a, &mut out, rows as u32, columns as u32), block, warp)?)
}

/// Sectors asked for on both sides, and what shared memory serves one after the other.
fn traffic(seen: &Inspection) -> Check {
    let c = &seen.counters;
    let least = (JUDGED.0 * JUDGED.1 * 4 / 32) as f64;
    for (what, sectors) in [("loads", c.global_load_sectors), ("stores", c.global_store_sectors)] {
        let times = sectors as f64 / least;
        if times > MOST {
            return told(
                format!(
                    "right, but with {} × {} its {what} ask for {sectors} sectors, and the matrix lies in {least}: {times:.1} \
                     times as many",
                    JUDGED.0, JUDGED.1
                ),
                "neighbouring lanes stand far apart on that side: `inspect` and `sectors` draw it",
                "rows are to be read along and columns written along by neighbouring lanes: where can a block keep a piece of \
                 the matrix in between?",
            );
        }
    }
    let conflicts = c.shared_load_bank_conflicts + c.shared_store_bank_conflicts;
    none_told(
        (conflicts > 0)
            .then(|| format!("right, and both sides are coalesced, but {conflicts} bank conflicts are counted")),
        "lanes of a warp want different words of one bank: `inspect` and `banks` draw it",
        "in which bank does each word of one column of your tile lie? Change where the rows begin",
    )?;
    let local = c.local_load_requests + c.local_store_requests;
    none_wrong(
        (local > 0).then(|| format!("right, but {local} requests go to local memory")),
        "an array in registers whose index is not known at compile time lies in memory: make its loops of constant length",
    )
}

/// What to ask oneself about the first mistake.
fn mistake_hint(error: &Error) -> &'static str {
    let is = |kinds: &[Kind]| kernels::first_is(error, kinds);
    if is(&[Kind::SharedRace]) {
        "a thread reads what another one brings: who makes it wait until that has happened?"
    } else if is(&[Kind::GlobalRace, Kind::LostUpdate]) {
        "two threads write one element: compute by hand which elements these two take"
    } else if is(&[Kind::BarrierDivergence, Kind::Deadlock]) {
        "every thread of the block must come to the barrier, also one that has no element"
    } else if is(&[Kind::UninitialisedRead]) {
        "who should have written that word of the tile? At the edge of the matrix some threads bring nothing"
    } else if is(&[Kind::Trap]) {
        "an index of that line is past the end, or the launch has another shape than the index function asks for"
    } else {
        "compute the index by hand for that block and thread: does that element exist?"
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A tile of 32 × 32 for 32 × 8 threads.
    const TRANSPOSE: &str = r#"use gpulab_device::*;

const WIDE: usize = 33;

#[unsafe(no_mangle)]
pub unsafe extern "ptx-kernel" fn transpose(a: *const f32, out: *mut f32, rows: u32, columns: u32) {
    let (rows, columns) = (rows as usize, columns as usize);
    // SAFETY: the launch passes two buffers of rows × columns numbers.
    let (a, mut out) = unsafe { (Slice::new(a, rows * columns), DisjointSlice::new(out, rows * columns)) };
    let tile = shared!(TILE: [f32; 32 * WIDE]);
    let (x, y) = (thread_x() as usize, thread_y() as usize);
    let (row0, column0) = (block_y() as usize * 32, block_x() as usize * 32);
    for step in (0..32).step_by(8) {
        let (row, column) = (row0 + y + step, column0 + x);
        if row < rows && column < columns {
            tile.set((y + step) * WIDE + x, a[row * columns + column]);
        }
    }
    sync_threads();
    for step in (0..32).step_by(8) {
        let (row, column) = (row0 + x, column0 + y + step);
        if row < rows && column < columns {
            // SAFETY: inside of out; tiles of blocks, and elements of threads in them, do not overlap.
            unsafe { *out.own_at(column * rows + row) = tile.get(x * WIDE + y + step) };
        }
    }
}"#;

    fn by_tiles(rows: usize, columns: usize) -> LaunchConfig {
        let (x, y) = (columns.div_ceil(32) as u32, rows.div_ceil(32) as u32);
        LaunchConfig { grid: (x, y, 1), block: (32, 8, 1), ..LaunchConfig::new(1, 1) }
    }

    fn told(source: &str, launch: fn(usize, usize) -> LaunchConfig, said: &str) {
        let text = transpose(source, launch).text();
        assert!(text.starts_with("NOT YET") && text.contains(said), "{said}: {text}");
    }

    fn change(old: &str, new: &str) -> String {
        let source = TRANSPOSE.replacen(old, new, 1);
        assert_ne!(source, TRANSPOSE, "`{old}` is not there");
        source
    }

    #[test]
    fn right_ones_pass() {
        let passes = |source: &str, launch: fn(usize, usize) -> LaunchConfig| {
            let verdict = transpose(source, launch);
            assert!(verdict.passed(), "{}", verdict.text());
        };
        passes(TRANSPOSE, by_tiles);
        // Swizzled in place of padded.
        let swizzled = TRANSPOSE
            .replace("(y + step) * WIDE + x", "(y + step) * 32 + (x ^ (y + step))")
            .replace("x * WIDE + y + step", "x * 32 + ((y + step) ^ x)");
        passes(&swizzled, by_tiles);
        // One dimension, and a warp for a whole tile.
        let one_warp = TRANSPOSE
            .replace(
                "(thread_x() as usize, thread_y() as usize)",
                "(thread_x() as usize % 32, thread_x() as usize / 32)",
            )
            .replace("step_by(8)", "step_by(1)");
        passes(&one_warp, |rows, columns| LaunchConfig { block: (32, 1, 1), ..by_tiles(rows, columns) });
    }

    #[test]
    fn wrong_ones_are_told_so() {
        told(&change("    sync_threads();\n", ""), by_tiles, "data race in shared memory");
        told(&TRANSPOSE.replace("row < rows && column < columns", "column < columns"), by_tiles, "out of bounds");
        told(&change("const WIDE: usize = 33", "const WIDE: usize = 32"), by_tiles, "bank conflicts");
        told(&change("column * rows + row", "row * columns + column"), by_tiles, "of `out` is");
        told(&change("column * rows + row", "column * columns + row"), by_tiles, "NOT YET");
        told(&change("a[row * columns + column]", "a[row * rows + column]"), by_tiles, "NOT YET");
        let straight = r#"use gpulab_device::*;
#[unsafe(no_mangle)]
pub unsafe extern "ptx-kernel" fn transpose(a: *const f32, out: *mut f32, rows: u32, columns: u32) {
    let (rows, columns) = (rows as usize, columns as usize);
    let (a, mut out) = unsafe { (Slice::new(a, rows * columns), DisjointSlice::new(out, rows * columns)) };
    let at = index_2d();
    if at.row() < rows && at.column() < columns {
        unsafe { *out.own_at(at.column() * rows + at.row()) = a[at.row() * columns + at.column()] };
    }
}"#;
        let each = |rows, columns| LaunchConfig::for_table(rows, columns, (32, 8));
        told(straight, each, "its stores ask for");
        told(&change("let (x, y) =", "let (x, y): (u8, u8) ="), by_tiles, "mismatched types");
        told(TRANSPOSE, |_, _| panic!("no launch yet"), "your code panicked: no launch yet");
        told(TRANSPOSE, |_, _| LaunchConfig { block: (32, 8, 1), ..LaunchConfig::new(1, 1) }, "was never written");
    }

    #[test]
    fn cheats_are_told_so() {
        let one_thread = r#"use gpulab_device::*;
#[unsafe(no_mangle)]
pub unsafe extern "ptx-kernel" fn transpose(a: *const f32, out: *mut f32, rows: u32, columns: u32) {
    let (rows, columns) = (rows as usize, columns as usize);
    let (a, mut out) = unsafe { (Slice::new(a, rows * columns), DisjointSlice::new(out, rows * columns)) };
    if index_1d().get() == 0 {
        for at in 0..rows * columns {
            unsafe { *out.own_at(at % columns * rows + at / columns) = a[at] };
        }
    }
}"#;
        told(one_thread, |_, _| LaunchConfig::new(1, 32), "lanes are active");
        // One warp for all tiles.
        let one_warp = TRANSPOSE
            .replace("(thread_x() as usize, thread_y() as usize)", "(thread_x() as usize % 32, thread_x() as usize / 32)")
            .replace("step_by(8)", "step_by(1)")
            .replace(
                "    let (row0, column0) = (block_y() as usize * 32, block_x() as usize * 32);\n",
                "    for tile_at in 0..rows.div_ceil(32) * columns.div_ceil(32) {\n    sync_threads();\n    let wide = columns.div_ceil(32);\n    let (row0, column0) = (tile_at / wide * 32, tile_at % wide * 32);\n",
            )
            + "}";
        told(&one_warp, |_, _| LaunchConfig::new(1, 32), "alone makes");
        told(&change("= tile.get(x * WIDE + y + step)", "= 0.5"), by_tiles, "is 0.5");
        told(&change("= tile.get(x * WIDE + y + step)", "= f32::NAN"), by_tiles, "is NaN");
        let c =
            "extern \"C\" __global__ void transpose(const float *a, float *out, unsigned rows, unsigned columns) { }";
        told(c, by_tiles, "this kernel is CUDA C");
        // The inputs are the caller's.
        let spoiled = change(
            "unsafe { *out.own_at(",
            "unsafe { *a.as_ptr().cast_mut().add(row * columns + column) = 1.0; *out.own_at(",
        );
        let spoiled = spoiled.replace(
            "let (a, mut out) = unsafe { (Slice::new(a,",
            "let raw = a; let (a, mut out) = unsafe { (Slice::new(a,",
        );
        told(&spoiled.replace("a.as_ptr().cast_mut()", "raw.cast_mut()"), by_tiles, "`a` is no longer");
    }
}
