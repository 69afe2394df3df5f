//! Random arrays, and what is right in f64.

use crate::settings::Topic;
use cutile::half::bf16;
use std::ops::Range;

/// The same numbers for the same seed: sums of four uniform ones, of mean 0 and variance 1, so nearly normal.
pub fn random(count: usize, seed: u64) -> Vec<bf16> {
    let mut state = (seed + 1).wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1;
    let mut number = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        let sum: u64 = (0..4).map(|part| (state >> (16 * part)) & 0xFFFF).sum();
        bf16::from_f32((sum as f32 / 65_536.0 - 2.0) * 3.0f32.sqrt())
    };
    (0..count).map(|_| number()).collect()
}

/// How many numbers the arrays of a topic have.
pub fn counts(topic: Topic, [m, n, k]: [usize; 3]) -> Vec<usize> {
    match topic {
        Topic::Softmax => vec![m * n],
        Topic::Matmul => vec![m * k, k * n],
        Topic::Attention { .. } => vec![m * n * k; 3],
    }
}

/// The arrays of a topic, as the recorder hands them over.
pub fn inputs(topic: Topic, size: [usize; 3], seed: u64) -> Vec<Vec<bf16>> {
    counts(topic, size).iter().enumerate().map(|(at, &count)| random(count, 4 * seed + at as u64)).collect()
}

/// How long a row of the result is, and how many there are.
pub fn rows(topic: Topic, [m, n, k]: [usize; 3]) -> (usize, usize) {
    match topic {
        Topic::Softmax | Topic::Matmul => (n, m),
        Topic::Attention { .. } => (k, m * n),
    }
}

/// These rows of the result in f64.
pub fn exact(topic: Topic, size: [usize; 3], inputs: &[Vec<bf16>], wanted: Range<usize>) -> Vec<f64> {
    let (width, _) = rows(topic, size);
    let [_, n, k] = size;
    let wide = |x: &[bf16]| -> Vec<f64> { x.iter().map(|x| x.to_f64()).collect() };
    let softmax = |scores: &[f64]| -> Vec<f64> {
        let most = scores.iter().fold(f64::NEG_INFINITY, |most, &x| most.max(x));
        let e: Vec<f64> = scores.iter().map(|x| (x - most).exp()).collect();
        let total: f64 = e.iter().sum();
        e.iter().map(|e| e / total).collect()
    };
    let row = |row: usize| match topic {
        Topic::Softmax => softmax(&wide(&inputs[0][row * n..][..n])),
        Topic::Matmul => {
            let mut sums = vec![0.0; n];
            for (x, of_b) in inputs[0][row * k..][..k].iter().zip(inputs[1].chunks_exact(n)) {
                sums.iter_mut().zip(of_b).for_each(|(sum, y)| *sum += x.to_f64() * y.to_f64());
            }
            sums
        }
        Topic::Attention { causal } => {
            let (head, query) = (row / n, row % n);
            let seen = if causal { query + 1 } else { n };
            let of_head = |x: usize, at: usize| &inputs[x][(head * n + at) * k..][..k];
            let q = wide(of_head(0, query));
            let dot = |key: &[bf16]| key.iter().zip(&q).map(|(x, y)| x.to_f64() * y).sum::<f64>();
            let scores: Vec<f64> = (0..seen).map(|key| dot(of_head(1, key)) / (k as f64).sqrt()).collect();
            let mut sums = vec![0.0; k];
            for (key, p) in softmax(&scores).into_iter().enumerate() {
                sums.iter_mut().zip(of_head(2, key)).for_each(|(sum, v)| *sum += p * v.to_f64());
            }
            sums
        }
    };
    let exact: Vec<f64> = wanted.flat_map(row).collect();
    debug_assert_eq!(exact.len() % width, 0);
    exact
}

/// ‖given − exact‖ and ‖exact‖, both squared.
pub fn squares(given: &[bf16], exact: &[f64]) -> (f64, f64) {
    assert_eq!(given.len(), exact.len(), "two arrays of unlike lengths");
    let off = given.iter().zip(exact).map(|(given, exact)| (given.to_f64() - exact).powi(2)).sum();
    (off, exact.iter().map(|exact| exact * exact).sum())
}
