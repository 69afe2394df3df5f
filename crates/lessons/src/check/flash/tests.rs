//! The right answers pass, and each mistake is told by its own hint.

use super::*;

const RIGHT: &str = r#"__device__ float score(float q_part, const float *k, int key) {
    float s = q_part * k[key * 32 + threadIdx.x % 32];
    for (int distance = 16; distance > 0; distance /= 2) {
        s += __shfl_xor_sync(~0u, s, distance);
    }
    return s / sqrtf(32.0f);
}
extern "C" __global__ void attend(const float *q, const float *k, const float *v, float *o, int n) {
    int query = blockIdx.x * 8 + threadIdx.x / 32;
    int lane = threadIdx.x % 32;
    if (query >= n) {
        return;
    }
    float q_part = q[query * 32 + lane];
    float most = -1e30f, sum = 0.0f, out = 0.0f;
    for (int key = 0; key < n; ++key) {
        float s = score(q_part, k, key);
        float larger = fmaxf(most, s);
        float factor = expf(most - larger), p = expf(s - larger);
        sum = sum * factor + p;
        out = out * factor + p * v[key * 32 + lane];
        most = larger;
    }
    o[query * 32 + lane] = out / sum;
}"#;

#[test]
fn one_pass_passes_and_its_mistakes_are_told_apart() {
    kernels::expect(
        one_pass,
        RIGHT,
        &[
            ("out = out * factor + p", "out = out + p", "shrink both"),
            ("sum = sum * factor + p", "sum = sum + p", "shrink both"),
            ("float larger = fmaxf(most, s)", "float larger = 0.0f", "more than a float holds"),
        ],
    );
    // Two passes are right, and read k twice.
    let two = RIGHT.replace(
        "    for (int key = 0; key < n; ++key) {\n        float s",
        "    for (int key = 0; key < n; ++key) {\n        most = fmaxf(most, score(q_part, k, key));\n    }\n\
         \x20   for (int key = 0; key < n; ++key) {\n        float s",
    );
    let text = one_pass(&two).text();
    assert!(text.contains("right, but") && text.contains("first loop is not needed"), "{text}");
    let text = one_pass(&RIGHT.replace("if (query >= n) {\n        return;\n    }\n", "")).text();
    assert!(text.contains("out of bounds") && text.contains("a lane one number"), "{text}");
}

type Tiles = fn(usize, usize, usize, usize) -> usize;
type Merge = fn(&Part, &Part) -> Part;

#[test]
fn tiles_that_are_hidden_are_left_out() {
    fn right(row0: usize, rows: usize, keys: usize, length: usize) -> usize {
        (row0 + rows).min(length).div_ceil(keys)
    }
    assert!(causal_tiles(right).passed(), "{}", causal_tiles(right).text());
    let wrong: [(Tiles, &str); 4] = [
        (|_, _, keys, length| length.div_ceil(keys), "hidden from all"),
        (|row0, rows, keys, _| (row0 + rows).div_ceil(keys), "no keys there"),
        (|row0, _, keys, _| row0.div_ceil(keys), "sees itself too"),
        (|row0, rows, keys, length| ((row0 + rows) / keys + 1).min(length.div_ceil(keys)), "last key that"),
    ];
    for (tiles, said) in wrong {
        let text = causal_tiles(tiles).text();
        assert!(text.starts_with("NOT YET") && text.contains(said), "{said}: {text}");
    }
}

#[test]
fn parts_are_merged_by_their_sums() {
    fn right(a: &Part, b: &Part) -> Part {
        let most = a.most.max(b.most);
        let (of_a, of_b) = (a.sum * (a.most - most).exp(), b.sum * (b.most - most).exp());
        let sum = of_a + of_b;
        let out = a.out.iter().zip(&b.out).map(|(x, y)| (of_a * x + of_b * y) / sum).collect();
        Part { most, sum, out }
    }
    assert!(merge_parts(right).passed(), "{}", merge_parts(right).text());
    let wrong: [(Merge, &str); 5] = [
        (|a, b| Part { sum: a.sum + b.sum, ..right(a, b) }, "bring both to the new one"),
        (
            |a, b| Part {
                most: a.most + b.most,
                sum: right(a, b).sum * (right(a, b).most - a.most - b.most).exp(),
                ..right(a, b)
            },
            "the larger of both",
        ),
        (
            |a, b| Part { out: a.out.iter().zip(&b.out).map(|(x, y)| (x + y) / 2.0).collect(), ..right(a, b) },
            "how much of the new sum",
        ),
        (|a, b| Part { out: vec![f64::NAN; a.out.len()], ..right(a, b) }, "no exponent is then above 0"),
        (|a, b| Part { out: Vec::new(), ..right(a, b) }, "merged for itself"),
    ];
    for (merge, said) in wrong {
        let text = merge_parts(merge).text();
        assert!(text.starts_with("NOT YET") && text.contains(said), "{said}: {text}");
    }
}
