//! compute-sanitizer: the hardware's own witness of what a kernel does wrong.

use super::programs::{nothing, started, typed};
use gpulab::error::{Error, Result};
use std::fmt;
use std::path::PathBuf;
use std::time::Duration;

/// One thing that compute-sanitizer reports, however many threads did it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Reported {
    /// Its own words, such as `Invalid __global__ write of size 4 bytes`, without addresses.
    pub kind: String,
    /// The kernel.
    pub kernel: String,
    /// The source lines that it names, in its order.
    pub lines: Vec<u32>,
    /// The first block that it names.
    pub block: Option<[u32; 3]>,
    /// The first thread that it names.
    pub thread: Option<[u32; 3]>,
    /// How often it says so.
    pub times: u64,
}

impl fmt::Display for Reported {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let lines: Vec<String> = self.lines.iter().map(u32::to_string).collect();
        write!(f, "{}: `{}`, line {}", self.kind, self.kernel, lines.join(" and "))?;
        if let (Some([x, y, z]), Some([i, j, k])) = (self.block, self.thread) {
            write!(f, ", first in block ({x}, {y}, {z}), thread ({i}, {j}, {k})")?;
        }
        write!(f, ", {} time{}", self.times, if self.times == 1 { "" } else { "s" })
    }
}

/// The command that [`sanitize`] runs, as it is typed; the kernel's source lies in `kernel.cu`.
pub fn sanitize_command(tool: &str, kernel: &str, n: usize) -> String {
    typed(&command(tool, "kernel.cu", kernel, n))
}

fn command(tool: &str, file: &str, kernel: &str, n: usize) -> Vec<String> {
    let n = n.to_string();
    ["compute-sanitizer", "--tool", tool, "--print-limit", "1000", "gpulab", "demo", "launch", file, kernel, &n]
        .map(str::to_string)
        .to_vec()
}

/// Launches a kernel `NAME(const float *x, float *y, int n)` with blocks of 256 threads, a thread an element, in a process
/// of its own under compute-sanitizer. `tool` is `memcheck`, `racecheck`, `initcheck` or `synccheck`.
///
/// # Errors
/// [`Error::Unsupported`] where the program is missing, may not look, or ends without a summary.
pub fn sanitize(source: &str, kernel: &str, n: usize, tool: &str) -> Result<Vec<Reported>> {
    let folder = std::env::temp_dir().join(format!("gpulab-sanitize-{}", std::process::id()));
    let file: PathBuf = folder.join("kernel.cu");
    let written = std::fs::create_dir_all(&folder).and_then(|()| std::fs::write(&file, source));
    let during = "write the kernel for compute-sanitizer to";
    written.map_err(Error::io(&file, during, "make room in the folder for temporary files"))?;
    let command = command(tool, &file.to_string_lossy(), kernel, n);
    let output = started(&command, Duration::from_secs(120));
    let _ = std::fs::remove_dir_all(&folder);
    let output = output?;
    // Without a launch, nothing said is no "all is well".
    match output.out.contains("SUMMARY") && output.out.contains("gpulab: launched") {
        true => Ok(parse_sanitizer(&output.out)),
        false => Err(nothing(&command, &output)),
    }
}

/// What begins a report.
const STARTS: [&str; 6] =
    ["Invalid ", "Uninitialized ", "Error: Race", "Warning: Race", "Error: Potential", "Barrier error"];

/// Reads compute-sanitizer's output; reports that differ in thread and address alone are one.
pub fn parse_sanitizer(text: &str) -> Vec<Reported> {
    let mut found: Vec<Reported> = Vec::new();
    let mut open: Option<(Reported, bool)> = None;
    let mut close = |report: Option<(Reported, bool)>| {
        let Some((report, _)) = report else { return };
        let same = found
            .iter_mut()
            .find(|one| (&one.kind, &one.kernel, &one.lines) == (&report.kind, &report.kernel, &report.lines));
        match same {
            Some(one) => one.times += report.times,
            None => found.push(report),
        }
    };
    for line in text.lines().filter_map(|line| line.strip_prefix("=========")).map(str::trim) {
        let starts = STARTS.iter().any(|start| line.starts_with(start));
        if starts {
            let kind = line.split(" at ").next().unwrap_or(line).trim_end_matches('.').to_string();
            let none = Reported { kind, kernel: String::new(), lines: Vec::new(), block: None, thread: None, times: 1 };
            close(open.replace((none, true)));
        }
        let Some((report, reading)) = &mut open else { continue };
        // What follows tells where the host launched it from.
        *reading &= !line.is_empty() && !line.starts_with("Saved host backtrace") && !line.contains("SUMMARY");
        if *reading {
            read(line, report);
        }
    }
    close(open);
    found
}

/// Kernel, source line, block, thread and count of one line.
fn read(line: &str, report: &mut Reported) {
    // `at add(const float *, float *, int)+0x70 in kernel.cu:3`
    let place = line.split_once(" at ").map(|(_, rest)| rest).or_else(|| line.strip_prefix("at "));
    if let Some((kernel, rest)) = place.and_then(|place| place.split_once('+')) {
        let number =
            rest.rsplit_once(':').map(|(_, tail)| tail.chars().take_while(char::is_ascii_digit).collect::<String>());
        if let Some(number) = number.and_then(|number| number.parse().ok())
            && !report.lines.contains(&number)
        {
            report.lines.push(number);
        }
        if report.kernel.is_empty() {
            report.kernel = kernel.split('(').next().unwrap_or(kernel).to_string();
        }
    }
    if let Some((thread, block)) = line.strip_prefix("by thread ").and_then(|rest| rest.split_once(" in block ")) {
        report.thread = report.thread.or_else(|| three(thread));
        report.block = report.block.or_else(|| three(block));
    }
    // `[512 hazards]`
    let count = line.rsplit_once('[').and_then(|(_, rest)| rest.split_once(" hazard"));
    if let Some(count) = count.and_then(|(count, _)| count.parse().ok()) {
        report.times = count;
    }
}

/// `(3,0,0)`.
fn three(text: &str) -> Option<[u32; 3]> {
    let (inside, _) = text.strip_prefix('(')?.split_once(')')?;
    let sides: Vec<u32> = inside.split(',').filter_map(|side| side.trim().parse().ok()).collect();
    sides.try_into().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    // Beginnings and ends of what compute-sanitizer 2025.3.1 printed on an H200 for the scenarios `no guard` and
    // `copy without a barrier` of warpsim/tests/findings.
    const MEMCHECK: &str = "========= COMPUTE-SANITIZER
========= Invalid __global__ read of size 4 bytes
=========     at no_guard+0x90 in memory.cu:6
=========     by thread (4,0,0) in block (3,0,0)
=========     Access to 0x7fb370800190 is out of bounds
=========     and is 1 bytes after the nearest allocation at 0x7fb370800000 of size 400 bytes
=========     Saved host backtrace up to driver entry point at kernel launch time
=========         Host Frame: cuLaunchKernel [0x39fb94] in libcuda.so.1
=========         Host Frame:  [0x1e1f4] in record_findings
========= 
========= Invalid __global__ read of size 4 bytes
=========     at no_guard+0x90 in memory.cu:6
=========     by thread (5,0,0) in block (3,0,0)
========= 
no guard: launched, and ended by DriverError(CUDA_ERROR_LAUNCH_FAILED, \"unspecified launch failure\")
========= ERROR SUMMARY: 29 errors
";
    const RACECHECK: &str = "========= COMPUTE-SANITIZER
========= Error: Race reported between Write access at async_copy+0xe0 in shared.cu:91
=========     and Read access at async_copy+0x130 in shared.cu:94 [512 hazards]
========= 
copy without a barrier: launched, and came to its end
========= RACECHECK SUMMARY: 1 hazard displayed (1 error, 0 warnings)
";

    #[test]
    fn reports_are_read_with_kernel_line_block_and_thread() {
        let found = parse_sanitizer(MEMCHECK);
        let expected = Reported {
            kind: "Invalid __global__ read of size 4 bytes".to_string(),
            kernel: "no_guard".to_string(),
            lines: vec![6],
            block: Some([3, 0, 0]),
            thread: Some([4, 0, 0]),
            times: 2,
        };
        assert_eq!(found, [expected]);
        assert!(found[0].to_string().contains("line 6, first in block (3, 0, 0), thread (4, 0, 0), 2 times"));
        let race = &parse_sanitizer(RACECHECK)[0];
        assert_eq!((race.lines.as_slice(), race.times, race.kernel.as_str()), (&[91, 94][..], 512, "async_copy"));
        assert_eq!(race.kind, "Error: Race reported between Write access");
        assert_eq!(parse_sanitizer("========= COMPUTE-SANITIZER\n========= ERROR SUMMARY: 0 errors\n"), []);
    }

    #[test]
    fn without_the_program_the_error_says_where_it_comes_from() {
        if gpulab::places::program("compute-sanitizer").is_none() {
            let text = sanitize("", "k", 1, "memcheck").unwrap_err().to_string();
            assert!(text.contains("compute-sanitizer") && text.contains("\nnext: install"), "{text}");
        }
        assert!(sanitize_command("memcheck", "k", 100).contains("--tool memcheck"));
    }
}
