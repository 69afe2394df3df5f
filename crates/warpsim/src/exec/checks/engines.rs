//! Asynchronous operations: what was begun, who knows what is complete, and what has passed a proxy fence.
//!
//! An operation runs at once here, and its accesses count as unfinished until somebody has waited for them: copies of
//! `cp.async`, reads of the TMA and products of a warpgroup by groups; copies that a barrier counts by its phases.
//! Each such row of groups or phases is a channel, with numbers from 1 on.

use std::collections::BTreeMap;

use super::clock::{Clock, WARPS, join};
use super::words::Words;
use crate::op::Engine;

/// What completes together, one after the other.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Channel {
    /// Groups of `cp.async`, of a warp.
    Copies(usize),
    /// Groups of bulk copies out of shared memory, of a warp.
    Stores(usize),
    /// Groups of products, of a warp.
    Products(usize),
    /// Phases of the barrier at an address of shared memory.
    Phases(u64),
}

impl Channel {
    /// That of a warp's groups.
    pub fn of(engine: Engine, warp: usize) -> Self {
        match engine {
            Engine::Copies => Self::Copies(warp),
            Engine::Stores => Self::Stores(warp),
            Engine::Products => Self::Products(warp),
        }
    }

    /// Whether its accesses go another way to memory than loads and stores (PTX ISA, "Proxies").
    pub fn is_proxy(self) -> bool {
        !matches!(self, Self::Copies(_))
    }
}

/// What a warp knows of asynchronous operations.
#[derive(Clone, Debug, Default)]
struct Knowledge {
    /// By channel: the last group or phase that is complete.
    complete: Vec<u32>,
    /// Until when the past of each warp, and of each channel, has passed a proxy fence.
    fenced: Clock,
    fenced_complete: Vec<u32>,
}

impl Knowledge {
    fn join(&mut self, other: &Self) {
        join_rows(&mut self.complete, &other.complete);
        join(&mut self.fenced, &other.fenced);
        join_rows(&mut self.fenced_complete, &other.fenced_complete);
    }
}

fn join_rows(into: &mut Vec<u32>, from: &[u32]) {
    if into.len() < from.len() {
        into.resize(from.len(), 0);
    }
    into.iter_mut().zip(from).for_each(|(x, y)| *x = (*x).max(*y));
}

fn raise(row: &mut Vec<u32>, at: usize, to: u32) {
    if row.len() <= at {
        row.resize(at + 1, 0);
    }
    row[at] = row[at].max(to);
}

/// Channels at most; more share, which hides mistakes and makes none up.
const CHANNELS: usize = 255;

/// The asynchronous operations of a block.
#[derive(Debug)]
pub struct Engines {
    channels: Words<Channel, u8>,
    /// By channel: what it is, and the group or phase that is going on.
    open: Vec<(Channel, u32)>,
    known: Vec<Knowledge>,
    arrived: BTreeMap<u32, Knowledge>,
    /// By barrier in shared memory and phase: what those know that arrived up to then, of warps and of this.
    left: Words<(u64, u32), (Clock, Knowledge)>,
    told: Words<u64, Knowledge>,
    /// By barrier in shared memory: the thread that initialised it, and when.
    made: Words<u64, (u32, u32)>,
}

impl Default for Engines {
    fn default() -> Self {
        Self {
            channels: Words::default(),
            open: Vec::new(),
            known: vec![Knowledge::default(); WARPS],
            arrived: BTreeMap::new(),
            left: Words::default(),
            told: Words::default(),
            made: Words::default(),
        }
    }
}

impl Engines {
    /// Before a block.
    pub fn start(&mut self) {
        *self = Self::default();
    }

    /// The number of a channel, from 1 on, and what is going on in it.
    pub fn begin(&mut self, channel: Channel) -> (u8, u32) {
        let open = &mut self.open;
        let id = *self.channels.entry(channel).or_insert_with(|| {
            if open.len() < CHANNELS {
                open.push((channel, 1));
            }
            open.len() as u8
        });
        (id, open[usize::from(id) - 1].1)
    }

    /// What a channel is.
    pub fn channel(&self, id: u8) -> Option<Channel> {
        self.open.get(usize::from(id).checked_sub(1)?).map(|(channel, _)| *channel)
    }

    /// The group or phase that was going on is over, and the next begins.
    pub fn next(&mut self, channel: Channel) {
        let (id, _) = self.begin(channel);
        self.open[usize::from(id) - 1].1 += 1;
    }

    /// A warp has waited until at most so many of the groups that are over are incomplete.
    pub fn wait(&mut self, warp: usize, channel: Channel, pending: u32) {
        let (id, open) = self.begin(channel);
        self.complete(warp, id, (open - 1).saturating_sub(pending));
    }

    fn complete(&mut self, warp: usize, id: u8, number: u32) {
        raise(&mut self.known[warp % WARPS].complete, usize::from(id), number);
    }

    /// Whether a warp knows that a group or phase is complete.
    pub fn knows(&self, warp: usize, id: u8, number: u32) -> bool {
        usize::from(id) >= CHANNELS
            || self.known[warp % WARPS].complete.get(usize::from(id)).is_some_and(|known| *known >= number)
    }

    /// Whether a warp knows that a write of another, or of a channel, has passed a proxy fence.
    pub fn fenced(&self, warp: usize, theirs: usize, epoch: u32, id: u8) -> bool {
        let known = &self.known[warp % WARPS];
        match id {
            0 => known.fenced[theirs % WARPS] >= epoch,
            id if usize::from(id) >= CHANNELS => true,
            id => known.fenced_complete.get(usize::from(id)).is_some_and(|known| *known >= epoch),
        }
    }

    /// A warp passes a proxy fence, and knows this of the others.
    pub fn fence(&mut self, warp: usize, clock: &Clock) {
        let known = &mut self.known[warp % WARPS];
        join(&mut known.fenced, clock);
        let complete = std::mem::take(&mut known.complete);
        join_rows(&mut known.fenced_complete, &complete);
        known.complete = complete;
    }

    /// A wait for the parity of a phase has ended: gives how many phases of the barrier are complete for sure. The wait
    /// also ends where the phase before has not ended, as the one before that has the parity, too. Gives what is known of
    /// the warps that arrived in them.
    pub fn passed(&mut self, warp: usize, barrier: u64, parity: u32) -> Option<Clock> {
        let (id, open) = self.begin(Channel::Phases(barrier));
        let known = self.known[warp % WARPS].complete.get(usize::from(id)).copied().unwrap_or(0);
        // Of the phases 0, 1, … that many are complete where the last of them has the parity.
        let sure = if known % 2 == (parity & 1) ^ 1 { known } else { known + 1 };
        self.learn(warp, id, barrier, sure.min(open - 1))
    }

    /// A wait for the phase in which the warp itself arrived, by its number of three bits, has ended.
    pub fn ended(&mut self, warp: usize, barrier: u64, number: u32) -> Option<Clock> {
        let (id, open) = self.begin(Channel::Phases(barrier));
        let current = open - 1;
        let sure = current - (current.wrapping_sub(number + 1) & 7).min(current);
        self.learn(warp, id, barrier, sure)
    }

    fn learn(&mut self, warp: usize, id: u8, barrier: u64, phases: u32) -> Option<Clock> {
        self.complete(warp, id, phases);
        let (clock, left) = latest(&self.left, barrier, phases)?;
        self.known[warp % WARPS].join(left);
        Some(*clock)
    }

    /// A warp arrives at a barrier in shared memory: who waits for the phase knows what it knows. Gives the phase.
    pub fn leave(&mut self, warp: usize, barrier: u64, clock: &Clock) -> u32 {
        let (_, phase) = self.begin(Channel::Phases(barrier));
        if !self.left.contains_key(&(barrier, phase)) {
            // What was left in earlier phases is known, too.
            let before = latest(&self.left, barrier, phase).cloned().unwrap_or_default();
            self.left.insert((barrier, phase), before);
            self.left.retain(|(at, other), _| *at != barrier || other + KEPT > phase);
        }
        if let Some((known, left)) = self.left.get_mut(&(barrier, phase)) {
            join(known, clock);
            left.join(&self.known[warp % WARPS]);
        }
        phase
    }

    /// What a warp copies by `cp.async` up to now is complete when a barrier's phase is.
    pub fn leave_copies(&mut self, warp: usize, barrier: u64, clock: &Clock) {
        let phase = self.leave(warp, barrier, clock);
        let (id, group) = self.begin(Channel::Copies(warp));
        if let Some((_, left)) = self.left.get_mut(&(barrier, phase)) {
            raise(&mut left.complete, usize::from(id), group);
        }
        self.next(Channel::Copies(warp));
    }

    /// The thread that initialised a barrier in shared memory, and when.
    pub fn maker(&self, barrier: u64) -> Option<(u32, u32)> {
        self.made.get(&barrier).copied()
    }

    /// A barrier in shared memory starts anew, by that thread and then.
    pub fn forget(&mut self, barrier: u64, by: (u32, u32)) {
        self.made.insert(barrier, by);
        self.channels.remove(&Channel::Phases(barrier));
        self.left.retain(|(at, _), _| *at != barrier);
    }

    /// Warps of a warpgroup have waited for its products, which all four compute together: what is complete for one of
    /// them is so for all.
    pub fn wait_together(&mut self, members: &[usize], pending: &[u32]) {
        for &warp in members {
            members.iter().zip(pending).for_each(|(&other, &pending)| {
                self.wait(warp, Channel::Products(other), pending);
            });
        }
    }

    /// A warp meets the others of its block at a barrier that never forgets: the cluster's.
    pub fn meet(&mut self, warp: usize, id: u32) {
        if let Some(all) = self.arrived.get(&id) {
            self.known[warp % WARPS].join(all);
        }
    }

    /// Warps pass a barrier of the block.
    pub fn release(&mut self, waiting: &[usize], ended: &[usize], id: u32) {
        let mut all = self.arrived.remove(&id).unwrap_or_default();
        waiting.iter().chain(ended).for_each(|&warp| all.join(&self.known[warp % WARPS]));
        waiting.iter().for_each(|&warp| self.known[warp % WARPS].join(&all));
    }

    /// A warp passes a barrier of the block without waiting.
    pub fn arrive(&mut self, warp: usize, id: u32) {
        self.arrived.entry(id).or_default().join(&self.known[warp % WARPS]);
    }

    /// A warp writes a word that others listen to, or reads one.
    pub fn tell(&mut self, warp: usize, word: u64) {
        self.told.entry(word).or_default().join(&self.known[warp % WARPS]);
    }

    /// See [`Engines::tell`].
    pub fn listen(&mut self, warp: usize, word: u64) {
        if let Some(told) = self.told.get(&word) {
            self.known[warp % WARPS].join(told);
        }
    }
}

/// What was left at a barrier last, up to a phase.
fn latest(left: &Words<(u64, u32), (Clock, Knowledge)>, barrier: u64, phase: u32) -> Option<&(Clock, Knowledge)> {
    (phase.saturating_sub(KEPT)..=phase).rev().find_map(|phase| left.get(&(barrier, phase)))
}

/// Phases of a barrier whose arrivals are kept apart: who waits is at most one behind, but for barriers of lanes that run
/// alternately.
const KEPT: u32 = 16;
