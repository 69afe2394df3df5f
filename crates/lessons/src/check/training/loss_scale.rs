//! The exercise `loss_scale`.

use crate::check::Verdict;
use crate::check::panics::{PANIC_HINT, run};

/// Good steps after which the scale is doubled.
const STEADY: u64 = 200;

/// Checks a function that gives the loss scale of the next step and the number of good steps since it last changed, from
/// both of this step and whether all its gradients were finite: halved at once where they were not, doubled after 200 good
/// steps, never below 1.
pub fn loss_scale(answer: fn(scale: f32, good_steps: u64, finite: bool) -> (f32, u64)) -> Verdict {
    const NAME: &str = "loss_scale";
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
        let given = match run(|| answer(scale, good, finite)) {
            Err(panic) => return Verdict::not_yet(NAME, panic, PANIC_HINT),
            Ok(given) => given,
        };
        if given != expected {
            let gradients = if finite { "finite" } else { "not finite" };
            let what = format!(
                "scale {scale}, {good} good steps before, gradients {gradients}: you give {given:?}, and it should be {expected:?}"
            );
            return Verdict::not_yet(NAME, what, hint);
        }
    }
    Verdict::pass(NAME)
}
