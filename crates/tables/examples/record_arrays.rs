//! Records lesson 15 on a machine with a GPU: the pipeline in polars on all cores and in our kernels, stage by stage, the copies
//! between, and the reading, over the number of rows.
//!
//! `cargo run --release -p gpulab-tables --example record_arrays -- [--out metrics.csv] [--rows 10000000]
//! [--once | --cpu | --gpu]`. With `--once` the kernels run once and nothing is timed: for a profiler. With `--cpu` polars alone is
//! timed, with `--gpu` the kernels alone, and nothing is written.

use gpulab::bench::Bench;
use gpulab::gpu::Gpu;
use gpulab::measurement::{Measurement, figures};
use gpulab::{Result, cpu, results};
use gpulab_tables::{OnGpu, cpu_times, drivers, gpu_times, read_times, rides, transfer_times};
use std::path::PathBuf;
use std::time::Instant;

/// One driver for so many rides.
const RIDES_A_DRIVER: usize = 10;

fn main() {
    let (mut out, mut most, mut alone) = (PathBuf::from("metrics.csv"), 10_000_000, String::new());
    let mut arguments = std::env::args().skip(1);
    while let Some(argument) = arguments.next() {
        match argument.as_str() {
            "--out" => out = arguments.next().unwrap_or_else(|| stop("--out needs a path")).into(),
            "--rows" => {
                most = arguments.next().and_then(|n| n.parse().ok()).unwrap_or_else(|| stop("--rows needs a number"))
            }
            "--once" | "--cpu" | "--gpu" => alone = argument,
            other => stop(&format!("unknown argument `{other}`\nnext: see the head of record_arrays.rs")),
        }
    }
    let done = match alone.as_str() {
        "--once" => run_once(most),
        "" => record(most, &out),
        side => one_side(most, side == "--gpu"),
    };
    done.unwrap_or_else(|error| stop(&error.to_string()));
}

fn stop(text: &str) -> ! {
    eprintln!("{text}");
    std::process::exit(1)
}

fn run_once(rows: usize) -> Result<()> {
    let count = rows / RIDES_A_DRIVER;
    let mut on_gpu = OnGpu::new(&Gpu::open_index(0)?, &rides(rows, count, 15), &drivers(count, 15))?;
    on_gpu.run_all()?;
    println!("kept {} rows, joined {}", on_gpu.outcome()?.kept, on_gpu.outcome()?.joined.zone.len());
    Ok(())
}

fn one_side(rows: usize, on_gpu: bool) -> Result<()> {
    let (rides, drivers) = (rides(rows, rows / RIDES_A_DRIVER, 15), drivers(rows / RIDES_A_DRIVER, 15));
    let times = match on_gpu {
        true => gpu_times(&Gpu::open_index(0)?, &rides, &drivers, &Bench::default().budget_ms(200.0)),
        false => cpu_times(&rides, &drivers, &Bench::default().samples(7)),
    };
    for row in times? {
        println!("{:<24} {:>9} ms", row.experiment, figures(row.summary.median));
    }
    Ok(())
}

fn record(most: usize, out: &std::path::Path) -> Result<()> {
    let gpu = Gpu::open_index(0)?;
    // One time for all sizes: of a curve, the rows with the newest time count.
    let (start, time) = (Instant::now(), results::now_utc());
    // /dev/shm is memory: the parsing is timed, and no disk.
    let shm = PathBuf::from("/dev/shm");
    let folder = if shm.is_dir() { shm } else { std::env::temp_dir() };
    println!(
        "{gpu}; {}, {} cores",
        cpu::info().short_name(),
        std::thread::available_parallelism().map_or(0, |n| n.get())
    );
    let sizes = [most / 1000, most / 100, most / 10, most];
    for rows in sizes.into_iter().filter(|&rows| rows >= RIDES_A_DRIVER) {
        let count = rows / RIDES_A_DRIVER;
        let (rides, drivers) = (rides(rows, count, 15), drivers(count, 15));
        let slow = Bench::default().budget_ms(1500.0);
        let on_cpu = cpu_times(&rides, &drivers, &slow)?;
        let on_gpu = gpu_times(&gpu, &rides, &drivers, &Bench::default().budget_ms(500.0))?;
        let copies = transfer_times(&gpu, &rides, &drivers, &Bench::default().budget_ms(700.0))?;
        let read = read_times(&rides, &folder, &slow.samples(5))?;
        store(out, &time, "pipeline over rows", gpu.name(), &[on_gpu.clone(), copies.clone()].concat())?;
        store(
            out,
            &time,
            "pipeline over rows, polars",
            &cpu::info().short_name(),
            &[on_cpu.clone(), read.clone()].concat(),
        )?;
        println!(
            "\n{rows} rows, {count} drivers; results of polars and GPU agree ({:.0} s)",
            start.elapsed().as_secs_f64()
        );
        for (on_cpu, on_gpu) in on_cpu.iter().zip(&on_gpu) {
            let [slow, fast] = [on_cpu, on_gpu].map(|row| row.summary.median);
            println!(
                "{:<12} polars {:>9} ms   GPU {:>9} ms   {:>6} times",
                on_cpu.experiment,
                figures(slow),
                figures(fast),
                figures(slow / fast)
            );
        }
        for row in read.iter().chain(&copies).chain(&on_gpu[on_cpu.len()..]) {
            println!("{:<24} {:>9} ms", row.experiment, figures(row.summary.median));
        }
    }
    Ok(())
}

/// Tags the rows as the lesson does, and appends them.
fn store(out: &std::path::Path, time: &str, experiment: &str, machine: &str, rows: &[Measurement]) -> Result<()> {
    let commit = results::commit();
    let tag = |row: &Measurement| Measurement {
        time: time.to_string(),
        commit: commit.clone(),
        lesson: "15_arrays".to_string(),
        experiment: format!("{experiment}: {}", row.experiment),
        machine: machine.to_string(),
        ..row.clone()
    };
    results::append_to(out, &rows.iter().map(tag).collect::<Vec<_>>())
}
