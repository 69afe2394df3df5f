//! A network with a step for each value and each channel.

use super::calibrate::{Calibration, tensors, walk};
use super::step::{Activations, PerWeight, Range, Step};
use super::{ValueError, errors, insert};
use crate::export::{Onnx, network};
use candle_core::Tensor;
use gpulab::error::{Error, Result};
use gpulab_nn::memory::{Layer, Network};
use rayon::prelude::*;

/// How to quantise.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Settings {
    /// Which integers stand for activations.
    pub activations: Activations,
    /// How many steps a weight has.
    pub weights: PerWeight,
}

impl Default for Settings {
    /// What ONNX Runtime's CPU computes fastest and most exactly.
    fn default() -> Settings {
        Settings { activations: Activations::U8, weights: PerWeight::Channel }
    }
}

/// A network in 8-bit integers.
#[derive(Debug, Clone)]
pub struct Quantised {
    network: Network,
    parameters: Vec<Vec<f32>>,
    /// Value and range, as calibrated; the first is the input.
    pub ranges: Vec<(String, Range)>,
    /// Value and step, in the same order.
    pub steps: Vec<(String, Step)>,
    /// The steps of each weight, biases left out: one for each channel, or one.
    pub weights: Vec<Vec<Step>>,
}

impl Quantised {
    /// Takes the steps from ranges that [`super::calibrate`] noted for the same network.
    ///
    /// # Errors
    /// [`Error::Invalid`] when the arrays are not those of the layers.
    pub fn new(network: &Network, parameters: &[&[f32]], seen: &Calibration, settings: Settings) -> Result<Quantised> {
        let shapes: Vec<Vec<usize>> = network.layers.iter().flat_map(Layer::parameters).collect();
        if shapes.len() != parameters.len() {
            return Err(Error::Invalid {
                what: format!(
                    "the network has {} parameters, and {} arrays were given",
                    shapes.len(),
                    parameters.len()
                ),
                fix: "give one array for each shape that `Layer::parameters` lists, in order".to_string(),
            });
        }
        let step = |(name, range): &(String, Range)| (name.clone(), Step::of(*range, settings.activations));
        let weight = |(shape, numbers): (&Vec<usize>, &&[f32])| {
            let channels = if settings.weights == PerWeight::Channel { shape[0] } else { 1 };
            numbers.chunks(numbers.len() / channels).map(|channel| Step::symmetric(Range::of(channel))).collect()
        };
        Ok(Quantised {
            network: network.clone(),
            parameters: parameters.iter().map(|numbers| numbers.to_vec()).collect(),
            ranges: seen.ranges.clone(),
            steps: seen.ranges.iter().map(step).collect(),
            // A layer has a weight and a bias.
            weights: shapes.iter().zip(parameters).step_by(2).map(weight).collect(),
        })
    }

    /// The model as ONNX, with a pair of `QuantizeLinear` and `DequantizeLinear` for each value, weights in 8 bits and
    /// biases in 32.
    ///
    /// # Errors
    /// As [`crate::export::network`].
    pub fn model(&self, input: &str, output: &str) -> Result<Onnx> {
        let arrays: Vec<&[f32]> = self.parameters.iter().map(Vec::as_slice).collect();
        insert::pairs(network(&self.network, &arrays, input, output)?, self)
    }

    /// What the integers make of examples, computed on candle: each value and each weight rounded to its step.
    ///
    /// # Errors
    /// candle's error when the examples have another shape.
    pub fn outputs(&self, examples: &Tensor) -> Result<Tensor> {
        walk(&self.network, &self.rounded_parameters()?, examples, &mut |name, value| self.round(name, value))
    }

    /// How far each value is from that of the network in f32, in the order in which they come; the last is the output.
    ///
    /// # Errors
    /// As [`Quantised::outputs`].
    pub fn errors(&self, examples: &Tensor) -> Result<Vec<ValueError>> {
        let arrays: Vec<&[f32]> = self.parameters.iter().map(Vec::as_slice).collect();
        let mut exact = Vec::new();
        let last = walk(&self.network, &tensors(&self.network, &arrays)?, examples, &mut |_, value| {
            exact.push(value.flatten_all()?.to_vec1::<f32>()?);
            Ok(value.clone())
        })?;
        exact.push(last.flatten_all()?.to_vec1()?);
        let mut exact = exact.iter();
        let mut errors = Vec::new();
        let last = walk(&self.network, &self.rounded_parameters()?, examples, &mut |name, value| {
            let rounded = self.round(name, value)?;
            errors.push(errors::of(name, exact.next(), &rounded.flatten_all()?.to_vec1()?));
            Ok(rounded)
        })?;
        errors.push(errors::of("output", exact.next(), &last.flatten_all()?.to_vec1()?));
        Ok(errors)
    }

    /// The step of a value.
    pub(super) fn step(&self, name: &str) -> Option<Step> {
        self.steps.iter().find(|(own, _)| own == name).map(|(_, step)| *step)
    }

    fn round(&self, name: &str, value: &Tensor) -> Result<Tensor> {
        let step = self.step(name).ok_or_else(|| Error::Invalid {
            what: format!("the calibration has no range of `{name}`"),
            fix: "calibrate the same network".to_string(),
        })?;
        let mut numbers: Vec<f32> = value.flatten_all()?.to_vec1()?;
        numbers.par_iter_mut().for_each(|x| *x = step.rounded(*x));
        Ok(Tensor::from_vec(numbers, value.shape(), value.device())?)
    }

    /// Weights as their integers stand for them. A bias is 32 bits wide: what that rounds off is no more than f32 does.
    fn rounded_parameters(&self) -> Result<Vec<Tensor>> {
        let rounded: Vec<Vec<f32>> = self
            .parameters
            .iter()
            .enumerate()
            .map(|(at, numbers)| match at % 2 {
                0 => self
                    .weight_integers(at / 2)
                    .iter()
                    .zip(self.weight_steps(at / 2))
                    .map(|(&q, step)| step.number(q))
                    .collect(),
                _ => numbers.clone(),
            })
            .collect();
        tensors(&self.network, &rounded.iter().map(Vec::as_slice).collect::<Vec<_>>())
    }

    /// The integers of a weight.
    pub(super) fn weight_integers(&self, weight: usize) -> Vec<i32> {
        self.parameters[2 * weight].iter().zip(self.weight_steps(weight)).map(|(&x, step)| step.integer(x)).collect()
    }

    /// For each number of a weight its step.
    fn weight_steps(&self, weight: usize) -> impl Iterator<Item = &Step> {
        let (steps, count) = (&self.weights[weight], self.parameters[2 * weight].len());
        let each = count / steps.len();
        (0..count).map(move |at| &steps[at / each])
    }

    /// The name of the layer that a weight belongs to.
    pub(super) fn layer(&self, weight: usize) -> String {
        let names = crate::export::layers::names(&self.network.layers);
        let with = names.iter().zip(&self.network.layers).filter(|(_, layer)| !layer.parameters().is_empty());
        with.map(|(name, _)| name.clone()).nth(weight).unwrap_or_default()
    }

    /// The shape of a weight.
    pub(super) fn shape(&self, weight: usize) -> Vec<usize> {
        self.network.layers.iter().flat_map(Layer::parameters).step_by(2).nth(weight).unwrap_or_default()
    }

    #[cfg(test)]
    pub(super) fn parameters_mut(&mut self) -> &mut Vec<Vec<f32>> {
        &mut self.parameters
    }

    /// A layer's bias.
    pub(super) fn bias(&self, weight: usize) -> &[f32] {
        &self.parameters[2 * weight + 1]
    }
}
