//! `CnnEngine` as what makes a trainer's steps.

use super::images::DeviceImages;
use super::kernels::Kernels;
use super::{CnnEngine, EngineSettings};
use crate::data::Images;
use gpulab::error::Result;
use gpulab::gpu::Gpu;
use crate::cnn::on_candle::STEADY;
use crate::cnn::way::{NotFinite, Way};
use crate::cnn::{Checkpoint, Epoch, Plan, State};

/// The network of a run on an NVIDIA GPU, with the images that it is tested on.
#[derive(Debug)]
pub(in crate::cnn) struct OnGpu {
    engine: CnnEngine,
    test: DeviceImages,
}

impl OnGpu {
    /// As [`CnnEngine::new`].
    ///
    /// # Errors
    /// As [`CnnEngine::new`].
    pub fn new(gpu: &Gpu, images: &Images, plan: &Plan, start: &Checkpoint) -> Result<OnGpu> {
        OnGpu::with(gpu, Kernels::compile(gpu, plan.precision)?, images, plan, start)
    }

    pub(super) fn with(gpu: &Gpu, kernels: Kernels, images: &Images, plan: &Plan, start: &Checkpoint) -> Result<OnGpu> {
        let settings = EngineSettings {
            batch: plan.batch,
            precision: plan.precision,
            rate: plan.learning_rate as f32,
            growth: STEADY as u32,
            ..EngineSettings::default()
        };
        let test = DeviceImages::new(gpu, &images.test.pixels, &images.test.labels)?;
        let engine = CnnEngine::with(gpu, kernels, start, &images.train.pixels, &images.train.labels, settings)?;
        Ok(OnGpu { engine, test })
    }
}

impl Way for OnGpu {
    fn state(&self) -> &State {
        self.engine.state()
    }

    fn state_mut(&mut self) -> &mut State {
        &mut self.engine.state
    }

    fn left(&self) -> usize {
        self.engine.left()
    }

    fn steps(&mut self, most: usize) -> Result<()> {
        self.engine.steps(most).map(drop)
    }

    fn collect(&mut self) -> Result<Option<NotFinite>> {
        self.engine.read()
    }

    fn test(&mut self) -> Result<(f32, f32)> {
        self.engine.test_on(&self.test)
    }

    fn next_epoch(&mut self, epoch: Epoch) -> Result<()> {
        self.engine.next_epoch(epoch)
    }

    fn checkpoint(&mut self) -> Result<Checkpoint> {
        self.engine.checkpoint()
    }
}
