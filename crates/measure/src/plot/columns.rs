//! Upright bars side by side along a number line: a histogram, or a figure for each of many channels.

use super::canvas::{Align, BLUE, Canvas, DASHED, Figure, LINE, LONG, MARGIN, Pen, WIDTH, color, figure};
use super::curves::{count, fits_linear};
use super::frame::{
    AXIS, Sample, Scale, label_room, legend, linear_ticks, log_ticks, notes, nothing, number, short, ticks, x_axis,
    x_name, y_axis,
};
use crate::measurement::figures;

/// Where the bars stand.
const HEIGHT: f64 = 260.0;
/// Lines beyond this number are told by their first and last.
const SAID: usize = 20;

/// Upright bars side by side, one for each value, over a range of numbers; as the last expression of a cell it shows itself.
///
/// # Examples
/// ```
/// use gpulab_measure::plot;
/// let chart = plot::columns(&[1.0, 4.0, 2.0], (-0.3, 0.3))
///     .title("Weights of a row")
///     .labels("weight", "how many")
///     .lines("the grid", &[-0.2, 0.0, 0.2]);
/// let svg = chart.draw().svg();
/// assert!(["Weights of a row", "how many", "the grid"].iter().all(|text| svg.contains(text)));
/// ```
#[derive(Debug, Clone)]
#[must_use = "a chart shows itself as the last expression of a cell, without a semicolon"]
pub struct ColumnChart {
    values: Vec<f64>,
    range: (f64, f64),
    title: String,
    labels: (String, String),
    log: bool,
    lines: Vec<(String, Vec<f64>)>,
}

chart!(ColumnChart);

impl ColumnChart {
    pub(super) fn new(values: &[f64], range: (f64, f64)) -> ColumnChart {
        let labels = (String::new(), "count".to_string());
        ColumnChart { values: values.to_vec(), range, title: String::new(), labels, log: false, lines: Vec::new() }
    }

    /// What stands along the horizontal axis, and what the bars' heights are.
    pub fn labels(mut self, x: &str, y: &str) -> ColumnChart {
        self.labels = (x.to_string(), y.to_string());
        self
    }

    /// Heights on a logarithmic axis, from 1 on: what is rare shows beside what is frequent.
    pub fn log(mut self) -> ColumnChart {
        self.log = true;
        self
    }

    /// Upright lines at these places, such as the values that a format can hold.
    pub fn lines(mut self, label: &str, at: &[f64]) -> ColumnChart {
        self.lines.push((label.to_string(), at.to_vec()));
        self
    }

    /// Draws the chart.
    pub fn draw(&self) -> Figure {
        let (from, to) = self.range;
        let sound = self.values.iter().filter(|value| fits_linear(**value)).count();
        if sound == 0 || !from.is_finite() || !to.is_finite() || from >= to {
            return nothing(&self.title, &[format!("{} values over {from} to {to}.", self.values.len())]);
        }
        let mut remarks = Vec::new();
        if sound < self.values.len() {
            let left = count(self.values.len() - sound, "value");
            remarks.push(format!("Not drawn: {left} that are no numbers from 0 up."));
        }
        for (label, at) in &self.lines {
            let outside = at.iter().filter(|x| !(from..=to).contains(*x)).count();
            if outside > 0 {
                remarks
                    .push(format!("Not drawn: {outside} of the {} lines of {label}, outside of the chart.", at.len()));
            }
        }
        figure(&self.title, |canvas| {
            let top = canvas.title(&self.title);
            let y = self.plot(canvas, top);
            let samples = self.lines.iter().enumerate();
            let samples: Vec<(Sample, String)> =
                samples.map(|(n, (label, _))| (Sample::Rule(pen(n)), label.clone())).collect();
            let y = legend(canvas, &samples, y);
            notes(canvas, &remarks, y) + MARGIN
        })
    }

    fn plot(&self, canvas: &mut Canvas<'_>, top: f64) -> f64 {
        let fits = |value: &f64| fits_linear(*value);
        let most = self.values.iter().copied().filter(fits).fold(0.0, f64::max).max(f64::MIN_POSITIVE);
        let y_values = if self.log { log_ticks(1.0, most.max(10.0)) } else { linear_ticks(0.0, most, 5) };
        let names: Vec<String> = y_values.iter().map(|value| number(*value)).collect();
        let left = MARGIN + label_room(&names) + 8.0;
        let (from, to) = self.range;
        let x = Scale { log: false, min: from, max: to, start: left, end: WIDTH - MARGIN - 6.0 };
        let top = top + LINE + 4.0;
        let (low, high) = if self.log { (0.7, most.max(10.0) * 1.1) } else { (0.0, most * 1.04) };
        let y = Scale { log: self.log, min: low, max: high, start: top + HEIGHT, end: top };
        let (x_label, y_label) = &self.labels;
        let scale = if self.log { " (log scale)" } else { "" };
        canvas.text(&format!("{y_label}{scale}"), (MARGIN, top - 4.0 - LINE / 2.0), Align::Left);
        y_axis(canvas, &x, &ticks(&y, &y_values, number));
        let below = x_axis(canvas, y.start, y.start, &ticks(&x, &linear_ticks(from, to, 8), number));
        let wide = (x.end - x.start) / self.values.len() as f64;
        for (at, value) in self.values.iter().enumerate().filter(|(_, value)| fits(value) && **value > 0.0) {
            let left = x.start + wide * at as f64;
            // A hair of a gap, where there is room for one.
            let gap = if wide > 4.0 { 0.5 } else { 0.0 };
            canvas.rect((left + gap, y.at(*value)), (left + wide - gap, y.start), BLUE, 0.6);
        }
        let place = |at: usize| from + (to - from) * (at as f64 + 0.5) / self.values.len() as f64;
        let highest = (0..self.values.len()).filter(|at| fits(&self.values[*at]));
        if let Some(at) = highest.max_by(|a, b| self.values[*a].total_cmp(&self.values[*b])) {
            let (value, place) = (figures(self.values[at]), figures(place(at)));
            canvas.describe(format!("{} bars; the highest, {value}, at {place}", self.values.len()));
        }
        for (n, (label, at)) in self.lines.iter().enumerate() {
            let inside: Vec<f64> = at.iter().copied().filter(|x| (from..=to).contains(x)).collect();
            for place in &inside {
                canvas.line((x.at(*place), y.end), (x.at(*place), y.start), &pen(n));
            }
            let said: Vec<String> = inside.iter().take(SAID).map(|place| short(*place)).collect();
            let more = if inside.len() > SAID { " …" } else { "" };
            canvas.describe(format!("{label}: {}{more}", said.join(", ")));
        }
        canvas.path(&[(x.start, y.end), (x.start, y.start), (x.end, y.start)], &AXIS);
        x_name(canvas, &x, below, x_label)
    }
}

/// Of the lines with that number.
fn pen(n: usize) -> Pen {
    Pen::solid(color(n + 1), 1.4).dash(if n == 0 { DASHED } else { LONG })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bars_lines_and_what_is_left_out() {
        let chart = ColumnChart::new(&[5.0, 0.0, 500.0, f64::NAN], (0.0, 4.0)).labels("channel", "largest input");
        let svg = chart.clone().log().lines("grid", &[1.0, 9.0]).title("Loud channels").draw().svg();
        for text in ["Loud channels", "channel", "largest input (log scale)", "1 value that are no", "1 of the 2 lines"]
        {
            assert!(svg.contains(text), "{text}: {svg}");
        }
        assert!(svg.contains("the highest, 500, at 2.50") && !svg.contains("NaN"), "{svg}");
        for empty in
            [ColumnChart::new(&[], (0.0, 1.0)), ColumnChart::new(&[1.0], (1.0, 1.0)), chart.clone().with_range()]
        {
            assert!(empty.draw().svg().contains("Nothing to draw"));
        }
    }

    impl ColumnChart {
        fn with_range(mut self) -> ColumnChart {
            self.range = (f64::NAN, 1.0);
            self
        }
    }
}
