//! Residual and layer norm in one kernel, in Rust.

use crate::check::Verdict;
use crate::check::judged::{lanes_work, unchanged};
use crate::check::kernels;
use crate::check::norm_rows::{self, Rows};
use crate::check::verdict::{Check, none_told, told};
use gpulab::error::Error;
use gpulab::gpu::{Gpu, Kernel};
use gpulab::inspect::Inspection;
use gpulab::launch::{LaunchConfig, Source};
use gpulab::warpsim::Kind;

const BLOCK: u32 = 128;
/// Rows and columns: one number, a warp and its neighbours, a block and its neighbours, the longest; the judged shape has whole sectors.
const SHAPES: [(usize, usize); 8] = [(3, 1), (2, 31), (2, 33), (1, 128), (2, 129), (3, 640), (1, 1024), JUDGED];
const JUDGED: (usize, usize) = (4, 512);
const EPS: f64 = 1e-5;

/// Checks a kernel in Rust, `add_layer_norm(x, r, weight, bias: *const f32, s, y: *mut f32, columns: u32)`, launched with a block of 128
/// threads for each row of at most 1,024 numbers: `s = x + r`, and `y = (s − mean) / sqrt(variance + 1e-5) · weight + bias`, with each
/// number of `x` and `r` read once, and none of `s`.
pub fn add_layer_norm(source: &str) -> Verdict {
    kernels::verdict("add_layer_norm", source, "add_layer_norm", mistake_hint, |gpu, kernel| {
        none_told(
            (!Source::text(source).is_rust()).then(|| "this kernel is CUDA C".to_string()),
            "the exercise asks for one in Rust",
            "begin with `use gpulab_device::*;` and a function `extern \"ptx-kernel\"`, as in lesson 17a",
        )?;
        // Far from 0 a variance from the mean of squares loses its digits.
        norm_rows::each(&SHAPES, (10.0, 5000.0), |rows| rows.run_layer_norm(gpu, kernel), cost)
    })
}

impl Rows {
    /// What the launch did, or what is wrong with its results.
    fn run_layer_norm(&self, gpu: &Gpu, kernel: &Kernel) -> Check<Inspection> {
        let (x, r) = (gpu.to_device(&self.x)?, gpu.to_device(&self.r)?);
        let (weight, bias) = (gpu.to_device(&self.weight)?, gpu.to_device(&self.bias)?);
        let n = self.rows * self.columns;
        let (mut s, mut y) = (gpu.poison::<f32>(n)?, gpu.poison::<f32>(n)?);
        let (config, columns) = (LaunchConfig::new(self.rows as u32, BLOCK), self.columns as u32);
        kernel.launch(config, (&x, &r, &weight, &bias, &mut s, &mut y, columns))?;
        let sums = self.sums();
        let given = s.to_host()?;
        if let Some(at) = (0..n).find(|at| given[*at] != sums[*at]) {
            return told(
                format!("{}, and it should be {}", self.place("s", at, given[at]), sums[at]),
                "`s` is the residual that the next layer adds to: x + r, for every element",
                "which thread writes that element of `s`?",
            );
        }
        let given = y.to_host()?;
        let exact = self.normed(&sums, true, EPS);
        if let Some(at) = (0..n).find(|at| !near(given[*at], exact[*at])) {
            let (meaning, idea) = self.slip(&given, &sums, at / self.columns);
            let what = format!("{}, and it should be {:.5}", self.place("y", at, given[at]), exact[at]);
            return told(what, meaning, idea);
        }
        for (name, buffer, before) in
            [("x", &x, &self.x), ("r", &r, &self.r), ("weight", &weight, &self.weight), ("bias", &bias, &self.bias)]
        {
            unchanged(name, buffer, before)?;
        }
        Ok(kernel.inspect(config, (&x, &r, &weight, &bias, &mut s, &mut y, columns))?)
    }

    /// In f64, from the f32 sums; with or without the mean.
    fn normed(&self, sums: &[f32], centred: bool, eps: f64) -> Vec<f64> {
        let row = |row: &[f32]| -> Vec<f64> {
            let n = row.len() as f64;
            let mean = if centred { row.iter().map(|s| f64::from(*s)).sum::<f64>() / n } else { 0.0 };
            let variance = row.iter().map(|s| (f64::from(*s) - mean).powi(2)).sum::<f64>() / n;
            let by = |(at, s): (usize, &f32)| {
                (f64::from(*s) - mean) / (variance + eps).sqrt() * f64::from(self.weight[at]) + f64::from(self.bias[at])
            };
            row.iter().enumerate().map(by).collect()
        };
        sums.chunks(self.columns).flat_map(row).collect()
    }

    /// What the first wrong row looks like.
    fn slip(&self, given: &[f32], sums: &[f32], row: usize) -> (&'static str, &'static str) {
        let of = row * self.columns..(row + 1) * self.columns;
        let is = |exact: Vec<f64>| given[of.clone()].iter().zip(&exact[of.clone()]).all(|(a, b)| near(*a, *b));
        let x: Vec<f32> = self.x.clone();
        if given[of.clone()].iter().any(|y| y.is_nan()) {
            (
                "nobody has written it, or the root of a negative number or of 0 came into it",
                "does every element have a thread? And can your variance be negative, or 0 without the 1e-5?",
            )
        } else if is(self.normed(sums, true, 0.0)) {
            ("the variance alone is under the root", "add 1e-5 to the variance before the root is taken")
        } else if is(self.normed(sums, false, EPS)) {
            ("this is RMS norm: the mean was not taken away", "GPT-2's norm takes the mean away first")
        } else if is(self.normed(&x, true, EPS)) {
            ("this is the norm of x alone", "the norm is of the sum, `s`")
        } else {
            (
                "mean and variance are of all numbers of the row, both divided by `columns`; and the mean of squares less the square of the \
                 mean is the difference of two large numbers where the row lies far from 0",
                "keep the row's numbers in registers: first all threads' sum, then the sum of squared distances from the mean, each over \
                 the whole block",
            )
        }
    }
}

/// Equal but for the rounding of some thousand additions; NaN is never.
fn near(given: f32, exact: f64) -> bool {
    (f64::from(given) - exact).abs() <= 2e-3 + 1e-4 * exact.abs()
}

/// More traffic than it needs, or idle lanes.
fn cost(seen: &Inspection) -> Check {
    lanes_work(seen, 16.0)?;
    kernels::shared_out(seen, 0.3)?;
    none_told(
        norm_rows::traffic(seen, JUDGED, 2, "x, r, weight and bias, for each row,"),
        "a number is read from memory or written to it more than once, or neighbouring lanes take numbers that lie apart",
        "a thread has at most 8 numbers of a row: `[f32; 8]` in registers, filled in one loop and used in the others; lane i beside lane i + 1",
    )
}

/// What to ask oneself about the first mistake.
fn mistake_hint(error: &Error) -> &'static str {
    let is = |kinds: &[Kind]| kernels::first_is(error, kinds);
    if is(&[Kind::SharedRace, Kind::UninitialisedRead]) {
        "the four warps' sums lie in shared memory: who must have written, and who must have read them, before they are used again?"
    } else if is(&[Kind::GlobalRace]) {
        "two threads write one element: block b has row b, and which columns has each thread?"
    } else if is(&[Kind::BarrierDivergence, Kind::Deadlock]) {
        "all threads of the block must reach each barrier, also those that have no column"
    } else if is(&[Kind::Trap]) {
        "an index of that line is past the end of its slice: how long is each of the six arrays?"
    } else {
        "compute the index by hand for that block and thread: is there such a column?"
    }
}

#[cfg(test)]
pub(crate) const RIGHT: &str = r#"use gpulab_device::*;

const EACH: usize = 8; // 128 threads: rows of at most 1,024 numbers

/// The sum over the block, in all threads.
fn block_sum(value: f32, parts: SharedArray<f32>) -> f32 {
    let sum = warp::sum(value);
    sync_threads(); // the sums of before have been read
    if warp::lane() == 0 { parts.set(thread_x() as usize / 32, sum); }
    sync_threads();
    parts.get(0) + parts.get(1) + parts.get(2) + parts.get(3)
}

#[unsafe(no_mangle)]
pub unsafe extern "ptx-kernel" fn add_layer_norm(x: *const f32, r: *const f32, weight: *const f32, bias: *const f32, s: *mut f32, y: *mut f32, columns: u32) {
    let (columns, row) = (columns as usize, block_x() as usize);
    let n = blocks_x() as usize * columns;
    // SAFETY: the launch passes n numbers of x, r, s and y, and a row of weight and bias.
    let (x, r, weight, bias) = unsafe { (Slice::new(x, n), Slice::new(r, n), Slice::new(weight, columns), Slice::new(bias, columns)) };
    let (mut s, mut y) = unsafe { (DisjointSlice::new(s, n), DisjointSlice::new(y, n)) };
    let parts = shared!(PARTS: [f32; 4]);
    let column = |i: usize| thread_x() as usize + 128 * i;
    let mut own = [0.0_f32; EACH];
    let mut sum = 0.0;
    for i in 0..EACH {
        if column(i) < columns {
            let at = row * columns + column(i);
            own[i] = x[at] + r[at];
            sum += own[i];
            // SAFETY: this thread's column of the block's row.
            unsafe { *s.own_at(at) = own[i] };
        }
    }
    let mean = block_sum(sum, parts) / columns as f32;
    let mut squares = 0.0;
    for i in 0..EACH {
        if column(i) < columns { squares += (own[i] - mean) * (own[i] - mean); }
    }
    let scale = 1.0 / (block_sum(squares, parts) / columns as f32 + 1e-5).square_root();
    for i in 0..EACH {
        if column(i) < columns {
            // SAFETY: as above.
            unsafe { *y.own_at(row * columns + column(i)) = (own[i] - mean) * scale * weight[column(i)] + bias[column(i)] };
        }
    }
}"#;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::check::kernels::{expect, expect_whole, passes};

    #[test]
    fn right_ones_of_other_shapes_pass() {
        // Every warp adds up for itself, through an exchange in which all lanes get the sum.
        let exchanged = RIGHT.replace(
            "let sum = warp::sum(value);",
            "let mut sum = value;\n    for by in [16, 8, 4, 2, 1] { sum += warp::shuffle_xor(warp::ALL, sum, by); }",
        );
        // A table with two halves: one exchange, and no barrier before it, as the other half is used.
        let halves = RIGHT
            .replace(
                "fn block_sum(value: f32, parts: SharedArray<f32>)",
                "fn block_sum(value: f32, parts: SharedArray<f32>, from: usize)",
            )
            .replace("    sync_threads(); // the sums of before have been read\n", "")
            .replace("thread_x() as usize / 32, sum", "from + thread_x() as usize / 32, sum")
            .replace(
                "parts.get(0) + parts.get(1) + parts.get(2) + parts.get(3)",
                "(0..4).map(|i| parts.get(from + i)).sum()",
            )
            .replace("PARTS: [f32; 4]", "PARTS: [f32; 8]")
            .replace("block_sum(sum, parts)", "block_sum(sum, parts, 0)")
            .replace("block_sum(squares, parts)", "block_sum(squares, parts, 4)");
        passes(add_layer_norm, &[RIGHT, &exchanged, &halves]);
    }

    #[test]
    fn wrong_ones_are_told_so() {
        expect(
            add_layer_norm,
            RIGHT,
            &[
                (" + 1e-5", "", "0 without the 1e-5"),
                (
                    "let mean = block_sum(sum, parts) / columns as f32;",
                    "let mean = 0.0 * block_sum(sum, parts);",
                    "this is RMS norm",
                ),
                ("own[i] = x[at] + r[at];", "own[i] = x[at];", "the residual that the next layer adds to"),
                ("    sync_threads();\n    parts", "    parts", "shared"),
                ("if column(i) < columns { squares", "if true { squares", "both divided by `columns`"),
                (
                    "if column(i) < columns {\n            let at",
                    "if true {\n            let at",
                    "is there such a column",
                ),
                ("const EACH: usize = 8;", "const EACH: usize = 4;", "which thread writes that element of `s`"),
                // The difference of two large numbers.
                (
                    "if column(i) < columns { squares += (own[i] - mean) * (own[i] - mean); }\n    }",
                    "squares += own[i] * own[i];\n    }\n    let squares = squares - sum * mean;",
                    "the difference of two large numbers",
                ),
                // Right, and it reads the row again.
                (
                    "= (own[i] - mean) * scale * weight",
                    "= (x.get(row * columns + column(i)).unwrap() + r.get(row * columns + column(i)).unwrap() - mean) * scale * weight",
                    "sectors; x, r, weight and bias",
                ),
            ],
        );
    }

    #[test]
    fn cheats_are_told_so() {
        let cuda = r#"extern "C" __global__ void add_layer_norm(const float *x, const float *r, const float *weight, const float *bias, float *s, float *y, unsigned columns) {}"#;
        // One thread has the whole row.
        let lonely = RIGHT
            .replace("const EACH: usize = 8;", "const EACH: usize = 1024;")
            .replace("thread_x() as usize + 128 * i", "if thread_x() == 0 { i } else { usize::MAX }");
        // The first block has all rows.
        let first = RIGHT.replace(
            "let mut own = [0.0_f32; EACH];",
            "if block_x() > 0 { return; }\n    for row in 0..blocks_x() as usize {\n    let mut own = [0.0_f32; EACH];",
        );
        let first = format!("{}}}}}\n", &first[..first.rfind('}').unwrap()]);
        let spoils = RIGHT
            .replace("let n = blocks_x()", "let raw = x as *mut f32;\n    let n = blocks_x()")
            .replace("+ bias[column(i)] };", "+ bias[column(i)]; *raw.add(row * columns + column(i)) = 9.0 };");
        let constant =
            RIGHT.replace("(own[i] - mean) * scale * weight[column(i)] + bias[column(i)]", "bias[column(i)]");
        expect_whole(
            add_layer_norm,
            &[
                (cuda, "asks for one in Rust"),
                (&lonely, "its loads ask for"),
                (&first, "the work is not shared out"),
                (&spoils, "the input `x`"),
                (&constant, "and it should be"),
            ],
        );
    }
}
