//! Who computes: ONNX Runtime's execution providers, which of them this machine has, and what adds the others.

use super::cuda_libraries;
use super::library::{self, BRING_IT};
use super::log;
use super::said::{said, words};
use super::tensorrt::{self, TensorRt};
use gpulab::error::{Error, Result};
use ort::ep::{self, ExecutionProviderDispatch};
use ort::session::Session;
use ort::session::builder::SessionBuilder;
use std::fmt;

/// An execution provider of ONNX Runtime.
#[derive(Debug, Clone, PartialEq)]
pub enum Provider {
    /// The CPU; it is always there.
    Cpu,
    /// An NVIDIA GPU, by kernels of ONNX Runtime, cuDNN and cuBLAS, in f32 without TF32.
    Cuda,
    /// An NVIDIA GPU, by an engine that TensorRT builds from the graph. What it does not take falls to CUDA, then to the CPU.
    TensorRt(TensorRt),
    /// Apple's CoreML: the Mac's GPU or neural engine, as it decides.
    CoreMl,
}

/// A provider that cannot be had here, and why.
#[derive(Debug, Clone, PartialEq)]
pub struct Missing {
    /// Which one.
    pub provider: Provider,
    /// Why, in ONNX Runtime's or the loader's own words where they said something.
    pub why: String,
    /// What adds it.
    pub add: String,
}

impl fmt::Display for Missing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} is missing: {}\nnext: {}", self.provider, self.why, self.add)
    }
}

impl From<Missing> for Error {
    fn from(missing: Missing) -> Error {
        Error::Unsupported { what: format!("{} is missing: {}", missing.provider, missing.why), fix: missing.add }
    }
}

impl fmt::Display for Provider {
    /// `ONNX Runtime CUDA`, `ONNX Runtime TensorRT fp16` …
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Provider::Cpu => f.write_str("ONNX Runtime CPU"),
            Provider::Cuda => f.write_str("ONNX Runtime CUDA"),
            Provider::TensorRt(options) => write!(f, "ONNX Runtime TensorRT {}", options.precision()),
            Provider::CoreMl => f.write_str("ONNX Runtime CoreML"),
        }
    }
}

impl Provider {
    /// Its name in ONNX Runtime: what [`NodePlace::provider`](super::NodePlace) says of a node that it took.
    pub fn name(&self) -> &'static str {
        match self {
            Provider::Cpu => "CPUExecutionProvider",
            Provider::Cuda => "CUDAExecutionProvider",
            Provider::TensorRt(_) => "TensorrtExecutionProvider",
            Provider::CoreMl => "CoreMLExecutionProvider",
        }
    }

    /// Whether its memory is an NVIDIA GPU's.
    pub(super) fn on_cuda(&self) -> bool {
        matches!(self, Provider::Cuda | Provider::TensorRt(_))
    }

    /// What adds it.
    fn add(&self) -> String {
        match self {
            Provider::Cpu => BRING_IT.to_string(),
            Provider::Cuda => {
                "run `make setup LESSONS=42` on a machine with an NVIDIA driver (`make verify` shows it): it \
                               brings onnxruntime-gpu and the CUDA libraries that it needs"
                    .to_string()
            }
            Provider::TensorRt(_) => {
                "run `make setup LESSONS=42 TENSORRT=1` on a machine with an NVIDIA driver: it fetches \
                                      TensorRT from NVIDIA (some GB)"
                    .to_string()
            }
            Provider::CoreMl => "CoreML is part of macOS: run it on a Mac".to_string(),
        }
    }

    pub(super) fn missing(&self, why: impl Into<String>) -> Missing {
        Missing { provider: self.clone(), why: why.into(), add: self.add() }
    }

    /// This one, and those that take what it leaves, first to last; the CPU stands behind all of them.
    fn chain(&self) -> Vec<Provider> {
        match self {
            Provider::Cpu => Vec::new(),
            Provider::TensorRt(_) => vec![self.clone(), Provider::Cuda],
            _ => vec![self.clone()],
        }
    }

    fn dispatch(&self) -> ExecutionProviderDispatch {
        let made: ExecutionProviderDispatch = match self {
            Provider::Cpu => ep::CPU::default().into(),
            Provider::Cuda => ep::CUDA::default().with_tf32(false).into(),
            Provider::TensorRt(options) => options.dispatch(),
            Provider::CoreMl => ep::CoreML::default().into(),
        };
        made.error_on_failure()
    }

    /// A session's options with this provider, and those behind it, registered.
    pub(super) fn register(&self, mut builder: SessionBuilder) -> Result<SessionBuilder> {
        for one in self.chain() {
            builder = one.register_alone(builder)?;
        }
        Ok(builder)
    }

    fn register_alone(&self, builder: SessionBuilder) -> Result<SessionBuilder, Missing> {
        if self.on_cuda() {
            cuda_libraries::preload();
        }
        if let Provider::TensorRt(_) = self {
            // ONNX Runtime only says that its own library did not load; the one that is missing is TensorRT's.
            tensorrt::library().map_err(|why| self.missing(why))?;
        }
        log::clear();
        builder.with_execution_providers([self.dispatch()]).map_err(|error| {
            let mut why = format!("ONNX Runtime says: {}", words(error.message()));
            let logged = log::lines();
            // Another cell's copy of this crate may have made the environment, and got the log.
            let more = if logged.is_empty() { cuda_libraries::why_not(self.name()) } else { logged };
            for line in more {
                if !why.contains(&line) {
                    why += &format!("\n  {line}");
                }
            }
            self.missing(why)
        })
    }

    /// Whether it can be had here: its libraries load, and a model of one node opens on it.
    ///
    /// # Errors
    /// When ONNX Runtime itself is missing or too old.
    pub fn look(&self) -> Result<Option<Missing>> {
        let environment = library::environment()?;
        let builder = Session::builder(environment).map_err(|error| said("no session was begun", &error, BRING_IT))?;
        let mut builder = match self.register_alone(builder) {
            Ok(builder) => builder,
            Err(missing) => return Ok(Some(missing)),
        };
        if let Provider::TensorRt(_) = self {
            // An engine for one node would take seconds, and stay in the cache; the GPU and its driver are CUDA's to see.
            return Ok(Provider::Cuda.look()?.map(|cuda| self.missing(cuda.why)));
        }
        let said = |error: ort::Error| self.missing(format!("ONNX Runtime says: {}", words(error.message())));
        Ok(builder.commit_from_memory(ONE_NODE).map_err(said).err())
    }
}

/// y = Relu(x) for one number, as ONNX's own helper writes it (IR 7, opset 13).
const ONE_NODE: &[u8] =
    b"\x08\x07:3\n\x0c\n\x01x\x12\x01y\"\x04Relu\x12\x01gZ\x0f\n\x01x\x12\n\n\x08\x08\x01\x12\x04\n\x02\x08\x01\
b\x0f\n\x01y\x12\n\n\x08\x08\x01\x12\x04\n\x02\x08\x01B\x04\n\0\x10\r";

/// The providers of this machine, the CPU first, and those that are missing, each with what adds it.
///
/// # Errors
/// When ONNX Runtime itself is missing or too old.
pub fn providers() -> Result<(Vec<Provider>, Vec<Missing>)> {
    let mut here = vec![Provider::Cpu];
    let mut missing = Vec::new();
    for provider in [Provider::Cuda, Provider::TensorRt(TensorRt::default()), Provider::CoreMl] {
        match provider.look()? {
            None => here.push(provider),
            Some(why) => missing.push(why),
        }
    }
    Ok((here, missing))
}
