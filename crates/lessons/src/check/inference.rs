//! Exercises of lesson 40.

use super::Verdict;
use super::verdict::{ask, verdict, wrong};
use gpulab::measurement::figures;

/// Checks a function that gives the numbers of the likeliest tokens that together have at least the probability `top_p`,
/// likeliest first: the fewest that do, and never none.
pub fn top_p(answer: fn(&[f64], f64) -> Vec<usize>) -> Verdict {
    verdict("top_p", || {
        // Halves and their sums are exact, so that no rounding decides.
        let cases: [(&[f64], f64); 8] = [
            (&[0.5, 0.25, 0.125, 0.125], 0.7),
            (&[0.125, 0.5, 0.125, 0.25], 0.7),
            (&[0.125, 0.5, 0.125, 0.25], 0.75),
            (&[0.0625, 0.0625, 0.0625, 0.0625, 0.75], 0.9),
            (&[0.25, 0.75], 0.0),
            (&[0.25, 0.125, 0.625], 1.0),
            (&[0.125, 0.875], 0.5),
            (&[1.0], 0.9),
        ];
        for (probabilities, p) in cases {
            let given = ask("", || answer(probabilities, p))?;
            let wanted = nucleus(probabilities, p);
            // Equally likely tokens may come in any order, and any of them may be the last.
            let of = |tokens: &[usize]| tokens.iter().map(|t| probabilities.get(*t).copied()).collect::<Vec<_>>();
            let mut sorted = given.clone();
            sorted.sort_unstable();
            let twice = sorted.windows(2).any(|pair| pair[0] == pair[1]);
            if of(&given) != of(&wanted) || twice {
                let what = format!(
                    "probabilities {probabilities:?} with top_p {p}: you give {given:?}, and {wanted:?} is right"
                );
                return wrong(what, nucleus_hint(probabilities, p, &given, &wanted));
            }
        }
        Ok(())
    })
}

fn nucleus(probabilities: &[f64], p: f64) -> Vec<usize> {
    let mut tokens: Vec<usize> = (0..probabilities.len()).collect();
    tokens.sort_by(|a, b| probabilities[*b].total_cmp(&probabilities[*a]));
    let mut sum = 0.0;
    let before = tokens.iter().take_while(|token| {
        let outside = sum < p;
        sum += probabilities[**token];
        outside
    });
    let count = before.count().max(1);
    tokens.truncate(count);
    tokens
}

/// Which mistake gives such tokens.
fn nucleus_hint(probabilities: &[f64], p: f64, given: &[usize], wanted: &[usize]) -> &'static str {
    let mut unsorted = given.to_vec();
    unsorted.sort_by(|a, b| probabilities.get(*b).partial_cmp(&probabilities.get(*a)).expect("they are numbers"));
    let alone: Vec<usize> = (0..probabilities.len()).filter(|token| probabilities[*token] >= p).collect();
    let from_one = given.iter().zip(wanted).all(|(token, right)| *token == right + 1) && given.len() == wanted.len();
    if from_one || given.iter().any(|token| *token >= probabilities.len()) {
        "give the tokens' numbers, which count from 0"
    } else if given.is_empty() {
        "something must be left to choose from: the token whose probability carries the sum to top_p belongs in"
    } else if given == alone || given.iter().rev().eq(&alone) {
        "it is the sum that counts: go from the likeliest on, and add up until top_p is reached"
    } else if unsorted == wanted {
        "these are the right ones: give the likeliest first"
    } else if given.len() + 1 == wanted.len() && wanted.starts_with(given) {
        "the token whose probability carries the sum to top_p belongs in too"
    } else if given.len() > wanted.len() && given.starts_with(wanted) {
        "the fewest that do: stop as soon as the sum has reached top_p"
    } else if given.is_sorted() {
        "sort by probability first: the tokens' own order means nothing"
    } else {
        "sort by probability, the likeliest first, and take tokens until their sum has reached top_p"
    }
}

/// Checks a function that says whether a key is hidden from a query, in a text whose first `padding` places are filled up: what comes
/// later is hidden, and so is the filling. Queries in the filling may see what they like: nobody reads what comes of them.
pub fn padding_mask(answer: fn(query: usize, key: usize, padding: usize) -> bool) -> Verdict {
    verdict("padding_mask", || {
        const LENGTH: usize = 8;
        for padding in [0, 1, 3] {
            for query in padding..LENGTH {
                for key in 0..LENGTH {
                    let hidden = ask("", || answer(query, key, padding))?;
                    if hidden == (key > query || key < padding) {
                        continue;
                    }
                    let what = format!(
                        "{padding} places of filling, the query at place {query}, the key at place {key}: you say {}",
                        if hidden { "hidden" } else { "seen" }
                    );
                    return wrong(what, mask_hint(hidden, query, key, padding));
                }
            }
        }
        Ok(())
    })
}

fn mask_hint(hidden: bool, query: usize, key: usize, padding: usize) -> &'static str {
    match hidden {
        true if key == query => "a token sees itself: without that the first one would see nothing at all",
        true if key == padding => {
            "places count from 0: with a filling of 3, places 0, 1 and 2 are filling, and 3 is text"
        }
        true => "a token sees all of its own text up to itself: nothing else is to be hidden",
        false if key > query => {
            "a token must not see those that come after it: it is to be guessed from what came before"
        }
        false => "the filling is no part of the text: hide it from every query, whatever came before it",
    }
}

/// One step of decoding: a token more for each text of a batch.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Decode {
    /// Numbers in the model.
    pub parameters: usize,
    /// Its blocks, each with keys and values of its own.
    pub layers: usize,
    /// Numbers in a key, and in a value, over all heads.
    pub width: usize,
    /// Texts in the batch.
    pub texts: usize,
    /// Tokens of each text that are in the cache.
    pub context: usize,
    /// Bytes that a number takes.
    pub bytes: usize,
    /// What memory delivers, in 10⁹ bytes a second.
    pub gb_per_s: f64,
}

/// Checks a function that gives the least time of a step, in milliseconds: each parameter and the whole cache must come from memory once.
pub fn token_floor(answer: fn(Decode) -> f64) -> Verdict {
    verdict("token_floor", || {
        let gpt2 = Decode {
            parameters: 124_439_808,
            layers: 12,
            width: 768,
            texts: 1,
            context: 512,
            bytes: 2,
            gb_per_s: 4200.0,
        };
        let cases = [
            gpt2,
            Decode { context: 0, bytes: 4, gb_per_s: 20.0, ..gpt2 },
            Decode { texts: 64, context: 1024, ..gpt2 },
            Decode { parameters: 851_968, layers: 4, width: 128, context: 256, bytes: 4, gb_per_s: 10.0, texts: 16 },
        ];
        for case in cases {
            let given = ask("", || answer(case))?;
            let wanted = floor(case);
            let right = (given / wanted - 1.0).abs() <= 1e-6;
            if !right {
                let what = format!("{case:?}\nyou give {} ms, and {} ms is right", figures(given), figures(wanted));
                return wrong(what, floor_hint(case, given, wanted));
            }
        }
        Ok(())
    })
}

/// Numbers of the cache: a key and a value for each token, layer and text.
fn cache(case: Decode) -> f64 {
    (2 * case.layers * case.width * case.context * case.texts) as f64
}

fn time(case: Decode, numbers: f64) -> f64 {
    numbers * case.bytes as f64 / (case.gb_per_s * 1e6)
}

fn floor(case: Decode) -> f64 {
    time(case, case.parameters as f64 + cache(case))
}

/// Which mistake gives such a time.
fn floor_hint(case: Decode, given: f64, wanted: f64) -> &'static str {
    let (parameters, cache, texts) = (case.parameters as f64, cache(case), case.texts as f64);
    let is = |numbers: f64| (given / time(case, numbers) - 1.0).abs() < 1e-6;
    let off = |factor: f64| (given / wanted / factor - 1.0).abs() < 1e-6;
    if !given.is_finite() || given <= 0.0 {
        "return a positive time: bytes ÷ bytes a second"
    } else if off(1e-3) || off(1e3) || off(1e6) || off(1e-6) {
        "the number of bytes is right, the unit is not: GB/s are 10⁹ bytes a second, and the answer is in milliseconds"
    } else if off(1.0 / case.bytes as f64) {
        "memory moves bytes, and you count numbers: each takes `bytes` of them"
    } else if is(parameters) {
        "the cache is read as well: a key and a value, of `width` numbers each, for each token of the context, in each layer"
    } else if is(parameters + cache / 2.0) {
        "the cache holds a key and a value for each token: twice `width` numbers"
    } else if is(parameters + cache / case.layers as f64) {
        "each layer has keys and values of its own"
    } else if is(parameters + cache / texts) {
        "each text of the batch has a cache of its own; only the parameters are shared"
    } else if is((parameters + cache / texts) * texts) {
        "the parameters are read once for the whole batch: that is why a batch pays. Only the cache grows with the texts"
    } else {
        "add what must be read, in bytes: all parameters once, and 2 · layers · width · context numbers for each text"
    }
}

#[cfg(test)]
mod tests {
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
}
