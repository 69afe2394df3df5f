//! Products of a warpgroup (`wgmma`): each of its four warps computes 16 of the 64 rows.
//!
//! PTX ISA, "Asynchronous Warpgroup Level Matrix Multiply-Accumulate": the descriptor's fields, the canonical layouts and
//! the registers' fragments.

use super::half::widen;
use super::lanes::LANES;
use crate::exec::blocks::state::{Env, Warp};
use crate::exec::checks::engines::Channel;
use crate::exec::checks::{check, sums};
use crate::finding::Kind;
use crate::op::{Described, Left, Wgmma};
use crate::ptx::types::Space;
use crate::tensor_map::Swizzle;

const ROWS: usize = 16;
const DEPTH: usize = 16;
const MOST: usize = 256;

/// A matrix in shared memory, as its descriptor says.
struct Place {
    start: u64,
    leading: u64,
    stride: u64,
    swizzle: Swizzle,
    transposed: bool,
}

impl Place {
    fn of(word: u64, transposed: bool) -> Self {
        let field = |from: u32| (word >> from & 0x3fff) << 4;
        let swizzle = [Swizzle::None, Swizzle::Bytes128, Swizzle::Bytes64, Swizzle::Bytes32][(word >> 62) as usize];
        Self { start: field(0), leading: field(16), stride: field(32), swizzle, transposed }
    }

    /// Address of the number at `k` of a row of a (a column of b).
    #[inline(always)]
    fn at(&self, row: usize, k: usize) -> u64 {
        let (row, k) = (row as u64, k as u64);
        let width = self.swizzle.bytes();
        let across = width / 2;
        let offset = match (self.transposed, self.swizzle) {
            // Core matrices of 8 rows of 16 bytes.
            (false, Swizzle::None) => row / 8 * self.stride + k / 8 * self.leading + row % 8 * 16 + k % 8 * 2,
            (true, Swizzle::None) => row / 8 * self.stride + k / 8 * self.leading + k % 8 * 16 + row % 8 * 2,
            // Eight rows as wide as the swizzle.
            (false, _) => row / 8 * self.stride + row % 8 * width + k * 2,
            (true, _) => row / across * self.leading + k / 8 * self.stride + k % 8 * width + row % across * 2,
        };
        self.swizzle.place(self.start + offset)
    }
}

/// Runs a warp's part of the product, at once.
pub fn run(env: &mut Env, warp: &mut Warp, pc: u32, m: &Wgmma) {
    sums::begin(env, warp, pc, m);
    let quarter = warp.first as usize / LANES % 4;
    let mut a = [[0f32; DEPTH]; ROWS];
    match &m.a {
        Left::Shared(described) => {
            let rows = [quarter * ROWS, quarter * ROWS + ROWS];
            let read = gather(env, warp, pc, described, m.brain, rows, |row, k, x| a[row - quarter * ROWS][k] = x);
            if read.is_none() {
                return;
            }
        }
        Left::Registers(rows) => {
            for (i, &slot) in rows.iter().enumerate() {
                for lane in 0..LANES {
                    let word = warp.narrow[slot as usize][lane];
                    for part in 0..2 {
                        let (row, k) = (lane / 4 + 8 * (i % 2), 8 * (i / 2) + lane % 4 * 2 + part);
                        a[row][k] = number((word >> (16 * part)) as u16, m.brain);
                    }
                }
            }
        }
    }
    let mut b = [[0f32; MOST]; DEPTH];
    if gather(env, warp, pc, &m.b, m.brain, [0, m.columns], |column, k, x| b[k][column] = x).is_none() {
        return;
    }
    let adds = match m.adds {
        Ok(pred) => warp.pred(pred) != 0,
        Err(constant) => constant,
    };
    let sign = if m.negated.0 != m.negated.1 { -1.0 } else { 1.0 };
    let mut sums = [[0f32; MOST]; ROWS];
    if adds {
        each_sum(m, |row, column, slot, lane| sums[row][column] = f32::from_bits(warp.narrow[slot][lane]));
    }
    for (row, sums) in sums.iter_mut().enumerate() {
        for k in 0..DEPTH {
            let x = sign * a[row][k];
            let right = &b[k][..m.columns];
            sums[..m.columns].iter_mut().zip(right).for_each(|(sum, y)| *sum += x * y);
        }
    }
    each_sum(m, |row, column, slot, lane| warp.narrow[slot][lane] = sums[row][column].to_bits());
}

/// Calls `f` with row, column, register and lane of each sum of a warp.
#[inline(always)]
fn each_sum(m: &Wgmma, mut f: impl FnMut(usize, usize, usize, usize)) {
    for (i, &slot) in m.d.iter().enumerate() {
        for lane in 0..LANES {
            f(lane / 4 + i / 2 % 2 * 8, i / 4 * 8 + lane % 4 * 2 + i % 2, slot as usize, lane);
        }
    }
}

#[inline(always)]
fn number(bits: u16, brain: bool) -> f32 {
    if brain { f32::from_bits(u32::from(bits) << 16) } else { widen(bits, false, false) as f32 }
}

/// Reads rows of a matrix in shared memory; `None`, with a finding, if it does not lie inside.
fn gather(
    env: &mut Env,
    warp: &Warp,
    pc: u32,
    described: &Described,
    brain: bool,
    [from, to]: [usize; 2],
    mut put: impl FnMut(usize, usize, f32),
) -> Option<()> {
    let word = warp.wide[described.descriptor as usize][0];
    let place = Place::of(word, described.transposed);
    let thread = warp.first;
    let channel = Channel::Products(thread as usize / LANES);
    let access = check::begun(env, channel, (thread, pc));
    for row in from..to {
        for k in 0..DEPTH {
            let at = place.at(row, k);
            if at + 2 > env.shared.len() as u64 {
                let message = format!(
                    "the descriptor {word:#018x} says that the matrix begins at {:#x}, and leads to {at:#x}: a block of this \
                     launch has {} bytes of shared memory; next: look at the descriptor's address, leading and stride \
                     offsets (each in units of 16 bytes) and swizzle",
                    place.start,
                    env.shared.len()
                );
                env.note(Kind::OutOfBounds, pc, thread, Some((at + crate::memory::SHARED_WINDOW, None)), message);
                return None;
            }
            put(row, k, number(env.shared.load(at as usize, 2) as u16, brain));
            // Two numbers a word: the even one stands for both.
            let first = if described.transposed { row } else { k } % 2 == 0;
            if first && let Some(access) = access {
                let plain = env.shadow.as_mut().is_some_and(|s| s.engine_read(at as usize, access));
                if !plain {
                    let (space, address, len, read) = (Space::Shared, at & !3, 4, true);
                    let (write, strong, same) = (false, false, false);
                    let word = check::Element { thread, pc, space, address, len, read, write, strong, same };
                    check::asynchronous(env, word, channel);
                }
            }
        }
    }
    Some(())
}
