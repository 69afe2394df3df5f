//! What a step needs on the GPU, and its launches.

use super::kernels::{self, Kernels, OF_CONVOLUTIONS};
use super::{DeviceImages, EngineSettings, WORDS, flat};
use gpulab::error::Result;
use gpulab::gpu::{Buffer, Gpu};
use crate::cnn::{Checkpoint, Parameters, Precision};

/// Numbers of an image behind the pool, units behind the first linear layer, and parts in which its sums are made.
pub(super) const FEATURES: usize = 9216;
pub(super) const HIDDEN: usize = 128;
pub(super) const STRETCHES: usize = 36;

/// All buffers but the images; `bytes.rs` counts them. Nothing is allocated once it is there.
pub(super) struct Room {
    gpu: Gpu,
    pub w: Buffer<f32>,
    pub m: Buffer<f32>,
    pub v: Buffer<f32>,
    pub gradient: Buffer<f32>,
    packed: Buffer<f32>,
    settings: Buffer<f32>,
    pub state: Buffer<u32>,
    /// The loss scale, and how many good steps make it grow: 0 where there is none.
    pub scale: Buffer<f32>,
    pooled: Buffer<f32>,
    which: Buffer<u8>,
    fc1: Buffer<f32>,
    hidden: Buffer<f32>,
    d_hidden: Buffer<f32>,
    d_logits: Buffer<f32>,
    d_pooled: Buffer<f32>,
    of_images: Buffer<f32>,
    loss: Buffer<f32>,
    hit: Buffer<u32>,
    /// One number for each step of an epoch.
    pub losses: Buffer<f32>,
    pub hits: Buffer<u32>,
}

impl Room {
    pub fn new(gpu: &Gpu, checkpoint: &Checkpoint, settings: &EngineSettings, images: usize) -> Result<Room> {
        let (batch, steps) = (settings.batch, images.div_ceil(settings.batch));
        let floats = |len: usize| gpu.alloc::<f32>(len);
        let state = &checkpoint.state;
        let mut words = [0; WORDS];
        words[super::SEEN] = state.seen as u32;
        words[super::STEP] = state.step as u32;
        // A step begins with counting the one before it, and there was none.
        words[super::GOOD] = (state.steady as u32).wrapping_sub(1);
        let growth = if settings.precision == Precision::F16 { settings.growth } else { 0 };
        let scale = [settings.precision.loss_scale(state.loss_scale), growth as f32];
        Ok(Room {
            w: gpu.to_device(&flat(&checkpoint.parameters))?,
            m: gpu.to_device(&flat(&checkpoint.m))?,
            v: gpu.to_device(&flat(&checkpoint.v))?,
            gradient: floats(Parameters::count())?,
            packed: floats(2 * Parameters::len_of(2))?,
            settings: gpu.to_device(&settings.on_device())?,
            state: gpu.to_device(&words)?,
            scale: gpu.to_device(&scale)?,
            pooled: floats(batch * FEATURES)?,
            which: gpu.alloc(batch * FEATURES)?,
            fc1: floats(STRETCHES * batch * HIDDEN)?,
            hidden: floats(batch * HIDDEN)?,
            d_hidden: floats(batch * HIDDEN)?,
            d_logits: floats(batch * 10)?,
            d_pooled: floats(batch * FEATURES)?,
            of_images: floats(kernels::image_blocks(gpu, batch) as usize * OF_CONVOLUTIONS)?,
            loss: floats(batch)?,
            hit: gpu.alloc(batch)?,
            losses: gpu.zeros(steps)?,
            hits: gpu.zeros(steps)?,
            gpu: gpu.clone(),
        })
    }

    /// Lays conv2's weight out for the tensor cores; from then on each update does it.
    pub fn pack(&mut self, kernels: &Kernels) -> Result<()> {
        kernels.pack.launch(kernels::pack(), (&self.w, &mut self.packed))
    }

    /// Queues a step.
    pub fn step(&mut self, kernels: &Kernels, images: &DeviceImages, batch: usize) -> Result<()> {
        self.forward(kernels, images, batch, true)?;
        let count = batch as i32;
        kernels.fc_backward.launch(
            kernels::fc_backward(),
            (
                &self.d_hidden,
                &self.d_logits,
                &self.hidden,
                &self.pooled,
                &self.w,
                &mut self.d_pooled,
                &mut self.gradient,
                &mut self.state,
                count,
            ),
        )?;
        let blocks = kernels::image_blocks(&self.gpu, batch) as i32;
        kernels.conv_backward.launch(
            kernels::conv_backward(&self.gpu, batch),
            (
                &images.pixels,
                &images.order,
                &mut self.state,
                &self.w,
                &self.packed,
                &self.d_pooled,
                &self.which,
                &mut self.of_images,
                count,
            ),
        )?;
        kernels.update.launch(
            kernels::update(),
            (
                &mut self.w,
                &mut self.m,
                &mut self.v,
                &mut self.gradient,
                &self.of_images,
                &mut self.packed,
                &self.settings,
                &self.state,
                &self.scale,
                blocks,
            ),
        )?;
        self.tally(kernels, batch)
    }

    fn forward(&mut self, kernels: &Kernels, images: &DeviceImages, batch: usize, training: bool) -> Result<()> {
        let count = batch as i32;
        kernels.features.launch(
            kernels::features(&self.gpu, batch),
            (
                &images.pixels,
                &images.order,
                &mut self.state,
                &mut self.scale,
                &self.w,
                &self.packed,
                &mut self.pooled,
                &mut self.which,
                count,
                i32::from(training),
            ),
        )?;
        kernels.fc1.launch(kernels::fc1(batch), (&self.pooled, &self.w, &mut self.fc1, count))?;
        kernels.head.launch(
            kernels::head(batch),
            (
                &self.fc1,
                &images.labels,
                &images.order,
                &self.state,
                &self.scale,
                &self.w,
                &mut self.hidden,
                &mut self.d_hidden,
                &mut self.d_logits,
                &mut self.loss,
                &mut self.hit,
                count,
            ),
        )
    }

    fn tally(&mut self, kernels: &Kernels, batch: usize) -> Result<()> {
        let room = self.losses.len() as i32;
        kernels.tally.launch(
            kernels::tally(),
            (&self.loss, &self.hit, &mut self.state, &mut self.losses, &mut self.hits, batch as i32, room),
        )
    }

    /// Back to the first image of an epoch.
    pub fn rewind(&mut self) -> Result<()> {
        let mut words = self.state.to_host()?;
        (words[super::SEEN], words[super::BATCHES]) = (0, 0);
        self.state.copy_from(&words)
    }

    /// Accuracy and mean loss.
    pub fn test(&mut self, kernels: &Kernels, images: &DeviceImages, batch: usize) -> Result<(f32, f32)> {
        let training = self.state.to_host()?;
        let steps = images.count.div_ceil(batch);
        let (mut losses, mut hits) = (self.gpu.zeros(steps)?, self.gpu.zeros(steps)?);
        let mut words = training.clone();
        (words[super::SEEN], words[super::BATCHES]) = (0, 0);
        self.state.copy_from(&words)?;
        std::mem::swap(&mut self.losses, &mut losses);
        std::mem::swap(&mut self.hits, &mut hits);
        let sizes: Vec<usize> = (0..steps).map(|step| batch.min(images.count - step * batch)).collect();
        let done = sizes.iter().try_for_each(|&batch| {
            self.forward(kernels, images, batch, false)?;
            self.tally(kernels, batch)
        });
        std::mem::swap(&mut self.losses, &mut losses);
        std::mem::swap(&mut self.hits, &mut hits);
        self.state.copy_from(&training)?;
        done?;
        let right: u32 = hits.to_host()?.iter().sum();
        let loss: f64 = losses.to_host()?.iter().zip(&sizes).map(|(&loss, &of)| f64::from(loss) * of as f64).sum();
        Ok((right as f32 / images.count as f32, (loss / images.count as f64) as f32))
    }
}
