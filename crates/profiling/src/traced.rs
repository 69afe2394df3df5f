//! Timelines in a lesson: traced where that is possible, else the recorded ones.

use crate::{Trace, save_spans};
use gpulab::error::Result;
use gpulab::gpu::Gpu;
use gpulab::lesson::Lesson;
use gpulab::measurement::{Backend, Measurement, Span, Summary};
use gpulab::{plot, results};
use std::path::PathBuf;

/// A timeline, live or recorded. As a cell's last line it shows itself.
#[derive(Debug, Clone, PartialEq)]
#[must_use = "a timeline shows itself as the last expression of a cell, without a semicolon"]
pub struct Traced {
    /// Ranges of the host in the lane `host` (`host, level 2` …), and the GPU's work in a lane for each stream.
    pub spans: Vec<Span>,
    /// The machine that was traced, for labels; empty where nobody said.
    pub machine: String,
    /// Whether that was in a recorded run.
    pub recorded: bool,
    /// The same for Perfetto (<https://ui.perfetto.dev>).
    pub file: PathBuf,
}

/// A range of the host, and what the GPU did between its start and its end.
#[derive(Debug, Clone, PartialEq)]
pub struct RangeWork {
    /// The range's name.
    pub name: String,
    /// Kernels, copies and fills that began in it, with their times in µs.
    pub work: Vec<(String, f64)>,
}

impl RangeWork {
    /// All of it together, in µs.
    pub fn us(&self) -> f64 {
        self.work.iter().map(|(_, us)| us).sum()
    }
}

/// Runs `work`, which traces something, and keeps its timeline; where that is not possible, gives the recorded one. Either way
/// a file for Perfetto is written to `results/traces`.
///
/// # Errors
/// As [`Lesson::measure_if_allowed`]; [`Error::File`](gpulab::Error::File) when the file cannot be written.
pub fn measure_trace(lesson: &Lesson, experiment: &str, work: impl FnOnce(&Gpu) -> Result<Trace>) -> Result<Traced> {
    let name = format!("{}-{}.json", lesson.name(), experiment.replace([' ', '/', ':'], "_"));
    let file = results::file().with_file_name("traces").join(name);
    let work = |gpu: &Gpu| {
        let trace = work(gpu)?;
        // With what only the records know, such as bytes and blocks.
        trace.save(&file)?;
        Ok(Traced { spans: trace.spans(), machine: gpu.name().to_string(), recorded: false, file: file.clone() })
    };
    let to_rows = |traced: &Traced, backend| Span::to_rows(&traced.spans, backend);
    let from_rows = |rows: &[Measurement]| {
        let machine = Measurement::recorded_on(rows);
        let recorded = !machine.is_empty();
        Traced { spans: Span::from_rows(rows), machine, recorded, file: file.clone() }
    };
    let traced = lesson.measure_as_if_allowed(experiment, work, to_rows, from_rows)?;
    if traced.recorded {
        save_spans(&traced.spans, &file)?;
    }
    Ok(traced)
}

impl Traced {
    /// The timeline as a chart.
    pub fn timeline(&self) -> plot::Timeline {
        plot::timeline(&self.spans).recorded_on(if self.recorded { &self.machine } else { "" })
    }

    /// From the first start to the last end, in ms.
    pub fn total_ms(&self) -> f64 {
        let (start, end) = self
            .spans
            .iter()
            .fold((f64::MAX, 0.0_f64), |(start, end), span| (span.start_ms.min(start), span.end_ms.max(end)));
        (end - start).max(0.0)
    }

    /// All spans of that label together, in ms; such as a kernel's name, `copy to device`, or a range.
    pub fn ms(&self, label: &str) -> f64 {
        self.spans.iter().filter(|span| span.label == label).map(|span| span.end_ms - span.start_ms).sum()
    }

    /// Part of the time in which the GPU worked, 0 to 1: overlapping work counts once.
    pub fn busy(&self) -> f64 {
        let mut work: Vec<&Span> = self.spans.iter().filter(|span| !span.lane.starts_with("host")).collect();
        work.sort_by(|a, b| a.start_ms.total_cmp(&b.start_ms));
        let (mut busy, mut until) = (0.0, f64::MIN);
        for span in work {
            busy += (span.end_ms - span.start_ms.max(until)).max(0.0);
            until = until.max(span.end_ms);
        }
        busy / self.total_ms().max(1e-9)
    }

    /// What the GPU did within each of the innermost ranges, in order. A kernel belongs to the range in which it *begins*: where
    /// launches return early, only a range that waits for the GPU before it ends holds its own kernels.
    pub fn by_range(&self) -> Vec<RangeWork> {
        let (ranges, work): (Vec<&Span>, Vec<&Span>) =
            self.spans.iter().partition(|span| span.lane.starts_with("host"));
        let within = |inner: &Span, outer: &Span| outer.start_ms <= inner.start_ms && inner.end_ms <= outer.end_ms;
        let innermost = |range: &&&Span| !ranges.iter().any(|other| *other != **range && within(other, range));
        let of = |range: &&Span| {
            let own = work.iter().filter(|span| range.start_ms <= span.start_ms && span.start_ms < range.end_ms);
            let work = own.map(|span| (span.label.clone(), 1e3 * (span.end_ms - span.start_ms))).collect();
            RangeWork { name: range.label.clone(), work }
        };
        let mut found: Vec<&&Span> = ranges.iter().filter(innermost).collect();
        found.sort_by(|a, b| a.start_ms.total_cmp(&b.start_ms));
        found.into_iter().map(of).collect()
    }

    /// Each label's part of the whole time, in percent, for [`plot::bars`].
    pub fn shares(&self, labels: &[&str]) -> Vec<Measurement> {
        let part = |label: &&str| self.percent(label, 100.0 * self.ms(label) / self.total_ms().max(1e-9));
        labels.iter().map(part).collect()
    }

    /// A figure in percent of the whole time as a row for [`plot::bars`], such as `100.0 * traced.busy()`.
    pub fn percent(&self, name: &str, value: f64) -> Measurement {
        let row = Measurement::new(name, Backend::Cuda, 0, "part of the time", "%", Summary::of(&[value])).dtype("");
        Measurement { machine: self.machine.clone(), recorded: self.recorded, ..row }
    }

    /// What the notebook calls to show a value.
    pub fn evcxr_display(&self) {
        self.timeline().evcxr_display();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_add_up_by_label_and_overlap_counts_once() {
        let spans = vec![
            Span::new("host", "all", 0.0, 10.0),
            Span::new("default stream", "reduce", 1.0, 3.0),
            Span::new("stream 13", "copy to host", 2.0, 5.0),
            Span::new("default stream", "reduce", 8.0, 9.0),
        ];
        let traced = Traced { spans, machine: String::new(), recorded: false, file: PathBuf::new() };
        assert_eq!((traced.total_ms(), traced.ms("reduce"), traced.busy()), (10.0, 3.0, 0.5));
        let shares = traced.shares(&["reduce", "copy to host"]);
        assert_eq!(
            (shares[0].summary.median, shares[1].experiment.as_str(), shares[0].recorded),
            (30.0, "copy to host", false)
        );
        let ranged = |label: &str, start, end| Span::new("host, level 2", label, start, end);
        let spans = [traced.spans.clone(), vec![ranged("late", 7.5, 9.5), ranged("early", 0.5, 2.5)]].concat();
        let ranges = Traced { spans, ..traced.clone() }.by_range();
        let names: Vec<&str> = ranges.iter().map(|range| range.name.as_str()).collect();
        assert_eq!(names, ["early", "late"]);
        let early = [("reduce".to_string(), 2000.0), ("copy to host".to_string(), 3000.0)];
        assert_eq!((ranges[0].work.as_slice(), ranges[0].us(), ranges[1].us()), (&early[..], 5000.0, 1000.0));
        let none = Traced { spans: Vec::new(), machine: String::new(), recorded: false, file: PathBuf::new() };
        assert_eq!((none.total_ms(), none.busy()), (0.0, 0.0));
    }
}
