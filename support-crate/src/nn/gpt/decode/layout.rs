//! A model's weights on the GPU, as the decoding kernels read them: bf16, each row that a warp multiplies in one piece.

use super::super::Weights;
use super::Plan;
use crate::cpu;
use crate::error::Result;
use crate::gpu::{Buffer, Gpu};
use rayon::prelude::*;

/// The weights of a layer. Matrices are `[outputs, inputs]`, where GPT-2 has them the other way round; but for `down` of
/// [`Plan::Halves`], whose blocks own inputs and keep GPT-2's way.
#[derive(Debug)]
pub(super) struct Layer {
    pub norm_1: [Buffer<f32>; 2],
    pub qkv: Linear,
    pub out: Linear,
    pub norm_2: [Buffer<f32>; 2],
    pub up: Linear,
    pub down: Linear,
}

/// A matrix and its bias.
#[derive(Debug)]
pub(super) struct Linear {
    pub weight: Buffer<u16>,
    pub bias: Buffer<f32>,
}

/// All of them.
#[derive(Debug)]
pub(super) struct Model {
    pub tokens: Buffer<u16>,
    pub positions: Buffer<u16>,
    pub layers: Vec<Layer>,
    pub norm: [Buffer<f32>; 2],
}

impl Model {
    pub(super) fn load(gpu: &Gpu, weights: &Weights, plan: Plan) -> Result<Model> {
        let table = |name: &str| gpu.to_device(&bf16(&weights.get(name).values));
        let vector = |name: String| gpu.to_device(&weights.get(&name).values);
        let norm =
            |name: &str| -> Result<_> { Ok([vector(format!("{name}.weight"))?, vector(format!("{name}.bias"))?]) };
        let linear = |name: String, turned: bool| -> Result<_> {
            let matrix = weights.get(&format!("{name}.weight"));
            let values = bf16(&matrix.values);
            let weight = if turned { transposed(&values, matrix.shape[1]) } else { values };
            Ok(Linear { weight: gpu.to_device(&weight)?, bias: vector(format!("{name}.bias"))? })
        };
        let layer = |at: usize| -> Result<_> {
            Ok(Layer {
                norm_1: norm(&format!("h.{at}.ln_1"))?,
                qkv: linear(format!("h.{at}.attn.c_attn"), true)?,
                out: linear(format!("h.{at}.attn.c_proj"), true)?,
                norm_2: norm(&format!("h.{at}.ln_2"))?,
                up: linear(format!("h.{at}.mlp.c_fc"), true)?,
                down: linear(format!("h.{at}.mlp.c_proj"), plan != Plan::Halves)?,
            })
        };
        Ok(Model {
            tokens: table("wte.weight")?,
            positions: table("wpe.weight")?,
            layers: (0..weights.config().n_layer).map(layer).collect::<Result<_>>()?,
            norm: norm("ln_f")?,
        })
    }

    /// Bytes that a step reads: all but the table of positions, of which it reads a row.
    pub(super) fn bytes(&self) -> usize {
        let linear = |linear: &Linear| linear.weight.bytes() + linear.bias.bytes();
        let norm = |norm: &[Buffer<f32>; 2]| norm[0].bytes() + norm[1].bytes();
        let layer = |layer: &Layer| {
            let linears = [&layer.qkv, &layer.out, &layer.up, &layer.down].map(linear);
            linears.iter().sum::<usize>() + norm(&layer.norm_1) + norm(&layer.norm_2)
        };
        self.tokens.bytes() + self.layers.iter().map(layer).sum::<usize>() + norm(&self.norm)
    }
}

fn bf16(values: &[f32]) -> Vec<u16> {
    values.par_iter().with_min_len(1 << 16).map(|&x| cpu::bf16_from_f32(x)).collect()
}

/// Columns become rows.
fn transposed(values: &[u16], columns: usize) -> Vec<u16> {
    let mut turned = vec![0; values.len()];
    let rows = values.len() / columns.max(1);
    turned.par_chunks_mut(rows.max(1)).enumerate().for_each(|(column, to)| {
        to.iter_mut().enumerate().for_each(|(row, to)| *to = values[row * columns + column]);
    });
    turned
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_become_rows() {
        assert_eq!(transposed(&[1, 2, 3, 4, 5, 6], 3), [1, 4, 2, 5, 3, 6]);
        assert_eq!(transposed(&[], 0), Vec::<u16>::new());
    }
}
