//! One model, computed in several ways in turns, over batch sizes.

use super::contestant::{Contestant, OnnxContestant};
use super::latency::Latency;
use super::port::Dimension;
use super::provider::{Missing, Provider};
use super::tensor::{OnnxData, OnnxTensor};
use super::{OnnxModel, TensorRt};
use gpulab::cpu::random_f32;
use gpulab::error::{Error, Result};
use gpulab::gpu::Gpu;
use gpulab::measurement::Backend;
use std::path::Path;
use std::time::Duration;

/// A turn takes at most so long, and at most so many calls, for each contestant.
const TURN_MS: f64 = 60.0;
const MOST_CALLS: usize = 40;
const REST: Duration = Duration::from_millis(10);

/// Who takes part, and what was read of its session.
pub struct Entry {
    /// Who computes.
    pub contestant: Box<dyn Contestant>,
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

impl Entry {
    /// Somebody who is no session of ONNX Runtime.
    pub fn of(contestant: impl Contestant + 'static) -> Entry {
        let contestant = Box::new(contestant);
        Entry { contestant, tolerance: 1e-4, open_ms: None, again_ms: None, engines: None, nodes: None }
    }

    /// The file on that provider. TensorRT opens it twice: its engine is built, then found.
    ///
    /// # Errors
    /// As [`OnnxModel::open`].
    pub fn open(path: &Path, provider: Provider) -> Result<Entry> {
        Entry::open_as(&provider.to_string(), path, provider)
    }

    /// The same under another name, for two files on one provider.
    ///
    /// # Errors
    /// As [`OnnxModel::open`].
    pub fn open_as(name: &str, path: &Path, provider: Provider) -> Result<Entry> {
        let mut model = OnnxModel::open(path, provider.clone())?;
        let (open_ms, mut again_ms, mut engines) =
            (model.open_ms(), None, model.engines().map(|used| used.to_string()));
        if let Some(first) = &engines {
            drop(model);
            model = OnnxModel::open(path, provider.clone())?;
            again_ms = Some(model.open_ms());
            engines = model.engines().map(|used| format!("{first}, then {used}"));
        }
        let tolerance = match &provider {
            // Half precision has 11 bits. TensorRT's fp32 may use TF32, which rounds factors to as many.
            Provider::TensorRt(_) | Provider::CoreMl => 2e-2,
            _ => 1e-4,
        };
        let nodes = Some(model.where_it_runs()?);
        let contestant = Box::new(OnnxContestant { name: name.to_string(), model });
        Ok(Entry { contestant, tolerance, open_ms: Some(open_ms), again_ms, engines, nodes })
    }
}

/// One model in several ways: [`Race::run`] times them in turns, [`Race::report`] shows what came out.
pub struct Race {
    /// What is computed.
    pub title: String,
    /// Those who take part; outputs are held against the first one's.
    pub entries: Vec<Entry>,
    /// Those who cannot, and why, with what adds them.
    pub absent: Vec<(String, Error)>,
    /// What was measured.
    pub latencies: Vec<Latency>,
    inputs: Vec<super::Port>,
    /// The NVIDIA GPU's name, if there is one.
    gpu: Option<String>,
}

impl Race {
    /// How often everybody has its turn at a batch size; the calls of a turn follow each other.
    pub const TURNS: usize = 12;

    /// The file on the CPU; others join.
    ///
    /// # Errors
    /// As [`OnnxModel::open`].
    pub fn new(path: &Path) -> Result<Race> {
        let inputs = OnnxModel::open(path, Provider::Cpu)?.inputs().to_vec();
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        let title = format!("{name} by ONNX Runtime {}", super::version()?);
        let entries = vec![Entry::open(path, Provider::Cpu)?];
        let gpu = Gpu::open_index(0).ok().map(|gpu| gpu.name().to_string());
        Ok(Race { title, entries, absent: Vec::new(), latencies: Vec::new(), inputs, gpu })
    }

    /// Lets the file join on each of these providers; one that is missing is noted with its reason, and with who takes its
    /// place.
    ///
    /// # Errors
    /// When a provider is there and the file does not open on it.
    pub fn join(&mut self, path: &Path, providers: &[Provider]) -> Result<()> {
        for provider in providers {
            match provider.look()? {
                Some(missing) => self.leave_out(missing),
                None => self.entries.push(Entry::open(path, provider.clone())?),
            }
        }
        Ok(())
    }

    /// Lets another form of the same network join under a name of its own. Where its provider is missing, that was noted when
    /// the first form joined.
    ///
    /// # Errors
    /// As [`Race::join`].
    pub fn join_as(&mut self, name: &str, path: &Path, provider: Provider) -> Result<()> {
        if provider.look()?.is_none() {
            self.entries.push(Entry::open_as(name, path, provider)?);
        }
        Ok(())
    }

    /// On which machine a contestant of that kind computes.
    pub(super) fn machine(&self, backend: Backend) -> String {
        match (&self.gpu, backend) {
            (Some(name), Backend::Cuda) => name.clone(),
            _ => gpulab::cpu::info().short_name(),
        }
    }

    fn leave_out(&mut self, missing: Missing) {
        self.absent.push((missing.provider.to_string(), missing.into()));
    }

    /// TensorRT with one engine for all batches from 1 to `most`, where the model's inputs have nothing else that is free.
    pub fn tensorrt(&self, fp16: bool, most: usize) -> Provider {
        let options = if fp16 { TensorRt::fp16() } else { TensorRt::default() };
        let whole = self.inputs.iter().fold(options, |options, port| {
            let at = |batch: usize| extents(port, batch);
            options.shapes(&port.name, &at(1), &at(most.div_ceil(4)), &at(most))
        });
        Provider::TensorRt(whole)
    }

    /// Random inputs for that many examples: numbers in 0 … 1, whole numbers 0; every free dimension is the batch.
    ///
    /// # Errors
    /// For an input of another type.
    pub fn inputs(&self, batch: usize) -> Result<Vec<(String, OnnxTensor)>> {
        let one = |(at, port): (usize, &super::Port)| {
            let shape = extents(port, batch);
            let count = shape.iter().product();
            let data: OnnxData = match port.kind.as_str() {
                "f32" => random_f32(count, at as u64 + 1).into(),
                "i64" => vec![0i64; count].into(),
                "i32" => vec![0i32; count].into(),
                other => {
                    return Err(Error::Unsupported {
                        what: format!(
                            "input `{}` is of {other}, and inputs are made of f32 and whole numbers",
                            port.name
                        ),
                        fix: "time a model with such inputs".to_string(),
                    });
                }
            };
            Ok((port.name.clone(), OnnxTensor::new(&shape, data)?))
        };
        self.inputs.iter().enumerate().map(one).collect()
    }

    /// Checks all outputs against the first one's, then times everybody in turns, at each batch size.
    ///
    /// # Errors
    /// When outputs differ by more than the entry's tolerance, and what a contestant reports.
    pub fn run(&mut self, batches: &[usize]) -> Result<()> {
        for &batch in batches {
            let inputs = self.inputs(batch)?;
            let inputs: Vec<(&str, &OnnxTensor)> =
                inputs.iter().map(|(name, tensor)| (name.as_str(), tensor)).collect();
            let found = lap(&mut self.entries, &inputs, batch)?;
            self.latencies.extend(found);
        }
        Ok(())
    }
}

/// One batch size.
fn lap(entries: &mut [Entry], inputs: &[(&str, &OnnxTensor)], batch: usize) -> Result<Vec<Latency>> {
    let mut first: Vec<f32> = Vec::new();
    let mut found = Vec::new();
    for (at, entry) in entries.iter_mut().enumerate() {
        entry.contestant.set(inputs)?;
        let output = entry.contestant.output()?;
        if at == 0 {
            first.clone_from(&output);
        }
        let error = apart(&first, &output);
        if error.is_nan() || error > entry.tolerance {
            return Err(Error::Invalid {
                what: format!(
                    "at batch {batch} the outputs of {} lie {error:.1e} from those of the first contestant; {:.0e} was allowed",
                    entry.contestant.name(),
                    entry.tolerance
                ),
                fix: "its times mean nothing: see that both have the same weights and inputs".to_string(),
            });
        }
        let (backend, dtype) = (entry.contestant.backend(), entry.contestant.dtype());
        found.push(Latency { contestant: entry.contestant.name(), backend, dtype, batch, us: Vec::new(), error });
    }
    let mut counts = Vec::new();
    for entry in entries.iter_mut() {
        let us = entry.contestant.calls(3)?;
        let typical = us.iter().copied().fold(f64::INFINITY, f64::min);
        counts.push(((TURN_MS * 1e3 / typical) as usize).clamp(2, MOST_CALLS));
    }
    for turn in 0..Race::TURNS {
        let mut order: Vec<usize> = (0..entries.len()).collect();
        if turn % 2 == 1 {
            order.reverse();
        }
        for at in order {
            // Threads of the one before wait in a loop for more work, and would take cores from this one.
            std::thread::sleep(REST);
            found[at].us.extend(entries[at].contestant.calls(counts[at])?);
        }
    }
    Ok(found)
}

/// The largest difference, over the largest number of the first; NaN where the lengths differ.
fn apart(first: &[f32], other: &[f32]) -> f64 {
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

fn extents(port: &super::Port, batch: usize) -> Vec<usize> {
    let extent = |extent: &Dimension| match extent {
        Dimension::Fixed(n) => *n,
        Dimension::Free(_) => batch,
    };
    port.shape.iter().map(extent).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn outputs_that_differ_or_are_no_numbers_are_seen() {
        assert_eq!(apart(&[1.0, -2.0], &[1.0, -2.0]), 0.0);
        assert_eq!(apart(&[1.0, -2.0], &[1.5, -2.0]), 0.25);
        assert!(apart(&[1.0, 2.0], &[f32::NAN, 2.0]).is_nan());
        assert!(apart(&[1.0, 2.0], &[2.0, f32::NAN]).is_nan());
        assert!(apart(&[1.0], &[1.0, 2.0]).is_nan());
    }
}
