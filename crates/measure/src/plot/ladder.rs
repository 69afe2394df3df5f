//! The builder of a ladder's bars; how they are drawn is in `ladder_draw`.

use super::curves::{count, fits_linear, one_unit};
use super::{Figure, ladder_draw};
use crate::measurement::Measurement;

/// One horizontal bar a rung, with its rate and its share of a peer's; as the last expression of a cell it shows itself.
///
/// Whiskers reach from p10 to p90. Bars of recorded rows are lighter, with a dashed outline, and a line below the chart
/// says on which machine they were recorded.
#[derive(Debug, Clone)]
#[must_use = "a chart shows itself as the last expression of a cell, without a semicolon"]
pub struct LadderChart {
    pub(super) rows: Vec<Measurement>,
    pub(super) notes: Vec<String>,
    pub(super) title: String,
    pub(super) peer: String,
    pub(super) ceilings: Vec<(String, f64)>,
    pub(super) percents: Vec<(String, f64)>,
    /// Rung, peer, ratio.
    pub(super) ratios: Vec<(String, String, f64)>,
}

impl LadderChart {
    pub(super) fn new(rows: &[Measurement]) -> LadderChart {
        let mut notes = Vec::new();
        let mut kept: Vec<Measurement> = one_unit(rows, Some("rate"), &mut notes).into_iter().cloned().collect();
        let all = kept.len();
        kept.retain(|row| fits_linear(row.summary.median));
        if kept.len() < all {
            notes.push(format!("Not drawn: {} whose value is no number from 0 up.", count(all - kept.len(), "row")));
        }
        LadderChart {
            rows: kept,
            notes,
            title: String::new(),
            peer: String::new(),
            ceilings: Vec::new(),
            percents: Vec::new(),
            ratios: Vec::new(),
        }
    }

    /// The title; a good one says what the chart shows.
    pub fn title(mut self, title: &str) -> LadderChart {
        self.title = title.to_string();
        self
    }

    /// The row that counts as 100 %, such as `cuBLAS` or `device copy`: the other bars carry their share of it.
    pub fn peer(mut self, experiment: &str) -> LadderChart {
        self.peer = experiment.to_string();
        self
    }

    /// A rung's speed as a multiple of a peer's, where it was measured round by round: that is closer than the ratio of
    /// both medians, which stands there else.
    pub fn ratio(mut self, rung: &str, peer: &str, ratio: f64) -> LadderChart {
        self.ratios.push((rung.to_string(), peer.to_string(), ratio));
        self
    }

    /// A line that no bar can pass, such as the memory's bandwidth; `value` is in the rows' unit.
    pub fn ceiling(mut self, label: &str, value: f64) -> LadderChart {
        self.ceilings.push((label.to_string(), value));
        self
    }

    /// Your prediction of the best rung, in percent of the peer.
    pub fn prediction(mut self, percent: f64) -> LadderChart {
        self.percents.push(("your prediction".to_string(), percent));
        self
    }

    /// A line below the chart, such as which rungs this GPU does not run.
    pub fn note(mut self, text: &str) -> LadderChart {
        self.notes.push(text.to_string());
        self
    }

    /// Draws the chart.
    pub fn draw(&self) -> Figure {
        ladder_draw::draw(self)
    }

    /// What the notebook calls to show the chart.
    pub fn evcxr_display(&self) {
        self.draw().evcxr_display();
    }
}
