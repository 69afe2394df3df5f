//! Where a label may stand without covering a curve, a frame or another label.

use super::canvas::{Align, FONT, Point};
use super::text::width;

/// A rectangle: left, top, right, bottom.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Area(pub f64, pub f64, pub f64, pub f64);

impl Area {
    pub(super) fn overlaps(self, other: Area) -> bool {
        self.0 < other.2 && other.0 < self.2 && self.1 < other.3 && other.1 < self.3
    }

    fn holds(self, (x, y): Point) -> bool {
        x > self.0 && x < self.2 && y > self.1 && y < self.3
    }
}

/// The left end of a label beside a horizontal line at height `y`, and the height of its middle: where it covers
/// least of the `lines`, just above the line or else below it.
pub(super) fn beside(text: &str, y: f64, room: Area, lines: &[Vec<Point>], taken: &mut Vec<Area>) -> Point {
    let wide = width(text, FONT) + 8.0;
    let mut best = (usize::MAX, (room.0 + 6.0, y - 9.0));
    for middle in [y - 10.0, y + 11.0] {
        for step in 0..=96 {
            let left = room.0 + 6.0 + ((room.2 - room.0 - wide - 8.0) * f64::from(step) / 96.0).max(0.0);
            let area = Area(left - 4.0, middle - 9.0, left + wide, middle + 9.0);
            let out = usize::from(area.1 < room.1 || area.3 > room.3) * 500;
            let cost = covered(area, lines) + 200 * taken.iter().filter(|other| area.overlaps(**other)).count() + out;
            if cost < best.0 {
                best = (cost, (left, middle));
            }
        }
    }
    let (left, middle) = best.1;
    taken.push(Area(left - 4.0, middle - 9.0, left + wide, middle + 9.0));
    best.1
}

/// How many points of the lines, one every three pixels, lie in the area.
fn covered(area: Area, lines: &[Vec<Point>]) -> usize {
    let mut points = 0;
    for pair in lines.iter().flat_map(|line| line.windows(2)) {
        let ((x0, y0), (x1, y1)) = (pair[0], pair[1]);
        let steps = ((x1 - x0).hypot(y1 - y0) / 3.0).ceil().max(1.0);
        points += (0..=steps as usize)
            .filter(|n| {
                let share = *n as f64 / steps;
                area.holds((x0 + (x1 - x0) * share, y0 + (y1 - y0) * share))
            })
            .count();
    }
    points
}

/// A label on a vertical line, like a flag on its pole.
#[derive(Debug, Clone)]
pub(super) struct Flag {
    pub x: f64,
    pub text: String,
}

/// Where a flag's text stands: the end of it that is next to the pole, and its row, counted upwards from 0.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Place {
    pub x: f64,
    pub align: Align,
    pub row: usize,
}

/// Places for flags between `start` and `end`, so that no text covers another or a neighbour's pole.
pub(super) fn flags(flags: &[Flag], start: f64, end: f64) -> Vec<Place> {
    let wide = |flag: &Flag| width(&flag.text, FONT) + 10.0;
    // To the right of the pole, from right to left; where that runs over the edge, to the left, from left to right.
    let rightwards = flags.iter().all(|flag| flag.x + 5.0 + wide(flag) <= end);
    let leftwards = !rightwards && flags.iter().all(|flag| flag.x - 5.0 - wide(flag) >= start);
    let mut order: Vec<usize> = (0..flags.len()).collect();
    order.sort_by(|a, b| flags[*b].x.total_cmp(&flags[*a].x));
    if leftwards {
        order.reverse();
    }
    let mut places = vec![Place { x: start, align: Align::Left, row: 0 }; flags.len()];
    let mut done: Vec<(f64, f64, usize)> = Vec::new();
    for at in order {
        let flag = &flags[at];
        let (x, align) = match flag.x {
            x if !leftwards && x + 5.0 + wide(flag) <= end => (x + 5.0, Align::Left),
            x if x - 5.0 - wide(flag) >= start => (x - 5.0, Align::Right),
            // Wider than either side: it starts at the edge.
            _ => (start, Align::Left),
        };
        let left = if align == Align::Left { x } else { x - wide(flag) };
        // From pole to the end of the text.
        let (from, to) = (left.min(flag.x) - 2.0, (left + wide(flag)).max(flag.x));
        let row = done.iter().filter(|(a, b, _)| from < *b && *a < to).map(|(_, _, row)| row + 1).max().unwrap_or(0);
        places[at] = Place { x, align, row };
        done.push((from, to, row));
    }
    places
}

/// Heights for labels that would stand at `wanted`, at least `gap` apart and between `top` and `bottom` as far as there
/// is room, in the same order and near what was wanted.
pub(super) fn spread_out(wanted: &[f64], gap: f64, top: f64, bottom: f64) -> Vec<f64> {
    let mut order: Vec<usize> = (0..wanted.len()).collect();
    order.sort_by(|a, b| wanted[*a].total_cmp(&wanted[*b]));
    // Labels that touch stand as one block around the middle of what they want.
    let mut blocks: Vec<(f64, usize)> = Vec::new();
    let fit = |middle: f64, count: usize| {
        let half = gap * (count - 1) as f64 / 2.0;
        middle.min(bottom - half).max(top + half)
    };
    for &at in &order {
        let mut block = (fit(wanted[at], 1), 1);
        while let Some(&(middle, count)) = blocks.last() {
            let reach = gap * (count + block.1) as f64 / 2.0;
            if block.0 - middle >= reach - 1e-9 {
                break;
            }
            blocks.pop();
            let both = count + block.1;
            block = (fit((middle * count as f64 + block.0 * block.1 as f64) / both as f64, both), both);
        }
        blocks.push(block);
    }
    let places = blocks
        .iter()
        .flat_map(|&(middle, count)| (0..count).map(move |n| middle + gap * (n as f64 - (count - 1) as f64 / 2.0)));
    let mut heights = vec![0.0; wanted.len()];
    order.into_iter().zip(places).for_each(|(at, height)| heights[at] = height);
    heights
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn flags_that_would_overlap_stand_in_rows() {
        let flag = |x: f64| Flag { x, text: "your prediction: 512".to_string() };
        let places = flags(&[flag(100.0), flag(120.0), flag(400.0)], 0.0, 700.0);
        assert_eq!([places[0].row, places[1].row, places[2].row], [1, 0, 0]);
        let at_the_edge = flags(&[flag(690.0)], 0.0, 700.0)[0];
        assert!(at_the_edge.align == Align::Right && at_the_edge.x < 690.0);
    }

    #[test]
    fn a_label_gives_way_to_a_curve_and_to_another_label() {
        let room = Area(0.0, 0.0, 600.0, 300.0);
        let curve = vec![(0.0, 90.0), (300.0, 90.0)];
        let mut taken = Vec::new();
        let first = beside("ceiling", 100.0, room, std::slice::from_ref(&curve), &mut taken);
        assert!(first.0 > 290.0 || first.1 > 100.0, "{first:?}");
        let second = beside("ceiling", 100.0, room, &[curve], &mut taken);
        assert!(!taken[0].overlaps(taken[1]), "{first:?} {second:?}");
    }

    #[test]
    fn labels_of_one_height_spread_and_keep_their_order() {
        let heights = spread_out(&[100.0, 100.0, 20.0, 101.0], 10.0, 0.0, 200.0);
        assert_eq!(heights[2], 20.0);
        assert!(heights[0] < heights[1] && heights[1] < heights[3], "{heights:?}");
        assert!(heights.iter().all(|a| heights.iter().filter(|b| (*a - **b).abs() < 9.99).count() == 1), "{heights:?}");
        // At the edge they stay inside, and more than fit begin at the top.
        let heights = spread_out(&[199.0; 5], 10.0, 0.0, 200.0);
        assert_eq!((heights[0], heights[4]), (160.0, 200.0));
        assert_eq!(spread_out(&[5.0; 30], 10.0, 0.0, 200.0)[0], 0.0);
        assert!(spread_out(&[], 10.0, 0.0, 200.0).is_empty());
    }
}
