use super::*;
use gpulab::cpu::Cache;
use serde_json::Value;

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
            caches: vec![Cache { name: "L1d".into(), bytes: 48 << 10, count: 8 }],
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
fn json_holds_the_same_facts() {
    let json: Value = serde_json::from_str(&server().to_json()).unwrap();
    assert_eq!(json["nvidia"]["gpus"][0]["compute_capability"], "9.0");
    assert_eq!(json["nvidia"]["gpus"][0]["memory_free_bytes"], 143_154u64 << 20);
    assert_eq!(json["cpu"]["usable_cores"], 2);
    assert!(json["nvidia"]["why_none"].is_null() && json["apple"].as_array().unwrap().is_empty());
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
    serde_json::from_str::<Value>(&machine.to_json()).unwrap();
    assert!(machine.to_string().starts_with("System "));
}
