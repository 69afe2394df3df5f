//! Times of the pipeline, stage by stage, and of the way to the GPU and back: rows for a lesson.

use crate::on_cores::OnCores;
use crate::on_cpu::OnCpu;
use crate::on_gpu::OnGpu;
use crate::pipeline::Stage;
use crate::rides::{Drivers, Rides};
use crate::rides::{read_frame, write_csv};
use gpulab::bench::Bench;
use gpulab::cpu;
use gpulab::error::{Error, Result};
use gpulab::gpu::{Gpu, Pinned};
use gpulab::measurement::{Backend, Measurement};
use std::path::Path;

/// The name of all stages together, in measurements.
const ALL: &str = "all stages";

/// Times of polars on all cores, in ms over rows: a row for each stage, and one for all stages in one go.
///
/// # Errors
/// Those of [`OnCpu::new`] and [`OnCpu::run`].
pub fn cpu_times(rides: &Rides, drivers: &Drivers, plan: &Bench) -> Result<Vec<Measurement>> {
    let mut on_cpu = OnCpu::new(rides, drivers)?;
    on_cpu.run_all()?;
    let row = |name: &str, summary| Measurement::time_ms(name, Backend::Cpu, rides.len(), summary).dtype("u32");
    let mut rows = Vec::new();
    for stage in Stage::ALL {
        rows.push(row(stage.name(), cpu::time(plan, || on_cpu.run(stage))?));
    }
    rows.push(row(ALL, cpu::time(plan, || on_cpu.run_all())?));
    Ok(rows)
}

/// Times of loops on all cores with the kernels' algorithms ([`OnCores`]), in ms over rows, as [`cpu_times`]. The result is checked
/// against polars' first.
///
/// # Errors
/// Those of [`OnCores::new`] and of polars; [`Error::Invalid`](gpulab::Error::Invalid) when the results differ.
pub fn core_times(rides: &Rides, drivers: &Drivers, plan: &Bench) -> Result<Vec<Measurement>> {
    let mut on_cores = OnCores::new(rides, drivers)?;
    on_cores.run_all();
    let mut on_cpu = OnCpu::new(rides, drivers)?;
    on_cpu.run_all()?;
    agree(on_cpu.outcome()?.differs(&on_cores.outcome()), "the loops")?;
    let row = |name: &str, summary| Measurement::time_ms(name, Backend::Cpu, rides.len(), summary).dtype("u32");
    let mut rows = Vec::new();
    for stage in Stage::ALL {
        rows.push(row(stage.name(), cpu::time(plan, || on_cores.run(stage))?));
    }
    rows.push(row(ALL, cpu::time(plan, || on_cores.run_all())?));
    Ok(rows)
}

/// Ends with an error where something differs from polars' result.
fn agree(differs: Option<String>, who: &str) -> Result<()> {
    let fix = "run `cargo test -p gpulab-tables`, which finds the stage";
    differs.map_or(Ok(()), |what| Err(Error::invalid(format!("polars and {who} do not agree: {what}"), fix)))
}

/// Times of polars reading a CSV file on all cores, in ms over rows, and of writing it; the file is written to `folder`, and
/// removed again.
///
/// # Errors
/// Those of [`super::write_csv`] and [`super::OnCpu::read`].
pub fn read_times(rides: &Rides, folder: impl AsRef<Path>, plan: &Bench) -> Result<Vec<Measurement>> {
    let path = folder.as_ref().join(format!("gpulab-rides-{}-{}.csv", std::process::id(), rides.len()));
    let row = |name: &str, summary| Measurement::time_ms(name, Backend::Cpu, rides.len(), summary).dtype("u32");
    let measured = || -> Result<Vec<Measurement>> {
        let written = cpu::time(&Bench::once(), || write_csv(&path, rides).map(drop))?;
        let read = cpu::time(plan, || read_frame(&path).map(drop))?;
        Ok(vec![row("write CSV", written), row("read CSV", read)])
    };
    let rows = measured();
    let _ = std::fs::remove_file(&path);
    rows
}

/// Times of our kernels with all columns in the GPU's memory, in ms over rows: a row for each stage, and two for all stages in
/// one go: launch by launch, and as one CUDA graph. The result is checked against polars' first.
///
/// # Errors
/// Those of [`OnGpu::new`] and [`Gpu::time`]; [`Error::Invalid`](gpulab::Error::Invalid) when the results differ.
pub fn gpu_times(gpu: &Gpu, rides: &Rides, drivers: &Drivers, plan: &Bench) -> Result<Vec<Measurement>> {
    let mut on_gpu = OnGpu::new(gpu, rides, drivers)?;
    on_gpu.run_all()?;
    let mut on_cpu = OnCpu::new(rides, drivers)?;
    on_cpu.run_all()?;
    agree(on_cpu.outcome()?.differs(&on_gpu.outcome()?), "the GPU")?;
    let row = |name: &str, summary| Measurement::time_ms(name, gpu.backend(), rides.len(), summary).dtype("u32");
    let mut rows = Vec::new();
    for stage in Stage::ALL {
        rows.push(row(stage.name(), gpu.time(plan, |_| on_gpu.run(stage))?));
    }
    rows.push(row(ALL, gpu.time(plan, |_| on_gpu.run_all())?));
    // The same launches, which the driver has looked at before. An Apple GPU has none, and none of these kernels.
    let mut graph = gpu.capture(|| on_gpu.run_all())?;
    rows.push(row("all stages, one graph", gpu.time(plan, |_| graph.launch())?));
    drop(graph);
    Ok(rows)
}

/// Times of the copies that the pipeline needs when its columns lie on the host, in ms over rows: rides and drivers to the
/// GPU, and the finished table back; from ordinary (pageable) memory, and from pinned memory.
///
/// # Errors
/// Those of [`OnGpu::new`], [`Gpu::pinned`] and [`Gpu::time`].
pub fn transfer_times(gpu: &Gpu, rides: &Rides, drivers: &Drivers, plan: &Bench) -> Result<Vec<Measurement>> {
    let mut on_gpu = OnGpu::new(gpu, rides, drivers)?;
    on_gpu.run_all()?;
    let n = rides.len();
    let row = |name: &str, summary| Measurement::time_ms(name, gpu.backend(), n, summary).dtype("u32");
    let mut rows = vec![row("to the GPU, pageable", gpu.time(plan, |_| on_gpu.load(rides, drivers))?)];
    let (mut words, mut features) = ([vec![0; n], vec![0; n]], [vec![0.0; n], vec![0.0; n], vec![0.0; n]]);
    rows.push(row("from the GPU, pageable", gpu.time(plan, |_| on_gpu.store(&mut words, &mut features))?));

    let stream = gpu.new_stream()?;
    let host = rides.columns().into_iter().chain([&drivers.licence, &drivers.year]);
    let pinned = host.map(|column| -> Result<Pinned<u32>> {
        let mut pinned = gpu.pinned(column.len())?;
        pinned.as_mut_slice()?.copy_from_slice(column);
        Ok(pinned)
    });
    let pinned = pinned.collect::<Result<Vec<_>>>()?;
    // The copies are queued on a stream of their own; the host's clock sees them end.
    let to = cpu::time(plan, || on_gpu.load_pinned(&stream, &pinned).and_then(|()| stream.synchronize()))?;
    rows.push(row("to the GPU, pinned", to));
    let mut words = [gpu.pinned(n)?, gpu.pinned(n)?];
    let mut features = [gpu.pinned(n)?, gpu.pinned(n)?, gpu.pinned(n)?];
    let mut store = || on_gpu.store_pinned(&stream, &mut words, &mut features).and_then(|()| stream.synchronize());
    rows.push(row("from the GPU, pinned", cpu::time(plan, &mut store)?));
    Ok(rows)
}
