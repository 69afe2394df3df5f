//! Tables as columns: one pipeline (filter, normalise, group, join) in polars on the CPU's cores and in our own kernels
//! on the GPU. Feature `arrays`.
//!
//! | you have | you call |
//! | --- | --- |
//! | nothing yet | [`rides`], [`drivers`]: made up from a seed, and wrong in a share of their rows as real ones are |
//! | columns | [`write_csv`], [`read_csv`] |
//! | columns, and a CPU | [`OnCpu`]: polars, on all cores |
//! | columns, and a GPU | [`OnGpu`]: the kernels of `kernels/table/`; also on a simulated GPU |
//! | results of both | [`Outcome::differs`] |
//! | the question what is fast | [`cpu_times`], [`gpu_times`], [`read_times`], [`transfer_times`]: rows to plot |
//! | rows in `metrics.csv` | [`report()`]: CPU against GPU, by experiment |

mod csv;
mod data;
mod on_cpu;
mod on_gpu;
mod outcome;
mod plain;
pub mod report;
mod times;

pub use csv::{read_csv, write_csv};
pub use data::{Drivers, Rides, drivers, rides};
pub use on_cpu::OnCpu;
pub use on_gpu::OnGpu;
pub use outcome::{Joined, Moments, Outcome, Zone};
pub use plain::plain;
pub use report::{Report, report};
pub use times::{cpu_times, gpu_times, read_times, transfer_times};

use gpulab::error::{Error, Result};
use gpulab_kernels::ladder::{Operator, operator};

/// One step of the pipeline behind the reading.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stage {
    /// Rides that cannot be true go.
    Filter,
    /// Metres, seconds and cents get mean 0 and standard deviation 1.
    Normalise,
    /// Rides, cents and metres of each zone.
    Group,
    /// Each ride gets the year of its driver's car; rides without a known driver go.
    Join,
}

impl Stage {
    /// All stages, in the order in which they run.
    pub const ALL: [Stage; 4] = [Stage::Filter, Stage::Normalise, Stage::Group, Stage::Join];

    /// Its word in measurements.
    pub fn name(self) -> &'static str {
        match self {
            Stage::Filter => "filter",
            Stage::Normalise => "normalise",
            Stage::Group => "group",
            Stage::Join => "join",
        }
    }
}

/// What is believed of a ride: the kernels' own constants, so that CPU and GPU cannot disagree.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// Zones are numbered from 1 to one less than this.
    pub zones: u32,
    /// Shortest and longest way, in metres.
    pub metres: (u32, u32),
    /// Shortest and longest time, in seconds.
    pub seconds: (u32, u32),
    /// Lowest and highest fare, in cents.
    pub cents: (u32, u32),
    /// The fastest, in metres a second.
    pub metres_a_second: u32,
}

impl Limits {
    /// Those of `kernels/table/keep.cu`.
    ///
    /// # Errors
    /// None that a reader can cause: the test `ladder` holds table and folder equal.
    pub fn of_the_course() -> Result<Limits> {
        let keep: Operator = operator("table/keep")?;
        let pair = |name: &str| (keep.constant(&format!("MIN_{name}")), keep.constant(&format!("MAX_{name}")));
        Ok(Limits {
            zones: keep.constant("ZONES"),
            metres: pair("METRES"),
            seconds: pair("SECONDS"),
            cents: pair("CENTS"),
            metres_a_second: keep.constant("MAX_METRES_A_SECOND"),
        })
    }
}

/// What polars says, with what to do next.
fn polars_error(during: &str, error: &polars::error::PolarsError) -> Error {
    Error::Invalid {
        what: format!("polars, at {during}: {error}"),
        fix: "see that the columns have the names and the lengths of `Rides` and `Drivers`".to_string(),
    }
}
