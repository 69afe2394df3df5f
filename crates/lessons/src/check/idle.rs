//! Debugging case of lesson 02: a training loop that leaves the GPU idle. Its source stays hidden until its profile has been read.

use super::Verdict;
use super::on_paper::diagnosed;
use super::verdict::{Check, told};
use crate::practice::{PracticeKernel, PracticeQueue};
use gpulab::error::{Error, Result};
use gpulab::measurement::Span;
use std::fmt;

/// Kernels of a step, and what the host does in each step before it launches them, in µs.
const KERNELS: usize = 8;
const PREPARE_US: f64 = 20.0;
/// Steps of a report that the check itself asks for.
const STEPS: usize = 100;

/// Why a GPU is idle.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Idle {
    /// Kernels are shorter than their launches.
    LaunchBound,
    /// Copies to the host are slow.
    SlowCopies,
    /// The host waits in each step for the GPU to be done.
    WaitsEachStep,
    /// The host's own work takes longer than the GPU's.
    HostWork,
    /// The first launch loads the kernel.
    FirstLaunch,
    /// Some kernels take twice as long.
    SlowKernels,
}

/// The hidden loop.
// begin
fn train(queue: &mut PracticeQueue, kernel: PracticeKernel, steps: usize) -> Result<()> {
    for _ in 0..steps {
        queue.host_work("other", PREPARE_US); // the next batch is put together
        for _ in 0..KERNELS {
            queue.launch(kernel)?; // forward, backward, update
        }
        queue.copy_to_host(); // the loss, for the log: it is there when the step's last kernel has ended
    }
    Ok(())
}
// end

/// What a profiler lists of a run of the hidden loop, on the model of a queue.
#[derive(Debug, Clone, PartialEq)]
#[must_use = "a report shows itself as the last expression of a cell, without a semicolon"]
pub struct IdleReport {
    /// Steps.
    pub steps: usize,
    /// Calls of the host, by name: how many, µs in all.
    pub calls: Vec<(String, usize, f64)>,
    /// The GPU, in µs: kernels, copies, nothing; and the longest time of nothing after the first kernel.
    pub kernels_us: f64,
    /// Copies.
    pub copies_us: f64,
    /// Nothing to do.
    pub idle_us: f64,
    /// The longest time without work after the first kernel.
    pub longest_idle_us: f64,
}

/// Runs the hidden training loop on the model of a queue: `steps` steps of 8 kernels, each of about `kernel_us` µs.
///
/// # Errors
/// [`Error::Invalid`] for no steps or more than 1,000, and for kernels that take no time or more than 10,000 µs.
pub fn idle_report(kernel_us: f64, steps: usize) -> Result<IdleReport> {
    let spans = idle_spans(kernel_us, steps)?;
    let us = |span: &Span| 1e3 * (span.end_ms - span.start_ms);
    let mut calls: Vec<(String, usize, f64)> = Vec::new();
    for span in spans.iter().filter(|span| span.lane == "host") {
        let name = if span.label.starts_with("launch") { "launch" } else { &span.label };
        match calls.iter_mut().find(|call| call.0 == name) {
            Some(call) => (call.1, call.2) = (call.1 + 1, call.2 + us(span)),
            None => calls.push((name.to_string(), 1, us(span))),
        }
    }
    let busy = |copies: bool| -> f64 {
        spans.iter().filter(|span| span.lane == "GPU" && (span.label == "copy") == copies).map(us).sum()
    };
    let on_gpu: Vec<&Span> = spans.iter().filter(|span| span.lane == "GPU").collect();
    let gaps = on_gpu.windows(2).map(|pair| 1e3 * (pair[1].start_ms - pair[0].end_ms));
    let end = on_gpu.last().map_or(0.0, |span| 1e3 * span.end_ms);
    let (kernels_us, copies_us) = (busy(false), busy(true));
    let longest_idle_us = gaps.fold(0.0, f64::max);
    Ok(IdleReport { steps, calls, kernels_us, copies_us, idle_us: end - kernels_us - copies_us, longest_idle_us })
}

/// The same run as a timeline, for `plot::timeline`.
///
/// # Errors
/// As [`idle_report`].
pub fn idle_spans(kernel_us: f64, steps: usize) -> Result<Vec<Span>> {
    if !((1..=1000).contains(&steps) && kernel_us > 0.0 && kernel_us <= 1e4) {
        return Err(Error::invalid(
            format!("{steps} steps, kernels of {kernel_us} µs"),
            "ask for 1 to 1000 steps, and for kernels of up to 10000 µs",
        ));
    }
    let mut queue = PracticeQueue::new();
    train(&mut queue, PracticeKernel::of_us(kernel_us), steps)?;
    Ok(queue.spans().to_vec())
}

/// Checks a diagnosis of the hidden loop: why the GPU is idle between steps, and, that repaired and nothing else, from which
/// time of a kernel on (in µs, without the noise) the GPU would have no gap once it has begun.
pub fn diagnose_idle(diagnosis: Option<(Idle, f64)>) -> Verdict {
    // The host's part of a step is 20 µs and eight launches of 4 µs.
    let host = PREPARE_US + 4.0 * KERNELS as f64;
    let right = host / KERNELS as f64;
    let slips = [
        (4.0, "that covers the launches alone: what else does the host do in a step?"),
        (host, "that is the host's part of a step; how many kernels does the GPU have in the meantime?"),
        (PREPARE_US / KERNELS as f64, "the host is busy with the launches, too"),
        (
            (PREPARE_US + 4.0) / KERNELS as f64,
            "that closes the gap that is seen now; which of the host's calls are hidden now, and are then needed in time?",
        ),
        (PREPARE_US + 4.0, "that is the gap itself"),
    ];
    let start = "with nothing to wait for, the host prepares and launches, step after step. How long is one of its steps, and how long \
                 must one of the GPU's be, so that it never runs out of work?";
    let none = "ask for reports that differ in one thing: the kernels' time, then the steps. What grows with it, and what stays?";
    diagnosed("diagnose_idle", diagnosis, none, against, right * 0.99..=right * 1.01, &slips, start)
}

/// The evidence that speaks for an innocent suspect.
fn against(named: Idle) -> Check {
    let at = |us| idle_report(us, STEPS);
    let each = |us: f64| us / STEPS as f64;
    // The time before the first kernel is the first launch's.
    let idle = |report: &IdleReport| report.longest_idle_us;
    let what = match named {
        Idle::WaitsEachStep => return Ok(()),
        Idle::LaunchBound => format!(
            "kernels of 400 µs, a hundred times as long as a launch, leave the GPU idle for {:.0} µs between two steps as well",
            idle(&at(400.0)?)
        ),
        Idle::SlowCopies => {
            let [short, long] = [at(10.0)?, at(100.0)?];
            format!(
                "a copy of 4 bytes keeps the host for {:.0} µs where kernels take 10 µs, and for {:.0} µs where they take 100; the GPU copies \
                 for {:.0} µs both times",
                each(short.of("copy 4 bytes")),
                each(long.of("copy 4 bytes")),
                each(long.copies_us)
            )
        }
        Idle::HostWork => {
            let long = at(100.0)?;
            format!(
                "with kernels of 100 µs the host has {:.0} µs of work of its own in a step, the GPU {:.0}, and the GPU is idle all the same",
                each(long.of("other")),
                each(long.kernels_us)
            )
        }
        Idle::FirstLaunch => {
            let [some, more] = [idle_report(10.0, 100)?, idle_report(10.0, 200)?];
            format!(
                "that happens once, and the GPU's idle time grows with the steps: {:.0} µs in 100 of them, {:.0} in 200",
                some.idle_us, more.idle_us
            )
        }
        Idle::SlowKernels => "a kernel that takes twice as long keeps the GPU busy, not idle".to_string(),
    };
    told(
        what,
        "vary the time of the kernels: which of the host's calls takes longer with it, and which of the GPU's numbers stays?",
        "what does the host do at the moment when the GPU runs out of work, and what did it do just before?",
    )
}

/// The hidden source, once the diagnosis is right.
pub fn revealed_idle(diagnosis: Option<(Idle, f64)>) -> &'static str {
    let source = include_str!("idle.rs");
    let hidden = source.split("// begin\n").nth(1).and_then(|rest| rest.split("// end").next()).unwrap_or(source);
    diagnose_idle(diagnosis).reveals(hidden)
}

gpulab::show_as_text!(IdleReport);

impl IdleReport {
    /// µs of the host in all calls of that name.
    fn of(&self, name: &str) -> f64 {
        self.calls.iter().filter(|call| call.0 == name).map(|call| call.2).sum()
    }
}

impl fmt::Display for IdleReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{} steps; µs in all, µs per call", self.steps)?;
        for (name, count, us) in &self.calls {
            writeln!(f, "host  {name:<14} {count:>5} calls {us:>9.0} {:>8.1}", us / *count as f64)?;
        }
        let all = self.kernels_us + self.copies_us + self.idle_us;
        for (name, us) in [("kernels", self.kernels_us), ("copies", self.copies_us), ("idle", self.idle_us)] {
            writeln!(f, "GPU   {name:<14} {us:>21.0} µs, {:>4.1} %", 100.0 * us / all)?;
        }
        writeln!(f, "GPU   longest gap after the first kernel: {:.1} µs", self.longest_idle_us)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_gap_is_the_same_for_all_kernels_that_outlast_their_launches() {
        for us in [6.5, 10.0, 100.0, 400.0] {
            let report = idle_report(us, STEPS).unwrap();
            assert!((report.longest_idle_us - PREPARE_US - 4.0).abs() < 1e-6, "{report}");
        }
        let report = idle_report(10.0, STEPS).unwrap();
        assert!(report.of("copy 4 bytes") > 50.0 * STEPS as f64 && report.copies_us < 3.0 * STEPS as f64, "{report}");
        assert!(idle_report(10.0, 0).is_err() && idle_report(f64::NAN, 1).is_err() && idle_report(0.0, 1).is_err());
    }

    /// The loop without its fault, kernels without noise: the GPU has a gap below the time that the check asks for, and none above.
    #[test]
    fn the_number_asked_for_is_where_gaps_end() {
        let gaps = |kernel_us: f64| {
            let (mut host, mut gpu, mut most) = (0.0_f64, f64::NAN, 0.0_f64);
            for _ in 0..50 {
                host += PREPARE_US;
                for _ in 0..KERNELS {
                    host += 4.0;
                    most = most.max(host - gpu);
                    gpu = host.max(gpu) + kernel_us;
                }
            }
            most
        };
        assert!(gaps(6.5) < 1e-9 && gaps(6.4) > 0.1, "{} {}", gaps(6.5), gaps(6.4));
    }

    #[test]
    fn only_the_right_diagnosis_reveals() {
        let right = Some((Idle::WaitsEachStep, 6.5));
        assert!(diagnose_idle(right).passed(), "{}", diagnose_idle(right).text());
        assert!(revealed_idle(right).contains("fn train") && !revealed_idle(right).contains("tests"));
        for (wrong, said) in [
            (None, "no diagnosis yet"),
            (Some((Idle::LaunchBound, 6.5)), "a hundred times as long as a launch"),
            (Some((Idle::SlowCopies, 6.5)), "the GPU copies for 2 µs both times"),
            (Some((Idle::HostWork, 6.5)), "idle all the same"),
            (Some((Idle::FirstLaunch, 6.5)), "grows with the steps"),
            (Some((Idle::SlowKernels, 6.5)), "not idle"),
            (Some((Idle::WaitsEachStep, 4.0)), "the launches alone"),
            (Some((Idle::WaitsEachStep, 52.0)), "how many kernels"),
            (Some((Idle::WaitsEachStep, 2.5)), "busy with the launches"),
            (Some((Idle::WaitsEachStep, 3.0)), "hidden now"),
            (Some((Idle::WaitsEachStep, 24.0)), "the gap itself"),
            (Some((Idle::WaitsEachStep, 10.0)), "how long must one of the GPU's be"),
            (Some((Idle::WaitsEachStep, f64::NAN)), "is no answer"),
            (Some((Idle::WaitsEachStep, -1.0)), "is no answer"),
        ] {
            let text = diagnose_idle(wrong).text();
            assert!(text.starts_with("NOT YET") && text.contains(said), "{wrong:?}: {text}");
            assert!(!text.contains("6.5") && revealed_idle(wrong).starts_with("The source shows itself"), "{text}");
        }
    }
}
