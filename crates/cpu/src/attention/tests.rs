//! The reference against arithmetic by hand, and the comparison against results that are wrong.

use super::*;

fn shape(batch: usize, q_heads: usize, kv_heads: usize, length: usize, width: usize) -> AttentionShape {
    AttentionShape { batch, q_heads, kv_heads, length, width }
}

#[test]
fn equal_keys_give_the_mean_of_what_is_seen() {
    let shape = shape(2, 1, 1, 3, 2);
    let (q, v) = (random_f32(12, 1), [1.0, 10.0, 2.0, 20.0, 6.0, 60.0].repeat(2));
    let mean = |mask| attention_f64(&q, &[0.5; 12], &v, shape, &mask).unwrap();
    let near = |given: &[f64], expected: &[f64]| {
        assert!(given.iter().zip(expected).all(|(a, b)| (a - b).abs() < 1e-12), "{given:?}, not {expected:?}");
    };
    near(&mean(AttentionMask::none()), &[3.0, 30.0].repeat(6));
    near(&mean(AttentionMask::causal()), &[1.0, 10.0, 1.5, 15.0, 3.0, 30.0].repeat(2));
    // Of the second sequence nothing is there, so that its rows are 0.
    near(&mean(AttentionMask::none().padded(&[2, 0])), &[[1.5, 15.0].repeat(3), vec![0.0; 6]].concat());
    near(&mean(AttentionMask::causal().padded(&[2, 0]))[..6], &[1.0, 10.0, 1.5, 15.0, 1.5, 15.0]);
}

#[test]
fn each_group_of_queries_asks_its_own_head_and_large_scores_do_no_harm() {
    let shape = shape(1, 4, 2, 2, 1);
    // Scores of 0 and 2000: all weight falls on the second key.
    let v = [1.0, 2.0, 30.0, 40.0];
    let out = attention_f64(&[1000.0; 8], &[0.0, 2.0, 0.0, 2.0], &v, shape, &AttentionMask::none()).unwrap();
    assert_eq!(out, [2.0, 2.0, 2.0, 2.0, 40.0, 40.0, 40.0, 40.0]);
    assert_eq!((shape.place(5), shape.kv_head(1), shape.kv_head(2)), ((0, 2, 1), 0, 1));
}

#[test]
fn scores_spread_as_asked() {
    let shape = shape(1, 2, 2, 64, 64);
    for spread in [1.0, 10.0] {
        let [q, k, _] = attention_inputs(shape, 5, spread);
        let dot = |i: usize, j: usize| -> f32 { (0..64).map(|d| q[i * 64 + d] * k[j * 64 + d]).sum::<f32>() / 8.0 };
        let squares: f32 = (0..64).flat_map(|i| (0..64).map(move |j| (i, j))).map(|(i, j)| dot(i, j).powi(2)).sum();
        let found = (squares / 4096.0).sqrt();
        assert!((found / spread - 1.0).abs() < 0.1, "{found}, not {spread}");
    }
}

#[test]
fn f32_passes_and_mistakes_are_named() {
    let (shape, mask) = (shape(2, 4, 2, 33, 16), AttentionMask::causal().padded(&[33, 20]));
    let [q, k, v] = attention_inputs(shape, 1, 2.0);
    let exact = attention_f64(&q, &k, &v, shape, &mask).unwrap();
    let rows: Vec<usize> = (0..shape.rows()).collect();
    let wrong = |given: &[f32], mask: &AttentionMask, rounding| {
        let get = |x: &[f32], at: usize| f64::from(x[at]);
        let inputs: (ElementAt<'_>, ElementAt<'_>, ElementAt<'_>) =
            (&|at| get(&q, at), &|at| get(&k, at), &|at| get(&v, at));
        attention_wrong(&|at| get(given, at), inputs, shape, mask, &rows, rounding)
    };
    let given: Vec<f32> = exact.iter().map(|&x| x as f32).collect();
    assert_eq!(wrong(&given, &mask, Rounding::F32), None);
    let rounded: Vec<f32> = given.iter().map(|&x| crate::f32_from_bf16(crate::bf16_from_f32(x))).collect();
    assert_eq!(wrong(&rounded, &mask, Rounding::Bf16), None);
    assert!(wrong(&rounded, &mask, Rounding::F32).is_some());
    // A mask that is off by one; no padding; the wrong head; what was never written.
    let other = |mask| attention_f64(&q, &k, &v, shape, &mask).unwrap().iter().map(|&x| x as f32).collect::<Vec<_>>();
    for bad in [AttentionMask::none().padded(&[33, 20]), AttentionMask::causal()] {
        for rounding in [Rounding::F32, Rounding::Bf16, Rounding::Bf16Scores(1)] {
            assert!(wrong(&other(bad.clone()), &mask, rounding).is_some(), "{bad:?}");
        }
    }
    let mut swapped = given.clone();
    swapped[..33 * 16].copy_from_slice(&given[2 * 33 * 16..3 * 33 * 16]);
    assert!(wrong(&swapped, &mask, Rounding::Bf16).unwrap().contains("sequence 0, head 0, query 0"));
    let mut poisoned = given;
    *poisoned.last_mut().unwrap() = f32::NAN;
    assert!(wrong(&poisoned, &mask, Rounding::Bf16).unwrap().contains("head 3, query 32, number 15: NaN"));
}

#[test]
fn what_is_no_shape_is_refused() {
    let bad = [shape(1, 3, 2, 4, 4), shape(0, 1, 1, 1, 1), shape(1 << 20, 1 << 20, 1, 1 << 20, 1)];
    for shape in bad {
        assert!(shape.check().unwrap_err().to_string().contains("\nnext: "), "{shape}");
    }
    let one = shape(1, 1, 1, 2, 1);
    let text =
        |q: &[f32], mask: AttentionMask| attention_f64(q, &[0.0; 2], &[0.0; 2], one, &mask).unwrap_err().to_string();
    assert!(text(&[0.0; 3], AttentionMask::none()).contains("attention's `q`"));
    assert!(text(&[0.0; 2], AttentionMask::none().padded(&[3])).contains("3 of 2 tokens"));
    assert!(text(&[0.0; 2], AttentionMask::none().padded(&[1, 1])).contains("one a sequence"));
}
