//! How much work a device holds at once.

use super::Device;
use gpulab::cpu;
use gpulab::cudarc::driver::sys::CUdevice_attribute as Attribute;
use gpulab::gpu::Gpu;

/// What a device holds at once, so that it can go on with something while something else waits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Capacity {
    /// Streaming multiprocessors of a GPU; hardware threads of the CPU that this process may use.
    pub units: u64,
    /// Instruction streams that each of them holds: warps of an SM; 1 for a hardware thread.
    pub streams_each: u64,
    /// Values of `f32` that one instruction of a stream works on: the threads of a warp; the lanes of a CPU's vector.
    pub width: u64,
}

impl Capacity {
    /// Instruction streams of the whole device: warps, or hardware threads.
    pub fn streams(&self) -> u64 {
        self.units * self.streams_each
    }

    /// Values that all of them work on: what CUDA calls threads.
    pub fn lanes(&self) -> u64 {
        self.streams() * self.width
    }
}

impl Device {
    /// What this device holds at once, by its driver's own figures.
    ///
    /// `None` for [`Device::Practice`] and a simulated GPU, which are no devices, and for an Apple GPU, whose system does
    /// not tell.
    pub fn capacity(&self) -> Option<Capacity> {
        match self {
            Device::Cpu => {
                let info = cpu::info();
                Some(Capacity { units: info.usable_cores as u64, streams_each: 1, width: lanes_of(&info.vectors) })
            }
            Device::Gpu(Gpu::Cuda(gpu)) => {
                let figure = |which| u64::try_from(gpu.attribute(which)).ok().filter(|&figure| figure > 0);
                let width = figure(Attribute::CU_DEVICE_ATTRIBUTE_WARP_SIZE)?;
                let threads = figure(Attribute::CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_MULTIPROCESSOR)?;
                let units = figure(Attribute::CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT)?;
                Some(Capacity { units, streams_each: threads / width, width })
            }
            Device::Gpu(Gpu::Metal(_) | Gpu::Simulated(_)) | Device::Practice => None,
        }
    }
}

/// Values of `f32` in one vector of that kind, as [`CpuInfo::vectors`](cpu::CpuInfo::vectors) names it.
fn lanes_of(vectors: &str) -> u64 {
    match vectors {
        "AVX-512" => 16,
        "AVX2" => 8,
        _ => 4, // 128 bits: NEON, and what every x86-64 has
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_h200_holds_8448_warps() {
        let h200 = Capacity { units: 132, streams_each: 64, width: 32 };
        assert_eq!((h200.streams(), h200.lanes()), (8448, 270_336));
    }

    #[test]
    fn the_cpu_knows_its_own_and_practice_has_none() {
        let cpu = Device::Cpu.capacity().unwrap();
        assert!(cpu.units >= 1 && cpu.streams() == cpu.units && [4, 8, 16].contains(&cpu.width), "{cpu:?}");
        assert_eq!(Device::Practice.capacity(), None);
        if let Ok(gpu) = Gpu::open_index(0) {
            assert!(Device::Gpu(gpu).capacity().unwrap().lanes() > cpu.lanes());
        }
    }
}
