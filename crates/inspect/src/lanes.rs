//! The 32 lanes of a warp as a row of cells, and the lines from them to what lies below.

use super::Access;
use gpulab_measure::plot::canvas::{Align, Canvas, MARGIN, Point, WIDTH};
use gpulab_measure::plot::canvas::{INK, Pen, Rgb};

/// Width of a lane's cell, in pixels.
pub(super) const CELL: f64 = (WIDTH - 2.0 * MARGIN) / 32.0;
/// Height of a lane's cell.
const HIGH: f64 = 22.0;
/// Lines end this far below the lanes.
pub(super) const FALL: f64 = 84.0;
pub(super) const FILL: f64 = 0.32;
pub(super) const EDGE: Pen = Pen::solid(INK, 1.0).alpha(0.55);
const IDLE: Pen = Pen::solid(INK, 1.0).alpha(0.25);

/// The middle of lane `n`'s cell.
pub(super) fn middle(n: usize) -> f64 {
    MARGIN + CELL * (n as f64 + 0.5)
}

/// Draws the lanes, each in its colour and with its number; lanes without one took no part. Gives the height below.
pub(super) fn row(canvas: &mut Canvas<'_>, colors: &[Option<Rgb>; 32], y: f64) -> f64 {
    for (n, color) in colors.iter().enumerate() {
        let (from, to) = ((middle(n) - CELL / 2.0 + 1.0, y), (middle(n) + CELL / 2.0 - 1.0, y + HIGH));
        match color {
            Some(color) => {
                canvas.rect(from, to, *color, FILL);
                canvas.outline(from, to, &EDGE);
                canvas.small(&n.to_string(), (middle(n), y + HIGH / 2.0), Align::Middle);
            }
            None => canvas.outline(from, to, &IDLE),
        }
    }
    y + HIGH
}

/// A line from a lane's cell, whose lower edge lies at `top`, to a point below it.
pub(super) fn line(canvas: &mut Canvas<'_>, lane: usize, top: f64, to: Point, color: Rgb) {
    let from = (middle(lane), top + 1.0);
    // The ends are upright, so that lines of neighbours do not merge at once.
    let points = [from, (from.0, top + 8.0), (to.0, to.1 - 8.0), to];
    canvas.path(&points, &Pen::solid(color, 1.4).alpha(0.75));
}

/// What the lanes' row is called.
pub(super) fn caption(access: &Access) -> String {
    match access.active() {
        32 => "lanes of the warp".to_string(),
        n => format!("lanes of the warp ({n} of 32 take part)"),
    }
}
