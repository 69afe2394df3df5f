//! The CPU as Linux describes it, in `/proc` and `/sys`.

use super::{Cache, CpuInfo};
use crate::command::output_of;
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Reads the files below `root`, which is `/` but in tests. `usable_cores` and `vectors` are left for the caller.
pub(super) fn read(root: &Path) -> CpuInfo {
    let text = |path: &str| std::fs::read_to_string(root.join(path)).unwrap_or_default();
    let cpus = cpu_folders(&root.join("sys/devices/system/cpu"));
    let memory_bytes = meminfo_total(&text("proc/meminfo"));
    // A process sees its own control group here, in version 2 and in version 1.
    let limits = ["sys/fs/cgroup/memory.max", "sys/fs/cgroup/memory/memory.limit_in_bytes"];
    let limit = limits.iter().filter_map(|path| text(path).trim().parse::<u64>().ok()).min();
    CpuInfo {
        model: cpuinfo_model(&text("proc/cpuinfo"))
            // ARM's kernel gives numbers only, and lscpu knows their names.
            .or_else(|| lscpu_model(&output_of("lscpu", &[], Duration::from_secs(2)).ok()?))
            .unwrap_or_default(),
        physical_cores: physical_cores(&cpus),
        logical_cores: (!cpus.is_empty()).then_some(cpus.len()),
        caches: caches(&cpus),
        memory_bytes,
        memory_limit_bytes: limit.filter(|&limit| memory_bytes.is_some_and(|all| limit < all)),
        ..CpuInfo::default()
    }
}

/// `cpu0`, `cpu1` … that are switched on: only those have a topology.
fn cpu_folders(folder: &Path) -> Vec<PathBuf> {
    let is_cpu = |path: &PathBuf| {
        let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
        name.strip_prefix("cpu").is_some_and(|number| number.parse::<usize>().is_ok()) && path.join("topology").is_dir()
    };
    let entries = std::fs::read_dir(folder).into_iter().flatten().flatten();
    entries.map(|entry| entry.path()).filter(is_cpu).collect()
}

fn line_of(path: &Path) -> Option<String> {
    Some(std::fs::read_to_string(path).ok()?.trim().to_string())
}

/// Threads of one core name the same siblings, so the distinct lists are the cores.
fn physical_cores(cpus: &[PathBuf]) -> Option<usize> {
    let siblings = |cpu: &PathBuf| {
        line_of(&cpu.join("topology/core_cpus_list")).or_else(|| line_of(&cpu.join("topology/thread_siblings_list")))
    };
    let cores: BTreeSet<String> = cpus.iter().filter_map(siblings).collect();
    (!cores.is_empty()).then_some(cores.len())
}

fn caches(cpus: &[PathBuf]) -> Vec<Cache> {
    // (level, kind, size) → the sets of threads that share one.
    let mut found: BTreeMap<(u32, String, u64), BTreeSet<String>> = BTreeMap::new();
    for cpu in cpus {
        for index in 0..8 {
            let of = |what: &str| line_of(&cpu.join(format!("cache/index{index}/{what}")));
            let (Some(level), Some(kind), Some(size)) = (of("level"), of("type"), of("size")) else { continue };
            let (Ok(level), Some(bytes)) = (level.parse(), kibibytes(&size)) else { continue };
            if kind == "Instruction" {
                continue;
            }
            let kind = if kind == "Data" { "d" } else { "" };
            // A kernel that hides who shares a cache shows one for each thread.
            let shared = of("shared_cpu_list").unwrap_or_else(|| cpu.display().to_string());
            found.entry((level, kind.to_string(), bytes)).or_default().insert(shared);
        }
    }
    let cache = |((level, kind, bytes), shared): ((u32, String, u64), BTreeSet<String>)| Cache {
        name: format!("L{level}{kind}"),
        bytes,
        count: shared.len(),
    };
    found.into_iter().map(cache).collect()
}

/// `48K`, `2048K`, `32M` → bytes.
fn kibibytes(size: &str) -> Option<u64> {
    let unit = match size.chars().last()? {
        'K' => 1 << 10,
        'M' => 1 << 20,
        _ => return size.parse().ok(),
    };
    Some(size[..size.len() - 1].parse::<u64>().ok()? * unit)
}

/// `key : value` lines, as in `/proc/cpuinfo`, `/proc/meminfo` and `lscpu`: the first value of `key`.
fn value_of<'a>(text: &'a str, key: &str) -> Option<&'a str> {
    let pairs = text.lines().filter_map(|line| line.split_once(':'));
    pairs.into_iter().find(|(found, _)| found.trim() == key).map(|(_, value)| value.trim())
}

fn cpuinfo_model(text: &str) -> Option<String> {
    value_of(text, "model name").filter(|name| !name.is_empty()).map(str::to_string)
}

fn lscpu_model(text: &str) -> Option<String> {
    value_of(text, "Model name").filter(|name| !name.is_empty() && *name != "-").map(str::to_string)
}

fn meminfo_total(text: &str) -> Option<u64> {
    let kib: u64 = value_of(text, "MemTotal")?.strip_suffix("kB")?.trim().parse().ok()?;
    Some(kib * 1024)
}

#[cfg(test)]
#[path = "linux_tests.rs"]
mod tests;
