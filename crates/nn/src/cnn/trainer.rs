//! A training run: what is to be done, what does it, and where it stands.

use super::progress::Since;
use super::way::{NotFinite, Way};
use super::{Checkpoint, Kernels, Plan, State};
use crate::data::Images;
use gpulab::error::{Error, Result};
use std::path::Path;
use std::time::Instant;

/// A training run: the network, its optimiser, its images, and where it stands.
#[derive(Debug)]
pub struct Trainer {
    pub(super) plan: Plan,
    /// Whose layers compute, once the device is known.
    pub(super) kernels: Kernels,
    pub(super) way: Box<dyn Way>,
    /// How many it trains on.
    pub(super) images: usize,
    pub(super) since: Since,
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
    /// plan that cannot be done: no epochs, a batch larger than the images or than the memory.
    pub fn new(images: &Images, plan: Plan) -> Result<Trainer> {
        let start = Checkpoint::new(plan.seed, &images.name);
        Trainer::from(images, plan, start, None)
    }

    /// Goes on with the run in `plan.checkpoint`, as if it had never stopped: with the same images, batch size, numbers,
    /// device and layers its losses are the same, bit for bit.
    ///
    /// # Errors
    /// As [`Trainer::new`]; [`Error::File`] and [`Error::Invalid`] as [`Checkpoint::read`], and where it was trained on
    /// other images.
    pub fn resume(images: &Images, plan: Plan) -> Result<Trainer> {
        let checkpoint = plan.kept(&images.name)?;
        let taken = checkpoint.state.taken();
        Trainer::from(images, plan, checkpoint, Some(taken))
    }

    fn from(images: &Images, plan: Plan, start: Checkpoint, kept: Option<u64>) -> Result<Trainer> {
        plan.check(images)?;
        let target = plan.open()?;
        let (kernels, way) = (target.kernels(), target.way(images, &plan, start)?);
        Ok(Trainer::with(way, kernels, images.train.len(), plan, kept))
    }

    pub(super) fn with(way: Box<dyn Way>, kernels: Kernels, images: usize, plan: Plan, kept: Option<u64>) -> Trainer {
        Trainer { plan, kernels, way, images, since: Since::now(), kept, broken: None }
    }

    /// Where the run stands.
    pub fn state(&self) -> &State {
        self.way.state()
    }

    /// What it was asked to do.
    pub fn plan(&self) -> &Plan {
        &self.plan
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
        if self.way.left() == 0 {
            return Err(Error::Invalid {
                what: format!("epoch {} has no images left for a step", self.state().epoch + 1),
                fix: "go on with `run`, which tests the network and begins the next epoch".to_string(),
            });
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
        self.way.steps(most)?;
        let wrong = self.way.collect()?;
        self.way.state_mut().seconds += start.elapsed().as_secs_f64() as f32;
        let state = self.way.state();
        for (&loss, &right) in state.losses.iter().zip(&state.right).skip(before) {
            let count = self.plan.batch.min(self.images - seen);
            seen += count;
            self.since.step(loss, right, count);
        }
        match wrong {
            None => Ok(()),
            Some(wrong) => Err(self.broken.insert(not_finite(wrong, &self.plan, self.kept)).clone()),
        }
    }

    /// The share of test images that are right, 0 to 1, and the mean loss over them.
    ///
    /// # Errors
    /// What the device says.
    pub fn test(&mut self) -> Result<(f64, f64)> {
        let (right, loss) = self.way.test()?;
        Ok((right.into(), loss.into()))
    }

    /// All that the run needs to go on.
    ///
    /// # Errors
    /// What the device says when a copy to the host fails; [`Error::Invalid`] when the loss became no number.
    pub fn checkpoint(&mut self) -> Result<Checkpoint> {
        match &self.broken {
            None => self.way.checkpoint(),
            Some(error) => Err(error.clone()),
        }
    }

    /// Writes the checkpoint to that file, whole or not at all.
    ///
    /// # Errors
    /// As [`Trainer::checkpoint`] and [`Checkpoint::write`].
    pub fn write(&mut self, path: &Path) -> Result<()> {
        self.checkpoint()?.write(path)?;
        if self.plan.checkpoint.as_deref() == Some(path) {
            self.kept = Some(self.state().taken());
        }
        Ok(())
    }
}

fn not_finite(wrong: NotFinite, plan: &Plan, kept: Option<u64>) -> Error {
    let kept = match (&plan.checkpoint, kept) {
        (Some(path), Some(step)) => format!("{} holds it after step {step}", path.display()),
        _ => "no checkpoint of it was written yet".to_string(),
    };
    Error::Invalid {
        what: format!("{wrong}: the run was stopped, and {kept}"),
        fix: "begin again with a smaller learning rate (--learning-rate 0.0001), and look at the images of that step"
            .to_string(),
    }
}

#[cfg(test)]
#[path = "trainer_tests.rs"]
mod tests;
