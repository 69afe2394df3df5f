//! How long a call takes: the middle, and what one call in a hundred takes at least.

use gpulab::measurement::{Backend, Measurement, Summary};

/// The calls of one contestant at one batch size.
#[derive(Debug, Clone, PartialEq)]
pub struct Latency {
    /// Who computed: `candle`, `ONNX Runtime CUDA` …
    pub contestant: String,
    /// On what.
    pub backend: Backend,
    /// The element type of its arithmetic: `f32`, `f16`.
    pub dtype: String,
    /// Examples in a call.
    pub batch: usize,
    /// The calls one by one, in µs, in the order in which they were made.
    pub us: Vec<f64>,
    /// The largest difference of an output from the first contestant's, over the largest output.
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
            let row = Measurement::new(&self.contestant, self.backend, self.batch, metric, unit, summary);
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_slow_call_in_fifty_shows_in_p99_alone() {
        let mut us = vec![100.0; 98];
        us.extend([900.0, 900.0]);
        let latency = Latency {
            contestant: "c".to_string(),
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
}
