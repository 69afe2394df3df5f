//! The builder of rooflines; how they are drawn is in `roofline_draw`.

use super::curves::{count, fits_log};
use super::{Figure, roofline_draw};

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

/// Operations a byte against operations a second, both axes logarithmic, under the roofs that memory and arithmetic
/// set. As the last expression of a cell it shows itself. Points of recorded figures are hollow.
#[derive(Debug, Clone)]
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

impl Roofline {
    pub(super) fn new(points: &[Reached]) -> Roofline {
        let fits = |point: &&Reached| fits_log(point.flop_per_byte) && fits_log(point.tflop_per_s);
        let kept: Vec<Reached> = points.iter().filter(fits).cloned().collect();
        let mut notes = Vec::new();
        if kept.len() < points.len() {
            let left = count(points.len() - kept.len(), "point");
            notes.push(format!("Not drawn: {left}; a logarithmic axis holds only numbers above 0."));
        }
        Roofline {
            points: kept,
            notes,
            title: String::new(),
            memory: Vec::new(),
            compute: Vec::new(),
            refused: String::new(),
        }
    }

    /// In place of a chart: why there can be none, and what to look at.
    pub fn refused(title: &str, why: &str) -> Roofline {
        Roofline { refused: why.to_string(), ..Roofline::new(&[]).title(title) }
    }

    /// The title; a good one says what the chart shows.
    pub fn title(mut self, title: &str) -> Roofline {
        self.title = title.to_string();
        self
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
        roofline_draw::draw(self)
    }

    /// What the notebook calls to show the chart.
    pub fn evcxr_display(&self) {
        self.draw().evcxr_display();
    }
}
