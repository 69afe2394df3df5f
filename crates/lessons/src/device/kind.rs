//! Where to compute.

use super::Vector;
use gpulab::error::Result;
use gpulab::gpu::Gpu;
use std::fmt;

/// A place that holds vectors and computes with them.
#[derive(Debug, Clone)]
pub enum Device {
    /// The CPU and its memory.
    Cpu,
    /// A GPU.
    Gpu(Gpu),
    /// A stand-in for a GPU on machines without one: memory of its own, computed by the CPU. It is there to make the
    /// mistakes of two memories on purpose, and it is never timed.
    Practice,
}

impl Device {
    /// The GPU where there is one that kernels can be compiled for, else the CPU: the line that makes a program run
    /// everywhere.
    pub fn best() -> Device {
        Gpu::open_with_compiler().map_or(Device::Cpu, Device::Gpu)
    }

    /// A device whose memory is not the CPU's: the GPU where there is one, else [`Device::Practice`].
    pub fn other() -> Device {
        Gpu::open_with_compiler().map_or(Device::Practice, Device::Gpu)
    }

    /// Copies `host` to this device.
    ///
    /// # Errors
    /// [`Error::OutOfMemory`](gpulab::Error::OutOfMemory), [`Error::Driver`](gpulab::Error::Driver).
    pub fn vector(&self, host: &[f32]) -> Result<Vector> {
        Vector::new(self, host)
    }

    /// True when `other` means the same memory.
    pub fn same_as(&self, other: &Device) -> bool {
        match (self, other) {
            (Device::Cpu, Device::Cpu) | (Device::Practice, Device::Practice) => true,
            (Device::Gpu(a), Device::Gpu(b)) => a.same_as(b),
            _ => false,
        }
    }
}

impl fmt::Display for Device {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Device::Cpu => f.write_str("the CPU"),
            Device::Gpu(gpu) => write!(f, "{gpu}"),
            Device::Practice => f.write_str("the practice device"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_device_is_the_simulator() {
        for device in [Device::best(), Device::other()] {
            assert!(!matches!(device, Device::Gpu(Gpu::Simulated(_))));
        }
    }
}
