//! Exercises of lesson 22a: how many sequences of a training step have room in a GPU's memory, and what helps against a slow step.

use super::Verdict;
use super::on_paper::{Slip, part};
use super::verdict::{Check, verdict, wrong};

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

/// What helps against a slow step.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Cure {
    /// The GPU waits for the host: submit the same kernels as one CUDA graph.
    Graph,
    /// Each kernel is as fast as memory: let one kernel do what a chain of them does.
    Fuse,
    /// A kernel takes many times as long as its bytes need: write it anew.
    BetterKernel,
}

/// Kernels of one kind in a step: name, launches, ms of all of them, MB that one reads and writes.
type Kind = (&'static str, u32, f64, f64);

/// A step's ms, its kernels, and what there is to know of their arrays.
struct Step {
    ms: f64,
    kinds: &'static [Kind],
    arrays: &'static str,
}

/// GB/s of the question's memory, which a good kernel reaches.
const MEMORY: f64 = 4000.0;
const STEPS: [Step; 3] = [
    Step {
        ms: 19.8,
        kinds: &[
            ("products", 96, 11.2, 0.0),
            ("scale", 12, 2.4, 800.0),
            ("add", 12, 3.6, 1200.0),
            ("tanh", 12, 2.4, 800.0),
        ],
        arrays: "tanh(0.5 · x + z), in three kernels; x, z and each result have 400 MB",
    },
    Step {
        ms: 19.8,
        kinds: &[("products", 480, 4.8, 0.0), ("scale", 600, 1.2, 6.0), ("add", 600, 1.4, 8.0)],
        arrays: "0.5 · x + z, in two kernels; x and each result have 3 MB, z has 2 MB",
    },
    Step {
        ms: 19.8,
        kinds: &[("products", 96, 11.2, 0.0), ("softmax", 12, 8.4, 800.0)],
        arrays: "softmax of a table of 400 MB, in one kernel, which reads and writes it once",
    },
];

/// Three steps with their kernels, as lesson 22a prints such lists; all of them are made up.
pub fn kernel_lists() -> String {
    let kind = |&(name, launches, ms, mb): &Kind| {
        let bytes = if mb > 0.0 { format!(", {mb:>5.0} MB moved by each") } else { String::new() };
        format!("   {name:<10}{launches:>4} launches {ms:>6.1} ms{bytes}\n")
    };
    let step = |(at, step): (usize, &Step)| {
        let kinds: String = step.kinds.iter().map(kind).collect();
        format!("{}: the step takes {:.1} ms\n{kinds}   ({})\n", at + 1, step.ms, step.arrays)
    };
    STEPS.iter().enumerate().map(step).collect()
}

/// What helps each of [`kernel_lists`]' steps, and how many ms the step takes then at best, with all else as it is.
pub fn step_cures(answer: [Option<(Cure, f64)>; 3]) -> Verdict {
    verdict("step_cures", || {
        for (at, given) in answer.into_iter().enumerate() {
            let name = format!("step {}", at + 1);
            let (ms, all) = (STEPS[at].ms, STEPS[at].kinds.iter().map(|kind| kind.2).sum::<f64>());
            let others = all - STEPS[at].kinds[0].2;
            let pass = |mb: f64| 12.0 * mb / MEMORY; // ms of twelve launches
            let (cure, best, slips): (Cure, f64, Vec<Slip>) = match at {
                0 => {
                    let slips = vec![
                        (ms - others, "the fused kernel reads and writes, too"),
                        (ms - others + pass(800.0), "which arrays does the fused kernel read? z is one of them"),
                        (
                            ms - others + pass(400.0),
                            "which arrays does the fused kernel read, and which does it write?",
                        ),
                    ];
                    (Cure::Fuse, ms - others + pass(1200.0), slips)
                }
                1 => {
                    let slips = vec![
                        (ms - others, "those kernels stay; what goes is the time in which none runs"),
                        (ms - all, "that is the time in which no kernel runs"),
                        (STEPS[at].kinds[0].2, "the graph has the other kernels in it, too"),
                    ];
                    (Cure::Graph, all, slips)
                }
                _ => {
                    let slips = vec![
                        (ms - others, "the table is still read and written"),
                        (ms - others + pass(400.0), "the table is read *and* written"),
                    ];
                    (Cure::BetterKernel, ms - others + pass(800.0), slips)
                }
            };
            let given = given.map(|(named, ms)| named_right(&name, at, named, cure).map(|()| ms)).transpose()?;
            let start =
                "what stays as it is? Then: how long do the bytes take that the cure leaves, at the memory's speed?";
            part(&name, given, best - 0.15..=best + 0.15, &slips, start)?;
        }
        Ok(())
    })
}

/// Whether the cure is the right one for that step.
fn named_right(name: &str, at: usize, given: Cure, right: Cure) -> Check<()> {
    if given == right {
        return Ok(());
    }
    let why = match (at, given) {
        (1, _) => "add up the lines: what does the GPU do in the rest of the step?",
        (_, Cure::Graph) => "add up the lines: how long does the GPU stand still, that a graph could save?",
        (_, _) => "divide what a launch moves by its time: is that near the memory's speed, or far below it?",
    };
    wrong(format!("{name}: {given:?} is not what helps most"), why)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_step_gets_its_own_cure() {
        let right = [Some((Cure::Fuse, 15.0)), Some((Cure::Graph, 7.4)), Some((Cure::BetterKernel, 13.8))];
        assert!(step_cures(right).passed(), "{}", step_cures(right).text());
        let with = |at: usize, cure: Cure, ms: f64| {
            let mut answer = right;
            answer[at] = Some((cure, ms));
            answer
        };
        let wrong = [
            ([None; 3], "step 1: no number yet"),
            (with(0, Cure::Graph, 15.0), "stand still"),
            (with(0, Cure::BetterKernel, 15.0), "near the memory's speed"),
            (with(0, Cure::Fuse, 11.4), "reads and writes, too"),
            (with(0, Cure::Fuse, 13.8), "z is one of them"),
            (with(1, Cure::Fuse, 7.4), "in the rest of the step"),
            (with(1, Cure::Graph, 17.2), "in which none runs"),
            (with(1, Cure::Graph, 12.4), "in which no kernel runs"),
            (with(2, Cure::Fuse, 13.8), "near the memory's speed"),
            (with(2, Cure::BetterKernel, 11.4), "still read and written"),
            (with(2, Cure::BetterKernel, 12.6), "*and*"),
            // Cheats: one answer for all.
            ([Some((Cure::Fuse, 15.0)); 3], "step 2"),
        ];
        for (answer, said) in wrong {
            let verdict = step_cures(answer);
            let all = format!("{} {}", verdict.text(), verdict.clone().hint().text());
            assert!(!verdict.passed() && all.contains(said), "{answer:?}: {all}");
        }
        assert_eq!(kernel_lists().matches("the step takes").count(), 3);
    }

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
