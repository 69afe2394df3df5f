//! A linear layer with a low-rank adapter: y = W · x + scale · B · (A · x), where W is frozen.

use super::frozen::{FrozenWeight, with_backward};
use crate::gpt::SplitMix64;
use candle_core::{DType, Tensor, Var};
use candle_nn::Linear;
use gpulab::error::{Error, Result};

/// A frozen linear layer, and beside it two small matrices that learn.
#[derive(Debug, Clone)]
pub struct LoraLinear {
    weight: FrozenWeight,
    bias: Option<Tensor>,
    /// `[rank, inputs]`, random at first.
    a: Var,
    /// `[outputs, rank]`, zeros at first: an adapter that has learned nothing adds nothing.
    b: Var,
    scale: f64,
    merged: bool,
}

impl LoraLinear {
    /// Puts an adapter beside a weight. A begins as peft has it (uniform within ±1/√inputs, after a seed), B as zeros; scale = alpha / rank.
    ///
    /// # Errors
    /// [`Error::Invalid`] when the rank is 0 or above the smaller side of the matrix, or alpha is no positive number; what candle says.
    pub fn new(weight: FrozenWeight, bias: Option<Tensor>, rank: usize, alpha: f64, seed: u64) -> Result<LoraLinear> {
        let [outputs, inputs] = weight.shape();
        let most = outputs.min(inputs);
        if rank == 0 || rank > most {
            return Err(Error::invalid(
                format!("a rank of {rank} for a matrix of {outputs} × {inputs}, whose own rank is at most {most}"),
                format!("take a rank of 1 to {most}; 4 to 64 are usual"),
            ));
        }
        if !alpha.is_finite() || alpha <= 0.0 {
            return Err(Error::invalid(
                format!("alpha is {alpha}"),
                "give a positive number; once or twice the rank is usual",
            ));
        }
        let device = weight.device().clone();
        let (mut random, bound) = (SplitMix64::new(seed), 1.0 / (inputs as f64).sqrt());
        let first: Vec<f32> = (0..rank * inputs).map(|_| ((2.0 * random.unit() - 1.0) * bound) as f32).collect();
        let a = Var::from_tensor(&Tensor::from_vec(first, (rank, inputs), &device)?)?;
        let b = Var::zeros((outputs, rank), DType::F32, &device)?;
        Ok(LoraLinear { weight, bias: bias.map(|bias| bias.detach()), a, b, scale: alpha / rank as f64, merged: false })
    }

    /// Puts an adapter beside any linear layer of candle's, whose weight and bias it freezes.
    ///
    /// # Errors
    /// As [`LoraLinear::new`].
    ///
    /// ```
    /// # use gpulab_nn::{lora::LoraLinear, candle_nn::Linear, Device, Tensor};
    /// let layer = Linear::new(Tensor::ones((3, 4), gpulab_nn::DType::F32, &Device::Cpu)?, None);
    /// let adapted = LoraLinear::of(&layer, 2, 4.0, 1)?;
    /// assert_eq!(adapted.trainable(), 2 * (4 + 3));
    /// let x = Tensor::ones((1, 4), gpulab_nn::DType::F32, &Device::Cpu)?;
    /// assert_eq!(adapted.forward(&x)?.to_vec2::<f32>()?, [[4.0, 4.0, 4.0]]); // B is 0: as before
    /// # Ok::<(), gpulab::Error>(())
    /// ```
    pub fn of(layer: &Linear, rank: usize, alpha: f64, seed: u64) -> Result<LoraLinear> {
        let weight = FrozenWeight::Dense(layer.weight().detach());
        LoraLinear::new(weight, layer.bias().cloned(), rank, alpha, seed)
    }

    /// The layer's output, over the last axis of `x`.
    ///
    /// # Errors
    /// As [`FrozenWeight::product`].
    pub fn forward(&self, x: &Tensor) -> Result<Tensor> {
        let mut y = self.weight.product(x)?;
        if let Some(bias) = &self.bias {
            let sum = y.detach().broadcast_add(bias)?;
            y = with_backward(&y, sum, |_, _, dy| Ok(dy.clone()))?;
        }
        if self.merged {
            return Ok(y);
        }
        let [outputs, inputs] = self.weight.shape();
        let mut shape = x.dims().to_vec();
        shape.pop();
        shape.push(outputs);
        // From right to left: through `rank` numbers a row. B · A would be as large as the matrix itself.
        let low = (x.reshape(((), inputs))?.matmul(&self.a.t()?)? * self.scale)?;
        Ok((y + low.matmul(&self.b.t()?)?.reshape(shape)?)?)
    }

    /// What is added to the weight: scale · B · A, `[outputs, inputs]`.
    ///
    /// # Errors
    /// What candle says.
    pub fn delta(&self) -> Result<Tensor> {
        Ok((self.b.as_detached_tensor().matmul(&self.a.as_detached_tensor())? * self.scale)?)
    }

    /// The weight with the adapter in it, in f32: what an ordinary linear layer computes the same with.
    ///
    /// # Errors
    /// What candle says.
    pub fn merged_weight(&self) -> Result<Tensor> {
        let weight = self.weight.dense(&self.a)?;
        if self.merged { Ok(weight) } else { Ok((weight + self.delta()?)?) }
    }

    /// Puts the adapter into the weight: from now on the layer costs what it cost without. Merged twice is merged once.
    ///
    /// # Errors
    /// [`Error::Unsupported`] when the weight is in four bits; what candle says.
    pub fn merge(&mut self) -> Result<()> {
        self.move_weight(true)
    }

    /// Takes the adapter out of the weight again; what is left differs from before by rounding.
    ///
    /// # Errors
    /// As [`LoraLinear::merge`].
    pub fn unmerge(&mut self) -> Result<()> {
        self.move_weight(false)
    }

    fn move_weight(&mut self, merged: bool) -> Result<()> {
        if self.merged == merged {
            return Ok(());
        }
        let FrozenWeight::Dense(weight) = &self.weight else {
            return Err(Error::unsupported(
                "an adapter merged into weights of four bits: rounding them again would lose most of it",
                "unpack first: `merged_weight()` gives the sum in f32",
            ));
        };
        let (dtype, delta) = (weight.dtype(), self.delta()?);
        let weight = weight.to_dtype(DType::F32)?;
        let moved = if merged { (weight + delta)? } else { (weight - delta)? };
        self.weight = FrozenWeight::Dense(moved.to_dtype(dtype)?);
        self.merged = merged;
        Ok(())
    }

    /// The frozen weight.
    pub fn weight(&self) -> &FrozenWeight {
        &self.weight
    }

    /// A, `[rank, inputs]`.
    pub fn a(&self) -> &Var {
        &self.a
    }

    /// B, `[outputs, rank]`.
    pub fn b(&self) -> &Var {
        &self.b
    }

    /// alpha / rank.
    pub fn scale(&self) -> f64 {
        self.scale
    }

    /// Numbers that learn.
    pub fn trainable(&self) -> usize {
        self.a.elem_count() + self.b.elem_count()
    }

    /// Another scale: files may ask for one.
    pub(super) fn set_scale(&mut self, scale: f64) {
        self.scale = scale;
    }
}
