//! Copies in the background (`cp.async`) and loads for tensor cores (`ldmatrix`).

use super::memory::{addresses, by_space, count, find};
use crate::exec::blocks::state::{Env, Warp};
use crate::exec::values::lanes::{LANES, each};
use crate::op::{Copy, LoadMatrix};
use crate::ptx::types::Space;
use crate::traffic::{bypass_sectors, sectors};

/// Copies global memory to shared memory, lane by lane.
pub fn copy(env: &mut Env, warp: &mut Warp, pc: u32, c: &Copy, mask: u32) {
    let (to, from) = (addresses(warp, &c.to), addresses(warp, &c.from));
    let len = u64::from(c.bytes);
    let shared = std::mem::take(&mut env.shared);
    let (mut served, mut read) = (0, 0);
    each(mask, |lane| {
        let thread = warp.first + lane as u32;
        let wanted = c.source.map_or(len, |s| u64::from(warp.narrow[s as usize][lane]).min(len));
        let place = |env: &mut Env, space, at: u64, len: u64, align: u64| match at & (align - 1) {
            0 => find(env, &warp.local, &shared, space, (lane, at), len).is_some(),
            _ => false,
        };
        if !place(env, Space::Shared, to[lane], len, len) {
            return crate::exec::checks::report::access(env, thread, pc, (Space::Shared, to[lane]), len, false);
        }
        if wanted > 0 && !place(env, Space::Global, from[lane], wanted, len) {
            return crate::exec::checks::report::access(env, thread, pc, (Space::Global, from[lane]), len, true);
        }
        served |= 1 << lane;
        read |= u32::from(wanted > 0) << lane;
        for step in (0..len).step_by(4) {
            let value = match step < wanted {
                true => find(env, &warp.local, &shared, Space::Global, (lane, from[lane] + step), 4),
                false => None,
            };
            let value = value.map_or(0, |(bytes, at)| bytes.load(at, 4));
            // A source that ends within a word.
            let keep = wanted.saturating_sub(step).min(4) * 8;
            let value = if keep >= 32 { value } else { value & ((1 << keep) - 1) };
            crate::exec::checks::check::copied(env, (thread, pc), (from[lane] + step, step < wanted), to[lane] + step);
            shared.store((to[lane] + step) as usize, 4, value);
        }
    });
    env.shared = shared;
    count::<false>(env, pc, (Space::Shared, Space::Shared), &to, served, c.bytes.into());
    if read != 0 && env.machine.counters {
        let tally = &mut env.tally[pc as usize];
        tally.requests += 1;
        tally.sectors += if c.bypass { bypass_sectors(&from, &to, read) } else { sectors(&from, read) };
    }
}

/// Writes matrices of 8 × 8 halves (`stmatrix`); all lanes of the warp take part.
pub fn store(env: &mut Env, warp: &mut Warp, pc: u32, l: &LoadMatrix) {
    let all = addresses(warp, &l.address);
    let lanes = 8 * l.rows.len();
    let mask = if lanes == LANES { u32::MAX } else { (1 << lanes) - 1 };
    let shared = std::mem::take(&mut env.shared);
    by_space(l.address.space, &all, mask, |space, at, mask| {
        let mut served = 0;
        each(mask, |lane| {
            let place = match at[lane] & 15 {
                0 if space == Space::Shared => find(env, &warp.local, &shared, space, (lane, at[lane]), 16),
                _ => None,
            };
            let thread = warp.first + lane as u32;
            let Some((bytes, offset)) = place else {
                return crate::exec::checks::report::access(env, thread, pc, (space, at[lane]), 16, false);
            };
            served |= 1 << lane;
            let (matrix, row) = (lane / 8, lane % 8);
            for column in 0..8 {
                // Lane l holds elements 2 (l % 4) and the next of row l / 4.
                let (r, c) = if l.transposed { (column, row) } else { (row, column) };
                let word = warp.narrow[l.rows[matrix] as usize][r * 4 + c / 2];
                bytes.store(offset + 2 * column, 2, u64::from(word >> (c % 2 * 16) & 0xffff));
            }
            (0..4).for_each(|word| crate::exec::checks::check::wrote(env, (thread, pc), at[lane] + 4 * word));
        });
        count::<false>(env, pc, (space, space), at, served, 16);
    });
    env.shared = shared;
}

/// Loads matrices of 8 × 8 halves; all lanes of the warp take part.
pub fn load(env: &mut Env, warp: &mut Warp, pc: u32, l: &LoadMatrix) {
    let all = addresses(warp, &l.address);
    let lanes = 8 * l.rows.len();
    let mask = if lanes == LANES { u32::MAX } else { (1 << lanes) - 1 };
    let mut rows = [[0u16; 8]; LANES];
    let shared = std::mem::take(&mut env.shared);
    by_space(l.address.space, &all, mask, |space, at, mask| {
        let mut served = 0;
        each(mask, |lane| {
            let place = match at[lane] & 15 {
                0 => find(env, &warp.local, &shared, space, (lane, at[lane]), 16),
                _ => None,
            };
            let thread = warp.first + lane as u32;
            let Some((bytes, offset)) = place else {
                return crate::exec::checks::report::access(env, thread, pc, (space, at[lane]), 16, true);
            };
            served |= 1 << lane;
            rows[lane] = std::array::from_fn(|i| bytes.load(offset + 2 * i, 2) as u16);
            (0..4).for_each(|word| crate::exec::checks::check::read(env, (thread, pc), space, at[lane] + 4 * word));
        });
        // Each matrix goes by itself, as a quarter of a warp that stores.
        count::<false>(env, pc, (space, space), at, served, 16);
    });
    env.shared = shared;
    for (matrix, &slot) in l.rows.iter().enumerate() {
        // Lane l holds elements 2 (l % 4) and the next of row l / 4.
        warp.narrow[slot as usize] = std::array::from_fn(|lane| {
            let (row, column) = (lane / 4, lane % 4 * 2);
            let element = |i: usize| match l.transposed {
                true => rows[8 * matrix + column + i][row],
                false => rows[8 * matrix + row][column + i],
            };
            u32::from(element(1)) << 16 | u32::from(element(0))
        });
    }
}
