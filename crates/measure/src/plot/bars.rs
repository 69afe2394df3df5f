//! Horizontal bars: a few figures side by side, with their ratio.

use super::canvas::{
    Align, Canvas, DASHED, FONT, Figure, INK, LINE, LONG, MARGIN, Marker, Pen, Point, Rgb, SOLID, WIDTH, color, figure,
    width, wrap,
};
use super::curves::{better, count, fits_linear, fits_log, label, linear_rows, none_yet};
use super::frame::{
    AXIS, GRID, Scale, linear_ticks, log_range, log_ticks, notes, nothing, number, short, ticks, x_axis, x_name,
};
use crate::measurement::{Backend, Measurement, figures};

/// A chart of horizontal bars; as the last expression of a cell it shows itself.
///
/// Each bar carries its value and its ratio to the slowest bar. Where neither direction is the faster one, that is the
/// ratio to the first bar, and only if all bars have one name. Whiskers reach from p10 to p90. Bars of recorded rows are
/// lighter, with a dashed outline. With [`BarChart::log`] a dot takes the place of each bar, hollow for recorded rows.
///
/// # Examples
/// ```
/// use gpulab_measure::measurement::{Backend, Measurement, Summary};
/// use gpulab_measure::plot;
/// let row = |name: &str, ms: f64| Measurement::time_ms(name, Backend::Cpu, 1024, Summary::of(&[ms]));
/// let chart = plot::bars(&[row("one core", 12.0), row("all cores", 3.0)]);
/// let svg = chart.title("A sum").prediction("your prediction", 2.0).draw().svg();
/// assert!(svg.contains("A sum") && svg.contains("your prediction"));
/// ```
#[derive(Debug, Clone, Default)]
#[must_use = "a chart shows itself as the last expression of a cell, without a semicolon"]
pub struct BarChart {
    rows: Vec<Measurement>,
    notes: Vec<String>,
    title: String,
    log: bool,
    predictions: Vec<(String, f64)>,
}

chart!(BarChart);

impl BarChart {
    pub(super) fn new(rows: &[Measurement]) -> BarChart {
        let (rows, notes) = linear_rows(rows, None);
        BarChart { rows, notes, ..BarChart::default() }
    }

    /// A logarithmic axis: for values that differ by more than a factor of about 50. Dots take the place of bars, whose
    /// length would mean nothing there, and values of 0 are left out.
    pub fn log(mut self) -> BarChart {
        self.log = true;
        self
    }

    /// A predicted value, in the chart's unit: a dashed mark across every bar. With `None` the chart says that there is
    /// none yet.
    pub fn prediction(mut self, label: &str, value: impl Into<Option<f64>>) -> BarChart {
        match value.into() {
            Some(value) => self.predictions.push((label.to_string(), value)),
            None => self.notes.push(none_yet(label)),
        }
        self
    }

    /// Draws the chart.
    pub fn draw(&self) -> Figure {
        let mut remarks = self.notes.clone();
        let fits = |value: f64| {
            if self.log { fits_log(value) } else { fits_linear(value) }
        };
        let (rows, zeros): (Vec<&Measurement>, Vec<&Measurement>) =
            self.rows.iter().partition(|row| fits(row.summary.median));
        if !zeros.is_empty() {
            let rows = count(zeros.len(), "row");
            remarks.push(format!("Not drawn: {rows}; a logarithmic axis holds only numbers above 0."));
        }
        if rows.is_empty() {
            return nothing(&self.title, &remarks);
        }
        let marks: Vec<&(String, f64)> = self.predictions.iter().filter(|mark| fits(mark.1)).collect();
        for (label, value) in self.predictions.iter().filter(|mark| !fits(mark.1)) {
            remarks.push(format!("Not drawn: {label}, {value}: the axis holds no such number."));
        }
        figure(&self.title, |canvas| {
            let y = canvas.title(&self.title);
            let y = plot(canvas, self.log, &rows, &marks, y);
            notes(canvas, &remarks, y) + MARGIN
        })
    }
}

/// Draws marks, bars and the axis from height `top` on; gives the height below.
pub(super) fn plot(
    canvas: &mut Canvas<'_>,
    log: bool,
    rows: &[&Measurement],
    marks: &[&(String, f64)],
    top: f64,
) -> f64 {
    const BAR: f64 = 18.0;
    const GAP: f64 = 12.0;
    let texts = values(rows);
    let room = texts.iter().map(|text| width(text, FONT)).fold(0.0, f64::max) + 14.0;
    let left = MARGIN + 6.0;
    let x = scale(log, rows, marks, left, WIDTH - MARGIN - room);
    let with_size = rows.iter().any(|row| row.size != rows[0].size);
    let with_type = rows.iter().any(|row| row.dtype != rows[0].dtype);

    let mut y = predictions(canvas, marks, &rows[0].unit, (left, top));
    let start = y;
    let tick_values = if log { log_ticks(x.min, x.max) } else { linear_ticks(x.min, x.max, 6) };
    let labels: Vec<Vec<String>> = rows
        .iter()
        .map(|row| {
            let size = if with_size { format!(", size {}", row.size) } else { String::new() };
            wrap(&format!("{}{size}", label(row, with_type)), FONT, WIDTH - left - MARGIN)
        })
        .collect();
    let lines: usize = labels.iter().map(Vec::len).sum();
    let bottom = start + lines as f64 * LINE + rows.len() as f64 * (BAR + GAP) + 4.0;
    let below = x_axis(canvas, bottom, bottom, &ticks(&x, &tick_values, number));
    canvas.line((left, bottom), (x.end, bottom), &AXIS);
    for ((row, lines), text) in rows.iter().zip(&labels).zip(&texts) {
        for line in lines {
            canvas.text(line, (left, y + LINE / 2.0 + 2.0), Align::Left);
            y += LINE;
        }
        canvas.describe(format!("{}: {text}", lines.join(" ")));
        let (bar_top, bar_end) = (y + 3.0, y + 3.0 + BAR);
        let wide = width(text, FONT);
        let at = beside_bar(row, &x, wide, marks);
        for tick in tick_values.iter().map(|value| x.at(*value)).filter(|tick| *tick < at - 4.0 || *tick > at + wide) {
            canvas.line((tick, bar_top), (tick, bar_end), &GRID);
        }
        if log {
            dot(canvas, row, &x, (bar_top + bar_end) / 2.0, fill(row));
        } else {
            bar(canvas, row, &x, bar_top, bar_end, fill(row));
        }
        for (_, value) in marks {
            canvas.line((x.at(*value), bar_top - 2.0), (x.at(*value), bar_end + 5.0), &PREDICTION);
        }
        canvas.text(text, (at, (bar_top + bar_end) / 2.0), Align::Left);
        y += BAR + GAP;
    }
    let details = match (rows[0].unit.as_str(), log) {
        ("", false) => String::new(),
        ("", true) => " (log scale)".to_string(),
        (unit, log) => format!(" ({unit}{})", if log { ", log scale" } else { "" }),
    };
    let name = format!("{}{details}", rows[0].metric);
    x_name(canvas, &x, below, &name)
}

fn scale(log: bool, rows: &[&Measurement], marks: &[&(String, f64)], start: f64, end: f64) -> Scale {
    let highs = rows.iter().map(|row| spread(row).1);
    let max = highs.chain(marks.iter().map(|mark| mark.1)).fold(0.0, f64::max);
    if !log {
        // All zeros still need an axis.
        let max = if max > 0.0 { max * 1.04 } else { 1.0 };
        return Scale { log: false, min: 0.0, max, start, end };
    }
    let lows = rows.iter().map(|row| row.summary.median).chain(marks.iter().map(|mark| mark.1));
    let (min, max) = log_range(lows.fold(f64::MAX, f64::min), max, 5.0);
    // A bar needs some length even for the smallest value.
    Scale { log: true, min: min / 2.0, max, start, end }
}

/// `0.52 ms, 24× faster`.
fn values(rows: &[&Measurement]) -> Vec<String> {
    let better = better(&rows[0].metric, &rows[0].unit);
    let values = || rows.iter().map(|row| row.summary.median);
    // A ratio of two different things says nothing, unless they are times or rates.
    let alike = better.is_some() || rows.iter().all(|row| row.experiment == rows[0].experiment);
    let base = match better {
        Some(true) => values().fold(f64::MAX, f64::min),
        Some(false) => values().fold(0.0, f64::max),
        None => rows[0].summary.median,
    };
    let ratio = |value: f64| {
        let ratio = if better == Some(false) { base / value } else { value / base };
        match better {
            _ if rows.len() == 1 || !ratio.is_finite() || !alike => String::new(),
            None if ratio == 1.0 => String::new(),
            None => format!(", {}× the first", figures(ratio)),
            Some(_) if ratio == 1.0 => ", the slowest".to_string(),
            Some(_) => format!(", {}× as fast", figures(ratio)),
        }
    };
    // A count is written as it is: `16`, not `16.0`.
    let counted = values().all(|value| value.fract() == 0.0);
    let written = |value: f64| if counted { format!("{value}") } else { figures(value) };
    values().map(|value| format!("{}{}", with_unit(&written(value), &rows[0].unit), ratio(value))).collect()
}

/// A line for each prediction; where the bars begin.
pub(super) fn predictions(canvas: &mut Canvas<'_>, marks: &[&(String, f64)], unit: &str, (x, mut y): Point) -> f64 {
    for (label, value) in marks {
        canvas.line((x, y + LINE / 2.0), (x + 32.0, y + LINE / 2.0), &PREDICTION);
        let text = format!("{label}: {}", with_unit(&short(*value), unit));
        canvas.text(&text, (x + 40.0, y + LINE / 2.0), Align::Left);
        y += LINE + 2.0;
    }
    y
}

/// `4.2 ms`; a plain count has no unit.
fn with_unit(value: &str, unit: &str) -> String {
    if unit.is_empty() { value.to_string() } else { format!("{value} {unit}") }
}

/// The mark of a predicted value.
pub(super) const PREDICTION: Pen = Pen::solid(INK, 1.8).dash(LONG);

/// Where a bar's text starts: right of its whisker, and of any mark that would strike it through.
fn beside_bar(row: &Measurement, x: &Scale, wide: f64, marks: &[&(String, f64)]) -> f64 {
    let at = x.at(row.summary.median).max(x.at(spread(row).1)) + 8.0;
    let mut marks: Vec<f64> = marks.iter().map(|mark| x.at(mark.1)).collect();
    marks.sort_by(f64::total_cmp);
    let free = marks.iter().fold(at, |at, mark| if *mark > at - 6.0 && *mark < at + wide { mark + 8.0 } else { at });
    if free + wide <= WIDTH - 2.0 { free } else { at }
}

/// The colour of what did the work.
fn fill(row: &Measurement) -> Rgb {
    color(match row.backend {
        Backend::CpuOneCore | Backend::Cpu => 0,
        Backend::Cuda | Backend::Metal => 1,
        Backend::Simulator | Backend::Model | Backend::Derived => 5,
    })
}

/// One bar with its whiskers.
pub(super) fn bar(canvas: &mut Canvas<'_>, row: &Measurement, x: &Scale, top: f64, bottom: f64, fill: Rgb) {
    let end = x.at(row.summary.median);
    canvas.rect((x.start, top), (end, bottom), fill, if row.recorded { 0.3 } else { 0.65 });
    let outline = Pen::solid(fill, 1.4).dash(if row.recorded { DASHED } else { SOLID });
    canvas.outline((x.start, top), (end, bottom), &outline);
    whiskers(canvas, row, x, (top + bottom) / 2.0);
}

/// The median as a dot, with its whiskers: on a logarithmic axis the length of a bar would mean nothing.
fn dot(canvas: &mut Canvas<'_>, row: &Measurement, x: &Scale, middle: f64, fill: Rgb) {
    let at = (x.at(row.summary.median), middle);
    canvas.line((x.start, middle), at, &GRID);
    let (low, high) = spread(row);
    // Narrower whiskers would only cross the dot out.
    if x.at(high) - x.at(low) >= 14.0 {
        whiskers(canvas, row, x, middle);
    }
    canvas.marker(Marker::Circle, at, fill, row.recorded);
}

/// From p10 to p90, where that is wide enough to be seen.
fn whiskers(canvas: &mut Canvas<'_>, row: &Measurement, x: &Scale, middle: f64) {
    let (low, high) = spread(row);
    if x.at(high) - x.at(low) >= 1.0 {
        let pen = Pen::solid(INK, 1.4);
        canvas.line((x.at(low), middle), (x.at(high), middle), &pen);
        for value in [low, high] {
            canvas.line((x.at(value), middle - 4.0), (x.at(value), middle + 4.0), &pen);
        }
    }
}

/// p10 and p90, or the median where one of them is no number.
pub(super) fn spread(row: &Measurement) -> (f64, f64) {
    let mid = row.summary.median;
    let sound = |value: f64| if fits_linear(value) { value } else { mid };
    (sound(row.summary.p10).min(mid), sound(row.summary.p90).max(mid))
}
