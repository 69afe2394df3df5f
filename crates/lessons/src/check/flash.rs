//! Exercises of lesson 31: one pass over the keys, tiles that a causal mask hides, and parts that are merged.

use super::Verdict;
use super::kernels;
use super::verdict::{Check, verdict, wrong};
use gpulab::cpu;
use gpulab::cpu::{AttentionMask, AttentionRow, AttentionShape};
use gpulab::error::Error;
use gpulab::launch::LaunchConfig;

/// Numbers of a head of [`one_pass`]: a lane each.
const WIDTH: usize = 32;
/// Tokens of [`one_pass`]: one, a few, more than a block has warps; the last is counted.
const LENGTHS: [usize; 4] = [1, 7, 33, 64];

/// What attention over some of the keys leaves behind for one query.
#[derive(Debug, Clone, PartialEq)]
pub struct Part {
    /// The largest score.
    pub most: f64,
    /// Σ exp(score − most).
    pub sum: f64,
    /// Σ exp(score − most) · value ÷ sum: the result, as if there were no other keys.
    pub out: Vec<f64>,
}

/// Checks a kernel `attend(const float *q, const float *k, const float *v, float *o, int n)`: attention with one head of
/// 32 numbers, a warp a query, 8 queries a block. It must be right for scores of any size, and read k and v once.
pub fn one_pass(source: &str) -> Verdict {
    kernels::verdict("one_pass", source, "attend", mistake_hint, |gpu, kernel| {
        for (length, spread) in LENGTHS.into_iter().flat_map(|length| [(length, 2.0), (length, 200.0)]) {
            let shape = AttentionShape { batch: 1, q_heads: 1, kv_heads: 1, length, width: WIDTH };
            let [q, k, v] = cpu::attention_inputs(shape, 7, spread);
            let (on_q, on_k, on_v) = (gpu.to_device(&q)?, gpu.to_device(&k)?, gpu.to_device(&v)?);
            let mut o = gpu.poison::<f32>(q.len())?;
            let config = LaunchConfig::for_elements(length * 32, 256);
            kernel.launch(config, (&on_q, &on_k, &on_v, &mut o, length as i32))?;
            let exact = cpu::attention_f64(&q, &k, &v, shape, &AttentionMask::none())?;
            compare(&o.to_host()?, &exact, length, spread)?;
            if (length, spread) == (LENGTHS[3], 200.0) {
                let seen = kernel.inspect(config, (&on_q, &on_k, &on_v, &mut o, length as i32))?;
                let (read, must) =
                    (32 * seen.counters.global_load_sectors as usize, 4 * WIDTH * length * (2 * length + 1));
                if read > must {
                    let what =
                        format!("right, but {read} bytes are read; q once, and k and v once a query, are {must}");
                    let hint = "when a larger score comes, what is summed so far shrinks by exp(old maximum - new one): \
                                then the first loop is not needed";
                    return wrong(what, hint);
                }
            }
        }
        Ok(())
    })
}

fn compare(given: &[f32], exact: &[f64], length: usize, spread: f32) -> Check {
    let near = |given: f32, exact: f64| (f64::from(given) - exact).abs() <= 1e-3 * exact.abs().max(1.0);
    let Some(at) = given.iter().zip(exact).position(|(&given, &exact)| !near(given, exact)) else { return Ok(()) };
    let hint = match given[at].is_finite() {
        false if spread > 100.0 => {
            "exp(200) is more than a float holds: take the largest score so far off each exponent"
        }
        false => {
            "a number that was never written is NaN, and so is infinity less infinity: what does the maximum begin with?"
        }
        true => {
            "if the maximum moves, both the sum and the output were counted too high: shrink both, by the same factor"
        }
    };
    let (query, number, given, exact) = (at / WIDTH, at % WIDTH, given[at], exact[at]);
    let around = format!("{length} tokens, scores of about {spread}");
    wrong(format!("{around}: query {query}, number {number} is {given}, and it should be {exact}"), hint)
}

/// What to ask oneself about the first mistake.
fn mistake_hint(_: &Error) -> &'static str {
    "read the line, the block and the thread above: a warp has one query, a lane one number of it"
}

/// Checks `tiles(row0, rows, keys, length)`: how many tiles of `keys` keys a block needs that answers queries `row0` to
/// `row0 + rows - 1` of `length` tokens under a causal mask.
pub fn causal_tiles(tiles: fn(usize, usize, usize, usize) -> usize) -> Verdict {
    verdict("causal_tiles", || {
        for (rows, keys, length) in
            [(64, 64, 256), (128, 64, 512), (64, 128, 512), (64, 64, 100), (192, 128, 1000), (1, 1, 5)]
        {
            for row0 in (0..length).step_by(rows) {
                // The tiles in which one of the block's queries sees a key.
                let seen = |tile: usize| (row0..(row0 + rows).min(length)).any(|row| tile * keys <= row);
                let (needed, all) =
                    ((0..length.div_ceil(keys)).filter(|&tile| seen(tile)).count(), length.div_ceil(keys));
                let given = tiles(row0, rows, keys, length);
                if given == needed {
                    continue;
                }
                let what = format!(
                    "queries {row0} to {} of {length}, tiles of {keys} keys: {given} tiles, and {needed} are needed of {all}",
                    (row0 + rows).min(length) - 1
                );
                let hint = match given {
                    _ if given > all => "the last block may reach beyond the last token: there are no keys there",
                    _ if given == all => "keys behind the block's last query are hidden from all of its queries",
                    _ if given > needed => "which is the last key that the block's last query sees?",
                    _ => {
                        "the last query of the block sees itself too, and a tile of which it sees one key counts whole"
                    }
                };
                return wrong(what, hint);
            }
        }
        Ok(())
    })
}

/// Checks `merge(a, b)`: the same for one query over the keys of both parts.
pub fn merge_parts(merge: fn(&Part, &Part) -> Part) -> Verdict {
    verdict("merge_parts", || {
        let shape = AttentionShape { batch: 1, q_heads: 1, kv_heads: 1, length: 24, width: 4 };
        for spread in [1.0, 300.0] {
            let [q, k, v] =
                cpu::attention_inputs(shape, 3, spread).map(|x| x.into_iter().map(f64::from).collect::<Vec<_>>());
            for (row, cut) in [(0, 12), (3, 5), (9, 1), (11, 23)] {
                let whole = part(&q, &k, &v, row, 0..24);
                let given = merge(&part(&q, &k, &v, row, 0..cut), &part(&q, &k, &v, row, cut..24));
                // One keeps to the whole's numbers, whichever maximum it chose.
                let sum = given.sum * (given.most - whole.most).exp();
                let near = |a: f64, b: f64| (a - b).abs() <= 1e-9 * b.abs().max(1.0);
                let (what, hint) = if given.out.len() != whole.out.len() {
                    ("out has another length".to_string(), "each number of out is merged for itself")
                } else if given.out.iter().any(|x| !x.is_finite()) || !sum.is_finite() {
                    let hint = "take the larger of both maxima off before exp: no exponent is then above 0";
                    ("not a finite number".to_string(), hint)
                } else if !near(given.most, whole.most) {
                    (format!("most is {}, and it should be {}", given.most, whole.most), "the larger of both")
                } else if !near(sum, whole.sum) {
                    let hint =
                        "each sum was taken below its own maximum: bring both to the new one before you add them";
                    (format!("sum is {}, and it should be {}", given.sum, whole.sum), hint)
                } else if given.out.iter().zip(&whole.out).any(|(&a, &b)| !near(a, b)) {
                    let hint = "out is divided by its part's sum already: how much of the new sum is that part's?";
                    (format!("out is {:?}, and it should be {:?}", given.out, whole.out), hint)
                } else {
                    continue;
                };
                return wrong(format!("{cut} and {} keys: {what}", 24 - cut), hint);
            }
        }
        Ok(())
    })
}

/// One query over some of the keys, as [`Part`] has it.
fn part(q: &[f64], k: &[f64], v: &[f64], row: usize, keys: std::ops::Range<usize>) -> Part {
    let length = keys.len();
    let shape = AttentionShape { batch: 1, q_heads: 1, kv_heads: 1, length, width: 4 };
    let from = 4 * keys.start;
    let AttentionRow { values, .. } = cpu::attention_row(
        (&|at| q[4 * row + at], &|at| k[from + at], &|at| v[from + at]),
        shape,
        &AttentionMask::none(),
        0,
    );
    let score = |key: usize| (0..4).map(|d| q[4 * row + d] * k[from + 4 * key + d]).sum::<f64>() / 2.0;
    let most = (0..length).map(score).fold(f64::NEG_INFINITY, f64::max);
    Part { most, sum: (0..length).map(|key| (score(key) - most).exp()).sum(), out: values }
}

#[cfg(test)]
mod tests {
    use super::*;

    const RIGHT: &str = r#"__device__ float score(float q_part, const float *k, int key) {
    float s = q_part * k[key * 32 + threadIdx.x % 32];
    for (int distance = 16; distance > 0; distance /= 2) {
        s += __shfl_xor_sync(~0u, s, distance);
    }
    return s / sqrtf(32.0f);
}
extern "C" __global__ void attend(const float *q, const float *k, const float *v, float *o, int n) {
    int query = blockIdx.x * 8 + threadIdx.x / 32;
    int lane = threadIdx.x % 32;
    if (query >= n) {
        return;
    }
    float q_part = q[query * 32 + lane];
    float most = -1e30f, sum = 0.0f, out = 0.0f;
    for (int key = 0; key < n; ++key) {
        float s = score(q_part, k, key);
        float larger = fmaxf(most, s);
        float factor = expf(most - larger), p = expf(s - larger);
        sum = sum * factor + p;
        out = out * factor + p * v[key * 32 + lane];
        most = larger;
    }
    o[query * 32 + lane] = out / sum;
}"#;

    #[test]
    fn one_pass_passes_and_its_mistakes_are_told_apart() {
        kernels::expect(
            one_pass,
            RIGHT,
            &[
                ("out = out * factor + p", "out = out + p", "shrink both"),
                ("sum = sum * factor + p", "sum = sum + p", "shrink both"),
                ("float larger = fmaxf(most, s)", "float larger = 0.0f", "more than a float holds"),
            ],
        );
        // Two passes are right, and read k twice.
        let two = RIGHT.replace(
            "    for (int key = 0; key < n; ++key) {\n        float s",
            "    for (int key = 0; key < n; ++key) {\n        most = fmaxf(most, score(q_part, k, key));\n    }\n\
         \x20   for (int key = 0; key < n; ++key) {\n        float s",
        );
        let text = one_pass(&two).text();
        assert!(text.contains("right, but") && text.contains("first loop is not needed"), "{text}");
        let text = one_pass(&RIGHT.replace("if (query >= n) {\n        return;\n    }\n", "")).text();
        assert!(text.contains("out of bounds") && text.contains("a lane one number"), "{text}");
    }

    type Tiles = fn(usize, usize, usize, usize) -> usize;
    type Merge = fn(&Part, &Part) -> Part;

    #[test]
    fn tiles_that_are_hidden_are_left_out() {
        fn right(row0: usize, rows: usize, keys: usize, length: usize) -> usize {
            (row0 + rows).min(length).div_ceil(keys)
        }
        assert!(causal_tiles(right).passed(), "{}", causal_tiles(right).text());
        let wrong: [(Tiles, &str); 4] = [
            (|_, _, keys, length| length.div_ceil(keys), "hidden from all"),
            (|row0, rows, keys, _| (row0 + rows).div_ceil(keys), "no keys there"),
            (|row0, _, keys, _| row0.div_ceil(keys), "sees itself too"),
            (|row0, rows, keys, length| ((row0 + rows) / keys + 1).min(length.div_ceil(keys)), "last key that"),
        ];
        for (tiles, said) in wrong {
            let text = causal_tiles(tiles).text();
            assert!(text.starts_with("NOT YET") && text.contains(said), "{said}: {text}");
        }
    }

    #[test]
    fn parts_are_merged_by_their_sums() {
        fn right(a: &Part, b: &Part) -> Part {
            let most = a.most.max(b.most);
            let (of_a, of_b) = (a.sum * (a.most - most).exp(), b.sum * (b.most - most).exp());
            let sum = of_a + of_b;
            let out = a.out.iter().zip(&b.out).map(|(x, y)| (of_a * x + of_b * y) / sum).collect();
            Part { most, sum, out }
        }
        assert!(merge_parts(right).passed(), "{}", merge_parts(right).text());
        let wrong: [(Merge, &str); 5] = [
            (|a, b| Part { sum: a.sum + b.sum, ..right(a, b) }, "bring both to the new one"),
            (
                |a, b| Part {
                    most: a.most + b.most,
                    sum: right(a, b).sum * (right(a, b).most - a.most - b.most).exp(),
                    ..right(a, b)
                },
                "the larger of both",
            ),
            (
                |a, b| Part { out: a.out.iter().zip(&b.out).map(|(x, y)| (x + y) / 2.0).collect(), ..right(a, b) },
                "how much of the new sum",
            ),
            (|a, b| Part { out: vec![f64::NAN; a.out.len()], ..right(a, b) }, "no exponent is then above 0"),
            (|a, b| Part { out: Vec::new(), ..right(a, b) }, "merged for itself"),
        ];
        for (merge, said) in wrong {
            let text = merge_parts(merge).text();
            assert!(text.starts_with("NOT YET") && text.contains(said), "{said}: {text}");
        }
    }
}
