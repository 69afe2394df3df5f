//! The machine as a table for people.

use super::{AppleGpu, Machine, NvidiaGpu, Tool};
use gpulab::cpu::CpuInfo;
use gpulab::error::bytes;
use std::fmt;

/// Width of the first column.
const LABEL: usize = 12;

impl fmt::Display for Machine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut rows: Vec<(String, Vec<String>)> = vec![
            ("System".into(), vec![format!("{}, {}", self.system, self.cpu.architecture)]),
            ("CPU".into(), cpu_lines(&self.cpu)),
        ];
        for (index, gpu) in self.nvidia.gpus.iter().enumerate() {
            rows.push((format!("GPU {index}"), nvidia_lines(gpu)));
        }
        if self.nvidia.gpus.is_empty() && self.apple.is_empty() {
            let why = self.nvidia.why_none.as_deref().unwrap_or("none found");
            let mut lines: Vec<String> = why.lines().map(|line| line.trim().to_string()).collect();
            lines.push("every lesson runs without one, and shows the recorded run beside this CPU".into());
            rows.push(("GPU".into(), lines));
        }
        if let Some(cuda) = &self.nvidia.cuda {
            let driver = self.nvidia.driver.as_deref().map_or(String::new(), |release| format!("{release}, "));
            rows.push(("Driver".into(), vec![format!("{driver}supports CUDA up to {cuda}")]));
        }
        match self.apple.as_slice() {
            [] => rows.push(("Apple GPU".into(), vec!["none (only Macs have one)".into()])),
            gpus => rows.extend(gpus.iter().map(|gpu| ("Apple GPU".into(), vec![apple_line(gpu)]))),
        }
        for (label, lines) in rows {
            for (at, line) in lines.iter().enumerate() {
                writeln!(f, "{:LABEL$}{line}", if at == 0 { label.as_str() } else { "" })?;
            }
        }
        writeln!(f)?;
        let width = self.tools.iter().map(|tool| tool.name.chars().count()).max().unwrap_or(0) + 2;
        for tool in &self.tools {
            writeln!(f, "{:width$}{}", tool.name, tool_text(tool))?;
        }
        for warning in &self.warnings {
            write!(f, "\nwarning: {warning}")?;
        }
        Ok(())
    }
}

fn counted(count: usize, what: &str) -> String {
    format!("{count} {what}{}", if count == 1 { "" } else { "s" })
}

fn cpu_lines(cpu: &CpuInfo) -> Vec<String> {
    let mut cores: Vec<String> = Vec::new();
    cores.extend(cpu.physical_cores.map(|n| counted(n, "core")));
    cores.extend(cpu.logical_cores.map(|n| counted(n, "hardware thread")));
    cores.push(format!("{} usable here", cpu.usable_cores));
    let caches: Vec<String> =
        cpu.caches.iter().map(|c| format!("{} {} × {}", c.name, bytes(c.bytes), c.count)).collect();
    let mut lines = vec![cpu.model.clone(), format!("{}; {} vectors", cores.join(", "), cpu.vectors)];
    if !caches.is_empty() {
        lines.push(format!("caches {}", caches.join(", ")));
    }
    if let Some(all) = cpu.memory_bytes {
        let limit = cpu.memory_limit_bytes.map(|limit| format!(" ({} allowed here)", bytes(limit)));
        lines.push(format!("memory {}{}", bytes(all), limit.unwrap_or_default()));
    }
    lines
}

fn nvidia_lines(gpu: &NvidiaGpu) -> Vec<String> {
    let (major, minor) = gpu.capability;
    let mut chip = vec![counted(gpu.multiprocessors as usize, "SM")];
    chip.extend(gpu.clock_mhz.map(|mhz| {
        let now = gpu.clock_now_mhz.map_or(String::new(), |now| format!(" ({now} MHz now)"));
        format!("up to {mhz} MHz{now}")
    }));
    chip.extend(gpu.l2_bytes.map(|l2| format!("L2 {}", bytes(l2))));
    chip.extend(gpu.power_limit_w.map(|watts| format!("{watts:.0} W")));
    let mut memory = vec![format!("memory {}", bytes(gpu.memory_bytes))];
    memory.extend(gpu.memory_free_bytes.map(|free| format!("{} free", bytes(free))));
    memory.extend(gpu.memory_bus_bits.zip(gpu.memory_clock_mhz).map(|(bits, mhz)| format!("{bits} bits at {mhz} MHz")));
    memory.extend(gpu.bandwidth_gb_per_s().map(|rate| format!("at most {rate:.0} GB/s")));
    let mut links = Vec::new();
    links.extend(gpu.pcie.map(|(generation, lanes)| format!("PCIe {generation}.0 × {lanes}")));
    links
        .extend(gpu.nvlink.map(|(n, rate)| format!("NVLink {}, {rate:.0} GB/s each way", counted(n as usize, "link"))));
    let lines = [
        format!("{}, compute capability {major}.{minor}", gpu.name),
        chip.join(", "),
        memory.join(", "),
        links.join("; "),
    ];
    lines.into_iter().filter(|line| !line.is_empty()).collect()
}

fn apple_line(gpu: &AppleGpu) -> String {
    let mut parts = vec![gpu.name.clone()];
    parts.extend(gpu.cores.map(|n| counted(n as usize, "core")));
    parts.extend(gpu.metal.clone());
    parts.join(", ")
}

fn tool_text(tool: &Tool) -> String {
    let note = tool.note.as_deref().map(|note| note.lines().next().unwrap_or_default());
    if tool.found() {
        let parts = [tool.version.as_deref(), tool.place.as_deref(), note];
        return format!("found: {}", parts.into_iter().flatten().collect::<Vec<_>>().join(", "));
    }
    let why = note.map_or(String::new(), |note| format!("\n    {note}"));
    let add = tool.add.as_deref().map_or(String::new(), |command| format!("\n    to add it: {command}"));
    format!("missing (for {}){why}{add}", tool.used_for)
}
