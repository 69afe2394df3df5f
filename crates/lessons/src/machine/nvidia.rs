//! NVIDIA's driver and GPUs: from the driver's own figures, and from `nvidia-smi` what only that tells.
//!
//! The driver is asked without opening a context, which would take half a second and hundreds of MB on each GPU.

use super::smi::{self, Row};
use gpulab::cuda::CudaGpu;
use gpulab::cudarc::driver::result::device;
use gpulab::cudarc::driver::sys::{self, CUdevice_attribute as Attribute};

/// NVIDIA's side of the machine.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Nvidia {
    /// The driver's release, such as `580.159.04`.
    pub driver: Option<String>,
    /// The newest CUDA that this driver supports, such as `13.0`.
    pub cuda: Option<String>,
    /// The GPUs that this process sees, in CUDA's order (`CUDA_VISIBLE_DEVICES` counts).
    pub gpus: Vec<NvidiaGpu>,
    /// Why there is none.
    pub why_none: Option<String>,
}

/// One NVIDIA GPU. `None` where neither the driver nor `nvidia-smi` tells.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct NvidiaGpu {
    /// `NVIDIA H200`.
    pub name: String,
    /// Compute capability, such as (9, 0).
    pub capability: (u32, u32),
    /// Streaming multiprocessors.
    pub multiprocessors: u32,
    /// Bytes of memory.
    pub memory_bytes: u64,
    /// Bytes of memory that no process uses now.
    pub memory_free_bytes: Option<u64>,
    /// Width of the memory bus in bits.
    pub memory_bus_bits: Option<u32>,
    /// Highest clock of the memory in MHz; data moves twice a cycle.
    pub memory_clock_mhz: Option<u32>,
    /// Bytes of the L2 cache.
    pub l2_bytes: Option<u64>,
    /// Highest clock of the multiprocessors in MHz.
    pub clock_mhz: Option<u32>,
    /// Their clock now, in MHz; low while nothing runs.
    pub clock_now_mhz: Option<u32>,
    /// Limit of the power draw in watts.
    pub power_limit_w: Option<f64>,
    /// PCIe generation and lanes, at most: (5, 16). An idle GPU may use fewer.
    pub pcie: Option<(u32, u32)>,
    /// Active NVLink links, and their GB/s (10⁹ bytes a second) together, in each direction.
    pub nvlink: Option<(u32, f64)>,
}

impl NvidiaGpu {
    /// The memory's bandwidth by clock × 2 × bus width, in GB/s: a ceiling that no kernel reaches.
    pub fn bandwidth_gb_per_s(&self) -> Option<f64> {
        let (clock, bits) = (self.memory_clock_mhz?, self.memory_bus_bits?);
        Some(f64::from(clock) * 1e6 * 2.0 * f64::from(bits) / 8.0 / 1e9)
    }
}

pub(super) fn detect() -> Nvidia {
    let count = match CudaGpu::count() {
        Ok(count) => count,
        // A driver that is too old, or a container without its libraries, may still answer here.
        Err(why) => return Nvidia { driver: smi::kernel_module(), why_none: Some(why), ..Nvidia::default() },
    };
    let rows = smi::rows();
    let mut version = 0;
    // SAFETY: the pointer is valid for the call, and `count` has loaded the driver.
    unsafe { sys::cuDriverGetVersion(&mut version) };
    Nvidia {
        driver: rows.first().and_then(|row| row.driver.clone()).or_else(smi::kernel_module),
        cuda: (version > 0).then(|| format!("{}.{}", version / 1000, version % 1000 / 10)),
        gpus: (0..count).filter_map(|index| gpu(index, &rows)).collect(),
        why_none: None,
    }
}

fn gpu(index: usize, rows: &[Row]) -> Option<NvidiaGpu> {
    let gpu = device::get(index as i32).ok()?;
    // SAFETY: `gpu` comes from `device::get`.
    let get = |which| unsafe { device::get_attribute(gpu, which) }.ok().and_then(|value| u32::try_from(value).ok());
    let positive = |which| get(which).filter(|&value| value > 0);
    let pci = [
        get(Attribute::CU_DEVICE_ATTRIBUTE_PCI_DOMAIN_ID),
        get(Attribute::CU_DEVICE_ATTRIBUTE_PCI_BUS_ID),
        get(Attribute::CU_DEVICE_ATTRIBUTE_PCI_DEVICE_ID),
    ];
    // nvidia-smi numbers GPUs differently, so the slot is what the two have in common.
    let row = rows.iter().find(|row| row.pci.map(Some) == pci).cloned().unwrap_or_default();
    let khz_to_mhz = |khz: u32| khz.div_ceil(1000);
    Some(NvidiaGpu {
        name: device::get_name(gpu).unwrap_or_else(|_| format!("NVIDIA GPU {index}")),
        capability: (
            get(Attribute::CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR)?,
            get(Attribute::CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR)?,
        ),
        multiprocessors: get(Attribute::CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT)?,
        // SAFETY: `gpu` comes from `device::get`.
        memory_bytes: unsafe { device::total_mem(gpu) }.ok()? as u64,
        memory_free_bytes: row.memory_free_bytes.or_else(|| free_bytes(index)),
        memory_bus_bits: positive(Attribute::CU_DEVICE_ATTRIBUTE_GLOBAL_MEMORY_BUS_WIDTH),
        memory_clock_mhz: positive(Attribute::CU_DEVICE_ATTRIBUTE_MEMORY_CLOCK_RATE)
            .map(khz_to_mhz)
            .or(row.memory_clock_mhz),
        l2_bytes: positive(Attribute::CU_DEVICE_ATTRIBUTE_L2_CACHE_SIZE).map(u64::from),
        clock_mhz: positive(Attribute::CU_DEVICE_ATTRIBUTE_CLOCK_RATE).map(khz_to_mhz).or(row.clock_mhz),
        clock_now_mhz: row.clock_now_mhz,
        power_limit_w: row.power_limit_w,
        pcie: row.pcie,
        nvlink: row.nvlink,
    })
}

/// Where `nvidia-smi` is missing, the driver tells only through a context, which is closed again at once.
fn free_bytes(index: usize) -> Option<u64> {
    let (free, _) = CudaGpu::open(index).ok()?.context().mem_get_info().ok()?;
    Some(free as u64)
}
