//! AdamW (Loshchilov and Hutter, 2019), as PyTorch and candle define it.

use super::fast::update::{Rates, Update};
use super::{Cnn, Kernels, Parameters};
use gpulab::error::Result;
use candle_core::backprop::GradStore;
use candle_core::{Tensor, Var};
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

    /// The first step of one parameter alone, to see how long it takes.
    pub(super) fn update(&mut self, cnn: &Cnn, at: usize, gradients: &GradStore) -> Result<()> {
        self.steps = 1;
        self.change(cnn, at, gradients, 1.0)
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
