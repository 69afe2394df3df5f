//! What single lessons need: exercise checks, practice models, and what this machine has.
//!
//! | module | what it holds |
//! | --- | --- |
//! | [`capstone`] | lesson 90's table, its report page and its points |
//! | [`check`] | the exercises' checks |
//! | [`contest`] | the contest of a class: entries judged on secret inputs, and ranked by counters |
//! | [`practice`] | a launch queue and a memory pool to practise on, on any machine |
//! | [`device`] | one program for CPU and GPU, and the mistakes of two memories |
//! | [`machine`] | what this machine has, and how to add what is missing |
//! | [`report`] | `results/metrics.csv` summarised: CPU against GPU, by experiment |

pub mod capstone;
pub mod check;
pub mod contest;
pub mod device;
pub mod machine;
pub mod practice;
pub mod report;

pub use device::{ComputeDevice, DeviceVector};
pub use practice::{PracticeBuffer, PracticeKernel, PracticePool, PracticeQueue};
pub use report::SpeedReport;
