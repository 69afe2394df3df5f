//! Whoever computes a model and can be timed.

use super::provider::Provider;
use super::{OnnxModel, OnnxTensor};
use gpulab::error::Result;
use gpulab::measurement::Backend;
use std::time::Instant;

/// A way to compute a model, timed call by call.
pub trait Contestant {
    /// Its name in tables and legends.
    fn name(&self) -> String;
    /// On what it computes.
    fn backend(&self) -> Backend;
    /// The element type of its arithmetic.
    fn dtype(&self) -> String {
        "f32".to_string()
    }
    /// Puts the inputs where it computes.
    ///
    /// # Errors
    /// When it does not take them.
    fn set(&mut self, inputs: &[(&str, &OnnxTensor)]) -> Result<()>;
    /// One call, waited for.
    ///
    /// # Errors
    /// What it reports.
    fn call(&mut self) -> Result<()>;
    /// The first output of a call, on the host.
    ///
    /// # Errors
    /// What it reports.
    fn output(&mut self) -> Result<Vec<f32>>;
    /// So many calls, each timed, in µs; one call before them is not.
    ///
    /// # Errors
    /// What it reports.
    fn calls(&mut self, count: usize) -> Result<Vec<f64>> {
        self.call()?;
        let one = |_| {
            let begun = Instant::now();
            self.call()?;
            Ok(begun.elapsed().as_secs_f64() * 1e6)
        };
        (0..count).map(one).collect()
    }
}

/// A model on a provider, its inputs and outputs bound.
#[derive(Debug)]
pub struct OnnxContestant {
    /// What tables and legends call it.
    pub name: String,
    /// The model.
    pub model: OnnxModel,
}

impl Contestant for OnnxContestant {
    fn name(&self) -> String {
        self.name.clone()
    }

    fn backend(&self) -> Backend {
        match self.model.provider() {
            Provider::Cpu => Backend::Cpu,
            Provider::Cuda | Provider::TensorRt(_) => Backend::Cuda,
            Provider::CoreMl => Backend::Metal,
        }
    }

    fn dtype(&self) -> String {
        match self.model.provider() {
            Provider::TensorRt(options) if options.fp16 => "f16".to_string(),
            _ => "f32".to_string(),
        }
    }

    fn set(&mut self, inputs: &[(&str, &OnnxTensor)]) -> Result<()> {
        self.model.bind(inputs)
    }

    fn call(&mut self) -> Result<()> {
        self.model.run_bound()
    }

    fn output(&mut self) -> Result<Vec<f32>> {
        let outputs = self.model.bound_outputs()?;
        outputs.first().map_or(Ok(Vec::new()), |(_, tensor)| Ok(tensor.f32s()?.to_vec()))
    }
}
