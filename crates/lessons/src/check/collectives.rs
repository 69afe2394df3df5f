//! Checks of the lesson about many GPUs: an all-reduce of the reader's own, its time on paper, and a training that goes wrong.

use super::Verdict;
use super::on_paper::{diagnosed, number, within};
use super::verdict::{Check, asking, timed, told, wrong};
use gpulab::error::{Error, Result};
use gpulab::measurement::figures;
use gpulab_ranks::{Collectives, Failure, FailureCause, Log, Op, Rank, World};
use std::fmt;

/// An all-reduce (a sum) of the reader's own, in place.
type AllReduce = fn(&Rank, &mut [f32]) -> Result<()>;

/// Worlds and lengths that it is tried with: ranks that divide the length and ranks that do not, fewer numbers than ranks, and none.
const CASES: [(usize, usize); 11] =
    [(1, 6), (2, 8), (3, 12), (4, 64), (5, 40), (8, 64), (3, 10), (5, 1001), (8, 9), (5, 2), (2, 0)];

/// Checks an all-reduce around a ring, made of `send`, `recv` and `send_recv` alone: by its sums, by each rank's messages and bytes, by
/// steps, and whether it ends where a send waits for its receiver.
pub fn ring_all_reduce(answer: AllReduce) -> Verdict {
    timed("ring_all_reduce", move || {
        for (ranks, len) in CASES {
            for rendezvous in [false, true] {
                let waits = if rendezvous { ", where a send waits for its receiver" } else { "" };
                let case = format!("{ranks} rank{}, {len} numbers{waits}", if ranks == 1 { "" } else { "s" });
                asking(&case);
                let world = World::new(ranks);
                let world = if rendezvous { world.rendezvous() } else { world };
                let run = world.run(|rank| {
                    let mut data = numbers(rank.rank(), len);
                    answer(rank, &mut data)?;
                    Ok(data)
                });
                let run = match run {
                    Ok(run) => run,
                    Err(failure) => return ended(&case, &failure),
                };
                sums(&case, &run.results)?;
                messages(&case, ranks, len, &run.log)?;
            }
        }
        Ok(())
    })
}

/// Whole numbers, so that every order of sums gives the same.
fn numbers(rank: usize, len: usize) -> Vec<f32> {
    (0..len).map(|at| ((at * 31 + rank * 57 + 3) % 211) as f32 - 80.0).collect()
}

fn ended(case: &str, failure: &Failure) -> Check {
    let what = format!("{case}: {}", failure.what);
    match failure.cause {
        FailureCause::Deadlock => told(
            what,
            "every rank that is left waits for another one: for a message that nobody has sent, or for somebody who receives",
            "who sends, who receives, and when? In each step every rank does both: `send_recv` does them at the same time. And all ranks have to make as many steps",
        ),
        FailureCause::Mismatch => told(
            what,
            "the receiver has to expect the very chunk that is sent, and where the ranks do not divide the array chunks have different lengths",
            "write down for step 0: which chunk does rank r send, and which one does rank r − 1 send to it?",
        ),
        FailureCause::Panicked => told(
            what,
            "your code panicked on that rank",
            "look at the indices: chunk numbers are taken modulo the number of ranks, and `0 - 1` is no `usize`",
        ),
        _ => wrong(what, "read the error: it is what your code returned"),
    }
}

fn sums(case: &str, results: &[Vec<f32>]) -> Check {
    let (ranks, len) = (results.len(), results.first().map_or(0, Vec::len));
    let all: Vec<Vec<f32>> = (0..ranks).map(|rank| numbers(rank, len)).collect();
    let right: Vec<f32> = (0..len).map(|at| all.iter().map(|own| own[at]).sum()).collect();
    for (rank, data) in results.iter().enumerate() {
        let Some(at) = (0..len).find(|at| data[*at] != right[*at]) else { continue };
        let (given, own) = (data[at], all[rank][at]);
        let what = format!("{case}: rank {rank} has {given} at place {at}, and the sum is {}", right[at]);
        let right_places = (0..len).filter(|at| data[*at] == right[*at]).count();
        if given == own {
            return told(
                what,
                "that is the rank's own number: nothing was added to it, and nothing put in its place",
                "in the second half complete chunks travel around: which one does rank r have after the first half, and which does it receive first?",
            );
        }
        if given == right[at] / ranks as f32 {
            return told(what, "that is the average", "the sum is asked for; whoever wants the average divides it");
        }
        if right_places > 0 {
            let what = format!("{what} ({right_places} of {len} places are right)");
            return told(
                what,
                "some chunks are complete and some are not: a chunk was added where it should have been put in place, or the other way, or travelled too short a way",
                "in the first n − 1 steps what comes is added; in the last n − 1 it replaces. After the first half rank r has exactly one complete chunk",
            );
        }
        return told(
            what,
            "no place has the sum: numbers were left out, or added twice",
            "follow one chunk on paper, for three ranks: whose numbers are in it after each step?",
        );
    }
    Ok(())
}

fn messages(case: &str, ranks: usize, len: usize, log: &Log) -> Check {
    if let Some(call) = log.calls.iter().find(|call| !matches!(call.name, "send" | "recv" | "send_recv")) {
        return told(
            format!("{case}: rank {} calls `{}`", call.rank, call.name),
            "the sums are right; but the exercise is to make a collective of messages",
            "use `send`, `recv` and `send_recv` alone",
        );
    }
    let (most, chunk) = (2 * (ranks - 1), len.div_ceil(ranks));
    let all: usize = (0..ranks).map(|rank| log.bytes_sent(rank)).sum();
    if all < most * len * 4 {
        return told(
            format!("{case}: the ranks send {all} bytes in all, without a message for some of the sums"),
            "each number has to be added to those of n − 1 other ranks, and the sum has to get to n − 1 ranks: nobody can know it without a message",
            "use `data`, `rank.rank()` and `rank.size()` alone, and messages",
        );
    }
    for rank in 0..ranks {
        let (sent, count) = (log.bytes_sent(rank), log.messages_sent(rank));
        if sent > most * chunk * 4 {
            return told(
                format!(
                    "{case}: rank {rank} sends {sent} bytes, and {} would do ({} in chunks of {chunk})",
                    most * chunk * 4,
                    most
                ),
                "the sums are right, and too much is sent: 2 (n − 1)/n of the array are enough for each rank",
                "cut the array into n chunks; a rank sends one of them in each of 2 (n − 1) steps",
            );
        }
        if count > most {
            return told(
                format!("{case}: rank {rank} sends {count} messages, and {most} would do"),
                "the bytes are right, in too many messages: each has its latency",
                "one message in each step: a chunk as a whole",
            );
        }
    }
    if log.steps() > most {
        return told(
            format!("{case}: it takes {} steps, and {most} would do", log.steps()),
            "the sums and the bytes are right, but ranks wait for each other: a rank can send and receive in the same step",
            "`send_recv` does both at the same time",
        );
    }
    Ok(())
}

// ----------------------------------------------------------------------
// On paper.

/// Checks the size, in MiB, at which a ring all-reduce on 8 ranks spends as long on latencies as on bytes, on links with a latency of 5
/// µs and 100 GB/s.
pub fn ring_balance(answer: Option<f64>) -> Verdict {
    const MIB: f64 = (1_u64 << 20) as f64;
    // Bytes that a link sends in a latency.
    let one = 5e-6 * 100e9;
    // 14 α = 14 · S/8 · β.
    let right = 8.0 * one / MIB;
    let slips = [
        (right * MIB / 1e6, "a MiB has 2²⁰ bytes, a MB 10⁶"),
        (one / MIB, "that is one message with the whole array: how much of it goes in a step of the ring?"),
        (14.0 * one / MIB, "each step carries a chunk, and not the whole array"),
        (7.0 * one / MIB, "the bytes of both halves are 2 (n − 1)/n arrays, a little less than 2"),
        (16.0 * one / MIB, "latencies of both halves, and bytes of one?"),
        (4.0 * one / MIB, "latencies of one half, and bytes of both?"),
        (right * 1024.0, "in MiB, please"),
        (right * MIB, "in MiB, please"),
    ];
    let start =
        "what part of the ring's time is latencies, and what part bytes? Write down both as functions of the size";
    number("ring_balance", answer, within(right, 0.005), &slips, start)
}

// ----------------------------------------------------------------------
// A training that goes wrong, source unseen.

/// Numbers of each of the two layers.
const WIDE: usize = 16;
/// Examples that a world takes in a step.
const BATCH: usize = 60;
const RATE: f32 = 0.1;
/// Larger worlds are for thinking.
const MOST_RANKS: usize = 6;
const MOST_STEPS: usize = 6;
/// The world that the question asks about.
const ASKED: usize = 64;

const SOURCE: &str = "fn average(rank: &Rank, first: &mut [f32], second: &mut [f32]) -> Result<()> {
    // Two streams finish their work at different times, and whichever gradient is ready first is sent first.
    let order = if rank.rank() % 3 == 2 { [second, first] } else { [first, second] };
    for gradient in order {
        rank.all_reduce(gradient, Op::Avg)?;
    }
    Ok(())
}";

/// What may be wrong with a data parallel training.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ParallelFault {
    /// Gradients are added up, and not divided.
    AverageForgotten,
    /// Some ranks start from other weights.
    SeedByRank,
    /// Some ranks keep their own gradients.
    NotReduced,
    /// What the ranks do not divide evenly is left out of the all-reduce.
    RemainderLost,
    /// Some ranks have another learning rate.
    RateByRank,
    /// Some ranks send their gradients in another order.
    OtherOrder,
}

/// What the ranks are given.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Examples {
    /// Each rank its own part of the batch.
    Own,
    /// All ranks the same.
    Same,
}

/// What a run of the hidden training looks like from outside.
#[derive(Debug, Clone, PartialEq)]
#[must_use = "a report shows itself as the last expression of a cell, without a semicolon"]
pub struct ParallelReport {
    /// Ranks.
    pub ranks: usize,
    /// What they were given.
    pub examples: Examples,
    /// How far each rank's weights are from the right ones (those of one rank with all examples), before the first step and after each:
    /// by step, then by rank.
    pub off: Vec<Vec<f32>>,
    /// The mean loss of all ranks in each step.
    pub losses: Vec<f32>,
    /// How many messages rank 0 sent in the first step, and how many numbers in all of them.
    pub sent: (usize, usize),
}

/// An example: what goes into both layers, and what should come out.
fn example(at: usize) -> ([f32; 2 * WIDE], f32) {
    let x = |i: usize| ((at * 37 + i * i * 11 + 5 * i) % 97) as f32 / 97.0 - 0.5;
    let x = std::array::from_fn(x);
    let y = x.iter().enumerate().map(|(i, x)| x * (i as f32 * 0.7).sin()).sum();
    (x, y)
}

/// Mean squared error of these examples, and its gradient by the weights of both layers.
fn gradient(weights: &[f32], examples: impl Iterator<Item = usize>) -> (f32, Vec<f32>) {
    let (mut loss, mut sums, mut count) = (0.0, vec![0.0; weights.len()], 0.0_f32);
    for at in examples {
        let (x, y) = example(at);
        let off: f32 = x.iter().zip(weights).map(|(x, w)| x * w).sum::<f32>() - y;
        loss += off * off;
        sums.iter_mut().zip(x).for_each(|(sum, x)| *sum += 2.0 * off * x);
        count += 1.0;
    }
    (loss / count, sums.into_iter().map(|sum| sum / count).collect())
}

/// The hidden average: of two layers' gradients, one after the other.
fn average(rank: &Rank, first: &mut [f32], second: &mut [f32]) -> Result<()> {
    let order = if rank.rank() % 3 == 2 { [second, first] } else { [first, second] };
    for gradient in order {
        rank.all_reduce(gradient, Op::Avg)?;
    }
    Ok(())
}

fn start() -> Vec<f32> {
    (0..2 * WIDE).map(|i| (i as f32 * 1.3).cos() * 0.2).collect()
}

fn descend(weights: &mut [f32], gradient: &[f32]) {
    weights.iter_mut().zip(gradient).for_each(|(w, g)| *w -= RATE * g);
}

/// Runs the hidden training on so many ranks of this CPU, for so many steps, on 60 examples a step.
///
/// # Errors
/// [`Error::Invalid`] for no rank, or more than 6; for no step, or more than 6.
pub fn parallel_report(ranks: usize, steps: usize, examples: Examples) -> Result<ParallelReport> {
    if !(1..=MOST_RANKS).contains(&ranks) || !(1..=MOST_STEPS).contains(&steps) {
        return Err(Error::invalid(
            format!("{ranks} ranks, {steps} steps"),
            format!(
                "ask for 1 to {MOST_RANKS} ranks and 1 to {MOST_STEPS} steps; what larger worlds do can be worked out"
            ),
        ));
    }
    let own = BATCH / ranks;
    let of = |step: usize, rank: usize| {
        let first = BATCH * step + if examples == Examples::Own { own * rank } else { 0 };
        first..first + own
    };
    let run = World::new(ranks).run(|rank| {
        let (mut weights, mut seen) = (start(), vec![start()]);
        let mut losses = Vec::new();
        for step in 0..steps {
            let (loss, mut gradient) = gradient(&weights, of(step, rank.rank()));
            let (first, second) = gradient.split_at_mut(WIDE);
            average(rank, first, second)?;
            descend(&mut weights, &gradient);
            seen.push(weights.clone());
            losses.push(loss);
        }
        Ok((seen, losses))
    })?;
    // One rank with the examples of all of them.
    let (mut weights, mut right) = (start(), vec![start()]);
    for step in 0..steps {
        let all = (0..ranks).flat_map(|rank| of(step, rank));
        let (_, whole) = gradient(&weights, all);
        descend(&mut weights, &whole);
        right.push(weights.clone());
    }
    let far = |a: &[f32], b: &[f32]| a.iter().zip(b).fold(0.0_f32, |most, (a, b)| most.max((a - b).abs()));
    let off = (0..=steps).map(|step| run.results.iter().map(|one| far(&one.0[step], &right[step])).collect()).collect();
    let loss = |step: usize| run.results.iter().map(|one| one.1[step]).sum::<f32>() / ranks as f32;
    let first_step = run.log.messages.iter().filter(|message| message.from == 0 && message.number < 2);
    let sent = first_step.fold((0, 0), |(count, all), message| (count + 1, all + message.chunk.len()));
    Ok(ParallelReport { ranks, examples, off, losses: (0..steps).map(loss).collect(), sent })
}

gpulab::show_as_text!(ParallelReport);

impl ParallelReport {
    /// Whether these weights are the right ones within rounding.
    fn fits(off: f32) -> bool {
        off < 1e-5
    }
}

impl fmt::Display for ParallelReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let given = if self.examples == Examples::Own { "their own examples" } else { "the same examples" };
        let plural = if self.ranks == 1 { "" } else { "s" };
        let (messages, numbers) = self.sent;
        writeln!(
            f,
            "{} rank{plural}, {given}; in its first step rank 0 sends {messages} messages, {numbers} numbers in all",
            self.ranks
        )?;
        for (step, off) in self.off.iter().enumerate() {
            let each = off.iter().map(|off| match ParallelReport::fits(*off) {
                true => "right".to_string(),
                false => format!("off by {}", figures(f64::from(*off))),
            });
            let when = if step == 0 { "at first".to_string() } else { format!("after step {step}") };
            let loss = step.checked_sub(1).map_or(String::new(), |at| format!("  (loss {:.4})", self.losses[at]));
            writeln!(f, "  {when:>12}: weights by rank: {}{loss}", each.collect::<Vec<_>>().join(", "))?;
        }
        Ok(())
    }
}

/// Checks a diagnosis: what the hidden training does wrong, and how many ranks of a world of 64 do it.
pub fn diagnose_parallel(diagnosis: Option<(ParallelFault, f64)>) -> Verdict {
    let right = (0..ASKED).filter(|rank| rank % 3 == 2).count() as f64;
    let slips = [
        (ASKED as f64, "all of them suffer. Which ones behave differently from rank 0?"),
        (ASKED as f64 - right, "that is the ones that behave as rank 0 does"),
        (right + 1.0, "almost: which is the first one, and which the last?"),
        (1.0, "with six ranks there is more than one"),
        (2.0, "that is with six ranks"),
        (ASKED as f64 / 2.0, "half of them? Compare worlds of 3, 4, 5 and 6"),
    ];
    let start = "in a world of 6, which ranks are off by another figure than rank 0? Go on with that rule";
    let none = "ask for reports that differ in one thing: ranks, steps, whose examples. From which step on, and on which ranks, are weights off?";
    diagnosed("diagnose_parallel", diagnosis, none, against, right..=right, &slips, start)
}

/// What speaks for an innocent suspect.
fn against(named: ParallelFault) -> Check {
    let off = |ranks: usize, step: usize, examples| -> Check<Vec<f32>> {
        Ok(parallel_report(ranks, step.max(1), examples)?.off[step].clone())
    };
    let rights = |off: &[f32]| off.iter().filter(|off| ParallelReport::fits(**off)).count();
    let what = match named {
        ParallelFault::OtherOrder => return Ok(()),
        ParallelFault::AverageForgotten => {
            let off = off(2, 3, Examples::Own)?;
            format!(
                "with 2 ranks and their own examples {} of 2 are right after 3 steps: a sum would be twice as large",
                rights(&off)
            )
        }
        ParallelFault::SeedByRank => {
            let off = off(6, 0, Examples::Own)?;
            format!("before the first step {} of 6 ranks have the right weights", rights(&off))
        }
        ParallelFault::NotReduced | ParallelFault::RemainderLost => {
            let off = off(3, 1, Examples::Same)?;
            format!(
                "with the same examples on 3 ranks their gradients are equal, reduced or not; and after one step {} of 3 ranks have the right weights",
                rights(&off)
            )
        }
        ParallelFault::RateByRank => {
            let off = off(3, 1, Examples::Own)?;
            format!(
                "after one step of 3 ranks rank 0 is off by {}, and rank 1 as well: a rate of rank 2's cannot have moved them yet",
                figures(f64::from(off[0]))
            )
        }
    };
    wrong(
        what,
        "what has to happen on one rank, so that the weights of *all* ranks are off after one step, even with equal gradients?",
    )
}

/// The hidden source, once the diagnosis is right.
pub fn revealed_parallel(diagnosis: Option<(ParallelFault, f64)>) -> &'static str {
    diagnose_parallel(diagnosis).reveals(SOURCE)
}

#[cfg(test)]
mod tests {
    use super::*;
    use gpulab_ranks::Algorithm;
    use gpulab_ranks::algorithms::part;

    fn refused(answer: AllReduce, said: &str) {
        let text = ring_all_reduce(answer).text();
        assert!(text.starts_with("NOT YET") && text.contains(said), "{said}: {text}");
    }

    /// One step of a ring, with a chunk each.
    fn step(rank: &Rank, data: &mut [f32], out: usize, into: usize, add: bool) -> Result<()> {
        let (n, me) = (rank.size(), rank.rank());
        let (out, into) = (part(data.len(), n, out % n), part(data.len(), n, into % n));
        let mut came = vec![0.0; into.len()];
        rank.send_recv(&data[out], (me + 1) % n, &mut came, (me + n - 1) % n)?;
        for (own, came) in data[into].iter_mut().zip(came) {
            *own = if add { *own + came } else { came };
        }
        Ok(())
    }

    fn ring(rank: &Rank, data: &mut [f32]) -> Result<()> {
        let (n, me) = (rank.size(), rank.rank());
        for s in 0..n - 1 {
            step(rank, data, me + n - s, me + 2 * n - s - 1, true)?;
        }
        for s in 0..n - 1 {
            step(rank, data, me + 1 + n - s, me + n - s, false)?;
        }
        Ok(())
    }

    #[test]
    fn a_ring_passes_in_either_direction() {
        assert!(ring_all_reduce(ring).passed(), "{}", ring_all_reduce(ring).text());
        let leftwards = |rank: &Rank, data: &mut [f32]| -> Result<()> {
            let (n, me, len) = (rank.size(), rank.rank(), data.len());
            for s in 0..2 * (n - 1) {
                let (out, into) = (part(len, n, (me + s) % n), part(len, n, (me + s + 1) % n));
                let mut came = vec![0.0; into.len()];
                rank.send_recv(&data[out], (me + n - 1) % n, &mut came, (me + 1) % n)?;
                for (own, came) in data[into].iter_mut().zip(came) {
                    *own = if s < n - 1 { *own + came } else { came };
                }
            }
            Ok(())
        };
        assert!(ring_all_reduce(leftwards).passed(), "{}", ring_all_reduce(leftwards).text());
    }

    #[test]
    fn wrong_rings_are_told_what_is_wrong() {
        // As given, a panic.
        refused(|_, _| todo!("the ring"), "panicked");
        // Nothing sent.
        refused(|_, _| Ok(()), "the rank's own number");
        // Half of it.
        refused(
            |rank, data| {
                let (n, me) = (rank.size(), rank.rank());
                (0..n - 1).try_for_each(|s| step(rank, data, me + n - s, me + 2 * n - s - 1, true))
            },
            "NOT YET",
        );
        // Added throughout.
        refused(
            |rank, data| {
                let (n, me) = (rank.size(), rank.rank());
                (0..2 * (n - 1)).try_for_each(|s| step(rank, data, me + 2 * n - s, me + 3 * n - s - 1, true))
            },
            "NOT YET",
        );
        // A remainder that is forgotten.
        refused(
            |rank, data| {
                let n = rank.size();
                let even = data.len() / n * n;
                ring(rank, &mut data[..even])
            },
            "3 ranks, 10 numbers",
        );
        // Send first, then receive: it ends only where a message waits in memory.
        refused(
            |rank, data| {
                let (n, me, len) = (rank.size(), rank.rank(), data.len());
                for s in 0..2 * (n - 1) {
                    let (out, into) = (part(len, n, (me + 2 * n - s) % n), part(len, n, (me + 2 * n - s - 1) % n));
                    let mut came = vec![0.0; into.len()];
                    rank.send(&data[out], (me + 1) % n)?;
                    rank.recv(&mut came, (me + n - 1) % n)?;
                    for (own, came) in data[into].iter_mut().zip(came) {
                        *own = if s < n - 1 { *own + came } else { came };
                    }
                }
                Ok(())
            },
            "where a send waits for its receiver: deadlock",
        );
        // The average.
        refused(
            |rank, data| {
                ring(rank, data)?;
                data.iter_mut().for_each(|x| *x /= rank.size() as f32);
                Ok(())
            },
            "that is the average",
        );
        // A chunk number below 0.
        refused(|rank, data| step(rank, data, rank.rank() - 1, rank.rank(), true).map(|()| data[0] += 1.0), "NOT YET");
    }

    /// Right sums, dearly.
    fn whole_arrays(rank: &Rank, data: &mut [f32]) -> Result<()> {
        let (n, me) = (rank.size(), rank.rank());
        let (own, mut out, mut came) = (data.to_vec(), data.to_vec(), data.to_vec());
        for _ in 0..n - 1 {
            rank.send_recv(&out, (me + 1) % n, &mut came, (me + n - 1) % n)?;
            data.iter_mut().zip(&came).for_each(|(own, came)| *own += came);
            out.clone_from(&came);
        }
        drop(own);
        Ok(())
    }

    #[test]
    fn cheats_and_dear_ways_are_refused() {
        refused(|rank, data| rank.all_reduce(data, Op::Sum), "calls `all_reduce`");
        refused(|rank, data| rank.by(Algorithm::Tree).all_reduce(data, Op::Sum), "calls `all_reduce`");
        // The right numbers, which the check's inputs give away, without a message.
        refused(
            |rank, data| {
                let (n, len) = (rank.size(), data.len());
                (0..len).for_each(|at| data[at] = (0..n).map(|rank| numbers(rank, len)[at]).sum());
                Ok(())
            },
            "without a message",
        );
        refused(whole_arrays, "bytes, and");
        // Number by number.
        refused(|rank, data| (0..data.len()).try_for_each(|at| whole_arrays(rank, &mut data[at..=at])), "NOT YET");
    }

    #[test]
    fn the_size_on_paper_and_each_slip() {
        assert!(ring_balance(Some(3.81)).passed() && ring_balance(Some(3.815)).passed());
        for (given, said) in [
            (4.0, "a MiB has"),
            (0.477, "one message with the whole"),
            (6.68, "a chunk, and not the whole"),
            (3.34, "a little less than 2"),
            (7.63, "bytes of one"),
            (1.907, "bytes of both"),
            (3906.0, "in MiB"),
            (4e6, "in MiB"),
            (1.0, "as functions of the size"),
        ] {
            let text = ring_balance(Some(given)).text();
            assert!(text.starts_with("NOT YET") && text.contains(said), "{given}: {text}");
        }
        // Cheats: no number, and what compares with nothing.
        assert!(!ring_balance(None).passed() && !ring_balance(Some(f64::NAN)).passed());
    }

    #[test]
    fn reports_tell_suspects_apart_and_hide_the_source() {
        let right = |ranks, steps, examples| {
            let report = parallel_report(ranks, steps, examples).unwrap();
            assert!(!report.to_string().contains("% 3"), "{report}");
            report.off[steps].iter().filter(|off| ParallelReport::fits(**off)).count()
        };
        assert_eq!((right(1, 6, Examples::Own), right(2, 6, Examples::Own)), (1, 2));
        assert_eq!((right(3, 1, Examples::Own), right(3, 1, Examples::Same)), (0, 0));
        let six = parallel_report(6, 3, Examples::Own).unwrap();
        assert!(six.off[0].iter().all(|off| *off == 0.0));
        let after = &six.off[3];
        assert!(after[0] == after[1] && after[0] == after[3] && after[2] == after[5] && after[0] != after[2], "{six}");
        assert!(six.losses.iter().all(|loss| loss.is_finite()) && six.sent.0 == 2 * 10, "{six}");
        assert!(parallel_report(7, 1, Examples::Own).is_err() && parallel_report(1, 0, Examples::Own).is_err());
    }

    #[test]
    fn only_the_reports_convict() {
        let right = Some((ParallelFault::OtherOrder, 21.0));
        assert!(diagnose_parallel(right).passed(), "{}", diagnose_parallel(right).text());
        assert_eq!(revealed_parallel(right), SOURCE);
        for (wrong, said) in [
            (None, "no diagnosis yet"),
            (Some((ParallelFault::AverageForgotten, 21.0)), "2 of 2 are right after 3 steps"),
            (Some((ParallelFault::SeedByRank, 21.0)), "6 of 6 ranks have the right weights"),
            (Some((ParallelFault::NotReduced, 21.0)), "0 of 3 ranks have the right weights"),
            (Some((ParallelFault::RemainderLost, 21.0)), "0 of 3 ranks have the right weights"),
            (Some((ParallelFault::RateByRank, 21.0)), "rank 1 as well"),
            (Some((ParallelFault::OtherOrder, 22.0)), "which is the first one"),
            (Some((ParallelFault::OtherOrder, 64.0)), "all of them suffer"),
            (Some((ParallelFault::OtherOrder, 43.0)), "as rank 0 does"),
            (Some((ParallelFault::OtherOrder, 32.0)), "half of them?"),
            (Some((ParallelFault::OtherOrder, f64::NAN)), "is no answer"),
        ] {
            let text = diagnose_parallel(wrong).text();
            assert!(text.starts_with("NOT YET") && text.contains(said), "{wrong:?}: {text}");
            assert!(revealed_parallel(wrong).starts_with("The source shows itself"), "{text}");
        }
    }
}
