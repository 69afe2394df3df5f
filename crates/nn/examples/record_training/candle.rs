//! candle's step on the same GPU, as its users write it: its operators, its AdamW, images that lie on the GPU.

use candle_core::{DType, Device, Tensor};
use candle_nn::{AdamW, Optimizer, ParamsAdamW};
use gpulab::prelude::*;
use gpulab_nn::DeviceKind;
use gpulab_nn::cnn::{Checkpoint, Cnn, Kernels, Precision};
use gpulab_nn::data::Images;

/// The network, its optimiser and its images on candle's CUDA device.
pub struct CandleStep {
    device: Device,
    cnn: Cnn,
    adamw: AdamW,
    pixels: Tensor,
    digits: Tensor,
    order: Vec<u32>,
    batch: usize,
    at: usize,
}

impl CandleStep {
    /// `None` where candle was not built with CUDA, or has no way to compute in these numbers.
    pub fn new(precision: Precision, start: &Checkpoint, images: &Images, batch: usize) -> Result<Option<CandleStep>> {
        let layers = match precision {
            Precision::F32 | Precision::Tf32 => Precision::F32,
            Precision::Bf16 => Precision::Bf16,
            Precision::F16 => return Ok(None),
        };
        let Ok(device) = DeviceKind::Cuda.open() else {
            return Ok(None);
        };
        candle_core::cuda::set_gemm_reduced_precision_f32(precision == Precision::Tf32);
        let cnn = Cnn::new(&start.parameters, &device, Kernels::Candle, layers)?;
        let settings = ParamsAdamW { lr: 1e-3, beta1: 0.9, beta2: 0.999, eps: 1e-8, weight_decay: 0.01 };
        let adamw = AdamW::new(cnn.vars().to_vec(), settings)?;
        let set = &images.train;
        let digits: Vec<u32> = set.labels.iter().map(|&digit| u32::from(digit)).collect();
        let pixels = Tensor::from_slice(&set.pixels, (set.len(), 784), &device)?;
        let digits = Tensor::from_vec(digits, set.len(), &device)?;
        let order = gpulab_nn::cnn::order(start.state.seed, 0, set.len());
        Ok(Some(CandleStep { device, cnn, adamw, pixels, digits, order, batch, at: 0 }))
    }

    /// A step on the next images; the loss stays on the GPU.
    pub fn step(&mut self) -> Result<Tensor> {
        if self.at + self.batch > self.order.len() {
            self.at = 0;
        }
        let which = Tensor::from_slice(&self.order[self.at..self.at + self.batch], self.batch, &self.device)?;
        self.at += self.batch;
        let x = (self.pixels.index_select(&which, 0)?.to_dtype(DType::F32)? / 255.0)?;
        let loss = self.cnn.loss(&x.reshape((self.batch, 1, 28, 28))?, &self.digits.index_select(&which, 0)?)?;
        self.adamw.backward_step(&loss)?;
        Ok(loss.detach())
    }

    /// The losses of so many steps.
    pub fn losses(&mut self, steps: usize) -> Result<Vec<f32>> {
        (0..steps).map(|_| Ok(self.step()?.to_scalar::<f32>()?)).collect()
    }
}
