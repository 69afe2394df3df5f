//! What this machine has: CPU, GPUs, drivers, libraries; and for what is missing, the command that adds it.
//!
//! Detection never fails and never panics: no GPU is a normal state. What cannot be found out is left out.

mod apple;
mod json;
mod nvidia;
mod show;
mod smi;
mod system;
mod tools;

pub use apple::AppleGpu;
pub use nvidia::{Nvidia, NvidiaGpu};
pub use tools::Tool;

use gpulab::cpu::{self, CpuInfo};

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
        let nvidia = scope.spawn(nvidia::detect);
        let apple = scope.spawn(apple::detect);
        // cudarc panics when a driver's library lacks a function; that must cost no more than this one part.
        let broken =
            |_| Nvidia { why_none: Some("NVIDIA: the driver's library is incomplete".into()), ..Nvidia::default() };
        (nvidia.join().unwrap_or_else(broken), apple.join().unwrap_or_default())
    });
    let tools = tools::detect(&nvidia);
    Machine { system: system::describe(), cpu: cpu::info(), warnings: warnings(&nvidia, &tools), nvidia, apple, tools }
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

#[cfg(test)]
#[path = "tests.rs"]
mod tests;
