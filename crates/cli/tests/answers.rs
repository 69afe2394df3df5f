//! The program from outside, in every build: status, output, and what its caller may do to it.
#![cfg(unix)]

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::process::{Command, Stdio};

fn gpulab(arguments: &[&OsStr]) -> (Option<i32>, String, String) {
    let done = Command::new(env!("CARGO_BIN_EXE_gpulab")).args(arguments).output().unwrap();
    let text = |bytes: Vec<u8>| String::from_utf8_lossy(&bytes).into_owned();
    (done.status.code(), text(done.stdout), text(done.stderr))
}

#[test]
fn help_goes_to_the_standard_output_and_errors_do_not() {
    for (arguments, part) in [(["--help"], "verify"), (["--version"], env!("CARGO_PKG_VERSION"))] {
        let (status, out, err) = gpulab(&arguments.map(OsStr::new));
        assert!(status == Some(0) && out.contains(part) && err.is_empty(), "{status:?} {out} {err}");
    }
    for arguments in [&[][..], &["verfiy"], &["train", "--epochs", "none"]] {
        let (status, out, err) = gpulab(&arguments.iter().map(OsStr::new).collect::<Vec<_>>());
        let last = err.lines().last().unwrap_or_default();
        assert!(status == Some(2) && out.is_empty() && last.starts_with("next: "), "{status:?} {out} {err}");
    }
}

#[test]
fn an_argument_that_is_no_utf_8_is_refused() {
    for command in ["\u{7f}", "data", "train"] {
        let (status, _, err) = gpulab(&[OsStr::new(command), OsStr::from_bytes(b"--hub=\xff")]);
        assert!(status == Some(2) && err.contains("\nnext: ") && !err.contains("panicked"), "{status:?} {err}");
    }
}

#[test]
fn a_reader_that_ends_early_is_no_panic() {
    let mut verify = Command::new(env!("CARGO_BIN_EXE_gpulab"));
    let mut run = verify.arg("verify").stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    drop(run.stdout.take());
    let done = run.wait_with_output().unwrap();
    assert!(done.status.success() && done.stderr.is_empty(), "{}", String::from_utf8_lossy(&done.stderr));
}
