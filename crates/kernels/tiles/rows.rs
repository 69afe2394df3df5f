// Rows in registers: a block has one row at a time, and a thread V times 16 bytes of it, which one instruction loads.
use core::array::from_fn;
use gpulab_device::warp::{ALL, shuffle_xor};

/// Numbers of bf16 in 16 bytes.
const EIGHT: usize = 8;

/// A block's row: V · 8 numbers in each thread, eight neighbours each.
#[derive(Clone, Copy)]
pub struct Row<const V: usize>([[f32; EIGHT]; V]);

impl<const V: usize> Row<V> {
    #[inline(always)]
    pub fn map(self, f: impl Fn(f32) -> f32) -> Self {
        Row(self.0.map(|eight| eight.map(&f)))
    }
    #[inline(always)]
    fn reduced(self, place: SharedArray<f32>, from: f32, f: impl Fn(f32, f32) -> f32) -> f32 {
        let of_warp = |x| [16, 8, 4, 2, 1].iter().fold(x, |x, &lanes| f(x, shuffle_xor(ALL, x, lanes)));
        let own = of_warp(self.0.iter().flatten().fold(from, |all, &x| f(all, x)));
        let (warp, lane) = (thread_x() as usize / 32, thread_x() as usize % 32);
        if lane == 0 {
            place.set(warp, own);
        }
        sync_threads();
        of_warp(if lane < threads_x() as usize / 32 { place.get(lane) } else { from })
    }
    /// The largest number. (Each of the two has a place of its own in shared memory, so a row needs one of each.)
    #[inline(always)]
    pub fn max(self) -> f32 {
        self.reduced(shared!(LARGEST: [f32; 32]), f32::NEG_INFINITY, f32::max)
    }
    #[inline(always)]
    pub fn sum(self) -> f32 {
        self.reduced(shared!(TOTAL: [f32; 32]), 0.0, |x, y| x + y)
    }
}

/// Rows of so many numbers, as they lie in memory.
#[derive(Clone, Copy)]
pub struct Rows<T> {
    data: T,
    columns: usize,
}

impl<T> Rows<T> {
    /// # Safety
    /// `data` holds a row of so many numbers for each block of the launch, from a multiple of 16 bytes on, and is written through this alone.
    #[inline(always)]
    pub unsafe fn new(data: T, columns: i32) -> Self {
        Rows { data, columns: columns as usize }
    }
    /// Where the vector of that number begins: in the block's row, and in all of them.
    #[inline(always)]
    fn at(&self, vector: usize) -> (usize, usize) {
        let column = (vector * threads_x() as usize + thread_x() as usize) * EIGHT;
        (column, block_x() as usize * self.columns + column)
    }
    /// Whether 16 bytes are 16 bytes of one row, at a multiple of 16.
    #[inline(always)]
    fn whole(&self) -> bool {
        self.columns % EIGHT == 0
    }
}

impl Rows<*const Bf16> {
    /// The block's row, with `other` where it has no number.
    #[inline(always)]
    pub fn load<const V: usize>(self, other: f32) -> Row<V> {
        if self.whole() {
            // All loads first: they are in flight at the same time.
            let bits: [Vec4<u32>; V] = from_fn(|v| {
                let (column, at) = self.at(v);
                let nothing = Bf16::pair_from_f32(other, other);
                // SAFETY: eight numbers of the row.
                if column < self.columns {
                    unsafe { *self.data.add(at).cast() }
                } else {
                    Vec4 { x: nothing, y: nothing, z: nothing, w: nothing }
                }
            });
            // Of a pair the first one lies in the lower half; a bf16 is the upper half of an f32.
            let number = |pair: u32, i: usize| f32::from_bits(if i % 2 == 0 { pair << 16 } else { pair & 0xffff_0000 });
            return Row(bits.map(|bits| from_fn(|i| number(bits[i / 2], i))));
        }
        Row(from_fn(|v| {
            let (column, at) = self.at(v);
            // SAFETY: a number of the row.
            from_fn(|i| if column + i < self.columns { unsafe { (*self.data.add(at + i)).to_f32() } } else { other })
        }))
    }
}

impl Rows<*mut Bf16> {
    #[inline(always)]
    pub fn store<const V: usize>(&mut self, row: Row<V>) {
        if self.whole() {
            for (v, eight) in row.0.iter().enumerate() {
                let (column, at) = self.at(v);
                let pair = |i: usize| Bf16::pair_from_f32(eight[2 * i], eight[2 * i + 1]);
                if column < self.columns {
                    // SAFETY: eight numbers of the row.
                    unsafe { *self.data.add(at).cast() = Vec4 { x: pair(0), y: pair(1), z: pair(2), w: pair(3) } };
                }
            }
            return;
        }
        for (v, eight) in row.0.iter().enumerate() {
            let (column, at) = self.at(v);
            for (i, &x) in eight.iter().enumerate() {
                if column + i < self.columns {
                    // SAFETY: a number of the row.
                    unsafe { *self.data.add(at + i) = Bf16::from_f32(x) };
                }
            }
        }
    }
}
