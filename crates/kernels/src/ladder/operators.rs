//! Kernels that are no rungs: operators of a larger whole, such as the stages of a pipeline, in flat folders.
//!
//! A rung is one of several ways to do the same; an operator is one of several things that are done one after the other.
//! So their files have no number and no line `// changed:`, and who launches them says how.

use super::Rung;
use crate::code::Listing;
use gpulab::error::{Error, Result};
use gpulab::gpu::{Gpu, Kernel};
use gpulab::launch::Source;
use std::collections::HashMap;

/// One file of operators: any number of kernels that belong together.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Operator {
    /// Path below `crates/kernels`, without `.cu`.
    pub path: &'static str,
    /// The `extern "C"` names of its kernels.
    pub kernels: &'static [&'static str],
    /// Constants that the source needs.
    pub defines: &'static [(&'static str, u32)],
    /// The compute capability that it needs, such as (8, 0).
    pub needs: (u32, u32),
    /// It uses instructions that GPUs of just that compute capability have (`wgmma` on Hopper).
    pub only: bool,
}

/// For GPUs from Ampere on, and for Hopper.
const AMPERE: Operator = Operator { needs: (8, 0), ..Operator::PLAIN };
const HOPPER: Operator = Operator { needs: (9, 0), ..Operator::PLAIN };

/// Attention as a chain of kernels; a block of both products computes TILE × TILE numbers.
const PRODUCT: Operator = Operator { defines: &[("TILE", 64), ("DEPTH", 16)], ..Operator::PLAIN };

/// The same in bf16 on tensor cores; the constants are the best of those tried on an H200.
const PRODUCT_BF16: Operator = Operator { defines: &[("TILE", 128), ("DEPTH", 64), ("THREADS", 128)], ..AMPERE };

/// A row of scores per block.
const SCORES_ROW: Operator = Operator { defines: &[("THREADS", 256)], ..Operator::PLAIN };

/// The CNN's step in TF32; the engine compiles it in other precisions too.
const CNN: Operator = Operator { defines: &[("PRECISION", 1)], ..AMPERE };

/// Zones of `table/`: numbers 1 to 265, as the taxi zones of New York.
const ZONES: u32 = 266;
/// The longest way that `table/keep` believes; `table/group` counts on it.
const MAX_METRES: u32 = 100_000;
/// Warps per block of what works warp by warp, and what a thread has in flight.
const BY_WARPS: &[(&str, u32)] = &[("WARPS", 8), ("BATCH", 8)];

/// Of `engine/`, for Llama 3.2 with 1.2 billion parameters in bf16.
const ENGINE: &[(&str, u32)] = &[
    ("LLAMA", 1),
    ("BITS", 16),
    ("WIDTH", 2048),
    ("HEADS", 32),
    ("KV_HEADS", 8),
    ("HEAD", 64),
    ("INNER", 8192),
    ("VOCABULARY", 128_256),
    ("THREADS", 256),
    ("SLOT_STEPS", 16),
    ("SPLITS", 4),
    ("HEADS_EACH", 4),
    ("CLUSTER", 1),
    ("MERGED", 0),
    ("OWN_CODE", 1),
    ("CLOCKS", 0),
    ("WITHOUT", 0),
];

/// All operators of the course. The test `ladder` holds this table and the folders equal.
pub const OPERATORS: &[Operator] = &[
    Operator { path: "attention/heads", kernels: &["split_heads", "merge_heads"], ..Operator::PLAIN },
    Operator { path: "attention/mask", kernels: &["mask"], ..Operator::PLAIN },
    Operator { path: "attention/masked_softmax", kernels: &["masked_softmax"], ..SCORES_ROW },
    Operator { path: "attention/scale", kernels: &["scale"], defines: &[("EACH", 4)], ..Operator::PLAIN },
    Operator { path: "attention/scores", kernels: &["scores"], ..PRODUCT },
    Operator { path: "attention/scores_bf16", kernels: &["scores"], ..PRODUCT_BF16 },
    Operator { path: "attention/softmax", kernels: &["softmax_rows"], ..SCORES_ROW },
    Operator { path: "attention/weighted_sum", kernels: &["weighted_sum"], ..PRODUCT },
    Operator { path: "attention/weighted_sum_bf16", kernels: &["weighted_sum"], ..PRODUCT_BF16 },
    Operator { path: "cnn/conv_backward", kernels: &["conv_backward"], ..CNN },
    Operator { path: "cnn/fc1", kernels: &["fc1"], ..CNN },
    Operator { path: "cnn/fc_backward", kernels: &["fc_backward"], ..CNN },
    Operator { path: "cnn/features", kernels: &["features"], ..CNN },
    Operator { path: "cnn/head", kernels: &["head", "tally"], defines: &[], ..CNN },
    Operator { path: "cnn/update", kernels: &["update", "pack_all"], ..CNN },
    // `engine` puts in the constants of its model.
    Operator {
        path: "engine/batch",
        kernels: &["batch_embed", "batch_norm", "batch_rope", "batch_swiglu", "batch_best", "batch_row"],
        defines: &[
            ("WIDTH", 2048),
            ("HEADS", 32),
            ("KV_HEADS", 8),
            ("HEAD", 64),
            ("INNER", 8192),
            ("VOCABULARY", 128_256),
            ("BLOCK", 16),
            ("THREADS", 256),
        ],
        ..AMPERE
    },
    Operator {
        path: "engine/attend",
        kernels: &["prompt_attend", "token_attend", "attend_gather"],
        defines: &[("HEADS", 32), ("KV_HEADS", 8), ("HEAD", 64), ("BLOCK", 16)],
        ..AMPERE
    },
    Operator { path: "engine/embed", kernels: &["embed"], defines: ENGINE, ..HOPPER },
    Operator {
        path: "engine/operators",
        kernels: &["norm_row", "matrix", "keep", "gather", "add", "activate"],
        defines: ENGINE,
        ..HOPPER
    },
    Operator { path: "engine/phases", kernels: &["phase"], defines: ENGINE, ..HOPPER },
    Operator { path: "engine/persistent", kernels: &["persistent"], defines: ENGINE, ..HOPPER },
    Operator {
        path: "flash_backward/ends",
        kernels: &["prepare", "prepare_sums", "round_dq"],
        defines: &[("HEAD", 128), ("THREADS", 256)],
        ..AMPERE
    },
    // `FlashBackward::forward` puts in the constants of that rung of `flash_attention`.
    Operator {
        path: "flash_backward/forward",
        kernels: &["flash_attention"],
        defines: &[("HEAD", 128), ("WARPS", 4), ("KEYS", 64), ("STAGES", 2)],
        ..AMPERE
    },
    Operator {
        path: "flash_backward/forward_hopper",
        kernels: &["flash_attention"],
        defines: &[("HEAD", 128), ("KEYS", 128), ("GROUPS", 2), ("STAGES", 2), ("REGISTERS", 240), ("SPARE", 24)],
        only: true,
        ..HOPPER
    },
    // `gpt_step` puts in the constants of its model; these are of GPT-2 with 124 million parameters.
    Operator {
        path: "gpt_step/attention",
        kernels: &["flash_attention"],
        defines: &[
            ("HEADS", 12),
            ("HEAD", 64),
            ("KEYS", 128),
            ("GROUPS", 3),
            ("STAGES", 2),
            ("REGISTERS", 160),
            ("SPARE", 32),
        ],
        only: true,
        ..HOPPER
    },
    Operator {
        path: "gpt_step/attention_backward",
        kernels: &["flash_backward", "prepare_sums", "round_dq"],
        defines: &[
            ("HEADS", 12),
            ("THREADS", 256),
            ("HEAD", 64),
            ("KEYS", 128),
            ("QUERIES", 128),
            ("STAGES", 2),
            ("REGISTERS", 240),
            ("SPARE", 24),
            ("ORDERED", 0),
        ],
        only: true,
        ..HOPPER
    },
    Operator {
        path: "gpt_step/columns",
        kernels: &["gelu", "gelu_backward", "column_sums", "add_parts", "add_bias", "add", "add_to"],
        defines: &[("THREADS", 256)],
        ..AMPERE
    },
    Operator {
        path: "gpt_step/embed_backward",
        kernels: &["embed_backward", "position_backward"],
        defines: &[("WIDTH", 768), ("THREADS", 256)],
        ..AMPERE
    },
    Operator {
        path: "gpt_step/loss",
        kernels: &["cross_entropy"],
        defines: &[("VOCABULARY", 50_257), ("COLUMNS", 50_304), ("THREADS", 512)],
        ..AMPERE
    },
    Operator {
        path: "gpt_step/norm",
        kernels: &["embed_norm", "norm_rows", "add_norm", "norm_backward"],
        defines: &[("WIDTH", 768), ("THREADS", 384)],
        ..AMPERE
    },
    Operator { path: "gpt_step/product", kernels: &["product_bf16", "product_f32"], ..AMPERE },
    Operator {
        path: "gpt_step/update",
        kernels: &["squares", "tally", "adamw"],
        defines: &[("THREADS", 256)],
        ..AMPERE
    },
    // `lora_step` puts in the constants of its model; these are of SmolLM2 with 135 million parameters.
    Operator {
        path: "lora_step/heads",
        kernels: &["lora_to_heads", "lora_from_heads", "lora_gather", "lora_scatter"],
        defines: &[("HEADS", 9), ("KV_HEADS", 3), ("WIDTH", 576), ("THREADS", 256)],
        ..AMPERE
    },
    Operator {
        path: "lora_step/norm",
        kernels: &["lora_embed", "lora_norm", "lora_norm_backward"],
        defines: &[("WIDTH", 576), ("THREADS", 256)],
        ..AMPERE
    },
    Operator {
        path: "lora_step/swiglu",
        kernels: &["lora_swiglu", "lora_swiglu_backward"],
        defines: &[("WIDTH", 1536), ("THREADS", 256)],
        ..AMPERE
    },
    Operator { path: "lora_step/unpack", kernels: &["lora_unpack"], defines: &[("THREADS", 256)], ..AMPERE },
    Operator {
        path: "lora_step/update",
        kernels: &["lora_squares", "lora_adamw"],
        defines: &[("THREADS", 256)],
        ..AMPERE
    },
    Operator {
        path: "table/compact",
        kernels: &["compact_u32", "compact_f32"],
        // 16 in flight took 5 % off the pipeline of lesson 15 on an H200; 32 no more than that.
        defines: &[("WARPS", 8), ("BATCH", 16)],
        ..Operator::PLAIN
    },
    Operator {
        path: "table/group",
        kernels: &["group"],
        defines: &[("ZONES", ZONES), ("THREADS", 512), ("MAX_METRES", MAX_METRES)],
        ..Operator::PLAIN
    },
    Operator { path: "table/join", kernels: &["build", "probe"], defines: BY_WARPS, ..Operator::PLAIN },
    Operator {
        path: "table/keep",
        kernels: &["keep"],
        defines: &[
            ("WARPS", 8),
            ("BATCH", 4),
            ("ZONES", ZONES),
            ("MIN_METRES", 100),
            ("MAX_METRES", MAX_METRES),
            ("MIN_SECONDS", 60),
            ("MAX_SECONDS", 3 * 3600),
            ("MIN_CENTS", 200),
            ("MAX_CENTS", 25_000),
            ("MAX_METRES_A_SECOND", 33),
        ],
        ..Operator::PLAIN
    },
    Operator {
        path: "table/normalise",
        kernels: &["moments", "scale"],
        defines: &[("THREADS", 256)],
        ..Operator::PLAIN
    },
    Operator { path: "table/scan", kernels: &["scan"], defines: &[("THREADS", 1024), ("ITEMS", 8)], ..Operator::PLAIN },
];

/// The operators of that path, such as `table/keep`.
///
/// # Errors
/// [`Error::Invalid`] with the paths that there are.
pub fn operator(path: &str) -> Result<Operator> {
    OPERATORS.iter().copied().find(|operator| operator.path == path).ok_or_else(|| Error::Invalid {
        what: format!("the course has no operators `{path}`"),
        fix: format!("use one of: {}", OPERATORS.iter().map(|known| known.path).collect::<Vec<_>>().join(", ")),
    })
}

/// Compiles the kernels of these files by name, all files at the same time; `value` gives the constants of a file, by its path and
/// their names.
///
/// # Errors
/// [`Error::Unsupported`] on a GPU that a file is not for; those of [`Gpu::compile`].
pub(crate) fn compile(
    gpu: &Gpu,
    paths: &[&str],
    value: impl Fn(&str, &str) -> usize + Sync,
) -> Result<HashMap<&'static str, Kernel>> {
    let capability = gpu.compute_capability()?;
    let one = |path: &str| -> Result<Vec<(&'static str, Kernel)>> {
        let operator = operator(path)?;
        operator.runs_on(capability)?;
        let own = super::file(&format!("{path}.cu"))?;
        let source = operator.defines.iter().fold(own, |source, (name, _)| source.define(name, value(path, name)));
        let module = gpu.compile(source)?;
        operator.kernels.iter().map(|name| Ok((*name, module.kernel(name)?))).collect()
    };
    let compiled: Vec<_> = std::thread::scope(|scope| {
        let one = &one;
        let threads: Vec<_> = paths.iter().map(|path| scope.spawn(move || one(path))).collect();
        threads.into_iter().map(|thread| thread.join().expect("no panic")).collect()
    });
    Ok(compiled.into_iter().collect::<Result<Vec<_>>>()?.into_iter().flatten().collect())
}

impl Operator {
    /// What most operators have in common: no constants, any GPU.
    pub const PLAIN: Operator = Operator { path: "", kernels: &[], defines: &[], needs: (7, 5), only: false };

    /// Its source in CUDA C, with its constants.
    ///
    /// # Errors
    /// [`Error::File`] when the file cannot be read.
    pub fn source(&self) -> Result<Source> {
        let source = super::file(&format!("{}.cu", self.path))?;
        Ok(self.defines.iter().fold(source, |source, (name, value)| source.define(name, value)))
    }

    /// Its file, to look at.
    ///
    /// # Errors
    /// [`Error::File`] when the file cannot be read.
    pub fn listing(&self) -> Result<Listing> {
        let source = self.source()?;
        Ok(Listing { name: format!("{}.cu", self.path), text: source.text, constants: source.defines })
    }

    /// The value of one of its constants, such as the threads of a block.
    ///
    /// # Panics
    /// Where it has no such constant: the mistake is the table's, or the caller's.
    pub fn constant(&self, name: &str) -> u32 {
        let found = self.defines.iter().find(|(known, _)| *known == name);
        found.unwrap_or_else(|| panic!("`{}` has no constant `{name}`\nnext: see ladder/operators.rs", self.path)).1
    }

    /// An error that names both, where a GPU of that compute capability does not run it.
    ///
    /// # Errors
    /// [`Error::Unsupported`].
    pub fn runs_on(&self, capability: (u32, u32)) -> Result<()> {
        let Operator { path, needs, only, .. } = *self;
        Rung { path, needs, only, ..super::PLAIN }.runs_on(capability)
    }
}
