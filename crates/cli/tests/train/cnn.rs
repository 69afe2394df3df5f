//! `gpulab train`.

use super::{Folder, gpulab, interrupt, kill_after, succeeds};
use gpulab_nn::cnn::Checkpoint;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command};
use std::time::{Duration, Instant};

/// Steps of two images, kept after every second.
fn train(folder: &Path, images: &str, more: &[&str]) -> Command {
    let mut command = gpulab("train");
    command.args(["--images", images, "--batch-size", "2", "--every", "2", "--out"]).arg(folder).args(more);
    command
}

fn checkpoint(folder: &Path) -> PathBuf {
    folder.join("cnn-cpu.safetensors")
}

fn kept(folder: &Path) -> Checkpoint {
    Checkpoint::read(&checkpoint(folder)).unwrap()
}

#[test]
fn a_killed_run_goes_on_bit_for_bit() {
    let (whole, killed) = (Folder::new("whole"), Folder::new("killed"));
    succeeds(train(&whole.0, "24", &[]));
    kill_after(train(&killed.0, "24", &[]).spawn().unwrap(), &checkpoint(&killed.0));
    let before = kept(&killed.0).state;
    let text = succeeds(train(&killed.0, "24", &["--resume"]));
    assert!(text.contains(&format!("going on after step {}", before.step)), "{text}");
    let (whole, killed) = (kept(&whole.0), kept(&killed.0));
    assert!(before.step < 12, "it was to be killed before its end");
    assert_eq!((killed.state.losses, killed.state.step), (whole.state.losses, 12));
    assert_eq!((killed.parameters, killed.m, killed.v), (whole.parameters, whole.m, whole.v));
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
    let text = succeeds(train(&folder.0, "4", &["--epochs", "2"]));
    assert!(text.contains("CNN on generated digits, seed 7: cpu, f32, batch 2"), "{text}");
    for file in ["metrics.csv", "train-loss-cpu.svg", "train-time.svg"] {
        assert!(folder.0.join(file).is_file(), "{file}");
    }
    let rows = gpulab::results::read(&folder.0.join("metrics.csv")).unwrap();
    assert!(rows.iter().any(|row| row.metric == "accuracy" && row.size == 2 && row.lesson == "train"));
}
