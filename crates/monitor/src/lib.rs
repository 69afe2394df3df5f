//! Watching a GPU through NVML: samples, traces, alerts, Prometheus, a live chart.
//!
//! | module | what it holds |
//! | --- | --- |
//! | [`sample`] | what is known of one GPU at one moment: the one list of numbers, and JSON |
//! | [`source`] | where samples come from |
//! | `nvml` | NVML, by nvml-wrapper; not on macOS, which has none |
//! | [`trace`] | samples in a file: recorded and read again |
//! | [`alerts`] | rules with a duration, and what they say of samples |
//! | [`prometheus`] | the text that Prometheus reads, and the address that it reads it from |
//! | [`chart`] | samples as text for a terminal and as a chart |
//! | [`live`] | a thread that samples, and a chart in a notebook that redraws itself |
//! | [`planted`] | a trace that is made up and says so, for tests and examples |
//!
//! ```
//! use gpulab_monitor::{Alerts, SampleTrace, built_in, planted};
//! let trace: SampleTrace = planted::course();
//! let mut alerts = Alerts::new(built_in());
//! let changes: Vec<String> = trace.samples.iter().flat_map(|sample| alerts.see(sample)).map(|change| change.to_string()).collect();
//! assert!(changes.iter().any(|change| change.contains("loader-stalled") && change.contains("firing")));
//! ```

pub mod alerts;
pub mod chart;
pub mod live;
#[cfg(not(target_os = "macos"))]
pub mod nvml;
pub mod planted;
pub mod prometheus;
pub mod sample;
pub mod source;
pub mod trace;

pub use alerts::{Alerts, Change, Condition, Rule, State, built_in};
pub use live::Watch;
#[cfg(not(target_os = "macos"))]
pub use nvml::NvmlSource;
/// The crate behind [`NvmlSource`].
#[cfg(not(target_os = "macos"))]
pub use nvml_wrapper;
pub use prometheus::Exporter;
pub use sample::{FIELDS, Field, Job, Process, Sample};
pub use source::{GpuInfo, NoGpu, Planted, SampleSource};
pub use trace::{SampleTrace, TraceWriter};
/// The crates in the interface.
pub use {jiff, serde_json};

/// NVML's GPUs of these numbers, or all.
///
/// # Errors
/// As `NvmlSource::open`; on macOS, which has no NVML, always.
pub fn open(wanted: &[u32]) -> gpulab_measure::Result<Box<dyn SampleSource>> {
    #[cfg(not(target_os = "macos"))]
    return Ok(Box::new(NvmlSource::open(wanted)?));
    #[cfg(target_os = "macos")]
    {
        let _ = wanted;
        Err(gpulab_measure::Error::unsupported(
            "macOS has no NVML, and no public interface to an Apple GPU's utilisation",
            "`sudo powermetrics --samplers gpu_power` shows it; `gpulab monitor --replay FILE` shows a recorded trace",
        ))
    }
}
