//! A warp runs: 32 lanes in lockstep, with a stack of the lanes that wait at meeting points.

use super::exchange;
use super::strands;
use super::sync::{arrive, together};
use crate::exec::access::atomic;
use crate::exec::access::fast;
use crate::exec::access::memory;
use crate::exec::blocks::state::{Env, Status, Warp};
use crate::exec::values::alu32;
use crate::exec::values::alu64;
use crate::exec::values::compare;
use crate::exec::values::convert;
use crate::exec::values::float;
use crate::exec::values::lanes::{LANES, each, map1, unary};
use crate::finding::Kind;
use crate::memory::window;
use crate::op::{Bin, Convert, Engine, FloatMode, Logic, Op, Transfer};
use crate::ptx::types::{Space, Type};

/// Why a warp stopped running.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stop {
    /// It waits at a barrier, or is done: see its status.
    Status,
    /// Its quantum is used up, or others are to run first.
    Yield,
    /// The kernel cannot go on; a finding says why.
    Fault,
    /// Lanes must come together that are at different places.
    Apart,
    /// It asked for something that others must do first.
    Vain,
}

/// Runs a warp for at most `quantum` instructions.
pub fn run(env: &mut Env, warp: &mut Warp, quantum: u64) -> Stop {
    match super::watch::wants(env.machine.watch, env.block.1, warp.first) {
        true => super::watch::run(env, warp, quantum),
        false => advance(env, warp, quantum),
    }
}

/// Runs a warp that nobody watches.
pub fn advance(env: &mut Env, warp: &mut Warp, quantum: u64) -> Stop {
    if warp.apart.active {
        return strands::run(env, warp, quantum);
    }
    match env.machine.advance.run(env, warp, quantum) {
        Stop::Apart => strands::part(env, warp),
        Stop::Yield if quantum > 1 => strands::patience(env, warp),
        Stop::Vain => strands::vain(env, warp),
        stop => stop,
    }
}

/// Runs one instruction of the lanes in `now`.
pub fn step(env: &mut Env, warp: &mut Warp) -> Stop {
    env.machine.advance.run(env, warp, 1)
}

/// The interpreter loop.
#[inline(always)]
pub fn steps<const COUNT: bool>(env: &mut Env, warp: &mut Warp, quantum: u64) -> Stop {
    let code = &env.machine.kernel.code[..];
    for _ in 0..quantum {
        if warp.now.pc == warp.now.meet {
            warp.next_lanes();
            if warp.status == Status::Done {
                return Stop::Status;
            }
        }
        let pc = warp.now.pc;
        let active = warp.now.mask;
        let instruction = &code[pc as usize];
        let mask = instruction.guard.map_or(active, |guard| warp.pred(guard) & active);
        if COUNT {
            let tally = &mut env.tally[pc as usize];
            tally.warps += 1;
            tally.lanes += u64::from(active.count_ones());
        }
        env.steps += 1;
        warp.now.pc = pc + 1;
        // No lane takes it: that holds for branches, too.
        if mask == 0 {
            continue;
        }
        if instruction.sums != 0 && env.machine.checks {
            crate::exec::checks::sums::look(env, warp, pc);
        }
        let ends = |at: u32| matches!(code[at as usize].op, Op::Exit);
        match &instruction.op {
            // Inner loops consist of these: one jump dispatches them.
            Op::Load(t) => transfer::<true, COUNT>(env, warp, pc, t, mask),
            Op::Store(t) => transfer::<false, COUNT>(env, warp, pc, t, mask),
            Op::Bin32 { f, d, a, b } => alu32::bin(&mut warp.narrow, mask, *f, *d, *a, *b),
            Op::Tri32 { f, d, a, b, c } => alu32::tri(&mut warp.narrow, mask, *f, *d, [*a, *b, *c]),
            Op::Branch { target, .. } if mask == active => warp.now.pc = *target,
            Op::Branch { target, reconverge } => {
                if COUNT {
                    env.tally[pc as usize].requests += 1;
                }
                warp.now.pc = pc;
                warp.part(ends, mask, *target, *reconverge);
            }
            Op::BranchTable { index, targets, reconverge } => {
                warp.now.pc = pc;
                match warp.spread(ends, *index, targets, *reconverge) {
                    Ok(parted) => env.tally[pc as usize].requests += u64::from(parted),
                    Err(lane) => {
                        let message = "a jump by table (a `switch`, a call through a pointer) goes to no place \
                                       of its table; next: look at the value or the pointer that picks the place"
                            .into();
                        env.note(Kind::OutOfBounds, pc, warp.first + lane, None, message);
                        return Stop::Fault;
                    }
                }
            }
            Op::Exit => {
                warp.live &= !mask;
                warp.now.mask &= !mask;
                if warp.now.mask == 0 {
                    warp.next_lanes();
                    if warp.status == Status::Done {
                        return Stop::Status;
                    }
                }
            }
            Op::Trap => {
                let thread = warp.first + mask.trailing_zeros();
                env.note(Kind::Trap, pc, thread, None, "the kernel stopped itself (`trap`)".into());
                return Stop::Fault;
            }
            Op::Call(c) => {
                if !super::calls::enter(env, warp, pc, c) {
                    return Stop::Fault;
                }
            }
            Op::Return(r) => super::calls::leave(warp, r, mask),
            Op::End => return super::calls::cannot(env, warp),
            Op::Assert(a) => {
                crate::exec::access::print::assertion(env, warp, pc, a, mask);
                return Stop::Fault;
            }
            Op::MBarrier(b) => {
                if super::mbarrier::run(env, warp, pc, b, mask) {
                    return Stop::Vain;
                }
            }
            Op::ClusterArrive => {
                if !super::sync::arrive_in_cluster(env, warp, pc, mask) {
                    return Stop::Fault;
                }
            }
            Op::ClusterWait | Op::WarpgroupWait { .. } | Op::Barrier { .. } | Op::BarrierReduce { .. } => {
                return arrive(env, warp, pc, &instruction.op, mask);
            }
            op => {
                if op.whole_warp() && mask != u32::MAX {
                    return super::sync::not_whole(env, warp, pc, mask);
                }
                if let Some(row) = exchange::members(op) {
                    match together(env, warp, (op, row), mask) {
                        Some(groups) => {
                            groups.into_iter().for_each(|group| exchange::run(warp, op, group));
                            if let (Op::WarpBarrier { .. }, Some(shadow)) = (op, &mut env.shadow) {
                                shadow.clocks_mut().warp_barrier(warp.first as usize / LANES);
                            }
                        }
                        None => {
                            // Not executed yet, and not counted.
                            if COUNT {
                                let tally = &mut env.tally[pc as usize];
                                tally.warps -= 1;
                                tally.lanes -= u64::from(active.count_ones());
                            }
                            env.steps -= 1;
                            warp.now.pc = pc;
                            return Stop::Apart;
                        }
                    }
                } else {
                    execute(env, warp, pc, op, mask);
                }
            }
        }
    }
    Stop::Yield
}

/// A load or a store, by the shortest way that is right for it.
#[inline(always)]
fn transfer<const LOAD: bool, const COUNT: bool>(env: &mut Env, warp: &mut Warp, pc: u32, t: &Transfer, mask: u32) {
    if !fast::transfer::<LOAD, COUNT>(env, warp, pc, t, mask) {
        memory::transfer::<LOAD>(env, warp, pc, t, mask);
    }
}

#[inline(always)]
fn execute(env: &mut Env, warp: &mut Warp, pc: u32, op: &Op, mask: u32) {
    match *op {
        Op::Bin64 { f: f @ (Bin::Shl | Bin::Shr { .. }), d, a, b } => {
            alu64::shift(&mut warp.wide, &warp.narrow[b as usize], mask, f, d, a);
        }
        Op::Bin64 { f, d, a, b } => alu64::bin(&mut warp.wide, mask, f, d, a, b),
        Op::Mov32 { d, a } => crate::exec::values::lanes::unary(&mut warp.narrow, mask, d, a, |x| x),
        Op::Mov64 { d, a } => crate::exec::values::lanes::unary(&mut warp.wide, mask, d, a, |x| x),
        Op::MulWide { signed, narrow: false, d, a, b, c } => {
            let (x, y) = (&warp.narrow[a as usize], &warp.narrow[b as usize]);
            let plus = c.map_or([0; LANES], |c| warp.wide[c as usize]);
            let out = &mut warp.wide[d as usize];
            for i in 0..LANES {
                let product = match signed {
                    true => (i64::from(x[i] as i32) * i64::from(y[i] as i32)) as u64,
                    false => u64::from(x[i]) * u64::from(y[i]),
                };
                out[i] = if mask >> i & 1 != 0 { product.wrapping_add(plus[i]) } else { out[i] };
            }
        }
        Op::Compare32(c) => {
            let holds = compare::narrow(c.cmp, c.view, &warp.narrow[c.a as usize], &warp.narrow[c.b as usize]);
            compared(warp, &c, holds, mask);
        }
        Op::Compare64(c) => {
            let holds = compare::wide(c.cmp, c.view, &warp.wide[c.a as usize], &warp.wide[c.b as usize]);
            compared(warp, &c, holds, mask);
        }
        Op::Select32 { d, a, b, p } => {
            let picks = warp.pred(p);
            let (x, y) = (warp.narrow[a as usize], warp.narrow[b as usize]);
            let out = &mut warp.narrow[d as usize];
            for i in 0..LANES {
                let value = if picks >> i & 1 != 0 { x[i] } else { y[i] };
                out[i] = if mask >> i & 1 != 0 { value } else { out[i] };
            }
        }
        Op::PredLogic { f, d, a, b } => {
            let (x, y) = (warp.pred(a), warp.pred(b));
            warp.set_pred(d, logic(f, x, y), mask);
        }
        Op::Un32 { f, d, a } => alu32::un(&mut warp.narrow, mask, f, d, a),
        Op::Convert(ref c) => conversion(warp, c, mask),
        Op::AddressOf { space, to_generic, d, a } => {
            let by = if to_generic { window(space) } else { window(space).wrapping_neg() };
            crate::exec::values::lanes::unary(&mut warp.wide, mask, d.slot, a.slot, |x| x.wrapping_add(by));
        }
        Op::Atomic(ref a) => atomic::run(env, warp, pc, a, mask),
        Op::Fence { far } => crate::exec::checks::check::fence(env, warp.first, far),
        Op::ProxyFence => crate::exec::checks::check::proxy_fence(env, warp.first),
        Op::WarpgroupFence => warp.sums.fence(),
        Op::Commit(engine) => {
            if engine == Engine::Products {
                warp.sums.commit();
            }
            crate::exec::checks::check::commit(env, warp.first, engine);
        }
        Op::Await { engine, pending, all } => {
            crate::exec::checks::check::waited(env, warp.first, engine, (pending, all));
        }
        Op::Copy(ref c) => crate::exec::access::matrix::copy(env, warp, pc, c, mask),
        Op::LoadMatrix(ref l) => crate::exec::access::matrix::load(env, warp, pc, l),
        Op::StoreMatrix(ref l) => crate::exec::access::matrix::store(env, warp, pc, l),
        Op::Bulk(ref b) => crate::exec::access::bulk::run(env, warp, pc, b, mask),
        Op::Wgmma(ref m) => crate::exec::values::wgmma::run(env, warp, pc, m),
        Op::Mma(ref m) => crate::exec::values::tensor::mma(warp, m),
        Op::Tile(ref t) => crate::exec::values::tensor::tile(env, warp, pc, t),
        Op::Print(ref p) => crate::exec::access::print::run(env, warp, p, mask),
        _ => super::rest::execute(env, warp, op, mask),
    }
}

#[inline(always)]
pub fn logic(f: Logic, x: u32, y: u32) -> u32 {
    match f {
        Logic::And => x & y,
        Logic::Or => x | y,
        Logic::Xor => x ^ y,
    }
}

#[inline(always)]
fn compared(warp: &mut Warp, c: &crate::op::Compare, holds: u32, mask: u32) {
    let other = c.with.map(|(f, p)| (f, warp.pred(p)));
    let combine = |x: u32| other.map_or(x, |(f, y)| logic(f, x, y));
    warp.set_pred(c.d, combine(holds), mask);
    if let Some(not_d) = c.not_d {
        warp.set_pred(not_d, combine(!holds), mask);
    }
}

#[inline(always)]
fn conversion(warp: &mut Warp, c: &Convert, mask: u32) {
    let (d, a) = (c.d.slot, c.a.slot);
    // The ones that index arithmetic is full of.
    match (c.from, c.to, c.d.wide, c.a.wide) {
        (Type::S32, Type::S64, true, false) => {
            return map1(&mut warp.wide[d as usize], &warp.narrow[a as usize], mask, |x| x as i32 as i64 as u64);
        }
        (Type::U32, Type::U64, true, false) => {
            return map1(&mut warp.wide[d as usize], &warp.narrow[a as usize], mask, u64::from);
        }
        (Type::U64, Type::U32, false, true) if !c.mode.sat => {
            return map1(&mut warp.narrow[d as usize], &warp.wide[a as usize], mask, |x| x as u32);
        }
        // And those that matrices of bf16 are read and written with.
        (Type::Bf16, Type::F32, false, false) if !c.mode.sat && c.integral.is_none() => {
            return unary(&mut warp.narrow, mask, d, a, |x| float::brain_to_single(x, c.mode.ftz));
        }
        (Type::F32, Type::Bf16, false, false) if c.mode == FloatMode::default() && c.integral.is_none() => {
            return unary(&mut warp.narrow, mask, d, a, float::single_to_brain);
        }
        _ => {}
    }
    each(mask, |lane| {
        let bits = if c.a.wide { warp.wide[a as usize][lane] } else { warp.narrow[a as usize][lane].into() };
        let value = convert::value(c, bits);
        if c.d.wide {
            warp.wide[d as usize][lane] = value;
        } else {
            warp.narrow[d as usize][lane] = c.d.narrow(value);
        }
    });
}

/// Spaces that `isspacep` tells apart.
pub fn in_space(space: Space, address: u64) -> bool {
    crate::memory::from_generic(address).0 == if space == Space::Const { Space::Global } else { space }
}
