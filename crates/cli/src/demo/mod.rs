//! What must not happen in the notebook's own process: a fault that takes the GPU's context with it, an allocation that fails
//! and takes the process with it, and work that a profiler is to start.

mod full;
mod ladder;
mod load;

use crate::options::Demo;
use gpulab::error::Result;
use gpulab::gpu::Gpu;
use gpulab::launch::LaunchConfig;

/// Does what was asked for.
///
/// # Errors
/// Those of each demonstration.
pub fn run(demo: Demo) -> Result<String> {
    match demo {
        Demo::LateError => late_error(),
        Demo::Ladder { size, rungs } => ladder::ladder(size, &rungs),
        Demo::Launch { file, kernel, n } => ladder::launch(&file, &kernel, n),
        Demo::Load { case } => load::load(case),
        Demo::OutOfMemory { batch, mib } => full::out_of_memory(batch, mib),
    }
}

const FAR_OUT: &str = r#"extern "C" __global__ void far_out(float *x, long long offset) {
    x[offset + threadIdx.x] = 1.0f;
}"#;

/// Launches a kernel that writes far outside its buffer, and gives what each later call says, a line each.
///
/// With `CUDA_LAUNCH_BLOCKING=1` in the environment the launch itself waits, and so it is the launch that reports.
///
/// # Errors
/// [`Error::NoGpu`](gpulab::error::Error::NoGpu) and what else comes before the faulty launch.
fn late_error() -> Result<String> {
    let gpu = Gpu::open_index(0)?;
    let kernel = gpu.compile(FAR_OUT)?.kernel("far_out")?;
    let mut x = gpu.zeros::<f32>(32)?;
    gpu.synchronize()?;
    let calls = [
        ("launch of the faulty kernel", kernel.launch(LaunchConfig::new(1, 32), (&mut x, 1_i64 << 40))),
        ("synchronize", gpu.synchronize()),
        ("an allocation afterwards", gpu.alloc::<f32>(1).map(drop)),
    ];
    let line = |(call, outcome): (&str, Result<()>)| match outcome {
        Ok(()) => format!("{call}: ok\n"),
        Err(error) => format!("{call}: {error}\n"),
    };
    Ok(calls.into_iter().map(line).collect())
}
