//! `gpulab train`.

use crate::options::{Device, KernelChoice, Train, TrainDtype};
use crate::print;
use gpulab::error::{Error, Result};
use gpulab::measurement::Measurement;
use gpulab::results;
use gpulab_nn::cnn::{self, Ended, Precision, TrainConfig, Trainer, loss_chart, newest_times, time_chart};
use gpulab_nn::{DeviceKind, data};
use std::ops::ControlFlow;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// Steps from one checkpoint to the next where 100 of them take a hundredth of a second, less than to write the file.
const EVERY_ON_GPU: u64 = 1000;

/// What `metrics.csv` calls these rows' lesson.
const LESSON: &str = "train";

/// The status of a program that SIGINT ended, as shells give it.
const INTERRUPTED: i32 = 128 + 2;

impl From<Device> for DeviceKind {
    fn from(device: Device) -> DeviceKind {
        match device {
            Device::Cpu => DeviceKind::Cpu,
            Device::Cuda => DeviceKind::Cuda,
            Device::Mps => DeviceKind::Metal,
        }
    }
}

impl From<TrainDtype> for Precision {
    fn from(dtype: TrainDtype) -> Precision {
        match dtype {
            TrainDtype::F32 => Precision::F32,
            TrainDtype::Tf32 => Precision::Tf32,
            TrainDtype::Bf16 => Precision::Bf16,
            TrainDtype::F16 => Precision::F16,
        }
    }
}

impl From<KernelChoice> for cnn::Kernels {
    fn from(kernels: KernelChoice) -> cnn::Kernels {
        match kernels {
            KernelChoice::Own => cnn::Kernels::Own,
            KernelChoice::Candle => cnn::Kernels::Candle,
        }
    }
}

/// Trains and prints a line about every second; gives what came of it.
///
/// # Errors
/// As [`Trainer::new`], [`Trainer::resume`] and [`Trainer::run`].
pub fn train(options: Train) -> Result<String> {
    let folder = options.out.clone().unwrap_or_else(results::dir);
    let plan = plan(&options, &folder);
    let device = plan.device;
    // The device first: without it nobody waits for images. It stays open until the trainer has it.
    let _held = plan.hold_device()?;
    let all = match options.images {
        None => data::images(options.data.as_deref())?,
        // As many to test as in the whole set, in proportion.
        Some(images) => data::first_images(options.data.as_deref(), images, images.div_ceil(6))?,
    };
    print(format_args!("images: {}, {} to train on and {} to test", all.name, all.train.len(), all.test.len()));
    let mut trainer = if options.resume { Trainer::resume(&all, plan)? } else { Trainer::new(&all, plan)? };
    if options.resume {
        let state = trainer.state();
        print(format_args!("going on after step {}, in epoch {}", state.taken(), state.epoch + 1));
    }
    let stop = on_interrupt()?;
    let ended = trainer.run(&mut |progress| {
        print(progress);
        if stop.load(Ordering::Relaxed) { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    })?;
    let checkpoint = trainer.config().checkpoint.clone().unwrap_or_default();
    if ended == Ended::Stopped {
        return Ok(format!(
            "stopped after step {}; the run is kept in {}\nnext: the same command with --resume goes on from there",
            trainer.state().taken(),
            checkpoint.display()
        ));
    }
    let plots = store(&trainer, device, &folder)?;
    Ok(format!("{}\nthe network is kept in {}\n{plots}", trainer.report(), checkpoint.display()))
}

/// True after Ctrl-C or SIGTERM, so that the run is kept first; the second one ends the program at once.
pub fn on_interrupt() -> Result<Arc<AtomicBool>> {
    let asked = Arc::new(AtomicBool::new(false));
    let by_handler = Arc::clone(&asked);
    let set = ctrlc::set_handler(move || {
        if by_handler.swap(true, Ordering::Relaxed) {
            std::process::exit(INTERRUPTED);
        }
    });
    set.map_err(|error| {
        Error::unsupported(format!("Ctrl-C cannot be handled here: {error}"), "start `gpulab` as a process of its own")
    })?;
    Ok(asked)
}

fn plan(options: &Train, folder: &Path) -> TrainConfig {
    let device = DeviceKind::from(options.device);
    let own_on_gpu = device == DeviceKind::Cuda && options.kernels != Some(KernelChoice::Candle);
    let usual = if own_on_gpu { EVERY_ON_GPU } else { TrainConfig::default().every };
    TrainConfig {
        device,
        precision: options.dtype.into(),
        epochs: options.epochs,
        batch: options.batch_size,
        seed: options.seed,
        learning_rate: options.learning_rate,
        every: options.every.unwrap_or(usual),
        checkpoint: Some(folder.join(format!("cnn-{}.safetensors", device.name()))),
        kernels: options.kernels.map(Into::into),
    }
}

/// Appends the rows, and draws the loss of this run and the times of all runs on these images; says where.
fn store(trainer: &Trainer, device: DeviceKind, folder: &Path) -> Result<String> {
    let machine = device.machine()?;
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
    let (loss, time) = (folder.join(format!("train-loss-{}.svg", device.name())), folder.join("train-time.svg"));
    loss_chart(&rows).draw().save(&loss)?;
    let trained: Vec<Measurement> = all.into_iter().filter(|row| row.lesson == LESSON).collect();
    time_chart(&newest_times(&trained, &trainer.state().data)).draw().save(&time)?;
    Ok(format!("rows in {}, plots in {} and {}", file.display(), loss.display(), time.display()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::options::{Command, Gpulab};
    use clap::Parser;

    fn asked(arguments: &str) -> Train {
        let words = ["gpulab", "train"].into_iter().chain(arguments.split_whitespace());
        match Gpulab::try_parse_from(words).unwrap().command {
            Command::Train(options) => options,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn without_options_it_is_the_usual_plan() {
        let of = |arguments: &str| TrainConfig { checkpoint: None, ..plan(&asked(arguments), Path::new("")) };
        assert_eq!(of(""), TrainConfig::default());
        assert_eq!(of("--device mps").device, DeviceKind::Metal);
        assert_eq!(of("--device cuda").every, EVERY_ON_GPU);
        assert_eq!(of("--device cuda --kernels candle").every, TrainConfig::default().every);
        assert_eq!(of("--device cuda --every 7").every, 7);
    }

    #[test]
    fn what_cannot_be_trained_is_refused() {
        let tf32 = train(asked("--images 5 --batch-size 5 --dtype tf32")).unwrap_err();
        assert!(matches!(tf32, Error::Unsupported { .. }), "{tf32}");
        let no_images = train(asked("--data no/such/folder")).unwrap_err();
        assert!(matches!(no_images, Error::File { .. }), "{no_images}");
    }
}
