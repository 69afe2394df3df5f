//! NVIDIA's profilers as programs: where they are, and running them to the end.

use gpulab::command::{Output, run};
use gpulab::error::{Error, Result};
use gpulab::places::program as find;
use std::path::PathBuf;
use std::time::Duration;

/// A profiler, and where it is on this machine.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Tooling {
    /// `ncu`, `nsys`, `compute-sanitizer`.
    pub name: &'static str,
    /// What it tells.
    pub tells: &'static str,
    /// Where it was found.
    pub place: Option<PathBuf>,
}

/// The profilers that lessons use, found or not.
pub fn tools() -> Vec<Tooling> {
    let all = [
        ("ncu", "Nsight Compute: the counters of one kernel"),
        ("nsys", "Nsight Systems: where a whole program's time goes"),
        ("compute-sanitizer", "mistakes in memory and between threads"),
    ];
    all.map(|(name, tells)| Tooling { name, tells, place: find(name) }).to_vec()
}

/// As it is typed: what is no plain word stands in quotes.
pub(super) fn typed(command: &[String]) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "-_./=,:".contains(c);
    let word = |word: &String| {
        if !word.is_empty() && word.chars().all(plain) { word.clone() } else { format!("'{word}'") }
    };
    command.iter().map(word).collect::<Vec<_>>().join(" ")
}

/// Runs a command line whose first word is one of the programs above; both outputs, whatever its status.
pub(super) fn started(command: &[String], limit: Duration) -> Result<Output> {
    let (name, rest) = (&command[0], &command[1..]);
    let program = find(name).ok_or_else(|| Error::Unsupported {
        what: format!("`{name}` is not on this machine (looked on PATH, in CUDA's toolkit and in /opt/nvidia)"),
        fix: format!("install {}, or look at the recorded run", package(name)),
    })?;
    let arguments: Vec<&str> = rest.iter().map(String::as_str).collect();
    run(&program.to_string_lossy(), &arguments, limit)
        .map_err(|what| Error::unsupported(what, format!("run it in a terminal: {}", typed(command))))
}

fn package(name: &str) -> &'static str {
    match name {
        "ncu" => "Nsight Compute (part of the CUDA toolkit: https://developer.nvidia.com/nsight-compute)",
        _ => "the CUDA toolkit (https://developer.nvidia.com/cuda-downloads)",
    }
}

/// What a profiler says when it may not look, in plain words; `None` when it says something else.
pub(super) fn refusal(output: &Output) -> Option<Error> {
    let said = format!("{}\n{}", output.out, output.err);
    let line = |word: &str| {
        said.lines().find(|line| line.contains(word)).map(|line| line.trim_matches(['=', ' ']).to_string())
    };
    let (what, fix) = if let Some(line) = line("ERR_NVGPUCTRPERM") {
        (
            format!("the GPU's counters may not be read here: {line}"),
            "an administrator can allow it: https://developer.nvidia.com/ERR_NVGPUCTRPERM; on Colab and on most shared \
             machines nobody does: then ask warpsim's counters the same questions",
        )
    } else if let Some(line) =
        ["LibraryNotLoaded", "Device not supported", "profiler is already", "No kernels were profiled"]
            .into_iter()
            .find_map(line)
    {
        (format!("the profiler could not look: {line}"), "end other profilers on this GPU, or look at the recorded run")
    } else {
        return None;
    };
    Some(Error::unsupported(what, fix.to_string()))
}

/// The error of a program that ended without what it was asked for.
pub(super) fn nothing(command: &[String], output: &Output) -> Error {
    if let Some(refusal) = refusal(output) {
        return refusal;
    }
    let said = format!("{}\n{}", output.out, output.err);
    let last: Vec<&str> = said.lines().filter(|line| !line.trim().is_empty()).collect();
    let shown = last[last.len().saturating_sub(8)..].join("\n  ");
    Error::unsupported(
        format!("`{}` gave nothing to read ({}):\n  {shown}", command[0], output.status),
        format!("run it in a terminal: {}", typed(command)),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn said(out: &str) -> Output {
        Output { good: false, status: "exit status: 1".to_string(), out: out.to_string(), err: String::new() }
    }

    #[test]
    fn refusals_are_told_apart_from_other_ends() {
        let denied = "==PROF== Connected\n==ERROR== ERR_NVGPUCTRPERM - The user does not have permission\n";
        let text = nothing(&["ncu".to_string()], &said(denied)).to_string();
        assert!(text.contains("developer.nvidia.com/ERR_NVGPUCTRPERM") && text.contains("warpsim"), "{text}");
        let text = nothing(&["ncu".to_string()], &said("==WARNING== No kernels were profiled.\n")).to_string();
        assert!(text.contains("No kernels were profiled"), "{text}");
        let text = nothing(&["ncu".to_string(), "a b".to_string()], &said("boom\n")).to_string();
        assert!(text.contains("boom") && text.ends_with("in a terminal: ncu 'a b'"), "{text}");
    }

    #[test]
    fn a_program_that_is_missing_is_named_with_where_it_comes_from() {
        assert!(find("sh").is_some() && find("no-such-program").is_none());
        let text = started(&["no-such-program".to_string()], Duration::from_secs(1)).unwrap_err().to_string();
        assert!(text.contains("no-such-program") && text.contains("\nnext: install"), "{text}");
        assert_eq!(tools().len(), 3);
    }
}
