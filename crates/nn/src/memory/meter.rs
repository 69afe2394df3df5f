//! How much of a device's memory is in use: asked of whoever hands it out.

use gpulab::cpu;
use gpulab::error::{Error, Result};
use gpulab::gpu::Gpu;
use crate::Place;
use candle_core::Device;

/// Reads the memory of the device that candle computes on.
///
/// On the CPU that is the C library, and it counts the whole process. On an NVIDIA GPU it is the driver's memory pool of the
/// GPU, from which candle's buffers and the course's own come alike.
#[derive(Debug)]
pub struct Meter {
    place: Place,
    device: Device,
    gpu: Option<Gpu>,
}

/// What a piece of work did to the memory, in bytes.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Seen {
    /// In use after it, less before it.
    pub kept: i64,
    /// The highest in use during it, less before it.
    pub peak: u64,
    /// How long it took, in milliseconds.
    pub ms: f64,
}

impl Meter {
    /// The NVIDIA GPU where candle has one, else the CPU: both can be measured.
    ///
    /// # Errors
    /// As [`Meter::of`].
    pub fn best() -> Result<Meter> {
        match Place::Cuda.open() {
            Ok(_) => Meter::of(Place::Cuda),
            Err(_) => Meter::of(Place::Cpu),
        }
    }

    /// A meter for that place.
    ///
    /// # Errors
    /// [`Error::Unsupported`] for a Mac's GPU, and where the C library tells no figures; as [`Place::open`].
    pub fn of(place: Place) -> Result<Meter> {
        let gpu = match place {
            Place::Cpu => {
                cpu::heap()?;
                None
            }
            Place::Cuda => Some(Gpu::open_index(0)?),
            Place::Metal => {
                return Err(Error::Unsupported {
                    what: "the memory that tensors hold on a Mac's GPU: candle keeps freed buffers for itself there, \
                           and does not tell which"
                        .to_string(),
                    fix: "measure on the CPU, whose figures are the same but for workspace: `Meter::of(Place::Cpu)`"
                        .to_string(),
                });
            }
        };
        Ok(Meter { place, device: place.open()?, gpu })
    }

    /// Where it measures.
    pub fn place(&self) -> Place {
        self.place
    }

    /// candle's device.
    pub fn device(&self) -> &Device {
        &self.device
    }

    /// Bytes that somebody holds, and bytes that the allocator has taken for itself, used or not.
    ///
    /// # Errors
    /// What the driver or the C library reports.
    pub fn now(&self) -> Result<(u64, u64)> {
        match &self.gpu {
            None => cpu::heap().map(|heap| (heap.used, heap.reserved)),
            Some(gpu) => {
                // A free takes effect when the GPU reaches it.
                self.device.synchronize()?;
                gpu.memory().map(|pool| (pool.used, pool.reserved))
            }
        }
    }

    /// Runs `work`, and says beside its result what it did to the memory. On the CPU the peak is sampled
    /// ([`cpu::highest_heap`]), on a GPU the pool keeps it.
    ///
    /// # Errors
    /// As [`Meter::now`], and what `work` returns.
    pub fn watch<T>(&self, work: impl FnOnce() -> Result<T>) -> Result<(T, Seen)> {
        let before = self.now()?.0;
        let mut ms = 0.0;
        let timed = || {
            let start = std::time::Instant::now();
            let outcome = work()?;
            self.device.synchronize()?;
            ms = start.elapsed().as_secs_f64() * 1e3;
            Ok(outcome)
        };
        let (outcome, highest) = match &self.gpu {
            None => cpu::highest_heap(timed)?,
            Some(gpu) => {
                gpu.reset_high_water()?;
                let outcome = timed()?;
                (outcome, gpu.memory()?.used_high)
            }
        };
        let kept = self.now()?.0 as i64 - before as i64;
        Ok((outcome, Seen { kept, peak: highest.saturating_sub(before), ms }))
    }
}
