//! `gpulab verify --json`: the machine for programs, the same facts as the table, with the unit in each name.

use gpulab_lessons::machine::{Machine, NvidiaGpu};
use serde_json::{Value, json};

/// One JSON object; what is unknown is `null`.
pub fn json(machine: &Machine) -> String {
    let cpu = &machine.cpu;
    let caches = cpu.caches.iter().map(|c| json!({ "name": c.name, "bytes": c.bytes, "count": c.count }));
    let apple = machine.apple.iter().map(|gpu| json!({ "name": gpu.name, "cores": gpu.cores, "metal": gpu.metal }));
    let tools = machine.tools.iter().map(|tool| {
        json!({
            "name": tool.name, "found": tool.found(), "version": tool.version, "place": tool.place,
            "used_for": tool.used_for, "add": tool.add, "note": tool.note,
        })
    });
    let value = json!({
        "short_name": machine.short_name(),
        "system": machine.system,
        "cpu": {
            "model": cpu.model, "architecture": cpu.architecture, "physical_cores": cpu.physical_cores,
            "logical_cores": cpu.logical_cores, "usable_cores": cpu.usable_cores, "vectors": cpu.vectors,
            "caches": caches.collect::<Vec<_>>(),
            "memory_bytes": cpu.memory_bytes, "memory_limit_bytes": cpu.memory_limit_bytes,
        },
        "nvidia": {
            "driver": machine.nvidia.driver, "cuda": machine.nvidia.cuda, "why_none": machine.nvidia.why_none,
            "gpus": machine.nvidia.gpus.iter().map(gpu).collect::<Vec<_>>(),
        },
        "apple": apple.collect::<Vec<_>>(),
        "tools": tools.collect::<Vec<_>>(),
        "warnings": machine.warnings,
    });
    format!("{value:#}")
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

#[cfg(test)]
mod tests {
    use super::*;
    use gpulab::cpu;
    use gpulab_lessons::machine::{Nvidia, detect};

    #[test]
    fn json_holds_the_same_facts() {
        let gpu = NvidiaGpu { capability: (9, 0), memory_free_bytes: Some(143_154 << 20), ..NvidiaGpu::default() };
        let cpu = cpu::CpuInfo { usable_cores: 2, ..cpu::info() };
        let machine = Machine {
            system: "Ubuntu 24.04, Linux 6.8".into(),
            cpu,
            nvidia: Nvidia { gpus: vec![gpu], ..Nvidia::default() },
            apple: vec![],
            tools: vec![],
            warnings: vec![],
        };
        let json: Value = serde_json::from_str(&json(&machine)).unwrap();
        assert_eq!(json["nvidia"]["gpus"][0]["compute_capability"], "9.0");
        assert_eq!(json["nvidia"]["gpus"][0]["memory_free_bytes"], 143_154u64 << 20);
        assert_eq!(json["cpu"]["usable_cores"], 2);
        assert!(json["nvidia"]["why_none"].is_null() && json["apple"].as_array().unwrap().is_empty());
    }

    #[test]
    fn this_machine_is_described_whatever_it_is() {
        serde_json::from_str::<Value>(&json(&detect())).unwrap();
    }
}
