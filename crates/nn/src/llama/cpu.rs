//! A step of a Llama on the CPU, from its tokens to their logits, when all its matrices are in Q4_1 or Q8_0.
//!
//! candle makes a tensor of every intermediate result, wakes its threads for every product, and copies keys and values together
//! before each attention. At a model of this size that takes longer than the products do. Here the threads stay awake for the whole
//! step ([`Team`]), results lie in memory that the next step uses again, and attention reads keys and values where they are, in the
//! same candle tensors. A layer is five jobs: queries, keys and values; attention; and the three products after it.

use super::product::{BLOCK, GROUP, Inputs, PackedMatrix};
use super::team::{DisjointSlices, Team};
use super::{LlamaConfig, Projection};
use crate::cached::{Asked, KeysValues, Reader};
use candle_core::{CpuStorage, Device, InplaceOp1, Layout, Storage, Tensor, bail};
use gpulab::error::{Error, Result};
use std::cell::RefCell;
use std::ops::Range;
use std::sync::{Arc, Mutex, PoisonError, TryLockError};

/// Rows that go through the layers together: more would leave the caches.
const ROWS: usize = 256;
/// Rows of a text whose attention is one product.
const TILE: usize = 32;
/// Fewer rows than that are not worth one.
const FEW: usize = 5;
/// Rows that are normed by one thread.
const NORMED: usize = 4;

/// The model as these steps need it.
#[derive(Debug)]
pub(super) struct CpuLlama {
    pub config: LlamaConfig,
    pub embedding: Arc<PackedMatrix>,
    pub layers: Vec<CpuLayer>,
    pub last_norm: Vec<f32>,
    pub last: Arc<PackedMatrix>,
    /// cos and sin of RoPE's angles, `[context, head_dim / 2]`: the model's own tables, as candle's operators read them.
    pub rope: [Tensor; 2],
    pub scratch: Mutex<Scratch>,
}

#[derive(Debug)]
pub(super) struct CpuLayer {
    pub norms: [Vec<f32>; 2],
    /// In the order of [`Projection::ALL`].
    pub matrices: Vec<Arc<PackedMatrix>>,
}

/// What lies between the products.
#[derive(Debug, Default)]
pub(super) struct Scratch {
    x: Vec<f32>,
    q: Vec<f32>,
    k: Vec<f32>,
    v: Vec<f32>,
    gathered: Vec<f32>,
    inputs: Inputs,
    middle: Inputs,
}

thread_local! {
    /// Scores of a thread's attention, or the middle of its feed-forward layer.
    static OWN: RefCell<Vec<f32>> = const { RefCell::new(Vec::new()) };
}

/// Some rows of a reader in a pass through the layers.
struct Part<'a> {
    reader: &'a Reader<'a>,
    /// Among the reader's tokens.
    tokens: Range<usize>,
    /// The first of them among the rows of the pass.
    row: usize,
}

/// What one thread does of an attention: some heads of queries, which share a head of keys, in some rows of a part.
struct Attention<'a> {
    part: &'a Part<'a>,
    rows: Range<usize>,
    heads: Range<usize>,
}

impl Part<'_> {
    /// The position of the row in its text.
    fn position(&self, row: usize) -> usize {
        self.reader.first + self.tokens.start + row
    }

    /// The runs of the first `count` keys.
    fn runs(&self, count: usize) -> impl Iterator<Item = (usize, usize, usize)> {
        let mut before = 0;
        self.reader.runs.iter().map_while(move |&(slot, length)| {
            let length = length.min(count - before);
            before += length;
            (length > 0).then_some((before - length, slot, length))
        })
    }
}

impl CpuLlama {
    /// Runs the readers' tokens through the model: the logits that are asked for, `[asked, vocabulary]`, reader by reader.
    ///
    /// # Errors
    /// What candle says of its tensors.
    pub fn step(&self, readers: &[Reader<'_>], cache: KeysValues<'_>) -> Result<Tensor> {
        let mut own = None;
        let mut shared = match self.scratch.try_lock() {
            Ok(scratch) => Some(scratch),
            Err(TryLockError::Poisoned(poisoned)) => Some(PoisonError::into_inner(poisoned)),
            Err(TryLockError::WouldBlock) => None,
        };
        let scratch = match &mut shared {
            Some(scratch) => &mut **scratch,
            None => own.insert(Scratch::default()),
        };
        let mut logits = Vec::new();
        Team::with(|team| {
            for pass in passes(readers) {
                self.pass(team, &pass, cache, scratch, &mut logits)?;
            }
            Ok::<(), Error>(())
        })?;
        let asked = logits.len() / self.config.vocabulary;
        Ok(Tensor::from_vec(logits, (asked, self.config.vocabulary), &Device::Cpu)?)
    }

    fn pass(
        &self,
        team: &Team,
        parts: &[Part<'_>],
        cache: KeysValues<'_>,
        scratch: &mut Scratch,
        logits: &mut Vec<f32>,
    ) -> Result<()> {
        let LlamaConfig { width, heads, kv_heads, inner, epsilon, .. } = self.config;
        let (d, rows) = (self.config.head_dim(), parts.iter().map(|part| part.tokens.len()).sum::<usize>());
        let Scratch { x, q, k, v, gathered, inputs, middle } = scratch;
        for (buffer, wide) in [
            (&mut *x, width),
            (&mut *q, width),
            (&mut *k, kv_heads * d),
            (&mut *v, kv_heads * d),
            (&mut *gathered, width),
        ] {
            buffer.resize(rows * wide, 0.0);
        }
        middle.resize(rows, inner);
        let positions: Vec<usize> =
            parts.iter().flat_map(|part| (0..part.tokens.len()).map(|row| part.position(row))).collect();
        let tokens = parts.iter().flat_map(|part| &part.reader.tokens[part.tokens.clone()]);
        tokens.zip(x.chunks_exact_mut(width)).for_each(|(token, x)| self.embedding.row(*token as usize, x));
        let [(cos, _), (sin, _)] = [0, 1].map(|table| self.rope[table].storage_and_layout());
        let angles = [floats(&cos)?, floats(&sin)?];
        let attentions = attentions(parts, (heads, heads / kv_heads), team.threads());
        let each_row = |job: &(dyn Fn(usize) + Sync)| {
            team.each(rows.div_ceil(NORMED), |part| (part * NORMED..((part + 1) * NORMED).min(rows)).for_each(job));
        };

        for (layer, (keys, values)) in self.layers.iter().zip(cache.layers) {
            let matrix = |of: Projection| &*layer.matrices[of as usize];
            inputs.resize(rows, width);
            let writer = inputs.writer();
            each_row(&|row| {
                norm(&x[row * width..(row + 1) * width], &layer.norms[0], epsilon, |block, y| {
                    writer.block(row, block, y)
                })
            });
            self.queries_keys_values(team, layer, inputs, (&positions, angles), [&mut *q, &mut *k, &mut *v]);
            for (to, from) in [(keys, &*k), (values, &*v)] {
                to.inplace_op1(&With(|all: &mut [f32]| remember(parts, all, from, (kv_heads, d), cache.head_slots)))?;
            }
            {
                let ((keys, _), (values, _)) = (keys.storage_and_layout(), values.storage_and_layout());
                let (keys, values) = (floats(&keys)?, floats(&values)?);
                let gathered = DisjointSlices::of(gathered);
                team.each(attentions.len(), |at| {
                    let of = &attentions[at];
                    let from = of.heads.start / (heads / kv_heads) * cache.head_slots * d;
                    OWN.with_borrow_mut(|own| {
                        of.attend(&q[..], [&keys[from..], &values[from..]], (width, d), own, gathered)
                    });
                });
            }
            let writer = inputs.writer();
            each_row(&|row| round(&gathered[row * width..(row + 1) * width], |block, y| writer.block(row, block, y)));
            add_product(team, matrix(Projection::Out), inputs, x);

            let writer = inputs.writer();
            each_row(&|row| {
                norm(&x[row * width..(row + 1) * width], &layer.norms[1], epsilon, |block, y| {
                    writer.block(row, block, y)
                })
            });
            gated(team, [matrix(Projection::Gate), matrix(Projection::Up)], inputs, rows, middle);
            add_product(team, matrix(Projection::Down), middle, x);
        }

        // The last matrix is a fifth of the weights: it is read once, for the rows that are asked for.
        let asked: Vec<usize> = parts.iter().flat_map(asked).collect();
        inputs.resize(asked.len(), width);
        let writer = inputs.writer();
        for (at, row) in asked.iter().enumerate() {
            norm(&x[row * width..(row + 1) * width], &self.last_norm, epsilon, |block, y| writer.block(at, block, y));
        }
        let before = logits.len();
        logits.resize(before + asked.len() * self.config.vocabulary, 0.0);
        if !asked.is_empty() {
            self.last.product(team, inputs, &mut logits[before..]);
        }
        Ok(())
    }

    /// The three products that read the first norm, RoPE, and the queries' division by the square root of the head dimension.
    fn queries_keys_values(
        &self,
        team: &Team,
        layer: &CpuLayer,
        inputs: &Inputs,
        (positions, [cos, sin]): (&[usize], [&[f32]; 2]),
        [q, k, v]: [&mut [f32]; 3],
    ) {
        let d = self.config.head_dim();
        let scale = 1.0 / (d as f32).sqrt();
        let to =
            [(DisjointSlices::of(q), Some(scale)), (DisjointSlices::of(k), Some(1.0)), (DisjointSlices::of(v), None)];
        let matrices = &layer.matrices[..3];
        let all: usize = matrices.iter().map(|matrix| matrix.groups()).sum();
        let share = matrices[0].share(positions.len(), 1);
        team.each(all.div_ceil(share), |part| {
            for mut group in part * share..((part + 1) * share).min(all) {
                let mut which = 0;
                while group >= matrices[which].groups() {
                    group -= matrices[which].groups();
                    which += 1;
                }
                let (matrix, (to, rotated)) = (&matrices[which], to[which]);
                let (first, count) = (group * GROUP, GROUP.min(matrix.outputs() - group * GROUP));
                matrix.group(group, inputs, |row, results| {
                    // SAFETY: no other part has this group's outputs.
                    let to = unsafe { to.at(row * matrix.outputs() + first, count) };
                    let Some(scale) = rotated else { return to.copy_from_slice(&results[..count]) };
                    let angles = positions[row] * d / 2;
                    // The file's converter has put the two numbers of a rotated pair beside each other.
                    for (pair, (to, from)) in to.chunks_exact_mut(2).zip(results.chunks_exact(2)).enumerate() {
                        let at = angles + (first / 2 + pair) % (d / 2);
                        let (cos, sin) = (cos[at] * scale, sin[at] * scale);
                        (to[0], to[1]) = (from[0] * cos - from[1] * sin, from[0] * sin + from[1] * cos);
                    }
                });
            }
        });
    }
}

/// The readers' rows in passes of at most [`ROWS`].
fn passes<'a>(readers: &'a [Reader<'a>]) -> Vec<Vec<Part<'a>>> {
    let (mut passes, mut pass, mut row) = (Vec::new(), Vec::new(), 0);
    for reader in readers {
        let mut at = 0;
        while at < reader.tokens.len() {
            let count = (ROWS - row).min(reader.tokens.len() - at);
            pass.push(Part { reader, tokens: at..at + count, row });
            (at, row) = (at + count, row + count);
            if row == ROWS {
                passes.push(std::mem::take(&mut pass));
                row = 0;
            }
        }
    }
    passes.extend((!pass.is_empty()).then_some(pass));
    passes
}

/// The rows of a part after which logits are asked for.
fn asked(part: &Part<'_>) -> Range<usize> {
    let (count, end) = (part.tokens.len(), part.row + part.tokens.len());
    match part.reader.asked {
        Asked::All => part.row..end,
        Asked::Last if part.tokens.end == part.reader.tokens.len() => end - 1..end,
        _ => end - count..end - count,
    }
}

/// Cut so that all threads have something to do.
fn attentions<'a>(parts: &'a [Part<'a>], (heads, group): (usize, usize), threads: usize) -> Vec<Attention<'a>> {
    // A thread may take the heads one by one where there are few: keys that heads share come from the cache the second time.
    let together = if parts.len() * heads / group < 2 * threads { 1 } else { group };
    let mut all = Vec::new();
    for part in parts {
        let few = part.tokens.len() < FEW;
        let (tile, together) = if few { (1, together) } else { (TILE, group) };
        for start in (0..part.tokens.len()).step_by(tile) {
            let rows = start..(start + tile).min(part.tokens.len());
            let heads = (0..heads).step_by(together).map(|head| head..head + together);
            all.extend(heads.map(|heads| Attention { part, rows: rows.clone(), heads }));
        }
    }
    all
}

impl Attention<'_> {
    /// softmax(q · kᵀ) · v for these heads and rows; `q` is divided by √d already.
    fn attend(
        &self,
        q: &[f32],
        [keys, values]: [&[f32]; 2],
        (width, d): (usize, usize),
        own: &mut Vec<f32>,
        gathered: DisjointSlices<'_, f32>,
    ) {
        let (heads, count) = (self.heads.len(), self.part.position(self.rows.end - 1) + 1);
        let at = |row: usize| (self.part.row + row) * width + self.heads.start * d;
        if self.rows.len() == 1 {
            own.resize(count, 0.0);
            for head in 0..heads {
                let at = at(self.rows.start) + head * d;
                // SAFETY: no other part has this row and head.
                let to = unsafe { gathered.at(at, d) };
                pulp::Arch::new().dispatch(|| alone(&q[at..at + d], keys, values, || self.part.runs(count), own, to));
            }
            return;
        }
        let rows = self.rows.len() * heads;
        own.resize(rows * (count + 2 * d), 0.0);
        let (scores, rest) = own.split_at_mut(rows * count);
        let (queries, results) = rest.split_at_mut(rows * d);
        for (row, queries) in self.rows.clone().zip(queries.chunks_exact_mut(heads * d)) {
            queries.copy_from_slice(&q[at(row)..at(row) + heads * d]);
        }
        for (before, slot, length) in self.part.runs(count) {
            let keys = &keys[slot * d..(slot + length) * d];
            matmul((rows, length, d), (&mut scores[before..], count), false, (queries, d), (keys, 1, d));
        }
        for (at, scores) in scores.chunks_exact_mut(count).enumerate() {
            let seen = self.part.position(self.rows.start + at / heads) + 1;
            pulp::Arch::new().dispatch(|| softmax(&mut scores[..seen]));
            scores[seen..].fill(0.0);
        }
        for (before, slot, length) in self.part.runs(count) {
            let values = &values[slot * d..(slot + length) * d];
            matmul((rows, d, length), (results, d), before > 0, (&scores[before..], count), (values, d, 1));
        }
        for (row, results) in self.rows.clone().zip(results.chunks_exact(heads * d)) {
            // SAFETY: no other part has this row and these heads.
            unsafe { gathered.at(at(row), heads * d) }.copy_from_slice(results);
        }
    }
}

/// One row and head: `scores` has room for one number a key.
#[inline(always)]
fn alone<R: Iterator<Item = (usize, usize, usize)>>(
    q: &[f32],
    keys: &[f32],
    values: &[f32],
    runs: impl Fn() -> R,
    scores: &mut [f32],
    to: &mut [f32],
) {
    let d = q.len();
    for (before, slot, length) in runs() {
        let keys = keys[slot * d..(slot + length) * d].chunks_exact(d);
        scores[before..before + length].iter_mut().zip(keys).for_each(|(score, key)| *score = dot(q, key));
    }
    softmax(scores);
    let mut first = 0;
    while first < d {
        // As many sums as there are registers for.
        first += match d - first {
            64.. => weighted::<64, _>(values, &runs, scores, to, first),
            16.. => weighted::<16, _>(values, &runs, scores, to, first),
            _ => weighted::<1, _>(values, &runs, scores, to, first),
        };
    }
}

#[inline(always)]
fn weighted<const N: usize, R: Iterator<Item = (usize, usize, usize)>>(
    values: &[f32],
    runs: &impl Fn() -> R,
    scores: &[f32],
    to: &mut [f32],
    first: usize,
) -> usize {
    let d = to.len();
    let mut sums = [0.0_f32; N];
    for (before, slot, length) in runs() {
        let values = values[slot * d..(slot + length) * d].chunks_exact(d);
        for (score, value) in scores[before..before + length].iter().zip(values) {
            let value: &[f32; N] = value[first..first + N].try_into().expect("N of them");
            (0..N).for_each(|i| sums[i] += score * value[i]);
        }
    }
    to[first..first + N].copy_from_slice(&sums);
    N
}

/// to = a · b, or to + a · b: `[m, k]` times `[k, n]`; `b` has its own steps from row to row and from column to column.
fn matmul(
    (m, n, k): (usize, usize, usize),
    (to, to_row): (&mut [f32], usize),
    add: bool,
    (a, a_row): (&[f32], usize),
    (b, b_row, b_column): (&[f32], usize, usize),
) {
    assert!(to.len() > (m - 1) * to_row + n - 1 && a.len() > (m - 1) * a_row + k - 1);
    assert!(b.len() > (k - 1) * b_row + (n - 1) * b_column);
    let one = gemm::Parallelism::None;
    let (to, a, b) = (to.as_mut_ptr(), a.as_ptr(), b.as_ptr());
    let (to_row, a_row, b_row, b_column) = (to_row as isize, a_row as isize, b_row as isize, b_column as isize);
    // SAFETY: all places are within the slices, as asserted.
    unsafe {
        gemm::gemm(m, n, k, to, 1, to_row, add, a, 1, a_row, b, b_column, b_row, 1.0, 1.0, false, false, false, one)
    }
}

/// Writes the new keys, or values, `[rows, kv_heads, d]`, to their slots.
fn remember(parts: &[Part<'_>], all: &mut [f32], new: &[f32], (kv_heads, d): (usize, usize), head_slots: usize) {
    for part in parts {
        let (start, end) = (part.position(0), part.position(part.tokens.len()));
        for (before, slot, length) in part.runs(end) {
            for key in start.max(before)..before + length {
                let from = &new[(part.row + key - start) * kv_heads * d..][..kv_heads * d];
                for (head, from) in from.chunks_exact(d).enumerate() {
                    let to = (head * head_slots + slot + key - before) * d;
                    all[to..to + d].copy_from_slice(from);
                }
            }
        }
    }
}

/// x + inputs · matrixᵀ
fn add_product(team: &Team, matrix: &PackedMatrix, inputs: &Inputs, x: &mut [f32]) {
    let (width, x) = (matrix.outputs(), DisjointSlices::of(x));
    let share = matrix.share(inputs.rows(), 1);
    team.each(matrix.groups().div_ceil(share), |part| {
        for group in part * share..((part + 1) * share).min(matrix.groups()) {
            let (first, count) = (group * GROUP, GROUP.min(width - group * GROUP));
            matrix.group(group, inputs, |row, results| {
                // SAFETY: no other part has this group's outputs.
                let x = unsafe { x.at(row * width + first, count) };
                x.iter_mut().zip(results).for_each(|(x, result)| *x += result);
            });
        }
    });
}

/// silu(gate) · up, rounded for the product after it, block by block.
fn gated(team: &Team, matrices: [&PackedMatrix; 2], inputs: &Inputs, rows: usize, middle: &mut Inputs) {
    const GROUPS: usize = BLOCK / GROUP;
    let writer = middle.writer();
    let blocks = matrices[0].outputs() / BLOCK;
    let share = matrices[0].share(rows, GROUPS) / GROUPS;
    team.each(blocks.div_ceil(share), |part| {
        OWN.with_borrow_mut(|own| {
            own.resize(rows * 2 * BLOCK, 0.0);
            for block in part * share..((part + 1) * share).min(blocks) {
                for (which, matrix) in matrices.iter().enumerate() {
                    for half in 0..GROUPS {
                        let at = which * BLOCK + half * GROUP;
                        matrix.group(block * GROUPS + half, inputs, |row, results| {
                            own[row * 2 * BLOCK + at..][..GROUP].copy_from_slice(results);
                        });
                    }
                }
                pulp::Arch::new().dispatch(|| {
                    for (row, both) in own.chunks_exact(2 * BLOCK).enumerate() {
                        let (gate, up) = both.split_at(BLOCK);
                        let mut y = [0.0; BLOCK];
                        (0..BLOCK).for_each(|i| y[i] = gate[i] / (1.0 + exp(-gate[i])) * up[i]);
                        writer.block(row, block, &y);
                    }
                });
            }
        });
    });
}

// ----------------------------------------------------------------------
// Over a row. Each is compiled for the instructions of `pulp`'s choice.

/// Numbers that are summed up side by side.
const LANES: usize = 32;

#[inline(always)]
fn dot(a: &[f32], b: &[f32]) -> f32 {
    let mut sums = [0.0_f32; LANES];
    let (a, b) = (a.chunks_exact(LANES), b.chunks_exact(LANES));
    let rest: f32 = a.remainder().iter().zip(b.remainder()).map(|(a, b)| a * b).sum();
    for (a, b) in a.zip(b) {
        (0..LANES).for_each(|i| sums[i] += a[i] * b[i]);
    }
    total(sums) + rest
}

#[inline(always)]
fn total(mut sums: [f32; LANES]) -> f32 {
    let mut half = LANES / 2;
    while half > 0 {
        (0..half).for_each(|i| sums[i] += sums[i + half]);
        half /= 2;
    }
    sums[0]
}

/// RMS norm, block by block.
fn norm(x: &[f32], weight: &[f32], epsilon: f32, take: impl Fn(usize, &[f32; BLOCK])) {
    pulp::Arch::new().dispatch(|| {
        let scale = 1.0 / (dot(x, x) / x.len() as f32 + epsilon).sqrt();
        for (block, (x, weight)) in x.chunks_exact(BLOCK).zip(weight.chunks_exact(BLOCK)).enumerate() {
            let mut y = [0.0; BLOCK];
            (0..BLOCK).for_each(|i| y[i] = x[i] * scale * weight[i]);
            take(block, &y);
        }
    });
}

fn round(x: &[f32], take: impl Fn(usize, &[f32; BLOCK])) {
    pulp::Arch::new().dispatch(|| {
        x.chunks_exact(BLOCK).enumerate().for_each(|(block, x)| take(block, x.try_into().expect("chunks of 32")));
    });
}

#[inline(always)]
fn softmax(scores: &mut [f32]) {
    let mut most = [f32::NEG_INFINITY; LANES];
    for scores in scores.chunks(LANES) {
        (0..scores.len()).for_each(|i| most[i] = if scores[i] > most[i] { scores[i] } else { most[i] });
    }
    let most = most.into_iter().fold(f32::NEG_INFINITY, f32::max);
    let mut sums = [0.0_f32; LANES];
    for scores in scores.chunks_mut(LANES) {
        for (score, sum) in scores.iter_mut().zip(&mut sums) {
            *score = exp(*score - most);
            *sum += *score;
        }
    }
    let inverse = 1.0 / total(sums);
    scores.iter_mut().for_each(|score| *score *= inverse);
}

/// e to the x, within 2 of the last places of f32: 2 to a whole number, times a polynomial (Cephes' `expf`) for what is left. The C
/// library's is a call for each number.
#[inline(always)]
fn exp(x: f32) -> f32 {
    let x = x.clamp(-87.0, 88.0);
    // Adding this and taking it off again rounds to a whole number.
    const ROUND: f32 = 12_582_912.0;
    let shifted = x * std::f32::consts::LOG2_E + ROUND;
    let whole = shifted - ROUND;
    let x = x - whole * 0.693_359_4 + whole * 2.121_944_4e-4;
    let mut y = 1.987_569_1e-4_f32;
    for factor in [1.398_199_9e-3, 8.333_452e-3, 4.166_579_6e-2, 1.666_666_5e-1, 0.5] {
        y = y * x + factor;
    }
    let power = (shifted.to_bits() << 23).wrapping_add(127 << 23);
    (y * x * x + x + 1.0) * f32::from_bits(power)
}

// ----------------------------------------------------------------------
// candle's tensors, in place.

/// Hands out a tensor's numbers.
struct With<F>(F);

impl<F: Fn(&mut [f32])> InplaceOp1 for With<F> {
    fn name(&self) -> &'static str {
        "remember"
    }

    fn cpu_fwd(&self, storage: &mut CpuStorage, layout: &Layout) -> candle_core::Result<()> {
        match (storage, layout.contiguous_offsets()) {
            (CpuStorage::F32(all), Some((start, end))) => {
                (self.0)(&mut all[start..end]);
                Ok(())
            }
            _ => bail!("keys and values that are not contiguous, or not f32"),
        }
    }
}

fn floats(storage: &Storage) -> Result<&[f32]> {
    match storage {
        Storage::Cpu(storage) => Ok(storage.as_slice::<f32>()?),
        _ => Err(candle_core::Error::Msg("numbers that are not on the CPU".to_string()).into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_exponential_is_that_of_f64() {
        for i in -870_000..880_000 {
            let x = i as f32 * 1e-4;
            let (own, exact) = (f64::from(exp(x)), f64::from(x).exp());
            assert!(((own - exact) / exact).abs() < 3e-7, "{x}: {own} {exact}");
        }
        assert_eq!(exp(0.0), 1.0);
        assert!(exp(f32::NAN).is_nan() && exp(f32::NEG_INFINITY) < 2e-38);
    }

    #[test]
    fn a_row_of_any_length_has_the_softmax_and_sum_of_f64() {
        for length in [1, 2, 31, 32, 33, 100] {
            let x: Vec<f32> = (0..length).map(|i| ((i * 37) % 11) as f32 - 5.0).collect();
            let exact: f64 = x.iter().map(|x| f64::from(*x).exp()).sum();
            let mut own = x.clone();
            softmax(&mut own);
            for (own, x) in own.iter().zip(&x) {
                assert!((f64::from(*own) - f64::from(*x).exp() / exact).abs() < 1e-6);
            }
            let squares: f32 = x.iter().map(|x| x * x).sum();
            assert_eq!(dot(&x, &x), squares);
        }
        let mut bad = [1.0, f32::NAN, 2.0];
        softmax(&mut bad);
        assert!(bad.iter().all(|x| x.is_nan()));
    }

    #[test]
    fn passes_are_full_and_ask_once_for_each_reader() {
        let tokens = vec![0; 2 * ROWS + 40];
        let reader = |count: usize, asked| Reader { tokens: &tokens[..count], first: 3, runs: vec![(0, 9)], asked };
        let readers =
            [reader(7, Asked::Last), reader(2 * ROWS, Asked::Last), reader(2, Asked::None), reader(3, Asked::All)];
        let passes = passes(&readers);
        let rows: Vec<usize> = passes.iter().map(|pass| pass.iter().map(|part| part.tokens.len()).sum()).collect();
        assert_eq!(rows, [ROWS, ROWS, 12]);
        let all: Vec<Vec<usize>> = passes.iter().map(|pass| pass.iter().flat_map(asked).collect()).collect();
        assert_eq!(all, [vec![6], vec![], vec![6, 9, 10, 11]]);
        assert_eq!((passes[1][0].row, passes[1][0].position(0)), (0, 3 + ROWS - 7));
        assert_eq!(passes[0][0].runs(8).collect::<Vec<_>>(), [(0, 0, 8)]);
    }
}
