use super::*;

/// A folder that looks like `/` of some machine, removed at the end.
struct FakeRoot(PathBuf);

impl FakeRoot {
    fn new(name: &str) -> FakeRoot {
        let folder = std::env::temp_dir().join(format!("gpulab-cpu-{name}-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        FakeRoot(folder)
    }

    fn file(&self, path: &str, text: &str) -> &Self {
        let path = self.0.join(path);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, text).unwrap();
        self
    }

    /// One hardware thread: its core's threads, and caches as (level, type, size, shared with).
    fn cpu(&self, number: usize, core: &str, caches: &[(&str, &str, &str, &str)]) {
        let cpu = format!("sys/devices/system/cpu/cpu{number}");
        self.file(&format!("{cpu}/topology/core_cpus_list"), core);
        for (index, (level, kind, size, shared)) in caches.iter().enumerate() {
            let cache = format!("{cpu}/cache/index{index}");
            self.file(&format!("{cache}/level"), level).file(&format!("{cache}/type"), kind);
            self.file(&format!("{cache}/size"), size).file(&format!("{cache}/shared_cpu_list"), shared);
        }
    }
}

impl Drop for FakeRoot {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

#[test]
fn an_x86_server_with_two_threads_a_core() {
    let root = FakeRoot::new("x86");
    root.file("proc/cpuinfo", "processor\t: 0\nmodel\t\t: 143\nmodel name\t: Intel(R) Xeon(R) 8481C\nflags: x\n");
    root.file("proc/meminfo", "MemTotal:       16384000 kB\nMemFree:        1 kB\n");
    root.file("sys/fs/cgroup/memory.max", "8589934592\n");
    root.file("sys/devices/system/cpu/online", "0-3\n"); // not a CPU's folder
    for (number, core) in [(0, "0,2\n"), (1, "1,3\n"), (2, "0,2\n"), (3, "1,3\n")] {
        let caches = [
            ("1\n", "Data\n", "48K\n", core),
            ("1\n", "Instruction\n", "32K\n", core),
            ("2\n", "Unified\n", "2048K\n", core),
            ("3\n", "Unified\n", "105M\n", "0-3\n"),
        ];
        root.cpu(number, core, &caches);
    }
    let info = read_linux(&root.0);
    assert_eq!(info.model, "Intel(R) Xeon(R) 8481C");
    assert_eq!((info.physical_cores, info.logical_cores), (Some(2), Some(4)));
    let cache = |name: &str, kib: u64, count| CpuCache { name: name.into(), bytes: kib << 10, count };
    assert_eq!(info.caches, [cache("L1d", 48, 2), cache("L2", 2048, 2), cache("L3", 105 << 10, 1)]);
    assert_eq!((info.memory_bytes, info.memory_limit_bytes), (Some(16_384_000 << 10), Some(8 << 30)));
}

#[test]
fn arm_names_come_from_lscpu() {
    let cpuinfo = "processor\t: 0\nBogoMIPS\t: 2000.00\nCPU implementer\t: 0x41\nCPU part\t: 0xd4f\n";
    assert_eq!(cpuinfo_model(cpuinfo), None);
    let lscpu = "Architecture:           aarch64\nVendor ID:              ARM\n  Model name:           Neoverse-V2\n";
    assert_eq!(lscpu_model(lscpu).as_deref(), Some("Neoverse-V2"));
    assert_eq!(lscpu_model("Model name: -\n"), None);
}

#[test]
fn a_container_that_hides_everything_gives_an_empty_description() {
    let root = FakeRoot::new("bare");
    root.file("proc/cpuinfo", "model name : Some CPU\n").file("sys/fs/cgroup/memory.max", "max\n");
    let expected = CpuInfo { model: "Some CPU".into(), ..CpuInfo::default() };
    assert_eq!(read_linux(&root.0), expected);
}

#[test]
fn damaged_figures_are_left_out() {
    assert_eq!(meminfo_total("MemTotal: many kB\n"), None);
    assert_eq!(meminfo_total(""), None);
    assert_eq!(
        (kibibytes("48K"), kibibytes("x"), kibibytes(""), kibibytes("512")),
        (Some(49152), None, None, Some(512))
    );
    let root = FakeRoot::new("damaged");
    root.cpu(0, "0", &[("one", "Data", "48K", "0"), ("2", "Unified", "?", "0")]);
    assert_eq!(read_linux(&root.0).caches, []);
}

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

#[test]
fn an_apple_chip_shows_its_fast_cores_caches() {
    let text = "machdep.cpu.brand_string: Apple M2 Pro\nhw.physicalcpu: 10\nhw.logicalcpu: 10\nhw.memsize: 17179869184\n\
                hw.l1dcachesize: 65536\nhw.perflevel0.physicalcpu: 6\nhw.perflevel0.l1dcachesize: 131072\n\
                hw.perflevel0.l2cachesize: 16777216\nhw.perflevel0.cpusperl2: 6\nhw.l3cachesize: 0\n";
    let info = parse_sysctl(text);
    assert_eq!((info.model.as_str(), info.physical_cores), ("Apple M2 Pro", Some(10)));
    assert_eq!(info.memory_bytes, Some(16 << 30));
    let cache = |name: &str, bytes, count| CpuCache { name: name.into(), bytes, count };
    assert_eq!(info.caches, [cache("L1d", 131_072, 6), cache("L2", 16 << 20, 1)]);
}

#[test]
fn no_sysctl_gives_an_empty_description() {
    assert_eq!(parse_sysctl(""), CpuInfo::default());
}
