//! What the charts draw on: lines, areas, markers and text in pixels, through plotters' SVG backend.
//!
//! The backend knows whole numbers, `#RRGGBB` colours and solid lines. So one unit is a tenth of a pixel, dashes
//! are cut here, and [`INK`] stands for the page's text colour until [`Figure`] writes the file.

#![allow(missing_docs)] // a vocabulary for drawing: the names say what each is

use super::figure::Figure;
use super::style::{INK, Marker, Pen, Rgb};
use super::text;
use plotters::prelude::{DrawingBackend, SVGBackend};
use plotters::style::text_anchor::{HPos, Pos, VPos};
use plotters::style::{FontDesc, FontFamily, FontStyle, RGBAColor, RGBColor, ShapeStyle, TextStyle};

/// Every figure is this wide, in pixels: the width of a notebook's output.
pub const WIDTH: f64 = 760.0;
/// Units of the drawing in a pixel.
pub const UNITS: f64 = 10.0;
/// The font size of all text but the title, in pixels.
pub const FONT: f64 = 14.0;
/// From one line of text to the next, in pixels.
pub const LINE: f64 = 18.0;
/// Left and right margin of a figure, in pixels.
pub const MARGIN: f64 = 8.0;

const TITLE: f64 = 17.0;
pub const FONTS: &str =
    "system-ui, -apple-system, Segoe UI, Roboto, Helvetica Neue, Noto Sans, Arial, sans-serif";
const CODE_FONTS: &str = "ui-monospace, SFMono-Regular, Menlo, Consolas, DejaVu Sans Mono, monospace";
/// The font size of source code and of numbers in cells, in pixels.
pub const SMALL: f64 = 12.0;
/// From one letter of source code to the next, in pixels.
pub const LETTER: f64 = SMALL * 0.603;
// plotters divides a font's size by this before it writes it.
const FONT_FACTOR: f64 = 1.24;

/// A point in pixels, from the top left.
pub type Point = (f64, f64);

pub struct Canvas<'a> {
    backend: SVGBackend<'a>,
}

/// Draws a figure; `draw` gives the height that it used, in pixels.
pub fn figure(title: &str, draw: impl FnOnce(&mut Canvas<'_>) -> f64) -> Figure {
    let mut text = String::with_capacity(16 << 10);
    let mut canvas = Canvas { backend: SVGBackend::with_string(&mut text, (0, 0)) };
    let height = draw(&mut canvas);
    canvas.backend.present().expect("writing to memory does not fail");
    drop(canvas);
    // The outer element is written by the figure, once for each use.
    let body = text.split_once('\n').map_or("", |(_, rest)| rest);
    let body = body.trim_end().strip_suffix("</svg>").expect("the backend closes its element");
    let (r, g, b) = INK;
    // With its quotes: text is written with `&quot;`, so no label can hold this.
    let body = body.replace(&format!("\"#{r:02X}{g:02X}{b:02X}\""), "\"currentColor\"");
    // Said once, on the outer element.
    let body = body.replace(&format!(" font-family=\"{FONTS}\""), "").replace(" opacity=\"1\"", "");
    Figure::new(title, body, height)
}

fn units(value: f64) -> i32 {
    (value * UNITS).round() as i32
}

fn at((x, y): Point) -> (i32, i32) {
    (units(x), units(y))
}

fn shape((r, g, b): Rgb, alpha: f64, filled: bool, width: f64) -> ShapeStyle {
    ShapeStyle { color: RGBAColor(r, g, b, alpha), filled, stroke_width: units(width) as u32 }
}

impl Canvas<'_> {
    pub fn path(&mut self, points: &[Point], pen: &Pen) {
        let style = shape(pen.color, pen.alpha, false, pen.width);
        if pen.dash.is_empty() {
            self.backend.draw_path(points.iter().copied().map(at), &style).expect("memory");
            return;
        }
        for piece in dashes(points, pen.dash) {
            self.backend.draw_path(piece.into_iter().map(at), &style).expect("memory");
        }
    }

    pub fn line(&mut self, from: Point, to: Point, pen: &Pen) {
        self.path(&[from, to], pen);
    }

    pub fn polygon(&mut self, points: &[Point], color: Rgb, alpha: f64) {
        let style = shape(color, alpha, true, 0.0);
        self.backend.fill_polygon(points.iter().copied().map(at), &style).expect("memory");
    }

    pub fn rect(&mut self, (x0, y0): Point, (x1, y1): Point, color: Rgb, alpha: f64) {
        self.polygon(&[(x0, y0), (x1, y0), (x1, y1), (x0, y1)], color, alpha);
    }

    pub fn outline(&mut self, (x0, y0): Point, (x1, y1): Point, pen: &Pen) {
        self.path(&[(x0, y0), (x1, y0), (x1, y1), (x0, y1), (x0, y0)], pen);
    }

    /// A marker about 9 pixels wide.
    pub fn marker(&mut self, marker: Marker, (x, y): Point, color: Rgb, hollow: bool) {
        let corners: &[Point] = match marker {
            Marker::Circle => {
                let style = shape(color, 1.0, !hollow, 1.8);
                self.backend.draw_circle(at((x, y)), units(4.2) as u32, &style, !hollow).expect("memory");
                return;
            }
            Marker::Cross => {
                let pen = Pen::solid(color, 2.2);
                self.line((x - 4.0, y - 4.0), (x + 4.0, y + 4.0), &pen);
                self.line((x - 4.0, y + 4.0), (x + 4.0, y - 4.0), &pen);
                return;
            }
            Marker::Square => &[(-3.9, -3.9), (3.9, -3.9), (3.9, 3.9), (-3.9, 3.9), (-3.9, -3.9)],
            Marker::Triangle => &[(-4.8, 3.9), (0.0, -4.8), (4.8, 3.9), (-4.8, 3.9)],
            Marker::Diamond => &[(-5.2, 0.0), (0.0, -5.2), (5.2, 0.0), (0.0, 5.2), (-5.2, 0.0)],
        };
        let corners: Vec<Point> = corners.iter().map(|(dx, dy)| (x + dx, y + dy)).collect();
        if hollow {
            self.path(&corners, &Pen::solid(color, 1.8));
        } else {
            self.polygon(&corners, color, 1.0);
        }
    }

    /// One line of text, its middle at height `y`.
    pub fn text(&mut self, text: &str, (x, y): Point, align: Align) {
        self.write(text, (x, y), align, FONT, FontStyle::Normal, FONTS);
    }

    /// One line of small text, for cells.
    pub fn small(&mut self, text: &str, point: Point, align: Align) {
        self.write(text, point, align, SMALL, FontStyle::Normal, FONTS);
    }

    /// One line of source code from `x` on, its spaces kept.
    pub fn code(&mut self, text: &str, point: Point) {
        let kept = text.replace(' ', "\u{a0}");
        self.write(&kept, point, Align::Left, SMALL, FontStyle::Normal, CODE_FONTS);
    }

    /// The title, wrapped, at the top left; gives the height below it.
    pub fn title(&mut self, title: &str) -> f64 {
        let mut y = 8.0;
        // Bold letters are wider than the estimate.
        for line in text::wrap(title, TITLE * 1.1, WIDTH - 2.0 * MARGIN) {
            y += 20.0;
            self.write(&line, (MARGIN, y - 8.0), Align::Left, TITLE, FontStyle::Bold, FONTS);
        }
        y + 4.0
    }

    fn write(&mut self, text: &str, point: Point, align: Align, size: f64, weight: FontStyle, family: &str) {
        let (r, g, b) = INK;
        let font = FontDesc::new(FontFamily::Name(family), size * UNITS * FONT_FACTOR, weight);
        let h_pos = match align {
            Align::Left => HPos::Left,
            Align::Middle => HPos::Center,
            Align::Right => HPos::Right,
        };
        let ink = RGBColor(r, g, b);
        let style = TextStyle::from(font).color(&ink).pos(Pos::new(h_pos, VPos::Center));
        self.backend.draw_text(text, &style, at(point)).expect("memory");
    }
}

/// Which end of a text stands at its point.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Align {
    Left,
    Middle,
    Right,
}

/// Cuts a path into the pieces that a dash pattern draws.
fn dashes(points: &[Point], pattern: &[f64]) -> Vec<Vec<Point>> {
    let mut pieces: Vec<Vec<Point>> = Vec::new();
    let (mut step, mut left) = (0, pattern[0]);
    let mut piece: Vec<Point> = points.first().copied().into_iter().collect();
    for pair in points.windows(2) {
        let (mut from, to) = (pair[0], pair[1]);
        let mut length = (to.0 - from.0).hypot(to.1 - from.1);
        while length > left {
            let share = left / length;
            from = (from.0 + (to.0 - from.0) * share, from.1 + (to.1 - from.1) * share);
            length -= left;
            if step % 2 == 0 {
                piece.push(from);
                pieces.push(std::mem::take(&mut piece));
            } else {
                piece = vec![from];
            }
            step += 1;
            left = pattern[step % pattern.len()];
        }
        left -= length;
        if step % 2 == 0 {
            piece.push(to);
        }
    }
    if piece.len() > 1 {
        pieces.push(piece);
    }
    pieces
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dashes_turn_corners_and_cover_their_share() {
        let pieces = dashes(&[(0.0, 0.0), (10.0, 0.0), (10.0, 10.0)], &[8.0, 4.0]);
        assert_eq!(pieces, [vec![(0.0, 0.0), (8.0, 0.0)], vec![(10.0, 2.0), (10.0, 10.0)]]);
        assert!(dashes(&[(1.0, 1.0)], &[2.0, 2.0]).is_empty());
        let around = dashes(&[(0.0, 0.0), (5.0, 0.0), (5.0, 5.0)], &[8.0, 4.0]);
        assert_eq!(around[0], [(0.0, 0.0), (5.0, 0.0), (5.0, 3.0)]);
    }

    #[test]
    fn text_is_escaped_and_takes_the_page_colour() {
        let figure = figure("a < b & \"c\"", |canvas| {
            canvas.text("<b>&'\"#010203\"", (0.0, 0.0), Align::Left);
            20.0
        });
        let svg = figure.svg();
        assert!(svg.contains("&lt;b&gt;&amp;&apos;&quot;#010203&quot;"), "{svg}");
        assert!(svg.contains("aria-label=\"a &lt; b &amp; &quot;c&quot;\""), "{svg}");
        assert!(svg.contains("fill=\"currentColor\"") && !svg.contains("fill=\"#010203\""), "{svg}");
    }
}
