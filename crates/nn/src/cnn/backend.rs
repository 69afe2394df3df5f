//! What makes a run's steps, wherever it computes.

use super::{Checkpoint, Cnn, Epoch, TrainingState};
use gpulab::error::{Error, Result};

/// Good steps after which a loss scale is doubled again.
pub(super) const STEADY: u64 = 200;

/// A network, its optimiser and its images, somewhere. [`super::Trainer`] tells it what to do, and does all that does
/// not depend on where.
pub(super) trait TrainingBackend: std::fmt::Debug {
    /// Where the run stands, as of the last [`TrainingBackend::collect`].
    fn state(&self) -> &TrainingState;

    /// The same, to note seconds in it.
    fn state_mut(&mut self) -> &mut TrainingState;

    /// The network on candle, where candle's tensors hold it.
    fn cnn(&self) -> Option<&Cnn> {
        None
    }

    /// Images of this epoch that no step has taken yet.
    fn left(&self) -> usize;

    /// Queues at most that many steps of this epoch. On a GPU it does not wait for them.
    ///
    /// # Errors
    /// [`Error::Invalid`] with the largest batch that fits, where this one does not; what the device says.
    fn steps(&mut self, most: usize) -> Result<()>;

    /// Waits for the steps that were queued, and notes losses and right answers up to the first step that went wrong,
    /// which it returns.
    ///
    /// # Errors
    /// As [`TrainingBackend::steps`].
    fn collect(&mut self) -> Result<Option<NotFinite>>;

    /// The share of test images that are right, 0 to 1, and the mean loss over them.
    ///
    /// # Errors
    /// What the device says.
    fn test(&mut self) -> Result<(f32, f32)>;

    /// Notes an epoch that is over, and begins the next. All steps were collected.
    ///
    /// # Errors
    /// What the device says.
    fn next_epoch(&mut self, epoch: Epoch) -> Result<()>;

    /// Copies everything to the host that a run needs to go on. All steps were collected.
    ///
    /// # Errors
    /// What the device says.
    fn checkpoint(&mut self) -> Result<Checkpoint>;
}

/// A step whose loss, or one of whose gradients, is infinite or no number.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct NotFinite {
    /// The step, from 1.
    pub step: u64,
    /// Its loss.
    pub loss: f32,
}

impl std::fmt::Display for NotFinite {
    /// `the loss of step 7 is NaN`.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.loss.is_finite() {
            true => write!(f, "a gradient of step {} is no finite number", self.step),
            false => write!(f, "the loss of step {} is {}", self.step, self.loss),
        }
    }
}

/// The error for a batch that is too large; `fits` names the largest that is not, 0 where none is.
pub(super) fn too_large(batch: u64, fits: u64, why: &str) -> Error {
    Error::invalid(
        format!("a step of {batch} images does not fit into memory: {why}"),
        match fits {
            0 => "not even one image fits: end other programs that use this device".to_string(),
            _ => format!("use a batch of {fits} or less; nothing was lost"),
        },
    )
}
