//! What candle keeps of a training step against what is predicted from the layers, and the heap's own figures.
//!
//! A process of its own, and one test after the other: the heap is the whole process's.

#![cfg(all(feature = "nn", target_os = "linux", target_env = "gnu"))]

use gpulab::cpu::{ConvAlgorithm, ConvShape, heap, highest_heap, random_f32};
use gpulab_nn::gpt::Config;
use gpulab_nn::memory::{Meter, Model, Network, Optimiser, StepMemory, measure};
use gpulab_nn::{DType, DeviceKind};
use std::os::unix::process::ExitStatusExt;
use std::process::Command;
use std::time::Duration;

#[test]
fn memory_of_this_process() {
    a_block_counts_while_it_lives_and_a_peak_after_it_is_gone();
    let meter = Meter::of(DeviceKind::Cpu).unwrap();
    let cnn = near(&measure(&Network::cnn(), 48, DType::F32, Optimiser::AdamW, &meter).unwrap());
    let blocks = Network::gpt_blocks(&Config::COURSE, 2, 32);
    near(&measure(&blocks, 8, DType::F32, Optimiser::Sgd, &meter).unwrap());
    // candle's backward pass needs room too: without it, the peak would be the sum of the parts.
    assert!(cnn.workspace_each() > 0.2e6, "{}", cnn.text());
    checkpoints_and_pieces_need_less(&meter);
    workspace_of_a_convolution();
}

/// Each part within 5 %: what the lesson promises.
fn near(measured: &StepMemory) -> StepMemory {
    println!("{}", measured.text());
    for (part, off) in measured.off() {
        assert!(off.abs() < 0.05, "{part}: {:+.1} %\n{}", 100.0 * off, measured.text());
    }
    assert!(measured.peak >= measured.predicted.total() - measured.predicted.gradients);
    measured.clone()
}

fn a_block_counts_while_it_lives_and_a_peak_after_it_is_gone() {
    const BYTES: u64 = 64 << 20;
    const MARGIN: u64 = 1 << 20;
    let before = heap().unwrap().used;
    let block = vec![0u8; BYTES as usize];
    let with = heap().unwrap();
    drop(block);
    assert!(with.used.abs_diff(before + BYTES) < MARGIN && with.reserved >= with.used, "{before} {with:?}");
    let (length, highest) = highest_heap(|| {
        let block = vec![0u8; BYTES as usize];
        std::thread::sleep(Duration::from_millis(50));
        Ok(block.len())
    })
    .unwrap();
    assert!(length as u64 == BYTES && highest.abs_diff(before + BYTES) < MARGIN, "{before} {highest}");
    assert!(heap().unwrap().used.abs_diff(before) < MARGIN);
}

fn checkpoints_and_pieces_need_less(meter: &Meter) {
    let network = Network::gpt_blocks(&Config::COURSE, 5, 32);
    let model = Model::new(&network, DType::F32, meter.device(), 7).unwrap();
    let batch = model.batch(4, 1).unwrap();
    model.gradients(&batch).unwrap();
    let (whole, plain) = meter.watch(|| model.gradients(&batch)).unwrap();
    let (again, checkpointed) = meter.watch(|| model.gradients_checkpointed(&batch, 2)).unwrap();
    assert_eq!(whole.difference(&again).unwrap(), 0.0);
    drop(again);
    let pieces = || {
        let mut sum = model.zero_gradients()?;
        for piece in batch.micro_batches(4)? {
            sum.add(&model.gradients(&piece)?, 0.25)?;
        }
        Ok(sum)
    };
    let (sum, in_pieces) = meter.watch(pieces).unwrap();
    assert!(whole.difference(&sum).unwrap() < 1e-5);
    println!("peak of 5 blocks: {plain:?}, checkpointed {checkpointed:?}, in pieces {in_pieces:?}");
    // Parameters and gradients do not shrink with either, so it is not a quarter.
    let limit = plain.peak * 2 / 3;
    assert!(checkpointed.peak < limit && in_pieces.peak < limit);
}

fn workspace_of_a_convolution() {
    let shape = ConvShape { batch: 32, inputs: 32, outputs: 8, side: 26 };
    let [images, weights, out] = shape.lengths();
    let (images, weights, mut out) = (random_f32(images, 1), random_f32(weights, 2), vec![0f32; out]);
    for algorithm in ConvAlgorithm::ALL {
        // The first call makes threads, and their own room for products of matrices.
        algorithm.run(&shape, &images, &weights, &mut out).unwrap();
        let before = heap().unwrap().used;
        let ((), highest) = highest_heap(|| algorithm.run(&shape, &images, &weights, &mut out)).unwrap();
        let (seen, predicted) = (highest - before, algorithm.workspace(&shape, rayon::current_num_threads()));
        println!("{}: {seen} bytes seen, {predicted} predicted", algorithm.name());
        // Not all threads need be at work when somebody looks.
        assert!(seen <= predicted + (2 << 20), "{}: {seen} of {predicted}", algorithm.name());
        if algorithm == ConvAlgorithm::ColumnsOfTheBatch {
            assert!(seen as f64 > 0.95 * predicted as f64, "{seen} of {predicted}");
        }
    }
}

/// `gpulab demo out-of-memory`: a batch that fits, one that does not, one that is none.
#[test]
fn a_process_that_may_not_take_more_memory_is_ended() {
    let run = |batch: &str| {
        let mut gpulab = Command::new(env!("CARGO_BIN_EXE_gpulab"));
        let output = gpulab.args(["demo", "out-of-memory", batch, "40"]).env("RUST_BACKTRACE", "0").output().unwrap();
        let text = [output.stdout, output.stderr].concat();
        (output.status, String::from_utf8_lossy(&text).into_owned())
    };
    let (status, text) = run("24");
    assert!(status.success() && text.contains("the backward pass could begin"), "{status} {text}");
    let (status, text) = run("80");
    const SIGABRT: i32 = 6;
    assert_eq!(status.signal(), Some(SIGABRT), "{status} {text}");
    assert!(text.contains("conv 1") && text.contains("memory allocation of") && !text.contains("done"), "{text}");
    let (status, text) = run("0");
    assert!(status.code() == Some(2) && text.contains("\nnext: "), "{status} {text}");
}
