//! Checks of the lesson about sharding: a step with sharded state, two questions on paper, and a checkpoint that comes back wrong.

use super::Verdict;
use super::on_paper::{diagnosed, number, part};
use super::verdict::{self, Check, asking, timed, told, wrong};
use gpulab::error::{Error, Result};
use gpulab::measurement::figures;
use gpulab_ranks::{Failure, FailureCause, Log, Rank, World};
use std::collections::BTreeMap;
use std::fmt;

/// A step of the reader's own: weights, this rank's gradient, and this rank's part of the momentum.
type Step = fn(&Rank, &mut [f32], &[f32], &mut [f32]) -> Result<()>;

/// Worlds and lengths: ranks that divide the length and ranks that do not, and fewer numbers than ranks.
const CASES: [(usize, usize); 8] = [(1, 6), (2, 8), (4, 64), (8, 64), (3, 10), (5, 1001), (8, 9), (5, 2)];
const STEPS: usize = 3;
const RATE: f32 = 0.1;
const KEEP: f32 = 0.9;

/// A gradient that looks random; it also depends on the weights, so that stale ones show.
fn gradient(rank: usize, step: usize, weights: &[f32]) -> Vec<f32> {
    let number = |at: usize| ((at * 31 + rank * 57 + step * 83 + 3) % 211) as f32 / 50.0 - 2.0;
    weights.iter().enumerate().map(|(at, weight)| number(at) + 0.5 * weight).collect()
}

fn first_weights(len: usize) -> Vec<f32> {
    (0..len).map(|at| (at as f32 * 0.7).cos()).collect()
}

/// Weights after each step and the last momentum, with all on one rank. `mean` makes one gradient of those of all ranks.
fn on_one_rank(ranks: usize, len: usize, mean: impl Fn(&[Vec<f32>], usize) -> f32) -> (Vec<Vec<f32>>, Vec<f32>) {
    let (mut weights, mut momentum, mut seen) = (first_weights(len), vec![0.0; len], Vec::new());
    for step in 0..STEPS {
        let all: Vec<Vec<f32>> = (0..ranks).map(|rank| gradient(rank, step, &weights)).collect();
        for at in 0..len {
            momentum[at] = KEEP * momentum[at] + mean(&all, at);
            weights[at] -= RATE * momentum[at];
        }
        seen.push(weights.clone());
    }
    (seen, momentum)
}

fn near(a: f32, b: f32) -> bool {
    (a - b).abs() <= 1e-4 * (1.0 + b.abs())
}

/// Checks a step of gradient descent with momentum (0.9, a rate of 0.1) whose momentum is shared out: by its weights, its part of the
/// momentum, messages and bytes.
pub fn sharded_step(answer: Step) -> Verdict {
    timed("sharded_step", move || {
        for (ranks, len) in CASES {
            let case = format!("{ranks} rank{}, {len} weights", if ranks == 1 { "" } else { "s" });
            asking(&case);
            let own = len.div_ceil(ranks);
            let run = World::new(ranks).run(|rank| {
                let (mut weights, mut momentum, mut seen) = (first_weights(len), vec![0.0; own], Vec::new());
                for step in 0..STEPS {
                    let own_gradient = gradient(rank.rank(), step, &weights);
                    answer(rank, &mut weights, &own_gradient, &mut momentum)?;
                    seen.push(weights.clone());
                }
                Ok((seen, momentum))
            });
            let run = match run {
                Ok(run) => run,
                Err(failure) => return ended(&case, &failure),
            };
            stepped(&case, len, &run.results)?;
            sent(&case, ranks, own, &run.log)?;
        }
        Ok(())
    })
}

fn ended(case: &str, failure: &Failure) -> Check {
    let what = format!("{case}: {}", failure.what);
    match failure.cause {
        FailureCause::Panicked => told(
            what,
            "your code panicked on that rank",
            "look at the ranges: where the ranks do not divide the weights, the last parts are shorter, or empty, unless you pad",
        ),
        FailureCause::Failed if failure.what.contains("expected") => told(
            what,
            "a reduce-scatter and an all-gather want parts of equal length: the ranks have to divide the array",
            "copy the gradient into an array of n · ⌈length / n⌉ numbers whose end is 0, and pass over the end after the all-gather",
        ),
        FailureCause::Deadlock | FailureCause::Mismatch => told(
            what,
            "the ranks do not make the same calls",
            "no call may stand behind a condition on the rank; every rank has a part, even one that is padding alone",
        ),
        _ => wrong(what, "read the error: it is what your code returned"),
    }
}

fn stepped(case: &str, len: usize, results: &[(Vec<Vec<f32>>, Vec<f32>)]) -> Check {
    let ranks = results.len();
    let mean = |all: &[Vec<f32>], at: usize| all.iter().map(|one| one[at]).sum::<f32>() / ranks as f32;
    let (right, momentum) = on_one_rank(ranks, len, mean);
    let (summed, _) = on_one_rank(ranks, len, |all, at| all.iter().map(|one| one[at]).sum());
    let own = len.div_ceil(ranks);
    for (rank, (seen, kept)) in results.iter().enumerate() {
        for step in 0..STEPS {
            let Some(at) = (0..len).find(|at| !near(seen[step][*at], right[step][*at])) else { continue };
            let given = seen[step][at];
            let what = format!(
                "{case}: after step {} rank {rank} has {} at place {at}, and one rank alone would have {}",
                step + 1,
                figures(f64::from(given)),
                figures(f64::from(right[step][at]))
            );
            let before = if step == 0 { first_weights(len)[at] } else { seen[step - 1][at] };
            if given == before {
                return told(
                    what,
                    "that weight is as it was before the step: nobody has updated it, or it has not come to this rank",
                    "a rank updates its own part alone; the parts of the others come by an all-gather",
                );
            }
            if near(given, summed[step][at]) {
                return told(
                    what,
                    "that is a step with the sum of the gradients",
                    "the average is asked for: `Op::Avg`",
                );
            }
            let alone = on_one_rank(ranks, len, |all, at| all[at / own][at]).0;
            if near(given, alone[step][at]) {
                return told(
                    what,
                    "that is a step with one rank's gradient: the owner of this part has not asked the others",
                    "a reduce-scatter gives each rank its part of the average",
                );
            }
            if step > 0 {
                return told(
                    what,
                    "the first step was right, and this one is not: something of it was not kept, or is kept at another place",
                    "`momentum` is the part of this rank, and stays from step to step: m ← 0.9 m + g, and w ← w − 0.1 m",
                );
            }
            return wrong(what, "m ← 0.9 m + g, and w ← w − 0.1 m, with the average of all ranks' gradients as g");
        }
        let from = rank * own;
        let there = kept.iter().take(len.saturating_sub(from)).enumerate();
        if let Some((at, given)) = there.into_iter().find(|(at, given)| !near(**given, momentum[from + at])) {
            return told(
                format!(
                    "{case}: rank {rank} has {} at place {at} of its momentum, and it should be {}",
                    figures(f64::from(*given)),
                    figures(f64::from(momentum[from + at]))
                ),
                "the weights are right, and the momentum of this rank's part is not in `momentum`: where did the step take it from?",
                "keep nothing beside `momentum`: it is all that this rank may hold from one step to the next",
            );
        }
    }
    Ok(())
}

fn sent(case: &str, ranks: usize, own: usize, log: &Log) -> Check {
    if let Some(call) = log.calls.iter().find(|call| call.name == "all_reduce") {
        return told(
            format!("{case}: rank {} calls `all_reduce`", call.rank),
            "the weights are right; but an all-reduce gives every rank the whole average, of which it needs its part alone",
            "a reduce-scatter before the update, and an all-gather behind it: together they send what an all-reduce sends",
        );
    }
    let most = STEPS * 2 * (ranks - 1) * own * 4;
    for rank in 0..ranks {
        let bytes = log.bytes_sent(rank);
        if bytes > most {
            return told(
                format!("{case}: rank {rank} sends {bytes} bytes in {STEPS} steps, and {most} would do"),
                "the weights are right, and too much is sent",
                "(n − 1)/n of the array for the reduce-scatter, as much again for the all-gather",
            );
        }
        if 2 * bytes < most {
            return told(
                format!("{case}: rank {rank} sends {bytes} bytes in {STEPS} steps, and the average needs more"),
                "each rank has only its own gradient: nobody can know the average without messages",
                "use `gradient`, and what the ranks send each other",
            );
        }
    }
    Ok(())
}

// ----------------------------------------------------------------------
// On paper.

/// Parameters, in 10⁹, and what a GPU has left for weights, gradients and state, in GB.
const PARAMETERS: f64 = 13.0;
const ROOM: f64 = 60.0;

/// Checks the fewest GPUs on which 13 · 10⁹ parameters train with 60 GB on each, by ZeRO stage 1, 2 and 3: bf16 weights and gradients,
/// Adam with 12 bytes per parameter.
pub fn fewest_gpus(answer: [Option<f64>; 3]) -> Verdict {
    verdict::verdict("fewest_gpus", || {
        let names = ["stage 1", "stage 2", "stage 3"];
        // Bytes per parameter that each GPU holds whole, and those that are shared out.
        let bytes = [(4.0, 12.0), (2.0, 14.0), (0.0, 16.0)];
        let fewest = |(whole, shared): (f64, f64)| shared * PARAMETERS / (ROOM - whole * PARAMETERS);
        for (at, name) in names.into_iter().enumerate() {
            let (exact, right) = (fewest(bytes[at]), fewest(bytes[at]).ceil());
            let mut slips = vec![
                (exact, "a number of GPUs is a whole one"),
                (exact.floor(), "with one less than it takes it does not fit"),
            ];
            slips.extend((0..3).filter(|other| *other != at).map(|other| {
                let what = ["that is stage 1", "that is stage 2", "that is stage 3"][other];
                (fewest(bytes[other]).ceil(), what)
            }));
            let start = "bytes per parameter that stay whole on every GPU, and bytes that are shared out: for how many GPUs is their sum 60 GB?";
            part(name, answer[at], right..=right, &slips, start)?;
        }
        Ok(())
    })
}

/// Stages of the pipeline, and the share of time in which they may stand idle.
const PIPELINE: f64 = 8.0;
const IDLE: f64 = 0.1;

/// Checks the fewest micro-batches with which a pipeline of 8 stages stands idle for at most a tenth of the time.
pub fn micro_batches(answer: Option<f64>) -> Verdict {
    let right = ((PIPELINE - 1.0) * (1.0 - IDLE) / IDLE).round();
    let slips = [
        ((PIPELINE - 1.0) / IDLE, "that is idle time over busy time; the question asks for its share of all the time"),
        (PIPELINE * (1.0 - IDLE) / IDLE, "how many slots does the last stage wait before its first micro-batch?"),
        (PIPELINE / IDLE, "how many slots does the last stage wait before its first micro-batch?"),
        (right - 1.0, "with that many it is a little more than a tenth"),
        (right + 1.0, "one less is enough: exactly a tenth is allowed"),
    ];
    let start =
        "of p stages and m micro-batches: how many slots does the whole take, and in how many of them is a stage busy?";
    number("micro_batches", answer, right..=right, &slips, start)
}

// ----------------------------------------------------------------------
// A checkpoint that comes back wrong, source unseen.

const LEN: usize = 240;
const MOST_RANKS: usize = 13;
/// The world that the question asks about.
const ASKED: usize = 64;

const SOURCE: &str = "fn load(folder: &BTreeMap<String, Part>, len: usize, ranks: usize) -> Vec<Part> {
    // A BTreeMap gives the files in the order of their names: part-0, part-1, part-10, part-11, part-2 …
    let weights = folder.values().flat_map(|part| &part.weights).take(len);
    let momentum = folder.values().flat_map(|part| &part.momentum).take(len);
    share_out(weights, momentum, folder[\"part-0\"].step, ranks)
}";

/// What may be wrong with a checkpoint.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CheckpointFault {
    /// The padding of the old parts comes along as numbers.
    PaddingKept,
    /// The optimizer's state is not saved.
    StateLost,
    /// The number of the step begins again.
    StepLost,
    /// Weights are saved in 16 bits.
    Rounded,
    /// The new ranks take their parts in a wrong order.
    LoadedInWrongOrder,
    /// The old parts are put together in a wrong order.
    JoinedInWrongOrder,
}

#[derive(Debug, Clone, PartialEq)]
struct Saved {
    weights: Vec<f32>,
    momentum: Vec<f32>,
    step: usize,
}

/// What a checkpoint looks like after it was loaded.
#[derive(Debug, Clone, PartialEq)]
#[must_use = "a report shows itself as the last expression of a cell, without a semicolon"]
pub struct CheckpointReport {
    /// Ranks that saved it.
    pub saved_by: usize,
    /// Ranks that loaded it.
    pub loaded_by: usize,
    /// How many numbers there are of each kind.
    pub numbers: usize,
    /// How many weights are the same, bit for bit, at the same place; for each of the new ranks, and how many it has.
    pub weights_right: Vec<(usize, usize)>,
    /// The same of the momentum.
    pub momentum_right: Vec<(usize, usize)>,
    /// The step's number, before and after.
    pub step: (usize, usize),
    /// The loss, before and after.
    pub loss: (f32, f32),
}

fn state(seed: f32) -> Vec<f32> {
    (0..LEN).map(|at| ((at as f32 + seed) * 1.7).sin()).collect()
}

/// A part for each rank, all of the same length, filled up with zeros.
fn shared_out(numbers: &[f32], ranks: usize) -> Vec<Vec<f32>> {
    let own = numbers.len().div_ceil(ranks);
    let number = |at: usize| numbers.get(at).copied().unwrap_or(0.0);
    (0..ranks).map(|rank| (rank * own..(rank + 1) * own).map(number).collect()).collect()
}

/// Saves a training on so many ranks of 240 weights, loads it on so many, and compares.
///
/// # Errors
/// [`Error::Invalid`] for no rank, or more than 13.
pub fn checkpoint_report(saved_by: usize, loaded_by: usize) -> Result<CheckpointReport> {
    if [saved_by, loaded_by].iter().any(|ranks| !(1..=MOST_RANKS).contains(ranks)) {
        return Err(Error::invalid(
            format!("saved by {saved_by} ranks, loaded by {loaded_by}"),
            format!("ask for 1 to {MOST_RANKS} ranks; what more of them do can be worked out"),
        ));
    }
    let (weights, momentum, step) = (state(0.0), state(500.0), 40);
    let mut folder = BTreeMap::new();
    let parts = shared_out(&weights, saved_by).into_iter().zip(shared_out(&momentum, saved_by));
    for (rank, (weights, momentum)) in parts.enumerate() {
        folder.insert(format!("part-{rank}"), Saved { weights, momentum, step });
    }
    // By name: this is the fault.
    let join = |of: fn(&Saved) -> &Vec<f32>| -> Vec<f32> { folder.values().flat_map(of).copied().take(LEN).collect() };
    let (came, came_momentum) = (join(|part| &part.weights), join(|part| &part.momentum));
    let own = LEN.div_ceil(loaded_by);
    let right = |came: &[f32], whole: &[f32]| {
        let of = |rank: usize| {
            let range = (rank * own).min(LEN)..((rank + 1) * own).min(LEN);
            (range.clone().filter(|at| came[*at].to_bits() == whole[*at].to_bits()).count(), range.len())
        };
        (0..loaded_by).map(of).collect::<Vec<_>>()
    };
    let target = state(0.2);
    let loss = |w: &[f32]| w.iter().zip(&target).map(|(w, target)| (w - target).powi(2)).sum::<f32>() / LEN as f32;
    Ok(CheckpointReport {
        saved_by,
        loaded_by,
        numbers: LEN,
        weights_right: right(&came, &weights),
        momentum_right: right(&came_momentum, &momentum),
        step: (step, folder["part-0"].step),
        loss: (loss(&weights), loss(&came)),
    })
}

gpulab::show_as_text!(CheckpointReport);

impl CheckpointReport {
    fn all_right(&self) -> bool {
        self.weights_right.iter().chain(&self.momentum_right).all(|(right, of)| right == of)
    }
}

impl fmt::Display for CheckpointReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let plural = |ranks: usize| if ranks == 1 { "" } else { "s" };
        writeln!(
            f,
            "{} weights, saved by {} rank{} at step {}, loaded by {} at step {}; loss {:.4} before, {:.4} after",
            self.numbers,
            self.saved_by,
            plural(self.saved_by),
            self.step.0,
            self.loaded_by,
            self.step.1,
            self.loss.0,
            self.loss.1
        )?;
        for (name, right) in [("weights", &self.weights_right), ("momentum", &self.momentum_right)] {
            let each = right.iter().map(|(right, of)| match right == of {
                true => "all".to_string(),
                false => format!("{right} of {of}"),
            });
            writeln!(f, "  {name:>8} right, by new rank: {}", each.collect::<Vec<_>>().join(", "))?;
        }
        Ok(())
    }
}

/// How many of so many parts are put at another place.
fn misplaced(ranks: usize) -> usize {
    let mut names: Vec<(String, usize)> = (0..ranks).map(|rank| (rank.to_string(), rank)).collect();
    names.sort();
    names.iter().enumerate().filter(|(place, (_, rank))| place != rank).count()
}

/// Checks a diagnosis: what is wrong with the hidden checkpoint, and how many parts of 64 are put at another place.
pub fn diagnose_checkpoint(diagnosis: Option<(CheckpointFault, f64)>) -> Verdict {
    let right = misplaced(ASKED) as f64;
    let slips = [
        (ASKED as f64, "all of them? In the reports some parts are right"),
        (ASKED as f64 - 10.0, "that is the number of parts with two digits; they push others aside"),
        (misplaced(11) as f64, "that is with 11 parts"),
        (misplaced(12) as f64, "that is with 12 parts"),
        (misplaced(13) as f64, "that is with 13 parts"),
    ];
    let start = "in which order were the 11 parts put together? Go on with that rule, and let a loop count";
    let none = "ask for reports that differ in one thing. From how many old ranks on is something wrong, and does the number of new ranks matter?";
    diagnosed("diagnose_checkpoint", diagnosis, none, against, right..=right, &slips, start)
}

/// What speaks for an innocent suspect.
fn against(named: CheckpointFault) -> Check {
    let what = match named {
        CheckpointFault::JoinedInWrongOrder => return Ok(()),
        CheckpointFault::PaddingKept => {
            let report = checkpoint_report(7, 4)?;
            format!(
                "saved by 7 ranks, which do not divide 240, and so with padding, it comes back {}",
                if report.all_right() { "right" } else { "wrong" }
            )
        }
        CheckpointFault::StateLost => {
            let report = checkpoint_report(4, 4)?;
            let (right, of) = report.momentum_right.iter().fold((0, 0), |sum, one| (sum.0 + one.0, sum.1 + one.1));
            format!("saved by 4 ranks, {right} of {of} numbers of the momentum come back")
        }
        CheckpointFault::StepLost => {
            let report = checkpoint_report(11, 4)?;
            format!(
                "even where weights are wrong, it goes on at step {}, as saved (step {})",
                report.step.1, report.step.0
            )
        }
        CheckpointFault::Rounded => {
            let report = checkpoint_report(4, 4)?;
            format!(
                "saved by 4 ranks, the weights come back {}, bit for bit",
                if report.all_right() { "right" } else { "wrong" }
            )
        }
        CheckpointFault::LoadedInWrongOrder => {
            let report = checkpoint_report(4, 13)?;
            format!(
                "saved by 4 ranks and loaded by 13, everything comes back {}: the number of new ranks does no harm",
                if report.all_right() { "right" } else { "wrong" }
            )
        }
    };
    wrong(what, "from which number of *old* ranks on is something wrong? What is new about that number?")
}

/// The hidden source, once the diagnosis is right.
pub fn revealed_checkpoint(diagnosis: Option<(CheckpointFault, f64)>) -> &'static str {
    diagnose_checkpoint(diagnosis).reveals(SOURCE)
}

#[cfg(test)]
mod tests {
    use super::*;
    use gpulab_ranks::{Collectives, Op};
    use std::cell::RefCell;
    use std::ops::Range;

    fn refused(answer: Step, said: &str) {
        let text = sharded_step(answer).text();
        assert!(text.starts_with("NOT YET") && text.contains(said), "{said}: {text}");
    }

    fn own(rank: &Rank, len: usize) -> Range<usize> {
        let part = len.div_ceil(rank.size());
        (rank.rank() * part).min(len)..((rank.rank() + 1) * part).min(len)
    }

    fn padded(x: &[f32], ranks: usize) -> Vec<f32> {
        let mut all = x.to_vec();
        all.resize(x.len().div_ceil(ranks) * ranks, 0.0);
        all
    }

    /// The right step, with its parts exchangeable.
    fn step(
        rank: &Rank,
        weights: &mut [f32],
        gradient: &[f32],
        momentum: &mut [f32],
        op: Op,
        gathers: bool,
    ) -> Result<()> {
        let (range, mut mean) = (own(rank, weights.len()), vec![0.0; momentum.len()]);
        rank.reduce_scatter(&padded(gradient, rank.size()), &mut mean, op)?;
        for (at, place) in range.enumerate() {
            momentum[at] = 0.9 * momentum[at] + mean[at];
            weights[place] -= 0.1 * momentum[at];
        }
        if gathers {
            gather(rank, weights)?;
        }
        Ok(())
    }

    fn gather(rank: &Rank, weights: &mut [f32]) -> Result<()> {
        let mut all = vec![0.0; weights.len().div_ceil(rank.size()) * rank.size()];
        let mut mine = weights[own(rank, weights.len())].to_vec();
        mine.resize(all.len() / rank.size(), 0.0);
        rank.all_gather(&mine, &mut all)?;
        weights.copy_from_slice(&all[..weights.len()]);
        Ok(())
    }

    /// The right messages, with another rule: momentum, average and weight give momentum and weight.
    fn by_rule(
        rank: &Rank,
        w: &mut [f32],
        g: &[f32],
        m: &mut [f32],
        rule: fn(f32, f32, f32) -> (f32, f32),
    ) -> Result<()> {
        let mut mean = vec![0.0; m.len()];
        rank.reduce_scatter(&padded(g, rank.size()), &mut mean, Op::Avg)?;
        for (at, place) in own(rank, w.len()).enumerate() {
            (m[at], w[place]) = rule(m[at], mean[at], w[place]);
        }
        gather(rank, w)
    }

    fn right(rank: &Rank, weights: &mut [f32], gradient: &[f32], momentum: &mut [f32]) -> Result<()> {
        step(rank, weights, gradient, momentum, Op::Avg, true)
    }

    #[test]
    fn a_right_step_passes_by_a_ring_or_by_messages() {
        assert!(sharded_step(right).passed(), "{}", sharded_step(right).text());
        let direct: Step = |rank, weights, gradient, momentum| {
            right(&rank.by(gpulab_ranks::Algorithm::Direct), weights, gradient, momentum)
        };
        assert!(sharded_step(direct).passed(), "{}", sharded_step(direct).text());
        let started: Step = |rank, weights, gradient, momentum| {
            let (range, mut mean) = (own(rank, weights.len()), vec![0.0; momentum.len()]);
            rank.start_reduce_scatter(&padded(gradient, rank.size()), Op::Sum)?.wait(&mut mean)?;
            for (at, place) in range.enumerate() {
                momentum[at] = 0.9 * momentum[at] + mean[at] / rank.size() as f32;
                weights[place] -= 0.1 * momentum[at];
            }
            gather(rank, weights)
        };
        assert!(sharded_step(started).passed(), "{}", sharded_step(started).text());
    }

    #[test]
    fn a_step_that_gathers_changes_or_divides_first_passes() {
        let changes: Step = |rank, weights, gradient, momentum| {
            let mut mean = vec![0.0; momentum.len()];
            let share: Vec<f32> = gradient.iter().map(|g| g / rank.size() as f32).collect();
            rank.reduce_scatter(&padded(&share, rank.size()), &mut mean, Op::Sum)?;
            momentum.iter_mut().zip(&mean).for_each(|(m, g)| *m = 0.9 * *m + g);
            let mut all = vec![0.0; momentum.len() * rank.size()];
            rank.all_gather(momentum, &mut all)?;
            weights.iter_mut().zip(&all).for_each(|(w, m)| *w -= 0.1 * m);
            Ok(())
        };
        assert!(sharded_step(changes).passed(), "{}", sharded_step(changes).text());
    }

    #[test]
    fn wrong_steps_are_told_what_is_wrong() {
        refused(|_, _, _, _| todo!("the step"), "panicked");
        refused(|_, _, _, _| Ok(()), "nobody has updated it");
        refused(|rank, w, g, m| step(rank, w, g, m, Op::Avg, false), "has not come to this rank");
        refused(|rank, w, g, m| step(rank, w, g, m, Op::Sum, true), "the sum of the gradients");
        // Without padding.
        refused(
            |rank, w, g, m| {
                if w.len() % rank.size() == 0 {
                    return right(rank, w, g, m);
                }
                rank.reduce_scatter(g, m, Op::Avg)
            },
            "want parts of equal length",
        );
        // Its own gradient alone.
        refused(
            |rank, w, g, m| {
                for (at, place) in own(rank, w.len()).enumerate() {
                    m[at] = 0.9 * m[at] + g[place];
                    w[place] -= 0.1 * m[at];
                }
                gather(rank, w)
            },
            "one rank's gradient",
        );
        // A momentum that is not kept.
        refused(|rank, w, g, m| right(rank, w, g, &mut m.to_vec()), "the first step was right");
        // Nesterov's momentum; a damped one; a step with the old momentum.
        refused(
            |rank, w, g, m| by_rule(rank, w, g, m, |m, g, w| (0.9 * m + g, w - 0.1 * (g + 0.9 * (0.9 * m + g)))),
            "after step 1",
        );
        refused(
            |rank, w, g, m| by_rule(rank, w, g, m, |m, g, w| (0.9 * m + 0.1 * g, w - 0.1 * (0.9 * m + 0.1 * g))),
            "after step 1",
        );
        refused(|rank, w, g, m| by_rule(rank, w, g, m, |m, g, w| (0.9 * m + g, w - 0.1 * m)), "as it was before");
        // The next rank's part in place of its own.
        refused(
            |rank, w, g, m| {
                let mut mean = vec![0.0; m.len()];
                rank.reduce_scatter(&padded(g, rank.size()), &mut mean, Op::Avg)?;
                let from = (rank.rank() + 1) % rank.size() * m.len();
                for (at, place) in (from.min(w.len())..(from + m.len()).min(w.len())).enumerate() {
                    m[at] = 0.9 * m[at] + mean[at];
                    w[place] -= 0.1 * m[at];
                }
                gather(rank, w)
            },
            "NOT YET",
        );
        // A call that one rank skips.
        refused(
            |rank, w, g, m| {
                if rank.rank() + 1 == rank.size() && rank.size() > 1 { Ok(()) } else { right(rank, w, g, m) }
            },
            "do not make the same calls",
        );
    }

    thread_local! {
        static WHOLE: RefCell<Vec<f32>> = const { RefCell::new(Vec::new()) };
    }

    #[test]
    fn cheats_and_dear_ways_are_refused() {
        // The whole momentum on every rank, hidden.
        refused(
            |rank, w, g, m| {
                let mut mean = g.to_vec();
                rank.all_reduce(&mut mean, Op::Avg)?;
                WHOLE.with_borrow_mut(|whole| {
                    whole.resize(w.len(), 0.0);
                    for at in 0..w.len() {
                        whole[at] = 0.9 * whole[at] + mean[at];
                        w[at] -= 0.1 * whole[at];
                    }
                    for (at, place) in own(rank, w.len()).enumerate() {
                        m[at] = whole[place];
                    }
                });
                Ok(())
            },
            "calls `all_reduce`",
        );
        // The same with a reduce-scatter and an all-gather of the gradient, and a momentum that stays empty.
        refused(
            |rank, w, g, m| {
                let (mut mean, mut all) = (vec![0.0; m.len()], vec![0.0; m.len() * rank.size()]);
                rank.reduce_scatter(&padded(g, rank.size()), &mut mean, Op::Avg)?;
                rank.all_gather(&mean, &mut all)?;
                WHOLE.with_borrow_mut(|whole| {
                    whole.resize(w.len(), 0.0);
                    for at in 0..w.len() {
                        whole[at] = 0.9 * whole[at] + all[at];
                        w[at] -= 0.1 * whole[at];
                    }
                });
                Ok(())
            },
            "not in `momentum`",
        );
        // The gradients of all ranks from the check's own formula, which nobody is to know: without a message.
        refused(
            |rank, w, g, m| {
                if rank.size() == 1 {
                    return right(rank, w, g, m);
                }
                let step = WHOLE.with_borrow_mut(|whole| {
                    whole.push(0.0);
                    whole.len() - 1
                });
                let all: Vec<Vec<f32>> = (0..rank.size()).map(|one| gradient(one, step, w)).collect();
                let before = w.to_vec();
                for at in 0..w.len() {
                    let mean = all.iter().map(|one| one[at]).sum::<f32>() / rank.size() as f32;
                    w[at] = before[at] - 0.1 * mean;
                }
                for (at, place) in own(rank, w.len()).enumerate() {
                    m[at] = (before[place] - w[place]) / 0.1;
                }
                Ok(())
            },
            "NOT YET",
        );
        // All gradients to everybody.
        refused(
            |rank, w, g, m| {
                let mut all = vec![0.0; g.len() * rank.size()];
                rank.all_gather(g, &mut all)?;
                for (at, place) in own(rank, w.len()).enumerate() {
                    m[at] = 0.9 * m[at] + all[place..].iter().step_by(g.len()).sum::<f32>() / rank.size() as f32;
                    w[place] -= 0.1 * m[at];
                }
                gather(rank, w)
            },
            "would do",
        );
    }

    #[test]
    fn the_questions_on_paper_and_each_slip() {
        let right = [Some(20.0), Some(6.0), Some(4.0)];
        assert!(fewest_gpus(right).passed(), "{}", fewest_gpus(right).text());
        for (at, given, said) in [
            (0, 19.5, "a whole one"),
            (0, 19.0, "does not fit"),
            (0, 6.0, "that is stage 2"),
            (1, 5.0, "does not fit"),
            (1, 4.0, "that is stage 3"),
            (2, 3.0, "does not fit"),
            (2, 20.0, "that is stage 1"),
            (2, 64.0, "is their sum"),
        ] {
            let mut wrong = right;
            wrong[at] = Some(given);
            let text = fewest_gpus(wrong).text();
            assert!(text.starts_with("NOT YET") && text.contains(said), "{at} {given}: {text}");
        }
        assert!(micro_batches(Some(63.0)).passed(), "{}", micro_batches(Some(63.0)).text());
        for (given, said) in [
            (70.0, "idle time over busy time"),
            (72.0, "before its first micro-batch"),
            (80.0, "before its first micro-batch"),
            (62.0, "a little more"),
            (64.0, "one less"),
            (8.0, "is a stage busy"),
        ] {
            let text = micro_batches(Some(given)).text();
            assert!(text.starts_with("NOT YET") && text.contains(said), "{given}: {text}");
        }
        // Cheats: nothing, and what compares with nothing.
        assert!(!micro_batches(None).passed() && !micro_batches(Some(f64::NAN)).passed());
        assert!(!fewest_gpus([None; 3]).passed() && !fewest_gpus([Some(f64::INFINITY); 3]).passed());
    }

    #[test]
    fn reports_tell_suspects_apart_and_only_they_convict() {
        for (saved_by, loaded_by) in [(1, 1), (4, 13), (7, 4), (10, 3), (9, 11)] {
            let report = checkpoint_report(saved_by, loaded_by).unwrap();
            assert!(report.all_right() && report.loss.0 == report.loss.1, "{report}");
        }
        for saved_by in [11, 12, 13] {
            let report = checkpoint_report(saved_by, 1).unwrap();
            // Parts 0 and 1 are right.
            assert_eq!(report.weights_right, [(2 * LEN.div_ceil(saved_by), LEN)], "{report}");
            assert!(
                report.loss.1 > report.loss.0
                    && report.step.0 == report.step.1
                    && !report.to_string().contains("part-")
            );
        }
        assert!(checkpoint_report(14, 2).is_err() && checkpoint_report(2, 0).is_err());
        let right = Some((CheckpointFault::JoinedInWrongOrder, misplaced(64) as f64));
        assert!(diagnose_checkpoint(right).passed() && revealed_checkpoint(right) == SOURCE);
        for (wrong, said) in [
            (None, "no diagnosis yet"),
            (Some((CheckpointFault::PaddingKept, 1.0)), "comes back right"),
            (Some((CheckpointFault::StateLost, 1.0)), "240 of 240 numbers"),
            (Some((CheckpointFault::StepLost, 1.0)), "at step 40, as saved"),
            (Some((CheckpointFault::Rounded, 1.0)), "bit for bit"),
            (Some((CheckpointFault::LoadedInWrongOrder, 1.0)), "new ranks does no harm"),
            (Some((CheckpointFault::JoinedInWrongOrder, 64.0)), "some parts are right"),
            (Some((CheckpointFault::JoinedInWrongOrder, 54.0)), "push others aside"),
            (Some((CheckpointFault::JoinedInWrongOrder, f64::NAN)), "is no answer"),
            (Some((CheckpointFault::JoinedInWrongOrder, 3.0)), "let a loop count"),
        ] {
            let text = diagnose_checkpoint(wrong).text();
            assert!(text.starts_with("NOT YET") && text.contains(said), "{wrong:?}: {text}");
            assert!(revealed_checkpoint(wrong).starts_with("The source shows itself"));
        }
        assert_eq!([10, 11, 12].map(misplaced), [0, 9, 10]);
    }
}
