//! `gpulab train` and `gpulab train-gpt`, killed in the middle, go on as if nothing had been; Ctrl-C keeps the run first.
#![cfg(all(unix, feature = "nn"))]

mod cnn;
mod gpt;

use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// A folder of a run, gone with the test.
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

/// The command, which tells what it says.
fn gpulab(name: &str) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_gpulab"));
    command.arg(name).stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

fn succeeds(mut command: Command) -> String {
    let done = command.output().unwrap();
    assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
    String::from_utf8_lossy(&done.stdout).into_owned()
}

/// Kills the run as soon as its first checkpoint is there.
fn kill_after(mut run: Child, checkpoint: &Path) {
    let start = Instant::now();
    while !checkpoint.exists() && start.elapsed() < Duration::from_secs(240) {
        std::thread::sleep(Duration::from_millis(2));
    }
    // SIGKILL: the process can do nothing about it.
    run.kill().unwrap();
    run.wait().unwrap();
}

/// As Ctrl-C does.
fn interrupt(run: &Child) {
    assert!(Command::new("kill").args(["-INT", &run.id().to_string()]).status().unwrap().success());
}
