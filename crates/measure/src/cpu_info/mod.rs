//! What this CPU is.

mod apple;
mod linux;

/// One level of the CPU's caches.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Cache {
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
    /// The all-core functions of this room use so many.
    pub usable_cores: usize,
    /// From the core outwards; instruction caches are left out.
    pub caches: Vec<Cache>,
    /// Bytes of memory, if the machine tells.
    pub memory_bytes: Option<u64>,
    /// The container's limit on memory, where it is below the machine's.
    pub memory_limit_bytes: Option<u64>,
    /// The widest vectors that the functions of this room use here: `AVX-512`, `AVX2`, `NEON` or `128-bit`.
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
    let mut info =
        if cfg!(target_os = "macos") { apple::ask() } else { linux::read(std::path::Path::new("/")) };
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_lose_what_says_nothing() {
        for (long, short) in [
            ("Intel(R) Xeon(R) Platinum 8481C CPU @ 2.70GHz", "Intel Xeon Platinum 8481C"),
            ("AMD EPYC 9654 96-Core Processor", "AMD EPYC 9654"),
            ("AMD Ryzen 7 7840U w/ Radeon 780M Graphics", "AMD Ryzen 7 7840U"),
            ("11th Gen Intel(R) Core(TM) i7-1165G7 @ 2.80GHz", "11th Gen Intel Core i7-1165G7"),
            ("Apple M2 Pro", "Apple M2 Pro"),
            ("  ", ""),
        ] {
            assert_eq!(clean_name(long), short);
        }
    }

    #[test]
    fn this_machine_has_a_name_and_a_core() {
        let info = info();
        assert!(!info.model.is_empty() && info.usable_cores >= 1, "{info:?}");
        assert!(info.logical_cores.is_none_or(|n| n >= info.physical_cores.unwrap_or(1)), "{info:?}");
    }

    #[test]
    fn legends_count_usable_cores() {
        let mut info = CpuInfo { model: "Apple M2".into(), usable_cores: 8, ..CpuInfo::default() };
        assert_eq!(info.short_name(), "Apple M2, 8 cores");
        info.usable_cores = 1;
        assert_eq!(info.short_name(), "Apple M2, 1 core");
    }
}
