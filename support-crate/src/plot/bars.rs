//! Horizontal bars: a few figures side by side, with their ratio.

use super::Figure;
use super::canvas::{Align, Canvas, FONT, LINE, MARGIN, WIDTH, figure};
use super::curves::{count, fits_linear, fits_log, label, one_unit};
use super::frame::{AXIS, GRID, ticks, x_axis};
use super::legend::{notes, nothing};
use super::scale::{Scale, linear_ticks, log_range, log_ticks, number};
use super::style::{DASHED, INK, LONG, Pen, color};
use super::text::{width, wrap};
use crate::measurement::{Backend, Measurement, figures};

/// A chart of horizontal bars; as the last expression of a cell it shows itself.
///
/// Each bar carries its value and its ratio to the slowest bar, or to the first one where neither direction is the
/// faster one. Whiskers reach from p10 to p90. Bars of recorded rows are lighter, with a dashed outline.
#[derive(Debug, Clone)]
#[must_use = "a chart shows itself as the last expression of a cell, without a semicolon"]
pub struct BarChart {
    rows: Vec<Measurement>,
    notes: Vec<String>,
    title: String,
    log: bool,
    predictions: Vec<(String, f64)>,
}

/// Whether a higher value is the faster one; `None` where speed is not the matter.
pub(super) fn better(metric: &str, unit: &str) -> Option<bool> {
    match metric {
        "time" | "latency" => Some(false),
        _ if unit.ends_with("/s") => Some(true),
        "bandwidth" | "throughput" => Some(true),
        _ => None,
    }
}

impl BarChart {
    pub(super) fn new(rows: &[Measurement]) -> BarChart {
        let mut notes = Vec::new();
        let mut kept: Vec<Measurement> = one_unit(rows, None, &mut notes).into_iter().cloned().collect();
        let all = kept.len();
        kept.retain(|row| fits_linear(row.summary.median));
        if kept.len() < all {
            notes.push(format!("Not drawn: {} whose value is no number from 0 up.", count(all - kept.len(), "row")));
        }
        BarChart { rows: kept, notes, title: String::new(), log: false, predictions: Vec::new() }
    }

    /// The title; a good one says what the chart shows.
    pub fn title(mut self, title: &str) -> BarChart {
        self.title = title.to_string();
        self
    }

    /// A logarithmic axis: for values that differ by more than about 50. Bars of the value 0 are then left out.
    pub fn log(mut self) -> BarChart {
        self.log = true;
        self
    }

    /// Sorts the bars by value, the largest on top; without it they keep the order given.
    pub fn sorted(mut self) -> BarChart {
        self.rows.sort_by(|a, b| b.summary.median.total_cmp(&a.summary.median));
        self
    }

    /// A predicted value, in the chart's unit: a dashed mark across every bar.
    pub fn prediction(mut self, label: &str, value: f64) -> BarChart {
        self.predictions.push((label.to_string(), value));
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
            let y = self.plot(canvas, &rows, &marks, y);
            notes(canvas, &remarks, y) + MARGIN
        })
    }

    /// What the notebook calls to show the chart.
    pub fn evcxr_display(&self) {
        self.draw().evcxr_display();
    }

    fn plot(&self, canvas: &mut Canvas<'_>, rows: &[&Measurement], marks: &[&(String, f64)], top: f64) -> f64 {
        const BAR: f64 = 18.0;
        let texts = self.values(rows);
        let room = texts.iter().map(|text| width(text, FONT)).fold(0.0, f64::max) + 14.0;
        let left = MARGIN + 6.0;
        let x = self.scale(rows, marks, left, WIDTH - MARGIN - room);
        let (with_size, with_type) = (differs(rows, |row| row.size), differs(rows, |row| row.dtype.len()));

        let mut y = top;
        for (label, value) in marks {
            canvas.line((left, y + LINE / 2.0), (left + 32.0, y + LINE / 2.0), &PREDICTION);
            let text = format!("{label}: {} {}", figures(*value), rows[0].unit);
            canvas.text(&text, (left + 40.0, y + LINE / 2.0), Align::Left);
            y += LINE + 2.0;
        }
        let start = y;
        let tick_values = if self.log { log_ticks(x.min, x.max) } else { linear_ticks(x.min, x.max, 6) };
        let labels: Vec<Vec<String>> = rows
            .iter()
            .map(|row| {
                let size = if with_size { format!(", size {}", row.size) } else { String::new() };
                wrap(&format!("{}{size}", label(row, with_type)), FONT, WIDTH - left - MARGIN)
            })
            .collect();
        let lines: usize = labels.iter().map(Vec::len).sum();
        let bottom = start + lines as f64 * LINE + rows.len() as f64 * (BAR + 8.0) + 4.0;
        let below = x_axis(canvas, bottom, bottom, &ticks(&x, &tick_values, number));
        canvas.line((left, bottom), (x.end, bottom), &AXIS);
        for ((row, lines), text) in rows.iter().zip(&labels).zip(&texts) {
            for line in lines {
                canvas.text(line, (left, y + LINE / 2.0 + 2.0), Align::Left);
                y += LINE;
            }
            let (bar_top, bar_end) = (y + 3.0, y + 3.0 + BAR);
            for value in &tick_values {
                canvas.line((x.at(*value), bar_top), (x.at(*value), bar_end), &GRID);
            }
            bar(canvas, row, &x, bar_top, bar_end, text);
            for (_, value) in marks {
                canvas.line((x.at(*value), bar_top - 4.0), (x.at(*value), bar_end + 4.0), &PREDICTION);
            }
            y += BAR + 8.0;
        }
        let scale = if self.log { ", log scale" } else { "" };
        let name = format!("{} ({}{scale})", rows[0].metric, rows[0].unit);
        canvas.text(&name, ((x.start + x.end) / 2.0, below + 8.0), Align::Middle);
        below + 8.0 + LINE
    }

    fn scale(&self, rows: &[&Measurement], marks: &[&(String, f64)], start: f64, end: f64) -> Scale {
        let highs = rows.iter().map(|row| spread(row).1);
        let max = highs.chain(marks.iter().map(|mark| mark.1)).fold(0.0, f64::max);
        if !self.log {
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
    fn values(&self, rows: &[&Measurement]) -> Vec<String> {
        let better = better(&rows[0].metric, &rows[0].unit);
        let values = || rows.iter().map(|row| row.summary.median);
        let base = match better {
            Some(true) => values().fold(f64::MAX, f64::min),
            Some(false) => values().fold(0.0, f64::max),
            None => rows[0].summary.median,
        };
        let ratio = |value: f64| {
            let ratio = if better == Some(false) { base / value } else { value / base };
            match better {
                _ if rows.len() == 1 || !ratio.is_finite() => String::new(),
                None => format!(", {}× the first", figures(ratio)),
                Some(_) if ratio == 1.0 => ", the slowest".to_string(),
                Some(_) => format!(", {}× as fast", figures(ratio)),
            }
        };
        values().map(|value| format!("{} {}{}", figures(value), rows[0].unit, ratio(value))).collect()
    }
}

const PREDICTION: Pen = Pen::solid(INK, 1.8).dash(LONG);

/// One bar with its whiskers and its text.
fn bar(canvas: &mut Canvas<'_>, row: &Measurement, x: &Scale, top: f64, bottom: f64, text: &str) {
    let fill = color(match row.backend {
        Backend::CpuOneCore | Backend::Cpu => 0,
        Backend::Cuda | Backend::Metal => 1,
        Backend::Model => 5,
    });
    let end = x.at(row.summary.median);
    canvas.rect((x.start, top), (end, bottom), fill, if row.recorded { 0.35 } else { 0.85 });
    let outline = Pen::solid(fill, 1.4).dash(if row.recorded { DASHED } else { super::style::SOLID });
    canvas.outline((x.start, top), (end, bottom), &outline);
    let (low, high) = spread(row);
    let middle = (top + bottom) / 2.0;
    if x.at(high) - x.at(low) >= 1.0 {
        let pen = Pen::solid(INK, 1.4);
        canvas.line((x.at(low), middle), (x.at(high), middle), &pen);
        for value in [low, high] {
            canvas.line((x.at(value), middle - 4.0), (x.at(value), middle + 4.0), &pen);
        }
    }
    canvas.text(text, (x.at(high).max(end) + 8.0, middle), Align::Left);
}

/// p10 and p90, or the median where one of them is no number.
fn spread(row: &Measurement) -> (f64, f64) {
    let mid = row.summary.median;
    let sound = |value: f64| if fits_linear(value) { value } else { mid };
    (sound(row.summary.p10).min(mid), sound(row.summary.p90).max(mid))
}

fn differs<T: PartialEq>(rows: &[&Measurement], of: impl Fn(&Measurement) -> T) -> bool {
    rows.iter().any(|row| of(row) != of(rows[0]))
}
