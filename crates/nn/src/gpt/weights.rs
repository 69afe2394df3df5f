//! A GPT's weights on the host, by GPT-2's names. Who holds a [`Weights`] has every parameter, in its shape.

use super::Config;
use gpulab::cpu;
use gpulab::error::{Error, Result};
use crate::tensors::{HostTensor, Stored, TensorFile};
use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

/// All parameters as f32, each in the shape that [`Config::parameters`] gives.
#[derive(Debug, Clone, PartialEq)]
pub struct Weights {
    config: Config,
    // Shared, so that what holds the same numbers (a copy of the weights, an export) takes no memory of its own.
    tensors: BTreeMap<String, Arc<HostTensor>>,
}

impl Weights {
    /// Random weights as GPT-2 starts training with: a standard deviation of 0.02, less by √(2 · layers) where a result
    /// is added to what it came from; biases 0, scales 1. The same for the same `seed`. (Uniform, not normal: it makes no difference to training that we could see.)
    ///
    /// # Errors
    /// As [`Config::checked`].
    pub fn random(config: Config, seed: u64) -> Result<Weights> {
        let config = config.checked()?;
        let make = |(index, (name, shape)): (usize, (String, Vec<usize>))| {
            let count = shape.iter().product();
            let values = match name.as_str() {
                _ if name.ends_with(".bias") => vec![0.0; count],
                _ if name.contains("ln_") => vec![1.0; count],
                _ => {
                    let share = if name.ends_with("c_proj.weight") { 2.0 * config.n_layer as f32 } else { 1.0 };
                    // Numbers in [-1, 1) have a standard deviation of 1/√3.
                    let scale = 0.02 * (3.0 / share).sqrt();
                    let mut values = cpu::random_f32(count, seed.wrapping_mul(1000).wrapping_add(index as u64));
                    values.iter_mut().for_each(|x| *x *= scale);
                    values
                }
            };
            (name, Arc::new(HostTensor { shape, values }))
        };
        Ok(Weights { config, tensors: config.parameters().into_iter().enumerate().map(make).collect() })
    }

    /// Loads `config.json` and `model.safetensors` from a folder: our own checkpoint, or GPT-2's from the Hugging Face hub.
    ///
    /// # Errors
    /// As [`Config::load`] and [`TensorFile::read`]; [`Error::Invalid`] names a parameter that is missing, has another
    /// shape, or is no finite number.
    pub fn load(folder: &Path) -> Result<Weights> {
        let config = Config::load(&folder.join("config.json"))?;
        let path = folder.join("model.safetensors");
        if !path.exists() && folder.join("model.safetensors.index.json").exists() {
            return Err(Error::Unsupported {
                what: format!("the checkpoint in {} is cut into several files", folder.display()),
                fix: "use a checkpoint with one model.safetensors, as all GPT-2 have".to_string(),
            });
        }
        // Real checkpoints keep masks and, some, a copy of the head beside the parameters.
        let wanted: Vec<String> = config.parameters().into_iter().map(|(name, _)| name).collect();
        let file = TensorFile::read_some(&path, |name| wanted.iter().any(|own| own == plain(name)))?;
        Weights::from_file(config, file)
    }

    /// Takes the parameters out of a file that was read; other tensors in it are left.
    ///
    /// # Errors
    /// As [`Weights::load`], for the parameters.
    pub fn from_file(config: Config, file: TensorFile) -> Result<Weights> {
        let mut found: BTreeMap<String, HostTensor> =
            file.tensors.into_iter().map(|(name, tensor)| (plain(&name).to_string(), tensor)).collect();
        let mut tensors = BTreeMap::new();
        for (name, shape) in config.checked()?.parameters() {
            let tensor =
                found.remove(&name).ok_or_else(|| wrong(format!("the checkpoint has no parameter `{name}`")))?;
            if tensor.shape != shape {
                let given = &tensor.shape;
                return Err(wrong(format!("`{name}` has the shape {given:?}, and config.json asks for {shape:?}")));
            }
            if let Some(place) = tensor.values.iter().position(|x| !x.is_finite()) {
                return Err(wrong(format!("number {place} of `{name}` is {}", tensor.values[place])));
            }
            tensors.insert(name, Arc::new(tensor));
        }
        Ok(Weights { config, tensors })
    }

    /// Writes `config.json` and `model.safetensors` into a folder, which is made if it is missing.
    ///
    /// # Errors
    /// As [`TensorFile::write`].
    pub fn save(&self, folder: &Path, stored: Stored) -> Result<()> {
        let config = serde_json::to_string_pretty(&self.config.to_json()).expect("made of numbers and strings");
        crate::tensors::write_whole(&folder.join("config.json"), config.as_bytes())?;
        self.clone().into_file().write(&folder.join("model.safetensors"), stored)
    }

    /// The parameters as a file's content.
    pub fn into_file(self) -> TensorFile {
        // Other programs ask for this word before they load a file.
        let metadata = BTreeMap::from([("format".to_string(), "pt".to_string())]);
        let own = |(name, tensor)| (name, Arc::unwrap_or_clone(tensor));
        TensorFile { tensors: self.tensors.into_iter().map(own).collect(), metadata }
    }

    /// The shape of the model.
    pub fn config(&self) -> Config {
        self.config
    }

    /// A parameter by its name, such as `h.0.attn.c_attn.weight`.
    ///
    /// # Panics
    /// When [`Config::parameters`] has no such name.
    pub fn get(&self, name: &str) -> &HostTensor {
        self.shared(name)
    }

    /// The same, for those who keep it: the numbers are not copied.
    ///
    /// # Panics
    /// As [`Weights::get`].
    pub fn shared(&self, name: &str) -> &Arc<HostTensor> {
        self.tensors.get(name).unwrap_or_else(|| panic!("GPT-2 has no parameter `{name}`"))
    }

    /// All parameters, by name.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &HostTensor)> {
        self.tensors.iter().map(|(name, tensor)| (name.as_str(), &**tensor))
    }
}

/// The name without the prefix that some programs write.
fn plain(name: &str) -> &str {
    name.strip_prefix("transformer.").unwrap_or(name)
}

fn wrong(what: String) -> Error {
    Error::Invalid {
        what,
        fix: "take config.json and model.safetensors from the same checkpoint, or fetch both again".to_string(),
    }
}

#[cfg(test)]
#[path = "weights_tests.rs"]
mod tests;
