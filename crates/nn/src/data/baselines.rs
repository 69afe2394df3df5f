//! What two simple readers make of the images: the bar that a network has to pass.

use super::{ImageSet, Images};
use candle_core::{DType, Device, Tensor, Var};
use candle_nn::loss::cross_entropy;
use candle_nn::{AdamW, Optimizer, ParamsAdamW};
use rayon::prelude::*;
use std::ops::Range;

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
    let nearest = |image: &[u8]| {
        let distances = means.iter().map(|mean| distance(mean, image)).enumerate();
        distances.min_by(|a, b| a.1.total_cmp(&b.1)).map_or(0, |(digit, _)| digit)
    };
    let set = &images.test;
    let right =
        (0..set.len()).into_par_iter().filter(|&at| nearest(set.image(at, size)) == usize::from(set.labels[at]));
    right.count() as f64 / set.len().max(1) as f64
}

/// The share of test images, 0 to 1, that a linear classifier reads right (ten weighted sums of the pixels), trained for
/// so many epochs with Adam on cross-entropy, its step falling to 0.
pub fn linear_accuracy(images: &Images, epochs: usize) -> f64 {
    trained_linear_accuracy(images, epochs).expect("two small matrices on the CPU")
}

fn trained_linear_accuracy(images: &Images, epochs: usize) -> candle_core::Result<f64> {
    let size = images.width * images.height;
    let batch = |set: &ImageSet, which: Range<usize>| -> candle_core::Result<(Tensor, Tensor)> {
        let pixels = &set.pixels[which.start * size..which.end * size];
        let x = Tensor::from_slice(pixels, (which.len(), size), &Device::Cpu)?.to_dtype(DType::F32)?;
        let digits: Vec<u32> = set.labels[which].iter().map(|&digit| u32::from(digit)).collect();
        Ok(((x / 255.0)?, Tensor::new(digits, &Device::Cpu)?))
    };
    let weight = Var::zeros((size, DIGITS), DType::F32, &Device::Cpu)?;
    let bias = Var::zeros(DIGITS, DType::F32, &Device::Cpu)?;
    let logits = |x: &Tensor| x.matmul(&weight)?.broadcast_add(&bias);
    let settings = ParamsAdamW { weight_decay: 0.0, ..ParamsAdamW::default() };
    let mut adam = AdamW::new(vec![weight.clone(), bias.clone()], settings)?;
    let (count, in_epoch) = (images.train.len(), images.train.len().div_ceil(BATCH));
    for step in 0..epochs * in_epoch {
        let start = step % in_epoch * BATCH;
        let (x, digits) = batch(&images.train, start..(start + BATCH).min(count))?;
        adam.set_learning_rate(3e-3 * (1.0 - (step + 1) as f64 / (epochs * in_epoch) as f64));
        adam.backward_step(&cross_entropy(&logits(&x)?, &digits)?)?;
    }
    let (x, digits) = batch(&images.test, 0..images.test.len())?;
    let right = logits(&x)?.argmax(1)?.eq(&digits)?.to_dtype(DType::F32)?.mean_all()?;
    Ok(right.to_scalar::<f32>()?.into())
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
