//! Nsight Systems: where a whole program's time goes, read from the tables that `nsys stats` exports.

use super::programs::{nothing, started, typed};
use gpulab::error::{Error, Result};
use gpulab::measurement::figures;
use gpulab_kernels::topics::Size;
use std::fmt;
use std::time::Duration;

/// One line of a summary: a kernel, or a kind of copy, with its part of the time.
#[derive(Debug, Clone, PartialEq)]
pub struct SummaryLine {
    /// The kernel's name, or the kind of copy in Nsight Systems' words.
    pub name: String,
    /// Part of the time of all lines of its table, in percent.
    pub percent: f64,
    /// Together, in µs.
    pub total_us: f64,
    /// How often.
    pub instances: u64,
    /// The median of one, in µs.
    pub median_us: f64,
}

impl fmt::Display for SummaryLine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (total, median) = (figures(self.total_us), figures(self.median_us));
        write!(f, "{:>5.1} %  {total:>9} µs in {:>4} of {median:>8} µs  {}", self.percent, self.instances, self.name)
    }
}

/// The two commands that [`nsys`] runs, as they are typed.
pub fn nsys_command(size: impl Into<Size>, rungs: &[&str]) -> String {
    format!("{}\n{}", typed(&profile("trace", size.into(), rungs)), typed(&stats("trace")))
}

fn profile(to: &str, size: Size, rungs: &[&str]) -> Vec<String> {
    let size = size.name();
    let fixed = "nsys profile --trace=cuda,nvtx --sample=none --cpuctxsw=none --force-overwrite=true -o".split(' ');
    let program = ["gpulab", "demo", "ladder", &size];
    fixed.chain([to]).chain(program).chain(rungs.iter().copied()).map(str::to_string).collect()
}

fn stats(from: &str) -> Vec<String> {
    let report = format!("{from}.nsys-rep");
    ["nsys", "stats", "--report", "cuda_gpu_kern_sum", "--report", "cuda_gpu_mem_time_sum", "--format", "csv", &report]
        .map(str::to_string)
        .to_vec()
}

/// Runs the course's kernels at that size under Nsight Systems, in a process of its own, and gives its two summaries.
///
/// # Errors
/// [`Error::Unsupported`] where the program is missing, may not look, or ends without tables.
pub fn nsys(size: impl Into<Size>, rungs: &[&str]) -> Result<Vec<SummaryLine>> {
    let folder = std::env::temp_dir().join(format!("gpulab-nsys-{}", std::process::id()));
    let fix = "make room in the folder for temporary files";
    std::fs::create_dir_all(&folder).map_err(Error::io(&folder, "make the folder", fix))?;
    let to = folder.join("trace").to_string_lossy().into_owned();
    let done = started(&profile(&to, size.into(), rungs), Duration::from_secs(180));
    let read = done.and_then(|done| {
        let asked = stats(&to);
        let output = started(&asked, Duration::from_secs(120))?;
        let found = parse_nsys(&output.out);
        // The first program's words say why there is no report to read.
        if found.is_empty() { Err(nothing(&asked, if done.good { &output } else { &done })) } else { Ok(found) }
    });
    let _ = std::fs::remove_dir_all(&folder);
    read
}

/// Reads what `nsys stats --format csv` prints: tables that begin with `Time (%),Total Time (ns)`, the name in the last
/// column (kernels: `Name`, copies: `Operation`).
pub fn parse_nsys(text: &str) -> Vec<SummaryLine> {
    let mut found = Vec::new();
    let mut header: Vec<String> = Vec::new();
    for line in text.lines() {
        let mut reader = csv::ReaderBuilder::new().has_headers(false).flexible(true).from_reader(line.as_bytes());
        let Some(Ok(cells)) = reader.records().next() else {
            header.clear();
            continue;
        };
        if cells.get(0) == Some("Time (%)") {
            header = cells.iter().map(str::to_string).collect();
        } else if header.len() == cells.len() {
            let number = |name: &str| {
                let at = header.iter().position(|column| column.starts_with(name))?;
                cells.get(at)?.replace(',', "").parse::<f64>().ok()
            };
            let counted = number("Instances").or_else(|| number("Count"));
            if let (Some(percent), Some(total), Some(count)) = (number("Time (%)"), number("Total Time"), counted) {
                let median_us = number("Med").unwrap_or(f64::NAN) / 1e3;
                let name = cells.iter().next_back().unwrap_or_default().to_string();
                found.push(SummaryLine { name, percent, total_us: total / 1e3, instances: count as u64, median_us });
            }
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    // Made by hand after the columns in NVIDIA's user guide ("Report scripts"): none of the machines that this was
    // developed on has a Nsight Systems that makes reports.
    const BY_HAND: &str = "Processing [trace.sqlite] with [cuda_gpu_kern_sum.py]... \n\n\
        Time (%),Total Time (ns),Instances,Avg (ns),Med (ns),Min (ns),Max (ns),StdDev (ns),Name\n\
        75.0,3000,3,1000.0,900.0,800,1300,100.5,\"reduce(const float *, float *, int)\"\n\
        25.0,1000,1,1000.0,1000.0,1000,1000,0.0,vector_add\n\n\
        Processing [trace.sqlite] with [cuda_gpu_mem_time_sum.py]... \n\n\
        Time (%),Total Time (ns),Count,Avg (ns),Med (ns),Min (ns),Max (ns),StdDev (ns),Operation\n\
        100.0,5000,2,2500.0,2500.0,2000,3000,707.1,[CUDA memcpy Host-to-Device]\n";

    #[test]
    fn both_tables_are_read() {
        let found = parse_nsys(BY_HAND);
        let names: Vec<&str> = found.iter().map(|one| one.name.as_str()).collect();
        assert_eq!(names, ["reduce(const float *, float *, int)", "vector_add", "[CUDA memcpy Host-to-Device]"]);
        assert_eq!((found[0].percent, found[0].total_us, found[0].instances, found[0].median_us), (75.0, 3.0, 3, 0.9));
        assert_eq!((found[2].instances, found[2].total_us), (2, 5.0));
        assert_eq!(parse_nsys("SKIPPED: trace.sqlite does not contain CUDA kernel data.\n"), []);
    }

    #[test]
    fn commands_are_shown_as_they_are_typed() {
        let text = nsys_command(1024, &["reduction/02_tree"]);
        assert!(
            text.starts_with("nsys profile --trace=cuda,nvtx")
                && text.contains("gpulab demo ladder 1024 reduction/02_tree")
        );
        assert!(text.ends_with("--format csv trace.nsys-rep"), "{text}");
    }
}
