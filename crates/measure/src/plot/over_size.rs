//! The builder of charts over size; how they are drawn is in `over_size_draw`.

use super::curves::{Curves, curves};
use super::{Figure, over_size_draw};
use crate::measurement::Measurement;

/// A chart of one metric over size, both axes logarithmic: a curve for each experiment and machine with its p10 to
/// p90 band; recorded curves are dashed, their markers hollow. As the last expression of a cell it shows itself.
#[derive(Debug, Clone)]
#[must_use = "a chart shows itself as the last expression of a cell, without a semicolon"]
pub struct SizeChart {
    pub(super) data: Curves,
    pub(super) title: String,
    pub(super) x_label: String,
    pub(super) y_label: String,
    pub(super) in_bytes: bool,
    pub(super) crossover: bool,
    pub(super) ceilings: Vec<(String, f64)>,
    pub(super) sizes: Vec<(String, f64)>,
    pub(super) values: Vec<(String, f64)>,
}

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
        SizeChart {
            data,
            title: String::new(),
            x_label: String::new(),
            y_label: String::new(),
            in_bytes: false,
            crossover: false,
            ceilings: Vec::new(),
            sizes: Vec::new(),
            values: Vec::new(),
        }
    }

    /// The title; a good one says what the chart shows.
    pub fn title(mut self, title: &str) -> SizeChart {
        self.title = title.to_string();
        self
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

    /// A vertical line at a predicted size, such as `prediction("your prediction", 512)`.
    pub fn prediction(mut self, label: &str, size: usize) -> SizeChart {
        self.sizes.push((label.to_string(), size as f64));
        self
    }

    /// A horizontal line at a predicted value, in the chart's unit.
    pub fn prediction_value(mut self, label: &str, value: f64) -> SizeChart {
        self.values.push((label.to_string(), value));
        self
    }

    /// Draws the chart.
    pub fn draw(&self) -> Figure {
        over_size_draw::draw(self)
    }

    /// What the notebook calls to show the chart.
    pub fn evcxr_display(&self) {
        self.draw().evcxr_display();
    }
}
