//! The prediction against sums by hand, and the ways out against the plain way. What candle keeps is measured in a process of
//! its own: the test `training_memory`.

use super::*;
use crate::DeviceKind;
use crate::gpt::Config;
use candle_core::{DType, Device};

/// A network with every kind of layer that trains on images, small enough for a test.
fn small() -> Network {
    let layers = vec![
        Layer::Conv { inputs: 1, outputs: 3, window: 3 },
        Layer::Relu,
        Layer::Conv { inputs: 3, outputs: 4, window: 3 },
        Layer::Relu,
        Layer::MaxPool,
        Layer::Flatten,
        Layer::Linear { inputs: 16, outputs: 10 },
    ];
    Network { name: "small".to_string(), input: vec![1, 8, 8], layers, loss: Loss::CrossEntropy }
}

fn tiny_gpt() -> Network {
    let config = Config { n_layer: 2, n_head: 2, n_embd: 8, n_ctx: 16, vocab_size: 256 };
    Network::gpt_blocks(&config, 2, 5)
}

#[test]
fn the_cnn_by_hand() {
    let network = Network::cnn();
    assert_eq!(network.parameters(), 1_199_882);
    let predicted = network.predict(128, DType::F32, Optimiser::AdamW);
    assert_eq!((predicted.parameters, predicted.gradients), (4_799_528, 4_799_528));
    assert_eq!(predicted.optimiser, 2 * 4_799_528);
    // Product, with bias and ReLU of each convolution; pool; the same three of the first matrix; two of the second; the loss.
    let (conv_1, conv_2, pool) = (32 * 26 * 26, 64 * 24 * 24, 64 * 12 * 12);
    let each = 3 * conv_1 + 3 * conv_2 + pool + 3 * 128 + 2 * 10 + 3 * 10 + 4;
    assert_eq!(predicted.activations, 4 * 128 * each);
    assert_eq!(predicted.input, 4 * 128 * 784);
    assert_eq!(network.predict(128, DType::BF16, Optimiser::Sgd).total(), {
        (2 * 4_799_528 + 4 * 128 * each + 4 * 128 * 784) / 2
    });
    let by_layer: u64 = predicted.layers.iter().map(|layer| layer.activations).sum();
    assert_eq!(by_layer, predicted.activations);
}

#[test]
fn a_gpt_block_by_hand() {
    let config = Config { n_layer: 1, n_head: 4, n_embd: 128, n_ctx: 256, vocab_size: 256 };
    let network = Network::gpt_blocks(&config, 1, 64);
    // Weights and biases of four matrices, and of two layer norms.
    let matrices = 128 * 384 + 384 + 128 * 128 + 128 + 128 * 512 + 512 + 512 * 128 + 128;
    assert_eq!(network.parameters(), matrices + 4 * 128);
    let (tokens, scores) = (2 * 64, 2 * 4 * 64 * 64);
    let attention = 5 * 128 * tokens
        + 6 * tokens
        + 3 * 3 * 128 * tokens
        + 6 * scores
        + 2 * 2 * 4 * 64
        + 64 * 64
        + 2 * 128 * tokens
        + 3 * 128 * tokens;
    let forward = 5 * 128 * tokens + 6 * tokens + 3 * 512 * tokens + 3 * 128 * tokens;
    let kept: u64 = network.kept(2).iter().map(|kept| kept.elements).sum();
    assert_eq!(kept, (attention + forward + 128 * tokens) as u64);
}

#[test]
fn pieces_give_the_gradients_of_the_whole() {
    for network in [small(), tiny_gpt()] {
        let model = Model::new(&network, DType::F32, &Device::Cpu, 7).unwrap();
        let batch = model.batch(12, 1).unwrap();
        let whole = model.gradients(&batch).unwrap();
        assert_eq!(whole.bytes(), 4 * network.parameters());
        for pieces in [1, 3, 12] {
            let mut sum = model.zero_gradients().unwrap();
            for piece in batch.micro_batches(pieces).unwrap() {
                assert_eq!(piece.examples(), 12 / pieces);
                sum.add(&model.gradients(&piece).unwrap(), 1.0 / pieces as f64).unwrap();
            }
            let apart = whole.difference(&sum).unwrap();
            assert!(apart < 1e-5 && (whole.loss - sum.loss).abs() < 1e-5, "{} in {pieces}: {apart}", network.name);
            // A sum without the weights is another gradient: the comparison must see it.
            let mut wrong = model.zero_gradients().unwrap();
            wrong.add(&whole, 1.01).unwrap();
            assert!(whole.difference(&wrong).unwrap() > 5e-3);
        }
        for pieces in [0, 5] {
            assert!(batch.micro_batches(pieces).unwrap_err().to_string().contains("divides the batch"));
        }
    }
}

#[test]
fn checkpointing_gives_the_same_gradients_bit_for_bit() {
    for network in [small(), tiny_gpt()] {
        let model = Model::new(&network, DType::F32, &Device::Cpu, 7).unwrap();
        let batch = model.batch(3, 1).unwrap();
        let whole = model.gradients(&batch).unwrap();
        for every in [1, 2, 3, 100] {
            let again = model.gradients_checkpointed(&batch, every).unwrap();
            assert_eq!((whole.difference(&again).unwrap(), whole.loss), (0.0, again.loss), "{} {every}", network.name);
        }
        assert!(model.gradients_checkpointed(&batch, 0).unwrap_err().to_string().contains("1 or more"));
    }
}

#[test]
fn parameters_begin_as_layers_ask() {
    let model = Model::new(&tiny_gpt(), DType::F32, &Device::Cpu, 7).unwrap();
    let of = |at: usize| model.parameters[at].flatten_all().unwrap().to_vec1::<f32>().unwrap();
    // Factor and summand of the first layer norm, then a matrix with its bias.
    assert_eq!((of(0), of(1)), (vec![1.0; 8], vec![0.0; 8]));
    let bound = 1.0 / 8f32.sqrt();
    let most = of(2).into_iter().fold(0f32, |most, x| most.max(x.abs()));
    assert!(most <= bound && most > 0.5 * bound && of(3).iter().all(|x| x.abs() <= bound && *x != 0.0));
    // And those of the second, after a matrix and its bias.
    let shapes: Vec<Vec<usize>> = model.network.layers[0].parameters();
    assert_eq!((of(shapes.len()), of(shapes.len() + 1)), (vec![1.0; 8], vec![0.0; 8]));
}

#[test]
fn the_largest_batch_fits_and_one_more_does_not() {
    let network = Network::cnn();
    let total = |batch, workspace: f64| {
        network.predict(batch, DType::F32, Optimiser::AdamW).total() as f64 + workspace * batch as f64
    };
    for (budget, workspace) in [(1_u64 << 30, 1.5e6), (256 << 20, 0.0), (100 << 20, 1e6)] {
        let batch = network.largest_batch(budget, Optimiser::AdamW, workspace).unwrap();
        assert!(total(batch, workspace) <= budget as f64 && total(batch + 1, workspace) > budget as f64, "{batch}");
    }
    let text = network.largest_batch(20_000_000, Optimiser::AdamW, 1e6).unwrap_err().to_string();
    assert!(text.contains("even one example") && text.contains("next: "), "{text}");
}

#[test]
fn a_meter_for_the_mac_says_where_to_measure() {
    let error = Meter::of(DeviceKind::Metal).unwrap_err().to_string();
    assert!(error.contains("next: measure on the CPU"), "{error}");
}

#[test]
fn new_tensors_are_told_apart_from_those_of_an_earlier_cell() {
    let model = Model::new(&small(), DType::F32, &Device::Cpu, 7).unwrap();
    let batch = model.batch(1, 1).unwrap();
    model.reserve_ids(&batch).unwrap();
    let of = |tensor: &candle_core::Tensor| crate::tensor_id::id_number(tensor);
    let new = of(&candle_core::Tensor::new(0u32, &Device::Cpu).unwrap());
    assert!(new > of(&batch.x) && of(&batch.x) > of(model.parameters[0].as_tensor()));
}
