//! Lets the tests know whether there is a GPU. A test that returns early without one would count as passed; with
//! `cfg(no_gpu)` it is listed as ignored, with the reason.

use std::process::Command;

fn main() {
    println!("cargo::rustc-check-cfg=cfg(no_gpu)");
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rerun-if-env-changed=REQUIRE_GPU");
    let listed = Command::new("nvidia-smi").arg("-L").output();
    let has_gpu = listed.is_ok_and(|output| String::from_utf8_lossy(&output.stdout).contains("GPU 0"));
    // On a machine that must have a GPU, a driver that is gone is to be a failure.
    if !has_gpu && std::env::var_os("REQUIRE_GPU").is_none() {
        println!("cargo::rustc-cfg=no_gpu");
    }
}
