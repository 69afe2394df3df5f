//! What a launch costs the host through this crate, beside the same launch in plain cudarc: an empty kernel with a buffer and
//! two numbers, in blocks of launches that alternate. Needs an NVIDIA GPU.
//! `cargo run --release -p gpulab --example launch_overhead`

use gpulab::cudarc::driver::{LaunchConfig as CudarcConfig, PushKernelArg};
use gpulab::prelude::*;
use std::time::Instant;

const EMPTY: &str = r#"extern "C" __global__ void empty(float *x, int n, float a) {}"#;
const ROUNDS: usize = 201;
const LAUNCHES: usize = 500;

fn main() -> Result<()> {
    let gpu = Gpu::open_index(0)?;
    let kernel = gpu.compile(EMPTY)?.kernel("empty")?;
    let (stream, function) = (gpu.cuda_stream()?, kernel.cuda_function()?);
    let mut ours = gpu.zeros::<f32>(256)?;
    let mut theirs = stream.alloc_zeros::<f32>(256)?;
    let shape = CudarcConfig { grid_dim: (1, 1, 1), block_dim: (256, 1, 1), shared_mem_bytes: 0 };
    let (mut through_gpulab, mut plain, mut apart) = (Vec::new(), Vec::new(), Vec::new());
    for round in 0..ROUNDS + 5 {
        gpu.synchronize()?;
        let start = Instant::now();
        for _ in 0..LAUNCHES {
            let mut launch = stream.launch_builder(function);
            launch.arg(&mut theirs).arg(&256_i32).arg(&1.0_f32);
            // SAFETY: the kernel takes a pointer, an int and a float, and touches no memory.
            unsafe { launch.launch(shape) }?;
        }
        let theirs_us = start.elapsed().as_secs_f64() * 1e6 / LAUNCHES as f64;
        gpu.synchronize()?;
        let start = Instant::now();
        for _ in 0..LAUNCHES {
            kernel.launch(LaunchConfig::new(1, 256), (&mut ours, 256_i32, 1.0_f32))?;
        }
        let ours_us = start.elapsed().as_secs_f64() * 1e6 / LAUNCHES as f64;
        // The first rounds load the kernel and warm the host's caches.
        if round >= 5 {
            plain.push(theirs_us);
            through_gpulab.push(ours_us);
            apart.push(ours_us - theirs_us);
        }
    }
    println!("{gpu}: {LAUNCHES} launches per sample, µs per launch");
    println!("plain cudarc     {}", Summary::of(&plain));
    println!("through gpulab   {}", Summary::of(&through_gpulab));
    println!("difference       {}", Summary::of(&apart));
    Ok(())
}
