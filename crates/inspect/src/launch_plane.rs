//! Draws grids and blocks of two and three dimensions: planes of blocks and of threads.

use super::Inspection;
use super::launch::{Cell, FILL, FOCUS, PALE, cell};
use super::launch_shape::{Focus, cover, shown, thread, warps};
use super::words::{place, sides};
use gpulab_measure::plot::canvas::{Align, Canvas, FONT, LINE, MARGIN, SMALL, WIDTH};
use gpulab_measure::plot::style::{BLUE, GREEN, INK, ORANGE, Pen};
use gpulab_measure::plot::text::width;

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
