//! Exercise of lesson 14: residual and RMS norm in one kernel, from a blank page.

use super::Verdict;
use super::judged::{lanes_work, unchanged};
use super::kernels;
use super::norm_rows::{self, Rows};
use super::verdict::{Check, none_wrong, wrong};
use gpulab::error::Error;
use gpulab::gpu::{Gpu, Kernel};
use gpulab::inspect::Inspection;
use gpulab::launch::LaunchConfig;
use gpulab::warpsim::Kind;

const BLOCK: u32 = 256;
/// Rows and columns: one, a warp and its neighbours, a block and its neighbours, the longest; the judged shape has whole sectors.
const SHAPES: [(usize, usize); 8] = [(3, 1), (2, 31), (2, 33), (1, 256), (2, 257), (2, 1000), (1, 4096), JUDGED];
const JUDGED: (usize, usize) = (4, 1024);
const EPS: f32 = 1e-5;
/// Arrivals at barriers for each warp.
const BARRIERS: u64 = 12;

/// Checks a kernel `add_rms_norm(const float *x, const float *r, const float *weight, float *s, float *y, int columns, float eps)`,
/// launched with a block of 256 threads per row of at most 4096 numbers: `s = x + r` and `y = s * weight / sqrt(mean(s²) + eps)`,
/// with each number of `x` and `r` read once, and none of `s`.
pub fn add_rms_norm(source: &str) -> Verdict {
    kernels::verdict("add_rms_norm", source, "add_rms_norm", mistake_hint, |gpu, kernel| {
        norm_rows::each(&SHAPES, (100.0, 5000.0), |rows| rows.run_rms_norm(gpu, kernel), cost)
    })
}

impl Rows {
    /// What the launch did, or what is wrong with its results.
    fn run_rms_norm(&self, gpu: &Gpu, kernel: &Kernel) -> Check<Inspection> {
        let (x, r, weight) = (gpu.to_device(&self.x)?, gpu.to_device(&self.r)?, gpu.to_device(&self.weight)?);
        let n = self.rows * self.columns;
        let (mut s, mut y) = (gpu.poison::<f32>(n)?, gpu.poison::<f32>(n)?);
        let config = LaunchConfig::new(self.rows as u32, BLOCK);
        kernel.launch(config, (&x, &r, &weight, &mut s, &mut y, self.columns as i32, EPS))?;
        let (exact_s, exact_y) = self.expected();
        self.compared("s", &s.to_host()?, &exact_s, "an element of `s` is the sum of its two: who writes it?")?;
        let given = y.to_host()?;
        self.compared("y", &given, &exact_y, self.hint(&given))?;
        for (name, buffer, before) in [("x", &x, &self.x), ("r", &r, &self.r), ("weight", &weight, &self.weight)] {
            unchanged(name, buffer, before)?;
        }
        Ok(kernel.inspect(config, (&x, &r, &weight, &mut s, &mut y, self.columns as i32, EPS))?)
    }

    /// In f64, from the f32 sums.
    fn expected(&self) -> (Vec<f32>, Vec<f32>) {
        let s = self.sums();
        let y = s.chunks(self.columns).flat_map(|row| self.rms_normed(row, row)).collect();
        (s, y)
    }

    /// A row divided by the root mean square of another.
    fn rms_normed(&self, row: &[f32], by: &[f32]) -> Vec<f32> {
        let squares: f64 = by.iter().map(|&s| f64::from(s) * f64::from(s)).sum();
        let root = (squares / self.columns as f64 + f64::from(EPS)).sqrt();
        row.iter().zip(&self.weight).map(|(&s, &w)| (f64::from(s) * f64::from(w) / root) as f32).collect()
    }

    /// A question about the first row that is wrong.
    fn hint(&self, given: &[f32]) -> &'static str {
        let (x, s) = (&self.x[..self.columns], &self.expected().0[..self.columns]);
        let given = &given[..self.columns];
        let is = |row: Vec<f32>| row.iter().zip(given).all(|(a, b)| near(*b, *a));
        match () {
            () if is(self.rms_normed(s, x)) => {
                "these are the sums, divided by the root mean square of something else: of what?"
            }
            () if given.iter().any(|y| y.is_infinite()) || s.iter().all(|s| *s == 0.0) => {
                "what does the formula give for a row of zeros, and which term of it sees to that?"
            }
            () => {
                "take one row of `y` and divide by what it should be: is the ratio the same in the whole row, and what is it?"
            }
        }
    }

    fn compared(&self, name: &str, given: &[f32], expected: &[f32], hint: &'static str) -> Check {
        let Some(at) = given.iter().zip(expected).position(|(&given, &expected)| !near(given, expected)) else {
            return Ok(());
        };
        wrong(format!("{}, and it should be {}", self.place(name, at, given[at]), expected[at]), hint)
    }
}

/// Equal but for the rounding of some thousand additions; NaN is never.
fn near(given: f32, expected: f32) -> bool {
    (given - expected).abs() <= 1e-4 * expected.abs() + 1e-9
}

/// More traffic or waiting than it needs.
fn cost(seen: &Inspection) -> Check {
    lanes_work(seen, 16.0)?;
    none_wrong(
        norm_rows::traffic(seen, JUDGED, 1, "x, r, and the weight for each row,"),
        "which number crosses the memory's pins more than once, and where could it wait until it is needed again?",
    )?;
    let (c, rows) = (&seen.counters, JUDGED.0);
    let warps = rows as u64 * u64::from(BLOCK) / 32;
    let what = (c.barriers > BARRIERS * warps)
        .then(|| format!("right, but each warp waits at {} barriers", c.barriers / warps));
    none_wrong(what, "between which threads does a sum have to travel, and which of them share a warp?")?;
    kernels::shared_out(seen, 0.3)
}

/// What to ask oneself about the first mistake.
fn mistake_hint(error: &Error) -> &'static str {
    let is = |kinds: &[Kind]| kernels::first_is(error, kinds);
    if is(&[Kind::SharedRace]) {
        "one thread reads what another writes in the same step: which of the two must come first, and what makes it wait?"
    } else if is(&[Kind::BarrierDivergence, Kind::Deadlock]) {
        "every thread of the block, or every lane of the mask, must come by: also those that have no column"
    } else if is(&[Kind::UninitialisedRead]) {
        "who should have written that word, and had it done so by then? A thread without a column counts too"
    } else if is(&[Kind::GlobalRace]) {
        "two threads write one element: compute by hand which row and column these two take"
    } else {
        "compute the index by hand for that block and thread: is there such a row, and such a column?"
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::check::kernels::expect;

    const NORM: &str = "extern \"C\" __global__ void add_rms_norm(const float *x, const float *r, const float *weight, float *s, float *y, int columns, float eps) {
    __shared__ float squares[8];
    int t = threadIdx.x, row = blockIdx.x * columns;
    float kept[16], sum = 0.0f;
#pragma unroll
    for (int k = 0; k < 16; ++k) {
        int c = k * 256 + t;
        kept[k] = 0.0f;
        if (c < columns) { s[row + c] = kept[k] = x[row + c] + r[row + c]; }
        sum += kept[k] * kept[k];
    }
    for (int d = 16; d > 0; d /= 2) { sum += __shfl_xor_sync(0xffffffff, sum, d); }
    if (t % 32 == 0) { squares[t / 32] = sum; }
    __syncthreads(); // shared
    sum = 0.0f;
    for (int w = 0; w < 8; ++w) { sum += squares[w]; }
    float scale = rsqrtf(sum / columns + eps);
#pragma unroll
    for (int k = 0; k < 16; ++k) {
        int c = k * 256 + t;
        if (c < columns) { y[row + c] = kept[k] * scale * weight[c]; }
    }
}";

    #[test]
    fn the_row_may_wait_in_shared_memory() {
        let shared = NORM
            .replace("float kept[16], sum", "__shared__ float kept[4096]; float sum")
            .replace("kept[k] = 0.0f;", "float own = 0.0f;")
            .replace(
                "s[row + c] = kept[k] = x[row + c] + r[row + c];",
                "s[row + c] = kept[c] = own = x[row + c] + r[row + c];",
            )
            .replace("kept[k] * kept[k]", "own * own")
            .replace("kept[k] * scale", "kept[c] * scale");
        assert!(add_rms_norm(&shared).passed(), "{}", add_rms_norm(&shared).text());
    }

    #[test]
    fn wrong_ones_are_told_so() {
        expect(
            add_rms_norm,
            NORM,
            &[
                (" + eps)", ")", "and it should be"),
                ("sum / columns", "sum / 256", "is the ratio the same in the whole row"),
                ("rsqrtf(sum / columns + eps)", "(rsqrtf(sum / columns) + eps)", "and it should be"),
                ("sum += kept[k] * kept[k];", "sum += c < columns ? x[row + c] * x[row + c] : 0.0f;", "of what?"),
                (" * weight[c]", "", "divide by what it should be"),
                ("s[row + c] = kept[k] =", "kept[k] =", "who writes it"),
                ("__syncthreads(); // shared", "", "must come first"),
                ("if (c < columns) { y", "if (true) { y", "such a column"),
                ("k < 16", "k < 4", "`s`["),
                ("if (t % 32 == 0)", "if (t < 8)", "A thread without a column counts too"),
                (
                    "y[row + c] = kept[k] * scale",
                    "y[row + c] = ((volatile float *)s)[row + c] * scale",
                    "crosses the memory's pins more than once",
                ),
                ("void add_rms_norm", "void other_norm", "no kernel `add_rms_norm`"),
            ],
        );
    }

    #[test]
    fn cheats_are_told_so() {
        let told = |source: &str, said: &str| {
            let text = add_rms_norm(source).text();
            assert!(text.starts_with("NOT YET") && text.contains(said), "{said}: {text}");
        };
        let one_thread = "extern \"C\" __global__ void add_rms_norm(const float *x, const float *r, const float *weight, float *s, float *y, int columns, float eps) {
    __shared__ float kept[4096];
    if (threadIdx.x > 0) { return; }
    int row = blockIdx.x * columns;
    float sum = 0.0f;
    for (int c = 0; c < columns; ++c) { s[row + c] = kept[c] = x[row + c] + r[row + c]; sum += kept[c] * kept[c]; }
    float scale = rsqrtf(sum / columns + eps);
    for (int c = 0; c < columns; ++c) { y[row + c] = kept[c] * scale * weight[c]; }
}";
        told(one_thread, "lanes are active");
        // The first block has all rows.
        let first = NORM.replace(
            "int t = threadIdx.x, row = blockIdx.x * columns;",
            "if (blockIdx.x > 0) { return; }
    for (int row = 0, t = threadIdx.x; row < gridDim.x * columns; row += columns) {
    __syncthreads();",
        );
        told(&format!("{first}}}"), "the work is not shared out");
        told(&NORM.replace("kept[k] * scale * weight[c]", "1.0f"), "and it should be");
        told(&NORM.replace("kept[k] * scale * weight[c]", "0.0f / 0.0f"), "is NaN");
        told(&NORM.replace("weight[c]; }", "weight[c + columns]; }"), "such a column");
        let spoiled = NORM.replace("* weight[c]; }", "* weight[c]; ((float *)x)[row + c] = 0.0f; }");
        told(&spoiled, "`x` is no longer");
    }
}
