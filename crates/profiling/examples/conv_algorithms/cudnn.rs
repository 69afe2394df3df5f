//! cuDNN's convolutions, to measure against: what each algorithm takes, in time and in workspace.
//!
//! Its functions are declared here, and not taken from cudarc: cudarc's bindings panic where the library is missing, are
//! linked to it as soon as candle is built with CUDA, and cannot be told a folder.

use gpulab::cuda::driver_error;
use gpulab::cudarc::driver::{CudaStream, DevicePtrMut};
use gpulab::error::{Error, Result, bytes};
use gpulab::gpu::{Buffer, Gpu};
use gpulab::launch::as_bytes;
use gpulab::sim::needs_hardware;
use gpulab::{cpu, places};
use libloading::Library;
use std::ffi::{CStr, c_char, c_int, c_void};
use std::path::PathBuf;
use std::sync::Arc;

/// cuDNN on one GPU; it is loaded when it is there. Its work goes to the default stream, and is no part of a captured graph.
pub struct Cudnn {
    gpu: Gpu,
    stream: Arc<CudaStream>,
    library: Loaded,
    handle: Owned,
}

impl std::fmt::Debug for Cudnn {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Cudnn on {}", self.gpu)
    }
}

/// What a search may use beside the arrays.
const WORKSPACE: usize = 1 << 30;

impl Cudnn {
    /// Opens it on the default stream.
    ///
    /// # Errors
    /// [`Error::Unsupported`] where the library is not found (the message names the package), and on GPUs that are not
    /// NVIDIA's; [`Error::Driver`].
    pub fn new(gpu: &Gpu) -> Result<Cudnn> {
        let Gpu::Cuda(cuda) = gpu else {
            return Err(needs_hardware("there is no cuDNN", "run this on an NVIDIA GPU, or see the recorded run"));
        };
        let library = Loaded::load()?;
        cuda.context().bind_to_thread().map_err(|error| driver_error("opening cuDNN", error))?;
        let handle = library.create(c"cudnnCreate", c"cudnnDestroy", "opening cuDNN")?;
        Ok(Cudnn { gpu: gpu.clone(), stream: gpu.cuda_stream()?, library, handle })
    }

    /// The library's version, such as 91400.
    ///
    /// # Errors
    /// [`Error::Unsupported`] for a library that does not tell.
    pub fn version(&self) -> Result<usize> {
        self.library.version()
    }

    /// Runs every algorithm that the library has for a pass of this convolution, on arrays of its own, with a workspace of
    /// at most 1 GiB: time and workspace of each, fastest first.
    ///
    /// # Errors
    /// [`Error::Invalid`] for a convolution without output, [`Error::OutOfMemory`], [`Error::Driver`].
    pub fn algorithms(&self, convolution: &Convolution, pass: ConvPass) -> Result<CudnnAlgorithms> {
        let (described, lens) = described(convolution)?;
        let bytes = convolution.element.bytes();
        let random = |len: usize, seed: u64| {
            let numbers = cpu::random_f32(len, seed);
            // Half of bf16's and fp16's bit patterns below 1: small numbers, never NaN.
            let half = |x: &f32| (x.to_bits() >> 16) as u16 & 0xBBFF;
            match bytes {
                4 => self.gpu.to_device(as_bytes(&numbers)),
                _ => self.gpu.to_device(as_bytes(&numbers.iter().map(half).collect::<Vec<u16>>())),
            }
        };
        let (mut x, mut w, mut y) = (random(lens[0], 1)?, random(lens[1], 2)?, random(lens[2], 3)?);
        let free = self.gpu.memory()?.free as usize;
        let mut workspace = self.gpu.alloc::<u8>(WORKSPACE.min(free / 2))?;
        let tried = self.find(&described, pass, [&mut x, &mut w, &mut y], &mut workspace)?;
        let list = tried.iter().map(|one| CudnnAlgorithm {
            number: one.algorithm,
            name: pass.algorithm(one.algorithm),
            ms: (one.status == 0).then_some(f64::from(one.ms)),
            workspace: one.workspace as u64,
            tensor_cores: matches!(one.math, 1 | 2),
            deterministic: one.deterministic == 1,
            problem: (one.status != 0).then(|| self.library.name(one.status)),
        });
        Ok(CudnnAlgorithms { convolution: *convolution, pass, library: self.version()?, list: list.collect() })
    }

    /// Runs every algorithm for a pass and says how long each took, fastest first. The buffers (whose lengths the caller has
    /// checked) hold the input, the filter and the output; the pass writes one of them.
    fn find(
        &self,
        what: &Described,
        pass: ConvPass,
        [x, w, y]: [&mut Buffer<u8>; 3],
        workspace: &mut Buffer<u8>,
    ) -> Result<Vec<Tried>> {
        let descriptors = self.library.describe(what)?;
        let size = workspace.len();
        let [mut x, mut w, mut y] = [x.as_cuda_mut()?, w.as_cuda_mut()?, y.as_cuda_mut()?];
        let mut workspace = workspace.as_cuda_mut()?;
        let (x, _order_x) = x.device_ptr_mut(&self.stream);
        let (w, _order_w) = w.device_ptr_mut(&self.stream);
        let (y, _order_y) = y.device_ptr_mut(&self.stream);
        let (room, _order) = workspace.device_ptr_mut(&self.stream);
        let tensors = [(&descriptors.input, x), (&descriptors.filter, w), (&descriptors.output, y)];
        let (name, [first, second, third]) = match pass {
            ConvPass::Forward => (c"cudnnFindConvolutionForwardAlgorithmEx", [0, 1, 2]),
            ConvPass::BackwardData => (c"cudnnFindConvolutionBackwardDataAlgorithmEx", [1, 2, 0]),
            ConvPass::BackwardFilter => (c"cudnnFindConvolutionBackwardFilterAlgorithmEx", [0, 2, 1]),
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
}

/// As cuDNN is told of it, and the elements of input, filter and output.
fn described(convolution: &Convolution) -> Result<(Described, [usize; 3])> {
    let Convolution { batch, channels, side, outputs, kernel, padding, .. } = *convolution;
    let too_large = || Error::Invalid {
        what: format!("{convolution} has no output, or one of more than 2147483647 numbers"),
        fix: "give sides of at least the kernel's, and a smaller batch".to_string(),
    };
    let output = convolution.output_side().ok_or_else(too_large)?;
    let shapes = [[batch, channels, side, side], [outputs, channels, kernel, kernel], [batch, outputs, output, output]];
    let mut lens = [0; 3];
    let mut sizes = [[0_i32; 4]; 3];
    for (at, shape) in shapes.iter().enumerate() {
        let product = shape.iter().try_fold(1_usize, |product, &n| product.checked_mul(n));
        lens[at] = product.filter(|&n| n > 0 && i32::try_from(n).is_ok()).ok_or_else(too_large)?;
        sizes[at] = shape.map(|n| n as i32);
    }
    let (element, math) = convolution.element.cudnn();
    let [input, filter, output] = sizes;
    let layout = u32::from(convolution.channels_last);
    Ok((Described { input, filter, output, padding: padding as i32, layout, element, math }, lens))
}

/// What a convolution's numbers are, and what may be done with them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ConvElement {
    /// f32, multiplied as f32.
    F32,
    /// f32, rounded to TF32 where the tensor cores multiply.
    Tf32,
    /// bf16, summed in f32.
    Bf16,
    /// fp16, summed in f32.
    F16,
}

impl ConvElement {
    /// Bytes of a number.
    pub fn bytes(self) -> usize {
        match self {
            ConvElement::F32 | ConvElement::Tf32 => 4,
            ConvElement::Bf16 | ConvElement::F16 => 2,
        }
    }

    /// `f32`, `tf32`, `bf16`, `f16`.
    pub fn name(self) -> &'static str {
        match self {
            ConvElement::F32 => "f32",
            ConvElement::Tf32 => "tf32",
            ConvElement::Bf16 => "bf16",
            ConvElement::F16 => "f16",
        }
    }

    /// cuDNN's numbers for the element and for what may be done.
    pub fn cudnn(self) -> (u32, u32) {
        match self {
            ConvElement::F32 => (0, 3),
            ConvElement::Tf32 => (0, 0),
            ConvElement::Bf16 => (9, 1),
            ConvElement::F16 => (2, 1),
        }
    }
}

/// A square convolution of stride 1.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Convolution {
    /// Images.
    pub batch: usize,
    /// Channels of an image.
    pub channels: usize,
    /// Its side, in pixels.
    pub side: usize,
    /// Channels of the result.
    pub outputs: usize,
    /// The filter's side.
    pub kernel: usize,
    /// Zeros around the image.
    pub padding: usize,
    /// Its numbers.
    pub element: ConvElement,
    /// Whether a pixel's channels lie side by side (NHWC); else an image's channels do (NCHW).
    pub channels_last: bool,
}

impl Convolution {
    /// The second convolution of the course's CNN at batch 128.
    pub const SECOND_OF_CNN: Convolution = Convolution {
        batch: 128,
        channels: 32,
        side: 26,
        outputs: 64,
        kernel: 3,
        padding: 0,
        element: ConvElement::Tf32,
        channels_last: false,
    };

    /// The result's side; `None` where the filter is larger than the image.
    pub fn output_side(&self) -> Option<usize> {
        (self.side + 2 * self.padding + 1).checked_sub(self.kernel).filter(|&side| side > 0)
    }

    /// Multiplications and additions of a pass, by the definition.
    pub fn operations(&self) -> f64 {
        let output = self.output_side().unwrap_or(0);
        2.0 * [self.batch, output, output, self.outputs, self.channels, self.kernel, self.kernel]
            .iter()
            .map(|&n| n as f64)
            .product::<f64>()
    }
}

impl std::fmt::Display for Convolution {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Convolution { batch, channels, side, outputs, kernel, element, .. } = self;
        let layout = if self.channels_last { "NHWC" } else { "NCHW" };
        write!(
            f,
            "{batch} images of {side} × {side}, {channels} → {outputs} channels, {kernel} × {kernel}, {} {layout}",
            element.name()
        )
    }
}

/// Which of a convolution's three products.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ConvPass {
    /// The output.
    Forward,
    /// The input's gradient.
    BackwardData,
    /// The filter's gradient.
    BackwardFilter,
}

impl ConvPass {
    /// All three.
    pub const ALL: [ConvPass; 3] = [ConvPass::Forward, ConvPass::BackwardData, ConvPass::BackwardFilter];

    /// `forward`, `backward data`, `backward filter`.
    pub fn name(self) -> &'static str {
        match self {
            ConvPass::Forward => "forward",
            ConvPass::BackwardData => "backward data",
            ConvPass::BackwardFilter => "backward filter",
        }
    }

    /// cuDNN's name for an algorithm of this pass.
    pub fn algorithm(self, number: u32) -> String {
        let names: &[&str] = match self {
            ConvPass::Forward => &[
                "implicit GEMM",
                "implicit GEMM, indices computed before",
                "GEMM",
                "direct",
                "FFT",
                "FFT, tiled",
                "Winograd",
                "Winograd, not fused",
            ],
            ConvPass::BackwardData => {
                &["algorithm 0", "algorithm 1", "FFT", "FFT, tiled", "Winograd", "Winograd, not fused"]
            }
            ConvPass::BackwardFilter => {
                &["algorithm 0", "algorithm 1", "FFT", "algorithm 3", "Winograd", "Winograd, not fused", "FFT, tiled"]
            }
        };
        names.get(number as usize).map_or_else(|| format!("number {number}"), ToString::to_string)
    }
}

/// One algorithm for one pass.
#[derive(Debug, Clone, PartialEq)]
pub struct CudnnAlgorithm {
    /// cuDNN's number for it.
    pub number: u32,
    /// Its name.
    pub name: String,
    /// Milliseconds of one run; `None` where it does not take this convolution.
    pub ms: Option<f64>,
    /// Bytes that it needs beside the three arrays.
    pub workspace: u64,
    /// Whether it used tensor cores.
    pub tensor_cores: bool,
    /// Whether it gives the same bits each time.
    pub deterministic: bool,
    /// Why it did not run.
    pub problem: Option<String>,
}

/// All algorithms for one pass of one convolution.
#[derive(Debug, Clone, PartialEq)]
pub struct CudnnAlgorithms {
    /// The convolution.
    pub convolution: Convolution,
    /// The pass.
    pub pass: ConvPass,
    /// The version of cuDNN, such as 91400.
    pub library: usize,
    /// Fastest first; those that did not run last.
    pub list: Vec<CudnnAlgorithm>,
}

impl std::fmt::Display for CudnnAlgorithms {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        writeln!(f, "{} of {} (cuDNN {})", self.pass.name(), self.convolution, self.library)?;
        writeln!(f, "{:40} {:>9} {:>9} {:>10}  tensor cores", "algorithm", "µs", "TFLOP/s", "workspace")?;
        for one in &self.list {
            let Some(ms) = one.ms else {
                writeln!(f, "{:40} {}", one.name, one.problem.as_deref().unwrap_or("did not run"))?;
                continue;
            };
            let rate = self.convolution.operations() / ms / 1e9;
            let cores = if one.tensor_cores { "yes" } else { "no" };
            writeln!(f, "{:40} {:9.1} {:9.2} {:>10}  {cores}", one.name, ms * 1e3, rate, bytes(one.workspace))?;
        }
        Ok(())
    }
}

/// A convolution as cuDNN is told of it.
#[derive(Debug, Clone, Copy)]
struct Described {
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

/// A handle or descriptor, with what destroys it.
struct Owned {
    object: Object,
    destroy: Destroy,
}

// SAFETY: cuDNN's objects may be used from any thread, one at a time; a handle's calls go through one `Cudnn` at a time
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

impl Loaded {
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

/// A handle or a descriptor.
type Object = *mut c_void;

/// One algorithm, as cuDNN's search reports it: `cudnnConvolutionFwdAlgoPerf_t` and its two siblings are laid out alike.
#[repr(C)]
#[derive(Clone, Copy)]
struct Tried {
    pub algorithm: u32,
    pub status: u32,
    pub ms: f32,
    pub workspace: usize,
    pub deterministic: u32,
    pub math: u32,
    reserved: [c_int; 3],
}

impl Tried {
    const NONE: Tried =
        Tried { algorithm: 0, status: 0, ms: 0.0, workspace: 0, deterministic: 0, math: 0, reserved: [0; 3] };
}

type Create = unsafe extern "C" fn(*mut Object) -> u32;
type Destroy = unsafe extern "C" fn(Object) -> u32;
type SetTensor = unsafe extern "C" fn(Object, u32, u32, c_int, c_int, c_int, c_int) -> u32;
type SetConvolution = unsafe extern "C" fn(Object, c_int, c_int, c_int, c_int, c_int, c_int, u32, u32) -> u32;
type SetMath = unsafe extern "C" fn(Object, u32) -> u32;
/// The three searches: handle, first descriptor and data, second, convolution, third, count, found, list, workspace, size.
type Find = unsafe extern "C" fn(
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
/// The library, loaded; it is never unloaded, as the driver may still run what it made.
#[derive(Clone, Copy)]
struct Loaded {
    library: &'static Library,
}

impl Loaded {
    /// Loads it from the first place that has it.
    fn load() -> Result<Loaded> {
        let mut said = Vec::new();
        for place in candidates() {
            // SAFETY: NVIDIA's library; what it runs when it is loaded is its own affair, as for any program that links it.
            match unsafe { Library::new(&place) } {
                Ok(library) => return Ok(Loaded { library: Box::leak(Box::new(library)) }),
                Err(error) => said.push(format!("{}: {error}", place.display())),
            }
        }
        let last = said.into_iter().rev().find(|text| text.starts_with('/'));
        Err(Error::unsupported(
            format!(
                "cuDNN, NVIDIA's library of convolutions, was not loaded ({})",
                last.unwrap_or_else(
                    || "no libcudnn in the project, in a CUDA toolkit, or known to the loader".to_string()
                )
            ),
            "run `.venv/bin/python -m pip install nvidia-cudnn-cu13` (for a driver of CUDA 12: `nvidia-cudnn-cu12`) in the \
                  project's folder, and this cell again; without it, see the recorded run",
        ))
    }

    /// The function of that name.
    fn function<T: Copy>(&self, name: &CStr) -> Result<T> {
        // SAFETY: `T` is the function's type in NVIDIA's headers; the callers name them side by side.
        let found = unsafe { self.library.get::<T>(name.to_bytes_with_nul()) };
        found.map(|symbol| *symbol).map_err(|_| Error::Unsupported {
            what: format!("this libcudnn has no {name:?}"),
            fix: "install cuDNN 9: `.venv/bin/python -m pip install nvidia-cudnn-cu13`".to_string(),
        })
    }

    fn version(&self) -> Result<usize> {
        type Version = unsafe extern "C" fn() -> usize;
        // SAFETY: takes nothing.
        Ok(unsafe { self.function::<Version>(c"cudnnGetVersion")?() })
    }

    /// What a status means.
    fn name(&self, status: u32) -> String {
        type Text = unsafe extern "C" fn(u32) -> *const c_char;
        let Ok(text) = self.function::<Text>(c"cudnnGetErrorString") else { return format!("status {status}") };
        // SAFETY: a plain number; the text is the library's own and stays.
        unsafe { CStr::from_ptr(text(status)) }.to_string_lossy().into_owned()
    }

    fn check(&self, status: u32, during: &str) -> Result<()> {
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
    fn a_simulated_gpu_has_no_cudnn() {
        assert!(matches!(Cudnn::new(&Gpu::simulated().unwrap()), Err(Error::Unsupported { .. })));
    }

    #[test]
    fn a_convolution_knows_its_output_and_its_work() {
        let second = Convolution::SECOND_OF_CNN;
        assert_eq!((second.output_side(), second.operations()), (Some(24), 2_717_908_992.0));
        assert_eq!(Convolution { side: 2, ..second }.output_side(), None);
        let one = |ms, problem| CudnnAlgorithm {
            number: 1,
            name: ConvPass::Forward.algorithm(1),
            ms,
            workspace: 1 << 20,
            tensor_cores: true,
            deterministic: true,
            problem,
        };
        let list = vec![one(Some(0.1), None), one(None, Some("NOT_SUPPORTED".to_string()))];
        let text = CudnnAlgorithms { convolution: second, pass: ConvPass::Forward, library: 91400, list }.to_string();
        assert!(text.contains("27.18") && text.contains("1.00 MiB") && text.contains("NOT_SUPPORTED"), "{text}");
        assert_eq!(ConvPass::BackwardFilter.algorithm(9), "number 9");
    }

    #[test]
    fn a_missing_library_names_the_package() {
        match Loaded::load() {
            Ok(cudnn) => assert!(cudnn.version().unwrap() > 8000),
            Err(error) => assert!(error.to_string().contains("nvidia-cudnn") && error.to_string().contains("next: ")),
        }
    }
}
