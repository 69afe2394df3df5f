//! Colours, markers and dashes. One drawing serves light and dark pages, so every colour must stand out on both.

#![allow(missing_docs)] // a vocabulary for drawing: the names say what each is

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

#[cfg(test)]
mod tests {
    use super::*;

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
}
