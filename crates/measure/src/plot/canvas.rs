//! What the charts draw on: lines, areas, markers and text in pixels, through plotters' SVG backend; and the finished figure.
//!
//! The backend knows whole numbers, `#RRGGBB` colours and solid lines. So one unit is a tenth of a pixel, dashes
//! are cut here, and [`INK`] stands for the page's text colour until the figure is written.

#![allow(missing_docs)] // a vocabulary for drawing: the names say what each is

use crate::error::{Result, save};
use plotters::prelude::{DrawingBackend, SVGBackend};
use plotters::style::text_anchor::{HPos, Pos, VPos};
use plotters::style::{FontDesc, FontFamily, FontStyle, RGBAColor, RGBColor, ShapeStyle, TextStyle};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::path::Path;

/// Every figure is this wide, in pixels: the width of a notebook's output.
pub const WIDTH: f64 = 760.0;
/// A page does not shrink a figure below this, in pixels: letters of [`SMALL`] pixels keep ten.
const NARROWEST: u32 = (WIDTH * 10.0 / SMALL) as u32;
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
    "system-ui, -apple-system, Segoe UI, Roboto, Helvetica Neue, Noto Sans, Arial, DejaVu Sans, sans-serif";
const CODE_FONTS: &str = "ui-monospace, SFMono-Regular, Menlo, Consolas, DejaVu Sans Mono, monospace";
/// The font size of source code and of numbers in cells, in pixels.
pub const SMALL: f64 = 12.0;
/// From one letter of source code to the next, in pixels.
pub const LETTER: f64 = SMALL * 0.603;
// plotters divides a font's size by this before it writes it.
const FONT_FACTOR: f64 = 1.24;

/// A point in pixels, from the top left.
pub type Point = (f64, f64);

/// A figure being drawn. Its coordinates are pixels from the top left.
pub struct Canvas<'a> {
    backend: SVGBackend<'a>,
    description: Vec<String>,
}

/// Draws a figure; `draw` gives the height that it used, in pixels.
pub fn figure(title: &str, draw: impl FnOnce(&mut Canvas<'_>) -> f64) -> Figure {
    let mut text = String::with_capacity(16 << 10);
    let mut canvas = Canvas { backend: SVGBackend::with_string(&mut text, (0, 0)), description: Vec::new() };
    let height = draw(&mut canvas);
    canvas.backend.present().expect("writing to memory does not fail");
    let description = std::mem::take(&mut canvas.description);
    drop(canvas);
    // The outer element is written by the figure, once for each use.
    let body = text.split_once('\n').map_or("", |(_, rest)| rest);
    let body = body.trim_end().strip_suffix("</svg>").expect("the backend closes its element");
    let (r, g, b) = INK;
    // With its quotes: text is written with `&quot;`, so no label can hold this.
    let body = body.replace(&format!("\"#{r:02X}{g:02X}{b:02X}\""), "\"currentColor\"");
    // Said once, on the outer element.
    let body = body.replace(&format!(" font-family=\"{FONTS}\""), "").replace(" opacity=\"1\"", "");
    Figure::new(title, &description, body, height)
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
    /// Adds a line to what a screen reader says of the figure: the values that the picture shows.
    pub fn describe(&mut self, line: impl Into<String>) {
        self.description.push(line.into());
    }

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
        for line in wrap(title, TITLE * 1.1, WIDTH - 2.0 * MARGIN) {
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

/// A finished chart. As the last expression of a cell it shows itself; [`Figure::save`] writes it to a file.
///
/// It shows in two forms at once, and each viewer takes the one that it prefers: in the page (JupyterLab, HTML
/// exports) it takes the page's text colour and no background, so it fits light and dark themes; as a file or a
/// picture it has a white background of its own.
#[derive(Debug, Clone, PartialEq)]
pub struct Figure {
    title: String,
    description: String,
    body: String,
    height: f64,
}

impl Figure {
    fn new(title: &str, description: &[String], body: String, height: f64) -> Figure {
        Figure { title: escape(title), description: escape(&description.join("\n")), body, height }
    }

    fn open(&self, attributes: &str) -> String {
        let (width, height) = (WIDTH * UNITS, (self.height * UNITS).ceil());
        // A page may hold many figures: the name of a description follows from its text.
        let mut hasher = DefaultHasher::new();
        (&self.title, &self.description).hash(&mut hasher);
        let id = format!("gpulab-{:016x}", hasher.finish());
        format!(
            "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {width} {height}\" role=\"img\" \
             font-family=\"{FONTS}\" aria-label=\"{}\" aria-describedby=\"{id}\" {attributes}>\n<desc id=\"{id}\">{}</desc>\n",
            self.title, self.description
        )
    }

    /// The figure as an SVG document that stands alone: white background, dark text.
    pub fn svg(&self) -> String {
        let size = format!("width=\"{WIDTH}\" height=\"{}\" color=\"#1a1a1a\"", self.height.ceil());
        let paper = "<rect width=\"100%\" height=\"100%\" fill=\"#ffffff\"/>\n";
        format!("{}{paper}{}</svg>\n", self.open(&size), self.body)
    }

    /// The figure as a piece of a page: the page's text colour, no background, as wide as there is room, and behind a
    /// scroll bar where its text would become too small.
    pub fn html(&self) -> String {
        let color = "color:var(--jp-content-font-color1, inherit)";
        let svg = self.open(&format!("width=\"100%\" style=\"display:block;height:auto;min-width:{NARROWEST}px\""));
        format!(
            "<div class=\"gpulab-figure\" style=\"max-width:{WIDTH}px;overflow-x:auto;{color}\">\n{svg}{}</svg>\n</div>\n",
            self.body
        )
    }

    /// Writes [`Figure::svg`] to `path`, with the folders above it.
    ///
    /// # Errors
    /// [`Error::File`](crate::error::Error::File) when the folder or the file cannot be written.
    pub fn save(&self, path: impl AsRef<Path>) -> Result<()> {
        save(path.as_ref(), &self.svg(), "save the figure as")
    }

    /// What the notebook calls to show a value: both forms, in one output of the cell.
    pub fn evcxr_display(&self) {
        // One call: a line of another thread must not fall between the markers.
        print!(
            "EVCXR_BEGIN_CONTENT text/html\n{}EVCXR_END_CONTENT\n\
             EVCXR_BEGIN_CONTENT image/svg+xml\n{}EVCXR_END_CONTENT\n",
            self.html(),
            self.svg()
        );
    }
}

/// Text for an attribute of an SVG element.
fn escape(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}

/// Red, green, blue.
pub type Rgb = (u8, u8, u8);

/// Replaced by the page's text colour when the figure is written; no real colour of a figure may equal it.
pub const INK: Rgb = (1, 2, 3);

/// Okabe and Ito's colours for colour-blind readers, less those that vanish on white or on black,
/// and a bronze and a grey in their place.
pub const PALETTE: [Rgb; 6] =
    [(0, 114, 178), (213, 94, 0), (0, 148, 108), (196, 104, 154), (140, 112, 36), (127, 127, 127)];

pub const BLUE: Rgb = PALETTE[0];
pub const ORANGE: Rgb = PALETTE[1];
pub const GREEN: Rgb = PALETTE[2];
pub const GREY: Rgb = PALETTE[5];

/// The shape that marks a curve's points.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Marker {
    Circle,
    Square,
    Triangle,
    Diamond,
    Cross,
}

const MARKERS: [Marker; 5] = [Marker::Circle, Marker::Square, Marker::Triangle, Marker::Diamond, Marker::Cross];

/// Lengths of dash and gap in pixels; empty for a solid line.
pub type Dash = &'static [f64];
pub const SOLID: Dash = &[];
pub const DASHED: Dash = &[8.0, 5.0];
pub const DOTTED: Dash = &[2.0, 4.0];
pub const LONG: Dash = &[14.0, 4.0, 2.0, 4.0];

/// How a line is drawn.
#[derive(Debug, Clone, Copy)]
pub struct Pen {
    pub color: Rgb,
    pub alpha: f64,
    pub width: f64,
    pub dash: Dash,
}

impl Pen {
    pub const fn solid(color: Rgb, width: f64) -> Pen {
        Pen { color, alpha: 1.0, width, dash: SOLID }
    }

    pub const fn dash(self, dash: Dash) -> Pen {
        Pen { dash, ..self }
    }

    pub const fn alpha(self, alpha: f64) -> Pen {
        Pen { alpha, ..self }
    }
}

/// The colour of the `n`th curve.
pub fn color(n: usize) -> Rgb {
    PALETTE[n % PALETTE.len()]
}

/// The marker of the `n`th curve. Six colours and five markers: 30 curves before a pair comes again.
pub fn marker(n: usize) -> Marker {
    MARKERS[n % MARKERS.len()]
}

/// The estimated width of `text` in pixels, at a font size in pixels.
pub fn width(text: &str, size: f64) -> f64 {
    text.chars().map(em).sum::<f64>() * size
}

fn em(c: char) -> f64 {
    match c {
        'i' | 'j' | 'l' | '.' | ',' | ':' | ';' | '\'' | '|' | '!' => 0.33,
        ' ' | 'I' | 'f' | 't' | 'r' | '(' | ')' | '[' | ']' | '-' | '/' => 0.42,
        'm' | 'M' | 'w' | 'W' | '@' | '%' => 0.98,
        'A'..='Z' | '+' | '=' | '<' | '>' | '&' | '~' => 0.76,
        // Scripts such as Chinese fill a square.
        '\u{1100}'.. => 1.0,
        _ => 0.64,
    }
}

/// Breaks `text` at spaces into lines of at most `room` pixels. A word wider than that is cut.
/// At least one line comes back, which may be empty.
pub fn wrap(text: &str, size: f64, room: f64) -> Vec<String> {
    let mut lines = vec![String::new()];
    for word in text.split_whitespace() {
        let line = lines.last_mut().expect("there is always a line");
        let joined = if line.is_empty() { word.to_string() } else { format!("{line} {word}") };
        if width(&joined, size) <= room {
            *line = joined;
            continue;
        }
        if !line.is_empty() {
            lines.push(String::new());
        }
        for c in word.chars() {
            let line = lines.last_mut().expect("there is always a line");
            if !line.is_empty() && width(line, size) + em(c) * size > room {
                lines.push(String::new());
            }
            lines.last_mut().expect("there is always a line").push(c);
        }
    }
    lines
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
    fn a_screen_reader_is_told_the_values() {
        let figure = figure("t", |canvas| {
            canvas.describe("CPU: 1 < 2 ms");
            canvas.describe("GPU: 1 ms");
            20.0
        });
        for text in [figure.svg(), figure.html()] {
            let id = text.split("aria-describedby=\"").nth(1).unwrap().split('"').next().unwrap();
            assert!(text.contains(&format!("<desc id=\"{id}\">CPU: 1 &lt; 2 ms\nGPU: 1 ms</desc>")), "{text}");
        }
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

    #[test]
    fn the_page_form_has_no_background_and_the_file_form_has_one() {
        let figure = Figure::new("t", &[], "<line/>\n".to_string(), 100.0);
        assert!(figure.svg().contains("#ffffff") && figure.svg().contains("color=\"#1a1a1a\""));
        assert!(!figure.html().contains("#ffffff") && figure.html().contains("--jp-content-font-color1"));
        assert!(figure.svg().contains("viewBox=\"0 0 7600 1000\""));
    }

    #[test]
    fn saving_makes_folders_and_names_the_path_when_it_cannot() {
        let folder = std::env::temp_dir().join(format!("gpulab-figure-{}", std::process::id()));
        let figure = Figure::new("t", &[], String::new(), 10.0);
        let path = folder.join("a/b.svg");
        figure.save(&path).unwrap();
        assert_eq!(std::fs::read_to_string(&path).unwrap(), figure.svg());
        let below_a_file = path.join("c.svg");
        let error = figure.save(&below_a_file).unwrap_err().to_string();
        assert!(error.contains("b.svg/c.svg") && error.contains("\nnext: choose a path"), "{error}");
        std::fs::remove_dir_all(folder).unwrap();
    }

    /// The contrast ratio of WCAG 2.1.
    fn contrast(a: Rgb, b: Rgb) -> f64 {
        let luminance = |(r, g, b): Rgb| {
            let linear = |c: u8| {
                let c = f64::from(c) / 255.0;
                if c <= 0.03928 { c / 12.92 } else { ((c + 0.055) / 1.055).powf(2.4) }
            };
            0.2126 * linear(r) + 0.7152 * linear(g) + 0.0722 * linear(b)
        };
        let (a, b) = (luminance(a) + 0.05, luminance(b) + 0.05);
        a.max(b) / a.min(b)
    }

    #[test]
    fn every_colour_stands_out_on_white_and_on_dark() {
        assert!((contrast((0, 0, 0), (255, 255, 255)) - 21.0).abs() < 1e-9);
        for color in PALETTE {
            for page in [(0xff, 0xff, 0xff), (0x11, 0x11, 0x11), (0x1e, 0x1e, 0x1e)] {
                assert!(contrast(color, page) >= 3.0, "{color:?} on {page:?}: {:.2}", contrast(color, page));
            }
        }
    }

    #[test]
    fn no_colour_is_the_ink() {
        assert!(!PALETTE.contains(&INK));
    }

    #[test]
    fn lines_stay_within_the_room_and_lose_no_letter() {
        let text = "matmul, result copied back (Intel(R) Xeon(R) Platinum 8481C CPU @ 2.70GHz (2 cores), recorded)";
        for room in [60.0, 150.0, 400.0, 5000.0] {
            let lines = wrap(text, 12.0, room);
            assert!(lines.iter().all(|line| width(line, 12.0) <= room), "{lines:?}");
            let letters = |s: &str| s.chars().filter(|c| !c.is_whitespace()).collect::<String>();
            assert_eq!(letters(&lines.concat()), letters(text));
        }
        assert_eq!(wrap(text, 12.0, 5000.0).len(), 1);
        assert_eq!(wrap("", 12.0, 10.0), [""]);
    }

    #[test]
    fn a_word_wider_than_the_room_is_cut() {
        assert!(wrap("cudaMemcpyHostToDevice", 12.0, 50.0).len() > 2);
    }
}
