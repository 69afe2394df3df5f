//! `gpulab trt-benchmark`.

use super::{Race, RaceChart};
use gpulab::error::Result;
use gpulab_nn::cnn::Parameters;
use gpulab_nn::options::Options;
use gpulab::results;
use std::path::{Path, PathBuf};

const USAGE: &str = "\
gpulab trt-benchmark [--model FILE] [--batches 1,2,4,8,16,32,64,128,256] [--out DIR]
    latency and throughput of an ONNX file: ONNX Runtime on the CPU, CUDA, TensorRT fp32 and fp16, CoreML; those that
    are missing are named, each with the command that adds it. Without FILE it is the CNN of lesson 20, beside candle";

const BATCHES: &str = "1,2,4,8,16,32,64,128,256";
/// What `metrics.csv` calls these rows' lesson.
const LESSON: &str = "trt-benchmark";
/// The weights' values change no time.
const SEED: u64 = 1;

/// Opens the model on every provider, times them in turns, stores rows and charts; gives the tables.
///
/// # Errors
/// What an option names that is not there, ONNX Runtime missing, a model that does not open, outputs that differ.
pub fn trt_benchmark(arguments: &[&str]) -> Result<String> {
    let mut options = Options::new(arguments, &[], USAGE)?;
    let model: String = options.get("model", String::new())?;
    let batches: String = options.get("batches", BATCHES.to_string())?;
    let folder: PathBuf = options.get("out", results::dir())?;
    options.done()?;
    let batches = batches.split(',').map(|text| match text.trim().parse() {
        Ok(batch @ 1..) => Ok(batch),
        _ => Err(options.wrong(format!("`{text}` is no batch size"))),
    });
    let batches = batches.collect::<Result<Vec<usize>>>()?;
    // Before anything is made: without the library there is nothing to time.
    super::version()?;
    let most = batches.iter().copied().max().unwrap_or(1);
    let mut race = match model.as_str() {
        "" => Race::of_cnn(&Parameters::random(SEED), &folder, most)?,
        file => Race::of_file(Path::new(file), most)?,
    };
    race.run(&batches)?;
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
    super::race_chart(&rows, RaceChart::Latency).draw().save(&latency)?;
    super::race_chart(&rows, RaceChart::Throughput).draw().save(&throughput)?;
    Ok(format!("rows in {}, plots in {} and {}", file.display(), latency.display(), throughput.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_that_make_no_sense_are_named_before_anything_is_made() {
        for (arguments, named) in [(["--batches", "1,0"], "`0` is no batch size"), (["--modell", "x"], "--modell")] {
            let text = trt_benchmark(&arguments).unwrap_err().to_string();
            assert!(text.contains(named) && text.contains("next: use it so:"), "{text}");
        }
        let text = trt_benchmark(&["--model", "/no/such.onnx"]).unwrap_err().to_string();
        assert!(text.contains("cannot open /no/such.onnx"), "{text}");
    }
}
