//! Each algorithm against f64, at awkward shapes too.

use super::*;
use crate::random_f32;

/// Σ x·w in f64, and Σ |x·w|, which scales the error that f32 may make.
fn reference(shape: &ConvShape, images: &[f32], weights: &[f32], at: usize) -> (f64, f64) {
    let (side, out_side) = (shape.side, shape.out_side());
    let (x, y) = (at % out_side, at / out_side % out_side);
    let (channel, image) = (at / out_side / out_side % shape.outputs, at / out_side / out_side / shape.outputs);
    let mut sums = (0.0, 0.0);
    for input in 0..shape.inputs {
        for place in 0..9 {
            let row = (image * shape.inputs + input) * side + y + place / 3;
            let weight = weights[(channel * shape.inputs + input) * 9 + place];
            let product = f64::from(images[row * side + x + place % 3]) * f64::from(weight);
            sums = (sums.0 + product, sums.1 + product.abs());
        }
    }
    sums
}

#[test]
fn every_algorithm_agrees_with_f64() {
    // Sides whose last tile is whole, and cut; one channel; the course's second convolution.
    for (batch, inputs, outputs, side) in
        [(1, 1, 1, 3), (2, 3, 5, 4), (3, 1, 7, 28), (1, 5, 2, 17), (2, 32, 64, 26), (5, 2, 3, 9)]
    {
        let shape = ConvShape { batch, inputs, outputs, side };
        let [of_images, of_weights, of_out] = shape.lengths();
        let (images, weights) = (random_f32(of_images, 1), random_f32(of_weights, 2));
        for algorithm in ConvAlgorithm::ALL {
            // Poisoned: an element that is never written stays NaN and fails below.
            let mut out = vec![f32::NAN; of_out];
            algorithm.run(&shape, &images, &weights, &mut out).unwrap();
            for at in (0..of_out).step_by(of_out / 500 + 1) {
                let (exact, magnitude) = reference(&shape, &images, &weights, at);
                let apart = (f64::from(out[at]) - exact).abs();
                let tolerance = (inputs as f64 * 9.0 + 8.0) * 2f64.powi(-24) * magnitude.max(1.0);
                assert!(apart <= 4.0 * tolerance, "{} {shape:?}, {at}: {} not {exact}", algorithm.name(), out[at]);
            }
        }
    }
}

#[test]
fn lengths_that_do_not_fit_are_named_and_no_image_is_no_work() {
    let shape = ConvShape { batch: 1, inputs: 1, outputs: 1, side: 4 };
    for algorithm in ConvAlgorithm::ALL {
        let error = algorithm.run(&shape, &[0.0; 16], &[0.0; 9], &mut [0.0; 5]).unwrap_err().to_string();
        assert!(error.contains("result: 4 elements expected, 5 given"), "{error}");
        let tiny = ConvShape { side: 2, ..shape };
        assert!(algorithm.run(&tiny, &[0.0; 4], &[0.0; 9], &mut []).is_err());
        let none = ConvShape { batch: 0, ..shape };
        algorithm.run(&none, &[], &[0.0; 9], &mut []).unwrap();
    }
}

#[test]
fn the_workspace_follows_the_shapes() {
    let shape = ConvShape { batch: 64, inputs: 32, outputs: 64, side: 26 };
    let of = |algorithm: ConvAlgorithm| algorithm.workspace(&shape, 4);
    let columns = 32 * 9 * 24 * 24 * 4;
    assert_eq!(of(ConvAlgorithm::Direct), 0);
    assert_eq!(of(ConvAlgorithm::ColumnsOfAnImage), 4 * columns);
    assert_eq!(of(ConvAlgorithm::ColumnsOfTheBatch), 64 * columns);
    assert_eq!(of(ConvAlgorithm::Winograd), 16 * 32 * 64 * 4 + 4 * 16 * (32 + 64) * 144 * 4);
    assert_eq!(shape.operations(), 2.0 * 64.0 * 64.0 * 576.0 * 288.0);
}
