//! Blocks over cores, with the same result on any number of them.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use super::block::{Ran, run_block};
use super::resident;
use super::state::{Env, Found, Machine, Meeting, Warp};
use super::wait::explain;
use crate::counters::Tally;
use crate::error::SourceLine;
use crate::exec::checks::exact::Exact;
use crate::exec::checks::races::Races;
use crate::exec::checks::signals::Foreign;
use crate::exec::values::lanes::LANES;
use crate::finding::{Finding, Kind};
use crate::memory::Bytes;
use crate::watch::WarpAccess;

/// What came of a launch.
pub struct Outcome {
    /// Counts, by instruction.
    pub tally: Vec<Tally>,
    /// Instructions of the warp that ran the most.
    pub longest: u64,
    /// Findings in order of block and instruction.
    pub findings: Vec<Finding>,
    /// What the kernel printed, block after block.
    pub printed: String,
    /// What the watched warp accessed, in program order.
    pub accesses: Vec<WarpAccess>,
}

/// What one core brings.
struct Part {
    tally: Vec<Tally>,
    found: Found,
    raced: BTreeSet<u32>,
    doubts: BTreeMap<u32, (Found, BTreeSet<u32>)>,
    guesses: BTreeSet<u32>,
    printed: BTreeMap<u64, String>,
    accesses: Vec<WarpAccess>,
    longest: u64,
}

/// Runs all blocks, cluster by cluster, on at most `cores` threads; again, one after the other, where threads share global memory in a way
/// that the order of blocks may show in. `None` if there is no memory for it.
pub fn launch(machine: &Machine, cores: usize) -> Option<Outcome> {
    let blocks = machine.blocks() / machine.cluster_size();
    let cores = if machine.kernel.ordered || machine.cooperative {
        1
    } else {
        cores.min(usize::try_from(blocks).unwrap_or(usize::MAX))
    };
    if !machine.checks {
        return run(machine, (blocks, cores), None, false);
    }
    let mut races = Races::new(machine.memory, machine.threads())?;
    let outcome = run(machine, (blocks, cores), Some(&races), false)?;
    if !races.suspected() {
        return Some(outcome);
    }
    if cores > 1 {
        // What is suspicious may depend on the order of blocks in a kernel with a race: the order of one core counts.
        races.restore(true)?;
        run(machine, (blocks, 1), Some(&races), false)?;
    }
    races.restore(false)?;
    run(machine, (blocks, 1), Some(&races), true)
}

/// Runs all blocks once, with the exact look at shared words if `exact`.
fn run(machine: &Machine, (blocks, cores): (u64, usize), races: Option<&Races>, exact: bool) -> Option<Outcome> {
    let next = AtomicU64::new(0);
    // Blocks after one that cannot go on are not started; those before it run, so the first such block is known.
    let stop = AtomicU64::new(u64::MAX);
    // Some blocks at a time, and enough portions for all cores.
    let portion = (blocks / (cores as u64 * 16)).clamp(1, 64);
    let work = || worker(machine, (races, exact), (blocks, portion, cores <= 1), &next, &stop);
    let parts: Vec<Option<Part>> = if cores <= 1 {
        vec![work()]
    } else {
        std::thread::scope(|scope| {
            let threads: Vec<_> = (0..cores).map(|_| scope.spawn(work)).collect();
            threads.into_iter().map(|t| t.join().ok().flatten()).collect()
        })
    };
    let mut tally = vec![Tally::default(); machine.kernel.code.len()];
    let (mut found, mut raced, mut printed) = (Found::new(), BTreeSet::new(), BTreeMap::new());
    let mut longest = 0;
    let (mut accesses, mut doubts, mut guesses) = (Vec::new(), Vec::new(), BTreeSet::new());
    for part in parts {
        let part = part?;
        longest = longest.max(part.longest);
        raced.extend(part.raced);
        printed.extend(part.printed);
        accesses.extend(part.accesses);
        doubts.extend(part.doubts);
        guesses.extend(part.guesses);
        tally.iter_mut().zip(part.tally).for_each(|(sum, count)| *sum += count);
        merge(&mut found, part.found);
    }
    for (_, (more, racing)) in doubts.into_iter().filter(|(reader, _)| !guesses.contains(reader)) {
        raced.extend(racing);
        merge(&mut found, more);
    }
    // A read that races with the write it needs comes too early in one order and right in another: it is the race.
    found.retain(|(pc, kind), _| *kind != Kind::UninitialisedRead || !raced.contains(pc));
    let mut findings: Vec<_> = found.into_iter().collect();
    findings.sort_by_key(|((pc, kind), (block, _))| (*block, *pc, *kind));
    let printed = printed.into_values().collect();
    let findings = by_line(findings.into_iter().map(|(_, (_, finding))| finding));
    Some(Outcome { tally, longest, findings, printed, accesses })
}

fn worker<'a>(
    machine: &'a Machine<'a>,
    (races, exact): (Option<&'a Races<'a>>, bool),
    (blocks, portion, alone): (u64, u64, bool),
    next: &AtomicU64,
    stop: &AtomicU64,
) -> Option<Part> {
    let mut warps = warps(machine)?;
    let mut env = Env::new(machine, (races, exact), alone)?;
    let mut together = Vec::new();
    if machine.cooperative {
        resident::run_together(&mut env, 0..machine.blocks(), &mut together)?;
        return Some(env.into());
    }
    let size = machine.cluster_size();
    loop {
        let start = next.fetch_add(portion, Relaxed);
        if start >= blocks {
            return Some(env.into());
        }
        for block in start..(start + portion).min(blocks) {
            if block < stop.load(Relaxed) && size > 1 {
                let range = block * size..(block + 1) * size;
                if !resident::run_together(&mut env, range, &mut together)? {
                    stop.fetch_min(block, Relaxed);
                }
            } else if block < stop.load(Relaxed) {
                match run_block(&mut env, &mut warps, block) {
                    Ran::Ended => {}
                    Ran::Failed => drop(stop.fetch_min(block, Relaxed)),
                    Ran::Waits(words) => {
                        explain(&mut env, &mut Env::new(machine, (races, false), true)?, &words)?;
                        stop.fetch_min(block, Relaxed);
                    }
                }
                crate::exec::checks::check::settle(&mut env);
            }
        }
    }
}

/// The warps of a block.
pub fn warps(machine: &Machine) -> Option<Vec<Warp>> {
    (0..machine.threads().div_ceil(LANES as u32)).map(|number| Warp::new(machine, number)).collect()
}

impl From<Env<'_>> for Part {
    fn from(env: Env<'_>) -> Self {
        let Env { tally, found, raced, doubts, guesses, printed, accesses, longest, .. } = env;
        Part { tally, found, raced, doubts, guesses, printed, accesses, longest }
    }
}

impl<'a> Env<'a> {
    /// Before the first block of a core, which is the only one if `alone`.
    fn new(machine: &'a Machine<'a>, (races, exact): (Option<&'a Races<'a>>, bool), alone: bool) -> Option<Self> {
        let foreign = exact.then(Box::<Foreign>::default);
        Some(Env {
            machine,
            shared: Bytes::zeros(usize::try_from(machine.shared_bytes).ok()?)?,
            shadow: machine.checks.then(|| Box::new(machine.shadow(foreign))),
            races,
            exact: races.filter(|_| exact).map(|races| Box::new(Exact::new(races.room()))),
            tally: vec![Tally::default(); machine.kernel.code.len()],
            found: Found::new(),
            raced: BTreeSet::new(),
            doubts: BTreeMap::new(),
            guesses: BTreeSet::new(),
            printed: BTreeMap::new(),
            printed_bytes: 0,
            printf_results: BTreeMap::new(),
            block: (0, [0; 3]),
            peers: Vec::new(),
            visited: false,
            meeting: Meeting::default(),
            alone,
            steps: 0,
            longest: 0,
            look_at: 0,
            arrived: [0; 24],
            arrivals: 0,
            recent: 0,
            near: [0; 16],
            accesses: Vec::new(),
        })
    }
}

fn merge(found: &mut Found, more: Found) {
    for (key, (block, finding)) in more {
        match found.entry(key) {
            std::collections::btree_map::Entry::Vacant(entry) => drop(entry.insert((block, finding))),
            std::collections::btree_map::Entry::Occupied(mut entry) => {
                let times = entry.get().1.times + finding.times;
                if block < entry.get().0 {
                    entry.insert((block, finding));
                }
                entry.get_mut().1.times = times;
            }
        }
    }
}

/// One finding for each line and variable, and for each pair of lines that race: a loop that the compiler unrolled
/// makes its mistake in several instructions.
fn by_line(findings: impl Iterator<Item = Finding>) -> Vec<Finding> {
    let mut out: Vec<Finding> = Vec::new();
    for finding in findings {
        match out.iter_mut().find(|f| same_lines(f, &finding)) {
            Some(first) => first.times += finding.times,
            None => out.push(finding),
        }
    }
    out
}

fn same_lines(a: &Finding, b: &Finding) -> bool {
    fn lines(f: &Finding) -> Option<[&SourceLine; 2]> {
        let here = f.source.as_ref()?;
        let there = f.other.as_ref().map_or(Some(here), |other| other.source.as_ref())?;
        Some([here.min(there), here.max(there)])
    }
    let known = lines(a).is_some() && lines(a) == lines(b);
    known && (a.kind, &a.variable, a.other.is_some()) == (b.kind, &b.variable, b.other.is_some())
}
