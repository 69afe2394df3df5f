//! What a run computes on: one of candle's devices, or an NVIDIA GPU with the course's own kernels.

use super::backend::TrainingBackend;
use super::candle::CandleBackend;
use super::engine::{EngineBackend, check_generation};
use super::{Checkpoint, Kernels, TrainConfig};
use crate::DeviceKind;
use crate::data::Images;
use candle_core::Device;
use gpulab::error::{Error, Result};
use gpulab::gpu::Gpu;

/// A device that is open.
#[derive(Debug)]
pub(super) enum Target {
    /// candle's, and whose layers compute there.
    Candle(Device, Kernels),
    /// The course's own kernels: they need a driver and NVRTC, and no candle that was built with CUDA.
    Gpu(Gpu),
}

impl Target {
    /// Whose layers compute.
    pub fn kernels(&self) -> Kernels {
        match self {
            Target::Candle(_, kernels) => *kernels,
            Target::Gpu(_) => Kernels::Own,
        }
    }

    /// Puts network and images there.
    ///
    /// # Errors
    /// As [`super::Trainer::new`].
    pub fn way(self, images: &Images, config: &TrainConfig, start: Checkpoint) -> Result<Box<dyn TrainingBackend>> {
        Ok(match self {
            Target::Candle(device, kernels) => Box::new(CandleBackend::new(&device, kernels, images, config, start)?),
            Target::Gpu(gpu) => Box::new(EngineBackend::new(&gpu, images, config, &start)?),
        })
    }
}

impl TrainConfig {
    /// Opens its device before images are read, so that a missing one is reported first. The device stays open while the
    /// returned value lives.
    ///
    /// # Errors
    /// [`Error::NoGpu`], [`Error::Unsupported`], [`Error::Driver`].
    pub fn hold_device(&self) -> Result<impl Sized + use<>> {
        self.open()
    }

    /// Opens its device.
    ///
    /// # Errors
    /// [`Error::NoGpu`], [`Error::Unsupported`], [`Error::Driver`].
    pub(super) fn open(&self) -> Result<Target> {
        if self.device != DeviceKind::Cuda {
            let device = self.device.open()?;
            let kernels = self.kernels.unwrap_or(Kernels::best(&device));
            return Ok(Target::Candle(device, kernels));
        }
        let own = || {
            let gpu = Gpu::open_index(0)?;
            check_generation(gpu.name(), gpu.compute_capability()?)?;
            Ok(gpu)
        };
        on_cuda(self.kernels, own, || self.device.open())
    }
}

/// An NVIDIA GPU by the way that was asked for; else by our kernels, and by candle where the GPU is too old for them.
fn on_cuda(
    asked: Option<Kernels>,
    own: impl FnOnce() -> Result<Gpu>,
    candle: impl FnOnce() -> Result<Device>,
) -> Result<Target> {
    let candle = || candle().map(|device| Target::Candle(device, Kernels::Candle));
    match asked {
        Some(Kernels::Candle) => candle(),
        Some(Kernels::Own) => own().map(Target::Gpu),
        None => match own() {
            Ok(gpu) => Ok(Target::Gpu(gpu)),
            Err(too_old @ Error::Unsupported { .. }) => candle().map_err(|_| too_old),
            Err(error) => Err(error),
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_nvidia_gpu_is_used_by_our_kernels_and_an_old_one_by_candle() {
        let old = || check_generation("Tesla T4", (7, 5)).and_then(|()| Gpu::simulated());
        let none = || Err(Error::NoGpu { tried: vec!["libcuda.so".to_string()] });
        let candle = || Ok(Device::Cpu);
        let not_built = || DeviceKind::Metal.open().or(DeviceKind::Cuda.open());
        let found = |asked| on_cuda(asked, Gpu::simulated, candle).unwrap().kernels();
        assert_eq!([None, Some(Kernels::Own)].map(found), [Kernels::Own; 2]);
        assert_eq!(found(Some(Kernels::Candle)), Kernels::Candle);
        assert_eq!(on_cuda(None, old, candle).unwrap().kernels(), Kernels::Candle);
        let message = |error: Result<Target>| error.unwrap_err().to_string();
        let own_asked = message(on_cuda(Some(Kernels::Own), old, candle));
        assert!(own_asked.contains("Tesla T4 has 7.5") && own_asked.contains("next: use candle's"), "{own_asked}");
        if !DeviceKind::Cuda.is_built() && !DeviceKind::Metal.is_built() {
            assert_eq!(message(on_cuda(None, old, not_built)), own_asked);
        }
        assert!(message(on_cuda(None, none, candle)).contains("no GPU was found"));
    }
}
