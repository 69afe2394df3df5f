//! A ladder's bars: names, bars, rates and percents as the columns of a table.

use super::bars::{bar, spread};
use super::canvas::{
    Align, BLUE, Canvas, DASHED, DOTTED, FONT, Figure, GREY, INK, LINE, LONG, MARGIN, Pen, WIDTH, figure, width, wrap,
};
use super::curves::{fits_linear, linear_rows, none_yet};
use super::frame::{
    AXIS, Flag, GRID, Scale, flags, linear_ticks, notes, nothing, number, short, sources, ticks, x_axis, x_name,
};
use crate::measurement::{Measurement, figures};

/// One horizontal bar a rung, with its rate and its share of a peer's; as the last expression of a cell it shows itself.
///
/// Whiskers reach from p10 to p90. Bars of recorded rows are lighter, with a dashed outline, and a line below the chart
/// says on which machine they were recorded.
#[derive(Debug, Clone, Default)]
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

chart!(LadderChart);

impl LadderChart {
    pub(super) fn new(rows: &[Measurement]) -> LadderChart {
        let (rows, notes) = linear_rows(rows, Some("rate"));
        LadderChart { rows, notes, ..LadderChart::default() }
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

    /// Your prediction of the best rung, in percent of the peer. With `None` the chart says that there is none yet.
    pub fn prediction(mut self, percent: impl Into<Option<f64>>) -> LadderChart {
        const LABEL: &str = "your prediction";
        match percent.into() {
            Some(percent) => self.percents.push((LABEL.to_string(), percent)),
            None => self.notes.push(none_yet(LABEL)),
        }
        self
    }

    /// A line below the chart, such as which rungs this GPU does not run.
    pub fn note(mut self, text: &str) -> LadderChart {
        self.notes.push(text.to_string());
        self
    }

    /// Draws the chart.
    pub fn draw(&self) -> Figure {
        let mut remarks = self.notes.clone();
        if self.rows.is_empty() {
            return nothing(&self.title, &remarks);
        }
        let marks = marks(self, &mut remarks);
        remarks.extend(sources(&self.rows));
        figure(&self.title, |canvas| {
            let y = canvas.title(&self.title);
            let y = plot(canvas, self, &marks, y);
            notes(canvas, &remarks, y) + MARGIN
        })
    }
}

const PREDICTION: Pen = Pen::solid(INK, 1.8).dash(LONG);
const PEER: Pen = Pen::solid(INK, 1.4).dash(DOTTED);
const CEILING: Pen = Pen::solid(INK, 1.6).dash(DASHED);
const BAR: f64 = 16.0;
/// From one bar to the next.
const STEP: f64 = 25.0;
/// The most that names may take of the width.
const NAMES: f64 = 260.0;

/// A vertical line across all bars.
struct Mark {
    value: f64,
    text: String,
    pen: Pen,
}

/// The peer's value, if its row is there.
fn peer(chart: &LadderChart) -> Option<f64> {
    let row = chart.rows.iter().find(|row| row.experiment == chart.peer)?;
    Some(row.summary.median).filter(|value| *value > 0.0)
}

fn marks(chart: &LadderChart, remarks: &mut Vec<String>) -> Vec<Mark> {
    let unit = &chart.rows[0].unit;
    let peer = peer(chart);
    let mut marks = Vec::new();
    if let Some(value) = peer {
        marks.push(Mark { value, text: format!("{}: 100 %", chart.peer), pen: PEER });
    }
    for (label, value) in &chart.ceilings {
        marks.push(Mark { value: *value, text: format!("{label}: {} {unit}", short(*value)), pen: CEILING });
    }
    for (label, percent) in &chart.percents {
        match peer {
            Some(peer) => marks.push(Mark {
                value: percent / 100.0 * peer,
                text: format!("{label}: {} %", number(*percent)),
                pen: PREDICTION,
            }),
            None => {
                remarks.push(format!("Not drawn: {label}, {} %: there is no peer to take it of.", number(*percent)))
            }
        }
    }
    let (fit, unfit): (Vec<Mark>, Vec<Mark>) = marks.into_iter().partition(|mark| fits_linear(mark.value));
    remarks.extend(unfit.iter().map(|mark| format!("Not drawn: {}: the axis holds no such number.", mark.text)));
    fit
}

/// Draws the table from height `top` on; gives the height below.
fn plot(canvas: &mut Canvas<'_>, chart: &LadderChart, marks: &[Mark], top: f64) -> f64 {
    let rows = &chart.rows;
    let peer = peer(chart);
    let names: Vec<Vec<String>> = rows.iter().map(|row| wrap(&row.experiment, FONT, NAMES)).collect();
    let rates: Vec<String> = rows.iter().map(|row| figures(row.summary.median)).collect();
    let percents: Vec<String> = rows.iter().map(|row| share(chart, row, peer)).collect();
    let wide = |texts: &[String]| texts.iter().map(|text| width(text, FONT)).fold(0.0, f64::max);
    let unit = rows[0].unit.as_str();
    let rate_room = wide(&rates).max(width(unit, FONT)) + 12.0;
    let percent_room = if peer.is_some() { wide(&percents).max(width("of peer", FONT)) + 12.0 } else { 0.0 };
    let left = MARGIN + wide(&names.concat()) + 10.0;
    let right = WIDTH - MARGIN - rate_room - percent_room - 4.0;
    let most = rows.iter().map(|row| spread(row).1).chain(marks.iter().map(|mark| mark.value)).fold(0.0, f64::max);
    // All zeros still need an axis.
    let max = if most > 0.0 { most * 1.03 } else { 1.0 };
    let x = Scale { log: false, min: 0.0, max, start: left, end: right };

    let poles: Vec<Flag> = marks.iter().map(|mark| Flag { x: x.at(mark.value), text: mark.text.clone() }).collect();
    let positions = flags(&poles, MARGIN, right);
    let levels = positions.iter().map(|position| position.row + 1).max().unwrap_or(0);
    let flag_y = |row: usize| top + LINE * (levels - row) as f64 - LINE / 2.0;
    let head = top + LINE * levels as f64;
    let (rate_end, percent_end) = (right + 4.0 + rate_room, WIDTH - MARGIN);
    canvas.text(unit, (rate_end, head - LINE / 2.0 + 2.0), Align::Right);
    if peer.is_some() {
        canvas.text("of peer", (percent_end, head - LINE / 2.0 + 2.0), Align::Right);
    }
    let start = head + 6.0;
    let heights: Vec<f64> = names.iter().map(|lines| STEP + LINE * (lines.len() - 1) as f64).collect();
    let bottom = start + heights.iter().sum::<f64>();
    let steps = ticks(&x, &linear_ticks(0.0, max, 5), number);
    let below = x_axis(canvas, start, bottom, &steps);
    canvas.path(&[(left, start), (left, bottom), (right, bottom)], &AXIS);

    let mut y = start;
    for (n, row) in rows.iter().enumerate() {
        let of_peer =
            if percents[n].is_empty() { String::new() } else { format!(", {} of {}", percents[n], chart.peer) };
        canvas.describe(format!("{}: {} {unit}{of_peer}", row.experiment, rates[n]));
        let middle = y + heights[n] / 2.0;
        let first = middle - LINE * (names[n].len() - 1) as f64 / 2.0;
        for (line, text) in names[n].iter().enumerate() {
            canvas.text(text, (left - 8.0, first + LINE * line as f64), Align::Right);
        }
        // A peer is no rung.
        let fill = if is_rung(&row.experiment) { BLUE } else { GREY };
        bar(canvas, row, &x, middle - BAR / 2.0, middle + BAR / 2.0, fill);
        canvas.text(&rates[n], (rate_end, middle), Align::Right);
        canvas.text(&percents[n], (percent_end, middle), Align::Right);
        canvas.line((right + 8.0, y + heights[n]), (percent_end, y + heights[n]), &GRID);
        y += heights[n];
    }
    for ((mark, position), pole) in marks.iter().zip(&positions).zip(&poles) {
        canvas.line((pole.x, flag_y(position.row) - 7.0), (pole.x, bottom), &mark.pen);
        canvas.describe(&mark.text);
        canvas.text(&mark.text, (position.x, flag_y(position.row)), position.align);
    }
    x_name(canvas, &x, below, &format!("{} ({unit})", rows[0].metric))
}

/// `92 %`; nothing where there is no peer.
fn share(chart: &LadderChart, row: &Measurement, peer: Option<f64>) -> String {
    let measured = chart.ratios.iter().find(|(rung, peer, _)| *rung == row.experiment && *peer == chart.peer);
    let ratio = measured.map(|(.., ratio)| *ratio).or(peer.map(|peer| row.summary.median / peer));
    ratio.filter(|_| peer.is_some()).map_or(String::new(), |ratio| format!("{} %", percent(ratio)))
}

/// A ratio in percent: `92`; the smaller, the more decimals.
pub fn percent(ratio: f64) -> String {
    match ratio * 100.0 {
        share if share >= 9.95 => format!("{share:.0}"),
        share if share >= 0.095 || share == 0.0 => format!("{share:.1}"),
        share if share >= 0.0095 => format!("{share:.2}"),
        _ => "< 0.01".to_string(),
    }
}

/// Rungs begin with their number.
pub fn is_rung(name: &str) -> bool {
    name.split('_').next().is_some_and(|number| number.len() == 2 && number.bytes().all(|c| c.is_ascii_digit()))
}
