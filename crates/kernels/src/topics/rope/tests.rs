//! Right and wrong turns, on the CPU, in the simulator and on a GPU.

use super::*;
use crate::Ladder;
use crate::ladder::RUNGS;

#[test]
fn a_wrong_or_unwritten_number_is_named_and_a_pair_keeps_its_length() {
    let bits = [3.0, 4.0].map(cpu::bf16_from_f32);
    // Position 0 is turned by nothing.
    assert_eq!(agree("r", "q", &bits, &bits, (2, 2)), Ok(()));
    for wrong in [cpu::bf16_from_f32(4.0625), u16::MAX] {
        let text = agree("r", "q", &[bits[0], wrong], &bits, (2, 2)).unwrap_err().to_string();
        assert!(text.contains("row 0, column 1") && text.contains("\nnext: "), "{text}");
    }
    assert_eq!((speed(0, 4), speed(1, 4)), (1.0, 0.01));
    // Position 1 of pair 0: one radian.
    let turned = [2, 3].map(|at| turned(at, |at| [0.0, 0.0, 3.0, 4.0][at], (2, 2)));
    let (sine, cosine) = 1.0_f64.sin_cos();
    assert_eq!(turned, [3.0 * cosine - 4.0 * sine, 4.0 * cosine + 3.0 * sine]);
    assert_eq!([8192, 104, 6, 129 * 2].map(head_of), [Ok(128), Ok(104), Ok(6), Ok(86)]);
    assert!(head_of(33).unwrap_err().to_string().contains("\nnext: "));
}

#[test]
fn every_rung_turns_any_size_and_refuses_what_does_not_fit() {
    let gpu = Gpu::simulated().unwrap();
    for rung in RUNGS.iter().filter(|rung| rung.kernel == "rope") {
        let rope = Rope::new(&gpu, rung.path).unwrap_or_else(|error| panic!("{error}"));
        assert_eq!(rope.turn(&[], &[], 128, 128), Ok((vec![], vec![])), "{}", rung.path);
        let refused = [
            (rope.turn(&[0; 8], &[0; 8], 8, 3).unwrap_err(), "a head of 3 numbers has no pairs"),
            (rope.turn(&[0; 8], &[0; 8], 8, 0).unwrap_err(), "a head of 0 numbers"),
            (rope.turn(&[0; 8], &[0; 8], 8, 6).unwrap_err(), "not of whole heads of 6"),
            (rope.turn(&[0; 9], &[0; 9], 8, 4).unwrap_err(), "rope's q"),
            (rope.turn(&[0; 8], &[0; 7], 8, 4).unwrap_err(), "rope's k"),
            (rope.time(33, 128, &Bench::default()).unwrap_err(), "a kernel's time cannot be had"),
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

#[test]
fn every_rung_is_checked_and_timed_on_a_gpu() {
    let Some(gpu) = crate::topics::hardware() else { return };
    for rung in RUNGS.iter().filter(|rung| rung.kernel == "rope") {
        let rope = Rope::new(&gpu, rung.path).unwrap_or_else(|error| panic!("{error}"));
        assert!(rope.time(33, 256, &Bench::default().samples(5)).unwrap().median > 0.0);
    }
}
