//! The most memory that a process of its own takes for a launch, against the limits.

use std::process::Command;

use warpsim::Device;

use super::cases::{Case, Mode};

const MIB: f64 = (1 << 20) as f64;
/// 3 × 256 MiB.
const CASE: Case = Case::VectorAdd(1 << 26);
/// The argument that makes this program the process that is looked at.
pub const CHILD: &str = "--memory-of";

/// Runs the case once, and prints the peak of this process in bytes.
pub fn child(mode: &str) {
    let mode = Mode::ALL.into_iter().find(|m| m.name() == mode).expect("a mode");
    let mut device = Device::new();
    device.set_cores(2);
    mode.set(&mut device);
    let ready = CASE.ready(&mut device, super::FOLDER);
    device.launch(&ready.module, ready.kernel, ready.launch, &ready.args).expect("it runs");
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|l| l.strip_prefix("VmHWM:"));
    let kib: u64 = line.and_then(|l| l.trim().trim_end_matches(" kB").parse().ok()).unwrap_or(0);
    println!("{}", kib << 10);
}

/// The table of peaks, where the system tells them.
pub fn table() {
    let buffers = CASE.bytes() as f64 / MIB;
    println!(
        "\nPeak memory of a process (VmHWM) that runs {}, 2 cores; its buffers have {buffers:.0} MiB.",
        CASE.name()
    );
    println!("| mode | peak, MiB | limit, MiB | |\n| --- | ---: | ---: | --- |");
    let program = std::env::current_exe().expect("this program");
    for mode in Mode::ALL {
        let run = Command::new(&program).args([CHILD, mode.name()]).output().expect("it starts");
        let bytes: f64 = String::from_utf8_lossy(&run.stdout).trim().parse().unwrap_or(0.0);
        if !run.status.success() || bytes == 0.0 {
            println!("| {} | not known on this system | | |", mode.name());
            continue;
        }
        let (limit, why) = match mode {
            Mode::Checks => (4.0 * buffers + 64.0, "shadow of 3 × the buffers, 64 MiB"),
            _ => (2.0 * buffers + 64.0, "2 × the buffers, 64 MiB"),
        };
        println!("| {} | {:.0} | {limit:.0} | {why} |", mode.name(), bytes / MIB);
    }
}
