//! What surrounds a drawing: scales, ticks, axes, labels that do not cover each other, the legend and the notes.

#![allow(missing_docs)] // a vocabulary for drawing: the names say what each is

use super::canvas::{Align, Canvas, FONT, Figure, INK, LINE, MARGIN, Marker, Pen, Point, Rgb, WIDTH, width, wrap};
use crate::cpu_info::clean_name;
use crate::error::bytes;
use crate::measurement::{Measurement, figures};

pub(super) const GRID: Pen = Pen::solid(INK, 1.0).alpha(0.14);
pub(super) const AXIS: Pen = Pen::solid(INK, 1.0).alpha(0.6);

/// A tick: where it stands in pixels, and its label.
pub(super) type Tick = (f64, String);

/// Ticks of a scale with their labels.
pub(super) fn ticks(scale: &Scale, values: &[f64], label: impl Fn(f64) -> String) -> Vec<Tick> {
    values.iter().map(|value| (scale.at(*value), label(*value))).collect()
}

/// The room that the labels of a vertical axis need.
pub(super) fn label_room(labels: &[String]) -> f64 {
    labels.iter().map(|label| width(label, FONT)).fold(0.0, f64::max)
}

/// Horizontal grid lines with their labels to the left.
pub(super) fn y_axis(canvas: &mut Canvas<'_>, x: &Scale, ticks: &[Tick]) {
    for (y, label) in ticks {
        canvas.line((x.start, *y), (x.end, *y), &GRID);
        canvas.text(label, (x.start - 7.0, *y), Align::Right);
    }
}

/// Vertical grid lines from `top` to `bottom` with their labels below; labels that would touch are left out.
/// Gives the height below the labels.
pub(super) fn x_axis(canvas: &mut Canvas<'_>, top: f64, bottom: f64, ticks: &[Tick]) -> f64 {
    let mut free = f64::MIN;
    for (x, label) in ticks {
        canvas.line((*x, top), (*x, bottom), &GRID);
        canvas.line((*x, bottom), (*x, bottom + 4.0), &AXIS);
        let half = width(label, FONT) / 2.0;
        // At the picture's edge a label moves inwards, so that none of its letters is cut off.
        let middle = x.min(WIDTH - half).max(half);
        if middle - half >= free {
            canvas.text(label, (middle, bottom + 14.0), Align::Middle);
            free = middle + half + 6.0;
        }
    }
    bottom + 14.0 + LINE / 2.0
}

/// Writes an x axis' name in the middle below it; the y below the name.
pub(super) fn x_name(canvas: &mut Canvas<'_>, x: &Scale, below: f64, name: &str) -> f64 {
    canvas.text(name, ((x.start + x.end) / 2.0, below + 8.0), Align::Middle);
    below + 8.0 + LINE
}

/// One axis: values from `min` to `max` lie at pixels from `start` to `end`.
#[derive(Debug, Clone, Copy)]
pub(super) struct Scale {
    pub log: bool,
    pub min: f64,
    pub max: f64,
    pub start: f64,
    pub end: f64,
}

impl Scale {
    /// The pixel of a value; values beyond the axis lie on its end.
    pub(super) fn at(&self, value: f64) -> f64 {
        let share = if self.log {
            (value / self.min).ln() / (self.max / self.min).ln()
        } else {
            (value - self.min) / (self.max - self.min)
        };
        self.start + (self.end - self.start) * share.clamp(0.0, 1.0)
    }
}

/// Widens a range of positive values for a log axis: a margin at both ends, and at least the factor `least`.
pub(super) fn log_range(min: f64, max: f64, least: f64) -> (f64, f64) {
    let spare = (least / (max / min)).max(1.0).sqrt();
    let margin = (max / min).powf(0.04).max(1.03);
    (min / spare / margin, max * spare * margin)
}

/// Ticks of a log axis: powers of ten, with 2 and 5 between them where there are few, or round steps on a short axis.
pub(super) fn log_ticks(min: f64, max: f64) -> Vec<f64> {
    let decades = (min.log10().floor() as i32)..=(max.log10().ceil() as i32);
    let inside = |value: &f64| *value >= min * (1.0 - 1e-9) && *value <= max * (1.0 + 1e-9);
    let power = |e: i32| {
        if e < 0 { 1.0 / 10f64.powi(-e) } else { 10f64.powi(e) }
    };
    let tens: Vec<f64> = decades.clone().map(power).filter(inside).collect();
    if tens.len() >= 3 {
        return tens.iter().copied().step_by(tens.len().div_ceil(9)).collect();
    }
    let finer: Vec<f64> = decades.flat_map(|e| [1.0, 2.0, 5.0].map(|m| m * power(e))).filter(inside).collect();
    if finer.len() >= 3 {
        return finer;
    }
    let even = linear_ticks(min, max, 4);
    if even.len() >= 3 { even } else { linear_ticks(min, max, 7) }
}

/// Ticks of a size axis: the sizes themselves where these are a decimal series, such as 10, 100, 1000 or 5, 10, 20; else
/// powers of two, at most nine. Where a short axis holds fewer than two of these, again the sizes; fewer than three, and sizes
/// that are no whole numbers: round steps.
pub(super) fn size_ticks(min: f64, max: f64, sizes: &[f64]) -> Vec<f64> {
    let mut own = sizes.to_vec();
    own.sort_by(f64::total_cmp);
    own.dedup();
    if (3..=9).contains(&own.len())
        && own.iter().all(|size| is_decimal(*size))
        && !own.iter().all(|size| is_binary(*size))
    {
        return own;
    }
    let (first, last) = (min.log2().ceil() as i32, max.log2().floor() as i32);
    let step = ((last - first + 1).max(1) as usize).div_ceil(9);
    let ticks: Vec<f64> = (first..=last).filter(|e| e.rem_euclid(step as i32) == 0).map(|e| 2f64.powi(e)).collect();
    match ticks.len() {
        0..=2 if own.iter().any(|size| size.fract() != 0.0) => linear_ticks(min, max, 6),
        0 | 1 if own.len() <= 6 => own,
        _ => ticks,
    }
}

/// Whether a size is 1, 2 or 5 times a power of ten.
fn is_decimal(size: f64) -> bool {
    let power = 10f64.powf((size.log10() + 1e-9).floor());
    [1.0, 2.0, 5.0].iter().any(|first| (size / power - first).abs() < 1e-9)
}

fn is_binary(size: f64) -> bool {
    size.log2().fract() == 0.0
}

/// About `count` round steps from `min` to `max`, both ends included where they are round.
pub(super) fn linear_ticks(min: f64, max: f64, count: usize) -> Vec<f64> {
    let rough = (max - min) / count as f64;
    let power = 10f64.powf(rough.log10().floor());
    // A step that is a tenth too short is taken: one tick more is better than half as many.
    let step = [1.0, 2.0, 5.0, 10.0].into_iter().map(|m| m * power).find(|s| *s >= rough * 0.9).unwrap_or(rough);
    let first = (min / step - 1e-9).ceil() as i64;
    let last = (max / step + 1e-9).floor() as i64;
    (first..=last).map(|n| n as f64 * step).collect()
}

/// `0.001`, `10`, `2000`, `5 M`: a tick's number with no digit too many.
pub(super) fn number(value: f64) -> String {
    let (value, suffix) = match value.abs() {
        v if v >= 1e15 => return format!("{value:.2e}"),
        v if v >= 1e9 => (value / 1e9, " G"),
        v if v >= 1e6 => (value / 1e6, " M"),
        v if v > 0.0 && v < 1e-5 => return format!("{value:e}"),
        _ => (value, ""),
    };
    // Six decimals hide what adding up tenths leaves behind.
    let digits = format!("{value:.6}");
    format!("{}{suffix}", digits.trim_end_matches('0').trim_end_matches('.'))
}

/// A number as the reader wrote it where that is short, else three figures of it.
pub(super) fn short(value: f64) -> String {
    let text = number(value);
    if text.len() <= 6 && text.parse() == Ok(value) { text } else { figures(value) }
}

/// A tick of a size axis: `256`, `4096`, `64K`, `1M`, or `1 KiB`, `2 MiB` where sizes are bytes.
/// K, M and G are powers of 1024 here, as sizes are powers of two.
pub(super) fn size(value: f64, in_bytes: bool) -> String {
    const UNITS: [(f64, &str); 4] = [(1024.0, "K"), (1048576.0, "M"), (1073741824.0, "G"), (1099511627776.0, "T")];
    if value < if in_bytes { 1024.0 } else { 16384.0 } {
        return format!("{}{}", number(value), if in_bytes { " B" } else { "" });
    }
    let whole = UNITS.into_iter().rev().find(|(unit, _)| value >= *unit && value % unit == 0.0);
    match whole {
        Some((unit, letter)) if in_bytes => format!("{} {letter}iB", number(value / unit)),
        Some((unit, letter)) => format!("{}{letter}", number(value / unit)),
        None if in_bytes => bytes(value as u64),
        None => number(value),
    }
}

/// A rectangle: left, top, right, bottom.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Area(pub f64, pub f64, pub f64, pub f64);

impl Area {
    pub(super) fn overlaps(self, other: Area) -> bool {
        self.0 < other.2 && other.0 < self.2 && self.1 < other.3 && other.1 < self.3
    }

    fn holds(self, (x, y): Point) -> bool {
        x > self.0 && x < self.2 && y > self.1 && y < self.3
    }
}

/// The left end of a label beside a horizontal line at height `y`, and the height of its middle: where it covers
/// least of the `lines`, just above the line or else below it.
pub(super) fn beside(text: &str, y: f64, room: Area, lines: &[Vec<Point>], taken: &mut Vec<Area>) -> Point {
    let wide = width(text, FONT) + 8.0;
    let mut best = (usize::MAX, (room.0 + 6.0, y - 9.0));
    for middle in [y - 10.0, y + 11.0] {
        for step in 0..=96 {
            let left = room.0 + 6.0 + ((room.2 - room.0 - wide - 8.0) * f64::from(step) / 96.0).max(0.0);
            let area = Area(left - 4.0, middle - 9.0, left + wide, middle + 9.0);
            let out = usize::from(area.1 < room.1 || area.3 > room.3) * 500;
            let cost = covered(area, lines) + 200 * taken.iter().filter(|other| area.overlaps(**other)).count() + out;
            if cost < best.0 {
                best = (cost, (left, middle));
            }
        }
    }
    let (left, middle) = best.1;
    taken.push(Area(left - 4.0, middle - 9.0, left + wide, middle + 9.0));
    best.1
}

/// How many points of the lines, one every three pixels, lie in the area.
fn covered(area: Area, lines: &[Vec<Point>]) -> usize {
    let mut points = 0;
    for pair in lines.iter().flat_map(|line| line.windows(2)) {
        let ((x0, y0), (x1, y1)) = (pair[0], pair[1]);
        let steps = ((x1 - x0).hypot(y1 - y0) / 3.0).ceil().max(1.0);
        points += (0..=steps as usize)
            .filter(|n| {
                let share = *n as f64 / steps;
                area.holds((x0 + (x1 - x0) * share, y0 + (y1 - y0) * share))
            })
            .count();
    }
    points
}

/// A label on a vertical line, like a flag on its pole.
#[derive(Debug, Clone)]
pub(super) struct Flag {
    pub x: f64,
    pub text: String,
}

/// Where a flag's text stands: the end of it that is next to the pole, and its row, counted upwards from 0.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct FlagPosition {
    pub x: f64,
    pub align: Align,
    pub row: usize,
}

/// Positions for flags between `start` and `end`, so that no text covers another or a neighbour's pole.
pub(super) fn flags(flags: &[Flag], start: f64, end: f64) -> Vec<FlagPosition> {
    let wide = |flag: &Flag| width(&flag.text, FONT) + 10.0;
    // To the right of the pole, from right to left; where that runs over the edge, to the left, from left to right.
    let rightwards = flags.iter().all(|flag| flag.x + 5.0 + wide(flag) <= end);
    let leftwards = !rightwards && flags.iter().all(|flag| flag.x - 5.0 - wide(flag) >= start);
    let mut order: Vec<usize> = (0..flags.len()).collect();
    order.sort_by(|a, b| flags[*b].x.total_cmp(&flags[*a].x));
    if leftwards {
        order.reverse();
    }
    let mut positions = vec![FlagPosition { x: start, align: Align::Left, row: 0 }; flags.len()];
    let mut done: Vec<(f64, f64, usize)> = Vec::new();
    for at in order {
        let flag = &flags[at];
        let (x, align) = match flag.x {
            x if !leftwards && x + 5.0 + wide(flag) <= end => (x + 5.0, Align::Left),
            x if x - 5.0 - wide(flag) >= start => (x - 5.0, Align::Right),
            // Wider than either side: it starts at the edge.
            _ => (start, Align::Left),
        };
        let left = if align == Align::Left { x } else { x - wide(flag) };
        // From pole to the end of the text.
        let (from, to) = (left.min(flag.x) - 2.0, (left + wide(flag)).max(flag.x));
        let row = done.iter().filter(|(a, b, _)| from < *b && *a < to).map(|(_, _, row)| row + 1).max().unwrap_or(0);
        positions[at] = FlagPosition { x, align, row };
        done.push((from, to, row));
    }
    positions
}

/// Heights for labels that would stand at `wanted`, at least `gap` apart and between `top` and `bottom` as far as there
/// is room, in the same order and near what was wanted.
pub(super) fn spread_out(wanted: &[f64], gap: f64, top: f64, bottom: f64) -> Vec<f64> {
    let mut order: Vec<usize> = (0..wanted.len()).collect();
    order.sort_by(|a, b| wanted[*a].total_cmp(&wanted[*b]));
    // Labels that touch stand as one block around the middle of what they want.
    let mut blocks: Vec<(f64, usize)> = Vec::new();
    let fit = |middle: f64, count: usize| {
        let half = gap * (count - 1) as f64 / 2.0;
        middle.min(bottom - half).max(top + half)
    };
    for &at in &order {
        let mut block = (fit(wanted[at], 1), 1);
        while let Some(&(middle, count)) = blocks.last() {
            let reach = gap * (count + block.1) as f64 / 2.0;
            if block.0 - middle >= reach - 1e-9 {
                break;
            }
            blocks.pop();
            let both = count + block.1;
            block = (fit((middle * count as f64 + block.0 * block.1 as f64) / both as f64, both), both);
        }
        blocks.push(block);
    }
    let positions = blocks
        .iter()
        .flat_map(|&(middle, count)| (0..count).map(move |n| middle + gap * (n as f64 - (count - 1) as f64 / 2.0)));
    let mut heights = vec![0.0; wanted.len()];
    order.into_iter().zip(positions).for_each(|(at, height)| heights[at] = height);
    heights
}

/// The sample before a legend's text.
#[derive(Debug, Clone, Copy)]
pub enum Sample {
    /// A piece of line with a marker.
    Line(Pen, Marker, bool),
    /// A piece of line alone.
    Rule(Pen),
    /// A marker alone.
    Marker(Marker, Rgb, bool),
    /// A filled box.
    Box(Rgb, f64),
}

/// Draws the legend from height `y` on, in two columns where all entries are short; gives the height below it.
pub fn legend(canvas: &mut Canvas<'_>, entries: &[(Sample, String)], y: f64) -> f64 {
    const SAMPLE: f64 = 40.0;
    let half = (WIDTH - 2.0 * MARGIN) / 2.0;
    let two = entries.len() > 1 && entries.iter().all(|(_, text)| width(text, FONT) < half - SAMPLE - 8.0);
    let columns = if two { 2 } else { 1 };
    let mut y = y;
    for line in entries.chunks(columns) {
        let mut lines = 1;
        for (column, (sample, text)) in line.iter().enumerate() {
            let x = MARGIN + half * column as f64;
            draw_sample(canvas, *sample, (x, y + LINE / 2.0));
            let texts = wrap(text, FONT, WIDTH - MARGIN - SAMPLE - x);
            for (n, text) in texts.iter().enumerate() {
                canvas.text(text, (x + SAMPLE, y + LINE * (n as f64 + 0.5)), Align::Left);
            }
            lines = lines.max(texts.len());
        }
        y += LINE * lines as f64 + 2.0;
    }
    y
}

fn draw_sample(canvas: &mut Canvas<'_>, sample: Sample, (x, y): Point) {
    match sample {
        Sample::Line(pen, marker, hollow) => {
            canvas.line((x, y), (x + 32.0, y), &pen);
            canvas.marker(marker, (x + 16.0, y), pen.color, hollow);
        }
        Sample::Rule(pen) => canvas.line((x, y), (x + 32.0, y), &pen),
        Sample::Marker(marker, color, hollow) => canvas.marker(marker, (x + 16.0, y), color, hollow),
        Sample::Box(color, alpha) => {
            canvas.rect((x, y - 6.0), (x + 32.0, y + 6.0), color, alpha);
            canvas.outline((x, y - 6.0), (x + 32.0, y + 6.0), &Pen::solid(color, 1.2));
        }
    }
}

/// Writes paragraphs from height `y` on, wrapped; gives the height below them.
pub fn notes(canvas: &mut Canvas<'_>, notes: &[String], y: f64) -> f64 {
    notes.iter().for_each(|note| canvas.describe(note));
    let mut y = if notes.is_empty() { y } else { y + 4.0 };
    for line in notes.iter().flat_map(|note| wrap(note, FONT, WIDTH - 2.0 * MARGIN)) {
        canvas.text(&line, (MARGIN, y + LINE / 2.0), Align::Left);
        y += LINE;
    }
    y
}

/// Where rows come from, a line for each machine: `Recorded on NVIDIA H200, 2026-11-21.`
pub(super) fn sources(rows: &[Measurement]) -> Vec<String> {
    let mut lines: Vec<String> = Vec::new();
    for row in rows {
        let mut short = row.clone();
        short.machine = clean_name(&row.machine);
        let line = format!("{}.", short.source());
        let line = line.replacen("recorded", "Recorded", 1).replacen("measured", "Measured", 1);
        if !lines.contains(&line) {
            lines.push(line);
        }
    }
    lines
}

/// What a chart of no rows says, and what to do about it.
const NOTHING: &str = "Nothing to draw: there are no rows to show.";
const NOTHING_NEXT: &str = "next: run the cell that measures first, then this one again; on a machine without a GPU, \
                            `lesson.measure` gives the recorded rows";

/// A figure of a chart without a single row: the title, what is missing, and the next step.
pub fn nothing(title: &str, remarks: &[String]) -> Figure {
    super::canvas::figure(title, |canvas| {
        let y = canvas.title(title);
        let mut lines = remarks.to_vec();
        lines.insert(0, NOTHING.to_string());
        lines.push(NOTHING_NEXT.to_string());
        notes(canvas, &lines, y) + MARGIN
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_log_scale_puts_the_middle_in_the_middle() {
        let scale = Scale { log: true, min: 1.0, max: 100.0, start: 0.0, end: 200.0 };
        assert!((scale.at(10.0) - 100.0).abs() < 1e-9);
        assert_eq!(scale.at(1e9), 200.0);
    }

    #[test]
    fn decades_or_ones_twos_and_fives() {
        assert_eq!(log_ticks(0.0008, 150.0), [0.001, 0.01, 0.1, 1.0, 10.0, 100.0]);
        assert_eq!(log_ticks(9.0, 110.0), [10.0, 20.0, 50.0, 100.0]);
        assert!(log_ticks(1e-12, 1e12).len() <= 9);
        // Less than a decade with two of 1, 2 and 5 in it.
        assert_eq!(log_ticks(270.0, 1250.0), [400.0, 600.0, 800.0, 1000.0, 1200.0]);
        let (min, max) = log_range(4200.0, 4300.0, 4.0);
        assert!(max / min >= 4.0 && log_ticks(min, max).len() >= 2, "{:?}", log_ticks(min, max));
    }

    #[test]
    fn sizes_are_powers_of_two() {
        assert_eq!(size_ticks(250.0, 4100.0, &[]), [256.0, 512.0, 1024.0, 2048.0, 4096.0]);
        let ticks = size_ticks(1.0, 2f64.powi(30), &[]);
        assert!(ticks.len() <= 9 && ticks.contains(&1048576.0), "{ticks:?}");
        assert_eq!(size_ticks(700.0, 1000.0, &[900.0, 720.0, 900.0]), [720.0, 900.0]);
        assert_eq!(size_ticks(0.9, 9.0, &[1.0, 2.0, 8.0]), [1.0, 2.0, 4.0, 8.0]);
        // Bits per weight, say.
        assert_eq!(size_ticks(3.2, 8.8, &[3.4, 4.3, 8.5]), [4.0, 5.0, 6.0, 7.0, 8.0]);
    }

    #[test]
    fn sizes_of_a_decimal_series_are_the_ticks() {
        assert_eq!(size_ticks(9e3, 1.1e7, &[1e6, 1e4, 1e5, 1e7, 1e4]), [1e4, 1e5, 1e6, 1e7]);
        assert_eq!(size_ticks(0.4, 110.0, &[0.5, 1.0, 2.0, 5.0, 100.0]), [0.5, 1.0, 2.0, 5.0, 100.0]);
        // One that is none, and 2^k alone.
        assert!(size_ticks(9.0, 3000.0, &[10.0, 100.0, 3000.0]).contains(&1024.0));
        assert_eq!(size_ticks(0.9, 2.2, &[1.0, 2.0, 1.0]), [1.0, 2.0]);
    }

    #[test]
    fn labels_read_well() {
        let plain: Vec<String> = [1.0, 256.0, 8192.0, 65536.0, 1048576.0].map(|v| size(v, false)).to_vec();
        assert_eq!(plain, ["1", "256", "8192", "64K", "1M"]);
        let in_bytes: Vec<String> = [512.0, 1024.0, 3.0 * 1048576.0, 1073741824.0].map(|v| size(v, true)).to_vec();
        assert_eq!(in_bytes, ["512 B", "1 KiB", "3 MiB", "1 GiB"]);
        let numbers: Vec<String> = [0.001, 0.1 + 0.2, 10.0, 50000.0, 2e6, 0.0].map(number).to_vec();
        assert_eq!(numbers, ["0.001", "0.3", "10", "50000", "2 M", "0"]);
    }

    #[test]
    fn linear_ticks_are_round_and_inside() {
        assert_eq!(linear_ticks(0.0, 10.0, 5), [0.0, 2.0, 4.0, 6.0, 8.0, 10.0]);
        assert_eq!(
            linear_ticks(139.2, 139.8, 3).iter().map(|v| number(*v)).collect::<Vec<_>>(),
            ["139.2", "139.4", "139.6", "139.8"]
        );
    }

    #[test]
    fn flags_that_would_overlap_stand_in_rows() {
        let flag = |x: f64| Flag { x, text: "your prediction: 512".to_string() };
        let positions = flags(&[flag(100.0), flag(120.0), flag(400.0)], 0.0, 700.0);
        assert_eq!([positions[0].row, positions[1].row, positions[2].row], [1, 0, 0]);
        let at_the_edge = flags(&[flag(690.0)], 0.0, 700.0)[0];
        assert!(at_the_edge.align == Align::Right && at_the_edge.x < 690.0);
    }

    #[test]
    fn a_label_gives_way_to_a_curve_and_to_another_label() {
        let room = Area(0.0, 0.0, 600.0, 300.0);
        let curve = vec![(0.0, 90.0), (300.0, 90.0)];
        let mut taken = Vec::new();
        let first = beside("ceiling", 100.0, room, std::slice::from_ref(&curve), &mut taken);
        assert!(first.0 > 290.0 || first.1 > 100.0, "{first:?}");
        let second = beside("ceiling", 100.0, room, &[curve], &mut taken);
        assert!(!taken[0].overlaps(taken[1]), "{first:?} {second:?}");
    }

    #[test]
    fn labels_of_one_height_spread_and_keep_their_order() {
        let heights = spread_out(&[100.0, 100.0, 20.0, 101.0], 10.0, 0.0, 200.0);
        assert_eq!(heights[2], 20.0);
        assert!(heights[0] < heights[1] && heights[1] < heights[3], "{heights:?}");
        assert!(heights.iter().all(|a| heights.iter().filter(|b| (*a - **b).abs() < 9.99).count() == 1), "{heights:?}");
        // At the edge they stay inside, and more than fit begin at the top.
        let heights = spread_out(&[199.0; 5], 10.0, 0.0, 200.0);
        assert_eq!((heights[0], heights[4]), (160.0, 200.0));
        assert_eq!(spread_out(&[5.0; 30], 10.0, 0.0, 200.0)[0], 0.0);
        assert!(spread_out(&[], 10.0, 0.0, 200.0).is_empty());
    }
}
