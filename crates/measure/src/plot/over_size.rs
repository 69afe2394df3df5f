//! One metric over size, both axes logarithmic, or the metric's from zero on.

use super::canvas::{
    Align, Canvas, DASHED, DOTTED, Figure, INK, LINE, LONG, MARGIN, Marker, Pen, Point, SOLID, WIDTH, color, figure,
    marker,
};
use super::curves::{Curve, Curves, Spot, better, count, cpu_and_gpu, crossings, curves, fits_log, none_yet, value_at};
use super::frame::{
    AXIS, Area, Flag, Sample, Scale, beside, flags, label_room, legend, linear_ticks, log_range, log_ticks, notes,
    nothing, number, short, size, size_ticks, ticks, x_axis, x_name, y_axis,
};
use crate::error::bytes;
use crate::measurement::{Measurement, figures};

/// A chart of one metric over size, both axes logarithmic: a curve for each experiment and machine with its p10 to
/// p90 band; recorded curves are dashed, their markers hollow. As the last expression of a cell it shows itself.
///
/// # Examples
/// ```
/// use gpulab_measure::measurement::{Backend, Measurement, Summary};
/// use gpulab_measure::plot;
/// let row = |n: usize| Measurement::time_ms("sum", Backend::Cpu, n, Summary::of(&[n as f64 * 1e-6]));
/// let chart = plot::time_over_size(&[row(1 << 10), row(1 << 20)])
///     .title("A sum")
///     .x_label("numbers")
///     .prediction("from here on the GPU is faster", 1usize << 15)
///     .prediction_value("a launch", 0.005);
/// let svg = chart.draw().svg();
/// assert!(["A sum", "numbers", "the GPU is faster", "a launch"].iter().all(|text| svg.contains(text)));
/// ```
#[derive(Debug, Clone, Default)]
#[must_use = "a chart shows itself as the last expression of a cell, without a semicolon"]
pub struct SizeChart {
    pub(super) data: Curves,
    pub(super) title: String,
    pub(super) x_label: String,
    pub(super) y_label: String,
    pub(super) in_bytes: bool,
    pub(super) crossover: bool,
    pub(super) linear: bool,
    pub(super) from: f64,
    pub(super) linear_sizes: bool,
    pub(super) points: bool,
    pub(super) ceilings: Vec<(String, f64)>,
    pub(super) sizes: Vec<(String, f64)>,
    pub(super) values: Vec<(String, f64)>,
}

chart!(SizeChart);

impl SizeChart {
    pub(super) fn new(rows: &[Measurement], metric: Option<&str>) -> SizeChart {
        let mut data = curves(rows, metric);
        if data.curves.is_empty()
            && !rows.is_empty()
            && let Some(metric) = metric
            && data.notes.is_empty()
        {
            data.notes.push(format!("None of the {} rows has the metric `{metric}`.", rows.len()));
        }
        SizeChart { data, ..SizeChart::default() }
    }

    /// What the sizes are, such as `matrix side n`. Without it the axis says `size`.
    pub fn x_label(mut self, label: &str) -> SizeChart {
        self.x_label = label.to_string();
        self
    }

    /// What the values are, in place of the metric's name; the unit is added.
    pub fn y_label(mut self, label: &str) -> SizeChart {
        self.y_label = label.to_string();
        self
    }

    /// Sizes are bytes: the axis reads 1 KiB, 1 MiB, 1 GiB.
    pub fn sizes_in_bytes(mut self) -> SizeChart {
        self.in_bytes = true;
        self
    }

    /// The axis shows each size times this: rows hold whole numbers, and bits per weight, say, are kept in thousandths.
    pub fn sizes_times(mut self, factor: f64) -> SizeChart {
        let spots = self.data.curves.iter_mut().flat_map(|curve| &mut curve.spots);
        spots.for_each(|spot| spot.size *= factor);
        self
    }

    /// A horizontal line that no curve can pass, such as the device's copy bandwidth; `value` is in the chart's unit.
    pub fn ceiling(mut self, label: &str, value: f64) -> SizeChart {
        self.ceilings.push((label.to_string(), value));
        self
    }

    /// Marks the size at which the first CPU curve and the first GPU curve cross, or says below the chart that they do
    /// not in this range. [`crossing`](super::crossing) gives the number.
    pub fn crossover(mut self) -> SizeChart {
        self.crossover = true;
        self
    }

    /// A vertical line at a predicted size, such as `prediction("your prediction", 512usize)`. With `None` the chart says
    /// that there is none yet.
    pub fn prediction(mut self, label: &str, size: impl Into<Option<usize>>) -> SizeChart {
        match size.into() {
            Some(size) => self.sizes.push((label.to_string(), size as f64)),
            None => self.data.notes.push(none_yet(label)),
        }
        self
    }

    /// A horizontal line at a predicted value, in the chart's unit. With `None` the chart says that there is none yet.
    pub fn prediction_value(mut self, label: &str, value: impl Into<Option<f64>>) -> SizeChart {
        match value.into() {
            Some(value) => self.values.push((label.to_string(), value)),
            None => self.data.notes.push(none_yet(label)),
        }
        self
    }

    /// The metric's axis begins at zero and is not logarithmic: for shares, such as an accuracy.
    pub fn linear(mut self) -> SizeChart {
        self.linear = true;
        self
    }

    /// As [`SizeChart::linear`], but the axis begins at `start`, in the chart's unit, and its label says so: for values whose
    /// differences would be lost on an axis from zero. Where a value lies below `start`, the axis begins at a round number below it.
    ///
    /// # Examples
    /// ```
    /// use gpulab_measure::measurement::{Backend, Measurement, Summary};
    /// use gpulab_measure::plot;
    /// let row = |n: usize, right: f64| Measurement::new("right", Backend::Cpu, n, "accuracy", "%", Summary::of(&[right]));
    /// let svg = plot::over_size(&[row(1, 91.0), row(2, 94.0)]).linear_from(90.0).draw().svg();
    /// assert!(svg.contains("accuracy (%, axis starts at 90)"));
    /// ```
    pub fn linear_from(mut self, start: f64) -> SizeChart {
        (self.linear, self.from) = (true, start);
        self
    }

    /// The sizes' axis begins at zero and is not logarithmic: for shares, and for sizes that lie close together.
    pub fn linear_sizes(mut self) -> SizeChart {
        self.linear_sizes = true;
        self
    }

    /// Dots without lines, for sizes that have no order, such as seeds: each size has a place and a label of its own, and a thin
    /// upright line joins what was measured at one size.
    ///
    /// # Examples
    /// ```
    /// use gpulab_measure::measurement::{Backend, Measurement, Summary};
    /// use gpulab_measure::plot;
    /// let row = |name: &str, seed: usize, right: f64| {
    ///     Measurement::new(name, Backend::Cpu, seed, "accuracy", "%", Summary::of(&[right]))
    /// };
    /// let rows = [row("SGD", 1, 91.0), row("AdamW", 1, 94.0), row("SGD", 2, 90.0), row("AdamW", 2, 93.0)];
    /// let chart = plot::over_size(&rows).x_label("seed").points().linear_from(80.0);
    /// assert!(chart.draw().svg().contains("seed"));
    /// ```
    pub fn points(mut self) -> SizeChart {
        self.points = true;
        self
    }

    /// Draws the chart.
    pub fn draw(&self) -> Figure {
        if self.data.curves.is_empty() {
            return nothing(&self.title, &self.data.notes);
        }
        let mut remarks = self.data.notes.clone();
        let marks = Marks::of(self, &mut remarks);
        figure(&self.title, |canvas| {
            let top = canvas.title(&self.title);
            let y = plot(canvas, self, &marks, top);
            let y = legend(canvas, &entries(self), y);
            notes(canvas, &remarks, y) + MARGIN
        })
    }
}

const HEIGHT: f64 = 330.0;
const PREDICTION: Pen = Pen::solid(INK, 1.6).dash(LONG);
const CEILING: Pen = Pen::solid(INK, 1.6).dash(DASHED);
const CROSSING: Pen = Pen::solid(INK, 1.4).dash(DOTTED);
/// Joins the dots of one size, where curves have no lines.
const STEM: Pen = Pen::solid(INK, 1.2).alpha(0.45);
/// Marks farther than this factor from all points are named in a note: drawn, they would squeeze the curves.
const FAR: f64 = 100.0;

/// What is marked in the chart besides the curves.
struct Marks {
    /// Size, label, pen.
    upright: Vec<(f64, String, Pen)>,
    /// Value, label, pen.
    level: Vec<(f64, String, Pen)>,
    /// Where CPU and GPU cross.
    crossing: Option<(f64, f64)>,
}

impl Marks {
    fn of(chart: &SizeChart, remarks: &mut Vec<String>) -> Marks {
        let spots = || chart.data.curves.iter().flat_map(|curve| &curve.spots);
        let (x_min, x_max) = span(spots().map(|spot| spot.size));
        let (y_min, y_max) = span(spots().flat_map(|spot| [spot.low, spot.high]));
        let unit = &chart.data.unit;
        let mut marks = Marks { upright: Vec::new(), level: Vec::new(), crossing: None };
        for (label, at) in &chart.sizes {
            let text = format!("{label}: {}", size_text(*at, chart.in_bytes));
            if near(*at, x_min, x_max, &text, remarks) {
                marks.upright.push((*at, text, PREDICTION));
            }
        }
        for (pen, (label, at)) in
            chart.ceilings.iter().map(|mark| (CEILING, mark)).chain(chart.values.iter().map(|mark| (PREDICTION, mark)))
        {
            let text = format!("{label}: {} {unit}", short(*at));
            if near(*at, y_min, y_max, &text, remarks) {
                marks.level.push((*at, text, pen));
            }
        }
        if chart.crossover {
            marks.cross(chart, remarks);
        }
        marks
    }

    fn cross(&mut self, chart: &SizeChart, remarks: &mut Vec<String>) {
        let Some((cpu, gpu)) = cpu_and_gpu(&chart.data.curves) else {
            remarks.push("No crossing can be marked: that takes a CPU curve and a GPU curve.".to_string());
            return;
        };
        let all = crossings(&cpu.spots, &gpu.spots);
        let Some((at, value)) = all.first().copied() else {
            remarks.push(format!("No crossing in this range{}.", who_is_faster(chart, cpu, gpu)));
            return;
        };
        self.upright.push((at, format!("crossing: {}", size_text(at, chart.in_bytes)), CROSSING));
        self.crossing = Some((at, value));
        if all.len() > 1 {
            remarks.push(format!("The curves cross {}; the first is marked.", count(all.len(), "time")));
        }
        if cpu.recorded != gpu.recorded {
            remarks
                .push("The crossing is between two machines: one curve was measured here, the other recorded.".into());
        }
    }
}

/// For two curves that do not cross: which one is the faster, or the lower, if they can be compared at all.
fn who_is_faster(chart: &SizeChart, cpu: &Curve, gpu: &Curve) -> String {
    let gap =
        |(a, b): (&Curve, &Curve)| a.spots.iter().find_map(|spot| Some(spot.mid - value_at(&b.spots, spot.size)?));
    let gap = gap((cpu, gpu)).or_else(|| gap((gpu, cpu)).map(|gap| -gap));
    let better = better(&chart.data.metric, &chart.data.unit);
    let word = if better.is_some() { "faster" } else { "lower" };
    match gap {
        Some(0.0) => ": the two curves are equal".to_string(),
        Some(gap) => {
            let first = if (gap > 0.0) == (better == Some(true)) { cpu } else { gpu };
            format!(": {} is {word} throughout", first.label)
        }
        None => ": the two curves share no sizes".to_string(),
    }
}

/// Whether a mark can be drawn beside points from `min` to `max`; if not, a remark says so.
fn near(value: f64, min: f64, max: f64, text: &str, remarks: &mut Vec<String>) -> bool {
    let near = fits_log(value) && value > min / FAR && value < max * FAR;
    if !near {
        let why = if fits_log(value) { "far outside the chart" } else { "no place on a logarithmic axis" };
        remarks.push(format!("Not drawn: {text} ({why})."));
    }
    near
}

fn size_text(value: f64, in_bytes: bool) -> String {
    match in_bytes {
        true => bytes(value.round() as u64),
        // A size in thousandths (`sizes_times`) has a fraction.
        false if value < 32.0 => number((value * 1e3).round() / 1e3),
        false => format!("{}", value.round()),
    }
}

fn span(values: impl Iterator<Item = f64>) -> (f64, f64) {
    values.fold((f64::MAX, 0.0), |(min, max), value| (value.min(min), value.max(max)))
}

/// Draws axes, marks and curves from height `top` on; gives the height below the axis label.
fn plot(canvas: &mut Canvas<'_>, chart: &SizeChart, marks: &Marks, top: f64) -> f64 {
    let curves = &chart.data.curves;
    let spots = || curves.iter().flat_map(|curve| &curve.spots);
    let (x_min, x_max) = span(spots().map(|spot| spot.size).chain(marks.upright.iter().map(|mark| mark.0)));
    let (y_min, y_max) =
        span(spots().flat_map(|spot| [spot.low, spot.high]).chain(marks.level.iter().map(|mark| mark.0)));
    let mut sizes: Vec<f64> = spots().map(|spot| spot.size).collect();
    sizes.sort_by(f64::total_cmp);
    sizes.dedup();
    let (x_min, x_max) = if chart.points {
        // As much room beside the outer sizes as half of what lies between two.
        let half = (x_max - x_min).max(1.0) / 2.0 / (sizes.len().max(2) - 1) as f64;
        (x_min - half, x_max + half)
    } else if chart.linear_sizes {
        (0.0, x_max * 1.03)
    } else {
        log_range(x_min, x_max, 2.0)
    };
    let start = axis_start(chart);
    // Where all values are those of the axis's start, it has a length all the same.
    let (y_min, y_max) = match chart.linear {
        true => (start, (y_max + (y_max - start) * 0.05).max(start * 1.05)),
        false => log_range(y_min, y_max, 5.0),
    };

    let y_values = if chart.linear { linear_ticks(y_min, y_max, 5) } else { log_ticks(y_min, y_max) };
    let y_labels: Vec<String> = y_values.iter().map(|value| number(*value)).collect();
    let left = MARGIN + label_room(&y_labels) + 8.0;
    let x = Scale {
        log: !chart.linear_sizes && !chart.points,
        min: x_min,
        max: x_max,
        start: left,
        end: WIDTH - MARGIN - 6.0,
    };

    // Above the frame: the axis label, and the flags of the vertical lines.
    let poles: Vec<Flag> =
        marks.upright.iter().map(|(at, text, _)| Flag { x: x.at(*at), text: text.clone() }).collect();
    let positions = flags(&poles, left, WIDTH - MARGIN);
    let rows = positions.iter().map(|position| position.row + 1).max().unwrap_or(0);
    let top = top + LINE * (rows + 1) as f64 + 4.0;
    let row = |row: usize| top - 4.0 - LINE * (row as f64 + 0.5);
    let y = Scale { log: !chart.linear, min: y_min, max: y_max, start: top + HEIGHT, end: top };

    canvas.text(&y_label(chart), (MARGIN, row(rows)), Align::Left);
    y_axis(canvas, &x, &ticks(&y, &y_values, number));
    let x_values = if chart.points {
        sizes.clone()
    } else if chart.linear_sizes {
        linear_ticks(x_min, x_max, 10)
    } else {
        size_ticks(x_min, x_max, &sizes)
    };
    let x_ticks = ticks(&x, &x_values, |value| size(value, chart.in_bytes));
    let below = x_axis(canvas, top, y.start, &x_ticks);
    canvas.path(&[(x.start, y.end), (x.start, y.start), (x.end, y.start)], &AXIS);

    let place = |spot: &Spot, value: f64| (x.at(spot.size), y.at(value));
    for curve in curves.iter().filter(|curve| curve.spots.len() > 1 && !chart.points) {
        let mut band: Vec<Point> = curve.spots.iter().map(|spot| place(spot, spot.high)).collect();
        band.extend(curve.spots.iter().rev().map(|spot| place(spot, spot.low)));
        canvas.polygon(&band, color(curve.color), 0.2);
    }
    let mut lines: Vec<Vec<Point>> = Vec::new();
    for (((at, text, pen), position), flag) in marks.upright.iter().zip(&positions).zip(&poles) {
        let pole = [(x.at(*at), row(position.row) - 7.0), (x.at(*at), y.start)];
        canvas.describe(text);
        canvas.path(&pole, pen);
        canvas.text(text, (position.x, row(position.row)), position.align);
        lines.push(vec![(flag.x, y.end), (flag.x, y.start)]);
    }
    for size in sizes.iter().filter(|_| chart.points) {
        let heights = spots().filter(|spot| spot.size == *size).map(|spot| y.at(spot.mid));
        let (low, high) = heights.fold((f64::MIN, f64::MAX), |(low, high), at| (low.max(at), high.min(at)));
        canvas.line((x.at(*size), low), (x.at(*size), high), &STEM);
    }
    for curve in curves {
        let line: Vec<Point> = curve.spots.iter().map(|spot| place(spot, spot.mid)).collect();
        if !chart.points {
            canvas.path(&line, &curve_pen(curve));
        }
        let points = curve
            .spots
            .iter()
            .map(|spot| format!("{}: {} {}", size_text(spot.size, chart.in_bytes), figures(spot.mid), chart.data.unit));
        canvas.describe(format!("{}: {}", curve.label, points.collect::<Vec<_>>().join(", ")));
        lines.push(line);
    }
    for (n, curve) in curves.iter().enumerate() {
        for spot in &curve.spots {
            if curve.spots.len() == 1 || chart.points {
                canvas.line(place(spot, spot.low), place(spot, spot.high), &Pen::solid(color(curve.color), 2.0));
            }
            canvas.marker(marker(n), place(spot, spot.mid), color(curve.color), curve.recorded);
        }
    }
    if let Some((size, value)) = marks.crossing {
        canvas.marker(Marker::Circle, (x.at(size), y.at(value)), INK, true);
    }
    let room = Area(x.start, y.end, x.end, y.start);
    let mut taken = Vec::new();
    for (at, text, pen) in &marks.level {
        canvas.describe(text);
        canvas.line((x.start, y.at(*at)), (x.end, y.at(*at)), pen);
        let (left, middle) = beside(text, y.at(*at), room, &lines, &mut taken);
        canvas.text(text, (left, middle), Align::Left);
    }
    let x_label = if chart.x_label.is_empty() { "size" } else { &chart.x_label };
    let scale = if x.log { " (log scale)" } else { "" };
    x_name(canvas, &x, below, &format!("{x_label}{scale}"))
}

/// Where the metric's axis begins, where it is linear: as asked, or at the next round number below what that would hide.
fn axis_start(chart: &SizeChart) -> f64 {
    let spots = chart.data.curves.iter().flat_map(|curve| &curve.spots).flat_map(|spot| [spot.low, spot.high]);
    let marks = chart.values.iter().chain(&chart.ceilings).map(|mark| mark.1).filter(|value| fits_log(*value));
    let (lowest, highest) = span(spots.chain(marks));
    if lowest >= chart.from {
        return chart.from;
    }
    match linear_ticks(lowest, highest, 5)[..] {
        [first, second, ..] => ((lowest / (second - first)).floor() * (second - first)).max(0.0),
        _ => 0.0,
    }
}

/// `time (ms, log scale), lower is faster`.
fn y_label(chart: &SizeChart) -> String {
    let name = if chart.y_label.is_empty() { &chart.data.metric } else { &chart.y_label };
    let better = match better(&chart.data.metric, &chart.data.unit) {
        Some(true) => "; higher is faster",
        Some(false) => "; lower is faster",
        None => "",
    };
    let scale = match (chart.linear, axis_start(chart)) {
        (false, _) => "log scale".to_string(),
        (true, 0.0) => String::new(),
        (true, start) => format!("axis starts at {}", number(start)),
    };
    let parts: Vec<&str> = [chart.data.unit.as_str(), &scale].into_iter().filter(|part| !part.is_empty()).collect();
    match format!("{}{better}", parts.join(", ")).trim_start_matches("; ") {
        "" => name.clone(),
        said => format!("{name} ({said})"),
    }
}

fn curve_pen(curve: &Curve) -> Pen {
    Pen::solid(color(curve.color), 2.2).dash(if curve.recorded { DASHED } else { SOLID })
}

fn entries(chart: &SizeChart) -> Vec<(Sample, String)> {
    let curves = chart.data.curves.iter().enumerate();
    let lone = |curve: &Curve| chart.points || curve.spots.len() == 1;
    let sample = |n: usize, curve: &Curve| match lone(curve) {
        true => Sample::Marker(marker(n), color(curve.color), curve.recorded),
        false => Sample::Line(curve_pen(curve), marker(n), curve.recorded),
    };
    let mut entries: Vec<(Sample, String)> = curves.map(|(n, curve)| (sample(n, curve), curve.label.clone())).collect();
    let mut spots = chart.data.curves.iter().filter(|curve| !lone(curve)).flat_map(|curve| &curve.spots);
    if spots.any(|spot| spot.high > spot.low) {
        entries.push((Sample::Box((127, 127, 127), 0.2), "band: p10 to p90 of the samples".to_string()));
    }
    entries
}
