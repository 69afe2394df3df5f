//! cuDNN: where it is, and the functions that a convolution needs.
//!
//! They are declared here, and not taken from cudarc: its bindings panic where the library is missing, are linked to it
//! as soon as candle is built with CUDA, and cannot be told a folder.

use crate::error::{Error, Result};
use crate::places;
use libloading::Library;
use std::ffi::{CStr, c_char, c_int, c_void};
use std::path::PathBuf;

/// A handle or a descriptor.
pub(super) type Object = *mut c_void;

/// One algorithm, as cuDNN's search reports it: `cudnnConvolutionFwdAlgoPerf_t` and its two siblings are laid out alike.
#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct Tried {
    pub algorithm: u32,
    pub status: u32,
    pub ms: f32,
    pub workspace: usize,
    pub deterministic: u32,
    pub math: u32,
    reserved: [c_int; 3],
}

impl Tried {
    pub(super) const NONE: Tried =
        Tried { algorithm: 0, status: 0, ms: 0.0, workspace: 0, deterministic: 0, math: 0, reserved: [0; 3] };
}

pub(super) type Create = unsafe extern "C" fn(*mut Object) -> u32;
pub(super) type Destroy = unsafe extern "C" fn(Object) -> u32;
pub(super) type SetTensor = unsafe extern "C" fn(Object, u32, u32, c_int, c_int, c_int, c_int) -> u32;
pub(super) type SetConvolution =
    unsafe extern "C" fn(Object, c_int, c_int, c_int, c_int, c_int, c_int, u32, u32) -> u32;
pub(super) type SetMath = unsafe extern "C" fn(Object, u32) -> u32;
pub(super) type SetStream = unsafe extern "C" fn(Object, *mut c_void) -> u32;
/// The three searches: handle, first descriptor and data, second, convolution, third, count, found, list, workspace, size.
pub(super) type Find = unsafe extern "C" fn(
    Object,
    Object,
    *const c_void,
    Object,
    *const c_void,
    Object,
    Object,
    *mut c_void,
    c_int,
    *mut c_int,
    *mut Tried,
    *mut c_void,
    usize,
) -> u32;
/// The three passes: handle, alpha, two operands, convolution, algorithm, workspace, size, beta, result.
pub(super) type Run = unsafe extern "C" fn(
    Object,
    *const c_void,
    Object,
    *const c_void,
    Object,
    *const c_void,
    Object,
    u32,
    *mut c_void,
    usize,
    *const c_void,
    Object,
    *mut c_void,
) -> u32;

/// The library, loaded; it is never unloaded, as the driver may still run what it made.
#[derive(Clone, Copy)]
pub(super) struct Cudnn {
    library: &'static Library,
}

impl Cudnn {
    /// Loads it from the first place that has it.
    pub(super) fn load() -> Result<Cudnn> {
        let mut said = Vec::new();
        for place in candidates() {
            // SAFETY: NVIDIA's library; what it runs when it is loaded is its own affair, as for any program that links it.
            match unsafe { Library::new(&place) } {
                Ok(library) => return Ok(Cudnn { library: Box::leak(Box::new(library)) }),
                Err(error) => said.push(format!("{}: {error}", place.display())),
            }
        }
        let last = said.into_iter().rev().find(|text| text.starts_with('/'));
        Err(Error::Unsupported {
            what: format!(
                "cuDNN, NVIDIA's library of convolutions, was not loaded ({})",
                last.unwrap_or_else(|| "no libcudnn in the project, in a CUDA toolkit, or known to the loader".to_string())
            ),
            fix: "run `.venv/bin/python -m pip install nvidia-cudnn-cu13` (for a driver of CUDA 12: `nvidia-cudnn-cu12`) in the \
                  project's folder, and this cell again; without it, see the recorded run"
                .to_string(),
        })
    }

    /// The function of that name.
    pub(super) fn function<T: Copy>(&self, name: &CStr) -> Result<T> {
        // SAFETY: `T` is the function's type in NVIDIA's headers; the callers name them side by side.
        let found = unsafe { self.library.get::<T>(name.to_bytes_with_nul()) };
        found.map(|symbol| *symbol).map_err(|_| Error::Unsupported {
            what: format!("this libcudnn has no {name:?}"),
            fix: "install cuDNN 9: `.venv/bin/python -m pip install nvidia-cudnn-cu13`".to_string(),
        })
    }

    pub(super) fn version(&self) -> Result<usize> {
        type Version = unsafe extern "C" fn() -> usize;
        // SAFETY: takes nothing.
        Ok(unsafe { self.function::<Version>(c"cudnnGetVersion")?() })
    }

    /// What a status means.
    pub(super) fn name(&self, status: u32) -> String {
        type Text = unsafe extern "C" fn(u32) -> *const c_char;
        let Ok(text) = self.function::<Text>(c"cudnnGetErrorString") else { return format!("status {status}") };
        // SAFETY: a plain number; the text is the library's own and stays.
        unsafe { CStr::from_ptr(text(status)) }.to_string_lossy().into_owned()
    }

    pub(super) fn check(&self, status: u32, during: &str) -> Result<()> {
        match status {
            0 => Ok(()),
            _ => Err(Error::Driver {
                during: during.to_string(),
                code: self.name(status),
                text: format!("cuDNN's status {status}"),
                fix: "use another algorithm of `cudnn.algorithms`; if none works, run `make verify`".to_string(),
            }),
        }
    }
}

/// Where the library may be, best first. Its parts load each other from the same folder.
fn candidates() -> Vec<PathBuf> {
    let mut folders = vec![places::made().join(".gpulab/lib")];
    let wheels = places::site_packages().into_iter().flat_map(|site| places::entries(&site.join("nvidia")));
    folders.extend(wheels.map(|package| package.join("lib")));
    folders.extend(places::toolkit_folders().into_iter().map(|toolkit| toolkit.join("lib64")));
    let found = folders.iter().filter_map(|folder| places::library_in(std::slice::from_ref(folder), "libcudnn.so"));
    found.chain(["libcudnn.so.9", "libcudnn.so"].map(PathBuf::from)).collect()
}
