//! What this machine has: CPU, GPUs, drivers, libraries; and for what is missing, the command that adds it.
//!
//! Detection never fails and never panics: no GPU is a normal state. What cannot be found out is left out.

mod gpus;
mod tools;

use gpulab::cpu;
use gpulab::cpu::CpuInfo;
use gpulab::error::bytes;
pub use gpus::{AppleGpu, Nvidia, NvidiaGpu};
use std::fmt;
pub use tools::Tool;

/// Everything that [`detect`] found: plain data. `Display` prints it as a table.
#[derive(Debug, Clone, PartialEq)]
pub struct Machine {
    /// The operating system: `Debian GNU/Linux 12 (bookworm), Linux 6.1.0`.
    pub system: String,
    /// The CPU and the memory.
    pub cpu: CpuInfo,
    /// NVIDIA's driver and GPUs.
    pub nvidia: Nvidia,
    /// Apple GPUs; empty off macOS.
    pub apple: Vec<AppleGpu>,
    /// Libraries and programs that lessons use, found or not.
    pub tools: Vec<Tool>,
    /// What is there but does not fit together, each with the next step.
    pub warnings: Vec<String>,
}

/// Looks at everything. Takes up to a few seconds, most of it other programs' (`nvidia-smi`, `system_profiler`);
/// none of them is waited for longer than 15 s. No GPU memory is taken.
pub fn detect() -> Machine {
    let (nvidia, apple) = std::thread::scope(|scope| {
        let nvidia = scope.spawn(gpus::detect_nvidia);
        let apple = scope.spawn(gpus::detect_apple);
        // cudarc panics when a driver's library lacks a function; that must cost no more than this one part.
        let broken =
            |_| Nvidia { why_none: Some("NVIDIA: the driver's library is incomplete".into()), ..Nvidia::default() };
        (nvidia.join().unwrap_or_else(broken), apple.join().unwrap_or_default())
    });
    let tools = tools::detect(&nvidia);
    Machine { system: tools::describe(), cpu: cpu::info(), warnings: warnings(&nvidia, &tools), nvidia, apple, tools }
}

impl Machine {
    /// The name for legends: the first GPU's, such as `NVIDIA H200`; without one, the CPU's, such as
    /// `Intel Xeon Platinum 8481C, 2 cores`.
    pub fn short_name(&self) -> String {
        self.gpu_name().unwrap_or_else(|| self.cpu_name())
    }

    /// The first GPU's name, if there is a GPU.
    pub fn gpu_name(&self) -> Option<String> {
        let nvidia = self.nvidia.gpus.first().map(|gpu| gpu.name.clone());
        nvidia.or_else(|| self.apple.first().map(AppleGpu::short_name))
    }

    /// The CPU's name, with the cores that this process may use.
    pub fn cpu_name(&self) -> String {
        self.cpu.short_name()
    }

    /// Prints the table as a cell's output.
    pub fn evcxr_display(&self) {
        println!("EVCXR_BEGIN_CONTENT text/plain\n{self}\nEVCXR_END_CONTENT");
    }
}

/// `12.4` → (12, 4).
fn version(text: &str) -> Option<(u32, u32)> {
    let mut numbers = text.split('.').map(|part| part.parse().ok());
    Some((numbers.next()??, numbers.next().flatten().unwrap_or(0)))
}

fn warnings(nvidia: &Nvidia, tools: &[Tool]) -> Vec<String> {
    let mut warnings = Vec::new();
    let found = |name: &str| tools.iter().find(|tool| tool.name == name)?.version.as_deref();
    if let (Some(driver), Some(nvrtc)) = (nvidia.cuda.as_deref(), found("NVRTC"))
        && version(nvrtc) > version(driver)
    {
        warnings.push(format!(
            "NVRTC {nvrtc} is newer than what the driver supports (CUDA {driver}): the driver may refuse its kernels\n\
             next: update the driver, or run `make setup NVRTC=12` to install the compiler for older drivers"
        ));
    }
    warnings
}

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

#[cfg(test)]
mod tests {
    use super::*;
    use gpulab::cpu::CpuCache;

    fn server() -> Machine {
        let h200 = NvidiaGpu {
            name: "NVIDIA H200".into(),
            capability: (9, 0),
            multiprocessors: 132,
            memory_bytes: 143_771 << 20,
            memory_free_bytes: Some(143_154 << 20),
            memory_bus_bits: Some(6144),
            memory_clock_mhz: Some(3201),
            l2_bytes: Some(60 << 20),
            clock_mhz: Some(1980),
            clock_now_mhz: Some(345),
            power_limit_w: Some(700.0),
            pcie: Some((5, 16)),
            nvlink: Some((18, 478.1)),
        };
        Machine {
            system: "Ubuntu 24.04, Linux 6.8".into(),
            cpu: CpuInfo {
                model: "Intel Xeon Platinum 8481C".into(),
                architecture: "x86_64".into(),
                physical_cores: Some(8),
                logical_cores: Some(16),
                usable_cores: 2,
                caches: vec![CpuCache { name: "L1d".into(), bytes: 48 << 10, count: 8 }],
                memory_bytes: Some(64 << 30),
                memory_limit_bytes: Some(8 << 30),
                vectors: "AVX-512".into(),
            },
            nvidia: Nvidia {
                driver: Some("580.159.04".into()),
                cuda: Some("13.0".into()),
                gpus: vec![h200],
                why_none: None,
            },
            apple: vec![],
            tools: vec![],
            warnings: vec![],
        }
    }

    #[test]
    fn the_table_of_a_server() {
        let table = server().to_string();
        for line in [
            "System      Ubuntu 24.04, Linux 6.8, x86_64",
            "            8 cores, 16 hardware threads, 2 usable here; AVX-512 vectors",
            "            memory 64.0 GiB (8.00 GiB allowed here)",
            "GPU 0       NVIDIA H200, compute capability 9.0",
            "            132 SMs, up to 1980 MHz (345 MHz now), L2 60.0 MiB, 700 W",
            "            memory 140 GiB, 140 GiB free, 6144 bits at 3201 MHz, at most 4917 GB/s",
            "            PCIe 5.0 × 16; NVLink 18 links, 478 GB/s each way",
            "Driver      580.159.04, supports CUDA up to 13.0",
        ] {
            assert!(table.lines().any(|found| found == line), "{line}\nis not in\n{table}");
        }
    }

    #[test]
    fn a_gpu_that_tells_little_prints_no_gaps() {
        let mut machine = server();
        machine.nvidia.gpus = vec![NvidiaGpu { name: "NVIDIA T4".into(), capability: (7, 5), ..NvidiaGpu::default() }];
        let table = machine.to_string();
        assert!(!table.contains("None") && !table.contains(", ,") && !table.contains("at most"), "{table}");
    }

    #[test]
    fn without_a_gpu_the_table_says_why_and_what_then() {
        let mut machine = server();
        machine.nvidia = Nvidia { why_none: Some("NVIDIA: no driver is installed".into()), ..Nvidia::default() };
        let table = machine.to_string();
        assert!(
            table.contains("GPU         NVIDIA: no driver is installed\n            every lesson runs without"),
            "{table}"
        );
    }

    #[test]
    fn tools_are_found_or_come_with_their_command() {
        let mut machine = server();
        let missing =
            Tool { name: "cuDNN".into(), used_for: "speed".into(), add: Some("make it".into()), ..Tool::default() };
        let found = Tool { name: "NVRTC".into(), version: Some("13.0".into()), ..Tool::default() };
        machine.tools = vec![found, missing];
        let table = machine.to_string();
        assert!(table.contains("NVRTC  found: 13.0\ncuDNN  missing (for speed)\n    to add it: make it\n"), "{table}");
    }

    #[test]
    fn legends_name_the_gpu_or_else_the_cpu() {
        let mut machine = server();
        assert_eq!(machine.short_name(), "NVIDIA H200");
        machine.nvidia.gpus.clear();
        assert_eq!(machine.short_name(), "Intel Xeon Platinum 8481C, 2 cores");
        machine.apple = vec![AppleGpu { name: "Apple M2".into(), cores: Some(10), metal: Some("Metal 3".into()) }];
        assert_eq!(machine.short_name(), "Apple M2 GPU");
        assert!(machine.to_string().contains("Apple GPU   Apple M2, 10 cores, Metal 3\n"));
    }

    #[test]
    fn a_compiler_newer_than_the_driver_is_warned_of() {
        let mut nvidia = server().nvidia;
        let nvrtc = |version: &str| [Tool { name: "NVRTC".into(), version: Some(version.into()), ..Tool::default() }];
        assert_eq!(warnings(&nvidia, &nvrtc("13.0")), Vec::<String>::new());
        nvidia.cuda = Some("12.8".into());
        let warned = warnings(&nvidia, &nvrtc("13.0"));
        assert!(warned[0].contains("CUDA 12.8") && warned[0].contains("\nnext: "), "{warned:?}");
        assert_eq!(warnings(&nvidia, &nvrtc("12.4")), Vec::<String>::new());
        // Numbers and not text: 12.10 is newer than 12.8.
        assert_eq!(warnings(&nvidia, &nvrtc("12.10")).len(), 1);
    }

    #[test]
    fn this_machine_is_described_whatever_it_is() {
        let machine = detect();
        assert!(!machine.system.is_empty() && machine.cpu.usable_cores > 0);
        assert_eq!(machine.nvidia.gpus.is_empty(), machine.nvidia.why_none.is_some());
        assert!(machine.to_string().starts_with("System "));
    }
}
