//! A run that was stopped goes on from here, as if it had not been.

use super::{Plan, Trainer};
use gpulab::error::{Error, Result};
use crate::gpt::{Config, Text, Weights};
use crate::tensors::{HostTensor, Stored, TensorFile};
use candle_core::{Device, Tensor};
use std::collections::BTreeMap;
use std::path::Path;

/// Copies tensors to the host.
pub(super) fn host<'a>(tensors: impl Iterator<Item = (String, &'a Tensor)>) -> Result<TensorFile> {
    let mut file = TensorFile::default();
    for (name, tensor) in tensors {
        let values = tensor.flatten_all()?.to_vec1::<f32>()?;
        file.tensors.insert(name, HostTensor::new(tensor.dims(), values));
    }
    Ok(file)
}

impl Trainer {
    /// Writes parameters, both moments, the losses and the plan into one safetensors file, whole or not at all.
    ///
    /// # Errors
    /// As [`TensorFile::write`].
    pub fn save(&self, path: &Path) -> Result<()> {
        let moments = [("adamw.m.", &self.optimiser.m), ("adamw.v.", &self.optimiser.v)];
        let parameters = self.parameters.iter().map(|(name, var)| (name.clone(), var.as_tensor()));
        let mut file =
            host(parameters.chain(
                moments.iter().flat_map(|(prefix, all)| {
                    all.iter().map(move |(name, tensor)| (format!("{prefix}{name}"), tensor))
                }),
            ))?;
        file.tensors.insert("losses".to_string(), HostTensor::new(&[self.losses.len()], self.losses.clone()));
        let Plan { config, batch, steps, rate, seed } = self.plan;
        file.metadata = BTreeMap::from([
            ("config".to_string(), config.to_json().to_string()),
            ("text".to_string(), self.text.fingerprint.clone()),
            ("step".to_string(), self.step.to_string()),
            ("batch".to_string(), batch.to_string()),
            ("steps".to_string(), steps.to_string()),
            // Sixteen digits and an exponent give the same f64 back.
            ("rate".to_string(), format!("{rate:e}")),
            ("seed".to_string(), seed.to_string()),
        ]);
        file.write(path, Stored::F32)
    }

    /// Goes on from a checkpoint, with its own plan.
    ///
    /// # Errors
    /// As [`TensorFile::read`]; [`Error::Invalid`] when it is no checkpoint of a run, or of one on another text.
    pub fn resume(path: &Path, text: Text, device: &Device) -> Result<Trainer> {
        let file = TensorFile::read(path)?;
        let wrong = |what: String| Error::Invalid {
            what: format!("{}: {what}", path.display()),
            fix: "name the checkpoint.safetensors that `gpulab train-gpt` wrote, or begin again without --resume"
                .to_string(),
        };
        let word = |name: &str| file.metadata.get(name).ok_or_else(|| wrong(format!("its metadata has no `{name}`")));
        let number = |name: &str| word(name)?.parse::<f64>().map_err(|_| wrong(format!("`{name}` is no number")));
        if *word("text")? != text.fingerprint {
            return Err(wrong("this run learned from another text than the one given".to_string()));
        }
        let config = serde_json::from_str(word("config")?).map_err(|_| wrong("`config` is no JSON".to_string()))?;
        let plan = Plan {
            config: Config::from_json(&config)?,
            batch: number("batch")? as usize,
            steps: number("steps")? as u64,
            rate: number("rate")?,
            seed: word("seed")?.parse().map_err(|_| wrong("`seed` is no number".to_string()))?,
        };
        let part = |prefix: &str| TensorFile {
            tensors: (file.tensors.iter())
                .filter_map(|(name, tensor)| Some((name.strip_prefix(prefix)?.to_string(), tensor.clone())))
                .collect(),
            metadata: BTreeMap::new(),
        };
        let mut trainer = Trainer::with(plan, text, &Weights::from_file(plan.config, part(""))?, device)?;
        for (prefix, own) in [("adamw.m.", &mut trainer.optimiser.m), ("adamw.v.", &mut trainer.optimiser.v)] {
            // A moment has its parameter's shape, and is checked like one.
            for (name, host) in Weights::from_file(plan.config, part(prefix))?.iter() {
                own.insert(name.to_string(), Tensor::from_slice(&host.values, host.shape.as_slice(), device)?);
            }
        }
        trainer.step = number("step")? as u64;
        trainer.optimiser.steps = trainer.step;
        trainer.losses = file.tensors.get("losses").map(|losses| losses.values.clone()).unwrap_or_default();
        Ok(trainer)
    }
}
