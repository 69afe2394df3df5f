//! An ONNX file, opened on one provider: its inputs and outputs, tensors that go in and come out, I/O binding, and which
//! provider took which node.

use super::library;
use super::library::{BRING_IT, clear_log, not_opened, said};
use super::provider::{CacheUse, EngineCache, ExecutionProvider};
use crate::export::{Dim, ValueInfo};
use gpulab::error::{Error, Result, same_length};
use ort::memory::{AllocationDevice, AllocatorType, MemoryInfo, MemoryType};
use ort::session::builder::GraphOptimizationLevel;
use ort::session::{IoBinding, Session, SessionInputValue};
use ort::value::{DynValue, Outlet, Tensor, TensorElementType, TensorRef, ValueType};
use ort::{AsPointer, sys};
use std::borrow::Cow;
use std::collections::BTreeMap;
use std::ffi::{CStr, c_char};
use std::path::{Path, PathBuf};
use std::ptr;
use std::time::Instant;

/// An ONNX file, opened on a provider: run it, and ask who computes its nodes.
#[derive(Debug)]
pub struct OnnxModel {
    // Before the session that it belongs to: fields go in this order.
    bound: Option<IoBinding>,
    pub(super) session: Session,
    provider: ExecutionProvider,
    path: PathBuf,
    inputs: Vec<ValueInfo>,
    outputs: Vec<ValueInfo>,
    open_ms: f64,
    engines: Option<EngineCache>,
}

impl OnnxModel {
    /// Opens a file on this provider, or not at all: a provider that is missing is an error with what adds it. Nodes that
    /// it does not take go to the CPU; [`OnnxModel::where_it_runs`] tells.
    ///
    /// # Errors
    /// When ONNX Runtime or the provider is missing, and when the file is damaged, of a newer ONNX, or has an operator that
    /// nobody computes.
    pub fn open(path: impl AsRef<Path>, provider: ExecutionProvider) -> Result<OnnxModel> {
        OnnxModel::open_as(path.as_ref(), provider, None, None)
    }

    /// As [`OnnxModel::open`], with the threads of the CPU provider set, where ONNX Runtime would take one a physical core, and
    /// let them wait in a loop for more work.
    ///
    /// # Errors
    /// As [`OnnxModel::open`].
    pub fn open_with(path: impl AsRef<Path>, provider: ExecutionProvider, threads: CpuThreads) -> Result<OnnxModel> {
        OnnxModel::open_as(path.as_ref(), provider, Some(threads), None)
    }

    /// As [`OnnxModel::open_with`], writing a profile whose file's name begins with `prefix`.
    pub(super) fn open_profiled(
        path: &Path,
        provider: ExecutionProvider,
        threads: CpuThreads,
        prefix: &Path,
    ) -> Result<OnnxModel> {
        OnnxModel::open_as(path, provider, Some(threads), Some(prefix))
    }

    fn open_as(
        path: &Path,
        provider: ExecutionProvider,
        threads: Option<CpuThreads>,
        profile: Option<&Path>,
    ) -> Result<OnnxModel> {
        // The library's own start is no part of the time.
        library::environment()?;
        let engines = match &provider {
            ExecutionProvider::TensorRt(options) => Some(EngineCache::look(&options.cache)),
            _ => None,
        };
        let begun = Instant::now();
        let session = open_session(path, &provider, threads, profile)?;
        let open_ms = begun.elapsed().as_secs_f64() * 1e3;
        let mut model = OnnxModel::from_session(session, provider, path)?;
        (model.open_ms, model.engines) = (open_ms, engines);
        Ok(model)
    }

    /// A session that was made by `ort` itself, with options of its own: `Session::builder(environment)?.with_…()?
    /// .commit_from_file(path)?`. `provider` says where its inputs and outputs are bound, `path` what errors name. Only a
    /// session with the configuration `session.record_ep_graph_assignment_info` = `1` tells who computes its nodes.
    ///
    /// # Errors
    /// When an input or an output is no tensor.
    pub fn from_session(session: Session, provider: ExecutionProvider, path: impl AsRef<Path>) -> Result<OnnxModel> {
        let inputs = session.inputs().iter().map(value_info).collect::<Result<Vec<ValueInfo>>>()?;
        let outputs = session.outputs().iter().map(value_info).collect::<Result<Vec<ValueInfo>>>()?;
        let path = path.as_ref().to_path_buf();
        let (bound, engines) = (None, None);
        Ok(OnnxModel { bound, session, provider, path, inputs, outputs, open_ms: 0.0, engines })
    }

    /// What it takes.
    pub fn inputs(&self) -> &[ValueInfo] {
        &self.inputs
    }

    /// What it gives.
    pub fn outputs(&self) -> &[ValueInfo] {
        &self.outputs
    }

    /// The provider that it was opened on.
    pub fn provider(&self) -> &ExecutionProvider {
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

    /// What TensorRT did with its cache since the file was opened; `None` on other providers.
    pub fn engines(&self) -> Option<CacheUse> {
        self.engines.as_ref().map(EngineCache::since)
    }

    /// Each node of the graph, and the provider that computes it, as ONNX Runtime tells it.
    ///
    /// # Errors
    /// When ONNX Runtime does not tell.
    pub fn node_assignments(&self) -> Result<Vec<NodeAssignment>> {
        library::environment()?;
        nodes_of(&self.session)
    }

    /// The same as a sentence: `12 nodes on CUDAExecutionProvider; 2 nodes on CPUExecutionProvider (Gather, Shape)`.
    ///
    /// # Errors
    /// As [`OnnxModel::node_assignments`].
    pub fn where_it_runs(&self) -> Result<String> {
        Ok(sentence(&self.node_assignments()?, self.provider.name()))
    }

    /// ONNX Runtime's session behind it: metadata, overridable initialisers, whatever this crate does not wrap.
    pub fn session(&self) -> &Session {
        &self.session
    }

    /// The same to change or run: [`OnnxModel::run`] is `session.run(ort::inputs![…])` with inputs that were checked,
    /// [`OnnxModel::bind`] is `session.create_binding()`, `bind_input` and `bind_output_to_device`.
    pub fn session_mut(&mut self) -> &mut Session {
        &mut self.session
    }

    /// Runs the model: `model.run(&[("image", &image)])?`. Inputs are checked first. Outputs come by name, in the model's
    /// order. On a GPU every call copies in both directions: to call often, see [`OnnxModel::bind`].
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
        check_inputs(&self.inputs, inputs)
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
            let mut bound = begin_binding(&self.session)?;
            bind_outputs(&mut bound, &self.outputs, self.provider.on_cuda())?;
            self.bound = Some(bound);
        }
        self.bound.as_mut().map_or(Ok(()), |bound| bind_inputs(bound, inputs))
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
        bind_outputs(bound, &self.outputs, false)?;
        let run = self.session.run_binding(bound).map_err(|error| failed(&self.path, &error));
        let found = run.and_then(|outputs| {
            outputs.iter().map(|(name, value)| Ok((name.to_string(), OnnxTensor::of(name, &value)?))).collect()
        });
        bind_outputs(bound, &self.outputs, self.provider.on_cuda())?;
        found
    }
}

fn unbound() -> Error {
    Error::invalid(
        "this model's inputs are not bound",
        "call `model.bind(&[(name, &tensor)])?` first, or use `model.run`",
    )
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
        // The session asks for exact sums, for which ONNX Runtime rewrites 8-bit weights on such a CPU.
        _ if text.contains("x_zero_point must be null") => {
            "on a CPU without VNNI ONNX Runtime wants a zero point beside each 8-bit weight with a step for each channel: \
             write it into the file, all 0"
        }
        _ if text.contains("invalid dimensions") || text.contains("shape") => {
            "look at the shapes of the inputs together: one dimension follows from another"
        }
        _ => "read ONNX Runtime's words above; `model.inputs()` lists what it takes",
    };
    said(&format!("{} did not run", path.display()), error, fix)
}

/// The threads that share out one call of the CPU provider.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CpuThreads {
    /// How many, with the one that calls.
    pub count: usize,
    /// Whether they wait for more work in a loop, which takes cores from everybody else, or sleep.
    pub spin: bool,
}

impl CpuThreads {
    /// One for each core that this process may use, as candle's layers have; between two calls they sleep, so that they take no
    /// core from another pool of threads.
    pub fn all() -> CpuThreads {
        CpuThreads { count: std::thread::available_parallelism().map_or(1, usize::from), spin: false }
    }
}

fn open_session(
    path: &Path,
    provider: &ExecutionProvider,
    threads: Option<CpuThreads>,
    profile: Option<&Path>,
) -> Result<Session> {
    let environment = library::environment()?;
    readable(path)?;
    let begin = || -> ort::Result<ort::session::builder::SessionBuilder> {
        let mut builder = Session::builder(environment)?
            .with_optimization_level(GraphOptimizationLevel::All)?
            .with_config_entry(RECORD.0, RECORD.1)?
            .with_config_entry(EXACT_SUMS, if sums_fit() { "0" } else { "1" })?;
        if let Some(threads) = threads {
            let spin = if threads.spin { "1" } else { "0" };
            builder = builder
                .with_intra_threads(threads.count)?
                .with_config_entry("session.intra_op.allow_spinning", spin)?;
        }
        match profile {
            Some(prefix) => Ok(builder.with_profiling(prefix)?),
            None => Ok(builder),
        }
    };
    let builder = begin().map_err(|error| said("no session was begun", &error, BRING_IT))?;
    let mut builder = provider.register(builder)?;
    clear_log();
    builder.commit_from_file(path).map_err(|error| not_opened(path, &library::version().unwrap_or_default(), &error))
}

/// A missing or an empty file has the system's own words.
fn readable(path: &Path) -> Result<()> {
    let wrong = |text: String, fix: &str| {
        Err(Error::File { path: path.to_path_buf(), during: "open".to_string(), text, fix: fix.to_string() })
    };
    match std::fs::metadata(path) {
        Err(error) => {
            wrong(error.to_string(), "give the path of an .onnx file; lesson 42 and `make export-onnx` write some")
        }
        Ok(about) if about.is_dir() => wrong("it is a folder".to_string(), "give the .onnx file in it"),
        Ok(about) if about.len() == 0 => wrong("it is empty".to_string(), "export it again"),
        Ok(_) => Ok(()),
    }
}

/// An input or an output as the session tells it.
fn value_info(outlet: &Outlet) -> Result<ValueInfo> {
    let ValueType::Tensor { ty, shape, dimension_symbols } = outlet.dtype() else {
        return Err(Error::unsupported(
            format!("`{}` is a {}, and no tensor", outlet.name(), outlet.dtype()),
            "export a model whose inputs and outputs are tensors",
        ));
    };
    let dim = |(at, extent): (usize, &i64)| match usize::try_from(*extent) {
        Ok(extent) => Dim::Fixed(extent),
        Err(_) => Dim::Free(dimension_symbols.get(at).map_or(String::new(), |name| name.to_string())),
    };
    let shape = shape.iter().enumerate().map(dim).collect();
    Ok(ValueInfo { name: outlet.name().to_string(), dtype: ty.to_string(), shape })
}

impl ValueInfo {
    /// Whether a tensor fits; `named` holds the extents that names have got so far.
    fn takes(&self, tensor: &OnnxTensor, named: &mut BTreeMap<String, (usize, String)>) -> Result<()> {
        let refuse = |what: String, fix: &str| Err(Error::invalid(what, fix.to_string()));
        if tensor.data.dtype() != self.dtype {
            let fix = format!("give `{}` a tensor of {}", self.name, self.dtype);
            return refuse(
                format!("input `{}` takes {}, and got {}", self.name, self.dtype, tensor.data.dtype()),
                &fix,
            );
        }
        if tensor.shape.len() != self.shape.len() {
            let fix = format!("shape it to {self}");
            let (wanted, given) = (self.shape.len(), tensor.shape.len());
            return refuse(
                format!("input `{self}` has {wanted} dimensions, and got {given}: {:?}", tensor.shape),
                &fix,
            );
        }
        for (at, (extent, &given)) in self.shape.iter().zip(&tensor.shape).enumerate() {
            match extent {
                Dim::Fixed(wanted) if *wanted != given => {
                    return refuse(
                        format!("input `{self}` got the shape {:?}: dimension {at} must be {wanted}", tensor.shape),
                        "shape the tensor so; only the named dimensions are free",
                    );
                }
                Dim::Free(name) if !name.is_empty() => {
                    let (before, by) = named.entry(name.clone()).or_insert_with(|| (given, self.name.clone())).clone();
                    if before != given {
                        return refuse(
                            format!("`{name}` is {before} in input `{by}` and {given} in input `{}`", self.name),
                            "dimensions of one name must agree",
                        );
                    }
                }
                _ => {}
            }
        }
        Ok(())
    }
}

/// Checks a call's inputs: each name once, known, none missing, types and shapes as the ports ask.
pub(super) fn check_inputs(ports: &[ValueInfo], inputs: &[(&str, &OnnxTensor)]) -> Result<()> {
    let all = ports.iter().map(|port| format!("`{port}`")).collect::<Vec<String>>().join(", ");
    for (at, (name, _)) in inputs.iter().enumerate() {
        if !ports.iter().any(|port| port.name == *name) {
            return Err(Error::invalid(
                format!("the model has no input `{name}`; it takes {all}"),
                "give each of these by its name; `model.inputs()` lists them",
            ));
        }
        if inputs[..at].iter().any(|(before, _)| before == name) {
            let fix = "give each input once".to_string();
            return Err(Error::invalid(format!("input `{name}` was given twice"), fix));
        }
    }
    let mut named = BTreeMap::new();
    for port in ports {
        let Some((_, tensor)) = inputs.iter().find(|(name, _)| *name == port.name) else {
            return Err(Error::invalid(
                format!("input `{port}` is missing; the model takes {all}"),
                "give all of them by their names",
            ));
        };
        port.takes(tensor, &mut named)?;
    }
    Ok(())
}

/// The numbers of a tensor, row-major.
#[derive(Debug, Clone, PartialEq)]
#[allow(missing_docs)] // a variant an element type
pub enum OnnxData {
    F32(Vec<f32>),
    I64(Vec<i64>),
    I32(Vec<i32>),
    I8(Vec<i8>),
    U8(Vec<u8>),
    Bool(Vec<bool>),
}

/// The same expression for the numbers of every type.
macro_rules! each {
    ($of:expr, $data:ident => $result:expr) => {
        match $of {
            OnnxData::F32($data) => $result,
            OnnxData::I64($data) => $result,
            OnnxData::I32($data) => $result,
            OnnxData::I8($data) => $result,
            OnnxData::U8($data) => $result,
            OnnxData::Bool($data) => $result,
        }
    };
}

impl OnnxData {
    /// The element type: `f32`, `i64` …
    pub fn dtype(&self) -> &'static str {
        match self {
            OnnxData::F32(_) => "f32",
            OnnxData::I64(_) => "i64",
            OnnxData::I32(_) => "i32",
            OnnxData::I8(_) => "i8",
            OnnxData::U8(_) => "u8",
            OnnxData::Bool(_) => "bool",
        }
    }

    /// How many numbers.
    pub fn len(&self) -> usize {
        each!(self, data => data.len())
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

macro_rules! from_vec {
    ($($variant:ident: $type:ty),*) => {
        $(impl From<Vec<$type>> for OnnxData {
            fn from(data: Vec<$type>) -> OnnxData {
                OnnxData::$variant(data)
            }
        })*
    };
}
from_vec!(F32: f32, I64: i64, I32: i32, I8: i8, U8: u8, Bool: bool);

/// A tensor on the host: what a model is given, and what it gives.
#[derive(Debug, Clone, PartialEq)]
pub struct OnnxTensor {
    /// Its extents, outermost first.
    pub shape: Vec<usize>,
    /// Its numbers, row-major.
    pub data: OnnxData,
}

impl OnnxTensor {
    /// A tensor of this shape: `OnnxTensor::new(&[1, 28, 28], vec![0f32; 784])?`.
    ///
    /// # Errors
    /// When the shape asks for another number of elements.
    pub fn new(shape: &[usize], data: impl Into<OnnxData>) -> Result<OnnxTensor> {
        let data = data.into();
        same_length(format!("a tensor {shape:?}"), shape.iter().product(), data.len())?;
        Ok(OnnxTensor { shape: shape.to_vec(), data })
    }

    /// The numbers of an f32 tensor.
    ///
    /// # Errors
    /// When they are of another type.
    pub fn f32s(&self) -> Result<&[f32]> {
        match &self.data {
            OnnxData::F32(data) => Ok(data),
            other => Err(Error::invalid(
                format!("this tensor holds {}, and no f32", other.dtype()),
                "match on its field `data`",
            )),
        }
    }

    /// What ONNX Runtime reads, without a copy.
    pub(super) fn view(&self) -> ort::Result<SessionInputValue<'_>> {
        let shape = self.shape.clone();
        Ok(each!(&self.data, data => TensorRef::from_array_view((shape, data.as_slice()))?.into_dyn().into()))
    }

    /// A copy that ONNX Runtime keeps. Binding asks for one: `ort` would copy what it does not own by a session of its own,
    /// whose lock it holds already then, and wait for ever (2.0.0-rc.15).
    pub(super) fn owned(&self) -> ort::Result<DynValue> {
        let shape = self.shape.clone();
        Ok(each!(&self.data, data => Tensor::from_array((shape, data.clone()))?.into_dyn()))
    }

    /// A copy of the output; it must lie on the host.
    pub(super) fn of(name: &str, value: &DynValue) -> Result<OnnxTensor> {
        let extract = || -> ort::Result<Option<OnnxTensor>> {
            let Some(dtype) = value.dtype().tensor_type() else { return Ok(None) };
            let shape = value.dtype().tensor_shape().map(|shape| shape.iter().map(|&extent| extent as usize).collect());
            let data = match dtype {
                TensorElementType::Float32 => value.try_extract_tensor::<f32>()?.1.to_vec().into(),
                TensorElementType::Int64 => value.try_extract_tensor::<i64>()?.1.to_vec().into(),
                TensorElementType::Int32 => value.try_extract_tensor::<i32>()?.1.to_vec().into(),
                TensorElementType::Int8 => value.try_extract_tensor::<i8>()?.1.to_vec().into(),
                TensorElementType::Uint8 => value.try_extract_tensor::<u8>()?.1.to_vec().into(),
                TensorElementType::Bool => value.try_extract_tensor::<bool>()?.1.to_vec().into(),
                _ => return Ok(None),
            };
            Ok(Some(OnnxTensor { shape: shape.unwrap_or_default(), data }))
        };
        let fix = "export the model with outputs of f32 or whole numbers".to_string();
        match extract() {
            Ok(Some(tensor)) => Ok(tensor),
            Ok(None) => Err(Error::unsupported(
                format!("output `{name}` is a {}, which this crate does not read", value.dtype()),
                fix,
            )),
            Err(error) => Err(said(&format!("output `{name}` was not read"), &error, &fix)),
        }
    }
}

/// From candle and back, where both are there.
mod candle {
    use super::{OnnxData, OnnxTensor};
    use candle_core::{DType, Device, Tensor};
    use gpulab::error::{Error, Result};

    impl TryFrom<&Tensor> for OnnxTensor {
        type Error = Error;

        /// A copy on the host; f32, i64, u8 as they are, u32 as i64, halves as f32.
        fn try_from(tensor: &Tensor) -> Result<OnnxTensor> {
            let read = || -> candle_core::Result<OnnxData> {
                let flat = tensor.flatten_all()?;
                Ok(match flat.dtype() {
                    DType::I64 => flat.to_vec1::<i64>()?.into(),
                    DType::U32 => flat.to_dtype(DType::I64)?.to_vec1::<i64>()?.into(),
                    DType::U8 => flat.to_vec1::<u8>()?.into(),
                    _ => flat.to_dtype(DType::F32)?.to_vec1::<f32>()?.into(),
                })
            };
            let data = read().map_err(|error| failed("copy a candle tensor", &error))?;
            Ok(OnnxTensor { shape: tensor.dims().to_vec(), data })
        }
    }

    impl OnnxTensor {
        /// The same numbers in candle.
        ///
        /// # Errors
        /// For element types that candle lacks (i8, bool), and what candle reports.
        pub fn to_candle(&self, device: &Device) -> Result<Tensor> {
            let shape = self.shape.as_slice();
            let made = match &self.data {
                OnnxData::F32(data) => Tensor::from_slice(data, shape, device),
                OnnxData::I64(data) => Tensor::from_slice(data, shape, device),
                OnnxData::U8(data) => Tensor::from_slice(data, shape, device),
                OnnxData::I32(data) => {
                    let data: Vec<i64> = data.iter().map(|&value| i64::from(value)).collect();
                    Tensor::from_slice(&data, shape, device)
                }
                other => {
                    return Err(Error::unsupported(
                        format!("candle has no tensors of {}", other.dtype()),
                        "read the field `data` itself",
                    ));
                }
            };
            made.map_err(|error| failed("make a candle tensor", &error))
        }
    }

    fn failed(what: &str, error: &candle_core::Error) -> Error {
        Error::unsupported(format!("cannot {what}: {error}"), "look at the tensor's device, type and shape")
    }
}

fn unbindable(what: &str, error: &ort::Error) -> Error {
    said(what, error, "use `model.run`, which needs no binding")
}

/// A binding of that session, without inputs and outputs yet.
pub(super) fn begin_binding(session: &Session) -> Result<IoBinding> {
    session.create_binding().map_err(|error| unbindable("inputs and outputs were not bound", &error))
}

/// These inputs in place of those before, copied to where the provider computes.
pub(super) fn bind_inputs(binding: &mut IoBinding, inputs: &[(&str, &OnnxTensor)]) -> Result<()> {
    for (name, tensor) in inputs {
        let bound = tensor.owned().and_then(|value| binding.bind_input(*name, &value));
        bound.map_err(|error| unbindable(&format!("input `{name}` was not bound"), &error))?;
    }
    binding.synchronize_inputs().map_err(|error| unbindable("the inputs did not arrive", &error))
}

/// Outputs stay on the GPU, or come to the host; their shapes follow from the inputs of each run.
pub(super) fn bind_outputs(binding: &mut IoBinding, ports: &[ValueInfo], on_cuda: bool) -> Result<()> {
    let device = if on_cuda { AllocationDevice::CUDA } else { AllocationDevice::CPU };
    let place = |binding: &mut IoBinding| -> ort::Result<()> {
        binding.clear_outputs();
        let memory = MemoryInfo::new(device, 0, AllocatorType::Device, MemoryType::Default)?;
        ports.iter().try_for_each(|port| binding.bind_output_to_device(port.name.as_str(), &memory))
    };
    place(binding).map_err(|error| unbindable("the outputs were not bound", &error))
}

/// The setting that has products of 8 bits summed up exactly, by other kernels. On an x86 CPU that has AVX2 and no VNNI, ONNX
/// Runtime else adds pairs of products in 16 bits, which are too few for them: the logits of lesson 42's network were off by 12 %
/// of the largest, and 0.3 % with this. Where the sums fit anyway it would only take the faster kernels away.
const EXACT_SUMS: &str = "session.x64quantprecision";

/// Whether this processor's own products of 8 bits have room for their sums: VNNI adds them in 32 bits.
fn sums_fit() -> bool {
    #[cfg(target_arch = "x86_64")]
    return [is_x86_feature_detected!("avx512vnni"), is_x86_feature_detected!("avxvnni")].contains(&true);
    #[cfg(not(target_arch = "x86_64"))]
    true
}

/// The setting that has a session keep it.
pub(super) const RECORD: (&str, &str) = ("session.record_ep_graph_assignment_info", "1");

/// A node of the graph, and the provider that computes it.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct NodeAssignment {
    /// The node's name in the file; empty where it has none.
    pub node: String,
    /// Its operator, such as `Conv`.
    pub operator: String,
    /// ONNX Runtime's name of the provider, such as `CUDAExecutionProvider`.
    pub provider: String,
    /// Nodes of one number were handed over together: TensorRT and CoreML make one program of them.
    pub part: usize,
}

/// Reads a text that belongs to ONNX Runtime.
type Text<T> = unsafe extern "system" fn(*const T, *mut *const c_char) -> sys::OrtStatusPtr;

fn text<T>(function: Text<T>, of: *const T) -> ort::Result<String> {
    let mut text = ptr::null();
    // SAFETY: `of` was given by the session, which is alive; the text is its own and is copied here.
    unsafe {
        ort::Error::result_from_status(function(of, &mut text))?;
        Ok(if text.is_null() { String::new() } else { CStr::from_ptr(text).to_string_lossy().into_owned() })
    }
}

/// The list behind a function that gives a pointer and a count.
fn list<'s, T>(
    call: impl FnOnce(*mut *const *const T, *mut usize) -> sys::OrtStatusPtr,
) -> ort::Result<&'s [*const T]> {
    let (mut first, mut count) = (ptr::null(), 0);
    // SAFETY: ONNX Runtime's list of so many pointers; it lives as long as the session, longer than this module's use.
    unsafe {
        ort::Error::result_from_status(call(&mut first, &mut count))?;
        Ok(if first.is_null() || count == 0 { &[] } else { std::slice::from_raw_parts(first, count) })
    }
}

/// All nodes of a session that was opened with [`RECORD`].
pub(super) fn nodes_of(session: &Session) -> Result<Vec<NodeAssignment>> {
    read_nodes(session).map_err(|error| {
        said(
            "which provider took which node could not be read",
            &error,
            "use the ONNX Runtime that `make setup` brings",
        )
    })
}

fn read_nodes(session: &Session) -> ort::Result<Vec<NodeAssignment>> {
    let api = ort::api();
    let mut places = Vec::new();
    // SAFETY: the session is alive, and was opened with the setting that this call asks for.
    let parts = list(|first, count| unsafe { (api.Session_GetEpGraphAssignmentInfo)(session.ptr(), first, count) })?;
    for (part, &subgraph) in parts.iter().enumerate() {
        let provider = text(api.EpAssignedSubgraph_GetEpName, subgraph)?;
        // SAFETY: a part that the session has just given.
        let nodes = list(|first, count| unsafe { (api.EpAssignedSubgraph_GetNodes)(subgraph, first, count) })?;
        for &node in nodes {
            places.push(NodeAssignment {
                node: text(api.EpAssignedNode_GetName, node)?,
                operator: text(api.EpAssignedNode_GetOperatorType, node)?,
                provider: provider.clone(),
                part,
            });
        }
    }
    Ok(places)
}

/// `12 nodes on CUDAExecutionProvider; 2 on CPUExecutionProvider (Shape, Gather)`: where the nodes are; the operators of
/// those that are not on the provider that was asked for are named.
pub(super) fn sentence(places: &[NodeAssignment], asked: &str) -> String {
    let mut names: Vec<&str> = Vec::new();
    for place in places {
        if !names.contains(&place.provider.as_str()) {
            names.push(&place.provider);
        }
    }
    names.sort_by_key(|name| *name != asked);
    let about = names.iter().map(|&name| {
        let of: Vec<&NodeAssignment> = places.iter().filter(|place| place.provider == name).collect();
        let mut operators: Vec<&str> = of.iter().map(|place| place.operator.as_str()).collect();
        operators.sort_unstable();
        operators.dedup();
        let which = if name == asked { String::new() } else { format!(" ({})", operators.join(", ")) };
        format!("{} {} on {name}{which}", of.len(), if of.len() == 1 { "node" } else { "nodes" })
    });
    about.collect::<Vec<String>>().join("; ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_fallback_is_named_with_its_operators() {
        let place = |operator: &str, provider: &str| NodeAssignment {
            node: String::new(),
            operator: operator.to_string(),
            provider: provider.to_string(),
            part: 0,
        };
        let places = [place("Shape", "C"), place("Conv", "G"), place("Gather", "C"), place("Shape", "C")];
        assert_eq!(sentence(&places, "G"), "1 node on G; 3 nodes on C (Gather, Shape)");
        assert_eq!(sentence(&[], "G"), "");
    }
}
