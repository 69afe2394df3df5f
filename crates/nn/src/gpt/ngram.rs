//! What a model has to beat: counting letters, and counting pairs of letters.

use super::Text;

/// Nats a byte of the held-out part, of a model that knows how often each byte occurs.
pub fn unigram_loss(text: &Text) -> f64 {
    let counts = counts(&text.train);
    let total = text.train.len() as f64 + 256.0;
    // One more than counted: a byte that never occurred would cost infinitely much.
    let cost = |byte: &u8| -((counts[usize::from(*byte)] + 1.0) / total).ln();
    text.held_out.iter().map(cost).sum::<f64>() / text.held_out.len() as f64
}

/// Nats a byte of a model that knows how often each byte follows each other one, mixed with how often it occurs at all.
/// `strength` is how many pairs the second part counts as much as.
pub fn bigram_loss(text: &Text, strength: f64) -> f64 {
    let singles = counts(&text.train);
    let total = text.train.len() as f64 + 256.0;
    let (mut pairs, mut firsts) = (vec![[0.0f64; 256]; 256], [0.0f64; 256]);
    for pair in text.train.windows(2) {
        pairs[usize::from(pair[0])][usize::from(pair[1])] += 1.0;
        firsts[usize::from(pair[0])] += 1.0;
    }
    let cost = |pair: &[u8]| {
        let (first, second) = (usize::from(pair[0]), usize::from(pair[1]));
        let alone = (singles[second] + 1.0) / total;
        -((pairs[first][second] + strength * alone) / (firsts[first] + strength)).ln()
    };
    text.held_out.windows(2).map(cost).sum::<f64>() / (text.held_out.len() - 1) as f64
}

/// [`bigram_loss`] with the strength that suits the held-out part best: more than such a model could know.
pub fn best_bigram_loss(text: &Text) -> f64 {
    (0..10).map(|power| bigram_loss(text, f64::from(1 << power))).fold(f64::INFINITY, f64::min)
}

fn counts(bytes: &[u8]) -> [f64; 256] {
    let mut counts = [0.0; 256];
    bytes.iter().for_each(|byte| counts[usize::from(*byte)] += 1.0);
    counts
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_give_the_entropy_of_what_they_counted() {
        // a and b in turn: one bit alone, nothing once the letter before is known.
        let part = b"ab".repeat(5000);
        let text = Text { train: part.clone(), held_out: part, fingerprint: String::new() };
        assert!((unigram_loss(&text) - 2.0f64.ln()).abs() < 0.03);
        assert!(best_bigram_loss(&text) < 0.001);
        assert!(bigram_loss(&text, 1e9) > 0.69);
    }

    #[test]
    fn a_byte_never_seen_costs_much_and_not_infinitely() {
        let text = Text { train: b"aaaa".to_vec(), held_out: b"az".to_vec(), fingerprint: String::new() };
        assert!(unigram_loss(&text).is_finite() && best_bigram_loss(&text).is_finite());
    }
}
