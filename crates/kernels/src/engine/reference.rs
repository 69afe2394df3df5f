//! The same model in f64 on the CPU, slow and plain: what the kernels are compared with.

use super::model::frequency;
use super::{EngineConfig, EngineWeights, Family, Matrix, WeightBits};
use gpulab::cpu;
use rayon::prelude::*;

/// A text read token by token in f64, from weights, keys and values that are rounded as the GPU keeps them.
pub struct EngineReference<'a, W> {
    config: EngineConfig,
    bits: WeightBits,
    weights: &'a W,
    vectors: Vec<f32>,
    /// As the GPU has them: layer after layer the keys of all heads, then their values.
    caches: Vec<u16>,
    position: usize,
}

impl<'a, W: EngineWeights> EngineReference<'a, W> {
    /// A text that begins behind `position` positions, whose keys and values are given.
    pub fn new(config: &EngineConfig, bits: WeightBits, weights: &'a W, position: usize, caches: Vec<u16>) -> Self {
        EngineReference { config: *config, bits, weights, vectors: weights.vectors(), caches, position }
    }

    /// matrix · x, on the weights as they are stored.
    fn product(&self, matrix: Matrix, layer: usize, x: &[f64]) -> Vec<f64> {
        let rows = self.config.shape(matrix)[0];
        let row = |numbers: &mut Vec<f32>, row| {
            self.weights.row(matrix, layer, row, numbers);
            self.bits.rounded(numbers);
            numbers.iter().zip(x).map(|(&w, x)| f64::from(w) * x).sum()
        };
        (0..rows).into_par_iter().map_init(|| vec![0.0; x.len()], row).collect()
    }

    fn norm(&self, x: &[f64], at: usize) -> Vec<f64> {
        let (width, llama) = (x.len(), self.config.family == Family::Llama);
        let mean = if llama { 0.0 } else { x.iter().sum::<f64>() / width as f64 };
        let variance = x.iter().map(|x| (x - mean).powi(2)).sum::<f64>() / width as f64;
        let factor = (variance + 1e-5).sqrt().recip();
        let bias = |i: usize| if llama { 0.0 } else { f64::from(self.vectors[at + width + i]) };
        let scaled = |(i, x): (usize, &f64)| (x - mean) * factor * f64::from(self.vectors[at + i]) + bias(i);
        x.iter().enumerate().map(scaled).collect()
    }

    fn table_row(&self, matrix: Matrix, row: usize) -> Vec<f64> {
        let mut numbers = vec![0.0; self.config.width];
        self.weights.row(matrix, 0, row, &mut numbers);
        numbers.iter().map(|&x| f64::from(cpu::f32_from_bf16(cpu::bf16_from_f32(x)))).collect()
    }

    /// y += the biases from `at` on; a Llama has none.
    fn add_bias(&self, y: &mut [f64], at: usize) {
        if self.config.family == Family::Gpt2 {
            y.iter_mut().zip(&self.vectors[at..]).for_each(|(y, &bias)| *y += f64::from(bias));
        }
    }

    fn attend(&mut self, layer: usize, qkv: &mut [f64]) -> Vec<f64> {
        let EngineConfig { head, heads, kv_heads, context, .. } = self.config;
        let now = self.position;
        if self.config.family == Family::Llama {
            for at in (0..(heads + kv_heads) * head).step_by(head) {
                for i in 0..head / 2 {
                    let (sin, cos) = (now as f64 * frequency(&self.config, i)).sin_cos();
                    let (a, b) = (qkv[at + i], qkv[at + i + head / 2]);
                    (qkv[at + i], qkv[at + i + head / 2]) = (a * cos - b * sin, b * cos + a * sin);
                }
            }
        }
        let place = |of: usize, position: usize| ((layer * 2 * kv_heads + of) * context + position) * head;
        for of in 0..2 * kv_heads {
            for i in 0..head {
                let x = qkv[(heads + of) * head + i] as f32;
                self.caches[place(of, now) + i] = cpu::bf16_from_f32(x);
            }
        }
        let number = |at: usize| f64::from(cpu::f32_from_bf16(self.caches[at]));
        let mut attended = vec![0.0; heads * head];
        for (of, to) in attended.chunks_mut(head).enumerate() {
            let query = &qkv[of * head..(of + 1) * head];
            let own = of / (heads / kv_heads);
            let score = |position: usize| -> f64 {
                let at = place(own, position);
                query.iter().enumerate().map(|(i, q)| q * number(at + i)).sum::<f64>() / (head as f64).sqrt()
            };
            let scores: Vec<f64> = (0..=now).map(score).collect();
            let most = scores.iter().fold(f64::MIN, |most, score| most.max(*score));
            let total: f64 = scores.iter().map(|score| (score - most).exp()).sum();
            for (position, score) in scores.iter().enumerate() {
                let (at, weight) = (place(kv_heads + own, position), (score - most).exp() / total);
                to.iter_mut().enumerate().for_each(|(i, to)| *to += weight * number(at + i));
            }
        }
        attended
    }

    /// The logits behind a token.
    pub fn step(&mut self, token: u32) -> Vec<f64> {
        let config = self.config;
        let (llama, width) = (config.family == Family::Llama, config.width);
        let mut x = self.table_row(Matrix::Table, token as usize);
        if !llama {
            let place = self.table_row(Matrix::Positions, self.position);
            x.iter_mut().zip(place).for_each(|(x, y)| *x += y);
        }
        let (all, _) = config.vector_lengths();
        let norm = if llama { width } else { 2 * width };
        let qkv_rows = config.shape(Matrix::Qkv)[0];
        for layer in 0..config.layers {
            let first = layer * all;
            let second = if llama { first + norm } else { first + norm + qkv_rows + width };
            let mut qkv = self.product(Matrix::Qkv, layer, &self.norm(&x, first));
            self.add_bias(&mut qkv, first + norm);
            let attended = self.attend(layer, &mut qkv);
            let mut added = self.product(Matrix::Out, layer, &attended);
            self.add_bias(&mut added, first + norm + qkv_rows);
            x.iter_mut().zip(added).for_each(|(x, y)| *x += y);
            let normed = self.norm(&x, second);
            let mut units = self.product(Matrix::Up, layer, &normed);
            if llama {
                let gates = self.product(Matrix::Gate, layer, &normed);
                units.iter_mut().zip(gates).for_each(|(unit, gate)| *unit *= gate / (1.0 + (-gate).exp()));
            } else {
                self.add_bias(&mut units, second + norm);
                let c = (2.0 / std::f64::consts::PI).sqrt();
                units.iter_mut().for_each(|u| *u *= 0.5 * (1.0 + (c * (*u + 0.044_715 * u.powi(3))).tanh()));
            }
            let mut added = self.product(Matrix::Down, layer, &units);
            self.add_bias(&mut added, second + norm + config.inner);
            x.iter_mut().zip(added).for_each(|(x, y)| *x += y);
        }
        self.position += 1;
        self.product(Matrix::Table, 0, &self.norm(&x, config.layers * all))
    }
}
