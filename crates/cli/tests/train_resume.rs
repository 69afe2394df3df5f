//! `gpulab train`, killed in the middle of an epoch, goes on as if nothing had been; Ctrl-C keeps the run first.
#![cfg(all(unix, feature = "nn"))]

use gpulab_nn::cnn::Checkpoint;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

struct Folder(PathBuf);

impl Folder {
    fn new(name: &str) -> Folder {
        let folder = std::env::temp_dir().join(format!("gpulab-train-{name}-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        Folder(folder)
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        std::fs::remove_dir_all(&self.0).unwrap();
    }
}

/// Steps of two images, kept after every second.
fn train(folder: &Path, images: &str, more: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_gpulab"));
    command.args(["train", "--images", images, "--batch-size", "2", "--every", "2", "--out"]).arg(folder).args(more);
    command.stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

fn kept(folder: &Path) -> Checkpoint {
    Checkpoint::read(&folder.join("cnn-cpu.safetensors")).unwrap()
}

#[test]
fn a_killed_run_goes_on_bit_for_bit() {
    let (whole, killed) = (Folder::new("whole"), Folder::new("killed"));
    let done = train(&whole.0, "24", &[]).output().unwrap();
    assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
    let mut run = train(&killed.0, "24", &[]).spawn().unwrap();
    let start = Instant::now();
    while !killed.0.join("cnn-cpu.safetensors").exists() && start.elapsed() < Duration::from_secs(120) {
        std::thread::sleep(Duration::from_millis(2));
    }
    // SIGKILL: the process can do nothing about it.
    run.kill().unwrap();
    run.wait().unwrap();
    let before = kept(&killed.0).state;
    let resumed = train(&killed.0, "24", &["--resume"]).output().unwrap();
    let text = String::from_utf8_lossy(&resumed.stdout).into_owned();
    assert!(resumed.status.success(), "{}", String::from_utf8_lossy(&resumed.stderr));
    assert!(text.contains(&format!("going on after step {}", before.step)), "{text}");
    let (whole, killed) = (kept(&whole.0), kept(&killed.0));
    assert!(before.step < 12, "it was to be killed before its end");
    assert_eq!((killed.state.losses, killed.state.step), (whole.state.losses, 12));
    assert_eq!((killed.parameters, killed.m, killed.v), (whole.parameters, whole.m, whole.v));
}

/// As Ctrl-C does.
fn interrupt(run: &Child) {
    assert!(Command::new("kill").args(["-INT", &run.id().to_string()]).status().unwrap().success());
}

/// A run of many hours, from its first line of progress on: it handles Ctrl-C by then, and looks whether it was asked to
/// stop with its next line, a second later.
fn long_run(folder: &Path) -> (Child, BufReader<std::process::ChildStdout>) {
    let mut run = train(folder, "3000", &["--epochs", "1000000"]).spawn().unwrap();
    let mut lines = BufReader::new(run.stdout.take().unwrap());
    let mut line = String::new();
    while !line.starts_with("epoch") {
        line.clear();
        assert!(lines.read_line(&mut line).unwrap() > 0, "it ended before its first line");
    }
    (run, lines)
}

/// `gpulab train | tee log`: Ctrl-C ends `tee` as well, and the run is kept all the same.
#[test]
fn ctrl_c_keeps_the_run_though_nobody_reads_any_more() {
    let folder = Folder::new("stopped");
    let (mut run, lines) = long_run(&folder.0);
    drop(lines);
    interrupt(&run);
    assert!(run.wait().unwrap().success());
    assert!(kept(&folder.0).state.step > 0);
}

#[test]
fn the_second_ctrl_c_ends_it_at_once() {
    let folder = Folder::new("ended");
    let (mut run, _lines) = long_run(&folder.0);
    let start = Instant::now();
    // The system joins two signals that arrive together; a run that only stops ends with 0.
    while run.try_wait().unwrap().is_none() && start.elapsed() < Duration::from_secs(60) {
        interrupt(&run);
        std::thread::sleep(Duration::from_millis(20));
    }
    assert_eq!(run.wait().unwrap().code(), Some(130));
}

#[test]
fn a_finished_run_leaves_rows_and_plots() {
    let folder = Folder::new("rows");
    let done = train(&folder.0, "4", &["--epochs", "2"]).output().unwrap();
    let text = String::from_utf8_lossy(&done.stdout).into_owned();
    assert!(done.status.success() && text.contains("CNN on generated digits, seed 7: cpu, f32, batch 2"), "{text}");
    for file in ["metrics.csv", "train-loss-cpu.svg", "train-time.svg"] {
        assert!(folder.0.join(file).is_file(), "{file}");
    }
    let rows = gpulab::results::read(&folder.0.join("metrics.csv")).unwrap();
    assert!(rows.iter().any(|row| row.metric == "accuracy" && row.size == 2 && row.lesson == "train"));
}
