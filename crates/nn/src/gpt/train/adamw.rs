//! AdamW (Loshchilov and Hutter, "Decoupled Weight Decay Regularization"), with moments that a checkpoint can keep.

use gpulab::error::Result;
use candle_core::backprop::GradStore;
use candle_core::{Tensor, Var};
use std::collections::BTreeMap;

const BETA_1: f64 = 0.9;
const BETA_2: f64 = 0.99;
const EPSILON: f64 = 1e-8;
/// Of matrices; scales, biases are left alone.
const DECAY: f64 = 0.1;
/// Gradients whose norm, over all parameters, is larger are made this long.
const LONGEST: f64 = 1.0;

/// The two moments of each parameter.
#[derive(Debug)]
pub(super) struct AdamW {
    pub m: BTreeMap<String, Tensor>,
    pub v: BTreeMap<String, Tensor>,
    pub steps: u64,
}

impl AdamW {
    pub fn new(parameters: &BTreeMap<String, Var>) -> Result<AdamW> {
        let zeros =
            || parameters.iter().map(|(name, var)| Ok((name.clone(), var.zeros_like()?))).collect::<Result<_>>();
        Ok(AdamW { m: zeros()?, v: zeros()?, steps: 0 })
    }

    /// The Euclidean norm of all gradients together: one number fetched from the device.
    pub fn norm(&self, parameters: &BTreeMap<String, Var>, gradients: &GradStore) -> Result<f64> {
        let squares = parameters.values().filter_map(|var| gradients.get(var.as_tensor()));
        let squares = squares.map(|gradient| Ok(gradient.sqr()?.sum_all()?)).collect::<Result<Vec<Tensor>>>()?;
        Ok(f64::from(Tensor::stack(&squares, 0)?.sum_all()?.to_scalar::<f32>()?).sqrt())
    }

    /// Moves the parameters. `norm` is [`AdamW::norm`] of these gradients.
    pub fn step(
        &mut self,
        parameters: &BTreeMap<String, Var>,
        gradients: &GradStore,
        rate: f64,
        norm: f64,
    ) -> Result<()> {
        self.steps += 1;
        let shrink = (LONGEST / norm.max(1e-12)).min(1.0);
        // Both moments start at 0; this is how far they still are from a true mean.
        let warm_1 = 1.0 - BETA_1.powf(self.steps as f64);
        let warm_2 = 1.0 - BETA_2.powf(self.steps as f64);
        for (name, var) in parameters {
            let Some(gradient) = gradients.get(var.as_tensor()) else { continue };
            // Without `detach` each moment would keep the graph of all steps before.
            let gradient = (gradient.detach() * shrink)?;
            let m = ((&self.m[name] * BETA_1)? + (&gradient * (1.0 - BETA_1))?)?;
            let v = ((&self.v[name] * BETA_2)? + (gradient.sqr()? * (1.0 - BETA_2))?)?;
            let way = ((&m / warm_1)? / ((&v / warm_2)?.sqrt()? + EPSILON)?)?;
            let decay = if var.rank() > 1 { rate * DECAY } else { 0.0 };
            let value = var.as_tensor().detach();
            var.set(&((value * (1.0 - decay))? - (way * rate)?)?)?;
            self.m.insert(name.clone(), m);
            self.v.insert(name.clone(), v);
        }
        Ok(())
    }
}
