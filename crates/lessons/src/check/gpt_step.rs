//! Exercise of lesson 22a: how many sequences of a training step have room in a GPU's memory.

use super::Verdict;
use super::on_paper::{Slip, part};
use super::verdict::verdict;

/// The question's model: parameters, blocks, heads, width, vocabulary, tokens of a sequence. And the bytes that are free.
const PARAMETERS: f64 = 124.4e6;
const BLOCKS: f64 = 12.0;
const HEADS: f64 = 12.0;
const WIDTH: f64 = 768.0;
const VOCAB: f64 = 50_257.0;
const LENGTH: f64 = 1024.0;
const FREE: f64 = 40e9;

/// What one sequence needs: all blocks' activations, their tables of scores, and one table of tokens × vocabulary.
const ACTIVATIONS: f64 = BLOCKS * 42.0 * 2.0 * LENGTH * WIDTH;
const SCORES: f64 = BLOCKS * 6.0 * 4.0 * HEADS * LENGTH * LENGTH;
const TABLE: f64 = 4.0 * LENGTH * VOCAB;

/// On paper: how many sequences of 1,024 tokens fit beside GPT-2's parameters, gradients and moments into 40 GB, as it is; with attention that
/// stores no scores; and with that and a loss that leaves one table.
pub fn sequences_that_fit(answer: [Option<u32>; 3]) -> Verdict {
    verdict("sequences_that_fit", || {
        let names = ["as it is", "without scores", "without scores, and with one table"];
        let needs = [ACTIVATIONS + SCORES + 4.0 * TABLE, ACTIVATIONS + 4.0 * TABLE, ACTIVATIONS + TABLE];
        for ((name, given), need) in names.into_iter().zip(answer).zip(needs) {
            let right = fit(need);
            let slips: Vec<Slip> = slips(need).into_iter().filter(|slip| slip.0 > 0.0 && slip.0 != right).collect();
            let start = "what does one sequence need in all, in bytes? And what do the parameters leave of 40 GB?";
            part(name, given.map(f64::from), right..=right, &slips, start)?;
        }
        Ok(())
    })
}

/// How many sequences that need so much fit beside what there is once.
fn fit(need: f64) -> f64 {
    ((FREE - 18.0 * PARAMETERS) / need).floor()
}

fn slips(need: f64) -> Vec<Slip> {
    let scores = if need > ACTIVATIONS + 4.0 * TABLE { SCORES } else { 0.0 };
    let tables = need - ACTIVATIONS - scores;
    vec![
        (fit(need) + 1.0, "that many need more than there is: round down"),
        ((FREE / need).floor(), "parameters, gradients, moments and the copy in bf16 need room, too"),
        (fit(need / BLOCKS), "the counts are of one block: how many are there?"),
        (fit(tables + (ACTIVATIONS + scores) / BLOCKS), "the counts are of one block: how many are there?"),
        (fit(need + ACTIVATIONS), "activations are in bf16: two bytes each"),
        (fit(need - ACTIVATIONS / 2.0), "two bytes for each number in bf16"),
        (fit(need - scores / 2.0), "the tables of scores are in f32"),
        (fit(need - scores * (1.0 - 1.0 / HEADS)), "each head has a table of scores of its own"),
        (fit(need - scores * 5.0 / 6.0), "six tables of scores are kept in each block, not one"),
        (fit(need - tables), "the logits and the loss need tables, too: tokens × vocabulary"),
        (fit(need - tables / 2.0), "tables of tokens × vocabulary are in f32"),
        (fit(need) * LENGTH, "sequences, please: those are tokens"),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_number_is_worked_out() {
        assert!(sequences_that_fit([Some(7), Some(23), Some(37)]).passed());
        let wrong: [([Option<u32>; 3], &str); 12] = [
            ([None; 3], "as it is: no number yet"),
            ([Some(8), Some(23), Some(37)], "round down"),
            ([Some(86), Some(23), Some(37)], "of one block"),
            ([Some(11), Some(23), Some(37)], "in f32"),
            ([Some(17), Some(23), Some(37)], "six tables"),
            ([Some(7168), Some(23), Some(37)], "those are tokens"),
            ([Some(7), None, Some(37)], "without scores: no number yet"),
            ([Some(7), Some(24), Some(37)], "without scores: 24"),
            ([Some(7), Some(47), Some(37)], "tokens × vocabulary"),
            ([Some(7), Some(23), Some(40)], "need room, too"),
            // Cheats: the same number everywhere, and as many as there may be at all.
            ([Some(23), Some(23), Some(23)], "as it is: 23.0 is not it"),
            ([Some(u32::MAX); 3], "as it is"),
        ];
        for (answer, said) in wrong {
            let verdict = sequences_that_fit(answer);
            let all = format!("{} {}", verdict.text(), verdict.clone().hint().text());
            assert!(!verdict.passed() && all.contains(said), "{answer:?}: {all}");
        }
    }
}
