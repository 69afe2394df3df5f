//! A model's shape, where its weights come from, and how they lie on the GPU.

use gpulab::cpu;
use gpulab::error::{Error, Result};
use gpulab::gpu::{Buffer, Gpu};
use rayon::prelude::*;

/// What a layer is made of.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Family {
    /// Layer norm, learned positions, biases, GELU.
    Gpt2,
    /// RMS norm, RoPE, grouped heads, SwiGLU; no biases.
    Llama,
}

/// The shape of a model; the last matrix is the embedding's (tied).
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct EngineConfig {
    /// What a layer is made of.
    pub family: Family,
    /// Layers.
    pub layers: usize,
    /// Numbers that stand for a token on its way through the model.
    pub width: usize,
    /// Heads of queries.
    pub heads: usize,
    /// Heads of keys and values.
    pub kv_heads: usize,
    /// The head dimension.
    pub head: usize,
    /// Units of the MLP.
    pub inner: usize,
    /// Different tokens.
    pub vocabulary: usize,
    /// The longest text, in tokens.
    pub context: usize,
    /// The base of RoPE's frequencies.
    pub rope_base: f64,
}

impl EngineConfig {
    /// Llama 3.2 with 1.2 billion parameters.
    pub const LLAMA_1B: EngineConfig = EngineConfig {
        family: Family::Llama,
        layers: 16,
        width: 2048,
        heads: 32,
        kv_heads: 8,
        head: 64,
        inner: 8192,
        vocabulary: 128_256,
        context: 1152,
        rope_base: 500_000.0,
    };
    /// GPT-2 with 124 million parameters.
    pub const GPT2: EngineConfig = EngineConfig {
        family: Family::Gpt2,
        layers: 12,
        width: 768,
        heads: 12,
        kv_heads: 12,
        head: 64,
        inner: 3072,
        vocabulary: 50_257,
        context: 1024,
        rope_base: 0.0,
    };

    pub(super) fn query(&self) -> usize {
        self.heads * self.head
    }

    pub(super) fn keys(&self) -> usize {
        self.kv_heads * self.head
    }

    /// bf16 numbers of the KV cache: layer after layer the keys of all heads, then their values.
    pub fn cache_len(&self) -> usize {
        2 * self.layers * self.keys() * self.context
    }

    /// Weights of the matrices, the embedding once.
    pub fn parameter_count(&self) -> usize {
        let count = |matrix| self.shape(matrix).iter().product::<usize>();
        let gate = if self.family == Family::Llama { count(Matrix::Gate) } else { 0 };
        let layer = [Matrix::Qkv, Matrix::Out, Matrix::Up, Matrix::Down].map(count).iter().sum::<usize>();
        self.layers * (layer + gate) + count(Matrix::Table)
    }

    /// Bytes of the keys and values of so many positions.
    pub fn cache_bytes(&self, positions: usize) -> usize {
        2 * self.layers * self.keys() * positions * size_of::<u16>()
    }

    /// Outputs and inputs of a matrix.
    pub fn shape(&self, matrix: Matrix) -> [usize; 2] {
        match matrix {
            Matrix::Qkv => [self.query() + 2 * self.keys(), self.width],
            Matrix::Out => [self.width, self.query()],
            Matrix::Gate | Matrix::Up => [self.inner, self.width],
            Matrix::Down => [self.width, self.inner],
            Matrix::Table => [self.vocabulary, self.width],
            Matrix::Positions => [self.context, self.width],
        }
    }

    /// Lengths of a layer's vectors in their order, each with whether it scales (and is around 1).
    fn vectors(&self) -> Vec<(usize, bool)> {
        match self.family {
            Family::Llama => vec![(self.width, true); 2],
            Family::Gpt2 => {
                let Self { width, inner, .. } = *self;
                let norm = [(width, true), (width, false)];
                let first = [(self.shape(Matrix::Qkv)[0], false), (width, false)];
                [&norm[..], &first, &norm, &[(inner, false), (width, false)]].concat()
            }
        }
    }

    /// Numbers of a layer's vectors, and of the last norm's.
    pub(super) fn vector_lengths(&self) -> (usize, usize) {
        let last = if self.family == Family::Llama { self.width } else { 2 * self.width };
        (self.vectors().iter().map(|(len, _)| len).sum(), last)
    }
}

/// The matrices, `[outputs, inputs]`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Matrix {
    /// Queries, keys and values below each other.
    Qkv,
    /// From the heads back to the model's width.
    Out,
    /// The half of SwiGLU that goes through SiLU; Llama's alone.
    Gate,
    /// The other half, or all of GPT-2's units.
    Up,
    /// From the units back to the model's width.
    Down,
    /// A row for each token: the embedding, and the last matrix.
    Table,
    /// GPT-2's embedding of positions.
    Positions,
}

/// Where weights come from.
pub trait EngineWeights: Sync {
    /// A row of a matrix of a layer (0 for those that no layer has).
    fn row(&self, matrix: Matrix, layer: usize, row: usize, to: &mut [f32]);
    /// The norms' scales and biases, and the biases: for GPT-2 of each layer ln_1 (scales, biases), qkv, out, ln_2, up, down,
    /// for Llama both norms; behind the last layer those of the last norm.
    fn vectors(&self) -> Vec<f32>;
}

/// Weights that a seed decides, no scale 1 and no bias 0.
#[derive(Debug, Clone, Copy)]
pub struct RandomWeights {
    /// Their shape.
    pub config: EngineConfig,
    /// The seed.
    pub seed: u64,
}

impl RandomWeights {
    /// Numbers in [-1, 1), two of each word.
    fn numbers(start: u64, to: &mut [f32]) {
        let number = |bits: u32| (bits >> 8) as f32 * (1.0 / f64::from(1 << 23) as f32) - 1.0;
        for (at, two) in to.chunks_mut(2).enumerate() {
            let word = cpu::mix(start.wrapping_add(at as u64));
            two[0] = number(word as u32);
            if let Some(second) = two.get_mut(1) {
                *second = number((word >> 32) as u32);
            }
        }
    }
}

impl EngineWeights for RandomWeights {
    fn row(&self, matrix: Matrix, layer: usize, row: usize, to: &mut [f32]) {
        let place = ((matrix as u64) << 56) + ((layer as u64) << 44) + row as u64;
        RandomWeights::numbers(cpu::mix(cpu::mix(self.seed + 1) ^ place), to);
        let scale = match matrix {
            Matrix::Positions => 0.3,
            _ => 1.5 / (to.len() as f32).sqrt(),
        };
        to.iter_mut().for_each(|x| *x *= scale);
    }

    fn vectors(&self) -> Vec<f32> {
        let config = &self.config;
        let mut all = Vec::new();
        for layer in 0..=config.layers {
            let mut lengths = config.vectors();
            if layer == config.layers {
                lengths.truncate(if config.family == Family::Llama { 1 } else { 2 });
            }
            for (len, scales) in lengths {
                let mut numbers = vec![0.0; len];
                RandomWeights::numbers(cpu::mix(!self.seed ^ all.len() as u64), &mut numbers);
                let (factor, centre) = if scales { (0.3, 1.0) } else { (0.2, 0.0) };
                all.extend(numbers.into_iter().map(|x| factor * x + centre));
            }
        }
        all
    }
}

/// How weights of the matrices are stored.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WeightBits {
    /// As bf16.
    Bf16,
    /// Codes of 8 bits, and a scale for each 128 neighbours of a row.
    Int8,
    /// Codes of 4 bits, the same.
    Int4,
}

/// Neighbours of a row that share a scale.
const GROUP: usize = 128;
/// Bytes of a row in a step, and rows of a tile, as `kernels/engine/shape.cuh` has them.
const STEP_BYTES: usize = 64;
const TILE: usize = 16;

impl WeightBits {
    /// Bits of a weight.
    pub fn bits(self) -> usize {
        match self {
            WeightBits::Bf16 => 16,
            WeightBits::Int8 => 8,
            WeightBits::Int4 => 4,
        }
    }

    /// Columns of a step.
    pub(super) fn step(self) -> usize {
        STEP_BYTES * 8 / self.bits()
    }

    /// A row as it is stored: bytes, and a bf16 scale for each step.
    fn stored(self, row: &[f32]) -> (Vec<u8>, Vec<u16>) {
        if self == WeightBits::Bf16 {
            return (row.iter().flat_map(|&x| cpu::bf16_from_f32(x).to_le_bytes()).collect(), Vec::new());
        }
        let (mut bytes, mut scales) = (Vec::new(), Vec::new());
        let most = f32::from((1_i16 << (self.bits() - 1)) - 1);
        for group in row.chunks(GROUP) {
            let largest = group.iter().fold(0.0, |most: f32, x| most.max(x.abs()));
            let bits = cpu::bf16_from_f32(largest / most);
            let scale = cpu::f32_from_bf16(bits);
            let code = |x: &f32| if scale > 0.0 { (x / scale).round().clamp(-most - 1.0, most) as i8 } else { 0 };
            let codes: Vec<i8> = group.iter().map(code).collect();
            match self {
                WeightBits::Int4 => bytes.extend(codes.chunks(2).map(|two| two[0] as u8 & 15 | (two[1] as u8) << 4)),
                _ => bytes.extend(codes.iter().map(|&code| code as u8)),
            }
            scales.extend(vec![bits; group.len() / self.step()]);
        }
        (bytes, scales)
    }

    /// What a row is worth once it is stored.
    pub fn rounded(self, row: &mut [f32]) {
        let (bytes, scales) = self.stored(row);
        for (at, x) in row.iter_mut().enumerate() {
            *x = match self {
                WeightBits::Bf16 => cpu::f32_from_bf16(u16::from_le_bytes([bytes[2 * at], bytes[2 * at + 1]])),
                WeightBits::Int8 => f32::from(bytes[at] as i8) * cpu::f32_from_bf16(scales[at / self.step()]),
                WeightBits::Int4 => {
                    let code = (bytes[at / 2] << (4 - at % 2 * 4)) as i8 >> 4;
                    f32::from(code) * cpu::f32_from_bf16(scales[at / self.step()])
                }
            };
        }
    }
}

/// A model on a GPU, for so many blocks.
#[derive(Debug)]
pub struct EngineModel {
    pub(super) gpu: Gpu,
    pub(super) config: EngineConfig,
    pub(super) bits: WeightBits,
    /// Blocks that share each matrix's rows.
    pub(super) blocks: usize,
    pub(super) slot_steps: usize,
    pub(super) weights: Buffer<u8>,
    pub(super) vectors: Buffer<f32>,
    pub(super) table: Buffer<u16>,
    pub(super) positions: Buffer<u16>,
    /// Cosine and sine of each position and pair.
    pub(super) angles: Buffer<f32>,
}

impl EngineModel {
    /// Lays a model's weights out for a GPU: each of its multiprocessors takes a share of every matrix's rows.
    ///
    /// # Errors
    /// [`Error::Unsupported`] for a shape that the kernels do not take; [`Error::OutOfMemory`]; [`Error::Driver`].
    pub fn new(
        gpu: &Gpu,
        config: &EngineConfig,
        bits: WeightBits,
        slot_steps: usize,
        weights: &impl EngineWeights,
    ) -> Result<EngineModel> {
        suits(config, bits)?;
        let blocks = gpu.multiprocessors().max(1) as usize;
        let packing = Packing { config: *config, bits, slot_steps, blocks };
        let table = |matrix: Matrix| -> Vec<u16> {
            let [rows, columns] = config.shape(matrix);
            let mut bits = vec![0; rows * columns];
            bits.par_chunks_mut(columns).enumerate().for_each_init(
                || vec![0.0; columns],
                |row, (at, to)| {
                    weights.row(matrix, 0, at, row);
                    to.iter_mut().zip(row).for_each(|(to, x)| *to = cpu::bf16_from_f32(*x));
                },
            );
            bits
        };
        let positions = if config.family == Family::Gpt2 { table(Matrix::Positions) } else { vec![0; 8] };
        let mut angles = Vec::new();
        for position in 0..config.context {
            angles.extend((0..config.head / 2).flat_map(|i| {
                let angle = position as f64 * frequency(config, i);
                [angle.cos() as f32, angle.sin() as f32]
            }));
        }
        let vectors = weights.vectors();
        let (layer, last) = config.vector_lengths();
        assert_eq!(vectors.len(), config.layers * layer + last, "the vectors of all layers, and of the last norm");
        Ok(EngineModel {
            gpu: gpu.clone(),
            config: *config,
            bits,
            blocks,
            slot_steps,
            weights: gpu.to_device(&packing.all(weights))?,
            vectors: gpu.to_device(&vectors)?,
            table: gpu.to_device(&table(Matrix::Table))?,
            positions: gpu.to_device(&positions)?,
            angles: gpu.to_device(&angles)?,
        })
    }

    /// The shape of the model.
    pub fn config(&self) -> EngineConfig {
        self.config
    }

    /// Bytes of weights that a token reads, and of keys and values when `positions` of them are read.
    pub fn bytes_a_token(&self, positions: usize) -> usize {
        self.weights.bytes() + self.vectors.bytes() + self.config.cache_bytes(positions)
    }
}

pub(super) fn frequency(config: &EngineConfig, pair: usize) -> f64 {
    config.rope_base.powf(-2.0 * pair as f64 / config.head as f64)
}

pub(super) fn suits(config: &EngineConfig, bits: WeightBits) -> Result<()> {
    let refuse = |what: String, fix: &str| Err(Error::unsupported(what, fix));
    let EngineConfig { head, heads, kv_heads, .. } = *config;
    if !head.is_power_of_two() || !(16..=256).contains(&head) {
        let fix = "use a model whose heads have 16, 32, 64, 128 or 256 numbers";
        return refuse(format!("the engine's kernels share a head of {head} numbers among lanes by eights"), fix);
    }
    if kv_heads == 0 || !heads.is_multiple_of(kv_heads) {
        let what = format!("{heads} heads of queries cannot share {kv_heads} heads of keys and values");
        return refuse(what, "give a number of heads that is a multiple of it");
    }
    let step = if bits == WeightBits::Bf16 { bits.step() } else { GROUP };
    for (name, columns) in [("width", config.width), ("heads", config.query()), ("MLP", config.inner)] {
        if columns == 0 || !columns.is_multiple_of(step) {
            let what = format!("a row of {columns} weights of {} bits ({name}) is no multiple of {step}", bits.bits());
            return refuse(what, "use WeightBits::Bf16, whose rows are multiples of 32, or another model");
        }
    }
    Ok(())
}

/// The order of the weights in memory: that of `kernels/engine/shape.cuh`.
struct Packing {
    config: EngineConfig,
    bits: WeightBits,
    slot_steps: usize,
    blocks: usize,
}

/// A phase that reads a matrix.
const PHASES: [Matrix; 4] = [Matrix::Qkv, Matrix::Out, Matrix::Up, Matrix::Down];

impl Packing {
    /// Rows of a phase's matrix, in pairs.
    fn rows(&self, matrix: Matrix) -> usize {
        let rows = self.config.shape(matrix)[0];
        match matrix {
            Matrix::Up if self.config.family == Family::Llama => 2 * rows,
            _ => rows.next_multiple_of(2),
        }
    }

    /// The row of a matrix that stands at a place, if one does.
    fn source(&self, matrix: Matrix, place: usize) -> Option<(Matrix, usize)> {
        let half = self.config.head / 2;
        match matrix {
            Matrix::Qkv => {
                let (pair, side) = (place / 2, place % 2);
                Some((matrix, pair / half * 2 * half + pair % half + side * half))
            }
            Matrix::Up if self.config.family == Family::Llama => {
                Some((if place.is_multiple_of(2) { Matrix::Gate } else { Matrix::Up }, place / 2))
            }
            _ => (place < self.config.shape(matrix)[0]).then_some((matrix, place)),
        }
    }

    /// Bytes of a row in a stage of so many steps.
    fn stage_bytes(&self, steps: usize) -> usize {
        let scales = if self.bits == WeightBits::Bf16 { 0 } else { (2 * steps).next_multiple_of(16) };
        steps * STEP_BYTES + scales
    }

    /// The steps of each stage of a row.
    fn stages(&self, columns: usize) -> Vec<usize> {
        let steps = columns / self.bits.step();
        (0..steps).step_by(self.slot_steps).map(|first| self.slot_steps.min(steps - first)).collect()
    }

    fn all(&self, weights: &impl EngineWeights) -> Vec<u8> {
        let phases = (0..self.config.layers).flat_map(|layer| PHASES.map(|matrix| (matrix, layer)));
        let phases: Vec<_> = phases.chain([(Matrix::Table, 0)]).collect();
        // Every tile: its matrix, layer, first row and rows.
        let mut tiles = Vec::new();
        for &(matrix, layer) in &phases {
            let pairs = self.rows(matrix) / 2;
            for rank in 0..self.blocks {
                let [first, end] = [rank, rank + 1].map(|rank| 2 * (pairs * rank / self.blocks));
                let tile = |row: usize| (matrix, layer, row, TILE.min(end - row));
                tiles.extend((first..end).step_by(TILE).map(tile));
            }
        }
        let bytes = |matrix: Matrix, rows: usize| -> usize {
            let stages = self.stages(self.config.shape(matrix)[1]);
            rows * stages.into_iter().map(|steps| self.stage_bytes(steps)).sum::<usize>()
        };
        let mut all = vec![0; tiles.iter().map(|&(matrix, _, _, rows)| bytes(matrix, rows)).sum()];
        let mut rest = &mut all[..];
        let mut places = Vec::new();
        for tile in tiles {
            let (own, behind) = rest.split_at_mut(bytes(tile.0, tile.3));
            places.push((tile, own));
            rest = behind;
        }
        places.into_par_iter().for_each(|((matrix, layer, first, rows), to)| {
            self.tile(weights, matrix, layer, first, rows, to);
        });
        all
    }

    fn tile(
        &self,
        weights: &impl EngineWeights,
        matrix: Matrix,
        layer: usize,
        first: usize,
        rows: usize,
        to: &mut [u8],
    ) {
        let columns = self.config.shape(matrix)[1];
        let mut numbers = vec![0.0; columns];
        for row in 0..rows {
            numbers.fill(0.0);
            if let Some((matrix, at)) = self.source(matrix, first + row) {
                weights.row(matrix, layer, at, &mut numbers);
            }
            let (bytes, scales) = self.bits.stored(&numbers);
            let (mut begin, mut step) = (0, 0);
            for steps in self.stages(columns) {
                for own in 0..steps {
                    let at = begin + (own * rows + row) * STEP_BYTES;
                    to[at..at + STEP_BYTES].copy_from_slice(&bytes[(step + own) * STEP_BYTES..][..STEP_BYTES]);
                    if let Some(scale) = scales.get(step + own) {
                        let pitch = self.stage_bytes(steps) - steps * STEP_BYTES;
                        let at = begin + steps * rows * STEP_BYTES + row * pitch + 2 * own;
                        to[at..at + 2].copy_from_slice(&scale.to_le_bytes());
                    }
                }
                begin += rows * self.stage_bytes(steps);
                step += steps;
            }
        }
    }
}
