//! What rustc is told, and what it answers.

use crate::error::{Error, Result};
use std::process::Command;

/// What rustc is told for core, for the device library and for a kernel alike.
///
/// A panic becomes a `trap` where it happens: nobody could read its text. Jump threading copies code behind both ways of a
/// branch, barriers included, and threads of one block then wait at different ones (rust-lang/rust#137086).
pub(super) const OPTIONS: [&str; 11] = [
    "--edition=2024",
    "--crate-type=lib",
    "--target=nvptx64-nvidia-cuda",
    "-Copt-level=3",
    "-Ccodegen-units=1",
    "-Zunstable-options",
    "-Cpanic=immediate-abort",
    "-Zmir-enable-passes=-JumpThreading",
    // Loops over the registers of a thread have to be unrolled, and Rust has no `#pragma unroll`.
    "-Cllvm-args=-unroll-threshold=2000",
    // What a closure captures would be in local memory, were it called.
    "-Cllvm-args=-inline-threshold=5000",
    "--color=never",
];

/// Bounds, overflow and `debug_assert!` are checked ([`Source::checked`]).
pub(super) const CHECKED: &str = "-Cdebug-assertions=yes";

/// Both outputs of rustc. That it failed shows in what it has not written.
pub(super) fn output(rustc: &mut Command) -> Result<String> {
    let done = rustc.output().map_err(|error| {
        Error::unsupported(format!("rustc does not start: {error}"), "run `make setup`, which installs Rust")
    })?;
    Ok(String::from_utf8_lossy(&[done.stderr, done.stdout].concat()).into_owned())
}
