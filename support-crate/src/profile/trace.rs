//! What a GPU did from when to when, as plain data.

use super::perfetto;
use crate::error::{Result, bytes};
use crate::measurement::{Span, figures};
use crate::plot;
use std::fmt;
use std::path::Path;

/// What kind of work the GPU did.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ActivityKind {
    /// A kernel.
    Kernel,
    /// A copy from the host's memory to the GPU's.
    CopyToDevice,
    /// A copy from the GPU's memory to the host's.
    CopyToHost,
    /// A copy within the GPU's memory.
    CopyOnDevice,
    /// Memory filled with one value.
    Fill,
}

impl ActivityKind {
    /// `kernel`, `copy to device` …
    pub fn words(self) -> &'static str {
        match self {
            ActivityKind::Kernel => "kernel",
            ActivityKind::CopyToDevice => "copy to device",
            ActivityKind::CopyToHost => "copy to host",
            ActivityKind::CopyOnDevice => "copy on device",
            ActivityKind::Fill => "fill",
        }
    }
}

/// One kernel, copy or fill. Times are nanoseconds from the trace's start, by the GPU's clock.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Activity {
    /// What kind of work.
    pub kind: ActivityKind,
    /// The kernel's name, else the kind in words.
    pub name: String,
    /// When it began, in ns.
    pub start_ns: u64,
    /// When it ended, in ns.
    pub end_ns: u64,
    /// The stream's number, as CUPTI counts them; 7 is the default stream.
    pub stream: u32,
    /// Bytes moved or filled; 0 for kernels, whose traffic no record tells.
    pub bytes: u64,
    /// Blocks along x, y, z; 0 for copies.
    pub grid: [u32; 3],
    /// Threads of a block along x, y, z; 0 for copies.
    pub block: [u32; 3],
    /// Registers a thread.
    pub registers: u32,
    /// Shared memory a block, in bytes, static and dynamic.
    pub shared_bytes: u32,
}

impl Activity {
    /// How long it took, in µs.
    pub fn us(&self) -> f64 {
        (self.end_ns - self.start_ns) as f64 / 1e3
    }
}

/// A named stretch of the host's time, in ns from the trace's start.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NamedRange {
    /// As it was given.
    pub name: String,
    /// When it began, in ns.
    pub start_ns: u64,
    /// When it ended, in ns.
    pub end_ns: u64,
}

/// What [`Gpu::trace`](crate::gpu::Gpu::trace) recorded, in order of the starts. As a cell's last line it shows a table.
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

impl Trace {
    /// A lane for the host's ranges (and one more for each level within them), then one for each stream, for [`plot::timeline`] and
    /// [`Lesson::measure_spans`](crate::lesson::Lesson::measure_spans).
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
    /// [`Error::File`](crate::Error::File) when it cannot be written.
    pub fn save(&self, path: impl AsRef<Path>) -> Result<()> {
        perfetto::write(path.as_ref(), &perfetto::of_trace(self))
    }

    /// What the notebook calls to show a value.
    pub fn evcxr_display(&self) {
        print!("EVCXR_BEGIN_CONTENT text/plain\n{self}EVCXR_END_CONTENT\n");
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

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    pub(in crate::profile) fn sample() -> Trace {
        let kernel = Activity {
            kind: ActivityKind::Kernel,
            name: "reduce".to_string(),
            start_ns: 4_000,
            end_ns: 10_000,
            stream: 7,
            bytes: 0,
            grid: [512, 2, 1],
            block: [256, 1, 1],
            registers: 32,
            shared_bytes: 1024,
        };
        let copy = Activity {
            kind: ActivityKind::CopyToDevice,
            name: "copy to device".to_string(),
            start_ns: 0,
            end_ns: 2_000,
            stream: 13,
            bytes: 1 << 20,
            grid: [0; 3],
            block: [0; 3],
            ..kernel.clone()
        };
        let range = NamedRange { name: "a \"sum\"".to_string(), start_ns: 500, end_ns: 12_000 };
        Trace { gpu: "X".to_string(), activities: vec![copy, kernel], ranges: vec![range], total_ns: 16_000, lost: 0 }
    }

    #[test]
    fn lanes_are_the_host_and_the_streams() {
        let spans = sample().spans();
        let lanes: Vec<&str> = spans.iter().map(|span| span.lane.as_str()).collect();
        assert_eq!(lanes, ["host", "stream 13", "default stream"]);
        assert_eq!((spans[2].start_ms, spans[2].end_ms), (0.004, 0.01));
        let mut nested = sample();
        nested.ranges.push(NamedRange { name: "inner".to_string(), start_ns: 600, end_ns: 700 });
        assert_eq!(nested.spans()[1].lane, "host, level 2");
    }

    #[test]
    fn busy_counts_overlapping_work_once() {
        let mut trace = sample();
        assert_eq!(trace.busy(), 0.5);
        trace.activities[1].start_ns = 1_000;
        assert_eq!(trace.busy(), 10.0 / 16.0);
        trace.activities.clear();
        assert_eq!(trace.busy(), 0.0);
    }

    #[test]
    fn a_part_of_a_trace_begins_at_its_range() {
        let part = sample().within("a \"sum\"");
        assert_eq!((part.activities.len(), part.activities[0].start_ns, part.total_ns), (1, 3_500, 11_500));
        assert_eq!((part.ranges[0].start_ns, part.ranges[0].end_ns), (0, 11_500));
        let none = sample().within("no such range");
        assert_eq!((none.activities.len(), none.total_ns, none.busy()), (0, 0, 0.0));
    }

    #[test]
    fn the_table_names_launches_and_rates() {
        let text = sample().to_string();
        assert!(text.contains("1024 blocks of 256 threads, 32 registers") && text.contains("524 GB/s"), "{text}");
        let mut long = sample();
        long.activities = vec![long.activities[0].clone(); SHOWN + 2];
        long.lost = 3;
        let text = long.to_string();
        assert!(text.contains("… and 2 more") && text.contains("3 records were lost"), "{text}");
    }
}
