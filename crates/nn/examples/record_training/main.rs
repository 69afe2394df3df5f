//! Times a training step of the CNN on this GPU beside PyTorch, alternating, and writes a table.
//!
//! `cargo run --release -p gpulab-nn --example record_training -- [--out training.csv] [--talk FOLDER]
//! [--quick] [--only tf32]`; `env/baselines/record_training.py` does that and brings PyTorch along. Before a time counts, the losses of the first
//! steps are compared with PyTorch's, from the same parameters on the same images.

mod candle;
mod partner;

use candle::CandleStep;
use gpulab::gpu::TimedWork;
use gpulab::prelude::*;
use gpulab_nn::cnn::{Checkpoint, CnnEngine, EngineSettings, Epoch, Precision};
use gpulab_nn::data::Images;
use partner::Partner;
use std::cell::RefCell;
use std::fmt::Write as _;
use std::time::Instant;

const IMAGES: usize = 60_000;
const BATCH: usize = 128;
/// Steps whose losses are compared.
const COMPARED: usize = 20;
const APART: &str = "largest difference of a loss";
const PLAN: Bench = Bench { warm_ups: 1, samples: 21, min_sample_ms: 4.0, budget_ms: 4_000.0 };
const QUICK: Bench = Bench { samples: 7, ..PLAN };

fn main() -> Result<()> {
    let (mut out, mut talk, mut quick, mut only) = ("training.csv".to_string(), None, false, None);
    let mut arguments = std::env::args().skip(1);
    while let Some(argument) = arguments.next() {
        let mut value = || arguments.next().expect("this option is followed by a path");
        match argument.as_str() {
            "--out" => out = value(),
            "--talk" => talk = Some(value()),
            "--quick" => quick = true,
            "--only" => only = Some(value()),
            other => panic!("there is no option {other}"),
        }
    }
    let gpu = &Gpu::open_index(0)?;
    eprintln!("{gpu}");
    let images = Images::generated(1, IMAGES, 10_000);
    let (pixels, labels) = (&images.train.pixels, &images.train.labels);
    let start = Checkpoint::new(1, &images.name);
    let partner = talk.map(|folder| RefCell::new(Partner::new(&folder)));
    if let Some(partner) = &partner {
        partner.borrow().hand_over(pixels, labels, &start, &gpulab_nn::cnn::order(1, 0, IMAGES))?;
    }
    let mut table = "precision,what,metric,value,unit,ratio,samples,p10,p90\n".to_string();
    let mut engines = Vec::new();
    let asked = |precision: &Precision| only.as_deref().is_none_or(|name| name == precision.name());
    for precision in Precision::ALL.into_iter().filter(asked) {
        let make = |graph: bool| {
            let settings = EngineSettings { batch: BATCH, precision, graph, ..EngineSettings::default() };
            CnnEngine::new(gpu, &start, pixels, labels, settings)
        };
        let (mut graph, mut eager) = (make(true)?, make(false)?);
        let mut losses = Vec::new();
        for engine in [&mut graph, &mut eager] {
            engine.steps(COMPARED)?;
            engine.collect()?;
            losses = engine.state().losses.clone();
            eprintln!("{} losses: {:?}", precision.name(), &losses[..4]);
        }
        assert_eq!(graph.checkpoint()?.parameters, eager.checkpoint()?.parameters, "a graph does what its launches do");
        graph.steps(usize::MAX)?;
        graph.collect()?;
        let (accuracy, loss) = graph.test(&images.test.pixels, &images.test.labels)?;
        eprintln!("{}: {accuracy:.4} right after one epoch of {}, loss {loss:.4}", precision.name(), images.name);
        row(&mut table, precision, "ours, graph", "test accuracy after one epoch", "", &[f64::from(accuracy)], 1.0);
        let epoch = time_epoch(&mut graph)?;
        for (kernel, us) in timeline(gpu, &mut || one_step(&mut eager))? {
            row(&mut table, precision, "ours", &format!("kernel {kernel}"), "µs", &[us], 1.0);
        }
        let mut plain = CandleStep::new(precision, &start, &images, BATCH)?;
        if let Some(plain) = &mut plain {
            row(&mut table, precision, "candle", APART, "", &[apart(&plain.losses(COMPARED)?, &losses)], 1.0);
            let mut kernels = timeline(gpu, &mut || plain.step().map(drop))?;
            kernels.sort_by(|a, b| b.1.total_cmp(&a.1));
            for (kernel, us) in kernels {
                row(&mut table, precision, "candle", &format!("kernel {kernel}"), "µs", &[us], 1.0);
            }
        }
        let variants = partner
            .as_ref()
            .map_or(Ok(Vec::new()), |partner| partner.borrow_mut().prepare(precision.name(), COMPARED))?;
        for variant in &variants {
            row(&mut table, precision, &variant.name, APART, "", &[apart(&variant.losses, &losses)], 1.0);
        }
        for variant in &variants {
            for (what, value) in &variant.parts {
                let unit = if what.starts_with("memory") { "MiB" } else { "µs" };
                row(&mut table, precision, &variant.name, what, unit, &[*value], 1.0);
            }
        }
        let (eager, plain) = (RefCell::new(eager), plain.map(RefCell::new));
        let mut names: Vec<String> =
            ["ours, graph", "ours, launches", "ours, launches, loss read each step"].map(str::to_string).into();
        let mut work = vec![
            TimedWork::Calls(Box::new(|_| one_step(&mut graph))),
            TimedWork::Calls(Box::new(|_| one_step(&mut eager.borrow_mut()))),
            TimedWork::Calls(Box::new(|_| {
                one_step(&mut eager.borrow_mut())?;
                eager.borrow_mut().collect()
            })),
        ];
        for (keep, name) in [(0, "pool keeps nothing"), (u64::MAX, "pool keeps all")] {
            names.push(format!("ours, launches, buffers made each step, {name}"));
            let eager = &eager;
            work.push(TimedWork::Calls(Box::new(move |_| {
                gpu.set_release_threshold(keep)?;
                let buffers = buffers_of_a_step(gpu)?;
                one_step(&mut eager.borrow_mut())?;
                drop(buffers);
                gpu.synchronize()
            })));
        }
        if let Some(plain) = &plain {
            for (keep, read, name) in [
                (0, true, "candle, loss read each step"),
                (0, false, "candle"),
                (u64::MAX, false, "candle, pool keeps all"),
            ] {
                names.push(name.to_string());
                work.push(TimedWork::Calls(Box::new(move |_| {
                    gpu.set_release_threshold(keep)?;
                    let loss = plain.borrow_mut().step()?;
                    if read { Ok(loss.to_scalar::<f32>().map(drop)?) } else { Ok(()) }
                })));
            }
        }
        for (at, variant) in variants.iter().enumerate() {
            let partner = partner.as_ref().expect("variants come from a partner");
            names.push(variant.name.clone());
            work.push(TimedWork::Clocked(Box::new(move || partner.borrow_mut().sample(at))));
        }
        let samples = gpu.time_interleaved(if quick { &QUICK } else { &PLAN }, &mut work)?;
        drop(work);
        let first = Summary::of(&samples[0]).median;
        for (name, samples) in names.iter().zip(&samples) {
            let us: Vec<f64> = samples.iter().map(|ms| ms * 1e3).collect();
            row(&mut table, precision, name, "step", "µs", &us, Summary::of(samples).median / first);
        }
        row(&mut table, precision, "ours, graph", "epoch", "s", &[epoch], 1.0);
        std::fs::write(&out, &table).expect("the table can be written");
        // CUPTI names kernels by their handles, which the driver gives out again once a module is gone.
        engines.push((graph, eager.into_inner()));
    }
    eprint!("{table}");
    Ok(())
}

fn one_step(engine: &mut CnnEngine) -> Result<()> {
    if engine.left() < BATCH {
        engine.next_epoch(Epoch { accuracy: 0.0, loss: 0.0, seconds: 0.0 })?;
    }
    engine.steps(1).map(drop)
}

/// The rest of an epoch is passed, then a whole one is timed, in seconds: with its last, smaller step and its history.
fn time_epoch(engine: &mut CnnEngine) -> Result<f64> {
    let mut best = f64::INFINITY;
    for _ in 0..3 {
        engine.steps(usize::MAX)?;
        engine.next_epoch(Epoch { accuracy: 0.0, loss: 0.0, seconds: 0.0 })?;
        let begin = Instant::now();
        engine.steps(usize::MAX)?;
        engine.collect()?;
        best = best.min(begin.elapsed().as_secs_f64());
    }
    Ok(best)
}

/// What a step keeps between its kernels, as a framework allocates it each time: floats of the pooled map, of its gradient,
/// of partial sums and of all gradients.
fn buffers_of_a_step(gpu: &Gpu) -> Result<Vec<Buffer<f32>>> {
    let map = BATCH * 9216;
    [map, map, map / 4, 36 * BATCH * 128, BATCH * 128, BATCH * 128, BATCH * 18_816, 1_199_882]
        .into_iter()
        .map(|len| gpu.alloc(len))
        .collect()
}

/// How far the losses of the same steps lie apart, at most.
fn apart(theirs: &[f32], ours: &[f32]) -> f64 {
    theirs.iter().zip(ours).fold(0.0, |most, (a, b)| f64::from((a - b).abs()).max(most))
}

/// The kernels of a step, in their order: µs of each in a step, the mean of a few steps.
fn timeline(gpu: &Gpu, step: &mut dyn FnMut() -> Result<()>) -> Result<Vec<(String, f64)>> {
    const STEPS: usize = 10;
    let trace = match gpulab_profiling::trace(gpu, |_| (0..STEPS).try_for_each(|_| step())) {
        Ok(trace) => trace,
        Err(error) => {
            eprintln!("no timeline: {error}");
            return Ok(Vec::new());
        }
    };
    let mut kernels: Vec<(String, f64)> = Vec::new();
    for one in &trace.activities {
        let us = (one.end_ns - one.start_ns) as f64 / 1e3;
        match kernels.iter_mut().find(|(name, _)| *name == one.name) {
            Some((_, sum)) => *sum += us,
            None => kernels.push((one.name.clone(), us)),
        }
    }
    let means = kernels.into_iter().map(|(name, us)| (name, us / STEPS as f64)).collect();
    Ok(means)
}

/// A line of the table: median and spread.
fn row(table: &mut String, precision: Precision, what: &str, metric: &str, unit: &str, samples: &[f64], ratio: f64) {
    let Summary { median, p10, p90, samples, .. } = Summary::of(samples);
    let line = format!(
        "{},\"{what}\",\"{metric}\",{median:.5},{unit},{ratio:.3},{samples},{p10:.5},{p90:.5}",
        precision.name()
    );
    writeln!(table, "{line}").expect("a String takes everything");
}
