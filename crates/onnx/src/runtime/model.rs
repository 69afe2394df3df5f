//! An ONNX file, opened on one provider.

use super::library;
use super::nodes::{self, NodePlace};
use super::port::{self, Port};
use super::provider::{Missing, Provider};
use super::said::said;
use super::tensor::OnnxTensor;
use super::tensorrt::{CacheUse, EngineCache};
use super::{binding, open};
use gpulab::error::{Error, Result};
use ort::session::{IoBinding, Session, SessionInputValue};
use std::borrow::Cow;
use std::path::{Path, PathBuf};
use std::time::Instant;

/// An ONNX file, opened on a provider: run it, and ask who computes its nodes.
#[derive(Debug)]
pub struct OnnxModel {
    // Before the session that it belongs to: fields go in this order.
    bound: Option<IoBinding>,
    pub(super) session: Session,
    provider: Provider,
    path: PathBuf,
    inputs: Vec<Port>,
    outputs: Vec<Port>,
    open_ms: f64,
    engines: Option<EngineCache>,
    skipped: Vec<Missing>,
}

impl OnnxModel {
    /// Opens a file on this provider, or not at all: a provider that is missing is an error with what adds it. Nodes that
    /// it does not take go to the CPU; [`OnnxModel::where_it_runs`] tells.
    ///
    /// # Errors
    /// When ONNX Runtime or the provider is missing, and when the file is damaged, of a newer ONNX, or has an operator that
    /// nobody computes.
    pub fn open(path: impl AsRef<Path>, provider: Provider) -> Result<OnnxModel> {
        OnnxModel::open_with(path.as_ref(), provider, None, None)
    }

    /// Opens it on the first of these providers that can be had; [`OnnxModel::skipped`] names the others with their reasons.
    ///
    /// # Errors
    /// As [`OnnxModel::open`]; when none of them can be had, that of the last one.
    pub fn open_on_first(path: impl AsRef<Path>, providers: &[Provider]) -> Result<OnnxModel> {
        let mut skipped = Vec::new();
        for provider in providers {
            match provider.look()? {
                Some(missing) => skipped.push(missing),
                None => {
                    let mut model = OnnxModel::open(path, provider.clone())?;
                    model.skipped = skipped;
                    return Ok(model);
                }
            }
        }
        Err(skipped.pop().map(Error::from).unwrap_or_else(|| Error::Invalid {
            what: "no provider was named".to_string(),
            fix: "name some, the best first: `&[Provider::Cuda, Provider::Cpu]`".to_string(),
        }))
    }

    /// As [`OnnxModel::open`], on so many threads of the CPU.
    ///
    /// # Errors
    /// As there.
    pub fn open_on_threads(path: impl AsRef<Path>, provider: Provider, threads: usize) -> Result<OnnxModel> {
        OnnxModel::open_with(path.as_ref(), provider, Some(threads), None)
    }

    pub(super) fn open_with(
        path: &Path,
        provider: Provider,
        threads: Option<usize>,
        profile: Option<&Path>,
    ) -> Result<OnnxModel> {
        // The library's own start is no part of the time.
        library::environment()?;
        let engines = match &provider {
            Provider::TensorRt(options) => Some(EngineCache::look(&options.cache)),
            _ => None,
        };
        let begun = Instant::now();
        let session = open::session(path, &provider, threads, profile)?;
        let open_ms = begun.elapsed().as_secs_f64() * 1e3;
        let inputs = session.inputs().iter().map(Port::of).collect::<Result<Vec<Port>>>()?;
        let outputs = session.outputs().iter().map(Port::of).collect::<Result<Vec<Port>>>()?;
        let (skipped, bound) = (Vec::new(), None);
        Ok(OnnxModel { bound, session, provider, path: path.to_path_buf(), inputs, outputs, open_ms, engines, skipped })
    }

    /// What it takes.
    pub fn inputs(&self) -> &[Port] {
        &self.inputs
    }

    /// What it gives.
    pub fn outputs(&self) -> &[Port] {
        &self.outputs
    }

    /// The provider that it was opened on.
    pub fn provider(&self) -> &Provider {
        &self.provider
    }

    /// The file.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// How long opening took, in ms: reading, optimising, and building TensorRT's engines where shapes are known.
    pub fn open_ms(&self) -> f64 {
        self.open_ms
    }

    /// Those that [`OnnxModel::open_on_first`] would have preferred.
    pub fn skipped(&self) -> &[Missing] {
        &self.skipped
    }

    /// What TensorRT did with its cache since the file was opened; `None` on other providers.
    pub fn engines(&self) -> Option<CacheUse> {
        self.engines.as_ref().map(EngineCache::since)
    }

    /// Each node of the graph, and the provider that computes it, as ONNX Runtime tells it.
    ///
    /// # Errors
    /// When ONNX Runtime does not tell.
    pub fn provider_of_nodes(&self) -> Result<Vec<NodePlace>> {
        library::environment()?;
        nodes::of(&self.session)
    }

    /// The same as a sentence: `12 nodes on CUDAExecutionProvider; 2 nodes on CPUExecutionProvider (Gather, Shape)`.
    ///
    /// # Errors
    /// As [`OnnxModel::provider_of_nodes`].
    pub fn where_it_runs(&self) -> Result<String> {
        Ok(nodes::sentence(&self.provider_of_nodes()?, self.provider.name()))
    }

    /// Runs the model: `model.run(&[("image", &image)])?`. Inputs are checked first. Outputs come by name, in the model's
    /// order. On a GPU every call copies both ways: to call often, see [`OnnxModel::bind`].
    ///
    /// # Errors
    /// For a name that the model does not have, one that is missing, a wrong type or shape, and what ONNX Runtime reports.
    pub fn run(&mut self, inputs: &[(&str, &OnnxTensor)]) -> Result<Vec<(String, OnnxTensor)>> {
        library::environment()?;
        self.check(inputs)?;
        let values = views(inputs)?;
        let path = &self.path;
        let outputs = self.session.run(values).map_err(|error| failed(path, &error))?;
        outputs.iter().map(|(name, value)| Ok((name.to_string(), OnnxTensor::of(name, &value)?))).collect()
    }

    /// Whether these inputs fit, without running anything.
    ///
    /// # Errors
    /// As [`OnnxModel::run`].
    pub fn check(&self, inputs: &[(&str, &OnnxTensor)]) -> Result<()> {
        port::check(&self.inputs, inputs)
    }

    /// Puts the inputs where the provider computes, and keeps the outputs there: [`OnnxModel::run_bound`] then copies nothing
    /// between host and GPU (ONNX Runtime's I/O binding). Called again, it replaces the inputs.
    ///
    /// # Errors
    /// As [`OnnxModel::run`].
    pub fn bind(&mut self, inputs: &[(&str, &OnnxTensor)]) -> Result<()> {
        library::environment()?;
        self.check(inputs)?;
        if self.bound.is_none() {
            let mut bound = binding::begin(&self.session)?;
            binding::outputs(&mut bound, &self.outputs, self.provider.on_cuda())?;
            self.bound = Some(bound);
        }
        self.bound.as_mut().map_or(Ok(()), |bound| binding::set(bound, inputs))
    }

    /// Runs the model on the inputs of [`OnnxModel::bind`], and waits until the outputs are there, on the provider's side.
    ///
    /// # Errors
    /// Without a binding, and what ONNX Runtime reports.
    pub fn run_bound(&mut self) -> Result<()> {
        library::environment()?;
        let bound = self.bound.as_ref().ok_or_else(unbound)?;
        let run = self.session.run_binding(bound).map(drop);
        run.and_then(|()| bound.synchronize_outputs()).map_err(|error| failed(&self.path, &error))
    }

    /// Runs the model on the bound inputs, with its outputs on the host.
    ///
    /// # Errors
    /// As [`OnnxModel::run_bound`].
    pub fn bound_outputs(&mut self) -> Result<Vec<(String, OnnxTensor)>> {
        library::environment()?;
        let bound = self.bound.as_mut().ok_or_else(unbound)?;
        binding::outputs(bound, &self.outputs, false)?;
        let run = self.session.run_binding(bound).map_err(|error| failed(&self.path, &error));
        let found = run.and_then(|outputs| {
            outputs.iter().map(|(name, value)| Ok((name.to_string(), OnnxTensor::of(name, &value)?))).collect()
        });
        binding::outputs(bound, &self.outputs, self.provider.on_cuda())?;
        found
    }
}

fn unbound() -> Error {
    Error::Invalid {
        what: "this model's inputs are not bound".to_string(),
        fix: "call `model.bind(&[(name, &tensor)])?` first, or use `model.run`".to_string(),
    }
}

impl Drop for OnnxModel {
    /// A cell that drops a model has statics of its own: `ort`'s must know the library, or would look for another one.
    fn drop(&mut self) {
        let _ = library::environment();
    }
}

/// The inputs as ONNX Runtime takes them.
pub(super) fn views<'v>(inputs: &[(&'v str, &'v OnnxTensor)]) -> Result<Vec<(Cow<'v, str>, SessionInputValue<'v>)>> {
    let one = |(name, tensor): &(&'v str, &'v OnnxTensor)| {
        let fix = "look at its shape: ONNX Runtime takes no input of more than 2^63 bytes";
        let value = tensor.view().map_err(|error| said(&format!("input `{name}` was not taken"), &error, fix))?;
        Ok((Cow::Borrowed(*name), value))
    };
    inputs.iter().map(one).collect()
}

/// A run that failed.
pub(super) fn failed(path: &Path, error: &ort::Error) -> Error {
    let text = error.message().to_lowercase();
    let fix = match () {
        _ if text.contains("out of memory") || text.contains("failed to allocate") => {
            "use a smaller batch, or drop other models"
        }
        _ if text.contains("invalid dimensions") || text.contains("shape") => {
            "look at the shapes of the inputs together: one dimension follows from another"
        }
        _ => "read ONNX Runtime's words above; `model.inputs()` lists what it takes",
    };
    said(&format!("{} did not run", path.display()), error, fix)
}
