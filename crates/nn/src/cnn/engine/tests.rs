use super::*;
use crate::cnn::Checkpoint;
use crate::cnn::Parameters;
use crate::cnn::Precision;
use gpulab::sim::BlockOrder;
use std::sync::{Mutex, OnceLock, PoisonError};

#[test]
fn a_room_takes_what_was_counted_and_a_batch_that_is_named_fits() {
    let gpu = Gpu::simulated().unwrap();
    let start = Checkpoint::new(1, "none");
    for batch in [1, 3, 50] {
        let settings = EngineSettings { batch, ..EngineSettings::default() };
        let before = gpu.memory().unwrap().used;
        let workspace = Workspace::new(&gpu, &start, &settings, 100).unwrap();
        assert_eq!(gpu.memory().unwrap().used - before, of_room(&gpu, batch, 100), "batch {batch}");
        drop(workspace);
    }
    for free_mib in [84, 90, 200, 1000] {
        let text = check_free(&gpu, 60_000, 60_000, free_mib << 20).unwrap_err().to_string();
        let named = text.split("next: use a batch of ").nth(1).unwrap_or_else(|| panic!("{text}"));
        let named: usize = named.split_whitespace().next().unwrap().parse().unwrap();
        check_free(&gpu, named, 60_000, free_mib << 20).unwrap();
        // A tenth more does not fit: it is the largest, but for what a block more takes.
        assert!(check_free(&gpu, named + named / 10 + 6, 60_000, free_mib << 20).is_err(), "{named} of {free_mib} MiB");
    }
    let none = check_free(&gpu, 1, 60_000, 70 << 20).unwrap_err().to_string();
    assert!(none.contains("it needs 19.1 MiB") && none.contains("next: not even one image fits"), "{none}");
    check_memory(&gpu, &EngineSettings::default(), 60_000).unwrap();
}

// The network's loss and gradients in f64, by the definition: what the kernels are compared with.

/// Mean loss, hits, and the gradient of each parameter.
#[derive(Clone)]
struct Reference {
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
fn reference(parameters: &Parameters, pixels: &[u8], label: u8) -> Reference {
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

/// Noise on every third pixel: every tap, window and border counts.
fn images(count: usize) -> (Vec<u8>, Vec<u8>) {
    let noise = gpulab::cpu::random_f32(count * 784, 11);
    let pixels =
        noise.iter().enumerate().map(|(i, x)| if (i / 28 + i) % 3 == 0 { ((x + 1.0) * 127.0) as u8 } else { 0 });
    (pixels.collect(), (0..count).map(|i| (i * 7 % 10) as u8).collect())
}

type Compiled = (Gpu, Vec<(Precision, Kernels)>);

/// The kernels of each precision, compiled once for all tests: that takes longer than to run them.
fn compiled(precision: Precision) -> (Gpu, Kernels) {
    static ALL: Mutex<Option<Compiled>> = Mutex::new(None);
    let mut all = ALL.lock().unwrap_or_else(PoisonError::into_inner);
    let (gpu, known) = all.get_or_insert_with(|| (Gpu::open().unwrap(), Vec::new()));
    if !known.iter().any(|(of, _)| *of == precision) {
        known.push((precision, Kernels::compile(gpu, precision).unwrap_or_else(|error| panic!("{error}"))));
    }
    let found = known.iter().find(|(of, _)| *of == precision).unwrap();
    (gpu.clone(), found.1.clone())
}

/// Steps of `batch` images; a simulated GPU shows what is wrong beside the result.
fn engine(checkpoint: &Checkpoint, count: usize, batch: usize, precision: Precision) -> CnnEngine {
    let (pixels, labels) = images(count);
    let settings = EngineSettings { batch, precision, ..EngineSettings::default() };
    let (gpu, kernels) = compiled(precision);
    let engine = CnnEngine::with(&gpu, kernels, checkpoint, &pixels, &labels, settings);
    engine.unwrap_or_else(|error| panic!("{error}"))
}

/// A trainer's way, on the same GPU and with the same kernels.
pub(in crate::cnn) fn on_gpu(
    images: &crate::data::Images,
    config: &crate::cnn::TrainConfig,
    start: &Checkpoint,
) -> EngineBackend {
    let (gpu, kernels) = compiled(config.precision);
    EngineBackend::with(&gpu, kernels, images, config, start).unwrap_or_else(|error| panic!("{error}"))
}

/// What `start` makes of the first images, in f64, by the definition.
fn exact(count: usize) -> Reference {
    static EACH: OnceLock<Vec<Reference>> = OnceLock::new();
    let each = EACH.get_or_init(|| {
        let (pixels, labels) = images(3);
        let each = pixels.chunks(784).zip(&labels);
        each.map(|(pixels, &label)| reference(&start().parameters, pixels, label)).collect()
    });
    Reference::mean(&each[..count])
}

fn start() -> Checkpoint {
    Checkpoint::new(3, "noise")
}

/// ‖given · factor − exact‖ ÷ ‖exact‖.
fn off(given: &[f32], exact: &[f64], factor: f64) -> f64 {
    let error: f64 = given.iter().zip(exact).map(|(g, e)| (f64::from(*g) * factor - e).powi(2)).sum();
    (error / exact.iter().map(|e| e * e).sum::<f64>()).sqrt()
}

/// One step against the reference, as (loss, gradients) within `most`.
fn agrees(count: usize, precision: Precision, most: f64) {
    let (mut engine, exact) = (engine(&start(), count, count, precision), exact(count));
    assert_eq!(engine.steps(9).unwrap(), 1);
    engine.collect().unwrap_or_else(|error| panic!("{error}"));
    let loss = (f64::from(engine.state().losses[0]) - exact.loss).abs();
    assert!(loss < most, "{precision:?}: the loss is off by {loss}");
    assert_eq!((engine.state().right[0] * count as f32).round() as usize, exact.hits);
    let factor = f64::from(engine.state().loss_scale).recip();
    let given = engine.gradients().unwrap();
    for (at, (name, _)) in Parameters::SHAPES.iter().enumerate() {
        let error = off(&given.arrays[at], &exact.gradients[at], factor);
        println!("{precision:?} {name}: {error:.1e}");
        assert!(error < most, "{precision:?}: the gradient of {name} is off by {error:.1e}");
    }
}

/// Rounded precision also turn ReLUs and pools that are nearly even the other way, which moves the convolutions' gradients
/// by far more than rounding does: hence the wide bounds. Where nothing can turn, in f32, rounding is all there is;
/// tensor cores do not round their sums to nearest (Fasi et al., 2021): an H200 is off by 4e-6, the simulator by 5e-7.
#[test]
fn every_gradient_agrees_with_f64_in_each_precision() {
    for (precision, most) in [(Precision::F32, 1e-5), (Precision::Bf16, 4e-1), (Precision::F16, 5e-2)] {
        agrees(1, precision, most);
    }
    // Three images for two blocks: one of them takes two.
    agrees(3, Precision::Tf32, 5e-2);
}

/// The GPU is that of the other tests: whichever order one of them meets meanwhile, it must be right too.
#[test]
fn a_step_is_right_in_every_order_of_blocks() {
    let Gpu::Simulated(simulated) = compiled(Precision::Tf32).0 else {
        return eprintln!("skipped: the order of blocks is the simulator's, and this machine has a GPU");
    };
    for order in [BlockOrder::Reverse, BlockOrder::Random(1)] {
        simulated.set_block_order(order);
        agrees(3, Precision::Tf32, 5e-2);
    }
    simulated.set_block_order(BlockOrder::Forward);
}

#[test]
fn steps_update_as_adamw_does_and_another_engine_goes_on_in_the_next_epoch() {
    let mut first = engine(&Checkpoint::new(4, "noise"), 3, 2, Precision::Tf32);
    let mut before = first.checkpoint().unwrap();
    // The second step takes the one image that is left.
    for step in 1..=2 {
        assert_eq!(first.steps(1).unwrap(), 1);
        let (gradient, after) = (first.gradients().unwrap(), first.checkpoint().unwrap());
        for at in 0..8 {
            for (i, &g) in gradient.arrays[at].iter().enumerate() {
                let number = |of: &Parameters| f64::from(of.arrays[at][i]);
                let m = 0.9 * number(&before.m) + 0.1 * f64::from(g);
                let v = 0.999 * number(&before.v) + 0.001 * f64::from(g).powi(2);
                let (m_now, v_now) = (m / (1.0 - 0.9_f64.powi(step)), v / (1.0 - 0.999_f64.powi(step)));
                let w = number(&before.parameters) * (1.0 - 1e-5) - 1e-3 * m_now / (v_now.sqrt() + 1e-8);
                assert!((number(&after.parameters) - w).abs() < 3e-8 + 1e-6 * w.abs(), "step {step}, {at}: {i}");
                let m_size = 0.9 * number(&before.m).abs() + 0.1 * f64::from(g).abs();
                assert!((number(&after.m) - m).abs() <= 1e-6 * m_size + 1e-30, "step {step}, m {at}: {i}");
                assert!((number(&after.v) - v).abs() <= 1e-6 * v + 1e-30, "step {step}, v {at}: {i}");
            }
        }
        before = after;
    }
    assert_eq!((before.state.step, before.state.seen, first.left()), (2, 3, 0));
    // Into the next epoch, which another engine goes on with.
    first.next_epoch(Epoch { accuracy: 0.5, loss: 1.0, seconds: 0.1 }).unwrap();
    let mut second = engine(&first.checkpoint().unwrap(), 3, 2, Precision::Tf32);
    for engine in [&mut first, &mut second] {
        assert_eq!((engine.left(), engine.steps(1).unwrap()), (3, 1));
    }
    let (first, second) = (first.checkpoint().unwrap(), second.checkpoint().unwrap());
    assert!(first == second && first.state.epoch == 1 && first.state.losses.len() == 3);
}

#[test]
fn a_network_is_tested_without_being_changed() {
    let start = start();
    let mut engine = engine(&start, 1, 1, Precision::F32);
    let ((pixels, labels), exact) = (images(2), exact(2));
    let (accuracy, loss) = engine.test(&pixels, &labels).unwrap();
    assert!((accuracy - exact.hits as f32 / 2.0).abs() < 1e-6 && (f64::from(loss) - exact.loss).abs() < 1e-5);
    assert_eq!(engine.checkpoint().unwrap(), start);
    assert!(engine.test(&pixels, &[1]).unwrap_err().to_string().contains("784 for each label"));
    assert!(engine.test(&pixels, &[1, 12]).unwrap_err().to_string().contains("image 1 has the label 12"));
}

#[test]
fn a_loss_that_is_no_number_stops_at_its_step() {
    let mut spoiled = Checkpoint::new(6, "noise");
    spoiled.parameters.arrays[7][3] = f32::NAN;
    let mut stopped = engine(&spoiled, 3, 1, Precision::Tf32);
    stopped.steps(2).unwrap();
    let text = stopped.collect().unwrap_err().to_string();
    assert!(text.contains("the loss of step 1 is NaN:") && text.contains("\nnext: "), "{text}");
    assert_eq!((stopped.state().step, stopped.state().losses.len()), (0, 0));
    let kept = from_device(&stopped.workspace.w).unwrap();
    assert_eq!(kept.arrays[..7], spoiled.parameters.arrays[..7]);
}

#[test]
fn an_overflow_halves_the_loss_scale_and_a_checkpoint_keeps_where_it_is() {
    let mut start = Checkpoint::new(6, "noise");
    let mut after = |scale: f32, steady: u64, step: u64| {
        (start.state.loss_scale, start.state.steady) = (scale, steady);
        let mut engine = engine(&start, 3, 1, Precision::F16);
        engine.steps(1).unwrap();
        let after = engine.checkpoint().unwrap();
        assert_eq!((u64::from(engine.skipped().unwrap()), after.state.step), (1 - step, step));
        assert_eq!(after.parameters == start.parameters, step == 0);
        start.state.clone_from(&after.state);
        (after.state.loss_scale, after.state.steady)
    };
    let large = after(2f32.powi(100), 7, 0);
    assert_eq!(large, (2f32.powi(99), 0));
    // The next step, of another engine, does not fit either: the scale is halved once a step.
    assert_eq!(after(large.0, large.1, 0), (2f32.powi(98), 0));
    assert_eq!(after(1024.0, 1999, 1), (2048.0, 0));
}
