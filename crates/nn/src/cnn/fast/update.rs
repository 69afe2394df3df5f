//! AdamW's step of one parameter in one pass over memory, on all cores.

use candle_core::{CpuStorage, InplaceOp2, Layout, Result, bail};
use rayon::prelude::*;
use std::cell::RefCell;

/// Numbers that a core takes at a time.
const CHUNK: usize = 1 << 14;

/// What one step is made with; all of it follows from the optimiser's settings and the step's number.
#[derive(Debug, Clone, Copy)]
pub(in super::super) struct Rates {
    pub rate: f32,
    /// What is left of a weight after its decay.
    pub keep: f32,
    pub beta_1: f32,
    pub beta_2: f32,
    /// 1 / (1 - βᵗ) for both moments.
    pub scale_m: f32,
    pub scale_v: f32,
    pub epsilon: f32,
    /// What the gradient is multiplied by first: one over the loss scale.
    pub gradient: f32,
}

/// Updates a parameter in place from its gradient, and both moments with it.
pub(in super::super) struct Update<'a> {
    pub m: RefCell<&'a mut [f32]>,
    pub v: RefCell<&'a mut [f32]>,
    pub rates: Rates,
}

impl InplaceOp2 for Update<'_> {
    fn name(&self) -> &'static str {
        "AdamW"
    }

    fn cpu_fwd(
        &self,
        weight: &mut CpuStorage,
        weight_at: &Layout,
        gradient: &CpuStorage,
        gradient_at: &Layout,
    ) -> Result<()> {
        let CpuStorage::F32(weight) = weight else { bail!("parameters are f32") };
        let (Some(range), Some(from)) = (weight_at.contiguous_offsets(), gradient_at.contiguous_offsets()) else {
            bail!("contiguous tensors are needed")
        };
        let (weight, gradient) = (&mut weight[range.0..range.1], &gradient.as_slice::<f32>()?[from.0..from.1]);
        let (mut m, mut v) = (self.m.borrow_mut(), self.v.borrow_mut());
        let Rates { rate, keep, beta_1, beta_2, scale_m, scale_v, epsilon, gradient: scale } = self.rates;
        let chunks = weight.par_chunks_mut(CHUNK).zip(gradient.par_chunks(CHUNK));
        chunks.zip(m.par_chunks_mut(CHUNK).zip(v.par_chunks_mut(CHUNK))).for_each(|((weight, gradient), (m, v))| {
            for (((w, g), m), v) in weight.iter_mut().zip(gradient).zip(m).zip(v) {
                let g = g * scale;
                *m = *m * beta_1 + g * (1.0 - beta_1);
                *v = *v * beta_2 + g * g * (1.0 - beta_2);
                *w = *w * keep - rate * (*m * scale_m) / ((*v * scale_v).sqrt() + epsilon);
            }
        });
        Ok(())
    }
}
