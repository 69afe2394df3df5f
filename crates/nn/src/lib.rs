//! Deep learning: models on candle, and the same models on the course's own kernels.
//!
//! The notebooks load this crate by their `:dep` line, and are the same file on every machine: with CUDA or Metal candle
//! is built for it by the set-up, in one place (`env/kernel_cache/candle.py`).

mod attention;
mod buffers;
mod cached;
pub mod cnn;
pub mod data;
mod device;
mod flash;
pub mod gpt;
pub mod llama;
pub mod lora;
pub mod memory;
mod operator;
mod paged;
pub mod quantize;
mod tensor_id;
pub mod tensors;

pub use attention::CandleAttention;
pub use buffers::{KernelOp, TensorBuffer, TensorElement, as_buffer, gpu_of, into_tensor, stream_of};
pub use candle_core::{DType, Device, Tensor};
pub use cnn::StepClock;
pub use device::DeviceKind;
pub use flash::{FlashOp, plain_attention};
pub use gpulab::gpu::Gpu;
/// The decode engine, which takes a GPT-2's [`gpt::Weights`].
pub use gpulab_kernels::engine;
pub use gpulab_kernels::engine::TextPart;
pub use paged::PagedCache;
pub use tensor_id::{reserve_tensor_ids, with_new_id};
/// Hugging Face's tokenizers, for cells that train one.
pub use tokenizers;
/// candle itself, which this crate stands on.
pub use {candle_core, candle_nn};

use gpulab::lesson::Lesson;
use gpulab::measurement::Measurement;

/// Measures in a lesson where candle computes, always live: the rows carry the CPU's name, or the GPU's.
///
/// # Errors
/// What `work` returns.
pub fn measure_at(
    lesson: &Lesson,
    kind: DeviceKind,
    experiment: &str,
    work: impl FnOnce() -> gpulab::Result<Vec<Measurement>>,
) -> gpulab::Result<Vec<Measurement>> {
    let machine = match kind {
        DeviceKind::Cpu => lesson.cpu_name(),
        _ => lesson.gpu().map_or(kind.name(), |gpu| gpu.name()),
    };
    Ok(lesson.store(experiment, machine, work()?))
}
