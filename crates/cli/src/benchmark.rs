//! `gpulab trt-benchmark`.

use crate::options::TrtBenchmark;
use gpulab::error::Result;
use gpulab::results;
use gpulab_nn::cnn::Parameters;
use gpulab_onnx::runtime::{self, Benchmark, BenchmarkChart, benchmark_chart};
use std::path::Path;

/// What `metrics.csv` calls these rows' lesson.
const LESSON: &str = "trt-benchmark";
/// The weights' values change no time.
const SEED: u64 = 1;

/// Opens the model on every provider, times them alternately, stores rows and charts; gives the tables.
///
/// # Errors
/// ONNX Runtime missing, a model that does not open, outputs that differ.
pub fn trt_benchmark(options: &TrtBenchmark) -> Result<String> {
    // Before anything is made: without the library there is nothing to time.
    runtime::version()?;
    let folder = options.out.clone().unwrap_or_else(results::dir);
    let most = options.batches.iter().copied().max().unwrap_or(1);
    let mut benchmark = match &options.model {
        None => Benchmark::of_cnn(&Parameters::random(SEED), &folder, most)?,
        Some(file) => Benchmark::of_file(file, most)?,
    };
    benchmark.run(&options.batches)?;
    let stored = store(&benchmark, &folder)?;
    Ok(format!("{}\n{stored}", benchmark.report()))
}

/// Appends the rows and draws both charts; says where.
fn store(benchmark: &Benchmark, folder: &Path) -> Result<String> {
    let (time, commit) = (results::now_utc(), results::commit());
    let mut rows = benchmark.rows();
    for row in &mut rows {
        row.time.clone_from(&time);
        row.commit.clone_from(&commit);
        row.lesson = LESSON.to_string();
    }
    let file = folder.join("metrics.csv");
    results::append_to(&file, &rows)?;
    let [latency, throughput] = ["latency", "throughput"].map(|name| folder.join(format!("trt-{name}.svg")));
    benchmark_chart(&rows, BenchmarkChart::Latency).draw().save(&latency)?;
    benchmark_chart(&rows, BenchmarkChart::Throughput).draw().save(&throughput)?;
    Ok(format!("rows in {}, plots in {} and {}", file.display(), latency.display(), throughput.display()))
}
