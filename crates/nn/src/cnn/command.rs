//! `gpulab train`.

use super::report::experiment;
use super::{Ended, Kernels, Plan, Precision, Trainer, loss_chart, stop, time_chart};
use crate::Place;
use crate::data;
use crate::options::Options;
use gpulab::cpu;
use gpulab::error::Result;
use gpulab::gpu::Gpu;
use gpulab::measurement::Measurement;
use gpulab::results;
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};

const USAGE: &str = "\
gpulab train [--device cpu|cuda|mps] [--epochs N] [--batch-size N] [--dtype f32|tf32|bf16|f16] [--kernels own|candle]
             [--data DIR] [--out DIR] [--seed N] [--learning-rate X] [--every STEPS] [--images N] [--resume]
    the CNN of lesson 20 learns to read digits: MNIST's from DIR (or data/mnist), else generated ones.
    --kernels: the course's own are the usual ones on a CPU and on an NVIDIA GPU, where they need no candle built with
    CUDA; tf32 is theirs alone, on that GPU.
    --resume goes on from DIR/cnn-DEVICE.safetensors, which is written after each epoch, every 100 steps (own kernels on
    an NVIDIA GPU: every 1000) and when you press Ctrl-C;
    --images N takes the first N images only, and a sixth of that to test";

/// Steps from one checkpoint to the next where 100 of them take a hundredth of a second, less than to write the file.
const EVERY_ON_GPU: u64 = 1000;

/// What `metrics.csv` calls these rows' lesson.
const LESSON: &str = "train";

/// Trains and prints a line about every second; gives what came of it.
///
/// # Errors
/// What an option names that is not there, and as [`Trainer::new`], [`Trainer::resume`] and [`Trainer::run`].
pub fn train(arguments: &[&str]) -> Result<String> {
    let Asked { plan, folder, data, images, resume } = asked(arguments)?;
    let place = plan.place;
    // The device first: without it nobody waits for images. It stays open until the trainer has it.
    let _open = plan.open()?;
    let all = match images {
        0 => data::images(data.as_deref())?,
        // As many to test as in the whole set, in proportion.
        _ => data::first_images(data.as_deref(), images, images.div_ceil(6))?,
    };
    println!("images: {}, {} to train on and {} to test", all.name, all.train.len(), all.test.len());
    let mut trainer = if resume { Trainer::resume(&all, plan)? } else { Trainer::new(&all, plan)? };
    if resume {
        let state = trainer.state();
        println!("going on after step {}, in epoch {}", state.taken(), state.epoch + 1);
    }
    stop::listen();
    let ended = trainer.run(&mut |progress| {
        println!("{progress}");
        if stop::asked() { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    })?;
    let checkpoint = trainer.plan().checkpoint.clone().unwrap_or_default();
    if ended == Ended::Stopped {
        return Ok(format!(
            "stopped after step {}; the run lies in {}\nnext: the same command with --resume goes on from there",
            trainer.state().taken(),
            checkpoint.display()
        ));
    }
    let plots = store(&trainer, place, &folder)?;
    Ok(format!("{}\nthe network lies in {}\n{plots}", trainer.report(), checkpoint.display()))
}

struct Asked {
    plan: Plan,
    folder: PathBuf,
    data: Option<PathBuf>,
    images: usize,
    resume: bool,
}

fn asked(arguments: &[&str]) -> Result<Asked> {
    let mut options = Options::new(arguments, &["resume"], USAGE)?;
    let usual = Plan::default();
    let place = Place::from_name(&options.get("device", "cpu".to_string())?)?;
    let precision = Precision::from_name(&options.get("dtype", "f32".to_string())?)?;
    let kernels: String = options.get("kernels", String::new())?;
    let kernels = if kernels.is_empty() { None } else { Some(Kernels::from_name(&kernels)?) };
    let own_on_gpu = place == Place::Cuda && kernels != Some(Kernels::Candle);
    let folder: PathBuf = options.get("out", results::dir())?;
    let plan = Plan {
        place,
        precision,
        epochs: options.get("epochs", usual.epochs)?,
        batch: options.get("batch-size", usual.batch)?,
        seed: options.get("seed", usual.seed)?,
        learning_rate: options.get("learning-rate", usual.learning_rate)?,
        every: options.get("every", if own_on_gpu { EVERY_ON_GPU } else { usual.every })?,
        checkpoint: Some(folder.join(format!("cnn-{}.safetensors", place.name()))),
        kernels,
    };
    let data: String = options.get("data", String::new())?;
    let images = options.get("images", 0)?;
    let resume = options.flag("resume");
    options.done()?;
    if let Some(word) = options.words.first() {
        return Err(options.wrong(format!("`{word}` is no option")));
    }
    Ok(Asked { plan, folder, data: (!data.is_empty()).then(|| PathBuf::from(data)), images, resume })
}

/// Appends the rows, and draws the loss of this run and the times of all runs on these images; says where.
fn store(trainer: &Trainer, place: Place, folder: &Path) -> Result<String> {
    let machine = match place {
        Place::Cuda => Gpu::open_index(0)?.name().to_string(),
        _ => cpu::info().short_name(),
    };
    let (time, commit) = (results::now_utc(), results::commit());
    let mut rows = trainer.rows();
    for row in &mut rows {
        row.time.clone_from(&time);
        row.commit.clone_from(&commit);
        row.lesson = LESSON.to_string();
        row.machine.clone_from(&machine);
    }
    let file = folder.join("metrics.csv");
    results::append_to(&file, &rows)?;
    let all = results::read(&file)?;
    let (loss, time) = (folder.join(format!("train-loss-{}.svg", place.name())), folder.join("train-time.svg"));
    loss_chart(&rows).draw().save(&loss)?;
    time_chart(&newest(&all, &trainer.state().data)).draw().save(&time)?;
    Ok(format!("rows in {}, plots in {} and {}", file.display(), loss.display(), time.display()))
}

/// The last time of an epoch for each machine, kind of number and layers, of the runs on these images.
fn newest(all: &[Measurement], data: &str) -> Vec<Measurement> {
    let mut kept: Vec<Measurement> = Vec::new();
    for kernels in [Kernels::Own, Kernels::Candle] {
        let experiment = experiment(data, kernels);
        let name = |row: &Measurement| format!("{}, {}, batch {}", kernels.name(), row.dtype, row.size);
        let times = all.iter().filter(|row| row.lesson == LESSON && row.experiment == experiment);
        for row in times.filter(|row| row.metric == "epoch time") {
            let row = Measurement { experiment: name(row), ..row.clone() };
            kept.retain(|other| (&other.machine, &other.experiment) != (&row.machine, &row.experiment));
            kept.push(row);
        }
    }
    kept
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_makes_no_sense_is_told_before_anything_is_trained() {
        for (arguments, part) in [
            (&["--device", "tpu"][..], "`tpu`"),
            (&["--dtype", "f8"], "`f8`"),
            (&["--kernels", "cudnn"], "`cudnn`"),
            (&["--images", "5", "--batch-size", "5", "--dtype", "tf32"], "TF32 is what tensor cores take"),
            (&["--epochs", "x"], "`--epochs x`"),
            (&["now"], "`now` is no option"),
            (&["--data", "no/such/folder"], "train-images-idx3-ubyte is not there"),
            (&["--images", "5", "--epochs", "0"], "train nothing"),
        ] {
            let text = train(arguments).unwrap_err().to_string();
            assert!(text.contains(part) && text.contains("\nnext: "), "{text}");
        }
    }
}
