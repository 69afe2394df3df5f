//! Times an ONNX file by this crate's use of ONNX Runtime beside its Python package, interleaved, and writes a table.
//!
//! `cargo run --release -p gpulab-onnx --example record_export -- [--model FILE] [--batches 1,8,256]
//! [--out export.csv] [--metrics FILE] [--talk FOLDER]`; `env/baselines/record_export.py` does that and brings the Python package along.
//! Without `--model` it is the course's CNN, beside candle. Outputs are compared with each other before a time counts.

mod partner;

use gpulab::prelude::*;
use gpulab_nn::cnn::Parameters;
use gpulab_onnx::runtime::{Benchmark, Latency};
use partner::Partner;
use std::fmt::Write as _;
use std::path::{Path, PathBuf};

/// What `metrics.csv` calls these rows' lesson.
const LESSON: &str = "42_export";

fn main() -> Result<()> {
    let (mut out, mut model, mut metrics, mut talk) = ("export.csv".to_string(), None, None, None);
    let mut batches = "1,2,4,8,16,32,64,128,256".to_string();
    let mut arguments = std::env::args().skip(1);
    while let Some(argument) = arguments.next() {
        let mut value = || arguments.next().expect("this option is followed by a value");
        match argument.as_str() {
            "--out" => out = value(),
            "--model" => model = Some(value()),
            "--metrics" => metrics = Some(value()),
            "--talk" => talk = Some(value()),
            "--batches" => batches = value(),
            other => panic!("there is no option {other}"),
        }
    }
    let batches: Vec<usize> = batches.split(',').map(|text| text.parse().expect("a batch size")).collect();
    let most = batches.iter().copied().max().unwrap_or(1);
    let folder = std::env::temp_dir().join("gpulab-record-export");
    let path = model.as_ref().map_or_else(|| folder.join("cnn.onnx"), PathBuf::from);
    let mut benchmark = match model {
        None => Benchmark::of_cnn(&Parameters::random(1), &folder, most)?,
        Some(_) => Benchmark::of_file(&path, most)?,
    };
    eprintln!("{}", benchmark.title);
    if let Some(folder) = talk {
        benchmark.entries.extend(Partner::implementations(Path::new(&folder), &path)?);
    }
    benchmark.run(&batches)?;
    println!("done");
    eprintln!("{}", benchmark.report());
    std::fs::write(&out, table(&benchmark)).map_err(|error| Error::File {
        path: PathBuf::from(&out),
        during: "write".to_string(),
        text: error.to_string(),
        fix: "name another file by --out".to_string(),
    })?;
    metrics.map_or(Ok(()), |file| store(&benchmark, Path::new(&file)))
}

/// A line for each implementation at each batch; `ratio` is to the Python package on the same provider, the median over turns.
fn table(benchmark: &Benchmark) -> String {
    let mut text =
        "who,dtype,batch,p50_us,p99_us,examples_per_s,calls,differs_by,ratio,opened_ms,again_ms,engines,nodes\n"
            .to_string();
    for latency in &benchmark.latencies {
        let entry = benchmark.entries.iter().find(|entry| entry.implementation.name() == latency.implementation);
        let peer = partner::name(&latency.implementation);
        let is_peer = |other: &&Latency| other.implementation == peer && peer != latency.implementation;
        let theirs = benchmark.latencies.iter().filter(is_peer).find(|other| other.batch == latency.batch);
        let ratio = theirs.map_or(String::new(), |theirs| format!("{:.3}", ratio(latency, theirs)));
        let ms = |of: Option<f64>| of.map_or(String::new(), |ms| format!("{ms:.1}"));
        let quoted = |of: Option<&String>| of.map_or(String::new(), |text| quoted(text));
        let _ = writeln!(
            text,
            "{},{},{},{:.2},{:.2},{:.0},{},{:.1e},{ratio},{},{},{},{}",
            quoted(Some(&latency.implementation)),
            latency.dtype,
            latency.batch,
            latency.p50(),
            latency.p99(),
            latency.per_second(),
            latency.us.len(),
            latency.error,
            ms(entry.and_then(|entry| entry.open_ms)),
            ms(entry.and_then(|entry| entry.again_ms)),
            quoted(entry.and_then(|entry| entry.engines.as_ref())),
            quoted(entry.and_then(|entry| entry.nodes.as_ref())),
        );
    }
    for (name, why) in &benchmark.unavailable {
        let _ = writeln!(text, "{},,,,,,,,,,,,{}", quoted(name), quoted(&why.to_string().replace('\n', " / ")));
    }
    text
}

/// A field that may hold a comma.
fn quoted(text: &str) -> String {
    format!("\"{}\"", text.replace('"', "'"))
}

/// Ours over theirs: the median over the repetitions of their own medians.
fn ratio(ours: &Latency, theirs: &Latency) -> f64 {
    let medians = |of: &Latency| -> Vec<f64> {
        of.us.chunks(of.us.len() / Benchmark::REPETITIONS).map(|turn| Summary::of(turn).median).collect()
    };
    let ratios: Vec<f64> = medians(ours).iter().zip(medians(theirs)).map(|(ours, theirs)| ours / theirs).collect();
    Summary::of(&ratios).median
}

fn store(benchmark: &Benchmark, file: &Path) -> Result<()> {
    let mut rows = benchmark.rows();
    for row in &mut rows {
        row.time = gpulab::results::now_utc();
        row.commit = gpulab::results::commit();
        row.lesson = LESSON.to_string();
    }
    gpulab::results::append_to(file, &rows)
}
