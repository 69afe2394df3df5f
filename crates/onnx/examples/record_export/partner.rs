//! A process that runs the same file by ONNX Runtime's Python package, interleaved with this one: `env/baselines/record_export.py`.
//!
//! Numbers go through files in a shared folder; lines through stdout and stdin:
//!
//! | this one writes | the other one answers |
//! | --- | --- |
//! | `{"model": "…/cnn.onnx"}` | `["CPUExecutionProvider", …]`: a session on each |
//! | `{"set": [["images", "f32", [8, 1, 28, 28], "0.bin"]], "session": 0}` | `"ok"` |
//! | `{"output": "out.bin", "session": 0}` | `"ok"`, the first output in that file |
//! | `{"calls": 40, "session": 0}` | the µs of each |

use gpulab::measurement::Backend;
use gpulab::prelude::*;
use gpulab::talk::{ask, unexpected};
use gpulab_onnx::runtime::{BenchmarkEntry, Implementation, OnnxData, OnnxTensor};
use serde_json::{Value, json};
use std::path::{Path, PathBuf};

/// What a session of the Python package is called, beside ours on the same provider.
pub fn name(ours: &str) -> String {
    ours.replace("ONNX Runtime", "Python's ONNX Runtime")
}

/// A session of the other process.
pub struct Partner {
    folder: PathBuf,
    provider: String,
    session: usize,
}

impl Partner {
    /// A session for each provider that the other process has.
    pub fn implementations(folder: &Path, model: &Path) -> Result<Vec<BenchmarkEntry>> {
        let providers = ask_json(&json!({ "model": model }))?;
        let providers = providers.as_array().cloned().unwrap_or_default();
        let one = |(session, provider): (usize, Value)| {
            let provider = provider.as_str().unwrap_or_default().to_string();
            BenchmarkEntry::of(Partner { folder: folder.to_path_buf(), provider, session })
        };
        Ok(providers.into_iter().enumerate().map(one).collect())
    }

    fn file(&self, name: &str) -> PathBuf {
        self.folder.join(name)
    }
}

impl Implementation for Partner {
    fn name(&self) -> String {
        let short = self.provider.trim_end_matches("ExecutionProvider");
        name(&format!("ONNX Runtime {short}"))
    }

    fn backend(&self) -> Backend {
        if self.provider.starts_with("CPU") { Backend::Cpu } else { Backend::Cuda }
    }

    fn set(&mut self, inputs: &[(&str, &OnnxTensor)]) -> Result<()> {
        let mut told = Vec::new();
        for (at, (name, tensor)) in inputs.iter().enumerate() {
            let bytes: Vec<u8> = match &tensor.data {
                OnnxData::F32(data) => data.iter().flat_map(|value| value.to_le_bytes()).collect(),
                OnnxData::I64(data) => data.iter().flat_map(|value| value.to_le_bytes()).collect(),
                other => return Err(unexpected(&format!("no way to take {}", other.dtype()))),
            };
            let file = self.file(&format!("{at}.bin"));
            std::fs::write(&file, bytes).map_err(|error| unexpected(&format!("{}: {error}", file.display())))?;
            told.push(json!([name, tensor.data.dtype(), tensor.shape, file]));
        }
        ask_json(&json!({ "set": told, "session": self.session })).map(drop)
    }

    fn call(&mut self) -> Result<()> {
        self.calls(1).map(drop)
    }

    fn output(&mut self) -> Result<Vec<f32>> {
        let file = self.file("out.bin");
        ask_json(&json!({ "output": file, "session": self.session }))?;
        let bytes = std::fs::read(&file).map_err(|error| unexpected(&format!("{}: {error}", file.display())))?;
        Ok(bytes.chunks_exact(4).map(|four| f32::from_le_bytes(four.try_into().unwrap())).collect())
    }

    fn calls(&mut self, count: usize) -> Result<Vec<f64>> {
        let answer = ask_json(&json!({ "calls": count, "session": self.session }))?;
        let us: Vec<f64> = answer.as_array().into_iter().flatten().filter_map(Value::as_f64).collect();
        if us.len() == count { Ok(us) } else { Err(unexpected(&answer.to_string())) }
    }
}

/// As the lines are here: JSON, in both directions.
fn ask_json(line: &Value) -> Result<Value> {
    ask(&line.to_string())
}
