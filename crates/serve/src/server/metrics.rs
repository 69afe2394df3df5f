//! Counters and histograms, in the text that Prometheus reads.

use std::collections::BTreeMap;
use std::fmt::Write;

/// Upper ends of the histograms' buckets, in seconds.
const ENDS: [f64; 12] = [0.001, 0.003, 0.01, 0.03, 0.1, 0.3, 1.0, 3.0, 10.0, 30.0, 100.0, 300.0];

/// How many times took how long.
#[derive(Debug, Clone, Default)]
pub(super) struct Histogram {
    counts: [u64; ENDS.len()],
    all: u64,
    sum: f64,
}

impl Histogram {
    pub fn add(&mut self, seconds: f64) {
        if let Some(bucket) = ENDS.iter().position(|end| seconds <= *end) {
            self.counts[bucket] += 1;
        }
        self.all += 1;
        self.sum += seconds;
    }

    pub fn mean(&self) -> Option<f64> {
        (self.all > 0).then(|| self.sum / self.all as f64)
    }
}

/// The text of `/metrics`.
#[derive(Debug, Default)]
pub(super) struct Exposition {
    text: String,
}

impl Exposition {
    fn head(&mut self, name: &str, kind: &str, help: &str) {
        let _ = writeln!(self.text, "# HELP gpulab_serve_{name} {help}\n# TYPE gpulab_serve_{name} {kind}");
    }

    pub fn one(&mut self, name: &str, kind: &str, help: &str, value: impl std::fmt::Display) {
        self.head(name, kind, help);
        let _ = writeln!(self.text, "gpulab_serve_{name} {value}");
    }

    pub fn labelled(&mut self, name: &str, kind: &str, help: &str, values: &[(&str, u64)]) {
        self.head(name, kind, help);
        for (labels, value) in values {
            let _ = writeln!(self.text, "gpulab_serve_{name}{{{labels}}} {value}");
        }
    }

    pub fn histogram(&mut self, name: &str, help: &str, of: &Histogram) {
        self.head(name, "histogram", help);
        let mut sum = 0;
        for (end, count) in ENDS.iter().zip(of.counts) {
            sum += count;
            let _ = writeln!(self.text, "gpulab_serve_{name}_bucket{{le=\"{end}\"}} {sum}");
        }
        let _ = writeln!(self.text, "gpulab_serve_{name}_bucket{{le=\"+Inf\"}} {}", of.all);
        let _ = writeln!(self.text, "gpulab_serve_{name}_sum {}\ngpulab_serve_{name}_count {}", of.sum, of.all);
    }

    pub fn text(self) -> String {
        self.text
    }
}

/// Answers by route and status.
#[derive(Debug, Default)]
pub(super) struct Statuses(BTreeMap<(&'static str, u16), u64>);

impl Statuses {
    pub fn add(&mut self, route: &'static str, status: u16) {
        *self.0.entry((route, status)).or_default() += 1;
    }

    pub fn show(&self, to: &mut Exposition) {
        let labels: Vec<(String, u64)> = self
            .0
            .iter()
            .map(|((route, status), count)| (format!("route=\"{route}\",status=\"{status}\""), *count))
            .collect();
        let values: Vec<(&str, u64)> = labels.iter().map(|(labels, count)| (labels.as_str(), *count)).collect();
        to.labelled("requests_total", "counter", "HTTP requests by route and status.", &values);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buckets_count_all_below_their_end() {
        let mut histogram = Histogram::default();
        [0.0005, 0.02, 0.02, 500.0].into_iter().for_each(|seconds| histogram.add(seconds));
        let mut text = Exposition::default();
        text.histogram("step_seconds", "A step.", &histogram);
        let text = text.text();
        for line in ["{le=\"0.001\"} 1", "{le=\"0.01\"} 1", "{le=\"0.03\"} 3", "{le=\"300\"} 3", "{le=\"+Inf\"} 4"] {
            assert!(text.contains(line), "{line}: {text}");
        }
        assert!(
            text.ends_with("gpulab_serve_step_seconds_sum 500.0405\ngpulab_serve_step_seconds_count 4\n"),
            "{text}"
        );
        assert_eq!(histogram.mean(), Some(125.010125));
    }
}
