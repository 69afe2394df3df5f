//! The chain in the simulator: right at awkward shapes, in f32 and bf16, without a mistake; and what it says of arrays that
//! do not fit.

use super::*;
use crate::topics::hardware;
use gpulab::Error;
use gpulab::sim::BlockOrder;

fn shape(batch: usize, q_heads: usize, kv_heads: usize, length: usize, width: usize) -> AttentionShape {
    AttentionShape { batch, q_heads, kv_heads, length, width }
}

/// Any finding of the simulator is the launch's error.
#[test]
fn both_chains_agree_with_f64_at_awkward_shapes() {
    let gpu = Gpu::simulated().unwrap();
    let mut kinds = vec![Attention::new(&gpu).unwrap_or_else(|error| panic!("{error}"))];
    match Attention::bf16(&gpu) {
        Ok(attention) => kinds.push(attention),
        // The packed PTX, which serves where nothing compiles, is that of f32.
        Err(error @ Error::NoCompiler { .. }) => eprintln!("skipped: bf16 ({error})"),
        Err(error) => panic!("{error}"),
    }
    for attention in kinds {
        for (length, width, q_heads, kv_heads) in [(1, 128, 2, 2), (31, 16, 4, 1), (33, 80, 2, 1), (127, 128, 1, 1)] {
            let shape = shape(2, q_heads, kv_heads, length, width);
            // All is hidden from the second sequence: its rows are 0.
            for mask in [AttentionMask::causal(), AttentionMask::none().padded(&[length, 0])] {
                attention.check(shape, &mask, 7, 3.0).unwrap_or_else(|error| panic!("{error}"));
            }
        }
    }
}

#[test]
fn both_chains_are_right_in_every_order_of_blocks() {
    for order in [BlockOrder::Reverse, BlockOrder::Random(1)] {
        let gpu = Gpu::simulated_in(order).unwrap();
        for attention in [Attention::new(&gpu), Attention::bf16(&gpu)] {
            // The shipped PTX, which serves where nothing compiles, is that of f32.
            let attention = match attention {
                Err(Error::Unsupported { .. }) => continue,
                attention => attention.unwrap_or_else(|error| panic!("{error}")),
            };
            let checked = attention.check(shape(1, 2, 1, 65, 80), &AttentionMask::causal(), 7, 3.0);
            checked.unwrap_or_else(|error| panic!("blocks {order}: {error}"));
        }
    }
}

#[test]
fn weights_are_those_of_a_softmax() {
    let attention = Attention::new(&Gpu::simulated().unwrap()).unwrap();
    let shape = shape(1, 1, 1, 3, 4);
    let weights = attention.weights(&[0.0; 12], &[1.0; 12], shape, &AttentionMask::causal()).unwrap();
    let third = 1.0 / 3.0;
    let expected = [1.0, 0.0, 0.0, 0.5, 0.5, 0.0, third, third, third];
    assert!(weights.iter().zip(expected).all(|(given, exact)| (given - exact).abs() < 1e-6), "{weights:?}");
}

#[test]
fn what_does_not_fit_is_named_before_anything_runs() {
    let attention = Attention::new(&Gpu::simulated().unwrap()).unwrap();
    let (one, none) = (shape(1, 1, 1, 2, 4), AttentionMask::none());
    let attend = |k: &[f32], shape| attention.attend(&[0.0; 8], k, &[0.0; 8], shape, &none).unwrap_err().to_string();
    assert!(attend(&[0.0; 7], one).contains("attention's `k`: 8 elements expected, 7 given"));
    assert!(attend(&[0.0; 8], shape(1, 3, 2, 2, 4)).contains("next: let the heads of q be a multiple"));
    let text = attention.time_steps(one, &none, &Bench::default()).unwrap_err().to_string();
    assert!(text.contains("\nnext: "), "{text}");
}

#[test]
fn the_simulator_counts_what_each_step_moves() {
    let attention = Attention::new(&Gpu::simulated().unwrap()).unwrap();
    let (shape, mask) = (shape(1, 2, 2, 64, 64), AttentionMask::causal());
    let work = AttentionWork::chained(shape, &mask, 4).unwrap();
    for ((step, seen), work) in attention.inspect(shape, &mask).unwrap().iter().zip(&work.steps) {
        assert_eq!(*step, work.step);
        let written = 32 * seen.counters.global_store_sectors;
        match step {
            // A sector that is half hidden counts whole; the launch for q alone is looked at.
            AttentionStep::Mask => assert!((work.written..=2 * work.written).contains(&written), "{written}"),
            AttentionStep::SplitHeads => assert_eq!(3 * written, work.written),
            _ => assert_eq!(written, work.written, "{step:?}"),
        }
    }
}

#[test]
#[ignore = "needs an NVIDIA GPU"]
fn every_step_is_checked_and_timed_on_a_gpu() {
    let gpu = hardware();
    let shape = shape(2, 4, 2, 200, 80);
    for attention in [Attention::new(&gpu).unwrap(), Attention::bf16(&gpu).unwrap()] {
        attention.check(shape, &AttentionMask::causal().padded(&[200, 100]), 3, 2.0).unwrap();
        let rows = attention.time_steps(shape, &AttentionMask::causal(), &Bench::default().samples(5)).unwrap();
        assert_eq!(rows.len(), AttentionStep::ALL.len() + 2);
        assert!(rows.iter().all(|row| row.summary.median > 0.0));
    }
}

#[test]
fn bytes_follow_from_the_shape() {
    let shape = AttentionShape { batch: 2, q_heads: 4, kv_heads: 2, length: 10, width: 8 };
    let of = |work: &AttentionWork, step| {
        let found = work.steps.iter().find(|own| own.step == step).unwrap();
        (found.read, found.written)
    };
    let causal = AttentionWork::chained(shape, &AttentionMask::causal(), 4).unwrap();
    assert_eq!(of(&causal, AttentionStep::Scores), (4 * (640 + 320), 4 * 800));
    // Above the diagonal lie 45 of 100 scores.
    assert_eq!(of(&causal, AttentionStep::Mask), (0, 4 * 8 * 45));
    assert_eq!(of(&causal, AttentionStep::WeightedSum), (4 * (800 + 320), 4 * 640));
    assert_eq!(causal.operations(), 4.0 * 800.0 * 8.0 + 6.0 * 800.0);
    let fused = AttentionWork::fused(shape, &AttentionMask::causal().padded(&[10, 0]), 2).unwrap();
    // Of the first sequence 55 scores of a head are seen, of the second none.
    assert_eq!(of(&fused, AttentionStep::MaskedSoftmax), (2 * 4 * 55, 2 * 800));
    assert_eq!(AttentionWork::least(shape, 2), 2 * 2 * (640 + 320));
    let plain = AttentionWork::out_of_place(shape, &AttentionMask::none(), 4).unwrap();
    assert_eq!(of(&plain, AttentionStep::Mask), (4 * (800 + 100), 4 * 800));
    let text = AttentionWork::chained(shape, &AttentionMask::none().padded(&[1]), 4).unwrap_err().to_string();
    assert!(text.contains("one a sequence"), "{text}");
}

#[test]
fn times_give_shares_and_rates_and_their_source() {
    let shape = AttentionShape { batch: 1, q_heads: 1, kv_heads: 1, length: 1000, width: 64 };
    let work = AttentionWork::chained(shape, &AttentionMask::none(), 4).unwrap();
    assert_eq!((work.ms(), work.shares(&[]).len()), (None, 0));
    let rows: Vec<Measurement> = AttentionStep::CHAIN
        .iter()
        .map(|step| Measurement::time_ms(step.name(), Backend::Cuda, 1000, Summary::of(&[2.0])))
        .collect();
    let timed = work.timed(&rows);
    assert_eq!(timed.ms(), Some(14.0));
    assert_eq!(timed.shares(&rows).iter().map(|row| row.summary.median).sum::<f64>().round(), 100.0);
    let text = timed.to_string();
    // 8 MB in 2 ms.
    assert!(text.contains("14.3 %") && text.contains("4.00") && text.contains("measured on"), "{text}");
    assert!(text.contains("S = −∞ where hidden"), "{text}");
}
