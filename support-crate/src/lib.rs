//! gpulab: a GPU to launch on, times to trust and plots to look at, for every notebook of the course.
//!
//! A notebook's first cell loads this crate and `use`s the [`prelude`]. Where things live:
//!
//! | room | what it holds |
//! | --- | --- |
//! | [`error`] | the one error type; each message ends with the next step |
//! | [`mod@bench`] | how often to run something so that its time can be trusted |
//! | [`cpu`] | honest CPU baselines, their times, and what this CPU is |
//! | [`launch`] | what a launch takes: shapes, argument types, source |
//! | [`gpu`] | open a GPU, allocate, copy, launch, copy back, time |
//! | [`cuda`], [`metal`], [`sim`] | the kinds of GPU behind it; the last is simulated |
//! | [`device`] | one program for CPU and GPU, and the mistakes of two memories |
//! | [`model`] | a launch queue and a memory pool to practise on, on any machine |
//! | [`ladder`] | the course's own kernels |
//! | [`lesson`] | what a notebook holds on to: live where there is a GPU, else recorded |
//! | [`demo`] | what must not happen in the notebook's own process |
//! | [`check`] | the exercises' checks |
//! | `data` (feature `candle`) | images to train on: MNIST's files, or generated digits |
//! | [`machine`] | what this machine has, and how to add what is missing |
//! | [`measurement`] | plain data: a figure, its spread, its machine |
//! | [`inspect`] | what the simulator saw of a launch, as plain data, tables and pictures |
//! | [`code`] | a kernel's source and what changed between two, as listings in colour |
//! | [`plot`] | charts that show themselves as the last line of a cell |
//! | [`profile`] | what ran when and why it took so long: traces, and what the profilers print |
//! | [`topics`] | what several notebooks do with the course's kernels, ready to time |
//! | `nn` (feature `candle`) | deep learning: models on candle, and on the course's own kernels |
//! | `export` (feature `export`) | models as ONNX files, written and read |
//! | `arrays` (feature `arrays`) | tables as columns: polars on the CPU, our own kernels on the GPU |
//! | `runtime` (feature `ort`) | an ONNX file run by ONNX Runtime: CPU, CUDA, TensorRT, CoreML |
//! | [`results`] | rows appended to `metrics.csv`, and the recorded runs |

#[cfg(feature = "arrays")]
pub mod arrays;
pub mod bench;
pub mod check;
pub mod code;
mod command;
pub mod cpu;
pub mod cuda;
#[cfg(feature = "candle")]
pub mod data;
pub mod demo;
pub mod device;
pub mod error;
#[cfg(feature = "export")]
pub mod export;
pub mod gpu;
mod html;
pub mod inspect;
pub mod ladder;
pub mod launch;
pub mod lesson;
pub mod machine;
pub mod measurement;
pub mod metal;
pub mod model;
#[cfg(feature = "candle")]
pub mod nn;
pub mod plot;
pub mod profile;
pub mod results;
#[cfg(feature = "ort")]
pub mod runtime;
pub mod sim;
mod table;
pub mod topics;

/// The crate behind every NVIDIA GPU here: a type of ours gives its own and takes it back.
pub use cudarc;
pub use error::{Error, Result};

/// The Rust of the quick reference, compiled and run as it stands on the page.
#[cfg(all(doctest, not(target_os = "macos")))] // its kernel is compiled, and there is no NVRTC for macOS
#[doc = include_str!("../../docs/quick-reference.md")]
mod quick_reference {}

/// What a notebook's first cell brings in.
pub mod prelude {
    pub use crate::bench::Bench;
    pub use crate::cpu::{AttentionMask, AttentionShape};
    pub use crate::device::{Device, Vector};
    pub use crate::error::{Error, Result, bytes};
    #[cfg(feature = "export")]
    pub use crate::export;
    pub use crate::gpu::{
        Buffer, Cublas, Event, Gpu, Graph, Kernel, KernelResources, Module, Pinned, Stream, TensorMap,
    };
    pub use crate::inspect::{Inspection, RungCounters};
    pub use crate::launch::{KernelParam, LaunchAttributes, LaunchConfig, Source};
    pub use crate::lesson::Lesson;
    pub use crate::measurement::{Backend, Measurement, MemoryPoint, MemoryStats, Resources, Span, Summary, figures};
    pub use crate::model::{Pool, PoolBuffer, Queue, Work};
    #[cfg(feature = "ort")]
    pub use crate::runtime::{self, OnnxModel, OnnxTensor, Provider, TensorRt};
    pub use crate::topics::{
        Angles, Attention, AttentionStep, AttentionWork, Embedding, FlashAttention, Ladder, LadderRun, Matmul,
        MatmulBf16, Norm, NormInputs, Reduction, ResidualNorm, Rope, Shape, Size, Softmax, VectorAdd,
    };
    pub use crate::{check, cpu, kernel_param, ladder, machine, plot, profile};
    #[cfg(feature = "candle")]
    pub use crate::{data, nn};
}
