//! One program for every machine: a [`ComputeDevice`] to compute on, and [`DeviceVector`]s that live on one.
//!
//! Frameworks call this device-agnostic code. Two vectors can only be combined where both live; anything else is a
//! device mismatch, and the error says which of them is where.

use gpulab::cpu;
use gpulab::cudarc::driver::sys::CUdevice_attribute as Attribute;
use gpulab::error::{Error, Result, same_length};
use gpulab::gpu::{Buffer, Gpu};
use gpulab::launch::LaunchConfig;
use gpulab_kernels::ladder::{Rung, rung};
use std::fmt;
use std::sync::atomic::{AtomicUsize, Ordering};

/// A place that holds vectors and computes with them.
#[derive(Debug, Clone)]
pub enum ComputeDevice {
    /// The CPU and its memory.
    Cpu,
    /// A GPU.
    Gpu(Gpu),
    /// A stand-in for a GPU on machines without one: memory of its own, computed by the CPU. It is there to make the
    /// mistakes of two memories on purpose, and it is never timed.
    Practice,
}

impl ComputeDevice {
    /// The GPU where there is one that kernels can be compiled for, else the CPU: the line that makes a program run
    /// everywhere.
    pub fn best() -> ComputeDevice {
        Gpu::open_with_compiler().map_or(ComputeDevice::Cpu, ComputeDevice::Gpu)
    }

    /// A device whose memory is not the CPU's: the GPU where there is one, else [`ComputeDevice::Practice`].
    pub fn other() -> ComputeDevice {
        Gpu::open_with_compiler().map_or(ComputeDevice::Practice, ComputeDevice::Gpu)
    }

    /// Copies `host` to this device.
    ///
    /// # Errors
    /// [`Error::OutOfMemory`], [`Error::Driver`].
    pub fn vector(&self, host: &[f32]) -> Result<DeviceVector> {
        DeviceVector::new(self, host)
    }

    /// True when `other` means the same memory.
    pub fn same_as(&self, other: &ComputeDevice) -> bool {
        match (self, other) {
            (ComputeDevice::Cpu, ComputeDevice::Cpu) | (ComputeDevice::Practice, ComputeDevice::Practice) => true,
            (ComputeDevice::Gpu(a), ComputeDevice::Gpu(b)) => a.same_as(b),
            _ => false,
        }
    }
}

impl fmt::Display for ComputeDevice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ComputeDevice::Cpu => f.write_str("the CPU"),
            ComputeDevice::Gpu(gpu) => write!(f, "{gpu}"),
            ComputeDevice::Practice => f.write_str("the practice device"),
        }
    }
}

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

impl ComputeDevice {
    /// What this device holds at once, by its driver's own figures.
    ///
    /// `None` for [`ComputeDevice::Practice`] and a simulated GPU, which are no devices, and for an Apple GPU, whose system does
    /// not tell.
    pub fn capacity(&self) -> Option<Capacity> {
        match self {
            ComputeDevice::Cpu => {
                let info = cpu::info();
                Some(Capacity { units: info.usable_cores as u64, streams_each: 1, width: lanes_of(&info.vectors) })
            }
            ComputeDevice::Gpu(Gpu::Cuda(gpu)) => {
                let figure = |which| u64::try_from(gpu.attribute(which)).ok().filter(|&figure| figure > 0);
                let width = figure(Attribute::CU_DEVICE_ATTRIBUTE_WARP_SIZE)?;
                let threads = figure(Attribute::CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_MULTIPROCESSOR)?;
                let units = figure(Attribute::CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT)?;
                Some(Capacity { units, streams_each: threads / width, width })
            }
            ComputeDevice::Gpu(Gpu::Metal(_) | Gpu::Simulated(_)) | ComputeDevice::Practice => None,
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

/// Numbers in one device's memory.
pub struct DeviceVector {
    device: ComputeDevice,
    data: Data,
    copies: AtomicUsize,
}

enum Data {
    Host(Vec<f32>),
    Gpu(Buffer<f32>),
}

impl DeviceVector {
    pub(super) fn new(device: &ComputeDevice, host: &[f32]) -> Result<DeviceVector> {
        let data = match device {
            ComputeDevice::Gpu(gpu) => Data::Gpu(gpu.to_device(host)?),
            ComputeDevice::Cpu | ComputeDevice::Practice => Data::Host(host.to_vec()),
        };
        Ok(DeviceVector { device: device.clone(), data, copies: AtomicUsize::new(0) })
    }

    /// Where it lives.
    pub fn device(&self) -> &ComputeDevice {
        &self.device
    }

    /// Number of elements.
    pub fn len(&self) -> usize {
        match &self.data {
            Data::Host(values) => values.len(),
            Data::Gpu(buffer) => buffer.len(),
        }
    }

    /// True when it holds no element.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// A copy on `device`; also when it is there already.
    ///
    /// # Errors
    /// [`Error::OutOfMemory`], [`Error::Driver`].
    pub fn to(&self, device: &ComputeDevice) -> Result<DeviceVector> {
        self.copies.fetch_add(1, Ordering::Relaxed);
        DeviceVector::new(device, &self.to_host()?)
    }

    /// How often it was copied to a device.
    pub(crate) fn copies(&self) -> usize {
        self.copies.load(Ordering::Relaxed)
    }

    /// A copy of the numbers for the CPU to read.
    ///
    /// # Errors
    /// [`Error::Driver`].
    pub fn to_host(&self) -> Result<Vec<f32>> {
        match &self.data {
            Data::Host(values) => Ok(values.clone()),
            Data::Gpu(buffer) => buffer.to_host(),
        }
    }

    /// `self + other`, element by element, on the device where both live.
    ///
    /// # Errors
    /// [`Error::DeviceMismatch`] when they live on two devices, [`Error::LengthMismatch`].
    pub fn add(&self, other: &DeviceVector) -> Result<DeviceVector> {
        self.combine(other, "add", |a, b| a + b)
    }

    /// `self × other`, element by element, on the device where both live.
    ///
    /// # Errors
    /// As [`DeviceVector::add`].
    pub fn multiply(&self, other: &DeviceVector) -> Result<DeviceVector> {
        self.combine(other, "multiply", |a, b| a * b)
    }

    fn combine(&self, other: &DeviceVector, name: &str, on_cpu: fn(f32, f32) -> f32) -> Result<DeviceVector> {
        if !self.device.same_as(&other.device) {
            return Err(Error::DeviceMismatch { expected: self.device.to_string(), found: other.device.to_string() });
        }
        same_length(format!("the second vector of `{name}`"), self.len(), other.len())?;
        let path = format!("vector_{name}/01_one_thread_each");
        let data = match (&self.data, &other.data, &self.device) {
            (Data::Gpu(a), Data::Gpu(b), ComputeDevice::Gpu(gpu)) => Data::Gpu(launch(gpu, rung(&path)?, a, b)?),
            (Data::Host(a), Data::Host(b), _) => Data::Host(a.iter().zip(b).map(|(&a, &b)| on_cpu(a, b)).collect()),
            _ => unreachable!("vectors of one device keep their data the same way"),
        };
        Ok(DeviceVector { device: self.device.clone(), data, copies: AtomicUsize::new(0) })
    }
}

/// The four steps, less the copies: both inputs are there already, and the result stays.
fn launch(gpu: &Gpu, rung: Rung, a: &Buffer<f32>, b: &Buffer<f32>) -> Result<Buffer<f32>> {
    let kernel = rung.compile(gpu)?;
    let mut c = gpu.alloc::<f32>(a.len())?;
    kernel.launch(LaunchConfig::for_elements(a.len(), rung.block.0), (a, b, &mut c, a.len() as i32))?;
    Ok(c)
}

impl fmt::Debug for DeviceVector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "DeviceVector({} elements on {})", self.len(), self.device)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_device_is_the_simulator() {
        for device in [ComputeDevice::best(), ComputeDevice::other()] {
            assert!(!matches!(device, ComputeDevice::Gpu(Gpu::Simulated(_))));
        }
    }

    #[test]
    fn an_h200_holds_8448_warps() {
        let h200 = Capacity { units: 132, streams_each: 64, width: 32 };
        assert_eq!((h200.streams(), h200.lanes()), (8448, 270_336));
    }

    #[test]
    fn the_cpu_knows_its_own_and_practice_has_none() {
        let cpu = ComputeDevice::Cpu.capacity().unwrap();
        assert!(cpu.units >= 1 && cpu.streams() == cpu.units && [4, 8, 16].contains(&cpu.width), "{cpu:?}");
        assert_eq!(ComputeDevice::Practice.capacity(), None);
        if let Ok(gpu) = Gpu::open_index(0) {
            assert!(ComputeDevice::Gpu(gpu).capacity().unwrap().lanes() > cpu.lanes());
        }
    }

    #[test]
    fn one_device_computes_and_two_are_named() {
        let host = ComputeDevice::Cpu.vector(&[1.0, 2.0]).unwrap();
        let away = ComputeDevice::Practice.vector(&[3.0, 4.0]).unwrap();
        let message = host.add(&away).unwrap_err().to_string();
        assert!(message.contains("the CPU") && message.contains("the practice device"), "{message}");
        let fixed = host.add(&away.to(host.device()).unwrap()).unwrap();
        assert_eq!(fixed.to_host().unwrap(), [4.0, 6.0]);
        assert_eq!(away.multiply(&away).unwrap().to_host().unwrap(), [9.0, 16.0]);
    }

    #[test]
    fn lengths_must_agree() {
        let message = ComputeDevice::Cpu
            .vector(&[1.0])
            .unwrap()
            .add(&ComputeDevice::Cpu.vector(&[]).unwrap())
            .unwrap_err()
            .to_string();
        assert!(message.contains("1 elements expected, 0 given"), "{message}");
    }
}
