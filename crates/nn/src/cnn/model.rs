//! The network on candle.

use super::fast::{Features, Linear};
use super::max_pool::max_pool2;
use crate::with_new_id;
use candle_core::{DType, Device, Tensor, Var};
use gpulab::cpu::random_f32;
use gpulab::error::{Error, Result};

/// Whose layers compute.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kernels {
    /// candle's own operators, one for each step; on every device.
    Candle,
    /// This course's. On the CPU: convolutions, ReLU and max-pool as one operator with its own backward pass, linear layers as
    /// another, and AdamW in one pass. On an NVIDIA GPU: a step is seven kernels ([`super::CnnEngine`]), and candle has no
    /// part in it.
    Own,
}

impl Kernels {
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
    /// [`gpulab::Error::Unsupported`] for [`Kernels::Own`] elsewhere than on the CPU, and for TF32; candle's error when the device's
    /// memory is full.
    pub fn new(parameters: &Parameters, device: &Device, kernels: Kernels, precision: Precision) -> Result<Cnn> {
        if kernels == Kernels::Own && !device.is_cpu() {
            return Err(Error::unsupported(
                "in a `Cnn`, `Kernels::Own` computes on the CPU, and this device is a GPU",
                "use `Kernels::best(&device)`, or train with a `Trainer`, which has own kernels for NVIDIA's",
            ));
        }
        if precision == Precision::Tf32 {
            return Err(Error::unsupported(
                "TF32 is what tensor cores take, and candle's layers compute in f32, bf16 or f16",
                "train in f32, or with own kernels on an NVIDIA GPU (--device cuda --kernels own)",
            ));
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
        self.reserve_tensor_ids([x])?;
        let parameters = self.vars.iter().map(|var| self.precision.apply(var.as_tensor()));
        let parameters = parameters.collect::<candle_core::Result<Vec<Tensor>>>()?;
        let mut x = self.precision.apply(&with_new_id(x)?)?;
        x.dims4()?;
        for (_, layer) in self.layers() {
            x = self.round(layer(&parameters, &x)?)?;
        }
        // The exponentials of the loss need f32.
        Ok(x.to_dtype(DType::F32)?)
    }

    /// Parameters, images and digits may be another cell's.
    pub(super) fn reserve_tensor_ids<const N: usize>(&self, others: [&Tensor; N]) -> Result<()> {
        crate::reserve_tensor_ids(self.vars.iter().map(|var| var.as_tensor()).chain(others))
    }

    /// Its layers, from the images to the logits.
    pub(super) fn layers(&self) -> &'static [Layer] {
        if self.kernels == Kernels::Own { &OWN } else { &CANDLE }
    }

    /// The layer whose backward pass is over once candle gets to parameter `at` in it, where there is one such: of candle's
    /// own layers the convolutions and each layer's bias tell.
    pub(super) fn ends_backward(&self, at: usize) -> Option<&'static str> {
        match (self.kernels, at) {
            (Kernels::Own, 0) => Some("convolutions"),
            (Kernels::Own, 5) => Some("linear 1"),
            (Kernels::Own, 7) => Some("linear 2"),
            (Kernels::Own, _) => None,
            (Kernels::Candle, 0) => Some("conv1"),
            (Kernels::Candle, 1) => Some("ReLU 1 and bias 1"),
            (Kernels::Candle, 2) => Some("conv2"),
            (Kernels::Candle, 3) => Some("linear 1 to bias 2"),
            (Kernels::Candle, 5) => Some("ReLU 3 and bias 3"),
            (Kernels::Candle, 6) => Some("linear 2"),
            (Kernels::Candle, 7) => Some("bias 4"),
            (Kernels::Candle, _) => None,
        }
    }

    /// Where layers hand numbers on, the CPU rounds them as a GPU's 16-bit layers do.
    fn round(&self, x: Tensor) -> candle_core::Result<Tensor> {
        if x.device().is_cpu() { self.precision.apply(&x) } else { Ok(x) }
    }

    /// The mean cross-entropy of these images `[B, 1, 28, 28]` against their digits `[B]` (u32), in nats: a scalar, by
    /// [`candle_nn::loss::cross_entropy`] of [`Cnn::logits`].
    ///
    /// # Errors
    /// As [`Cnn::logits`].
    pub fn loss(&self, x: &Tensor, digits: &Tensor) -> Result<Tensor> {
        self.reserve_tensor_ids([x, digits])?;
        Ok(candle_nn::loss::cross_entropy(&self.logits(x)?, &with_new_id(digits)?)?)
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

/// A layer's name, and what it computes of the parameters (in the order of [`Parameters::SHAPES`]) and its input.
pub(super) type Layer = (&'static str, fn(&[Tensor], &Tensor) -> candle_core::Result<Tensor>);

const CANDLE: [Layer; 8] = [
    ("conv1", |p, x| x.conv2d(&p[0], 0, 1, 1, 1)?.broadcast_add(&p[1].reshape((1, (), 1, 1))?)),
    ("ReLU 1", |_, x| x.relu()),
    ("conv2", |p, x| x.conv2d(&p[2], 0, 1, 1, 1)?.broadcast_add(&p[3].reshape((1, (), 1, 1))?)),
    ("ReLU 2", |_, x| x.relu()),
    ("max-pool", |_, x| max_pool2(x)?.flatten_from(1)),
    ("linear 1", |p, x| x.matmul(&p[4].t()?)?.broadcast_add(&p[5])),
    ("ReLU 3", |_, x| x.relu()),
    ("linear 2", |p, x| x.matmul(&p[6].t()?)?.broadcast_add(&p[7])),
];

const OWN: [Layer; 3] = [
    ("convolutions", |p, x| {
        let pair = |at: usize| Tensor::cat(&[p[at].flatten_all()?, p[at + 1].clone()], 0);
        x.contiguous()?.apply_op3(&pair(0)?, &pair(2)?, Features::default())
    }),
    ("linear 1", |p, x| x.apply_op3(&p[4], &p[5], Linear { relu: true })),
    ("linear 2", |p, x| x.apply_op3(&p[6], &p[7], Linear { relu: false })),
];

// ----------------------------------------------------------------------
// The network's parameters on the host: names, shapes, first values.

/// The eight parameters in f32, each row-major, in the order of [`Parameters::SHAPES`].
#[derive(Debug, Clone, PartialEq)]
pub struct Parameters {
    /// One array for each entry of [`Parameters::SHAPES`].
    pub arrays: [Vec<f32>; 8],
}

impl Parameters {
    /// Name and shape of each, as they stand in a checkpoint. A convolution's weight is [out, in, high, wide], a linear
    /// layer's [out, in].
    pub const SHAPES: [(&'static str, &'static [usize]); 8] = [
        ("conv1.weight", &[32, 1, 3, 3]),
        ("conv1.bias", &[32]),
        ("conv2.weight", &[64, 32, 3, 3]),
        ("conv2.bias", &[64]),
        ("fc1.weight", &[128, 9216]),
        ("fc1.bias", &[128]),
        ("fc2.weight", &[10, 128]),
        ("fc2.bias", &[10]),
    ];

    /// How many numbers parameter `at` holds.
    pub fn len_of(at: usize) -> usize {
        Self::SHAPES[at].1.iter().product()
    }

    /// How many numbers all of them hold: 1,199,882.
    pub fn count() -> usize {
        (0..Self::SHAPES.len()).map(Self::len_of).sum()
    }

    /// All zero: the first moments of an optimiser.
    pub fn zeros() -> Parameters {
        Parameters { arrays: std::array::from_fn(|at| vec![0.0; Self::len_of(at)]) }
    }

    /// Uniform in ±1/√(inputs of one output), weights and biases alike, as PyTorch's layers begin; the same numbers for the
    /// same seed on every machine.
    pub fn random(seed: u64) -> Parameters {
        let array = |at: usize| {
            // A bias follows its weight, and has its bound.
            let inputs: usize = Self::SHAPES[at / 2 * 2].1[1..].iter().product();
            let bound = 1.0 / (inputs as f32).sqrt();
            // Seeds of parameters must not meet those of a neighbouring run.
            let own = seed.wrapping_mul(0x9E37_79B9_7F4A_7C15).wrapping_add(at as u64);
            let mut numbers = random_f32(Self::len_of(at), own);
            numbers.iter_mut().for_each(|number| *number *= bound);
            numbers
        };
        Parameters { arrays: std::array::from_fn(array) }
    }
}

// ----------------------------------------------------------------------
// In which numbers the network computes.

/// The numbers that layers compute in. Parameters and the optimiser's moments are f32 with each of them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Precision {
    /// 32 bits: 24 of precision, up to 10³⁸. On tensor cores, which do not take them, each product is three of TF32 parts,
    /// off by about 2⁻²¹ of it.
    F32,
    /// TF32: the factors of a product are rounded to 11 bits of precision; sums and all else are f32. On tensor cores
    /// alone: what PyTorch does where TF32 is allowed.
    Tf32,
    /// 16 bits: 8 of precision, up to 10³⁸ as f32.
    Bf16,
    /// 16 bits: 11 of precision, up to 65,504, and nothing below 6 · 10⁻⁸: gradients need a loss scale.
    F16,
}

impl Precision {
    /// All of them, in the order in which the kernels of [`super::CnnEngine`] number them.
    pub const ALL: [Precision; 4] = [Precision::F32, Precision::Tf32, Precision::Bf16, Precision::F16];

    /// `f32`, `tf32`, `bf16`, `f16`.
    pub fn name(self) -> &'static str {
        match self {
            Precision::F32 => "f32",
            Precision::Tf32 => "tf32",
            Precision::Bf16 => "bf16",
            Precision::F16 => "f16",
        }
    }

    /// What the loss of a run is multiplied by that was kept with the scale `kept`: 1 where nothing needs it. bf16
    /// reaches as low as f32; f16 begins with 65,536, as PyTorch's GradScaler does.
    pub fn loss_scale(self, kept: f32) -> f32 {
        match self {
            Precision::F16 if kept > 1.0 => kept,
            Precision::F16 => 65536.0,
            _ => 1.0,
        }
    }

    /// What candle calls them.
    pub(super) fn dtype(self) -> DType {
        match self {
            Precision::F32 | Precision::Tf32 => DType::F32,
            Precision::Bf16 => DType::BF16,
            Precision::F16 => DType::F16,
        }
    }

    /// The tensor in these numbers. On the CPU it is rounded to them and stays f32: CPUs mostly compute in f32 alone, so
    /// there the rounding of 16 bits can be seen, and not their speed.
    pub(super) fn apply(self, tensor: &Tensor) -> candle_core::Result<Tensor> {
        match self.dtype() {
            DType::F32 => Ok(tensor.clone()),
            dtype if tensor.device().is_cpu() => tensor.to_dtype(dtype)?.to_dtype(DType::F32),
            dtype => tensor.to_dtype(dtype),
        }
    }
}

// ----------------------------------------------------------------------
// What 16-bit numbers make of gradients.

/// The gradients of all parameters for that batch, one after the other, computed in the network's own precision.
///
/// # Errors
/// candle's error when `x` or the digits have another shape.
pub fn gradients(cnn: &Cnn, x: &Tensor, digits: &Tensor) -> Result<Vec<f32>> {
    let found = cnn.loss(x, digits)?.backward()?;
    let mut all = Vec::new();
    for var in &cnn.vars {
        if let Some(gradient) = found.get(var) {
            all.extend(gradient.flatten_all()?.to_vec1::<f32>()?);
        }
    }
    Ok(all)
}

/// The share, 0 to 1, of the gradients other than 0 that become 0 or infinite as such numbers, once they are multiplied by the
/// loss scale.
///
/// # Errors
/// candle's error when the conversion fails.
pub fn share_lost(gradients: &[f32], loss_scale: f32, precision: Precision) -> Result<f64> {
    let there: Vec<f32> = gradients.iter().filter(|&&g| g != 0.0).map(|g| g * loss_scale).collect();
    let count = there.len();
    let kept = Tensor::from_vec(there, count, &Device::Cpu)?.to_dtype(precision.dtype())?.to_dtype(DType::F32)?;
    let lost = kept.to_vec1::<f32>()?.into_iter().filter(|g| *g == 0.0 || !g.is_finite()).count();
    Ok(lost as f64 / count.max(1) as f64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn first_values_fill_their_bounds_and_follow_the_seed() {
        assert_eq!(Parameters::count(), 1_199_882);
        let first = Parameters::random(1);
        assert_eq!(first, Parameters::random(1));
        assert_ne!(first, Parameters::random(2));
        for (at, inputs) in [9, 9, 288, 288, 9216, 9216, 128, 128].into_iter().enumerate() {
            let bound = 1.0 / (inputs as f32).sqrt();
            let largest = first.arrays[at].iter().fold(0f32, |largest, x| largest.max(x.abs()));
            assert!(largest <= bound && largest > 0.5 * bound, "{at}: {largest} of {bound}");
        }
    }

    #[test]
    fn f16_loses_what_is_small_and_what_is_large() {
        let gradients = [0.0, 1e-9, 1e-6, 0.5, -2e-8];
        let lost = |scale: f32, precision: Precision| share_lost(&gradients, scale, precision).unwrap();
        assert_eq!(lost(1.0, Precision::F16), 0.5);
        assert_eq!(lost(1024.0, Precision::F16), 0.0);
        assert_eq!(lost(1e6, Precision::F16), 0.25);
        assert_eq!(lost(1.0, Precision::Bf16), 0.0);
        assert_eq!(share_lost(&[], 1.0, Precision::F16).unwrap(), 0.0);
    }
}
