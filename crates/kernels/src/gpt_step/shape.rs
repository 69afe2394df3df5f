//! The shape of a GPT-2, and where each of its parameters lies in the flat arrays.

use gpulab::cpu;
use gpulab::error::{Error, Result};
use std::ops::Range;

pub(super) const HEAD: usize = GptShape::HEAD;

/// A GPT-2: layer norm, learned positions, biases, GELU, and the embedding once more as the last matrix.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct GptShape {
    /// Layers.
    pub layers: usize,
    /// Heads of 64 numbers; the model is as wide as all of them.
    pub heads: usize,
    /// Different tokens. The table has a multiple of 128 rows; no token is one of those beyond.
    pub vocabulary: usize,
    /// Tokens of a text.
    pub context: usize,
}

/// A parameter: its name as `transformers` has it, and where it lies.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Tensor {
    /// Such as `h.0.attn.c_attn.weight`.
    pub name: String,
    /// In the flat arrays.
    pub range: Range<usize>,
    /// Rows and columns of a matrix, `[outputs, inputs]`; a vector has one row.
    pub sides: [usize; 2],
}

/// Where a layer's parameters begin, from the layer's own begin on: matrices first, as they alone decay.
#[derive(Debug, Clone, Copy)]
pub(super) struct LayerOffsets {
    pub qkv: usize,
    pub project: usize,
    pub up: usize,
    pub down: usize,
    /// Scale and shift.
    pub norm_1: usize,
    pub qkv_bias: usize,
    pub project_bias: usize,
    pub norm_2: usize,
    pub up_bias: usize,
    pub down_bias: usize,
    /// All of them.
    pub len: usize,
}

impl GptShape {
    /// The head dimension: what the kernels of flash attention are made for here.
    pub const HEAD: usize = 64;
    /// GPT-2 with 124 million parameters.
    pub const GPT2_124M: GptShape = GptShape { layers: 12, heads: 12, vocabulary: 50_257, context: 1024 };

    /// Width of the residual stream: the numbers that stand for a token (`d_model`, `hidden_size`).
    pub fn width(&self) -> usize {
        self.heads * HEAD
    }

    /// Rows of the table: the vocabulary, filled up to a multiple of 128.
    pub fn rows(&self) -> usize {
        self.vocabulary.next_multiple_of(128)
    }

    pub(super) fn offsets(&self) -> LayerOffsets {
        let (c, mut at) = (self.width(), 0);
        let mut next = |len: usize| {
            at += len;
            at - len
        };
        LayerOffsets {
            qkv: next(3 * c * c),
            project: next(c * c),
            up: next(4 * c * c),
            down: next(4 * c * c),
            norm_1: next(2 * c),
            qkv_bias: next(3 * c),
            project_bias: next(c),
            norm_2: next(2 * c),
            up_bias: next(4 * c),
            down_bias: next(c),
            len: next(0),
        }
    }

    /// Where the positions' embedding begins, behind the tokens'.
    pub(super) fn positions(&self) -> usize {
        self.rows() * self.width()
    }

    /// The parameters of a layer: one range, and so are their gradients, which the backward pass has ready last layer first. Layer
    /// `layers` is the last norm.
    pub fn layer(&self, layer: usize) -> Range<usize> {
        let begin = self.positions() + self.context * self.width() + layer * self.offsets().len;
        begin..begin + if layer == self.layers { 2 * self.width() } else { self.offsets().len }
    }

    /// Parameters in all, rows that fill the table up included.
    pub fn parameter_count(&self) -> usize {
        self.layer(self.layers).end
    }

    /// All parameters in the order of the flat arrays.
    pub fn tensors(&self) -> Vec<Tensor> {
        let c = self.width();
        let mut all = Vec::new();
        let mut put = |name: String, at: usize, rows: usize, columns: usize| {
            all.push(Tensor { name, range: at..at + rows * columns, sides: [rows, columns] });
        };
        put("wte.weight".into(), 0, self.rows(), c);
        put("wpe.weight".into(), self.positions(), self.context, c);
        let offsets = self.offsets();
        for layer in 0..self.layers {
            let begin = self.layer(layer).start;
            let mut own = |name: &str, at: usize, rows: usize, columns: usize| {
                put(format!("h.{layer}.{name}"), begin + at, rows, columns);
            };
            own("attn.c_attn.weight", offsets.qkv, 3 * c, c);
            own("attn.c_proj.weight", offsets.project, c, c);
            own("mlp.c_fc.weight", offsets.up, 4 * c, c);
            own("mlp.c_proj.weight", offsets.down, c, 4 * c);
            own("ln_1.weight", offsets.norm_1, 1, c);
            own("ln_1.bias", offsets.norm_1 + c, 1, c);
            own("attn.c_attn.bias", offsets.qkv_bias, 1, 3 * c);
            own("attn.c_proj.bias", offsets.project_bias, 1, c);
            own("ln_2.weight", offsets.norm_2, 1, c);
            own("ln_2.bias", offsets.norm_2 + c, 1, c);
            own("mlp.c_fc.bias", offsets.up_bias, 1, 4 * c);
            own("mlp.c_proj.bias", offsets.down_bias, 1, c);
        }
        let last = self.layer(self.layers).start;
        put("ln_f.weight".into(), last, 1, c);
        put("ln_f.bias".into(), last + c, 1, c);
        all
    }

    /// An error for a shape that the kernels do not take.
    pub(super) fn check(&self, batch: usize) -> Result<()> {
        let GptShape { layers, heads, vocabulary, context } = *self;
        if [layers, heads, vocabulary, context, batch].contains(&0) {
            return Err(Error::invalid(format!("{self:?} with a batch of {batch}"), "give at least 1 of each"));
        }
        let most = self.parameter_count().max(batch * context * 4 * self.width());
        if most > i32::MAX as usize || batch * heads > 65_535 || self.width() > 2048 {
            return Err(Error::invalid(
                format!(
                    "{self:?} with a batch of {batch}: the kernels count numbers in `int`, and rows have up to 2048"
                ),
                "take fewer texts a step and add up the gradients of several steps, or a smaller model",
            ));
        }
        Ok(())
    }

    /// Whether the vocabulary has all these tokens.
    ///
    /// # Errors
    /// [`Error::Invalid`] names one that it does not have.
    pub fn knows(&self, tokens: &[u32]) -> Result<()> {
        match tokens.iter().find(|&&token| token as usize >= self.vocabulary) {
            None => Ok(()),
            Some(token) => Err(Error::invalid(
                format!("the batch has the token {token}, and the vocabulary ends at {}", self.vocabulary - 1),
                "use the tokenizer that belongs to the model",
            )),
        }
    }

    /// Operations of a step by the usual count, 6 for each parameter (without the rows that fill the table up) and token.
    pub fn operations(&self, batch: usize) -> f64 {
        let parameters = self.parameter_count() - (self.rows() - self.vocabulary) * self.width();
        6.0 * parameters as f64 * (batch * self.context) as f64
    }

    /// Parameters to start from, as a seed decides: GPT-2's deviations (0.02, and less for what is added to the residual), scales 1, no
    /// biases. They are evenly spread, so that another program can make the same ones from a few integer operations.
    pub fn start(&self, seed: u64) -> Vec<f32> {
        let mut all = vec![0.0_f32; self.parameter_count()];
        for Tensor { name, range, sides } in self.tensors() {
            if sides[0] == 1 {
                all[range].fill(if name.contains("ln_") && name.ends_with("weight") { 1.0 } else { 0.0 });
                continue;
            }
            let residual = if name.ends_with("c_proj.weight") { 1.0 / ((2 * self.layers) as f64).sqrt() } else { 1.0 };
            let spread = (0.02 * 3f64.sqrt() * residual) as f32;
            for (number, at) in all[range.clone()].iter_mut().zip(range) {
                *number = unit(seed, at) * spread;
            }
        }
        all
    }

    /// Tokens of a text as a seed decides, of which few are frequent: `batch` texts of context + 1.
    pub fn random_tokens(&self, batch: usize, seed: u64) -> Vec<u32> {
        let token = |at: usize| {
            let x = (unit(seed, at) + 1.0) / 2.0;
            ((x * x * x * self.vocabulary as f32) as u32).min(self.vocabulary as u32 - 1)
        };
        (0..batch * (self.context + 1)).map(token).collect()
    }
}

/// A number in [-1, 1).
fn unit(seed: u64, at: usize) -> f32 {
    let word = cpu::mix((seed << 40).wrapping_add(at as u64).wrapping_mul(0x9E37_79B9_7F4A_7C15));
    (word >> 40) as f32 / (1 << 23) as f32 - 1.0
}
