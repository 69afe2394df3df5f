//! Whether CUDA's libraries are there, finding an NVIDIA GPU and opening it, and what the driver's error codes mean.

use crate::error::{Error, Result, next_step};
use crate::launch::LaunchLimits;
use cudarc::driver::sys::{self, CUdevice_attribute as Attribute, CUresult};
use cudarc::driver::{CudaContext, CudaStream, DriverError};
use std::any::Any;
use std::ffi::CStr;
use std::ops::Deref;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, Weak};
use std::thread::{self, ThreadId};

/// An open NVIDIA GPU: a context of cudarc's and its default stream. Cloning it is cheap.
#[derive(Debug, Clone)]
pub struct CudaGpu(Arc<Opened>);

/// What all clones of a [`CudaGpu`] share.
#[derive(Debug)]
pub struct Opened {
    pub(crate) context: Arc<CudaContext>,
    pub(crate) stream: Arc<CudaStream>,
    pub(crate) name: String,
    pub(crate) limits: LaunchLimits,
    /// What is launched goes here while a graph is captured.
    pub(crate) recording: Recording,
    /// cudarc orders streams only as long as one of its making is alive; but the work of a stream that was dropped may
    /// still run. So one is kept.
    kept: OnceLock<Arc<CudaStream>>,
    /// Not a context that came through a door, whose owner may order streams otherwise.
    own: bool,
}

impl Deref for CudaGpu {
    type Target = Opened;

    fn deref(&self) -> &Opened {
        &self.0
    }
}

/// What is being captured on one GPU, if anything is. It concerns the capturing thread alone: others go on as before.
#[derive(Debug, Default)]
pub(crate) struct Recording {
    /// Whether anything is: a launch asks this first. The capturing thread itself has set it, so it needs no order.
    any: AtomicBool,
    captured: Mutex<Option<Captured>>,
    /// Held by the thread that captures: another one waits.
    pub(super) turn: Mutex<()>,
}

#[derive(Debug)]
pub(super) struct Captured {
    pub(super) thread: ThreadId,
    pub(super) stream: Arc<CudaStream>,
    /// The buffers that the work uses.
    pub(super) buffers: Vec<Weak<()>>,
    /// What the graph needs beside them: its kernels' modules.
    pub(super) keep: Vec<Arc<dyn Any + Send + Sync>>,
}

impl Recording {
    pub(super) fn begin(&self, captured: Captured) {
        *self.lock() = Some(captured);
        self.any.store(true, Ordering::Relaxed);
    }

    pub(super) fn end(&self) -> Option<Captured> {
        self.any.store(false, Ordering::Relaxed);
        self.lock().take()
    }

    fn lock(&self) -> MutexGuard<'_, Option<Captured>> {
        self.captured.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Does that with what this thread captures.
    pub(super) fn of_this_thread<R>(&self, does: impl FnOnce(&mut Captured) -> R) -> Option<R> {
        if !self.any.load(Ordering::Relaxed) {
            return None;
        }
        self.lock().as_mut().filter(|captured| captured.thread == thread::current().id()).map(does)
    }
}

/// All that are open. cudarc notes in the context whether there are streams to order: with two contexts of one GPU, a buffer
/// of one would not wait for a stream of the other.
static OPEN: Mutex<Vec<Weak<Opened>>> = Mutex::new(Vec::new());

/// What to call a context that is not the expected one.
pub(crate) fn another_context(context: &CudaContext) -> String {
    format!("another context, of GPU {} (`Gpu::from_cuda` opens it)", context.ordinal())
}

/// What is said where there is no driver, or only the toolkit's stand-in for one, which a build is linked to.
fn no_driver(in_container: bool) -> String {
    let why = if in_container {
        "this container was started without a GPU; `docker run --gpus all …` gives it one"
    } else {
        "no driver is installed (libcuda was not found)"
    };
    format!("NVIDIA: {why}")
}

impl CudaGpu {
    /// cudarc's context of this device.
    pub fn context(&self) -> &Arc<CudaContext> {
        &self.context
    }

    /// How many GPUs the driver shows, or why it shows none.
    pub fn count() -> std::result::Result<usize, String> {
        if !Library::Driver.is_present() {
            return Err(no_driver(std::env::var_os("GPULAB_CONTAINER").is_some()));
        }
        let explain = |error: DriverError| match error.0 {
            CUresult::CUDA_ERROR_STUB_LIBRARY => no_driver(std::env::var_os("GPULAB_CONTAINER").is_some()),
            _ => format!("NVIDIA: {}", driver_error("start of the driver", error)).replace('\n', "\n    "),
        };
        cudarc::driver::result::init().map_err(explain)?;
        match CudaContext::device_count().map_err(explain)? {
            0 => Err("NVIDIA: the driver is installed, but it sees no GPU".to_string()),
            count => Ok(count as usize),
        }
    }

    /// Opens GPU `index`.
    pub fn open(index: usize) -> Result<CudaGpu> {
        let found = CudaGpu::count().map_err(|why| Error::NoGpu { tried: vec![why] })?;
        if index >= found {
            return Err(Error::NoSuchDevice { asked: index, found });
        }
        if let Some(open) = CudaGpu::find(|open| open.own && open.context.ordinal() == index) {
            return Ok(open);
        }
        let context = CudaContext::new(index).map_err(|error| driver_error("opening the GPU", error))?;
        CudaGpu::register(context, true)
    }

    /// The GPU of that context.
    pub(crate) fn of(context: Arc<CudaContext>) -> Result<CudaGpu> {
        match CudaGpu::find(|open| Arc::ptr_eq(&open.context, &context)) {
            Some(open) => Ok(open),
            None => CudaGpu::register(context, false),
        }
    }

    fn find(is: impl Fn(&Opened) -> bool) -> Option<CudaGpu> {
        let open = OPEN.lock().unwrap_or_else(PoisonError::into_inner);
        open.iter().filter_map(Weak::upgrade).find(|open| is(open)).map(CudaGpu)
    }

    fn register(context: Arc<CudaContext>, own: bool) -> Result<CudaGpu> {
        let problem = |error| driver_error("opening the GPU", error);
        let attribute = |which| context.attribute(which).map(|value| value as u32).map_err(problem);
        let limits = LaunchLimits {
            threads_per_block: attribute(Attribute::CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_BLOCK)?,
            block: (
                attribute(Attribute::CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_X)?,
                attribute(Attribute::CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_Y)?,
                attribute(Attribute::CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_Z)?,
            ),
            grid: (
                attribute(Attribute::CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_X)?,
                attribute(Attribute::CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_Y)?,
                attribute(Attribute::CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_Z)?,
            ),
            shared_bytes_per_block: attribute(Attribute::CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN)?,
        };
        let (stream, name) = (context.default_stream(), context.name().map_err(problem)?);
        let (recording, kept) = (Recording::default(), OnceLock::new());
        let opened = Arc::new(Opened { context, stream, name, limits, recording, kept, own });
        let mut open = OPEN.lock().unwrap_or_else(PoisonError::into_inner);
        open.retain(|open| open.strong_count() > 0);
        // Another thread may have been faster.
        let same = |open: &Arc<Opened>| match own {
            true => open.own && open.context.ordinal() == opened.context.ordinal(),
            false => Arc::ptr_eq(&open.context, &opened.context),
        };
        if let Some(first) = open.iter().filter_map(Weak::upgrade).find(same) {
            return Ok(CudaGpu(first));
        }
        open.push(Arc::downgrade(&opened));
        Ok(CudaGpu(opened))
    }

    /// A new stream.
    pub(crate) fn new_stream(&self) -> Result<Arc<CudaStream>> {
        let stream = self.context.new_stream().map_err(|error| driver_error("making a stream", error))?;
        self.owns(&stream)?;
        Ok(stream)
    }

    /// Refuses a stream of another context, and keeps the order of streams from now on.
    pub(crate) fn owns(&self, stream: &Arc<CudaStream>) -> Result<()> {
        if !Arc::ptr_eq(stream.context(), &self.context) {
            return Err(Error::DeviceMismatch {
                expected: format!("GPU {}: {}", self.context.ordinal(), self.name),
                found: format!("a stream of {}", another_context(stream.context())),
            });
        }
        // The default stream is not one of cudarc's making.
        if !stream.cu_stream().is_null() {
            self.kept.get_or_init(|| stream.clone());
        }
        Ok(())
    }

    /// One of the device's figures; 0 when this driver does not know it.
    pub fn attribute(&self, which: Attribute) -> i32 {
        self.context.attribute(which).unwrap_or(0)
    }

    /// The PCI bus id as the driver writes it, such as `0000:1B:00.0`.
    pub(crate) fn pci_bus_id(&self) -> Result<String> {
        // The driver asks for room for 13 bytes, which fits a domain of four digits.
        let mut id = [0_u8; 32];
        // SAFETY: the context's device is valid, and the driver writes at most as many bytes as it is told of.
        unsafe { sys::cuDeviceGetPCIBusId(id.as_mut_ptr().cast(), id.len() as i32, self.context.cu_device()) }
            .result()
            .map_err(|error| driver_error("reading the PCI bus id (cuDeviceGetPCIBusId)", error))?;
        Ok(CStr::from_bytes_until_nul(&id).unwrap_or_default().to_string_lossy().into_owned())
    }

    /// Bytes of the last-level cache on the GPU.
    pub(crate) fn l2_bytes(&self) -> usize {
        self.attribute(Attribute::CU_DEVICE_ATTRIBUTE_L2_CACHE_SIZE).max(0) as usize
    }

    /// Streaming multiprocessors; 0 when the driver does not tell.
    pub(crate) fn multiprocessors(&self) -> u32 {
        self.attribute(Attribute::CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT).max(0) as u32
    }

    /// Compute capability as one number: 90 for 9.0.
    pub(crate) fn capability(&self) -> Result<u32> {
        let (major, minor) =
            self.context.compute_capability().map_err(|error| driver_error("reading the compute capability", error))?;
        Ok((major * 10 + minor) as u32)
    }
}

/// A library that cudarc calls.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Library {
    /// `libcuda`, which comes with the driver.
    Driver,
    /// `libnvrtc`, the compiler.
    Nvrtc,
    /// `libcublas`.
    Cublas,
    /// `libcublasLt`.
    CublasLt,
}

impl Library {
    /// Whether it can be called.
    pub(crate) fn is_present(self) -> bool {
        !self.is_hidden() && self.loads()
    }

    /// `GPULAB_NVRTC=none` hides the compiler: a machine that has it then does what one without (a Mac) does.
    pub(crate) fn is_hidden(self) -> bool {
        self == Library::Nvrtc && std::env::var_os("GPULAB_NVRTC").is_some_and(|value| value == "none")
    }

    /// Tries to load it.
    #[cfg(not(all(gpulab_cuda, feature = "cuda-linked")))]
    fn loads(self) -> bool {
        // SAFETY: these only try to load a library.
        unsafe {
            match self {
                Library::Driver => cudarc::driver::sys::is_culib_present(),
                Library::Nvrtc => cudarc::nvrtc::sys::is_culib_present(),
                Library::Cublas => cudarc::cublas::sys::is_culib_present(),
                Library::CublasLt => cudarc::cublaslt::sys::is_culib_present(),
            }
        }
    }

    /// candle's `cuda` feature has cudarc link to all of them: this program would not have started without.
    #[cfg(all(gpulab_cuda, feature = "cuda-linked"))]
    fn loads(self) -> bool {
        true
    }
}

/// Turns a driver's code into an error that says what was going on and what to do.
pub fn driver_error(during: &str, error: DriverError) -> Error {
    let text = |bytes: Result<&CStr, DriverError>| {
        bytes.map_or_else(|_| "unknown".to_string(), |text| text.to_string_lossy().into_owned())
    };
    // Only the driver knows the words, and cudarc panics where there is none.
    let (code, text) = match Library::Driver.is_present() {
        true => (text(error.error_name()), text(error.error_string())),
        false => (format!("{:?}", error.0), "no driver is here to explain it".to_string()),
    };
    Error::Driver { during: during.to_string(), code, text, fix: next_step(error.0).to_string() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_container_without_a_gpu_is_told_the_flag() {
        assert!(no_driver(true).contains("`docker run --gpus all …`"));
        assert!(!no_driver(false).contains("container"));
    }
}
