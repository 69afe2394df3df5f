//! Exercises of lessons 20 and 20a.

use super::Verdict;
use super::verdict::{ask, timed, wrong};

type AdamState = [f64; 3];

const RATE: f64 = 1e-3;
const DECAY: f64 = 0.01;
const EPSILON: f64 = 1e-8;

/// Checks a function that makes step `t` (from 1) of AdamW for one weight: from weight, mean of gradients and mean of their
/// squares, and the gradient, to the first three after it. The learning rate is 0.001, the decay 0.01, the betas 0.9 and
/// 0.999, epsilon 1e-8.
pub fn adamw(answer: fn(state: [f64; 3], gradient: f64, t: i32) -> [f64; 3]) -> Verdict {
    timed("adamw", move || {
        for gradients in [[0.5, 0.25, -1.0, 2.0], [0.0; 4], [1e-9, -1e-9, 3e-9, 1e-9]] {
            let mut state = [0.8, 0.0, 0.0];
            for (at, gradient) in gradients.into_iter().enumerate() {
                let t = at as i32 + 1;
                let expected = step(state, gradient, t);
                let given = ask("", || answer(state, gradient, t))?;
                if !same(given, expected) {
                    let what = format!(
                        "step {t}, weight, m and v {state:?}, gradient {gradient}: you give {given:?}, and it should be {expected:?}"
                    );
                    return wrong(what, hint(given, expected, state, gradient, t));
                }
                state = expected;
            }
        }
        Ok(())
    })
}

fn step([w, m, v]: AdamState, g: f64, t: i32) -> AdamState {
    let (m, v) = (0.9 * m + 0.1 * g, 0.999 * v + 0.001 * g * g);
    let (m_hat, v_hat) = (m / (1.0 - 0.9f64.powi(t)), v / (1.0 - 0.999f64.powi(t)));
    [w * (1.0 - RATE * DECAY) - RATE * m_hat / (v_hat.sqrt() + EPSILON), m, v]
}

/// Written as `<=`, which is false for NaN.
fn close(a: f64, b: f64) -> bool {
    (a - b).abs() <= 1e-9 * b.abs() + 1e-24
}

fn same(a: AdamState, b: AdamState) -> bool {
    a.into_iter().zip(b).all(|(a, b)| close(a, b))
}

fn hint(given: AdamState, expected: AdamState, [w, m, _]: AdamState, g: f64, t: i32) -> &'static str {
    let (m_new, v_new) = (expected[1], expected[2]);
    let (m_hat, v_hat) = (m_new / (1.0 - 0.9f64.powi(t)), v_new / (1.0 - 0.999f64.powi(t)));
    let moved = |m: f64, v: f64| RATE * m / (v.sqrt() + EPSILON);
    if close(given[1], 0.9 * m + 0.1 * (g + DECAY * w)) && !close(given[1], m_new) {
        return "the decay went into the gradient: that is Adam with L2. AdamW takes it from the weight itself";
    }
    if !close(given[1], m_new) {
        return "m is a running mean of the gradients: nine tenths of the old one, one tenth of this gradient";
    }
    if !close(given[2], v_new) {
        return "v is a running mean of the gradients' squares: 0.999 of the old one, 0.001 of this gradient's square";
    }
    if given[0].is_nan() {
        return "0 ÷ 0: epsilon is there so that a weight whose gradient is 0 stays where it is";
    }
    let keep = w * (1.0 - RATE * DECAY);
    if close(given[0], keep - moved(m_new, v_new)) {
        return "m and v begin at 0, so the first means are too small: divide them by 1 - 0.9ᵗ and 1 - 0.999ᵗ";
    }
    if close(given[0], w - moved(m_hat, v_hat)) {
        return "the decay is missing: the weight is first multiplied by 1 - 0.001 × 0.01";
    }
    if close(given[0], keep - RATE * m_hat / (v_hat + EPSILON).sqrt()) {
        return "epsilon is added to the root, not under it";
    }
    if close(given[0], keep + moved(m_hat, v_hat)) {
        return "downhill: the step is taken away from the weight";
    }
    if close(given[0], w * (1.0 - DECAY) - moved(m_hat, v_hat)) {
        return "the decay is multiplied by the learning rate too";
    }
    "m and v are right. Then: correct both for their start, shrink the weight, and take the step m̂ ÷ (√v̂ + ε)"
}

/// Sides of the images that [`conv_gradient`] is asked about.
const SIDES: [usize; 4] = [3, 4, 7, 11];

/// Checks a function (image, gradient of each output, side) that gives the gradient of the nine weights of a convolution of one
/// channel, 3 × 3, without padding.
pub fn conv_gradient(answer: fn(x: &[f64], to_y: &[f64], side: usize) -> [f64; 9]) -> Verdict {
    timed("conv_gradient", move || {
        for (at, side) in SIDES.into_iter().enumerate() {
            let random = |len: usize, seed: u64| -> Vec<f64> {
                gpulab::cpu::random_f32(len, seed).into_iter().map(|x| f64::from(x) * 3.0).collect()
            };
            let (x, to_y) = (random(side * side, at as u64), random((side - 2) * (side - 2), 100 + at as u64));
            let case = format!("an image of {side} × {side}");
            let given = ask(&case, || answer(&x, &to_y, side))?;
            for tap in 0..9 {
                let expected = weight_gradient(&x, &to_y, side, tap);
                // Written as `<=`, which is false for NaN.
                let same = |found: f64| (given[tap] - found).abs() <= 1e-9 * (1.0 + found.abs());
                if same(expected) {
                    continue;
                }
                let what = format!(
                    "{case}, weight {} of row {}: you give {}, and it should be {expected}",
                    tap % 3,
                    tap / 3,
                    given[tap]
                );
                let (outputs, turned) = (to_y.len() as f64, weight_gradient(&x, &to_y, side, tap % 3 * 3 + tap / 3));
                let hint = if !given[tap].is_finite() {
                    "a sum of products of finite numbers is finite"
                } else if same(expected / outputs) {
                    "a mean is not the derivative: each output depends on this weight, and they add up"
                } else if same(weight_gradient(&x, &to_y, side, 8 - tap)) {
                    "this is the gradient of the weight on the other side of the middle: which pixel does weight (a, b) meet?"
                } else if same(turned) {
                    "rows and columns of the weights are exchanged"
                } else if same(to_y.iter().sum()) {
                    "this is the gradient of a bias: what is the derivative of each output with respect to this weight?"
                } else if same(-expected) {
                    "the sign is wrong: this is the gradient, not the step against it"
                } else if given == given.map(|_| given[0]) {
                    "all nine are the same number, and they meet different pixels"
                } else {
                    "move this one weight by ε on paper: by how much does each output move, and the loss with it?"
                };
                return wrong(what, hint);
            }
        }
        Ok(())
    })
}

fn weight_gradient(x: &[f64], to_y: &[f64], side: usize, tap: usize) -> f64 {
    let out = side - 2;
    (0..out * out).map(|at| to_y[at] * x[(at / out + tap / 3) * side + at % out + tap % 3]).sum()
}

/// The operators of the case that [`nan_origin`] is about.
const OPERATORS: [&str; 6] = ["linear", "length", "division", "exponential", "sum", "logarithm"];

/// What may have been 0 there.
const ZEROS: [&str; 3] = ["the input", "a square", "the gradient"];

/// Checks a diagnosis: the operator that made the first number that is not finite, the image that it came from, and what was 0.
pub fn nan_origin(answer: fn() -> (&'static str, usize, &'static str)) -> Verdict {
    timed("nan_origin", move || {
        let (operator, image, zero) = ask("", answer)?;
        let what = format!("you say {operator}, image {image}, and {zero} was 0");
        if !OPERATORS.contains(&operator) {
            return wrong(what, "name one of the operators as the report writes it");
        }
        // The image is told from the report in any case: a wrong one is told first.
        if image != 6 {
            return wrong(what, "this image's numbers are finite wherever the report looks");
        }
        if !ZEROS.contains(&zero) {
            return wrong(what, "name one of the three things that may be 0 as the text writes it");
        }
        let hint = match operator {
            "division" if zero == "a square" => return Ok(()),
            "division" if zero == "the input" => {
                "what would the operator's result be then? The report says what it was"
            }
            "division" => {
                "nothing is wrong with a gradient of 0 as long as the slope it meets is finite: what is the slope?"
            }
            "length" | "linear" => {
                "the gradient that arrives there is not finite already: something above handed it down"
            }
            _ => "what arrives there is finite, and so is what it hands down to the operator before it",
        };
        wrong(what, hint)
    })
}

/// Images of the step in the first question of [`bytes_well_used`], and multiply-adds per byte in the second.
const FEW_IMAGES: f64 = 32.0;
const WANTED: f64 = 100.0;

/// How many multiply-adds a training step makes for each byte of the first linear layer's weight that it reads or writes (two
/// reads and one gradient, in f32), with 32 images; and how many images make it 100.
pub fn bytes_well_used(answer: fn() -> (f64, u64)) -> Verdict {
    timed("bytes_well_used", move || {
        let (per_byte, images) = ask("", answer)?;
        let what = format!("you say {per_byte} multiply-adds per byte, and {images} images");
        // Three products of 32 multiply-adds for each number of the weight, and three passes of 4 bytes over it.
        let right = 3.0 * FEW_IMAGES / (3.0 * 4.0);
        let near = |wanted: f64| (per_byte - wanted).abs() <= 1e-6 * wanted;
        let hint = match () {
            () if near(right) => None,
            () if near(4.0 * right) => Some("that is for each number of the weight: how many bytes has one?"),
            () if near(2.0 * right) => Some("a multiplication with its addition counts once"),
            () if near(3.0 * right) => Some("three products, but the bytes of one pass over the weight only"),
            () if near(right / 3.0) => Some("three passes over the weight, but the multiply-adds of one product only"),
            () if near(1.0 / right) => Some("multiply-adds divided by bytes"),
            () if near(right / FEW_IMAGES) => Some("that is one image: each of the 32 meets the same weight"),
            () => Some(
                "take one number of the weight: how often is it multiplied in the three products, and how many bytes move for it?",
            ),
        };
        if let Some(hint) = hint {
            return wrong(what, hint);
        }
        let enough = (WANTED / right * FEW_IMAGES) as u64;
        match images {
            images if images == enough => Ok(()),
            images if images == WANTED as u64 => {
                wrong(what, "so many images give so many multiply-adds for each number: how many bytes has one?")
            }
            images if images == enough / 3 || images == 3 * enough => {
                wrong(what, "the three products need a pass over the weight each")
            }
            _ => wrong(what, "the first answer is right: how does it grow with the images?"),
        }
    })
}

/// A step's fixed time and what each image adds, in ms, in the question of [`enough_images`]; images of an epoch.
const FIXED_MS: f64 = 6.0;
const EACH_MS: f64 = 0.25;
const EPOCH: f64 = 60_000.0;

/// The smallest batch that reaches 80 % of the rate that ever larger batches approach, and the steps of an epoch with it.
pub fn enough_images(answer: fn() -> (u64, u64)) -> Verdict {
    timed("enough_images", move || {
        let (batch, steps) = ask("", answer)?;
        // batch ÷ (fixed + each · batch) = 0.8 ÷ each, solved for the batch.
        let right = 0.8 / 0.2 * FIXED_MS / EACH_MS;
        let of = |wanted: f64| batch == wanted.round() as u64;
        let hint = match () {
            () if of(right) => None,
            () if of(FIXED_MS / EACH_MS) => Some(
                "there the fixed time and the images' time are equal: which share of the step is then left for images?",
            ),
            () if of(FIXED_MS / 0.2 / EACH_MS) => {
                Some("the fixed time may be a fifth of the whole step, and not a fifth of the images' time")
            }
            () if of(0.8 * FIXED_MS / EACH_MS) || of(FIXED_MS / 0.8 / EACH_MS) => Some(
                "80 % of the highest rate is not 80 % of the fixed time: write the rate as images over the step's time",
            ),
            () if of(right * EACH_MS) => Some("that is a time in ms: how many images take it?"),
            () if of(9.0 * FIXED_MS / EACH_MS) => Some("that is another share than 80 %"),
            () => Some("which rate does a step of very many images approach? Then which batch gives 80 % of that?"),
        };
        if let Some(hint) = hint {
            return wrong(format!("a batch of {batch}"), hint);
        }
        let hint = match steps as f64 {
            steps if steps == EPOCH / right => return Ok(()),
            steps if steps == right => "how many such batches are 60,000 images?",
            steps if steps == EPOCH => "that would be one image a step",
            _ => "an epoch goes through all 60,000 images once, a batch at a time",
        };
        wrong(format!("a batch of {batch} is right; {steps} steps are not"), hint)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_batch_on_paper_and_each_mistake() {
        assert!(enough_images(|| (96, 625)).passed());
        told(enough_images(|| (24, 2500)), "are equal");
        told(enough_images(|| (120, 500)), "a fifth of the whole step");
        told(enough_images(|| (30, 2000)), "not 80 % of the fixed time");
        told(enough_images(|| (216, 278)), "another share");
        told(enough_images(|| (96, 96)), "how many such batches");
        told(enough_images(|| (96, 626)), "goes through all");
        // Cheats: everything at once, and nothing.
        told(enough_images(|| (60_000, 1)), "very many images");
        told(enough_images(|| (0, 0)), "very many images");
    }

    type Step = fn([f64; 3], f64, i32) -> [f64; 3];

    fn told(verdict: Verdict, hint: &str) {
        let text = verdict.text();
        assert!(text.starts_with("NOT YET") && text.contains(hint), "{hint}: {text}");
    }

    /// The gradient by a formula: which pixel weight `tap` meets at output `at`.
    fn by(x: &[f64], to_y: &[f64], side: usize, pixel: fn(usize, usize, usize) -> usize) -> [f64; 9] {
        std::array::from_fn(|tap| (0..to_y.len()).map(|at| to_y[at] * x[pixel(at, tap, side).min(x.len() - 1)]).sum())
    }

    fn met(at: usize, tap: usize, side: usize) -> usize {
        (at / (side - 2) + tap / 3) * side + at % (side - 2) + tap % 3
    }

    #[test]
    fn the_gradient_of_a_convolution_passes_in_any_shape_and_each_mistake_is_named() {
        assert!(conv_gradient(|x, g, side| by(x, g, side, met)).passed());
        // Pixel by pixel in place of weight by weight, and with the sum in another order.
        let scattered = |x: &[f64], g: &[f64], side: usize| {
            let mut sum = [0.0; 9];
            for at in (0..g.len()).rev() {
                for (tap, sum) in sum.iter_mut().enumerate() {
                    *sum += x[met(at, tap, side)] * g[at];
                }
            }
            sum
        };
        assert!(conv_gradient(scattered).passed());
        told(conv_gradient(|x, g, side| by(x, g, side, met).map(|sum| sum / g.len() as f64 + 0.0)), "a mean is not");
        told(
            conv_gradient(|x, g, side| by(x, g, side, |at, tap, side| met(at, 8 - tap, side))),
            "other side of the middle",
        );
        told(
            conv_gradient(|x, g, side| by(x, g, side, |at, tap, side| met(at, tap % 3 * 3 + tap / 3, side))),
            "exchanged",
        );
        told(conv_gradient(|_, g, _| [g.iter().sum(); 9]), "gradient of a bias");
        told(conv_gradient(|x, g, side| by(x, g, side, met).map(|sum| -sum)), "the sign");
        told(conv_gradient(|x, g, side| by(x, g, side, |at, tap, side| at + tap / 3 * side + tap % 3)), "by ε");
        // Cheats: numbers that compare with nothing, one number for all, the answer for the smallest image alone.
        told(conv_gradient(|_, _, _| [f64::NAN; 9]), "is finite");
        told(conv_gradient(|_, _, _| [0.0; 9]), "all nine");
        told(
            conv_gradient(|x, g, side| if side == 3 { by(x, g, side, met) } else { std::array::from_fn(|tap| x[tap]) }),
            "by ε",
        );
        told(conv_gradient(|x, _, _| [x[usize::MAX]; 9]), "panicked");
    }

    #[test]
    fn a_diagnosis_needs_operator_and_image() {
        assert!(nan_origin(|| ("division", 6, "a square")).passed());
        told(nan_origin(|| ("division", 6, "the input")), "result be then");
        told(nan_origin(|| ("division", 6, "the gradient")), "what is the slope");
        told(nan_origin(|| ("division", 6, "the length")), "as the text writes it");
        told(nan_origin(|| ("division", 5, "a square")), "finite wherever");
        told(nan_origin(|| ("length", 6, "a square")), "not finite already");
        told(nan_origin(|| ("linear", 6, "a square")), "not finite already");
        told(nan_origin(|| ("logarithm", 6, "a square")), "what arrives there is finite");
        told(nan_origin(|| ("exponential", 6, "a square")), "what arrives there is finite");
        told(nan_origin(|| ("square root", 6, "a square")), "as the report writes it");
        // Cheats: the answer of the lesson's own example; all names at once.
        told(nan_origin(|| ("squares", 1, "a square")), "as the report writes it");
        told(
            nan_origin(|| ("linear length division exponential sum logarithm", 6, "a square")),
            "as the report writes it",
        );
    }

    #[test]
    fn bytes_on_paper_and_each_mistake() {
        assert!(bytes_well_used(|| (8.0, 400)).passed());
        told(bytes_well_used(|| (32.0, 400)), "how many bytes has one");
        told(bytes_well_used(|| (16.0, 400)), "counts once");
        told(bytes_well_used(|| (24.0, 400)), "the bytes of one pass");
        told(bytes_well_used(|| (8.0 / 3.0, 400)), "of one product only");
        told(bytes_well_used(|| (0.125, 400)), "divided by bytes");
        told(bytes_well_used(|| (0.25, 400)), "that is one image");
        told(bytes_well_used(|| (8.0, 100)), "for each number");
        told(bytes_well_used(|| (8.0, 1200)), "a pass over the weight each");
        told(bytes_well_used(|| (8.0, 399)), "how does it grow");
        // Cheats: nothing, and what compares with nothing.
        told(bytes_well_used(|| (0.0, 0)), "take one number");
        told(bytes_well_used(|| (f64::NAN, 400)), "take one number");
        told(bytes_well_used(|| (8.0, u64::MAX)), "how does it grow");
    }

    /// AdamW with one thing changed.
    fn with(state: [f64; 3], g: f64, t: i32, change: &str) -> [f64; 3] {
        let [w, m, v] = state;
        let g = if change == "l2" { g + 0.01 * w } else { g };
        let m = if change == "m" { g } else { 0.9 * m + 0.1 * g };
        let v = if change == "v" { 0.999 * v + 0.001 * g } else { 0.999 * v + 0.001 * g * g };
        let corrected = |mean: f64, beta: f64| if change == "start" { mean } else { mean / (1.0 - beta.powi(t)) };
        let (m_hat, v_hat) = (corrected(m, 0.9), corrected(v, 0.999));
        let root = match change {
            "under" => (v_hat + 1e-8).sqrt(),
            "nan" => v_hat.sqrt(),
            _ => v_hat.sqrt() + 1e-8,
        };
        let decay = match change {
            "none" | "l2" => 0.0,
            "rate" => 0.01,
            _ => 1e-3 * 0.01,
        };
        let sign = if change == "up" { -1.0 } else { 1.0 };
        [w * (1.0 - decay) - sign * 1e-3 * m_hat / root, m, v]
    }

    #[test]
    fn adamw_passes_and_each_mistake_is_named() {
        assert!(adamw(|state, g, t| with(state, g, t, "")).passed());
        let wrong: [(Step, &str); 9] = [
            (|s, g, t| with(s, g, t, "l2"), "Adam with L2"),
            (|s, g, t| with(s, g, t, "m"), "m is a running mean"),
            (|s, g, t| with(s, g, t, "v"), "v is a running mean"),
            (|s, g, t| with(s, g, t, "start"), "m and v begin at 0"),
            (|s, g, t| with(s, g, t, "under"), "added to the root, not under it"),
            (|s, g, t| with(s, g, t, "none"), "the decay is missing"),
            (|s, g, t| with(s, g, t, "rate"), "multiplied by the learning rate too"),
            (|s, g, t| with(s, g, t, "up"), "downhill"),
            (|s, g, t| with(s, g, t, "nan"), "epsilon"),
        ];
        for (answer, part) in wrong {
            let verdict = adamw(answer);
            assert!(!verdict.passed() && verdict.text().contains(part), "{part}: {}", verdict.text());
        }
        // Cheats: no numbers, and the state as it came.
        told(adamw(|_, _, _| [f64::NAN; 3]), "m is a running mean");
        told(adamw(|state, _, _| state), "m is a running mean");
    }
}
