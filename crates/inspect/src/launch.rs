//! Draws a launch: the grid's blocks, one block's warps, one warp's threads, one thread's index.

use super::launch_plane::side_by_side;
use super::launch_shape::{Focus, lanes, number, shown, thread, warps};
use super::words::{counted, grouped, place, volume};
use super::{Finding, Inspection};
use gpulab_measure::plot::Figure;
use gpulab_measure::plot::canvas::{Align, Canvas, LINE, MARGIN, Point, SMALL, WIDTH, figure};
use gpulab_measure::plot::legend::{Sample, legend, notes};
use gpulab_measure::plot::style::{BLUE, INK, ORANGE, Pen};
use gpulab_measure::plot::text::width;

const EDGE: Pen = Pen::solid(INK, 1.0).alpha(0.55);
pub(super) const FOCUS: Pen = Pen::solid(BLUE, 2.2);
const WRONG: Pen = Pen::solid(ORANGE, 2.4);
pub(super) const FILL: f64 = 0.4;
pub(super) const PALE: f64 = 0.13;
const ROOM: f64 = WIDTH - 2.0 * MARGIN;
const AXES: [&str; 3] = ["x", "y", "z"];

/// The edges of a drawn cell: top left, bottom right.
pub(super) type Cell = (Point, Point);

pub(super) fn draw(it: &Inspection) -> Figure {
    let focus = Focus::of(it);
    let blocks = counted(volume(it.grid), "block");
    let title = format!("{}: {blocks} of {}", it.kernel, counted(volume(it.block), "thread"));
    figure(&title, |canvas| {
        let y = canvas.title(&title);
        let flat = |shape: [u32; 3]| shape[1] == 1 && shape[2] == 1;
        let (warp_cell, y) = if flat(it.grid) && flat(it.block) {
            stacked(canvas, it, focus, y)
        } else {
            side_by_side(canvas, it, focus, y)
        };
        let top = y + 26.0;
        blow_up(canvas, warp_cell, ((MARGIN, top), (WIDTH - MARGIN, top)));
        let y = threads(canvas, it, focus, top);
        let y = formula(canvas, it, focus, y + 8.0);
        let y = marks(canvas, it, y);
        let said = format!(
            "{blocks} × {} = {}, in {} of 32.",
            counted(volume(it.block), "thread"),
            counted(volume(it.grid) * volume(it.block), "thread"),
            counted(volume(it.grid) * u128::from(warps(it.block)), "warp")
        );
        notes(canvas, &[said], y) + MARGIN
    })
}

/// Shows that what lies below is one cell of what lies above.
fn blow_up(canvas: &mut Canvas<'_>, (from, to): Cell, (left, right): Cell) {
    canvas.polygon(&[(from.0, to.1), (to.0, to.1), right, left], BLUE, PALE);
    let pen = Pen::solid(BLUE, 1.0).alpha(0.5);
    canvas.line((from.0, to.1), left, &pen);
    canvas.line((to.0, to.1), right, &pen);
}

/// A block, a warp or a thread, with its label where it fits.
pub(super) fn cell(canvas: &mut Canvas<'_>, (from, to): Cell, label: &str, focus: bool, wrong: bool) {
    canvas.rect(from, to, if wrong { ORANGE } else { BLUE }, if focus || wrong { FILL } else { PALE });
    canvas.outline(
        from,
        to,
        if focus {
            &FOCUS
        } else if wrong {
            &WRONG
        } else {
            &EDGE
        },
    );
    if width(label, SMALL) <= to.0 - from.0 - 2.0 && to.1 - from.1 >= 12.0 {
        canvas.small(label, ((from.0 + to.0) / 2.0, (from.1 + to.1) / 2.0), Align::Middle);
    }
}

/// Grid and block in one dimension: a strip of blocks, below it a strip of warps. Gives the warp's cell and the height.
fn stacked(canvas: &mut Canvas<'_>, it: &Inspection, focus: Focus, y: f64) -> (Cell, f64) {
    canvas.text(
        &format!("the grid: {} (blockIdx.x)", counted(volume(it.grid), "block")),
        (MARGIN, y + 9.0),
        Align::Left,
    );
    let wide = (width(&grouped(u64::from(it.grid[0])), SMALL) + 14.0).max(46.0);
    let wrong: Vec<u32> = it.findings.iter().map(|finding| finding.block[0]).collect();
    let keep: Vec<u32> = std::iter::once(focus.block[0]).chain(wrong.iter().copied()).collect();
    let cells = shown(it.grid[0], (ROOM / wide) as usize, &keep);
    let (top, mut block) = (y + LINE + 4.0, ((0.0, 0.0), (0.0, 0.0)));
    for (n, at) in cells.iter().enumerate() {
        let x = MARGIN + wide * n as f64;
        let edges = ((x, top), (x + wide - 4.0, top + 34.0));
        let Some(at) = at else {
            canvas.text("…", (x + wide / 2.0 - 2.0, top + 17.0), Align::Middle);
            continue;
        };
        cell(canvas, edges, &grouped(u64::from(*at)), *at == focus.block[0], wrong.contains(at));
        if *at == focus.block[0] {
            block = edges;
        }
    }
    let top = top + 34.0 + 26.0;
    blow_up(canvas, block, ((MARGIN, top), (WIDTH - MARGIN, top)));
    let count = warps(it.block);
    let text = format!(
        "block {}: {} in {}",
        grouped(u64::from(focus.block[0])),
        counted(volume(it.block), "thread"),
        counted(u64::from(count), "warp")
    );
    canvas.text(&text, (MARGIN, top + LINE / 2.0 + 4.0), Align::Left);
    let edges = warp_cells(canvas, it, focus, ((MARGIN, top + LINE + 8.0), (WIDTH - MARGIN, top + LINE + 42.0)));
    (edges, edges.1.1)
}

/// The warps of a block in one row; each is as wide as it has threads. Gives the cell of the warp that is followed.
fn warp_cells(canvas: &mut Canvas<'_>, it: &Inspection, focus: Focus, (from, to): Cell) -> Cell {
    let count = warps(it.block);
    let thread = ((to.0 - from.0) / volume(it.block) as f64).min(92.0 / 32.0);
    let (mut x, mut found) = (from.0, (from, to));
    for warp in 0..count {
        // Even one thread must be seen.
        let wide = (thread * f64::from(lanes(it.block, warp))).max(14.0);
        let edges = ((x, from.1), (x + wide - 2.0, to.1));
        let label = if wide >= 62.0 { format!("warp {warp}") } else { warp.to_string() };
        let wrong = it
            .findings
            .iter()
            .any(|finding| finding.block == focus.block && number(finding.thread, it.block) / 32 == warp);
        cell(canvas, edges, &label, warp == focus.warp, wrong);
        if warp == focus.warp {
            found = edges;
        }
        x += wide;
    }
    found
}

/// The lanes of the followed warp with their indices; gives the height below.
fn threads(canvas: &mut Canvas<'_>, it: &Inspection, focus: Focus, top: f64) -> f64 {
    const NAMES: f64 = 96.0;
    let count = lanes(it.block, focus.warp);
    let text = format!("warp {}: {}, in step", focus.warp, counted(u64::from(count), "thread"));
    canvas.text(&text, (MARGIN, top + LINE / 2.0 + 4.0), Align::Left);
    let wide = (ROOM - NAMES) / 32.0;
    let middle = |lane: u32| MARGIN + NAMES + wide * (f64::from(lane) + 0.5);
    let mut y = top + LINE + 8.0;
    canvas.small("lane", (MARGIN, y + 11.0), Align::Left);
    let wrong: Vec<u32> = it
        .findings
        .iter()
        .filter(|finding| finding.block == focus.block)
        .map(|finding| number(finding.thread, it.block))
        .filter(|number| number / 32 == focus.warp)
        .map(|number| number % 32)
        .collect();
    for lane in 0..count {
        let edges = ((middle(lane) - wide / 2.0 + 1.0, y), (middle(lane) + wide / 2.0 - 1.0, y + 22.0));
        cell(canvas, edges, &lane.to_string(), lane == focus.lane, wrong.contains(&lane));
    }
    y += 24.0;
    let first = focus.warp * 32;
    let used = 3 - it.block.iter().rev().take_while(|n| **n == 1).count().min(2);
    let mut rows: Vec<(String, Vec<String>)> = (0..used)
        .map(|axis| {
            let values = (0..count).map(|lane| thread(first + lane, it.block)[axis].to_string());
            (format!("threadIdx.{}", AXES[axis]), values.collect())
        })
        .collect();
    if it.grid[1..] == [1, 1] && used == 1 {
        let index = |lane| u64::from(focus.block[0]) * u64::from(it.block[0]) + u64::from(first + lane);
        rows.push(("i".to_string(), (0..count).map(|lane| index(lane).to_string()).collect()));
    }
    for (name, values) in rows {
        canvas.small(&name, (MARGIN, y + 9.0), Align::Left);
        let widest = values.iter().map(|value| width(value, SMALL)).fold(0.0, f64::max) + 4.0;
        let step = [1, 2, 4, 8, 16].into_iter().find(|step| widest <= wide * *step as f64).unwrap_or(31);
        // The followed lane is among them.
        for lane in (focus.lane as usize % step..count as usize).step_by(step) {
            // A label wider than its cell starts with it.
            let x = middle(lane as u32) - if step > 1 { wide / 2.0 - 1.0 } else { 0.0 };
            if step > 1 && x + width(&values[lane], SMALL) > WIDTH - MARGIN {
                continue;
            }
            canvas.small(&values[lane], (x, y + 9.0), if step > 1 { Align::Left } else { Align::Middle });
        }
        y += 17.0;
    }
    y
}

/// How the followed thread computes its index, in source code; gives the height below.
fn formula(canvas: &mut Canvas<'_>, it: &Inspection, focus: Focus, mut y: f64) -> f64 {
    let thread = thread(focus.warp * 32 + focus.lane, it.block);
    let axes = (0..3).rev().find(|axis| it.grid[*axis] > 1 || it.block[*axis] > 1).unwrap_or(0) + 1;
    let who = format!("the thread in lane {}:", focus.lane);
    canvas.text(&who, (MARGIN, y + LINE / 2.0), Align::Left);
    y += LINE + 2.0;
    for axis in 0..axes {
        let name = AXES[axis];
        let index = if axes == 1 { "i" } else { name };
        let (block, size, at) = (focus.block[axis], it.block[axis], thread[axis]);
        let value = u64::from(block) * u64::from(size) + u64::from(at);
        let text = format!(
            "{index} = blockIdx.{name} * blockDim.{name} + threadIdx.{name} = {block} * {size} + {at} = {value}"
        );
        canvas.code(&text, (MARGIN + 12.0, y + LINE / 2.0));
        y += LINE;
    }
    if it.block[1] > 1 || it.block[2] > 1 {
        let number = focus.warp * 32 + focus.lane;
        let [x, row, z] = thread;
        let deep = if it.block[2] > 1 { format!(" + {z} * {}", it.block[0] * it.block[1]) } else { String::new() };
        let text = format!(
            "its number in the block: {x} + {row} * {}{deep} = {number}, so warp {number} / 32 = {}",
            it.block[0], focus.warp
        );
        canvas.text(&text, (MARGIN, y + LINE / 2.0), Align::Left);
        y += LINE;
    }
    y
}

/// What the orange cells stand for; gives the height below.
fn marks(canvas: &mut Canvas<'_>, it: &Inspection, y: f64) -> f64 {
    let mut entries: Vec<(Sample, String)> = Vec::new();
    for text in it.findings.iter().map(|finding| mistake(it, finding)) {
        if entries.len() < 3 && entries.iter().all(|(_, known)| *known != text) {
            entries.push((Sample::Box(ORANGE, FILL), text));
        }
    }
    if entries.is_empty() { y } else { legend(canvas, &entries, y + 4.0) }
}

/// `out of bounds, line 6: first in block 3906, thread 64`.
fn mistake(it: &Inspection, finding: &Finding) -> String {
    let line = finding.source.as_ref().map_or(String::new(), |source| format!(", line {}", source.line));
    let (block, thread) = (place(finding.block, it.grid), place(finding.thread, it.block));
    format!("{}{line}: first in block {block}, thread {thread}", finding.kind.words())
}
