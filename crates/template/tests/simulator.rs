//! The same kernel without a GPU, in the course's simulator: it also finds accesses out of bounds and races.
#![cfg(not(target_os = "macos"))] // CUDA C is compiled here, and there is no NVRTC for macOS

use gpulab::prelude::*;
use my_kernels::{SOURCE, reference};

fn simulate(source: &str, n: usize) -> Result<Vec<f32>> {
    let gpu = Gpu::simulated()?;
    let kernel = gpu.compile(source)?.kernel("saxpy")?;
    let x = gpu.to_device(&vec![2.0_f32; n])?;
    let mut y = gpu.to_device(&vec![1.0_f32; n])?;
    kernel.launch(LaunchConfig::for_elements(n, 256), (3.0_f32, &x, &mut y, n as i32))?;
    y.to_host()
}

#[test]
fn saxpy_equals_the_cpu_at_awkward_sizes() {
    for n in [1, 31, 33, 257, 1000] {
        assert_eq!(simulate(SOURCE, n).unwrap(), reference(3.0, &vec![2.0; n], &vec![1.0; n]), "{n} elements");
    }
}

#[test]
fn a_forgotten_guard_is_found() {
    let unguarded = SOURCE.replace("if (i < n)", "");
    let found = simulate(&unguarded, 1000).unwrap_err().to_string();
    assert!(found.contains("y[i] = a * x[i] + y[i];"), "{found}");
}
