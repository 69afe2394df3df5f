//! Lost updates: two threads read a word, each by a volatile or atomic access, and each writes what it made of that by
//! another one. Volatile accesses are no race with each other, but whatever a thread writes between the two steps of
//! another is lost.
//!
//! Not meant are updates that something orders (a lock, a barrier), and those of a thread that has waited for the word
//! itself to become its own, as a ticket lock does.

use super::past::{Element, Past};
use crate::decode::Kernel;
use crate::exec::blocks::state::Env;
use crate::memory::window;
use crate::ptx::types::Space;

/// Notes a volatile or atomic access; gives the update that this one and another thread's lose, one of the two.
#[inline(always)]
pub fn lost(env: &mut Env, e: Element) -> Option<Past> {
    if !e.strong || env.machine.kernel.updates.is_empty() {
        return None;
    }
    look(env, e)
}

#[inline(never)]
fn look(env: &mut Env, e: Element) -> Option<Past> {
    let Kernel { updates, .. } = env.machine.kernel;
    let shadow = env.shadow.as_mut()?;
    let word = e.address + window(e.space);
    let writes = updates.writes.get(&e.pc).filter(|_| e.write && !e.same);
    let own = |pc: &u32| shadow.touched.get(&(e.thread, *pc)) == Some(&word);
    let updated = writes.is_some_and(|reads| reads.iter().any(own)) && !updates.waits.iter().any(own);
    if e.read && (updates.reads.contains(&e.pc) || updates.waits.contains(&e.pc)) {
        shadow.touched.insert((e.thread, e.pc), word);
    }
    if !updated {
        return None;
    }
    let (block, warp) = (env.block.0, e.thread as usize / 32);
    let clocks = shadow.clocks();
    let unordered = |other: &Past| {
        let then = other.access;
        let apart = then.thread != 0 && (then.thread, other.block) != (e.thread + 1, block);
        let knows = match &clocks.foreign {
            _ if other.block == block => clocks.knows(warp, then.warp(), then.epoch),
            Some(foreign) => foreign.knows(warp, other.block, then.warp(), then.epoch),
            None => true,
        };
        apart && !knows && updates.writes.contains_key(&then.pc)
    };
    match (e.space, &env.exact) {
        (Space::Shared, _) => {
            let others = shadow.strong_writes(e.address as usize).into_iter();
            others.map(|access| Past { access, block }).find(unordered)
        }
        (Space::Global, Some(exact)) => exact.strong_writes(e.address & !3).find(unordered),
        _ => None,
    }
}
