//! Exercises of lesson 14: kernels that are right already, and move more bytes than they must. The simulator counts them.

use super::Verdict;
use super::kernels;
use super::verdict::{Check, none_wrong, wrong};
use gpulab::cpu;
use gpulab::error::Error;
use gpulab::inspect::Inspection;
use gpulab::launch::LaunchConfig;
use gpulab::warpsim::Kind;

const BLOCK: u32 = 256;
/// So many threads walk over the elements of `swiglu`, whatever their number.
const WALKERS: usize = 512;
/// One element, a warp and its neighbours, more than there are threads; the last is whole sectors, and is counted.
const SIZES: [usize; 5] = [1, 31, 33, 1000, 4096];
/// Rows and columns; the last is whole sectors, and is counted.
const TABLES: [(usize, usize); 4] = [(1, 1), (31, 2), (33, 65), (512, 100)];

/// Checks a kernel `swiglu(const float *gate, const float *up, float *t, float *y, int n)` that sets `y[i]` to
/// `gate[i] / (1 + exp(-gate[i])) * up[i]`, by 512 threads that walk over the elements: 12 bytes an element.
pub fn swiglu(source: &str) -> Verdict {
    kernels::verdict("swiglu", source, "swiglu", mistake_hint, |gpu, kernel| {
        let config = LaunchConfig::for_elements(WALKERS, BLOCK);
        for n in SIZES {
            let (gate, up) = (cpu::random_f32(n, 1), cpu::random_f32(n, 2));
            let (on_gate, on_up) = (gpu.to_device(&gate)?, gpu.to_device(&up)?);
            let (mut t, mut y) = (gpu.poison::<f32>(n)?, gpu.poison::<f32>(n)?);
            // First as any launch: its mistakes come as an error.
            kernel.launch(config, (&on_gate, &on_up, &mut t, &mut y, n as i32))?;
            let one = |(&gate, &up): (&f32, &f32)| gate / (1.0 + (-gate).exp()) * up;
            let expected: Vec<f32> = gate.iter().zip(&up).map(one).collect();
            let hint = "y[i] is what the two loops made of gate[i] and up[i]: it may be one formula, in one loop \
                            that takes steps of all threads";
            none_wrong(first_wrong("element", n, &y.to_host()?, &expected), hint)?;
            if n == SIZES[4] {
                let seen = kernel.inspect(config, (&on_gate, &on_up, &mut t, &mut y, n as i32))?;
                moved(&seen, 2 * 4 * n, 4 * n)?;
            }
        }
        Ok(())
    })
}

/// Checks a kernel `log_sum_exp(const float *x, float *y, int rows, int columns)` that sets `y[row]` to the logarithm of
/// the sum of `exp(x[column * rows + row])`, a thread a row: right for numbers of any size, and reads each once.
pub fn log_sum_exp(source: &str) -> Verdict {
    kernels::verdict("log_sum_exp", source, "log_sum_exp", mistake_hint, |gpu, kernel| {
        for ((rows, columns), (scale, shift)) in
            TABLES.into_iter().flat_map(|table| [(4.0, 0.0), (50.0, 10_000.0), (50.0, -10_000.0)].map(|x| (table, x)))
        {
            let x: Vec<f32> = cpu::random_f32(rows * columns, 1).into_iter().map(|x| scale * x + shift).collect();
            let (on_x, mut y) = (gpu.to_device(&x)?, gpu.poison::<f32>(rows)?);
            let config = LaunchConfig::for_elements(rows, BLOCK);
            kernel.launch(config, (&on_x, &mut y, rows as i32, columns as i32))?;
            let expected: Vec<f32> = (0..rows).map(|row| exact(&x, row, rows)).collect();
            let given = y.to_host()?;
            if let Some(what) = first_wrong("row", rows, &given, &expected) {
                let across: Vec<f32> = (0..rows).map(|row| exact(&x[row * columns..][..columns], 0, 1)).collect();
                let hint = match given.iter().find(|y| !y.is_finite()) {
                    _ if first_wrong("row", rows, &given, &across).is_none() => {
                        "the table lies column by column: the numbers of a row lie `rows` apart"
                    }
                    _ if shift == 0.0 => {
                        "whenever the maximum grows, what was added so far counted too much: by what \
                                          factor must it shrink?"
                    }
                    Some(y) if *y == f32::INFINITY => {
                        "exp(10000) is infinite: the largest number of the row so far \
                                                       is to be taken off each exponent"
                    }
                    _ => "all numbers of a row may be far below 0: which maximum does an empty row have?",
                };
                let what = format!("{what} (numbers around {shift})");
                return wrong(what, hint);
            }
            if (rows, columns) == TABLES[3] {
                let seen = kernel.inspect(config, (&on_x, &mut y, rows as i32, columns as i32))?;
                moved(&seen, 4 * rows * columns, 4 * rows)?;
            }
        }
        Ok(())
    })
}

/// The logarithm of the sum of a row's exponentials, in f64.
fn exact(x: &[f32], row: usize, rows: usize) -> f32 {
    let row = || x.iter().skip(row).step_by(rows).copied().map(f64::from);
    let most = row().fold(f64::NEG_INFINITY, f64::max);
    (most + row().map(|x| (x - most).exp()).sum::<f64>().ln()) as f32
}

/// What it moved beyond what must be read and written.
fn moved(seen: &Inspection, reads: usize, writes: usize) -> Check {
    let c = &seen.counters;
    let (read, written) = (32 * c.global_load_sectors as usize, 32 * c.global_store_sectors as usize);
    // Neighbours that read no neighbours fetch more sectors, though each number is read once.
    let scattered = c.global_load_sectors > 4 * c.global_load_requests;
    let hint = match (read > reads, written > writes) {
        (false, false) => return Ok(()),
        _ if scattered => "neighbouring threads are to read neighbouring numbers: keep who takes which",
        (true, false) => "each number need be read once only: what the first look at it gave can stay in a register",
        (true, true) => "what one step leaves for the next can stay in a register: then nobody writes or reads it",
        (false, true) => "write each result once, when it is complete",
    };
    let what = format!(
        "right, but it moves too much: {read} bytes are read and {written} written, {reads} and {writes} would do"
    );
    wrong(what, hint)
}

/// Equal but for the rounding of `expf` and a few sums; NaN is never.
fn near(given: f32, expected: f32) -> bool {
    (given - expected).abs() <= 1e-4 * expected.abs().max(1.0)
}

/// The first element or row that is not as it should be, in words.
fn first_wrong(of: &str, n: usize, given: &[f32], expected: &[f32]) -> Option<String> {
    let at = given.iter().zip(expected).position(|(&given, &expected)| !near(given, expected))?;
    let is = if given[at].is_nan() { "was never written, or is no number".into() } else { format!("is {}", given[at]) };
    Some(format!("of {n}, {of} {at} {is}, and it should be {}", expected[at]))
}

/// What to ask oneself about the first mistake; no thread needs another one here.
fn mistake_hint(error: &Error) -> &'static str {
    let is = |kinds: &[Kind]| kernels::first_is(error, kinds);
    if is(&[Kind::GlobalRace, Kind::SharedRace]) {
        "two threads meet at one number, and each is to have its own: which do these two take?"
    } else {
        "read the line, the block and the thread above: which number does that thread ask for, and is there one?"
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::check::kernels::expect;

    const SWIGLU: &str =
        "extern \"C\" __global__ void swiglu(const float *gate, const float *up, float *t, float *y, int n) {
    int first = blockIdx.x * blockDim.x + threadIdx.x;
    for (int i = first; i < n; i += gridDim.x * blockDim.x) {
        float g = gate[i];
        y[i] = g / (1.0f + expf(-g)) * up[i];
    }
}";

    const LOG_SUM_EXP: &str =
        "extern \"C\" __global__ void log_sum_exp(const float *x, float *y, int rows, int columns) {
    int row = blockIdx.x * blockDim.x + threadIdx.x;
    if (row >= rows) { return; }
    float most = -3.4e38f, sum = 0.0f;
    for (int column = 0; column < columns; ++column) {
        float own = x[column * rows + row];
        float larger = fmaxf(most, own);
        sum = sum * expf(most - larger) + expf(own - larger);
        most = larger;
    }
    y[row] = most + logf(sum);
}";

    #[test]
    fn swiglu_knows_its_mistakes() {
        expect(
            swiglu,
            SWIGLU,
            &[
                // Through memory, as two kernels would.
                (
                    "y[i] = g / (1.0f + expf(-g)) * up[i];",
                    "t[i] = g / (1.0f + expf(-g)); __threadfence_block(); y[i] = ((volatile float *)t)[i] * up[i];",
                    "49152 bytes are read and 32768 written, 32768 and 16384 would do\nhint: what one step leaves",
                ),
                ("* up[i]", "", "it may be one formula"),
                ("i < n", "i < (n + 31) / 32 * 32", "is there one?"),
                ("int first = ", "int first = 0 * ", "steps of all threads"),
                ("i += gridDim.x * blockDim.x", "i += 4096", "was never written"),
                ("y[i] = g", "y[i] = 0.0f; __threadfence_block(); y[i] = g", "write each result once"),
                (
                    "float g = gate[i];",
                    "float g = gate[i]; __threadfence_block(); g = 0.5f * (g + ((volatile const float *)gate)[i]);",
                    "can stay in a register",
                ),
            ],
        );
    }

    #[test]
    fn log_sum_exp_knows_its_mistakes() {
        expect(
            log_sum_exp,
            LOG_SUM_EXP,
            &[
                ("sum * expf(most - larger)", "sum", "by what factor must it shrink"),
                ("expf(own - larger)", "expf(own)", "by what factor"),
                ("float larger = fmaxf(most, own);", "float larger = 0.0f;", "exp(10000) is infinite"),
                ("x[column * rows + row]", "x[row * columns + column]", "the table lies column by column"),
                ("most = -3.4e38f", "most = 0.0f", "which maximum does an empty row have"),
                ("if (row >= rows) { return; }", "", "is there one?"),
                (
                    "if (row >= rows) { return; }",
                    "if (row >= rows) { return; } if (rows == 512) { row = row * 129 % 512; }",
                    "hint: neighbouring threads are to read neighbouring numbers",
                ),
                // Two looks at each number: first for the maximum.
                (
                    "for (int column = 0",
                    "for (int column = 0; column < columns; ++column) { most = fmaxf(most, x[column * rows + row]); }
                 for (int column = 0",
                    "409600 bytes are read and 2048 written, 204800 and 2048 would do\nhint: each number need be read once",
                ),
            ],
        );
    }
}
