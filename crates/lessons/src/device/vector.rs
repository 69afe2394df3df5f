//! A vector on a device.

use super::Device;
use gpulab::error::{Error, Result};
use gpulab::gpu::{Buffer, Gpu};
use gpulab::launch::LaunchConfig;
use gpulab_kernels::ladder::{Rung, rung};
use std::fmt;

/// Numbers in one device's memory.
pub struct Vector {
    device: Device,
    data: Data,
}

enum Data {
    Host(Vec<f32>),
    Gpu(Buffer<f32>),
}

impl Vector {
    pub(super) fn new(device: &Device, host: &[f32]) -> Result<Vector> {
        let data = match device {
            Device::Gpu(gpu) => Data::Gpu(gpu.to_device(host)?),
            Device::Cpu | Device::Practice => Data::Host(host.to_vec()),
        };
        Ok(Vector { device: device.clone(), data })
    }

    /// Where it lives.
    pub fn device(&self) -> &Device {
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
    pub fn to(&self, device: &Device) -> Result<Vector> {
        Vector::new(device, &self.to_host()?)
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
    pub fn add(&self, other: &Vector) -> Result<Vector> {
        self.combine(other, "add", |a, b| a + b)
    }

    /// `self × other`, element by element, on the device where both live.
    ///
    /// # Errors
    /// As [`Vector::add`].
    pub fn multiply(&self, other: &Vector) -> Result<Vector> {
        self.combine(other, "multiply", |a, b| a * b)
    }

    fn combine(&self, other: &Vector, name: &str, on_cpu: fn(f32, f32) -> f32) -> Result<Vector> {
        if !self.device.same_as(&other.device) {
            return Err(Error::DeviceMismatch { expected: self.device.to_string(), found: other.device.to_string() });
        }
        if self.len() != other.len() {
            let what = format!("the second vector of `{name}`");
            return Err(Error::LengthMismatch { what, expected: self.len(), given: other.len() });
        }
        let path = format!("vector_{name}/01_one_thread_each");
        let data = match (&self.data, &other.data, &self.device) {
            (Data::Gpu(a), Data::Gpu(b), Device::Gpu(gpu)) => Data::Gpu(launch(gpu, rung(&path)?, a, b)?),
            (Data::Host(a), Data::Host(b), _) => Data::Host(a.iter().zip(b).map(|(&a, &b)| on_cpu(a, b)).collect()),
            _ => unreachable!("vectors of one device keep their data the same way"),
        };
        Ok(Vector { device: self.device.clone(), data })
    }
}

/// The four steps, less the copies: both inputs are there already, and the result stays.
fn launch(gpu: &Gpu, rung: Rung, a: &Buffer<f32>, b: &Buffer<f32>) -> Result<Buffer<f32>> {
    let kernel = rung.compile(gpu)?;
    let mut c = gpu.alloc::<f32>(a.len())?;
    kernel.launch(LaunchConfig::for_elements(a.len(), rung.block.0), (a, b, &mut c, a.len() as i32))?;
    Ok(c)
}

impl fmt::Debug for Vector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Vector({} elements on {})", self.len(), self.device)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_device_computes_and_two_are_named() {
        let host = Device::Cpu.vector(&[1.0, 2.0]).unwrap();
        let away = Device::Practice.vector(&[3.0, 4.0]).unwrap();
        let message = host.add(&away).unwrap_err().to_string();
        assert!(message.contains("the CPU") && message.contains("the practice device"), "{message}");
        let mended = host.add(&away.to(host.device()).unwrap()).unwrap();
        assert_eq!(mended.to_host().unwrap(), [4.0, 6.0]);
        assert_eq!(away.multiply(&away).unwrap().to_host().unwrap(), [9.0, 16.0]);
    }

    #[test]
    fn lengths_must_agree() {
        let message =
            Device::Cpu.vector(&[1.0]).unwrap().add(&Device::Cpu.vector(&[]).unwrap()).unwrap_err().to_string();
        assert!(message.contains("1 elements expected, 0 given"), "{message}");
    }
}
