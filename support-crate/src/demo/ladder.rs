//! Runs that NVIDIA's tools start and look at.

use crate::cpu;
use crate::cuda::{bare, compile_to_ptx};
use crate::error::{Error, Result};
use crate::gpu::Gpu;
use crate::launch::Source;
use crate::profile;
use crate::topics::{Matmul, Reduction, VectorAdd};

/// Runs each rung once at that size (elements; of a matmul, the side), on random data, in NVTX ranges: `measured` with the rung's path within
/// it. Checks and copies lie outside of them. Gives a line a rung, with how many launches it made.
///
/// # Errors
/// Those of the topics; [`Error::Invalid`] for a rung of another topic.
pub fn ladder(size: usize, rungs: &[&str]) -> Result<String> {
    let gpu = Gpu::open_index(0)?;
    let mut said = String::new();
    for rung in rungs {
        let launches = one(&gpu, size, rung)?;
        said += &format!("gpulab: measured {rung}, {launches} launches\n");
    }
    Ok(said)
}

/// The work alone in the ranges; gives how many kernels it launched.
fn one(gpu: &Gpu, size: usize, rung: &str) -> Result<usize> {
    let random = |count: usize, seed| gpu.to_device(&cpu::random_f32(count, seed));
    match rung.split('/').next().unwrap_or_default() {
        "reduction" => {
            let reduction = Reduction::new(gpu, rung)?;
            let (a, mut partial) = (random(size, 1)?, reduction.partials(size)?);
            measured(gpu, rung, || reduction.launch(&a, &mut partial))?;
            Ok(partial.len())
        }
        "vector_add" => {
            let add = VectorAdd::new(gpu, rung)?;
            let (a, b, mut c) = (random(size, 1)?, random(size, 2)?, gpu.alloc(size)?);
            measured(gpu, rung, || add.launch(&a, &b, &mut c))?;
            Ok(1)
        }
        "matmul" => {
            let matmul = Matmul::new(gpu, rung)?;
            let (a, b) = (cpu::random_f32(size * size, 1), cpu::random_f32(size * size, 2));
            // With the copies, which count for nsys and not for ncu.
            measured(gpu, rung, || matmul.multiply(&a, &b, size).map(drop))?;
            Ok(1)
        }
        _ => Err(Error::Invalid {
            what: format!("`{rung}` cannot be profiled so"),
            fix: "use a rung of reduction, vector_add or matmul, such as reduction/02_tree".to_string(),
        }),
    }
}

fn measured(gpu: &Gpu, rung: &str, work: impl FnOnce() -> Result<()>) -> Result<()> {
    gpu.synchronize()?;
    let _measured = profile::range("measured");
    let _rung = profile::range(rung);
    work()?;
    gpu.synchronize()
}

/// Compiles the kernel `NAME(const float *x, float *y, int n)` of that file, with line numbers, and launches it with blocks
/// of 256 threads, a thread an element. Its end is a line of text, also where a tool stopped it.
///
/// # Errors
/// [`Error::File`], those of a compilation, and what happens before the launch.
pub fn launch(file: &str, kernel: &str, n: usize) -> Result<String> {
    let text = std::fs::read_to_string(file).map_err(|error| Error::File {
        path: file.into(),
        during: "read the kernel's source".to_string(),
        text: error.to_string(),
        fix: "give the path of a file with CUDA C".to_string(),
    })?;
    let Gpu::Cuda(gpu) = Gpu::open_index(0)? else { unreachable!("`open_index` opens CUDA GPUs") };
    let ptx = compile_to_ptx(&Source::text(&text), &Gpu::target(&gpu)?)?;
    let n = u32::try_from(n).ok().filter(|n| *n > 0).ok_or_else(|| Error::Invalid {
        what: format!("{n} elements"),
        fix: "give 1 to 4294967295 elements".to_string(),
    })?;
    Ok(match bare::launch(&gpu, &ptx, kernel, n)? {
        Ok(()) => "gpulab: launched, and came to its end".to_string(),
        Err(end) => format!("gpulab: launched, and ended by\n{end}"),
    })
}
