//! Compiling, looking up and launching kernels.

use super::args::{RawArg, RawValue};
use super::buffer::Memory;
use super::{Args, Gpu, Stream};
use crate::cuda::{CudaArg, CudaGpu, CudaKernel, CudaLibrary, compile_to_ptx};
use crate::error::{Error, Result};
use crate::launch::{LaunchConfig, Signature, Source, check_arguments, entry_points, signatures};
use crate::metal::{MetalArg, MetalKernel, MetalLibrary};
use cudarc::driver::CudaStream;

/// Compiled kernels, loaded on one GPU.
#[derive(Debug, Clone)]
pub struct Module {
    gpu: Gpu,
    library: Library,
    signatures: Vec<Signature>,
    names: Vec<String>,
}

#[derive(Debug, Clone)]
enum Library {
    Cuda(CudaLibrary),
    Metal(MetalLibrary),
}

/// One kernel, ready to launch.
#[derive(Debug, Clone)]
pub struct Kernel {
    gpu: Gpu,
    loaded: Loaded,
    /// `None` on an Apple GPU.
    signature: Option<Signature>,
    largest_block: u32,
}

#[derive(Debug, Clone)]
enum Loaded {
    Cuda(CudaKernel),
    Metal(MetalKernel),
}

/// What one kernel needs of the GPU.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct KernelResources {
    /// Registers a thread.
    pub registers: u32,
    /// Static shared memory a block, in bytes.
    pub shared_bytes: u32,
    /// Local memory a thread, in bytes: registers that did not fit (spills) and arrays indexed at run time.
    pub local_bytes: u32,
    /// The largest block that these registers allow, in threads.
    pub largest_block: u32,
}

impl Gpu {
    /// Compiles CUDA C (on an Apple GPU: Metal) and loads it. Text, or a [`Source`] with constants or from a file.
    ///
    /// # Errors
    /// [`Error::Compile`] with the compiler's log and the lines it means, [`Error::NoCompiler`] without NVRTC,
    /// [`Error::DriverTooOld`] when the driver cannot load what the compiler made.
    pub fn compile(&self, source: impl Into<Source>) -> Result<Module> {
        self.compile_source(&source.into())
    }

    /// Loads PTX that was made elsewhere, by nvcc or rustc.
    ///
    /// # Errors
    /// [`Error::DriverTooOld`] when it is of a newer version than the driver knows, [`Error::Unsupported`] on an Apple
    /// GPU, [`Error::Driver`].
    pub fn load_ptx(&self, ptx: &str) -> Result<Module> {
        match self {
            Gpu::Cuda(gpu) => self.load_cuda(gpu, ptx, Vec::new()),
            Gpu::Metal(_) => Err(Error::Unsupported {
                what: "an Apple GPU does not run PTX".to_string(),
                fix: "give `gpu.compile` a Metal kernel".to_string(),
            }),
        }
    }

    fn compile_source(&self, source: &Source) -> Result<Module> {
        match self {
            Gpu::Cuda(gpu) => {
                let ptx = compile_to_ptx(source, &format!("compute_{}", Gpu::architecture(gpu)?))?;
                self.load_cuda(gpu, &ptx, signatures(&source.text))
            }
            Gpu::Metal(gpu) => {
                let library = gpu.compile(source)?;
                let names = library.names();
                Ok(Module { gpu: self.clone(), library: Library::Metal(library), signatures: Vec::new(), names })
            }
        }
    }

    /// `declared` are the source's own declarations: they read best. What a macro made is known from the PTX alone.
    fn load_cuda(&self, gpu: &CudaGpu, ptx: &str, declared: Vec<Signature>) -> Result<Module> {
        let entries = entry_points(ptx);
        let names = entries.iter().map(|entry| entry.name.clone()).collect();
        let signatures = declared.into_iter().chain(entries).collect();
        Ok(Module { gpu: self.clone(), library: Library::Cuda(gpu.load(ptx)?), signatures, names })
    }
}

impl Module {
    /// The kernels in this module.
    pub fn names(&self) -> &[String] {
        &self.names
    }

    /// The kernel of that name.
    ///
    /// # Errors
    /// [`Error::NoSuchKernel`] with the names that there are.
    pub fn kernel(&self, name: &str) -> Result<Kernel> {
        if !self.names.iter().any(|known| known == name) {
            return Err(Error::NoSuchKernel { asked: name.to_string(), found: self.names.clone() });
        }
        let (loaded, largest_block) = match &self.library {
            Library::Cuda(library) => {
                let kernel = library.kernel(name)?;
                let [.., largest] = kernel.resources()?;
                (Loaded::Cuda(kernel), largest as u32)
            }
            Library::Metal(library) => {
                let kernel = library.kernel(name)?;
                let largest = kernel.largest_block();
                (Loaded::Metal(kernel), largest)
            }
        };
        let signature = self.signatures.iter().find(|signature| signature.name == name).cloned();
        Ok(Kernel { gpu: self.gpu.clone(), loaded, signature, largest_block })
    }
}

impl Kernel {
    /// Step 3, launch, on the default stream. Returns as soon as the launch is queued.
    ///
    /// # Errors
    /// [`Error::ArgumentCount`], [`Error::ArgumentType`], [`Error::LaunchLimit`] and [`Error::DeviceMismatch`] before
    /// anything runs; [`Error::Driver`] from the driver, also for work launched earlier.
    pub fn launch<'a>(&self, config: LaunchConfig, args: impl Args<'a>) -> Result<()> {
        self.launch_raw(None, config, args.into_raw())
    }

    /// Step 3 on a stream of your own.
    ///
    /// # Errors
    /// As [`Kernel::launch`].
    pub fn launch_on<'a>(&self, stream: &Stream, config: LaunchConfig, args: impl Args<'a>) -> Result<()> {
        self.launch_raw(Some(&stream.0), config, args.into_raw())
    }

    fn launch_raw(&self, stream: Option<&CudaStream>, config: LaunchConfig, args: Vec<RawArg<'_>>) -> Result<()> {
        self.check(config, &args)?;
        match (&self.loaded, &self.gpu) {
            (Loaded::Cuda(kernel), Gpu::Cuda(gpu)) => {
                if config.shared_bytes > 48 << 10 {
                    kernel.allow_shared_bytes(config.shared_bytes)?;
                }
                let mut args: Vec<CudaArg<'_>> = args.into_iter().map(cuda_arg).collect();
                kernel.launch(stream.unwrap_or(&gpu.stream), config, &mut args)
            }
            (Loaded::Metal(kernel), Gpu::Metal(gpu)) => {
                let args: Vec<MetalArg<'_>> = args.into_iter().map(metal_arg).collect();
                gpu.launch(kernel, config, &args)
            }
            _ => unreachable!("a kernel is loaded on its own GPU"),
        }
    }

    fn check(&self, config: LaunchConfig, args: &[RawArg<'_>]) -> Result<()> {
        for arg in args {
            let (memory, index): (&Memory, usize) = match &arg.value {
                RawValue::Read(memory, index) => (memory, *index),
                RawValue::Write(memory, index) => (memory, *index),
                _ => continue,
            };
            let same_kind =
                matches!((&self.gpu, memory), (Gpu::Cuda(_), Memory::Cuda(_)) | (Gpu::Metal(_), Memory::Metal(_)));
            if !same_kind || index != self.gpu.index() {
                return Err(Error::DeviceMismatch { expected: self.gpu.to_string(), found: format!("GPU {index}") });
            }
        }
        if let Some(signature) = &self.signature {
            let kinds: Vec<_> = args.iter().map(|arg| arg.kind).collect();
            check_arguments(signature, &kinds)?;
        }
        self.gpu.limits().check(&config)?;
        let threads = config.threads_per_block();
        if threads > u64::from(self.largest_block) {
            return Err(Error::LaunchLimit {
                what: "this kernel needs so many registers that a block cannot have that many threads".to_string(),
                asked: threads,
                limit: self.largest_block.into(),
                fix: "use smaller blocks, or put `__launch_bounds__(threads)` on the kernel".to_string(),
            });
        }
        Ok(())
    }

    /// What the kernel needs, as compiled for this GPU.
    ///
    /// # Errors
    /// [`Error::Unsupported`] on an Apple GPU, [`Error::Driver`].
    pub fn resources(&self) -> Result<KernelResources> {
        match &self.loaded {
            Loaded::Cuda(kernel) => {
                let [registers, shared_bytes, local_bytes, largest_block] =
                    kernel.resources()?.map(|n| n.max(0) as u32);
                Ok(KernelResources { registers, shared_bytes, local_bytes, largest_block })
            }
            Loaded::Metal(_) => Err(Error::Unsupported {
                what: "Metal does not tell a kernel's registers".to_string(),
                fix: "use Xcode's GPU frame capture".to_string(),
            }),
        }
    }
}

const OWN_GPU: &str = "checked before: every buffer is on the kernel's GPU";

fn cuda_arg(arg: RawArg<'_>) -> CudaArg<'_> {
    match arg.value {
        RawValue::Read(Memory::Cuda(memory), _) => CudaArg::Read(memory),
        RawValue::Write(Memory::Cuda(memory), _) => CudaArg::Write(memory),
        RawValue::Bytes1(value) => CudaArg::Bytes1(value),
        RawValue::Bytes2(value) => CudaArg::Bytes2(value),
        RawValue::Bytes4(value) => CudaArg::Bytes4(value),
        RawValue::Bytes8(value) => CudaArg::Bytes8(value),
        RawValue::Read(Memory::Metal(_), _) | RawValue::Write(Memory::Metal(_), _) => unreachable!("{OWN_GPU}"),
    }
}

fn metal_arg(arg: RawArg<'_>) -> MetalArg<'_> {
    match arg.value {
        RawValue::Read(Memory::Metal(memory), _) => MetalArg::Memory(memory),
        RawValue::Write(Memory::Metal(memory), _) => MetalArg::Memory(memory),
        RawValue::Bytes1(value) => MetalArg::Number(value.into(), 1),
        RawValue::Bytes2(value) => MetalArg::Number(value.into(), 2),
        RawValue::Bytes4(value) => MetalArg::Number(value.into(), 4),
        RawValue::Bytes8(value) => MetalArg::Number(value, 8),
        RawValue::Read(Memory::Cuda(_), _) | RawValue::Write(Memory::Cuda(_), _) => unreachable!("{OWN_GPU}"),
    }
}
