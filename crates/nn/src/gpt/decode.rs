//! A GPT-2 on the course's own kernels: its weights and its shape as [`gpulab_kernels::engine`] takes them.

use super::{Config, Weights};
use gpulab_kernels::engine::{EngineConfig, EngineWeights, Family, Matrix};

impl From<Config> for EngineConfig {
    fn from(config: Config) -> EngineConfig {
        EngineConfig {
            family: Family::Gpt2,
            layers: config.n_layer,
            width: config.n_embd,
            heads: config.n_head,
            kv_heads: config.n_head,
            head: config.head(),
            inner: 4 * config.n_embd,
            vocabulary: config.vocab_size,
            context: config.n_ctx,
            rope_base: 0.0,
        }
    }
}

/// GPT-2 keeps a matrix as `[inputs, outputs]`: a row of the engine is a column there.
impl EngineWeights for Weights {
    fn row(&self, matrix: Matrix, layer: usize, row: usize, to: &mut [f32]) {
        let name = match matrix {
            Matrix::Table => "wte.weight",
            Matrix::Positions => "wpe.weight",
            Matrix::Qkv => "attn.c_attn",
            Matrix::Out => "attn.c_proj",
            Matrix::Up => "mlp.c_fc",
            Matrix::Down => "mlp.c_proj",
            Matrix::Gate => unreachable!("a GPT-2 has no gates"),
        };
        if matches!(matrix, Matrix::Table | Matrix::Positions) {
            let width = to.len();
            return to.copy_from_slice(&self.get(name).values[row * width..(row + 1) * width]);
        }
        let tensor = self.get(&format!("h.{layer}.{name}.weight"));
        let column = tensor.values[row..].iter().step_by(tensor.shape[1]);
        to.iter_mut().zip(column).for_each(|(to, x)| *to = *x);
    }

    fn vectors(&self) -> Vec<f32> {
        const LAYER: [&str; 8] = [
            "ln_1.weight",
            "ln_1.bias",
            "attn.c_attn.bias",
            "attn.c_proj.bias",
            "ln_2.weight",
            "ln_2.bias",
            "mlp.c_fc.bias",
            "mlp.c_proj.bias",
        ];
        let layers = (0..self.config().n_layer).flat_map(|layer| LAYER.map(|name| format!("h.{layer}.{name}")));
        let names = layers.chain(["ln_f.weight", "ln_f.bias"].map(String::from));
        names.flat_map(|name| self.get(&name).values.clone()).collect()
    }
}

#[cfg(test)]
mod tests;
