//! Loads, stores and atomics of a warp: addresses checked, requests counted, lanes served.

use super::cluster::{parts, visit};
use crate::decode::flow::Home;
use crate::exec::blocks::state::{Env, Warp};
use crate::exec::checks::{check, past};
use crate::exec::values::lanes::{LANES, Row, each};
use crate::memory::{Bytes, from_generic, window};
use crate::op::{Address, Transfer};
use crate::ptx::types::Space;
use crate::traffic::{local_sectors, sectors, wavefronts};

/// Addresses of all lanes.
#[inline(always)]
pub fn addresses(warp: &Warp, address: &Address) -> Row<u64> {
    let mut out = [0; LANES];
    if address.base.wide {
        let base = &warp.wide[address.base.slot as usize];
        for i in 0..LANES {
            out[i] = base[i].wrapping_add_signed(address.offset);
        }
    } else {
        let base = &warp.narrow[address.base.slot as usize];
        for i in 0..LANES {
            out[i] = u64::from(base[i].wrapping_add(address.offset as u32));
        }
    }
    out
}

/// Calls `f` for each space that the lanes address, with addresses inside the space.
#[inline(always)]
pub fn by_space(space: Space, addresses: &Row<u64>, mask: u32, mut f: impl FnMut(Space, &Row<u64>, u32)) {
    if space != Space::Generic {
        return f(if space == Space::Const { Space::Global } else { space }, addresses, mask);
    }
    let mut inside = *addresses;
    let mut masks = [0u32; 4];
    const SPACES: [Space; 4] = [Space::Global, Space::Shared, Space::Local, Space::Param];
    each(mask, |lane| {
        let (space, at) = from_generic(addresses[lane]);
        inside[lane] = at;
        if let Some(number) = SPACES.iter().position(|s| *s == space) {
            masks[number] |= 1 << lane;
        }
    });
    for (space, mask) in SPACES.into_iter().zip(masks) {
        if mask != 0 {
            f(space, &inside, mask);
        }
    }
}

/// Where the bytes of a lane lie: memory and offset. `None` is outside of everything.
#[inline(always)]
pub fn find<'b, 'a: 'b>(
    env: &mut Env<'a>,
    local: &'b Bytes,
    shared: &'b Bytes,
    space: Space,
    (lane, address): (usize, u64),
    len: u64,
) -> Option<(&'b Bytes, usize)> {
    let fits = |at: u64, size: u64| at <= size && size - at >= len;
    match space {
        Space::Shared => fits(address, shared.len() as u64).then_some((shared, address as usize)),
        Space::Local => {
            let size = env.machine.kernel.layout.local_bytes;
            fits(address, size).then(|| (local, lane * size as usize + address as usize))
        }
        Space::Param => {
            let params = &env.machine.params;
            fits(address, params.len() as u64).then_some((params, address as usize))
        }
        _ => {
            let memory = env.machine.memory;
            if let Some(recent) = memory.get(env.recent) {
                let at = address.wrapping_sub(recent.base);
                if fits(at, recent.bytes.len() as u64) {
                    return Some((&recent.bytes, at as usize));
                }
            }
            let (number, at) = memory.range(address, len)?;
            env.recent = number;
            memory.get(number).map(|a| (&a.bytes, at))
        }
    }
}

/// Whether bytes of shared memory lie in the variables that their address starts from; other memory has no such bounds.
#[inline(always)]
pub fn at_home(space: Space, home: Home, at: u64, len: u64) -> bool {
    space != Space::Shared || at >= u64::from(home.0) && at.saturating_add(len) <= u64::from(home.1)
}

/// A load (`LOAD`) or a store of the lanes of the mask, one lane after the other: what [`super::fast`] leaves over.
#[inline(never)]
pub fn transfer<const LOAD: bool>(env: &mut Env, warp: &mut Warp, pc: u32, t: &Transfer, mask: u32) {
    let all = addresses(warp, &t.address);
    let Some(parts) = parts(env, t.address.space, &all, mask) else {
        return within::<LOAD>(env, warp, pc, t, (&all, mask));
    };
    for (rank, all, mask) in parts {
        let thread = warp.first + mask.trailing_zeros();
        visit(env, (thread, pc), rank, |env| within::<LOAD>(env, warp, pc, t, (&all, mask)));
    }
}

/// The same, of lanes that address no other block of the cluster, or all the same one.
fn within<const LOAD: bool>(env: &mut Env, warp: &mut Warp, pc: u32, t: &Transfer, (all, mask): (&Row<u64>, u32)) {
    let len = u64::from(t.bytes) * u64::from(t.count);
    let shared = std::mem::take(&mut env.shared);
    let local = std::mem::take(&mut warp.local);
    by_space(t.address.space, all, mask, |space, at, mask| {
        let mut served = 0;
        if t.release {
            check::fence(env, warp.first, true);
        }
        let checks =
            env.machine.checks && matches!(space, Space::Shared | Space::Global) && t.address.space != Space::Const;
        let one = if t.count == 1 { t.rows[0] } else { None };
        for (lane, &address) in at.iter().enumerate() {
            if mask >> lane & 1 == 0 {
                continue;
            }
            let place = match address & (len - 1) == 0 && at_home(space, t.home, address, len) {
                true => find(env, &local, &shared, space, (lane, address), len),
                false => None,
            };
            let Some((bytes, offset)) = place else {
                let thread = warp.first + lane as u32;
                crate::exec::checks::report::beyond(env, thread, pc, (space, address, t.home), len, LOAD);
                continue;
            };
            served |= 1 << lane;
            let thread = warp.first + lane as u32;
            let word = LOAD && len == 4 && space == Space::Shared && !t.strong;
            let plain = word && !env.visited && env.shadow.as_mut().is_some_and(|s| s.plain_read(offset, thread, pc));
            if checks && !plain {
                check::<LOAD>(env, warp, (pc, lane), t, (space, address), (bytes, offset));
            }
            // The common case: one element in a 32-bit row.
            if let (Some(row), 4) = (one, t.bytes)
                && !row.wide
            {
                let cell = &mut warp.narrow[row.slot as usize][lane];
                if LOAD {
                    *cell = bytes.load(offset, 4) as u32
                } else {
                    bytes.store(offset, 4, u64::from(*cell))
                }
                continue;
            }
            for (k, row) in t.rows[..t.count as usize].iter().enumerate() {
                let Some(row) = row else { continue };
                let offset = offset + k * t.bytes as usize;
                if LOAD {
                    let value = bytes.load(offset, t.bytes);
                    let spare = 64 - 8 * u32::from(t.bytes);
                    let value = if t.signed { ((value << spare) as i64 >> spare) as u64 } else { value };
                    match row.wide {
                        true => warp.wide[row.slot as usize][lane] = value,
                        false => warp.narrow[row.slot as usize][lane] = row.narrow(value),
                    }
                } else {
                    let value = match row.wide {
                        true => warp.wide[row.slot as usize][lane],
                        false => warp.narrow[row.slot as usize][lane].into(),
                    };
                    bytes.store(offset, t.bytes, value);
                }
            }
        }
        count::<LOAD>(env, pc, (space, t.address.space), at, served, len as u32);
    });
    env.shared = shared;
    warp.local = local;
}

/// Checks each element of a lane.
#[inline(never)]
fn check<const LOAD: bool>(
    env: &mut Env,
    warp: &Warp,
    (pc, lane): (u32, usize),
    t: &Transfer,
    (space, address): (Space, u64),
    (bytes, offset): (&Bytes, usize),
) {
    for (k, row) in t.rows[..t.count as usize].iter().enumerate() {
        let Some(row) = row else { continue };
        let step = k * t.bytes as usize;
        let same = !LOAD && {
            let value = match row.wide {
                true => warp.wide[row.slot as usize][lane],
                false => warp.narrow[row.slot as usize][lane].into(),
            };
            let spare = 64 - 8 * u32::from(t.bytes);
            bytes.load(offset + step, t.bytes) == value << spare >> spare
        };
        let element = past::Element {
            thread: warp.first + lane as u32,
            pc,
            space,
            address: address + step as u64,
            len: t.bytes,
            read: LOAD,
            write: !LOAD,
            strong: t.strong,
            same,
        };
        check::element(env, element);
    }
}

/// Counts a request.
#[inline(always)]
pub fn count<const LOAD: bool>(
    env: &mut Env,
    pc: u32,
    (space, named): (Space, Space),
    at: &Row<u64>,
    served: u32,
    len: u32,
) {
    if served == 0 || !env.machine.counters {
        return;
    }
    let tally = &mut env.tally[pc as usize];
    match space {
        Space::Global if named != Space::Const => {
            tally.requests += 1;
            tally.sectors += sectors(at, served);
        }
        Space::Shared => {
            let (waves, least) = wavefronts::<LOAD>(at, served, len);
            tally.shared += 1;
            tally.wavefronts += waves;
            tally.conflicts += waves - least;
        }
        Space::Local => {
            // A word of 32 lanes is a line of its own.
            tally.local_requests += u64::from(len.div_ceil(4));
            tally.local_sectors += local_sectors(at, served, len);
        }
        _ => {}
    }
}

/// The generic address of an address in a space.
pub fn generic(space: Space, at: u64) -> u64 {
    at.wrapping_add(window(space))
}
