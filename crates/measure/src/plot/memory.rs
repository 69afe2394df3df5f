//! The builder of charts of a memory pool's life; how they are drawn is in `memory_draw`.

use super::{Figure, memory_draw};
use crate::measurement::MemoryPoint;

/// A step chart of a pool's used and reserved memory in MiB, one step for each point.
/// As the last expression of a cell it shows itself.
#[derive(Debug, Clone)]
#[must_use = "a chart shows itself as the last expression of a cell, without a semicolon"]
pub struct MemoryChart {
    pub(super) points: Vec<MemoryPoint>,
    pub(super) title: String,
    pub(super) free: bool,
    pub(super) recorded: String,
    pub(super) used: Option<(String, Vec<u64>)>,
    pub(super) reserved: Option<(String, Vec<u64>)>,
}

impl MemoryChart {
    pub(super) fn new(points: &[MemoryPoint]) -> MemoryChart {
        let points = points.to_vec();
        MemoryChart { points, title: String::new(), free: false, recorded: String::new(), used: None, reserved: None }
    }

    /// The title; a good one says what the chart shows.
    pub fn title(mut self, title: &str) -> MemoryChart {
        self.title = title.to_string();
        self
    }

    /// Adds a second, lower chart with the memory that is free on the whole device, on its own axis.
    pub fn with_free(mut self) -> MemoryChart {
        self.free = true;
        self
    }

    /// Says in the legend that these numbers were recorded, and on which machine.
    pub fn recorded_on(mut self, machine: &str) -> MemoryChart {
        self.recorded = super::curves::short_machine(machine);
        self
    }

    /// Your prediction of the used bytes after each step, drawn as diamonds over the measured numbers.
    pub fn prediction(mut self, label: &str, used: &[u64]) -> MemoryChart {
        self.used = Some((label.to_string(), used.to_vec()));
        self
    }

    /// Your prediction of the reserved bytes after each step, drawn as squares.
    pub fn prediction_reserved(mut self, label: &str, reserved: &[u64]) -> MemoryChart {
        self.reserved = Some((label.to_string(), reserved.to_vec()));
        self
    }

    /// Draws the chart.
    pub fn draw(&self) -> Figure {
        memory_draw::draw(self)
    }

    /// What the notebook calls to show the chart.
    pub fn evcxr_display(&self) {
        self.draw().evcxr_display();
    }
}
