//! The exercise `padding_mask`.

use crate::check::Verdict;
use crate::check::panics::{PANIC_HINT, run};

/// Checks a function that says whether a key is hidden from a query, in a text whose first `padding` places are filled up: what comes
/// later is hidden, and so is the filling. Queries in the filling may see what they like: nobody reads what comes of them.
pub fn padding_mask(answer: fn(query: usize, key: usize, padding: usize) -> bool) -> Verdict {
    const NAME: &str = "padding_mask";
    const LENGTH: usize = 8;
    for padding in [0, 1, 3] {
        for query in padding..LENGTH {
            for key in 0..LENGTH {
                let hidden = match run(|| answer(query, key, padding)) {
                    Err(panic) => return Verdict::not_yet(NAME, panic, PANIC_HINT),
                    Ok(hidden) => hidden,
                };
                if hidden == (key > query || key < padding) {
                    continue;
                }
                let what = format!(
                    "{padding} places of filling, the query at place {query}, the key at place {key}: you say {}",
                    if hidden { "hidden" } else { "seen" }
                );
                return Verdict::not_yet(NAME, what, hint(hidden, query, key, padding));
            }
        }
    }
    Verdict::pass(NAME)
}

fn hint(hidden: bool, query: usize, key: usize, padding: usize) -> &'static str {
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
