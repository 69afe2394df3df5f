//! `gpulab monitor` from outside, on a trace that is made up: what it shows, records and exports, and what it refuses.

use gpulab_monitor::{SampleTrace, TraceWriter, planted};
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

/// A folder of this test, with the made-up trace in it.
fn folder(name: &str) -> (PathBuf, PathBuf) {
    let folder = std::env::temp_dir().join(format!("gpulab-monitor-cli-{name}-{}", std::process::id()));
    let _ = std::fs::remove_dir_all(&folder);
    let (trace, made) = (folder.join("trace.jsonl"), planted::course());
    let mut recorder = TraceWriter::create(&trace, &made.source()).unwrap();
    made.samples.iter().for_each(|sample| recorder.write(sample).unwrap());
    (folder, trace)
}

fn monitor(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_gpulab")).arg("monitor").args(arguments).output().unwrap()
}

fn refused(arguments: &[&str], said: &str) {
    let done = monitor(arguments);
    let err = String::from_utf8_lossy(&done.stderr);
    assert_eq!(done.status.code(), Some(2), "{arguments:?}: {err}");
    assert!(err.contains(said) && err.lines().last().unwrap_or_default().starts_with("next: "), "{arguments:?}: {err}");
}

fn path(path: &Path) -> &str {
    path.to_str().unwrap()
}

#[test]
fn a_replay_shows_alerts_records_and_says_what_it_cost() {
    let (folder, trace) = folder("replay");
    let copy = folder.join("copy.jsonl");
    let done = monitor(&["--replay", path(&trace), "--speed", "1000", "--record", path(&copy), "--hot", "40"]);
    let out = String::from_utf8_lossy(&done.stdout);
    assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
    for said in [
        "no GPU was measured",
        "matmul",
        "loader-stalled is firing",
        "loader-stalled is resolved",
        "loss-not-finite is firing",
        "of a core",
    ] {
        assert!(out.contains(said), "{said}: {out}");
    }
    let (first, again) = (SampleTrace::read(&trace).unwrap(), SampleTrace::read(&copy).unwrap());
    assert_eq!(first.samples.len(), again.samples.len());
    assert!(again.origin.contains("generated"), "{}", again.origin);
    refused(&["--replay", path(&trace), "--speed", "1000", "--record", path(&copy)], "cannot begin the trace");
    std::fs::remove_dir_all(folder).unwrap();
}

#[test]
fn its_page_can_be_read_while_it_replays() {
    let (folder, trace) = folder("page");
    let mut run = Command::new(env!("CARGO_BIN_EXE_gpulab"));
    let run = run.args(["monitor", "--replay", path(&trace), "--prometheus", "127.0.0.1:0"]).stdout(Stdio::piped());
    let mut run = run.spawn().unwrap();
    let mut lines = BufReader::new(run.stdout.take().unwrap()).lines().map(Result::unwrap);
    let address =
        lines.find_map(|line| Some(line.strip_prefix("http://")?.strip_suffix("/metrics")?.to_string())).unwrap();
    // The first sample is there with the next line.
    lines.next();
    let mut stream = TcpStream::connect(&address).unwrap();
    write!(stream, "GET /metrics HTTP/1.1\r\nHost: here\r\nConnection: close\r\n\r\n").unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    assert!(answer.contains("gpulab_gpu_utilization_ratio{gpu=\"0\",name=\"a planted GPU\"} 0\n"), "{answer}");
    refused(&["--replay", path(&trace), "--prometheus", &address], "nothing can listen at");
    run.kill().unwrap();
    run.wait().unwrap();
    std::fs::remove_dir_all(folder).unwrap();
}

#[test]
fn bad_input_is_refused_with_the_next_step() {
    let (folder, trace) = folder("bad");
    let write = |name: &str, text: &str| {
        let file = folder.join(name);
        std::fs::write(&file, text).unwrap();
        file
    };
    let whole = std::fs::read_to_string(&trace).unwrap();
    let cut = write("cut.jsonl", &whole[..whole.len() - 40]);
    refused(&["--replay", path(&cut)], "is cut off in line");
    refused(&["--replay", path(&write("picture.png", "\u{fffd}PNG"))], "is no trace");
    refused(&["--replay", path(&folder.join("none.jsonl"))], "cannot read the trace");
    let rules = write("rules.json", r#"[{"alert": "warm", "above": {"celsius": 70}}]"#);
    refused(&["--replay", path(&trace), "--alerts", path(&rules)], "no field `celsius`");
    refused(&["--replay", path(&trace), "--prometheus", "here"], "no address");
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap().to_string();
    refused(&["--replay", path(&trace), "--prometheus", &address], "nothing can listen at");
    std::fs::remove_dir_all(folder).unwrap();
}

#[test]
fn without_nvml_it_says_what_to_do_and_with_it_it_samples() {
    let done = monitor(&["--seconds", "0.1", "--interval", "0.05"]);
    let (out, err) = (String::from_utf8_lossy(&done.stdout), String::from_utf8_lossy(&done.stderr));
    match done.status.code() {
        Some(0) => assert!(out.contains("GPU 0"), "{out}"),
        code => assert!(code == Some(2) && err.contains("\nnext: ") && !err.contains("panicked"), "{err}"),
    }
}

/// NVML, nvidia-smi and CUDA each have an order of their own: by the PCI bus id all three must speak of one GPU. Of two GPUs of
/// one kind name and memory are the same, and the UUID is not.
#[test]
#[ignore = "needs an NVIDIA GPU"]
#[cfg(not(target_os = "macos"))]
fn nvml_and_nvidia_smi_find_cudas_gpu_by_its_pci_bus_id() {
    use gpulab::prelude::Gpu;
    use gpulab_monitor::nvml_wrapper::{Nvml, error::NvmlError};
    let nvml = Nvml::init().expect("needs an NVIDIA GPU");
    assert!(Gpu::count() > 0, "needs an NVIDIA GPU");
    for gpu in (0..Gpu::count()).map(|index| Gpu::open_index(index).unwrap()) {
        let (id, context) = (gpu.pci_bus_id().unwrap(), gpu.cuda_context().unwrap());
        let theirs = nvml.device_by_pci_bus_id(id.as_str()).unwrap_or_else(|error| panic!("{gpu} at {id}: {error}"));
        assert_eq!(theirs.name().unwrap(), gpu.name(), "{id}");
        let cudas = context.total_mem().unwrap() as f64;
        match theirs.memory_info().map(|memory| memory.total as f64) {
            // A GPU that shares the CPU's memory has none of its own to tell of.
            Err(NvmlError::NotSupported) => {}
            // NVML counts what the driver keeps for itself as well.
            all => assert!((0.95..=1.0).contains(&(cudas / all.unwrap())), "{id}: {cudas} bytes by CUDA"),
        }
        let bytes = context.uuid().unwrap().bytes;
        let uuid: String = bytes.iter().map(|byte| format!("{:02x}", *byte as u8)).collect();
        assert_eq!(theirs.uuid().unwrap().replace('-', ""), format!("GPU{uuid}"), "{id}");
        let smi = ["--query-gpu=uuid", "--format=csv,noheader"];
        let smi = Command::new("nvidia-smi").arg(format!("--id={id}")).args(smi).output().unwrap();
        assert_eq!(String::from_utf8_lossy(&smi.stdout).trim(), theirs.uuid().unwrap(), "{id}");
    }
}
