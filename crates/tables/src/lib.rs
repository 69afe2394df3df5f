//! Tables as columns: one pipeline (filter, normalise, group, join) in polars on the CPU's cores and in our own kernels
//! on the GPU.
//!
//! | you have | you call |
//! | --- | --- |
//! | nothing yet | [`rides`], [`drivers`]: made up from a seed, and wrong in a share of their rows as real ones are |
//! | columns | [`write_csv`] |
//! | columns, and a CPU | [`OnCpu`]: polars, on all cores; [`OnCpu::from_frame`] takes polars' own table, [`OnCpu::joined`] hands it out |
//! | columns, and a CPU without a library | [`OnCores`]: loops on all cores, with the kernels' algorithms |
//! | columns, and a GPU | [`OnGpu`]: the kernels of `kernels/table/`; also on a simulated GPU |
//! | results of both | [`PipelineResult::differs`] |
//! | the question what is fast | [`cpu_times`], [`core_times`], [`gpu_times`], [`read_times`], [`transfer_times`]: rows to plot |

mod on_cores;
mod on_cpu;
mod on_gpu;
mod pipeline;
mod rides;
mod times;

pub use on_cores::OnCores;
pub use on_cpu::OnCpu;
pub use on_gpu::OnGpu;
pub use pipeline::{Joined, Moments, PipelineResult, RideLimits, Stage, Zone, plain};
pub use rides::{Drivers, Rides, drivers, rides, write_csv};
pub use times::{core_times, cpu_times, gpu_times, read_times, transfer_times};

/// The tables of [`OnCpu`], and all that polars does with them.
pub use polars;
