//! Steps that read tokens of many texts at once, with keys and values in blocks of one pool: what a server asks of a GPU.
//!
//! Rows of all texts are one matrix, so that a step reads each weight once, however many texts take part: products are cuBLASLt's, in bf16
//! with sums in f32; what stands between them is `kernels/engine/batch.cu`. A row's attention goes through its own text's blocks where they
//! lie (paged attention, `kernels/engine/attend.cu`); those of a prompt's part go through them together. A step
//! in which each text reads one token is captured once for each number of texts, as a CUDA graph, and one that reads parts of prompts beside them when
//! its shape comes again: rows, texts and tiles are filled up, so that few shapes differ. Where there is no memory for a graph, the step's kernels are launched one by
//! one ([`BatchEngine::graph_failures`]).
//!
//! # Example
//! ```
//! use gpulab::prelude::*;
//! use gpulab_kernels::engine::*;
//!
//! let gpu = Gpu::simulated()?;
//! let small = EngineConfig { layers: 1, width: 64, inner: 64, vocabulary: 50, context: 32, ..EngineConfig::LLAMA_1B };
//! let config = EngineConfig { heads: 2, kv_heads: 1, head: 32, ..small };
//! let limits = BatchLimits { rows: 8, texts: 2, blocks: 4, block_size: 8 };
//! let mut engine = BatchEngine::new(&gpu, &config, &RandomWeights { config, seed: 1 }, limits)?;
//! // The first text's prompt, and one more token of a second text, whose first token is in the cache already.
//! let prompt = TextPart { tokens: &[7, 3, 9], first: 0, blocks: &[2], samples: true };
//! let other = TextPart { tokens: &[5], first: 1, blocks: &[0], samples: true };
//! engine.step(&[TextPart { tokens: &[4], first: 0, blocks: &[0], samples: false }])?;
//! engine.step(&[prompt, other])?;
//! assert_eq!((engine.likeliest()?.len(), engine.logits(1)?.len()), (2, 50));
//! # Ok::<(), Error>(())
//! ```

use super::graphs::{Graphs, Work};
use super::model::{angles, rows_in_bf16};
use super::{EngineConfig, EngineWeights, Family, Matrix};
use crate::ladder::operator;
use crate::products::{At, Into, Products, Sides};
use gpulab::error::{Error, Result};
use gpulab::gpu::{Buffer, Gpu, Graph, Kernel, LtEpilogue, LtExtra};
use gpulab::launch::{LaunchConfig, Source};
use std::collections::{BTreeSet, HashMap};

const THREADS: u32 = 256;
/// Of `batch_best`, and of the kernels of attention.
const SEARCHERS: u32 = 1024;
const ATTENDERS: u32 = 128;
/// Rows of a tile of `prompt_attend`: tokens times the heads that share a head of keys.
const TILE_ROWS: usize = 64;
/// Parts of a text that blocks of their own take, at most.
const MOST_SPLITS: usize = 8;
/// Steps of more rows that read parts of prompts are no graphs: they take so long that the next kernels are always queued in time.
const MOST_GRAPH_ROWS: usize = 512;
/// Graphs that are kept.
const MOST_GRAPHS: usize = 64;
/// Such a step is captured when its shape comes for the second time.
const OFTEN: u32 = 2;
/// In a graph tiles of prompts are filled up to a multiple of these.
const FILLED_TILES: usize = 16;

/// A part of one text in a step: `tokens` stand at its positions `first ..`, and what is before them is in the cache already.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TextPart<'a> {
    /// The tokens that are read.
    pub tokens: &'a [u32],
    /// Position of the first of them.
    pub first: usize,
    /// The blocks of the text up to its last token here: position p is in block `blocks[p / block_size]`.
    pub blocks: &'a [u32],
    /// Whether the logits after the last token are asked for.
    pub samples: bool,
}

/// What memory is taken for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BatchLimits {
    /// Tokens that a step reads.
    pub rows: usize,
    /// Texts that take part in a step.
    pub texts: usize,
    /// Blocks of the pool of keys and values.
    pub blocks: usize,
    /// Tokens of a block.
    pub block_size: usize,
}

/// A layer's matrices, and the keys and values of all blocks.
struct Layer {
    qkv: Buffer<u16>,
    out: Buffer<u16>,
    /// The gates' rows, then the other half's.
    up: Buffer<u16>,
    down: Buffer<u16>,
    cache: Buffer<u16>,
}

/// A Llama in bf16 that reads tokens of many texts in a step.
pub struct BatchEngine {
    gpu: Gpu,
    config: EngineConfig,
    limits: BatchLimits,
    kernels: HashMap<&'static str, Kernel>,
    products: Products,
    layers: Vec<Layer>,
    table: Buffer<u16>,
    vectors: Buffer<f32>,
    angles: Buffer<f32>,
    /// What the host says of a step.
    plan: Buffer<i32>,
    x: Buffer<f32>,
    normed: Buffer<u16>,
    qkv: Buffer<u16>,
    /// What parts of texts leave, to be put together.
    parts: Buffer<f32>,
    attended: Buffer<u16>,
    both: Buffer<u16>,
    units: Buffer<u16>,
    logits: Buffer<f32>,
    /// One text's logits, on their way to the host.
    one: Buffer<f32>,
    best: Buffer<i32>,
    /// Logits that the last step was asked for.
    asked: usize,
    /// Blocks that run at once, to be filled.
    places: usize,
    graphs: Graphs<Shape, Graph>,
}

impl std::fmt::Debug for BatchEngine {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("BatchEngine")
            .field("config", &self.config)
            .field("limits", &self.limits)
            .finish_non_exhaustive()
    }
}

/// Bytes in which the four warps of `token_attend` keep 16 keys and values each, two or three times over.
fn ring_bytes(head: usize) -> u32 {
    let stages = if head <= 64 { 3 } else { 2 };
    (4 * stages * 2 * 16 * head * 2).max(4 * 8 * (head + 2) * 4) as u32
}

/// So many rows are multiplied where `rows` are asked for: each number of rows has algorithms of its own to choose from, which takes time.
fn padded(rows: usize, most: usize) -> usize {
    let step = match rows {
        0..=8 => rows.next_power_of_two(),
        9..=64 => 8,
        65..=256 => 32,
        _ => 128,
    };
    rows.next_multiple_of(step).min(most)
}

impl BatchEngine {
    /// Lays a model out, and takes all memory that steps will need.
    ///
    /// # Errors
    /// [`Error::Unsupported`] for a GPT-2, a shape that the kernels do not take, or a GPU older than Ampere; [`Error::Invalid`] for a limit of 0;
    /// [`Error::OutOfMemory`]; those of [`Gpu::compile`].
    pub fn new(
        gpu: &Gpu,
        config: &EngineConfig,
        weights: &impl EngineWeights,
        limits: BatchLimits,
    ) -> Result<BatchEngine> {
        let EngineConfig { width, heads, kv_heads, head, inner, vocabulary, .. } = *config;
        let BatchLimits { rows, texts, blocks, block_size } = limits;
        if [rows, texts, blocks, block_size].contains(&0) {
            return Err(Error::invalid(format!("{limits:?}"), "give at least 1 of each"));
        }
        let grouped = heads.is_multiple_of(kv_heads) && heads / kv_heads <= 8;
        let whole = width.is_multiple_of(8) && inner.is_multiple_of(8) && [16, 32, 64, 128, 256].contains(&head);
        if config.family != Family::Llama || !grouped || !whole {
            return Err(Error::unsupported(
                format!("a batch of texts with {config:?}"),
                "these kernels take Llamas with heads of 16, 32, 64, 128 or 256 numbers, at most 8 heads of queries for one of keys, and rows of whole eights; serve others with candle",
            ));
        }
        let value = |name: &str| match name {
            "WIDTH" => width,
            "HEADS" => heads,
            "KV_HEADS" => kv_heads,
            "HEAD" => head,
            "INNER" => inner,
            "VOCABULARY" => vocabulary,
            "BLOCK" => block_size,
            "THREADS" => THREADS as usize,
            other => unreachable!("a kernel of the engine has a constant {other}"),
        };
        let mut kernels = HashMap::new();
        for path in ["engine/batch", "engine/attend"] {
            let file = operator(path)?;
            file.runs_on(gpu.compute_capability()?)?;
            let plain = Source { defines: Vec::new(), ..file.source()? };
            let module =
                gpu.compile(file.defines.iter().fold(plain, |source, (name, _)| source.define(name, value(name))))?;
            for name in file.kernels {
                kernels.insert(*name, module.kernel(name)?);
            }
        }
        let places = 2 * gpu.multiprocessors().max(1) as usize;
        let matrix = |parts: &[Matrix], layer: usize| -> Result<Buffer<u16>> {
            let bits: Vec<u16> = parts.iter().flat_map(|part| rows_in_bf16(config, weights, *part, layer)).collect();
            gpu.to_device(&bits)
        };
        let layers = (0..config.layers).map(|layer| {
            Ok(Layer {
                qkv: matrix(&[Matrix::Qkv], layer)?,
                out: matrix(&[Matrix::Out], layer)?,
                up: matrix(&[Matrix::Gate, Matrix::Up], layer)?,
                down: matrix(&[Matrix::Down], layer)?,
                // One block more than the pool has, for rows that only fill a graph.
                cache: gpu.zeros(2 * (blocks + 1) * block_size * config.keys())?,
            })
        });
        let layers = layers.collect::<Result<Vec<Layer>>>()?;
        let mut engine = BatchEngine {
            products: Products::new(gpu, matches!(gpu, Gpu::Simulated(_)))?,
            table: matrix(&[Matrix::Table], 0)?,
            vectors: gpu.to_device(&weights.vectors())?,
            angles: gpu.to_device(&angles(config))?,
            plan: gpu.zeros(Lists::of(limits).tables + 1 + texts * config.context.div_ceil(block_size))?,
            x: gpu.zeros(rows * width)?,
            normed: gpu.zeros(rows.max(texts) * width)?,
            // The row behind the last one is of no token: tiles and texts that only fill a graph read it, and write there.
            qkv: gpu.zeros((rows + 1) * config.shape(Matrix::Qkv)[0])?,
            parts: gpu.zeros(places * heads / kv_heads * (head + 2))?,
            attended: gpu.zeros((rows + 1) * config.query())?,
            both: gpu.zeros(rows * 2 * inner)?,
            units: gpu.zeros(rows * inner)?,
            logits: gpu.zeros(texts * vocabulary)?,
            one: gpu.zeros(vocabulary)?,
            best: gpu.zeros(texts)?,
            asked: 0,
            places,
            graphs: Graphs::new(MOST_GRAPHS),
            gpu: gpu.clone(),
            config: *config,
            limits,
            kernels,
            layers,
        };
        engine.choose_products()?;
        Ok(engine)
    }

    /// Has cuBLASLt's algorithms timed for all numbers of rows that may come, so that no step waits for it.
    fn choose_products(&mut self) -> Result<()> {
        if matches!(self.gpu, Gpu::Simulated(_)) {
            return Ok(());
        }
        let BatchLimits { rows, texts, .. } = self.limits;
        let sizes = |most: usize| (1..=most).map(move |rows| padded(rows, most)).collect::<BTreeSet<usize>>();
        let of_layers = |weights: fn(&Layer) -> &Buffer<u16>| -> Vec<At<'_>> {
            self.layers.iter().take(8).map(|layer| (weights(layer), 0)).collect()
        };
        let [qkv, out, up, down] = [
            of_layers(|layer| &layer.qkv),
            of_layers(|layer| &layer.out),
            of_layers(|layer| &layer.up),
            of_layers(|layer| &layer.down),
        ];
        let shape = |matrix| self.config.shape(matrix);
        let [inner, width] = shape(Matrix::Up);
        let products = &mut self.products;
        for rows in sizes(rows) {
            let sides = |shape| sides(rows, shape);
            products.choose(sides(shape(Matrix::Qkv)), (&self.normed, 0), &qkv, Into::Bf16(&mut self.qkv, 0))?;
            let x = Into::F32 { to: &mut self.x, at: 0, adds: true };
            products.choose(sides(shape(Matrix::Out)), (&self.attended, 0), &out, x)?;
            products.choose(sides([2 * inner, width]), (&self.normed, 0), &up, Into::Bf16(&mut self.both, 0))?;
            let x = Into::F32 { to: &mut self.x, at: 0, adds: true };
            products.choose(sides(shape(Matrix::Down)), (&self.units, 0), &down, x)?;
        }
        for rows in sizes(texts) {
            let logits = Into::F32 { to: &mut self.logits, at: 0, adds: false };
            products.choose(sides(rows, shape(Matrix::Table)), (&self.normed, 0), &[(&self.table, 0)], logits)?;
        }
        self.gpu.synchronize()?;
        self.x.copy_from(&vec![0.0; rows * self.config.width])
    }

    /// The model's shape.
    pub fn config(&self) -> EngineConfig {
        self.config
    }

    /// Bytes of the pool of keys and values.
    pub fn cache_bytes(&self) -> usize {
        self.layers.iter().map(|layer| layer.cache.bytes()).sum()
    }

    /// Queues a step: reads the parts' tokens, and computes logits behind those that ask for them.
    ///
    /// # Errors
    /// [`Error::Invalid`] when there is no part, one has no token, does not fit into its blocks or the context, or names an unknown token, or
    /// there are more tokens or texts than the limits say; [`Error::Driver`]; in the simulator what a kernel did wrong.
    pub fn step(&mut self, parts: &[TextPart<'_>]) -> Result<()> {
        let plan = self.planned(parts)?;
        self.plan.copy_from(&plan.numbers)?;
        self.asked = plan.asked;
        let Some(often) = plan.graph_after.filter(|_| matches!(self.gpu, Gpu::Cuda(_))) else {
            return self.queue_kernels(plan.shape);
        };
        let mut graphs = std::mem::replace(&mut self.graphs, Graphs::new(0));
        let told = graphs.run(self, plan.shape, often);
        self.graphs = graphs;
        told
    }

    /// How often there was no memory for a step's graph, and its kernels were launched one by one. Nothing else was lost.
    pub fn graph_failures(&self) -> u64 {
        self.graphs.failures()
    }

    /// Into how many parts a text is split where `rows` of them are read, so that all multiprocessors have work.
    fn splits(&self, rows: usize) -> usize {
        (self.places / (rows * self.config.kv_heads)).clamp(1, MOST_SPLITS)
    }

    /// The kernels of a step. What it reads is in the plan: a graph of them is good for all steps of that shape.
    fn queue_kernels(&mut self, shape: Shape) -> Result<()> {
        let Shape { rows, own, tiles, asked } = shape;
        let lists = Lists::of(self.limits);
        let padded_rows = padded(rows, self.limits.rows);
        let EngineConfig { heads, kv_heads, head, width, inner, .. } = self.config;
        let slots = ((self.limits.blocks + 1) * self.limits.block_size) as i32;
        let config = |rows: usize| LaunchConfig::new(rows as u32, THREADS);
        let [stride, positions, slots_at, texts, asked_at, own_at, tiles_at, tables] = [
            lists.stride,
            lists.positions,
            lists.slots,
            lists.texts,
            lists.asked,
            lists.own,
            lists.tiles,
            lists.tables,
        ]
        .map(|number| number as i32);
        let (norm, all_rows) = (self.config.vector_lengths().0, -1_i32);
        let splits = self.splits(own.max(1));
        self.kernels["batch_embed"].launch(config(rows), (&self.table, &self.plan, &mut self.x))?;
        for layer in 0..self.config.layers {
            let at = (layer * norm) as i32;
            let args = (&self.x, &self.vectors, at, &self.plan, all_rows, &mut self.normed);
            self.kernels["batch_norm"].launch(config(rows), args)?;
            self.multiply_qkv(layer, padded_rows)?;
            let cache = &mut self.layers[layer].cache;
            let args = (&mut self.qkv, &self.angles, &self.plan, positions, slots_at, slots, &mut *cache);
            self.kernels["batch_rope"].launch(config(rows), args)?;
            if tiles > 0 {
                let grid = (tiles as u32, kv_heads as u32, 1);
                let grid = LaunchConfig { grid, block: (ATTENDERS, 1, 1), shared_bytes: 0 };
                let args = (
                    &self.qkv,
                    &*cache,
                    &self.plan,
                    tiles_at,
                    stride,
                    positions,
                    texts,
                    tables,
                    slots,
                    &mut self.attended,
                );
                self.kernels["prompt_attend"].launch(grid, args)?;
            }
            if own > 0 {
                let grid = (own as u32, kv_heads as u32, splits as u32);
                let grid = LaunchConfig { grid, block: (ATTENDERS, 1, 1), shared_bytes: ring_bytes(head) };
                let args = (
                    &self.qkv,
                    &*cache,
                    &self.plan,
                    own_at,
                    positions,
                    texts,
                    tables,
                    slots,
                    splits as i32,
                    &mut self.parts,
                    &mut self.attended,
                );
                self.kernels["token_attend"].launch(grid, args)?;
                if splits > 1 {
                    let grid = (own as u32, heads as u32, 1);
                    let grid = LaunchConfig { grid, block: (head as u32, 1, 1), shared_bytes: 0 };
                    let args = (&self.parts, &self.plan, own_at, splits as i32, &mut self.attended);
                    self.kernels["attend_gather"].launch(grid, args)?;
                }
            }
            self.multiply_out(layer, padded_rows)?;
            let args = (&self.x, &self.vectors, at + width as i32, &self.plan, all_rows, &mut self.normed);
            self.kernels["batch_norm"].launch(config(rows), args)?;
            self.multiply_up(layer, padded_rows)?;
            let eights = inner.div_ceil(8 * THREADS as usize) as u32;
            let grid = LaunchConfig { grid: (rows as u32, eights, 1), ..config(rows) };
            self.kernels["batch_swiglu"].launch(grid, (&self.both, &mut self.units))?;
            self.multiply_down(layer, padded_rows)?;
        }
        if asked == 0 {
            return Ok(());
        }
        let at = (self.config.layers * norm) as i32;
        let args = (&self.x, &self.vectors, at, &self.plan, asked_at, &mut self.normed);
        self.kernels["batch_norm"].launch(config(asked), args)?;
        self.multiply_table(padded(asked, self.limits.texts))?;
        let search = LaunchConfig::new(asked as u32, SEARCHERS);
        self.kernels["batch_best"].launch(search, (&self.logits, &mut self.best))
    }

    /// Of each part that asked for logits in the last step the likeliest token; nothing where a logit is NaN. Waits for the step.
    ///
    /// # Errors
    /// [`Error::Driver`].
    pub fn likeliest(&self) -> Result<Vec<Option<u32>>> {
        let best = self.best.to_host()?;
        Ok(best[..self.asked].iter().map(|&token| u32::try_from(token).ok()).collect())
    }

    /// The logits of the `part`-th part that asked for some in the last step, one for each token of the vocabulary. Waits for the step.
    ///
    /// # Errors
    /// [`Error::Invalid`] when fewer parts asked; [`Error::Driver`].
    pub fn logits(&mut self, part: usize) -> Result<Vec<f32>> {
        if part >= self.asked {
            let what = format!("logits of part {part}, and {} asked for some", self.asked);
            return Err(Error::invalid(what, "set `samples` for the parts whose logits you need"));
        }
        let blocks = self.config.vocabulary.div_ceil(THREADS as usize) as u32;
        self.kernels["batch_row"]
            .launch(LaunchConfig::new(blocks, THREADS), (&self.logits, part as i32, &mut self.one))?;
        self.one.to_host()
    }

    fn multiply_qkv(&mut self, layer: usize, rows: usize) -> Result<()> {
        let sides = sides(rows, self.config.shape(Matrix::Qkv));
        let into = Into::Bf16(&mut self.qkv, 0);
        multiply(&mut self.products, sides, &self.normed, &self.layers[layer].qkv, into)
    }

    fn multiply_out(&mut self, layer: usize, rows: usize) -> Result<()> {
        let sides = sides(rows, self.config.shape(Matrix::Out));
        let into = Into::F32 { to: &mut self.x, at: 0, adds: true };
        multiply(&mut self.products, sides, &self.attended, &self.layers[layer].out, into)
    }

    fn multiply_up(&mut self, layer: usize, rows: usize) -> Result<()> {
        let [inner, width] = self.config.shape(Matrix::Up);
        let into = Into::Bf16(&mut self.both, 0);
        multiply(&mut self.products, sides(rows, [2 * inner, width]), &self.normed, &self.layers[layer].up, into)
    }

    fn multiply_down(&mut self, layer: usize, rows: usize) -> Result<()> {
        let sides = sides(rows, self.config.shape(Matrix::Down));
        let into = Into::F32 { to: &mut self.x, at: 0, adds: true };
        multiply(&mut self.products, sides, &self.units, &self.layers[layer].down, into)
    }

    fn multiply_table(&mut self, rows: usize) -> Result<()> {
        let sides = sides(rows, self.config.shape(Matrix::Table));
        let into = Into::F32 { to: &mut self.logits, at: 0, adds: false };
        multiply(&mut self.products, sides, &self.normed, &self.table, into)
    }

    /// What the kernels need to know of a step.
    fn planned(&self, parts: &[TextPart<'_>]) -> Result<Plan> {
        let BatchLimits { rows: most, texts, blocks, block_size } = self.limits;
        let refuse = |what: String, fix: &str| Err(Error::invalid(what, fix));
        let lists = Lists::of(self.limits);
        let mut numbers = vec![0_i32; self.plan.len()];
        let mut work = Shape::default();
        let mut put = |at: usize, number: usize| numbers[at] = number as i32;
        // The first of the tables is of the block that is in no text.
        put(lists.tables, blocks);
        let mut at = 1;
        if parts.len() > texts {
            let what = format!("a step of {} texts, and the engine was made for {texts}", parts.len());
            return refuse(what, "make the step smaller, or the engine larger");
        }
        let tile = TILE_ROWS / (self.config.heads / self.config.kv_heads);
        for part in parts {
            let end = part.first + part.tokens.len();
            let held = part.blocks.len() * block_size;
            let unknown = part.blocks.iter().any(|block| *block as usize >= blocks);
            if part.tokens.is_empty() || unknown || end > held || end > self.config.context {
                return refuse(
                    format!(
                        "{} tokens at position {} of a text do not fit into its {} blocks of {block_size} tokens, or into the context of {}",
                        part.tokens.len(),
                        part.first,
                        part.blocks.len(),
                        self.config.context
                    ),
                    "give at least one token, and blocks of the pool for all positions",
                );
            }
            if let Some(token) = part.tokens.iter().find(|token| **token as usize >= self.config.vocabulary) {
                let what = format!("the token {token}, and the vocabulary ends at {}", self.config.vocabulary - 1);
                return refuse(what, "use the tokenizer that belongs to the model");
            }
            let used = &part.blocks[..end.div_ceil(block_size)];
            if work.rows + part.tokens.len() > most {
                let what = format!("a step of more than {most} tokens");
                return refuse(what, "make the step smaller, or the engine larger");
            }
            if part.tokens.len() > 1 {
                for first in (0..part.tokens.len()).step_by(tile) {
                    put(lists.tiles + work.tiles, work.rows + first);
                    put(lists.tiles + lists.stride + work.tiles, tile.min(part.tokens.len() - first));
                    work.tiles += 1;
                }
            } else {
                put(lists.own + work.own, work.rows);
                work.own += 1;
            }
            for (i, token) in part.tokens.iter().enumerate() {
                let position = part.first + i;
                let slot = part.blocks[position / block_size] as usize * block_size + position % block_size;
                for (list, number) in [0, lists.positions, lists.slots, lists.texts].into_iter().zip([
                    *token as usize,
                    position,
                    slot,
                    at,
                ]) {
                    put(list + work.rows, number);
                }
                work.rows += 1;
            }
            if part.samples {
                put(lists.asked + work.asked, work.rows - 1);
                work.asked += 1;
            }
            used.iter().enumerate().for_each(|(i, block)| put(lists.tables + at + i, *block as usize));
            at += used.len();
        }
        if work.rows == 0 {
            return refuse("a step without a text".to_string(), "give at least one part");
        }
        let asked = work.asked;
        let alike = [work.own, work.asked] == [work.rows; 2];
        if !alike && work.rows > MOST_GRAPH_ROWS {
            return Ok(Plan { numbers, asked, shape: work, graph_after: None });
        }
        // Few shapes, so that steps share graphs. Rows that only fill one up read token 0, keep no keys, and nobody looks at what they give.
        let filled_texts = padded(parts.len(), most.min(texts));
        let filled = |count: usize, to: usize| if count == 0 { 0 } else { to };
        let shape = Shape {
            rows: if alike { filled_texts } else { padded(work.rows, most) },
            own: filled(work.own, filled_texts),
            tiles: work.tiles.next_multiple_of(FILLED_TILES).min(most),
            asked: filled(work.asked, filled_texts),
        };
        numbers[lists.slots + work.rows..lists.slots + shape.rows].fill(-1);
        // The row behind the last one, at position 0 of no text.
        numbers[lists.own + work.own..lists.own + shape.own].fill(most as i32);
        numbers[lists.tiles + work.tiles..lists.tiles + shape.tiles].fill(most as i32);
        Ok(Plan { numbers, asked, shape, graph_after: Some(if alike { 1 } else { OFTEN }) })
    }
}

impl Work for BatchEngine {
    type Shape = Shape;
    type Graph = Graph;

    fn capture(&mut self, shape: Shape) -> Result<Graph> {
        let gpu = self.gpu.clone();
        gpu.capture(|| self.queue_kernels(shape))
    }

    fn launch(&mut self, graph: &mut Graph) -> Result<()> {
        graph.launch()
    }

    fn queue(&mut self, shape: Shape) -> Result<()> {
        self.queue_kernels(shape)
    }
}

/// How much a step has of what the plan lists: rows, of them those with an attention of their own, tiles, rows that logits are asked of.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash)]
pub(super) struct Shape {
    rows: usize,
    own: usize,
    tiles: usize,
    asked: usize,
}

/// Where the lists of a plan begin; the tokens come first.
struct Lists {
    /// From one list of a number for each row to the next.
    stride: usize,
    positions: usize,
    slots: usize,
    /// Where the blocks of a row's text begin in `tables`.
    texts: usize,
    own: usize,
    /// Their first rows, then how many tokens each has.
    tiles: usize,
    asked: usize,
    tables: usize,
}

impl Lists {
    fn of(limits: BatchLimits) -> Lists {
        // One more than there are rows: for the row of no token.
        let stride = limits.rows + 1;
        let at = |list: usize| list * stride;
        let asked = at(7);
        let tables = asked + limits.texts;
        Lists { stride, positions: at(1), slots: at(2), texts: at(3), own: at(4), tiles: at(5), asked, tables }
    }
}

struct Plan {
    numbers: Vec<i32>,
    shape: Shape,
    /// From which step of that shape on it is a graph: the first, the second, …; nothing where it never is one.
    graph_after: Option<u32>,
    /// Logits that the caller asked for.
    asked: usize,
}

/// rows × inputs times a matrix of `[outputs, inputs]`.
fn sides(rows: usize, [outputs, inputs]: [usize; 2]) -> Sides {
    Sides { rows, columns: outputs, terms: inputs, a_transposed: false, b_transposed: true }
}

fn multiply(products: &mut Products, sides: Sides, a: &Buffer<u16>, b: &Buffer<u16>, into: Into<'_>) -> Result<()> {
    products.multiply(sides, (a, 0), (b, 0), into, LtEpilogue::None, LtExtra::default())
}

#[cfg(test)]
mod tests {
    use super::super::RandomWeights;
    use super::*;

    #[test]
    fn steps_of_answers_and_parts_of_prompts_have_few_shapes() {
        let gpu = Gpu::simulated().unwrap();
        let config =
            EngineConfig { layers: 1, width: 64, inner: 64, vocabulary: 50, context: 512, ..EngineConfig::LLAMA_1B };
        let config = EngineConfig { heads: 4, kv_heads: 1, head: 16, ..config };
        let limits = BatchLimits { rows: 1024, texts: 64, blocks: 512, block_size: 16 };
        let engine = BatchEngine::new(&gpu, &config, &RandomWeights { config, seed: 1 }, limits).unwrap();
        let (tokens, blocks) = (vec![3_u32; 512], (0..32).collect::<Vec<u32>>());
        let plan = |answers: usize, prompts: &[usize]| {
            let part = |first, count, samples| TextPart { tokens: &tokens[..count], first, blocks: &blocks, samples };
            let answers = (0..answers).map(|text| part(100 + text, 1, true));
            let parts: Vec<TextPart<'_>> = answers.chain(prompts.iter().map(|count| part(0, *count, false))).collect();
            engine.planned(&parts).unwrap()
        };
        let shapes: std::collections::HashSet<Shape> = (56..=62)
            .flat_map(|answers| {
                [vec![256 - answers], vec![100, 156 - answers], vec![200]].map(|prompts| plan(answers, &prompts).shape)
            })
            .collect();
        assert!(shapes.len() <= 2, "{shapes:?}");
        let one = plan(60, &[196]);
        assert_eq!((one.shape, one.graph_after), (Shape { rows: 256, own: 64, tiles: 16, asked: 64 }, Some(OFTEN)));
        // What fills it up reads the row of no token; what is asked for is as much as before.
        let lists = Lists::of(limits);
        assert_eq!(one.numbers[lists.own + 60..lists.own + 64], [1024; 4]);
        assert_eq!((one.numbers[lists.positions + 1024], one.numbers[lists.texts + 1024], one.asked), (0, 0, 60));
        // A prompt alone asks for no logits; one of many rows is no graph; answers alone are one at once.
        assert_eq!(plan(0, &[200]).shape, Shape { rows: 224, own: 0, tiles: 16, asked: 0 });
        assert_eq!(plan(0, &[500, 100]).graph_after, None);
        let alone = plan(61, &[]);
        assert_eq!((alone.shape, alone.graph_after), (Shape { rows: 64, own: 64, tiles: 0, asked: 64 }, Some(1)));
    }
}
