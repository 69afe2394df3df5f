//! A GPT-2's step in f64, from the same bf16 weights: what the kernels are held against.

use super::super::Weights;
use gpulab::cpu;
use std::collections::BTreeMap;

/// The text so far, as keys and values of each layer: `[position][width]`.
pub(super) struct Reference<'a> {
    weights: &'a Weights,
    /// Tables and matrices, which are bf16 on the GPU.
    matrices: BTreeMap<String, Vec<f64>>,
    keys: Vec<Vec<Vec<f64>>>,
    values: Vec<Vec<Vec<f64>>>,
}

fn rounded(x: f64) -> f64 {
    f64::from(cpu::f32_from_bf16(cpu::bf16_from_f32(x as f32)))
}

impl<'a> Reference<'a> {
    pub(super) fn new(weights: &'a Weights) -> Reference<'a> {
        let empty = vec![Vec::new(); weights.config().n_layer];
        let tables = weights.iter().filter(|(_, tensor)| tensor.shape.len() == 2);
        let exact = |values: &[f32]| values.iter().map(|&x| rounded(x.into())).collect();
        let matrices = tables.map(|(name, tensor)| (name.to_string(), exact(&tensor.values))).collect();
        Reference { weights, matrices, keys: empty.clone(), values: empty }
    }

    fn vector(&self, name: &str) -> Vec<f64> {
        self.weights.get(name).values.iter().map(|&x| x.into()).collect()
    }

    fn norm(&self, x: &[f64], name: &str) -> Vec<f64> {
        let mean = x.iter().sum::<f64>() / x.len() as f64;
        let variance = x.iter().map(|x| (x - mean).powi(2)).sum::<f64>() / x.len() as f64;
        let (weight, bias) = (self.vector(&format!("{name}.weight")), self.vector(&format!("{name}.bias")));
        let scale = (variance + 1e-5).sqrt().recip();
        x.iter().zip(weight.iter().zip(bias)).map(|(x, (weight, bias))| (x - mean) * scale * weight + bias).collect()
    }

    fn linear(&self, x: &[f64], name: &str) -> Vec<f64> {
        let weight = &self.matrices[&format!("{name}.weight")];
        let mut y = self.vector(&format!("{name}.bias"));
        let columns = y.len();
        for (x, row) in x.iter().zip(weight.chunks(columns)) {
            y.iter_mut().zip(row).for_each(|(y, w)| *y += x * w);
        }
        y
    }

    /// The logits behind a token.
    pub(super) fn step(&mut self, token: u32) -> Vec<f64> {
        let config = self.weights.config();
        let (width, head) = (config.n_embd, config.head());
        let position = self.keys[0].len();
        let (tokens, positions) = (&self.matrices["wte.weight"], &self.matrices["wpe.weight"]);
        let row = |table: &[f64], at: usize| table[at * width..(at + 1) * width].to_vec();
        let mut x: Vec<f64> =
            row(tokens, token as usize).iter().zip(row(positions, position)).map(|(a, b)| a + b).collect();
        for layer in 0..config.n_layer {
            let name = |part: &str| format!("h.{layer}.{part}");
            let qkv = self.linear(&self.norm(&x, &name("ln_1")), &name("attn.c_attn"));
            self.keys[layer].push(qkv[width..2 * width].iter().map(|&x| rounded(x)).collect());
            self.values[layer].push(qkv[2 * width..].iter().map(|&x| rounded(x)).collect());
            let mut attended = vec![0.0; width];
            for first in (0..width).step_by(head) {
                let part = first..first + head;
                let score = |key: &Vec<f64>| {
                    let dot: f64 = key[part.clone()].iter().zip(&qkv[part.clone()]).map(|(k, q)| k * q).sum();
                    (dot / (head as f64).sqrt()).exp()
                };
                let scores: Vec<f64> = self.keys[layer].iter().map(score).collect();
                let total: f64 = scores.iter().sum();
                for (score, value) in scores.iter().zip(&self.values[layer]) {
                    part.clone().for_each(|i| attended[i] += score / total * value[i]);
                }
            }
            let added = self.linear(&attended, &name("attn.c_proj"));
            x.iter_mut().zip(added).for_each(|(x, y)| *x += y);
            let mut units = self.linear(&self.norm(&x, &name("ln_2")), &name("mlp.c_fc"));
            let c = (2.0 / std::f64::consts::PI).sqrt();
            units.iter_mut().for_each(|u| *u *= 0.5 * (1.0 + (c * (*u + 0.044715 * u.powi(3))).tanh()));
            let added = self.linear(&units, &name("mlp.c_proj"));
            x.iter_mut().zip(added).for_each(|(x, y)| *x += y);
        }
        let normed = self.norm(&x, "ln_f");
        self.matrices["wte.weight"].chunks(width).map(|row| row.iter().zip(&normed).map(|(a, b)| a * b).sum()).collect()
    }
}
