//! The ladders: the course's kernels, one idea a file, and the launcher of each topic.
//!
//! | module | what it holds |
//! | --- | --- |
//! | [`ladder`] | which file, which entry point, which constants: the table of rungs and operators |
//! | [`topics`] | a type for each topic that compiles a rung, checks it at awkward sizes and launches it |
//! | [`ladders`] | all topics under one name: their rungs, files, counters and resources |
//! | [`run`] | a ladder's rungs and their peers, checked and timed alternately on the same arrays |
//! | [`counters`] | what the simulator counts of each rung, side by side |
//! | [`engine`] | a token of a language model at the speed of its memory |
//! | [`gpt_step`] | a training step of GPT-2 |
//! | [`lora_step`] | a training step of a Llama's adapters, beside frozen weights in bf16 or four bits |
//! | [`sparse`] | how sparse matrices lie in memory: CSR, blocks, 2:4 |
//! | [`code`] | a kernel's source, and what changed between two, as listings in colour |
//!
//! The kernels themselves lie beside `src`, a folder a topic: `reduction/07_grid_stride.cu`.

pub mod code;
pub mod counters;
pub mod engine;
pub mod gpt_step;
pub mod ladder;
pub mod ladders;
pub mod lora_step;
mod picture;
mod products;
pub mod run;
pub mod sparse;
pub mod tiles;
pub mod topics;

pub use counters::{RungCount, RungCounters};
pub use ladders::Ladder;
pub use picture::bf16_peak;
pub use run::LadderRun;
pub use topics::{
    Attention, AttentionStep, AttentionWork, BlockSparse, Codes, Embedding, FlashAttention, FlashBackward, Matmul,
    MatmulBf16, Norm, NormInputs, QuantizedGemv, QuantizedMatmul, Reduction, ResidualNorm, Rope, Shape, Size, Softmax,
    Spmm, Spmv, TwoFourProduct, VectorAdd,
};
