//! Exercise of lesson 22: the loss of a model that counts pairs of tokens.

use super::Verdict;
use super::verdict::{Check, ask, timed, told};
use gpulab::cpu;
use gpulab::measurement::figures;
use std::collections::HashMap;

/// The answer: training tokens, held-out tokens, vocabulary and strength to nats a token.
type Bigram = fn(&[u32], &[u32], usize, f64) -> f64;

/// Vocabulary, training tokens, held-out tokens and strength; the smallest of all, and more tokens than were seen, come last.
const CASES: [(usize, usize, usize, f64); 6] = [
    (3, 40, 9, 4.0),
    (7, 200, 50, 1.0),
    (40, 300, 80, 0.25),
    (300, 2000, 400, 16.0),
    (1000, 700, 300, 2.0),
    (2, 2, 2, 1.0),
];

/// Checks the mean of −ln p(b | a) over the held-out tokens, where p(b | a) = (c(a b) + s p(b)) ÷ (c(a) + s) by counts of the training
/// tokens.
pub fn bigram(answer: Bigram) -> Verdict {
    timed("bigram", move || {
        for (at, (vocab, length, held_out, strength)) in CASES.into_iter().enumerate() {
            let train = text(vocab, length, at as u64);
            let held_out = text(vocab, held_out, 100 + at as u64);
            let case = format!(
                "{} training tokens and {} held out, a vocabulary of {vocab}, strength {strength}",
                train.len(),
                held_out.len()
            );
            let given = ask(&case, || answer(&train, &held_out, vocab, strength))?;
            let of = |variant| loss(&train, &held_out, vocab, strength, variant);
            is_right(&case, given, held_out.len(), of)?;
        }
        Ok(())
    })
}

/// Tokens of which a pair tells something: two of three follow from the one before.
fn text(vocab: usize, length: usize, seed: u64) -> Vec<u32> {
    let mut before = 0;
    let next = |(at, x): (usize, f32)| {
        before = match at % 3 {
            0 => ((vocab as f32 * x * x) as usize).min(vocab - 1),
            _ => (2 * before + 1 + usize::from(x > 0.4)) % vocab,
        };
        before as u32
    };
    cpu::random_f32(length, seed).into_iter().enumerate().map(next).collect()
}

/// What is counted, and how: as asked, or with a mistake.
#[derive(Clone, Copy, PartialEq)]
enum Variant {
    Asked,
    /// How often b is followed by a.
    Reversed,
    /// Single tokens are counted from 0.
    FromZero,
    /// c(a) also counts the last training token, which nothing follows.
    LastToo,
    /// Counts of both parts.
    Peeks,
    /// Counts of the held-out part alone.
    HeldOut,
    /// p(b | a) is c(a b) ÷ c(a) where that is known, and p(b) elsewhere.
    BackOff,
    /// p(b), whatever is before.
    Single,
}

fn loss(train: &[u32], held_out: &[u32], vocab: usize, strength: f64, variant: Variant) -> f64 {
    let learned: &[&[u32]] = match variant {
        Variant::Peeks => &[train, held_out],
        Variant::HeldOut => &[held_out],
        _ => &[train],
    };
    let mut alone = vec![if variant == Variant::FromZero { 0.0 } else { 1.0 }; vocab];
    let (mut firsts, mut pairs) = (vec![0.0; vocab], HashMap::<[u32; 2], f64>::new());
    for tokens in learned {
        tokens.iter().for_each(|token| alone[*token as usize] += 1.0);
        for pair in tokens.windows(2) {
            firsts[pair[0] as usize] += 1.0;
            *pairs.entry([pair[0], pair[1]]).or_default() += 1.0;
        }
    }
    if variant == Variant::LastToo {
        firsts[train[train.len() - 1] as usize] += 1.0;
    }
    let total: f64 = alone.iter().sum();
    let cost = |pair: &[u32]| {
        let key = if variant == Variant::Reversed { [pair[1], pair[0]] } else { [pair[0], pair[1]] };
        let (count, first) = (pairs.get(&key).copied().unwrap_or(0.0), firsts[pair[0] as usize]);
        let single = alone[pair[1] as usize] / total;
        let p = match variant {
            Variant::Single => single,
            Variant::BackOff if count > 0.0 => count / first,
            Variant::BackOff => single,
            _ => (count + strength * single) / (first + strength),
        };
        -p.ln()
    };
    held_out.windows(2).map(cost).sum::<f64>() / (held_out.len() - 1) as f64
}

fn is_right(case: &str, given: f64, tokens: usize, of: impl Fn(Variant) -> f64) -> Check {
    let right = of(Variant::Asked);
    let close = |wanted: f64| wanted.is_finite() && (given - wanted).abs() <= 1e-6 * wanted.abs();
    if close(right) {
        return Ok(());
    }
    let pairs = (tokens - 1) as f64;
    let (meaning, idea) = match () {
        () if !given.is_finite() => (
            "a probability of 0 costs infinitely much, and 0 ÷ 0 is NaN",
            "a pair that never occurred still has s · p(b) ÷ (c(a) + s), and a vocabulary may have tokens that were never seen",
        ),
        () if given == 0.0 => ("nothing has been counted", "begin with `unigram` above: the counts of single tokens"),
        () if close(-right) => ("the sign is turned round", "a loss is −ln of a probability"),
        () if close(right / std::f64::consts::LN_2) => ("that is in bits", "nats take the natural logarithm"),
        () if close(right.exp()) => ("that is the perplexity", "the loss is its logarithm"),
        () if close(right * pairs) => ("that is the sum over all pairs", "a loss is nats a token: the mean"),
        () if close(right * pairs / tokens as f64) => {
            ("the sum is divided by the tokens", "how many pairs of neighbours do n tokens have?")
        }
        () if close(of(Variant::Single)) => ("it does not depend on the token before", "c(a b) is missing"),
        () if close(of(Variant::Reversed)) => {
            ("its pairs are turned round", "of a pair (a, b) of the text, a is known and b is what costs")
        }
        () if close(of(Variant::FromZero)) => {
            ("p(b) is counted from 0", "as in `unigram`, each token counts once more")
        }
        () if close(of(Variant::LastToo)) => {
            ("c(a) also counts the last training token", "c(a) is how often a is *followed* by a token")
        }
        () if close(of(Variant::Peeks)) || close(of(Variant::HeldOut)) => {
            ("it has counted the held-out tokens", "what a model is measured by, it must not have read")
        }
        () if close(of(Variant::BackOff)) => {
            ("a pair that was seen takes c(a b) ÷ c(a) alone", "the strength mixes p(b) into every pair, seen or not")
        }
        () => (
            "one of the four numbers of the formula is not as it should be",
            "work out by hand the text 0 1 0 with a vocabulary of 2, for the held-out pair (0, 1)",
        ),
    };
    told(format!("{case}: {} nats a token, and it should be {}", figures(given), figures(right)), meaning, idea)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn right(train: &[u32], held_out: &[u32], vocab: usize, strength: f64) -> f64 {
        loss(train, held_out, vocab, strength, Variant::Asked)
    }

    /// The same by a table, in another order.
    fn by_table(train: &[u32], held_out: &[u32], vocab: usize, strength: f64) -> f64 {
        let mut table = vec![0u32; vocab * vocab];
        train.windows(2).for_each(|pair| table[pair[0] as usize * vocab + pair[1] as usize] += 1);
        let single = |b: u32| (1 + train.iter().filter(|x| **x == b).count()) as f64 / (vocab + train.len()) as f64;
        let cost = |a: usize, b: u32| {
            let row = &table[a * vocab..][..vocab];
            let followed: u32 = row.iter().sum();
            (f64::from(followed) + strength).ln() - (f64::from(row[b as usize]) + strength * single(b)).ln()
        };
        let costs: Vec<f64> = held_out.windows(2).rev().map(|pair| cost(pair[0] as usize, pair[1])).collect();
        costs.iter().sum::<f64>() / costs.len() as f64
    }

    #[test]
    fn counted_by_hand() {
        // 0 1 0: c(0 1) = 1, c(0) = 1, p(1) = 2 ÷ 5; with strength 1 (1 + 0.4) ÷ 2.
        assert!((right(&[0, 1, 0], &[0, 1], 2, 1.0) + 0.7_f64.ln()).abs() < 1e-12);
    }

    #[test]
    fn right_ones_pass() {
        assert!(bigram(right).passed(), "{}", bigram(right).text());
        assert!(bigram(by_table).passed(), "{}", bigram(by_table).text());
    }

    #[test]
    fn wrong_ones_are_told_what_is_wrong() {
        let wrong: [(Bigram, &str); 15] = [
            (|_, _, _, _| 0.0, "nothing has been counted"),
            (|t, h, v, s| -right(t, h, v, s), "sign"),
            (|t, h, v, s| right(t, h, v, s) / 2_f64.ln(), "in bits"),
            (|t, h, v, s| right(t, h, v, s).exp(), "perplexity"),
            (|t, h, v, s| right(t, h, v, s) * (h.len() - 1) as f64, "the sum over all pairs"),
            (|t, h, v, s| right(t, h, v, s) * (h.len() - 1) as f64 / h.len() as f64, "divided by the tokens"),
            (|t, h, v, s| loss(t, h, v, s, Variant::Single), "does not depend on the token before"),
            (|t, h, v, s| loss(t, h, v, s, Variant::Reversed), "turned round"),
            (|t, h, v, s| loss(t, h, v, s, Variant::LastToo), "the last training token"),
            (|t, h, v, s| loss(t, h, v, s, Variant::BackOff), "takes c(a b) ÷ c(a) alone"),
            (|t, h, v, _| right(t, h, v, 0.0), "takes c(a b) ÷ c(a) alone"),
            (|_, _, _, _| f64::INFINITY, "costs infinitely much"),
            (|t, h, v, s| right(t, h, v, s + 1.0), "by hand"),
            // Cheats: it reads what is held out, and the figure that the lesson has printed.
            (|t, h, v, s| loss(t, h, v, s, Variant::Peeks), "must not have read"),
            (|_, _, _, _| 3.443, "by hand"),
        ];
        for (answer, said) in wrong {
            let verdict = bigram(answer);
            let all = format!("{} {}", verdict.text(), verdict.clone().hint().hint().text());
            assert!(!verdict.passed() && all.contains(said), "{said}: {all}");
        }
        let panics = bigram(|t, _, _, _| f64::from(t[t.len()])).text();
        assert!(panics.contains("panicked"), "{panics}");
    }
}
