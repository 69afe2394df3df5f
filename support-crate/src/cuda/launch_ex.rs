//! Launches with attributes: clusters of blocks, and kernels that start before the one in front has ended.

use super::kernel::{CudaArg, CudaKernel};
use super::{CudaTensorMap, driver_error};
use crate::error::Result;
use crate::launch::{LaunchConfig, LaunchExtras};
use cudarc::driver::sys::{
    CUdeviceptr, CUfunction_attribute_enum, CUlaunchAttribute, CUlaunchAttributeID as Id, CUlaunchAttributeValue,
    CUlaunchConfig, cuLaunchKernelEx, cuOccupancyMaxActiveClusters,
};
use cudarc::driver::{CudaStream, DevicePtr, DevicePtrMut};
use std::ffi::c_void;

/// An argument's bytes, where the driver reads them.
enum Value<'a> {
    Pointer(CUdeviceptr),
    Bytes1(u8),
    Bytes2(u16),
    Bytes4(u32),
    Bytes8(u64),
    Map(&'a CudaTensorMap),
}

impl Value<'_> {
    fn address(&mut self) -> *mut c_void {
        match self {
            Value::Pointer(value) => (value as *mut CUdeviceptr).cast(),
            Value::Bytes1(value) => (value as *mut u8).cast(),
            Value::Bytes2(value) => (value as *mut u16).cast(),
            Value::Bytes4(value) => (value as *mut u32).cast(),
            Value::Bytes8(value) => (value as *mut u64).cast(),
            // The driver only reads it.
            Value::Map(map) => (&raw const map.0.opaque).cast_mut().cast(),
        }
    }
}

impl CudaKernel {
    pub(super) fn launch_with(
        &self,
        stream: &CudaStream,
        config: LaunchConfig,
        extras: LaunchExtras,
        args: &mut [CudaArg<'_>],
    ) -> Result<()> {
        let problem = |error| driver_error("the launch", error);
        stream.context().bind_to_thread().map_err(problem)?;
        if extras.most_shared {
            let attribute = CUfunction_attribute_enum::CU_FUNC_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT;
            self.0.set_attribute(attribute, 100).map_err(problem)?;
        }
        // The guards tell cudarc, when they are dropped, that the stream uses the buffers.
        let (mut values, mut guards) = (Vec::new(), Vec::new());
        for arg in args {
            let (value, guard) = match arg {
                CudaArg::Read(memory) => {
                    let (pointer, guard) = memory.device_ptr(stream);
                    (Value::Pointer(pointer), Some(guard))
                }
                CudaArg::Write(memory) => {
                    let (pointer, guard) = memory.device_ptr_mut(stream);
                    (Value::Pointer(pointer), Some(guard))
                }
                CudaArg::Bytes1(value) => (Value::Bytes1(*value), None),
                CudaArg::Bytes2(value) => (Value::Bytes2(*value), None),
                CudaArg::Bytes4(value) => (Value::Bytes4(*value), None),
                CudaArg::Bytes8(value) => (Value::Bytes8(*value), None),
                CudaArg::Map(map) => (Value::Map(map), None),
            };
            values.push(value);
            guards.extend(guard);
        }
        let mut addresses: Vec<*mut c_void> = values.iter_mut().map(Value::address).collect();
        let mut attributes = attributes(extras);
        let launch = launch_config(stream, config, &mut attributes);
        // SAFETY: as for an ordinary launch: the arguments were checked against the kernel's declaration, and all that
        // the configuration points to lives until the call has returned.
        let launched =
            unsafe { cuLaunchKernelEx(&launch, self.0.cu_function(), addresses.as_mut_ptr(), std::ptr::null_mut()) };
        launched.result().map_err(problem)
    }

    /// How many clusters of that launch the whole GPU runs at the same time.
    pub(crate) fn clusters_at_a_time(&self, stream: &CudaStream, config: LaunchConfig, cluster: u32) -> Result<u32> {
        let mut attributes = attributes(LaunchExtras { cluster, ..LaunchExtras::NONE });
        let launch = launch_config(stream, config, &mut attributes);
        let mut clusters = 0;
        // SAFETY: all pointers are valid until the call has returned.
        unsafe { cuOccupancyMaxActiveClusters(&mut clusters, self.0.cu_function(), &launch) }
            .result()
            .map_err(|error| driver_error("asking how many clusters the GPU holds", error))?;
        Ok(clusters.max(0) as u32)
    }
}

/// The launch as the driver takes it; it points to the attributes.
fn launch_config(stream: &CudaStream, config: LaunchConfig, attributes: &mut [CUlaunchAttribute]) -> CUlaunchConfig {
    CUlaunchConfig {
        gridDimX: config.grid.0,
        gridDimY: config.grid.1,
        gridDimZ: config.grid.2,
        blockDimX: config.block.0,
        blockDimY: config.block.1,
        blockDimZ: config.block.2,
        sharedMemBytes: config.shared_bytes,
        hStream: stream.cu_stream(),
        attrs: attributes.as_mut_ptr(),
        numAttrs: attributes.len() as u32,
    }
}

fn attributes(extras: LaunchExtras) -> Vec<CUlaunchAttribute> {
    let attribute = |id| CUlaunchAttribute { id, pad: [0; 4], value: CUlaunchAttributeValue { pad: [0; 64] } };
    let mut all = Vec::new();
    if extras.cluster > 1 {
        let mut cluster = attribute(Id::CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION);
        cluster.value.clusterDim.x = extras.cluster;
        cluster.value.clusterDim.y = 1;
        cluster.value.clusterDim.z = 1;
        all.push(cluster);
    }
    if extras.early {
        let mut early = attribute(Id::CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION);
        early.value.programmaticStreamSerializationAllowed = 1;
        all.push(early);
    }
    if extras.cooperative {
        let mut cooperative = attribute(Id::CU_LAUNCH_ATTRIBUTE_COOPERATIVE);
        cooperative.value.cooperative = 1;
        all.push(cooperative);
    }
    all
}
