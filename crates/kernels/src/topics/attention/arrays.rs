//! The arrays of one attention on a GPU, in f32 or bf16.

use gpulab::cpu::{self, AttentionMask, AttentionShape};
use gpulab::error::Result;
use gpulab::gpu::{Buffer, Gpu};
use gpulab::launch::Element;
use rayon::prelude::*;

/// All arrays that the steps read and write.
#[derive(Debug)]
pub(super) struct Arrays<T: Element> {
    /// q, k and v by tokens: `[batch, length, heads, width]`.
    pub tokens: [Buffer<T>; 3],
    /// The same by heads.
    pub heads: [Buffer<T>; 3],
    /// Scores, then weights: `[batch, q_heads, length, length]`.
    pub scores: Buffer<T>,
    /// The result by heads.
    pub out: Buffer<T>,
    /// The result by tokens.
    pub merged: Buffer<T>,
    /// Keys of each sequence that are no padding.
    pub lengths: Buffer<i32>,
}

/// They are of one kind.
#[derive(Debug)]
pub(super) enum Held {
    F32(Arrays<f32>),
    Bf16(Arrays<u16>),
}

impl Held {
    /// Room for all, and `inputs`, which lie by heads, by tokens on the GPU. All that a step writes is poisoned: a number
    /// that a kernel forgets comes back as NaN.
    pub(super) fn new(
        gpu: &Gpu,
        bf16: bool,
        inputs: [&[f32]; 3],
        shape: AttentionShape,
        mask: &AttentionMask,
    ) -> Result<Held> {
        let by_tokens = |(input, heads): (&[f32], usize)| turned(input, heads, shape.length, shape.width);
        let heads = [shape.q_heads, shape.kv_heads, shape.kv_heads];
        // The scores first: they are what fails where there is no room.
        if bf16 {
            let scores = gpu.poison(shape.scores())?;
            let given: Vec<Vec<u16>> = inputs
                .into_iter()
                .zip(heads)
                .map(|x| by_tokens(x).into_iter().map(cpu::bf16_from_f32).collect())
                .collect();
            return Ok(Held::Bf16(arrays(gpu, scores, &given, shape, mask)?));
        }
        let scores = gpu.poison(shape.scores())?;
        let given: Vec<Vec<f32>> = inputs.into_iter().zip(heads).map(by_tokens).collect();
        Ok(Held::F32(arrays(gpu, scores, &given, shape, mask)?))
    }

    /// The result, by heads again.
    pub(super) fn result(&self, shape: AttentionShape) -> Result<Vec<f32>> {
        let merged = match self {
            Held::F32(arrays) => arrays.merged.to_host()?,
            Held::Bf16(arrays) => in_f32(arrays.merged.to_host()?),
        };
        // By tokens, heads and tokens have changed places.
        Ok(turned(&merged, shape.length, shape.q_heads, shape.width))
    }

    /// What lies in the scores' place.
    pub(super) fn weights(&self) -> Result<Vec<f32>> {
        match self {
            Held::F32(arrays) => arrays.scores.to_host(),
            Held::Bf16(arrays) => Ok(in_f32(arrays.scores.to_host()?)),
        }
    }
}

fn arrays<T: Element>(
    gpu: &Gpu,
    scores: Buffer<T>,
    given: &[Vec<T>],
    shape: AttentionShape,
    mask: &AttentionMask,
) -> Result<Arrays<T>> {
    let (q, kv) = (shape.q_numbers(), shape.kv_numbers());
    // At most `shape.length`, which kernels take as `int`.
    let whole = vec![shape.length; shape.batch];
    let lengths: Vec<i32> = mask.lengths.as_ref().unwrap_or(&whole).iter().map(|&length| length as i32).collect();
    Ok(Arrays {
        tokens: [gpu.to_device(&given[0])?, gpu.to_device(&given[1])?, gpu.to_device(&given[2])?],
        heads: [gpu.poison(q)?, gpu.poison(kv)?, gpu.poison(kv)?],
        scores,
        out: gpu.poison(q)?,
        merged: gpu.poison(q)?,
        lengths: gpu.to_device(&lengths)?,
    })
}

/// `[batch, first, second, width]` as `[batch, second, first, width]`.
fn turned(x: &[f32], first: usize, second: usize, width: usize) -> Vec<f32> {
    let sequence = |x: &[f32]| -> Vec<f32> {
        let rows = (0..second).flat_map(|s| (0..first).map(move |f| f * second + s));
        rows.flat_map(|row| x[row * width..(row + 1) * width].iter().copied()).collect()
    };
    x.par_chunks(first * second * width).flat_map_iter(sequence).collect()
}

fn in_f32(bits: Vec<u16>) -> Vec<f32> {
    bits.into_iter().map(cpu::f32_from_bf16).collect()
}

/// Each number as the nearest bf16.
pub(super) fn rounded(x: &[f32]) -> Vec<f32> {
    x.iter().map(|&x| cpu::f32_from_bf16(cpu::bf16_from_f32(x))).collect()
}
