//! What a run is asked to do.

use super::{Checkpoint, Kernels, Precision};
use crate::DeviceKind;
use crate::data::Images;
use gpulab::error::{Error, Result};
use std::path::PathBuf;

/// How to train. Every field has a value to begin with: `TrainConfig { epochs: 3, ..TrainConfig::default() }`.
#[derive(Debug, Clone, PartialEq)]
pub struct TrainConfig {
    /// The kind of device; the CPU at first.
    pub device: DeviceKind,
    /// How often all images are gone through; 1 at first.
    pub epochs: u64,
    /// Images of a step; 128 at first.
    pub batch: usize,
    /// The numbers that layers compute in; f32 at first.
    pub precision: Precision,
    /// Whose layers compute; `None` takes the fastest for the device: our own on the CPU and on an NVIDIA GPU.
    pub kernels: Option<Kernels>,
    /// What first values and the order of the images follow from; 1 at first.
    pub seed: u64,
    /// AdamW's learning rate; 0.001 at first.
    pub learning_rate: f64,
    /// The file that the run is kept in; `None` keeps nothing.
    pub checkpoint: Option<PathBuf>,
    /// Steps from one checkpoint to the next; 100 at first.
    pub every: u64,
}

impl Default for TrainConfig {
    fn default() -> TrainConfig {
        TrainConfig {
            device: DeviceKind::Cpu,
            epochs: 1,
            batch: 128,
            precision: Precision::F32,
            kernels: None,
            seed: 1,
            learning_rate: 1e-3,
            checkpoint: None,
            every: 100,
        }
    }
}

impl TrainConfig {
    /// Whether it can be done with these images.
    ///
    /// # Errors
    /// [`Error::Invalid`] names what makes no sense.
    pub(super) fn check(&self, images: &Images) -> Result<()> {
        images.check()?;
        let refuse = |what: String, fix: &str| Err(Error::invalid(what, fix));
        if self.epochs == 0 || self.batch == 0 || self.every == 0 {
            return refuse(
                "0 epochs, images a step, or steps between checkpoints train nothing".into(),
                "give 1 or more",
            );
        }
        let count = images.train.len();
        if self.batch > count {
            return refuse(
                format!("a batch of {} is more than the {count} images to train on", self.batch),
                &format!("use a batch of {count} or less"),
            );
        }
        if !(self.learning_rate > 0.0 && self.learning_rate.is_finite()) {
            return refuse(format!("the learning rate {} leads nowhere", self.learning_rate), "try 0.001");
        }
        let (wide, high) = (images.width, images.height);
        if (wide, high) != (28, 28) {
            return refuse(
                format!("this network reads images of 28 × 28 pixels, and these have {wide} × {high}"),
                "use MNIST's files, or `Images::generated`",
            );
        }
        Ok(())
    }

    /// The run in its checkpoint, which must have been trained on images of that name.
    ///
    /// # Errors
    /// [`Error::File`] and [`Error::Invalid`] as [`Checkpoint::read`], and for other images.
    pub(super) fn kept(&self, images: &str) -> Result<Checkpoint> {
        let Some(path) = &self.checkpoint else {
            return Err(Error::invalid(
                "a run goes on from its checkpoint, and the config names none",
                "set `checkpoint` to the file that the run was kept in",
            ));
        };
        let checkpoint = Checkpoint::read(path)?;
        if checkpoint.state.data != images {
            return Err(Error::invalid(
                format!("{} was trained on {}, and these images are {images}", path.display(), checkpoint.state.data),
                "give it the same images (--data), or begin a new run without --resume",
            ));
        }
        Ok(checkpoint)
    }
}
