//! Horizontal bars: a few figures side by side, with their ratio.

use super::canvas::{MARGIN, figure};
use super::curves::{count, fits_linear, fits_log, one_unit};
use super::legend::{notes, nothing};
use super::{Figure, bars_draw};
use crate::measurement::Measurement;

/// A chart of horizontal bars; as the last expression of a cell it shows itself.
///
/// Each bar carries its value and its ratio to the slowest bar. Where neither direction is the faster one, that is the
/// ratio to the first bar, and only if all bars have one name. Whiskers reach from p10 to p90. Bars of recorded rows are
/// lighter, with a dashed outline.
#[derive(Debug, Clone)]
#[must_use = "a chart shows itself as the last expression of a cell, without a semicolon"]
pub struct BarChart {
    rows: Vec<Measurement>,
    notes: Vec<String>,
    title: String,
    log: bool,
    predictions: Vec<(String, f64)>,
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
            let y = bars_draw::plot(canvas, self.log, &rows, &marks, y);
            notes(canvas, &remarks, y) + MARGIN
        })
    }

    /// What the notebook calls to show the chart.
    pub fn evcxr_display(&self) {
        self.draw().evcxr_display();
    }
}
