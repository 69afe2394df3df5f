//! Who computes: ONNX Runtime's execution providers, which of them this machine has, and what adds the others; TensorRT's
//! options, and whether an engine came from its cache.

use super::library;
use super::library::{BRING_IT, clear_log, loader, log_lines, said, words};
use gpulab::error::{Error, Result};
use gpulab::places;
use libloading::Library;
use ort::ep;
use ort::ep::ExecutionProviderDispatch;
use ort::session::Session;
use ort::session::builder::SessionBuilder;
use std::collections::BTreeMap;
use std::fmt;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

/// An execution provider of ONNX Runtime.
#[derive(Debug, Clone, PartialEq)]
pub enum ExecutionProvider {
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
pub struct MissingProvider {
    /// Which one.
    pub provider: ExecutionProvider,
    /// Why, in ONNX Runtime's or the loader's own words where they said something.
    pub why: String,
    /// What adds it.
    pub add: String,
}

impl fmt::Display for MissingProvider {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} is missing: {}\nnext: {}", self.provider, self.why, self.add)
    }
}

impl From<MissingProvider> for Error {
    fn from(missing: MissingProvider) -> Error {
        Error::unsupported(format!("{} is missing: {}", missing.provider, missing.why), missing.add)
    }
}

impl fmt::Display for ExecutionProvider {
    /// `ONNX Runtime CUDA`, `ONNX Runtime TensorRT fp16` …
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ExecutionProvider::Cpu => f.write_str("ONNX Runtime CPU"),
            ExecutionProvider::Cuda => f.write_str("ONNX Runtime CUDA"),
            ExecutionProvider::TensorRt(options) => write!(f, "ONNX Runtime TensorRT {}", options.precision()),
            ExecutionProvider::CoreMl => f.write_str("ONNX Runtime CoreML"),
        }
    }
}

impl ExecutionProvider {
    /// Its name in ONNX Runtime: what [`NodeAssignment::provider`](super::NodeAssignment) says of a node that it took.
    pub fn name(&self) -> &'static str {
        match self {
            ExecutionProvider::Cpu => "CPUExecutionProvider",
            ExecutionProvider::Cuda => "CUDAExecutionProvider",
            ExecutionProvider::TensorRt(_) => "TensorrtExecutionProvider",
            ExecutionProvider::CoreMl => "CoreMLExecutionProvider",
        }
    }

    /// Whether its memory is an NVIDIA GPU's.
    pub(super) fn on_cuda(&self) -> bool {
        matches!(self, ExecutionProvider::Cuda | ExecutionProvider::TensorRt(_))
    }

    /// What adds it.
    fn add(&self) -> String {
        match self {
            ExecutionProvider::Cpu => BRING_IT.to_string(),
            ExecutionProvider::Cuda => {
                "run `make setup LESSONS=42` on a machine with an NVIDIA driver (`make verify` shows it): it \
                               brings onnxruntime-gpu and the CUDA libraries that it needs"
                    .to_string()
            }
            ExecutionProvider::TensorRt(_) => {
                "run `make setup LESSONS=42 TENSORRT=1` on a machine with an NVIDIA driver: it fetches \
                                      TensorRT from NVIDIA (some GB)"
                    .to_string()
            }
            ExecutionProvider::CoreMl => "CoreML is part of macOS: run it on a Mac".to_string(),
        }
    }

    pub(super) fn missing(&self, why: impl Into<String>) -> MissingProvider {
        MissingProvider { provider: self.clone(), why: why.into(), add: self.add() }
    }

    /// This one, and those that take what it leaves, first to last; the CPU stands behind all of them.
    fn chain(&self) -> Vec<ExecutionProvider> {
        match self {
            ExecutionProvider::Cpu => Vec::new(),
            ExecutionProvider::TensorRt(_) => vec![self.clone(), ExecutionProvider::Cuda],
            _ => vec![self.clone()],
        }
    }

    fn dispatch(&self) -> ExecutionProviderDispatch {
        let made: ExecutionProviderDispatch = match self {
            ExecutionProvider::Cpu => ep::CPU::default().into(),
            ExecutionProvider::Cuda => ep::CUDA::default().with_tf32(false).into(),
            ExecutionProvider::TensorRt(options) => options.dispatch(),
            ExecutionProvider::CoreMl => ep::CoreML::default().into(),
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

    fn register_alone(&self, builder: SessionBuilder) -> Result<SessionBuilder, MissingProvider> {
        if self.on_cuda() {
            library::preload();
        }
        if let ExecutionProvider::TensorRt(_) = self {
            // ONNX Runtime only says that its own library did not load; the one that is missing is TensorRT's.
            tensorrt_library().map_err(|why| self.missing(why))?;
        }
        clear_log();
        builder.with_execution_providers([self.dispatch()]).map_err(|error| {
            let mut why = format!("ONNX Runtime says: {}", words(error.message()));
            let logged = log_lines();
            // Another cell's copy of this crate may have made the environment, and got the log.
            let more = if logged.is_empty() { library::why_not(self.name()) } else { logged };
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
    pub fn look(&self) -> Result<Option<MissingProvider>> {
        let environment = library::environment()?;
        let builder = Session::builder(environment).map_err(|error| said("no session was begun", &error, BRING_IT))?;
        let mut builder = match self.register_alone(builder) {
            Ok(builder) => builder,
            Err(missing) => return Ok(Some(missing)),
        };
        if let ExecutionProvider::TensorRt(_) = self {
            // An engine for one node would take seconds, and stay in the cache; the GPU and its driver are CUDA's to see.
            return Ok(ExecutionProvider::Cuda.look()?.map(|cuda| self.missing(cuda.why)));
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
pub fn providers() -> Result<(Vec<ExecutionProvider>, Vec<MissingProvider>)> {
    let mut here = vec![ExecutionProvider::Cpu];
    let mut missing = Vec::new();
    for provider in
        [ExecutionProvider::Cuda, ExecutionProvider::TensorRt(TensorRt::default()), ExecutionProvider::CoreMl]
    {
        match provider.look()? {
            None => here.push(provider),
            Some(why) => missing.push(why),
        }
    }
    Ok((here, missing))
}

/// The range of shapes of one input for which an engine is built.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ShapeRange {
    /// The input's name.
    pub input: String,
    /// The smallest extents.
    pub min: Vec<usize>,
    /// The extents that the engine is tuned for.
    pub opt: Vec<usize>,
    /// The largest extents.
    pub max: Vec<usize>,
}

/// What TensorRT is told when it builds an engine.
#[derive(Debug, Clone, PartialEq)]
pub struct TensorRt {
    /// Half precision is allowed where TensorRT finds it faster.
    pub fp16: bool,
    /// The folder that keeps engines and timings from one session to the next: with one built before, a session opens in
    /// a second, and else in tens of seconds. An engine fits one GPU model, one TensorRT, one graph.
    pub cache: PathBuf,
    /// The memory that TensorRT may use while it tries kernels, in bytes; `None` is all of the GPU's.
    pub workspace: Option<usize>,
    /// For inputs with free dimensions. Without it an engine is built for the first shape that comes, and again whenever
    /// a shape leaves the range so far.
    pub shapes: Vec<ShapeRange>,
}

impl Default for TensorRt {
    /// f32, and a cache in the project's folder.
    fn default() -> TensorRt {
        let cache = places::made().join(".gpulab/tensorrt");
        TensorRt { fp16: false, cache, workspace: None, shapes: Vec::new() }
    }
}

impl TensorRt {
    /// The same with half precision.
    pub fn fp16() -> TensorRt {
        TensorRt { fp16: true, ..TensorRt::default() }
    }

    /// One engine for all of these shapes of an input.
    pub fn shapes(mut self, input: &str, min: &[usize], opt: &[usize], max: &[usize]) -> TensorRt {
        let range = ShapeRange { input: input.to_string(), min: min.to_vec(), opt: opt.to_vec(), max: max.to_vec() };
        self.shapes.push(range);
        self
    }

    /// `fp32` or `fp16`.
    pub fn precision(&self) -> &'static str {
        if self.fp16 { "fp16" } else { "fp32" }
    }

    /// The options by the names that ONNX Runtime has for them.
    pub fn options(&self) -> BTreeMap<&'static str, String> {
        let flag = |value: bool| if value { "1" } else { "0" }.to_string();
        let cache = self.cache.display().to_string();
        let mut found = BTreeMap::from([
            ("trt_fp16_enable", flag(self.fp16)),
            ("trt_engine_cache_enable", flag(true)),
            ("trt_engine_cache_path", cache.clone()),
            ("trt_timing_cache_enable", flag(true)),
            ("trt_timing_cache_path", cache),
        ]);
        if let Some(bytes) = self.workspace {
            found.insert("trt_max_workspace_size", bytes.to_string());
        }
        if !self.shapes.is_empty() {
            let list = |of: fn(&ShapeRange) -> &[usize]| {
                let one = |range: &ShapeRange| {
                    let extents: Vec<String> = of(range).iter().map(usize::to_string).collect();
                    format!("{}:{}", range.input, extents.join("x"))
                };
                self.shapes.iter().map(one).collect::<Vec<String>>().join(",")
            };
            found.insert("trt_profile_min_shapes", list(|range| &range.min));
            found.insert("trt_profile_opt_shapes", list(|range| &range.opt));
            found.insert("trt_profile_max_shapes", list(|range| &range.max));
        }
        found
    }

    pub(super) fn dispatch(&self) -> ExecutionProviderDispatch {
        use ort::ep::ArbitrarilyConfigurableExecutionProvider;
        // TensorRT does not make it.
        let _ = std::fs::create_dir_all(&self.cache);
        let provider = ep::TensorRT::default();
        self.options()
            .into_iter()
            .fold(provider, |provider, (key, value)| provider.with_arbitrary_config(key, value))
            .into()
    }
}

/// TensorRT's library as ONNX Runtime asks for it, or why it is not there.
pub(super) fn tensorrt_library() -> std::result::Result<PathBuf, String> {
    find_tensorrt(&library::folders())
}

/// The major version that ONNX Runtime's wheels are built for.
const NAME: &str = "libnvinfer.so.10";

fn find_tensorrt(folders: &[PathBuf]) -> std::result::Result<PathBuf, String> {
    let named = folders.iter().map(|folder| folder.join(NAME)).find(|file| file.is_file());
    let file = named.unwrap_or_else(|| PathBuf::from(NAME));
    // SAFETY: NVIDIA's library; what it runs when it is loaded is its own affair, as for any program that links it.
    match unsafe { Library::new(&file) } {
        Ok(library) => {
            // Loading it takes a second, and ONNX Runtime is about to ask for it.
            std::mem::forget(library);
            Ok(file)
        }
        Err(error) => Err(format!("TensorRT's library was not loaded: {}", loader(&error))),
    }
}

/// What a session did with the engines in its cache.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum CacheUse {
    /// All engines were there before: so many.
    Hit(usize),
    /// So many engines were built; a session that opens now finds them.
    Built(usize),
    /// There is no engine: TensorRT took no part of the graph, or has not seen a shape yet.
    NoEngine,
}

impl std::fmt::Display for CacheUse {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            CacheUse::Hit(engines) => write!(f, "{engines} from the cache"),
            CacheUse::Built(engines) => write!(f, "{engines} built"),
            CacheUse::NoEngine => f.write_str("no engine"),
        }
    }
}

/// The engines in a folder at one moment, to tell later what was built.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EngineCache {
    folder: PathBuf,
    engines: BTreeMap<PathBuf, (u64, SystemTime)>,
}

impl EngineCache {
    /// What is there now; nothing where there is no folder.
    pub fn look(folder: &Path) -> EngineCache {
        let is_engine = |path: &PathBuf| path.extension().is_some_and(|ending| ending == "engine");
        let about = |path: PathBuf| {
            let file = std::fs::metadata(&path).ok()?;
            Some((path, (file.len(), file.modified().ok()?)))
        };
        let engines = places::entries(folder).into_iter().filter(is_engine).filter_map(about).collect();
        EngineCache { folder: folder.to_path_buf(), engines }
    }

    /// What happened since: an engine that is new, or was written again, was built.
    pub fn since(&self) -> CacheUse {
        let now = EngineCache::look(&self.folder).engines;
        let built = now.iter().filter(|(path, about)| self.engines.get(*path) != Some(about)).count();
        match (built, now.len()) {
            (0, 0) => CacheUse::NoEngine,
            (0, there) => CacheUse::Hit(there),
            (built, _) => CacheUse::Built(built),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_have_the_names_that_onnx_runtime_knows() {
        let options = TensorRt { workspace: Some(1 << 30), cache: PathBuf::from("/c"), ..TensorRt::fp16() };
        let options = options.shapes("x", &[1, 1, 28, 28], &[32, 1, 28, 28], &[256, 1, 28, 28]).options();
        let expected = [
            ("trt_engine_cache_enable", "1"),
            ("trt_engine_cache_path", "/c"),
            ("trt_fp16_enable", "1"),
            ("trt_max_workspace_size", "1073741824"),
            ("trt_profile_max_shapes", "x:256x1x28x28"),
            ("trt_profile_min_shapes", "x:1x1x28x28"),
            ("trt_profile_opt_shapes", "x:32x1x28x28"),
            ("trt_timing_cache_enable", "1"),
            ("trt_timing_cache_path", "/c"),
        ];
        let found: Vec<(&str, &str)> = options.iter().map(|(key, value)| (*key, value.as_str())).collect();
        assert_eq!(found, expected);
        let plain = TensorRt::default().options();
        assert_eq!(plain["trt_fp16_enable"], "0");
        assert!(!plain.contains_key("trt_max_workspace_size") && !plain.contains_key("trt_profile_min_shapes"));
    }

    #[test]
    fn a_library_that_is_there_but_is_none_is_not_taken_for_tensorrt() {
        let folder = std::env::temp_dir().join(format!("gpulab-trt-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        std::fs::write(folder.join(NAME), "no library").unwrap();
        let why = find_tensorrt(std::slice::from_ref(&folder)).unwrap_err();
        std::fs::remove_dir_all(&folder).unwrap();
        assert!(why.contains("TensorRT's library was not loaded") && why.contains(NAME), "{why}");
    }

    #[test]
    fn an_engine_that_was_there_is_a_hit_and_a_new_or_rewritten_one_is_built() {
        let folder = std::env::temp_dir().join(format!("gpulab-engines-{}", std::process::id()));
        assert_eq!(EngineCache::look(&folder).since(), CacheUse::NoEngine);
        std::fs::create_dir_all(&folder).unwrap();
        let write = |name: &str, text: &str| std::fs::write(folder.join(name), text).unwrap();
        let empty = EngineCache::look(&folder);
        write("graph_1_0_sm90.timing", "t");
        write("graph_1_0_sm90.profile", "p");
        assert_eq!(empty.since(), CacheUse::NoEngine);
        write("graph_1_0_sm90.engine", "e");
        assert_eq!(empty.since(), CacheUse::Built(1));
        let full = EngineCache::look(&folder);
        assert_eq!(full.since(), CacheUse::Hit(1));
        write("graph_1_1_sm90.engine", "e");
        assert_eq!(full.since(), CacheUse::Built(1));
        write("graph_1_0_sm90.engine", "another");
        assert_eq!(full.since(), CacheUse::Built(2));
        std::fs::remove_dir_all(&folder).unwrap();
    }
}
