//! What stands below a chart: the legend, a line for each curve, and notes.

#![allow(missing_docs)] // a vocabulary for drawing: the names say what each is

use super::canvas::{Align, Canvas, FONT, LINE, MARGIN, Point, WIDTH};
use super::curves::short_machine;
use super::style::{Marker, Pen, Rgb};
use super::text::{width, wrap};
use crate::measurement::Measurement;

/// The sample before a legend's text.
#[derive(Debug, Clone, Copy)]
pub enum Sample {
    /// A piece of line with a marker.
    Line(Pen, Marker, bool),
    /// A piece of line alone.
    Rule(Pen),
    /// A marker alone.
    Marker(Marker, Rgb, bool),
    /// A filled box.
    Box(Rgb, f64),
}

/// Draws the legend from height `y` on, in two columns where all entries are short; gives the height below it.
pub fn legend(canvas: &mut Canvas<'_>, entries: &[(Sample, String)], y: f64) -> f64 {
    const SAMPLE: f64 = 40.0;
    let half = (WIDTH - 2.0 * MARGIN) / 2.0;
    let two = entries.len() > 1 && entries.iter().all(|(_, text)| width(text, FONT) < half - SAMPLE - 8.0);
    let columns = if two { 2 } else { 1 };
    let mut y = y;
    for line in entries.chunks(columns) {
        let mut lines = 1;
        for (column, (sample, text)) in line.iter().enumerate() {
            let x = MARGIN + half * column as f64;
            draw_sample(canvas, *sample, (x, y + LINE / 2.0));
            let texts = wrap(text, FONT, WIDTH - MARGIN - SAMPLE - x);
            for (n, text) in texts.iter().enumerate() {
                canvas.text(text, (x + SAMPLE, y + LINE * (n as f64 + 0.5)), Align::Left);
            }
            lines = lines.max(texts.len());
        }
        y += LINE * lines as f64 + 2.0;
    }
    y
}

fn draw_sample(canvas: &mut Canvas<'_>, sample: Sample, (x, y): Point) {
    match sample {
        Sample::Line(pen, marker, hollow) => {
            canvas.line((x, y), (x + 32.0, y), &pen);
            canvas.marker(marker, (x + 16.0, y), pen.color, hollow);
        }
        Sample::Rule(pen) => canvas.line((x, y), (x + 32.0, y), &pen),
        Sample::Marker(marker, color, hollow) => canvas.marker(marker, (x + 16.0, y), color, hollow),
        Sample::Box(color, alpha) => {
            canvas.rect((x, y - 6.0), (x + 32.0, y + 6.0), color, alpha);
            canvas.outline((x, y - 6.0), (x + 32.0, y + 6.0), &Pen::solid(color, 1.2));
        }
    }
}

/// Writes paragraphs from height `y` on, wrapped; gives the height below them.
pub fn notes(canvas: &mut Canvas<'_>, notes: &[String], y: f64) -> f64 {
    let mut y = if notes.is_empty() { y } else { y + 4.0 };
    for line in notes.iter().flat_map(|note| wrap(note, FONT, WIDTH - 2.0 * MARGIN)) {
        canvas.text(&line, (MARGIN, y + LINE / 2.0), Align::Left);
        y += LINE;
    }
    y
}

/// Where rows come from, a line for each machine: `Recorded on NVIDIA H200, 2026-11-21.`
pub(super) fn sources(rows: &[Measurement]) -> Vec<String> {
    let mut lines: Vec<String> = Vec::new();
    for row in rows {
        let mut short = row.clone();
        short.machine = short_machine(&row.machine);
        let line = format!("{}.", short.source());
        let line = line.replacen("recorded", "Recorded", 1).replacen("measured", "Measured", 1);
        if !lines.contains(&line) {
            lines.push(line);
        }
    }
    lines
}

/// A figure of a chart without a single row: the title, what is missing, and the next step.
pub fn nothing(title: &str, remarks: &[String]) -> super::Figure {
    super::canvas::figure(title, |canvas| {
        let y = canvas.title(title);
        let mut lines = remarks.to_vec();
        lines.insert(0, super::NOTHING.to_string());
        lines.push(super::NOTHING_NEXT.to_string());
        notes(canvas, &lines, y) + MARGIN
    })
}
