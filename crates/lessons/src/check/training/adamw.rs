//! The exercise `adamw`.

use crate::check::Verdict;
use crate::check::panics::{PANIC_HINT, run};

type Numbers = [f64; 3];

const RATE: f64 = 1e-3;
const DECAY: f64 = 0.01;
const EPSILON: f64 = 1e-8;

/// Checks a function that makes step `t` (from 1) of AdamW for one weight: from weight, mean of gradients and mean of their
/// squares, and the gradient, to the first three after it. The learning rate is 0.001, the decay 0.01, the betas 0.9 and
/// 0.999, epsilon 1e-8.
pub fn adamw(answer: fn(state: [f64; 3], gradient: f64, t: i32) -> [f64; 3]) -> Verdict {
    const NAME: &str = "adamw";
    for gradients in [[0.5, 0.25, -1.0, 2.0], [0.0; 4], [1e-9, -1e-9, 3e-9, 1e-9]] {
        let mut state = [0.8, 0.0, 0.0];
        for (at, gradient) in gradients.into_iter().enumerate() {
            let t = at as i32 + 1;
            let expected = step(state, gradient, t);
            let given = match run(|| answer(state, gradient, t)) {
                Err(panic) => return Verdict::not_yet(NAME, panic, PANIC_HINT),
                Ok(given) => given,
            };
            if !same(given, expected) {
                let what = format!(
                    "step {t}, weight, m and v {state:?}, gradient {gradient}: you give {given:?}, and it should be {expected:?}"
                );
                return Verdict::not_yet(NAME, what, hint(given, expected, state, gradient, t));
            }
            state = expected;
        }
    }
    Verdict::pass(NAME)
}

fn step([w, m, v]: Numbers, g: f64, t: i32) -> Numbers {
    let (m, v) = (0.9 * m + 0.1 * g, 0.999 * v + 0.001 * g * g);
    let (m_hat, v_hat) = (m / (1.0 - 0.9f64.powi(t)), v / (1.0 - 0.999f64.powi(t)));
    [w * (1.0 - RATE * DECAY) - RATE * m_hat / (v_hat.sqrt() + EPSILON), m, v]
}

/// Written as `<=`, which is false for NaN.
fn close(a: f64, b: f64) -> bool {
    (a - b).abs() <= 1e-9 * b.abs() + 1e-24
}

fn same(a: Numbers, b: Numbers) -> bool {
    a.into_iter().zip(b).all(|(a, b)| close(a, b))
}

fn hint(given: Numbers, expected: Numbers, [w, m, _]: Numbers, g: f64, t: i32) -> &'static str {
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
