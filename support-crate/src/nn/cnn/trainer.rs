//! The loop: batches, steps, tests, checkpoints.

use super::adamw::all_finite;
use super::images::Resident;
use super::progress::Since;
use super::{AdamW, Checkpoint, Cnn, Kernels, Plan, Precision, State, memory, order};
use crate::data::Images;
use crate::error::{Error, Result};
use candle_core::{DType, Tensor};
use std::path::Path;
use std::time::Instant;

/// Images of a test's batch.
const TEST_BATCH: usize = 500;
/// On a GPU losses are fetched for so many steps at once: a copy each step would have the GPU wait for the host.
const FETCH: usize = 20;
/// Good steps after which a loss scale is doubled again.
const STEADY: u64 = 200;

/// A training run: the network, its optimiser, its images, and where it stands.
#[derive(Debug)]
pub struct Trainer {
    pub(super) plan: Plan,
    pub(super) cnn: Cnn,
    adamw: AdamW,
    pub(super) train: Resident,
    test: Resident,
    pub(super) state: State,
    pub(super) order: Vec<u32>,
    /// Losses and right answers on the device that were not fetched yet, with the images of their steps.
    pending: Vec<(Tensor, Tensor, usize)>,
    pub(super) since: Since,
    /// The step that the checkpoint on disk was written after.
    kept: Option<u64>,
    /// Seconds of each step that this process made.
    step_seconds: Vec<f64>,
}

impl Trainer {
    /// Begins a run.
    ///
    /// # Errors
    /// [`Error::Unsupported`] where the device is missing, [`Error::Invalid`] for a plan that cannot be done: no epochs, a
    /// batch larger than the images or than the memory.
    pub fn new(images: &Images, plan: Plan) -> Result<Trainer> {
        let mut start = Checkpoint::new(plan.seed, &images.name);
        start.state.loss_scale = plan.precision.first_loss_scale();
        Trainer::from(images, plan, start, None)
    }

    /// Goes on with the run in `plan.checkpoint`, as if it had never stopped: with the same images, batch size, numbers and
    /// device its losses are the same, bit for bit.
    ///
    /// # Errors
    /// As [`Trainer::new`]; [`Error::File`] and [`Error::Invalid`] as [`Checkpoint::read`], and where it was trained on
    /// other images.
    pub fn resume(images: &Images, plan: Plan) -> Result<Trainer> {
        let Some(path) = plan.checkpoint.clone() else {
            return Err(Error::Invalid {
                what: "a run goes on from its checkpoint, and the plan names none".to_string(),
                fix: "set `checkpoint` to the file that the run was kept in".to_string(),
            });
        };
        let checkpoint = Checkpoint::read(&path)?;
        if checkpoint.state.data != images.name {
            return Err(Error::Invalid {
                what: format!(
                    "{} was trained on {}, and these images are {}",
                    path.display(),
                    checkpoint.state.data,
                    images.name
                ),
                fix: "give it the same images (--data), or begin a new run without --resume".to_string(),
            });
        }
        let step = checkpoint.state.step;
        Trainer::from(images, plan, checkpoint, Some(step))
    }

    fn from(images: &Images, plan: Plan, start: Checkpoint, kept: Option<u64>) -> Result<Trainer> {
        images.check()?;
        plan.check(images.train.len())?;
        if (images.width, images.height) != (28, 28) {
            return Err(Error::Invalid {
                what: format!(
                    "this network reads images of 28 × 28 pixels, and these have {} × {}",
                    images.width, images.height
                ),
                fix: "use MNIST's files, or `Images::generated`".to_string(),
            });
        }
        let device = plan.place.open()?;
        let kernels = plan.kernels.unwrap_or(Kernels::best(&device));
        if device.is_cpu() {
            memory::check_cpu(kernels, plan.batch)?;
        }
        let cnn = Cnn::new(&start.parameters, &device, kernels, plan.precision)?;
        let mut adamw = AdamW::with(&cnn, &start.m, &start.v, start.state.step)?;
        adamw.learning_rate = plan.learning_rate;
        let size = images.width * images.height;
        let (train, test) = (Resident::new(&images.train, size, &device)?, Resident::new(&images.test, size, &device)?);
        let order = order(start.state.seed, start.state.epoch, train.len());
        let (pending, step_seconds) = (Vec::new(), Vec::new());
        Ok(Trainer {
            plan,
            cnn,
            adamw,
            train,
            test,
            state: start.state,
            order,
            pending,
            since: Since::now(),
            kept,
            step_seconds,
        })
    }

    /// Where the run stands.
    pub fn state(&self) -> &State {
        &self.state
    }

    /// What it was asked to do.
    pub fn plan(&self) -> &Plan {
        &self.plan
    }

    /// The network.
    pub fn cnn(&self) -> &Cnn {
        &self.cnn
    }

    /// How many images it trains on.
    pub(super) fn images(&self) -> usize {
        self.train.len()
    }

    /// Seconds of each step that this process made; on a GPU, of what the host did for it.
    pub fn step_seconds(&self) -> &[f64] {
        &self.step_seconds
    }

    /// One step on the next images of this epoch.
    ///
    /// # Errors
    /// [`Error::Invalid`] when the loss is no number, with the step; when the batch does not fit into the device's memory,
    /// with the largest that does.
    pub fn step(&mut self) -> Result<()> {
        let start = Instant::now();
        let seen = self.state.seen as usize;
        let which = seen..(seen + self.plan.batch).min(self.order.len());
        let count = which.len();
        let (loss, right) = self.train_on(which).map_err(|error| memory::explain(&self.cnn, count, error))?;
        self.pending.push((loss, right, count));
        self.state.step += 1;
        self.state.seen += count as u64;
        if self.cnn.device().is_cpu() || self.pending.len() >= FETCH {
            self.fetch()?;
        }
        let seconds = start.elapsed().as_secs_f64();
        self.step_seconds.push(seconds);
        self.state.seconds += seconds as f32;
        Ok(())
    }

    /// The loss and the number of right answers, on the device.
    fn train_on(&mut self, which: std::ops::Range<usize>) -> Result<(Tensor, Tensor)> {
        // Before the first tensor: this step may be made in another cell than the network.
        self.cnn.count_on_behind([])?;
        let (x, digits) = self.train.batch(&self.order[which])?;
        let logits = self.cnn.logits(&x)?;
        let loss = candle_nn::loss::cross_entropy(&logits, &digits)?;
        let scale = self.state.loss_scale;
        let gradients = if scale == 1.0 { loss.backward()? } else { (&loss * f64::from(scale))?.backward()? };
        if self.plan.precision != Precision::F16 || all_finite(&self.cnn, &gradients)? {
            self.adamw.step(&self.cnn, &gradients, scale)?;
            self.state.steady += 1;
            if self.plan.precision == Precision::F16 && self.state.steady >= STEADY {
                (self.state.loss_scale, self.state.steady) = (scale * 2.0, 0);
            }
        } else {
            // Too large for f16: this step is left out, and the next is scaled less.
            (self.state.loss_scale, self.state.steady) = ((scale / 2.0).max(1.0), 0);
        }
        let right = logits.argmax(1)?.eq(&digits)?.to_dtype(DType::F32)?.sum_all()?;
        Ok((loss.detach(), right))
    }

    /// Brings losses and right answers to the host.
    pub(super) fn fetch(&mut self) -> Result<()> {
        if self.pending.is_empty() {
            return Ok(());
        }
        let host = |which: fn(&(Tensor, Tensor, usize)) -> &Tensor| -> Result<Vec<f32>> {
            Ok(Tensor::stack(&self.pending.iter().map(which).collect::<Vec<_>>(), 0)?.to_vec1()?)
        };
        let (losses, right) = (host(|step| &step.0)?, host(|step| &step.1)?);
        let first = self.state.step - self.pending.len() as u64;
        for (at, (_, _, count)) in std::mem::take(&mut self.pending).into_iter().enumerate() {
            if !losses[at].is_finite() {
                return Err(self.no_number(first + at as u64 + 1, losses[at]));
            }
            let share = right[at] / count as f32;
            self.state.losses.push(losses[at]);
            self.state.right.push(share);
            self.since.step(losses[at], share, count);
        }
        Ok(())
    }

    fn no_number(&self, step: u64, loss: f32) -> Error {
        let kept = match (&self.plan.checkpoint, self.kept) {
            (Some(path), Some(step)) => format!("{} holds it after step {step}", path.display()),
            _ => "no checkpoint of it was written yet".to_string(),
        };
        Error::Invalid {
            what: format!("the loss of step {step} is {loss}: the run was stopped, and {kept}"),
            fix:
                "begin again with a smaller learning rate (--learning-rate 0.0001), and look at the images of that step"
                    .to_string(),
        }
    }

    /// The share of test images that are right, 0 to 1, and the mean loss over them.
    ///
    /// # Errors
    /// candle's error when the device fails.
    pub fn test(&self) -> Result<(f64, f64)> {
        let all: Vec<u32> = (0..self.test.len() as u32).collect();
        let (mut right, mut losses) = (0.0, 0.0);
        for which in all.chunks(TEST_BATCH) {
            let (x, digits) = self.test.batch(which)?;
            // Detached from the parameters' graph: nothing is kept for a way back that never comes.
            let logits = self.cnn.logits(&x)?.detach();
            let loss = candle_nn::loss::cross_entropy(&logits, &digits)?.to_scalar::<f32>()?;
            losses += f64::from(loss) * which.len() as f64;
            right += f64::from(logits.argmax(1)?.eq(&digits)?.to_dtype(DType::F32)?.sum_all()?.to_scalar::<f32>()?);
        }
        Ok((right / all.len() as f64, losses / all.len() as f64))
    }

    /// All that the run needs to go on.
    ///
    /// # Errors
    /// candle's error when a copy to the host fails; [`Error::Invalid`] when a loss that was not fetched yet is no number.
    pub fn checkpoint(&mut self) -> Result<Checkpoint> {
        self.fetch()?;
        let (m, v) = self.adamw.moments()?;
        Ok(Checkpoint { parameters: self.cnn.parameters()?, m, v, state: self.state.clone() })
    }

    /// Writes the checkpoint to that file, whole or not at all.
    ///
    /// # Errors
    /// As [`Trainer::checkpoint`] and [`Checkpoint::write`].
    pub fn write(&mut self, path: &Path) -> Result<()> {
        self.checkpoint()?.write(path)?;
        if self.plan.checkpoint.as_deref() == Some(path) {
            self.kept = Some(self.state.step);
        }
        Ok(())
    }
}

#[cfg(test)]
#[path = "trainer_tests.rs"]
mod tests;
