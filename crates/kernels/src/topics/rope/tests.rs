//! Right and wrong turns, on the CPU, in the simulator and on a GPU.

use super::*;
use crate::Ladder;
use crate::ladder::RUNGS;
use gpulab::prelude::*;

#[test]
fn a_pair_is_turned_by_its_angle_and_keeps_its_length() {
    assert_eq!((speed(0, 4), speed(1, 4)), (1.0, 0.01));
    // Position 1 of pair 0: one radian.
    let turned = [2, 3].map(|at| turned(at, |at| [0.0, 0.0, 3.0, 4.0][at], (2, 2)));
    let (sine, cosine) = 1.0_f64.sin_cos();
    assert_eq!(turned, [3.0 * cosine - 4.0 * sine, 4.0 * cosine + 3.0 * sine]);
    assert_eq!([8192, 104, 6, 129 * 2].map(head_of), [Ok(128), Ok(104), Ok(6), Ok(86)]);
    assert_eq!(AWKWARD.map(|(_, columns)| head_of(columns)), [2, 6, 80, 128, 86, 64].map(Ok));
    assert!(head_of(33).unwrap_err().to_string().contains("\nnext: "));
}

#[test]
fn every_rung_turns_any_size_and_refuses_what_does_not_fit() {
    let gpu = Gpu::simulated().unwrap();
    for rung in RUNGS.iter().filter(|rung| rung.kernel == "rope") {
        let rope = Rope::new(&gpu, rung.path).unwrap_or_else(|error| panic!("{error}"));
        let zeros = |count| HostArray::Bf16(vec![0; count]);
        let given = |q, k, rows, columns| {
            let [_, _, cosines, sines] = &rope.inputs(Size::Two(rows, columns), 1)?[..] else { unreachable!() };
            rope.results(&[zeros(q), zeros(k), cosines.clone(), sines.clone()], Size::Two(rows, columns))
        };
        assert_eq!(given(0, 0, 0, 128), Ok(vec![zeros(0); 2]), "{}", rung.path);
        let refused = [
            (given(9, 9, 1, 9).unwrap_err(), "a row of 9 numbers has no pairs"),
            (given(9, 8, 1, 8).unwrap_err(), "rope's `q`"),
            (given(8, 7, 1, 8).unwrap_err(), "rope's `k`"),
            (rope.time(Size::Two(33, 128), &Bench::default()).unwrap_err(), "a kernel's time cannot be had"),
        ];
        for (error, expected) in refused {
            let text = error.to_string();
            assert!(text.contains(expected) && text.contains("\nnext: "), "{text}");
        }
    }
}

#[test]
fn each_number_is_read_once_and_written_once_and_lanes_share_their_angles() {
    let (rows, columns) = (4, 8192);
    let table = 2 * rows * columns;
    let seen = Ladder::Rope.counters((rows, columns)).unwrap();
    let angles = |rung: &str| seen.get(rung).unwrap().global_bytes() as usize - 4 * table;
    // 64 heads of 64 angles a row, 8 bytes each; on the second rung the four heads of a warp ask together, for each
    // sector twice.
    let asked = rows * 64 * 64 * 8;
    assert_eq!([angles("01"), angles("02")], [asked, asked / 4 * 2]);
}
