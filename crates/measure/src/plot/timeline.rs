//! Timelines: who worked from when to when.

use super::canvas::{
    Align, Canvas, DOTTED, FONT, Figure, INK, LINE, LONG, MARGIN, PALETTE, Pen, WIDTH, color, figure, width, wrap,
};
use super::curves::{count, none_yet};
use super::frame::{
    AXIS, Flag, GRID, Sample, Scale, flags, legend, linear_ticks, notes, nothing, number, short, ticks, x_axis,
};

pub(super) use crate::measurement::{Span, figures};

/// Lanes of spans over a common time axis; lanes stand in the order in which they first appear.
/// As the last expression of a cell it shows itself.
#[derive(Debug, Clone, Default)]
#[must_use = "a chart shows itself as the last expression of a cell, without a semicolon"]
pub struct Timeline {
    pub(super) spans: Vec<Span>,
    pub(super) unfit: usize,
    pub(super) notes: Vec<String>,
    pub(super) title: String,
    pub(super) recorded: String,
    pub(super) marks: Vec<(String, f64)>,
    pub(super) predictions: Vec<(String, f64)>,
}

/// Whether the axis can hold this moment: a number, and within eleven days of the start.
pub(super) fn fits(ms: f64) -> bool {
    ms.abs() < 1e9
}

chart!(Timeline);

impl Timeline {
    pub(super) fn new(spans: &[Span]) -> Timeline {
        let sound = |span: &&Span| fits(span.start_ms) && fits(span.end_ms) && span.end_ms >= span.start_ms;
        let kept: Vec<Span> = spans.iter().filter(sound).cloned().collect();
        let unfit = spans.len() - kept.len();
        Timeline { spans: kept, unfit, ..Timeline::default() }
    }

    /// Says below the chart that these times were recorded, and on which machine.
    pub fn recorded_on(mut self, machine: &str) -> Timeline {
        self.recorded = crate::cpu_info::clean_name(machine);
        self
    }

    /// A vertical line through all lanes at a moment in ms, such as `mark("the launch returns", 0.004)`.
    pub fn mark(mut self, label: &str, ms: f64) -> Timeline {
        self.marks.push((label.to_string(), ms));
        self
    }

    /// A vertical line at a predicted moment in ms. With `None` the chart says that there is none yet.
    pub fn prediction(mut self, label: &str, ms: impl Into<Option<f64>>) -> Timeline {
        match ms.into() {
            Some(ms) => self.predictions.push((label.to_string(), ms)),
            None => self.notes.push(none_yet(label)),
        }
        self
    }

    /// Draws the chart.
    pub fn draw(&self) -> Figure {
        let mut remarks = self.notes.clone();
        if self.unfit > 0 {
            let spans = count(self.unfit, "span");
            remarks.push(format!("Not drawn: {spans} that end before they start, or whose times are no numbers."));
        }
        if self.spans.is_empty() {
            return nothing(&self.title, &remarks);
        }
        if !self.recorded.is_empty() {
            remarks.push(format!("Recorded on {}.", self.recorded));
        }
        let marks = self.marks.iter().chain(&self.predictions);
        for (label, ms) in marks.filter(|mark| !fits(mark.1)) {
            remarks.push(format!("Not drawn: {label}, at {ms} ms: the axis holds no such moment."));
        }
        figure(&self.title, |canvas| {
            let y = canvas.title(&self.title);
            let (y, unlabelled) = plot(canvas, self, y);
            let y = legend(canvas, &unlabelled, y);
            notes(canvas, &remarks, y) + MARGIN
        })
    }
}

const BAR: f64 = 30.0;
const LANE: f64 = 44.0;
const LANE_ROOM: f64 = 150.0;
const FILL: f64 = 0.35;

/// Milliseconds, or microseconds where all is over in less than one: the unit's name, and how many of it a ms holds.
fn unit(chart: &Timeline) -> (&'static str, f64) {
    let (min, max) = extent(chart);
    if max - min < 1.0 { ("µs", 1e3) } else { ("ms", 1.0) }
}

fn extent(chart: &Timeline) -> (f64, f64) {
    let spans = chart.spans.iter().flat_map(|span| [span.start_ms, span.end_ms]);
    let marks = chart.marks.iter().chain(&chart.predictions).map(|mark| mark.1).filter(|ms| fits(*ms));
    let (min, max) = spans.chain(marks).fold((f64::MAX, f64::MIN), |(a, b), ms| (ms.min(a), ms.max(b)));
    if max > min { (min, max) } else { (min, min + 1e-3) }
}

/// Draws lanes, marks and the axis; gives the height below, and the legend of what had no room for a label.
fn plot(canvas: &mut Canvas<'_>, chart: &Timeline, top: f64) -> (f64, Vec<(Sample, String)>) {
    let mut lanes: Vec<&str> = Vec::new();
    for span in &chart.spans {
        if !lanes.contains(&span.lane.as_str()) {
            lanes.push(&span.lane);
        }
    }
    let wide = lanes.iter().map(|lane| width(lane, FONT)).fold(0.0, f64::max).min(LANE_ROOM);
    let (name, per_ms) = unit(chart);
    let (min, max) = extent(chart);
    let left = MARGIN + wide + 12.0;
    let x = Scale { log: false, min, max: max + (max - min) * 0.02, start: left, end: WIDTH - MARGIN - 6.0 };

    let marks = chart.marks.iter().map(|mark| (mark, Pen::solid(INK, 1.4).dash(DOTTED)));
    let marks = marks.chain(chart.predictions.iter().map(|mark| (mark, Pen::solid(INK, 1.6).dash(LONG))));
    let marks: Vec<(&(String, f64), Pen)> = marks.filter(|(mark, _)| fits(mark.1)).collect();
    let poles: Vec<Flag> = marks
        .iter()
        .map(|((text, ms), _)| Flag { x: x.at(*ms), text: format!("{text}: {} {name}", short(ms * per_ms)) })
        .collect();
    let positions = flags(&poles, left, WIDTH - MARGIN);
    let rows = positions.iter().map(|position| position.row + 1).max().unwrap_or(0);
    let top = top + LINE * rows as f64 + 6.0;
    let bottom = top + LANE * lanes.len() as f64;

    let from_start = |value: f64| number(value * per_ms);
    let values: Vec<f64> = linear_ticks(x.min * per_ms, x.max * per_ms, 7).iter().map(|value| value / per_ms).collect();
    let below = x_axis(canvas, top, bottom, &ticks(&x, &values, from_start));
    canvas.path(&[(x.start, top), (x.start, bottom), (x.end, bottom)], &AXIS);
    let mut kinds = kinds(&chart.spans);
    for (n, lane) in lanes.iter().enumerate() {
        let lane_top = top + LANE * n as f64;
        if n > 0 {
            canvas.line((MARGIN, lane_top), (x.end, lane_top), &GRID);
        }
        let lines = wrap(lane, FONT, LANE_ROOM);
        let first = lane_top + LANE / 2.0 - LINE * (lines.len() as f64 - 1.0) / 2.0;
        for (k, line) in lines.iter().enumerate() {
            canvas.text(line, (x.start - 8.0, first + LINE * k as f64), Align::Right);
        }
        let spans: Vec<&Span> = chart.spans.iter().filter(|span| span.lane == *lane).collect();
        draw_lane(canvas, &spans, lane_top, &x, &poles, &mut kinds);
    }
    for (((_, pen), flag), position) in marks.iter().zip(&poles).zip(&positions) {
        let middle = top - 6.0 - LINE * (position.row as f64 + 0.5);
        canvas.line((flag.x, middle - 7.0), (flag.x, bottom), pen);
        canvas.text(&flag.text, (position.x, middle), position.align);
    }
    canvas.text(&format!("time ({name})"), ((x.start + x.end) / 2.0, below + 8.0), Align::Middle);
    let entry = |color_of: usize, text: String| (Sample::Box(color(color_of), FILL), text);
    let (shorter, named): (Vec<&Kind>, Vec<&Kind>) =
        kinds.iter().filter(|kind| kind.unlabelled).partition(|kind| kind.color == REST && kind.lane.is_some());
    let mut legend: Vec<(Sample, String)> =
        named.iter().map(|kind| entry(kind.color, kind.text(lanes.len() > 1))).collect();
    if !shorter.is_empty() {
        legend.push(entry(REST, format!("{} that take less time", count(shorter.len(), "other kind"))));
    }
    (below + 8.0 + LINE, legend)
}

/// So many kinds have a colour of their own. Where there are more, the longest of each lane have one, and all others share
/// the last: a legend of thirty names is read by nobody.
const COLORS: usize = PALETTE.len();
const REST: usize = COLORS - 1;
/// Letters of a name in the legend: compilers write types and tile sizes into the names of kernels.
const LONGEST_NAME: usize = 56;

/// A kind of work: `copy in 3` and `copy in 4` are of one kind, and share a colour; so do `conv1` and `conv2, back`.
struct Kind {
    name: String,
    /// Its lane, where each lane has colours of its own.
    lane: Option<String>,
    color: usize,
    /// Whether one of its spans had no room for its label.
    unlabelled: bool,
}

impl Kind {
    fn holds(&self, span: &Span) -> bool {
        self.name == kind_of(&span.label) && self.lane.as_ref().is_none_or(|lane| *lane == span.lane)
    }

    /// As the legend has it. Where there is one lane only, its name stands beside the spans, and is not repeated in each entry.
    fn text(&self, with_lane: bool) -> String {
        let cut: String = self.name.chars().take(LONGEST_NAME).collect();
        let name = if cut.len() < self.name.len() { format!("{cut}…") } else { cut };
        self.lane.as_ref().filter(|_| with_lane).map_or(name.clone(), |lane| format!("{lane}: {name}"))
    }
}

/// The spans of one lane, each with its label inside or beside it where there is room.
fn draw_lane(canvas: &mut Canvas<'_>, spans: &[&Span], top: f64, x: &Scale, poles: &[Flag], kinds: &mut [Kind]) {
    let (bar_top, bar_end) = (top + (LANE - BAR) / 2.0, top + (LANE + BAR) / 2.0);
    let mut spans = spans.to_vec();
    spans.sort_by(|a, b| a.start_ms.total_cmp(&b.start_ms));
    let mut beside: Vec<(f64, &str, usize)> = Vec::new();
    for (n, span) in spans.iter().enumerate() {
        let (from, to) = (figures(span.start_ms), figures(span.end_ms));
        canvas.describe(format!("{}: {} from {from} to {to} ms", span.lane, span.label));
        let kind = kinds.iter().position(|kind| kind.holds(span)).unwrap_or(0);
        let fill = color(kinds[kind].color);
        // Even an instant must be seen.
        let (start, end) = (x.at(span.start_ms), x.at(span.end_ms).max(x.at(span.start_ms) + 2.5));
        canvas.rect((start, bar_top), (end, bar_end), fill, FILL);
        canvas.outline((start, bar_top), (end, bar_end), &Pen::solid(fill, 1.4));
        let wide = width(&span.label, FONT);
        let next = spans.get(n + 1).map_or(x.end, |next| x.at(next.start_ms));
        if wide + 6.0 <= end - start {
            let left = clear_of(poles, (start + end - wide) / 2.0, wide, (start + 3.0, end - 3.0));
            canvas.text(&span.label, (left + wide / 2.0, top + LANE / 2.0), Align::Middle);
        } else if end + 6.0 + wide <= next {
            let left = clear_of(poles, end + 6.0, wide, (end + 6.0, next));
            beside.push((left, &span.label, kind));
        } else {
            kinds[kind].unlabelled = true;
        }
    }
    // What stands in the legend needs no label beside it.
    for (left, label, _) in beside.into_iter().filter(|(_, _, kind)| !kinds[*kind].unlabelled) {
        canvas.text(label, (left, top + LANE / 2.0), Align::Left);
    }
}

/// Where a text of this width starts so that no pole strikes it through: at `wish`, else as near as the room allows.
fn clear_of(poles: &[Flag], wish: f64, wide: f64, room: (f64, f64)) -> f64 {
    let clear = |left: &f64| poles.iter().all(|pole| pole.x < left - 2.0 || pole.x > left + wide + 2.0);
    let fits = |left: &f64| *left >= room.0 && left + wide <= room.1;
    let beside = poles.iter().flat_map(|pole| [pole.x + 5.0, pole.x - 5.0 - wide]).filter(fits);
    let mut places: Vec<f64> = std::iter::once(wish).chain(beside).filter(clear).collect();
    places.sort_by(|a, b| (a - wish).abs().total_cmp(&(b - wish).abs()));
    places.first().copied().unwrap_or(wish)
}

/// The kinds of work in order of appearance; where there are too many, by lane and from the longest on.
fn kinds(spans: &[Span]) -> Vec<Kind> {
    let kind = |name: &str, lane: Option<&str>, color: usize| Kind {
        name: name.to_string(),
        lane: lane.map(str::to_string),
        color,
        unlabelled: false,
    };
    let mut names: Vec<&str> = Vec::new();
    let mut times: Vec<(&str, &str, f64)> = Vec::new();
    for span in spans {
        let (lane, name, ms) = (span.lane.as_str(), kind_of(&span.label), span.end_ms - span.start_ms);
        if !names.contains(&name) {
            names.push(name);
        }
        match times.iter_mut().find(|time| (time.0, time.1) == (lane, name)) {
            Some(time) => time.2 += ms,
            None => times.push((lane, name, ms)),
        }
    }
    if names.len() <= COLORS {
        return names.iter().enumerate().map(|(n, name)| kind(name, None, n)).collect();
    }
    times.sort_by(|a, b| b.2.total_cmp(&a.2));
    let rank = |at: usize| times[..at].iter().filter(|time| time.0 == times[at].0).count();
    times.iter().enumerate().map(|(at, time)| kind(time.1, Some(time.0), rank(at).min(REST))).collect()
}

/// `copy in 3` without its number. Of a kernel's name, such as `im2col_f32`, the number is a part.
fn kind_of(label: &str) -> &str {
    let label = label.strip_suffix(", back").unwrap_or(label);
    if label.contains('_') {
        return label;
    }
    label.trim_end_matches(|c: char| c.is_ascii_digit() || c == ' ' || c == '#')
}
