//! One model, computed by several implementations, interleaved, over batch sizes: latency of a call, throughput, and how sessions were opened.

use super::library::version;
use super::model::{CpuThreads, OnnxData, OnnxModel, OnnxTensor};
use super::provider::{ExecutionProvider, MissingProvider, TensorRt};
use crate::export::{CUDA_OPSET, Dim, OPSET, ValueInfo, cnn};
use gpulab::cpu::random_f32;
use gpulab::error::{Error, Result};
use gpulab::gpu::Gpu;
use gpulab::measurement::{Backend, Measurement, Summary, figures};
use gpulab::plot::{SizeChart, over_size};
use gpulab::table::{Cell, Table, show};
use gpulab_nn::cnn::{Cnn, Kernels, Parameters, Precision};
use gpulab_nn::{Device, DeviceKind, Tensor};
use std::path::Path;
use std::time::{Duration, Instant};

/// Something that computes a model, timed call by call: a session of ONNX Runtime, candle.
pub trait Implementation {
    /// Its name in tables and legends.
    fn name(&self) -> String;
    /// On what it computes.
    fn backend(&self) -> Backend;
    /// The element type of its arithmetic.
    fn dtype(&self) -> String {
        "f32".to_string()
    }
    /// Puts the inputs where it computes.
    ///
    /// # Errors
    /// When it does not take them.
    fn set(&mut self, inputs: &[(&str, &OnnxTensor)]) -> Result<()>;
    /// One call, waited for.
    ///
    /// # Errors
    /// What it reports.
    fn call(&mut self) -> Result<()>;
    /// The first output of a call, on the host.
    ///
    /// # Errors
    /// What it reports.
    fn output(&mut self) -> Result<Vec<f32>>;
    /// So many calls, each timed, in µs; one call before them is not.
    ///
    /// # Errors
    /// What it reports.
    fn calls(&mut self, count: usize) -> Result<Vec<f64>> {
        self.call()?;
        let one = |_| {
            let begun = Instant::now();
            self.call()?;
            Ok(begun.elapsed().as_secs_f64() * 1e6)
        };
        (0..count).map(one).collect()
    }
}

/// A model on a provider, its inputs and outputs bound.
#[derive(Debug)]
pub struct OnnxImplementation {
    /// What tables and legends call it.
    pub name: String,
    /// The model.
    pub model: OnnxModel,
    /// Whether the file rounds its values to 8 bits.
    pub int8: bool,
}

impl Implementation for OnnxImplementation {
    fn name(&self) -> String {
        self.name.clone()
    }

    fn backend(&self) -> Backend {
        match self.model.provider() {
            ExecutionProvider::Cpu => Backend::Cpu,
            ExecutionProvider::Cuda | ExecutionProvider::TensorRt(_) => Backend::Cuda,
            ExecutionProvider::CoreMl => Backend::Metal,
        }
    }

    fn dtype(&self) -> String {
        match self.model.provider() {
            _ if self.int8 => "int8".to_string(),
            ExecutionProvider::TensorRt(options) if options.fp16 => "f16".to_string(),
            _ => "f32".to_string(),
        }
    }

    fn set(&mut self, inputs: &[(&str, &OnnxTensor)]) -> Result<()> {
        self.model.bind(inputs)
    }

    fn call(&mut self) -> Result<()> {
        self.model.run_bound()
    }

    fn output(&mut self) -> Result<Vec<f32>> {
        let outputs = self.model.bound_outputs()?;
        outputs.first().map_or(Ok(Vec::new()), |(_, tensor)| Ok(tensor.f32s()?.to_vec()))
    }
}

/// The CNN on candle: on the CPU with the course's own layers, on a GPU with candle's.
pub struct CandleCnn {
    cnn: Cnn,
    place: DeviceKind,
    images: Option<Tensor>,
}

impl CandleCnn {
    /// The network with these numbers, on this place.
    ///
    /// # Errors
    /// When candle was built without that place, or it does not open.
    pub fn new(parameters: &Parameters, place: DeviceKind) -> Result<CandleCnn> {
        let device = place.open()?;
        let cnn = Cnn::new(parameters, &device, Kernels::best(&device), Precision::F32)?;
        Ok(CandleCnn { cnn, place, images: None })
    }
}

impl Implementation for CandleCnn {
    fn name(&self) -> String {
        format!("candle {}", self.place.name())
    }

    fn backend(&self) -> Backend {
        self.place.backend()
    }

    fn set(&mut self, inputs: &[(&str, &OnnxTensor)]) -> Result<()> {
        let Some((_, images)) = inputs.first() else {
            let fix = "give the images".to_string();
            return Err(Error::invalid("the CNN takes one input", fix));
        };
        self.images = Some(images.to_candle(self.cnn.device())?);
        Ok(())
    }

    fn call(&mut self) -> Result<()> {
        let logits = self.logits()?;
        // A GPU's work is only queued until somebody waits.
        match logits.device() {
            Device::Cpu => Ok(()),
            device => Ok(device.synchronize()?),
        }
    }

    fn output(&mut self) -> Result<Vec<f32>> {
        Ok(self.logits()?.flatten_all()?.to_vec1()?)
    }
}

impl CandleCnn {
    fn logits(&self) -> Result<Tensor> {
        let images =
            self.images.as_ref().ok_or_else(|| Error::invalid("the CNN was given no images", "call `set` first"))?;
        // Weights that are variables would keep each call for a backward pass.
        self.cnn.logits(images).map(|logits| logits.detach())
    }
}

/// The calls of one implementation at one batch size.
#[derive(Debug, Clone, PartialEq)]
pub struct Latency {
    /// Who computed: `candle`, `ONNX Runtime CUDA` …
    pub implementation: String,
    /// On what.
    pub backend: Backend,
    /// The element type of its arithmetic: `f32`, `f16`.
    pub dtype: String,
    /// Examples in a call.
    pub batch: usize,
    /// The calls one by one, in µs, in the order in which they were made.
    pub us: Vec<f64>,
    /// The largest difference of an output from the first implementation's, over the largest output.
    pub error: f64,
}

impl Latency {
    /// Half of the calls take less, in µs.
    pub fn p50(&self) -> f64 {
        quantile(&self.us, 0.5)
    }

    /// One call in a hundred takes more, in µs; of fewer than a hundred calls it is close to the longest.
    pub fn p99(&self) -> f64 {
        quantile(&self.us, 0.99)
    }

    /// Examples a second, when the next call follows at once.
    pub fn per_second(&self) -> f64 {
        let seconds = self.us.iter().sum::<f64>() * 1e-6;
        (self.batch * self.us.len()) as f64 / seconds
    }

    /// Three rows for `metrics.csv`: `latency p50` and `latency p99` in µs, and `throughput` in examples a second.
    pub fn rows(&self) -> [Measurement; 3] {
        let row = |metric: &str, unit: &str, summary: Summary| {
            let row = Measurement::new(&self.implementation, self.backend, self.batch, metric, unit, summary);
            row.dtype(&self.dtype)
        };
        let calls = Summary::of(&self.us);
        let alone = |value: f64| Summary { median: value, p10: value, p90: value, samples: self.us.len() };
        [
            row("latency p50", "µs", calls),
            row("latency p99", "µs", alone(self.p99())),
            row("throughput", "1/s", alone(self.per_second())),
        ]
    }
}

/// Linear between neighbours.
fn quantile(values: &[f64], q: f64) -> f64 {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    let at = q * (sorted.len() - 1) as f64;
    let (low, high) = (at.floor() as usize, at.ceil() as usize);
    sorted[low] + (sorted[high] - sorted[low]) * (at - low as f64)
}

/// A repetition takes at most so long, and at most so many calls, for each implementation.
const REPETITION_MS: f64 = 60.0;
const MAX_CALLS: usize = 40;
const REST: Duration = Duration::from_millis(10);

/// An implementation, and what was read of its session.
pub struct BenchmarkEntry {
    /// What computes.
    pub implementation: Box<dyn Implementation>,
    /// How far its outputs may lie from the first one's, as a part of the largest output.
    pub tolerance: f64,
    /// How long it took to open, in ms, with TensorRT's engine built or found.
    pub open_ms: Option<f64>,
    /// How long a second opening took, in ms: TensorRT finds its engine then.
    pub again_ms: Option<f64>,
    /// What TensorRT did with its cache, first and second time.
    pub engines: Option<String>,
    /// Which provider took how many nodes, as ONNX Runtime tells.
    pub nodes: Option<String>,
}

impl BenchmarkEntry {
    /// An implementation that is no session of ONNX Runtime.
    pub fn of(implementation: impl Implementation + 'static) -> BenchmarkEntry {
        let implementation = Box::new(implementation);
        BenchmarkEntry { implementation, tolerance: 1e-4, open_ms: None, again_ms: None, engines: None, nodes: None }
    }

    /// The file on that provider. TensorRT opens it twice: its engine is built, then found.
    ///
    /// # Errors
    /// As [`OnnxModel::open`].
    pub fn open(path: &Path, provider: ExecutionProvider) -> Result<BenchmarkEntry> {
        BenchmarkEntry::open_as(&provider.to_string(), path, provider)
    }

    /// The same under another name, for two files on one provider.
    ///
    /// # Errors
    /// As [`OnnxModel::open`].
    pub fn open_as(name: &str, path: &Path, provider: ExecutionProvider) -> Result<BenchmarkEntry> {
        let mut model = OnnxModel::open_with(path, provider.clone(), CpuThreads::all())?;
        let (open_ms, mut again_ms, mut engines) =
            (model.open_ms(), None, model.engines().map(|used| used.to_string()));
        if let Some(first) = &engines {
            drop(model);
            model = OnnxModel::open_with(path, provider.clone(), CpuThreads::all())?;
            again_ms = Some(model.open_ms());
            engines = model.engines().map(|used| format!("{first}, then {used}"));
        }
        let tolerance = match &provider {
            // Half precision has 11 bits. TensorRT's fp32 may use TF32, which rounds factors to as many.
            ExecutionProvider::TensorRt(_) | ExecutionProvider::CoreMl => 2e-2,
            _ => 1e-4,
        };
        let nodes = Some(model.where_it_runs()?);
        let int8 = model.node_assignments()?.iter().any(|node| node.operator.contains("Quantize"));
        let implementation = Box::new(OnnxImplementation { name: name.to_string(), model, int8 });
        Ok(BenchmarkEntry { implementation, tolerance, open_ms: Some(open_ms), again_ms, engines, nodes })
    }
}

/// One model, several implementations: [`Benchmark::run`] times them interleaved, [`Benchmark::report`] shows the results.
pub struct Benchmark {
    /// What is computed.
    pub title: String,
    /// The implementations; outputs are compared with the first one's.
    pub entries: Vec<BenchmarkEntry>,
    /// Those that cannot be had, and why, with what adds them.
    pub unavailable: Vec<(String, Error)>,
    /// What was measured.
    pub latencies: Vec<Latency>,
    inputs: Vec<ValueInfo>,
    /// The NVIDIA GPU's name, if there is one.
    gpu: Option<String>,
}

impl Benchmark {
    /// How often each implementation is measured at a batch size; the calls of a repetition follow each other.
    pub const REPETITIONS: usize = 12;

    /// The file on the CPU; others are added.
    ///
    /// # Errors
    /// As [`OnnxModel::open`].
    pub fn new(path: &Path) -> Result<Benchmark> {
        let inputs = OnnxModel::open(path, ExecutionProvider::Cpu)?.inputs().to_vec();
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        let title = format!("{name} by ONNX Runtime {}", version()?);
        let entries = vec![BenchmarkEntry::open(path, ExecutionProvider::Cpu)?];
        let gpu = Gpu::open_index(0).ok().map(|gpu| gpu.name().to_string());
        Ok(Benchmark { title, entries, unavailable: Vec::new(), latencies: Vec::new(), inputs, gpu })
    }

    /// Adds the file on each of these providers; one that is missing is noted with its reason.
    ///
    /// # Errors
    /// When a provider is there and the file does not open on it.
    pub fn add(&mut self, path: &Path, providers: &[ExecutionProvider]) -> Result<()> {
        for provider in providers {
            match provider.look()? {
                Some(missing) => self.leave_out(missing),
                None => self.entries.push(BenchmarkEntry::open(path, provider.clone())?),
            }
        }
        Ok(())
    }

    /// Adds another form of the same network under a name of its own. Where its provider is missing, that was noted when the
    /// first form was added.
    ///
    /// # Errors
    /// As [`Benchmark::add`].
    pub fn add_as(&mut self, name: &str, path: &Path, provider: ExecutionProvider) -> Result<()> {
        if provider.look()?.is_none() {
            self.entries.push(BenchmarkEntry::open_as(name, path, provider)?);
        }
        Ok(())
    }

    /// On which machine a implementation of that kind computes.
    pub(super) fn machine(&self, backend: Backend) -> String {
        match (&self.gpu, backend) {
            (Some(name), Backend::Cuda) => name.clone(),
            _ => gpulab::cpu::info().short_name(),
        }
    }

    fn leave_out(&mut self, missing: MissingProvider) {
        self.unavailable.push((missing.provider.to_string(), missing.into()));
    }

    /// TensorRT with one engine for all batches from 1 to `most`, where the model's inputs have nothing else that is free.
    pub fn tensorrt(&self, fp16: bool, most: usize) -> ExecutionProvider {
        let options = if fp16 { TensorRt::fp16() } else { TensorRt::default() };
        let whole = self.inputs.iter().fold(options, |options, port| {
            let at = |batch: usize| extents(port, batch);
            options.shapes(&port.name, &at(1), &at(most.div_ceil(4)), &at(most))
        });
        ExecutionProvider::TensorRt(whole)
    }

    /// Random inputs for that many examples: numbers in 0 … 1, whole numbers 0; every free dimension is the batch.
    ///
    /// # Errors
    /// For an input of another type.
    pub fn inputs(&self, batch: usize) -> Result<Vec<(String, OnnxTensor)>> {
        let one = |(at, port): (usize, &ValueInfo)| {
            let shape = extents(port, batch);
            let count = shape.iter().product();
            let data: OnnxData = match port.dtype.as_str() {
                "f32" => random_f32(count, at as u64 + 1).into(),
                "i64" => vec![0i64; count].into(),
                "i32" => vec![0i32; count].into(),
                other => {
                    return Err(Error::unsupported(
                        format!("input `{}` is of {other}, and inputs are made of f32 and whole numbers", port.name),
                        "time a model with such inputs",
                    ));
                }
            };
            Ok((port.name.clone(), OnnxTensor::new(&shape, data)?))
        };
        self.inputs.iter().enumerate().map(one).collect()
    }

    /// Checks all outputs against the first one's, then times all, interleaved, at each batch size.
    ///
    /// # Errors
    /// When outputs differ by more than the entry's tolerance, and what a implementation reports.
    pub fn run(&mut self, batches: &[usize]) -> Result<()> {
        for &batch in batches {
            let inputs = self.inputs(batch)?;
            let inputs: Vec<(&str, &OnnxTensor)> =
                inputs.iter().map(|(name, tensor)| (name.as_str(), tensor)).collect();
            let found = measure_batch(&mut self.entries, &inputs, batch)?;
            self.latencies.extend(found);
        }
        Ok(())
    }
}

/// One batch size.
fn measure_batch(entries: &mut [BenchmarkEntry], inputs: &[(&str, &OnnxTensor)], batch: usize) -> Result<Vec<Latency>> {
    let mut first: Vec<f32> = Vec::new();
    let mut found = Vec::new();
    for (at, entry) in entries.iter_mut().enumerate() {
        entry.implementation.set(inputs)?;
        let output = entry.implementation.output()?;
        if at == 0 {
            first.clone_from(&output);
        }
        let error = max_relative_error(&first, &output);
        if error.is_nan() || error > entry.tolerance {
            return Err(Error::invalid(
                format!(
                    "at batch {batch} the outputs of {} lie {error:.1e} from those of the first implementation; {:.0e} was allowed",
                    entry.implementation.name(),
                    entry.tolerance
                ),
                "its times mean nothing: see that both have the same weights and inputs",
            ));
        }
        let (backend, dtype) = (entry.implementation.backend(), entry.implementation.dtype());
        found.push(Latency {
            implementation: entry.implementation.name(),
            backend,
            dtype,
            batch,
            us: Vec::new(),
            error,
        });
    }
    let mut counts = Vec::new();
    for entry in entries.iter_mut() {
        let us = entry.implementation.calls(3)?;
        let typical = us.iter().copied().fold(f64::INFINITY, f64::min);
        counts.push(((REPETITION_MS * 1e3 / typical) as usize).clamp(2, MAX_CALLS));
    }
    for repetition in 0..Benchmark::REPETITIONS {
        let mut order: Vec<usize> = (0..entries.len()).collect();
        if repetition % 2 == 1 {
            order.reverse();
        }
        for at in order {
            // Threads of the one before wait in a loop for more work, and would take cores from this one.
            std::thread::sleep(REST);
            found[at].us.extend(entries[at].implementation.calls(counts[at])?);
        }
    }
    Ok(found)
}

/// The largest difference, over the largest number of the first; NaN where the lengths differ.
fn max_relative_error(first: &[f32], other: &[f32]) -> f64 {
    if first.len() != other.len() {
        return f64::NAN;
    }
    let largest = first.iter().fold(f32::MIN_POSITIVE, |most, value| most.max(value.abs()));
    // `max` would pass over a NaN.
    let differ = first.iter().zip(other).map(|(a, b)| (a - b).abs());
    let most =
        differ.fold(0f32, |most, value| if value.is_nan() || most.is_nan() { f32::NAN } else { most.max(value) });
    f64::from(most / largest)
}

fn extents(port: &ValueInfo, batch: usize) -> Vec<usize> {
    let extent = |extent: &Dim| match extent {
        Dim::Fixed(n) => *n,
        Dim::Free(_) => batch,
    };
    port.shape.iter().map(extent).collect()
}

impl Benchmark {
    /// A file on the CPU, CUDA, TensorRT (fp32, fp16) and CoreML. Who is missing is noted. Engines of TensorRT hold for
    /// batches from 1 to `most`.
    ///
    /// # Errors
    /// When ONNX Runtime is missing, or a provider that is there does not take the file.
    pub fn of_file(path: &Path, most: usize) -> Result<Benchmark> {
        let mut benchmark = Benchmark::new(path)?;
        let (fp32, fp16) = (benchmark.tensorrt(false, most), benchmark.tensorrt(true, most));
        benchmark.add(path, &[ExecutionProvider::Cuda, fp32, fp16, ExecutionProvider::CoreMl])?;
        Ok(benchmark)
    }

    /// The CNN with these numbers: written to `folder` as `cnn.onnx`, with operators of version [`CUDA_OPSET`], and run as
    /// [`Benchmark::of_file`] does; beside it candle, on the CPU and on CUDA. On CUDA the newest version of operators ([`OPSET`])
    /// runs as well, from `cnn-newest.onnx`: what one operator without a kernel costs.
    ///
    /// # Errors
    /// When a file cannot be written, and as [`Benchmark::of_file`].
    ///
    /// [`CUDA_OPSET`]: crate::export::CUDA_OPSET
    /// [`OPSET`]: crate::export::OPSET
    pub fn of_cnn(parameters: &gpulab_nn::cnn::Parameters, folder: &Path, most: usize) -> Result<Benchmark> {
        let (path, newest) = (folder.join("cnn.onnx"), folder.join("cnn-newest.onnx"));
        let model = cnn(parameters)?;
        model.write(&newest)?;
        model.with_opset(CUDA_OPSET)?.write(&path)?;
        let mut benchmark = Benchmark::of_file(&path, most)?;
        benchmark.add_as(
            &format!("{}, operators {OPSET}", ExecutionProvider::Cuda),
            &newest,
            ExecutionProvider::Cuda,
        )?;
        for place in [DeviceKind::Cpu, DeviceKind::Cuda] {
            match CandleCnn::new(parameters, place) {
                Ok(implementation) => benchmark.entries.push(BenchmarkEntry::of(implementation)),
                Err(error) => benchmark.unavailable.push((format!("candle {}", place.name()), error)),
            }
        }
        Ok(benchmark)
    }
}

/// What a chart shows over the batch size.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BenchmarkChart {
    /// The time of the middle call.
    Latency,
    /// Examples a second.
    Throughput,
}

/// A benchmark as text and as a piece of a page; it shows itself as the last line of a cell.
#[derive(Debug, Clone)]
pub struct BenchmarkReport {
    tables: [Table; 2],
}

impl std::fmt::Display for BenchmarkReport {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let texts: Vec<String> = self.tables.iter().map(|table| table.text().trim_end().to_string()).collect();
        f.write_str(&texts.join("\n\n"))
    }
}

impl BenchmarkReport {
    /// What the notebook calls to show it: both tables in one output, as a cell keeps the last one alone.
    pub fn evcxr_display(&self) {
        show(&format!("{self}\n"), &self.html());
    }

    /// Both tables as a piece of a page.
    pub fn html(&self) -> String {
        self.tables.iter().map(Table::html).collect()
    }
}

impl Benchmark {
    /// The figures as rows with their machine: latency p50 and p99, throughput, and what opening took.
    pub fn rows(&self) -> Vec<Measurement> {
        let mut rows: Vec<Measurement> = self.latencies.iter().flat_map(|latency| latency.rows()).collect();
        for entry in &self.entries {
            for (metric, ms) in [("open", entry.open_ms), ("open again", entry.again_ms)] {
                let Some(ms) = ms else { continue };
                let summary = gpulab::measurement::Summary::of(&[ms]);
                let (name, backend) = (entry.implementation.name(), entry.implementation.backend());
                rows.push(
                    Measurement::new(&name, backend, 1, metric, "ms", summary).dtype(&entry.implementation.dtype()),
                );
            }
        }
        rows.iter_mut().for_each(|row| row.machine = self.machine(row.backend));
        rows
    }

    /// The tables: every implementation at every batch size, and how the sessions were opened.
    pub fn report(&self) -> BenchmarkReport {
        BenchmarkReport { tables: [self.latency_table(), self.session_table()] }
    }

    fn latency_table(&self) -> Table {
        let mut batches: Vec<usize> = self.latencies.iter().map(|latency| latency.batch).collect();
        batches.sort_unstable();
        batches.dedup();
        let mut rows = Vec::new();
        for batch in batches {
            let of: Vec<_> = self.latencies.iter().filter(|latency| latency.batch == batch).collect();
            let best = of.iter().map(|latency| latency.p50()).fold(f64::INFINITY, f64::min);
            for latency in of {
                let p50 = Cell { best: latency.p50() == best, ..Cell::of(figures(latency.p50())) };
                rows.push(vec![
                    Cell::of(latency.implementation.as_str()),
                    Cell::of(batch.to_string()),
                    p50,
                    Cell::of(figures(latency.p99())),
                    Cell::of(figures(latency.per_second())),
                    Cell::of(latency.us.len().to_string()),
                    Cell::of(format!("{:.0e}", latency.error)),
                ]);
            }
        }
        let heads = ["who", "batch", "p50 µs", "p99 µs", "examples a second", "calls", "differs by"];
        Table {
            title: self.title.clone(),
            heads: heads.map(str::to_string).to_vec(),
            rows,
            text_columns: 0,
            notes: vec![format!(
                "A call is waited for; inputs and outputs lie where it computes. The shortest median of each batch is marked. \
                 Differs by: the largest difference of an \
                 output from the first implementation's, over the largest output. ONNX Runtime on the CPU: {} threads, \
                 which sleep between calls; candle's pool has as many.",
                CpuThreads::all().count
            )],
        }
    }

    fn session_table(&self) -> Table {
        let ms = |value: Option<f64>| value.map_or(String::new(), figures);
        let row = |entry: &BenchmarkEntry| {
            [
                entry.implementation.name(),
                entry.nodes.clone().unwrap_or_default(),
                entry.engines.clone().unwrap_or_default(),
                ms(entry.open_ms),
                ms(entry.again_ms),
            ]
            .map(Cell::of)
            .to_vec()
        };
        let open = self.entries.iter().filter(|entry| entry.nodes.is_some());
        let mut table = Table {
            title: "Sessions, as ONNX Runtime reports them".to_string(),
            heads: ["who", "nodes", "engines", "opened ms", "again ms"].map(str::to_string).to_vec(),
            rows: open.map(row).collect(),
            text_columns: 2,
            notes: self.missing(),
        };
        // Engines are TensorRT's alone.
        for column in [4, 2] {
            if table.rows.iter().all(|row| row[column].text.is_empty()) {
                table.heads.remove(column);
                table.rows.iter_mut().for_each(|row| drop(row.remove(column)));
                table.text_columns = if column == 2 { 1 } else { table.text_columns };
            }
        }
        table
    }

    /// A line for each that is unavailable, with its reason, and what adds it; the same reason is told once.
    fn missing(&self) -> Vec<String> {
        let mut told: Vec<&str> = Vec::new();
        let mut lines = Vec::new();
        let texts: Vec<(&String, String)> =
            self.unavailable.iter().map(|(name, error)| (name, error.to_string())).collect();
        for (name, text) in &texts {
            let why = text.strip_prefix(&format!("{name} is missing: ")).unwrap_or(text);
            if told.contains(&why) {
                lines.push(format!("{name} is missing for the same reason"));
            } else {
                lines.push(format!("{name} is missing: {why}"));
                told.push(why);
            }
        }
        lines
    }
}

/// The same chart of rows that were measured before.
pub fn benchmark_chart(rows: &[Measurement], what: BenchmarkChart) -> SizeChart {
    let (metric, title, label) = match what {
        BenchmarkChart::Latency => ("latency p50", "The middle call", "time of a call"),
        BenchmarkChart::Throughput => ("throughput", "Examples a second, calls one after another", "examples a second"),
    };
    let rows: Vec<Measurement> = rows.iter().filter(|row| row.metric == metric).cloned().collect();
    over_size(&rows).title(title).x_label("batch").y_label(label)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_slow_call_in_fifty_shows_in_p99_alone() {
        let mut us = vec![100.0; 98];
        us.extend([900.0, 900.0]);
        let latency = Latency {
            implementation: "c".to_string(),
            backend: Backend::Cpu,
            dtype: "f32".to_string(),
            batch: 8,
            us,
            error: 0.0,
        };
        assert_eq!((latency.p50(), latency.p99()), (100.0, 900.0));
        let per_second = 8.0 * 100.0 / (98.0 * 100e-6 + 2.0 * 900e-6);
        assert!((latency.per_second() - per_second).abs() < 1e-6);
        let rows = latency.rows();
        assert_eq!(rows.each_ref().map(|row| row.summary.median), [100.0, 900.0, latency.per_second()]);
        assert!(rows.iter().all(|row| row.size == 8 && row.experiment == "c" && row.dtype == "f32"));
    }

    #[test]
    fn outputs_that_differ_or_are_no_numbers_are_seen() {
        assert_eq!(max_relative_error(&[1.0, -2.0], &[1.0, -2.0]), 0.0);
        assert_eq!(max_relative_error(&[1.0, -2.0], &[1.5, -2.0]), 0.25);
        assert!(max_relative_error(&[1.0, 2.0], &[f32::NAN, 2.0]).is_nan());
        assert!(max_relative_error(&[1.0, 2.0], &[2.0, f32::NAN]).is_nan());
        assert!(max_relative_error(&[1.0], &[1.0, 2.0]).is_nan());
    }
}
