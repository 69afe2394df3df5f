//! AdamW (Loshchilov and Hutter, 2019), as PyTorch and candle define it.

use super::{Cnn, Kernels, Parameters};
use candle_core::backprop::GradStore;
use candle_core::{CpuStorage, InplaceOp2, Layout, Tensor, Var, bail};
use gpulab::error::Result;
use rayon::prelude::*;
use std::cell::RefCell;

/// The optimiser: a step for each parameter from the means of its gradient and of its square.
#[derive(Debug)]
pub struct AdamW {
    /// How far a step goes; 0.001 at first.
    pub learning_rate: f64,
    /// The part of each weight that a step takes away, times the learning rate; 0.01 at first.
    pub weight_decay: f64,
    steps: u64,
    moments: Moments,
}

#[derive(Debug)]
enum Moments {
    /// For the one pass of the CPU.
    Host {
        m: Box<Parameters>,
        v: Box<Parameters>,
    },
    Device {
        m: Vec<Tensor>,
        v: Vec<Tensor>,
    },
}

const BETA_1: f64 = 0.9;
const BETA_2: f64 = 0.999;
const EPSILON: f64 = 1e-8;

impl AdamW {
    /// Moments of 0 for that network.
    ///
    /// # Errors
    /// candle's error when the device's memory is full.
    pub fn new(cnn: &Cnn) -> Result<AdamW> {
        AdamW::with(cnn, &Parameters::zeros(), &Parameters::zeros(), 0)
    }

    /// Goes on with these moments, after so many steps.
    ///
    /// # Errors
    /// candle's error when the device's memory is full.
    pub fn with(cnn: &Cnn, m: &Parameters, v: &Parameters, steps: u64) -> Result<AdamW> {
        let tensors = |from: &Parameters| -> Result<Vec<Tensor>> {
            let arrays = Parameters::SHAPES.iter().zip(&from.arrays);
            let tensors = arrays.map(|((_, shape), numbers)| Tensor::from_slice(numbers, *shape, cnn.device()));
            Ok(tensors.collect::<candle_core::Result<_>>()?)
        };
        let moments = match cnn.kernels() {
            Kernels::Own => Moments::Host { m: Box::new(m.clone()), v: Box::new(v.clone()) },
            Kernels::Candle => Moments::Device { m: tensors(m)?, v: tensors(v)? },
        };
        Ok(AdamW { learning_rate: 1e-3, weight_decay: 0.01, steps, moments })
    }

    /// How many steps it made.
    pub fn steps(&self) -> u64 {
        self.steps
    }

    /// One step of every parameter. The gradients are those of the loss times `loss_scale`.
    ///
    /// # Errors
    /// candle's error when a gradient is missing or of another shape.
    pub fn step(&mut self, cnn: &Cnn, gradients: &GradStore, loss_scale: f32) -> Result<()> {
        self.steps += 1;
        for at in 0..cnn.vars.len() {
            self.change(cnn, at, gradients, loss_scale)?;
        }
        Ok(())
    }

    fn change(&mut self, cnn: &Cnn, at: usize, gradients: &GradStore, loss_scale: f32) -> Result<()> {
        // As f64: βᵗ of many steps is lost in f32.
        let power = |beta: f64| 1.0 / (1.0 - beta.powf(self.steps as f64));
        let (scale_m, scale_v) = (power(BETA_1), power(BETA_2));
        let keep = 1.0 - self.learning_rate * self.weight_decay;
        let var = &cnn.vars[at];
        let gradient = gradient(gradients, var)?;
        match &mut self.moments {
            Moments::Host { m, v } => {
                let rates = Rates {
                    rate: self.learning_rate as f32,
                    keep: keep as f32,
                    beta_1: BETA_1 as f32,
                    beta_2: BETA_2 as f32,
                    scale_m: scale_m as f32,
                    scale_v: scale_v as f32,
                    epsilon: EPSILON as f32,
                    gradient: 1.0 / loss_scale,
                };
                let (m, v) = (RefCell::new(&mut m.arrays[at][..]), RefCell::new(&mut v.arrays[at][..]));
                var.inplace_op2(&gradient.contiguous()?, &Update { m, v, rates })?;
            }
            Moments::Device { m, v } => {
                let gradient = (gradient * (1.0 / f64::from(loss_scale)))?;
                let next_m = ((&m[at] * BETA_1)? + (&gradient * (1.0 - BETA_1))?)?;
                let next_v = ((&v[at] * BETA_2)? + (gradient.sqr()? * (1.0 - BETA_2))?)?;
                let change = ((&next_m * scale_m)? / ((&next_v * scale_v)?.sqrt()? + EPSILON)?)?;
                var.set(&((var.as_tensor() * keep)? - (change * self.learning_rate)?)?)?;
                (m[at], v[at]) = (next_m, next_v);
            }
        }
        Ok(())
    }

    /// Copies both moments to the host.
    ///
    /// # Errors
    /// candle's error when the copy fails.
    pub fn moments(&self) -> Result<(Parameters, Parameters)> {
        let host = |from: &[Tensor]| -> Result<Parameters> {
            let mut found = Parameters::zeros();
            for (array, tensor) in found.arrays.iter_mut().zip(from) {
                *array = tensor.flatten_all()?.to_vec1()?;
            }
            Ok(found)
        };
        Ok(match &self.moments {
            Moments::Host { m, v } => (m.as_ref().clone(), v.as_ref().clone()),
            Moments::Device { m, v } => (host(m)?, host(v)?),
        })
    }
}

/// Whether all gradients are finite: f16 overflows where the loss scale is too large.
pub(super) fn all_finite(cnn: &Cnn, gradients: &GradStore) -> Result<bool> {
    for var in &cnn.vars {
        // One that is infinite or no number makes the sum so too.
        let sum: f32 = (gradient(gradients, var)? * 0.0)?.sum_all()?.to_scalar()?;
        if sum != 0.0 {
            return Ok(false);
        }
    }
    Ok(true)
}

fn gradient<'a>(gradients: &'a GradStore, var: &Var) -> candle_core::Result<&'a Tensor> {
    gradients
        .get(var)
        .ok_or_else(|| candle_core::Error::Msg("a parameter has no gradient: is the loss made from it?".into()))
}

// ----------------------------------------------------------------------
// AdamW's step of one parameter in one pass over memory, on all cores.

/// Numbers that a core takes at a time.
const CHUNK: usize = 1 << 14;

/// What one step is made with; all of it follows from the optimiser's settings and the step's number.
#[derive(Debug, Clone, Copy)]
struct Rates {
    pub rate: f32,
    /// What is left of a weight after its decay.
    pub keep: f32,
    pub beta_1: f32,
    pub beta_2: f32,
    /// 1 / (1 - βᵗ) for both moments.
    pub scale_m: f32,
    pub scale_v: f32,
    pub epsilon: f32,
    /// What the gradient is multiplied by first: one over the loss scale.
    pub gradient: f32,
}

/// Updates a parameter in place from its gradient, and both moments with it.
struct Update<'a> {
    pub m: RefCell<&'a mut [f32]>,
    pub v: RefCell<&'a mut [f32]>,
    pub rates: Rates,
}

impl InplaceOp2 for Update<'_> {
    fn name(&self) -> &'static str {
        "AdamW"
    }

    fn cpu_fwd(
        &self,
        weight: &mut CpuStorage,
        weight_at: &Layout,
        gradient: &CpuStorage,
        gradient_at: &Layout,
    ) -> candle_core::Result<()> {
        let CpuStorage::F32(weight) = weight else { bail!("parameters are f32") };
        let (Some(range), Some(from)) = (weight_at.contiguous_offsets(), gradient_at.contiguous_offsets()) else {
            bail!("contiguous tensors are needed")
        };
        let (weight, gradient) = (&mut weight[range.0..range.1], &gradient.as_slice::<f32>()?[from.0..from.1]);
        let (mut m, mut v) = (self.m.borrow_mut(), self.v.borrow_mut());
        let Rates { rate, keep, beta_1, beta_2, scale_m, scale_v, epsilon, gradient: scale } = self.rates;
        let chunks = weight.par_chunks_mut(CHUNK).zip(gradient.par_chunks(CHUNK));
        chunks.zip(m.par_chunks_mut(CHUNK).zip(v.par_chunks_mut(CHUNK))).for_each(|((weight, gradient), (m, v))| {
            for (((w, g), m), v) in weight.iter_mut().zip(gradient).zip(m).zip(v) {
                let g = g * scale;
                *m = *m * beta_1 + g * (1.0 - beta_1);
                *v = *v * beta_2 + g * g * (1.0 - beta_2);
                *w = *w * keep - rate * (*m * scale_m) / ((*v * scale_v).sqrt() + epsilon);
            }
        });
        Ok(())
    }
}
