//! What the simulated GPU does in a process of its own: without a compiler, and printing.
#![cfg(not(target_os = "macos"))] // one kernel is compiled here, and there is no NVRTC for macOS

use gpulab::prelude::*;
use gpulab_kernels::{Matmul, ladder};
use std::process::Command;

const OWN: &str = "extern \"C\" __global__ void hello() { printf(\"thread %d\\n\", threadIdx.x); }";

/// Runs an ignored test of this file in a process of its own.
fn in_another_process(name: &str, change: impl FnOnce(&mut Command)) -> String {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["--exact", name, "--ignored", "--nocapture"]);
    change(&mut command);
    let output = command.output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(output.status.success() && text.contains("1 passed"), "{text}{}", String::from_utf8_lossy(&output.stderr));
    text
}

#[test]
fn what_a_kernel_prints_goes_to_standard_output() {
    let text = in_another_process("a_kernel_that_prints", |_| {});
    assert!(text.contains("thread 0\nthread 1\nthread 2\n"), "{text}");
}

#[test]
#[ignore = "the other process of what_a_kernel_prints_goes_to_standard_output"]
fn a_kernel_that_prints() {
    let gpu = Gpu::simulated().unwrap();
    gpu.compile(OWN).unwrap().kernel("hello").unwrap().launch(LaunchConfig::new(1, 3), ()).unwrap();
}

#[test]
fn without_a_compiler_the_courses_kernels_run_and_others_are_told_where_to_go() {
    in_another_process("a_machine_without_a_compiler", |command| {
        command.env("GPULAB_NVRTC", "none");
    });
}

#[test]
#[ignore = "the other process of without_a_compiler_the_courses_kernels_run_and_others_are_told_where_to_go"]
fn a_machine_without_a_compiler() {
    assert!(matches!(gpulab::cuda::nvrtc_version(), Err(Error::NoCompiler { .. })));
    let gpu = Gpu::simulated().unwrap();
    let missing = gpu.compile(OWN).unwrap_err();
    assert!(matches!(missing, Error::NoCompiler { .. }) && missing.to_string().contains("\nnext: "), "{missing}");
    for path in ["matmul/01_naive", "matmul/02_tiled"] {
        let matmul = Matmul::new(&gpu, path).unwrap();
        assert_eq!(matmul.multiply(&[1.0; 9], &[2.0; 9], 3).unwrap(), [6.0; 9]);
    }
    let rung = ladder::rung("vector_add/01_one_thread_each").unwrap();
    let add = gpu.compile(rung.source().unwrap()).unwrap().kernel(rung.kernel).unwrap();
    let (a, mut c) = (gpu.to_device(&[1.0_f32; 40]).unwrap(), gpu.alloc::<f32>(40).unwrap());
    // Its signature and its lines are known as if it were compiled here.
    let config = LaunchConfig::for_elements(40, 64);
    let changed =
        Source { text: rung.source().unwrap().text.replace("a[i] + b[i]", "a[i] - b[i]"), ..rung.source().unwrap() };
    assert!(matches!(gpu.compile(changed).unwrap_err(), Error::NoCompiler { .. }));
    // A copy with other comments runs, and its mistakes are told by its own lines.
    let mut copy = rung.source().unwrap();
    copy.text = format!("/* mine */\n\n{}", copy.text.replacen("// idea", "// my copy\n// idea", 1));
    let copied = gpu.compile(copy).unwrap().kernel(rung.kernel).unwrap();
    let text = copied.launch(config, (&a, &a, &mut c, 64_i32)).unwrap_err().to_string();
    assert!(text.contains("01_one_thread_each.cu:11") && text.contains("11 |         c[i] = a[i] + b[i];"), "{text}");
    assert!(add.launch(config, (&a, &a, &mut c, 40_usize)).unwrap_err().to_string().contains("value as i32"));
    let text = add.launch(config, (&a, &a, &mut c, 64_i32)).unwrap_err().to_string();
    assert!(text.contains("01_one_thread_each.cu:8") && text.contains("8 |         c[i] = a[i] + b[i];"), "{text}");
}
