//! An exercise of lesson 14: a kernel that is right already, and moves more bytes than it must. The simulator counts them.

use super::Verdict;
use super::kernels::{self, left, shared_out, unchanged};
use super::verdict::{Check, told};
use gpulab::cpu;
use gpulab::error::Error;
use gpulab::inspect::Inspection;
use gpulab::launch::LaunchConfig;
use gpulab::warpsim::Kind;

const BLOCK: u32 = 256;
/// Rows and columns; those whose rows are whole sectors are counted.
const TABLES: [(usize, usize); 6] = [(1, 1), (31, 2), (33, 65), (512, 100), (1024, 7), (64, 333)];
/// What the numbers of a table are multiplied by, and what is added: around 0, far above and below it, all alike.
const NUMBERS: [(f32, f32); 5] = [(4.0, 0.0), (50.0, 10_000.0), (50.0, -10_000.0), (0.0, -7.0), (0.0, -1e30)];

/// Checks a kernel `log_sum_exp(const float *x, float *y, int rows, int columns)` that sets `y[row]` to the logarithm of
/// the sum of `exp(x[column * rows + row])`, a thread a row: right for numbers of any size, and reads each once.
pub fn log_sum_exp(source: &str) -> Verdict {
    kernels::verdict("log_sum_exp", source, "log_sum_exp", mistake_hint, |gpu, kernel| {
        for ((rows, columns), (scale, shift)) in
            TABLES.into_iter().flat_map(|table| NUMBERS.map(|numbers| (table, numbers)))
        {
            let x: Vec<f32> = cpu::random_f32(rows * columns, 1).into_iter().map(|x| scale * x + shift).collect();
            let (on_x, mut y) = (gpu.to_device(&x)?, gpu.poison::<f32>(rows)?);
            let config = LaunchConfig::for_elements(rows, BLOCK);
            kernel.launch(config, (&on_x, &mut y, rows as i32, columns as i32))?;
            let expected: Vec<f32> = (0..rows).map(|row| exact(&x, row, rows)).collect();
            let given = y.to_host()?;
            if let Some((at, what)) = first_wrong(&given, &expected) {
                let across: Vec<f32> = (0..rows).map(|row| exact(&x[row * columns..][..columns], 0, 1)).collect();
                let what = format!("{what} ({columns} numbers around {shift})");
                return if first_wrong(&given, &across).is_none() {
                    told(
                        what,
                        "that is the result of other numbers than those of the row",
                        "the table lies column by column: how far apart are two numbers of one row?",
                    )
                } else if given[at] == f32::INFINITY {
                    told(
                        what,
                        "exp of a number above 88 is infinite in f32",
                        "what can be taken off all exponents of a row, and added again behind the logarithm?",
                    )
                } else if !given[at].is_finite() {
                    told(
                        what,
                        "all exponentials of the row came out as 0, or something was divided or multiplied by infinity",
                        "all numbers of a row may be far below 0: which maximum does an empty row have?",
                    )
                } else {
                    told(
                        what,
                        "the sum counts some of its numbers too much or too little",
                        "whenever the maximum grows, what was added so far counted too much: by what factor must it shrink?",
                    )
                };
            }
            unchanged("x", &on_x, &x)?;
            if rows.is_multiple_of(8) && scale == 4.0 {
                let seen = kernel.inspect(config, (&on_x, &mut y, rows as i32, columns as i32))?;
                moved(&seen, 4 * rows * columns, 4 * rows)?;
                if rows == 1024 {
                    shared_out(&seen, 0.5)?;
                }
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

/// What it moved beyond what must be read and written: sectors of memory, that of a thread's own arrays with it.
fn moved(seen: &Inspection, reads: usize, writes: usize) -> Check {
    let c = &seen.counters;
    let own = c.local_load_sectors + c.local_store_sectors;
    if own > 0 {
        return told(
            format!(
                "right, but its threads keep numbers in arrays of their own, and move {} bytes of them to and from memory",
                32 * own
            ),
            "an array with a computed index cannot lie in registers: it lies in local memory, which is the GPU's memory",
            "which few numbers does a thread need of all that it has read so far?",
        );
    }
    let (read, written) = (32 * c.global_load_sectors as usize, 32 * c.global_store_sectors as usize);
    // Neighbours that read no neighbours fetch more sectors, though each number is read once.
    let scattered = c.global_load_sectors > 4 * c.global_load_requests;
    let (meaning, idea) = match (read > reads, written > writes) {
        (false, false) => return Ok(()),
        _ if scattered => (
            "the lanes of one request read places that lie far apart, and use a part of each sector",
            "neighbouring threads are to read neighbouring numbers: keep who takes which",
        ),
        (true, false) => (
            "something is fetched from memory more than once",
            "each number need be read once only: what the first look at it gave can stay in a register",
        ),
        (true, true) => (
            "something is written to memory, and read again",
            "what one step leaves for the next can stay in a register: then nobody writes or reads it",
        ),
        (false, true) => (
            "something is written that is no result, or a result more than once",
            "write each result once, when it is complete",
        ),
    };
    let what = format!(
        "right, but it moves too much: {read} bytes are read and {written} written, {reads} and {writes} would do"
    );
    told(what, meaning, idea)
}

/// Equal but for the rounding of `expf`, a few sums, and the sum with a maximum that may be large.
fn close(given: f32, expected: f32) -> bool {
    (given - expected).abs() <= 5e-7 * expected.abs() + 1e-4 * expected.abs().clamp(1.0, 100.0)
}

/// The first row that is not as it should be, and that in words.
fn first_wrong(given: &[f32], expected: &[f32]) -> Option<(usize, String)> {
    let at = given.iter().zip(expected).position(|(&given, &expected)| !close(given, expected))?;
    Some((at, format!("of {}, row {at} {}, and it should be {}", given.len(), left(given[at]), expected[at])))
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
    use crate::check::kernels::{expect, passes};

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
    fn log_sum_exp_knows_its_mistakes() {
        expect(
            log_sum_exp,
            LOG_SUM_EXP,
            &[
                ("sum * expf(most - larger)", "sum", "by what factor must it shrink"),
                ("expf(own - larger)", "expf(own)", "by what factor"),
                ("float larger = fmaxf(most, own);", "float larger = 0.0f;", "exp of a number above 88 is infinite"),
                ("x[column * rows + row]", "x[row * columns + column]", "the table lies column by column"),
                ("most = -3.4e38f", "most = 0.0f", "which maximum does an empty row have"),
                ("if (row >= rows) { return; }", "", "is there one?"),
                (
                    "if (row >= rows) { return; }",
                    "if (row >= rows) { return; } if (rows == 512) { row = row * 129 % 512; }",
                    "neighbouring threads are to read neighbouring numbers",
                ),
                // Two looks at each number: first for the maximum.
                (
                    "for (int column = 0",
                    "for (int column = 0; column < columns; ++column) { most = fmaxf(most, x[column * rows + row]); }
                 for (int column = 0",
                    "409600 bytes are read and 2048 written, 204800 and 2048 would do\nhint: something is fetched from memory more than once",
                ),
                // The maximum alone; a maximum far below, but not below all; a row in an array; one thread; constants.
                ("most + logf(sum)", "most", "counts some of its numbers too"),
                ("most = -3.4e38f", "most = -1e9f", "which maximum does an empty row have"),
                (
                    "float own = x[column * rows + row];",
                    "volatile float kept[512]; kept[column] = x[column * rows + row]; float own = kept[column];",
                    "arrays of their own",
                ),
                ("y[row] = most + logf(sum)", "y[row] = 2.0f", "and it should be"),
                ("y[row] = most + logf(sum)", "y[row] = __int_as_float(0x7fc00000)", "is NaN"),
                (
                    "most = larger;",
                    "most = larger; ((float *)x)[column * rows + row] = most;",
                    "the input `x` has changed",
                ),
            ],
        );
        let one = LOG_SUM_EXP
            .replace("if (row >= rows) { return; }", "if (row != 0) { return; }\n    for (; row < rows; ++row) {")
            .replace("y[row] = most + logf(sum);", "y[row] = most + logf(sum); }");
        let text = log_sum_exp(&one).text();
        assert!(text.contains("would do") || text.contains("not shared out"), "{text}");
        // A branch in place of the second exponential.
        let branch =
            "if (own <= most) { sum += expf(own - most); } else { sum = sum * expf(most - own) + 1.0f; most = own; }";
        let loop_body = "float larger = fmaxf(most, own);
        sum = sum * expf(most - larger) + expf(own - larger);
        most = larger;";
        passes(log_sum_exp, &[&LOG_SUM_EXP.replace(loop_body, branch)]);
    }
}
