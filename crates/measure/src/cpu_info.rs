//! What this CPU is: as Linux describes it in `/proc` and `/sys`, and macOS through `sysctl`.

use crate::command::output_of;
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::time::Duration;

/// One level of the CPU's caches.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CpuCache {
    /// `L1d`, `L2`, `L3` …
    pub name: String,
    /// Bytes of one such cache.
    pub bytes: u64,
    /// How many of them this machine shows.
    pub count: usize,
}

/// The CPU, its cores, its caches and the machine's memory: plain data.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct CpuInfo {
    /// The maker's name for it, without marks and clock: `Intel Xeon Platinum 8481C`.
    pub model: String,
    /// `x86_64` or `aarch64`.
    pub architecture: String,
    /// Cores of the machine, if it tells.
    pub physical_cores: Option<usize>,
    /// Hardware threads of the machine, if it tells; twice the cores with SMT (Hyper-Threading).
    pub logical_cores: Option<usize>,
    /// Hardware threads that this process may use: affinity and container limits count.
    /// The all-core functions of `gpulab-cpu` use so many.
    pub usable_cores: usize,
    /// From the core outwards; instruction caches are left out.
    pub caches: Vec<CpuCache>,
    /// Bytes of memory, if the machine tells.
    pub memory_bytes: Option<u64>,
    /// The container's limit on memory, where it is below the machine's.
    pub memory_limit_bytes: Option<u64>,
    /// The widest vectors that the functions of `gpulab-cpu` use here: `AVX-512`, `AVX2`, `NEON` or `128-bit`.
    pub vectors: String,
}

impl CpuInfo {
    /// `Intel Xeon Platinum 8481C, 2 cores`: the name in legends; the cores are those that this process may use.
    pub fn short_name(&self) -> String {
        let plural = if self.usable_cores == 1 { "" } else { "s" };
        format!("{}, {} core{plural}", self.model, self.usable_cores)
    }
}

/// Looks at this machine. Reads a few system files on Linux and asks `sysctl` on macOS: a few milliseconds. What
/// cannot be found is left out, never guessed.
pub fn info() -> CpuInfo {
    let mut info = if cfg!(target_os = "macos") { ask_sysctl() } else { read_linux(std::path::Path::new("/")) };
    info.architecture = std::env::consts::ARCH.to_string();
    info.model = clean_name(&info.model);
    if info.model.is_empty() {
        info.model = format!("{} CPU", info.architecture);
    }
    // Knows affinity and both kinds of Linux control groups.
    info.usable_cores = std::thread::available_parallelism().map_or(1, usize::from);
    info.vectors = vectors().to_string();
    info
}

fn vectors() -> &'static str {
    #[cfg(target_arch = "x86_64")]
    {
        if std::arch::is_x86_feature_detected!("avx512f") {
            return "AVX-512";
        }
        if std::arch::is_x86_feature_detected!("avx2") && std::arch::is_x86_feature_detected!("fma") {
            return "AVX2";
        }
    }
    if cfg!(target_arch = "aarch64") { "NEON" } else { "128-bit" }
}

/// `Intel(R) Xeon(R) Platinum 8481C CPU @ 2.70GHz` → `Intel Xeon Platinum 8481C`.
pub fn clean_name(name: &str) -> String {
    let mut name = name.replace("(R)", " ").replace("(r)", " ").replace("(TM)", " ").replace("(tm)", " ");
    for end in ["@", " with ", " w/ "] {
        name.truncate(name.find(end).unwrap_or(name.len()));
    }
    let says_nothing = |word: &&str| *word != "CPU" && *word != "Processor" && !word.ends_with("-Core");
    name.split_whitespace().filter(says_nothing).collect::<Vec<_>>().join(" ")
}

/// Reads the files below `root`, which is `/` but in tests. `usable_cores` and `vectors` are left for the caller.
fn read_linux(root: &Path) -> CpuInfo {
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

fn caches(cpus: &[PathBuf]) -> Vec<CpuCache> {
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
    let cache = |((level, kind, bytes), shared): ((u32, String, u64), BTreeSet<String>)| CpuCache {
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

/// Asks `sysctl`; empty where there is none.
fn ask_sysctl() -> CpuInfo {
    parse_sysctl(&output_of("sysctl", &["machdep.cpu.brand_string", "hw"], Duration::from_secs(2)).unwrap_or_default())
}

fn parse_sysctl(text: &str) -> CpuInfo {
    let value = |key: &str| value_of(text, key);
    let number = |key: &str| value(key).and_then(|text| text.parse::<u64>().ok()).filter(|&n| n > 0);
    // perflevel0 are the fast cores; Intel Macs have only the plain keys.
    let first = |keys: [&str; 2]| keys.into_iter().find_map(number);
    let cores = number("hw.perflevel0.physicalcpu").or(number("hw.physicalcpu")).unwrap_or(1);
    let shared_by = number("hw.perflevel0.cpusperl2").unwrap_or(1);
    let levels = [
        ("L1d", first(["hw.perflevel0.l1dcachesize", "hw.l1dcachesize"]), cores),
        ("L2", first(["hw.perflevel0.l2cachesize", "hw.l2cachesize"]), cores.div_ceil(shared_by)),
        ("L3", number("hw.l3cachesize"), 1),
    ];
    let cache = |(name, bytes, count): (&str, Option<u64>, u64)| {
        Some(CpuCache { name: name.to_string(), bytes: bytes?, count: count as usize })
    };
    CpuInfo {
        model: value("machdep.cpu.brand_string").unwrap_or_default().to_string(),
        physical_cores: number("hw.physicalcpu").map(|n| n as usize),
        logical_cores: number("hw.logicalcpu").map(|n| n as usize),
        caches: levels.into_iter().filter_map(cache).collect(),
        memory_bytes: number("hw.memsize"),
        ..CpuInfo::default()
    }
}

#[cfg(test)]
mod tests;
