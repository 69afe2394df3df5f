//! Products of a warpgroup (`wgmma`): each of its four warps computes 16 of the 64 rows.
//!
//! PTX ISA, "Asynchronous Warpgroup Level Matrix Multiply-Accumulate": the descriptor's fields, the canonical layouts and
//! the registers' fragments.

use super::half::narrow;
use super::lanes::LANES;
use super::tensor::value;
use crate::exec::blocks::state::{Env, Warp};
use crate::exec::checks::engines::Channel;
use crate::exec::checks::{check, past, sums};
use crate::finding::Kind;
use crate::op::{Described, Element, Left, Sparse, Wgmma};
use crate::ptx::types::Space;
use crate::tensor_map::Swizzle;

const ROWS: usize = 16;
/// Numbers of a row of a, and columns of b, at most.
const STORED: usize = 32;
const MOST: usize = 256;

/// A matrix in shared memory, as its descriptor says.
struct SharedMatrix {
    start: u64,
    leading: u64,
    stride: u64,
    swizzle: Swizzle,
    transposed: bool,
    /// Bytes of a number.
    bytes: u64,
}

impl SharedMatrix {
    fn of(word: u64, transposed: bool, bytes: u64) -> Self {
        let field = |from: u32| (word >> from & 0x3fff) << 4;
        let swizzle = [Swizzle::None, Swizzle::Bytes128, Swizzle::Bytes64, Swizzle::Bytes32][(word >> 62) as usize];
        Self { start: field(0), leading: field(16), stride: field(32), swizzle, transposed, bytes }
    }

    /// Address of the number at `k` of a row of a (a column of b).
    #[inline(always)]
    fn at(&self, row: usize, k: usize) -> u64 {
        let (row, k, bytes) = (row as u64, k as u64, self.bytes);
        let width = self.swizzle.bytes();
        let (across, core) = (width / bytes, 16 / bytes);
        let offset = match (self.transposed, self.swizzle) {
            // Core matrices of 8 rows of 16 bytes.
            (false, Swizzle::None) => row / 8 * self.stride + k / core * self.leading + row % 8 * 16 + k % core * bytes,
            (true, Swizzle::None) => row / 8 * self.stride + k / 8 * self.leading + k % 8 * 16 + row % 8 * bytes,
            // Eight rows as wide as the swizzle.
            (false, _) => row / 8 * self.stride + row % 8 * width + k * bytes,
            (true, _) => row / across * self.leading + k / 8 * self.stride + k % 8 * width + row % across * bytes,
        };
        self.swizzle.place(self.start + offset)
    }
}

/// What sums are made of: floats of single precision, as hardware's, or integers wide enough for all sums.
trait Number: Copy + Default + std::ops::Mul<Output = Self> + std::ops::AddAssign {
    /// A part of a register.
    fn of(element: Element, word: u32, part: usize) -> Self;
    /// With the other sign.
    fn negative(self) -> Self;
    /// As a sum's bits.
    fn bits(self, m: &Wgmma) -> u32;
}

impl Number for f32 {
    #[inline(always)]
    fn of(element: Element, word: u32, part: usize) -> Self {
        match element {
            Element::F32 => f32::from_bits(word),
            Element::Bf16 => f32::from_bits(word >> (16 * part) << 16),
            _ => value(element, word.into(), part) as f32,
        }
    }

    fn negative(self) -> Self {
        -self
    }

    #[inline(always)]
    fn bits(self, m: &Wgmma) -> u32 {
        if m.sum == Element::F16 { narrow(self.into(), false) } else { self.to_bits() }
    }
}

impl Number for i64 {
    #[inline(always)]
    fn of(element: Element, word: u32, part: usize) -> Self {
        value(element, word.into(), part) as i64
    }

    fn negative(self) -> Self {
        -self
    }

    #[inline(always)]
    fn bits(self, m: &Wgmma) -> u32 {
        if m.saturate { self.clamp(i32::MIN.into(), i32::MAX.into()) as u32 } else { self as u32 }
    }
}

/// Runs a warp's part of the product, at once.
pub fn run(env: &mut Env, warp: &mut Warp, pc: u32, m: &Wgmma) {
    sums::begin(env, warp, pc, m);
    match m.sum {
        Element::S32 => product::<i64>(env, warp, pc, m),
        _ => product::<f32>(env, warp, pc, m),
    };
}

/// Computes the product; `None`, with a finding, if a factor does not lie inside shared memory.
fn product<T: Number>(env: &mut Env, warp: &mut Warp, pc: u32, m: &Wgmma) -> Option<()> {
    let quarter = warp.first as usize / LANES % 4;
    let mut a = [[T::default(); STORED]; ROWS];
    match &m.a {
        Left::Shared(described) => {
            let (rows, top) = ([quarter * ROWS, quarter * ROWS + ROWS], quarter * ROWS);
            gather(env, warp, pc, (described, m.factors[0], m.stored()), rows, |row, k, x| a[row - top][k] = x)?;
        }
        Left::Registers(rows) => {
            let per = m.factors[0].per_register();
            for (i, &slot) in rows.iter().enumerate() {
                for lane in 0..LANES {
                    let word = warp.narrow[slot as usize][lane];
                    for part in 0..per {
                        let (row, k) = (lane / 4 + 8 * (i % 2), (i / 2 * 4 + lane % 4) * per + part);
                        a[row][k] = T::of(m.factors[0], word, part);
                    }
                }
            }
        }
    }
    let mut b = vec![[T::default(); MOST]; m.depth()];
    gather(env, warp, pc, (&m.b, m.factors[1], m.depth()), [0, m.columns], |column, k, x| b[k][column] = x)?;
    let adds = match m.adds {
        Ok(pred) => warp.pred(pred) != 0,
        Err(constant) => constant,
    };
    let mut sums = [[T::default(); MOST]; ROWS];
    if adds {
        each_sum(m, |row, column, (slot, lane, part)| {
            sums[row][column] = T::of(m.sum, warp.narrow[slot][lane], part);
        });
    }
    for (row, sums) in sums.iter_mut().enumerate() {
        for (stored, x) in a[row][..m.stored()].iter().enumerate() {
            let x = if m.negated.0 == m.negated.1 { *x } else { x.negative() };
            let k = m.sparse.map_or(stored, |sparse| place(warp, sparse, m.factors[0], row, stored));
            let right = &b[k][..m.columns];
            sums[..m.columns].iter_mut().zip(right).for_each(|(sum, y)| *sum += x * *y);
        }
    }
    let width = 32 / m.sum.per_register();
    each_sum(m, |row, column, (slot, lane, part)| {
        let word = &mut warp.narrow[slot][lane];
        let (shift, all) = (width * part, u32::MAX >> (32 - width));
        *word = *word & !(all << shift) | (sums[row][column].bits(m) & all) << shift;
    });
    Some(())
}

/// The column of a number that a row of a warp stores: four bits tell of each chunk of four columns (of two for tf32) where
/// its numbers are. A thread's register has eight such chunks.
pub(super) fn place(warp: &Warp, sparse: Sparse, element: Element, row: usize, stored: usize) -> usize {
    let chunk = if element == Element::Tf32 { stored } else { stored / 2 };
    let (quad, half) = (row % 8 * 4, row / 8);
    let (lane, nibble) = match element.bytes() {
        // Each of the four threads has half a row.
        1 => (quad + half + chunk / 8 * 2, chunk % 8),
        // Two threads have a quarter of two rows each.
        _ => (quad + 2 * sparse.pair + chunk / 4, chunk % 4 + 4 * half),
    };
    let bits = warp.narrow[sparse.places as usize][lane] as usize >> (4 * nibble) & 15;
    match element {
        // Two halves of a number are told by two bits each.
        Element::Tf32 => 2 * chunk + (bits >> 1 & 1),
        _ => 4 * chunk + (bits >> (stored % 2 * 2) & 3),
    }
}

/// Calls `f` with row and column of each sum of a warp, and its register, lane and part of the register.
#[inline(always)]
fn each_sum(m: &Wgmma, mut f: impl FnMut(usize, usize, (usize, usize, usize))) {
    let per = m.sum.per_register();
    for (register, &slot) in m.d.iter().enumerate() {
        for lane in 0..LANES {
            for part in 0..per {
                let i = register * per + part;
                f(lane / 4 + i / 2 % 2 * 8, i / 4 * 8 + lane % 4 * 2 + i % 2, (slot as usize, lane, part));
            }
        }
    }
}

/// Reads rows of a matrix in shared memory; `None`, with a finding, if it does not lie inside.
fn gather<T: Number>(
    env: &mut Env,
    warp: &Warp,
    pc: u32,
    (described, element, depth): (&Described, Element, usize),
    [from, to]: [usize; 2],
    mut put: impl FnMut(usize, usize, T),
) -> Option<()> {
    let word = warp.wide[described.descriptor as usize][0];
    let bytes = element.bytes();
    let matrix = SharedMatrix::of(word, described.transposed, bytes);
    let thread = warp.first;
    let channel = Channel::Products(thread as usize / LANES);
    if !described.transposed && matrix.swizzle == Swizzle::Bytes32 && depth as u64 * bytes > 32 {
        let message = format!(
            "the descriptor {word:#018x} has a swizzle of 32 bytes, and each of its rows has {}; next: use one of 64 or 128",
            depth as u64 * bytes
        );
        env.note(Kind::OutOfBounds, pc, thread, None, message);
        return None;
    }
    let access = check::begun(env, channel, (thread, pc));
    for row in from..to {
        for k in 0..depth {
            let at = matrix.at(row, k);
            if at + bytes > env.shared.len() as u64 {
                let message = format!(
                    "the descriptor {word:#018x} says that the matrix begins at {:#x}, and leads to {at:#x}: a block of this \
                     launch has {} bytes of shared memory; next: look at the descriptor's address, leading and stride \
                     offsets (each in units of 16 bytes) and swizzle",
                    matrix.start,
                    env.shared.len()
                );
                env.note(Kind::OutOfBounds, pc, thread, Some((at + crate::memory::SHARED_WINDOW, None)), message);
                return None;
            }
            put(row, k, T::of(element, env.shared.load(at as usize, bytes as u8) as u32, 0));
            // The first number of a word stands for all of it.
            let first = (if described.transposed { row } else { k } * bytes as usize).is_multiple_of(4);
            if first && let Some(access) = access {
                let plain = env.shadow.as_mut().is_some_and(|s| s.engine_read(at as usize, access));
                if !plain {
                    let (space, address, len, read) = (Space::Shared, at & !3, 4, true);
                    let (write, strong, same) = (false, false, false);
                    let word = past::Element { thread, pc, space, address, len, read, write, strong, same };
                    check::asynchronous(env, word, channel);
                }
            }
        }
    }
    Some(())
}
