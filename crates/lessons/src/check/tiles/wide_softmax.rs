//! Softmax of rows longer than a tile, as a program on tiles.

use crate::check::Verdict;
use crate::check::judged::{lanes_work, unchanged};
use crate::check::kernels;
use crate::check::verdict::{Check, none_told, told};
use gpulab::cpu;
use gpulab::error::Error;
use gpulab::gpu::{Gpu, Kernel};
use gpulab::inspect::Inspection;
use gpulab::launch::LaunchConfig;
use gpulab::warpsim::Kind;

const THREADS: u32 = 128;
/// Rows and columns: within a tile of 512, exactly one, one more, several.
const SHAPES: [(usize, usize); 6] = [(1, 1), (3, 300), (2, 512), (2, 513), (5, 1500), (3, 2048)];
/// Where traffic is judged: whole tiles.
const JUDGED: (usize, usize) = (8, 2048);
/// Reads of the matrix: one to find the maximum and the sum, one to write.
const READS: f64 = 2.05;

/// Checks `wide_softmax(x: *const f32, y: *mut f32, rows: u32, columns: u32)`: softmax of each row, launched with a block of 128
/// threads for each (`block_y` is the row), whatever the rows' length. `source` is the kernel with the library behind it.
pub fn wide_softmax(source: &str) -> Verdict {
    kernels::verdict("wide_softmax", source, "wide_softmax", mistake_hint, |gpu, kernel| {
        for (at, shape) in SHAPES.into_iter().enumerate() {
            // Scores far below 0, and far above: neither a maximum that begins at 0 nor a plain exp is right.
            for (offset, scale) in [(0.0, 3.0), (-200.0, 20.0), (300.0, 30.0)] {
                drop(right(gpu, kernel, &scores(shape, at as u64, offset, scale), shape)?);
            }
            drop(right(gpu, kernel, &rising(shape), shape)?);
        }
        cost(&right(gpu, kernel, &scores(JUDGED, 9, 0.0, 3.0), JUDGED)?)
    })
}

fn scores((rows, columns): (usize, usize), seed: u64, offset: f32, scale: f32) -> Vec<f32> {
    cpu::random_f32(rows * columns, seed).into_iter().map(|x| offset + scale * x).collect()
}

/// Rows whose maximum stands at the end: every tile has a larger one than those before.
fn rising((rows, columns): (usize, usize)) -> Vec<f32> {
    (0..rows * columns).map(|at| (at % columns) as f32 * 0.01 - 5.0).collect()
}

/// What the launch did, or what is wrong with its result.
fn right(gpu: &Gpu, kernel: &Kernel, x: &[f32], (rows, columns): (usize, usize)) -> Check<Inspection> {
    let (on_x, mut y) = (gpu.to_device(x)?, gpu.poison::<f32>(rows * columns)?);
    let config = LaunchConfig { grid: (1, rows as u32, 1), ..LaunchConfig::new(1, THREADS).shared(16 << 10) };
    kernel.launch(config, (&on_x, &mut y, rows as u32, columns as u32))?;
    let given = y.to_host()?;
    for (row, (x, given)) in x.chunks(columns).zip(given.chunks(columns)).enumerate() {
        let most = x.iter().copied().fold(f32::NEG_INFINITY, f32::max);
        let exps: Vec<f64> = x.iter().map(|&x| (f64::from(x) - f64::from(most)).exp()).collect();
        let sum: f64 = exps.iter().sum();
        let off = |at: &usize| {
            let exact = exps[*at] / sum;
            let away = (f64::from(given[*at]) - exact).abs();
            away.is_nan() || away > 2e-4 * exact + 1e-7
        };
        let Some(at) = (0..columns).find(off) else { continue };
        let total: f64 = given.iter().map(|&y| f64::from(y)).sum();
        return told(
            format!(
                "with {rows} rows of {columns}: row {row}, column {at} {}, and it should be {:.3e}; the row's results add up to {total:.4}",
                kernels::left(given[at]),
                exps[at] / sum
            ),
            "every number of a row is divided by the row's one sum, of exp(x − the row's one maximum)",
            "when a tile brings a new maximum: what has to happen to the sum of the tiles before it? And what stands in the tile \
             where the row has ended?",
        );
    }
    unchanged("x", &on_x, x)?;
    Ok(kernel.inspect(config, (&on_x, &mut y, rows as u32, columns as u32))?)
}

fn cost(seen: &Inspection) -> Check {
    let (c, least) = (&seen.counters, (JUDGED.0 * JUDGED.1 * 4 / 32) as f64);
    let reads = c.global_load_sectors as f64 / least;
    none_told(
        (reads > READS).then(|| format!("right, but it reads the matrix {reads:.1} times")),
        "two times will do: once for the maximum and the sum together, once for the results",
        "maximum and sum of all tiles so far can be kept at once, if the sum is scaled whenever the maximum grows",
    )?;
    let writes = c.global_store_sectors as f64 / least;
    none_told(
        (writes > 1.05).then(|| format!("right, but it writes the matrix {writes:.1} times")),
        "each result is to be written once, when it is final",
        "keep what is needed across tiles as a number for each row, not in `y`",
    )?;
    let local = c.local_load_requests + c.local_store_requests;
    none_told(
        (local > 0).then(|| format!("right, but {local} requests go to local memory: the tile is not in registers")),
        "an array whose index is not known when the kernel is compiled has an address, and so lies in memory",
        "let the loops over a tile's own numbers have constant lengths, as `core::array::from_fn` does",
    )?;
    lanes_work(seen, 16.0)?;
    kernels::shared_out(seen, 0.3)
}

/// What to ask oneself about the first mistake.
fn mistake_hint(error: &Error) -> &'static str {
    let is = |kinds: &[Kind]| kernels::first_is(error, kinds);
    if is(&[Kind::SharedRace]) {
        "the scratch memory is used again: who must have read it before?"
    } else if is(&[Kind::BarrierDivergence, Kind::Deadlock]) {
        "reductions have barriers: all threads of the block must come to each, also those whose part of the tile is empty"
    } else if is(&[Kind::GlobalRace]) {
        "two threads write one element: which tile does each block own?"
    } else {
        "compute by hand which column that thread takes: does the row have it?"
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use crate::check::kernels::{expect, expect_whole, passes};

    /// The tile library as the notebook has it.
    pub fn library() -> String {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../notebooks/17b_tiles.ipynb");
        let notebook: serde_json::Value = serde_json::from_str(&std::fs::read_to_string(path).unwrap()).unwrap();
        let cells = notebook["cells"].as_array().unwrap().iter();
        let of_library = |id: &str| id.starts_with("library-");
        let code = cells.filter(|cell| cell["cell_type"] == "code" && cell["id"].as_str().is_some_and(of_library));
        let parts = code.map(|cell| {
            let source: String = cell["source"].as_array().unwrap().iter().map(|line| line.as_str().unwrap()).collect();
            source.split_once("r#\"").unwrap().1.split("\"#;").next().unwrap().to_string()
        });
        let text: String = parts.collect();
        assert!(text.contains("fn dot"), "the notebook's cells have other ids now");
        text
    }

    const WIDE: &str = r#"use gpulab_device::*;
const TX: usize = 128;
const TY: usize = 1;

#[unsafe(no_mangle)]
pub unsafe extern "ptx-kernel" fn wide_softmax(x: *const f32, y: *mut f32, rows: u32, columns: u32) {
    let (rows, columns) = (rows as usize, columns as usize);
    // SAFETY: the launch passes two matrices of that shape, with a block of TX threads for each row.
    let (x, mut y) = unsafe { (Matrix::new(x, rows, columns), Output::<1, 4>::new(y, rows, columns)) };
    let (mut most, mut sum) = (PerRow::full(f32::MIN), PerRow::full(0.0));
    for step in 0..columns.div_ceil(512) {
        let at = own_tile::<1, 4>().right(step);
        let tile = x.load::<1, 4>(at.row(), at.column(), f32::NEG_INFINITY);
        let now = most.max(tile.max());
        sum = sum * (most - now).exp() + (tile - now).exp().sum();
        most = now;
    }
    for step in 0..columns.div_ceil(512) {
        let at = own_tile::<1, 4>().right(step);
        let tile = x.load::<1, 4>(at.row(), at.column(), f32::NEG_INFINITY);
        y.store(at, (tile - most).exp() / sum);
    }
}
"#;

    fn check(source: &str) -> Verdict {
        wide_softmax(&format!("{source}{}", library()))
    }

    #[test]
    fn right_ones_pass() {
        passes(check, &[WIDE]);
        // Without the library's reductions: a sum and a maximum per thread, joined at the end.
        let plain = r#"use gpulab_device::*;
const TX: usize = 128;
const TY: usize = 1;
#[unsafe(no_mangle)]
pub unsafe extern "ptx-kernel" fn wide_softmax(x: *const f32, y: *mut f32, rows: u32, columns: u32) {
    let (columns, row) = (columns as usize, block_y() as usize);
    let (x, mut y) = unsafe { (Slice::new(x, rows as usize * columns), DisjointSlice::new(y, rows as usize * columns)) };
    let own = || (row * columns + thread_x() as usize..(row + 1) * columns).step_by(128);
    let (mut most, mut sum) = (f32::MIN, 0.0);
    for i in own() {
        let now = most.max(x[i]);
        sum = sum * exp(most - now) + exp(x[i] - now);
        most = now;
    }
    let all = Tile::<1, 1>::full(most).max().one();
    let sum = Tile::<1, 1>::full(sum * exp(most - all)).sum().one();
    for i in own() { unsafe { *y.own_at(i) = exp(x[i] - all) / sum }; }
}
"#;
        passes(check, &[plain]);
    }

    #[test]
    fn wrong_ones_are_told_so() {
        expect(
            check,
            WIDE,
            &[
                // One tile alone.
                ("for step in 0..columns.div_ceil(512)", "for step in 0..1", "add up to"),
                ("PerRow::full(f32::MIN)", "PerRow::full(0.0)", "it should be"),
                ("sum * (most - now).exp()", "sum", "the row's results add up to"),
                ("most = now;", "", "the row's results add up to"),
                ("f32::NEG_INFINITY", "0.0", "the row's results add up to"),
                ("columns.div_ceil(512)", "columns / 512", "it should be"),
                ("(tile - most).exp() / sum", "(tile - most).exp()", "the row's results add up to"),
                ("y.store(at, (tile - most).exp() / sum)", "y.store(at, tile / sum)", "it should be"),
                ("let now = most.max(tile.max());", "let now = most;", "it should be"),
                ("fn wide_softmax", "fn softmax", "no kernel `wide_softmax`"),
            ],
        );
    }

    #[test]
    fn cheats_are_told_so() {
        let body = &WIDE[WIDE.find("    let (mut most").unwrap()..WIDE.rfind('}').unwrap()];
        let with = |new: &str| format!("{}{}", WIDE.replace(body, new), library());
        // Three passes over the matrix.
        let three = with(
            "    let tiles = columns.div_ceil(512);
    let load = |step| { let at = own_tile::<1, 4>().right(step); x.load::<1, 4>(at.row(), at.column(), f32::NEG_INFINITY) };
    let (mut most, mut sum) = (PerRow::full(f32::MIN), PerRow::full(0.0));
    for step in 0..tiles { most = most.max(load(step).max()); }
    for step in 0..tiles { sum = sum + (load(step) - most).exp().sum(); }
    for step in 0..tiles { y.store(own_tile::<1, 4>().right(step), (load(step) - most).exp() / sum); }
",
        );
        // One thread for the row.
        let one = "use gpulab_device::*;
const TX: usize = 128;
const TY: usize = 1;
#[unsafe(no_mangle)]
pub unsafe extern \"ptx-kernel\" fn wide_softmax(x: *const f32, y: *mut f32, rows: u32, columns: u32) {
    let (columns, row) = (columns as usize, block_y() as usize);
    if thread_x() > 0 { return; }
    let (mut most, mut sum) = (f32::MIN, 0.0);
    for i in row * columns..(row + 1) * columns { most = most.max(unsafe { *x.add(i) }); }
    for i in row * columns..(row + 1) * columns { sum += exp(unsafe { *x.add(i) } - most); }
    for i in row * columns..(row + 1) * columns { unsafe { *y.add(i) = exp(*x.add(i) - most) / sum } }
}
";
        // The first block has all rows; its threads meet in shared memory.
        let first = "use gpulab_device::*;
const TX: usize = 128;
const TY: usize = 1;
#[unsafe(no_mangle)]
pub unsafe extern \"ptx-kernel\" fn wide_softmax(x: *const f32, y: *mut f32, rows: u32, columns: u32) {
    let (columns, t) = (columns as usize, thread_x() as usize);
    if block_y() > 0 { return; }
    let parts = shared!(PARTS: [f32; 256]);
    for row in 0..rows as usize {
        let (mut most, mut sum, mut i) = (f32::MIN, 0.0_f32, t);
        while i < columns {
            let own = unsafe { *x.add(row * columns + i) };
            let now = most.max(own);
            sum = sum * exp(most - now) + exp(own - now);
            most = now;
            i += 128;
        }
        sync_threads();
        parts.set(t, most);
        parts.set(128 + t, sum);
        sync_threads();
        let (mut all, mut total) = (f32::MIN, 0.0_f32);
        for k in 0..128 { all = all.max(parts.get(k)); }
        for k in 0..128 { total += parts.get(128 + k) * exp(parts.get(k) - all); }
        i = t;
        while i < columns {
            unsafe { *y.add(row * columns + i) = exp(*x.add(row * columns + i) - all) / total }
            i += 128;
        }
    }
}
";
        let constant = with("    y.store(own_tile::<1, 4>(), Tile::full(1.0 / columns as f32)); let _ = x;\n");
        let nan = with("    y.store(own_tile::<1, 4>(), Tile::full(f32::NAN)); let _ = x;\n");
        expect_whole(
            wide_softmax,
            &[
                (&three, "reads the matrix 3.0 times"),
                (&format!("{one}{}", library()), "reads the matrix"),
                (&format!("{first}{}", library()), "the work is not shared out"),
                (&constant, "it should be"),
                (&nan, "is NaN"),
            ],
        );
        // Results through `y`, twice.
        let twice = WIDE.replace(
            "        y.store(at, (tile - most)",
            "        y.store(at, tile);\n        y.store(at, (tile - most)",
        );
        let text = check(&twice).text();
        assert!(text.contains("writes the matrix 2.0 times"), "{text}");
    }
}
