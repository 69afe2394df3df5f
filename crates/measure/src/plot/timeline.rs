//! The builder of timelines; how they are drawn is in `timeline_draw`.

use super::{Figure, timeline_draw};
pub(super) use crate::measurement::Span;

/// Lanes of spans over a common time axis; lanes stand in the order in which they first appear.
/// As the last expression of a cell it shows itself.
#[derive(Debug, Clone)]
#[must_use = "a chart shows itself as the last expression of a cell, without a semicolon"]
pub struct Timeline {
    pub(super) spans: Vec<Span>,
    pub(super) unfit: usize,
    pub(super) title: String,
    pub(super) recorded: String,
    pub(super) marks: Vec<(String, f64)>,
    pub(super) predictions: Vec<(String, f64)>,
}

/// Whether the axis can hold this moment: a number, and within eleven days of the start.
pub(super) fn fits(ms: f64) -> bool {
    ms.abs() < 1e9
}

impl Timeline {
    pub(super) fn new(spans: &[Span]) -> Timeline {
        let sound = |span: &&Span| fits(span.start_ms) && fits(span.end_ms) && span.end_ms >= span.start_ms;
        let kept: Vec<Span> = spans.iter().filter(sound).cloned().collect();
        let unfit = spans.len() - kept.len();
        let (title, recorded) = (String::new(), String::new());
        Timeline { spans: kept, unfit, title, recorded, marks: Vec::new(), predictions: Vec::new() }
    }

    /// The title; a good one says what the chart shows.
    pub fn title(mut self, title: &str) -> Timeline {
        self.title = title.to_string();
        self
    }

    /// Says below the chart that these times were recorded, and on which machine.
    pub fn recorded_on(mut self, machine: &str) -> Timeline {
        self.recorded = super::curves::short_machine(machine);
        self
    }

    /// A vertical line through all lanes at a moment in ms, such as `mark("the launch returns", 0.004)`.
    pub fn mark(mut self, label: &str, ms: f64) -> Timeline {
        self.marks.push((label.to_string(), ms));
        self
    }

    /// A vertical line at a predicted moment in ms.
    pub fn prediction(mut self, label: &str, ms: f64) -> Timeline {
        self.predictions.push((label.to_string(), ms));
        self
    }

    /// Draws the chart.
    pub fn draw(&self) -> Figure {
        timeline_draw::draw(self)
    }

    /// What the notebook calls to show the chart.
    pub fn evcxr_display(&self) {
        self.draw().evcxr_display();
    }
}
