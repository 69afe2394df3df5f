//! Blocks that wait for words of global memory, and the blocks that would write them.
//!
//! CUDA promises of an ordinary launch that some block runs, and not that two do: a block that waits for one that has
//! not started may wait for ever, as it keeps its share of a multiprocessor meanwhile.

use super::block::{Ran, go_on, start};
use super::resident::Resident;
use super::state::{Entry, Env, Machine, Status, Warp};
use crate::exec::access::memory::{addresses, by_space};
use crate::exec::checks::report::describe;
use crate::exec::values::lanes::{LANES, each};
use crate::exec::warps::warp::{Stop, run};
use crate::finding::Kind;
use crate::memory::window;
use crate::op::{Address, Op};
use crate::ptx::types::Space;

/// Instructions in which a loop that waits comes round.
const PROBE: u32 = 4096;
/// Words that are remembered of a warp.
const WORDS: usize = 64;
/// Blocks that are started to see which one another waits for, and that wait in their turn.
const WAITING: usize = 256;

/// A word of global memory that a waiting warp reads again and again.
#[derive(Clone, Copy, Debug)]
pub struct Polled {
    pc: u32,
    thread: u32,
    address: u64,
    len: u64,
    /// What it held.
    value: u64,
}

/// What a close look at a warp shows.
enum Look {
    /// It comes back to the same state and changes nothing: it waits until others change these words.
    Waits(Vec<Polled>),
    /// It does something else.
    Works,
    /// The kernel cannot go on; a finding says why.
    Fault,
}

/// The words that a block waits for, where all its warps that can run wait; `Err` if the kernel cannot go on.
pub fn waits(env: &mut Env, warps: &mut [Warp]) -> Result<Vec<Polled>, ()> {
    let mut all = Vec::new();
    for warp in warps.iter_mut().filter(|warp| warp.status == Status::Ready) {
        match look(env, warp) {
            Look::Waits(words) => all.extend(words),
            Look::Works => return Ok(Vec::new()),
            Look::Fault => return Err(()),
        }
    }
    Ok(all)
}

/// Runs a warp instruction by instruction, until it is where it was.
fn look(env: &mut Env, warp: &mut Warp) -> Look {
    // Lanes at a meeting point may be those that the others wait for; `strands::patience` lets them go on first.
    let some_wait = !warp.apart.active && !warp.stack.is_empty() && warp.now.mask != warp.live;
    if some_wait || !warp.frames.is_empty() {
        return Look::Works;
    }
    let (first, mut came_round) = (State::of(warp), false);
    let mut words: Vec<Polled> = Vec::new();
    for _ in 0..PROBE {
        // As the interpreter does before an instruction; doing it here shows which one comes next.
        if !warp.apart.active && warp.now.pc == warp.now.meet {
            warp.next_lanes();
            if warp.status == Status::Done {
                return Look::Works;
            }
        }
        let pc = warp.now.pc;
        let instruction = &env.machine.kernel.code[pc as usize];
        let mask = instruction.guard.map_or(u32::MAX, |guard| warp.pred(guard)) & warp.now.mask;
        let mut seen = Vec::new();
        match &instruction.op {
            _ if mask == 0 => {}
            Op::Load(t) => seen = polled(env, warp, pc, (&t.address, u64::from(t.bytes)), mask),
            Op::Atomic(a) => {
                seen = polled(env, warp, pc, (&a.address, a.bytes.into()), mask);
                // One that changes a word of another space goes unseen: it is no wait.
                if !matches!(a.address.space, Space::Global | Space::Generic) || seen.is_empty() {
                    return Look::Works;
                }
            }
            op if changes(op) => return Look::Works,
            _ => {}
        }
        let atomic = matches!(instruction.op, Op::Atomic(_));
        match run(env, warp, 1) {
            Stop::Yield => {}
            Stop::Fault => return Look::Fault,
            _ => return Look::Works,
        }
        if atomic && seen.iter().any(|word| word.changed(env.machine)) {
            return Look::Works;
        }
        for word in seen {
            let known = words.iter().any(|w| w.address == word.address);
            if !known && words.len() < WORDS {
                words.push(word);
            }
        }
        came_round |= first.is(warp);
        // Lanes that are apart run alternately: until the end of the look each had one.
        if came_round && !warp.apart.active {
            break;
        }
    }
    if came_round { Look::Waits(words) } else { Look::Works }
}

/// Whether an instruction does what a loop that only waits does not: it writes, meets others, or reads a clock.
fn changes(op: &Op) -> bool {
    matches!(
        op,
        Op::Store(_)
            | Op::Print(_)
            | Op::Assert(_)
            | Op::MBarrier(_)
            | Op::Copy(_)
            | Op::Bulk(_)
            | Op::StoreMatrix(_)
            | Op::Wgmma(_)
            | Op::WarpgroupWait { .. }
            | Op::WarpgroupFence
            | Op::Commit(_)
            | Op::Await { .. }
            | Op::ProxyFence
            | Op::ClusterArrive
            | Op::ClusterWait
            | Op::Tile(_)
            | Op::Clock { .. }
            | Op::Barrier { .. }
            | Op::BarrierReduce { .. }
            | Op::Exit
            | Op::Trap
            | Op::Call(_)
            | Op::Return(_)
            | Op::End
    )
}

/// The words of global memory that the lanes address.
fn polled(env: &Env, warp: &Warp, pc: u32, (address, len): (&Address, u64), mask: u32) -> Vec<Polled> {
    let mut words = Vec::new();
    by_space(address.space, &addresses(warp, address), mask, |space, at, mask| {
        if space == Space::Global && address.space != Space::Const {
            each(mask, |lane| {
                let word = Polled { pc, thread: warp.first + lane as u32, address: at[lane], len, value: 0 };
                words.extend(word.now(env.machine).map(|value| Polled { value, ..word }));
            });
        }
    });
    words
}

impl Polled {
    /// Whether it holds something else by now.
    fn changed(&self, machine: &Machine) -> bool {
        self.now(machine) != Some(self.value)
    }

    /// What the word holds now; `None` outside of everything.
    fn now(&self, machine: &Machine) -> Option<u64> {
        let (number, at) = machine.memory.range(self.address, self.len)?;
        if !at.is_multiple_of(self.len as usize) {
            return None;
        }
        machine.memory.get(number).map(|allocation| allocation.bytes.load(at, self.len as u8))
    }
}

/// All that decides what a warp does next, but for memory.
struct State {
    lanes: Lanes,
    narrow: Vec<[u32; LANES]>,
    wide: Vec<[u64; LANES]>,
    preds: Vec<u32>,
}

/// Where the lanes are: those that run, those that wait at meeting points, those that are apart.
#[derive(PartialEq, Eq)]
struct Lanes {
    now: (u32, u32, u32),
    stack: Vec<(u32, u32, u32)>,
    strands: Vec<(u32, u32)>,
}

impl Lanes {
    fn of(warp: &Warp) -> Self {
        let mut strands: Vec<_> = warp.apart.strands.iter().map(|s| (s.pc, s.mask)).collect();
        strands.sort_unstable();
        let place = |e: &Entry| (e.pc, e.mask, e.meet);
        Self { now: place(&warp.now), stack: warp.stack.iter().map(place).collect(), strands }
    }
}

impl State {
    fn of(warp: &Warp) -> Self {
        let (narrow, wide) = (warp.narrow.to_vec(), warp.wide.to_vec());
        Self { lanes: Lanes::of(warp), narrow, wide, preds: warp.preds.clone() }
    }

    fn is(&self, warp: &Warp) -> bool {
        // The program counter differs most often.
        self.lanes.now.0 == warp.now.pc
            && self.lanes == Lanes::of(warp)
            && (&self.narrow[..], &self.wide[..], &self.preds) == (&warp.narrow[..], &warp.wide[..], &warp.preds)
    }
}

/// Says why a block that waits for words never ends: a block that has not started would change one of them, or nobody
/// does. Starts later blocks to find out, in `other`, so that nothing they do is counted or found. `None` if there is no
/// memory for them.
pub fn explain(env: &mut Env, other: &mut Env, words: &[Polled]) -> Option<()> {
    let machine = env.machine;
    let first = words.first()?;
    let changed = || words.iter().find(|word| word.changed(machine));
    let (mut steps, mut waiting) = (0, Vec::<(Resident, Vec<Polled>)>::new());
    let mut later = env.block.0 + 1..machine.blocks();
    let mut found = None;
    while found.is_none() && steps <= machine.step_budget && waiting.len() < WAITING {
        // Who waits goes on when a word has changed; else the next block starts.
        let ready = waiting.iter().position(|(_, words)| words.iter().any(|word| word.changed(machine)));
        let mut block = match ready {
            Some(at) => waiting.swap_remove(at).0,
            None => Resident::new(machine)?,
        };
        block.exchange(other);
        let before = match ready {
            Some(_) => other.steps,
            None => {
                let Some(position) = later.next() else { break };
                start(other, &mut block.warps, position);
                0
            }
        };
        let ran = go_on(other, &mut block.warps);
        steps += other.steps - before;
        found = changed().map(|word| (word, other.block.1));
        block.exchange(other);
        if let Ran::Waits(words) = ran {
            waiting.push((block, words));
        }
    }
    let word = found.map_or(first, |(word, _)| word);
    let (variable, place) = describe(machine, Space::Global, word.address);
    let (name, len) = (&machine.kernel.name, word.len);
    let (kind, message) = match found {
        Some((_, [x, y, z])) => (
            Kind::BlockOrder,
            format!(
                "`{name}` waits in a loop until block ({x}, {y}, {z}) changes {len} bytes ({place}), and that block has \
                 not started: blocks start in any order, and a block that waits keeps its share of the multiprocessor, \
                 so this need not ever end; next: launch it cooperatively with at most as many blocks as fit at a time, \
                 or let each block take a ticket (`atomicAdd`) when it starts and wait for lower tickets only"
            ),
        ),
        None => {
            let others = if later.is_empty() { "no other block of the launch" } else { "none of the next blocks" };
            let message = format!(
                "`{name}` waits in a loop until {len} bytes change ({place}), and {others} changes them; \
                 next: look for the write that is missing, or for a loop that never ends"
            );
            (Kind::StepBudget, message)
        }
    };
    env.note(kind, word.pc, word.thread, Some((word.address + window(Space::Global), variable)), message);
    Some(())
}
