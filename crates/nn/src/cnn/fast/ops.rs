//! The layers as operators of candle, each with its own way back; on the CPU and in f32.

use super::{Gradients, Kept, LEN_POOLED, Layers, backward, forward};
use gpulab::cpu::{Matrix, product};
use candle_core::{CpuStorage, CustomOp3, Layout, Result, Shape, Storage, Tensor, bail};
use std::sync::{Arc, Mutex};

/// Weight and bias of one convolution lie in one tensor, one after the other: an operator of candle takes three.
const SPLIT_1: usize = 9 * 32;
const SPLIT_2: usize = 9 * 32 * 64;

/// Both convolutions, their ReLUs and the max-pool: [B, 1, 28, 28] → [B, 9216].
#[derive(Clone, Default)]
pub(in super::super) struct Features {
    kept: Arc<Mutex<Option<Kept>>>,
}

/// `relu(x · wᵀ + b)`, or without ReLU: [B, in] → [B, out].
pub(in super::super) struct Linear {
    pub relu: bool,
}

/// The numbers of a contiguous f32 tensor on the CPU.
fn numbers<'a>(storage: &'a CpuStorage, layout: &Layout) -> Result<&'a [f32]> {
    let Some((start, end)) = layout.contiguous_offsets() else { bail!("a contiguous tensor is needed") };
    Ok(&storage.as_slice::<f32>()?[start..end])
}

/// Calls `work` with the numbers of these tensors.
fn with<const N: usize, T>(tensors: [&Tensor; N], work: impl FnOnce([&[f32]; N]) -> Result<T>) -> Result<T> {
    let held: Vec<_> = tensors.iter().map(|tensor| tensor.storage_and_layout()).collect();
    let mut slices: [&[f32]; N] = [&[]; N];
    for (slice, (storage, layout)) in slices.iter_mut().zip(&held) {
        let Storage::Cpu(storage) = &**storage else { bail!("this operator computes on the CPU") };
        *slice = numbers(storage, layout)?;
    }
    work(slices)
}

fn layers<'a>(first: &'a [f32], second: &'a [f32]) -> Layers<'a> {
    let ((weight_1, bias_1), (weight_2, bias_2)) = (first.split_at(SPLIT_1), second.split_at(SPLIT_2));
    Layers { weight_1, bias_1, weight_2, bias_2 }
}

impl CustomOp3 for Features {
    fn name(&self) -> &'static str {
        "two convolutions, ReLU and max-pool"
    }

    fn cpu_fwd(
        &self,
        images: &CpuStorage,
        images_at: &Layout,
        first: &CpuStorage,
        first_at: &Layout,
        second: &CpuStorage,
        second_at: &Layout,
    ) -> Result<(CpuStorage, Shape)> {
        let (images, first) = (numbers(images, images_at)?, numbers(first, first_at)?);
        let (pooled, kept) = forward(images, layers(first, numbers(second, second_at)?));
        *self.kept.lock().expect("no other holder panics") = Some(kept);
        Ok((CpuStorage::F32(pooled), (images_at.dims()[0], LEN_POOLED).into()))
    }

    fn bwd(
        &self,
        images: &Tensor,
        first: &Tensor,
        second: &Tensor,
        _pooled: &Tensor,
        gradient: &Tensor,
    ) -> Result<(Option<Tensor>, Option<Tensor>, Option<Tensor>)> {
        let kept = self.kept.lock().expect("no other holder panics");
        let Some(kept) = &*kept else { bail!("the backward pass comes after the forward one") };
        let gradient = gradient.contiguous()?;
        let found = with([images, first, second, &gradient], |[images, first, second, gradient]| {
            Ok(backward(images, layers(first, second), kept, gradient))
        })?;
        let Gradients { mut weight_1, bias_1, mut weight_2, bias_2 } = found;
        weight_1.extend(bias_1);
        weight_2.extend(bias_2);
        let first = Tensor::from_vec(weight_1, first.shape(), first.device())?;
        let second = Tensor::from_vec(weight_2, second.shape(), second.device())?;
        Ok((None, Some(first), Some(second)))
    }
}

impl CustomOp3 for Linear {
    fn name(&self) -> &'static str {
        "linear layer"
    }

    fn cpu_fwd(
        &self,
        x: &CpuStorage,
        x_at: &Layout,
        weight: &CpuStorage,
        weight_at: &Layout,
        bias: &CpuStorage,
        bias_at: &Layout,
    ) -> Result<(CpuStorage, Shape)> {
        let (rows, inputs) = x_at.shape().dims2()?;
        let (x, weight, bias) = (numbers(x, x_at)?, numbers(weight, weight_at)?, numbers(bias, bias_at)?);
        let outputs = bias.len();
        let weight = Matrix::rows(weight, inputs).turned();
        let mut out = product(Matrix::rows(x, inputs), weight, (rows, inputs, outputs));
        for row in out.chunks_exact_mut(outputs) {
            for (number, bias) in row.iter_mut().zip(bias) {
                let sum = *number + bias;
                *number = if self.relu { sum.max(0.0) } else { sum };
            }
        }
        Ok((CpuStorage::F32(out), (rows, outputs).into()))
    }

    fn bwd(
        &self,
        x: &Tensor,
        weight: &Tensor,
        bias: &Tensor,
        out: &Tensor,
        gradient: &Tensor,
    ) -> Result<(Option<Tensor>, Option<Tensor>, Option<Tensor>)> {
        let ((rows, inputs), outputs) = (x.dims2()?, bias.elem_count());
        let gradient = gradient.contiguous()?;
        let found = with([x, weight, out, &gradient], |[x, weight, out, gradient]| {
            let mut gradient = gradient.to_vec();
            if self.relu {
                gradient.iter_mut().zip(out).for_each(|(g, out)| *g = if *out > 0.0 { *g } else { 0.0 });
            }
            let mut to_bias = vec![0f32; outputs];
            for row in gradient.chunks_exact(outputs) {
                to_bias.iter_mut().zip(row).for_each(|(sum, g)| *sum += g);
            }
            let turned = Matrix::rows(&gradient, outputs);
            let to_x = product(turned, Matrix::rows(weight, inputs), (rows, outputs, inputs));
            let to_weight = product(turned.turned(), Matrix::rows(x, inputs), (outputs, rows, inputs));
            Ok([to_x, to_weight, to_bias])
        })?;
        let [to_x, to_weight, to_bias] = found;
        let tensor =
            |numbers: Vec<f32>, like: &Tensor| Tensor::from_vec(numbers, like.shape(), like.device()).map(Some);
        Ok((tensor(to_x, x)?, tensor(to_weight, weight)?, tensor(to_bias, bias)?))
    }
}
