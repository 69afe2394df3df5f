//! Rooflines: roofs, points, and their names in a column beside them, so that no name covers another.

use super::canvas::{
    Align, BLUE, Canvas, DASHED, Dash, FONT, Figure, GREEN, GREY, INK, LINE, LONG, MARGIN, Marker, ORANGE, Pen, Point,
    SOLID, WIDTH, figure, width,
};
use super::curves::{count, fits_log};
use super::frame::{
    AXIS, Sample, Scale, label_room, legend, log_ticks, notes, nothing, number, short, spread_out, ticks, x_axis,
    x_name, y_axis,
};
use super::ladder::is_rung;
use crate::measurement::figures;

/// What one rung or peer reached: a point of a roofline.
#[derive(Debug, Clone, PartialEq)]
pub struct Reached {
    /// Its name, such as `03_whole_warps`, or a peer's, such as `cuBLAS`.
    pub name: String,
    /// Operations for each byte that comes from or goes to the GPU's memory.
    pub flop_per_byte: f64,
    /// 10¹² operations a second.
    pub tflop_per_s: f64,
    /// Whether the figure is a recorded one.
    pub recorded: bool,
}

/// Operations per byte against operations a second, both axes logarithmic, under the roofs that memory and arithmetic
/// set. As the last expression of a cell it shows itself. Points of recorded figures are hollow.
#[derive(Debug, Clone, Default)]
#[must_use = "a chart shows itself as the last expression of a cell, without a semicolon"]
pub struct Roofline {
    pub(super) points: Vec<Reached>,
    pub(super) notes: Vec<String>,
    pub(super) title: String,
    pub(super) memory: Vec<(String, f64)>,
    pub(super) compute: Vec<(String, f64)>,
    /// Why there is no roofline at all.
    pub(super) refused: String,
}

chart!(Roofline);

impl Roofline {
    pub(super) fn new(points: &[Reached]) -> Roofline {
        let fits = |point: &&Reached| fits_log(point.flop_per_byte) && fits_log(point.tflop_per_s);
        let kept: Vec<Reached> = points.iter().filter(fits).cloned().collect();
        let mut notes = Vec::new();
        if kept.len() < points.len() {
            let left = count(points.len() - kept.len(), "point");
            notes.push(format!("Not drawn: {left}; a logarithmic axis holds only numbers above 0."));
        }
        Roofline { points: kept, notes, ..Roofline::default() }
    }

    /// In place of a chart: why there can be none, and what to look at.
    pub fn refused(title: &str, why: &str) -> Roofline {
        Roofline { refused: why.to_string(), ..Roofline::new(&[]).title(title) }
    }

    /// A roof that memory sets: so many GB/s (10⁹ bytes a second).
    pub fn memory_roof(mut self, label: &str, gb_per_s: f64) -> Roofline {
        self.memory.push((label.to_string(), gb_per_s));
        self
    }

    /// A roof that arithmetic sets: so many TFLOP/s.
    pub fn compute_roof(mut self, label: &str, tflop_per_s: f64) -> Roofline {
        self.compute.push((label.to_string(), tflop_per_s));
        self
    }

    /// A line below the chart, such as where the figures come from.
    pub fn note(mut self, text: &str) -> Roofline {
        self.notes.push(text.to_string());
        self
    }

    /// Draws the chart.
    pub fn draw(&self) -> Figure {
        if !self.refused.is_empty() {
            return figure(&self.title, |canvas| {
                let y = canvas.title(&self.title);
                notes(canvas, std::slice::from_ref(&self.refused), y) + MARGIN
            });
        }
        let mut remarks = self.notes.clone();
        if self.points.is_empty() {
            return nothing(&self.title, &remarks);
        }
        let all = self.memory.iter().chain(&self.compute);
        for (label, value) in all.filter(|roof| !fits_log(roof.1)) {
            remarks.push(format!("Not drawn: {label}, {value}: a logarithmic axis holds no such number."));
        }
        let fit = |roofs: &'_ [(String, f64)]| -> Vec<usize> {
            (0..roofs.len()).filter(|at| fits_log(roofs[*at].1)).collect()
        };
        let roofs = Roofs {
            memory: fit(&self.memory).into_iter().map(|at| &self.memory[at]).collect(),
            compute: fit(&self.compute).into_iter().map(|at| &self.compute[at]).collect(),
        };
        let above = |point: &&Reached| point.tflop_per_s > 1.03 * roofs.at(point.flop_per_byte);
        let above: Vec<&str> = self.points.iter().filter(above).map(|point| point.name.as_str()).collect();
        if !above.is_empty() {
            let why = "A cache served part of the bytes, or the roof is a copy's and reading alone is faster.";
            remarks.push(format!("Above the roof: {}. {why}", above.join(", ")));
        }
        figure(&self.title, |canvas| {
            let top = canvas.title(&self.title);
            let y = plot(canvas, &self.points, &roofs, top);
            let y = legend(canvas, &entries(self, &roofs), y);
            notes(canvas, &remarks, y) + MARGIN
        })
    }
}

const HEIGHT: f64 = 340.0;
/// From the rightmost point to the names.
const LEADER: f64 = 34.0;
const DASHES: [Dash; 3] = [SOLID, DASHED, LONG];

/// Roofs that an axis can hold.
struct Roofs<'a> {
    memory: Vec<&'a (String, f64)>,
    compute: Vec<&'a (String, f64)>,
}

impl Roofs<'_> {
    /// TFLOP/s under the highest of each kind.
    fn at(&self, flop_per_byte: f64) -> f64 {
        let highest = |of: &[&(String, f64)]| of.iter().map(|roof| roof.1).fold(f64::NAN, f64::max);
        (highest(&self.memory) / 1000.0 * flop_per_byte).min(highest(&self.compute))
    }

    /// TFLOP/s under the lowest roof of memory and the highest of arithmetic, where there is one.
    fn lowest(&self, flop_per_byte: f64) -> Option<f64> {
        let memory = self.memory.iter().map(|roof| roof.1 / 1000.0 * flop_per_byte).fold(f64::MAX, f64::min);
        let compute = self.compute.iter().map(|roof| roof.1).fold(0.0, f64::max);
        let roof = if compute > 0.0 { memory.min(compute) } else { memory };
        (roof < f64::MAX).then_some(roof)
    }

    /// Where each pair of roofs meets, in FLOP a byte.
    fn ridges(&self) -> Vec<f64> {
        let meet =
            |memory: &&(String, f64)| self.compute.iter().map(|roof| roof.1 * 1000.0 / memory.1).collect::<Vec<_>>();
        self.memory.iter().flat_map(meet).collect()
    }
}

fn span(values: impl Iterator<Item = f64>) -> (f64, f64) {
    values.fold((f64::MAX, 0.0), |(min, max), value| (value.min(min), value.max(max)))
}

/// Draws axes, roofs, points and names from height `top` on; gives the height below the axis label.
fn plot(canvas: &mut Canvas<'_>, points: &[Reached], roofs: &Roofs<'_>, top: f64) -> f64 {
    let rates = points.iter().map(|point| point.tflop_per_s);
    let (y_min, y_max) = span(rates.chain(roofs.compute.iter().map(|roof| roof.1)));
    let (y_min, y_max) = (y_min / 2.0, y_max * 2.0);
    let y_values = log_ticks(y_min, y_max);
    let y_labels: Vec<String> = y_values.iter().map(|value| number(*value)).collect();
    let left = MARGIN + label_room(&y_labels) + 8.0;
    let (start, end) = (left, WIDTH - MARGIN - 6.0);

    // The axis goes on to the right until the names have room there.
    let (x_min, last) = span(points.iter().map(|point| point.flop_per_byte));
    let (low, high) = span(points.iter().map(|point| point.flop_per_byte).chain(roofs.ridges()));
    let x_min = low.min(x_min) / 4.0;
    let names = points.iter().map(|point| width(&point.name, FONT)).fold(0.0, f64::max);
    let share = ((LEADER + names + 10.0) / (end - start)).min(0.6);
    let needed = (last / x_min).powf(1.0 / (1.0 - share)) * x_min;
    let x = Scale { log: true, min: x_min, max: needed.max(high * 4.0), start, end };

    let height = HEIGHT.max(LINE * (points.len() + 1) as f64);
    let top = top + LINE + 4.0;
    let y = Scale { log: true, min: y_min, max: y_max, start: top + height, end: top };
    canvas.text("TFLOP/s (log scale; higher is faster)", (MARGIN, top - 4.0 - LINE / 2.0), Align::Left);
    y_axis(canvas, &x, &ticks(&y, &y_values, number));
    let below = x_axis(canvas, top, y.start, &ticks(&x, &log_ticks(x.min, x.max), number));
    canvas.path(&[(x.start, y.end), (x.start, y.start), (x.end, y.start)], &AXIS);

    let place = |point: &Reached| (x.at(point.flop_per_byte), y.at(point.tflop_per_s));
    draw_roofs(canvas, roofs, &x, &y);
    let column = x.at(last) + LEADER;
    // Names stay below the roofs where they begin, if their points do.
    let beginning = x.min * (x.max / x.min).powf((column - x.start) / (x.end - x.start));
    let highest = points.iter().map(|point| place(point).1).fold(f64::MAX, f64::min);
    let below_roof = roofs.lowest(beginning).map(|roof| y.at(roof) + LINE * 0.6);
    let ceiling = below_roof.filter(|ceiling| *ceiling < highest + 2.0 * LINE).unwrap_or(top);
    let wanted: Vec<f64> = points.iter().map(|point| place(point).1).collect();
    let heights = spread_out(&wanted, LINE - 1.0, ceiling.max(top + LINE / 2.0), y.start - LINE / 2.0);
    for (point, height) in points.iter().zip(&heights) {
        let (px, py) = place(point);
        let leader: [Point; 3] = [(px + 6.0, py), (column - 10.0, *height), (column - 4.0, *height)];
        canvas.path(&leader, &Pen::solid(INK, 1.0).alpha(0.45));
        canvas.text(&point.name, (column, *height), Align::Left);
    }
    for point in points {
        let (flop, rate) = (figures(point.flop_per_byte), figures(point.tflop_per_s));
        canvas.describe(format!("{}: {flop} FLOP/byte, {rate} TFLOP/s", point.name));
        let (marker, color) = look(point);
        canvas.marker(marker, place(point), color, point.recorded);
    }
    let label = "operations for each byte of memory (FLOP/byte, log scale)";
    x_name(canvas, &x, below, label)
}

/// Each roof ends where it meets the highest one of the other kind, or leaves the chart.
fn draw_roofs(canvas: &mut Canvas<'_>, roofs: &Roofs<'_>, x: &Scale, y: &Scale) {
    let highest = |of: &[&(String, f64)]| of.iter().map(|roof| roof.1).fold(0.0, f64::max);
    let (memory, compute) = (highest(&roofs.memory), highest(&roofs.compute));
    for (n, (_, gb_per_s)) in roofs.memory.iter().enumerate() {
        let rate = |at: f64| gb_per_s / 1000.0 * at;
        let from = x.min.max(y.min * 1000.0 / gb_per_s);
        let to = x.max.min(if compute > 0.0 { compute } else { y.max } * 1000.0 / gb_per_s);
        if from < to {
            canvas.line((x.at(from), y.at(rate(from))), (x.at(to), y.at(rate(to))), &memory_pen(n));
        }
    }
    for (n, (_, tflop_per_s)) in roofs.compute.iter().enumerate() {
        let from = if memory > 0.0 { x.min.max(tflop_per_s * 1000.0 / memory) } else { x.min };
        if from < x.max {
            canvas.line((x.at(from), y.at(*tflop_per_s)), (x.end, y.at(*tflop_per_s)), &compute_pen(n));
        }
    }
}

fn memory_pen(n: usize) -> Pen {
    Pen::solid(ORANGE, 2.2).dash(DASHES[n % DASHES.len()])
}

fn compute_pen(n: usize) -> Pen {
    Pen::solid(GREEN, 2.2).dash(DASHES[n % DASHES.len()])
}

fn look(point: &Reached) -> (Marker, (u8, u8, u8)) {
    if is_rung(&point.name) { (Marker::Circle, BLUE) } else { (Marker::Diamond, GREY) }
}

fn entries(chart: &Roofline, roofs: &Roofs<'_>) -> Vec<(Sample, String)> {
    let unit = |value: f64| if value >= 1000.0 { (value / 1000.0, "TB/s") } else { (value, "GB/s") };
    let mut entries: Vec<(Sample, String)> = Vec::new();
    for (n, (label, value)) in roofs.memory.iter().enumerate() {
        let (value, unit) = unit(*value);
        entries.push((Sample::Rule(memory_pen(n)), format!("memory roof: {label}, {} {unit}", short(value))));
    }
    for (n, (label, value)) in roofs.compute.iter().enumerate() {
        entries.push((Sample::Rule(compute_pen(n)), format!("compute roof: {label}, {} TFLOP/s", short(*value))));
    }
    for (text, rung) in [("a rung", true), ("a peer", false)] {
        let mut own = chart.points.iter().filter(|point| is_rung(&point.name) == rung);
        if let Some(first) = own.next() {
            let (marker, color) = look(first);
            let recorded = first.recorded && own.all(|point| point.recorded);
            let text = if recorded { format!("{text}, recorded") } else { text.to_string() };
            entries.push((Sample::Marker(marker, color, recorded), text));
        }
    }
    entries
}
