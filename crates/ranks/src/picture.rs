//! A collective drawn step by step, from the messages that were sent.

use crate::log::{Log, Message};
use gpulab_measure::plot::Figure;
use gpulab_measure::plot::canvas::{
    Align, BLUE, Canvas, FONT, INK, LINE, MARGIN, ORANGE, Pen, Point, WIDTH, figure, width, wrap,
};
use std::collections::BTreeSet;
use std::f64::consts::TAU;

/// Panels in a row.
const ROW: usize = 4;
const NODE: f64 = 12.0;
const CELL: f64 = 19.0;
/// More steps are counted below the picture, and not drawn.
const MOST: usize = 16;

/// The steps of one collective; as the last expression of a cell it shows itself.
#[derive(Debug, Clone)]
#[must_use = "a picture shows itself as the last expression of a cell, without a semicolon"]
pub struct Steps {
    title: String,
    messages: Vec<Message>,
    ranks: Vec<usize>,
}

/// Draws the first collective that the log has, a panel for each step: who sends what to whom, and below it what every rank has
/// afterwards: a row for each rank, a column for each part of the buffer, and in it how many ranks' numbers the part is the sum of.
///
/// # Examples
/// ```
/// use gpulab_ranks::{Collectives, Op, World, steps};
/// let run = World::new(4).run(|rank| rank.all_reduce(&mut [1.0_f32; 8][..], Op::Sum))?;
/// assert!(steps(&run.log).title("A ring").draw().svg().contains("step 5"));
/// # Ok::<(), gpulab_measure::Error>(())
/// ```
pub fn steps(log: &Log) -> Steps {
    let first = log.messages.iter().find(|message| message.bytes > 0).map(|message| (message.call, message.number));
    let own = |message: &&Message| Some((message.call, message.number)) == first;
    let mut messages: Vec<Message> = log.messages.iter().filter(own).cloned().collect();
    let begin = messages.iter().map(|message| message.step).min().unwrap_or(0);
    messages.iter_mut().for_each(|message| message.step -= begin);
    let ranks: BTreeSet<usize> = messages.iter().flat_map(|message| [message.from, message.to]).collect();
    Steps { title: "Messages, step by step".to_string(), messages, ranks: ranks.into_iter().collect() }
}

impl Steps {
    /// Of the circle on which the ranks stand, in pixels.
    fn radius(&self) -> f64 {
        if self.ranks.len() > 6 { 68.0 } else { 46.0 }
    }

    /// The title.
    pub fn title(mut self, title: &str) -> Steps {
        self.title = title.to_string();
        self
    }

    /// What the notebook calls to show the picture.
    pub fn evcxr_display(&self) {
        self.draw().evcxr_display();
    }

    /// The parts of the buffer that messages carry, as borders between them.
    fn borders(&self) -> Vec<usize> {
        let all: BTreeSet<usize> = self.messages.iter().flat_map(|one| [one.chunk.start, one.chunk.end]).collect();
        all.into_iter().collect()
    }

    /// For each step: of each rank and part, which ranks' numbers are in it, as bits; and before the first step.
    fn contents(&self, borders: &[usize]) -> Vec<Vec<Vec<u64>>> {
        let parts = borders.len().saturating_sub(1);
        let at = |rank: usize| self.ranks.iter().position(|one| *one == rank).expect("it is one of them");
        let mut state: Vec<Vec<u64>> = (0..self.ranks.len()).map(|rank| vec![1 << rank; parts]).collect();
        let mut all = vec![state.clone()];
        let steps = self.messages.iter().map(|message| message.step + 1).max().unwrap_or(0);
        for step in 0..steps {
            let before = state.clone();
            for message in self.messages.iter().filter(|message| message.step == step) {
                for part in (0..parts).filter(|part| message.chunk.contains(&borders[*part])) {
                    let came = before[at(message.from)][part];
                    let own = &mut state[at(message.to)][part];
                    *own = if message.reduces { *own | came } else { came };
                }
            }
            all.push(state.clone());
        }
        all
    }

    /// Draws the picture.
    pub fn draw(&self) -> Figure {
        figure(&self.title, |canvas| {
            let top = canvas.title(&self.title) + 4.0;
            if self.messages.is_empty() {
                canvas.text("Nothing was sent.", (MARGIN, top + LINE), Align::Left);
                return top + 2.0 * LINE;
            }
            let (ranks, borders) = (self.ranks.len(), self.borders());
            let contents = self.contents(&borders);
            let wide = (WIDTH - 2.0 * MARGIN) / ROW as f64;
            let high = 2.0 * (self.radius() + NODE) + ranks as f64 * CELL + 3.0 * LINE;
            let steps = contents.len() - 1;
            for step in 0..steps.min(MOST) {
                let corner = (MARGIN + (step % ROW) as f64 * wide, top + (step / ROW) as f64 * high);
                self.panel(canvas, corner, wide, step, &borders, &contents);
            }
            let mut y = top + steps.min(MOST).div_ceil(ROW) as f64 * high;
            let note = format!(
                "Arrows: messages of this step, with the part that they carry. Below: what each rank has after it, a row for a rank \
                 and a column for a part; the number says how many ranks' numbers are in the sum, and a frame marks what just came.{}",
                if steps > MOST { format!(" {} more steps are not drawn.", steps - MOST) } else { String::new() }
            );
            for line in wrap(&note, FONT, WIDTH - 2.0 * MARGIN) {
                canvas.text(&line, (MARGIN, y + LINE / 2.0), Align::Left);
                y += LINE;
            }
            y + MARGIN
        })
    }

    fn panel(
        &self,
        canvas: &mut Canvas<'_>,
        (x, y): Point,
        wide: f64,
        step: usize,
        borders: &[usize],
        contents: &[Vec<Vec<u64>>],
    ) {
        let (ranks, radius) = (self.ranks.len(), self.radius());
        let middle = (x + wide / 2.0, y + LINE + radius + NODE + 4.0);
        canvas.text(&format!("step {step}"), (x + wide / 2.0, y + LINE / 2.0), Align::Middle);
        let node = |at: usize| {
            let angle = TAU * (at as f64 / ranks as f64 - 0.25);
            (middle.0 + radius * angle.cos(), middle.1 + radius * angle.sin())
        };
        let place = |rank: usize| self.ranks.iter().position(|one| *one == rank).expect("it is one of them");
        let part_of = |message: &Message| -> Vec<usize> {
            (0..borders.len() - 1).filter(|part| message.chunk.contains(&borders[*part])).collect()
        };
        for message in self.messages.iter().filter(|message| message.step == step) {
            let parts = part_of(message);
            let label = match parts[..] {
                [one] if borders.len() > 2 => one.to_string(),
                _ => String::new(),
            };
            arrow(canvas, node(place(message.from)), node(place(message.to)), &label);
            let carried = if label.is_empty() { "all chunks".to_string() } else { format!("chunk {label}") };
            let how = if message.reduces { "to be added" } else { "to be kept" };
            canvas.describe(format!(
                "step {step}: rank {} sends {carried} to rank {}, {how}, {} bytes",
                message.from, message.to, message.bytes
            ));
        }
        for (at, rank) in self.ranks.iter().enumerate() {
            let (cx, cy) = node(at);
            let circle: Vec<Point> = (0..=24)
                .map(|n| f64::from(n) / 24.0 * TAU)
                .map(|angle| (cx + NODE * angle.cos(), cy + NODE * angle.sin()))
                .collect();
            canvas.path(&circle, &Pen::solid(INK, 1.2));
            canvas.small(&rank.to_string(), (cx, cy), Align::Middle);
        }
        let parts = borders.len() - 1;
        let left = middle.0 - parts as f64 * CELL / 2.0;
        let top = middle.1 + radius + NODE + 10.0;
        for (row, rank) in self.ranks.iter().enumerate() {
            let cy = top + row as f64 * CELL;
            canvas.small(&rank.to_string(), (left - 8.0, cy + CELL / 2.0), Align::Right);
            for (part, sum) in contents[step + 1][row].iter().enumerate() {
                let count = sum.count_ones();
                let (from, to) = ((left + part as f64 * CELL, cy), (left + (part + 1) as f64 * CELL, cy + CELL));
                canvas.rect(from, to, BLUE, 0.5 * f64::from(count) / ranks as f64);
                canvas.outline(from, to, &Pen::solid(INK, 0.5).alpha(0.5));
                canvas.small(&count.to_string(), (left + (part as f64 + 0.5) * CELL, cy + CELL / 2.0), Align::Middle);
            }
        }
        for message in self.messages.iter().filter(|message| message.step == step) {
            let cy = top + place(message.to) as f64 * CELL;
            for part in part_of(message) {
                let x = left + part as f64 * CELL;
                canvas.outline((x + 1.0, cy + 1.0), (x + CELL - 1.0, cy + CELL - 1.0), &Pen::solid(ORANGE, 2.0));
            }
        }
    }
}

/// An arrow between two nodes, a little to its right, so that two that meet stand side by side.
fn arrow(canvas: &mut Canvas<'_>, from: Point, to: Point, label: &str) {
    let length = (to.0 - from.0).hypot(to.1 - from.1).max(1.0);
    let (dx, dy) = ((to.0 - from.0) / length, (to.1 - from.1) / length);
    let aside = (-dy * 4.0, dx * 4.0);
    let start = (from.0 + dx * (NODE + 2.0) + aside.0, from.1 + dy * (NODE + 2.0) + aside.1);
    let end = (to.0 - dx * (NODE + 2.0) + aside.0, to.1 - dy * (NODE + 2.0) + aside.1);
    let pen = Pen::solid(ORANGE, 1.6);
    canvas.line(start, end, &pen);
    let back = |along: f64, across: f64| (end.0 - dx * along - dy * across, end.1 - dy * along + dx * across);
    canvas.polygon(&[end, back(8.0, 4.0), back(8.0, -4.0)], ORANGE, 1.0);
    if !label.is_empty() {
        let away = 9.0 + width(label, 12.0) / 3.0;
        let middle = ((start.0 + end.0) / 2.0 + aside.0 / 4.0 * away, (start.1 + end.1) / 2.0 + aside.1 / 4.0 * away);
        canvas.small(label, middle, Align::Middle);
    }
}
