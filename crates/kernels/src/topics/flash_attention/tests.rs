//! Rungs in the simulator, what they refuse, and what the comparison tells apart.

use super::*;
use crate::Ladder;
use crate::ladder::RUNGS;

fn shape_of(q_heads: usize, kv_heads: usize, length: usize, width: usize) -> AttentionShape {
    AttentionShape { batch: 1, q_heads, kv_heads, length, width }
}

#[test]
fn a_wrong_or_unwritten_number_is_named() {
    let shape = shape_of(2, 1, 20, 64);
    let [q, k, v] = random(shape, 3);
    let get = |x: &[u16], at: usize| f64::from(cpu::f32_from_bf16(x[at]));
    let (of_q, of_k, of_v) = (|at| get(&q, at), |at| get(&k, at), |at| get(&v, at));
    let exact = |causal: bool| -> Vec<u16> {
        let rows = (0..shape.rows())
            .flat_map(|row| cpu::attention_row((&of_q, &of_k, &of_v), shape, &mask(causal), row).values);
        rows.map(|x| cpu::bf16_from_f32(x as f32)).collect()
    };
    let arrays = [&q[..], &k[..], &v[..]];
    assert_eq!((off(&exact(true), arrays, shape, true), off(&exact(false), arrays, shape, false)), (None, None));
    assert!(off(&exact(false), arrays, shape, true).is_some());
    let mut unwritten = exact(true);
    unwritten[70] = u16::MAX;
    assert!(off(&unwritten, arrays, shape, true).unwrap().contains("head 0, query 1, number 6: NaN"));
}

#[test]
fn what_does_not_fit_is_refused_with_a_way_out() {
    let gpu = Gpu::simulated().unwrap();
    let flash = FlashAttention::new(&gpu, "flash_attention/01_one_pass", false).unwrap();
    let refused = |q: usize, k: usize, shape| {
        let text = flash.attend(&vec![0; q], &vec![0; k], &vec![0; k], shape).unwrap_err().to_string();
        assert!(text.contains("\nnext: "), "{text}");
        text
    };
    assert!(refused(96, 96, shape_of(1, 1, 1, 96)).contains("heads of 96 numbers"));
    assert!(refused(127, 128, shape_of(1, 1, 1, 128)).contains("attention's `q`"));
    assert!(refused(256, 128, shape_of(2, 2, 1, 128)).contains("attention's `k`"));
    assert!(refused(384, 256, shape_of(3, 2, 1, 128)).contains("3 heads of q"));
    assert!(refused(70_000 * 64, 64, AttentionShape { batch: 70_000, ..shape_of(1, 1, 1, 64) }).contains("`k`"));
    assert!(refused(70_000 * 64, 64, shape_of(70_000, 1, 1, 64)).contains("up to 65535 heads"));
    assert!(FlashAttention::new(&gpu, "flash_attention/00", false).is_err());
    assert!(flash.time(shape_of(1, 1, 8, 64), &Bench::default()).unwrap_err().to_string().contains("next: "));
    assert!(Ladder::FlashAttention.size((1, 33, 24)).unwrap_err().to_string().contains("64 and 128"));
    assert_eq!(Ladder::CausalFlashAttention.size((4, 33)), Ok(Size::Three(4, 33, 128)));
}

#[test]
fn no_rung_writes_more_than_the_result_and_tiles_save_reading() {
    let (heads, length) = (1, 128);
    let seen = Ladder::FlashAttention.counters((heads, length)).unwrap();
    let bytes = |rung: &str, of: fn(&gpulab::warpsim::Counters) -> u64| 32 * of(&seen.get(rung).unwrap().counters);
    let result = (heads * length * 128 * 2) as u64;
    // From tensor cores on, four neighbours of a row write half a sector together.
    for (rung, times) in [("01", 1), ("02", 1), ("03", 2), ("04", 2), ("05", 2)] {
        assert_eq!(bytes(rung, |it| it.global_store_sectors), times * result, "{rung}");
    }
    // 128 queries read all keys for themselves, 16 of them together, 64 of them together.
    let keys = 2 * result;
    let read = ["01", "02", "03", "05"].map(|rung| bytes(rung, |it| it.global_load_sectors));
    // Four threads of the tensor cores' layout read half a sector of q together.
    let expected = [result + 128 * keys, result + 8 * keys, 2 * result + 2 * keys, 2 * result + 2 * keys];
    assert_eq!(read, expected);
}

#[test]
#[ignore = "needs an NVIDIA GPU"]
fn every_rung_is_checked_and_timed_on_a_gpu() {
    let gpu = crate::topics::hardware();
    for rung in RUNGS.iter().filter(|rung| rung.kernel == "flash_attention") {
        if let Err(error) = rung.supported_on(&gpu) {
            eprintln!("skipped: {error}");
            continue;
        }
        for causal in [false, true] {
            let flash = FlashAttention::new(&gpu, rung.path, causal).unwrap_or_else(|error| panic!("{error}"));
            for shape in [shape_of(4, 2, 1000, 128), shape_of(4, 2, 1024, 64), shape_of(1, 1, 1, 64)] {
                let loaded = flash.loaded(shape.width).unwrap_or_else(|error| panic!("{error}"));
                check(loaded, shape, causal, 2.0).unwrap_or_else(|error| panic!("{error}"));
                assert!(flash.time(shape, &Bench::default().samples(5)).unwrap().median > 0.0);
            }
        }
    }
}
