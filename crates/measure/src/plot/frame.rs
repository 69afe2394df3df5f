//! The frame of a chart: grid, ticks and their labels.

use super::canvas::{Align, Canvas, FONT, LINE};
use super::scale::Scale;
use super::style::{INK, Pen};
use super::text::width;

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
        if x - half >= free {
            canvas.text(label, (*x, bottom + 14.0), Align::Middle);
            free = x + half + 6.0;
        }
    }
    bottom + 14.0 + LINE / 2.0
}
