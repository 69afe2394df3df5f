//! Every text of a picture stays inside it, whatever the launch's shape and the addresses.

use super::tests::{access, finding, inspection, shared, words};
use super::*;
use gpulab_measure::plot::canvas::width;
use gpulab_measure::plot::canvas::{LETTER, WIDTH};
use warpsim::Kind;

/// The texts that leave the picture to the left or right, by the estimate of their widths.
fn outside(figure: &Figure) -> Vec<String> {
    let svg = figure.svg();
    let mut found = Vec::new();
    for element in svg.split("<text ").skip(1) {
        let (attributes, rest) = element.split_once(">\n").unwrap();
        let text = rest.split_once('\n').unwrap().0.replace("&gt;", ">").replace("&lt;", "<").replace("&quot;", "\"");
        let of = |name: &str| {
            let (_, value) = attributes.split_once(&format!("{name}=\"")).unwrap();
            value.split_once('"').unwrap().0.to_string()
        };
        let number = |name: &str| of(name).parse::<f64>().unwrap() / 10.0;
        let wide = match attributes.contains("monospace") {
            true => text.chars().count() as f64 * LETTER,
            false => width(&text, number("font-size")),
        };
        let left = number("x")
            - wide
                * match of("text-anchor").as_str() {
                    "start" => 0.0,
                    "middle" => 0.5,
                    _ => 1.0,
                };
        if left < 0.0 || left + wide > WIDTH || number("font-size") < 11.0 {
            found.push(format!("{text}: {left} to {}", left + wide));
        }
    }
    found
}

#[test]
fn launches_of_all_shapes() {
    let top = [2_147_483_647, 65_535, 65_535];
    for grid in [[1, 1, 1], [3, 1, 1], [3907, 1, 1], top, [4, 300, 1], [1, 40, 1], [10, 10, 10], [1, 1, 9]] {
        for block in
            [[1, 1, 1], [100, 1, 1], [1024, 1, 1], [24, 10, 1], [1, 256, 1], [8, 8, 8], [1, 1, 64], [512, 2, 1]]
        {
            let last = (grid.map(|n| n - 1), launch::warps(block) - 1);
            for watched in [([0; 3], 0), last] {
                let mut it = Inspection { grid, block, watched, ..inspection(Vec::new()) };
                assert_eq!(outside(&it.launch()), Vec::<String>::new(), "{grid:?} {block:?}");
                it.findings = vec![finding(Kind::SharedRace, last.0, block.map(|n| n - 1))];
                assert_eq!(outside(&it.launch()), Vec::<String>::new(), "{grid:?} {block:?}");
                assert!(words(&it.launch()).contains("line 4"), "{grid:?} {block:?}");
            }
        }
    }
}

#[test]
fn accesses_near_and_far() {
    for bytes in [1, 2, 4, 8, 16] {
        for stride in [0, 1, 2, 3, 4, 7, 32, 33, 1000, 123_456_789] {
            for lanes in [1, 5, 31, 32] {
                let at = |lane: u64| (lane < lanes).then_some(lane * stride * u64::from(bytes) + 9_000_000_000);
                let it = inspection(vec![
                    access("a", AccessKind::Load, bytes, at),
                    shared(bytes, 1, 0, |lane| at(lane).map(|at| at % 65536)),
                ]);
                let (sectors, banks) = (it.sectors("a[i]").unwrap(), it.banks("tile").unwrap());
                assert_eq!(outside(&sectors), Vec::<String>::new(), "{bytes} bytes, stride {stride}, {lanes} lanes");
                assert_eq!(outside(&banks), Vec::<String>::new(), "{bytes} bytes, stride {stride}, {lanes} lanes");
            }
        }
    }
}

#[test]
fn sources_with_long_lines_and_large_numbers() {
    let mut it = inspection(Vec::new());
    for line in &mut it.lines {
        line.text = format!("    {} = {};", "x".repeat(40), "y_".repeat(90));
        line.counters.warp_instructions = 987_654_321_098;
        line.counters.thread_instructions = line.counters.warp_instructions * 31 + 7;
        line.counters.shared_load_wavefronts = 1;
        line.counters.shared_load_bank_conflicts = 87_654_321;
        line.counters.global_store_requests = 3;
        line.counters.global_store_sectors = 100;
    }
    it.findings = vec![finding(Kind::UninitialisedRead, [123_456, 0, 0], [67, 0, 0])];
    assert_eq!(outside(&it.source()), Vec::<String>::new());
}
