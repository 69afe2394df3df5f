//! Right answers pass, and each wrong one is told what is wrong with it.

use super::*;

fn nucleus(probabilities: &[f64], p: f64) -> Vec<usize> {
    let mut tokens: Vec<usize> = (0..probabilities.len()).collect();
    tokens.sort_by(|a, b| probabilities[*b].total_cmp(&probabilities[*a]));
    let (mut sum, mut inside) = (0.0, Vec::new());
    for token in tokens {
        inside.push(token);
        sum += probabilities[token];
        if sum >= p {
            break;
        }
    }
    inside
}

#[test]
fn a_nucleus_passes_and_each_mistake_is_named() {
    assert!(top_p(nucleus).passed(), "{}", top_p(nucleus).text());
    type Nucleus = fn(&[f64], f64) -> Vec<usize>;
    let wrong: [(Nucleus, &str); 8] = [
        (|all, p| (0..all.len()).filter(|t| all[*t] >= p).collect(), "must be left"),
        (|all, p| (0..all.len()).filter(|t| all[*t] >= p.min(0.5)).collect(), "carries the sum"),
        (
            |all, p| {
                let mut inside = nucleus(all, p);
                inside.pop();
                inside
            },
            "carries the sum to top_p",
        ),
        (|all, _| nucleus(all, 2.0), "the fewest that do"),
        (
            |all, p| {
                let mut sum = 0.0;
                let outside = |t: &usize| {
                    let before = sum;
                    sum += all[*t];
                    before < p
                };
                (0..all.len()).take_while(outside).collect()
            },
            "sort by probability first",
        ),
        (|all, p| nucleus(all, p).into_iter().map(|t| t + 1).collect(), "count from 0"),
        (
            |all, p| {
                let mut inside = nucleus(all, p);
                inside.sort_unstable_by(|a, b| b.cmp(a));
                inside
            },
            "likeliest first",
        ),
        (|_, _| panic!("not there"), "instead of panicking"),
    ];
    for (index, (answer, part)) in wrong.into_iter().enumerate() {
        let text = top_p(answer).text();
        assert!(text.starts_with("NOT YET") && text.contains(part), "{index}: {text}");
    }
}

#[test]
fn a_mask_passes_and_each_mistake_is_named() {
    assert!(padding_mask(|query, key, padding| key > query || key < padding).passed());
    type Mask = fn(usize, usize, usize) -> bool;
    let wrong: [(Mask, &str); 6] = [
        (|query, key, _| key > query, "the filling is no part"),
        (|_, key, padding| key < padding, "must not see those that come after"),
        (|query, key, padding| key >= query || key < padding, "sees itself"),
        (|query, key, padding| key > query || key <= padding, "sees itself"),
        (|query, key, padding| key > query || (key <= padding && key != query), "places count from 0"),
        (|query, key, padding| key <= query && key >= padding, "sees itself"),
    ];
    for (index, (answer, part)) in wrong.into_iter().enumerate() {
        let text = padding_mask(answer).text();
        assert!(text.starts_with("NOT YET") && text.contains(part), "{index}: {text}");
    }
}

fn right(it: Decode) -> f64 {
    let cache = 2 * it.layers * it.width * it.context * it.texts;
    ((it.parameters + cache) * it.bytes) as f64 / (it.gb_per_s * 1e9) * 1e3
}

#[test]
fn a_floor_passes_and_each_mistake_is_named() {
    assert!(token_floor(right).passed(), "{}", token_floor(right).text());
    type Floor = fn(Decode) -> f64;
    let wrong: [(Floor, &str); 9] = [
        (|it| right(it) / 1e3, "the unit is not"),
        (|it| right(it) / it.bytes as f64, "you count numbers"),
        (|it| right(Decode { context: 0, ..it }), "the cache is read as well"),
        (|it| right(Decode { width: it.width / 2, ..it }), "a key and a value"),
        (|it| right(Decode { layers: 1, ..it }), "each layer"),
        (|it| right(Decode { texts: 1, ..it }), "a cache of its own"),
        (|it| right(Decode { texts: 1, ..it }) * it.texts as f64, "once for the whole batch"),
        (|_| f64::NAN, "a positive time"),
        (|it| 3.0 * right(it), "add what must be read"),
    ];
    for (index, (answer, part)) in wrong.into_iter().enumerate() {
        let text = token_floor(answer).text();
        assert!(text.starts_with("NOT YET") && text.contains(part), "{index}: {text}");
    }
}
