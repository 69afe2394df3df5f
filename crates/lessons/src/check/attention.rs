//! Exercises of lesson 30: pieces of attention that the learner writes, run in the simulator, which sees every access.

use super::verdict::wrong;
use super::{Verdict, kernels};
use gpulab::cpu;
use gpulab::cpu::{AttentionShape, attention_inputs};
use gpulab::error::Error;
use gpulab::launch::LaunchConfig;
use gpulab::warpsim::Kind;

/// Threads of a block.
const BLOCK: u32 = 64;
/// Lengths: one token, a warp and its neighbours, more than a block.
const LENGTHS: [usize; 5] = [1, 31, 33, 64, 100];

/// The hint for a mask that hides what came before.
const TURNED: &str = "hidden is what comes after the query, key > query: which of the two is the row here?";

/// Checks a kernel `mask(float *s, int length)`, launched with a block of 64 threads for each query, that stores −∞ where
/// `key > query`, leaves all else as it is, and reads nothing.
pub fn causal_mask(source: &str) -> Verdict {
    kernels::verdict("causal_mask", source, "mask", mistake_hint, |gpu, kernel| {
        for length in LENGTHS {
            let before = cpu::random_f32(length * length, 1);
            let mut scores = gpu.to_device(&before)?;
            let config = LaunchConfig::new(length as u32, BLOCK);
            kernel.launch(config, (&mut scores, length as i32))?;
            let given = scores.to_host()?;
            let turned = (0..given.len()).any(|at| at % length < at / length && given[at] == f32::NEG_INFINITY);
            for (at, (&given, &before)) in given.iter().zip(&before).enumerate() {
                let (query, key) = (at / length, at % length);
                let hidden = given == f32::NEG_INFINITY;
                let hint = match (key > query, hidden) {
                    (true, true) => continue,
                    (false, false) if given == before => continue,
                    (false, true) if key == query => {
                        "a token may look at itself: which comparison leaves key == query alone?"
                    }
                    (false, true) if query == 0 => {
                        "the first query would see nothing, and its softmax would be no number: which keys lie behind it?"
                    }
                    (false, true) => {
                        "hidden is what comes after the query, key > query: which of the two is the row here?"
                    }
                    (false, false) => "what is seen keeps its score, bit for bit",
                    (true, false) if turned => TURNED,
                    (true, false) if given.is_nan() => {
                        "-infinity, and no NaN: exp(NaN) is NaN, and spreads over the row"
                    }
                    (true, false) if given != before => {
                        "a large negative number is not -infinity: where all scores are as low, it would win weight"
                    }
                    (true, false) if key >= BLOCK as usize => {
                        "a row may be longer than the block: each thread takes several keys, 64 apart"
                    }
                    (true, false) => "this key comes after the query: does a thread get to it?",
                };
                let expected = if key > query { f32::NEG_INFINITY } else { before };
                let what = format!(
                    "{length} tokens: the score of query {query} and key {key} was {before}, and is {given}; it should be {expected}"
                );
                return wrong(what, hint);
            }
            let seen = kernel.inspect(config, (&mut scores, length as i32))?;
            if seen.counters.global_load_requests > 0 {
                let what =
                    format!("right, but it reads scores: {} loads of a warp", seen.counters.global_load_requests);
                let hint = "who is hidden follows from the indices alone: store where it is so, and leave the rest";
                return wrong(what, hint);
            }
        }
        Ok(())
    })
}

/// Checks a kernel `softmax(float *s, int rows, int columns)`, launched with a thread a row, that turns each row into
/// weights in place: right for scores of any size, for −∞, and 0 for a row of nothing but −∞.
pub fn softmax_row(source: &str) -> Verdict {
    const TABLES: [(usize, usize); 4] = [(1, 1), (31, 2), (33, 65), (100, 7)];
    kernels::verdict("softmax_row", source, "softmax", mistake_hint, |gpu, kernel| {
        for (rows, columns) in TABLES {
            for (scale, shift, masked) in
                [(2.0, 0.0, 0), (60.0, 0.0, 0), (2.0, 500.0, 0), (2.0, -500.0, 0), (2.0, 0.0, 1), (2.0, 0.0, 2)]
            {
                let mut x: Vec<f32> =
                    cpu::random_f32(rows * columns, 1).into_iter().map(|x| scale * x + shift).collect();
                // In the first pass each row sees one key more than the one before; in the second nobody sees any.
                for (at, x) in x.iter_mut().enumerate() {
                    if masked == 2 || masked == 1 && at % columns > at / columns {
                        *x = f32::NEG_INFINITY;
                    }
                }
                let mut scores = gpu.to_device(&x)?;
                let config = LaunchConfig::for_elements(rows, BLOCK);
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
        Ok(())
    })
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

/// Checks a kernel `scores(const float *q, const float *k, float *s, int batch, int q_heads, int kv_heads, int length,
/// int width)`, launched with a thread a score, that stores q · k / √width, where neighbouring heads of q share one of k.
pub fn grouped(source: &str) -> Verdict {
    const SHAPES: [(usize, usize, usize, usize, usize); 6] =
        [(1, 1, 1, 5, 4), (1, 4, 4, 5, 4), (2, 4, 2, 7, 8), (1, 6, 2, 33, 16), (2, 8, 1, 3, 5), (3, 6, 3, 31, 8)];
    kernels::verdict("grouped", source, "scores", mistake_hint, |gpu, kernel| {
        for (batch, q_heads, kv_heads, length, width) in SHAPES {
            let shape = AttentionShape { batch, q_heads, kv_heads, length, width };
            let [q, k, _] = attention_inputs(shape, 1, 2.0);
            let (on_q, on_k) = (gpu.to_device(&q)?, gpu.to_device(&k)?);
            let mut scores = gpu.poison::<f32>(shape.scores())?;
            let sides = [batch, q_heads, kv_heads, length, width].map(|side| side as i32);
            let config = LaunchConfig::for_elements(shape.scores(), BLOCK);
            let args = (&on_q, &on_k, &mut scores, sides[0], sides[1], sides[2], sides[3], sides[4]);
            kernel.launch(config, args)?;
            let given = scores.to_host()?;
            // The score of a row of q and a key, where it asks that head of k, counted through all sequences.
            let exact = |at: usize, asked: usize| -> f64 {
                let (row, key) = (at / length, asked * length + at % length);
                let product = |d| f64::from(q[row * width + d]) * f64::from(k[key * width + d]);
                (0..width).map(product).sum::<f64>() / (width as f64).sqrt()
            };
            let is = |at: usize, asked| (f64::from(given[at]) - exact(at, asked)).abs() < 1e-4;
            let right = |at: usize| {
                let (sequence, head, _) = shape.place(at / length);
                sequence * kv_heads + shape.kv_head(head)
            };
            let Some(at) = (0..given.len()).find(|&at| !is(at, right(at))) else { continue };
            let (sequence, head, query) = shape.place(at / length);
            let asked = (0..batch * kv_heads).find(|&asked| is(at, asked));
            let (found, hint) = match asked {
                Some(other) => (
                    format!(
                        "it asks head {} of sequence {}, and should ask head {} of sequence {sequence}",
                        other % kv_heads,
                        other / kv_heads,
                        shape.kv_head(head)
                    ),
                    match other / kv_heads == sequence {
                        true => {
                            "neighbours share: with 4 heads of q and 2 of k, heads 0 and 1 ask head 0, heads 2 and 3 ask head 1"
                        }
                        false => {
                            "k of a sequence begins at sequence · kv_heads heads, not at sequence · q_heads or at 0"
                        }
                    },
                ),
                None => (
                    format!("it should be {}", exact(at, right(at))),
                    "that is the score of no head: keep the sum and the factor as they were, and look which numbers it adds up",
                ),
            };
            let what = format!(
                "{shape}: the score of query {query} and key {}, head {head}, sequence {sequence} is {}: {found}",
                at % length,
                given[at]
            );
            return wrong(what, hint);
        }
        Ok(())
    })
}

/// What to ask oneself about the first mistake of a kernel.
fn mistake_hint(error: &Error) -> &'static str {
    let is = |kinds: &[Kind]| kernels::first_is(error, kinds);
    if is(&[Kind::OutOfBounds]) {
        "do the sum for that thread by hand: of which head, which row and which column is the number that it asks for?"
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

    const MASK: &str = "extern \"C\" __global__ void mask(float *s, int length) {
    int query = blockIdx.x;
    for (int key = query + 1 + threadIdx.x; key < length; key += blockDim.x) {
        s[query * length + key] = __int_as_float(0xff800000);
    }
}";

    const SOFTMAX: &str = "extern \"C\" __global__ void softmax(float *s, int rows, int columns) {
    int row = blockIdx.x * blockDim.x + threadIdx.x;
    if (row >= rows) { return; }
    float lowest = __int_as_float(0xff800000);
    float *x = s + row * columns, most = lowest, sum = 0.0f;
    for (int i = 0; i < columns; ++i) { most = fmaxf(most, x[i]); }
    for (int i = 0; i < columns; ++i) { sum += expf(x[i] - most); }
    for (int i = 0; i < columns; ++i) { x[i] = most == lowest ? 0.0f : expf(x[i] - most) / sum; }
}";

    const GROUPED: &str =
        "extern \"C\" __global__ void scores(const float *q, const float *k, float *s, int batch, int q_heads,
                                int kv_heads, int length, int width) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= batch * q_heads * length * length) { return; }
    int key = i % length, row = i / length;
    int head = row / length % q_heads, sequence = row / length / q_heads;
    int asked = sequence * kv_heads + head / (q_heads / kv_heads);
    float sum = 0.0f;
    for (int d = 0; d < width; ++d) { sum += q[row * width + d] * k[(asked * length + key) * width + d]; }
    s[i] = sum * rsqrtf(float(width));
}";

    #[test]
    fn the_causal_mask_hides_what_comes_after() {
        let store = "s[query * length + key] = __int_as_float(0xff800000);";
        expect(
            causal_mask,
            MASK,
            &[
                ("query + 1 + threadIdx.x", "query + threadIdx.x", "a token may look at itself"),
                ("query + 1 + threadIdx.x", "query + 2 + threadIdx.x", "does a thread get to it?"),
                (
                    "key = query + 1 + threadIdx.x; key < length",
                    "key = threadIdx.x; key < query",
                    "which of the two is the row",
                ),
                ("key += blockDim.x", "key += 1000", "a row may be longer than the block"),
                ("__int_as_float(0xff800000)", "-1e9f", "is not -infinity"),
                ("__int_as_float(0xff800000)", "__int_as_float(0x7fc00000)", "and no NaN"),
                (store, "s[query * length + key] += __int_as_float(0xff800000);", "right, but it reads scores"),
                ("key < length", "key <= length", "do the sum for that thread by hand"),
                ("mask(", "hide(", "no kernel `mask`"),
            ],
        );
    }

    #[test]
    fn softmax_is_right_for_scores_of_any_size() {
        expect(
            softmax_row,
            SOFTMAX,
            &[
                ("sum += expf(x[i] - most)", "sum += expf(x[i])", "weights of a row are exp(score) over the sum"),
                ("lowest, sum = 0.0f", "0.0f, sum = 0.0f", "take the row's largest score off"),
                ("most = fmaxf(most, x[i]);", "most = 0.0f;", "take the row's largest score off"),
                ("most == lowest ? 0.0f : expf", "expf", "has no weights, and gets 0"),
                ("if (row >= rows) { return; }", "", "do the sum for that thread by hand"),
                ("/ sum", "", "add up to 1"),
            ],
        );
    }

    #[test]
    fn grouped_heads_ask_their_own_head() {
        let right = "sequence * kv_heads + head / (q_heads / kv_heads)";
        expect(
            grouped,
            GROUPED,
            &[
                (right, "sequence * kv_heads + head % kv_heads", "heads 0 and 1 ask head 0"),
                (right, "head / (q_heads / kv_heads)", "begins at sequence · kv_heads"),
                (right, "sequence * q_heads + head", "by hand: of which head"),
                ("* rsqrtf(float(width))", "", "that is the score of no head"),
                ("key = i % length", "key = i / length % length", "that is the score of no head"),
                ("d < width", "d <= width", "by hand: of which head"),
            ],
        );
    }
}
