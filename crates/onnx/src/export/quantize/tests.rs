use super::*;
use candle_core::{Device, Tensor};
use gpulab::cpu::random_f32;
use gpulab_nn::memory::{Layer, Loss, Network};

fn network() -> Network {
    let layers = vec![
        Layer::Conv { inputs: 1, outputs: 4, window: 3 },
        Layer::Relu,
        Layer::MaxPool,
        Layer::Flatten,
        Layer::Linear { inputs: 36, outputs: 8 },
        Layer::Linear { inputs: 8, outputs: 3 },
    ];
    Network { name: "small".to_string(), input: vec![1, 8, 8], layers, loss: Loss::CrossEntropy }
}

fn parameters(network: &Network) -> Vec<Vec<f32>> {
    let shapes = network.layers.iter().flat_map(Layer::parameters);
    shapes.enumerate().map(|(at, shape)| random_f32(shape.iter().product(), at as u64)).collect()
}

fn images(count: usize) -> Tensor {
    let pixels: Vec<f32> = random_f32(count * 64, 9).iter().map(|x| 0.5 + 0.5 * x).collect();
    Tensor::from_vec(pixels, (count, 1, 8, 8), &Device::Cpu).unwrap()
}

fn quantised(settings: Settings) -> Quantised {
    let (network, parameters) = (network(), parameters(&network()));
    let arrays: Vec<&[f32]> = parameters.iter().map(Vec::as_slice).collect();
    let seen = calibrate(&network, &arrays, &images(16), 0.0).unwrap();
    Quantised::new(&network, &arrays, &seen, settings).unwrap()
}

#[test]
fn steps_cover_their_range_and_keep_zero() {
    for (low, high) in [(0.0, 6.0), (-1.0, 3.0), (-5.0, 0.0), (-0.001, 1000.0), (0.0, 0.0)] {
        let range = Range { low, high };
        for kind in [Activations::U8, Activations::I8] {
            let step = Step::of(range, kind);
            assert_eq!(step.rounded(0.0), 0.0, "{range:?}");
            for part in 0..=100 {
                let x = low + (high - low) * part as f32 / 100.0;
                // The zero point is rounded, too: an end may be half a step outside.
                assert!((step.rounded(x) - x).abs() <= step.scale * 1.01, "{x} of {range:?}: {step:?}");
            }
            assert!(
                step.rounded(f32::MAX) <= high.max(-low) + step.scale * 256.0 && step.rounded(f32::MAX).is_finite()
            );
        }
    }
    // Behind a ReLU, signed integers have half as many.
    let range = Range { low: 0.0, high: 2.55 };
    assert!((Step::of(range, Activations::U8).scale - 0.01).abs() < 1e-7);
    assert!((Step::of(range, Activations::I8).scale - 0.02).abs() < 1e-3);
}

#[test]
fn a_range_may_leave_out_the_rarest() {
    let mut numbers: Vec<f32> = (0..1000).map(|x| x as f32).collect();
    assert_eq!(Range::of(&numbers), Range { low: 0.0, high: 999.0 });
    assert_eq!(Range::without(&mut numbers, 0.01), Range { low: 0.0, high: 989.0 });
    assert_eq!(Range::without(&mut [], 0.1), Range { low: 0.0, high: 0.0 });
    assert_eq!(Range::of(&[f32::NAN, -1.0]), Range { low: -1.0, high: 0.0 });
}

#[test]
fn values_that_integers_multiply_have_ranges() {
    let quantised = quantised(Settings::default());
    let names: Vec<&str> = quantised.ranges.iter().map(|(name, _)| name.as_str()).collect();
    assert_eq!(names, ["input", "relu1", "fc1"]);
    assert!(quantised.ranges[1].1.low == 0.0 && quantised.ranges[2].1.low < 0.0);
    let steps: Vec<usize> = quantised.weights.iter().map(Vec::len).collect();
    assert_eq!(steps, [4, 8, 3]);
}

#[test]
fn eight_bits_err_little_and_one_step_for_all_channels_errs_more() {
    let share = |weights| {
        let mut of = quantised(Settings { weights, ..Settings::default() });
        // One channel a hundred times as large as the others: where all share a step, theirs is too wide.
        of.parameters_mut()[0][..9].iter_mut().for_each(|x| *x *= 100.0);
        let (network, parameters) = (network(), of.parameters_mut().clone());
        let arrays: Vec<&[f32]> = parameters.iter().map(Vec::as_slice).collect();
        let seen = calibrate(&network, &arrays, &images(16), 0.0).unwrap();
        let again = Quantised::new(&network, &arrays, &seen, Settings { weights, ..Settings::default() }).unwrap();
        let errors = again.errors(&images(4)).unwrap();
        let names: Vec<&str> = errors.iter().map(|error| error.name.as_str()).collect();
        assert_eq!(names, ["input", "relu1", "fc1", "output"]);
        assert!(errors[0].share() < 0.01, "{errors:?}");
        // The three channels that are not large.
        let weight = &again.weights[0];
        weight[weight.len() - 1].scale
    };
    assert!(share(PerWeight::Tensor) > 50.0 * share(PerWeight::Channel));
    for activations in [Activations::U8, Activations::I8] {
        let last =
            quantised(Settings { activations, ..Settings::default() }).errors(&images(4)).unwrap().pop().unwrap();
        assert!(last.share() > 1e-5 && last.share() < 0.05, "{last:?}");
    }
}

#[test]
fn the_model_has_pairs_and_a_quarter_of_the_bytes() {
    let quantised = quantised(Settings::default());
    let model = quantised.model("images", "logits").unwrap();
    let nodes = model.nodes();
    let count = |operator: &str| nodes.iter().filter(|node| node.operator == operator).count();
    // Input, relu1, pool1, flatten1, fc1; and six parameters.
    assert_eq!((count("QuantizeLinear"), count("DequantizeLinear")), (5, 11));
    let weight = model.weights().into_iter().find(|(name, ..)| *name == "fc1.weight.integers").unwrap();
    assert_eq!((weight.1, weight.2), (vec![8, 36], 288));
    assert_eq!(model.outputs()[0].to_string(), "logits: f32 [batch, 3]");
}

#[test]
fn what_is_not_quantised_is_named() {
    let network = Network { layers: vec![Layer::Gelu, Layer::Relu], ..network() };
    let text = calibrate(&network, &[], &images(1), 0.0).unwrap_err().to_string();
    assert!(text.contains("the layer `gelu1` (GELU) is not quantised") && text.contains("\nnext: "), "{text}");
    let none = images(1).narrow(0, 0, 0).unwrap();
    assert!(calibrate(&super::tests::network(), &[], &none, 0.0).unwrap_err().to_string().contains("no examples"));
}
