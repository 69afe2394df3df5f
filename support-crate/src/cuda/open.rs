//! Finding an NVIDIA GPU and opening it.

use super::present::Library;
use super::{Recording, driver_error};
use crate::error::{Error, Result};
use crate::launch::Limits;
use cudarc::driver::sys::{CUdevice_attribute as Attribute, CUresult};
use cudarc::driver::{CudaContext, CudaStream, DriverError};
use std::sync::Arc;

/// An open NVIDIA GPU: its primary context and its default stream.
#[derive(Debug, Clone)]
pub struct CudaGpu {
    pub(crate) context: Arc<CudaContext>,
    pub(crate) stream: Arc<CudaStream>,
    pub(crate) name: String,
    pub(crate) limits: Limits,
    /// What is launched goes here while a graph is captured; shared by all clones.
    pub(crate) recording: Recording,
}

/// What is said where there is no driver, or only the toolkit's stand-in for one, which a build is linked to.
fn no_driver(in_container: bool) -> String {
    let why = if in_container {
        "this container was started without a GPU; `docker run --gpus all …` gives it one"
    } else {
        "no driver is installed (libcuda was not found)"
    };
    format!("NVIDIA: {why}")
}

impl CudaGpu {
    /// cudarc's context of this device.
    pub fn context(&self) -> &Arc<CudaContext> {
        &self.context
    }

    /// How many GPUs the driver shows, or why it shows none.
    pub fn count() -> std::result::Result<usize, String> {
        if !Library::Driver.is_present() {
            return Err(no_driver(std::env::var_os("GPULAB_CONTAINER").is_some()));
        }
        let explain = |error: DriverError| match error.0 {
            CUresult::CUDA_ERROR_STUB_LIBRARY => no_driver(std::env::var_os("GPULAB_CONTAINER").is_some()),
            _ => format!("NVIDIA: {}", driver_error("start of the driver", error)).replace('\n', "\n    "),
        };
        cudarc::driver::result::init().map_err(explain)?;
        match CudaContext::device_count().map_err(explain)? {
            0 => Err("NVIDIA: the driver is installed, but it sees no GPU".to_string()),
            count => Ok(count as usize),
        }
    }

    /// Opens GPU `index`.
    pub fn open(index: usize) -> Result<CudaGpu> {
        let found = CudaGpu::count().map_err(|why| Error::NoGpu { tried: vec![why] })?;
        if index >= found {
            return Err(Error::NoSuchDevice { asked: index, found });
        }
        let problem = |error| driver_error("opening the GPU", error);
        let context = CudaContext::new(index).map_err(problem)?;
        let attribute = |which| context.attribute(which).map(|value| value as u32).map_err(problem);
        let limits = Limits {
            threads_per_block: attribute(Attribute::CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_BLOCK)?,
            block: (
                attribute(Attribute::CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_X)?,
                attribute(Attribute::CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_Y)?,
                attribute(Attribute::CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_Z)?,
            ),
            grid: (
                attribute(Attribute::CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_X)?,
                attribute(Attribute::CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_Y)?,
                attribute(Attribute::CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_Z)?,
            ),
            shared_bytes_per_block: attribute(Attribute::CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN)?,
        };
        let name = context.name().map_err(problem)?;
        Ok(CudaGpu { stream: context.default_stream(), context, name, limits, recording: Recording::default() })
    }

    /// One of the device's figures; 0 when this driver does not know it.
    pub fn attribute(&self, which: Attribute) -> i32 {
        self.context.attribute(which).unwrap_or(0)
    }

    /// Bytes of the last-level cache on the GPU.
    pub(crate) fn l2_bytes(&self) -> usize {
        self.attribute(Attribute::CU_DEVICE_ATTRIBUTE_L2_CACHE_SIZE).max(0) as usize
    }

    /// Streaming multiprocessors; 0 when the driver does not tell.
    pub(crate) fn multiprocessors(&self) -> u32 {
        self.attribute(Attribute::CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT).max(0) as u32
    }

    /// Compute capability as one number: 90 for 9.0.
    pub(crate) fn capability(&self) -> Result<u32> {
        let (major, minor) =
            self.context.compute_capability().map_err(|error| driver_error("reading the compute capability", error))?;
        Ok((major * 10 + minor) as u32)
    }
}

#[cfg(test)]
mod tests {
    use super::no_driver;

    #[test]
    fn a_container_without_a_gpu_is_told_the_flag() {
        assert!(no_driver(true).contains("`docker run --gpus all …`"));
        assert!(!no_driver(false).contains("container"));
    }
}
