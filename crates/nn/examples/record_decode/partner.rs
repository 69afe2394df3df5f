//! A process that times PyTorch on the same GPU, alternating with this one: `env/baselines/record_decode.py`.
//!
//! The weights, the keys and values go through files in a shared folder. Then lines go through stdout and stdin:
//!
//! | this one writes | the other one answers |
//! | --- | --- |
//! | `ready` | `{"names": ["torch eager", …], "errors": [1e-3, …]}`; `exact.bin` holds the logits in f64 |
//! | `go 0` for the first of them | the µs of a token, the mean of a sample |

use super::save;
use gpulab::prelude::*;
use gpulab::talk::{ask, unexpected};
use gpulab_nn::gpt::Weights;
use std::path::Path;

/// The other process.
pub struct Partner {
    /// What it times.
    pub names: Vec<String>,
    /// How far each one's logits are off.
    pub errors: Vec<f64>,
    exact: Vec<f64>,
}

impl Partner {
    /// Hands over weights, keys and values.
    pub fn start(folder: &str, weights: &Weights, caches: &[u16]) -> Result<Partner> {
        let folder = Path::new(folder);
        save(weights, folder)?;
        let bytes: Vec<u8> = caches.iter().flat_map(|bits| bits.to_le_bytes()).collect();
        let problem = |error: std::io::Error| unexpected(&error.to_string());
        std::fs::write(folder.join("cache.bin"), bytes).map_err(problem)?;
        let answer: serde_json::Value = ask("ready")?;
        let list = |name: &str| answer[name].as_array().cloned().unwrap_or_default();
        let exact = std::fs::read(folder.join("exact.bin")).map_err(problem)?;
        Ok(Partner {
            names: list("names").iter().filter_map(|name| Some(name.as_str()?.to_string())).collect(),
            errors: list("errors").iter().map(|error| error.as_f64().unwrap_or(f64::NAN)).collect(),
            exact: exact.chunks_exact(8).map(|x| f64::from_le_bytes(x.try_into().expect("eight bytes"))).collect(),
        })
    }

    /// ‖given − exact‖ ÷ ‖exact‖.
    pub fn error(&self, given: &[f32]) -> f64 {
        assert_eq!(given.len(), self.exact.len(), "both have the same vocabulary");
        let off: f64 = given.iter().zip(&self.exact).map(|(&given, exact)| (f64::from(given) - exact).powi(2)).sum();
        (off / self.exact.iter().map(|x| x * x).sum::<f64>()).sqrt()
    }

    /// One sample of the one with that number.
    pub fn sample(&mut self, at: usize) -> Result<f64> {
        ask(&format!("go {at}"))
    }
}
