//! The network's loss and gradients in f64, by the definition: what the kernels are held against.

use crate::cnn::Parameters;

/// Mean loss, hits, and the gradient of each parameter.
#[derive(Clone)]
pub(super) struct Reference {
    pub loss: f64,
    pub hits: usize,
    pub gradients: [Vec<f64>; 8],
}

/// Numbers of a map: channels × side × side.
fn at(side: usize, channel: usize, y: usize, x: usize) -> usize {
    (channel * side + y) * side + x
}

/// A 3 × 3 convolution of all channels, valid, as (out, in, tap) → what it does with (output, input, weight).
fn taps(outs: usize, ins: usize, side: usize, mut each: impl FnMut(usize, usize, usize)) {
    for out in 0..outs {
        for input in 0..ins {
            for tap in 0..9 {
                let weight = (out * ins + input) * 9 + tap;
                for y in 0..side {
                    let (to, from) = (at(side, out, y, 0), at(side + 2, input, y + tap / 3, tap % 3));
                    (0..side).for_each(|x| each(to + x, from + x, weight));
                }
            }
        }
    }
}

impl Reference {
    /// Of several images, from those of each.
    pub fn mean(each: &[Reference]) -> Reference {
        let share = 1.0 / each.len() as f64;
        let mut sum = each[0].clone();
        for other in &each[1..] {
            sum.loss += other.loss;
            sum.hits += other.hits;
            for (sum, other) in sum.gradients.iter_mut().zip(&other.gradients) {
                sum.iter_mut().zip(other).for_each(|(sum, other)| *sum += other);
            }
        }
        sum.loss *= share;
        sum.gradients.iter_mut().flatten().for_each(|gradient| *gradient *= share);
        sum
    }
}

/// Of one image.
pub(super) fn reference(parameters: &Parameters, pixels: &[u8], label: u8) -> Reference {
    let p: Vec<Vec<f64>> = parameters.arrays.iter().map(|all| all.iter().map(|&x| f64::from(x)).collect()).collect();
    let mut d: [Vec<f64>; 8] = std::array::from_fn(|i| vec![0.0; p[i].len()]);
    let x: Vec<f64> = pixels.iter().map(|&pixel| f64::from(pixel) / 255.0).collect();
    let mut a1: Vec<f64> = (0..32 * 676).map(|i| p[1][i / 676]).collect();
    taps(32, 1, 26, |to, from, w| a1[to] += x[from] * p[0][w]);
    a1.iter_mut().for_each(|a| *a = a.max(0.0));
    let mut a2: Vec<f64> = (0..64 * 576).map(|i| p[3][i / 576]).collect();
    taps(64, 32, 24, |to, from, w| a2[to] += a1[from] * p[2][w]);
    // The largest pixel of each window, the first of equals.
    let largest: Vec<usize> = (0..9216)
        .map(|i| {
            let (channel, y, x) = (i / 144, i % 144 / 12 * 2, i % 12 * 2);
            let window = [(0, 0), (0, 1), (1, 0), (1, 1)].map(|(down, right)| at(24, channel, y + down, x + right));
            window.into_iter().reduce(|best, next| if a2[next] > a2[best] { next } else { best }).unwrap()
        })
        .collect();
    let pooled: Vec<f64> = largest.iter().map(|&from| a2[from].max(0.0)).collect();
    let hidden: Vec<f64> = (0..128)
        .map(|j| {
            let row = &p[4][j * 9216..][..9216];
            (p[5][j] + row.iter().zip(&pooled).map(|(w, x)| w * x).sum::<f64>()).max(0.0)
        })
        .collect();
    let logits: Vec<f64> =
        (0..10).map(|c| p[7][c] + (0..128).map(|j| p[6][c * 128 + j] * hidden[j]).sum::<f64>()).collect();
    let total: f64 = logits.iter().map(|logit| logit.exp()).sum();
    let loss = total.ln() - logits[label as usize];
    let hits = usize::from((0..10).all(|c| logits[c] <= logits[label as usize]));

    let d_logits: Vec<f64> = (0..10).map(|c| logits[c].exp() / total - f64::from(c == label as usize)).collect();
    let mut d_pooled = vec![0.0; 9216];
    for j in 0..128 {
        for c in 0..10 {
            d[6][c * 128 + j] += d_logits[c] * hidden[j];
        }
        if hidden[j] > 0.0 {
            let d_hidden: f64 = (0..10).map(|c| d_logits[c] * p[6][c * 128 + j]).sum();
            d[5][j] += d_hidden;
            for i in 0..9216 {
                d[4][j * 9216 + i] += d_hidden * pooled[i];
                d_pooled[i] += d_hidden * p[4][j * 9216 + i];
            }
        }
    }
    d[7].iter_mut().zip(&d_logits).for_each(|(sum, d)| *sum += d);
    let mut d_a2 = vec![0.0; a2.len()];
    for (i, &from) in largest.iter().enumerate().filter(|(_, from)| a2[**from] > 0.0) {
        d_a2[from] = d_pooled[i];
        d[3][i / 144] += d_pooled[i];
    }
    let mut d_a1 = vec![0.0; a1.len()];
    taps(64, 32, 24, |to, from, w| {
        d[2][w] += d_a2[to] * a1[from];
        d_a1[from] += d_a2[to] * p[2][w];
    });
    d_a1.iter_mut().zip(&a1).for_each(|(d, &a)| *d *= f64::from(a > 0.0));
    taps(32, 1, 26, |to, from, w| d[0][w] += d_a1[to] * x[from]);
    d_a1.iter().enumerate().for_each(|(i, &one)| d[1][i / 676] += one);
    Reference { loss, hits, gradients: d }
}
