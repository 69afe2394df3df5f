//! A ladder's rungs and their peers, checked and timed alternately on the same arrays; the run is plain data, to rows and back.

use crate::ladders::Ladder;
use crate::sparse::Csr;
use crate::topics::{
    Allocation, Array, Codes, Cost, HostArray, Launches, Reference, Size, Topic, blocks_of, fits, on_gpu, poisoned,
    reason, relative_error, two_four_of, wrong,
};
use gpulab::bench::Bench;
use gpulab::cpu;
use gpulab::error::{Error, Result};
use gpulab::gpu::{Buffer, Cublas, Gpu, TimedWork};
use gpulab::lesson::Lesson;
use gpulab::measurement::{Backend, Measurement, Summary, figures};
use gpulab::plot::is_rung;
use rayon::prelude::*;
use std::cell::RefCell;
use std::collections::HashMap;
use std::fmt;

/// Every rung of a ladder at one size, beside its peers.
#[derive(Debug, Clone, PartialEq)]
#[must_use = "a run shows itself as the last expression of a cell, without a semicolon"]
pub struct LadderRun {
    /// The ladder.
    pub ladder: Ladder,
    /// The size.
    pub size: Size,
    /// The elements' type, `f32` or `bf16`.
    pub dtype: String,
    /// Bytes that a call must move at least.
    pub bytes: f64,
    /// Additions and multiplications of a call.
    pub operations: f64,
    /// What the GPU's f32 lanes can reach, in TFLOP/s, where its driver tells.
    pub fp32_peak: Option<f64>,
    /// The GPU's name.
    pub machine: String,
    /// The kind of machine.
    pub backend: Backend,
    /// Empty when it ran here, else what it was recorded on.
    pub recorded_on: String,
    /// The rungs in reading order, then the peers.
    pub lines: Vec<RunLine>,
    /// What was left out, and other things to know.
    pub notes: Vec<String>,
}

/// One rung or peer.
#[derive(Debug, Clone, PartialEq)]
pub struct RunLine {
    /// The rung's name, such as `03_whole_warps`, or a peer's, such as `device copy`.
    pub name: String,
    /// The unit of the rate: `GB/s` or `TFLOP/s`.
    pub unit: String,
    /// ms per call.
    pub time: Summary,
    /// By what the call must do at least.
    pub rate: Summary,
    /// ‖result − exact‖ ÷ ‖exact‖ over places spread over the result, in f64; `None` where nothing is computed.
    pub error: Option<f64>,
    /// For a rung, its speed as a multiple of each peer's, repetition by repetition.
    pub against: Vec<(String, Summary)>,
}

/// The rows of a call's bytes and operations.
const CALL: &str = "a call";
const AGAINST: &str = "against ";

impl RunLine {
    pub(crate) fn rung(path: &str, error: f64, unit: &str) -> RunLine {
        RunLine::peer(path.rsplit('/').next().unwrap_or(path), Some(error), unit)
    }

    pub(crate) fn peer(name: &str, error: Option<f64>, unit: &str) -> RunLine {
        let none = Summary { median: f64::NAN, p10: f64::NAN, p90: f64::NAN, samples: 0 };
        RunLine { name: name.into(), unit: unit.into(), time: none, rate: none, error, against: Vec::new() }
    }

    /// Whether it is a peer: rungs begin with their number.
    pub fn is_peer(&self) -> bool {
        !is_rung(&self.name)
    }

    /// Its speed as a multiple of that peer's.
    pub fn ratio(&self, peer: &str) -> Option<Summary> {
        self.against.iter().find(|(name, _)| name == peer).map(|(_, ratio)| *ratio)
    }
}

impl LadderRun {
    pub(crate) fn empty(ladder: Ladder, size: Size, gpu: &Gpu) -> LadderRun {
        LadderRun {
            ladder,
            size,
            dtype: String::new(),
            bytes: 0.0,
            operations: 0.0,
            fp32_peak: gpu.fp32_peak(),
            machine: gpu.name().to_string(),
            backend: gpu.backend(),
            recorded_on: String::new(),
            lines: Vec::new(),
            notes: Vec::new(),
        }
    }

    /// The rungs.
    pub fn rungs(&self) -> impl Iterator<Item = &RunLine> {
        self.lines.iter().filter(|line| !line.is_peer())
    }

    /// The peers; the device copy is the first.
    pub fn peers(&self) -> impl Iterator<Item = &RunLine> {
        self.lines.iter().filter(|line| line.is_peer())
    }

    /// The rung or peer of that name, or of a name that begins so: `03` finds `03_whole_warps`.
    pub fn find(&self, name: &str) -> Option<&RunLine> {
        let exact = self.lines.iter().find(|line| line.name == name);
        exact.or_else(|| self.lines.iter().find(|line| !name.is_empty() && line.name.starts_with(name)))
    }

    /// The median rate of a rung, in the unit of its line.
    ///
    /// # Panics
    /// When nothing of that name took part; the message lists what did. So do its siblings.
    pub fn rate(&self, rung: &str) -> f64 {
        self.line(rung).rate.median
    }

    /// The median rate of a peer, such as `device copy`.
    ///
    /// # Panics
    /// As [`LadderRun::rate`].
    pub fn peer(&self, name: &str) -> f64 {
        self.line(name).rate.median
    }

    fn line(&self, name: &str) -> &RunLine {
        self.find(name).unwrap_or_else(|| {
            let names: Vec<&str> = self.lines.iter().map(|line| line.name.as_str()).collect();
            panic!("no `{name}` took part in this run\nnext: use one of: {}", names.join(", "))
        })
    }

    /// The rates, one row a rung or peer: `experiment` is its name, `metric` is `rate`.
    pub fn rows(&self) -> Vec<Measurement> {
        let mut rows = self.to_rows();
        rows.retain(|row| row.metric == "rate");
        for row in &mut rows {
            row.machine.clone_from(&self.machine);
            row.recorded = !self.recorded_on.is_empty();
        }
        rows
    }

    /// The name under which a lesson stores it.
    pub fn experiment(ladder: Ladder, size: Size) -> String {
        format!("ladder {} {}", ladder.topic(), size.name())
    }

    /// All of it but the notes, as rows.
    pub fn to_rows(&self) -> Vec<Measurement> {
        let row = |name: &str, metric: &str, unit: &str, summary| {
            let size = self.size.numbers()[0];
            Measurement::new(name, self.backend, size, metric, unit, summary).dtype(&self.dtype)
        };
        let once = |value: f64| Summary::of(&[value]);
        let mut rows =
            vec![row(CALL, "bytes", "B", once(self.bytes)), row(CALL, "operations", "FLOP", once(self.operations))];
        rows.extend(self.fp32_peak.map(|peak| row(CALL, "f32 peak", "TFLOP/s", once(peak))));
        for line in &self.lines {
            rows.push(row(&line.name, "rate", &line.unit, line.rate));
            rows.push(row(&line.name, "time", "ms", line.time));
            rows.extend(line.error.map(|error| row(&line.name, "error", "of the result", once(error))));
            let ratios = line.against.iter();
            rows.extend(ratios.map(|(peer, ratio)| row(&line.name, &format!("{AGAINST}{peer}"), "ratio", *ratio)));
        }
        rows
    }

    /// The run of such rows; other rows are passed over.
    pub fn from_rows(ladder: Ladder, size: Size, rows: &[Measurement]) -> LadderRun {
        let first = rows.first();
        let call = |metric: &str| {
            rows.iter().find(|row| row.experiment == CALL && row.metric == metric).map_or(0.0, |row| row.summary.median)
        };
        let mut run = LadderRun {
            ladder,
            size,
            dtype: first.map_or(String::new(), |row| row.dtype.clone()),
            bytes: call("bytes"),
            operations: call("operations"),
            fp32_peak: Some(call("f32 peak")).filter(|peak| *peak > 0.0),
            machine: first.map_or(String::new(), |row| row.machine.clone()),
            backend: first.map_or(Backend::Cuda, |row| row.backend),
            recorded_on: first.filter(|row| row.recorded).map_or(String::new(), |row| row.machine.clone()),
            lines: Vec::new(),
            notes: Vec::new(),
        };
        for row in rows.iter().filter(|row| row.experiment != CALL) {
            if row.metric == "rate" {
                let line = RunLine::peer(&row.experiment, None, &row.unit);
                run.lines.push(RunLine { rate: row.summary, ..line });
            }
            let Some(line) = run.lines.iter_mut().find(|line| line.name == row.experiment) else { continue };
            match row.metric.as_str() {
                "time" => line.time = row.summary,
                "error" => line.error = Some(row.summary.median),
                metric => {
                    let peer = metric.strip_prefix(AGAINST).map(|peer| (peer.to_string(), row.summary));
                    line.against.extend(peer);
                }
            }
        }
        run
    }
}

impl fmt::Display for LadderRun {
    /// A table: µs per call, rate, % of each peer, error.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let place = if self.recorded_on.is_empty() { "on" } else { "recorded on" };
        writeln!(f, "{} {} of {}, {place} {}", self.ladder.topic(), self.dtype, self.size, self.machine)?;
        for line in &self.lines {
            let us = figures(line.time.median * 1e3);
            write!(f, "{:24} {us:>9} µs {:>9} {:7}", line.name, figures(line.rate.median), line.unit)?;
            for (peer, ratio) in &line.against {
                write!(f, "  {:5.1} % of {peer}", 100.0 * ratio.median)?;
            }
            match line.error {
                Some(error) => writeln!(f, "  off by {error:.1e}")?,
                None => writeln!(f)?,
            }
        }
        self.notes.iter().try_for_each(|note| writeln!(f, "{note}"))
    }
}

/// How a ladder is timed: samples are long enough that the gap between two of them weighs nothing.
pub const CHECKS: Bench = Bench { warm_ups: 1, samples: 21, min_sample_ms: 1.0, budget_ms: 2000.0 };
/// The name of the copy from device memory to device memory.
pub(crate) const COPY: &str = "device copy";
/// Beyond this error, relative to the result, a rung counts as wrong. Each was checked closely at small sizes before;
/// a long chain of f32 additions reaches 5e-4.
const WRONG: f64 = 0.02;
/// Of fewer results than this, one may be right by luck: then all sets of inputs are checked.
const FEW: usize = 64;

/// What takes part beside the rungs.
pub struct Peer<'a> {
    /// Its name in tables.
    pub name: String,
    /// Its error against f64, relative to the result, where it is known already.
    pub error: Option<f64>,
    /// What it does.
    pub work: PeerWork<'a>,
}

/// Queues a call that reads the first arrays and writes the second.
pub type OnArrays<'a> = Box<dyn FnMut(&[Array], &mut [Array]) -> Result<()> + 'a>;

/// What a peer does.
pub enum PeerWork<'a> {
    /// Queues a call on the rungs' own arrays.
    OnArrays(OnArrays<'a>),
    /// Queues a call on arrays of its own, and is given the call's number.
    Calls(Box<dyn FnMut(usize) -> Result<()> + 'a>),
    /// Takes one sample by a clock of its own, in ms per call.
    Clocked(Box<dyn FnMut() -> Result<f64> + 'a>),
}

/// Which rungs take part.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Languages {
    /// Those of the ladder, in CUDA C.
    CudaC,
    /// Their twins in Rust beside them, each compared with its own.
    WithRust,
}

/// What is about to be timed, as a peer may want to see it.
pub struct Workload<'a> {
    /// The ladder.
    pub ladder: Ladder,
    /// The size.
    pub size: Size,
    /// What a call must do.
    pub work: Cost,
    /// The inputs, in several sets that calls cycle through.
    pub sets: &'a [Vec<HostArray>],
    /// Results in f64, of the first set or of several.
    pub exact: &'a [Vec<Reference>],
}

/// Sets of outputs for each shape that a rung asks for: most rungs of a ladder ask for the same one.
type Outputs = HashMap<Vec<Allocation>, RefCell<Vec<Vec<Array>>>>;

impl Ladder {
    /// In a lesson: [`Ladder::run`] at that size where there is a GPU, else the recorded run.
    ///
    /// # Errors
    /// As [`Ladder::run`] and [`Lesson::measure`].
    pub fn measure(&self, lesson: &Lesson, size: impl Into<Size>) -> Result<LadderRun> {
        let (ladder, size) = (*self, self.size(size)?);
        lesson.measure_as(
            &LadderRun::experiment(ladder, size),
            |gpu| ladder.run(gpu, size),
            |run, _| run.to_rows(),
            |rows| LadderRun::from_rows(ladder, size, rows),
        )
    }

    /// Runs every rung that this GPU runs at that size: each is checked against f64, then all are timed interleaved, with
    /// a copy in device memory and, where it is there, the vendor's library. Rungs that it cannot run are named.
    ///
    /// # Errors
    /// [`Error::Unsupported`] on a simulated GPU, [`Error::Invalid`] for a size that is none or a rung that is wrong,
    /// [`Error::OutOfMemory`] for one that is too large, [`Error::Driver`].
    pub fn run(self, gpu: &Gpu, size: impl Into<Size>) -> Result<LadderRun> {
        self.run_with(gpu, self.size(size)?, &CHECKS, Languages::CudaC, &mut |_| Ok(Vec::new()))
    }

    /// The same by a plan of your own, beside more peers: `peers` is shown the data, and gives what takes part.
    ///
    /// # Errors
    /// As [`Ladder::run`], and those of the peers.
    pub fn run_with<'a>(
        self,
        gpu: &Gpu,
        size: Size,
        plan: &Bench,
        languages: Languages,
        peers: &mut dyn FnMut(&Workload<'_>) -> Result<Vec<Peer<'a>>>,
    ) -> Result<LadderRun> {
        let size = self.size(size)?;
        gpu.has_times()?;
        let mut run = LadderRun::empty(self, size, gpu);
        let rungs = open(self, gpu, size, languages, &mut run)?;
        let Some((_, first)) = rungs.first() else {
            return Err(Error::unsupported(
                format!("{gpu} runs no rung of the ladder {}", self.topic()),
                "see the recorded run (`ladder.measure(&lesson, size)`)",
            ));
        };
        let work = first.work(size)?;
        (run.dtype, run.bytes, run.operations) = (work.dtype.to_string(), work.bytes as f64, work.operations);
        let count = gpu.sets_past_cache(work.bytes);
        fits(gpu, &work, count)?;
        let sets = (0..count as u64).map(|seed| first.inputs(size, seed)).collect::<Result<Vec<_>>>()?;
        let inputs = sets.iter().map(|hosts| on_gpu(gpu, hosts)).collect::<Result<Vec<_>>>()?;
        let mut exact = vec![first.exact(&sets[0], size)?];
        if exact[0].iter().map(|piece| piece.values.len()).sum::<usize>() < FEW {
            exact.extend(sets[1..].iter().map(|set| first.exact(set, size)).collect::<Result<Vec<_>>>()?);
        }

        let mut outputs = Outputs::new();
        let mut shapes = Vec::new();
        for (_, rung) in &rungs {
            let shape = rung.outputs(size)?;
            if !outputs.contains_key(&shape) {
                let sets = (0..count).map(|_| poisoned(gpu, &shape)).collect::<Result<_>>()?;
                outputs.insert(shape.clone(), RefCell::new(sets));
            }
            shapes.push(shape);
        }
        let parts = parts(gpu, &inputs, &work)?;
        let sources: Vec<&Array> = match parts.is_empty() {
            true => inputs.iter().map(|set| largest(set)).collect(),
            false => parts.iter().collect(),
        };
        let mut targets: Vec<Array> = sources.iter().map(|from| Array::like(gpu, from)).collect::<Result<Vec<_>>>()?;
        let mut taking_part = Vec::new();
        // Device events see no copy on a Mac: its CPU makes them, in memory that it shares with the GPU.
        match gpu.backend() {
            Backend::Metal => run.notes.push("no device copy: on a Mac it is the CPU that copies".to_string()),
            _ => taking_part.push(copy(&sources, &mut targets)),
        }
        let job = Workload { ladder: self, size, work, sets: &sets, exact: &exact };
        taking_part.extend(self.vendor(gpu, &job, &mut run.notes)?);
        taking_part.extend(peers(&job)?);

        let mut timed = Vec::new();
        for ((path, rung), shape) in rungs.iter().zip(&shapes) {
            let outputs = &outputs[shape];
            let queue =
                |set: usize| rung.call(&inputs[set], &mut outputs.borrow_mut()[set], size, &mut Launches::queue());
            let error = checked(&mut outputs.borrow_mut()[0], &exact, |set, arrays| {
                rung.call(&inputs[set], arrays, size, &mut Launches::queue())
            })?;
            if error.is_nan() || error > WRONG {
                return Err(wrong(path, format!("size {size}: off by {error:.1e} of the result")));
            }
            run.lines.push(RunLine::rung(path, error, work.unit()));
            timed.push(TimedWork::Calls(Box::new(move |call| queue(call % count))));
        }
        let outputs = &outputs[&shapes[0]];
        for peer in taking_part {
            let Peer { name, mut error, work: peer_work } = peer;
            let copies = name == COPY;
            timed.push(match peer_work {
                PeerWork::OnArrays(mut call) => {
                    let call_on = |set: usize, arrays: &mut [Array]| call(&inputs[set], arrays);
                    error = Some(checked(&mut outputs.borrow_mut()[0], &exact, call_on)?);
                    let inputs = &inputs;
                    TimedWork::Calls(Box::new(move |at| {
                        let set = at % count;
                        call(&inputs[set], &mut outputs.borrow_mut()[set])
                    }))
                }
                PeerWork::Calls(call) => TimedWork::Calls(call),
                PeerWork::Clocked(sample) => TimedWork::Clocked(sample),
            });
            run.lines.push(RunLine::peer(&name, error, if copies { "GB/s" } else { work.unit() }));
        }
        let copied = 2 * sources[0].bytes();
        let samples = gpu.time_interleaved(plan, &mut timed)?;
        let rates: Vec<Vec<f64>> = run
            .lines
            .iter()
            .zip(&samples)
            .map(|(line, samples)| {
                let rate = |&ms: &f64| if line.name == COPY { copied as f64 / ms / 1e6 } else { work.rate(ms) };
                samples.iter().map(rate).collect()
            })
            .collect();
        let peers: Vec<(usize, RunLine)> =
            run.lines.iter().cloned().enumerate().filter(|(_, line)| line.is_peer()).collect();
        let names: Vec<String> = run.lines.iter().map(|line| line.name.clone()).collect();
        for (at, line) in run.lines.iter_mut().enumerate() {
            (line.time, line.rate) = (Summary::of(&samples[at]), Summary::of(&rates[at]));
            if line.is_peer() {
                continue;
            }
            for (peer_at, peer) in peers.iter().filter(|(_, peer)| peer.unit == line.unit) {
                let ratios: Vec<f64> =
                    rates[at].iter().zip(&rates[*peer_at]).map(|(ours, theirs)| ours / theirs).collect();
                line.against.push((peer.name.clone(), Summary::of(&ratios)));
            }
            if let Some(twin) =
                line.name.strip_suffix(".rs").and_then(|twin| names.iter().position(|name| name == twin))
            {
                let ratios: Vec<f64> = rates[at].iter().zip(&rates[twin]).map(|(rust, cuda)| rust / cuda).collect();
                line.against.push((names[twin].clone(), Summary::of(&ratios)));
            }
        }
        Ok(run)
    }
}

/// The rungs that this GPU runs; the others go into the notes. Twins in Rust stand behind their CUDA C.
fn open(
    ladder: Ladder,
    gpu: &Gpu,
    size: Size,
    languages: Languages,
    run: &mut LadderRun,
) -> Result<Vec<(String, Box<dyn Topic>)>> {
    let mut rungs = Vec::new();
    for rung in ladder.rungs() {
        let in_rust = languages == Languages::WithRust && rung.rust_source().is_ok();
        let paths = [Some(rung.path.to_string()), in_rust.then(|| format!("{}.rs", rung.path))];
        for path in paths.into_iter().flatten() {
            match rung.supported_on(gpu).and_then(|()| ladder.open(gpu, &path)) {
                Ok(opened) => {
                    if let Some(other) = opened.hands_to(size) {
                        run.notes.push(format!("`{path}` hands this size to `{other}`"));
                    }
                    rungs.push((path, opened));
                }
                // Too old a GPU, or blocks with more shared memory than its multiprocessors have.
                Err(error @ (Error::Unsupported { .. } | Error::LaunchLimit { .. })) => {
                    let why = reason(&error);
                    let who = if why.contains(rung.path) { String::new() } else { format!("`{path}`: ") };
                    run.notes.push(format!("left out: {who}{why}"));
                }
                Err(error) => return Err(error),
            }
        }
    }
    Ok(rungs)
}

/// Calls it on each set of inputs, with poisoned outputs, and gives its error.
fn checked(
    outputs: &mut [Array],
    exact: &[Vec<Reference>],
    mut call: impl FnMut(usize, &mut [Array]) -> Result<()>,
) -> Result<f64> {
    let needed = exact.iter().flatten().map(|piece| piece.output).max().map_or(0, |last| last + 1);
    relative_error(exact, |set| {
        outputs.iter_mut().try_for_each(Array::poison)?;
        call(set, outputs)?;
        outputs[..needed].iter().map(Array::to_host).collect()
    })
}

fn largest(set: &[Array]) -> &Array {
    set.iter().max_by_key(|array| array.bytes()).expect("a topic reads at least one array")
}

/// What the copy reads where the largest input is more than a call moves, such as a table of which it needs a few rows:
/// random numbers, half as many bytes as the call moves, for each set. Else none: the copy reads the largest input.
fn parts(gpu: &Gpu, inputs: &[Vec<Array>], work: &Cost) -> Result<Vec<Array>> {
    let part = |seed| Array::new(gpu, &HostArray::F32(cpu::random_f32(work.bytes / 2 / size_of::<f32>(), seed)));
    let whole = |set: &Vec<Array>| largest(set).bytes() <= work.bytes;
    if inputs.iter().all(whole) { Ok(Vec::new()) } else { (0..inputs.len() as u64).map(part).collect() }
}

/// A copy in device memory, of another array in each call.
fn copy<'a>(sources: &'a [&'a Array], targets: &'a mut [Array]) -> Peer<'a> {
    let work = move |call: usize| {
        let set = call % sources.len();
        targets[set].copy_from(sources[set])
    };
    Peer { name: COPY.to_string(), error: None, work: PeerWork::Calls(Box::new(work)) }
}

impl Ladder {
    /// The vendor's library for it, on the rungs' own arrays; where it is not there, a note says so.
    fn vendor<'a>(self, gpu: &Gpu, job: &Workload<'_>, notes: &mut Vec<String>) -> Result<Vec<Peer<'a>>> {
        if !matches!(
            self,
            Ladder::Matmul
                | Ladder::MatmulBf16
                | Ladder::QuantizedGemv
                | Ladder::QuantizedGemvInt8
                | Ladder::QuantizedMatmul
                | Ladder::Spmm
                | Ladder::BlockSparse
                | Ladder::TwoFour
        ) {
            // CUB and PyTorch are no libraries to load: `env/baselines/record_ladders.py` brings them along.
            return Ok(Vec::new());
        }
        let blas = match Cublas::new(gpu) {
            Ok(blas) => blas,
            Err(error) => {
                notes.push(format!("left out: {}", reason(&error)));
                return Ok(Vec::new());
            }
        };
        notes.push(format!("cuBLAS {}: f32 without TF32, bf16 with sums in f32", blas.version()));
        let bf16 = match self {
            Ladder::Matmul => false,
            Ladder::MatmulBf16 => true,
            Ladder::Spmm | Ladder::BlockSparse | Ladder::TwoFour => return dense(gpu, &blas, job),
            _ => return unpacked(gpu, &blas, job),
        };
        let sides = job.size.three()?;
        let call = move |inputs: &[Array], outputs: &mut [Array]| match bf16 {
            true => blas.multiply(inputs[0].bf16()?, inputs[1].bf16()?, outputs[0].bf16_mut()?, sides),
            false => blas.multiply(inputs[0].f32()?, inputs[1].f32()?, outputs[0].f32_mut()?, sides),
        };
        Ok(vec![Peer { name: "cuBLAS".to_string(), error: None, work: PeerWork::OnArrays(Box::new(call)) }])
    }
}

/// cuBLAS on the same weights, unpacked to bf16: what they cost without quantization. Its rate counts the packed bytes. As
/// it is faster with one order of the weights or the other, both take part.
fn unpacked<'a>(gpu: &Gpu, blas: &Cublas, job: &Workload<'_>) -> Result<Vec<Peer<'a>>> {
    let (batch, rows, columns) = match job.size {
        Size::Two(rows, columns) => (1, rows, columns),
        _ => job.size.three()?,
    };
    let codes = if job.ladder == Ladder::QuantizedGemvInt8 { Codes::INT8 } else { Codes::INT4 };
    let in_fragments = job.ladder == Ladder::QuantizedMatmul;
    let by_rows = codes.unpacked(&job.sets[0], (rows, columns), in_fragments);
    let by_columns = (0..rows * columns).into_par_iter().map(|at| by_rows[at % rows * columns + at / rows]).collect();
    let mut peers = Vec::new();
    for (name, weights, transposed) in
        [("cuBLAS bf16 T", by_rows, true), ("cuBLAS bf16 N", by_columns, false)] as [(_, Vec<u16>, _); 2]
    {
        // The first set's weights for all, each time in other memory.
        let first = gpu.to_device(&weights)?;
        let set = |hosts: &Vec<HostArray>| {
            let mut own = gpu.alloc(first.len())?;
            own.copy_from_buffer(&first)?;
            let HostArray::Bf16(x) = &hosts[2] else { unreachable!("x is bf16") };
            Ok((own, gpu.to_device(x)?, gpu.poison::<u16>(batch * rows)?))
        };
        let mut sets = job.sets.iter().map(set).collect::<Result<Vec<_>>>()?;
        let blas = blas.clone();
        let call = move |(weights, x, y): &mut (Buffer<u16>, Buffer<u16>, Buffer<u16>)| match transposed {
            true => blas.multiply_transposed(x, weights, y, (batch, rows, columns)),
            false => blas.multiply(x, weights, y, (batch, rows, columns)),
        };
        // The weights are rounded once more than the kernels' own.
        let error = relative_error(&job.exact[..1], |set| {
            call(&mut sets[set])?;
            Ok(vec![HostArray::Bf16(sets[set].2.to_host()?)])
        });
        let work = move |at: usize| {
            let count = sets.len();
            call(&mut sets[at % count])
        };
        peers.push(Peer { name: name.to_string(), error: error.ok(), work: PeerWork::Calls(Box::new(work)) });
    }
    Ok(peers)
}

/// cuBLAS on the same matrix with its zeros. Its rate counts the sparse product's operations.
fn dense<'a>(gpu: &Gpu, blas: &Cublas, job: &Workload<'_>) -> Result<Vec<Peer<'a>>> {
    let (first, second, third) = job.size.three()?;
    let sides = if job.ladder == Ladder::TwoFour { (first, second, third) } else { (first, second, first) };
    let set = |hosts: &Vec<HostArray>| {
        let a = with_zeros(job.ladder, hosts, sides.2);
        let b = hosts.last().expect("b is the last input");
        let c =
            if b.dtype() == "f32" { Allocation::F32(sides.0 * sides.1) } else { Allocation::Bf16(sides.0 * sides.1) };
        Ok((Array::new(gpu, &a)?, Array::new(gpu, b)?, Array::poisoned(gpu, c)?))
    };
    let mut sets = job.sets.iter().map(set).collect::<Result<Vec<_>>>()?;
    let blas = blas.clone();
    let call = move |(a, b, c): &mut (Array, Array, Array)| match a {
        Array::F32(a) => blas.multiply(a, b.f32()?, c.f32_mut()?, sides),
        _ => blas.multiply(a.bf16()?, b.bf16()?, c.bf16_mut()?, sides),
    };
    let error = relative_error(&job.exact[..1], |set| {
        call(&mut sets[set])?;
        Ok(vec![sets[set].2.to_host()?])
    });
    let work = move |at: usize| {
        let count = sets.len();
        call(&mut sets[at % count])
    };
    let work = PeerWork::Calls(Box::new(work));
    Ok(vec![Peer { name: "cuBLAS, dense".to_string(), error: error.ok(), work }])
}

/// The sparse matrix of such inputs, row-major with its zeros.
fn with_zeros(ladder: Ladder, inputs: &[HostArray], columns: usize) -> HostArray {
    let bf16 = |rows: Vec<Vec<f32>>| HostArray::Bf16(rows.concat().into_iter().map(cpu::bf16_from_f32).collect());
    match (ladder, inputs) {
        (Ladder::Spmm, [HostArray::Index(starts), HostArray::Index(indices), HostArray::F32(values), ..]) => {
            let csr = Csr { columns, starts: starts.clone(), indices: indices.clone(), values: values.clone() };
            HostArray::F32(csr.to_dense())
        }
        (Ladder::TwoFour, inputs) => {
            let a = two_four_of(inputs, columns);
            let rows = a.values.len() * 2 / columns.next_multiple_of(64).max(1);
            bf16((0..rows).into_par_iter().map(|row| a.row(row)).collect())
        }
        _ => {
            let a = blocks_of(inputs, columns);
            bf16((0..columns).into_par_iter().map(|row| a.row(row)).collect())
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_run_survives_the_way_through_rows() {
        let summary = |median| Summary { median, p10: median / 2.0, p90: median * 2.0, samples: 21 };
        let mut rung = RunLine::rung("matmul/01_naive", 1e-7, "TFLOP/s");
        (rung.time, rung.rate) = (summary(2.0), summary(5.0));
        rung.against = vec![("cuBLAS".to_string(), summary(0.5))];
        let mut peer = RunLine::peer("device copy", None, "GB/s");
        (peer.time, peer.rate) = (summary(0.1), summary(4000.0));
        let run = LadderRun {
            dtype: "f32".to_string(),
            bytes: 12.0,
            operations: 16.0,
            fp32_peak: Some(66.9),
            lines: vec![rung, peer],
            ..LadderRun::empty(Ladder::Matmul, Size::Three(2, 3, 4), &Gpu::simulated().unwrap())
        };
        let mut rows = run.to_rows();
        rows.iter_mut().for_each(|row| row.machine.clone_from(&run.machine));
        assert_eq!(LadderRun::from_rows(run.ladder, run.size, &rows), run);
        assert_eq!((run.rate("01"), run.peer("device copy")), (5.0, 4000.0));
        assert_eq!(
            run.rows().iter().map(|row| row.experiment.as_str()).collect::<Vec<_>>(),
            ["01_naive", "device copy"]
        );
        let text = run.to_string();
        assert!(text.contains("2 × 3 × 4") && text.contains(" 50.0 % of cuBLAS"), "{text}");
        let panic = std::panic::catch_unwind(|| run.rate("99")).unwrap_err();
        assert!(panic.downcast_ref::<String>().unwrap().contains("next: use one of: 01_naive, device copy"));
    }

    /// The arrays, the call and the reference of every topic fit together. The rungs' own tests know more sizes.
    #[test]
    fn every_rung_is_right_on_the_shared_arrays() {
        let gpu = Gpu::simulated().unwrap();
        for &ladder in Ladder::ALL {
            let tables = [Size::Two(33, 104), Size::Two(33, 256)];
            let threes = [Size::Three(33, 40, 24), Size::Three(2, 33, 64), Size::Three(3, 33, 256)];
            let size = [&[Size::One(5000)][..], &tables, &threes]
                .concat()
                .into_iter()
                .find(|&size| ladder.size(size).is_ok_and(|taken| taken == size))
                .unwrap();
            for path in ladder.rungs().iter().filter(|rung| !rung.only).map(|rung| rung.path) {
                let rung = ladder.open(&gpu, path).unwrap_or_else(|error| panic!("{error}"));
                let hosts = rung.inputs(size, 3).unwrap();
                let inputs: Vec<Array> = hosts.iter().map(|host| Array::new(&gpu, host).unwrap()).collect();
                let room = rung.outputs(size).unwrap();
                let mut outputs: Vec<Array> = room.iter().map(|&room| Array::poisoned(&gpu, room).unwrap()).collect();
                let call = |_, outputs: &mut [Array]| rung.call(&inputs, outputs, size, &mut Launches::queue());
                let error = checked(&mut outputs, &[rung.exact(&hosts, size).unwrap()], call);
                let error = error.unwrap_or_else(|error| panic!("{path}: {error}"));
                assert!(error < 0.01, "{path} at {size}: {error}");
            }
        }
    }

    #[test]
    fn the_copy_moves_no_more_than_a_call() {
        let gpu = Gpu::simulated().unwrap();
        let inputs = [vec![Array::new(&gpu, &HostArray::F32(vec![0.0; 1000])).unwrap()]];
        let parts = |bytes| parts(&gpu, &inputs, &Cost::of_bytes(bytes, 0.0, "f32")).unwrap();
        // A sum reads all of its input; a lookup a few rows of a table.
        assert!(parts(4000).is_empty());
        assert_eq!(parts(1600).iter().map(Array::bytes).collect::<Vec<_>>(), [800]);
    }

    #[test]
    fn a_number_that_is_never_written_shows() {
        let gpu = Gpu::simulated().unwrap();
        let mut outputs = [Array::poisoned(&gpu, Allocation::F32(8)).unwrap()];
        let exact = [vec![Reference::new(0, 2, vec![1.0], |_, _| 0.0)]];
        assert!(checked(&mut outputs, &exact, |_, _| Ok(())).unwrap().is_nan());
    }
}
