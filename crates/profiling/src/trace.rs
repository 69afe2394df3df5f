//! What a GPU did from when to when, as plain data.

use super::{Activity, ActivityKind, NamedRange};
use gpulab::error::{Result, bytes, save};
use gpulab::measurement::{Span, figures};
use gpulab::plot;
use serde_json::{Value, json};
use std::fmt;
use std::path::Path;

/// What [`trace()`](crate::trace()) recorded, in order of the starts. As a cell's last line it shows a table.
#[derive(Debug, Clone, PartialEq, Eq)]
#[must_use = "a trace shows itself as the last expression of a cell, without a semicolon"]
pub struct Trace {
    /// The GPU's name.
    pub gpu: String,
    /// Kernels, copies and fills.
    pub activities: Vec<Activity>,
    /// Named stretches of the host's time.
    pub ranges: Vec<NamedRange>,
    /// From the start of the work until the GPU was done, in ns.
    pub total_ns: u64,
    /// Records for which there was no room.
    pub lost: usize,
}

gpulab::show_as_text!(Trace);

impl Trace {
    /// A lane for the host's ranges (and one more for each level within them), then one for each stream, for [`plot::timeline`] and
    /// [`Lesson::measure_spans`](gpulab::lesson::Lesson::measure_spans).
    pub fn spans(&self) -> Vec<Span> {
        let ms = |ns: u64| ns as f64 / 1e6;
        let holds = |outer: &NamedRange, inner: &NamedRange| {
            outer != inner && outer.start_ns <= inner.start_ns && inner.end_ns <= outer.end_ns
        };
        let ranges = self.ranges.iter().map(|one| {
            // What lies within another range has a lane below it.
            let lane = match self.ranges.iter().filter(|outer| holds(outer, one)).count() {
                0 => "host".to_string(),
                depth => format!("host, level {}", depth + 1),
            };
            Span::new(&lane, &one.name, ms(one.start_ns), ms(one.end_ns))
        });
        let work = self
            .activities
            .iter()
            .map(|one| Span::new(&stream(one.stream), &one.name, ms(one.start_ns), ms(one.end_ns)));
        ranges.chain(work).collect()
    }

    /// What lies within the first range of that name, with times from its start; nothing where there is no such range.
    pub fn within(&self, name: &str) -> Trace {
        let (start, end) =
            self.ranges.iter().find(|range| range.name == name).map_or((0, 0), |range| (range.start_ns, range.end_ns));
        // Launches return early: the GPU may still work on what the range launched, when the range has ended.
        let mine = |one: &&Activity| one.start_ns >= start && one.start_ns < end;
        let shift =
            |one: &Activity| Activity { start_ns: one.start_ns - start, end_ns: one.end_ns - start, ..one.clone() };
        let inside = self.ranges.iter().filter(|range| range.start_ns >= start && range.end_ns <= end);
        let moved = |range: &NamedRange| {
            let name = range.name.clone();
            NamedRange { name, start_ns: range.start_ns - start, end_ns: range.end_ns - start }
        };
        Trace {
            gpu: self.gpu.clone(),
            activities: self.activities.iter().filter(mine).map(shift).collect(),
            ranges: inside.map(moved).collect(),
            total_ns: end - start,
            lost: self.lost,
        }
    }

    /// The timeline.
    pub fn timeline(&self) -> plot::Timeline {
        plot::timeline(&self.spans()).title(&format!("What {} did", self.gpu))
    }

    /// Part of the time in which the GPU worked, 0 to 1: overlapping work counts once.
    pub fn busy(&self) -> f64 {
        let (mut busy, mut until) = (0, 0);
        for one in &self.activities {
            let start = one.start_ns.max(until);
            busy += one.end_ns.saturating_sub(start);
            until = until.max(one.end_ns);
        }
        busy as f64 / self.total_ns.max(1) as f64
    }

    /// Writes the trace as JSON that Perfetto (<https://ui.perfetto.dev>) and `chrome://tracing` open, with the folders above it.
    ///
    /// # Errors
    /// [`Error::File`](gpulab::Error::File) when it cannot be written.
    pub fn save(&self, path: impl AsRef<Path>) -> Result<()> {
        save(path.as_ref(), &of_trace(self).to_string(), "save the trace as")
    }
}

/// The lane of a stream.
pub(super) fn stream(number: u32) -> String {
    if number == 7 { "default stream".to_string() } else { format!("stream {number}") }
}

/// Rows that a table shows: the rest is in the timeline and the file.
const SHOWN: usize = 40;

impl fmt::Display for Trace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (count, total) = (self.activities.len(), self.total_ns as f64 / 1e6);
        writeln!(
            f,
            "{}: {count} kernels and copies in {} ms, busy for {:.0} %",
            self.gpu,
            figures(total),
            100.0 * self.busy()
        )?;
        let wide = self.activities.iter().take(SHOWN).map(|one| one.name.chars().count()).max().unwrap_or(4).max(4);
        writeln!(f, "{:>10} {:>10}  {:wide$}  what", "start µs", "took µs", "name")?;
        for one in self.activities.iter().take(SHOWN) {
            let what = match one.kind {
                ActivityKind::Kernel => format!(
                    "{} blocks of {} threads, {} registers, {} shared",
                    volume(one.grid),
                    volume(one.block),
                    one.registers,
                    bytes(one.shared_bytes.into())
                ),
                _ => format!("{}, {} GB/s", bytes(one.bytes), figures(one.bytes as f64 / one.us().max(1e-3) / 1e3)),
            };
            writeln!(f, "{:>10.1} {:>10.1}  {:wide$}  {what}", one.start_ns as f64 / 1e3, one.us(), one.name)?;
        }
        if count > SHOWN {
            writeln!(f, "… and {} more: `trace.activities` has them all", count - SHOWN)?;
        }
        if self.lost > 0 {
            writeln!(f, "{} records were lost for want of room: trace less work at a time", self.lost)?;
        }
        Ok(())
    }
}

fn volume(sides: [u32; 3]) -> u64 {
    sides.iter().map(|&side| u64::from(side)).product()
}

/// Writes spans, also recorded ones, as JSON that Perfetto (<https://ui.perfetto.dev>) opens: a track for each lane.
///
/// # Errors
/// [`gpulab::Error::File`] when it cannot be written.
pub fn save_spans(spans: &[Span], path: impl AsRef<Path>) -> Result<()> {
    let mut tracks = Tracks::default();
    let events = spans.iter().map(|span| {
        let track = tracks.number(&span.lane);
        event(&span.label, track, span.start_ms * 1e3, span.end_ms * 1e3, json!({}))
    });
    let events: Vec<Value> = events.collect();
    save(path.as_ref(), &tracks.file(events, "gpulab").to_string(), "save the trace as")
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
            "grid": one.grid, "block": one.block, "registers per thread": one.registers, "shared bytes per block": one.shared_bytes
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

#[cfg(test)]
pub(super) mod tests;
