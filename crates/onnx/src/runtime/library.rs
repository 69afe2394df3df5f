//! ONNX Runtime's library: where it is, and whether it is new enough, before `ort` would panic.

use super::log;
use super::said::{loader, said};
use gpulab::error::{Error, Result};
use gpulab::places;
use libloading::Library;
use ort::environment::Environment;
use std::ffi::{CStr, c_char, c_void};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, OnceLock};

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

/// What sessions are made in; loads the library the first time.
pub(super) fn environment() -> Result<&'static Environment> {
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
    let environment = init.with_name("gpulab").with_telemetry(false).with_logger(log::logger());
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
            false => Err(Error::Unsupported {
                what: format!("ORT_DYLIB_PATH names {}, and there is no such file", named.display()),
                fix: format!("unset ORT_DYLIB_PATH, or let it name a libonnxruntime; without it: {BRING_IT}"),
            }),
        };
    }
    let stem = if cfg!(target_os = "macos") { "libonnxruntime" } else { "libonnxruntime.so" };
    let found = places::library_in(folders, stem);
    let name = if cfg!(target_os = "macos") { "libonnxruntime.dylib" } else { "libonnxruntime.so" };
    Ok(found.unwrap_or_else(|| PathBuf::from(name)))
}

fn unloadable(file: &Path, why: &str) -> Error {
    Error::Unsupported {
        what: format!("ONNX Runtime's library was not loaded: {why} (looked for {})", file.display()),
        fix: BRING_IT.to_string(),
    }
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
    Err(Error::Unsupported {
        what: format!(
            "ONNX Runtime {version} is too old: the course needs 1.{OLDEST} or newer ({} was loaded)",
            file.display()
        ),
        fix: format!("unset ORT_DYLIB_PATH if it names that one, then {BRING_IT}"),
    })
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
}
