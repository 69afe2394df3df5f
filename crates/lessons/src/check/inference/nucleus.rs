//! The exercise `top_p`.

use crate::check::Verdict;
use crate::check::panics::{PANIC_HINT, run};

/// Checks a function that gives the numbers of the likeliest tokens that together have at least the probability `top_p`,
/// likeliest first: the fewest that do, and never none.
pub fn top_p(answer: fn(&[f64], f64) -> Vec<usize>) -> Verdict {
    const NAME: &str = "top_p";
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
        let given = match run(|| answer(probabilities, p)) {
            Err(panic) => return Verdict::not_yet(NAME, panic, PANIC_HINT),
            Ok(given) => given,
        };
        let wanted = nucleus(probabilities, p);
        // Equally likely tokens may come in any order, and any of them may be the last.
        let of = |tokens: &[usize]| tokens.iter().map(|t| probabilities.get(*t).copied()).collect::<Vec<_>>();
        let mut sorted = given.clone();
        sorted.sort_unstable();
        let twice = sorted.windows(2).any(|pair| pair[0] == pair[1]);
        if of(&given) != of(&wanted) || twice {
            let what =
                format!("probabilities {probabilities:?} with top_p {p}: you give {given:?}, and {wanted:?} is right");
            return Verdict::not_yet(NAME, what, hint(probabilities, p, &given, &wanted));
        }
    }
    Verdict::pass(NAME)
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
fn hint(probabilities: &[f64], p: f64, given: &[usize], wanted: &[usize]) -> &'static str {
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
