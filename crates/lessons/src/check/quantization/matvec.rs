//! A product of a quantized matrix and a vector, from a blank page: weights in four bits, activations in 16 (W4A16).

use super::packed;
use crate::check::Verdict;
use crate::check::four_bits::{self, Budget, mistake_hint};
use crate::check::kernels::{self, unchanged};
use crate::check::verdict::{Check, told};
use gpulab::cpu::{self, bf16_from_f32, f32_from_bf16};
use gpulab::gpu::{Gpu, Kernel};
use gpulab::launch::LaunchConfig;

/// Weights that share a scale.
const GROUP: usize = 64;
/// Rows and columns: one group, odd numbers of rows and of groups, a warp's loads and one more; the last one is judged.
const SHAPES: [(usize, usize); 8] = [(1, 64), (3, 64), (5, 192), (4, 256), (7, 320), (33, 576), (2, 1088), JUDGED];
const JUDGED: (usize, usize) = (8, 4096);

/// Checks a kernel `matvec(const unsigned *codes, const unsigned short *scales, const unsigned short *x, float *y, int rows, int
/// columns)`: `y[r]` is the sum over c of `scales[r, c / 64] · (code[r, c] − 8) · x[c]`, in f32. A word of `codes` holds eight codes, the first in its
/// lowest four bits; scales and x are bf16. It is launched with blocks of 128 threads, one for every four rows; columns are a
/// multiple of 64. Each word of codes is to be read once, and loads are to use the sectors that they ask for.
pub fn quantized_matvec(source: &str) -> Verdict {
    kernels::verdict("quantized_matvec", source, "matvec", mistake_hint, |gpu, kernel| {
        for shape in SHAPES {
            // Around 0; all of one sign, where a sum in 16 bits loses its digits.
            for shift in [0.0, 1.5] {
                Matrix::new(shape, shift).check(gpu, kernel)?;
            }
        }
        Matrix::new(JUDGED, 0.0).cost(gpu, kernel)
    })
}

struct Matrix {
    rows: usize,
    columns: usize,
    codes: Vec<i8>,
    words: Vec<u32>,
    scales: Vec<u16>,
    x: Vec<u16>,
}

impl Matrix {
    fn new((rows, columns): (usize, usize), shift: f32) -> Matrix {
        let (count, groups) = (rows * columns, rows * columns / GROUP);
        let codes: Vec<i8> = cpu::random_f32(count, 1).iter().map(|x| (7.99 * x).floor() as i8).collect();
        let codes: Vec<i8> = match shift == 0.0 {
            true => codes,
            false => codes.into_iter().map(|code| code.max(-code - 1)).collect(),
        };
        // Each group has a scale of its own, and no two neighbours are near.
        let scale = |(at, x): (usize, f32)| bf16_from_f32((1.5 + x) * [0.01, 0.3, 2.0][at % 3]);
        let scales = cpu::random_f32(groups, 2).into_iter().enumerate().map(scale).collect();
        let x = cpu::random_f32(columns, 3).into_iter().map(|x| bf16_from_f32(x + shift)).collect();
        Matrix { rows, columns, words: packed(&codes), codes, scales, x }
    }

    fn named(&self) -> String {
        format!("{} × {}", self.rows, self.columns)
    }

    fn config(&self) -> LaunchConfig {
        four_bits::config(self.rows)
    }

    /// A row in f64, with the code, the scale and the input that the three functions give for a place; and the sum of magnitudes.
    fn row(&self, row: usize, code: impl Fn(usize) -> f64, scale: impl Fn(usize) -> usize) -> (f64, f64) {
        let term = |c: usize| {
            let at = row * self.columns + c;
            let scale = self.scales.get(scale(at)).map_or(0.0, |bits| f64::from(f32_from_bf16(*bits)));
            code(at) * scale * f64::from(f32_from_bf16(self.x[c]))
        };
        (0..self.columns).map(term).fold((0.0, 0.0), |(sum, all), term| (sum + term, all + term.abs()))
    }

    fn exact(&self, row: usize) -> (f64, f64) {
        self.row(row, |at| f64::from(self.codes[at]), |at| at / GROUP)
    }

    fn check(&self, gpu: &Gpu, kernel: &Kernel) -> Check {
        let (codes, scales, x) = (gpu.to_device(&self.words)?, gpu.to_device(&self.scales)?, gpu.to_device(&self.x)?);
        let mut y = gpu.poison::<f32>(self.rows)?;
        let sides = (self.rows as i32, self.columns as i32);
        kernel.launch(self.config(), (&codes, &scales, &x, &mut y, sides.0, sides.1))?;
        unchanged("codes", &codes, &self.words)?;
        unchanged("scales", &scales, &self.scales)?;
        unchanged("x", &x, &self.x)?;
        let given = y.to_host()?;
        // f32 adds up thousands of numbers within this part of their magnitudes; sums or weights in 16 bits do not.
        let fits = |given: f32, (sum, all): (f64, f64)| (f64::from(given) - sum).abs() <= 1e-5 * all;
        let Some(at) = (0..self.rows).find(|row| !fits(given[*row], self.exact(*row))) else { return Ok(()) };
        let (right, all) = self.exact(at);
        let what = format!("{}: y[{at}] {}, and it should be {right}", self.named(), kernels::left(given[at]));
        let is = |wrong: (f64, f64)| fits(given[at], wrong);
        let off = (f64::from(given[at]) - right).abs() / all;
        let code = |at: usize| f64::from(self.codes[at]);
        let row_of = |scale: &dyn Fn(usize) -> usize| self.row(at, code, scale);
        let of_another_group =
            [row_of(&|at| at % self.columns / GROUP), row_of(&|at| at / (2 * GROUP)), row_of(&|at| at / (GROUP / 2))];
        let (meaning, idea) = if given[at].is_nan() {
            ("nobody has written this row's sum, or NaN came into it", "which thread writes y, for which rows?")
        } else if is(self.row(at, |at| code(at) + 8.0, |at| at / GROUP)) {
            ("these are the four bits as they stand, 0 to 15", "which weight does the code 8 stand for?")
        } else if is(self.row(at, |at| code(at ^ 7), |at| at / GROUP)) {
            ("the eight codes of each word come in the wrong order", "the first code lies in the lowest four bits")
        } else if of_another_group.into_iter().any(is) {
            (
                "the weights of a group are multiplied with the scale of another one",
                "64 neighbours in a row share a scale, and each row has columns ÷ 64 scales of its own: which number has that of row r, column c?",
            )
        } else if off < 3e-4 {
            (
                "near, and farther off than sums in f32 are: a few terms with a small scale are missing, or something is rounded to 16 bits",
                "are all words of the row in the sum? And 16 bits are how numbers are kept: multiply and add in f32",
            )
        } else {
            (
                "the sum over c of scale · (code − 8) · x[c] gives another number",
                "compute one row of the smallest matrix by hand: which c does each lane take, and who adds up the lanes' sums?",
            )
        };
        told(what, meaning, idea)
    }

    /// What all warps load, and whether they share the work.
    fn cost(&self, gpu: &Gpu, kernel: &Kernel) -> Check {
        let (codes, scales, x) = (gpu.to_device(&self.words)?, gpu.to_device(&self.scales)?, gpu.to_device(&self.x)?);
        let mut y = gpu.poison::<f32>(self.rows)?;
        let sides = (self.rows as i32, self.columns as i32);
        let seen = kernel.inspect(self.config(), (&codes, &scales, &x, &mut y, sides.0, sides.1))?;
        let budget = Budget {
            named: self.named(),
            words: self.words.len(),
            others: &["x", "scales"],
            // A warp may read all of x for each row: 16 bits per weight.
            x: ((self.rows * self.columns * 2 / 32) as u64, "all of x, for each row,"),
            x_words: (
                "a lane that takes eight codes needs eight neighbouring numbers of x, 16 bytes. Read one by one, each request touches 16 bytes' worth of sectors of all lanes, eight times",
                "read them at once, as a `uint4`, or leave x in shared memory first, where all warps of the block find it",
            ),
            scales: "64 weights share a scale, and the lanes that hold them can share the read",
        };
        four_bits::cost(self.config(), &budget, &seen, |block, warp| {
            kernel.inspect_warp(self.config(), (&codes, &scales, &x, &mut y, sides.0, sides.1), block, warp)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::check::four_bits::variants;
    use crate::check::kernels::{expect, expect_whole, passes};

    const RIGHT: &str = r#"extern "C" __global__ void matvec(const unsigned *codes, const unsigned short *scales, const unsigned short *x, float *y, int rows, int columns) {
    int row = blockIdx.x * 4 + threadIdx.x / 32, lane = threadIdx.x % 32;
    if (row >= rows) { return; }
    float sum = 0.0f;
    for (int word = lane; word < columns / 8; word += 32) {
        unsigned eight = codes[row * (columns / 8) + word];
        uint4 bits = ((const uint4 *)x)[word];
        unsigned pairs[4] = {bits.x, bits.y, bits.z, bits.w};
        float part = 0.0f;
        for (int i = 0; i < 8; ++i) {
            float x_i = __uint_as_float(i % 2 ? pairs[i / 2] & 0xffff0000 : pairs[i / 2] << 16);
            part += ((int)(eight >> 4 * i & 15) - 8) * x_i;
        }
        sum += part * __uint_as_float((unsigned)scales[row * (columns / 64) + word / 8] << 16);
    }
    for (int d = 16; d > 0; d /= 2) { sum += __shfl_xor_sync(~0u, sum, d); }
    if (lane == 0) { y[row] = sum; }
}"#;

    #[test]
    fn right_ones_of_other_shapes_pass() {
        // x in shared memory, for the whole block.
        let shared = r#"extern "C" __global__ void matvec(const unsigned *codes, const unsigned short *scales, const unsigned short *x, float *y, int rows, int columns) {
    __shared__ float part_of_x[2048];
    int row = blockIdx.x * 4 + threadIdx.x / 32, lane = threadIdx.x % 32;
    float sum = 0.0f;
    for (int from = 0; from < columns; from += 2048) {
        __syncthreads();
        for (int c = from + threadIdx.x; c < min(from + 2048, columns); c += 128) {
            part_of_x[c - from] = __uint_as_float((unsigned)x[c] << 16);
        }
        __syncthreads();
        if (row < rows) {
            for (int word = from / 8 + lane; word < min(from + 2048, columns) / 8; word += 32) {
                unsigned eight = codes[row * (columns / 8) + word];
                float part = 0.0f;
                for (int i = 0; i < 8; ++i) { part += ((int)(eight >> 4 * i & 15) - 8) * part_of_x[word * 8 + i - from]; }
                sum += part * __uint_as_float((unsigned)scales[row * (columns / 64) + word / 8] << 16);
            }
        }
    }
    for (int d = 16; d > 0; d /= 2) { sum += __shfl_down_sync(~0u, sum, d); }
    if (row < rows && lane == 0) { y[row] = sum; }
}"#;
        let by_block = variants::by_block(RIGHT, "if (lane == 0) { y[row] = sum; }", "sum");
        passes(quantized_matvec, &[shared, &by_block]);
    }

    #[test]
    fn wrong_ones_are_told_so() {
        expect(
            quantized_matvec,
            RIGHT,
            &[
                (" - 8)", ")", "as they stand"),
                ("4 * i & 15", "(28 - 4 * i) & 15", "in the wrong order"),
                ("row * (columns / 64) + word / 8", "word / 8", "the scale of another one"),
                ("row * (columns / 64) + word / 8", "(row * (columns / 8) + word) / 16", "the scale of another one"),
                ("if (row >= rows) { return; }", "", "is there such a row"),
                ("word < columns / 8", "word < columns / 8 + 1", "and such a word"),
                (
                    "for (int d = 16; d > 0; d /= 2) { sum += __shfl_xor_sync(~0u, sum, d); }",
                    "",
                    "gives another number",
                ),
                ("d = 16", "d = 8", "gives another number"),
                (
                    "16; d > 0; d /= 2) { sum += __shfl_xor_sync(~0u, sum, d); }\n    if (lane == 0)",
                    "16; d > 16; d /= 2) {}\n    if (true)",
                    "which lane holds the whole",
                ),
                ("sum += part *", "sum = part *", "are missing, or"),
                (
                    "sum += part * __uint_as_float((unsigned)scales[row * (columns / 64) + word / 8] << 16);",
                    "sum += part * __uint_as_float((unsigned)scales[row * (columns / 64) + word / 8] << 16);\n        sum = __uint_as_float(__float_as_uint(sum) + 0x8000 & 0xffff0000);",
                    "rounded to 16 bits",
                ),
                (
                    "i % 2 ? pairs[i / 2] & 0xffff0000 : pairs[i / 2] << 16",
                    "pairs[i / 2] << 16",
                    "gives another number",
                ),
                // Right, and wasteful.
                (
                    "uint4 bits = ((const uint4 *)x)[word];",
                    "const unsigned *of_x = (const unsigned *)x + 4 * word; uint4 bits = make_uint4(((volatile const unsigned *)of_x)[0], ((volatile const unsigned *)of_x)[1], ((volatile const unsigned *)of_x)[2], ((volatile const unsigned *)of_x)[3]);",
                    "the loads of `x` ask for",
                ),
                ("void matvec", "void product", "no kernel `matvec`"),
            ],
        );
    }

    #[test]
    fn cheats_are_told_so() {
        let constant = RIGHT.replace("y[row] = sum;", "y[row] = 0.0f;");
        let nan = RIGHT.replace("y[row] = sum;", "y[row] = 0.0f / 0.0f;");
        let spoils = RIGHT.replace("y[row] = sum;", "y[row] = sum; ((unsigned *)codes)[row] = 0;");
        expect_whole(
            quantized_matvec,
            &[
                (&variants::lonely(RIGHT), "the work is not shared out"),
                (&variants::one_warp(RIGHT, "if (lane == 0) { y[row] = sum; }"), "the work is not shared out"),
                (&variants::twice(RIGHT), "the loads of `codes` ask for"),
                (&constant, "and it should be"),
                (&nan, "is NaN"),
                (&variants::renamed(RIGHT), "no load of `codes` was seen"),
                (&spoils, "the input `codes` has changed"),
            ],
        );
    }
}
