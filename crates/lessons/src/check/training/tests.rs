//! Right answers pass, and each wrong one is told what is wrong with it.

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
