//! Where candle computes: the CPU, an NVIDIA GPU or a Mac's GPU.

use candle_core::Device;
use gpulab::cpu;
use gpulab::error::{Error, Result};
use gpulab::gpu::Gpu;
use gpulab::measurement::Backend;

/// A kind of device, as the command line names it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DeviceKind {
    /// All cores of the CPU.
    Cpu,
    /// An NVIDIA GPU.
    Cuda,
    /// A Mac's GPU.
    Metal,
}

impl DeviceKind {
    /// All of them, in the order in which a GPU is looked for.
    pub const ALL: [DeviceKind; 3] = [DeviceKind::Cuda, DeviceKind::Metal, DeviceKind::Cpu];

    /// `cpu`, `cuda`, `metal`.
    pub fn name(self) -> &'static str {
        match self {
            DeviceKind::Cpu => "cpu",
            DeviceKind::Cuda => "cuda",
            DeviceKind::Metal => "metal",
        }
    }

    /// What measurements call it.
    pub fn backend(self) -> Backend {
        match self {
            DeviceKind::Cpu => Backend::Cpu,
            DeviceKind::Cuda => Backend::Cuda,
            DeviceKind::Metal => Backend::Metal,
        }
    }

    /// The name of what computes, for the rows of `metrics.csv`: the CPU's or the GPU's.
    ///
    /// # Errors
    /// As [`Gpu::open_index`] and [`Gpu::apple`], which are asked for a GPU's name.
    ///
    /// # Examples
    /// ```
    /// let machine = gpulab_nn::DeviceKind::Cpu.machine()?;
    /// assert_eq!(machine, gpulab::cpu::info().short_name());
    /// # Ok::<(), gpulab::Error>(())
    /// ```
    pub fn machine(self) -> Result<String> {
        Ok(match self {
            DeviceKind::Cpu => cpu::info().short_name(),
            DeviceKind::Cuda => Gpu::open_index(0)?.name().to_string(),
            DeviceKind::Metal => Gpu::apple()?.name().to_string(),
        })
    }

    /// Whether this build of candle has it; the machine may still lack it.
    pub fn is_built(self) -> bool {
        match self {
            DeviceKind::Cpu => true,
            DeviceKind::Cuda => cfg!(gpulab_cuda),
            DeviceKind::Metal => cfg!(target_os = "macos"),
        }
    }

    /// The first GPU that opens, else the CPU.
    pub fn best() -> (DeviceKind, Device) {
        let opened = DeviceKind::ALL.into_iter().find_map(|kind| Some((kind, kind.open().ok()?)));
        opened.unwrap_or((DeviceKind::Cpu, Device::Cpu))
    }

    /// Opens its first device.
    ///
    /// # Errors
    /// `Error::Unsupported` when candle was built without it, or when there is none.
    pub fn open(self) -> Result<Device> {
        if !self.is_built() {
            return Err(self.missing("this build of candle has no support for it".to_string()));
        }
        let opened = match self {
            DeviceKind::Cpu => Ok(Device::Cpu),
            DeviceKind::Cuda => Device::new_cuda(0),
            DeviceKind::Metal => Device::new_metal(0),
        };
        opened.map_err(|error| self.missing(error.to_string().lines().next().unwrap_or_default().to_string()))
    }

    fn missing(self, why: String) -> Error {
        let (what, fix) = match self {
            DeviceKind::Cpu => ("the CPU", "restart the kernel"),
            DeviceKind::Cuda => (
                "an NVIDIA GPU for candle",
                "`make verify` says what is missing: the driver, or CUDA's nvcc, which candle is built with; \
                 then `make setup`. Without a GPU, use cpu",
            ),
            DeviceKind::Metal => ("a Mac's GPU for candle", "use a Mac with Apple silicon, or cpu, or cuda"),
        };
        Error::unsupported(format!("{what}: {why}"), fix)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_place_opens_or_says_what_to_do() {
        for kind in DeviceKind::ALL {
            if let Err(error) = kind.open() {
                assert_ne!(kind, DeviceKind::Cpu);
                assert!(error.to_string().contains("next: "), "{error}");
            }
        }
        assert!(DeviceKind::best().0.open().is_ok());
    }
}
