//! A model's shape, where its weights come from, and how they lie on the GPU.

use gpulab::cpu;
use gpulab::error::{Error, Result};
use gpulab::gpu::{Buffer, Gpu};
use rayon::prelude::*;
use std::ops::Range;

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
    /// Width of the residual stream: the numbers that stand for a token (`d_model`, `hidden_size`).
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
        if self == WeightBits::Bf16 {
            return row.iter_mut().for_each(|x| *x = cpu::f32_from_bf16(cpu::bf16_from_f32(*x)));
        }
        let (bytes, scales) = self.stored(row);
        for (at, x) in row.iter_mut().enumerate() {
            let code = match self {
                WeightBits::Int4 => (bytes[at / 2] << (4 - at % 2 * 4)) as i8 >> 4,
                _ => bytes[at] as i8,
            };
            *x = f32::from(code) * cpu::f32_from_bf16(scales[at / self.step()]);
        }
    }
}

/// A model on a GPU, for so many blocks.
#[derive(Debug)]
pub struct EngineModel {
    pub(super) gpu: Gpu,
    pub(super) config: EngineConfig,
    pub(super) packing: Packing,
    pub(super) weights: Buffer<u8>,
    pub(super) vectors: Buffer<f32>,
    pub(super) table: Buffer<u16>,
    pub(super) positions: Buffer<u16>,
    /// Cosine and sine of each position and pair.
    pub(super) angles: Buffer<f32>,
}

impl EngineModel {
    pub(super) fn laid_out(gpu: &Gpu, packing: Packing, weights: &impl EngineWeights) -> Result<EngineModel> {
        let config = &packing.config;
        let table = |matrix: Matrix| rows_in_bf16(config, weights, matrix, 0);
        let positions = if config.family == Family::Gpt2 { table(Matrix::Positions) } else { vec![0; 8] };
        let vectors = weights.vectors();
        let (layer, last) = config.vector_lengths();
        assert_eq!(vectors.len(), config.layers * layer + last, "the vectors of all layers, and of the last norm");
        Ok(EngineModel {
            gpu: gpu.clone(),
            config: *config,
            packing,
            weights: gpu.to_device(&packing.all(weights))?,
            vectors: gpu.to_device(&vectors)?,
            table: gpu.to_device(&table(Matrix::Table))?,
            positions: gpu.to_device(&positions)?,
            angles: gpu.to_device(&angles(config))?,
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

/// A matrix of a layer (0 for those that no layer has), row by row.
pub(super) fn rows_in_bf16(
    config: &EngineConfig,
    weights: &impl EngineWeights,
    matrix: Matrix,
    layer: usize,
) -> Vec<u16> {
    let [rows, columns] = config.shape(matrix);
    let mut bits = vec![0; rows * columns];
    bits.par_chunks_mut(columns).enumerate().for_each_init(
        || vec![0.0; columns],
        |row, (at, to)| {
            weights.row(matrix, layer, at, row);
            to.iter_mut().zip(row).for_each(|(to, x)| *to = cpu::bf16_from_f32(*x));
        },
    );
    bits
}

/// Cosine and sine of each position and pair.
pub(super) fn angles(config: &EngineConfig) -> Vec<f32> {
    let mut angles = Vec::new();
    for position in 0..config.context {
        angles.extend((0..config.head / 2).flat_map(|i| {
            let angle = position as f64 * frequency(config, i);
            [angle.cos() as f32, angle.sin() as f32]
        }));
    }
    angles
}

pub(super) fn frequency(config: &EngineConfig, pair: usize) -> f64 {
    config.rope_base.powf(-2.0 * pair as f64 / config.head as f64)
}

/// How a token's work is cut into kernels, and how these are queued.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum EnginePlan {
    /// A kernel for each operator, as a framework has them: twelve a layer.
    Operators,
    /// A kernel for each phase, five a layer.
    Fused,
    /// The same, and each starts before the one in front has ended, and fetches its weights meanwhile.
    Overlapped,
    /// One kernel for the token; its blocks meet where a phase ends, and their weights keep coming.
    Persistent,
}

impl EnginePlan {
    /// All of them, the first one first.
    pub const ALL: [EnginePlan; 4] =
        [EnginePlan::Operators, EnginePlan::Fused, EnginePlan::Overlapped, EnginePlan::Persistent];

    /// `operators`, `fused`, `overlapped`, `persistent`.
    pub fn name(self) -> &'static str {
        match self {
            EnginePlan::Operators => "operators",
            EnginePlan::Fused => "fused",
            EnginePlan::Overlapped => "overlapped",
            EnginePlan::Persistent => "persistent",
        }
    }
}

/// Constants of the kernels that no result depends on, compiled into them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct EngineConstants {
    /// Threads of a block that compute; one warp more asks for copies.
    pub threads: usize,
    /// Parts of the context that different blocks attend to.
    pub splits: usize,
    /// Heads of queries that a block attends with at a time; they share a head of keys.
    pub heads_each: usize,
    /// Steps of a slot of the ring: codes of few bits are laid out for it.
    pub slot_steps: usize,
    /// Blocks of a cluster that has a head: all of attention is then one phase. 1: it is three, without clusters. This and the
    /// next one are for GPT-2 in bf16.
    pub cluster: usize,
    /// Whether the MLP is one phase: blocks own units, and add what these give to the residual.
    pub merged: bool,
    /// Blocks that share the work; 0: one for each multiprocessor, or as many clusters as the GPU runs at a time.
    pub blocks: usize,
    /// Whether each phase has code of its own, with all that depends on the phase decided at compile time; otherwise all
    /// matrices share one piece of code. None: see [`has_own_code`](Self::has_own_code).
    pub own_code: Option<bool>,
    /// The persistent plan's blocks write down when they are where in a phase: [`Engine::clocks`](super::Engine::clocks).
    pub clocks: bool,
    /// What the persistent plan does without, to see what it costs, as a sum: 1 waiting for each other where a phase ends, 2 copies of
    /// weights, keys and values, 4 products with weights that were copied, 8 work on keys and values that were copied, 16 reading the
    /// vector that a matrix is multiplied by, and its norm. Its logits are wrong then.
    pub without: u32,
}

impl EngineConstants {
    /// For a GPT-2 with 124 million parameters in bf16: two phases a layer.
    pub const GPT2: EngineConstants =
        EngineConstants { splits: 8, slot_steps: 24, cluster: 8, merged: true, ..EngineConstants::DEFAULT };
    const DEFAULT: EngineConstants = EngineConstants {
        threads: 256,
        splits: 4,
        heads_each: 1,
        slot_steps: 16,
        cluster: 1,
        merged: false,
        blocks: 0,
        own_code: None,
        clocks: false,
        without: 0,
    };

    /// What [`own_code`](Self::own_code) is where it is not set: true but for the persistent plan with few bits. On an H200
    /// (`results/h200/2026-11-29/decode_engine_own.csv`) it made both plans faster for GPT-2, the persistent one for a Llama in
    /// bf16 and the overlapped one for it in int4, whose persistent plan it made slower. Few bits elsewhere were not timed.
    pub fn has_own_code(self, plan: EnginePlan, bits: WeightBits) -> bool {
        self.own_code.unwrap_or(plan != EnginePlan::Persistent || bits == WeightBits::Bf16)
    }

    /// The numbers of a layer's phases: q, k and v; attention; projection; MLP up; MLP down.
    pub fn phases(self) -> &'static [i32] {
        match (self.cluster > 1, self.merged) {
            (false, false) => &[0, 1, 2, 3, 4],
            (false, true) => &[0, 1, 2, 3],
            (true, false) => &[1, 3, 4],
            (true, true) => &[1, 3],
        }
    }
}

impl Default for EngineConstants {
    fn default() -> EngineConstants {
        EngineConstants::DEFAULT
    }
}

impl EngineConstants {
    /// Whether kernels can have these constants.
    pub(super) fn suit(self, config: &EngineConfig, bits: WeightBits, by_operators: bool) -> Result<()> {
        let refuse = |what: String, fix: &str| Err(Error::unsupported(what, fix));
        if self.cluster <= 1 && !self.merged {
            return Ok(());
        }
        if by_operators || bits != WeightBits::Bf16 || config.family != Family::Gpt2 {
            let what = "layers of fewer than five phases are for GPT-2 in bf16, and no plan by operators".to_string();
            return refuse(what, "use a cluster of 1, and `merged: false`");
        }
        let EngineConfig { head, width, .. } = *config;
        let cluster = self.cluster;
        let fits = self.heads_each == 1
            && config.heads == config.kv_heads
            && head.is_multiple_of(bits.step())
            && (3 * head).is_multiple_of(2 * cluster)
            && width.is_multiple_of(TILE * cluster)
            && self.splits == cluster;
        if cluster > 1 && !fits {
            let what = format!("clusters of {cluster} blocks do not take {config:?} in {} parts", self.splits);
            return refuse(what, "use a cluster of 1, or as many `splits` as blocks of a cluster");
        }
        Ok(())
    }

    /// Whether so many blocks can share the work.
    pub(super) fn suit_blocks(self, config: &EngineConfig, bits: WeightBits) -> Result<()> {
        let refuse = |what: String, fix: &str| Err(Error::unsupported(what, fix));
        let EngineConstants { cluster, blocks, slot_steps, .. } = self;
        if blocks == 0 || !blocks.is_multiple_of(cluster) {
            let what = format!("{blocks} blocks are no clusters of {cluster}");
            return refuse(what, "give a multiple of it, on a GPU that runs at least one such cluster");
        }
        let units = if self.merged { (config.inner / bits.step()).div_ceil(blocks) } else { 0 };
        let count = units.max(if cluster > 1 { config.head / bits.step() } else { 0 });
        if count > slot_steps {
            let what = format!("{blocks} blocks take {count} steps of a row, and a slot {slot_steps}");
            return refuse(what, "use more blocks, or more steps a slot");
        }
        Ok(())
    }
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
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Packing {
    config: EngineConfig,
    bits: WeightBits,
    slot_steps: usize,
    pub blocks: usize,
    cluster: usize,
    merged: bool,
}

/// A piece of a matrix that is copied at a time: of so many rows some steps, each with its first row and its number in the
/// rows; behind them the steps' scales, row by row.
struct Stage {
    rows: usize,
    steps: Vec<(usize, usize)>,
}

/// A phase that reads a matrix.
const PHASES: [Matrix; 4] = [Matrix::Qkv, Matrix::Out, Matrix::Up, Matrix::Down];

impl Packing {
    pub fn of(config: &EngineConfig, bits: WeightBits, constants: EngineConstants) -> Packing {
        let EngineConstants { cluster, merged, slot_steps, blocks, .. } = constants;
        Packing { config: *config, bits, slot_steps, blocks, cluster, merged }
    }

    /// Whether the same bytes come out: without scales it does not matter what is copied at a time.
    pub fn is_like(&self, other: &Packing) -> bool {
        let slot_steps = if self.bits == WeightBits::Bf16 { other.slot_steps } else { self.slot_steps };
        Packing { slot_steps, ..*self } == *other
    }

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
            // Head by head its q, k and v.
            Matrix::Qkv if self.cluster > 1 => {
                let (head, of) = (place / (6 * half), place / (2 * half) % 3);
                let row = of * self.config.query() + head * 2 * half + place % (2 * half) / 2 + place % 2 * half;
                Some((matrix, row))
            }
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

    /// Rows of a matrix, with all of their steps: 16 at a time.
    fn rows_of(&self, matrix: Matrix, rows: Range<usize>) -> Vec<Stage> {
        let steps = self.config.shape(matrix)[1] / self.bits.step();
        let stage = |first: usize, from: usize| Stage {
            rows: TILE.min(rows.end - first),
            steps: (from..steps.min(from + self.slot_steps)).map(|step| (first, step)).collect(),
        };
        let firsts = rows.clone().step_by(TILE);
        firsts
            .flat_map(|first| (0..steps).step_by(self.slot_steps).map(move |from| (first, from)))
            .map(|(first, from)| stage(first, from))
            .collect()
    }

    /// Some steps of many rows: as many whole tiles of 16 rows at a time as a slot takes.
    fn tiles_of(&self, rows: Range<usize>, steps: Range<usize>) -> Vec<Stage> {
        let firsts: Vec<usize> = rows.step_by(TILE).filter(|_| !steps.is_empty()).collect();
        let stage = |firsts: &[usize]| Stage {
            rows: TILE,
            steps: firsts.iter().flat_map(|&first| steps.clone().map(move |step| (first, step))).collect(),
        };
        firsts.chunks((self.slot_steps / steps.len().max(1)).max(1)).map(stage).collect()
    }

    /// The stages of a matrix, in the order in which they lie.
    fn stages(&self, matrix: Matrix) -> Vec<Stage> {
        let config = &self.config;
        let share = |all: usize, rank: usize| all * rank / self.blocks..all * (rank + 1) / self.blocks;
        let ranks = 0..self.blocks;
        let units = 0..config.heads * self.cluster;
        let steps = config.shape(matrix)[1] / self.bits.step();
        match matrix {
            Matrix::Qkv if self.cluster > 1 => {
                let slice = 3 * config.head / self.cluster;
                units.flat_map(|unit| self.rows_of(matrix, unit * slice..(unit + 1) * slice)).collect()
            }
            Matrix::Out if self.cluster > 1 => {
                let (own, each) = (config.width / self.cluster, config.head / self.bits.step());
                let stages = |unit: usize| {
                    let (heads, rank) = (unit / self.cluster, unit % self.cluster);
                    self.tiles_of(rank * own..(rank + 1) * own, heads * each..(heads + 1) * each)
                };
                units.flat_map(stages).collect()
            }
            Matrix::Up if self.merged => {
                let units = config.inner / self.bits.step();
                let each = self.rows(matrix) / units;
                let own = |rank| share(units, rank).start * each..share(units, rank).end * each;
                ranks.flat_map(|rank| self.rows_of(matrix, own(rank))).collect()
            }
            Matrix::Down if self.merged => {
                ranks.flat_map(|rank| self.tiles_of(0..config.width, share(steps, rank))).collect()
            }
            _ => {
                let pairs = self.rows(matrix) / 2;
                let own = |rank| 2 * share(pairs, rank).start..2 * share(pairs, rank).end;
                ranks.flat_map(|rank| self.rows_of(matrix, own(rank))).collect()
            }
        }
    }

    fn all(&self, weights: &impl EngineWeights) -> Vec<u8> {
        let phases = (0..self.config.layers).flat_map(|layer| PHASES.map(|matrix| (matrix, layer)));
        let mut all = Vec::new();
        for (matrix, layer) in phases.chain([(Matrix::Table, 0)]) {
            let rows: Vec<_> = (0..self.rows(matrix))
                .into_par_iter()
                .map(|place| {
                    let mut numbers = vec![0.0; self.config.shape(matrix)[1]];
                    if let Some((matrix, row)) = self.source(matrix, place) {
                        weights.row(matrix, layer, row, &mut numbers);
                    }
                    self.bits.stored(&numbers)
                })
                .collect();
            let stages = self.stages(matrix);
            let bytes = |stage: &Stage| stage.rows * self.stage_bytes(stage.steps.len());
            let begin = all.len();
            all.resize(begin + stages.iter().map(bytes).sum::<usize>(), 0);
            let mut rest = &mut all[begin..];
            let mut places = Vec::new();
            for stage in stages {
                let (own, behind) = rest.split_at_mut(bytes(&stage));
                places.push((stage, own));
                rest = behind;
            }
            places.into_par_iter().for_each(|(stage, to)| self.fill(&stage, &rows, to));
        }
        all
    }

    /// A stage, from rows as they are stored.
    fn fill(&self, stage: &Stage, stored: &[(Vec<u8>, Vec<u16>)], to: &mut [u8]) {
        let (rows, steps) = (stage.rows, stage.steps.len());
        let pitch = self.stage_bytes(steps) - steps * STEP_BYTES;
        for (own, &(first, step)) in stage.steps.iter().enumerate() {
            for (row, (bytes, scales)) in stored[first..first + rows].iter().enumerate() {
                let at = (own * rows + row) * STEP_BYTES;
                to[at..at + STEP_BYTES].copy_from_slice(&bytes[step * STEP_BYTES..][..STEP_BYTES]);
                if let Some(scale) = scales.get(step) {
                    let at = steps * rows * STEP_BYTES + row * pitch + 2 * own;
                    to[at..at + 2].copy_from_slice(&scale.to_le_bytes());
                }
            }
        }
    }
}
