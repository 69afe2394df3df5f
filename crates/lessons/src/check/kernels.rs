//! What the checks of kernels have in common: errors of a launch in the simulator become verdicts.

use super::Verdict;
use super::verdict::{Check, ask, none_told};
use gpulab::cpu;
use gpulab::error::{Error, Result};
use gpulab::gpu::{Buffer, Gpu, Kernel};
use gpulab::inspect::{Access, AccessKind, Inspection, Space};
use gpulab::launch::{Element, LaunchConfig, Source};
use gpulab::warpsim::Kind;
use std::collections::BTreeSet;
use std::fmt::Display;

const COMPILE_HINT: &str = "fix the first error of the compiler; the lines are those of your kernel";
const LOOP_HINT: &str = "what ends the loop, and does each step come nearer to it?";
const LAUNCH_HINT: &str = "the check launches the kernel as it was given: keep its name and its parameters";

/// The verdict on the kernel `entry` of `source`, which `check` runs on the simulator. `mistake_hint` says what to ask oneself
/// about a kernel's mistake.
pub(super) fn verdict(
    exercise: &str,
    source: impl Into<Source>,
    entry: &str,
    mistake_hint: fn(&Error) -> &'static str,
    check: impl FnOnce(&Gpu, &Kernel) -> Check,
) -> Verdict {
    let run = || -> Check {
        let gpu = Gpu::simulated()?;
        check(&gpu, &gpu.compile(source)?.kernel(entry)?)
    };
    // A check that panics, on a number that the kernel left say, is no end of the cell either.
    Verdict::of_kernel(exercise, ask("", run).and_then(|checked| checked), |error| match error {
        Error::Compile { .. } => (error.to_string(), None, COMPILE_HINT),
        Error::Mistakes { kernel, shown, more } => {
            let count = shown.len() + more;
            let count = if count == 1 { "a mistake".to_string() } else { format!("{count} mistakes") };
            // Where and what; what to do about it is for those who ask.
            let told: String = shown.iter().map(|mistake| format!("\n{mistake}")).collect();
            let idea = if first_is(error, &[Kind::StepBudget]) { LOOP_HINT } else { mistake_hint(error) };
            (format!("`{kernel}` has {count}{told}"), Some(meaning(error)), idea)
        }
        Error::NoSuchKernel { .. } | Error::ArgumentCount { .. } | Error::ArgumentType { .. } => {
            (error.to_string(), None, LAUNCH_HINT)
        }
        _ => (error.to_string(), None, "the message says what to do next"),
    })
}

/// What the first mistake of a launch means.
fn meaning(error: &Error) -> &'static str {
    const MEANINGS: [(Kind, &str); 13] = [
        (
            Kind::OutOfBounds,
            "that thread asks for an element that its array does not have; on a GPU it would read or overwrite something else",
        ),
        (
            Kind::Misaligned,
            "an access of several numbers at once must begin at a multiple of its size, and this one does not",
        ),
        (
            Kind::UninitialisedRead,
            "the thread reads memory that nobody has written yet: it holds whatever was there before",
        ),
        (
            Kind::SharedRace,
            "two threads of a block use one word, one of them writes, and nothing says who is first: on a GPU the result may change from run to run",
        ),
        (
            Kind::GlobalRace,
            "two threads use one number in memory, one of them writes, and nothing says who is first: on a GPU the result may change from run to run",
        ),
        (
            Kind::Unfinished,
            "the copy or the product goes on beside the threads: what it reads and writes is theirs again when somebody has waited for it",
        ),
        (
            Kind::MissingFence,
            "copies and products that go on beside the threads reach shared memory another way than stores do: without a fence they need not see what was stored",
        ),
        (
            Kind::LostUpdate,
            "both threads may read the same old value; then the one that writes last wipes out what the other has added. `volatile` lets each access happen, and does not join the two",
        ),
        (Kind::BarrierDivergence, "some of the threads wait there for others that never come by"),
        (Kind::Deadlock, "all threads that are left wait, and nobody is left who could let them go on"),
        (
            Kind::BlockOrder,
            "a block waits for one that has not started; it may occupy the multiprocessor that the other one needs",
        ),
        (Kind::StepBudget, "the kernel has run far longer than it can need: one of its loops has no end"),
        (Kind::Trap, "the kernel stopped itself, by a failed `assert` or a `__trap()`"),
    ];
    let told = MEANINGS.iter().find(|(kind, _)| first_is(error, &[*kind]));
    told.map_or("read the line, the block and the thread above", |(_, meaning)| meaning)
}

/// Ends a check of a kernel that changed an input: `name` held `before` at the launch.
pub(super) fn unchanged<T: Element + PartialEq + Display>(name: &str, buffer: &Buffer<T>, before: &[T]) -> Check {
    let after = buffer.to_host()?;
    let what = after.iter().zip(before).position(|(after, before)| after != before).map(|at| {
        format!(
            "the input `{name}` has changed: element {at} was {} before the launch, and is {} now",
            before[at], after[at]
        )
    });
    none_told(
        what,
        "whoever launches the kernel may need the inputs again: a kernel writes to its outputs alone",
        "which line writes to an array that comes in as an input?",
    )
}

/// Ends a check where a few threads do the work of all: while the longest warp runs, at least this part of the launch's
/// threads should be at work on average.
pub(super) fn shared_out(seen: &Inspection, part: f64) -> Check {
    let count = |shape: [u32; 3]| shape.iter().map(|&side| f64::from(side)).product::<f64>();
    let threads = count(seen.grid) * count(seen.block);
    let busy = seen.counters.thread_instructions as f64 / seen.longest_warp.max(1) as f64;
    let what = (busy < part * threads).then(|| {
        format!(
            "the result is right, but the work is not shared out: while the longest warp runs its {} instructions, on \
             average {:.0} of the launch's {threads:.0} threads are at work, with {:.1} of 32 lanes active in an instruction",
            seen.longest_warp,
            busy.ceil(),
            seen.counters.active_lanes_per_instruction()
        )
    });
    none_told(
        what,
        "a launch takes as long as its longest warp: threads that have nothing to do do not make it shorter",
        "let each thread of the launch take its own part of the elements, and as many as the others",
    )
}

/// The loads from global memory of all warps of a launch in one dimension; `inspect` looks at one warp of one block.
pub(super) fn global_loads(
    config: LaunchConfig,
    mut inspect: impl FnMut((u32, u32, u32), u32) -> Result<Inspection>,
) -> Result<Vec<Access>> {
    let mut loads = Vec::new();
    for block in 0..config.grid.0 {
        for warp in 0..config.block.0 / 32 {
            let own = inspect((block, 0, 0), warp)?.accesses;
            loads.extend(own.into_iter().filter(|one| one.space == Space::Global && one.kind == AccessKind::Load));
        }
    }
    Ok(loads)
}

/// The access of the watched warp that touches the most sectors beyond those that its bytes fill, with its line. Judged by
/// bytes: 32 lanes with 16 bytes each fill 16 sectors, and need no fewer.
pub(super) fn scattered(seen: &Inspection) -> Option<String> {
    let global =
        seen.accesses.iter().filter(|access| access.space == Space::Global && access.kind != AccessKind::Atomic);
    let beyond = |access: &Access| {
        let places: BTreeSet<u64> = access.offsets.iter().flatten().copied().collect();
        let fill = (places.len() as u64 * u64::from(access.bytes)).div_ceil(32);
        (access.sectors.saturating_sub(fill), fill)
    };
    let access = global.max_by_key(|access| beyond(access).0).filter(|access| beyond(access).0 > 0)?;
    let line = access.line.map_or(String::new(), |line| format!("line {line}, `{}`: ", access.text));
    Some(format!("{line}one request touches {} sectors, and its bytes fill {}", access.sectors, beyond(access).1))
}

/// Numbers that tell wrong ideas apart: large and small ones, of both signs, some of them twice or more, in an order that
/// is none. All are multiples of 1/8 below 2^14, so that sums of a few are exact.
pub(super) fn telling(n: usize, seed: u64) -> Vec<f32> {
    const SCALES: [f32; 4] = [1.0, 30.0, 1000.0, 16_000.0];
    let scaled = |(i, x): (usize, f32)| match i % 11 {
        3 => 0.0,
        5 | 6 => -7.5,
        other => (x * SCALES[other % 4] * 8.0).round() / 8.0,
    };
    cpu::random_f32(n, seed).into_iter().enumerate().map(scaled).collect()
}

/// A number that a kernel left in a poisoned array, in words.
pub(super) fn left(given: f32) -> String {
    match given.is_nan() {
        true if given.to_bits() == u32::MAX => "was never written".to_string(),
        true => "is NaN, which no number should give".to_string(),
        false => format!("is {given}"),
    }
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
    let is = left(given[at]);
    let (place, count) = (place(at), (0..all).filter(wrong).count());
    Some(format!("with {with}: {place} {is}, and it should be {}; {count} of {all} are wrong", expected[at]))
}

/// Whole numbers from -3 to 3, none of them 0: sums of them are exact in any order, so an element forgotten shows.
pub(super) fn whole(n: usize, seed: u64) -> Vec<f32> {
    let number = |x: f32| (x * 3.0).trunc() + x.signum() * f32::from(u8::from(x.abs() < 1.0 / 3.0));
    cpu::random_f32(n, seed).into_iter().map(number).collect()
}

/// Whether the first mistake of a launch is one of these kinds.
pub(super) fn first_is(error: &Error, kinds: &[Kind]) -> bool {
    let Error::Mistakes { shown, .. } = error else { return false };
    // A lost update is what is left of a race once both accesses are volatile.
    let is = |kind: &Kind| kind.words() == shown[0].kind;
    !shown.is_empty() && (kinds.iter().any(is) || kinds.contains(&Kind::GlobalRace) && is(&Kind::LostUpdate))
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
    let sources = wrong.iter().map(|(old, new, said)| {
        let source = right.replacen(old, new, 1);
        assert_ne!(source, right, "`{old}` is not there");
        (source, *said)
    });
    let sources: Vec<(String, &str)> = sources.collect();
    expect_whole(check, &sources.iter().map(|(source, said)| (source.as_str(), *said)).collect::<Vec<_>>());
}

/// The same for whole kernels: each is told what is wrong.
#[cfg(test)]
pub(super) fn expect_whole(check: fn(&str) -> Verdict, wrong: &[(&str, &str)]) {
    let told = wrong.iter().map(|(source, said)| (source, said, check(source).text()));
    let off: Vec<String> = told
        .filter(|(_, said, text)| !(text.starts_with("NOT YET") && text.contains(*said)))
        .map(|(source, said, text)| format!("not `{said}`:\n{source}\n{text}"))
        .collect();
    assert!(off.is_empty(), "{} of {} are told something else\n\n{}", off.len(), wrong.len(), off.join("\n\n"));
}

/// Right answers of other shapes.
#[cfg(test)]
pub(super) fn passes(check: fn(&str) -> Verdict, right: &[&str]) {
    for source in right {
        let verdict = check(source);
        assert!(verdict.passed(), "{source}: {}", verdict.text());
    }
}
