//! Where samples come from: NVML, a recorded trace, or a list that a test has planted.

use crate::sample::Sample;
use gpulab_measure::Result;
use jiff::Timestamp;
use std::collections::{BTreeMap, VecDeque};

/// One GPU, as far as its driver tells.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct GpuInfo {
    /// NVML's number.
    pub index: u32,
    /// Such as `NVIDIA H200`.
    pub name: String,
}

/// What can be asked for samples.
pub trait SampleSource: Send {
    /// The GPUs that it has samples of.
    fn gpus(&self) -> Vec<GpuInfo>;

    /// A sample of each GPU, now. An empty list: there are no more.
    ///
    /// # Errors
    /// When the source as a whole fails; a number that is not to be had is missing in the sample instead.
    fn sample(&mut self) -> Result<Vec<Sample>>;

    /// The fields that were asked for and not given, each with the reason.
    fn missing(&self) -> BTreeMap<&'static str, String> {
        BTreeMap::new()
    }

    /// Where the numbers come from, when they are not measured now.
    fn origin(&self) -> Option<String> {
        None
    }
}

/// Samples that are given out one after the other, those of one moment together, with the times that they have.
#[derive(Debug, Clone, Default)]
pub struct Planted {
    gpus: Vec<GpuInfo>,
    left: VecDeque<Sample>,
    origin: Option<String>,
}

impl Planted {
    /// Of these GPUs; samples in the order of their times.
    pub fn new(gpus: Vec<GpuInfo>, samples: Vec<Sample>, origin: Option<String>) -> Planted {
        Planted { gpus, left: samples.into(), origin }
    }

    /// When the next samples are due.
    pub fn next_time(&self) -> Option<Timestamp> {
        self.left.front().map(|sample| sample.time)
    }
}

impl SampleSource for Planted {
    fn gpus(&self) -> Vec<GpuInfo> {
        self.gpus.clone()
    }

    fn sample(&mut self) -> Result<Vec<Sample>> {
        let Some(time) = self.next_time() else { return Ok(Vec::new()) };
        let together = self.left.iter().take_while(|sample| sample.time == time).count();
        Ok(self.left.drain(..together).collect())
    }

    fn origin(&self) -> Option<String> {
        self.origin.clone()
    }
}

/// A machine without NVML: moments, and not one number. A job's own figures can still be watched.
#[derive(Debug, Clone, Copy, Default)]
pub struct NoGpu;

impl SampleSource for NoGpu {
    fn gpus(&self) -> Vec<GpuInfo> {
        vec![GpuInfo { index: 0, name: "no GPU".to_string() }]
    }

    fn sample(&mut self) -> Result<Vec<Sample>> {
        Ok(vec![Sample { time: Timestamp::now(), ..Sample::default() }])
    }
}
