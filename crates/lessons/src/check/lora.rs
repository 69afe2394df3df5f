//! Exercises of lesson 50: the forward pass of an adapter, QLoRA's memory on paper, and an adapter whose source stays hidden
//! until its mistake is named.

use super::Verdict;
use super::on_paper::{diagnosed, number};
use super::verdict::{Check, ask, timed, told, wrong};
use gpulab::cpu;
use gpulab::error::{Error, Result};
use gpulab::measurement::figures;
use std::fmt;

/// The shape of a linear layer with an adapter, and of its inputs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct AdapterShape {
    /// Rows of x, and of the result.
    pub rows: usize,
    /// Numbers in a row of x.
    pub inputs: usize,
    /// Numbers in a row of the result.
    pub outputs: usize,
    /// Rows of A, columns of B.
    pub rank: usize,
}

/// The reader's forward pass: (x `[rows, inputs]`, weight `[outputs, inputs]`, a `[rank, inputs]`, b `[outputs, rank]`, shape, alpha).
pub type AdapterForward = fn(&[f32], &[f32], &[f32], &[f32], AdapterShape, f32) -> Vec<f32>;

struct Case {
    shape: AdapterShape,
    alpha: f32,
    x: Vec<f32>,
    weight: Vec<f32>,
    a: Vec<f32>,
    b: Vec<f32>,
}

fn cases() -> Vec<Case> {
    // Sides that are all different, so that a transposed matrix shows; alpha at, below and above the rank; and one of each.
    let shapes = [
        (1, 3, 2, 1, 1.0),
        (2, 5, 4, 2, 2.0),
        (4, 7, 3, 3, 6.0),
        (3, 4, 9, 2, 1.0),
        (5, 16, 12, 8, 16.0),
        (2, 6, 6, 6, 3.0),
    ];
    let case = |(at, (rows, inputs, outputs, rank, alpha)): (usize, (usize, usize, usize, usize, f32))| {
        let random = |n: usize, part: u64| cpu::random_f32(n, 10 * at as u64 + part);
        Case {
            shape: AdapterShape { rows, inputs, outputs, rank },
            alpha,
            x: random(rows * inputs, 1),
            weight: random(outputs * inputs, 2),
            a: random(rank * inputs, 3),
            b: random(outputs * rank, 4),
        }
    };
    shapes.into_iter().enumerate().map(case).collect()
}

impl Case {
    fn name(&self) -> String {
        let AdapterShape { rows, inputs, outputs, rank } = self.shape;
        format!("{rows} rows, {inputs} inputs, {outputs} outputs, rank {rank}, alpha {}", self.alpha)
    }

    /// weight · `of_weight` + factor · B · A, in f64.
    fn sum(&self, of_weight: f64, factor: f64) -> Vec<f64> {
        let AdapterShape { inputs, outputs, rank, .. } = self.shape;
        let one = |at: usize| {
            let (o, i) = (at / inputs, at % inputs);
            let low: f64 = (0..rank).map(|r| f64::from(self.b[o * rank + r]) * f64::from(self.a[r * inputs + i])).sum();
            of_weight * f64::from(self.weight[at]) + factor * low
        };
        (0..outputs * inputs).map(one).collect()
    }

    /// x · weightᵀ.
    fn through(&self, weight: &[f64]) -> Vec<f64> {
        let AdapterShape { rows, inputs, outputs, .. } = self.shape;
        let dot = |row: usize, o: usize| {
            (0..inputs).map(|i| f64::from(self.x[row * inputs + i]) * weight[o * inputs + i]).sum()
        };
        (0..rows * outputs).map(|at| dot(at / outputs, at % outputs)).collect()
    }

    fn scale(&self) -> f64 {
        f64::from(self.alpha) / self.shape.rank as f64
    }

    /// The mistakes that make other sums, each with its hint.
    fn slips(&self) -> [(f64, f64, &'static str); 6] {
        let (scale, alpha) = (self.scale(), f64::from(self.alpha));
        [
            (1.0, 0.0, "this is the frozen layer alone: what does the adapter add?"),
            (0.0, scale, "this is the adapter alone: it stands beside the frozen weight and does not replace it"),
            (1.0, 1.0, "nothing is scaled here: what are alpha and the rank for?"),
            (1.0, alpha, "the adapter is too large at every rank but 1: alpha is to be shared by something"),
            (1.0, scale * scale, "the scale is in there more than once"),
            (1.0, -scale, "the adapter has the wrong sign"),
        ]
    }
}

fn close(given: &[f32], right: &[f64]) -> bool {
    given.iter().zip(right).all(|(given, right)| (f64::from(*given) - right).abs() <= 1e-4 + 1e-4 * right.abs())
}

fn first_off(given: &[f32], right: &[f64]) -> usize {
    let off = |at: &usize| {
        let gap = (f64::from(given[*at]) - right[*at]).abs();
        gap.is_nan() || gap > 1e-4 + 1e-4 * right[*at].abs()
    };
    (0..right.len()).find(off).unwrap_or(0)
}

const START: &str = "two products: x through A gives `rank` numbers a row, and these through B give `outputs` numbers, which are scaled and added to those of the weight";

/// Checks the forward pass of a linear layer with an adapter: x · Wᵀ + (alpha / rank) · (x · Aᵀ) · Bᵀ.
pub fn lora_forward(answer: AdapterForward) -> Verdict {
    timed("lora_forward", move || {
        for case in cases() {
            let Case { shape, alpha, x, weight, a, b } = &case;
            let name = case.name();
            let given = ask(&name, || answer(x, weight, a, b, *shape, *alpha))?;
            let right = case.through(&case.sum(1.0, case.scale()));
            if given.len() != right.len() {
                return wrong(
                    format!("{name}: {} numbers come out, and {} are asked for", given.len(), right.len()),
                    START,
                );
            }
            if close(&given, &right) {
                continue;
            }
            let slip = case.slips().into_iter().find(|(w, f, _)| close(&given, &case.through(&case.sum(*w, *f))));
            let at = first_off(&given, &right);
            let what = format!(
                "{name}: number {} of row {} is {}, and should be {}",
                at % shape.outputs,
                at / shape.outputs,
                given[at],
                figures(right[at])
            );
            let meaning = slip
                .map_or("write down the shape of each matrix beside it: which index runs over which side?", |slip| {
                    slip.2
                });
            return told(what, meaning, START);
        }
        Ok(())
    })
}

/// Weights of the question's model: in the layers' matrices, and all others.
const WIDTH: f64 = 4096.0;
const INNER: f64 = 11008.0;
const LAYERS: f64 = 32.0;
const OTHERS: f64 = 2.0 * 32000.0 * WIDTH;
const RANK: f64 = 16.0;

/// On paper: GB (10⁹ bytes) that QLoRA holds before activations. A Llama of 32 layers, width 4096, middle 11008, as many heads of keys as
/// of queries, vocabulary 32000 with two matrices; layers in NF4 with double quantization, the rest in bf16; adapters of rank 16 beside
/// all seven matrices, with gradients and AdamW's two means, all in f32.
pub fn qlora_memory(answer: Option<f64>) -> Verdict {
    let matrices = LAYERS * (4.0 * WIDTH * WIDTH + 3.0 * WIDTH * INNER);
    let adapters = LAYERS * RANK * (4.0 * 2.0 * WIDTH + 3.0 * (WIDTH + INNER));
    let bits = 4.0 + 8.0 / 64.0 + 32.0 / (64.0 * 256.0);
    let sum = |bits: f64, other: f64, adapter: f64| (matrices * bits / 8.0 + OTHERS * other + adapters * adapter) / 1e9;
    let right = sum(bits, 2.0, 16.0);
    let slips = [
        (sum(4.0, 2.0, 16.0), "the codes alone: what do the scales cost?"),
        (sum(4.5, 2.0, 16.0), "that is a scale in f32 for each 64: by double quantization they cost less"),
        (sum(bits, 0.0, 16.0), "embedding and last matrix are there as well"),
        (sum(bits, 1.0, 16.0), "the model has two matrices with a row for each token"),
        (sum(bits, 4.0, 16.0), "what is not quantized is in bf16"),
        (sum(bits, bits / 8.0, 16.0), "embedding and last matrix are not quantized"),
        (sum(bits, 2.0, 4.0), "the adapters have companions while they learn"),
        (sum(bits, 2.0, 8.0), "AdamW remembers two numbers for each one that learns"),
        (sum(bits, 2.0, 12.0), "one of the adapters' companions is missing"),
        (sum(bits, 2.0, 0.0), "the adapters themselves are missing"),
        (sum(2.0 * 8.0, 2.0, 16.0), "the layers' matrices are in four bits"),
        (sum(bits, 2.0, 16.0) * 1e9 / 2_f64.powi(30), "in 10⁹ bytes, please"),
        (sum(8.0 * bits, 2.0, 16.0), "a byte has eight bits"),
    ];
    let start = "three parts: the layers' matrices in bits, embedding and last matrix in bf16, and 4 numbers for each one that learns";
    number("qlora_memory", answer, right * 0.995..=right * 1.005, &slips, start)
}

// ----------------------------------------------------------------------
// An adapter that learns in a strange way.

/// What may be wrong with an adapter.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AdapterFault {
    /// A and B both begin as zeros.
    BothZero,
    /// No gradient gets through to A.
    GradientCut,
    /// The scale alpha / rank is left out.
    ScaleMissing,
    /// The scale alpha / rank is applied twice.
    ScaleTwice,
    /// The frozen weight is trained as well.
    BaseMoves,
    /// The learning rate is too high.
    RateTooHigh,
}

/// What the hidden training did, step by step.
#[derive(Debug, Clone)]
#[must_use = "a report shows itself as the last expression of a cell, without a semicolon"]
pub struct AdapterReport {
    /// Rank of the adapter.
    pub rank: usize,
    /// Its alpha.
    pub alpha: f64,
    /// Of each step, before it was made: the loss, the norms of the gradients of A and B, of what the adapter adds to the weight, and of
    /// what the weight has changed by.
    pub steps: Vec<[f64; 5]>,
}

const SIDE: usize = 8;
const SAMPLES: usize = 24;
const RATE: f64 = 0.02;
/// What a report may ask for.
const MOST_ALPHA: f64 = 16.0;
const MOST_STEPS: usize = 8;
/// The adapter that the question asks about.
const ASKED: (f64, f64) = (8.0, 32.0);

const SOURCE: &str = "fn forward(&self, x: &Tensor) -> Result<Tensor> {
    let low = (x.matmul(&self.a.t()?)? * self.scale)?;     // alpha / rank ...
    let added = (low.matmul(&self.b.t()?)? * self.scale)?; // ... and here again
    self.frozen.product(x)? + added
}";

fn norm(values: &[f64]) -> f64 {
    values.iter().map(|x| x * x).sum::<f64>().sqrt()
}

/// [rows, inner] · [inner, columns].
fn product(a: &[f64], b: &[f64], inner: usize) -> Vec<f64> {
    let (rows, columns) = (a.len() / inner, b.len() / inner);
    let dot = |at: usize| (0..inner).map(|i| a[at / columns * inner + i] * b[i * columns + at % columns]).sum();
    (0..rows * columns).map(dot).collect()
}

fn transposed(a: &[f64], columns: usize) -> Vec<f64> {
    let rows = a.len() / columns;
    (0..a.len()).map(|at| a[at % rows * columns + at / rows]).collect()
}

/// Trains the hidden adapter beside a small frozen weight, towards another weight, by plain gradient descent.
///
/// # Errors
/// [`Error::Invalid`] for a rank that is not 1 to 8, an alpha that is not above 0 and up to 16, or more than 8 steps.
pub fn adapter_report(rank: usize, alpha: f64, steps: usize) -> Result<AdapterReport> {
    if !(1..=SIDE).contains(&rank)
        || !(f64::MIN_POSITIVE..=MOST_ALPHA).contains(&alpha)
        || !(1..=MOST_STEPS).contains(&steps)
    {
        return Err(Error::invalid(
            format!("rank {rank}, alpha {alpha}, {steps} steps"),
            format!(
                "ask for a rank of 1 to {SIDE}, an alpha up to {MOST_ALPHA} and 1 to {MOST_STEPS} steps; the rest can be worked out"
            ),
        ));
    }
    let scale = alpha / rank as f64;
    Ok(AdapterReport { rank, alpha, steps: trained(rank, scale * scale, steps) })
}

/// With that factor in front of B · A.
fn trained(rank: usize, factor: f64, steps: usize) -> Vec<[f64; 5]> {
    let random = |n: usize, seed: u64| cpu::random_f32(n, seed).into_iter().map(f64::from).collect::<Vec<f64>>();
    let (weight, x) = (random(SIDE * SIDE, 1), random(SAMPLES * SIDE, 2));
    let wanted: Vec<f64> = weight.iter().zip(random(SIDE * SIDE, 3)).map(|(w, d)| w + 0.3 * d).collect();
    let (mut a, mut b) = (random(rank * SIDE, 4), vec![0.0; SIDE * rank]);
    let mut seen = Vec::new();
    for _ in 0..steps {
        let added: Vec<f64> = product(&b, &a, rank).into_iter().map(|x| factor * x).collect();
        let off: Vec<f64> = (0..SIDE * SIDE).map(|at| weight[at] + added[at] - wanted[at]).collect();
        let error = product(&x, &transposed(&off, SIDE), SIDE); // [samples, outputs]
        let of_weight: Vec<f64> =
            product(&transposed(&error, SIDE), &x, SAMPLES).iter().map(|g| g / SAMPLES as f64).collect();
        let of_b: Vec<f64> = product(&of_weight, &transposed(&a, SIDE), SIDE).iter().map(|g| factor * g).collect();
        let of_a: Vec<f64> = product(&transposed(&b, rank), &of_weight, SIDE).iter().map(|g| factor * g).collect();
        let loss = 0.5 * error.iter().map(|e| e * e).sum::<f64>() / SAMPLES as f64;
        seen.push([loss, norm(&of_a), norm(&of_b), norm(&added), 0.0]);
        a.iter_mut().zip(&of_a).for_each(|(a, g)| *a -= RATE * g);
        b.iter_mut().zip(&of_b).for_each(|(b, g)| *b -= RATE * g);
    }
    seen
}

impl fmt::Display for AdapterReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "rank {}, alpha {}:", self.rank, self.alpha)?;
        for (step, [loss, a, b, added, moved]) in self.steps.iter().enumerate() {
            writeln!(
                f,
                "   step {}: loss {loss:>9.4}   gradient of A {a:>8.4}, of B {b:>8.4}   the adapter adds {added:>8.4}, the weight has moved by {moved}",
                step + 1
            )?;
        }
        Ok(())
    }
}

impl AdapterReport {
    /// What the notebook calls to show a value.
    pub fn evcxr_display(&self) {
        print!("{self}");
    }
}

/// Checks a diagnosis: what is wrong, and how many times as large as it should be is what an adapter of rank 8 and alpha 32 adds, with the
/// same A and B.
pub fn diagnose_adapter(diagnosis: Option<(AdapterFault, f64)>) -> Verdict {
    let right = ASKED.1 / ASKED.0;
    let slips = [
        (right * right, "that is the factor that is applied; how many times the right one is it?"),
        (ASKED.1, "that is alpha: what should the factor be, and what is it?"),
        (1.0 / right, "the other way round: it adds more than it should"),
        (ASKED.0, "that is the rank: what should the factor be, and what is it?"),
        (2.0, "that is how the reports with alpha = 2 · rank differ; here alpha is larger"),
    ];
    let start = "write down the factor in front of B · A as it should be, and as it is, for alpha 32 and rank 8";
    let none = "ask for reports that differ in one thing. Before the first step A and the weight are the same in all of them: how should the first gradient of B change with alpha?";
    diagnosed("diagnose_adapter", diagnosis, none, against, right * 0.999..=right * 1.001, &slips, start)
}

/// What speaks for an innocent suspect.
fn against(named: AdapterFault) -> Check {
    let report = |alpha| adapter_report(4, alpha, 2);
    let (four, eight) = (report(4.0)?, report(8.0)?);
    let [_, first_a, first_b, ..] = four.steps[0];
    let what = match named {
        AdapterFault::ScaleTwice => return Ok(()),
        AdapterFault::BothZero => {
            format!("with rank 4 and alpha 4 the first gradient of B is {}: with A = 0 it would be 0", figures(first_b))
        }
        AdapterFault::GradientCut => format!(
            "A's gradient is {first_a} in the first step, as B is 0 there, and {} in the second one",
            figures(four.steps[1][1])
        ),
        AdapterFault::ScaleMissing => format!(
            "with rank 4 the first gradient of B is {} at alpha 4 and {} at alpha 8: alpha does count",
            figures(first_b),
            figures(eight.steps[0][2])
        ),
        AdapterFault::BaseMoves => "the weight has moved by 0 in every step of every report".to_string(),
        AdapterFault::RateTooHigh => format!(
            "the first gradient of B is taken before any step was made, and it is {} times as large at alpha 8 as at alpha 4",
            figures(eight.steps[0][2] / first_b)
        ),
    };
    told(
        what,
        "compare the first gradients of B at one rank: by how much do they change when alpha is doubled?",
        "y = W · x + factor · B · A · x, so the gradient of B is the factor times something that does not depend on alpha",
    )
}

/// The hidden layer's own line, for who has found its mistake.
pub fn revealed_adapter(diagnosis: Option<(AdapterFault, f64)>) -> &'static str {
    diagnose_adapter(diagnosis).reveals(SOURCE)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn no(verdict: &Verdict, says: &str) {
        let text = verdict.text();
        assert!(text.starts_with("NOT YET") && text.contains(says), "{says}: {text}");
    }

    /// weight · `w` + `f(scale)` · B · A, with the sum over any index.
    fn forward(x: &[f32], weight: &[f32], a: &[f32], b: &[f32], s: AdapterShape, w: f32, factor: f32) -> Vec<f32> {
        let mut y = Vec::new();
        for row in x.chunks(s.inputs) {
            let low: Vec<f32> = a.chunks(s.inputs).map(|a| a.iter().zip(row).map(|(a, x)| a * x).sum()).collect();
            for o in 0..s.outputs {
                let own: f32 = weight[o * s.inputs..][..s.inputs].iter().zip(row).map(|(w, x)| w * x).sum();
                let added: f32 = b[o * s.rank..][..s.rank].iter().zip(&low).map(|(b, l)| b * l).sum();
                y.push(w * own + factor * added);
            }
        }
        y
    }

    #[test]
    fn forward_right_and_wrong() {
        let right = lora_forward(|x, w, a, b, s, alpha| forward(x, w, a, b, s, 1.0, alpha / s.rank as f32));
        assert!(right.passed(), "{}", right.text());
        no(&lora_forward(|x, w, a, b, s, _| forward(x, w, a, b, s, 1.0, 0.0)), "frozen layer alone");
        no(&lora_forward(|x, w, a, b, s, alpha| forward(x, w, a, b, s, 0.0, alpha / s.rank as f32)), "adapter alone");
        no(&lora_forward(|x, w, a, b, s, _| forward(x, w, a, b, s, 1.0, 1.0)), "nothing is scaled");
        no(&lora_forward(|x, w, a, b, s, alpha| forward(x, w, a, b, s, 1.0, alpha)), "shared by something");
        no(
            &lora_forward(|x, w, a, b, s, alpha| forward(x, w, a, b, s, 1.0, (alpha / s.rank as f32).powi(2))),
            "more than once",
        );
        // B read as if it lay transposed, and only the first row.
        let turned = |x: &[f32], w: &[f32], a: &[f32], b: &[f32], s: AdapterShape, alpha: f32| {
            let b: Vec<f32> = (0..b.len()).map(|at| b[at % s.rank * s.outputs + at / s.rank]).collect();
            forward(x, w, a, &b, s, 1.0, alpha / s.rank as f32)
        };
        no(&lora_forward(turned), "shape of each matrix");
        no(
            &lora_forward(|x, w, a, b, s, alpha| forward(&x[..s.inputs], w, a, b, s, 1.0, alpha / s.rank as f32)),
            "numbers come out",
        );
        // Cheats: nothing, NaN, a panic.
        no(&lora_forward(|_, _, _, _, s, _| vec![0.0; s.rows * s.outputs]), "should be");
        no(&lora_forward(|_, _, _, _, s, _| vec![f32::NAN; s.rows * s.outputs]), "NaN");
        no(&lora_forward(|_, _, _, _, _, _| panic!("not yet")), "panicked: not yet");
    }

    #[test]
    fn memory_right_and_wrong() {
        for right in [4.50, 4.505, 4.51] {
            assert!(qlora_memory(Some(right)).passed(), "{}", qlora_memory(Some(right)).text());
        }
        for (answer, says) in [
            (4.402, "what do the scales cost"),
            (4.807, "by double quantization"),
            (3.981, "are there as well"),
            (4.026, "companions while they learn"),
            (4.186, "remembers two numbers"),
            (4.346, "companions is missing"),
            (4.196, "in 10⁹ bytes"),
            (14.12, "in four bits"),
            (100.0, "three parts"),
        ] {
            no(&qlora_memory(Some(answer)), says);
        }
        no(&qlora_memory(None), "no number yet");
        for cheat in [f64::NAN, f64::INFINITY, 0.0, -4.505] {
            no(&qlora_memory(Some(cheat)), "is no answer");
        }
    }

    #[test]
    fn only_the_scale_applied_twice_is_guilty() {
        use AdapterFault::{BaseMoves, BothZero, GradientCut, RateTooHigh, ScaleMissing, ScaleTwice};
        let right = diagnose_adapter(Some((ScaleTwice, 4.0)));
        assert!(right.passed(), "{}", right.text());
        for (fault, says) in [
            (BothZero, "with A = 0"),
            (GradientCut, "in the second one"),
            (ScaleMissing, "alpha does count"),
            (BaseMoves, "moved by 0"),
            (RateTooHigh, "4.00 times as large"),
        ] {
            no(&diagnose_adapter(Some((fault, 4.0))), says);
        }
        for (times, says) in [
            (16.0, "factor that is applied"),
            (32.0, "that is alpha"),
            (0.25, "other way round"),
            (8.0, "that is the rank"),
            (2.0, "here alpha is larger"),
            (5.0, "write down the factor"),
            (f64::NAN, "is no answer"),
            (f64::INFINITY, "is no answer"),
        ] {
            no(&diagnose_adapter(Some((ScaleTwice, times))), says);
        }
        no(&diagnose_adapter(None), "no diagnosis yet");
        assert!(revealed_adapter(None).contains("when the diagnosis is right"));
        assert!(revealed_adapter(Some((ScaleTwice, 4.0))).contains("here again"));
    }

    #[test]
    fn the_reports_show_the_fault_and_the_training_learns() {
        let report = |rank, alpha| adapter_report(rank, alpha, 8).unwrap();
        let first_b = |rank, alpha| report(rank, alpha).steps[0][2];
        assert!((first_b(4, 8.0) / first_b(4, 4.0) - 4.0).abs() < 1e-9);
        let (once, right) = (report(4, 4.0).steps, trained(4, 1.0, 8));
        assert_eq!(once, right, "with a scale of 1 nothing is wrong");
        assert!(once[7][0] < once[0][0] && once[0][1] == 0.0 && once[1][1] > 0.0);
        // The first gradient of B is that of a difference.
        assert!(report(2, 2.0).to_string().contains("step 8"));
        for (rank, alpha, steps) in
            [(0, 4.0, 1), (9, 4.0, 1), (4, 0.0, 1), (4, 17.0, 1), (4, f64::NAN, 1), (4, 4.0, 9), (4, 4.0, 0)]
        {
            assert!(adapter_report(rank, alpha, steps).unwrap_err().to_string().contains("can be worked out"));
        }
    }
}
