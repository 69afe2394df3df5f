//! What comes before what within a block: a vector clock a warp.
//!
//! A barrier of the block lets its warps know each other's past, `bar.warp` a warp its own lanes'. A fence followed by
//! an atomic or volatile write tells what came before the fence to whoever then reads that word by an atomic or a
//! volatile read; the reader's own fence is not asked for, as few kernels that work have one.

use super::clock::{Clock, WARPS, join};
use super::engines::{Channel, Engines};
use super::past::Access;
use super::signals::{Foreign, Heard};
use super::words::Words;
use crate::exec::blocks::barriers::CLUSTER;
use crate::exec::values::lanes::LANES;

/// The phase that a wait was for.
#[derive(Clone, Copy, Debug)]
pub enum Awaited {
    Parity(u32),
    Number(u32),
}

/// The clocks of a block.
#[derive(Debug)]
pub struct Clocks {
    /// What each warp knows of the others.
    known: [Clock; WARPS],
    /// What warps that only arrived have left at each barrier.
    arrived: [Clock; 24],
    /// What warps have left at the barrier of the cluster.
    met: Clock,
    /// Asynchronous operations, in a kernel that has some, and its barriers in shared memory.
    pub engines: Option<Box<Engines>>,
    /// What each warp knew at its last fence, or learned to be behind one: for the block, and for the whole GPU.
    fenced: [[Clock; WARPS]; 2],
    /// Whether this block has seen a fence: without one, strong accesses order nothing.
    fences: bool,
    /// What was told through each word, by generic address.
    told: Words<u64, Clock>,
    /// What other blocks have told, in a launch that is looked at closely.
    pub foreign: Option<Box<Foreign>>,
    /// What this block has heard of it, while another block runs.
    heard: [Heard; WARPS],
}

impl Clocks {
    /// Clocks of a block that has not started.
    pub fn new(foreign: Option<Box<Foreign>>, engines: bool) -> Self {
        let none = [[0; WARPS]; WARPS];
        Self {
            known: none,
            arrived: [[0; WARPS]; 24],
            met: [0; WARPS],
            engines: engines.then(Box::default),
            fenced: [none; 2],
            fences: false,
            told: Words::default(),
            foreign,
            heard: Default::default(),
        }
    }

    /// Before a block.
    pub fn start(&mut self) {
        let (foreign, engines) = (self.foreign.take(), self.engines.take());
        *self = Self::new(foreign, false);
        self.engines = engines;
        if let Some(engines) = &mut self.engines {
            engines.start();
        }
        (0..WARPS).for_each(|w| self.known[w][w] = 1);
        if let Some(foreign) = &mut self.foreign {
            foreign.start();
        }
    }

    /// Another block runs from now on: it takes over what blocks told, and each keeps what it heard.
    pub fn hand_over(&mut self, next: &mut Clocks) {
        if let Some(mut foreign) = self.foreign.take() {
            self.heard = foreign.heard_by(std::mem::take(&mut next.heard));
            next.foreign = Some(foreign);
        }
    }

    /// What a warp knows.
    #[inline(always)]
    pub fn of(&self, warp: usize) -> &Clock {
        &self.known[warp % WARPS]
    }

    /// Whether a warp of this block knows what another warp, or other lanes of its own, did at a time.
    #[inline(always)]
    pub fn knows(&self, warp: usize, theirs: usize, epoch: u32) -> bool {
        // A warp's own epoch is still going on.
        self.known[warp][theirs] >= epoch + u32::from(theirs == warp)
    }

    /// Whether a warp knows that an access of its block has ended. An asynchronous one is not ordered by its thread's other
    /// accesses.
    #[inline(always)]
    pub fn orders(&self, warp: usize, other: Access) -> bool {
        match (other.channel, &self.engines) {
            _ if other.thread == 0 => true,
            (0, _) | (_, None) => self.knows(warp, other.warp(), other.epoch),
            (channel, Some(engines)) => engines.knows(warp, channel, other.epoch),
        }
    }

    /// Whether an asynchronous read of a warp sees a write, which it knows of, as other loads do.
    pub fn fenced(&self, warp: usize, write: Access) -> bool {
        let Some(engines) = &self.engines else { return true };
        let proxy = engines.channel(write.channel).is_some_and(Channel::is_proxy);
        write.thread == 0 || proxy || engines.fenced(warp, write.warp(), write.epoch, write.channel)
    }

    /// Lanes of a warp came together.
    pub fn warp_barrier(&mut self, warp: usize) {
        self.known[warp][warp] += 1;
    }

    /// A warp passes a barrier of the block without waiting.
    pub fn arrive(&mut self, warp: usize, id: u32) {
        join(&mut self.arrived[id as usize & 15], &self.known[warp]);
        self.known[warp][warp] += 1;
        if let Some(engines) = &mut self.engines {
            engines.arrive(warp, id & 15);
        }
    }

    /// A warp arrives at the cluster's barrier.
    pub fn leave_cluster(&mut self, warp: usize) {
        join(&mut self.met, &self.known[warp]);
        self.known[warp][warp] += 1;
        if let Some(engines) = &mut self.engines {
            engines.arrive(warp, CLUSTER);
        }
    }

    /// A warp has waited for the cluster's barrier: it knows what the block's own warps did before it.
    pub fn meet_cluster(&mut self, warp: usize) {
        let met = self.met;
        join(&mut self.known[warp], &met);
        if let Some(engines) = &mut self.engines {
            engines.meet(warp, CLUSTER);
        }
    }

    /// A thread initialises a barrier in shared memory.
    pub fn make(&mut self, thread: u32, address: u64) {
        let warp = thread as usize / LANES;
        let epoch = self.known[warp][warp];
        if let Some(engines) = &mut self.engines {
            engines.forget(address, (thread, epoch));
        }
    }

    /// The thread of another warp that initialises a barrier in shared memory, where this warp cannot know that it has.
    pub fn unknown_maker(&self, warp: usize, address: u64) -> Option<u32> {
        let (maker, epoch) = self.engines.as_ref()?.maker(address)?;
        let theirs = maker as usize / LANES;
        (theirs != warp && !self.knows(warp, theirs, epoch)).then_some(maker)
    }

    /// A warp leaves what it knows at a barrier in shared memory; with what it copies by `cp.async` if so.
    pub fn leave(&mut self, warp: usize, address: u64, copies: bool) {
        let Some(engines) = &mut self.engines else { return };
        match copies {
            true => engines.leave_copies(warp, address, &self.known[warp]),
            false => drop(engines.leave(warp, address, &self.known[warp])),
        }
        self.known[warp][warp] += 1;
    }

    /// A warp has waited for such a barrier, by the parity of a phase or by the number of the one in which it arrived: it
    /// knows what was left there.
    pub fn learn(&mut self, warp: usize, address: u64, phase: Awaited) {
        let Some(engines) = &mut self.engines else { return };
        let left = match phase {
            Awaited::Parity(parity) => engines.passed(warp, address, parity),
            Awaited::Number(number) => engines.ended(warp, address, number),
        };
        if let Some(left) = left {
            join(&mut self.known[warp], &left);
        }
    }

    /// A warp passes a proxy fence.
    pub fn fence_proxy(&mut self, warp: usize) {
        if let Some(engines) = &mut self.engines {
            engines.fence(warp, &self.known[warp]);
            self.known[warp][warp] += 1;
        }
    }

    /// A barrier of the block is complete: the waiting warps know what all of them did.
    pub fn release(&mut self, waiting: &[usize], ended: &[usize], id: u32) {
        let mut all = std::mem::take(&mut self.arrived[id as usize % 24]);
        waiting.iter().chain(ended).for_each(|&w| join(&mut all, &self.known[w]));
        if self.fences {
            for fenced in &mut self.fenced {
                let mut most = [0; WARPS];
                waiting.iter().chain(ended).for_each(|&w| join(&mut most, &fenced[w]));
                waiting.iter().for_each(|&w| fenced[w] = most);
            }
        }
        for &warp in waiting {
            self.known[warp] = all;
            self.known[warp][warp] += 1;
        }
        if let Some(foreign) = &mut self.foreign {
            foreign.share(waiting, ended);
        }
        if let Some(engines) = &mut self.engines {
            engines.release(waiting, ended, id);
        }
    }

    /// A warp passes a fence, for the whole GPU (`far`) or for its block.
    pub fn fence(&mut self, warp: usize, far: bool) {
        self.fences = true;
        let known = self.known[warp];
        join(&mut self.fenced[0][warp], &known);
        if far {
            join(&mut self.fenced[1][warp], &known);
        }
        self.known[warp][warp] += 1;
    }

    /// A warp writes a word by an atomic or a volatile store.
    pub fn tell(&mut self, warp: usize, word: u64, block: u64) {
        if let Some(engines) = &mut self.engines {
            engines.tell(warp, word);
        }
        if !self.fences {
            return;
        }
        join(self.told.entry(word).or_insert([0; WARPS]), &self.fenced[0][warp]);
        if let Some(foreign) = &mut self.foreign {
            foreign.tell(warp, word, block, &self.fenced[1][warp]);
        }
    }

    /// Whether a read of a word by an atomic or a volatile load may tell a warp something.
    pub fn hears(&self, word: u64) -> bool {
        self.engines.is_some() || self.fences && self.told.contains_key(&word)
    }

    /// A warp reads a word by an atomic or a volatile load.
    pub fn listen(&mut self, warp: usize, word: u64) {
        if let Some(engines) = &mut self.engines {
            engines.listen(warp, word);
        }
        if self.fences
            && let Some(told) = self.told.get(&word)
        {
            let own = self.known[warp][warp];
            join(&mut self.known[warp], told);
            self.known[warp][warp] = own;
        }
        if let Some(foreign) = &mut self.foreign {
            foreign.listen(warp, word);
        }
    }
}
