//! Debugging case of lesson 30: causal weights that let the future through. Their source stays hidden until they have been looked at.

use super::Verdict;
use super::on_paper::diagnosed;
use super::verdict::{Check, told};
use gpulab::error::{Error, Result};
use gpulab::gpu::Gpu;
use gpulab::launch::LaunchConfig;

/// The hidden kernel takes so many tokens.
const MOST: usize = 64;
/// The row that the question asks about, and how many tokens there are: equal scores.
const ASKED: (f64, f64) = (24.0, 100.0);

const SOURCE: &str = "extern \"C\" __global__ void causal_weights(const float *s, float *p, int tokens) {
    // A warp a row: its maximum, its sum, its weights.
    int row = blockIdx.x, lane = threadIdx.x;
    float most = __int_as_float(0xff800000), sum = 0.0f;
    for (int key = lane; key < tokens; key += 32) { most = fmaxf(most, s[row * tokens + key]); }
    for (int d = 16; d > 0; d /= 2) { most = fmaxf(most, __shfl_xor_sync(~0u, most, d)); }
    for (int key = lane; key < tokens; key += 32) { sum += expf(s[row * tokens + key] - most); }
    for (int d = 16; d > 0; d /= 2) { sum += __shfl_xor_sync(~0u, sum, d); }
    for (int key = lane; key < tokens; key += 32) {
        // The mask comes last: what it hides has been counted in the sum.
        p[row * tokens + key] = key <= row ? expf(s[row * tokens + key] - most) / sum : 0.0f;
    }
}";

/// What may be wrong with causal weights.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Leak {
    /// There is no mask.
    NoMask,
    /// The mask begins one key too late.
    OneKeyLate,
    /// Softmax goes along the queries in place of the keys.
    WrongAxis,
    /// exp of a large score.
    NoMaximum,
    /// The sum counts keys that the mask hides.
    HiddenInSum,
    /// The maximum is not that of the keys that are seen, and nothing else is wrong.
    HiddenInMaximum,
}

/// The weights that the hidden kernel makes of `tokens` × `tokens` scores, row by row, in the simulator. They have been divided by √d.
///
/// # Errors
/// [`Error::Invalid`] for no or more than 64 tokens, [`Error::LengthMismatch`] for other than `tokens` × `tokens` scores.
pub fn leaking_weights(scores: &[f32], tokens: usize) -> Result<Vec<f32>> {
    if !(1..=MOST).contains(&tokens) || scores.len() != tokens * tokens {
        return Err(Error::invalid(
            format!("{} scores for {tokens} tokens", scores.len()),
            format!("give tokens × tokens scores, of 1 to {MOST} tokens"),
        ));
    }
    let gpu = Gpu::simulated()?;
    let (s, mut p) = (gpu.to_device(scores)?, gpu.poison::<f32>(scores.len())?);
    let kernel = gpu.compile(SOURCE)?.kernel("causal_weights")?;
    kernel.launch(LaunchConfig::new(tokens as u32, 32), (&s, &mut p, tokens as i32))?;
    p.to_host()
}

/// Checks a diagnosis: what is wrong, and what the weights of query 23 of 100 tokens (counted from 0) add up to when all scores are
/// the same.
pub fn diagnose_leak(diagnosis: Option<(Leak, f64)>) -> Verdict {
    let (seen, all) = ASKED;
    let right = seen / all;
    let slips = [
        (1.0, "that is what right weights add up to"),
        ((seen - 1.0) / all, "a query sees itself as well"),
        (1.0 - right, "that is the share of the keys that it does not see"),
        (1.0 / seen, "that is one weight of a right row"),
        (1.0 / all, "that is one weight; how many of them are there?"),
    ];
    let start = "each weight is a share of a sum: how many equal terms does this kernel's sum have, and how many weights are left in the row?";
    let none = "give it scores of which you know the weights, and change one score at a time. Which weights change that should not?";
    diagnosed("diagnose_leak", diagnosis, none, against, right * 0.995..=right * 1.005, &slips, start)
}

/// Scores that are 0, but for some.
fn zeros_but(tokens: usize, others: &[(usize, usize, f32)]) -> Vec<f32> {
    let mut scores = vec![0.0; tokens * tokens];
    others.iter().for_each(|&(query, key, score)| scores[query * tokens + key] = score);
    scores
}

/// The evidence that speaks for an innocent suspect.
fn against(named: Leak) -> Check {
    const N: usize = 8;
    let weights = |others: &[(usize, usize, f32)]| leaking_weights(&zeros_but(N, others), N);
    let what = match named {
        Leak::HiddenInSum => return Ok(()),
        Leak::NoMask => {
            let p = weights(&[(2, 6, 3.0)])?;
            let behind = (0..N * N).filter(|at| at % N > at / N).map(|at| p[at]).fold(0.0, f32::max);
            format!(
                "the largest weight of a key behind its query is {behind}, also where that key has the largest score"
            )
        }
        Leak::OneKeyLate => {
            let p = weights(&[(2, 3, 3.0)])?;
            format!(
                "query 2 gives the key right behind it a weight of {}, though it has the largest score",
                p[2 * N + 3]
            )
        }
        Leak::WrongAxis => {
            let [before, after] = [weights(&[])?, weights(&[(5, 1, 3.0)])?];
            let rows: Vec<usize> =
                (0..N).filter(|row| (0..N).any(|key| before[row * N + key] != after[row * N + key])).collect();
            format!("with another score of query 5 the weights of these queries change: {rows:?}")
        }
        Leak::NoMaximum => {
            let p = weights(&[(5, 1, 1000.0)])?;
            format!("with a score of 1000 the weights are finite: {}", p.iter().all(|x| x.is_finite()))
        }
        Leak::HiddenInMaximum => {
            let p = weights(&[(7, 0, 1.0)])?;
            format!(
                "a maximum of all keys only scales terms and sum alike, and query 7, which sees all keys, has weights that add up to {:.3}; \
                 query 3 has its maximum among the keys that it sees, and its weights add up to {:.3}",
                p[7 * N..].iter().sum::<f32>(),
                p[3 * N..4 * N].iter().sum::<f32>()
            )
        }
    };
    told(
        what,
        "change one score of a hidden key, and compare the weights of its row before and after",
        "hidden keys have weights of 0 and still move others: in which number, which all weights of a row share, can they be?",
    )
}

/// The hidden source, once the diagnosis is right.
pub fn revealed_leak(diagnosis: Option<(Leak, f64)>) -> &'static str {
    diagnose_leak(diagnosis).reveals(SOURCE)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_future_is_in_the_sum_alone() {
        let p = leaking_weights(&zeros_but(50, &[]), 50).unwrap();
        for query in [0, 11, 49] {
            let sum: f32 = p[query * 50..(query + 1) * 50].iter().sum();
            assert!((sum - (query + 1) as f32 / 50.0).abs() < 1e-5, "{query}: {sum}");
        }
        assert!(leaking_weights(&[], 0).is_err() && leaking_weights(&[0.0; 4], 3).is_err());
        assert!(leaking_weights(&vec![0.0; 65 * 65], 65).is_err());
    }

    #[test]
    fn only_the_right_diagnosis_reveals() {
        for right in [0.24, 0.2401] {
            let right = Some((Leak::HiddenInSum, right));
            assert!(diagnose_leak(right).passed(), "{}", diagnose_leak(right).text());
            assert_eq!(revealed_leak(right), SOURCE);
        }
        for (wrong, said) in [
            (None, "no diagnosis yet"),
            (Some((Leak::NoMask, 0.24)), "behind its query is 0, also where"),
            (Some((Leak::OneKeyLate, 0.24)), "a weight of 0, though"),
            (Some((Leak::WrongAxis, 0.24)), "change: [5]"),
            (Some((Leak::NoMaximum, 0.24)), "are finite: true"),
            (Some((Leak::HiddenInMaximum, 0.24)), "add up to 1.000; query 3"),
            (Some((Leak::HiddenInSum, 1.0)), "right weights"),
            (Some((Leak::HiddenInSum, 0.23)), "sees itself"),
            (Some((Leak::HiddenInSum, 0.76)), "does not see"),
            (Some((Leak::HiddenInSum, 0.01)), "how many of them"),
            (Some((Leak::HiddenInSum, 0.5)), "how many equal terms"),
            (Some((Leak::HiddenInSum, f64::NAN)), "is no answer"),
            (Some((Leak::HiddenInSum, f64::INFINITY)), "is no answer"),
        ] {
            let text = diagnose_leak(wrong).text();
            assert!(text.starts_with("NOT YET") && text.contains(said), "{wrong:?}: {text}");
            assert!(!text.contains("0.24") && revealed_leak(wrong).starts_with("The source shows itself"), "{text}");
        }
    }
}
