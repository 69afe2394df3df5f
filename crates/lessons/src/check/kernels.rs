//! What the checks of kernels have in common: errors of a launch in the simulator become verdicts.

use super::Verdict;
use super::verdict::{Check, wrong};
use gpulab::cpu;
use gpulab::error::Error;
use gpulab::gpu::{Gpu, Kernel};
use gpulab::warpsim::Kind;

const COMPILE_HINT: &str = "fix the first error of the compiler; the lines are those of your kernel";
const LOOP_HINT: &str = "what ends the loop, and does each step come nearer to it?";
const LAUNCH_HINT: &str = "the check launches the kernel as it was given: keep its name and its parameters";

/// The verdict on the kernel `entry` of `source`, which `check` runs on the simulator. `mistake_hint` says what to ask oneself
/// about a kernel's mistake.
pub(super) fn verdict(
    exercise: &str,
    source: &str,
    entry: &str,
    mistake_hint: fn(&Error) -> &'static str,
    check: impl FnOnce(&Gpu, &Kernel) -> Check,
) -> Verdict {
    let run = || -> Check {
        let gpu = Gpu::simulated()?;
        check(&gpu, &gpu.compile(source)?.kernel(entry)?)
    };
    Verdict::of(exercise, run(), |error| match error {
        Error::Compile { .. } => COMPILE_HINT,
        Error::Mistakes { .. } if first_is(error, &[Kind::StepBudget]) => LOOP_HINT,
        Error::Mistakes { .. } => mistake_hint(error),
        Error::NoSuchKernel { .. } | Error::ArgumentCount { .. } | Error::ArgumentType { .. } => LAUNCH_HINT,
        _ => "the message says what to do next",
    })
}

/// The first number that is not the expected one, by its place, and how many are wrong.
pub(super) fn first_wrong(
    with: &str,
    given: &[f32],
    expected: &[f32],
    place: impl Fn(usize) -> String,
) -> Option<String> {
    let wrong = |at: &usize| given[*at] != expected[*at];
    let (at, all) = ((0..expected.len()).find(wrong)?, expected.len());
    let is = if given[at].is_nan() { "was never written".to_string() } else { format!("is {}", given[at]) };
    let (place, count) = (place(at), (0..all).filter(wrong).count());
    Some(format!("with {with}: {place} {is}, and it should be {}; {count} of {all} are wrong", expected[at]))
}

/// A check that blocks which add to the same words do so by atomics. A volatile read and a volatile write are no race, and lose
/// what another block adds between them.
pub(super) fn blocks_add_atomically(global_atomics: u64) -> Check {
    let what = "several blocks add to the same words of global memory, and no atomic instruction does it";
    let hint = "a block reads, adds and writes: what becomes of what another block writes in between?";
    if global_atomics == 0 { wrong(what, hint) } else { Ok(()) }
}

/// Whole numbers from -3 to 3, none of them 0: sums of them are exact in any order, so an element forgotten shows.
pub(super) fn whole(n: usize, seed: u64) -> Vec<f32> {
    let number = |x: f32| (x * 3.0).trunc() + x.signum() * f32::from(u8::from(x.abs() < 1.0 / 3.0));
    cpu::random_f32(n, seed).into_iter().map(number).collect()
}

/// Whether the first mistake of a launch is one of these kinds.
pub(super) fn first_is(error: &Error, kinds: &[Kind]) -> bool {
    let Error::Mistakes { shown, .. } = error else { return false };
    shown.first().is_some_and(|first| kinds.iter().any(|kind| kind.words() == first.kind))
}

/// Whether the first mistake is that a thread writes what another one wrote on the same line: a barrier does not fix that.
pub(super) fn two_write(error: &Error) -> bool {
    let Error::Mistakes { shown, .. } = error else { return false };
    let Some(first) = shown.first() else { return false };
    let again = first.line.as_ref().map(|(line, _)| format!(" wrote at line {line},"));
    first.what.iter().any(|what| what.starts_with("writes") && again.as_ref().is_some_and(|again| what.contains(again)))
}

/// What a check must do: the right kernel passes, and each mistake (a text of the kernel, what takes its place) is told so.
#[cfg(test)]
pub(super) fn expect(check: fn(&str) -> Verdict, right: &str, wrong: &[(&str, &str, &str)]) {
    let verdict = check(right);
    assert!(verdict.passed(), "{}", verdict.text());
    for (old, new, said) in wrong {
        let source = right.replacen(old, new, 1);
        assert_ne!(source, right, "`{old}` is not there");
        let text = check(&source).text();
        assert!(text.starts_with("NOT YET") && text.contains(said), "{old} -> {new}: {text}");
    }
}
