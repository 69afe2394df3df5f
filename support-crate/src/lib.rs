//! gpulab: a GPU to launch on, times to trust and plots to look at, for every notebook of the course.
//!
//! A notebook's first cell loads this crate and `use`s the [`prelude`]. Where things live:
//!
//! | room | what it holds |
//! | --- | --- |
//! | [`error`] | the one error type; each message ends with the next step |
//! | [`bench`] | how often to run something so that its time can be trusted |
//! | [`cpu`] | honest CPU baselines, their times, and what this CPU is |
//! | [`measurement`] | plain data: a figure, its spread, its machine |
//! | [`plot`] | charts that show themselves as the last line of a cell |
//! | [`results`] | rows appended to `metrics.csv`, and the recorded runs |

pub mod bench;
mod command;
pub mod cpu;
pub mod cuda;
pub mod device;
pub mod error;
pub mod gpu;
pub mod ladder;
pub mod launch;
pub mod measurement;
pub mod metal;
pub mod model;
pub mod plot;
pub mod results;

pub use error::{Error, Result};
