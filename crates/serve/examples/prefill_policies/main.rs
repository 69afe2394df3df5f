//! What steps that read parts of prompts beside answers should take on an H200, and which policy the simulator prefers.
//!
//! `cargo run --release -p gpulab-serve --example prefill_policies` writes the tables of docs/serving.md, from the recorded rows of
//! results/h200 (batch_engine.csv, serving.csv; what was recorded after the prediction in 2026-11-28). No GPU is needed. A test compares
//! the page with what is computed.
//!
//! - *by bytes*, *by operations*: all bytes of a step at the rate of a copy, all operations at that of a large product. A step cannot take
//!   less than the longer of the two.
//! - *kernel by kernel*: each product takes the longer of its weights and its operations, and attention to the cache comes on top, as long as kernels follow one another.
//! - *by recorded steps*: `RooflineCost` with constants that give the recorded steps of single tokens, and of one and of four prompts of 512.

mod table;

use gpulab_serve::{Error, Result};
use std::path::Path;

const BEGIN: &str = "<!-- written by prefill_policies -->\n\n";
const END: &str = "\n<!-- end -->";

fn main() -> Result<()> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let (page, tables) = (root.join("docs/serving.md"), table::tables(&root.join("results/h200"))?);
    let fix = "run this in the repository";
    let text = std::fs::read_to_string(&page).map_err(Error::io(&page, "read", fix))?;
    let Some((before, rest)) = text.split_once(BEGIN) else {
        return Err(Error::invalid(format!("{} has no line {}", page.display(), BEGIN.trim()), fix));
    };
    let Some((_, after)) = rest.split_once(END) else {
        return Err(Error::invalid(format!("{} has no line {}", page.display(), END.trim()), fix));
    };
    std::fs::write(&page, format!("{before}{BEGIN}{tables}{END}{after}")).map_err(Error::io(&page, "write", fix))?;
    println!("{tables}");
    Ok(())
}
