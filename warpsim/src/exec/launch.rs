//! Blocks over cores, with the same result on any number of them.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use super::block::run_block;
use super::lanes::LANES;
use super::shadow::Shadow;
use super::state::{Env, Found, Machine, Warp};
use crate::counters::Tally;
use crate::finding::{Finding, Kind};
use crate::memory::Bytes;
use crate::watch::Access;

/// What came of a launch.
pub struct Outcome {
    /// Counts, by instruction.
    pub tally: Vec<Tally>,
    /// Findings in order of block and instruction.
    pub findings: Vec<Finding>,
    /// What the kernel printed, block after block.
    pub printed: String,
    /// What the watched warp accessed, in program order.
    pub accesses: Vec<Access>,
}

/// What one core brings.
struct Part {
    tally: Vec<Tally>,
    found: Found,
    raced: BTreeSet<u32>,
    printed: BTreeMap<u64, String>,
    accesses: Vec<Access>,
}

/// Runs all blocks on at most `cores` threads. `None` if there is no memory for the warps.
pub fn launch(machine: &Machine, cores: usize) -> Option<Outcome> {
    let blocks: u64 = machine.grid.iter().map(|&n| u64::from(n)).product();
    let cores = if machine.kernel.ordered { 1 } else { cores.min(usize::try_from(blocks).unwrap_or(usize::MAX)) };
    let next = AtomicU64::new(0);
    // Blocks after one that cannot go on are not started; those before it run, so the first such block is known.
    let stop = AtomicU64::new(u64::MAX);
    // Some blocks at a time, and enough portions for all cores.
    let portion = (blocks / (cores as u64 * 16)).clamp(1, 64);
    let work = || worker(machine, blocks, portion, &next, &stop);
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
    let mut accesses = Vec::new();
    for part in parts {
        let part = part?;
        raced.extend(part.raced);
        printed.extend(part.printed);
        accesses.extend(part.accesses);
        tally.iter_mut().zip(part.tally).for_each(|(sum, count)| *sum += count);
        merge(&mut found, part.found);
    }
    // A read that races with the write it needs comes too early in one order and right in another: it is the race.
    found.retain(|(pc, kind), _| *kind != Kind::UninitialisedRead || !raced.contains(pc));
    let mut findings: Vec<_> = found.into_iter().collect();
    findings.sort_by_key(|((pc, kind), (block, _))| (*block, *pc, *kind));
    let printed = printed.into_values().collect();
    let findings = findings.into_iter().map(|(_, (_, finding))| finding).collect();
    Some(Outcome { tally, findings, printed, accesses })
}

fn worker(machine: &Machine, blocks: u64, portion: u64, next: &AtomicU64, stop: &AtomicU64) -> Option<Part> {
    let warps = machine.threads().div_ceil(LANES as u32);
    let mut warps = (0..warps).map(|w| Warp::new(machine, w)).collect::<Option<Vec<_>>>()?;
    let mut env = Env {
        machine,
        shared: Bytes::zeros(usize::try_from(machine.shared_bytes).ok()?)?,
        shadow: machine.checks.then(|| Box::new(Shadow::new(machine.shared_bytes))),
        tally: vec![Tally::default(); machine.kernel.code.len()],
        found: Found::new(),
        raced: BTreeSet::new(),
        printed: BTreeMap::new(),
        printed_bytes: 0,
        block: (0, [0; 3]),
        steps: 0,
        arrived: [0; 16],
        recent: 0,
        near: [0; 16],
        accesses: Vec::new(),
    };
    loop {
        let start = next.fetch_add(portion, Relaxed);
        if start >= blocks {
            let Env { tally, found, raced, printed, accesses, .. } = env;
            return Some(Part { tally, found, raced, printed, accesses });
        }
        for block in start..(start + portion).min(blocks) {
            if block < stop.load(Relaxed) && !run_block(&mut env, &mut warps, block) {
                stop.fetch_min(block, Relaxed);
            }
        }
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
