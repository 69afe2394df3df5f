//! Numbers over time, a panel each, one below the other.

use super::canvas::{
    Align, Canvas, FONT, Figure, INK, LINE, LONG, MARGIN, ORANGE, Pen, Point, WIDTH, color, figure, width,
};
use super::curves::none_yet;
use super::frame::{
    AXIS, Flag, GRID, Sample, Scale, flags, legend, linear_ticks, notes, nothing, number, short, ticks, x_axis, x_name,
    y_axis,
};

/// One panel of a [`TimeChart`]: a quantity with its unit, and one curve or more.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct TimePanel {
    /// The quantity and its unit, such as `power (W)`.
    pub name: String,
    /// Name and points of each curve: seconds and value, in the order of time. A value that is not finite is a gap.
    pub curves: Vec<(String, Vec<(f64, f64)>)>,
    /// What the axis reaches up to at least, such as 100 for percent.
    pub top: f64,
}

/// Panels over one time axis in seconds. As the last expression of a cell it shows itself.
#[derive(Debug, Clone, Default)]
#[must_use = "a chart shows itself as the last expression of a cell, without a semicolon"]
pub struct TimeChart {
    panels: Vec<TimePanel>,
    title: String,
    marks: Vec<(String, f64)>,
    bars: Vec<(String, f64, f64)>,
    predictions: Vec<(String, String, f64)>,
    notes: Vec<String>,
}

chart!(TimeChart);

const HEIGHT: f64 = 74.0;
const NAME_ROOM: f64 = LINE + 8.0;

impl TimeChart {
    pub(super) fn new(panels: &[TimePanel]) -> TimeChart {
        TimeChart { panels: panels.to_vec(), ..TimeChart::default() }
    }

    /// A vertical line through all panels where something begins.
    pub fn mark(mut self, label: &str, seconds: f64) -> TimeChart {
        self.marks.push((label.to_string(), seconds));
        self
    }

    /// A bar above the panels from one moment to another, such as an alert that fires.
    pub fn bar(mut self, label: &str, from: f64, to: f64) -> TimeChart {
        self.bars.push((label.to_string(), from, to));
        self
    }

    /// A horizontal line in the panel of that name. With `None` the chart says that there is no prediction yet.
    pub fn prediction(mut self, panel: &str, label: &str, value: impl Into<Option<f64>>) -> TimeChart {
        match value.into() {
            Some(value) => self.predictions.push((panel.to_string(), label.to_string(), value)),
            None => self.notes.push(none_yet(label)),
        }
        self
    }

    /// A line below the chart.
    pub fn note(mut self, text: &str) -> TimeChart {
        self.notes.push(text.to_string());
        self
    }

    /// Draws the chart. Panels without a point are left out.
    pub fn draw(&self) -> Figure {
        let sound = |panel: &&TimePanel| panel.curves.iter().any(|curve| curve.1.iter().any(finite));
        let panels: Vec<&TimePanel> = self.panels.iter().filter(sound).collect();
        let times = || panels.iter().flat_map(|panel| &panel.curves).flat_map(|curve| &curve.1).filter(|p| finite(p));
        let (from, to) = times().fold((f64::MAX, f64::MIN), |(a, b), point| (a.min(point.0), b.max(point.0)));
        if panels.is_empty() {
            return nothing(&self.title, &self.notes);
        }
        figure(&self.title, |canvas| {
            let top = canvas.title(&self.title);
            let tops: Vec<f64> = panels.iter().map(|panel| self.reach(panel)).collect();
            let labels = |top: &f64| linear_ticks(0.0, *top, 3).into_iter().map(number).collect::<Vec<String>>();
            let room = tops.iter().flat_map(labels).map(|label| width(&label, FONT)).fold(0.0, f64::max);
            let x = Scale {
                log: false,
                min: from,
                max: to.max(from + 1e-3),
                start: MARGIN + room + 10.0,
                end: WIDTH - MARGIN - 6.0,
            };
            let y = self.poles(canvas, &x, top, panels.len());
            let mut y = self.bars(canvas, &x, y);
            let mut entries: Vec<(Sample, String)> = Vec::new();
            for (panel, (top, at)) in panels.iter().zip(tops.iter().zip(1..)) {
                y = self.panel(canvas, panel, &x, y, *top, at == panels.len());
                if panel.curves.len() > 1 {
                    let curves = panel.curves.iter().enumerate();
                    let of_panel = |name: &str| format!("{}: {name}", panel.name);
                    entries
                        .extend(curves.map(|(n, curve)| (Sample::Rule(Pen::solid(color(n), 1.8)), of_panel(&curve.0))));
                }
            }
            let y = legend(canvas, &entries, y + 4.0);
            notes(canvas, &self.notes, y) + MARGIN
        })
    }

    /// What a panel's axis reaches up to.
    fn reach(&self, panel: &TimePanel) -> f64 {
        let values = panel.curves.iter().flat_map(|curve| &curve.1).map(|point| point.1);
        let guesses = self.predictions.iter().filter(|guess| guess.0 == panel.name).map(|guess| guess.2);
        let most = values.chain(guesses).filter(|value| value.is_finite()).fold(panel.top, f64::max);
        if most > 0.0 { most * 1.06 } else { 1.0 }
    }

    /// The marks, as flags above the panels and lines through all of them.
    fn poles(&self, canvas: &mut Canvas<'_>, x: &Scale, top: f64, panels: usize) -> f64 {
        let inside = self.marks.iter().filter(|mark| mark.1 >= x.min - 1e-9 && mark.1 <= x.max);
        let poles: Vec<Flag> = inside.map(|(text, at)| Flag { x: x.at(*at), text: text.clone() }).collect();
        let positions = flags(&poles, x.start, WIDTH - MARGIN);
        let rows = positions.iter().map(|position| position.row + 1).max().unwrap_or(0);
        let below = top + LINE * rows as f64 + 6.0;
        let end = below + self.bar_room() + (HEIGHT + NAME_ROOM) * panels as f64;
        for (flag, position) in poles.iter().zip(&positions) {
            let middle = below - 6.0 - LINE * (position.row as f64 + 0.5);
            canvas.line((flag.x, middle - 7.0), (flag.x, end), &GRID);
            canvas.text(&flag.text, (position.x, middle), position.align);
        }
        below
    }

    fn bar_room(&self) -> f64 {
        self.lanes().len() as f64 * (LINE + 4.0)
    }

    /// The bars' names, each once.
    fn lanes(&self) -> Vec<&str> {
        let mut names: Vec<&str> = Vec::new();
        for (name, ..) in &self.bars {
            if !names.contains(&name.as_str()) {
                names.push(name);
            }
        }
        names
    }

    fn bars(&self, canvas: &mut Canvas<'_>, x: &Scale, top: f64) -> f64 {
        for (lane, name) in self.lanes().into_iter().enumerate() {
            let (above, below) = (top + (LINE + 4.0) * lane as f64, top + (LINE + 4.0) * (lane + 1) as f64 - 3.0);
            for (_, from, to) in self.bars.iter().filter(|bar| bar.0 == name) {
                canvas.describe(format!("{name}: from {} s to {} s", short(*from), short(*to)));
                // Wide enough to be seen.
                let right = x.at(*to).max(x.at(*from) + 3.0);
                canvas.rect((x.at(*from), above), (right, below), ORANGE, 0.35);
            }
            let first = self.bars.iter().filter(|bar| bar.0 == name).map(|bar| x.at(bar.1)).fold(x.end, f64::min);
            let middle = (above + below) / 2.0;
            // Left of the first bar where there is room.
            match first - x.start > width(name, FONT) + 8.0 {
                true => canvas.text(name, (first - 6.0, middle), Align::Right),
                false => canvas.text(name, (first + 6.0, middle), Align::Left),
            }
        }
        top + self.bar_room()
    }

    fn panel(&self, canvas: &mut Canvas<'_>, panel: &TimePanel, x: &Scale, top: f64, reach: f64, last: bool) -> f64 {
        let y = Scale { log: false, min: 0.0, max: reach, start: top + NAME_ROOM + HEIGHT, end: top + NAME_ROOM };
        canvas.text(&panel.name, (MARGIN, top + NAME_ROOM - 12.0), Align::Left);
        y_axis(canvas, x, &ticks(&y, &linear_ticks(0.0, reach, 3), number));
        canvas.path(&[(x.start, y.end), (x.start, y.start), (x.end, y.start)], &AXIS);
        for (n, (name, points)) in panel.curves.iter().enumerate() {
            for piece in points.split(|point| !finite(point)).filter(|piece| !piece.is_empty()) {
                let mut line: Vec<Point> = piece.iter().map(|point| (x.at(point.0), y.at(point.1))).collect();
                if let [one] = line[..] {
                    line.push((one.0 + 2.0, one.1));
                }
                canvas.path(&line, &Pen::solid(color(n), 1.8));
            }
            let sound: Vec<f64> = points.iter().filter(|point| finite(point)).map(|point| point.1).collect();
            if let Some(now) = sound.last() {
                let (least, most) = sound.iter().fold((*now, *now), |(a, b), value| (a.min(*value), b.max(*value)));
                let name = if name.is_empty() { panel.name.clone() } else { format!("{}, {name}", panel.name) };
                canvas.describe(format!(
                    "{name}: from {} to {}, at the end {}",
                    short(least),
                    short(most),
                    short(*now)
                ));
            }
        }
        for (_, label, value) in self.predictions.iter().filter(|guess| guess.0 == panel.name) {
            canvas.line((x.start, y.at(*value)), (x.end, y.at(*value)), &Pen::solid(INK, 1.6).dash(LONG));
            canvas.text(&format!("{label}: {}", short(*value)), (x.end, top + NAME_ROOM - 12.0), Align::Right);
        }
        if last {
            let values = linear_ticks(x.min, x.max, 8);
            let below = x_axis(canvas, top + NAME_ROOM, y.start, &ticks(x, &values, number));
            return x_name(canvas, x, below, "time (s)");
        }
        y.start
    }
}

fn finite(point: &(f64, f64)) -> bool {
    point.0.is_finite() && point.1.is_finite()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn panel(name: &str, values: &[f64]) -> TimePanel {
        let points = values.iter().enumerate().map(|(at, value)| (at as f64, *value)).collect();
        TimePanel { name: name.to_string(), curves: vec![(String::new(), points)], top: 0.0 }
    }

    #[test]
    fn panels_marks_bars_and_predictions_are_drawn_and_said() {
        let two = TimePanel {
            curves: vec![("in".into(), vec![(0.0, 1.0)]), ("out".into(), vec![(0.0, 2.0)])],
            ..panel("PCIe (GB/s)", &[])
        };
        let chart =
            TimeChart::new(&[panel("power (W)", &[100.0, 700.0, f64::NAN, 90.0]), two, panel("nothing", &[f64::NAN])]);
        let chart =
            chart.title("A run").mark("matmul", 1.0).bar("hot", 1.0, 2.0).prediction("power (W)", "your guess", 500.0);
        let svg = chart.prediction("power (W)", "another", None).note("Generated.").draw().svg();
        for text in
            ["A run", "power (W)", "matmul", "hot", "your guess: 500", "PCIe (GB/s): out", "time (s)", "Generated."]
        {
            assert!(svg.contains(text), "{text}");
        }
        assert!(
            svg.contains("power (W): from 90 to 700, at the end 90")
                && !svg.contains("NaN")
                && !svg.contains("nothing")
        );
        assert!(svg.contains("another"), "no prediction yet is said");
        let empty = TimeChart::new(&[]).title("Empty").draw().svg();
        assert!(empty.contains("Empty"));
    }
}
