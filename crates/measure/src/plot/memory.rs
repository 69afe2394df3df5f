//! A memory pool's life, step by step.

use super::canvas::{
    Align, BLUE, Canvas, FONT, Figure, GREEN, INK, LINE, MARGIN, Marker, ORANGE, Pen, Point, WIDTH, figure, width, wrap,
};
use super::curves::{count, none_yet};
use super::frame::{
    AXIS, GRID, Sample, Scale, label_room, legend, linear_ticks, notes, nothing, number, short, ticks, y_axis,
};
use crate::measurement::MemoryPoint;

/// A step chart of a pool's used and reserved memory in MiB, one step for each point.
/// As the last expression of a cell it shows itself.
#[derive(Debug, Clone, Default)]
#[must_use = "a chart shows itself as the last expression of a cell, without a semicolon"]
pub struct MemoryChart {
    pub(super) points: Vec<MemoryPoint>,
    pub(super) title: String,
    pub(super) free: bool,
    pub(super) recorded: String,
    pub(super) used: Option<(String, Vec<Option<u64>>)>,
    pub(super) reserved: Option<(String, Vec<Option<u64>>)>,
}

chart!(MemoryChart);

impl MemoryChart {
    pub(super) fn new(points: &[MemoryPoint]) -> MemoryChart {
        MemoryChart { points: points.to_vec(), ..MemoryChart::default() }
    }

    /// Adds a second, lower chart with the memory that is free on the whole device, on its own axis.
    pub fn with_free(mut self) -> MemoryChart {
        self.free = true;
        self
    }

    /// Says in the legend that these numbers were recorded, and on which machine.
    pub fn recorded_on(mut self, machine: &str) -> MemoryChart {
        self.recorded = crate::cpu_info::clean_name(machine);
        self
    }

    /// Your prediction of the used bytes after each step, drawn as diamonds over the measured numbers; `None` is a step that
    /// is not predicted.
    pub fn prediction(mut self, label: &str, used: &[Option<u64>]) -> MemoryChart {
        self.used = Some((label.to_string(), used.to_vec()));
        self
    }

    /// Your prediction of the reserved bytes after each step, drawn as squares.
    pub fn prediction_reserved(mut self, label: &str, reserved: &[Option<u64>]) -> MemoryChart {
        self.reserved = Some((label.to_string(), reserved.to_vec()));
        self
    }

    /// Draws the chart.
    pub fn draw(&self) -> Figure {
        if self.points.is_empty() {
            return nothing(&self.title, &[]);
        }
        figure(&self.title, |canvas| {
            let mut remarks = Vec::new();
            let y = canvas.title(&self.title);
            let columns = Columns::of(self);
            let y = pool(canvas, self, &columns, y, &mut remarks);
            let y = if self.free { free(canvas, self, &columns, y) } else { y };
            let y = columns.labels(canvas, self, y, &mut remarks);
            let y = legend(canvas, &entries(self), y);
            notes(canvas, &remarks, y) + MARGIN
        })
    }
}

const USED: Pen = Pen::solid(BLUE, 2.6);
// Wider than the line of used memory, so that it shows on both sides where the two are equal.
const RESERVED: Pen = Pen::solid(ORANGE, 6.0).alpha(0.6);
const FREE: Pen = Pen::solid(GREEN, 2.4);

fn mib(bytes: u64) -> f64 {
    bytes as f64 / 1048576.0
}

/// One column for each step.
struct Columns {
    left: f64,
    wide: f64,
}

impl Columns {
    fn of(chart: &MemoryChart) -> Columns {
        let most = chart.points.iter().map(|point| point.free.max(point.reserved)).max().unwrap_or(0);
        let left = MARGIN + label_room(&[number(mib(most).ceil())]).max(40.0) + 8.0;
        Columns { left, wide: (WIDTH - MARGIN - left) / chart.points.len() as f64 }
    }

    fn edge(&self, n: usize) -> f64 {
        self.left + self.wide * n as f64
    }

    fn middle(&self, n: usize) -> f64 {
        self.left + self.wide * (n as f64 + 0.5)
    }

    /// A line that holds each value over its column.
    fn steps(&self, y: &Scale, values: &[f64]) -> Vec<Point> {
        let edges = values.iter().enumerate();
        edges.flat_map(|(n, value)| [(self.edge(n), y.at(*value)), (self.edge(n + 1), y.at(*value))]).collect()
    }

    fn frame(&self, canvas: &mut Canvas<'_>, y: &Scale, values: &[f64], title: &str) {
        let x = Scale { log: false, min: 0.0, max: 1.0, start: self.left, end: WIDTH - MARGIN };
        canvas.text(title, (MARGIN, y.end - 15.0), Align::Left);
        y_axis(canvas, &x, &ticks(y, values, number));
        let mut n = 1;
        while self.edge(n) < WIDTH - MARGIN - 1.0 {
            canvas.line((self.edge(n), y.end), (self.edge(n), y.start), &GRID);
            n += 1;
        }
        canvas.path(&[(x.start, y.end), (x.start, y.start), (x.end, y.start)], &AXIS);
    }

    /// The steps' names below the columns; numbers, and the names as notes, where they do not fit.
    fn labels(&self, canvas: &mut Canvas<'_>, chart: &MemoryChart, y: f64, remarks: &mut Vec<String>) -> f64 {
        let room = self.wide - 8.0;
        let fits = |step: &str| step.split_whitespace().all(|word| width(word, FONT) <= room);
        let names: Vec<Vec<String>> = chart.points.iter().map(|point| wrap(&point.step, FONT, room)).collect();
        let named = chart.points.iter().all(|point| fits(&point.step)) && names.iter().all(|lines| lines.len() <= 3);
        let mut lines = 1;
        for (n, name) in names.iter().enumerate() {
            let name = if named { name.clone() } else { vec![format!("{}", n + 1)] };
            for (line, text) in name.iter().enumerate() {
                canvas.text(text, (self.middle(n), y + 6.0 + LINE * (line as f64 + 0.5)), Align::Middle);
            }
            lines = lines.max(name.len());
        }
        if !named {
            let all: Vec<String> =
                chart.points.iter().enumerate().map(|(n, point)| format!("({}) {}", n + 1, point.step)).collect();
            remarks.insert(0, format!("Steps: {}.", all.join("; ")));
        }
        y + 6.0 + LINE * lines as f64 + 8.0
    }
}

/// Used and reserved memory.
fn pool(canvas: &mut Canvas<'_>, chart: &MemoryChart, columns: &Columns, top: f64, remarks: &mut Vec<String>) -> f64 {
    const HEIGHT: f64 = 240.0;
    let used: Vec<f64> = chart.points.iter().map(|point| mib(point.used)).collect();
    let reserved: Vec<f64> = chart.points.iter().map(|point| mib(point.reserved)).collect();
    // Beside the number, which stands in the middle of its column.
    let guesses = [(&chart.used, Marker::Diamond, 0.14), (&chart.reserved, Marker::Square, 0.86)];
    let guessed = guesses.iter().filter_map(|(guess, ..)| guess.as_ref()).flat_map(|(_, values)| values).flatten();
    let most = used.iter().chain(&reserved).copied().chain(guessed.map(|value| mib(*value))).fold(0.0, f64::max);
    // Room for a number above the highest line.
    let max = if most > 0.0 { most * 1.12 } else { 1.0 };
    let y = Scale { log: false, min: 0.0, max, start: top + LINE + 8.0 + HEIGHT, end: top + LINE + 8.0 };
    columns.frame(canvas, &y, &linear_ticks(0.0, max, 5), "memory of the pool (MiB)");

    let line = columns.steps(&y, &used);
    let mut area = line.clone();
    area.extend([(columns.edge(used.len()), y.start), (columns.left, y.start)]);
    canvas.polygon(&area, BLUE, 0.2);
    canvas.path(&columns.steps(&y, &reserved), &RESERVED);
    canvas.path(&line, &USED);
    for (n, (used, reserved)) in used.iter().zip(&reserved).enumerate() {
        let step = &chart.points[n].step;
        canvas.describe(format!("{step}: used {} MiB, reserved {} MiB", short(*used), short(*reserved)));
        let x = columns.middle(n);
        let apart = y.at(*used) - y.at(*reserved);
        // Above its line where the gap to the other line holds it, else below, inside the area, if that is high enough. Where
        // neither has room, both stand above the upper line, in the order of the lines.
        let (over, room_below) = (y.at(*reserved) - 10.0, y.start - y.at(*used) >= 24.0);
        let (of_reserved, of_used) = match used == reserved || apart > 24.0 {
            true => (over, y.at(*used) - 10.0),
            false if room_below => (over, y.at(*used) + 13.0),
            false => (over - LINE + 2.0, over),
        };
        if used != reserved {
            canvas.text(&short(*reserved), (x, of_reserved), Align::Middle);
        }
        canvas.text(&short(*used), (x, of_used), Align::Middle);
    }
    for (guess, marker, share) in guesses {
        let Some((label, values)) = guess else {
            continue;
        };
        if values.len() != used.len() {
            let (steps, given) = (count(used.len(), "step"), count(values.len(), "value"));
            remarks.push(format!("{label}: {given} for {steps}; give one value in bytes for each step."));
        }
        if values.iter().all(Option::is_none) {
            remarks.push(none_yet(label));
        }
        for (n, value) in values.iter().take(used.len()).enumerate() {
            let Some(value) = value else {
                continue;
            };
            canvas.marker(marker, (columns.edge(n) + columns.wide * share, y.at(mib(*value))), INK, true);
        }
    }
    y.start
}

/// Free memory of the whole device: far larger numbers, so an axis that does not start at 0.
fn free(canvas: &mut Canvas<'_>, chart: &MemoryChart, columns: &Columns, top: f64) -> f64 {
    const HEIGHT: f64 = 90.0;
    let values: Vec<f64> = chart.points.iter().map(|point| mib(point.free)).collect();
    let min = values.iter().copied().fold(f64::MAX, f64::min);
    let max = values.iter().copied().fold(0.0, f64::max);
    let spare = ((max - min) * 0.25).max(1.0);
    let start = top + LINE + 22.0 + HEIGHT;
    let y = Scale { log: false, min: (min - spare).max(0.0), max: max + spare, start, end: start - HEIGHT };
    columns.frame(
        canvas,
        &y,
        &linear_ticks(y.min, y.max, 3),
        "free on the whole device (MiB; axis does not start at 0)",
    );
    let said = chart.points.iter().zip(&values).map(|(point, free)| format!("{} {} MiB", point.step, number(*free)));
    canvas.describe(format!("free on the whole device: {}", said.collect::<Vec<_>>().join(", ")));
    canvas.path(&columns.steps(&y, &values), &FREE);
    y.start
}

fn entries(chart: &MemoryChart) -> Vec<(Sample, String)> {
    let from = if chart.recorded.is_empty() { String::new() } else { format!(" ({}, recorded)", chart.recorded) };
    let mut entries = vec![
        (Sample::Rule(RESERVED), format!("reserved: held by the pool{from}")),
        (Sample::Rule(USED), format!("used: held by live buffers{from}")),
    ];
    if chart.free {
        entries.push((Sample::Rule(FREE), format!("free{from}")));
    }
    let blank = Pen::solid(INK, 1.0).alpha(0.0);
    for (guess, marker) in [(&chart.used, Marker::Diamond), (&chart.reserved, Marker::Square)] {
        if let Some((label, values)) = guess
            && values.iter().any(Option::is_some)
        {
            entries.push((Sample::Line(Pen { color: INK, ..blank }, marker, true), label.clone()));
        }
    }
    entries
}
