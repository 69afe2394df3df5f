//! The simulator in a page. The book's pages have experiments: a kernel of a lesson, sliders for its arguments, and a picture
//! of what the launch did, drawn anew whenever a slider moves. The kernel runs in the reader's browser, in warpsim compiled to
//! WebAssembly; the pictures are those of the notebooks.
//!
//! A page asks with JSON and gets JSON, see [`answer`]. `make book` compiles this crate for `wasm32-unknown-unknown`, where
//! `exports` hands the text over.

pub mod experiments;
#[cfg(target_arch = "wasm32")]
mod exports;
mod run;

pub use run::{KernelText, Shown, run};

use experiments::EXPERIMENTS;
use serde_json::{Value, json};

/// Runs what a page asks for: `{"experiment": NAME, "values": [A SLIDER'S VALUE, …], "kernels": [{"file": …, "text": …,
/// "ptx": …}, …]}`. The answer is `{"picture": HTML, "table": HTML, "findings": COUNT}`, or `{"error": TEXT}`; no question makes it panic.
pub fn answer(question: &str) -> String {
    match shown(question) {
        Ok(Shown { picture, table, findings }) => json!({ "picture": picture, "table": table, "findings": findings }),
        Err(text) => json!({ "error": text }),
    }
    .to_string()
}

fn shown(question: &str) -> Result<Shown, String> {
    let question: Value = serde_json::from_str(question).map_err(|error| format!("the page's question: {error}"))?;
    let name = question["experiment"].as_str().unwrap_or_default();
    let experiment = EXPERIMENTS.iter().find(|one| one.name == name);
    let experiment = experiment.ok_or_else(|| format!("there is no experiment `{name}`\nnext: load the page again"))?;
    let values: Vec<i64> = question["values"].as_array().into_iter().flatten().filter_map(Value::as_i64).collect();
    let text = |kernel: &Value, part: &str| kernel[part].as_str().unwrap_or_default().to_string();
    let kernels = question["kernels"].as_array().into_iter().flatten();
    let kernels: Vec<KernelText> = kernels
        .map(|kernel| KernelText { file: text(kernel, "file"), text: text(kernel, "text"), ptx: text(kernel, "ptx") })
        .collect();
    run(experiment, &values, &kernels)
}
