//! The GPUs: NVIDIA's by the driver's own figures, and by `nvidia-smi` what only that tells; Apple's as `system_profiler`
//! describes them.
//!
//! The driver is asked without opening a context, which would take half a second and hundreds of MB on each GPU.

use gpulab::command::output_of;
use gpulab::cuda::CudaGpu;
use gpulab::cudarc::driver::result::device;
use gpulab::cudarc::driver::sys;
use gpulab::cudarc::driver::sys::CUdevice_attribute as Attribute;
use serde_json::Value;
use std::time::Duration;

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

pub(super) fn detect_nvidia() -> Nvidia {
    let count = match CudaGpu::count() {
        Ok(count) => count,
        // A driver that is too old, or a container without its libraries, may still answer here.
        Err(why) => return Nvidia { driver: kernel_module(), why_none: Some(why), ..Nvidia::default() },
    };
    let rows = rows();
    let mut version = 0;
    // SAFETY: the pointer is valid for the call, and `count` has loaded the driver.
    unsafe { sys::cuDriverGetVersion(&mut version) };
    Nvidia {
        driver: rows.first().and_then(|row| row.driver.clone()).or_else(kernel_module),
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

/// Not waited for longer: without the persistence daemon, a GPU server takes seconds to answer.
const LIMIT: Duration = Duration::from_secs(15);
/// Known to drivers of every age; one unknown name would fail the whole query.
const FIELDS: &str = "pci.bus_id,uuid,driver_version,memory.free,clocks.sm,clocks.max.sm,clocks.max.memory,\
                      power.limit,pcie.link.gen.max,pcie.link.width.max";

/// One GPU's line.
#[derive(Debug, Clone, PartialEq, Default)]
struct Row {
    /// PCI domain, bus and device: which GPU this is.
    pub pci: [u32; 3],
    pub uuid: String,
    pub driver: Option<String>,
    pub memory_free_bytes: Option<u64>,
    pub clock_now_mhz: Option<u32>,
    pub clock_mhz: Option<u32>,
    pub memory_clock_mhz: Option<u32>,
    pub power_limit_w: Option<f64>,
    pub pcie: Option<(u32, u32)>,
    pub nvlink: Option<(u32, f64)>,
}

/// Asks `nvidia-smi`; nothing when it is missing or fails.
fn rows() -> Vec<Row> {
    let query = format!("--query-gpu={FIELDS}");
    let mut rows = output_of("nvidia-smi", &[&query, "--format=csv,noheader,nounits"], LIMIT)
        .map(|text| parse_rows(&text))
        .unwrap_or_default();
    if !rows.is_empty()
        && let Ok(text) = output_of("nvidia-smi", &["nvlink", "--status"], LIMIT)
    {
        for (uuid, links, rate) in parse_nvlink(&text) {
            if let Some(row) = rows.iter_mut().find(|row| row.uuid == uuid) {
                row.nvlink = Some((links, rate));
            }
        }
    }
    rows
}

fn parse_rows(text: &str) -> Vec<Row> {
    text.lines().filter_map(parse_row).collect()
}

/// Figures that a GPU does not have read `[N/A]` or `[Not Supported]`, which no number parses from.
fn parse_row(line: &str) -> Option<Row> {
    let fields: Vec<&str> = line.split(',').map(str::trim).collect();
    let number = |at: usize| fields.get(at)?.parse::<f64>().ok();
    let whole = |at: usize| number(at).map(|value| value as u32).filter(|&value| value > 0);
    Some(Row {
        pci: parse_pci(fields.first()?)?,
        uuid: fields.get(1)?.to_string(),
        driver: fields.get(2).filter(|text| text.starts_with(|c: char| c.is_ascii_digit())).map(|t| t.to_string()),
        memory_free_bytes: number(3).map(|mib| (mib * 1024.0 * 1024.0) as u64),
        clock_now_mhz: whole(4),
        clock_mhz: whole(5),
        memory_clock_mhz: whole(6),
        power_limit_w: number(7),
        pcie: whole(8).zip(whole(9)),
        nvlink: None,
    })
}

/// `00000000:18:00.0` → domain, bus, device.
fn parse_pci(text: &str) -> Option<[u32; 3]> {
    let mut parts = text.split([':', '.']).map(|part| u32::from_str_radix(part, 16).ok());
    Some([parts.next()??, parts.next()??, parts.next()??])
}

/// `GPU 0: NVIDIA H200 (UUID: GPU-…)`, then `Link 3: 26.562 GB/s` or `Link 3: <inactive>` for each link.
fn parse_nvlink(text: &str) -> Vec<(String, u32, f64)> {
    let mut found: Vec<(String, u32, f64)> = Vec::new();
    for line in text.lines().map(str::trim) {
        if let Some((_, uuid)) = line.split_once("(UUID: ") {
            found.push((uuid.trim_end_matches(')').to_string(), 0, 0.0));
        } else if let Some((_, rate)) = line.strip_prefix("Link ").and_then(|rest| rest.split_once(':'))
            && let Some(rate) = rate.trim().strip_suffix("GB/s").and_then(|rate| rate.trim().parse::<f64>().ok())
            && let Some(gpu) = found.last_mut()
        {
            gpu.1 += 1;
            gpu.2 += rate;
        }
    }
    found.retain(|(_, links, _)| *links > 0);
    found
}

/// The release of the loaded kernel module, where Linux shows it.
fn kernel_module() -> Option<String> {
    parse_kernel_module(&std::fs::read_to_string("/proc/driver/nvidia/version").ok()?)
}

fn parse_kernel_module(text: &str) -> Option<String> {
    let line = text.lines().find(|line| line.contains("NVRM"))?;
    let release = |word: &&str| word.contains('.') && word.starts_with(|c: char| c.is_ascii_digit());
    line.split_whitespace().find(release).map(str::to_string)
}

/// An Apple GPU.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AppleGpu {
    /// `Apple M2 Pro`.
    pub name: String,
    /// GPU cores, where the system tells.
    pub cores: Option<u32>,
    /// The Metal version, such as `Metal 3`, where the system tells.
    pub metal: Option<String>,
}

impl AppleGpu {
    /// `Apple M2 Pro GPU`: the chip's name is its CPU's too, so legends need the last word.
    pub fn short_name(&self) -> String {
        format!("{} GPU", self.name)
    }
}

/// Empty off macOS.
pub(super) fn detect_apple() -> Vec<AppleGpu> {
    if !cfg!(target_os = "macos") {
        return Vec::new();
    }
    let asked = output_of("system_profiler", &["SPDisplaysDataType", "-json"], Duration::from_secs(15));
    asked.map(|text| parse_displays(&text)).unwrap_or_default()
}

/// Other makers' GPUs in Intel Macs are left out: the Metal room opens Apple's.
fn parse_displays(text: &str) -> Vec<AppleGpu> {
    let Ok(report) = serde_json::from_str::<Value>(text) else { return Vec::new() };
    let displays = report["SPDisplaysDataType"].as_array().cloned().unwrap_or_default();
    let gpu = |entry: &Value| {
        let name = entry["sppci_model"].as_str().or_else(|| entry["_name"].as_str())?;
        let metal = entry["spdisplays_mtlgpufamilysupport"].as_str().or_else(|| entry["spdisplays_metal"].as_str());
        let version = metal.and_then(|text| text.strip_prefix("spdisplays_metal")).map(|v| format!("Metal {v}"));
        name.starts_with("Apple").then(|| AppleGpu {
            name: name.to_string(),
            cores: entry["sppci_cores"].as_str().and_then(|text| text.parse().ok()),
            metal: version,
        })
    };
    displays.iter().filter_map(gpu).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_server_and_a_laptop() {
        let text = "00000000:18:00.0, GPU-1d0f, 580.159.04, 143154, 345, 1980, 3201, 700.00, 5, 16\n\
                    00000000:01:00.0, GPU-77aa, 535.54.03, 7800, 210, 2100, [N/A], [Not Supported], 4, [N/A]\n";
        let rows = parse_rows(text);
        let h200 = Row {
            pci: [0, 0x18, 0],
            uuid: "GPU-1d0f".into(),
            driver: Some("580.159.04".into()),
            memory_free_bytes: Some(143_154 << 20),
            clock_now_mhz: Some(345),
            clock_mhz: Some(1980),
            memory_clock_mhz: Some(3201),
            power_limit_w: Some(700.0),
            pcie: Some((5, 16)),
            nvlink: None,
        };
        assert_eq!(rows[0], h200);
        assert_eq!((rows[1].memory_clock_mhz, rows[1].power_limit_w, rows[1].pcie), (None, None, None));
    }

    #[test]
    fn no_gpu_and_nonsense_give_no_row() {
        assert_eq!(parse_rows("No devices were found\n"), []);
        assert_eq!(parse_rows("\n,,,\nField \"x\" is not a valid field to query.\n"), []);
    }

    #[test]
    fn links_add_up_for_each_gpu() {
        let text = "GPU 0: NVIDIA H200 (UUID: GPU-1d0f)\n\t Link 0: 26.562 GB/s\n\t Link 1: 26.562 GB/s\n\
                    \t Link 2: <inactive>\nGPU 1: NVIDIA T4 (UUID: GPU-77aa)\n";
        assert_eq!(parse_nvlink(text), [("GPU-1d0f".to_string(), 2, 53.124)]);
        assert_eq!(parse_nvlink("NVML: Unable to retrieve NVLink information\n"), []);
    }

    #[test]
    fn the_kernel_module_names_its_release() {
        let text = "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  580.159.04  Release Build  (dvs)\nGCC version: 12\n";
        assert_eq!(parse_kernel_module(text).as_deref(), Some("580.159.04"));
        assert_eq!(parse_kernel_module(""), None);
    }

    #[test]
    fn a_mac_names_its_gpu() {
        let text = r#"{"SPDisplaysDataType": [{"_name": "Apple M2 Pro", "sppci_model": "Apple M2 Pro",
            "sppci_cores": "19", "spdisplays_mtlgpufamilysupport": "spdisplays_metal3"},
            {"_name": "kHW_AMDRadeon", "sppci_model": "AMD Radeon Pro 5500M"}]}"#;
        let gpu = AppleGpu { name: "Apple M2 Pro".into(), cores: Some(19), metal: Some("Metal 3".into()) };
        assert_eq!(parse_displays(text), std::slice::from_ref(&gpu));
        assert_eq!(gpu.short_name(), "Apple M2 Pro GPU");
    }

    #[test]
    fn anything_else_is_no_gpu() {
        for text in ["", "{}", "[]", r#"{"SPDisplaysDataType": [{}]}"#, r#"{"SPDisplaysDataType": 3}"#] {
            assert_eq!(parse_displays(text), []);
        }
    }
}
