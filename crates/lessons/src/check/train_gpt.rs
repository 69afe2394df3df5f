//! Exercises of lessons 22 and 22a: a training run on paper, and a run with a mistake in it; the loss and its gradient in one kernel.

use super::Verdict;
use super::kernels::{self, first_is, left, scattered, shared_out, unchanged};
use super::on_paper::{diagnosed, number};
use super::verdict::{Check, ask, none_told, told};
use gpulab::cpu;
use gpulab::error::{Error, Result};
use gpulab::gpu::{Gpu, Kernel};
use gpulab::launch::LaunchConfig;
use gpulab::measurement::figures;
use gpulab::warpsim::Kind;

const BLOCK: u32 = 128;
/// Rows and tokens: one token, fewer than a warp, one more than a block, odd numbers; the last one is judged.
const SHAPES: [(usize, usize); 7] = [(1, 1), (3, 2), (5, 33), (2, 129), (7, 300), (4, 1025), JUDGED];
const JUDGED: (usize, usize) = (8, 2048);
/// What random numbers in −1 … 1 are multiplied by, and what is added: mild; far above 0; far below; a few dominate; all alike.
const LOGITS: [(f32, f32); 5] = [(2.0, 0.0), (4.0, 300.0), (4.0, -300.0), (60.0, 0.0), (0.0, 1.0)];

/// Checks a kernel `cross_entropy(const float *logits, const int *targets, float *losses, float *gradients, int vocab, float scale)`:
/// block r of 128 threads writes the cross-entropy of row r into `losses[r]`, and `scale` times its gradient by each logit into
/// `gradients`.
pub fn cross_entropy(source: &str) -> Verdict {
    kernels::verdict("cross_entropy", source, "cross_entropy", mistake_hint, |gpu, kernel| {
        for (shape, numbers) in SHAPES.into_iter().flat_map(|shape| LOGITS.map(|numbers| (shape, numbers))) {
            Rows::new(shape, numbers).check(gpu, kernel)?;
        }
        Ok(())
    })
}

struct Rows {
    rows: usize,
    vocab: usize,
    about: f32,
    logits: Vec<f32>,
    targets: Vec<i32>,
    scale: f32,
}

impl Rows {
    fn new((rows, vocab): (usize, usize), (spread, about): (f32, f32)) -> Rows {
        let seed = (31 * rows + vocab) as u64;
        let logits = cpu::random_f32(rows * vocab, seed).into_iter().map(|x| spread * x + about).collect();
        // The first, the last, and some between.
        let target = |row: usize| [0, vocab - 1, vocab / 2, vocab / 3][row % 4] as i32;
        // No kernel may take the number of rows for it.
        let scale = [1.0 / rows as f32, 0.25, 3.0][vocab % 3];
        Rows { rows, vocab, about, logits, targets: (0..rows).map(target).collect(), scale }
    }

    /// Loss and probabilities of a row, in f64.
    fn exact(&self, row: usize) -> (f64, Vec<f64>) {
        let own = &self.logits[row * self.vocab..][..self.vocab];
        let most = own.iter().copied().fold(f32::NEG_INFINITY, f32::max);
        let exps: Vec<f64> = own.iter().map(|x| (f64::from(*x) - f64::from(most)).exp()).collect();
        let sum: f64 = exps.iter().sum();
        let loss = f64::from(most) + sum.ln() - f64::from(own[self.targets[row] as usize]);
        (loss, exps.into_iter().map(|x| x / sum).collect())
    }

    fn check(&self, gpu: &Gpu, kernel: &Kernel) -> Check {
        let (logits, targets) = (gpu.to_device(&self.logits)?, gpu.to_device(&self.targets)?);
        let mut losses = gpu.poison::<f32>(self.rows)?;
        let mut gradients = gpu.poison::<f32>(self.logits.len())?;
        let config = LaunchConfig::new(self.rows as u32, BLOCK);
        let vocab = self.vocab as i32;
        kernel.launch(config, (&logits, &targets, &mut losses, &mut gradients, vocab, self.scale))?;
        unchanged("logits", &logits, &self.logits)?;
        unchanged("targets", &targets, &self.targets)?;
        let (given_losses, given) = (losses.to_host()?, gradients.to_host()?);
        for row in 0..self.rows {
            let (loss, probabilities) = self.exact(row);
            self.loss_is_right(row, given_losses[row], loss)?;
            let own = &given[row * self.vocab..][..self.vocab];
            self.gradient_is_right(row, own, &probabilities)?;
        }
        if (self.rows, self.vocab) != JUDGED {
            return Ok(());
        }
        let args = (&logits, &targets, &mut losses, &mut gradients, vocab, self.scale);
        let seen = kernel.inspect(config, args)?;
        shared_out(&seen, 0.3)?;
        none_told(
            scattered(&seen).map(|what| format!("right, but its lanes read or write places that lie apart: {what}")),
            "a request costs its sectors: neighbours that take neighbouring numbers share them",
            "let lane i take the tokens i, i + 128, i + 256, …",
        )?;
        // Twice: once for the sum (with a running maximum), once for the gradient. A third look is allowed, a fourth is not.
        let (read, all) = (32 * seen.counters.global_load_sectors as usize, 4 * self.logits.len());
        none_told(
            (read > 3 * all + all / 8).then(|| {
                format!(
                    "right, but it reads {read} bytes, and the logits are {all}: more than three looks at each of them"
                )
            }),
            "maximum, sum and gradient need one pass each",
            "what a pass has found out about the whole row can stay in shared memory: two numbers",
        )
    }

    fn at(&self, row: usize) -> String {
        format!("{} rows of {} tokens, logits around {}: row {row}", self.rows, self.vocab, self.about)
    }

    fn loss_is_right(&self, row: usize, given: f32, right: f64) -> Check {
        let size = f64::from(self.logits.iter().fold(1.0_f32, |most, x| most.max(x.abs())));
        let close = |wanted: f64| (f64::from(given) - wanted).abs() <= 1e-6 * size + 2e-5 * wanted.abs().max(1.0);
        if close(right) {
            return Ok(());
        }
        let what = format!("{}: the loss {}, and it should be {}", self.at(row), left(given), figures(right));
        let (_, probabilities) = self.exact(row);
        let target = self.targets[row] as usize;
        let own = f64::from(self.logits[row * self.vocab + target]);
        let sum = right + own;
        let (meaning, idea) = match () {
            () if given.is_nan() && given.to_bits() == u32::MAX => {
                ("no thread has stored it", "which thread of the block knows the whole sum, and stores the loss?")
            }
            () if !given.is_finite() => (
                "exp of a number above 88 is infinite in f32, and of one below −103 it is 0",
                "what can be taken off all logits of a row without a change of their probabilities?",
            ),
            () if close(sum) => (
                "that is the logarithm of the sum alone",
                "the loss is −ln of the target's probability: what is that, in logits?",
            ),
            () if close(-right) => ("its sign is turned round", "−ln of a number below 1 is above 0"),
            () if close(right * f64::from(self.scale)) => {
                ("it is multiplied by `scale`, which is for the gradients", "the losses are as they are")
            }
            () if close(probabilities[target]) => ("that is the target's probability", "the loss is −ln of it"),
            () if close(right / std::f64::consts::LN_2) => {
                ("that is in bits", "the loss is in nats: the natural logarithm")
            }
            () => (
                "the sum over the row, or its maximum, is not that of all its logits",
                "with 33 tokens and 128 threads: which threads have a logit, and what do the others add?",
            ),
        };
        told(what, meaning, idea)
    }

    fn gradient_is_right(&self, row: usize, given: &[f32], probabilities: &[f64]) -> Check {
        let target = self.targets[row] as usize;
        let scale = f64::from(self.scale);
        let own = |token: usize| if token == target { 1.0 } else { 0.0 };
        let close = |given: f32, wanted: f64| {
            (f64::from(given) - wanted).abs() <= 2e-5 * scale * (wanted / scale).abs().max(0.05)
        };
        let right = |token: usize| scale * (probabilities[token] - own(token));
        let Some(at) = (0..self.vocab).find(|at| !close(given[*at], right(*at))) else { return Ok(()) };
        let all = |wanted: &dyn Fn(usize) -> f64| (0..self.vocab).all(|token| close(given[token], wanted(token)));
        let what = format!(
            "{}: the gradient of token {at} {}, and it should be {}",
            self.at(row),
            left(given[at]),
            figures(right(at))
        );
        let (meaning, idea) = match () {
            () if given[at].is_nan() && given[at].to_bits() == u32::MAX => (
                "nobody has stored it",
                "there are more tokens than threads, or fewer: which tokens does thread i take?",
            ),
            () if !given[at].is_finite() => (
                "exp of a number above 88 is infinite in f32, and ∞ ÷ ∞ is NaN",
                "the gradient needs the same maximum as the loss",
            ),
            () if all(&|token| scale * probabilities[token]) => (
                "these are the probabilities alone",
                "the loss has two terms: what is the derivative of −logit[target] by each logit?",
            ),
            () if all(&|token| -right(token)) => (
                "the sign is wrong: this is the step against the gradient",
                "a larger logit of the target makes the loss smaller",
            ),
            () if all(&|token| right(token) / scale) => ("`scale` is missing", "each gradient is multiplied by it"),
            () if all(&|token| scale * probabilities[token] - own(token)) => {
                ("only one of the two terms is multiplied by `scale`", "scale · (probability − 1), for the target")
            }
            () if all(&|token| scale * own(token)) || given.iter().all(|one| *one == given[0]) && self.vocab > 1 => {
                ("it does not depend on the logits", "the derivative of ln Σ exp by a logit is its probability")
            }
            () => (
                "the derivative of ln Σ exp by a logit is its probability; that of the target's logit is 1",
                "work out a row of three tokens by hand: what do the three gradients add up to?",
            ),
        };
        told(what, meaning, idea)
    }
}

/// What to ask oneself about the first mistake.
fn mistake_hint(error: &Error) -> &'static str {
    if first_is(error, &[Kind::GlobalRace]) {
        "several threads write one number: which of them has the right one, and who should write?"
    } else if first_is(error, &[Kind::BarrierDivergence, Kind::Deadlock]) {
        "all threads of the block must reach that barrier, also those that have no token left"
    } else if first_is(error, &[Kind::SharedRace, Kind::UninitialisedRead]) {
        "who writes that word, and what makes the reader wait for it? And is it free when it is written again?"
    } else {
        "compute the index by hand for that block and thread: is there such a token in the row?"
    }
}

/// The GPU's peak, the share of it that is reached, the seconds and the tokens for each parameter in the question on paper.
const PEAK: f64 = 989e12;
const UTILISATION: f64 = 0.4;
const DAY: f64 = 86_400.0;
const TOKENS_EACH: f64 = 20.0;

/// On paper: a GPU with 989 TFLOP/s trains for 24 hours at a model FLOP utilisation of 40 percent. How many parameters has the
/// model that reads twenty tokens for each of them in that time?
pub fn model_of_a_day(answer: Option<f64>) -> Verdict {
    // 6 · P · (20 · P) operations.
    let parameters = |each: f64, operations: f64| (operations / (each * TOKENS_EACH)).sqrt();
    let operations = UTILISATION * PEAK * DAY;
    let right = parameters(6.0, operations);
    let slips = [
        (right * right, "the parameters stand in this twice: the tokens grow with them"),
        (operations / 6.0, "that is parameters times tokens: how many tokens has each parameter?"),
        (parameters(2.0, operations), "that is the forward pass alone"),
        (parameters(3.0, operations), "a multiply-add is two operations"),
        (parameters(4.0, operations), "the backward pass has two products for each one of the forward pass"),
        (parameters(6.0, operations / UTILISATION), "at the peak: how much of it does this run reach?"),
        (parameters(6.0, operations / DAY * 3600.0), "that is one hour"),
        (parameters(6.0, operations / 60.0), "a day has 86,400 seconds"),
        (parameters(6.0, operations) * TOKENS_EACH, "these are the tokens"),
        (right / 1e6, "as a number, please: these are millions"),
        ((operations / 6.0).sqrt(), "that is one token for each parameter"),
    ];
    let start = "how many operations has the day? And how many does a model of P parameters need for twenty tokens per parameter?";
    number("model_of_a_day", answer, right * 0.98..=right * 1.02, &slips, start)
}

/// What may be wrong with a training run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TrainFault {
    /// Texts longer than the pieces that it was trained on are too much for it.
    LongTexts,
    /// A token sees those that come after it.
    CausalMask,
    /// Positions behind the first piece's were never trained.
    Positions,
    /// It knows its training text by heart, and no other.
    Overfitting,
    /// The targets are the inputs themselves, and not the tokens that follow.
    TargetShift,
}

/// Width of the model, its context, and the pieces that it is trained on in the question.
const ASKED: [f64; 3] = [768.0, 1024.0, 256.0];

/// Checks a diagnosis: what is wrong with the hidden run, and how many parameters of a GPT-2 of width 768 with a context of
/// 1024 never get a gradient when it is trained so, on pieces of 256. `loss` is that of the hidden run's model: for pieces of so many bytes whose first
/// one is at that position of its context of 64.
pub fn diagnose_long_text(diagnosis: Option<(TrainFault, f64)>, loss: impl Fn(usize, usize) -> Result<f64>) -> Verdict {
    let [width, context, piece] = ASKED;
    let right = (context - piece) * width;
    let slips = [
        (context - piece, "that is how many positions: how many parameters does each have?"),
        (context * width, "those are all positions: some are trained"),
        (piece * width, "those are the ones that are trained"),
        (right + width, "the first piece ends at position 255"),
        (12.0 * right, "there is one table of positions, and no further one in the blocks"),
    ];
    let start = "which rows of which table does a piece of 256 tokens read, when it always begins at position 0?";
    let none = "ask for losses that differ in one thing: the length with the same first position, then the position with the same length";
    diagnosed("diagnose_long_text", diagnosis, none, |named| against(named, &loss), right..=right, &slips, start)
}

/// The evidence that speaks for an innocent suspect.
fn against(named: TrainFault, loss: &impl Fn(usize, usize) -> Result<f64>) -> Check {
    let of = |length, first| -> Check<f64> { Ok(ask("", || loss(length, first))??) };
    let what = match named {
        TrainFault::Positions => return Ok(()),
        TrainFault::LongTexts => format!(
            "4 bytes from position 0 on cost {} nats each, and 4 bytes from position 56 on {}: neither is a long text",
            figures(of(4, 0)?),
            figures(of(4, 56)?)
        ),
        TrainFault::CausalMask => format!(
            "16 bytes from position 0 on cost {} nats each: what sees the next byte would pay next to nothing",
            figures(of(16, 0)?)
        ),
        TrainFault::TargetShift => format!(
            "16 bytes from position 0 on cost {} nats each, on what really follows: a model that has learned to repeat its input would pay more than one that guesses, ln 256 = 5.55",
            figures(of(16, 0)?)
        ),
        TrainFault::Overfitting => format!(
            "the text was never trained on, and still 16 bytes of it cost {} nats each from position 0 on, and {} from position 48 on",
            figures(of(16, 0)?),
            figures(of(16, 48)?)
        ),
    };
    told(
        what,
        "keep the length and move the piece; then keep its place and change the length",
        "which of the model's tables knows where a token stands, and which of its rows has training read?",
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::check::kernels::{expect, passes};

    const RIGHT: &str =
        "extern \"C\" __global__ void cross_entropy(const float *logits, const int *targets, float *losses,
                                          float *gradients, int vocab, float scale) {
    __shared__ float parts[4];
    const float *row = logits + (size_t)blockIdx.x * vocab;
    int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    float most = -3.4e38f;
    for (int i = threadIdx.x; i < vocab; i += blockDim.x) { most = fmaxf(most, row[i]); }
    for (int away = 16; away > 0; away /= 2) { most = fmaxf(most, __shfl_xor_sync(~0u, most, away)); }
    if (lane == 0) { parts[warp] = most; }
    __syncthreads();
    most = fmaxf(fmaxf(parts[0], parts[1]), fmaxf(parts[2], parts[3]));
    __syncthreads();
    float sum = 0.0f;
    for (int i = threadIdx.x; i < vocab; i += blockDim.x) { sum += expf(row[i] - most); }
    for (int away = 16; away > 0; away /= 2) { sum += __shfl_xor_sync(~0u, sum, away); }
    if (lane == 0) { parts[warp] = sum; }
    __syncthreads();
    sum = parts[0] + parts[1] + parts[2] + parts[3];
    int target = targets[blockIdx.x];
    if (threadIdx.x == 0) { losses[blockIdx.x] = most + logf(sum) - row[target]; }
    for (int i = threadIdx.x; i < vocab; i += blockDim.x) {
        float p = expf(row[i] - most) / sum;
        gradients[(size_t)blockIdx.x * vocab + i] = scale * (p - (i == target ? 1.0f : 0.0f));
    }
}";

    #[test]
    fn cross_entropy_knows_its_mistakes() {
        expect(
            cross_entropy,
            RIGHT,
            &[
                (
                    "losses[blockIdx.x] = most + logf(sum) - row[target]",
                    "losses[blockIdx.x] = most + logf(sum)",
                    "the logarithm of the sum alone",
                ),
                ("most + logf(sum) - row[target]", "row[target] - most - logf(sum)", "its sign is turned round"),
                ("most + logf(sum) - row[target]", "scale * (most + logf(sum) - row[target])", "multiplied by `scale`"),
                ("most + logf(sum) - row[target]", "expf(row[target] - most) / sum", "the target's probability"),
                ("logf(sum)", "log2f(sum)", "that is in bits"),
                ("float sum = 0.0f;", "most = 0.0f; float sum = 0.0f;", "taken off all logits"),
                ("(i == target ? 1.0f : 0.0f)", "0.0f", "the probabilities alone"),
                ("p - (i == target ? 1.0f : 0.0f)", "(i == target ? 1.0f : 0.0f) - p", "the sign is wrong"),
                ("scale * (p", "1.0f * (p", "`scale` is missing"),
                (
                    "scale * (p - (i == target ? 1.0f : 0.0f))",
                    "scale * p - (i == target ? 1.0f : 0.0f)",
                    "only one of the two terms",
                ),
                ("__syncthreads();\n    float sum", "float sum", "what makes the reader wait"),
                ("sum = parts[0] + parts[1] + parts[2] + parts[3];", "sum = parts[0];", "the sum over the row"),
                (
                    "i < vocab; i += blockDim.x) {\n        float p",
                    "i < blockDim.x; i += blockDim.x) {\n        float p",
                    "is there such a token",
                ),
                (
                    "for (int i = threadIdx.x; i < vocab; i += blockDim.x) {\n        float p",
                    "for (int i = threadIdx.x; i < vocab && i < 128; i += blockDim.x) {\n        float p",
                    "which tokens does thread i take",
                ),
                // Right for mild logits; never above 0; the row in a layout of its own; four looks; one thread; constants; an input changed.
                ("most = -3.4e38f", "most = 0.0f", "hint: "),
                (
                    "for (int i = threadIdx.x; i < vocab; i += blockDim.x) {\n        float p",
                    "int own = (vocab + 127) / 128; for (int i = threadIdx.x * own; i < vocab && i < (threadIdx.x + 1) * own; ++i) {\n        float p",
                    "places that lie apart",
                ),
                (
                    "float sum = 0.0f;",
                    "float sum = 0.0f; for (int i = threadIdx.x; i < vocab; i += blockDim.x) { most = fmaxf(most, ((volatile const float *)row)[i]); }",
                    "more than three looks",
                ),
                ("scale * (p - (i == target ? 1.0f : 0.0f))", "i == target ? -scale : 0.0f", "hint: "),
                ("scale * (p - (i == target ? 1.0f : 0.0f))", "0.0f", "does not depend on the logits"),
                (
                    "float p = expf(row[i] - most) / sum;",
                    "float p = expf(row[i] - most) / sum; ((float *)row)[i] = p;",
                    "the input `logits` has changed",
                ),
            ],
        );
        let one = "extern \"C\" __global__ void cross_entropy(const float *logits, const int *targets, float *losses, float *gradients, int vocab, float scale) {
    if (threadIdx.x > 0) { return; }
    const float *row = logits + blockIdx.x * vocab;
    float most = row[0], sum = 0.0f;
    for (int i = 1; i < vocab; ++i) { most = fmaxf(most, row[i]); }
    for (int i = 0; i < vocab; ++i) { sum += expf(row[i] - most); }
    losses[blockIdx.x] = most + logf(sum) - row[targets[blockIdx.x]];
    for (int i = 0; i < vocab; ++i) { gradients[blockIdx.x * vocab + i] = scale * (expf(row[i] - most) / sum - (i == targets[blockIdx.x])); }
}";
        let text = cross_entropy(one).text();
        assert!(text.contains("not shared out"), "{text}");
        // The maximum and the sum in one look, and the gradient as a difference that is corrected.
        let online = RIGHT
            .replace(
                "for (int i = threadIdx.x; i < vocab; i += blockDim.x) { most = fmaxf(most, row[i]); }",
                "float sum = 0.0f;
    for (int i = threadIdx.x; i < vocab; i += blockDim.x) {
        float larger = fmaxf(most, row[i]);
        sum = sum * expf(most - larger) + expf(row[i] - larger);
        most = larger;
    }
    float own = most;",
            )
            .replace(
                "float sum = 0.0f;
    for (int i = threadIdx.x; i < vocab; i += blockDim.x) { sum += expf(row[i] - most); }",
                "sum *= expf(own - most);",
            );
        passes(cross_entropy, &[&online]);
    }

    #[test]
    fn the_model_of_a_day_is_worked_out() {
        let operations = 0.4 * 989e12 * 86_400.0;
        let right = f64::sqrt(operations / 120.0);
        assert!(model_of_a_day(Some(right)).passed() && model_of_a_day(Some(534e6)).passed());
        for (answer, said) in [
            (None, "no number yet"),
            (Some(right * right), "stand in this twice"),
            (Some(operations / 6.0), "how many tokens has each"),
            (Some(right * 3f64.sqrt()), "the forward pass alone"),
            (Some(right * 2f64.sqrt()), "a multiply-add is two"),
            (Some(right * 1.5f64.sqrt()), "two products for each"),
            (Some(right / 0.4f64.sqrt()), "at the peak"),
            (Some(right / 24f64.sqrt()), "that is one hour"),
            (Some(right * 20.0), "these are the tokens"),
            (Some(right / 1e6), "these are millions"),
            (Some(right * 20f64.sqrt()), "one token for each"),
            (Some(1e3), "how many operations"),
            (Some(f64::NAN), "is no answer"),
            (Some(0.0), "is no answer"),
        ] {
            let text = model_of_a_day(answer).text();
            assert!(text.starts_with("NOT YET") && text.contains(said), "{answer:?}: {text}");
        }
    }

    #[test]
    fn only_losses_convict_the_positions() {
        let loss = |length: usize, first: usize| Ok(if first + length <= 16 { 2.3 } else { 2.9 });
        let check = |diagnosis| diagnose_long_text(diagnosis, loss);
        let right = Some((TrainFault::Positions, 589_824.0));
        assert!(check(right).passed(), "{}", check(right).text());
        use TrainFault::{CausalMask, LongTexts, Overfitting, Positions, TargetShift};
        for (wrong, said) in [
            (None, "no diagnosis yet"),
            (Some((LongTexts, 589_824.0)), "neither is a long text"),
            (Some((CausalMask, 589_824.0)), "next to nothing"),
            (Some((TargetShift, 589_824.0)), "more than one that guesses"),
            (Some((Overfitting, 589_824.0)), "never trained on"),
            (Some((Positions, 768.0)), "how many parameters does each have"),
            (Some((Positions, 786_432.0)), "some are trained"),
            (Some((Positions, 196_608.0)), "are trained"),
            (Some((Positions, 590_592.0)), "ends at position 255"),
            (Some((Positions, 7_077_888.0)), "one table of positions"),
            (Some((Positions, 3.0)), "which rows of which table"),
            (Some((Positions, f64::INFINITY)), "is no answer"),
        ] {
            let text = check(wrong).text();
            assert!(text.starts_with("NOT YET") && text.contains(said), "{wrong:?}: {text}");
        }
        let broken = diagnose_long_text(Some((LongTexts, 1.0)), |_, _| panic!("no run")).text();
        assert!(broken.contains("panicked: no run"), "{broken}");
    }
}
