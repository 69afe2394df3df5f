//! What makes a run's steps, wherever it computes.

use super::checkpoint::GptCheckpoint;
use super::run::GptRun;
use candle_core::Device;
use gpulab::error::Result;

/// What makes a run's steps, somewhere. [`train::run`](super::run()) does all that does not depend on where.
pub trait GptEngine {
    /// `candle`, `kernels` or `operators`.
    fn name(&self) -> &'static str;

    /// What is trained, on what, and where it stands.
    fn run(&self) -> &GptRun;

    /// One step: gives the loss of its batches, in nats a token, before the step was made.
    ///
    /// # Errors
    /// [`gpulab::Error::Invalid`] when the loss or a gradient is no finite number: the step is then not made, and parameters and
    /// moments are as they were before it. What the device says.
    fn step(&mut self) -> Result<f32>;

    /// The loss on the first `most` held-out tokens, in nats a token, as [`Gpt::token_loss`](crate::gpt::Gpt::token_loss) has it.
    ///
    /// # Errors
    /// What the device says.
    fn held_out_loss_of(&mut self, most: usize) -> Result<f64>;

    /// Copies everything to the host that the run needs to go on.
    ///
    /// # Errors
    /// What the device says; [`gpulab::Error::Invalid`] names a parameter that is no finite number.
    fn checkpoint(&self) -> Result<GptCheckpoint>;

    /// Where candle computes for it, as when the model writes a sample.
    fn device(&self) -> Device;
}
