//! A whole run: epochs, lines, tests, checkpoints.

use super::progress::{Progress, Since};
use super::{Epoch, Trainer, order};
use crate::error::Result;
use std::ops::ControlFlow;
use std::time::Instant;

/// Seconds from one line to the next.
const LINE_S: f64 = 1.0;

/// How [`Trainer::run`] ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ended {
    /// All epochs are over.
    Done,
    /// It was asked to stop; the checkpoint, if there is one, holds the run.
    Stopped,
}

impl Trainer {
    /// Trains until the last epoch is over. `told` hears how far it is about every second and at the end of each epoch;
    /// when it breaks, the run is kept and ends.
    ///
    /// # Errors
    /// As [`Trainer::step`] and [`Trainer::write`].
    pub fn run(&mut self, told: &mut dyn FnMut(&Progress) -> ControlFlow<()>) -> Result<Ended> {
        self.since = Since::now();
        while self.state.epoch < self.plan.epochs {
            self.step()?;
            let over = self.state.seen as usize >= self.order.len();
            if over {
                let progress = self.end_epoch()?;
                if told(&progress).is_break() {
                    return Ok(Ended::Stopped);
                }
                continue;
            }
            if self.state.step.is_multiple_of(self.plan.every) {
                self.keep()?;
            }
            if self.since.seconds() >= LINE_S {
                self.fetch()?;
                let progress = self.progress();
                self.since = Since::now();
                if told(&progress).is_break() {
                    self.keep()?;
                    return Ok(Ended::Stopped);
                }
            }
        }
        Ok(Ended::Done)
    }

    fn end_epoch(&mut self) -> Result<Progress> {
        let start = Instant::now();
        self.fetch()?;
        self.state.seconds += start.elapsed().as_secs_f64() as f32;
        let progress = self.progress();
        let (accuracy, loss) = self.test()?;
        let (accuracy_f32, loss, seconds) = (accuracy as f32, loss as f32, self.state.seconds);
        self.state.epochs.push(Epoch { accuracy: accuracy_f32, loss, seconds });
        self.state.epoch += 1;
        (self.state.seen, self.state.seconds) = (0, 0.0);
        self.order = order(self.state.seed, self.state.epoch, self.train.len());
        self.keep()?;
        self.since = Since::now();
        Ok(Progress { accuracy: Some(accuracy), ..progress })
    }

    fn progress(&self) -> Progress {
        let (images, batch) = (self.order.len() as u64, self.plan.batch as u64);
        let left = (self.plan.epochs - self.state.epoch) * images - self.state.seen;
        let step = (self.state.seen.div_ceil(batch), images.div_ceil(batch));
        self.since.progress((self.state.epoch + 1, self.plan.epochs), step, left)
    }

    pub(super) fn keep(&mut self) -> Result<()> {
        match self.plan.checkpoint.clone() {
            Some(path) => self.write(&path),
            None => Ok(()),
        }
    }
}
