//! A linear layer whose weights have four bits: the product that decoding reads its weights for.

use crate::check::Verdict;
use crate::check::four_bits::{self, Budget, mistake_hint};
use crate::check::kernels::{self, unchanged};
use crate::check::verdict::{Check, told};
use gpulab::cpu;
use gpulab::gpu::{Buffer, Gpu, Kernel};
use gpulab::launch::LaunchConfig;

/// Weights that share a scale.
const GROUP: usize = 32;
/// Rows and columns: one group, odd numbers of rows and of groups, a warp's loads and one more; the last one is judged.
const SHAPES: [(usize, usize); 8] = [(1, 32), (3, 32), (5, 96), (4, 256), (7, 288), (33, 544), (2, 1056), JUDGED];
const JUDGED: (usize, usize) = (8, 2048);

/// Checks a kernel `linear4(const unsigned *codes, const float *scales, const float *x, const float *bias, float *y, int rows, int columns)`:
/// `y[r]` is `bias[r]` and the sum over c of `scales[r, c / 32] · (code[r, c] − 8) · x[c]`. A word of `codes` holds eight codes, the first in
/// its lowest four bits. It is launched with blocks of 128 threads, one for every four rows; columns are a multiple of 32. Each word of
/// codes is to be read once, and loads are to use the sectors that they ask for.
pub fn linear4(source: &str) -> Verdict {
    kernels::verdict("linear4", source, "linear4", mistake_hint, |gpu, kernel| {
        for shape in SHAPES {
            Layer::new(shape).check(gpu, kernel)?;
        }
        Layer::new(JUDGED).cost(gpu, kernel)
    })
}

struct Layer {
    rows: usize,
    columns: usize,
    codes: Vec<u32>,
    words: Vec<u32>,
    scales: Vec<f32>,
    x: Vec<f32>,
    bias: Vec<f32>,
}

/// What a launch takes, on the device.
type OnDevice = (Buffer<u32>, Buffer<f32>, Buffer<f32>, Buffer<f32>);

impl Layer {
    fn new((rows, columns): (usize, usize)) -> Layer {
        let code = |x: f32| (8.0 + 7.99 * x) as u32;
        let codes: Vec<u32> = cpu::random_f32(rows * columns, 1).into_iter().map(code).collect();
        let word = |eight: &[u32]| eight.iter().enumerate().fold(0, |word, (at, code)| word | code << (4 * at));
        // Each group has a scale of its own, and no two neighbours are near.
        let scale = |(at, x): (usize, f32)| (1.5 + x) * [0.01, 0.3, 2.0][at % 3];
        let scales = cpu::random_f32(rows * columns / GROUP, 2).into_iter().enumerate().map(scale).collect();
        let bias = cpu::random_f32(rows, 4).into_iter().map(|b| 10.0 + b).collect();
        Layer {
            rows,
            columns,
            words: codes.chunks(8).map(word).collect(),
            codes,
            scales,
            x: cpu::random_f32(columns, 3),
            bias,
        }
    }

    fn named(&self) -> String {
        format!("{} × {}", self.rows, self.columns)
    }

    fn config(&self) -> LaunchConfig {
        four_bits::config(self.rows)
    }

    fn on(&self, gpu: &Gpu) -> Check<OnDevice> {
        Ok((
            gpu.to_device(&self.words)?,
            gpu.to_device(&self.scales)?,
            gpu.to_device(&self.x)?,
            gpu.to_device(&self.bias)?,
        ))
    }

    /// A row in f64, with the code and the scale that the two functions give for a place; and the sum of magnitudes.
    fn row(&self, row: usize, code: impl Fn(usize) -> f64, scale: impl Fn(usize) -> usize) -> (f64, f64) {
        let term = |c: usize| {
            let at = row * self.columns + c;
            code(at) * self.scales.get(scale(at)).map_or(0.0, |scale| f64::from(*scale)) * f64::from(self.x[c])
        };
        let bias = f64::from(self.bias[row]);
        (0..self.columns).map(term).fold((bias, bias.abs()), |(sum, all), term| (sum + term, all + term.abs()))
    }

    fn check(&self, gpu: &Gpu, kernel: &Kernel) -> Check {
        let (codes, scales, x, bias) = self.on(gpu)?;
        let mut y = gpu.poison::<f32>(self.rows)?;
        let sides = (self.rows as i32, self.columns as i32);
        kernel.launch(self.config(), (&codes, &scales, &x, &bias, &mut y, sides.0, sides.1))?;
        unchanged("codes", &codes, &self.words)?;
        unchanged("scales", &scales, &self.scales)?;
        unchanged("x", &x, &self.x)?;
        unchanged("bias", &bias, &self.bias)?;
        let given = y.to_host()?;
        let code = |at: usize| f64::from(self.codes[at]) - 8.0;
        // f32 adds up thousands of numbers within this part of their magnitudes.
        let fits = |given: f32, (sum, all): (f64, f64)| (f64::from(given) - sum).abs() <= 1e-5 * all;
        let Some(at) = (0..self.rows).find(|row| !fits(given[*row], self.row(*row, code, |at| at / GROUP))) else {
            return Ok(());
        };
        let (right, all) = self.row(at, code, |at| at / GROUP);
        let what = format!("{}: y[{at}] {}, and it should be {right:.5}", self.named(), kernels::left(given[at]));
        let is = |wrong: (f64, f64)| fits(given[at], wrong);
        let of_another_group = [self.columns, 2 * GROUP, GROUP / 2]
            .map(|by| self.row(at, code, |at| if by == self.columns { at % by / GROUP } else { at / by }));
        let (meaning, idea) = if given[at].is_nan() {
            ("nobody has written this row's sum, or NaN came into it", "which thread writes y, for which rows?")
        } else if is((right - f64::from(self.bias[at]), all)) {
            ("the bias is missing", "one lane adds bias[row], once")
        } else if is(self.row(at, |at| code(at) + 8.0, |at| at / GROUP)) {
            ("these are the four bits as they stand, 0 to 15", "which weight does the code 8 stand for?")
        } else if is(self.row(at, |at| code(at ^ 7), |at| at / GROUP)) {
            ("the eight codes of each word come in the wrong order", "the first code lies in the lowest four bits")
        } else if of_another_group.into_iter().any(is) {
            (
                "the weights of a group are multiplied with the scale of another one",
                "32 neighbours in a row share a scale, and each row has columns ÷ 32 scales of its own: which number has that of row r, column c?",
            )
        } else {
            (
                "bias[r] and the sum over c of scale · (code − 8) · x[c] give another number",
                "compute one row of the smallest matrix by hand: which words does each lane take, and who adds up the lanes' sums?",
            )
        };
        told(what, meaning, idea)
    }

    /// What all warps load, and whether they share the work.
    fn cost(&self, gpu: &Gpu, kernel: &Kernel) -> Check {
        let (codes, scales, x, bias) = self.on(gpu)?;
        let mut y = gpu.poison::<f32>(self.rows)?;
        let (config, sides) = (self.config(), (self.rows as i32, self.columns as i32));
        let seen = kernel.inspect(config, (&codes, &scales, &x, &bias, &mut y, sides.0, sides.1))?;
        let budget = Budget {
            named: self.named(),
            words: self.words.len(),
            others: &["scales", "x", "bias"],
            // A lane's eight numbers are 32 bytes: two requests of 16 bytes per lane, each of which touches every sector.
            x: ((2 * self.rows * self.columns * 4 / 32) as u64, "all of x, for each row, twice,"),
            x_words: (
                "a lane that takes eight codes needs eight neighbouring numbers of x, 32 bytes. Read one by one, each of eight requests touches a sector for every lane",
                "read them as two `float4`, or leave x in shared memory first, where all warps of the block find it",
            ),
            scales: "32 weights share a scale, and the four lanes that hold them can share the read",
        };
        four_bits::cost(config, &budget, &seen, |block, warp| {
            kernel.inspect_warp(config, (&codes, &scales, &x, &bias, &mut y, sides.0, sides.1), block, warp)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::check::four_bits::variants;
    use crate::check::kernels::{expect, expect_whole, passes};

    const RIGHT: &str = r#"extern "C" __global__ void linear4(const unsigned *codes, const float *scales, const float *x, const float *bias, float *y, int rows, int columns) {
    int row = blockIdx.x * 4 + threadIdx.x / 32, lane = threadIdx.x % 32;
    if (row >= rows) { return; }
    float sum = 0.0f;
    for (int word = lane; word < columns / 8; word += 32) {
        unsigned eight = codes[row * (columns / 8) + word];
        float4 a = ((const float4 *)x)[2 * word], b = ((const float4 *)x)[2 * word + 1];
        float x_i[8] = {a.x, a.y, a.z, a.w, b.x, b.y, b.z, b.w}, part = 0.0f;
        for (int i = 0; i < 8; ++i) { part += ((int)(eight >> 4 * i & 15) - 8) * x_i[i]; }
        sum += part * scales[row * (columns / 32) + word / 4];
    }
    for (int d = 16; d > 0; d /= 2) { sum += __shfl_xor_sync(~0u, sum, d); }
    if (lane == 0) { y[row] = sum + bias[row]; }
}"#;

    const STORE: &str = "if (lane == 0) { y[row] = sum + bias[row]; }";

    #[test]
    fn right_ones_of_other_shapes_pass() {
        // x in shared memory, for the whole block.
        let shared = r#"extern "C" __global__ void linear4(const unsigned *codes, const float *scales, const float *x, const float *bias, float *y, int rows, int columns) {
    __shared__ float part_of_x[1024];
    int row = blockIdx.x * 4 + threadIdx.x / 32, lane = threadIdx.x % 32;
    float sum = lane == 0 && row < rows ? bias[row] : 0.0f;
    for (int from = 0; from < columns; from += 1024) {
        __syncthreads();
        for (int c = from + threadIdx.x; c < min(from + 1024, columns); c += 128) { part_of_x[c - from] = x[c]; }
        __syncthreads();
        if (row < rows) {
            for (int word = from / 8 + lane; word < min(from + 1024, columns) / 8; word += 32) {
                unsigned eight = codes[row * (columns / 8) + word];
                float part = 0.0f;
                for (int i = 0; i < 8; ++i) { part += ((int)(eight >> 4 * i & 15) - 8) * part_of_x[word * 8 + i - from]; }
                sum += part * scales[row * (columns / 32) + word / 4];
            }
        }
    }
    for (int d = 16; d > 0; d /= 2) { sum += __shfl_down_sync(~0u, sum, d); }
    if (row < rows && lane == 0) { y[row] = sum; }
}"#;
        let by_block = variants::by_block(RIGHT, STORE, "sum + bias[row]");
        passes(linear4, &[RIGHT, shared, &by_block]);
    }

    #[test]
    fn wrong_ones_are_told_so() {
        expect(
            linear4,
            RIGHT,
            &[
                (" - 8)", ")", "as they stand"),
                ("4 * i & 15", "(28 - 4 * i) & 15", "in the wrong order"),
                ("row * (columns / 32) + word / 4", "word / 4", "the scale of another one"),
                ("row * (columns / 32) + word / 4", "(row * (columns / 8) + word) / 8", "the scale of another one"),
                (" + bias[row]", "", "the bias is missing"),
                ("if (row >= rows) { return; }", "", "is there such a row"),
                ("word < columns / 8", "word < columns / 8 + 1", "and such a word"),
                ("d = 16", "d = 8", "give another number"),
                (
                    "16; d > 0; d /= 2) { sum += __shfl_xor_sync(~0u, sum, d); }\n    if (lane == 0)",
                    "16; d > 16; d /= 2) {}\n    if (true)",
                    "which lane holds the whole",
                ),
                (
                    "float4 a = ((const float4 *)x)[2 * word], b = ((const float4 *)x)[2 * word + 1];\n        float x_i[8] = {a.x, a.y, a.z, a.w, b.x, b.y, b.z, b.w}, part",
                    "const volatile float *x_i = x + 8 * word; float part",
                    "the loads of `",
                ),
                ("void linear4", "void product", "no kernel `linear4`"),
            ],
        );
    }

    #[test]
    fn cheats_are_told_so() {
        let constant = RIGHT.replace("y[row] = sum + bias[row];", "y[row] = bias[row];");
        let nan = RIGHT.replace("y[row] = sum + bias[row];", "y[row] = 0.0f / 0.0f;");
        let spoils = RIGHT.replace("y[row] = sum", "((unsigned *)codes)[row] = 0; y[row] = sum");
        expect_whole(
            linear4,
            &[
                (&variants::lonely(RIGHT), "the work is not shared out"),
                (&variants::one_warp(RIGHT, STORE), "the work is not shared out"),
                (&variants::twice(RIGHT), "the loads of `codes` ask for"),
                (&constant, "and it should be"),
                (&nan, "is NaN"),
                (&variants::renamed(RIGHT), "no load of `codes` was seen"),
                (&spoils, "the input `codes` has changed"),
            ],
        );
    }
}
