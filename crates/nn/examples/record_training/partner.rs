//! A process that times PyTorch's step on the same GPU, alternating with this one: `env/baselines/record_training.py`.
//!
//! Images, order and first parameters go through files in a shared folder; then lines through stdout and stdin:
//!
//! | this one writes | the other one answers |
//! | --- | --- |
//! | `{"precision": "tf32", "steps": 20, "batch": 128}` | `[{"name": "torch", "losses": […], "parts": [["kernel …", µs], …]}, …]` |
//! | `go 0` for the first of them | the ms of a step, the mean of a sample |

use gpulab::prelude::*;
use gpulab::talk::ask;
use gpulab_nn::cnn::Checkpoint;
use std::path::PathBuf;

/// The other process, and the folder that both see.
pub struct Partner {
    folder: PathBuf,
}

/// One of the variants of a step that the other process times.
pub struct Variant {
    pub name: String,
    pub losses: Vec<f32>,
    /// What it measured beside: names and µs, and the MiB of what begins with "memory".
    pub parts: Vec<(String, f64)>,
}

impl Partner {
    /// It listens already.
    pub fn new(folder: &str) -> Partner {
        Partner { folder: PathBuf::from(folder) }
    }

    /// Writes what both train from.
    pub fn hand_over(&self, pixels: &[u8], labels: &[u8], start: &Checkpoint, order: &[u32]) -> Result<()> {
        let numbers: Vec<u8> = start.parameters.arrays.iter().flatten().flat_map(|x| x.to_le_bytes()).collect();
        let order: Vec<u8> = order.iter().flat_map(|x| x.to_le_bytes()).collect();
        for (name, bytes) in [("pixels", pixels), ("labels", labels), ("parameters", &numbers), ("order", &order)] {
            let path = self.folder.join(format!("{name}.bin"));
            std::fs::write(&path, bytes).map_err(|error| Error::File {
                path: path.clone(),
                during: "handing images over".to_string(),
                text: error.to_string(),
                fix: "choose a folder with more room".to_string(),
            })?;
        }
        Ok(())
    }

    /// Asks for its variants of a step.
    pub fn prepare(&mut self, precision: &str, steps: usize) -> Result<Vec<Variant>> {
        let asked = serde_json::json!({ "precision": precision, "steps": steps, "batch": super::BATCH });
        let variants: serde_json::Value = ask(&asked.to_string())?;
        let variant = |variant: &serde_json::Value| {
            let losses = variant["losses"].as_array()?.iter().filter_map(|loss| loss.as_f64()).map(|loss| loss as f32);
            let parts = variant["parts"].as_array().into_iter().flatten();
            let parts = parts.filter_map(|part| Some((part[0].as_str()?.to_string(), part[1].as_f64()?))).collect();
            Some(Variant { name: variant["name"].as_str()?.to_string(), losses: losses.collect(), parts })
        };
        Ok(variants.as_array().into_iter().flatten().filter_map(variant).collect())
    }

    /// One sample of a variant, in ms per step.
    pub fn sample(&mut self, at: usize) -> Result<f64> {
        ask(&format!("go {at}"))
    }
}
