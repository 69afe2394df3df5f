//! Compiled modules, their kernels, what a launch takes (a tuple of buffers, plain values and tensor maps), and launching.

use super::buffer::Memory;
use super::{Buffer, Gpu, Stream};
use crate::cuda::{CudaGpu, CudaKernel, CudaLibrary, compile_to_ptx};
use crate::error::{Error, Result};
use crate::inspect::Inspection;
use crate::launch::{
    ArgType, Bytes, Element, KernelParam, LaunchAttributes, LaunchConfig, Parameter, Signature, Source,
    check_arguments, entry_points, rust_signatures, signatures,
};
use crate::measurement::KernelResources;
use crate::metal::{MetalArg, MetalKernel, MetalLibrary};
use crate::sim::{SimKernel, SimLibrary, needs_hardware};
use crate::{cuda, rust, sim};
use cudarc::driver::{
    CudaFunction, CudaSlice, CudaStream, CudaView, CudaViewMut, DevicePtr, DevicePtrMut, DeviceSlice, SyncOnDrop, sys,
};
use std::sync::Arc;
use warpsim::{Arg as SimArg, WatchedWarp};

/// One kernel, ready to launch.
///
/// # What a safe launch promises
/// Before anything runs, count, types and sizes of the arguments are compared with the compiled kernel's parameters (on CUDA
/// `cuFuncGetParamInfo`), so that the driver reads each argument in full and nothing behind it. A parameter that is, or may
/// be, a pointer takes a buffer of this GPU and never a number. The launch waits for what other streams still do with the
/// buffers, and nobody frees them before it has ended. So no launch makes the host read or write memory wrongly.
///
/// What the kernel's own code does is not checked on hardware: an index past the end of a buffer reads or spoils other
/// memory of the GPU (a simulated GPU names it instead). Device memory holds plain numbers, of which every bit pattern is
/// valid. An address that a kernel computes itself, out of a number, a struct's member or an index far outside, reaches
/// whatever the GPU can: pinned memory is mapped there too. Kernel source is code of yours, as an `unsafe` block is.
///
/// # Examples
/// ```
/// use gpulab::prelude::*;
/// # let add = r#"extern "C" __global__ void add(const float *a, const float *b, float *c, int n) {
/// #     int i = blockIdx.x * blockDim.x + threadIdx.x;
/// #     if (i < n) {
/// #         c[i] = a[i] + b[i];
/// #     }
/// # }"#;
/// let gpu = Gpu::simulated()?;
/// let add = gpu.compile(add)?.kernel("add")?; // add(const float *a, const float *b, float *c, int n)
/// let (a, mut c) = (gpu.to_device(&[1.0_f32; 1000])?, gpu.zeros::<f32>(1000)?);
/// let config = LaunchConfig::for_elements(1000, 256);
/// add.launch(config, (&a, &a, &mut c, 1000_i32))?;
/// assert!(c.to_host()?.iter().all(|&sum| sum == 2.0));
///
/// // An argument of another type is refused before anything runs.
/// assert!(matches!(add.launch(config, (&a, &a, &mut c, 1000_usize)), Err(Error::ArgumentType { position: 4, .. })));
///
/// // In the simulator `inspect` in place of `launch` tells what hardware counts: 32 floats lie in 4 sectors of 32 bytes.
/// let seen = add.inspect(config, (&a, &a, &mut c, 1000_i32))?;
/// assert_eq!(seen.access("a[i]")?.sectors, 4);
/// # Ok::<(), Error>(())
/// ```
#[derive(Debug, Clone)]
pub struct Kernel {
    pub(super) gpu: Gpu,
    pub(super) loaded: Loaded,
    /// `None` on an Apple GPU.
    pub(super) signature: Option<Signature>,
    pub(super) max_threads_per_block: u32,
}

#[derive(Debug, Clone)]
pub(super) enum Loaded {
    Cuda(CudaKernel),
    Metal(MetalKernel),
    Simulated(SimKernel),
}

impl Gpu {
    /// A kernel that was loaded by cudarc, with its C declaration, such as `__global__ void add(const float *a, int n)`.
    ///
    /// # Safety
    /// The function was loaded in this GPU's context, and a parameter that the declaration calls a number is no pointer.
    ///
    /// # Errors
    /// [`Error::Invalid`] where the text declares no kernel, [`Error::ArgumentCount`] where the compiled function has
    /// another number of parameters, [`Error::Unsupported`] on other GPUs than NVIDIA's and with a driver before CUDA 12.4,
    /// which does not tell a function's parameters; [`Error::Driver`].
    pub unsafe fn kernel_from_cuda(&self, function: CudaFunction, declaration: &str) -> Result<Kernel> {
        self.cuda()?;
        let function = CudaKernel::from(function);
        let max_threads_per_block = function.max_threads_per_block()?;
        let layouts = function.layouts()?.ok_or_else(|| {
            Error::unsupported(
                "this driver does not tell a function's parameters (`cuFuncGetParamInfo` came with CUDA 12.4)",
                "update the driver, or load the kernel with `gpu.load_ptx` or `gpu.compile`",
            )
        })?;
        let declared = declared(declaration)?;
        let name = declared.name.clone();
        let compiled = Signature { name, parameters: Vec::new() }.with_layouts(&layouts);
        let signature = Some(agreed(compiled, &declared)?);
        Ok(Kernel { gpu: self.clone(), loaded: Loaded::Cuda(function), signature, max_threads_per_block })
    }
}

/// The first kernel that the text declares.
fn declared(declaration: &str) -> Result<Signature> {
    let found = signatures(declaration).into_iter().next();
    found.ok_or_else(|| Error::Invalid {
        what: format!("no kernel is declared in `{declaration}`"),
        fix: "write it as in CUDA C, such as `__global__ void add(const float *a, int n)`".to_string(),
    })
}

/// The compiled parameters with the names and types of a declaration, which must have as many.
fn agreed(compiled: Signature, declared: &Signature) -> Result<Signature> {
    if compiled.parameters.len() != declared.parameters.len() {
        return Err(Error::ArgumentCount {
            kernel: declared.name.clone(),
            signature: declared.to_string(),
            expected: compiled.parameters.len(),
            given: declared.parameters.len(),
        });
    }
    Ok(compiled.with_declaration(Some(declared)))
}

impl Kernel {
    /// Step 3, launch, on the default stream (`cuLaunchKernel`; in cudarc `stream.launch_builder(&function)`). Returns as soon as the launch is queued; on a simulated GPU, when the
    /// kernel has ended.
    ///
    /// # Errors
    /// [`Error::ArgumentCount`], [`Error::ArgumentType`], [`Error::ArgumentSize`], [`Error::LaunchLimit`] and
    /// [`Error::DeviceMismatch`] before anything runs; [`Error::Driver`] from the driver, also for work launched earlier; [`Error::Mistakes`] on a
    /// simulated GPU, for what this launch did wrong.
    pub fn launch<'a>(&self, config: LaunchConfig, args: impl Args<'a>) -> Result<()> {
        args.with_raw(|args| self.launch_raw(None, config, LaunchAttributes::NONE, args))
    }

    /// Step 3 in clusters of blocks, cooperatively, or before the kernel in front has ended (`cuLaunchKernelEx`).
    ///
    /// In the simulator a launch starts when the one in front has ended; the blocks of a cluster, and all of a cooperative
    /// launch, run interleaved.
    ///
    /// # Errors
    /// As [`Kernel::launch`]; [`Error::LaunchLimit`] for a cooperative launch of more blocks than run at the same time;
    /// [`Error::Unsupported`] for any attribute on an Apple GPU; [`Error::Invalid`] when the grid has no whole clusters.
    pub fn launch_with<'a>(
        &self,
        config: LaunchConfig,
        attributes: LaunchAttributes,
        args: impl Args<'a>,
    ) -> Result<()> {
        self.check_attributes(config, attributes)?;
        args.with_raw(|args| self.launch_raw(None, config, attributes, args))
    }

    /// Step 3 on a stream of your own.
    ///
    /// # Errors
    /// As [`Kernel::launch`].
    pub fn launch_on<'a>(&self, stream: &Stream, config: LaunchConfig, args: impl Args<'a>) -> Result<()> {
        args.with_raw(|args| self.launch_raw(Some(&stream.0), config, LaunchAttributes::NONE, args))
    }

    /// The kernel as cudarc has it, to launch with `stream.launch_builder(&function)`.
    ///
    /// # Errors
    /// [`Error::Unsupported`] on other GPUs than NVIDIA's.
    pub fn cuda_function(&self) -> Result<&CudaFunction> {
        match &self.loaded {
            Loaded::Cuda(kernel) => Ok(kernel.function()),
            _ => Err(self.gpu.no_cuda()),
        }
    }

    /// The parameters that a launch has to match, in order; none are known on an Apple GPU.
    pub fn parameters(&self) -> &[Parameter] {
        self.signature.as_ref().map_or(&[], |signature| &signature.parameters)
    }

    /// The same kernel with its C declaration, for PTX that came without source: names for messages, element types to check,
    /// and 64-bit numbers told from pointers.
    ///
    /// # Safety
    /// A parameter that the declaration calls a number is no pointer. (A launch would take a number for it, and a kernel that
    /// uses it as an address could reach pinned host memory.)
    ///
    /// # Errors
    /// [`Error::Invalid`] where the text declares no kernel, [`Error::ArgumentCount`] where the compiled kernel has another
    /// number of parameters.
    pub unsafe fn with_declaration(mut self, declaration: &str) -> Result<Kernel> {
        let declared = declared(declaration)?;
        self.signature = self.signature.map(|compiled| agreed(compiled, &declared)).transpose()?;
        Ok(self)
    }

    /// Blocks of that launch that the whole GPU runs at the same time: a cooperative launch may have no more. Occupancy times
    /// multiprocessors (`cuOccupancyMaxActiveBlocksPerMultiprocessor`); a simulated GPU has two multiprocessors with the
    /// limits of compute capability 9.0, registers aside.
    ///
    /// # Errors
    /// As [`Kernel::resources`], and [`Error::Unsupported`] on an Apple GPU.
    pub fn co_resident_blocks(&self, config: LaunchConfig) -> Result<u64> {
        self.check_limits(config)?;
        let blocks = match (&self.loaded, &self.gpu) {
            (Loaded::Cuda(kernel), Gpu::Cuda(_)) => kernel.blocks_per_multiprocessor(config)?,
            (Loaded::Simulated(kernel), _) => kernel.blocks_per_multiprocessor(config),
            _ => return Err(self.no_attributes()),
        };
        Ok(u64::from(blocks) * u64::from(self.gpu.multiprocessors()))
    }

    /// Launches on a simulated GPU, and gives what hardware counts in place of a time: requests, sectors, wavefronts,
    /// bank conflicts and instructions, in all and by source line, and the accesses of warp 0 of block (0, 0, 0).
    /// What the kernel does wrong is among the findings, and no error.
    ///
    /// # Errors
    /// As [`Kernel::launch`] before anything runs; [`Error::Unsupported`] for a kernel on a real GPU.
    pub fn inspect<'a>(&self, config: LaunchConfig, args: impl Args<'a>) -> Result<Inspection> {
        args.with_raw(|args| self.inspect_raw(config, args, WatchedWarp::default()))
    }

    /// As [`Kernel::inspect`], with the accesses of another warp: the block's (x, y, z), and the warp's number in it.
    ///
    /// # Errors
    /// As [`Kernel::inspect`]; [`Error::Invalid`] where the launch has no such warp.
    pub fn inspect_warp<'a>(
        &self,
        config: LaunchConfig,
        args: impl Args<'a>,
        block: (u32, u32, u32),
        warp: u32,
    ) -> Result<Inspection> {
        args.with_raw(|args| self.inspect_raw(config, args, WatchedWarp { block: block.into(), warp }))
    }

    /// How many clusters of that launch the whole GPU runs at the same time: blocks that wait for each other must not be
    /// more. In the simulator one.
    ///
    /// # Errors
    /// [`Error::Unsupported`] on an Apple GPU, [`Error::Driver`].
    pub fn clusters_at_a_time(&self, config: LaunchConfig, cluster: u32) -> Result<u32> {
        match (&self.loaded, &self.gpu) {
            (Loaded::Cuda(kernel), Gpu::Cuda(gpu)) => kernel.clusters_at_a_time(&gpu.stream, config, cluster),
            (Loaded::Simulated(_), _) => Ok(1),
            _ => Err(Error::unsupported("an Apple GPU has no clusters of blocks", "use an NVIDIA GPU from Hopper on")),
        }
    }

    fn inspect_raw(&self, config: LaunchConfig, args: &[RawArg<'_>], watch: WatchedWarp) -> Result<Inspection> {
        let (Loaded::Simulated(kernel), Gpu::Simulated(gpu)) = (&self.loaded, &self.gpu) else {
            return Err(Error::unsupported(
                format!("{} does not let a notebook look inside a launch", self.gpu),
                "compile the kernel on `Gpu::simulated()?` and inspect it there",
            ));
        };
        self.check(config, args)?;
        let ([x, y, z], warps) = (watch.block, config.threads_per_block().div_ceil(32));
        if x >= config.grid.0 || y >= config.grid.1 || z >= config.grid.2 || u64::from(watch.warp) >= warps {
            return Err(Error::invalid(
                format!("this launch has no block ({x}, {y}, {z}) with a warp {}", watch.warp),
                format!(
                    "the grid is {:?}, and each block has {warps} warp{}, counted from 0",
                    config.grid,
                    if warps == 1 { "" } else { "s" }
                ),
            ));
        }
        let args: Vec<SimArg> = args.iter().map(sim_arg).collect();
        kernel.inspect(gpu, config, &args, watch)
    }

    fn no_attributes(&self) -> Error {
        Error::unsupported(
            "an Apple GPU has no clusters, and no cooperative or early launches",
            "use `launch`, or an NVIDIA GPU",
        )
    }

    fn check_attributes(&self, config: LaunchConfig, attributes: LaunchAttributes) -> Result<()> {
        match self.gpu {
            _ if attributes.cluster == 0 || !config.grid.0.is_multiple_of(attributes.cluster) => Err(Error::invalid(
                format!("{} blocks are no whole clusters of {}", config.grid.0, attributes.cluster),
                "make the grid's x a multiple of the cluster",
            )),
            // On CUDA the driver refuses it: asking first would cost every such launch a call.
            Gpu::Simulated(_) if attributes.cooperative => {
                let fit = self.co_resident_blocks(config)?;
                if config.blocks() > fit { Err(cuda::too_many_blocks(config, fit)) } else { Ok(()) }
            }
            Gpu::Metal(_) if attributes != LaunchAttributes::NONE => Err(self.no_attributes()),
            _ => Ok(()),
        }
    }

    fn launch_raw(
        &self,
        stream: Option<&Arc<CudaStream>>,
        config: LaunchConfig,
        attributes: LaunchAttributes,
        args: &mut [RawArg<'_>],
    ) -> Result<()> {
        self.check(config, args)?;
        match (&self.loaded, &self.gpu) {
            (Loaded::Cuda(kernel), Gpu::Cuda(gpu)) => self.launch_cuda(gpu, kernel, stream, config, attributes, args),
            (Loaded::Metal(kernel), Gpu::Metal(gpu)) => {
                let args: Vec<MetalArg<'_>> = args.iter().map(metal_arg).collect();
                gpu.launch(kernel, config, &args)
            }
            (Loaded::Simulated(kernel), Gpu::Simulated(gpu)) => {
                if stream.is_some() {
                    let fix = "use `launch`: each launch there ends before the next begins";
                    return Err(needs_hardware("a launch cannot be queued on a stream", fix));
                }
                let args: Vec<SimArg> = args.iter().map(sim_arg).collect();
                kernel.launch(gpu, config, attributes, &args)
            }
            _ => unreachable!("a kernel is loaded on its own GPU"),
        }
    }

    fn launch_cuda(
        &self,
        gpu: &CudaGpu,
        kernel: &CudaKernel,
        stream: Option<&Arc<CudaStream>>,
        config: LaunchConfig,
        attributes: LaunchAttributes,
        args: &mut [RawArg<'_>],
    ) -> Result<()> {
        if config.shared_bytes > 48 << 10 {
            kernel.allow_shared_bytes(config.shared_bytes)?;
        }
        if let Some(stream) = stream {
            gpu.outside_capture("a launch on a stream of its own", "use `launch`, which is captured")?;
            gpu.owns(stream)?;
        }
        let captured = gpu.captured();
        if captured.is_some() {
            // A graph must know that its memory is still there, and of a slice of cudarc's it cannot.
            if args.iter().any(|arg| matches!(arg.memory, Some(Lent::CudaRead(_) | Lent::CudaWrite(_)))) {
                gpu.outside_capture("a launch with a slice of cudarc's", "give it to `Buffer::from_cuda` before")?;
            }
            gpu.uses(args.iter().filter_map(|arg| match arg.memory.as_ref()?.own()? {
                Memory::Cuda(memory) => Some(memory),
                _ => None,
            }));
            gpu.keep(|| Arc::new(kernel.clone()));
        }
        let queue = stream.or(captured.as_ref()).unwrap_or(&gpu.stream);
        let (mut few_guards, mut more_guards) = (std::array::from_fn(|_| None), Vec::new());
        let (mut few_addresses, mut more_addresses) = ([std::ptr::null_mut(); FEW], Vec::new());
        let guards = slots(&mut few_guards, &mut more_guards, args.len(), || None);
        let addresses = slots(&mut few_addresses, &mut more_addresses, args.len(), std::ptr::null_mut);
        for ((RawArg { bytes, memory, .. }, guard), address) in args.iter_mut().zip(guards).zip(&mut *addresses) {
            if let Some(memory) = memory {
                let (pointer, order) = memory.on_stream(queue);
                *guard = Some(order);
                // A tensor map brings bytes of its own.
                bytes.get_or_insert_with(|| Bytes::of(&pointer));
            }
            *address = bytes.as_mut().expect("an argument is bytes, memory, or both").address();
        }
        // SAFETY: count and sizes were just checked against the compiled kernel's parameters, and every address is that of a
        // buffer of this GPU, whose elements are plain numbers of which every bit pattern is valid; the guards outlive the
        // call, and order later uses behind it. What the kernel's own code does, `Kernel` says.
        unsafe { kernel.launch(queue, config, attributes, addresses) }
    }

    fn check(&self, config: LaunchConfig, args: &[RawArg<'_>]) -> Result<()> {
        for memory in args.iter().filter_map(|arg| arg.memory.as_ref()) {
            if let Some(found) = memory.elsewhere(&self.gpu) {
                return Err(Error::DeviceMismatch { expected: self.gpu.to_string(), found });
            }
        }
        if let Some(signature) = &self.signature {
            check_arguments(signature, args.iter().map(|arg| arg.kind))?;
        }
        self.check_limits(config)
    }

    fn check_limits(&self, config: LaunchConfig) -> Result<()> {
        self.gpu.limits().check(&config)?;
        let threads = config.threads_per_block();
        if threads > u64::from(self.max_threads_per_block) {
            return Err(Error::LaunchLimit {
                what: "this kernel needs so many registers that a block cannot have that many threads".to_string(),
                asked: threads,
                limit: self.max_threads_per_block.into(),
                fix: "use smaller blocks, or put `__launch_bounds__(threads)` on the kernel".to_string(),
            });
        }
        Ok(())
    }

    /// What the kernel needs, as compiled for this GPU, and how many blocks of that launch a multiprocessor holds.
    ///
    /// # Errors
    /// [`Error::LaunchLimit`] for a launch that the GPU refuses, [`Error::Unsupported`] on an Apple GPU and on a
    /// simulated one, [`Error::Driver`].
    pub fn resources(&self, config: LaunchConfig) -> Result<KernelResources> {
        match &self.loaded {
            Loaded::Cuda(kernel) => {
                self.check_limits(config)?;
                let Gpu::Cuda(gpu) = &self.gpu else { unreachable!("a kernel is loaded on its own GPU") };
                kernel.residency(gpu, config)
            }
            Loaded::Metal(_) => {
                Err(Error::unsupported("Metal does not tell a kernel's registers", "use Xcode's GPU frame capture"))
            }
            Loaded::Simulated(_) => Err(needs_hardware(
                "registers are given out by the driver's compiler, which does not run here",
                "run this on an NVIDIA GPU; what a launch does to memory shows in `kernel.inspect`",
            )),
        }
    }
}

fn metal_arg<'a>(arg: &'a RawArg<'_>) -> MetalArg<'a> {
    match (&arg.bytes, arg.memory.as_ref().and_then(Lent::own)) {
        (Some(bytes), _) => MetalArg::Bytes(bytes.as_slice()),
        (None, Some(Memory::Metal(memory))) => MetalArg::Memory(memory),
        (None, _) => unreachable!("{OWN_GPU}"),
    }
}

fn sim_arg(arg: &RawArg<'_>) -> SimArg {
    match (&arg.bytes, arg.memory.as_ref().and_then(Lent::own)) {
        (Some(bytes), _) => SimArg::Bytes(bytes.as_slice().to_vec()),
        (None, Some(Memory::Simulated(memory))) => memory.arg(),
        (None, _) => unreachable!("{OWN_GPU}"),
    }
}

const OWN_GPU: &str = "checked before: every buffer is on the kernel's GPU";

/// One argument on its way to a kernel, on any machine: its bytes, the memory that the kernel may reach through it, or both.
pub struct RawArg<'a> {
    pub(super) kind: ArgType,
    /// `None` for a buffer: its bytes are its address, which the launch puts here.
    pub(super) bytes: Option<Bytes>,
    pub(super) memory: Option<Lent<'a>>,
}

/// Memory lent to a launch, for reading or for writing.
pub(super) enum Lent<'a> {
    Read(&'a Memory, &'a Gpu),
    Write(&'a mut Memory, &'a Gpu),
    /// Of a slice of cudarc's, which `Memory` does not own.
    CudaRead(CudaView<'a, u8>),
    CudaWrite(CudaViewMut<'a, u8>),
}

impl Lent<'_> {
    /// `None` where the memory is cudarc's.
    pub(super) fn own(&self) -> Option<&Memory> {
        match self {
            Lent::Read(memory, _) => Some(memory),
            Lent::Write(memory, _) => Some(memory),
            Lent::CudaRead(_) | Lent::CudaWrite(_) => None,
        }
    }

    /// Where the memory is, if that is not on `gpu`.
    pub(super) fn elsewhere(&self, gpu: &Gpu) -> Option<String> {
        let context = match self {
            Lent::Read(memory, owner) => return (!memory.is_of(gpu)).then(|| other(owner, gpu)),
            Lent::Write(memory, owner) => return (!memory.is_of(gpu)).then(|| other(owner, gpu)),
            Lent::CudaRead(view) => view.stream().context(),
            Lent::CudaWrite(view) => view.stream().context(),
        };
        match gpu {
            Gpu::Cuda(gpu) => (!Arc::ptr_eq(context, &gpu.context)).then(|| cuda::another_context(context)),
            _ => Some(format!("GPU {}", context.ordinal())),
        }
    }

    /// Its address, for work that `stream` gets next: it waits for what other streams still do with the memory. When the
    /// guard is dropped, after the work was queued, later users of the memory wait for that work.
    pub(super) fn on_stream<'b>(&'b mut self, stream: &'b CudaStream) -> (sys::CUdeviceptr, SyncOnDrop<'b>) {
        match self {
            Lent::Read(Memory::Cuda(memory), _) => memory.device_ptr(stream),
            Lent::Write(Memory::Cuda(memory), _) => memory.device_ptr_mut(stream),
            Lent::CudaRead(view) => view.device_ptr(stream),
            Lent::CudaWrite(view) => view.device_ptr_mut(stream),
            Lent::Read(..) | Lent::Write(..) => unreachable!("checked before: every buffer is on the kernel's GPU"),
        }
    }
}

/// What to call memory of `owner`, seen from `gpu`.
fn other(owner: &Gpu, gpu: &Gpu) -> String {
    match (owner, gpu) {
        (Gpu::Simulated(_), Gpu::Simulated(_)) => "another simulated GPU".to_string(),
        (Gpu::Cuda(owner), Gpu::Cuda(_)) => cuda::another_context(&owner.context),
        _ => format!("GPU {}", owner.index()),
    }
}

pub(super) mod sealed {
    pub trait Sealed {}
}

/// What may stand in a launch: `&buffer`, `&mut buffer`, a number or another [`KernelParam`] by value, `&map` or `&mut map`
/// of a [`TensorMap`](super::TensorMap), and on an NVIDIA GPU cudarc's own slices and views: `&slice`, `&mut slice`, `&view`, `&mut view`.
pub trait KernelArg<'a>: sealed::Sealed {
    #[doc(hidden)]
    fn into_raw(self) -> RawArg<'a>;
}

impl<T: KernelParam> sealed::Sealed for T {}
impl<'a, T: KernelParam> KernelArg<'a> for T {
    fn into_raw(self) -> RawArg<'a> {
        RawArg { kind: ArgType::of::<T>(), bytes: Some(Bytes::of(&self)), memory: None }
    }
}

fn buffer<T: Element>(mutable: bool, memory: Lent<'_>) -> RawArg<'_> {
    RawArg { kind: ArgType::Buffer { element: T::TYPE, mutable }, bytes: None, memory: Some(memory) }
}

impl<T: Element> sealed::Sealed for &Buffer<T> {}
impl<'a, T: Element> KernelArg<'a> for &'a Buffer<T> {
    fn into_raw(self) -> RawArg<'a> {
        buffer::<T>(false, Lent::Read(&self.memory, &self.gpu))
    }
}

impl<T: Element> sealed::Sealed for &mut Buffer<T> {}
impl<'a, T: Element> KernelArg<'a> for &'a mut Buffer<T> {
    fn into_raw(self) -> RawArg<'a> {
        buffer::<T>(true, Lent::Write(&mut self.memory, &self.gpu))
    }
}

impl<T: Element> sealed::Sealed for &CudaSlice<T> {}
impl<'a, T: Element> KernelArg<'a> for &'a CudaSlice<T> {
    fn into_raw(self) -> RawArg<'a> {
        // SAFETY: any bytes are valid as bytes.
        let view = unsafe { self.transmute::<u8>(self.num_bytes()) };
        buffer::<T>(false, Lent::CudaRead(view.expect("a slice is as long as it is")))
    }
}

impl<T: Element> sealed::Sealed for &mut CudaSlice<T> {}
impl<'a, T: Element> KernelArg<'a> for &'a mut CudaSlice<T> {
    fn into_raw(self) -> RawArg<'a> {
        let bytes = self.num_bytes();
        // SAFETY: an element is a plain number, for which every bit pattern is valid.
        let view = unsafe { self.transmute_mut::<u8>(bytes) };
        buffer::<T>(true, Lent::CudaWrite(view.expect("a slice is as long as it is")))
    }
}

impl<T: Element> sealed::Sealed for &CudaView<'_, T> {}
impl<'a, T: Element> KernelArg<'a> for &'a CudaView<'_, T> {
    fn into_raw(self) -> RawArg<'a> {
        // SAFETY: any bytes are valid as bytes.
        let view = unsafe { self.transmute::<u8>(self.num_bytes()) };
        buffer::<T>(false, Lent::CudaRead(view.expect("a view is as long as it is")))
    }
}

impl<T: Element> sealed::Sealed for &mut CudaViewMut<'_, T> {}
impl<'a, T: Element> KernelArg<'a> for &'a mut CudaViewMut<'_, T> {
    fn into_raw(self) -> RawArg<'a> {
        let bytes = self.num_bytes();
        // SAFETY: an element is a plain number, for which every bit pattern is valid.
        let view = unsafe { self.transmute_mut::<u8>(bytes) };
        buffer::<T>(true, Lent::CudaWrite(view.expect("a view is as long as it is")))
    }
}

/// As many arguments as a tuple has at most need no allocation: launches are timed in microseconds.
const FEW: usize = 16;

fn slots<'s, T>(few: &'s mut [T; FEW], more: &'s mut Vec<T>, len: usize, empty: impl FnMut() -> T) -> &'s mut [T] {
    if len <= FEW {
        return &mut few[..len];
    }
    more.resize_with(len, empty);
    more
}

/// All arguments of a launch, as a tuple of up to sixteen. (As a list too, for programs that read them from a table.)
pub trait Args<'a>: sealed::Sealed {
    #[doc(hidden)]
    fn with_raw<R>(self, does: impl FnOnce(&mut [RawArg<'a>]) -> R) -> R;
}

impl sealed::Sealed for Vec<RawArg<'_>> {}
impl<'a> Args<'a> for Vec<RawArg<'a>> {
    fn with_raw<R>(mut self, does: impl FnOnce(&mut [RawArg<'a>]) -> R) -> R {
        does(&mut self)
    }
}

macro_rules! tuples {
    ($($($name:ident)*;)*) => {$(
        impl<$($name: sealed::Sealed),*> sealed::Sealed for ($($name,)*) {}
        impl<'a, $($name: KernelArg<'a>),*> Args<'a> for ($($name,)*) {
            #[inline]
            fn with_raw<R>(self, does: impl FnOnce(&mut [RawArg<'a>]) -> R) -> R {
                #[allow(non_snake_case)]
                let ($($name,)*) = self;
                does(&mut [$($name.into_raw()),*])
            }
        }
    )*};
}

tuples! {
    ; A; A B; A B C; A B C D; A B C D E; A B C D E F; A B C D E F G; A B C D E F G H; A B C D E F G H I;
    A B C D E F G H I J; A B C D E F G H I J K; A B C D E F G H I J K L; A B C D E F G H I J K L M;
    A B C D E F G H I J K L M N; A B C D E F G H I J K L M N O; A B C D E F G H I J K L M N O P;
}

/// Compiled kernels, loaded on one GPU.
///
/// # Examples
/// ```
/// use gpulab::prelude::*;
/// # let add = r#"extern "C" __global__ void add(const float *a, const float *b, float *c, int n) {
/// #     int i = blockIdx.x * blockDim.x + threadIdx.x;
/// #     if (i < n) {
/// #         c[i] = a[i] + b[i];
/// #     }
/// # }"#;
/// let module = Gpu::simulated()?.compile(add)?; // add(const float *a, const float *b, float *c, int n)
/// assert_eq!(module.names(), ["add"]);
/// assert_eq!(module.kernel("add")?.parameters().len(), 4);
/// assert!(matches!(module.kernel("sub"), Err(Error::NoSuchKernel { .. })));
/// # Ok::<(), Error>(())
/// ```
#[derive(Debug, Clone)]
pub struct Module {
    gpu: Gpu,
    library: Library,
    signatures: Vec<Signature>,
    names: Vec<String>,
    /// `None` on an Apple GPU.
    ptx: Option<Arc<str>>,
}

#[derive(Debug, Clone)]
enum Library {
    Cuda(CudaLibrary),
    Metal(MetalLibrary),
    Simulated(SimLibrary),
}

impl Gpu {
    /// Compiles CUDA C (on an Apple GPU: Metal) and loads it. Text, or a [`Source`] with constants, from a file, or in Rust
    /// ([`Source::rust`]).
    ///
    /// # Errors
    /// [`Error::Compile`] with the compiler's log and the lines it means, [`Error::NoCompiler`] without NVRTC,
    /// [`Error::DriverTooOld`] when the driver cannot load what the compiler made, [`Error::Unsupported`] for an
    /// instruction that the simulator does not run.
    pub fn compile(&self, source: impl Into<Source>) -> Result<Module> {
        self.compile_source(&source.into())
    }

    /// Loads PTX that was made elsewhere, by nvcc or rustc (`cuModuleLoadData`).
    ///
    /// PTX tells each parameter's size, and its launches are checked against that. Where it does not say whether 64 bits are
    /// a number or an address (older compilers mark no addresses with `.ptr`), a launch takes a buffer there and no number;
    /// [`Kernel::with_declaration`] tells the two apart.
    ///
    /// # Errors
    /// [`Error::DriverTooOld`] when it is of a newer version than the driver knows, [`Error::Unsupported`] on an Apple
    /// GPU, [`Error::Driver`].
    pub fn load_ptx(&self, ptx: &str) -> Result<Module> {
        match self {
            Gpu::Cuda(gpu) => self.load_cuda(gpu, ptx, Vec::new()),
            Gpu::Simulated(_) => Ok(self.module(Library::Simulated(SimLibrary::load(ptx, None)?), ptx, Vec::new())),
            Gpu::Metal(_) => Err(no_ptx()),
        }
    }

    fn compile_source(&self, source: &Source) -> Result<Module> {
        match self {
            Gpu::Cuda(gpu) if source.is_rust() => {
                let ptx = rust::compile_to_ptx(source, gpu.capability()?)?;
                self.load_cuda(gpu, &ptx, rust_signatures(&source.text))
            }
            Gpu::Simulated(_) if source.is_rust() => {
                let ptx = rust::compile_to_ptx(source, sim::ARCHITECTURE)?;
                let library = Library::Simulated(SimLibrary::load(&ptx, Some(source.clone()))?);
                Ok(self.module(library, &ptx, rust_signatures(&source.text)))
            }
            Gpu::Metal(_) if source.is_rust() => Err(Error::unsupported(
                "rustc compiles kernels to PTX, which an Apple GPU does not run",
                "compile it on `Gpu::simulated()?`, or give `gpu.compile` a Metal kernel",
            )),
            Gpu::Cuda(gpu) => {
                let ptx = compile_to_ptx(source, &Gpu::target(gpu)?)?;
                self.load_cuda(gpu, &ptx, signatures(&source.text))
            }
            Gpu::Metal(gpu) => {
                let library = gpu.compile(source)?;
                let names = library.names();
                let (library, signatures) = (Library::Metal(library), Vec::new());
                Ok(Module { gpu: self.clone(), library, signatures, names, ptx: None })
            }
            Gpu::Simulated(_) => {
                let ptx = sim::compile_or_ship(source)?;
                let library = Library::Simulated(SimLibrary::load(&ptx, Some(source.clone()))?);
                Ok(self.module(library, &ptx, signatures(&source.text)))
            }
        }
    }

    fn load_cuda(&self, gpu: &CudaGpu, ptx: &str, declared: Vec<Signature>) -> Result<Module> {
        Ok(self.module(Library::Cuda(gpu.load(ptx)?), ptx, declared))
    }

    /// `declared` are the source's own declarations: names and types read best there. What a macro made is known from the
    /// PTX alone.
    fn module(&self, library: Library, ptx: &str, declared: Vec<Signature>) -> Module {
        let compiled = entry_points(ptx).into_iter().map(|entry| {
            let declared = declared.iter().find(|declared| declared.name == entry.name);
            entry.with_declaration(declared)
        });
        let signatures: Vec<Signature> = compiled.collect();
        let names = signatures.iter().map(|entry| entry.name.clone()).collect();
        Module { gpu: self.clone(), library, signatures, names, ptx: Some(ptx.into()) }
    }
}

fn no_ptx() -> Error {
    Error::unsupported("an Apple GPU does not run PTX", "give `gpu.compile` a Metal kernel")
}

impl Module {
    /// The PTX that was loaded: what the compiler made of CUDA C, and the driver compiles to the GPU's own instructions. For
    /// cudarc: `Ptx::from_src(module.ptx()?)`.
    ///
    /// # Errors
    /// [`Error::Unsupported`] on an Apple GPU.
    pub fn ptx(&self) -> Result<&str> {
        self.ptx.as_deref().ok_or_else(no_ptx)
    }

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
        let mut signature = self.signatures.iter().find(|signature| signature.name == name).cloned();
        let (loaded, max_threads_per_block) = match &self.library {
            Library::Cuda(library) => {
                let kernel = library.kernel(name)?;
                let most = kernel.max_threads_per_block()?;
                if let Some(layouts) = kernel.layouts()? {
                    signature = signature.map(|signature| signature.with_layouts(&layouts));
                }
                (Loaded::Cuda(kernel), most)
            }
            Library::Metal(library) => {
                let kernel = library.kernel(name)?;
                let most = kernel.max_threads_per_block();
                (Loaded::Metal(kernel), most)
            }
            Library::Simulated(library) => {
                let kernel = library.kernel(name, signature.as_ref());
                (Loaded::Simulated(kernel), self.gpu.limits().threads_per_block)
            }
        };
        Ok(Kernel { gpu: self.gpu.clone(), loaded, signature, max_threads_per_block })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::ffi::c_void;

    /// What the driver reads: from each address as many bytes as the parameter has. Miri watches.
    fn read(args: &mut [RawArg<'_>]) -> Vec<Vec<u8>> {
        let sizes: Vec<usize> = args.iter().map(|arg| arg.kind.bytes()).collect();
        let (mut few, mut more) = ([std::ptr::null_mut(); FEW], Vec::new());
        let addresses: &mut [*mut c_void] = slots(&mut few, &mut more, args.len(), std::ptr::null_mut);
        for (arg, address) in args.iter_mut().zip(&mut *addresses) {
            *address = arg.bytes.as_mut().expect("an argument by value").address();
        }
        let read = |(&address, bytes): (&*mut c_void, usize)| {
            let mut copy = vec![0_u8; bytes];
            // SAFETY: the argument has that many bytes there.
            unsafe { std::ptr::copy_nonoverlapping(address.cast::<u8>(), copy.as_mut_ptr(), bytes) };
            copy
        };
        addresses.iter().zip(sizes).map(read).collect()
    }

    #[test]
    fn the_driver_finds_each_argument_of_a_tuple() {
        let seen = (7_u8, -2_i32, 3.5_f32, [1.0_f32, 2.0, 3.0, 4.0], [5_u64; 16], true).with_raw(read);
        let floats: Vec<u8> = [1.0_f32, 2.0, 3.0, 4.0].iter().flat_map(|x| x.to_ne_bytes()).collect();
        assert_eq!(seen[..3], [vec![7], (-2_i32).to_ne_bytes().to_vec(), 3.5_f32.to_ne_bytes().to_vec()]);
        assert_eq!((&seen[3], &seen[4], &seen[5]), (&floats, &5_u64.to_ne_bytes().repeat(16), &vec![1]));
        assert!(().with_raw(read).is_empty());
    }

    #[test]
    fn a_list_may_be_longer_than_a_tuple() {
        let list: Vec<RawArg<'_>> = (0..40_u32).map(KernelArg::into_raw).collect();
        let seen = list.with_raw(read);
        assert!((0..40_u32).map(|n| n.to_ne_bytes().to_vec()).eq(seen));
    }
}
