//! Exercises of lesson 20.

use super::Verdict;
use super::verdict::{ask, verdict, wrong};

type Numbers = [f64; 3];

const RATE: f64 = 1e-3;
const DECAY: f64 = 0.01;
const EPSILON: f64 = 1e-8;

/// Checks a function that makes step `t` (from 1) of AdamW for one weight: from weight, mean of gradients and mean of their
/// squares, and the gradient, to the first three after it. The learning rate is 0.001, the decay 0.01, the betas 0.9 and
/// 0.999, epsilon 1e-8.
pub fn adamw(answer: fn(state: [f64; 3], gradient: f64, t: i32) -> [f64; 3]) -> Verdict {
    verdict("adamw", || {
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

/// Good steps after which the scale is doubled.
const STEADY: u64 = 200;

/// Checks a function that gives the loss scale of the next step and the number of good steps since it last changed, from
/// both of this step and whether all its gradients were finite: halved at once where they were not, doubled after 200 good
/// steps, never below 1.
pub fn loss_scale(answer: fn(scale: f32, good_steps: u64, finite: bool) -> (f32, u64)) -> Verdict {
    verdict("loss_scale", || {
        let cases = [
            (1024.0, 5, true, (1024.0, 6), "a good step changes nothing but the count of good steps"),
            (1024.0, 5, false, (512.0, 0), "gradients that overflowed: halve the scale, and begin to count anew"),
            (
                1024.0,
                STEADY - 1,
                true,
                (2048.0, 0),
                "this is the 200th good step: double the scale, and begin to count anew",
            ),
            (1024.0, STEADY - 2, true, (1024.0, STEADY - 1), "this is the 199th good step: not yet"),
            (1.0, 3, false, (1.0, 0), "below 1 a scale takes away what it is to save: keep it at 1"),
            (1.0, STEADY - 1, true, (2.0, 0), "a scale of 1 may grow again"),
            (1024.0, STEADY - 1, false, (512.0, 0), "a step that overflowed is no good step, whatever came before it"),
        ];
        for (scale, good, finite, expected, hint) in cases {
            let given = ask("", || answer(scale, good, finite))?;
            if given != expected {
                let gradients = if finite { "finite" } else { "not finite" };
                let what = format!(
                    "scale {scale}, {good} good steps before, gradients {gradients}: you give {given:?}, and it should be {expected:?}"
                );
                return wrong(what, hint);
            }
        }
        Ok(())
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    type Scale = fn(f32, u64, bool) -> (f32, u64);
    type Step = fn([f64; 3], f64, i32) -> [f64; 3];

    #[test]
    fn a_rule_for_the_scale_passes_and_each_mistake_is_named() {
        let right = |scale: f32, good: u64, finite: bool| match (finite, good + 1) {
            (false, _) => ((scale / 2.0).max(1.0), 0),
            (true, 200) => (scale * 2.0, 0),
            (true, good) => (scale, good),
        };
        assert!(loss_scale(right).passed(), "{}", loss_scale(right).text());
        let wrong: [(Scale, &str); 7] = [
            (|scale, _, _| (scale, 0), "changes nothing but the count"),
            (|scale, good, _| (scale, good + 1), "gradients that overflowed"),
            (|scale, good, finite| if finite { (scale, good + 1) } else { (scale / 2.0, 0) }, "the 200th good step"),
            (
                |scale, good, finite| match finite {
                    false => (scale / 2.0, 0),
                    true if good + 1 >= 199 => (scale * 2.0, 0),
                    true => (scale, good + 1),
                },
                "the 199th good step",
            ),
            (
                |scale, good, finite| match finite {
                    false => (scale / 2.0, 0),
                    true if good + 1 == 200 => (scale * 2.0, 0),
                    true => (scale, good + 1),
                },
                "keep it at 1",
            ),
            (
                |scale, good, finite| match (good + 1, finite) {
                    (200, _) => (scale * 2.0, 0),
                    (_, false) => ((scale / 2.0).max(1.0), 0),
                    (good, true) => (scale, good),
                },
                "is no good step",
            ),
            (|_, _, _| panic!("out of ideas"), "out of ideas"),
        ];
        for (answer, part) in wrong {
            let verdict = loss_scale(answer);
            assert!(!verdict.passed() && verdict.text().contains(part), "{part}: {}", verdict.text());
        }
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
    }
}
