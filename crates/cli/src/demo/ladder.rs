//! Runs that NVIDIA's tools start and look at.

use gpulab::cuda::compile_to_ptx;
use gpulab::error::{Error, Result};
use gpulab::gpu::Gpu;
use gpulab::launch::Source;
use gpulab_kernels::Ladder;
use gpulab_kernels::topics::{Launches, Size};
use gpulab_profiling::{bare, range};
use std::path::Path;

/// Runs each rung once at that size, on random data, in NVTX ranges: `measured`, and within it the rung's path. Checks and
/// copies lie outside of them. Gives a line a rung, with how many launches it made.
///
/// # Errors
/// [`Error::Invalid`] for a rung or a size that is none; those of the topics.
pub fn ladder(size: Size, rungs: &[String]) -> Result<String> {
    let gpu = Gpu::open_index(0)?;
    let one = |path: &String| {
        let ladder = Ladder::of(path.split('/').next().unwrap_or_default())?;
        let launches = once(&gpu, ladder, ladder.size(size)?, path)?;
        Ok(format!("gpulab: measured {path}, {launches} launches\n"))
    };
    let peak = gpu.fp32_peak().map_or(String::new(), |peak| format!("gpulab: fp32 peak {peak} TFLOP/s\n"));
    Ok(peak + &rungs.iter().map(one).collect::<Result<String>>()?)
}

/// The calls alone in the ranges; gives how many kernels it launched.
fn once(gpu: &Gpu, ladder: Ladder, size: Size, path: &str) -> Result<usize> {
    let rung = ladder.open(gpu, ladder.rung(path)?.path)?;
    let (inputs, mut outputs) = rung.arrays(size, 1)?;
    let mut asked = Launches::resources();
    rung.call(&inputs, &mut outputs, size, &mut asked)?;
    gpu.synchronize()?;
    let _measured = range("measured");
    let _rung = range(path);
    rung.call(&inputs, &mut outputs, size, &mut Launches::queue())?;
    gpu.synchronize()?;
    Ok(asked.resources.len())
}

/// Compiles the kernel `NAME(const float *x, float *y, int n)` of that file, with line numbers, and launches it with blocks
/// of 256 threads, a thread an element. Its end is a line of text, also where a tool stopped it.
///
/// # Errors
/// [`Error::File`], those of a compilation, and what happens before the launch.
pub fn launch(file: &Path, kernel: &str, n: u32) -> Result<String> {
    let failed = Error::io(file, "read the kernel's source", "give the path of a file with CUDA C");
    let text = std::fs::read_to_string(file).map_err(failed)?;
    let Gpu::Cuda(gpu) = Gpu::open_index(0)? else { unreachable!("`open_index` opens CUDA GPUs") };
    let ptx = compile_to_ptx(&Source::text(&text), &Gpu::target(&gpu)?)?;
    Ok(match bare::launch(&gpu, &ptx, kernel, n)? {
        Ok(()) => "gpulab: launched, and came to its end".to_string(),
        Err(end) => format!("gpulab: launched, and ended by\n{end}"),
    })
}
