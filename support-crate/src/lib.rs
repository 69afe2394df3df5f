//! gpulab: a GPU to launch on, times to trust and plots to look at, for every notebook of the course.
//!
//! A notebook's first cell loads this crate and `use`s the [`prelude`]. Where things live:
//!
//! | module | what it holds |
//! | --- | --- |
//! | [`gpu`] | open a GPU, allocate, copy, launch, copy back, time |
//! | [`launch`] | what a launch takes: shapes, argument types, source |
//! | [`cuda`], [`metal`], [`sim`] | the kinds of GPU behind it; the last is simulated by [`warpsim`] |
//! | [`mod@rust`] | kernels in Rust: rustc to PTX |
//! | [`lesson`] | what a notebook holds on to: live where there is a GPU, else recorded |
//! | [`places`] | where libraries and programs lie |
//! | [`inspect`] | what the simulator saw of a launch, as tables and pictures |
//! | [`cpu`] | honest CPU baselines, and their times |
//! | [`measurement`], [`mod@bench`], [`results`], [`plot`] | figures as plain data, their rows in `metrics.csv`, and charts |
//! | [`error`] | the one error type; each message ends with the next step |

pub mod cuda;
pub mod gpu;
pub mod launch;
pub mod lesson;
pub mod metal;
pub mod places;
pub mod rust;
pub mod sim;

/// The crate behind every NVIDIA GPU here: a type of ours gives its own and takes it back.
pub use cudarc;
pub use gpulab_cpu as cpu;
pub use gpulab_inspect as inspect;
pub use gpulab_measure::{Error, Result, show_as_text};
pub use gpulab_measure::{bench, command, error, html, measurement, plot, repository, results, table, talk};
pub use warpsim;

/// What a notebook's first cell brings in.
pub mod prelude {
    pub use crate::bench::Bench;
    pub use crate::cpu;
    pub use crate::error::{Error, Result, bytes};
    pub use crate::gpu::{
        Buffer, Cublas, Event, Gpu, Graph, Kernel, KernelResources, Module, Pinned, Stream, TensorMap,
    };
    pub use crate::inspect::Inspection;
    pub use crate::kernel_param;
    pub use crate::launch::{KernelParam, LaunchAttributes, LaunchConfig, Source};
    pub use crate::lesson::Lesson;
    pub use crate::measurement::{
        Backend, Measurement, MemoryPoint, MemoryStats, Resources, Rows, Span, Summary, figures, predicted,
    };
    pub use crate::plot;
}
