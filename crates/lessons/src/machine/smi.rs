//! What `nvidia-smi` and the driver's kernel module tell.

use gpulab::command::output_of;
use std::time::Duration;

/// Not waited for longer: without the persistence daemon, a GPU server takes seconds to answer.
const LIMIT: Duration = Duration::from_secs(15);
/// Known to drivers of every age; one unknown name would fail the whole query.
const FIELDS: &str = "pci.bus_id,uuid,driver_version,memory.free,clocks.sm,clocks.max.sm,clocks.max.memory,\
                      power.limit,pcie.link.gen.max,pcie.link.width.max";

/// One GPU's line.
#[derive(Debug, Clone, PartialEq, Default)]
pub(super) struct Row {
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
pub(super) fn rows() -> Vec<Row> {
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
pub(super) fn kernel_module() -> Option<String> {
    parse_kernel_module(&std::fs::read_to_string("/proc/driver/nvidia/version").ok()?)
}

fn parse_kernel_module(text: &str) -> Option<String> {
    let line = text.lines().find(|line| line.contains("NVRM"))?;
    let release = |word: &&str| word.contains('.') && word.starts_with(|c: char| c.is_ascii_digit());
    line.split_whitespace().find(release).map(str::to_string)
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
}
