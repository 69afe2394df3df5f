//! Why warps wait: the stall table.

use super::{Counted, bar};
use gpulab::measurement::Measurement;
use std::fmt;

/// A reason for which a warp that lives on a multiprocessor does not issue its next instruction.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Reason {
    name: &'static str,
    means: &'static str,
}

impl Reason {
    /// Nsight Compute's name: the warps that wait for it, added up over all cycles, by the instructions issued. So it is
    /// how many cycles a warp waits for it before each of its instructions, on average.
    pub(super) fn metric(self) -> String {
        format!("smsp__average_warps_issue_stalled_{}_per_issue_active.ratio", self.name)
    }
}

const fn reason(name: &'static str, means: &'static str) -> Reason {
    Reason { name, means }
}

/// The reasons of Hopper, with what they mean in short (after NVIDIA's Kernel Profiling Guide, "Warp Stall Reasons").
pub(super) const REASONS: [Reason; 18] = [
    reason("long_scoreboard", "a load from global or local memory has not come"),
    reason("short_scoreboard", "a load from shared memory, or a special function, has not come"),
    reason("barrier", "other warps of the block have not reached `__syncthreads()`"),
    reason("lg_throttle", "the queue for global and local memory is full"),
    reason("mio_throttle", "the queue for shared memory and special functions is full"),
    reason("tex_throttle", "the queue of the texture unit is full"),
    reason("math_pipe_throttle", "the arithmetic unit is busy"),
    reason("wait", "the last instruction has a fixed latency"),
    reason("not_selected", "ready, but another warp was taken"),
    reason("selected", "it issues: no stall"),
    reason("no_instruction", "its next instruction is not in the cache"),
    reason("branch_resolving", "a jump is being worked out"),
    reason("dispatch_stall", "the dispatcher holds it back"),
    reason("drain", "it has ended, and its stores are not out"),
    reason("membar", "a memory fence has not come through"),
    reason("imc_miss", "a constant is not in the cache"),
    reason("gmma", "the tensor cores are busy"),
    reason("sleeping", "it sleeps"),
];

/// One rung's reasons to wait, most first: the cycles that a warp waits so for each of its instructions, on average.
#[derive(Debug, Clone, PartialEq)]
#[must_use = "a stall table shows itself as the last expression of a cell, without a semicolon"]
pub struct Stalls {
    /// The rung.
    pub rung: String,
    /// Reason in Nsight Compute's words, what it means, cycles.
    pub reasons: Vec<(&'static str, &'static str, f64)>,
    /// The machine, where it was recorded; else empty.
    pub recorded_on: String,
}

pub(super) fn of(counted: &Counted) -> Stalls {
    let known = REASONS.iter().filter_map(|reason| {
        let cycles = counted.metrics.get(&reason.metric()).copied()?;
        Some((reason.name, reason.means, cycles))
    });
    let mut reasons: Vec<_> = known.filter(|one| one.2 > 0.0).collect();
    reasons.sort_by(|a, b| b.2.total_cmp(&a.2));
    Stalls { rung: counted.rung.clone(), reasons, recorded_on: counted.recorded_on.clone() }
}

impl Stalls {
    /// The first reason that is a wait; empty where nothing was counted.
    pub fn first(&self) -> &'static str {
        self.reasons.iter().find(|one| one.0 != "selected").map_or("", |one| one.0)
    }

    /// The reasons as rows for [`plot::bars`](gpulab::plot::bars): the five that are most.
    pub fn rows(&self) -> Vec<Measurement> {
        let row = |one: &(&str, &str, f64)| bar(one.0, "waiting", "cycles an instruction", one.2, &self.recorded_on);
        self.reasons.iter().take(5).map(row).collect()
    }

    /// What the notebook calls to show a value.
    pub fn evcxr_display(&self) {
        print!("EVCXR_BEGIN_CONTENT text/plain\n{self}EVCXR_END_CONTENT\n");
    }
}

impl fmt::Display for Stalls {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let all: f64 = self.reasons.iter().map(|one| one.2).sum();
        let recorded =
            if self.recorded_on.is_empty() { String::new() } else { format!(" (recorded on {})", self.recorded_on) };
        writeln!(f, "{}: cycles that a warp spends so for each of its instructions{recorded}", self.rung)?;
        for (name, means, cycles) in self.reasons.iter().filter(|one| one.2 >= 0.01 * all) {
            writeln!(f, "{cycles:>8.2}  {:>3.0} %  {name:18}  {means}", 100.0 * cycles / all)?;
        }
        Ok(())
    }
}
