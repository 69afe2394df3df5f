//! `gpulab trt-benchmark`.

use crate::options::TrtBenchmark;
use gpulab::error::Result;
use gpulab::results;
use gpulab_nn::cnn::Parameters;
use gpulab_onnx::runtime::{self, Race, RaceChart, race_chart};
use std::path::Path;

/// What `metrics.csv` calls these rows' lesson.
const LESSON: &str = "trt-benchmark";
/// The weights' values change no time.
const SEED: u64 = 1;

/// Opens the model on every provider, times them in turns, stores rows and charts; gives the tables.
///
/// # Errors
/// ONNX Runtime missing, a model that does not open, outputs that differ.
pub fn trt_benchmark(options: &TrtBenchmark) -> Result<String> {
    // Before anything is made: without the library there is nothing to time.
    runtime::version()?;
    let folder = options.out.clone().unwrap_or_else(results::dir);
    let most = options.batches.iter().copied().max().unwrap_or(1);
    let mut race = match &options.model {
        None => Race::of_cnn(&Parameters::random(SEED), &folder, most)?,
        Some(file) => Race::of_file(file, most)?,
    };
    race.run(&options.batches)?;
    let stored = store(&race, &folder)?;
    Ok(format!("{}\n{stored}", race.report()))
}

/// Appends the rows and draws both charts; says where.
fn store(race: &Race, folder: &Path) -> Result<String> {
    let (time, commit) = (results::now_utc(), results::commit());
    let mut rows = race.rows();
    for row in &mut rows {
        row.time.clone_from(&time);
        row.commit.clone_from(&commit);
        row.lesson = LESSON.to_string();
    }
    let file = folder.join("metrics.csv");
    results::append_to(&file, &rows)?;
    let [latency, throughput] = ["latency", "throughput"].map(|name| folder.join(format!("trt-{name}.svg")));
    race_chart(&rows, RaceChart::Latency).draw().save(&latency)?;
    race_chart(&rows, RaceChart::Throughput).draw().save(&throughput)?;
    Ok(format!("rows in {}, plots in {} and {}", file.display(), latency.display(), throughput.display()))
}
