//! NVIDIA's convolutions, loaded when they are there.

use super::{CudaGpu, CudaMemory};
use crate::error::{Error, Result};
use crate::places;
use cudarc::driver::{DevicePtr, DevicePtrMut};
use libloading::Library;
use std::ffi::{CStr, c_char, c_int, c_void};
use std::path::PathBuf;
use std::sync::Arc;

/// cuDNN on one GPU.
#[derive(Clone)]
pub(crate) struct CudaCudnn {
    library: Cudnn,
    handle: Arc<Owned>,
}

/// A convolution as cuDNN is told of it.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Described {
    /// Batch, channels, height, width.
    pub input: [i32; 4],
    /// Outputs, channels, height, width.
    pub filter: [i32; 4],
    pub output: [i32; 4],
    pub padding: i32,
    /// `cudnnTensorFormat_t`: 0 channels first, 1 channels last.
    pub layout: u32,
    /// `cudnnDataType_t`: 0 f32, 2 fp16, 9 bf16.
    pub element: u32,
    /// `cudnnMathType_t`: 0 TF32 allowed for f32, 1 tensor cores, 3 none.
    pub math: u32,
}

/// Forward, the input's gradient, the filter's gradient.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum CudnnPass {
    Forward,
    Data,
    Filter,
}

/// A handle or descriptor, with what destroys it.
struct Owned {
    object: Object,
    destroy: Destroy,
}

// SAFETY: cuDNN's objects may be used from any thread, one at a time; a handle's calls go through one `CudaCudnn` at a time
// because its buffers are borrowed.
unsafe impl Send for Owned {}
// SAFETY: as above; nothing is written through a shared descriptor.
unsafe impl Sync for Owned {}

impl Drop for Owned {
    fn drop(&mut self) {
        // SAFETY: the object is this value's own. Nothing can be done about a failure.
        unsafe { (self.destroy)(self.object) };
    }
}

/// The three tensors and the convolution itself.
struct Descriptors {
    input: Owned,
    filter: Owned,
    output: Owned,
    convolution: Owned,
}

impl CudaGpu {
    pub(crate) fn cudnn(&self) -> Result<CudaCudnn> {
        let library = Cudnn::load()?;
        self.context.bind_to_thread().map_err(|error| super::driver_error("opening cuDNN", error))?;
        let handle = library.create(c"cudnnCreate", c"cudnnDestroy", "opening cuDNN")?;
        Ok(CudaCudnn { library, handle: Arc::new(handle) })
    }
}

impl Cudnn {
    fn create(&self, create: &CStr, destroy: &CStr, during: &str) -> Result<Owned> {
        let destroy = self.function::<Destroy>(destroy)?;
        let mut object = std::ptr::null_mut();
        // SAFETY: the pointer is of a variable here.
        self.check(unsafe { self.function::<Create>(create)?(&mut object) }, during)?;
        Ok(Owned { object, destroy })
    }

    fn describe(&self, what: &Described) -> Result<Descriptors> {
        let during = "describing a convolution to cuDNN";
        let tensor = |[n, c, h, w]: [c_int; 4]| {
            let made = self.create(c"cudnnCreateTensorDescriptor", c"cudnnDestroyTensorDescriptor", during)?;
            let set = self.function::<SetTensor>(c"cudnnSetTensor4dDescriptor")?;
            // SAFETY: the descriptor was just made; the rest are plain numbers (layout first, then the element).
            self.check(unsafe { set(made.object, what.layout, what.element, n, c, h, w) }, during).map(|()| made)
        };
        let filter = self.create(c"cudnnCreateFilterDescriptor", c"cudnnDestroyFilterDescriptor", during)?;
        let [k, c, h, w] = what.filter;
        let set = self.function::<SetTensor>(c"cudnnSetFilter4dDescriptor")?;
        // SAFETY: as above; here the element comes first.
        self.check(unsafe { set(filter.object, what.element, what.layout, k, c, h, w) }, during)?;
        let convolution =
            self.create(c"cudnnCreateConvolutionDescriptor", c"cudnnDestroyConvolutionDescriptor", during)?;
        let (set, pad) = (self.function::<SetConvolution>(c"cudnnSetConvolution2dDescriptor")?, what.padding);
        const CROSS_CORRELATION: u32 = 1;
        const SUM_IN_F32: u32 = 0;
        // SAFETY: as above.
        let status = unsafe { set(convolution.object, pad, pad, 1, 1, 1, 1, CROSS_CORRELATION, SUM_IN_F32) };
        self.check(status, during)?;
        let set = self.function::<SetMath>(c"cudnnSetConvolutionMathType")?;
        // SAFETY: as above.
        self.check(unsafe { set(convolution.object, what.math) }, during)?;
        Ok(Descriptors { input: tensor(what.input)?, filter, output: tensor(what.output)?, convolution })
    }
}

impl CudaCudnn {
    /// Such as 91400.
    pub(crate) fn version(&self) -> Result<usize> {
        self.library.version()
    }

    pub(crate) fn name(&self, status: u32) -> String {
        self.library.name(status)
    }

    /// Runs every algorithm for a pass and says how long each took, fastest first. The buffers (whose lengths the caller has
    /// checked) hold the input, the filter and the output; the pass writes one of them.
    pub(crate) fn find(
        &self,
        gpu: &CudaGpu,
        what: &Described,
        pass: CudnnPass,
        [x, w, y]: [&mut CudaMemory; 3],
        workspace: &mut CudaMemory,
    ) -> Result<Vec<Tried>> {
        let descriptors = self.library.describe(what)?;
        let size = workspace.len();
        let (x, _order_x) = x.device_ptr_mut(&gpu.stream);
        let (w, _order_w) = w.device_ptr_mut(&gpu.stream);
        let (y, _order_y) = y.device_ptr_mut(&gpu.stream);
        let (room, _order) = workspace.device_ptr_mut(&gpu.stream);
        let tensors = [(&descriptors.input, x), (&descriptors.filter, w), (&descriptors.output, y)];
        let (name, [first, second, third]) = match pass {
            CudnnPass::Forward => (c"cudnnFindConvolutionForwardAlgorithmEx", [0, 1, 2]),
            CudnnPass::Data => (c"cudnnFindConvolutionBackwardDataAlgorithmEx", [1, 2, 0]),
            CudnnPass::Filter => (c"cudnnFindConvolutionBackwardFilterAlgorithmEx", [0, 2, 1]),
        };
        let (a, b, to) = (&tensors[first], &tensors[second], &tensors[third]);
        let mut tried = [Tried::NONE; 32];
        let mut found = 0;
        // SAFETY: all descriptors and buffers are alive, and as long as the descriptors say; the list has that many places.
        let status = unsafe {
            self.library.function::<Find>(name)?(
                self.handle.object,
                a.0.object,
                a.1 as *const c_void,
                b.0.object,
                b.1 as *const c_void,
                descriptors.convolution.object,
                to.0.object,
                to.1 as *mut c_void,
                tried.len() as c_int,
                &mut found,
                tried.as_mut_ptr(),
                room as *mut c_void,
                size,
            )
        };
        self.library.check(status, "cuDNN's search for an algorithm")?;
        Ok(tried[..(found.max(0) as usize).min(tried.len())].to_vec())
    }

    /// Queues a pass: `to` = that of `a` and `b`, in the order of the pass (input and filter; filter and the output's
    /// gradient; input and the output's gradient).
    pub(crate) fn run(
        &self,
        gpu: &CudaGpu,
        (what, pass, algorithm): (&Described, CudnnPass, u32),
        [a, b]: [&CudaMemory; 2],
        to: &mut CudaMemory,
        workspace: &mut CudaMemory,
    ) -> Result<()> {
        let descriptors = self.library.describe(what)?;
        gpu.uses([a, b, &*to, &*workspace]);
        gpu.keep(|| self.handle.clone());
        let (queue, size) = (gpu.queue(), workspace.len());
        let during = "cuDNN's convolution";
        let set = self.library.function::<SetStream>(c"cudnnSetStream")?;
        // SAFETY: the handle is open; the stream lives until a capture has ended, when the next call sets another.
        self.library.check(unsafe { set(self.handle.object, queue.cu_stream().cast()) }, during)?;
        let (name, [of_a, of_b, of_to]) = match pass {
            CudnnPass::Forward => (c"cudnnConvolutionForward", [0, 1, 2]),
            CudnnPass::Data => (c"cudnnConvolutionBackwardData", [1, 2, 0]),
            CudnnPass::Filter => (c"cudnnConvolutionBackwardFilter", [0, 2, 1]),
        };
        let tensors = [&descriptors.input, &descriptors.filter, &descriptors.output].map(|owned| owned.object);
        let (one, zero) = (1.0_f32, 0.0_f32);
        let (a, _read_a) = a.device_ptr(&queue);
        let (b, _read_b) = b.device_ptr(&queue);
        let (to, _written) = to.device_ptr_mut(&queue);
        let (room, _order) = workspace.device_ptr_mut(&queue);
        // SAFETY: descriptors and buffers are alive, and as long as the descriptors say (the caller has checked); alpha and
        // beta are read before the call returns.
        let status = unsafe {
            self.library.function::<Run>(name)?(
                self.handle.object,
                (&raw const one).cast(),
                tensors[of_a],
                a as *const c_void,
                tensors[of_b],
                b as *const c_void,
                descriptors.convolution.object,
                algorithm,
                room as *mut c_void,
                size,
                (&raw const zero).cast(),
                tensors[of_to],
                to as *mut c_void,
            )
        };
        self.library.check(status, during)
    }
}

// They are declared here, and not taken from cudarc: its bindings panic where the library is missing, are linked to it
// as soon as candle is built with CUDA, and cannot be told a folder.

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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_missing_library_names_the_package() {
        match Cudnn::load() {
            Ok(cudnn) => assert!(cudnn.version().unwrap() > 8000),
            Err(error) => assert!(error.to_string().contains("nvidia-cudnn") && error.to_string().contains("next: ")),
        }
    }
}
