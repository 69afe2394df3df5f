//! Finding a GPU, and what it tells of itself: its limits, its arithmetic, its memory.

use crate::cuda::{CudaGpu, driver_error};
use crate::error::{Error, Result};
use crate::launch::LaunchLimits;
use crate::measurement::{Backend, MemoryStats};
use crate::metal::MetalGpu;
use crate::sim::{BlockOrder, SimGpu, needs_hardware};
use crate::{cuda, sim};
use cudarc::driver::sys::CUdevice_attribute as Attribute;
use cudarc::driver::{CudaContext, CudaStream};
use std::fmt;
use std::sync::Arc;

/// An open GPU. Cloning it is cheap: both names mean the same device.
///
/// # Examples
/// ```
/// use gpulab::prelude::*;
/// let add = r#"extern "C" __global__ void add(const float *a, const float *b, float *c, int n) {
///     int i = blockIdx.x * blockDim.x + threadIdx.x;
///     if (i < n) {
///         c[i] = a[i] + b[i];
///     }
/// }"#;
///
/// let gpu = Gpu::simulated()?; // on any machine; `Gpu::open()?` takes a real GPU where there is one
/// let (a, b) = (gpu.to_device(&[1.0_f32, 2.0, 3.0])?, gpu.to_device(&[10.0_f32, 20.0, 30.0])?);
/// let mut c = gpu.poison::<f32>(3)?; // NaN, so that an element that nobody writes shows
/// gpu.compile(add)?.kernel("add")?.launch(LaunchConfig::for_elements(3, 256), (&a, &b, &mut c, 3_i32))?;
/// assert_eq!(c.to_host()?, [11.0, 22.0, 33.0]);
///
/// assert_eq!(gpu.backend(), Backend::Simulator);
/// assert_eq!(gpu.memory()?.used, 3 * 12); // three buffers of three floats
/// assert!(matches!(gpu.time(&Bench::default(), |_| Ok(())), Err(Error::Unsupported { .. }))); // hardware alone has times
/// # Ok::<(), Error>(())
/// ```
#[derive(Debug, Clone)]
pub enum Gpu {
    /// An NVIDIA GPU.
    Cuda(CudaGpu),
    /// An Apple GPU.
    Metal(MetalGpu),
    /// No GPU at all: a simulator on this machine's cores.
    Simulated(SimGpu),
}

impl Gpu {
    /// Opens the first GPU that runs CUDA C; on a machine without one, [`Gpu::simulated`].
    ///
    /// The simulator gives the same results, and finds mistakes that a GPU passes over. It gives no times: what is to
    /// be timed asks for a real GPU, with [`Gpu::open_index`].
    ///
    /// # Errors
    /// [`Error::Driver`] when there is a GPU and the driver refuses it: that is to be fixed, and not passed over.
    pub fn open() -> Result<Gpu> {
        match Gpu::open_index(0) {
            Err(Error::NoGpu { .. }) => Gpu::simulated(),
            opened => opened,
        }
    }

    /// The first real GPU, where kernels can be compiled too. A lesson on a GPU without NVRTC would end at its first
    /// kernel, and with it all that follows from that.
    pub fn open_with_compiler() -> Result<Gpu> {
        let gpu = Gpu::open_index(0)?;
        cuda::nvrtc_version().map(|_| gpu)
    }

    /// A GPU that this machine's cores simulate, on any machine, GPU or not. Kernels are compiled for compute
    /// capability 9.0, run warp by warp, and are checked while they run. Each call gives a device of its own.
    ///
    /// A launch returns when the kernel has ended, and what the kernel did wrong is that launch's error. The memory
    /// holds half of what this machine has.
    ///
    /// # Errors
    /// None today; the type is that of its siblings.
    pub fn simulated() -> Result<Gpu> {
        Gpu::simulated_in(BlockOrder::Forward)
    }

    /// As [`Gpu::simulated`], with blocks that start in another order. CUDA promises none, so a kernel that is right is right
    /// in each.
    ///
    /// # Errors
    /// None today; the type is that of its siblings.
    pub fn simulated_in(order: BlockOrder) -> Result<Gpu> {
        let gpu = SimGpu::open();
        gpu.set_block_order(order);
        Ok(Gpu::Simulated(gpu))
    }

    /// Opens NVIDIA GPU `index`, counted from 0 in CUDA's order, which need not be `nvidia-smi`'s. Never the simulator.
    ///
    /// # Errors
    /// [`Error::NoGpu`] with what was looked for, [`Error::NoSuchDevice`], [`Error::Driver`] when the driver refuses.
    pub fn open_index(index: usize) -> Result<Gpu> {
        CudaGpu::open(index).map(Gpu::Cuda)
    }

    /// The NVIDIA GPU of a context that cudarc, or candle, has opened. Buffers, kernels and streams of this `Gpu` are that
    /// context's, and mix with those that cudarc makes in it. (Buffers of another context of the same GPU, such as
    /// [`Gpu::open`]'s, are refused: cudarc would not order their streams.) Who has switched its event tracking off, which is
    /// `unsafe` in cudarc, orders the streams.
    ///
    /// # Errors
    /// [`Error::Driver`] when the driver refuses to describe the device.
    pub fn from_cuda(context: Arc<CudaContext>) -> Result<Gpu> {
        CudaGpu::of(context).map(Gpu::Cuda)
    }

    /// The context as cudarc has it (`CudaContext::new`, the primary context of the device).
    ///
    /// # Errors
    /// [`Error::Unsupported`] on other GPUs than NVIDIA's.
    pub fn cuda_context(&self) -> Result<Arc<CudaContext>> {
        Ok(self.cuda()?.context.clone())
    }

    /// The default stream as cudarc has it (`CudaContext::default_stream`), where launches and copies without a stream go.
    ///
    /// # Errors
    /// [`Error::Unsupported`] on other GPUs than NVIDIA's.
    pub fn cuda_stream(&self) -> Result<Arc<CudaStream>> {
        Ok(self.cuda()?.stream.clone())
    }

    /// The stream on which a launch would go now: the default stream or, inside [`Gpu::capture`], the one that is captured. For calls
    /// of other libraries that shall become part of the graph; what they use must live as long as that.
    ///
    /// # Errors
    /// [`Error::Unsupported`] on other GPUs than NVIDIA's.
    pub fn queue(&self) -> Result<Arc<CudaStream>> {
        Ok(self.cuda()?.queue())
    }

    pub(super) fn cuda(&self) -> Result<&CudaGpu> {
        match self {
            Gpu::Cuda(gpu) => Ok(gpu),
            _ => Err(self.no_cuda()),
        }
    }

    pub(super) fn no_cuda(&self) -> Error {
        Error::unsupported(
            format!("{self} has no CUDA driver behind it, and cudarc's types stand for what a driver holds"),
            "use `gpu.compile`, `gpu.to_device` and `kernel.launch`, which work here too, or an NVIDIA GPU",
        )
    }

    /// Opens the Mac's GPU, which runs Metal kernels.
    ///
    /// # Errors
    /// [`Error::Unsupported`] on a machine that is no Mac, [`Error::NoGpu`] on a Mac without a Metal device.
    pub fn apple() -> Result<Gpu> {
        MetalGpu::open().map(Gpu::Metal)
    }

    /// How many NVIDIA GPUs the driver shows; 0 without a driver.
    pub fn count() -> usize {
        CudaGpu::count().unwrap_or(0)
    }

    /// The name that the driver gives, such as `NVIDIA H200`.
    pub fn name(&self) -> &str {
        match self {
            Gpu::Cuda(gpu) => &gpu.name,
            Gpu::Metal(gpu) => gpu.name(),
            Gpu::Simulated(gpu) => gpu.name(),
        }
    }

    /// Its number among the GPUs of its kind.
    pub fn index(&self) -> usize {
        match self {
            Gpu::Cuda(gpu) => gpu.context.ordinal(),
            Gpu::Metal(_) | Gpu::Simulated(_) => 0,
        }
    }

    /// Its place in the machine by the driver's word (`cuDeviceGetPCIBusId`), such as `0000:1B:00.0`: domain, bus, device and
    /// function in hexadecimal. This is how to ask others about *this* GPU, since [`Gpu::index`] is CUDA's number, and NVML
    /// and `nvidia-smi` may count in another order and do not follow `CUDA_VISIBLE_DEVICES`. NVML
    /// (`nvmlDeviceGetHandleByPciBusId_v2`, nvml-wrapper's `device_by_pci_bus_id`) and `nvidia-smi --id=` take it as it is,
    /// though they write the domain with eight digits themselves.
    ///
    /// # Examples
    /// ```
    /// use gpulab::prelude::*;
    /// use std::process::Command;
    ///
    /// fn power_draw(gpu: &Gpu) -> Result<Command> {
    ///     let mut command = Command::new("nvidia-smi");
    ///     command.args([&format!("--id={}", gpu.pci_bus_id()?), "--query-gpu=power.draw", "--format=csv"]);
    ///     Ok(command)
    /// }
    /// assert!(matches!(power_draw(&Gpu::simulated()?), Err(Error::Unsupported { .. }))); // it is on no bus
    /// # Ok::<(), Error>(())
    /// ```
    ///
    /// # Errors
    /// [`Error::Unsupported`] on other GPUs than NVIDIA's, [`Error::Driver`].
    pub fn pci_bus_id(&self) -> Result<String> {
        let fix = "run this on an NVIDIA GPU: `nvidia-smi` and NVML know no others";
        match self {
            Gpu::Cuda(gpu) => gpu.pci_bus_id(),
            Gpu::Metal(_) => Err(Error::unsupported("an Apple GPU has no PCI bus id", fix)),
            Gpu::Simulated(_) => Err(needs_hardware("`pci_bus_id` asks the CUDA driver", fix)),
        }
    }

    /// True when both are one device, and on an NVIDIA GPU one context of it.
    pub fn same_as(&self, other: &Gpu) -> bool {
        match (self, other) {
            (Gpu::Simulated(a), Gpu::Simulated(b)) => a.is(b),
            (Gpu::Cuda(a), Gpu::Cuda(b)) => Arc::ptr_eq(&a.context, &b.context),
            _ => std::mem::discriminant(self) == std::mem::discriminant(other) && self.index() == other.index(),
        }
    }

    /// The word for this kind of machine in measurements.
    pub fn backend(&self) -> Backend {
        match self {
            Gpu::Cuda(_) => Backend::Cuda,
            Gpu::Metal(_) => Backend::Metal,
            Gpu::Simulated(_) => Backend::Simulator,
        }
    }

    /// The largest blocks, grids and shared memory that a launch may ask for.
    pub fn limits(&self) -> LaunchLimits {
        match self {
            Gpu::Cuda(gpu) => gpu.limits,
            Gpu::Metal(gpu) => gpu.limits(),
            Gpu::Simulated(gpu) => gpu.limits(),
        }
    }

    /// Compute capability as (major, minor), such as (9, 0): which instructions and which limits this GPU has.
    ///
    /// # Errors
    /// [`Error::Unsupported`] on an Apple GPU, which counts in Metal families.
    pub fn compute_capability(&self) -> Result<(u32, u32)> {
        match self {
            Gpu::Cuda(gpu) => gpu.capability().map(|number| (number / 10, number % 10)),
            Gpu::Simulated(_) => Ok((sim::ARCHITECTURE / 10, sim::ARCHITECTURE % 10)),
            Gpu::Metal(_) => Err(Error::unsupported(
                "an Apple GPU has no compute capability",
                "`make verify` shows its Metal family",
            )),
        }
    }

    /// Bytes of the GPU's last-level cache; 0 where the driver does not tell.
    pub fn l2_bytes(&self) -> usize {
        match self {
            Gpu::Cuda(gpu) => gpu.l2_bytes(),
            Gpu::Metal(_) | Gpu::Simulated(_) => 0,
        }
    }

    /// Streaming multiprocessors: as many blocks run at a time as there are, or a few times that. 0 where the driver does
    /// not tell. A simulated GPU says 2: blocks that walk over an array then take several turns on small arrays too.
    pub fn multiprocessors(&self) -> u32 {
        match self {
            Gpu::Cuda(gpu) => gpu.multiprocessors(),
            Gpu::Metal(_) => 0,
            Gpu::Simulated(_) => warpsim::MULTIPROCESSORS,
        }
    }

    /// How many buffers of `bytes` bytes to rotate, so that each has left the cache before its turn comes again: at
    /// least two, and together three times the cache; at most 64, which of small buffers may all stay in it.
    pub fn sets_past_cache(&self, bytes: usize) -> usize {
        (3 * self.l2_bytes()).div_ceil(bytes.max(1)).clamp(2, 64)
    }

    /// Waits until everything that was launched has ended.
    ///
    /// # Errors
    /// [`Error::Driver`] when a kernel launched earlier has failed: this is where such errors come to light.
    pub fn synchronize(&self) -> Result<()> {
        match self {
            Gpu::Cuda(gpu) => {
                gpu.outside_capture("waiting for the GPU", "wait after `graph.launch`")?;
                gpu.context.synchronize().map_err(|error| driver_error("waiting for the GPU (synchronize)", error))
            }
            Gpu::Metal(gpu) => gpu.synchronize(),
            // A launch returns when its kernel has ended.
            Gpu::Simulated(_) => Ok(()),
        }
    }

    /// The architecture to compile for: the GPU's own, or the newest that this compiler knows.
    pub(crate) fn architecture(gpu: &CudaGpu) -> Result<u32> {
        let own = gpu.capability()?;
        let known = cuda::supported_architectures()?;
        known.iter().copied().filter(|&known| known <= own).max().ok_or_else(|| {
            Error::unsupported(
                format!(
                    "this GPU has compute capability {}.{}, and the installed compiler starts at {}",
                    own / 10,
                    own % 10,
                    known.iter().min().map_or("?".to_string(), |least| format!("{}.{}", least / 10, least % 10)),
                ),
                "run `make setup NVRTC=12`, which installs the compiler for older GPUs",
            )
        })
    }

    /// What to compile for, such as `compute_90a`. From Hopper on the `a` brings the instructions that this GPU alone has
    /// (`wgmma`): what is compiled here runs here and nowhere else.
    ///
    /// # Errors
    /// [`Error::Unsupported`] where the compiler knows no architecture that this GPU runs; those of the driver.
    pub fn target(gpu: &CudaGpu) -> Result<String> {
        let (own, known) = (gpu.capability()?, Gpu::architecture(gpu)?);
        Ok(format!("compute_{known}{}", if own == known && known >= 90 { "a" } else { "" }))
    }
}

impl fmt::Display for Gpu {
    /// `GPU 0: NVIDIA H200`; `simulated GPU (warpsim, sm_90), no hardware`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Gpu::Simulated(_) => write!(f, "{}, no hardware", self.name()),
            _ => write!(f, "GPU {}: {}", self.index(), self.name()),
        }
    }
}

impl Gpu {
    /// f32 additions and multiplications a second in TFLOP/s, outside the tensor cores: multiprocessors × lanes × 2 ×
    /// the highest clock, as the driver tells them. `None` where it does not, and on Apple and simulated GPUs.
    pub fn fp32_peak(&self) -> Option<f64> {
        let Gpu::Cuda(gpu) = self else { return None };
        let lanes = lanes(gpu.capability().ok()?)?;
        let khz = f64::from(gpu.attribute(Attribute::CU_DEVICE_ATTRIBUTE_CLOCK_RATE));
        let peak = f64::from(gpu.multiprocessors()) * f64::from(lanes) * 2.0 * khz * 1e3 / 1e12;
        (peak > 0.0).then_some(peak)
    }
}

/// f32 results a clock and multiprocessor, by compute capability: the table of arithmetic instructions' throughput in
/// the CUDA C++ Programming Guide.
fn lanes(capability: u32) -> Option<u32> {
    match capability {
        75 | 80 => Some(64),
        86..=89 | 90 | 100..=129 => Some(128),
        _ => None,
    }
}

impl Gpu {
    /// The pool's figures now, in bytes. Waits first: a free takes effect when the GPU reaches it. A simulated GPU has
    /// no pool: it reserves what buffers hold.
    ///
    /// # Errors
    /// [`Error::Driver`], also for work launched earlier.
    pub fn memory(&self) -> Result<MemoryStats> {
        match self {
            Gpu::Cuda(gpu) => {
                self.synchronize()?;
                let [used, reserved, used_high, reserved_high] = gpu.pool_figures()?;
                let info = gpu.context.mem_get_info();
                let (free, total) = info.map_err(|error| driver_error("reading the free memory", error))?;
                Ok(MemoryStats { used, reserved, used_high, reserved_high, free: free as u64, total: total as u64 })
            }
            Gpu::Metal(gpu) => Ok(gpu.memory()),
            Gpu::Simulated(gpu) => Ok(gpu.memory()),
        }
    }

    /// How many bytes the pool keeps when buffers are dropped: 0 is the driver's default (all unused memory goes back
    /// at the next synchronisation), `u64::MAX` keeps everything for the next allocation.
    ///
    /// # Errors
    /// [`Error::Unsupported`] where there is no pool.
    pub fn set_release_threshold(&self, bytes: u64) -> Result<()> {
        self.pool("set_release_threshold")?.set_release_threshold(bytes)
    }

    /// Gives unused memory back to the driver until at most `keep` bytes stay reserved.
    ///
    /// # Errors
    /// [`Error::Unsupported`] where there is no pool.
    pub fn trim(&self, keep: usize) -> Result<()> {
        self.pool("trim")?.trim(keep)
    }

    /// Begins the two highest figures anew.
    ///
    /// # Errors
    /// [`Error::Unsupported`] where there is no pool.
    pub fn reset_high_water(&self) -> Result<()> {
        self.pool("reset_high_water")?.reset_high_water()
    }

    fn pool(&self, call: &str) -> Result<&crate::cuda::CudaGpu> {
        match self {
            Gpu::Cuda(gpu) => Ok(gpu),
            Gpu::Metal(_) => Err(Error::unsupported(
                format!("`{call}`: Metal allocates without a pool"),
                "run this on an NVIDIA GPU, or read the recorded run",
            )),
            Gpu::Simulated(_) => Err(needs_hardware(
                &format!("`{call}` changes the driver's memory pool"),
                "practise on `Pool`, the model of one, or run this on an NVIDIA GPU",
            )),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hopper_has_128_lanes_and_a_simulator_has_no_peak() {
        assert_eq!([75, 80, 89, 90, 120, 30].map(lanes), [Some(64), Some(64), Some(128), Some(128), Some(128), None]);
        assert_eq!(Gpu::simulated().unwrap().fp32_peak(), None);
    }

    #[test]
    #[ignore = "needs an NVIDIA GPU"]
    fn a_real_gpu_has_a_peak() {
        let gpu = Gpu::open_index(0).expect("needs an NVIDIA GPU");
        assert!(gpu.fp32_peak().is_none_or(|peak| (1.0..1000.0).contains(&peak)), "{:?}", gpu.fp32_peak());
    }
}
