//! Timelines as files that Perfetto and `chrome://tracing` open: the JSON of Chrome's trace events, times in µs.

use super::trace::stream;
use super::{Activity, ActivityKind, Trace};
use gpulab::error::{Error, Result};
use gpulab::measurement::Span;
use serde_json::{Value, json};
use std::path::Path;

/// Writes spans, also recorded ones, as JSON that Perfetto (<https://ui.perfetto.dev>) opens: a track for each lane.
///
/// # Errors
/// [`Error::File`] when it cannot be written.
pub fn save_spans(spans: &[Span], path: impl AsRef<Path>) -> Result<()> {
    let mut tracks = Tracks::default();
    let events = spans.iter().map(|span| {
        let track = tracks.number(&span.lane);
        event(&span.label, track, span.start_ms * 1e3, span.end_ms * 1e3, json!({}))
    });
    let events: Vec<Value> = events.collect();
    write(path.as_ref(), &tracks.file(events, "gpulab"))
}

pub(super) fn of_trace(trace: &Trace) -> Value {
    let us = |ns: u64| ns as f64 / 1e3;
    let mut tracks = Tracks::default();
    let host = trace.ranges.iter().map(|one| {
        let track = tracks.number("host");
        event(&one.name, track, us(one.start_ns), us(one.end_ns), json!({}))
    });
    let mut events: Vec<Value> = host.collect();
    for one in &trace.activities {
        let track = tracks.number(&stream(one.stream));
        events.push(event(&one.name, track, us(one.start_ns), us(one.end_ns), details(one)));
    }
    tracks.file(events, &trace.gpu)
}

/// What Perfetto shows when a bar is clicked.
fn details(one: &Activity) -> Value {
    match one.kind {
        ActivityKind::Kernel => json!({
            "grid": one.grid, "block": one.block, "registers a thread": one.registers, "shared bytes a block": one.shared_bytes
        }),
        _ => json!({"bytes": one.bytes, "GB/s": one.bytes as f64 / one.us().max(1e-3) / 1e3}),
    }
}

fn event(name: &str, track: usize, start_us: f64, end_us: f64, args: Value) -> Value {
    json!({"name": name, "ph": "X", "pid": 1, "tid": track, "ts": start_us, "dur": end_us - start_us, "args": args})
}

/// Lanes by number, in order of appearance.
#[derive(Default)]
struct Tracks(Vec<String>);

impl Tracks {
    fn number(&mut self, lane: &str) -> usize {
        self.0.iter().position(|known| known == lane).unwrap_or_else(|| {
            self.0.push(lane.to_string());
            self.0.len() - 1
        })
    }

    fn file(&self, events: Vec<Value>, process: &str) -> Value {
        let named = |what: &str, track: usize, args: Value| json!({"name": what, "ph": "M", "pid": 1, "tid": track, "args": args});
        let mut all = vec![named("process_name", 0, json!({"name": process}))];
        for (track, lane) in self.0.iter().enumerate() {
            all.push(named("thread_name", track, json!({"name": lane})));
            all.push(named("thread_sort_index", track, json!({"sort_index": track})));
        }
        all.extend(events);
        json!({"displayTimeUnit": "ns", "traceEvents": all})
    }
}

pub(super) fn write(path: &Path, trace: &Value) -> Result<()> {
    let write = || {
        if let Some(folder) = path.parent() {
            std::fs::create_dir_all(folder)?;
        }
        std::fs::write(path, trace.to_string())
    };
    write().map_err(|error| Error::File {
        path: path.to_path_buf(),
        during: "save the trace as".to_string(),
        text: error.to_string(),
        fix: "choose a path in a folder where you may write, on a disk with room".to_string(),
    })
}

#[cfg(test)]
mod tests {
    use super::super::trace::tests::sample;
    use super::*;

    #[test]
    fn every_bar_has_a_track_with_a_name() {
        let file = of_trace(&sample());
        let events = file["traceEvents"].as_array().unwrap();
        let names: Vec<&str> = events
            .iter()
            .filter(|event| event["name"] == "thread_name")
            .map(|event| event["args"]["name"].as_str().unwrap())
            .collect();
        assert_eq!(names, ["host", "stream 13", "default stream"]);
        let kernel = events.iter().find(|event| event["name"] == "reduce").unwrap();
        assert_eq!((kernel["ts"].as_f64(), kernel["dur"].as_f64()), (Some(4.0), Some(6.0)));
        assert_eq!(kernel["args"]["grid"], json!([512, 2, 1]));
        assert_eq!(kernel["ph"], "X");
    }

    #[test]
    fn files_are_json_and_a_path_that_cannot_be_written_is_named() {
        let folder = std::env::temp_dir().join(format!("gpulab-trace-{}", std::process::id()));
        let path = folder.join("a/trace.json");
        save_spans(&sample().spans(), &path).unwrap();
        let read: Value = serde_json::from_str(&std::fs::read_to_string(&path).unwrap()).unwrap();
        assert_eq!(read["traceEvents"].as_array().unwrap().len(), 1 + 2 * 3 + 3);
        let text = sample().save(path.join("b.json")).unwrap_err().to_string();
        assert!(text.contains("trace.json/b.json") && text.contains("\nnext: "), "{text}");
        std::fs::remove_dir_all(folder).unwrap();
    }
}
