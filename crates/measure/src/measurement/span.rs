//! Something that went on for a while.

use super::{Backend, Measurement, Summary};

/// Something that went on in one lane for a while. Times are milliseconds from any common start.
#[derive(Debug, Clone, PartialEq)]
pub struct Span {
    /// Who was busy: `host`, `copy engine`, `stream 1` …
    pub lane: String,
    /// With what. Spans whose labels differ only in a number at the end share a colour.
    pub label: String,
    /// When it began, in ms.
    pub start_ms: f64,
    /// When it ended, in ms.
    pub end_ms: f64,
}

impl Span {
    /// A span from `start_ms` to `end_ms`.
    pub fn new(lane: &str, label: &str, start_ms: f64, end_ms: f64) -> Span {
        Span { lane: lane.to_string(), label: label.to_string(), start_ms, end_ms }
    }

    /// Two rows a span, `start` and `end` in ms; `size` is the span's number, and the lane stands before a bar.
    pub fn to_rows(spans: &[Span], backend: Backend) -> Vec<Measurement> {
        let row = |(at, span): (usize, &Span)| {
            [("start", span.start_ms), ("end", span.end_ms)].map(|(metric, ms)| {
                let name = format!("{} | {}", span.lane, span.label);
                Measurement::new(&name, backend, at, metric, "ms", Summary::of(&[ms])).dtype("")
            })
        };
        spans.iter().enumerate().flat_map(row).collect()
    }

    /// The spans of such rows; other rows are passed over.
    pub fn from_rows(rows: &[Measurement]) -> Vec<Span> {
        let mut spans: Vec<(u64, Span)> = Vec::new();
        for start in rows.iter().filter(|row| row.metric == "start") {
            let end = rows
                .iter()
                .find(|row| row.metric == "end" && row.size == start.size && row.experiment == start.experiment);
            if let (Some(end), Some((lane, label))) = (end, start.experiment.split_once(" | ")) {
                spans.push((start.size, Span::new(lane, label, start.summary.median, end.summary.median)));
            }
        }
        spans.sort_by_key(|(size, _)| *size);
        spans.into_iter().map(|(_, span)| span).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spans_survive_the_way_through_rows() {
        let spans = vec![Span::new("host", "launch 0", 0.0, 0.004), Span::new("GPU", "kernel 0", 0.004, 1.5)];
        assert_eq!(Span::from_rows(&Span::to_rows(&spans, Backend::Cuda)), spans);
    }
}
