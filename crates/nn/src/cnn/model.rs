//! The network on candle.

use super::fast::ops::{Features, Linear};
use super::{Parameters, Precision};
use gpulab::error::{Error, Result};
use crate::renumbered;
use candle_core::{DType, Device, Tensor, Var};

/// Whose layers compute.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kernels {
    /// candle's own operators, one for each step; on every device.
    Candle,
    /// This course's. On the CPU: convolutions, ReLU and max-pool as one operator with its own way back, linear layers as
    /// another, and AdamW in one pass. On an NVIDIA GPU: a step is seven kernels ([`super::CnnEngine`]), and candle has no
    /// part in it.
    Own,
}

impl Kernels {
    /// `own` or `candle`.
    ///
    /// # Errors
    /// [`Error::Invalid`] names the ones there are.
    pub fn from_name(name: &str) -> Result<Kernels> {
        let all = [Kernels::Own, Kernels::Candle];
        all.into_iter().find(|kernels| kernels.name() == name).ok_or_else(|| Error::Invalid {
            what: format!("there are no kernels `{name}`"),
            fix: "name own or candle".to_string(),
        })
    }

    /// `own`, `candle`.
    pub fn name(self) -> &'static str {
        match self {
            Kernels::Own => "own",
            Kernels::Candle => "candle",
        }
    }

    /// The faster ones that make a [`Cnn`] on that device.
    pub fn best(device: &Device) -> Kernels {
        if device.is_cpu() { Kernels::Own } else { Kernels::Candle }
    }
}

/// The network: parameters in f32 on one device, and how it computes.
#[derive(Debug, Clone)]
pub struct Cnn {
    pub(super) vars: Vec<Var>,
    kernels: Kernels,
    precision: Precision,
}

impl Cnn {
    /// Puts the parameters on the device.
    ///
    /// # Errors
    /// [`Error::Unsupported`] for [`Kernels::Own`] elsewhere than on the CPU, and for TF32; candle's error when the device's
    /// memory is full.
    pub fn new(parameters: &Parameters, device: &Device, kernels: Kernels, precision: Precision) -> Result<Cnn> {
        if kernels == Kernels::Own && !device.is_cpu() {
            return Err(Error::Unsupported {
                what: "in a `Cnn`, `Kernels::Own` computes on the CPU, and this device is a GPU".to_string(),
                fix: "use `Kernels::best(&device)`, or train with a `Trainer`, which has own kernels for NVIDIA's"
                    .to_string(),
            });
        }
        if precision == Precision::Tf32 {
            return Err(Error::Unsupported {
                what: "TF32 is what tensor cores take, and candle's layers compute in f32, bf16 or f16".to_string(),
                fix: "train in f32, or with own kernels on an NVIDIA GPU (--device cuda --kernels own)".to_string(),
            });
        }
        let arrays = Parameters::SHAPES.iter().zip(&parameters.arrays);
        let vars = arrays.map(|((_, shape), numbers)| Var::from_vec(numbers.clone(), *shape, device));
        Ok(Cnn { vars: vars.collect::<candle_core::Result<_>>()?, kernels, precision })
    }

    /// The device that it lies on.
    pub fn device(&self) -> &Device {
        self.vars[0].device()
    }

    /// The parameters as candle's optimisers take them, in the order of [`Parameters::SHAPES`].
    pub fn vars(&self) -> &[Var] {
        &self.vars
    }

    /// How it computes.
    pub fn kernels(&self) -> Kernels {
        self.kernels
    }

    /// The numbers that it computes in.
    pub fn precision(&self) -> Precision {
        self.precision
    }

    /// Ten numbers for each image of `x` [B, 1, 28, 28] in 0 … 1: the largest names the digit.
    ///
    /// # Errors
    /// candle's error when `x` has another shape, or lies on another device.
    pub fn logits(&self, x: &Tensor) -> Result<Tensor> {
        self.count_on_behind([x])?;
        let parameter = |at: usize| self.precision.apply(self.vars[at].as_tensor());
        let x = self.precision.apply(&renumbered(x)?)?;
        x.dims4()?;
        let features = match self.kernels {
            Kernels::Own => {
                let first = Tensor::cat(&[parameter(0)?.flatten_all()?, parameter(1)?], 0)?;
                let second = Tensor::cat(&[parameter(2)?.flatten_all()?, parameter(3)?], 0)?;
                x.contiguous()?.apply_op3(&first, &second, Features::default())?
            }
            Kernels::Candle => {
                let bias = |at: usize| parameter(at)?.reshape((1, (), 1, 1));
                let x = x.conv2d(&parameter(0)?, 0, 1, 1, 1)?.broadcast_add(&bias(1)?)?.relu()?;
                let x = x.conv2d(&parameter(2)?, 0, 1, 1, 1)?.broadcast_add(&bias(3)?)?.relu()?;
                // Not `max_pool2d`, whose way back divides by four where one of the four is the largest (candle 0.11.1), and not
                // `max`, which gives each of several equal ones the whole gradient: on an even background all four are equal.
                let (count, channels, high, wide) = x.dims4()?;
                let fours = x.reshape((count, channels, high / 2, 2, wide / 2, 2))?.permute((0, 1, 2, 4, 3, 5))?;
                let fours = fours.contiguous()?.flatten_from(4)?;
                fours.gather(&fours.argmax_keepdim(4)?, 4)?.flatten_from(1)?
            }
        };
        let features = self.round(features)?;
        let hidden = self.round(self.linear(&features, parameter(4)?, parameter(5)?, true)?)?;
        let logits = self.linear(&hidden, parameter(6)?, parameter(7)?, false)?;
        // The exponentials of the loss need f32.
        Ok(logits.to_dtype(DType::F32)?)
    }

    /// Parameters, images and digits may be another cell's.
    pub(super) fn count_on_behind<const N: usize>(&self, others: [&Tensor; N]) -> Result<()> {
        crate::count_on_behind(self.vars.iter().map(|var| var.as_tensor()).chain(others))
    }

    fn linear(&self, x: &Tensor, weight: Tensor, bias: Tensor, relu: bool) -> candle_core::Result<Tensor> {
        if self.kernels == Kernels::Own {
            return x.apply_op3(&weight, &bias, Linear { relu });
        }
        let sum = x.matmul(&weight.t()?)?.broadcast_add(&bias)?;
        if relu { sum.relu() } else { Ok(sum) }
    }

    /// Where layers hand numbers on, the CPU rounds them as a GPU's 16-bit layers do.
    fn round(&self, x: Tensor) -> candle_core::Result<Tensor> {
        if x.device().is_cpu() { self.precision.apply(&x) } else { Ok(x) }
    }

    /// The mean cross-entropy of these images against their digits (u32), in nats.
    ///
    /// # Errors
    /// As [`Cnn::logits`].
    pub fn loss(&self, x: &Tensor, digits: &Tensor) -> Result<Tensor> {
        self.count_on_behind([x, digits])?;
        Ok(candle_nn::loss::cross_entropy(&self.logits(x)?, &renumbered(digits)?)?)
    }

    /// Copies the parameters to the host.
    ///
    /// # Errors
    /// candle's error when the copy fails.
    pub fn parameters(&self) -> Result<Parameters> {
        let mut found = Parameters::zeros();
        for (array, var) in found.arrays.iter_mut().zip(&self.vars) {
            *array = var.flatten_all()?.to_vec1()?;
        }
        Ok(found)
    }
}
