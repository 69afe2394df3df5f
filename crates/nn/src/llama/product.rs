//! Products with weights in Q4_1 and Q8_0 on the CPU: whole numbers of 8 bits times whole numbers, with what the CPU has for that.
//!
//! candle has such instructions for GGUF's k-quants, whose rows are multiples of 256; for these two kinds it has a plain loop. The
//! arithmetic here is candle's (and ggml's): 32 inputs share a scale, are rounded to 8 bits, and the scale to f16; a block's
//! products are summed up exactly, and the blocks' sums in f32.
//!
//! The weights are laid out anew when they are loaded, in as many bytes: 16 outputs beside each other, so that a register holds
//! four weights of each of them, and no sum has to be gathered from within a register. Several rows of inputs share each weight
//! that was unpacked.

use super::team::{DisjointSlices, Team};
use candle_core::quantized::{GgmlDType, QMatMul, QTensor};
use candle_core::{Device, Module, Tensor};
use gpulab::error::{Error, Result};
use half::f16;
use std::sync::Arc;

/// Weights, or inputs, that share a scale.
pub(super) const BLOCK: usize = 32;
/// Outputs that lie beside each other.
pub(super) const GROUP: usize = 16;
/// Products that a core takes at a time: enough that handing them out costs nothing.
const SHARE: usize = 1 << 15;

/// Which instructions multiply.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Instructions {
    /// AVX-512's VNNI: 64 products and their sums in one instruction.
    #[cfg(target_arch = "x86_64")]
    Vnni,
    /// AVX2: three instructions for half as many.
    #[cfg(target_arch = "x86_64")]
    Avx2,
    /// NEON, which every 64-bit ARM CPU has.
    #[cfg(target_arch = "aarch64")]
    Neon,
    /// What the compiler makes of a plain loop.
    Plain,
}

impl Instructions {
    /// All that this CPU has, the best first.
    pub fn all() -> Vec<Instructions> {
        let mut all = Vec::new();
        #[cfg(target_arch = "x86_64")]
        {
            let avx512 = is_x86_feature_detected!("avx512f") && is_x86_feature_detected!("avx512bw");
            if avx512 && is_x86_feature_detected!("avx512vnni") {
                all.push(Instructions::Vnni);
            }
            if is_x86_feature_detected!("avx2") && is_x86_feature_detected!("fma") && is_x86_feature_detected!("f16c") {
                all.push(Instructions::Avx2);
            }
        }
        #[cfg(target_arch = "aarch64")]
        all.push(Instructions::Neon);
        all.push(Instructions::Plain);
        all
    }
}

/// 64 bytes that lie in one line of the cache.
#[derive(Debug, Clone, Copy)]
#[repr(align(64))]
struct Line([u8; 64]);

/// A matrix `[outputs, inputs]` in Q4_1 or Q8_0, laid out for the CPU. A group of 16 outputs has its blocks one after the other; of
/// each block come the first four bytes of all 16 outputs, then the next four, and in `scales` what the outputs multiply by, and
/// in Q4_1 what they add.
#[derive(Debug)]
pub(super) struct PackedMatrix {
    four: bool,
    outputs: usize,
    inputs: usize,
    codes: Vec<Line>,
    scales: Vec<u16>,
    instructions: Instructions,
}

impl PackedMatrix {
    /// For a weight of these kinds on the CPU; `None` for others.
    ///
    /// # Errors
    /// What candle says.
    pub fn of(weight: &QTensor) -> Result<Option<PackedMatrix>> {
        let four = weight.dtype() == GgmlDType::Q4_1;
        let (true, &[outputs, inputs]) = (four || weight.dtype() == GgmlDType::Q8_0, weight.shape().dims()) else {
            return Ok(None);
        };
        if !inputs.is_multiple_of(BLOCK) || inputs == 0 || !weight.device().is_cpu() {
            return Ok(None);
        }
        let (blocks, groups) = (inputs / BLOCK, outputs.div_ceil(GROUP));
        // Scales at the head of a block, and its lines of four bytes of each output.
        let (heads, lines) = if four { (2, 4) } else { (1, 8) };
        let size = 2 * heads + 4 * lines;
        let bytes = weight.data()?;
        let mut codes = vec![Line([0; 64]); groups * blocks * lines];
        let mut scales = vec![0_u16; groups * blocks * heads * GROUP];
        for (row, bytes) in bytes.chunks_exact(blocks * size).enumerate() {
            let (group, lane) = (row / GROUP, row % GROUP);
            for (block, bytes) in bytes.chunks_exact(size).enumerate() {
                let at = group * blocks + block;
                let (head, body) = bytes.split_at(2 * heads);
                for (which, scale) in head.chunks_exact(2).enumerate() {
                    scales[(at * heads + which) * GROUP + lane] = u16::from_le_bytes([scale[0], scale[1]]);
                }
                for (line, four) in body.chunks_exact(4).enumerate() {
                    codes[at * lines + line].0[4 * lane..4 * lane + 4].copy_from_slice(four);
                }
            }
        }
        Ok(Some(PackedMatrix { four, outputs, inputs, codes, scales, instructions: Instructions::all()[0] }))
    }

    pub fn outputs(&self) -> usize {
        self.outputs
    }

    pub fn inputs(&self) -> usize {
        self.inputs
    }

    /// Groups of 16 outputs; the last may have some that are none.
    pub fn groups(&self) -> usize {
        self.outputs.div_ceil(GROUP)
    }

    /// Bytes of the weights, as in the file.
    pub fn bytes(&self) -> usize {
        self.outputs * self.inputs / BLOCK * if self.four { 20 } else { 34 }
    }

    /// An output's weights.
    pub fn row(&self, output: usize, weights: &mut [f32]) {
        let (blocks, lane) = (self.inputs / BLOCK, output % GROUP);
        for (block, weights) in weights.chunks_exact_mut(BLOCK).enumerate() {
            let at = output / GROUP * blocks + block;
            let byte = |lines: usize, i: usize| self.codes[at * lines + i / 4].0[4 * lane + i % 4];
            let scale = |at: usize| f16::from_bits(self.scales[at * GROUP + lane]).to_f32();
            for (i, weight) in weights.iter_mut().enumerate() {
                *weight = if self.four {
                    let byte = byte(4, i % 16);
                    let code = if i < 16 { byte & 15 } else { byte >> 4 };
                    f32::from(code) * scale(2 * at) + scale(2 * at + 1)
                } else {
                    f32::from(byte(8, i) as i8) * scale(at)
                };
            }
        }
    }

    /// All weights in f32, `[outputs, inputs]`.
    ///
    /// # Errors
    /// What candle says.
    pub fn dense(&self) -> Result<Tensor> {
        let mut all = vec![0.0; self.outputs * self.inputs];
        all.chunks_exact_mut(self.inputs).enumerate().for_each(|(output, row)| self.row(output, row));
        Ok(Tensor::from_vec(all, (self.outputs, self.inputs), &Device::Cpu)?)
    }

    /// Groups of outputs that a thread takes at a time, for as many rows of inputs: `unit` of them, or a multiple.
    pub fn share(&self, rows: usize, unit: usize) -> usize {
        (SHARE / (self.inputs * GROUP * rows.max(1))).max(1).next_multiple_of(unit)
    }

    /// The 16 outputs of a group for each row of inputs. What is behind the last output is 0.
    #[inline]
    pub fn group(&self, group: usize, inputs: &Inputs, mut take: impl FnMut(usize, &[f32; GROUP])) {
        assert!(group < self.groups() && inputs.width == self.inputs, "group {group}, inputs of {}", inputs.width);
        let mut results = [[0.0; GROUP]; WIDEST];
        let mut row = 0;
        while row < inputs.rows {
            let count = match inputs.rows - row {
                left if left >= WIDEST => WIDEST,
                left => 1 << left.ilog2(),
            };
            self.tile(group, inputs, row, &mut results[..count]);
            results[..count].iter().enumerate().for_each(|(at, results)| take(row + at, results));
            row += count;
        }
    }

    /// For 1, 2, 4 or 8 rows of inputs.
    fn tile(&self, group: usize, inputs: &Inputs, row: usize, results: &mut [[f32; GROUP]]) {
        match self.instructions {
            #[cfg(target_arch = "x86_64")]
            // SAFETY: `Instructions::all` has asked the CPU; `group` has looked at the group and the rows.
            Instructions::Vnni => unsafe { x86::tile_vnni(self, group, inputs, row, results) },
            #[cfg(target_arch = "x86_64")]
            // SAFETY: as above.
            Instructions::Avx2 => unsafe { x86::tile_avx2(self, group, inputs, row, results) },
            #[cfg(target_arch = "aarch64")]
            // SAFETY: as above.
            Instructions::Neon => unsafe { tile::<neon::Neon>(self, group, inputs, row, results) },
            // SAFETY: as above.
            Instructions::Plain => unsafe { tile::<Plain>(self, group, inputs, row, results) },
        }
    }

    /// x · weightᵀ over the last axis of `x`, in f32.
    ///
    /// # Errors
    /// [`Error::Invalid`] when that axis is not as long as the matrix has inputs; what candle says.
    pub fn forward(&self, x: &Tensor) -> Result<Tensor> {
        let mut dims = x.dims().to_vec();
        match dims.last_mut() {
            Some(last) if *last == self.inputs => *last = self.outputs,
            _ => {
                return Err(Error::invalid(
                    format!("inputs of {:?} for a matrix of {} columns", x.dims(), self.inputs),
                    "give inputs whose last axis is as long as the matrix has columns",
                ));
            }
        }
        let x = x.flatten_all()?.to_vec1::<f32>()?;
        let rows = x.len() / self.inputs;
        let mut inputs = Inputs::default();
        inputs.resize(rows, self.inputs);
        let mut y = vec![0.0; rows * self.outputs];
        Team::with(|team| {
            let writer = inputs.writer();
            team.each(rows, |row| writer.row(row, &x[row * self.inputs..(row + 1) * self.inputs]));
            self.product(team, &inputs, &mut y);
        });
        Ok(Tensor::from_vec(y, dims, &Device::Cpu)?)
    }

    /// `y[row][output]` for all rows and outputs.
    pub fn product(&self, team: &Team, inputs: &Inputs, y: &mut [f32]) {
        let (share, y) = (self.share(inputs.rows, 1), DisjointSlices::of(y));
        team.each(self.groups().div_ceil(share), |part| {
            for group in part * share..((part + 1) * share).min(self.groups()) {
                let (first, count) = (group * GROUP, GROUP.min(self.outputs - group * GROUP));
                self.group(group, inputs, |row, results| {
                    // SAFETY: no other part has this group's outputs.
                    let y = unsafe { y.at(row * self.outputs + first, count) };
                    y.copy_from_slice(&results[..count]);
                });
            }
        });
    }
}

/// A quantized matrix `[outputs, inputs]` ready for products: laid out for our own for Q4_1 and Q8_0 on the CPU, for candle's else.
#[derive(Debug, Clone)]
pub struct QuantizedMatrix(Ready);

#[derive(Debug, Clone)]
enum Ready {
    Packed(Arc<PackedMatrix>),
    Candle(QMatMul),
}

impl QuantizedMatrix {
    /// Lays it out.
    ///
    /// # Errors
    /// What candle says.
    pub fn new(weight: QTensor) -> Result<QuantizedMatrix> {
        Ok(QuantizedMatrix(match PackedMatrix::of(&weight)? {
            Some(packed) => Ready::Packed(Arc::new(packed)),
            None => Ready::Candle(QMatMul::from_qtensor(weight)?),
        }))
    }

    /// x · weightᵀ, `[rows, inputs]` to `[rows, outputs]` in f32.
    ///
    /// # Errors
    /// When the shapes do not fit.
    pub fn product(&self, x: &Tensor) -> Result<Tensor> {
        match &self.0 {
            Ready::Packed(packed) => packed.forward(x),
            Ready::Candle(product) => Ok(product.forward(&x.contiguous()?)?),
        }
    }
}

// ----------------------------------------------------------------------
// Inputs.

/// Rows of inputs, rounded to 8 bits by blocks.
#[derive(Debug, Default)]
pub(super) struct Inputs {
    rows: usize,
    width: usize,
    codes: Vec<i8>,
    /// Of each block: its scale, the scale times the sum of its codes, and that sum.
    scales: Vec<(f32, f32, i32)>,
}

/// Where the rows of inputs are written, by several threads.
#[derive(Clone, Copy)]
pub(super) struct InputsWriter<'a> {
    width: usize,
    codes: DisjointSlices<'a, i8>,
    scales: DisjointSlices<'a, (f32, f32, i32)>,
}

impl Inputs {
    /// Makes room; what was in it is forgotten.
    pub fn resize(&mut self, rows: usize, width: usize) {
        (self.rows, self.width) = (rows, width);
        self.codes.resize(rows * width, 0);
        self.scales.resize(rows * width / BLOCK, (0.0, 0.0, 0));
    }

    pub fn rows(&self) -> usize {
        self.rows
    }

    pub fn writer(&mut self) -> InputsWriter<'_> {
        InputsWriter {
            width: self.width,
            codes: DisjointSlices::of(&mut self.codes),
            scales: DisjointSlices::of(&mut self.scales),
        }
    }
}

impl InputsWriter<'_> {
    /// Rounds one row; each row may be written by one thread at a time.
    #[inline(always)]
    pub fn row(&self, row: usize, x: &[f32]) {
        for (block, x) in x.chunks_exact(BLOCK).enumerate() {
            self.block(row, block, x.try_into().expect("chunks of 32"));
        }
    }

    /// Rounds one block.
    #[inline(always)]
    pub fn block(&self, row: usize, block: usize, x: &[f32; BLOCK]) {
        let at = row * self.width / BLOCK + block;
        // SAFETY: callers give each block to one thread.
        let (codes, scales) = unsafe { (self.codes.at(at * BLOCK, BLOCK), self.scales.at(at, 1)) };
        let (mut most, mut nan) = (0.0_f32, false);
        for x in x {
            most = if x.abs() > most { x.abs() } else { most };
            nan |= x.is_nan();
        }
        let scale = most / 127.0;
        let inverse = if scale == 0.0 { 0.0 } else { 1.0 / scale };
        let mut sum = 0;
        for (code, x) in codes.iter_mut().zip(x) {
            let whole = (x * inverse).round_ties_even() as i32;
            *code = whole as i8;
            sum += whole;
        }
        // A NaN among the inputs must not become a 0.
        let scale = f16::from_f32(if nan { f32::NAN } else { scale });
        scales[0] = (scale.to_f32(), (f16::from_f32(sum as f32) * scale).to_f32(), sum);
    }
}

// ----------------------------------------------------------------------
// The product of a group, once for all instructions.

/// Rows of inputs that share an unpacked weight, at most.
const WIDEST: usize = 8;

/// Registers of whole numbers and of f32, a lane for each output; one of whole numbers holds four bytes of each.
trait Isa {
    const LANES: usize;
    /// Rows of inputs for which there are registers.
    const ROWS: usize;
    type Ints: Copy;
    type Floats: Copy;
    unsafe fn zeros() -> (Self::Ints, Self::Floats);
    unsafe fn codes(at: *const u8) -> Self::Ints;
    /// The lower halves of all bytes, and the upper ones.
    unsafe fn halves(codes: Self::Ints) -> (Self::Ints, Self::Ints);
    /// Adds the products of four bytes from 0 to 15 and four with a sign.
    unsafe fn dot(sum: Self::Ints, codes: Self::Ints, x: i32) -> Self::Ints;
    /// What a sum of products of two signed bytes starts with, by the sum of the inputs.
    unsafe fn start(sum: i32) -> Self::Ints;
    /// Adds such products.
    unsafe fn dot_signed(sum: Self::Ints, codes: Self::Ints, x: i32) -> Self::Ints;
    /// As many f16.
    unsafe fn floats(at: *const u16) -> Self::Floats;
    /// sum + ints · floats · x
    unsafe fn add_scaled(sum: Self::Floats, ints: Self::Ints, floats: Self::Floats, x: f32) -> Self::Floats;
    /// sum + floats · x
    unsafe fn add(sum: Self::Floats, floats: Self::Floats, x: f32) -> Self::Floats;
    unsafe fn store(floats: Self::Floats, to: *mut f32);
}

/// # Safety
/// The CPU has the instructions, the matrix the group and the inputs the rows.
#[inline(always)]
unsafe fn tile<S: Isa>(matrix: &PackedMatrix, group: usize, inputs: &Inputs, row: usize, results: &mut [[f32; GROUP]]) {
    let at_a_time = S::ROWS.min(results.len());
    for (i, results) in results.chunks_exact_mut(at_a_time).enumerate() {
        let row = row + i * at_a_time;
        // SAFETY: as the caller promises.
        unsafe {
            match (matrix.four, at_a_time) {
                (true, 1) => rows::<S, true, 1>(matrix, group, inputs, row, results),
                (true, 2) => rows::<S, true, 2>(matrix, group, inputs, row, results),
                (true, 4) => rows::<S, true, 4>(matrix, group, inputs, row, results),
                (true, _) => rows::<S, true, 8>(matrix, group, inputs, row, results),
                (false, 1) => rows::<S, false, 1>(matrix, group, inputs, row, results),
                (false, 2) => rows::<S, false, 2>(matrix, group, inputs, row, results),
                (false, 4) => rows::<S, false, 4>(matrix, group, inputs, row, results),
                (false, _) => rows::<S, false, 8>(matrix, group, inputs, row, results),
            }
        }
    }
}

/// # Safety
/// As [`tile`].
#[inline(always)]
unsafe fn rows<S: Isa, const FOUR: bool, const R: usize>(
    matrix: &PackedMatrix,
    group: usize,
    inputs: &Inputs,
    row: usize,
    results: &mut [[f32; GROUP]],
) {
    let blocks = inputs.width / BLOCK;
    let (lines, heads) = if FOUR { (4, 2) } else { (8, 1) };
    let (codes, scales) = (&matrix.codes[group * blocks * lines..], &matrix.scales[group * blocks * heads * GROUP..]);
    assert!(codes.len() >= blocks * lines && scales.len() >= blocks * heads * GROUP && results.len() >= R);
    let (x, x_scales) = (&inputs.codes[row * inputs.width..], &inputs.scales[row * blocks..]);
    assert!(x.len() >= R * inputs.width && x_scales.len() >= R * blocks);
    for first in (0..GROUP).step_by(S::LANES) {
        // SAFETY: all places are within the slices, by the lengths that were asserted; no load asks for an alignment.
        unsafe {
            let mut sums = [S::zeros().1; R];
            for block in 0..blocks {
                let codes = codes.as_ptr().add(block * lines).cast::<u8>().add(4 * first);
                let scales = scales.as_ptr().add(block * heads * GROUP + first);
                let x = x.as_ptr().add(block * BLOCK);
                let four = |r: usize, at: usize| x.add(r * inputs.width + at).cast::<i32>().read_unaligned();
                let x_scale = |r: usize| *x_scales.as_ptr().add(r * blocks + block);
                let mut whole = [S::zeros().0; R];
                if FOUR {
                    for line in 0..4 {
                        let (low, high) = S::halves(S::codes(codes.add(64 * line)));
                        for (r, whole) in whole.iter_mut().enumerate() {
                            *whole = S::dot(*whole, low, four(r, 4 * line));
                            *whole = S::dot(*whole, high, four(r, 16 + 4 * line));
                        }
                    }
                } else {
                    for (r, whole) in whole.iter_mut().enumerate() {
                        *whole = S::start(x_scale(r).2);
                    }
                    for line in 0..8 {
                        let codes = S::codes(codes.add(64 * line));
                        for (r, whole) in whole.iter_mut().enumerate() {
                            *whole = S::dot_signed(*whole, codes, four(r, 4 * line));
                        }
                    }
                }
                let scale = S::floats(scales);
                for (r, sum) in sums.iter_mut().enumerate() {
                    *sum = S::add_scaled(*sum, whole[r], scale, x_scale(r).0);
                }
                if FOUR {
                    let least = S::floats(scales.add(GROUP));
                    for (r, sum) in sums.iter_mut().enumerate() {
                        *sum = S::add(*sum, least, x_scale(r).1);
                    }
                }
            }
            for (r, sum) in sums.iter().enumerate() {
                S::store(*sum, results[r].as_mut_ptr().add(first));
            }
        }
    }
}

struct Plain;

impl Isa for Plain {
    const LANES: usize = 4;
    const ROWS: usize = 1;
    type Ints = [i32; 4];
    type Floats = [f32; 4];

    #[inline(always)]
    unsafe fn zeros() -> ([i32; 4], [f32; 4]) {
        ([0; 4], [0.0; 4])
    }

    #[inline(always)]
    unsafe fn codes(at: *const u8) -> [i32; 4] {
        // SAFETY: the caller has 16 bytes there.
        unsafe { at.cast::<[i32; 4]>().read_unaligned() }
    }

    #[inline(always)]
    unsafe fn halves(codes: [i32; 4]) -> ([i32; 4], [i32; 4]) {
        (codes.map(|four| four & 0x0F0F_0F0F), codes.map(|four| (four >> 4) & 0x0F0F_0F0F))
    }

    #[inline(always)]
    unsafe fn dot(sum: [i32; 4], codes: [i32; 4], x: i32) -> [i32; 4] {
        // SAFETY: it needs no instructions of its own.
        unsafe { Plain::dot_signed(sum, codes, x) }
    }

    #[inline(always)]
    unsafe fn start(_: i32) -> [i32; 4] {
        [0; 4]
    }

    #[inline(always)]
    unsafe fn dot_signed(mut sum: [i32; 4], codes: [i32; 4], x: i32) -> [i32; 4] {
        for (sum, four) in sum.iter_mut().zip(codes) {
            for (w, x) in four.to_ne_bytes().into_iter().zip(x.to_ne_bytes()) {
                *sum += i32::from(w as i8) * i32::from(x as i8);
            }
        }
        sum
    }

    #[inline(always)]
    unsafe fn floats(at: *const u16) -> [f32; 4] {
        // SAFETY: the caller has four there.
        unsafe { at.cast::<[u16; 4]>().read_unaligned() }.map(|bits| f16::from_bits(bits).to_f32())
    }

    #[inline(always)]
    unsafe fn add_scaled(sum: [f32; 4], ints: [i32; 4], floats: [f32; 4], x: f32) -> [f32; 4] {
        std::array::from_fn(|i| sum[i] + ints[i] as f32 * floats[i] * x)
    }

    #[inline(always)]
    unsafe fn add(sum: [f32; 4], floats: [f32; 4], x: f32) -> [f32; 4] {
        std::array::from_fn(|i| sum[i] + floats[i] * x)
    }

    #[inline(always)]
    unsafe fn store(floats: [f32; 4], to: *mut f32) {
        // SAFETY: the caller has room there.
        unsafe { to.cast::<[f32; 4]>().write_unaligned(floats) }
    }
}

/// AVX2, and AVX-512's VNNI.
#[cfg(target_arch = "x86_64")]
mod x86 {
    use super::{GROUP, Inputs, Isa, PackedMatrix, tile};
    use std::arch::x86_64::*;

    /// # Safety
    /// As [`tile`].
    #[target_feature(enable = "avx2,fma,f16c")]
    pub unsafe fn tile_avx2(
        matrix: &PackedMatrix,
        group: usize,
        inputs: &Inputs,
        row: usize,
        results: &mut [[f32; GROUP]],
    ) {
        // SAFETY: as the caller promises.
        unsafe { tile::<Avx2>(matrix, group, inputs, row, results) }
    }

    /// # Safety
    /// As [`tile`].
    #[target_feature(enable = "avx2,fma,f16c,avx512f,avx512bw,avx512vnni")]
    pub unsafe fn tile_vnni(
        matrix: &PackedMatrix,
        group: usize,
        inputs: &Inputs,
        row: usize,
        results: &mut [[f32; GROUP]],
    ) {
        // SAFETY: as the caller promises.
        unsafe { tile::<Vnni>(matrix, group, inputs, row, results) }
    }

    macro_rules! isa {
        ($name:ident, $lanes:literal, $rows:literal, $ints:ty, $floats:ty, $(fn $function:ident($($argument:ident: $type:ty),*) -> $result:ty $body:block)*) => {
            struct $name;
            impl Isa for $name {
                const LANES: usize = $lanes;
                const ROWS: usize = $rows;
                type Ints = $ints;
                type Floats = $floats;
                $(
                    #[inline(always)]
                    unsafe fn $function($($argument: $type),*) -> $result {
                        // SAFETY: the caller has the instructions, and memory for what is loaded and stored.
                        unsafe { $body }
                    }
                )*
            }
        };
    }

    isa! { Avx2, 8, 4, __m256i, __m256,
        fn zeros() -> (__m256i, __m256) { (_mm256_setzero_si256(), _mm256_setzero_ps()) }
        fn codes(at: *const u8) -> __m256i { _mm256_loadu_si256(at.cast()) }
        fn halves(codes: __m256i) -> (__m256i, __m256i) {
            let fifteen = _mm256_set1_epi8(15);
            (_mm256_and_si256(codes, fifteen), _mm256_and_si256(_mm256_srli_epi16::<4>(codes), fifteen))
        }
        fn dot(sum: __m256i, codes: __m256i, x: i32) -> __m256i {
            // Two products fit into 16 bits: 2 · 15 · 127 < 2¹⁵.
            let pairs = _mm256_maddubs_epi16(codes, _mm256_set1_epi32(x));
            _mm256_add_epi32(sum, _mm256_madd_epi16(pairs, _mm256_set1_epi16(1)))
        }
        fn start(_sum: i32) -> __m256i { _mm256_setzero_si256() }
        fn dot_signed(sum: __m256i, codes: __m256i, x: i32) -> __m256i {
            // One side has to be positive: the weights' signs go over to the inputs. 2 · 128 · 127 < 2¹⁵.
            let x = _mm256_sign_epi8(_mm256_set1_epi32(x), codes);
            let pairs = _mm256_maddubs_epi16(_mm256_abs_epi8(codes), x);
            _mm256_add_epi32(sum, _mm256_madd_epi16(pairs, _mm256_set1_epi16(1)))
        }
        fn floats(at: *const u16) -> __m256 { _mm256_cvtph_ps(_mm_loadu_si128(at.cast())) }
        fn add_scaled(sum: __m256, ints: __m256i, floats: __m256, x: f32) -> __m256 {
            _mm256_fmadd_ps(_mm256_mul_ps(_mm256_cvtepi32_ps(ints), floats), _mm256_set1_ps(x), sum)
        }
        fn add(sum: __m256, floats: __m256, x: f32) -> __m256 { _mm256_fmadd_ps(floats, _mm256_set1_ps(x), sum) }
        fn store(floats: __m256, to: *mut f32) -> () { _mm256_storeu_ps(to, floats) }
    }

    isa! { Vnni, 16, 8, __m512i, __m512,
        fn zeros() -> (__m512i, __m512) { (_mm512_setzero_si512(), _mm512_setzero_ps()) }
        fn codes(at: *const u8) -> __m512i { _mm512_loadu_si512(at.cast()) }
        fn halves(codes: __m512i) -> (__m512i, __m512i) {
            let fifteen = _mm512_set1_epi8(15);
            (_mm512_and_si512(codes, fifteen), _mm512_and_si512(_mm512_srli_epi16::<4>(codes), fifteen))
        }
        fn dot(sum: __m512i, codes: __m512i, x: i32) -> __m512i {
            _mm512_dpbusd_epi32(sum, codes, _mm512_set1_epi32(x))
        }
        // Weights count from -128, as one side must not have a sign; what that adds is taken off at the start.
        fn start(sum: i32) -> __m512i { _mm512_set1_epi32(-128 * sum) }
        fn dot_signed(sum: __m512i, codes: __m512i, x: i32) -> __m512i {
            let codes = _mm512_xor_si512(codes, _mm512_set1_epi8(-128));
            _mm512_dpbusd_epi32(sum, codes, _mm512_set1_epi32(x))
        }
        fn floats(at: *const u16) -> __m512 { _mm512_cvtph_ps(_mm256_loadu_si256(at.cast())) }
        fn add_scaled(sum: __m512, ints: __m512i, floats: __m512, x: f32) -> __m512 {
            _mm512_fmadd_ps(_mm512_mul_ps(_mm512_cvtepi32_ps(ints), floats), _mm512_set1_ps(x), sum)
        }
        fn add(sum: __m512, floats: __m512, x: f32) -> __m512 { _mm512_fmadd_ps(floats, _mm512_set1_ps(x), sum) }
        fn store(floats: __m512, to: *mut f32) -> () { _mm512_storeu_ps(to, floats) }
    }
}

/// NEON. Type-checked, and never run: we had no ARM CPU.
#[cfg(target_arch = "aarch64")]
mod neon {
    use super::Isa;
    use half::f16;
    use std::arch::aarch64::*;

    pub struct Neon;

    impl Isa for Neon {
        const LANES: usize = 4;
        const ROWS: usize = 4;
        type Ints = int32x4_t;
        type Floats = float32x4_t;

        #[inline(always)]
        unsafe fn zeros() -> (int32x4_t, float32x4_t) {
            // SAFETY: every such CPU has NEON.
            unsafe { (vdupq_n_s32(0), vdupq_n_f32(0.0)) }
        }

        #[inline(always)]
        unsafe fn codes(at: *const u8) -> int32x4_t {
            // SAFETY: the caller has 16 bytes there.
            unsafe { vreinterpretq_s32_u8(vld1q_u8(at)) }
        }

        #[inline(always)]
        unsafe fn halves(codes: int32x4_t) -> (int32x4_t, int32x4_t) {
            // SAFETY: as above.
            unsafe {
                let codes = vreinterpretq_u8_s32(codes);
                let low = vandq_u8(codes, vdupq_n_u8(15));
                (vreinterpretq_s32_u8(low), vreinterpretq_s32_u8(vshrq_n_u8::<4>(codes)))
            }
        }

        #[inline(always)]
        unsafe fn dot(sum: int32x4_t, codes: int32x4_t, x: i32) -> int32x4_t {
            // SAFETY: as above; 0 to 15 are signed bytes, too.
            unsafe { Neon::dot_signed(sum, codes, x) }
        }

        #[inline(always)]
        unsafe fn start(_: i32) -> int32x4_t {
            // SAFETY: as above.
            unsafe { vdupq_n_s32(0) }
        }

        #[inline(always)]
        unsafe fn dot_signed(sum: int32x4_t, codes: int32x4_t, x: i32) -> int32x4_t {
            // SAFETY: as above. Two products fit into 16 bits: 2 · 128 · 127 < 2¹⁵.
            unsafe {
                let (w, x) = (vreinterpretq_s8_s32(codes), vreinterpretq_s8_s32(vdupq_n_s32(x)));
                let low = vmull_s8(vget_low_s8(w), vget_low_s8(x));
                vpadalq_s16(sum, vpaddq_s16(low, vmull_high_s8(w, x)))
            }
        }

        #[inline(always)]
        unsafe fn floats(at: *const u16) -> float32x4_t {
            // SAFETY: the caller has four there.
            unsafe {
                let four = at.cast::<[u16; 4]>().read_unaligned().map(|bits| f16::from_bits(bits).to_f32());
                vld1q_f32(four.as_ptr())
            }
        }

        #[inline(always)]
        unsafe fn add_scaled(sum: float32x4_t, ints: int32x4_t, floats: float32x4_t, x: f32) -> float32x4_t {
            // SAFETY: as above.
            unsafe { vfmaq_n_f32(sum, vmulq_f32(vcvtq_f32_s32(ints), floats), x) }
        }

        #[inline(always)]
        unsafe fn add(sum: float32x4_t, floats: float32x4_t, x: f32) -> float32x4_t {
            // SAFETY: as above.
            unsafe { vfmaq_n_f32(sum, floats, x) }
        }

        #[inline(always)]
        unsafe fn store(floats: float32x4_t, to: *mut f32) {
            // SAFETY: the caller has room there.
            unsafe { vst1q_f32(to, floats) }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::gpt::SplitMix64;
    use candle_core::Device;

    fn random(count: usize, seed: u64) -> Vec<f32> {
        let mut random = SplitMix64::new(seed);
        (0..count).map(|_| random.unit() as f32 * 2.0 - 1.0).collect()
    }

    /// With all instructions that this CPU has.
    fn every(weight: &QTensor) -> Vec<PackedMatrix> {
        let with = |instructions| PackedMatrix {
            instructions,
            ..PackedMatrix::of(weight).unwrap().expect("one of our kinds")
        };
        Instructions::all().into_iter().map(with).collect()
    }

    #[test]
    fn every_instruction_gives_candles_product_and_that_of_f64() {
        for kind in [GgmlDType::Q4_1, GgmlDType::Q8_0] {
            for (rows, outputs, inputs) in
                [(1, 1, 64), (1, 37, 576), (2, 16, 32), (3, 130, 128), (17, 5, 192), (15, 33, 96)]
            {
                let weight = Tensor::from_vec(random(outputs * inputs, 1), (outputs, inputs), &Device::Cpu).unwrap();
                let weight = Arc::new(QTensor::quantize(&weight, kind).unwrap());
                let x = Tensor::from_vec(random(rows * inputs, 2), (rows, inputs), &Device::Cpu).unwrap();
                let candle = QMatMul::from_arc(weight.clone()).unwrap().forward(&x).unwrap().to_vec2::<f32>().unwrap();
                let exact = x.matmul(&weight.dequantize(&Device::Cpu).unwrap().t().unwrap()).unwrap();
                let exact = exact.to_vec2::<f32>().unwrap();
                for packed in every(&weight) {
                    let (own, instructions) =
                        (packed.forward(&x).unwrap().to_vec2::<f32>().unwrap(), packed.instructions);
                    for row in 0..rows {
                        for output in 0..outputs {
                            let (own, candle) = (own[row][output], candle[row][output]);
                            assert!((own - candle).abs() < 1e-3, "{kind:?} {instructions:?} {own} {candle}");
                            // Inputs of up to 1 in 8 bits: each is off by at most 1/254, and the f16 scale by 1/2048.
                            let bound = inputs as f32 * (1.0 / 254.0 + 1.0 / 2048.0);
                            assert!((own - exact[row][output]).abs() < bound);
                        }
                    }
                }
            }
        }
    }

    #[test]
    fn by_hand() {
        // Weights 0 to 15 twice are Q4_1's codes themselves (scale 1, least 0); inputs of 127 have the scale 1.
        let weights: Vec<f32> = (0..32).map(|i| (i % 16) as f32).collect();
        let weight = Tensor::from_vec(weights, (1, 32), &Device::Cpu).unwrap();
        let weight = Arc::new(QTensor::quantize(&weight, GgmlDType::Q4_1).unwrap());
        let mut x = vec![0.0_f32; 32];
        (x[3], x[20], x[31]) = (127.0, -2.0, 1.0);
        let x = Tensor::from_vec(x, (1, 1, 32), &Device::Cpu).unwrap();
        for packed in every(&weight) {
            let y = packed.forward(&x).unwrap();
            assert_eq!((y.dims(), y.flatten_all().unwrap().to_vec1::<f32>().unwrap()[0]), (&[1, 1, 1][..], 388.0));
        }
    }

    #[test]
    fn nan_stays_nan_and_other_kinds_are_left_to_candle() {
        let weight = Tensor::from_vec(random(256, 3), (1, 256), &Device::Cpu).unwrap();
        let of = |kind| QTensor::quantize(&weight, kind).unwrap();
        let mut x = random(256, 4);
        x[77] = f32::NAN;
        let x = Tensor::from_vec(x, (1, 256), &Device::Cpu).unwrap();
        for kind in [GgmlDType::Q4_1, GgmlDType::Q8_0] {
            for packed in every(&of(kind)) {
                let y = packed.forward(&x).unwrap();
                assert!(y.to_vec2::<f32>().unwrap()[0][0].is_nan());
                let text = packed.forward(&x.narrow(1, 0, 32).unwrap()).unwrap_err().to_string();
                assert!(text.contains("inputs of [1, 32] for a matrix of 256 columns"), "{text}");
            }
        }
        assert!(PackedMatrix::of(&of(GgmlDType::Q4K)).unwrap().is_none());
        let own = QuantizedMatrix::new(of(GgmlDType::Q4K)).unwrap().product(&x.zeros_like().unwrap()).unwrap();
        assert_eq!(own.to_vec2::<f32>().unwrap(), [[0.0]]);
    }

    #[test]
    fn what_was_laid_out_anew_is_what_was_there() {
        for kind in [GgmlDType::Q4_1, GgmlDType::Q8_0] {
            let weight = Tensor::from_vec(random(37 * 96, 5), (37, 96), &Device::Cpu).unwrap();
            let weight = QTensor::quantize(&weight, kind).unwrap();
            let packed = PackedMatrix::of(&weight).unwrap().unwrap();
            let there = weight.dequantize(&Device::Cpu).unwrap().to_vec2::<f32>().unwrap();
            assert_eq!(packed.dense().unwrap().to_vec2::<f32>().unwrap(), there);
            assert_eq!(packed.bytes(), weight.storage_size_in_bytes());
        }
    }

    #[test]
    fn the_largest_codes_of_both_sides_do_not_overflow() {
        // Each weight is ±127 or 15 with the scale 1, each input ±127: sums of 32 · 127 · 127.
        for (kind, codes) in [(GgmlDType::Q8_0, [127.0, -127.0]), (GgmlDType::Q4_1, [15.0, 0.0])] {
            let weights: Vec<f32> = (0..64).map(|i| codes[usize::from(i % 2 == 1 && i > 40)]).collect();
            let weight = QTensor::quantize(&Tensor::from_vec(weights, (2, 32), &Device::Cpu).unwrap(), kind).unwrap();
            let dense = weight.dequantize(&Device::Cpu).unwrap();
            for sign in [127.0_f32, -127.0] {
                let x = Tensor::full(sign, (1, 32), &Device::Cpu).unwrap();
                let exact = x.matmul(&dense.t().unwrap()).unwrap().to_vec2::<f32>().unwrap();
                for packed in every(&weight) {
                    assert_eq!(
                        packed.forward(&x).unwrap().to_vec2::<f32>().unwrap(),
                        exact,
                        "{:?}",
                        packed.instructions
                    );
                }
            }
        }
    }
}
