//! The step's kernels, and the launch of each.

use gpulab::error::Result;
use gpulab::gpu::{Gpu, Kernel};
use gpulab_kernels::ladder::operator;
use gpulab::launch::LaunchConfig;
use crate::cnn::Precision;

/// The six operators of a step, and two that go with them.
#[derive(Debug, Clone)]
pub(super) struct Kernels {
    pub features: Kernel,
    pub fc1: Kernel,
    pub head: Kernel,
    pub tally: Kernel,
    pub fc_backward: Kernel,
    pub conv_backward: Kernel,
    pub update: Kernel,
    pub pack: Kernel,
}

/// Numbers in an image's first convolution, as `features.cu` and `conv_backward.cu` lay them out, in words.
const A1_PITCHED: u32 = 26 * 28 * 36;
const A1_TURNED: u32 = 26 * 26 * 32;
const KEPT: u32 = 14 * 14 * 72;
const FILTER: u32 = 64 * 32 * 9;
const IMAGE: u32 = 28 * 28;

/// Parameters of the convolutions, and all others.
pub(super) const OF_CONVOLUTIONS: usize = 18_816;
const OF_LINEAR: u32 = 1_181_066;

impl Kernels {
    pub fn compile(gpu: &Gpu, precision: Precision) -> Result<Kernels> {
        // As `tensor.cuh` numbers them.
        let number = precision as u32;
        let module = |path: &str| {
            let known = operator(path)?;
            let source = match known.defines {
                [] => known.source()?,
                _ => gpulab_kernels::ladder::file(&format!("{path}.cu"))?.define("PRECISION", number),
            };
            gpu.compile(source)
        };
        let (head, update) = (module("cnn/head")?, module("cnn/update")?);
        Ok(Kernels {
            features: module("cnn/features")?.kernel("features")?,
            fc1: module("cnn/fc1")?.kernel("fc1")?,
            head: head.kernel("head")?,
            tally: head.kernel("tally")?,
            fc_backward: module("cnn/fc_backward")?.kernel("fc_backward")?,
            conv_backward: module("cnn/conv_backward")?.kernel("conv_backward")?,
            update: update.kernel("update")?,
            pack: update.kernel("pack_all")?,
        })
    }
}

fn launch(grid: (u32, u32, u32), threads: u32, shared_words: u32) -> LaunchConfig {
    LaunchConfig { grid, block: (threads, 1, 1), shared_bytes: shared_words * 4 }
}

/// A block for each image, as many as run at a time: then they take several, one after the other.
pub(super) fn image_blocks(gpu: &Gpu, batch: usize) -> u32 {
    (batch as u32).min(gpu.multiprocessors().max(1))
}

pub(super) fn features(gpu: &Gpu, batch: usize) -> LaunchConfig {
    launch((image_blocks(gpu, batch), 1, 1), 384, FILTER + A1_PITCHED + IMAGE)
}

pub(super) fn fc1(batch: usize) -> LaunchConfig {
    launch((2, (batch as u32).div_ceil(64), 36), 256, 2 * 64 * 264)
}

pub(super) fn head(batch: usize) -> LaunchConfig {
    launch((batch as u32, 1, 1), 128, 0)
}

pub(super) fn tally() -> LaunchConfig {
    launch((1, 1, 1), 32, 0)
}

pub(super) fn fc_backward() -> LaunchConfig {
    launch((128, 1, 1), 512, 128 * (136 + 76 + 72))
}

pub(super) fn conv_backward(gpu: &Gpu, batch: usize) -> LaunchConfig {
    launch((image_blocks(gpu, batch), 1, 1), 384, A1_TURNED + KEPT + FILTER + IMAGE)
}

pub(super) fn update() -> LaunchConfig {
    launch((OF_CONVOLUTIONS as u32 / 64 + OF_LINEAR.div_ceil(4 * 256), 1, 1), 256, 0)
}

pub(super) fn pack() -> LaunchConfig {
    launch((FILTER / 256, 1, 1), 256, 0)
}
