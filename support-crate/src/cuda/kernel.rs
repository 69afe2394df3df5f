//! Loading a module and launching its kernels.

use super::{CudaGpu, driver_error};
use crate::error::{Error, Result};
use crate::launch::{LaunchAttributes, LaunchConfig, ParameterLayout};
use crate::measurement::KernelResources;
use cudarc::driver::sys::{
    CUdevice_attribute as Attribute, CUfunction_attribute_enum, CUlaunchAttribute, CUlaunchAttributeID as Id,
    CUlaunchAttributeValue, CUlaunchConfig, CUresult, cuFuncGetParamInfo, cuLaunchKernelEx,
    cuOccupancyMaxActiveClusters,
};
use cudarc::driver::{CudaFunction, CudaModule, CudaStream, DriverError, result};
use cudarc::nvrtc::Ptx;
use std::ffi::c_void;
use std::sync::{Arc, OnceLock};

/// A loaded module.
#[derive(Debug, Clone)]
pub(crate) struct CudaLibrary(Arc<CudaModule>);

/// A loaded kernel.
#[derive(Debug, Clone)]
pub(crate) struct CudaKernel(CudaFunction);

impl CudaGpu {
    /// Loads PTX: the driver compiles it to this GPU's machine code.
    pub(crate) fn load(&self, ptx: &str) -> Result<CudaLibrary> {
        if ptx.contains('\0') {
            return Err(Error::invalid(
                "this PTX has a NUL character in it, and the driver would read it as its end",
                "take the NUL out",
            ));
        }
        self.context.load_module(Ptx::from_src(ptx)).map(CudaLibrary).map_err(|error| match error.0 {
            CUresult::CUDA_ERROR_UNSUPPORTED_PTX_VERSION => {
                let (major, minor) = driver_version();
                Error::DriverTooOld { driver: format!("{major}.{minor}"), ptx: ptx_version(ptx).to_string() }
            }
            _ => driver_error("loading the compiled kernel", error),
        })
    }
}

/// The version of the PTX language, such as `9.0`, from its first directive.
fn ptx_version(ptx: &str) -> &str {
    ptx.lines().find_map(|line| line.trim().strip_prefix(".version")).map_or("of an unknown version", str::trim)
}

/// The newest CUDA version that the driver supports, such as (13, 0); (0, 0) where it does not tell.
fn driver_version() -> (i32, i32) {
    static VERSION: OnceLock<(i32, i32)> = OnceLock::new();
    *VERSION.get_or_init(|| {
        let mut version = 0;
        // SAFETY: the pointer is valid for the call; a context exists, so the library is loaded.
        match unsafe { cudarc::driver::sys::cuDriverGetVersion(&mut version) } {
            CUresult::CUDA_SUCCESS => (version / 1000, version % 1000 / 10),
            _ => (0, 0),
        }
    })
}

impl CudaLibrary {
    pub(crate) fn kernel(&self, name: &str) -> Result<CudaKernel> {
        self.0.load_function(name).map(CudaKernel).map_err(|error| driver_error("looking up the kernel", error))
    }
}

impl From<CudaFunction> for CudaKernel {
    fn from(function: CudaFunction) -> CudaKernel {
        CudaKernel(function)
    }
}

impl CudaKernel {
    pub(crate) fn function(&self) -> &CudaFunction {
        &self.0
    }

    /// Where the compiled kernel reads its parameters, by `cuFuncGetParamInfo`; `None` with a driver before CUDA 12.4.
    pub(crate) fn layouts(&self) -> Result<Option<Vec<ParameterLayout>>> {
        if driver_version() < (12, 4) {
            return Ok(None);
        }
        let mut layouts = Vec::new();
        loop {
            let (mut offset, mut bytes) = (0, 0);
            // SAFETY: the function is loaded, and both pointers are valid for the call.
            let told = unsafe { cuFuncGetParamInfo(self.0.cu_function(), layouts.len(), &mut offset, &mut bytes) };
            match told {
                CUresult::CUDA_SUCCESS => layouts.push(ParameterLayout { offset, bytes }),
                // Past the last parameter.
                CUresult::CUDA_ERROR_INVALID_VALUE => return Ok(Some(layouts)),
                other => return Err(driver_error("asking for a kernel's parameters", DriverError(other))),
            }
        }
    }

    /// # Safety
    /// `arguments` has as many addresses as the kernel has parameters, each of as many bytes as its parameter has; an address among them is
    /// one that the kernel may use as its declaration says, until the work has ended.
    pub(crate) unsafe fn launch(
        &self,
        stream: &CudaStream,
        config: LaunchConfig,
        attributes: LaunchAttributes,
        arguments: &mut [*mut c_void],
    ) -> Result<()> {
        let problem = |error| driver_error("the launch", error);
        stream.context().bind_to_thread().map_err(problem)?;
        if attributes == LaunchAttributes::NONE {
            let (grid, block, shared) = (config.grid, config.block, config.shared_bytes);
            let (function, stream) = (self.0.cu_function(), stream.cu_stream());
            // SAFETY: the caller's promise; function and stream are valid.
            return unsafe { result::launch_kernel(function, grid, block, shared, stream, arguments) }.map_err(problem);
        }
        if attributes.max_shared_carveout {
            let attribute = CUfunction_attribute_enum::CU_FUNC_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT;
            self.0.set_attribute(attribute, 100).map_err(problem)?;
        }
        let mut list = list(attributes);
        let launch = launch_config(stream, config, &mut list);
        // SAFETY: the caller's promise, and all that the configuration points to lives until the call has returned.
        let launched =
            unsafe { cuLaunchKernelEx(&launch, self.0.cu_function(), arguments.as_mut_ptr(), std::ptr::null_mut()) };
        match launched {
            CUresult::CUDA_ERROR_COOPERATIVE_LAUNCH_TOO_LARGE => {
                let fit = if attributes.cluster > 1 {
                    u64::from(self.clusters_at_a_time(stream, config, attributes.cluster)?)
                        * u64::from(attributes.cluster)
                } else {
                    let which = Attribute::CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT;
                    let multiprocessors = stream.context().attribute(which).map_err(problem)?;
                    u64::from(self.blocks_per_multiprocessor(config)?) * multiprocessors.max(0) as u64
                };
                Err(too_many_blocks(config, fit))
            }
            other => other.result().map_err(problem),
        }
    }

    /// How many clusters of that launch the whole GPU runs at the same time.
    pub(crate) fn clusters_at_a_time(&self, stream: &CudaStream, config: LaunchConfig, cluster: u32) -> Result<u32> {
        let mut list = list(LaunchAttributes { cluster, ..LaunchAttributes::NONE });
        let launch = launch_config(stream, config, &mut list);
        let mut clusters = 0;
        // SAFETY: all pointers are valid until the call has returned.
        unsafe { cuOccupancyMaxActiveClusters(&mut clusters, self.0.cu_function(), &launch) }
            .result()
            .map_err(|error| driver_error("asking how many clusters the GPU holds", error))?;
        Ok(clusters.max(0) as u32)
    }

    /// How many blocks of that launch one multiprocessor holds at a time.
    pub(crate) fn blocks_per_multiprocessor(&self, config: LaunchConfig) -> Result<u32> {
        let (threads, dynamic) = (config.threads_per_block() as u32, config.shared_bytes);
        if dynamic > 48 << 10 {
            self.allow_shared_bytes(dynamic)?;
        }
        self.0
            .occupancy_max_active_blocks_per_multiprocessor(threads, dynamic as usize, None)
            .map_err(|error| driver_error("asking how many blocks a multiprocessor holds", error))
    }

    /// Above 48 KiB a kernel must opt in to dynamic shared memory.
    pub(crate) fn allow_shared_bytes(&self, bytes: u32) -> Result<()> {
        let attribute = CUfunction_attribute_enum::CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES;
        self.0
            .set_attribute(attribute, bytes as i32)
            .map_err(|error| driver_error("asking for more shared memory", error))
    }

    /// What the kernel needs, and how many blocks of that launch one multiprocessor of this GPU holds at a time.
    pub(crate) fn residency(&self, gpu: &CudaGpu, config: LaunchConfig) -> Result<KernelResources> {
        let [registers, shared_bytes, local_bytes, max_threads_per_block] = self.resources()?.map(|n| n.max(0) as u32);
        let (threads, dynamic) = (config.threads_per_block() as u32, config.shared_bytes);
        let blocks = self.blocks_per_multiprocessor(config)?;
        let figure = |which| gpu.attribute(which).max(0) as u32;
        let reserved = figure(Attribute::CU_DEVICE_ATTRIBUTE_RESERVED_SHARED_MEMORY_PER_BLOCK);
        let shared = figure(Attribute::CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_MULTIPROCESSOR);
        Ok(KernelResources {
            registers,
            shared_bytes,
            dynamic_shared_bytes: dynamic,
            local_bytes,
            max_threads_per_block,
            threads,
            blocks,
            max_threads_per_multiprocessor: figure(Attribute::CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_MULTIPROCESSOR),
            max_blocks_per_multiprocessor: figure(Attribute::CU_DEVICE_ATTRIBUTE_MAX_BLOCKS_PER_MULTIPROCESSOR),
            blocks_by_shared: shared / (shared_bytes + dynamic + reserved).max(1),
        })
    }

    /// The largest block that this kernel's registers allow.
    pub(crate) fn max_threads_per_block(&self) -> Result<u32> {
        let most = self.0.max_threads_per_block();
        most.map(|most| most.max(0) as u32).map_err(|error| driver_error("reading the kernel's resources", error))
    }

    /// Registers per thread, static shared bytes per block, local (spill) bytes per thread, largest block.
    fn resources(&self) -> Result<[i32; 4]> {
        let get =
            |value: std::result::Result<i32, _>| value.map_err(|e| driver_error("reading the kernel's resources", e));
        Ok([
            get(self.0.num_regs())?,
            get(self.0.shared_size_bytes())?,
            get(self.0.local_size_bytes())?,
            get(self.0.max_threads_per_block())?,
        ])
    }
}

/// A cooperative launch of more blocks than run at the same time.
pub(crate) fn too_many_blocks(config: LaunchConfig, fit: u64) -> Error {
    Error::LaunchLimit {
        what: format!(
            "the blocks of a cooperative launch run all at the same time, and of {} threads and {} bytes of dynamic shared \
             memory fewer blocks fit",
            config.threads_per_block(),
            config.shared_bytes
        ),
        asked: config.blocks(),
        limit: fit,
        fix: match fit {
            0 => "use smaller blocks, or less shared memory".to_string(),
            _ => {
                format!("launch at most {fit} blocks (`kernel.co_resident_blocks(config)`), each with more of the work")
            }
        },
    }
}

/// The launch as the driver takes it; it points to the attributes.
fn launch_config(stream: &CudaStream, config: LaunchConfig, list: &mut [CUlaunchAttribute]) -> CUlaunchConfig {
    CUlaunchConfig {
        gridDimX: config.grid.0,
        gridDimY: config.grid.1,
        gridDimZ: config.grid.2,
        blockDimX: config.block.0,
        blockDimY: config.block.1,
        blockDimZ: config.block.2,
        sharedMemBytes: config.shared_bytes,
        hStream: stream.cu_stream(),
        attrs: list.as_mut_ptr(),
        numAttrs: list.len() as u32,
    }
}

fn list(attributes: LaunchAttributes) -> Vec<CUlaunchAttribute> {
    let attribute = |id| CUlaunchAttribute { id, pad: [0; 4], value: CUlaunchAttributeValue { pad: [0; 64] } };
    let mut all = Vec::new();
    if attributes.cluster > 1 {
        let mut cluster = attribute(Id::CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION);
        cluster.value.clusterDim.x = attributes.cluster;
        cluster.value.clusterDim.y = 1;
        cluster.value.clusterDim.z = 1;
        all.push(cluster);
    }
    if attributes.programmatic_stream_serialization {
        let mut early = attribute(Id::CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION);
        early.value.programmaticStreamSerializationAllowed = 1;
        all.push(early);
    }
    if attributes.cooperative {
        let mut cooperative = attribute(Id::CU_LAUNCH_ATTRIBUTE_COOPERATIVE);
        cooperative.value.cooperative = 1;
        all.push(cooperative);
    }
    all
}
