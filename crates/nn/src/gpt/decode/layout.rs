//! A model's weights on the GPU, as the decoding kernels read them: bf16, each row that a warp multiplies in one piece.

use super::super::Weights;
use super::Plan;
use gpulab::cpu;
use gpulab::error::Result;
use gpulab::gpu::{Buffer, Gpu};
use rayon::prelude::*;

/// The weights of a layer, for plans whose kernels take matrices one by one: `[outputs, inputs]`, where GPT-2 has them
/// the other way round.
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

/// All of them. Plans by halves find every layer's matrices in `weights`, one after the other, and then the table of
/// tokens; the others find the table alone there.
#[derive(Debug)]
pub(super) struct Model {
    pub weights: Buffer<u16>,
    /// Where the table of tokens begins.
    pub table: usize,
    /// The norms' scales and biases, and the biases, layer after layer, where `weights` has the matrices.
    pub vectors: Buffer<f32>,
    pub layers: Vec<Layer>,
    pub positions: Buffer<u16>,
    pub norm: [Buffer<f32>; 2],
    /// The last norm's scales, then its biases.
    pub last_norm: Buffer<f32>,
}

impl Model {
    pub(super) fn load(gpu: &Gpu, weights: &Weights, plan: Plan) -> Result<Model> {
        let vector = |name: String| gpu.to_device(&weights.get(&name).values);
        let norm =
            |name: &str| -> Result<_> { Ok([vector(format!("{name}.weight"))?, vector(format!("{name}.bias"))?]) };
        let linear = |name: String| -> Result<_> {
            let weight = gpu.to_device(&outputs_first(weights, &format!("{name}.weight")))?;
            Ok(Linear { weight, bias: vector(format!("{name}.bias"))? })
        };
        let layer = |at: usize| -> Result<_> {
            Ok(Layer {
                norm_1: norm(&format!("h.{at}.ln_1"))?,
                qkv: linear(format!("h.{at}.attn.c_attn"))?,
                out: linear(format!("h.{at}.attn.c_proj"))?,
                norm_2: norm(&format!("h.{at}.ln_2"))?,
                up: linear(format!("h.{at}.mlp.c_fc"))?,
                down: linear(format!("h.{at}.mlp.c_proj"))?,
            })
        };
        let count = weights.config().n_layer;
        let (packed, vectors) = if plan.is_packed() { pack(weights) } else { (Vec::new(), Vec::new()) };
        let table = packed.len();
        let norms = ["ln_f.weight", "ln_f.bias"].map(|name| weights.get(name).values.as_slice());
        Ok(Model {
            weights: gpu.to_device(&[packed, bf16(&weights.get("wte.weight").values)].concat())?,
            table,
            vectors: gpu.to_device(&vectors)?,
            layers: (0..if plan.is_packed() { 0 } else { count }).map(layer).collect::<Result<_>>()?,
            positions: gpu.to_device(&bf16(&weights.get("wpe.weight").values))?,
            norm: norm("ln_f")?,
            last_norm: gpu.to_device(&norms.concat())?,
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
        let layers: usize = self.layers.iter().map(layer).sum();
        self.weights.bytes() + self.vectors.bytes() + layers + norm(&self.norm)
    }
}

/// Matrices and vectors as `kernels/decode/layer.cuh` has them: in the order of their use. The last matrix of a layer keeps
/// GPT-2's way, as a block owns some of its inputs.
fn pack(weights: &Weights) -> (Vec<u16>, Vec<f32>) {
    let (mut matrices, mut vectors) = (Vec::new(), Vec::new());
    for layer in 0..weights.config().n_layer {
        let name = |part: &str| format!("h.{layer}.{part}");
        for part in ["attn.c_attn.weight", "attn.c_proj.weight", "mlp.c_fc.weight"] {
            matrices.extend(outputs_first(weights, &name(part)));
        }
        matrices.extend(bf16(&weights.get(&name("mlp.c_proj.weight")).values));
        let parts = ["ln_1.weight", "ln_1.bias", "attn.c_attn.bias", "attn.c_proj.bias"];
        let more = ["ln_2.weight", "ln_2.bias", "mlp.c_fc.bias", "mlp.c_proj.bias"];
        parts.into_iter().chain(more).for_each(|part| vectors.extend(&weights.get(&name(part)).values));
    }
    (matrices, vectors)
}

/// A matrix of GPT-2 as `[outputs, inputs]`.
fn outputs_first(weights: &Weights, name: &str) -> Vec<u16> {
    let matrix = weights.get(name);
    transposed(&bf16(&matrix.values), matrix.shape[1])
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
