//! The machine for programs: the same facts as the table, with the unit in each name.

use super::{Machine, gpus::NvidiaGpu};
use serde_json::{Value, json};

impl Machine {
    /// One JSON object; what is unknown is `null`.
    pub fn to_json(&self) -> String {
        let cpu = &self.cpu;
        let caches = cpu.caches.iter().map(|c| json!({ "name": c.name, "bytes": c.bytes, "count": c.count }));
        let apple = self.apple.iter().map(|gpu| json!({ "name": gpu.name, "cores": gpu.cores, "metal": gpu.metal }));
        let tools = self.tools.iter().map(|tool| {
            json!({
                "name": tool.name, "found": tool.found(), "version": tool.version, "place": tool.place,
                "used_for": tool.used_for, "add": tool.add, "note": tool.note,
            })
        });
        let value = json!({
            "short_name": self.short_name(),
            "system": self.system,
            "cpu": {
                "model": cpu.model, "architecture": cpu.architecture, "physical_cores": cpu.physical_cores,
                "logical_cores": cpu.logical_cores, "usable_cores": cpu.usable_cores, "vectors": cpu.vectors,
                "caches": caches.collect::<Vec<_>>(),
                "memory_bytes": cpu.memory_bytes, "memory_limit_bytes": cpu.memory_limit_bytes,
            },
            "nvidia": {
                "driver": self.nvidia.driver, "cuda": self.nvidia.cuda, "why_none": self.nvidia.why_none,
                "gpus": self.nvidia.gpus.iter().map(gpu).collect::<Vec<_>>(),
            },
            "apple": apple.collect::<Vec<_>>(),
            "tools": tools.collect::<Vec<_>>(),
            "warnings": self.warnings,
        });
        format!("{value:#}")
    }
}

fn gpu(gpu: &NvidiaGpu) -> Value {
    json!({
        "name": gpu.name,
        "compute_capability": format!("{}.{}", gpu.capability.0, gpu.capability.1),
        "multiprocessors": gpu.multiprocessors,
        "memory_bytes": gpu.memory_bytes,
        "memory_free_bytes": gpu.memory_free_bytes,
        "memory_bus_bits": gpu.memory_bus_bits,
        "memory_clock_mhz": gpu.memory_clock_mhz,
        "memory_bandwidth_gb_per_s": gpu.bandwidth_gb_per_s(),
        "l2_bytes": gpu.l2_bytes,
        "clock_mhz": gpu.clock_mhz,
        "clock_now_mhz": gpu.clock_now_mhz,
        "power_limit_w": gpu.power_limit_w,
        "pcie_generation": gpu.pcie.map(|(generation, _)| generation),
        "pcie_lanes": gpu.pcie.map(|(_, lanes)| lanes),
        "nvlink_links": gpu.nvlink.map(|(links, _)| links),
        "nvlink_gb_per_s": gpu.nvlink.map(|(_, rate)| rate),
    })
}
