//! Exercises of lesson 30: a softmax that the learner writes, run in the simulator, which sees every access, and a number on paper.

use super::on_paper::number;
use super::verdict::{Check, wrong};
use super::{Verdict, kernels};
use gpulab::cpu;
use gpulab::error::Error;
use gpulab::gpu::{Gpu, Kernel};
use gpulab::launch::LaunchConfig;
use gpulab::warpsim::Kind;

/// Checks a kernel `softmax(float *s, int rows, int columns)`, launched with a block of one warp for each row, that turns the
/// row into weights in place: right for scores of any size, for −∞, 0 for a row of nothing but −∞, and shared out among the lanes.
pub fn softmax_row(source: &str) -> Verdict {
    const TABLES: [(usize, usize); 5] = [(1, 1), (3, 2), (5, 31), (70, 65), (3, 200)];
    kernels::verdict("softmax_row", source, "softmax", mistake_hint, |gpu, kernel| {
        for (scale, shift, masked) in
            [(2.0, 0.0, 0), (60.0, 0.0, 0), (2.0, 500.0, 0), (2.0, -500.0, 0), (2.0, 0.0, 1), (2.0, 0.0, 2)]
        {
            for (rows, columns) in TABLES {
                let mut x: Vec<f32> =
                    cpu::random_f32(rows * columns, 1).into_iter().map(|x| scale * x + shift).collect();
                // In the first pass each row sees one key more than the one before; in the second nobody sees any.
                for (at, x) in x.iter_mut().enumerate() {
                    if masked == 2 || masked == 1 && at % columns > at / columns {
                        *x = f32::NEG_INFINITY;
                    }
                }
                let mut scores = gpu.to_device(&x)?;
                let config = LaunchConfig::new(rows as u32, 32);
                kernel.launch(config, (&mut scores, rows as i32, columns as i32))?;
                let given = scores.to_host()?;
                let exact: Vec<f64> = x.chunks(columns).flat_map(weights).collect();
                let off = |at: &usize| {
                    let error = (f64::from(given[*at]) - exact[*at]).abs();
                    error.is_nan() || error > 1e-5 * exact[*at] + 1e-7
                };
                let Some(at) = (0..given.len()).find(off) else { continue };
                let around = match masked {
                    0 => format!("scores around {shift}"),
                    1 => "keys behind the query hidden by -inf".to_string(),
                    _ => "all keys hidden by -inf".to_string(),
                };
                let what = format!(
                    "{rows} rows of {columns}, {around}: weight {} of row {} is {}, and it should be {}",
                    at % columns,
                    at / columns,
                    given[at],
                    exact[at]
                );
                let hint = match (given[at].is_nan(), masked) {
                    (_, 2) => {
                        "-inf - -inf is NaN, and 0 / 0 too: a row whose largest score is -inf has no weights, and gets 0"
                    }
                    (true, 1) => {
                        "exp(-inf - largest) is 0 for any finite largest: does the row's largest begin below all scores?"
                    }
                    (true, _) | (_, 0) if shift != 0.0 || scale > 50.0 => {
                        "exp(89) is beyond f32, and exp(-500) is 0: take the row's largest score off each first, which \
                         changes no weight"
                    }
                    _ => "weights of a row are exp(score) over the sum of these, and add up to 1",
                };
                return wrong(what, hint);
            }
        }
        shared_out(gpu, kernel)
    })
}

/// Whether all lanes of a warp work on its row, and fetch neighbours together.
fn shared_out(gpu: &Gpu, kernel: &Kernel) -> Check {
    let (rows, columns) = (8, 1000);
    let mut scores = gpu.to_device(&cpu::random_f32(rows * columns, 1))?;
    let config = LaunchConfig::new(rows as u32, 32);
    let inspection = kernel.inspect(config, (&mut scores, rows as i32, columns as i32))?;
    let seen = &inspection.counters;
    let lanes = seen.active_lanes_per_instruction();
    if lanes < 16.0 {
        return wrong(
            format!("right, but on average {lanes:.1} of a warp's 32 lanes are at work"),
            "who works on the numbers of a row, and who waits meanwhile?",
        );
    }
    // Three passes over a row of 4000 bytes: its largest number, its sum, its weights.
    let (sectors, needed) = (seen.global_load_sectors, (3 * rows * columns * 4 / 32) as u64);
    if sectors > needed + needed / 10 {
        return wrong(
            format!(
                "right, but {rows} rows of {columns} fetch {sectors} sectors; three passes over them need {needed}"
            ),
            "which numbers do the 32 lanes ask for in one instruction, and in how many sectors do these lie?",
        );
    }
    kernels::shared_out(&inspection, 0.3)
}

/// Checks a number: the longest sequence whose scores fit into 16 GB, of 4 sequences with 32 heads each, in f32.
pub fn longest_sequence(answer: Option<f64>) -> Verdict {
    let exact = (16e9_f64 / f64::from(4 * 32 * 4)).sqrt();
    let of = |bytes: f64, factor: f64| (bytes / factor).sqrt();
    number(
        "longest_sequence",
        answer,
        exact - 1.5..=exact + 0.5,
        &[
            (of(16e9, 32.0 * 4.0), "how many sequences are computed at a time?"),
            (of(16e9, 4.0 * 4.0), "each head has scores of its own"),
            (of(16e9, 4.0 * 32.0), "how many bytes has a score in f32?"),
            (of(16e9, 4.0 * 32.0 * 2.0), "how many bytes has a score in f32?"),
            (of(16.0 * 1.073_741_824e9, 4.0 * 32.0 * 4.0), "a GB is 10⁹ bytes here"),
            (16e9 / (4.0 * 32.0 * 4.0), "each of the tokens has a score for each of them"),
        ],
        "write down the number of scores of one head, then of all heads of all sequences, then their bytes; solve for T",
    )
}

/// The weights of a row in f64; 0 where nothing is seen.
fn weights(row: &[f32]) -> Vec<f64> {
    let most = row.iter().copied().fold(f32::NEG_INFINITY, f32::max);
    if most == f32::NEG_INFINITY {
        return vec![0.0; row.len()];
    }
    let exps: Vec<f64> = row.iter().map(|&x| (f64::from(x) - f64::from(most)).exp()).collect();
    let sum: f64 = exps.iter().sum();
    exps.into_iter().map(|exp| exp / sum).collect()
}

/// What to ask oneself about the first mistake of a kernel.
fn mistake_hint(error: &Error) -> &'static str {
    let is = |kinds: &[Kind]| kernels::first_is(error, kinds);
    if is(&[Kind::OutOfBounds]) {
        "do the sum for that thread by hand: of which row and which column is the number that it asks for?"
    } else if is(&[Kind::GlobalRace, Kind::SharedRace]) {
        "two threads meet at one number, and each is to have its own: which do these two take?"
    } else {
        "read the line, the block and the thread above: what does that thread do there, and should it?"
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::check::kernels::expect;

    const SOFTMAX: &str = "extern \"C\" __global__ void softmax(float *s, int rows, int columns) {
    float *x = s + blockIdx.x * columns;
    float lowest = __int_as_float(0xff800000), most = lowest, sum = 0.0f;
    for (int i = threadIdx.x; i < columns; i += 32) { most = fmaxf(most, x[i]); }
    for (int d = 16; d > 0; d /= 2) { most = fmaxf(most, __shfl_xor_sync(~0u, most, d)); }
    for (int i = threadIdx.x; i < columns; i += 32) { sum += most == lowest ? 0.0f : expf(x[i] - most); }
    for (int d = 16; d > 0; d /= 2) { sum += __shfl_xor_sync(~0u, sum, d); }
    for (int i = threadIdx.x; i < columns; i += 32) { x[i] = most == lowest ? 0.0f : expf(x[i] - most) / sum; }
}";

    #[test]
    fn softmax_is_right_for_scores_of_any_size_and_shared_out() {
        let guard = "most == lowest ? 0.0f : expf(x[i] - most) / sum";
        expect(
            softmax_row,
            SOFTMAX,
            &[
                ("expf(x[i] - most); }", "expf(x[i]); }", "weights of a row are exp(score) over the sum"),
                ("most = lowest, sum", "most = 0.0f, sum", "take the row's largest score off"),
                ("most = fmaxf(most, x[i]);", "most = 0.0f;", "take the row's largest score off"),
                (guard, "expf(x[i] - most) / sum", "has no weights, and gets 0"),
                (" / sum; }", "; }", "add up to 1"),
                ("i < columns; i += 32) { most", "i < 32; i += 32) { most", "do the sum for that thread by hand"),
                // Each lane keeps a sum of its own.
                ("sum += __shfl_xor_sync(~0u, sum, d)", "sum += 0.0f", "add up to 1"),
                // Cheats: a constant, nothing at all, NaN, the neighbour's row.
                (guard, "1.0f / columns", "add up to 1"),
                (guard, "x[i]", "add up to 1"),
                (guard, "__int_as_float(0x7fc00000)", "it should be"),
                ("{ x[i] = most", "{ s[(blockIdx.x + 1) % rows * columns + i] = most", "two threads meet"),
            ],
        );
        // One lane does it all, and lanes that take a piece each: right, and told why not.
        let lane = SOFTMAX.replace("int i = threadIdx.x; i < columns; i += 32", "int i = 0; i < columns; ++i");
        let alone =
            lane.replace("__shfl_xor_sync(~0u, most, d)", "most").replace("__shfl_xor_sync(~0u, sum, d)", "0.0f");
        let alone = alone.replacen("float *x", "if (threadIdx.x > 0) { return; }\n    float *x", 1);
        let text = softmax_row(&alone).text();
        assert!(text.contains("right, but on average 1.0 of a warp's 32 lanes"), "{text}");
        // The first warp has all rows.
        let first = SOFTMAX.replace(
            "float *x = s + blockIdx.x * columns;",
            "if (blockIdx.x > 0) { return; }\n    for (int row = 0; row < rows; ++row) {\n    float *x = s + row * columns;",
        );
        kernels::expect_whole(softmax_row, &[(&format!("{first}}}"), "the work is not shared out")]);
        let pieces = SOFTMAX.replace(
            "int i = threadIdx.x; i < columns; i += 32",
            "int i = threadIdx.x * ((columns + 31) / 32), e = min(columns, i + (columns + 31) / 32); i < e; ++i",
        );
        let text = softmax_row(&pieces).text();
        assert!(text.contains("right, but 8 rows") && text.contains("in how many sectors"), "{text}");
    }

    #[test]
    fn the_longest_sequence_is_worked_out() {
        for right in [5590.0, 5590.17, 5589.5] {
            assert!(longest_sequence(Some(right)).passed(), "{right}");
        }
        for (answer, said) in [
            (None, "no number yet"),
            (Some(11_180.0), "how many sequences"),
            (Some(31_623.0), "each head"),
            (Some(7906.0), "how many bytes"),
            (Some(5793.0), "10⁹"),
            (Some(31_250_000.0), "each of the tokens"),
            (Some(0.0), "is no answer"),
        ] {
            let text = longest_sequence(answer).text();
            assert!(text.starts_with("NOT YET") && text.contains(said), "{answer:?}: {text}");
        }
    }
}
