//! A training run: what is to be done, what does it, and where it stands.

use super::backend::{NotFinite, TrainingBackend};
use super::{Checkpoint, Cnn, Epoch, Kernels, TrainConfig, TrainingState};
use crate::data::Images;
use gpulab::error::{Error, Result};
use std::fmt;
use std::ops::ControlFlow;
use std::path::Path;
use std::time::Instant;

/// A training run: the network, its optimiser, its images, and where it stands.
#[derive(Debug)]
pub struct Trainer {
    pub(super) config: TrainConfig,
    /// Whose layers compute, once the device is known.
    pub(super) kernels: Kernels,
    pub(super) backend: Box<dyn TrainingBackend>,
    /// How many it trains on.
    pub(super) images: usize,
    pub(super) since: Interval,
    /// The step that the checkpoint on disk was written after.
    kept: Option<u64>,
    /// What ended it: there is no way on from parameters that are no numbers.
    broken: Option<Error>,
}

impl Trainer {
    /// Begins a run.
    ///
    /// # Errors
    /// [`Error::NoGpu`] and [`Error::Unsupported`] where the device is missing or cannot do it; [`Error::Invalid`] for a
    /// configuration that cannot be done: no epochs, a batch larger than the images or than the memory.
    pub fn new(images: &Images, config: TrainConfig) -> Result<Trainer> {
        let start = Checkpoint::new(config.seed, &images.name);
        Trainer::from(images, config, start, None)
    }

    /// Goes on with the run in `config.checkpoint`, as if it had never stopped: with the same images, batch size, numbers,
    /// device and layers its losses are the same, bit for bit.
    ///
    /// # Errors
    /// As [`Trainer::new`]; [`Error::File`] and [`Error::Invalid`] as [`Checkpoint::read`], and where it was trained on
    /// other images.
    pub fn resume(images: &Images, config: TrainConfig) -> Result<Trainer> {
        let checkpoint = config.kept(&images.name)?;
        let taken = checkpoint.state.taken();
        Trainer::from(images, config, checkpoint, Some(taken))
    }

    fn from(images: &Images, config: TrainConfig, start: Checkpoint, kept: Option<u64>) -> Result<Trainer> {
        config.check(images)?;
        let target = config.open()?;
        let (kernels, way) = (target.kernels(), target.way(images, &config, start)?);
        Ok(Trainer::with(way, kernels, images.train.len(), config, kept))
    }

    pub(super) fn with(
        backend: Box<dyn TrainingBackend>,
        kernels: Kernels,
        images: usize,
        config: TrainConfig,
        kept: Option<u64>,
    ) -> Trainer {
        Trainer { config, kernels, backend, images, since: Interval::now(), kept, broken: None }
    }

    /// Where the run stands.
    pub fn state(&self) -> &TrainingState {
        self.backend.state()
    }

    /// What it was asked to do.
    pub fn config(&self) -> &TrainConfig {
        &self.config
    }

    /// The network with its parameters as candle's [`Var`](candle_core::Var)s ([`Cnn::vars`]), as the last step left them.
    /// `None` where the course's own CUDA kernels train it: [`Trainer::checkpoint`] copies it from there.
    pub fn model(&self) -> Option<&Cnn> {
        self.backend.cnn()
    }

    /// Whose layers compute.
    pub fn kernels(&self) -> Kernels {
        self.kernels
    }

    /// One step on the next images of this epoch; returns when it is done. [`Trainer::run`] makes many of them without
    /// waiting in between.
    ///
    /// # Errors
    /// [`Error::Invalid`] when the loss is no number, with the step; when the batch does not fit into the device's memory,
    /// with the largest that does; when the epoch is over.
    pub fn step(&mut self) -> Result<()> {
        if self.backend.left() == 0 {
            return Err(Error::invalid(
                format!("epoch {} has no images left for a step", self.state().epoch + 1),
                "go on with `run`, which tests the network and begins the next epoch",
            ));
        }
        self.steps(1)
    }

    /// At most that many steps of this epoch.
    pub(super) fn steps(&mut self, most: usize) -> Result<()> {
        if let Some(error) = &self.broken {
            return Err(error.clone());
        }
        let (before, mut seen) = (self.state().losses.len(), self.state().seen as usize);
        let start = Instant::now();
        self.backend.steps(most)?;
        let wrong = self.backend.collect()?;
        self.backend.state_mut().seconds += start.elapsed().as_secs_f64() as f32;
        let state = self.backend.state();
        for (&loss, &right) in state.losses.iter().zip(&state.right).skip(before) {
            let count = self.config.batch.min(self.images - seen);
            seen += count;
            self.since.step(loss, right, count);
        }
        match wrong {
            None => Ok(()),
            Some(wrong) => Err(self.broken.insert(not_finite(wrong, &self.config, self.kept)).clone()),
        }
    }

    /// The share of test images that are right, 0 to 1, and the mean loss over them.
    ///
    /// # Errors
    /// What the device says.
    pub fn test(&mut self) -> Result<(f64, f64)> {
        let (right, loss) = self.backend.test()?;
        Ok((right.into(), loss.into()))
    }

    /// All that the run needs to go on.
    ///
    /// # Errors
    /// What the device says when a copy to the host fails; [`Error::Invalid`] when the loss became no number.
    pub fn checkpoint(&mut self) -> Result<Checkpoint> {
        match &self.broken {
            None => self.backend.checkpoint(),
            Some(error) => Err(error.clone()),
        }
    }

    /// Writes the checkpoint to that file, whole or not at all.
    ///
    /// # Errors
    /// As [`Trainer::checkpoint`] and [`Checkpoint::write`].
    pub fn write(&mut self, path: &Path) -> Result<()> {
        self.checkpoint()?.write(path)?;
        if self.config.checkpoint.as_deref() == Some(path) {
            self.kept = Some(self.state().taken());
        }
        Ok(())
    }
}

fn not_finite(wrong: NotFinite, config: &TrainConfig, kept: Option<u64>) -> Error {
    let kept = match (&config.checkpoint, kept) {
        (Some(path), Some(step)) => format!("{} holds it after step {step}", path.display()),
        _ => "no checkpoint of it was written yet".to_string(),
    };
    Error::invalid(
        format!("{wrong}: the run was stopped, and {kept}"),
        "begin again with a smaller learning rate (--learning-rate 0.0001), and look at the images of that step",
    )
}

// ----------------------------------------------------------------------
// A whole run: epochs, lines, tests, checkpoints.

/// Seconds from one line to the next.
const LINE_S: f64 = 1.0;
/// Steps are queued for about so many seconds: a copy to the host after each would have a GPU wait for it.
const CHUNK_S: f64 = 0.1;

/// How [`Trainer::run`] ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ended {
    /// All epochs are over.
    Done,
    /// It was asked to stop; the checkpoint, if there is one, holds the run.
    Stopped,
}

impl Trainer {
    /// Trains until the last epoch is over. `on_progress` hears how far it is about every second and at the end of each epoch;
    /// when it breaks, the run is kept and ends.
    ///
    /// # Errors
    /// As [`Trainer::step`] and [`Trainer::write`].
    pub fn run(&mut self, on_progress: &mut dyn FnMut(&Progress) -> ControlFlow<()>) -> Result<Ended> {
        self.since = Interval::now();
        let mut chunk = 1;
        while self.state().epoch < self.config.epochs {
            chunk = self.chunk(chunk)?;
            if self.backend.left() == 0 {
                let progress = self.end_epoch()?;
                if on_progress(&progress).is_break() {
                    return Ok(Ended::Stopped);
                }
                continue;
            }
            if self.state().taken().is_multiple_of(self.config.every) {
                self.keep()?;
            }
            if self.since.seconds() >= LINE_S {
                let progress = self.progress();
                self.since = Interval::now();
                if on_progress(&progress).is_break() {
                    self.keep()?;
                    return Ok(Ended::Stopped);
                }
            }
        }
        Ok(Ended::Done)
    }

    /// At most so many steps, up to the next checkpoint or the end of the epoch; gives how many the next chunk should
    /// have.
    fn chunk(&mut self, most: u64) -> Result<u64> {
        let (before, start) = (self.state().taken(), Instant::now());
        let until_kept = self.config.every - before % self.config.every;
        self.steps(most.min(until_kept) as usize)?;
        let each_s = start.elapsed().as_secs_f64() / (self.state().taken() - before).max(1) as f64;
        Ok(((CHUNK_S / each_s) as u64).max(1))
    }

    fn end_epoch(&mut self) -> Result<Progress> {
        let progress = self.progress();
        let (accuracy, loss) = self.backend.test()?;
        let seconds = self.state().seconds;
        self.backend.next_epoch(Epoch { accuracy, loss, seconds })?;
        self.keep()?;
        self.since = Interval::now();
        Ok(Progress { accuracy: Some(accuracy.into()), ..progress })
    }

    fn progress(&self) -> Progress {
        let (state, images, batch) = (self.state(), self.images as u64, self.config.batch as u64);
        let left = (self.config.epochs - state.epoch) * images - state.seen;
        let step = (state.seen.div_ceil(batch), images.div_ceil(batch));
        self.since.progress((state.epoch + 1, self.config.epochs), step, left)
    }

    pub(super) fn keep(&mut self) -> Result<()> {
        match self.config.checkpoint.clone() {
            Some(path) => self.write(&path),
            None => Ok(()),
        }
    }
}

// ----------------------------------------------------------------------
// How far a run is, as a line.

/// How far a run is. Its text is one line: notebooks show whole lines only.
#[derive(Debug, Clone, PartialEq)]
pub struct Progress {
    /// The epoch, from 1, and how many there will be.
    pub epoch: (u64, u64),
    /// The step of this epoch, from 1, and how many it has.
    pub step: (u64, u64),
    /// The mean loss since the line before.
    pub loss: f64,
    /// The share of images, 0 to 1, that were right since the line before.
    pub right: f64,
    /// Images a second since the line before.
    pub images_per_s: f64,
    /// Seconds until the last epoch is over, at that speed, without the tests.
    pub left_s: f64,
    /// Of an epoch's last step: the share of test images that are right, 0 to 1.
    pub accuracy: Option<f64>,
}

impl fmt::Display for Progress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Progress { epoch, step, loss, images_per_s, .. } = self;
        write!(f, "epoch {}/{}  step {:>4}/{}  loss {loss:.4}  ", epoch.0, epoch.1, step.0, step.1)?;
        write!(f, "right {:5.1} %  {images_per_s:>7.0} images/s  ", 100.0 * self.right)?;
        match self.accuracy {
            Some(accuracy) => write!(f, "test images right: {:.2} %", 100.0 * accuracy),
            None => write!(f, "{} left", duration(self.left_s)),
        }
    }
}

/// `9 s`, `2 min 05 s`, `1 h 02 min`.
pub(super) fn duration(seconds: f64) -> String {
    let whole = seconds.max(0.0).round() as u64;
    match whole {
        0..60 => format!("{whole} s"),
        60..3600 => format!("{} min {:02} s", whole / 60, whole % 60),
        _ => format!("{} h {:02} min", whole / 3600, whole / 60 % 60),
    }
}

/// What happened since the last line.
#[derive(Debug)]
pub(super) struct Interval {
    start: Instant,
    losses: f64,
    right: f64,
    steps: u64,
    images: u64,
}

impl Interval {
    pub(super) fn now() -> Interval {
        Interval { start: Instant::now(), losses: 0.0, right: 0.0, steps: 0, images: 0 }
    }

    pub(super) fn step(&mut self, loss: f32, right: f32, images: usize) {
        self.losses += f64::from(loss);
        self.right += f64::from(right) * images as f64;
        self.steps += 1;
        self.images += images as u64;
    }

    pub(super) fn seconds(&self) -> f64 {
        self.start.elapsed().as_secs_f64()
    }

    /// The figures so far; `left` images are still to come.
    pub(super) fn progress(&self, epoch: (u64, u64), step: (u64, u64), left: u64) -> Progress {
        let images_per_s = self.images as f64 / self.seconds().max(1e-9);
        Progress {
            epoch,
            step,
            loss: self.losses / self.steps.max(1) as f64,
            right: self.right / self.images.max(1) as f64,
            images_per_s,
            left_s: left as f64 / images_per_s.max(1e-9),
            accuracy: None,
        }
    }
}

#[cfg(test)]
mod tests;
