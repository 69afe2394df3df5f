//! Exercises of lesson 17b: programs on tiles. Softmax of rows that are longer than a tile, from a blank page; a tile's side on
//! paper; and a kernel whose source stays hidden until its mistake is named.

mod rows;
mod wide_softmax;

pub use rows::{RowFault, RowReport, diagnose_rows, revealed_rows, row_report};
pub use wide_softmax::wide_softmax;

use super::Verdict;
use super::on_paper::number;

/// Each thread holds n × n sums, and for each step along k reads n numbers of a and n of b from shared memory; a warp's read is one
/// wavefront. A multiprocessor serves one wavefront a cycle, and executes four warps' multiply-adds. The smallest n at
/// which shared memory is not the limit.
pub fn least_side(answer: Option<f64>) -> Verdict {
    let slips = [
        (4.0, "reads and multiply-adds of one step: 2 n against n². How many cycles does each of them take?"),
        (16.0, "of n × n sums each step reads n numbers of a and n of b, not n² of either"),
        (2.0, "four warps' multiply-adds go in the cycle in which one wavefront does"),
        (1.0, "four warps' multiply-adds go in the cycle in which one wavefront does"),
        (64.0, "that is how many sums a thread has: the question asks for the side"),
        (7.0, "is shared memory the limit there, or not any more? Put the number in"),
        (9.0, "the smallest: is one less not enough?"),
    ];
    let start = "write down the cycles of one step for one warp, once for shared memory and once for the arithmetic";
    number("least_side", answer, 8.0..=8.0, &slips, start)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_side_right_and_wrong() {
        // Cycles of a step: 2 n wavefronts, n² / 4 for the arithmetic.
        let least = (1..100).find(|&n| 2.0 * f64::from(n) <= f64::from(n * n) / 4.0);
        assert_eq!(least, Some(8));
        assert!(least_side(Some(8.0)).passed());
        for (answer, said) in [
            (None, "no number yet"),
            (Some(4.0), "2 n against n²"),
            (Some(16.0), "not n² of either"),
            (Some(2.0), "in the cycle in which"),
            (Some(64.0), "asks for the side"),
            (Some(7.0), "Put the number in"),
            (Some(9.0), "is one less"),
            (Some(32.0), "write down the cycles"),
            (Some(f64::NAN), "is no answer"),
            (Some(f64::INFINITY), "is no answer"),
            (Some(-8.0), "is no answer"),
        ] {
            let text = least_side(answer).text();
            assert!(text.starts_with("NOT YET") && text.contains(said), "{answer:?}: {text}");
        }
    }
}
