//! Both ways to compute the network agree, forward, backward and through steps of the optimiser.

use super::*;
use crate::data::Images;
use candle_core::{Device, Tensor};

fn batch(count: usize) -> (Tensor, Tensor) {
    let images = Images::generated(1, count, 1).train;
    let pixels: Vec<f32> = images.pixels.iter().map(|&pixel| f32::from(pixel) / 255.0).collect();
    let digits: Vec<u32> = images.labels.iter().map(|&label| u32::from(label)).collect();
    let x = Tensor::from_vec(pixels, (count, 1, 28, 28), &Device::Cpu).unwrap();
    (x, Tensor::from_vec(digits, count, &Device::Cpu).unwrap())
}

fn cnn(kernels: Kernels, precision: Precision) -> Cnn {
    Cnn::new(&Parameters::random(3), &Device::Cpu, kernels, precision).unwrap()
}

#[test]
fn own_layers_and_candles_give_the_same_gradients() {
    let (x, digits) = batch(2);
    same_gradients(&x, &digits);
}

#[test]
fn equal_numbers_in_a_window_of_the_pool_share_no_gradient_twice() {
    // A bar on an even background: nearly all windows of the pool hold four equal numbers.
    let pixel = |at: usize| if (at % 28).abs_diff(14) < 2 { 1.0 } else { 0.0 };
    let x = Tensor::from_vec((0..784).map(pixel).collect::<Vec<f32>>(), (1, 1, 28, 28), &Device::Cpu).unwrap();
    same_gradients(&x, &Tensor::new(&[1u32], &Device::Cpu).unwrap());
}

fn same_gradients(x: &Tensor, digits: &Tensor) {
    let found = [Kernels::Candle, Kernels::Own].map(|kernels| {
        let cnn = cnn(kernels, Precision::F32);
        let loss = cnn.loss(x, digits).unwrap();
        let gradients = loss.backward().unwrap();
        let of = |at: usize| gradients.get(&cnn.vars[at]).unwrap().flatten_all().unwrap().to_vec1::<f32>().unwrap();
        (loss.to_scalar::<f32>().unwrap(), (0..8).map(of).collect::<Vec<_>>())
    });
    let [(loss, candle), (own_loss, own)] = &found;
    assert!((loss - own_loss).abs() < 1e-6, "{loss} and {own_loss}");
    for (at, (candle, own)) in candle.iter().zip(own).enumerate() {
        let scale = candle.iter().fold(0f32, |largest, x| largest.max(x.abs()));
        for (a, b) in candle.iter().zip(own) {
            assert!((a - b).abs() <= 2e-5 * scale, "{}: {a} and {b}", Parameters::SHAPES[at].0);
        }
    }
}

#[test]
fn steps_of_the_optimiser_agree_with_candles_own() {
    use candle_nn::{Optimizer, ParamsAdamW};
    let (x, digits) = batch(2);
    let settings = ParamsAdamW { lr: 1e-3, weight_decay: 0.01, ..ParamsAdamW::default() };
    let reference = cnn(Kernels::Candle, Precision::F32);
    let mut candles = candle_nn::AdamW::new(reference.vars.clone(), settings).unwrap();
    let both = [Kernels::Candle, Kernels::Own].map(|kernels| cnn(kernels, Precision::F32));
    let mut adamws = both.each_ref().map(|cnn| AdamW::new(cnn).unwrap());
    for _ in 0..2 {
        candles.backward_step(&reference.loss(&x, &digits).unwrap()).unwrap();
        for (cnn, adamw) in both.iter().zip(&mut adamws) {
            // A loss scale changes nothing but the last bits.
            let loss = (cnn.loss(&x, &digits).unwrap() * 8.0).unwrap();
            adamw.step(cnn, &loss.backward().unwrap(), 8.0).unwrap();
        }
    }
    let expected = reference.parameters().unwrap();
    for cnn in &both {
        let found = cnn.parameters().unwrap();
        for (at, (found, expected)) in found.arrays.iter().zip(&expected.arrays).enumerate() {
            // Adam divides by the gradient's size: where a gradient is nearly 0, its rounding errors count, up to a step.
            let off = found.iter().zip(expected).filter(|(a, b)| (*a - *b).abs() > 2e-5).count();
            assert!(off * 1000 <= found.len(), "{}: {off} of {}", Parameters::SHAPES[at].0, found.len());
        }
    }
}

#[test]
fn sixteen_bits_round_and_change_little() {
    let (x, digits) = batch(2);
    let loss = |precision| cnn(Kernels::Candle, precision).loss(&x, &digits).unwrap().to_scalar::<f32>().unwrap();
    let (exact, bf16, f16) = (loss(Precision::F32), loss(Precision::Bf16), loss(Precision::F16));
    for rounded in [bf16, f16] {
        assert!(rounded != exact && (rounded - exact).abs() < 0.02, "{rounded} and {exact}");
    }
}

#[test]
fn a_wrong_shape_is_an_error() {
    let x = Tensor::zeros((2, 28, 28), candle_core::DType::F32, &Device::Cpu).unwrap();
    for kernels in [Kernels::Candle, Kernels::Own] {
        let text = cnn(kernels, Precision::F32).logits(&x).unwrap_err().to_string();
        assert!(text.contains("candle says") && text.contains("\nnext: "), "{text}");
    }
}

#[test]
fn one_image_is_a_batch() {
    let (x, digits) = batch(1);
    for kernels in [Kernels::Candle, Kernels::Own] {
        let cnn = cnn(kernels, Precision::F32);
        let loss = cnn.loss(&x, &digits).unwrap();
        let gradients = loss.backward().unwrap_or_else(|error| panic!("{kernels:?}: {error}"));
        for var in &cnn.vars {
            assert_eq!(gradients.get(var).unwrap().shape(), var.shape(), "{kernels:?}");
        }
        AdamW::new(&cnn).unwrap().step(&cnn, &gradients, 1.0).unwrap();
    }
}
