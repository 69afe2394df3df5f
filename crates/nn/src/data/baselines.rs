//! What two simple readers make of the images: the bar that a network has to pass.

use super::{Images, Set};
use rayon::prelude::*;

const DIGITS: usize = 10;
/// Images of one step of the linear classifier.
const BATCH: usize = 250;

/// The share of test images, 0 to 1, whose nearest mean of the training images (in squared distance of the pixels) is that
/// of their own digit.
pub fn nearest_mean_accuracy(images: &Images) -> f64 {
    let size = images.width * images.height;
    let mut means = vec![vec![0f64; size]; DIGITS];
    let mut counts = [0f64; DIGITS];
    for (at, &label) in images.train.labels.iter().enumerate() {
        let (mean, image) = (&mut means[usize::from(label)], images.train.image(at, size));
        mean.iter_mut().zip(image).for_each(|(sum, &pixel)| *sum += f64::from(pixel));
        counts[usize::from(label)] += 1.0;
    }
    for (mean, count) in means.iter_mut().zip(counts) {
        mean.iter_mut().for_each(|sum| *sum /= count.max(1.0));
    }
    let distance = |mean: &[f64], image: &[u8]| -> f64 {
        mean.iter().zip(image).map(|(mean, &pixel)| (mean - f64::from(pixel)).powi(2)).sum()
    };
    share_right(&images.test, size, |image| {
        let distances = means.iter().map(|mean| -distance(mean, image));
        best(distances)
    })
}

/// The share of test images, 0 to 1, that a linear classifier reads right (ten weighted sums of the pixels), trained for
/// so many epochs with Adam on cross-entropy, its step falling to 0.
pub fn linear_accuracy(images: &Images, epochs: usize) -> f64 {
    let size = images.width * images.height;
    let weights = trained(images, size, epochs);
    share_right(&images.test, size, |image| {
        let pixels: Vec<f32> = image.iter().map(|&pixel| f32::from(pixel) / 255.0).collect();
        best(logits(&weights, &pixels).into_iter().map(f64::from))
    })
}

fn share_right(set: &Set, size: usize, read: impl Fn(&[u8]) -> usize + Sync) -> f64 {
    let right = (0..set.len()).into_par_iter().filter(|&at| read(set.image(at, size)) == usize::from(set.labels[at]));
    right.count() as f64 / set.len().max(1) as f64
}

fn best(scores: impl Iterator<Item = f64>) -> usize {
    scores.enumerate().max_by(|a, b| a.1.total_cmp(&b.1)).map_or(0, |(at, _)| at)
}

/// A row of weights for each digit, the bias at its end.
fn logits(weights: &[f32], pixels: &[f32]) -> [f32; DIGITS] {
    let row = pixels.len() + 1;
    std::array::from_fn(|digit| {
        let own = &weights[digit * row..][..row];
        // Eight sums side by side: the compiler may not reorder a single one.
        let mut sums = [0f32; 8];
        let (chunks, rest) = pixels.as_chunks::<8>();
        for (x, w) in chunks.iter().zip(own.as_chunks::<8>().0) {
            (0..8).for_each(|lane| sums[lane] += x[lane] * w[lane]);
        }
        let start = pixels.len() - rest.len();
        let tail: f32 = rest.iter().zip(&own[start..]).map(|(x, w)| x * w).sum();
        sums.iter().sum::<f32>() + tail + own[row - 1]
    })
}

fn trained(images: &Images, size: usize, epochs: usize) -> Vec<f32> {
    let set = &images.train;
    let row = size + 1;
    let mut weights = vec![0f32; DIGITS * row];
    let (mut m, mut v) = (weights.clone(), weights.clone());
    let steps = (epochs * set.len().div_ceil(BATCH)) as f32;
    let mut step = 0f32;
    for _ in 0..epochs {
        for start in (0..set.len()).step_by(BATCH) {
            let end = (start + BATCH).min(set.len());
            let gradient = gradient(set, start..end, size, &weights);
            step += 1.0;
            let rate = 3e-3 * (1.0 - step / steps);
            let (m_scale, v_scale) = (1.0 / (1.0 - 0.9f32.powf(step)), 1.0 / (1.0 - 0.999f32.powf(step)));
            for (((w, m), v), g) in weights.iter_mut().zip(&mut m).zip(&mut v).zip(gradient) {
                *m += 0.1 * (g - *m);
                *v += 0.001 * (g * g - *v);
                *w -= rate * *m * m_scale / ((*v * v_scale).sqrt() + 1e-8);
            }
        }
    }
    weights
}

fn gradient(set: &Set, batch: std::ops::Range<usize>, size: usize, weights: &[f32]) -> Vec<f32> {
    let count = batch.len() as f32;
    // Parts of a fixed size, added in their order: the same sum on any number of cores.
    let parts: Vec<Vec<f32>> = batch
        .clone()
        .into_par_iter()
        .step_by(32)
        .map(|start| {
            let mut sum = vec![0f32; weights.len()];
            for at in start..(start + 32).min(batch.end) {
                let pixels: Vec<f32> = set.image(at, size).iter().map(|&p| f32::from(p) / 255.0).collect();
                let logits = logits(weights, &pixels);
                let largest = logits.iter().fold(f32::MIN, |a, &b| a.max(b));
                let powers = logits.map(|logit| (logit - largest).exp());
                let all: f32 = powers.iter().sum();
                for (digit, power) in powers.into_iter().enumerate() {
                    let wrong = power / all - f32::from(u8::from(digit == usize::from(set.labels[at])));
                    let own = &mut sum[digit * (size + 1)..][..size + 1];
                    own.iter_mut().zip(&pixels).for_each(|(sum, x)| *sum += wrong * x);
                    own[size] += wrong;
                }
            }
            sum
        })
        .collect();
    let mut sum = vec![0f32; weights.len()];
    for part in parts {
        sum.iter_mut().zip(part).for_each(|(sum, part)| *sum += part / count);
    }
    sum
}

#[cfg(test)]
mod tests {
    use super::*;

    /// One dark pixel that names the digit.
    fn easy(train: usize) -> Images {
        let mut images = Images::generated(1, train, 100);
        for set in [&mut images.train, &mut images.test] {
            set.pixels.fill(0);
            for (at, &label) in set.labels.iter().enumerate() {
                set.pixels[at * 784 + 50 * usize::from(label)] = 255;
            }
        }
        images
    }

    #[test]
    fn both_read_what_is_easy() {
        assert_eq!(nearest_mean_accuracy(&easy(500)), 1.0);
        assert_eq!(linear_accuracy(&easy(500), 20), 1.0);
    }

    #[test]
    fn generated_digits_are_hard_for_both_and_not_random() {
        let images = Images::generated(super::super::SEED, 3000, 1000);
        let (mean, linear) = (nearest_mean_accuracy(&images), linear_accuracy(&images, 8));
        assert!((0.4..0.85).contains(&mean), "nearest mean: {mean}");
        assert!((0.5..0.93).contains(&linear), "linear: {linear}");
    }
}
