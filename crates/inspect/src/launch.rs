//! A launch as a picture: the grid's blocks, one block's warps, one warp's threads, one thread's index.

use super::words::{counted, grouped, place, sides, volume};
use super::{Finding, Inspection};
use gpulab_measure::plot::Figure;
use gpulab_measure::plot::canvas::{
    Align, BLUE, Canvas, FONT, GREEN, INK, LINE, MARGIN, ORANGE, Pen, Point, SMALL, WIDTH, figure, width,
};
use gpulab_measure::plot::frame::{Sample, legend, notes};

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

/// The block, warp and lane that the picture follows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Focus {
    pub block: [u32; 3],
    pub warp: u32,
    pub lane: u32,
}

impl Focus {
    /// The first finding's thread, unless a warp other than the first was asked for.
    pub(super) fn of(it: &Inspection) -> Focus {
        let watched = it.watched;
        match it.findings.first() {
            Some(finding) if watched == ([0; 3], 0) => {
                let number = number(finding.thread, it.block);
                Focus { block: finding.block, warp: number / 32, lane: number % 32 }
            }
            _ => {
                let lanes = lanes(it.block, watched.1);
                Focus { block: watched.0, warp: watched.1, lane: 5.min(lanes.saturating_sub(1)) }
            }
        }
    }
}

/// A thread's number in its block: x runs first.
pub(super) fn number(thread: [u32; 3], block: [u32; 3]) -> u32 {
    thread[0] + block[0] * (thread[1] + block[1] * thread[2])
}

/// The thread of a number.
pub(super) fn thread(number: u32, block: [u32; 3]) -> [u32; 3] {
    let (x, y) = (block[0].max(1), block[1].max(1));
    [number % x, number / x % y, number / x / y]
}

/// Warps of a block.
pub(super) fn warps(block: [u32; 3]) -> u32 {
    (volume(block) as u32).div_ceil(32)
}

/// Threads of warp `warp`: 32, fewer in the last one.
pub(super) fn lanes(block: [u32; 3], warp: u32) -> u32 {
    (volume(block) as u32).saturating_sub(warp * 32).min(32)
}

/// Which of `n` cells are drawn where only `room` fit: the first ones, those to `keep`, the last one. `None` stands for
/// a gap.
pub(super) fn shown(n: u32, room: usize, keep: &[u32]) -> Vec<Option<u32>> {
    if n as usize <= room {
        return (0..n).map(Some).collect();
    }
    let mut chosen: Vec<u32> = keep.iter().copied().filter(|at| *at < n).take(room / 3).collect();
    chosen.push(n - 1);
    for at in 0..n {
        chosen.sort_unstable();
        chosen.dedup();
        let gaps = 1 + chosen.windows(2).filter(|pair| pair[1] > pair[0] + 1).count();
        if chosen.len() + gaps >= room {
            break;
        }
        chosen.push(at);
    }
    chosen.sort_unstable();
    chosen.dedup();
    let mut cells = Vec::new();
    let mut next = 0;
    for at in chosen {
        if at > next {
            cells.push(None);
        }
        cells.push(Some(at));
        next = at + 1;
    }
    cells
}

/// The rectangles that a warp covers in a layer of its block, in threads: left, top, right, below.
pub(super) fn cover(block: [u32; 3], warp: u32, layer: u32) -> Vec<[u32; 4]> {
    let (first, last) = (warp * 32, warp * 32 + lanes(block, warp));
    let mut found: Vec<[u32; 4]> = Vec::new();
    for row in 0..block[1] {
        let start = number([0, row, layer], block);
        let (from, to) = (first.max(start), last.min(start + block[0]));
        if from >= to {
            continue;
        }
        let (left, right) = (from - start, to - start);
        match found.last_mut() {
            Some(above) if above[0] == left && above[2] == right => above[3] = row + 1,
            _ => found.push([left, row, right, row + 1]),
        }
    }
    found
}

/// Grid at the left, block at the right, each as a plane. Gives the warp's cell and the height.
pub(super) fn side_by_side(canvas: &mut Canvas<'_>, it: &Inspection, focus: Focus, y: f64) -> (Cell, f64) {
    const HALF: f64 = 352.0;
    let right = WIDTH - MARGIN - HALF;
    let text = format!("the grid: {} blocks", sides(it.grid));
    canvas.text(&text, (MARGIN, y + 9.0), Align::Left);
    let name = format!("block {}", place(focus.block, it.grid));
    let text = format!("{name}: {} threads", sides(it.block));
    // The title says how many threads, too.
    let text = if width(&text, FONT) <= HALF { text } else { name };
    canvas.text(&text, (right, y + 9.0), Align::Left);
    let layers =
        [(MARGIN, it.grid[2], focus.block[2], "blockIdx.z"), (right, it.block[2], layer(it, focus), "threadIdx.z")];
    let deep = layers.iter().any(|layer| layer.1 > 1);
    for (x, count, at, name) in layers.into_iter().filter(|layer| layer.1 > 1) {
        canvas.text(&format!("layer {name} = {at} of {count}"), (x, y + 9.0 + LINE), Align::Left);
    }
    let top = y + if deep { 2.0 } else { 1.0 } * LINE + 4.0;
    let (block, grid_end) = grid_plane(canvas, it, focus, ((MARGIN, top), (MARGIN + HALF - 30.0, top + 200.0)));
    let area = block_plane(canvas, it, focus, ((right + 22.0, top + 18.0), (WIDTH - MARGIN, top + 240.0)));
    // From the block's right edge to the plane's left one.
    let pen = Pen::solid(BLUE, 1.2).alpha(0.6);
    canvas.line((block.1.0, block.0.1), area.0, &pen);
    canvas.line(block.1, (area.0.0, area.1.1), &pen);
    // The plane's lower edge: from the warp itself, the lines would cross everything.
    let end = grid_end.max(area.1.1 + 18.0);
    let faint = Pen::solid(BLUE, 1.0).alpha(0.5);
    canvas.rect((area.0.0, area.1.1), (area.1.0, end), BLUE, PALE);
    for x in [area.0.0, area.1.0] {
        canvas.line((x, area.1.1), (x, end), &faint);
    }
    (((area.0.0, end), (area.1.0, end)), end)
}

/// The layer of the block in which the followed warp starts.
fn layer(it: &Inspection, focus: Focus) -> u32 {
    thread(focus.warp * 32, it.block)[2]
}

/// The blocks of one layer as cells; gives the cell of the block that is followed, and the height below.
fn grid_plane(canvas: &mut Canvas<'_>, it: &Inspection, focus: Focus, (from, to): Cell) -> (Cell, f64) {
    let room = |axis: usize| width(&(it.grid[axis] - 1).to_string(), SMALL) + 8.0;
    let (wide, high) = (room(0).max(36.0), 26.0);
    let kept = |axis: usize| -> Vec<u32> {
        std::iter::once(focus.block[axis]).chain(it.findings.iter().map(|finding| finding.block[axis])).collect()
    };
    let left = from.0 + room(1).max(30.0);
    let columns = shown(it.grid[0], ((to.0 - left) / wide) as usize, &kept(0));
    let rows = shown(it.grid[1], ((to.1 - from.1 - 20.0) / high) as usize, &kept(1));
    let mut block = (from, to);
    for (n, column) in columns.iter().enumerate() {
        let label = column.map_or("…".to_string(), |at| at.to_string());
        canvas.small(&label, (left + wide * (n as f64 + 0.5) - 1.5, from.1 + 9.0), Align::Middle);
    }
    let top = from.1 + 18.0;
    for (m, row) in rows.iter().enumerate() {
        let y = top + high * m as f64;
        let label = row.map_or("…".to_string(), |at| at.to_string());
        canvas.small(&label, (left - 5.0, y + high / 2.0 - 1.5), Align::Right);
        for (n, column) in columns.iter().enumerate() {
            let (Some(column), Some(row)) = (column, row) else { continue };
            let at = [*column, *row, focus.block[2]];
            let x = left + wide * n as f64;
            let edges = ((x, y), (x + wide - 3.0, y + high - 3.0));
            cell(canvas, edges, "", at == focus.block, it.findings.iter().any(|finding| finding.block == at));
            if at == focus.block {
                block = edges;
            }
        }
    }
    let end = top + high * rows.len() as f64;
    canvas.small("blockIdx.x →, blockIdx.y ↓", (left, end + 8.0), Align::Left);
    (block, end + 16.0)
}

/// The threads of one layer of the block, its warps in bands; gives the plane's edges.
fn block_plane(canvas: &mut Canvas<'_>, it: &Inspection, focus: Focus, (from, to): Cell) -> Cell {
    let (columns, rows) = (f64::from(it.block[0]), f64::from(it.block[1]));
    let side = ((to.0 - from.0) / columns).min((to.1 - from.1) / rows).min(22.0);
    let (wide, high) = (((to.0 - from.0) / columns).min(22.0), side.max(18.0_f64.min((to.1 - from.1) / rows)));
    let at = |column: u32, row: u32| (from.0 + wide * f64::from(column), from.1 + high * f64::from(row));
    let layer = layer(it, focus);
    let faint = Pen::solid(INK, 1.0).alpha(if high < 12.0 { 0.25 } else { 0.55 });
    for warp in 0..warps(it.block) {
        for [left, top, right, below] in cover(it.block, warp, layer) {
            let (a, b) = (at(left, top), at(right, below));
            let (color, alpha) =
                if warp == focus.warp { (BLUE, FILL) } else { (GREEN, [PALE, 0.26][warp as usize % 2]) };
            canvas.rect(a, b, color, alpha);
            if warp != focus.warp {
                canvas.outline(a, b, &faint);
            }
            if b.0 - a.0 >= 50.0 && b.1 - a.1 >= 13.0 {
                canvas.small(&format!("warp {warp}"), ((a.0 + b.0) / 2.0, (a.1 + b.1) / 2.0), Align::Middle);
            }
        }
    }
    if wide >= 6.0 && high >= 6.0 {
        let grid = Pen::solid(INK, 0.8).alpha(0.2);
        (1..it.block[0]).for_each(|n| canvas.line(at(n, 0), at(n, it.block[1]), &grid));
        (1..it.block[1]).for_each(|n| canvas.line(at(0, n), at(it.block[0], n), &grid));
    }
    for finding in it.findings.iter().filter(|finding| finding.block == focus.block && finding.thread[2] == layer) {
        let [x, y, _] = finding.thread;
        canvas.rect(at(x, y), at(x + 1, y + 1), ORANGE, 0.9);
    }
    // Above its neighbours' lines.
    for [left, top, right, below] in cover(it.block, focus.warp, layer) {
        canvas.outline(at(left, top), at(right, below), &FOCUS);
    }
    let end = at(it.block[0], it.block[1]);
    canvas.small("0", (from.0 + wide.min(12.0) / 2.0, from.1 - 8.0), Align::Middle);
    if it.block[0] > 1 {
        canvas.small(&format!("threadIdx.x → {}", it.block[0] - 1), (end.0, from.1 - 8.0), Align::Right);
    }
    canvas.small("0", (from.0 - 6.0, from.1 + 7.0), Align::Right);
    if it.block[1] > 1 {
        canvas.small(&format!("{}", it.block[1] - 1), (from.0 - 6.0, end.1 - 7.0), Align::Right);
        canvas.small("threadIdx.y ↓", (from.0, end.1 + 9.0), Align::Left);
    }
    (from, end)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn many_cells_keep_the_first_the_last_and_those_asked_for() {
        assert_eq!(shown(3, 5, &[]), [Some(0), Some(1), Some(2)]);
        let cells = shown(3907, 10, &[200]);
        assert!(cells.len() <= 10 && cells.contains(&Some(200)) && cells.last() == Some(&Some(3906)), "{cells:?}");
        assert_eq!(cells[..2], [Some(0), Some(1)]);
        assert_eq!(cells.iter().filter(|cell| cell.is_none()).count(), 2);
    }

    #[test]
    fn a_warp_covers_rows_and_pieces_of_rows() {
        assert_eq!(cover([16, 16, 1], 1, 0), [[0, 2, 16, 4]]);
        assert_eq!(cover([24, 4, 1], 1, 0), [[8, 1, 24, 2], [0, 2, 16, 3]]);
        assert_eq!(cover([10, 1, 1], 0, 0), [[0, 0, 10, 1]]);
        assert_eq!(cover([8, 2, 4], 0, 1), [[0, 0, 8, 2]]);
        assert!(cover([8, 2, 4], 1, 0).is_empty());
        assert_eq!(thread(number([3, 1, 2], [8, 2, 4]), [8, 2, 4]), [3, 1, 2]);
        assert_eq!((warps([33, 1, 1]), lanes([33, 1, 1], 1)), (2, 1));
    }
}
