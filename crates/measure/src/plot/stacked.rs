//! Horizontal bars made of parts: what a whole consists of, and how that changes from bar to bar.

use super::bars::{PREDICTION, predictions};
use super::canvas::{
    Align, Canvas, DASHED, FONT, Figure, LINE, MARGIN, PALETTE, Pen, SOLID, WIDTH, color, figure, width, wrap,
};
use super::curves::{count, fits_linear, none_yet};
use super::frame::{
    AXIS, GRID, Sample, Scale, legend, linear_ticks, notes, nothing, number, short, sources, ticks, x_axis, x_name,
};
use crate::measurement::{Measurement, Summary, figures};

/// The part that holds what has no colour of its own.
const OTHERS: &str = "others";

/// Stacked bars; as the last expression of a cell they show themselves. A bar is all rows of one experiment, a part of it
/// one row, named by its metric. Parts have the same colour in every bar; those of recorded rows are lighter, with a dashed
/// outline. There are six colours: of more parts the smallest, over all bars, become one, which a note spells out.
#[derive(Debug, Clone, Default)]
#[must_use = "a chart shows itself as the last expression of a cell, without a semicolon"]
pub struct StackedChart {
    rows: Vec<Measurement>,
    notes: Vec<String>,
    title: String,
    predictions: Vec<(String, f64)>,
}

const BAR: f64 = 24.0;
const GAP: f64 = 8.0;

chart!(StackedChart);

impl StackedChart {
    pub(super) fn new(rows: &[Measurement]) -> StackedChart {
        let unit = rows.first().map_or(String::new(), |row| row.unit.clone());
        let kept: Vec<Measurement> =
            rows.iter().filter(|row| row.unit == unit && fits_linear(row.summary.median)).cloned().collect();
        let mut notes = Vec::new();
        if kept.len() < rows.len() {
            let rows = count(rows.len() - kept.len(), "row");
            notes.push(format!("Not drawn: {rows} of another unit, or whose value is no number from 0 up."));
        }
        let (rows, others) = in_colours(kept);
        if !others.is_empty() {
            notes.push(format!("{OTHERS}: {}.", others.join(", ")));
        }
        StackedChart { rows, notes, ..StackedChart::default() }
    }

    /// A predicted whole, in the chart's unit: a dashed mark across every bar. With `None` the chart says that there is
    /// none yet.
    pub fn prediction(mut self, label: &str, value: impl Into<Option<f64>>) -> StackedChart {
        match value.into() {
            Some(value) => self.predictions.push((label.to_string(), value)),
            None => self.notes.push(none_yet(label)),
        }
        self
    }

    /// Draws the chart.
    pub fn draw(&self) -> Figure {
        let mut remarks = self.notes.clone();
        for (label, value) in self.predictions.iter().filter(|mark| !fits_linear(mark.1)) {
            remarks.push(format!("Not drawn: {label}, {value}: the axis holds no such number."));
        }
        if self.rows.is_empty() {
            return nothing(&self.title, &remarks);
        }
        let recorded: Vec<Measurement> = self.rows.iter().filter(|row| row.recorded).cloned().collect();
        remarks.extend(sources(&recorded));
        figure(&self.title, |canvas| {
            let y = canvas.title(&self.title);
            let y = self.plot(canvas, y);
            let parts = names(&self.rows, |row| &row.metric);
            let entries: Vec<(Sample, String)> =
                parts.iter().enumerate().map(|(at, part)| (Sample::Box(color(at), 0.65), part.to_string())).collect();
            let y = legend(canvas, &entries, y + 4.0);
            notes(canvas, &remarks, y) + MARGIN
        })
    }

    fn of<'a>(&'a self, bar: &'a str) -> impl Iterator<Item = &'a Measurement> {
        self.rows.iter().filter(move |row| row.experiment == bar)
    }

    fn plot(&self, canvas: &mut Canvas<'_>, top: f64) -> f64 {
        let unit = &self.rows[0].unit;
        let bars = names(&self.rows, |row| &row.experiment);
        let parts = names(&self.rows, |row| &row.metric);
        let total = |bar: &str| self.of(bar).map(|row| row.summary.median).sum::<f64>();
        // As the parts are, and without digits where there are none.
        let written =
            |value: f64| format!("{} {unit}", if value.fract() == 0.0 { short(value) } else { figures(value) });
        let room = bars.iter().map(|bar| width(&written(total(bar)), FONT)).fold(0.0, f64::max) + 16.0;
        let marks: Vec<&(String, f64)> = self.predictions.iter().filter(|mark| fits_linear(mark.1)).collect();
        let most = bars.iter().map(|bar| total(bar)).chain(marks.iter().map(|mark| mark.1)).fold(0.0, f64::max);
        let max = if most > 0.0 { most * 1.02 } else { 1.0 };
        let x = Scale { log: false, min: 0.0, max, start: MARGIN + 6.0, end: WIDTH - MARGIN - room };

        let mut y = predictions(canvas, &marks, unit, (x.start, top));
        let labels: Vec<Vec<String>> = bars.iter().map(|bar| wrap(bar, FONT, WIDTH - 2.0 * MARGIN - 6.0)).collect();
        let lines: usize = labels.iter().map(Vec::len).sum();
        let bottom = y + lines as f64 * LINE + bars.len() as f64 * (BAR + GAP) + 4.0;
        let tick_values = linear_ticks(0.0, max, 6);
        let below = x_axis(canvas, bottom, bottom, &ticks(&x, &tick_values, number));
        canvas.line((x.start, bottom), (x.end, bottom), &AXIS);
        for (bar, label) in bars.iter().zip(&labels) {
            for line in label {
                canvas.text(line, (x.start, y + LINE / 2.0 + 2.0), Align::Left);
                y += LINE;
            }
            let (bar_top, bar_end) = (y + 2.0, y + 2.0 + BAR);
            for tick in &tick_values {
                canvas.line((x.at(*tick), bar_top), (x.at(*tick), bar_end), &GRID);
            }
            let said = |row: &Measurement| format!("{} {}", row.metric, written(row.summary.median));
            canvas.describe(format!("{bar}: {}", self.of(bar).map(said).collect::<Vec<_>>().join(", ")));
            let mut from = 0.0;
            for row in self.of(bar) {
                let value = row.summary.median;
                let fill = color(parts.iter().position(|part| **part == row.metric).unwrap_or(0));
                let (left, right) = (x.at(from), x.at(from + value));
                canvas.rect((left, bar_top), (right, bar_end), fill, if row.recorded { 0.3 } else { 0.65 });
                let pen = Pen::solid(fill, 1.2).dash(if row.recorded { DASHED } else { SOLID });
                canvas.outline((left, bar_top), (right, bar_end), &pen);
                let text = figures(value);
                if width(&text, FONT) + 8.0 < right - left {
                    canvas.text(&text, ((left + right) / 2.0, (bar_top + bar_end) / 2.0), Align::Middle);
                }
                from += value;
            }
            for (_, value) in &marks {
                canvas.line((x.at(*value), bar_top - 2.0), (x.at(*value), bar_end + 2.0), &PREDICTION);
            }
            // Right of a mark that would strike it through.
            let text = written(from);
            let beside = x.at(from) + 8.0;
            let struck = |mark: &&&(String, f64)| (beside - 4.0..beside + width(&text, FONT)).contains(&x.at(mark.1));
            let at = marks.iter().find(struck).map_or(beside, |mark| x.at(mark.1) + 8.0);
            canvas.text(&text, (at, (bar_top + bar_end) / 2.0), Align::Left);
            y += BAR + GAP;
        }
        x_name(canvas, &x, below, &format!("sum of the parts ({unit})"))
    }
}

/// No more kinds of parts than colours: the smallest over all bars become one row of each bar. Gives their names, too.
fn in_colours(rows: Vec<Measurement>) -> (Vec<Measurement>, Vec<String>) {
    let mut parts = names(&rows, |row| &row.metric);
    if parts.len() <= PALETTE.len() {
        return (rows, Vec::new());
    }
    let total =
        |part: &String| rows.iter().filter(|row| row.metric == *part).map(|row| row.summary.median).sum::<f64>();
    parts.sort_by(|a, b| total(b).total_cmp(&total(a)));
    let others = parts.split_off(PALETTE.len() - 1);
    let (mut kept, small): (Vec<_>, Vec<_>) = rows.into_iter().partition(|row| parts.contains(&row.metric));
    for bar in names(&small, |row| &row.experiment) {
        let of_bar: Vec<&Measurement> = small.iter().filter(|row| row.experiment == bar).collect();
        let sum = of_bar.iter().map(|row| row.summary.median).sum();
        kept.push(Measurement { metric: OTHERS.to_string(), summary: Summary::of(&[sum]), ..of_bar[0].clone() });
    }
    (kept, others)
}

/// The different names, in the order in which they first appear.
fn names(rows: &[Measurement], of: impl Fn(&Measurement) -> &String) -> Vec<String> {
    let mut names: Vec<String> = Vec::new();
    for row in rows {
        if !names.contains(of(row)) {
            names.push(of(row).clone());
        }
    }
    names
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::measurement::Backend;

    fn row(bar: &str, part: &str, mb: f64) -> Measurement {
        Measurement::new(bar, Backend::Cpu, 1, part, "MB", Summary { median: mb, p10: mb, p90: mb, samples: 1 })
    }

    #[test]
    fn parts_stand_beside_each_other_and_the_whole_is_written() {
        let mut rows =
            vec![row("small", "a", 10.0), row("small", "b", 30.0), row("large", "a", 10.0), row("large", "b", 300.0)];
        rows.push(row("broken", "a", 387.75));
        let svg = StackedChart::new(&rows).title("T").prediction("your guess", 123.0).draw().svg();
        for text in ["small", "large", "40 MB", "310 MB", "388 MB", "your guess: 123 MB", "sum of the parts (MB)"] {
            assert!(svg.contains(text), "{text}: {svg}");
        }
        // Two entries in the legend, though four rows.
        assert_eq!((svg.matches(">\na\n<").count(), svg.matches(">\nb\n<").count()), (1, 1), "{svg}");
    }

    #[test]
    fn what_cannot_be_drawn_is_counted_and_recorded_rows_name_their_machine() {
        let mut rows =
            [row("x", "a", f64::NAN), row("x", "b", 1.0), Measurement { unit: "s".to_string(), ..row("x", "c", 1.0) }];
        rows[1].recorded = true;
        rows[1].machine = "NVIDIA H200".to_string();
        let chart = StackedChart::new(&rows[1..]).prediction("p", f64::NAN);
        let svg = chart.draw().svg();
        for text in ["Not drawn: 1 row of another unit", "Not drawn: p, NaN", "Recorded on NVIDIA H200"] {
            assert!(svg.contains(text), "{text}: {svg}");
        }
        assert!(StackedChart::new(&[]).draw().svg().contains("Nothing to draw"));
        assert!(StackedChart::new(&[row("x", "a", 0.0)]).draw().svg().contains("0 MB"));
        assert!(StackedChart::new(&rows[..1]).draw().svg().contains("Not drawn: 1 row"));
    }

    #[test]
    fn no_colour_stands_for_two_parts() {
        let names = ["a", "b", "c", "d", "e", "f", "g", "h"];
        let mut rows: Vec<Measurement> = (1..).zip(names).map(|(mb, part)| row("one", part, f64::from(mb))).collect();
        rows.push(row("two", "a", 100.0));
        rows.push(row("two", "b", 1.0));
        let chart = StackedChart::new(&rows);
        // Over both bars a, h, g, f and e are the largest; c, d and b (2 + 1) are left.
        assert_eq!(super::names(&chart.rows, |row| &row.metric), ["a", "e", "f", "g", "h", "others"]);
        let others: Vec<f64> = chart.rows.iter().filter(|row| row.metric == "others").map(|row| row.median()).collect();
        assert_eq!(others, [9.0, 1.0]);
        let svg = chart.draw().svg();
        assert!(svg.contains("others: d, b, c.") && svg.contains("36 MB"), "{svg}");
    }
}
