//! Launching kernels.

use super::args::{RawArg, RawValue};
use super::buffer::Memory;
use super::{Args, Gpu, Stream};
use crate::cuda::{CudaArg, CudaKernel, CudaMemory};
use crate::error::{Error, Result};
use crate::inspect::Inspection;
use crate::launch::{LaunchConfig, LaunchExtras, Signature, check_arguments};
use crate::measurement::KernelResources;
use crate::metal::{MetalArg, MetalKernel};
use crate::sim::{SimKernel, needs_hardware};
use cudarc::driver::CudaStream;
use warpsim::{Arg as SimArg, Watch};

/// One kernel, ready to launch.
#[derive(Debug, Clone)]
pub struct Kernel {
    pub(super) gpu: Gpu,
    pub(super) loaded: Loaded,
    /// `None` on an Apple GPU.
    pub(super) signature: Option<Signature>,
    pub(super) largest_block: u32,
}

#[derive(Debug, Clone)]
pub(super) enum Loaded {
    Cuda(CudaKernel),
    Metal(MetalKernel),
    Simulated(SimKernel),
}

impl Kernel {
    /// Step 3, launch, on the default stream. Returns as soon as the launch is queued; on a simulated GPU, when the
    /// kernel has ended.
    ///
    /// # Errors
    /// [`Error::ArgumentCount`], [`Error::ArgumentType`], [`Error::LaunchLimit`] and [`Error::DeviceMismatch`] before
    /// anything runs; [`Error::Driver`] from the driver, also for work launched earlier; [`Error::Mistakes`] on a
    /// simulated GPU, for what this launch did wrong.
    pub fn launch<'a>(&self, config: LaunchConfig, args: impl Args<'a>) -> Result<()> {
        self.launch_raw(None, config, LaunchExtras::NONE, args.into_raw())
    }

    /// Step 3 in clusters of blocks, or before the kernel in front has ended.
    ///
    /// In the simulator a launch starts when the one in front has ended, a cluster is one block, and a cooperative launch runs
    /// all blocks in turns.
    ///
    /// # Errors
    /// As [`Kernel::launch`]; [`Error::Unsupported`] for clusters in the simulator, and for either on an Apple GPU;
    /// [`Error::Invalid`] when the grid has no whole clusters.
    pub fn launch_with<'a>(&self, config: LaunchConfig, extras: LaunchExtras, args: impl Args<'a>) -> Result<()> {
        self.check_extras(config, extras)?;
        self.launch_raw(None, config, extras, args.into_raw())
    }

    /// Step 3 on a stream of your own.
    ///
    /// # Errors
    /// As [`Kernel::launch`].
    pub fn launch_on<'a>(&self, stream: &Stream, config: LaunchConfig, args: impl Args<'a>) -> Result<()> {
        self.launch_raw(Some(&stream.0), config, LaunchExtras::NONE, args.into_raw())
    }

    /// Launches on a simulated GPU, and gives what hardware counts in place of a time: requests, sectors, wavefronts,
    /// bank conflicts and instructions, in all and by source line, and the accesses of warp 0 of block (0, 0, 0).
    /// What the kernel does wrong is among the findings, and no error.
    ///
    /// # Errors
    /// As [`Kernel::launch`] before anything runs; [`Error::Unsupported`] for a kernel on a real GPU.
    pub fn inspect<'a>(&self, config: LaunchConfig, args: impl Args<'a>) -> Result<Inspection> {
        self.inspect_raw(config, args.into_raw(), Watch::default())
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
        self.inspect_raw(config, args.into_raw(), Watch { block: block.into(), warp })
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
            _ => Err(Error::Unsupported {
                what: "an Apple GPU has no clusters of blocks".to_string(),
                fix: "use an NVIDIA GPU from Hopper on".to_string(),
            }),
        }
    }

    fn inspect_raw(&self, config: LaunchConfig, args: Vec<RawArg<'_>>, watch: Watch) -> Result<Inspection> {
        let (Loaded::Simulated(kernel), Gpu::Simulated(gpu)) = (&self.loaded, &self.gpu) else {
            return Err(Error::Unsupported {
                what: format!("{} does not let a notebook look inside a launch", self.gpu),
                fix: "compile the kernel on `Gpu::simulated()?` and inspect it there".to_string(),
            });
        };
        self.check(config, &args)?;
        let ([x, y, z], warps) = (watch.block, config.threads_per_block().div_ceil(32));
        if x >= config.grid.0 || y >= config.grid.1 || z >= config.grid.2 || u64::from(watch.warp) >= warps {
            return Err(Error::Invalid {
                what: format!("this launch has no block ({x}, {y}, {z}) with a warp {}", watch.warp),
                fix: format!("the grid is {:?}, and each block has {warps} warps, counted from 0", config.grid),
            });
        }
        let args: Vec<SimArg> = args.into_iter().map(sim_arg).collect();
        kernel.inspect(gpu, config, &args, watch)
    }

    fn check_extras(&self, config: LaunchConfig, extras: LaunchExtras) -> Result<()> {
        let refuse = |what: &str, fix: &str| Err(Error::Unsupported { what: what.to_string(), fix: fix.to_string() });
        match self.gpu {
            _ if extras.cluster == 0 || !config.grid.0.is_multiple_of(extras.cluster) => Err(Error::Invalid {
                what: format!("{} blocks are no whole clusters of {}", config.grid.0, extras.cluster),
                fix: "make the grid's x a multiple of the cluster".to_string(),
            }),
            Gpu::Simulated(_) if extras.cluster > 1 => refuse(
                "clusters of blocks on a simulated GPU",
                "launch it with a cluster of 1, or on a GPU from Hopper on",
            ),
            Gpu::Metal(_) if extras != LaunchExtras::NONE => {
                refuse("clusters and early launches on an Apple GPU", "use `launch`")
            }
            _ => Ok(()),
        }
    }

    fn launch_raw(
        &self,
        stream: Option<&CudaStream>,
        config: LaunchConfig,
        extras: LaunchExtras,
        args: Vec<RawArg<'_>>,
    ) -> Result<()> {
        self.check(config, &args)?;
        match (&self.loaded, &self.gpu) {
            (Loaded::Cuda(kernel), Gpu::Cuda(gpu)) => {
                if config.shared_bytes > 48 << 10 {
                    kernel.allow_shared_bytes(config.shared_bytes)?;
                }
                if stream.is_some() {
                    gpu.outside_capture("a launch on a stream of its own", "use `launch`, which is captured")?;
                }
                gpu.uses(args.iter().filter_map(cuda_memory));
                gpu.keep(|| std::sync::Arc::new(kernel.clone()));
                let queue = gpu.queue();
                let mut args: Vec<CudaArg<'_>> = args.into_iter().map(cuda_arg).collect();
                kernel.launch(stream.unwrap_or(&queue), config, extras, &mut args)
            }
            (Loaded::Metal(kernel), Gpu::Metal(gpu)) => {
                let args: Vec<MetalArg<'_>> = args.into_iter().map(metal_arg).collect();
                gpu.launch(kernel, config, &args)
            }
            (Loaded::Simulated(kernel), Gpu::Simulated(gpu)) => {
                if stream.is_some() {
                    let fix = "use `launch`: each launch there ends before the next begins";
                    return Err(needs_hardware("a launch cannot be queued on a stream", fix));
                }
                let args: Vec<SimArg> = args.into_iter().map(sim_arg).collect();
                kernel.launch(gpu, config, extras.cooperative, &args)
            }
            _ => unreachable!("a kernel is loaded on its own GPU"),
        }
    }

    fn check(&self, config: LaunchConfig, args: &[RawArg<'_>]) -> Result<()> {
        for arg in args {
            let (memory, index): (&Memory, usize) = match &arg.value {
                RawValue::Read(memory, index) => (memory, *index),
                RawValue::Write(memory, index) => (memory, *index),
                RawValue::Map(_, memory, index) => (memory, *index),
                _ => continue,
            };
            if !memory.is_of(&self.gpu, index) {
                let found = match memory {
                    Memory::Simulated(_) => "another simulated GPU".to_string(),
                    _ => format!("GPU {index}"),
                };
                return Err(Error::DeviceMismatch { expected: self.gpu.to_string(), found });
            }
        }
        if let Some(signature) = &self.signature {
            let kinds: Vec<_> = args.iter().map(|arg| arg.kind).collect();
            check_arguments(signature, &kinds)?;
        }
        self.check_limits(config)
    }

    fn check_limits(&self, config: LaunchConfig) -> Result<()> {
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
            Loaded::Metal(_) => Err(Error::Unsupported {
                what: "Metal does not tell a kernel's registers".to_string(),
                fix: "use Xcode's GPU frame capture".to_string(),
            }),
            Loaded::Simulated(_) => Err(needs_hardware(
                "registers are given out by the driver's compiler, which does not run here",
                "run this on an NVIDIA GPU; what a launch does to memory shows in `kernel.inspect`",
            )),
        }
    }
}

const OWN_GPU: &str = "checked before: every buffer is on the kernel's GPU";

fn cuda_memory<'a>(arg: &'a RawArg<'_>) -> Option<&'a CudaMemory> {
    match &arg.value {
        RawValue::Read(Memory::Cuda(memory), _) | RawValue::Map(_, Memory::Cuda(memory), _) => Some(memory),
        RawValue::Write(Memory::Cuda(memory), _) => Some(memory),
        _ => None,
    }
}

fn cuda_arg(arg: RawArg<'_>) -> CudaArg<'_> {
    match arg.value {
        RawValue::Read(Memory::Cuda(memory), _) => CudaArg::Read(memory),
        RawValue::Write(Memory::Cuda(memory), _) => CudaArg::Write(memory),
        RawValue::Bytes1(value) => CudaArg::Bytes1(value),
        RawValue::Bytes2(value) => CudaArg::Bytes2(value),
        RawValue::Bytes4(value) => CudaArg::Bytes4(value),
        RawValue::Bytes8(value) => CudaArg::Bytes8(value),
        RawValue::Map(map, ..) => CudaArg::Map(map),
        RawValue::Read(..) | RawValue::Write(..) => unreachable!("{OWN_GPU}"),
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
        RawValue::Read(..) | RawValue::Write(..) | RawValue::Map(..) => unreachable!("{OWN_GPU}"),
    }
}

fn sim_arg(arg: RawArg<'_>) -> SimArg {
    match arg.value {
        RawValue::Read(Memory::Simulated(memory), _) => memory.arg(),
        RawValue::Write(Memory::Simulated(memory), _) => memory.arg(),
        RawValue::Bytes1(value) => SimArg::Bytes(vec![value]),
        RawValue::Bytes2(value) => SimArg::Bytes(value.to_le_bytes().to_vec()),
        RawValue::Bytes4(value) => SimArg::Bytes(value.to_le_bytes().to_vec()),
        RawValue::Bytes8(value) => SimArg::Bytes(value.to_le_bytes().to_vec()),
        RawValue::Read(..) | RawValue::Write(..) | RawValue::Map(..) => unreachable!("{OWN_GPU}"),
    }
}
