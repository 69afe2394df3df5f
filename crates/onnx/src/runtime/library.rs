//! ONNX Runtime's library: where it is, and whether it is new enough, before `ort` would panic; the CUDA libraries that its
//! providers ask the loader for; what it logs, and its errors as ours.

use gpulab::error::{Error, Result};
use gpulab::places;
use libloading::Library;
use ort::ErrorCode;
use ort::environment::Environment;
use ort::logging::{LogLevel, LoggerFunction};
use std::collections::VecDeque;
use std::ffi::{CStr, c_char, c_void};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, Once, OnceLock};

/// The oldest ONNX Runtime that the crate takes, as 1.`OLDEST`: from there on it tells which provider took which node.
pub const OLDEST: u32 = ort::MINOR_VERSION;

/// The command that brings the library.
pub(super) const BRING_IT: &str = "run `make setup LESSONS=42`, which installs it, and restart the notebook's kernel";

/// Loaded once. Each cell of a notebook has these anew, and finds the same library again.
static LOADED: OnceLock<(Environment, String)> = OnceLock::new();
static LOADING: Mutex<()> = Mutex::new(());

/// The version of the ONNX Runtime that is there, such as `1.31.1`.
///
/// # Errors
/// When there is none, or one that is older than 1.[`OLDEST`].
pub fn version() -> Result<String> {
    Ok(loaded()?.1.clone())
}

/// What sessions are made in (`ort::init_from(library)`, then `.build()`); loads the library the first time. For a session
/// of your own: `ort::session::Session::builder(environment()?)`.
///
/// # Errors
/// As [`version`].
pub fn environment() -> Result<&'static Environment> {
    Ok(&loaded()?.0)
}

fn loaded() -> Result<&'static (Environment, String)> {
    let _one = LOADING.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
    if let Some(loaded) = LOADED.get() {
        return Ok(loaded);
    }
    let file = find(std::env::var_os("ORT_DYLIB_PATH").map(PathBuf::from), &candidates())?;
    let version = check(&file)?;
    let init = ort::init_from(&file).map_err(|error| unloadable(&file, &error.to_string()))?;
    // What it logs goes to our errors, and not between a reader's outputs.
    let environment = init.with_name("gpulab").with_telemetry(false).with_logger(logger());
    let environment = environment.build().map_err(|error| said("ONNX Runtime did not start", &error, BRING_IT))?;
    Ok(LOADED.get_or_init(|| (environment, version)))
}

/// The file in use.
pub(super) fn file() -> Result<PathBuf> {
    find(std::env::var_os("ORT_DYLIB_PATH").map(PathBuf::from), &candidates())
}

/// The folders that may have it, best first.
fn candidates() -> Vec<PathBuf> {
    let wheels = places::site_packages().into_iter().map(|site| site.join("onnxruntime/capi"));
    std::iter::once(places::made().join(".gpulab/lib/onnxruntime")).chain(wheels).collect()
}

/// The file that ORT_DYLIB_PATH names, else the first one in the folders, else what the loader knows under its name.
fn find(named: Option<PathBuf>, folders: &[PathBuf]) -> Result<PathBuf> {
    if let Some(named) = named.filter(|path| !path.as_os_str().is_empty()) {
        return match named.is_file() {
            true => Ok(named),
            false => Err(Error::unsupported(
                format!("ORT_DYLIB_PATH names {}, and there is no such file", named.display()),
                format!("unset ORT_DYLIB_PATH, or let it name a libonnxruntime; without it: {BRING_IT}"),
            )),
        };
    }
    let stem = if cfg!(target_os = "macos") { "libonnxruntime" } else { "libonnxruntime.so" };
    let found = places::library_in(folders, stem);
    let name = if cfg!(target_os = "macos") { "libonnxruntime.dylib" } else { "libonnxruntime.so" };
    Ok(found.unwrap_or_else(|| PathBuf::from(name)))
}

fn unloadable(file: &Path, why: &str) -> Error {
    Error::unsupported(
        format!("ONNX Runtime's library was not loaded: {why} (looked for {})", file.display()),
        BRING_IT.to_string(),
    )
}

/// The first fields of ONNX Runtime's entry point, which have been the same in every version.
#[repr(C)]
struct ApiBase {
    api: unsafe extern "C" fn(u32) -> *const c_void,
    version: unsafe extern "C" fn() -> *const c_char,
}

/// The version of a library, which must be ONNX Runtime's and new enough.
fn check(file: &Path) -> Result<String> {
    // SAFETY: the library that was asked for; what it runs when it is loaded is its own affair.
    let library = unsafe { Library::new(file) }.map_err(|error| unloadable(file, &loader(&error)))?;
    // SAFETY: the type of this function in onnxruntime_c_api.h.
    let entry = unsafe { library.get::<unsafe extern "C" fn() -> *const ApiBase>(b"OrtGetApiBase\0") };
    let entry = entry.map_err(|_| unloadable(file, "it has no function OrtGetApiBase, so it is another library"))?;
    // SAFETY: takes nothing; the answer and the text belong to the library.
    let version = unsafe {
        let base = entry();
        if base.is_null() {
            return Err(unloadable(file, "OrtGetApiBase gave nothing"));
        }
        CStr::from_ptr(((*base).version)()).to_string_lossy().into_owned()
    };
    new_enough(&version, file)?;
    // It stays: `ort` loads it in a moment, and it is costly to begin again.
    std::mem::forget(library);
    Ok(version)
}

fn new_enough(version: &str, file: &Path) -> Result<()> {
    let mut parts = version.split('.').map(|part| part.parse::<u32>().ok());
    if let (Some(Some(major)), Some(Some(minor))) = (parts.next(), parts.next())
        && (major, minor) >= (1, OLDEST)
    {
        return Ok(());
    }
    Err(Error::unsupported(
        format!(
            "ONNX Runtime {version} is too old: the course needs 1.{OLDEST} or newer ({} was loaded)",
            file.display()
        ),
        format!("unset ORT_DYLIB_PATH if it names that one, then {BRING_IT}"),
    ))
}

/// Those that the CUDA and TensorRT providers name, dependencies first; of each the newest that is there is not right, but
/// the one of that provider's CUDA, so they are named with their versions: 13 for 1.27 and newer, 12 before.
const NAMES: [&str; 9] = [
    "libcudart.so.",
    "libnvJitLink.so.",
    "libcublasLt.so.",
    "libcublas.so.",
    "libcurand.so.",
    "libcufft.so.",
    "libcudnn.so.",
    "libnvinfer.so.",
    "libnvonnxparser.so.",
];

/// The folders in which wheels and toolkits keep libraries of NVIDIA.
pub(super) fn folders() -> Vec<PathBuf> {
    let mut found = vec![places::made().join(".gpulab/lib"), places::made().join(".gpulab/lib/onnxruntime")];
    for site in places::site_packages() {
        found.extend(places::entries(&site.join("nvidia")).into_iter().map(|package| package.join("lib")));
        found.push(site.join("tensorrt_libs"));
    }
    found.extend(places::toolkit_folders().into_iter().map(|toolkit| toolkit.join("lib64")));
    found
}

/// Loads them from there; once loaded, the loader finds them by their names, whatever the search path is.
pub(super) fn preload() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        let folders = folders();
        for name in wanted() {
            let file = folders.iter().map(|folder| folder.join(&name)).find(|file| file.is_file());
            if let Some(file) = file {
                // What fails here fails again when the provider is loaded, and is said then.
                let _ = ort::util::preload_dylib(file);
            }
        }
    });
}

/// The names, with versions, that stand in the providers' own files.
fn wanted() -> Vec<String> {
    let Some(folder) = file().ok().and_then(|file| file.parent().map(PathBuf::from)) else {
        return Vec::new();
    };
    let files = ["cuda", "tensorrt"].map(|name| folder.join(format!("libonnxruntime_providers_{name}.so")));
    let mut found = Vec::new();
    for file in files {
        // The names of needed libraries lie in the first part of the file, and the CUDA provider has 280 MB.
        let mut bytes = Vec::new();
        let read = std::fs::File::open(file).map(|file| {
            use std::io::Read;
            file.take(8 << 20).read_to_end(&mut bytes)
        });
        if read.is_ok() {
            found.extend(named_in(&bytes));
        }
    }
    // cuDNN is asked for by name while it runs.
    found.push("libcudnn.so.9".to_string());
    let order = |name: &String| NAMES.iter().position(|stem| name.starts_with(stem));
    found.sort_by_key(order);
    found.dedup();
    found
}

/// `libcublas.so.13` and the like, between two zeros.
fn named_in(bytes: &[u8]) -> Vec<String> {
    let texts = bytes.split(|&byte| byte == 0).filter(|text| text.starts_with(b"lib") && text.len() < 40);
    let texts = texts.filter_map(|text| std::str::from_utf8(text).ok());
    let is_one =
        |text: &&str| NAMES.iter().any(|stem| text.strip_prefix(stem).is_some_and(|rest| rest.parse::<u32>().is_ok()));
    texts.filter(is_one).map(str::to_string).collect()
}

/// What the loader says when a provider's library is loaded by itself.
pub(super) fn why_not(provider: &str) -> Vec<String> {
    let file = match provider {
        "CUDAExecutionProvider" => "libonnxruntime_providers_cuda.so",
        "TensorrtExecutionProvider" => "libonnxruntime_providers_tensorrt.so",
        _ => return Vec::new(),
    };
    let Some(folder) = self::file().ok().and_then(|file| file.parent().map(PathBuf::from)) else {
        return Vec::new();
    };
    let file = folder.join(file);
    if !file.is_file() {
        return vec![format!("there is no {}: this ONNX Runtime was built for the CPU alone", file.display())];
    }
    // SAFETY: ONNX Runtime's own library, which it has just tried to load in the same way.
    match unsafe { Library::new(&file) } {
        Err(error) => vec![loader(&error)],
        Ok(_) => Vec::new(),
    }
}

const KEPT: usize = 64;
static LINES: Mutex<VecDeque<String>> = Mutex::new(VecDeque::new());

/// Keeps warnings and errors.
pub(super) fn logger() -> LoggerFunction {
    Arc::new(|level: LogLevel, _: &str, _: &str, _: &str, text: &str| {
        if matches!(level, LogLevel::Warning | LogLevel::Error | LogLevel::Fatal) {
            let mut lines = LINES.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
            lines.push_back(text.trim().to_string());
            if lines.len() > KEPT {
                lines.pop_front();
            }
        }
    })
}

/// Forgets what was logged so far.
pub(super) fn clear_log() {
    LINES.lock().unwrap_or_else(|poisoned| poisoned.into_inner()).clear();
}

/// What was logged since, oldest first.
pub(super) fn log_lines() -> Vec<String> {
    LINES.lock().unwrap_or_else(|poisoned| poisoned.into_inner()).iter().cloned().collect()
}

/// The loader's own words: libloading keeps them one level down.
pub(super) fn loader(error: &libloading::Error) -> String {
    use std::error::Error as _;
    error.source().map_or_else(|| error.to_string(), |source| source.to_string())
}

/// ONNX Runtime's message without the C++ around it: what CUDA reported, or what follows `[ONNXRuntimeError] : 1 : FAIL : `.
pub(super) fn words(message: &str) -> String {
    if let Some((_, rest)) = message.split_once("CUDA failure ") {
        return format!("CUDA failure {}", rest.split(" ;").next().unwrap_or(rest).trim());
    }
    let inner = message.rsplit_once("[ONNXRuntimeError] : ").and_then(|(_, rest)| rest.splitn(3, " : ").nth(2));
    inner.unwrap_or(message).trim().to_string()
}

/// What was being done, ONNX Runtime's message, the next step.
pub(super) fn said<R>(during: &str, error: &ort::Error<R>, fix: &str) -> Error {
    Error::unsupported(format!("{during}. ONNX Runtime says: {}", error.message().trim()), fix.to_string())
}

/// Why a file was not opened.
pub(super) fn not_opened<R>(path: &Path, version: &str, error: &ort::Error<R>) -> Error {
    let text = error.message().to_lowercase();
    let about = |words: &[&str]| words.iter().any(|word| text.contains(word));
    let (why, fix) = match error.code() {
        ErrorCode::InvalidProtobuf => damaged(),
        _ if about(&["protobuf parsing failed", "modelproto does not have a graph", "parse model"]) => damaged(),
        // Both go up with ONNX's releases; a file may be ahead of the library.
        _ if about(&["unsupported model ir version", "under development", "current official support for domain"]) => (
            format!("is of a newer ONNX than this ONNX Runtime ({version}) knows"),
            "export it with an older opset, or use a newer ONNX Runtime: let ORT_DYLIB_PATH name its libonnxruntime",
        ),
        ErrorCode::NoSuchFile => {
            ("could not be read".to_string(), "look at the path, and at the files of weights that belong beside it")
        }
        _ if about(&["external data", "external initializer", "getfilelength", "out of bounds or can not be read"]) => {
            (
                "has weights in a second file, which was not found or is too short".to_string(),
                "keep the .onnx file and its file of weights in one folder, under their own names; else export again",
            )
        }
        ErrorCode::NotImplemented => (
            "has an operator that the provider does not compute, or not for this type".to_string(),
            "see the operator's name above; on ExecutionProvider::Cpu most work, or export the model in f32",
        ),
        ErrorCode::InvalidGraph => (
            "is no valid graph".to_string(),
            "see the node's name above; `python -m onnx.checker` shows more. Export it again",
        ),
        _ => {
            ("was not opened".to_string(), "read ONNX Runtime's words above; export the model again if it is not whole")
        }
    };
    Error::unsupported(
        format!("{} {why}. ONNX Runtime says: {}", path.display(), words(error.message())),
        fix.to_string(),
    )
}

fn damaged() -> (String, &'static str) {
    ("is damaged, or no ONNX file".to_string(), "export it again; a download that was cut off must be fetched again")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_are_compared_as_numbers() {
        let file = Path::new("libonnxruntime.so");
        for good in [format!("1.{OLDEST}.0"), "1.31.1".to_string(), "1.100.0-dev".to_string(), "2.0.0".to_string()] {
            new_enough(&good, file).unwrap();
        }
        for bad in ["1.9.0", "1.23.2", "0.99.0", "", "x.y"] {
            let text = new_enough(bad, file).unwrap_err().to_string();
            assert!(text.contains("too old") && text.contains("1.24") && text.contains("next: "), "{text}");
        }
    }

    #[test]
    fn a_named_file_that_is_missing_is_an_error_and_no_reason_to_take_another() {
        let text = find(Some(PathBuf::from("/no/such/libonnxruntime.so")), &[]).unwrap_err().to_string();
        assert!(text.contains("ORT_DYLIB_PATH names /no/such") && text.contains("next: unset"), "{text}");
        // Named by nothing: as if it were not set.
        assert!(find(Some(PathBuf::new()), &[]).is_ok());
    }

    #[test]
    fn what_is_no_library_or_another_one_is_said() {
        let missing = check(Path::new("/no/such/libonnxruntime.so")).unwrap_err().to_string();
        assert!(missing.contains("not loaded") && missing.contains("next: run `make setup LESSONS=42`"), "{missing}");
        #[cfg(target_os = "linux")]
        {
            let other = check(Path::new("libc.so.6")).unwrap_err().to_string();
            assert!(other.contains("OrtGetApiBase"), "{other}");
        }
    }

    /// A library that answers as an old ONNX Runtime does.
    #[test]
    #[cfg(target_os = "linux")]
    fn an_old_one_is_refused_by_its_own_version() {
        let folder = std::env::temp_dir().join(format!("gpulab-old-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        let (source, library) = (folder.join("old.c"), folder.join("libonnxruntime.so"));
        let text = "static const char *v(void) { return \"1.20.1\"; }\n\
                    static struct { void *api; const char *(*version)(void); } base = { 0, v };\n\
                    const void *OrtGetApiBase(void) { return &base; }\n";
        std::fs::write(&source, text).unwrap();
        let built =
            std::process::Command::new("cc").args(["-shared", "-fPIC", "-o"]).arg(&library).arg(&source).status();
        assert!(built.unwrap().success());
        let error = check(&library).unwrap_err().to_string();
        std::fs::remove_dir_all(&folder).unwrap();
        assert!(error.contains("ONNX Runtime 1.20.1 is too old") && error.contains("make setup"), "{error}");
    }

    #[test]
    fn needed_libraries_are_read_from_a_providers_file() {
        let bytes = b"\x7fELF\0libcublasLt.so.13\0libstdc++.so.6\0libcublas.so.\0libcudnn_x.so.9\0libcurand.so.10\0";
        assert_eq!(named_in(bytes), ["libcublasLt.so.13", "libcurand.so.10"]);
    }

    #[test]
    fn a_provider_without_a_library_of_its_own_has_nothing_to_say() {
        assert!(why_not("CPUExecutionProvider").is_empty());
    }

    #[test]
    fn of_a_long_message_what_cuda_said_is_left() {
        let long = "/src/cuda_call.cc:154 std::conditional_t<THRW, void> CudaCall(ERRTYPE) CUDA failure 35: CUDA driver \
                    version is insufficient for CUDA runtime version ; GPU=-1 ; hostname=vm ; expr=cudaSetDevice(id);";
        assert_eq!(words(long), "CUDA failure 35: CUDA driver version is insufficient for CUDA runtime version");
        assert_eq!(words(" Protobuf parsing failed.\n"), "Protobuf parsing failed.");
        let loader = "/src/provider_bridge_ort.cc:2043 Get() [ONNXRuntimeError] : 1 : FAIL : Failed to load x.so: y.so : no file";
        assert_eq!(words(loader), "Failed to load x.so: y.so : no file");
    }
}
