//! What came of the steps that were queued.

use super::{BAD, BATCHES, CnnEngine, FIRST_BAD, GOOD, SKIPPED, STEP};
use gpulab::error::{Error, Result};
use crate::cnn::Precision;
use crate::cnn::way::NotFinite;

impl CnnEngine {
    /// Waits for the steps that were queued, and reads their losses and hits: into [`CnnEngine::state`], and as the share
    /// of each batch that was right.
    ///
    /// # Errors
    /// [`Error::Invalid`] when a loss or gradient was no finite number, with the step: from there on nothing was updated,
    /// so the parameters are the last good ones. [`Error::Driver`].
    pub fn collect(&mut self) -> Result<()> {
        match self.read()? {
            None => Ok(()),
            Some(wrong) => Err(Error::Invalid {
                what: format!("{wrong}: training stopped there"),
                fix:
                    "the parameters are those of the step before: go on from them with a smaller learning rate, or in \
                      another precision"
                        .to_string(),
            }),
        }
    }

    /// As [`CnnEngine::collect`], and gives the step that went wrong.
    pub(super) fn read(&mut self) -> Result<Option<NotFinite>> {
        let words = self.room.state.to_host()?;
        let (losses, hits) = (self.room.losses.to_host()?, self.room.hits.to_host()?);
        let end = words[BATCHES] as usize;
        let first = end.saturating_sub(std::mem::take(&mut self.queued));
        // In fp16 a gradient that does not fit is no mistake, and a loss that does not is.
        let f16 = self.settings.precision == Precision::F16;
        let stopped = (!f16 && words[FIRST_BAD] != 0).then(|| words[FIRST_BAD] as usize - 1);
        let no_number = (first..end).find(|&at| !losses[at].is_finite());
        let wrong = no_number.into_iter().chain(stopped).min();
        // Of a run that went wrong, what came before counts.
        let good = wrong.map_or(end, |at| at.clamp(first, end));
        let mut images = self.state.seen as usize;
        for at in first..good {
            let batch = self.settings.batch.min(self.images.count - images);
            images += batch;
            self.state.losses.push(losses[at]);
            self.state.right.push(hits[at] as f32 / batch as f32);
        }
        self.state.seen = images as u64;
        // The GPU counts a step when its backward pass begins.
        self.state.step = u64::from(words[STEP] - words[BAD]);
        (self.state.loss_scale, self.state.steady) = self.next_scale(&words, self.room.scale.to_host()?[0]);
        Ok(wrong.map(|at| NotFinite { step: self.state.taken() + 1, loss: losses[at] }))
    }

    /// Loss scale and good steps as the next step will find them: it begins with counting the last one.
    fn next_scale(&self, words: &[u32], scale: f32) -> (f32, u64) {
        let good = words[GOOD].wrapping_add(1);
        match self.settings.precision {
            Precision::F16 if words[BAD] != 0 => (scale * 0.5, 0),
            Precision::F16 if good >= self.settings.growth => (scale * 2.0, 0),
            Precision::F16 => (scale, good.into()),
            _ => (scale, 0),
        }
    }

    /// Steps that were passed over because a gradient did not fit into fp16.
    ///
    /// # Errors
    /// [`Error::Driver`].
    pub fn skipped(&self) -> Result<u32> {
        let words = self.room.state.to_host()?;
        Ok(words[SKIPPED] + if self.settings.precision == Precision::F16 { words[BAD] } else { 0 })
    }
}
