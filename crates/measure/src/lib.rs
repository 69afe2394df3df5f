//! Measurements as plain data: the one error type, statistics, the rows of `metrics.csv`, and charts. Knows no device.
//!
//! | module | what it holds |
//! | --- | --- |
//! | [`error`] | the one error type of all crates; each message ends with the next step |
//! | [`mod@bench`] | how often to run something so that its time can be trusted |
//! | [`measurement`] | a figure, its spread, its machine |
//! | [`results`] | rows appended to `metrics.csv`, and the recorded runs |
//! | [`plot`] | charts that show themselves as the last line of a cell |
//! | [`cpu_info`] | what this CPU is: its name stands in every row that it measured |
//! | [`table`], [`html`] | figures and text as a piece of a page |
//! | [`command`] | asking other programs, without waiting for one that hangs |
//! | [`mod@talk`] | two processes that measure in turn |

pub mod bench;
pub mod command;
pub mod cpu_info;
pub mod error;
pub mod html;
pub mod measurement;
pub mod plot;
pub mod results;
pub mod table;
pub mod talk;

pub use error::{Error, Result};

/// The folder of the repository that this crate was built from.
pub fn repository() -> std::path::PathBuf {
    let crate_folder = std::path::Path::new(env!("CARGO_MANIFEST_DIR"));
    crate_folder.ancestors().nth(2).unwrap_or(crate_folder).to_path_buf()
}
