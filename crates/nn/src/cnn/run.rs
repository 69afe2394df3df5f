//! A whole run: epochs, lines, tests, checkpoints.

use super::progress::{Progress, Since};
use super::{Epoch, Trainer};
use gpulab::error::Result;
use std::ops::ControlFlow;
use std::time::Instant;

/// Seconds from one line to the next.
const LINE_S: f64 = 1.0;
/// Steps are queued for about so many seconds: a copy to the host after each would have a GPU wait for it.
const STRETCH_S: f64 = 0.1;

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
        let mut stretch = 1;
        while self.state().epoch < self.plan.epochs {
            stretch = self.stretch(stretch)?;
            if self.way.left() == 0 {
                let progress = self.end_epoch()?;
                if told(&progress).is_break() {
                    return Ok(Ended::Stopped);
                }
                continue;
            }
            if self.state().taken().is_multiple_of(self.plan.every) {
                self.keep()?;
            }
            if self.since.seconds() >= LINE_S {
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

    /// At most so many steps, up to the next checkpoint or the end of the epoch; gives how many the next stretch should
    /// have.
    fn stretch(&mut self, most: u64) -> Result<u64> {
        let (before, start) = (self.state().taken(), Instant::now());
        let until_kept = self.plan.every - before % self.plan.every;
        self.steps(most.min(until_kept) as usize)?;
        let each_s = start.elapsed().as_secs_f64() / (self.state().taken() - before).max(1) as f64;
        Ok(((STRETCH_S / each_s) as u64).max(1))
    }

    fn end_epoch(&mut self) -> Result<Progress> {
        let progress = self.progress();
        let (accuracy, loss) = self.way.test()?;
        let seconds = self.state().seconds;
        self.way.next_epoch(Epoch { accuracy, loss, seconds })?;
        self.keep()?;
        self.since = Since::now();
        Ok(Progress { accuracy: Some(accuracy.into()), ..progress })
    }

    fn progress(&self) -> Progress {
        let (state, images, batch) = (self.state(), self.images as u64, self.plan.batch as u64);
        let left = (self.plan.epochs - state.epoch) * images - state.seen;
        let step = (state.seen.div_ceil(batch), images.div_ceil(batch));
        self.since.progress((state.epoch + 1, self.plan.epochs), step, left)
    }

    pub(super) fn keep(&mut self) -> Result<()> {
        match self.plan.checkpoint.clone() {
            Some(path) => self.write(&path),
            None => Ok(()),
        }
    }
}
