//! What a launch's picture is about: which block, warp and thread it follows, and where their cells lie.

use super::Inspection;
use super::words::volume;

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
