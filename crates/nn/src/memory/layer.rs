//! Layers as plain data: their parameters, what the backward pass needs of them, and how candle runs them.
//!
//! candle keeps the result of every operation until the loss is dropped, since each tensor holds the ones that it was made
//! from. Only a change of shape shares its memory. So a layer's share of the memory is the list of its operations' results, and
//! [`Layer::kept`] and [`Layer::run`] must say the same thing twice; the tests hold one against the other.

use super::kept::Keeps;
use gpulab::error::Result;
use candle_core::{D, Tensor};

/// One layer. All shapes begin with the batch.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Layer {
    /// A convolution with square windows of side `window`, without padding, and its bias: [B, inputs, H, W].
    Conv {
        /// Channels that come in.
        inputs: usize,
        /// Channels that go out.
        outputs: usize,
        /// The window's side.
        window: usize,
    },
    /// max(x, 0).
    Relu,
    /// GPT-2's activation function, by tanh.
    Gelu,
    /// The largest of each 2 × 2 numbers of a channel.
    MaxPool,
    /// All numbers of an example in one row; moves nothing.
    Flatten,
    /// A matrix and a bias, for the last dimension.
    Linear {
        /// Numbers that come in.
        inputs: usize,
        /// Numbers that go out.
        outputs: usize,
    },
    /// Mean 0 and variance 1 over the last dimension, then a factor and a summand for each number.
    LayerNorm {
        /// Length of the last dimension.
        width: usize,
    },
    /// Causal attention: queries, keys and values side by side come in, [B, T, 3 · width]; [B, T, width] goes out.
    Attention {
        /// Width of a token.
        width: usize,
        /// Heads that share it.
        heads: usize,
    },
    /// x + f(x), where f is these layers.
    Residual(Vec<Layer>),
}

impl Layer {
    /// Its name, as it stands in tables.
    pub fn name(&self) -> String {
        match self {
            Layer::Conv { inputs, outputs, window } => format!("conv {window}×{window}, {inputs}→{outputs}"),
            Layer::Relu => "ReLU".to_string(),
            Layer::Gelu => "GELU".to_string(),
            Layer::MaxPool => "max-pool 2".to_string(),
            Layer::Flatten => "flatten".to_string(),
            Layer::Linear { inputs, outputs } => format!("linear {inputs}→{outputs}"),
            Layer::LayerNorm { width } => format!("layer norm {width}"),
            Layer::Attention { heads, .. } => format!("attention, {heads} heads"),
            Layer::Residual(_) => "residual sum".to_string(),
        }
    }

    /// Shapes of its own parameters, in the order in which `Layer::run` takes them.
    pub fn parameters(&self) -> Vec<Vec<usize>> {
        match self {
            Layer::Conv { inputs, outputs, window } => vec![vec![*outputs, *inputs, *window, *window], vec![*outputs]],
            Layer::Linear { inputs, outputs } => vec![vec![*outputs, *inputs], vec![*outputs]],
            Layer::LayerNorm { width } => vec![vec![*width], vec![*width]],
            Layer::Residual(inner) => inner.iter().flat_map(Layer::parameters).collect(),
            Layer::Relu | Layer::Gelu | Layer::MaxPool | Layer::Flatten | Layer::Attention { .. } => Vec::new(),
        }
    }

    /// Where the numbers of each parameter begin: uniform in middle ± bound. As PyTorch's layers, ±1/√(inputs of one output).
    pub(super) fn first_values(&self) -> Vec<(f32, f32)> {
        match self {
            Layer::LayerNorm { .. } => vec![(1.0, 0.0), (0.0, 0.0)],
            Layer::Residual(inner) => inner.iter().flat_map(Layer::first_values).collect(),
            Layer::Conv { inputs, window, .. } => vec![(0.0, 1.0 / ((inputs * window * window) as f32).sqrt()); 2],
            Layer::Linear { inputs, .. } => vec![(0.0, 1.0 / (*inputs as f32).sqrt()); 2],
            Layer::Relu | Layer::Gelu | Layer::MaxPool | Layer::Flatten | Layer::Attention { .. } => Vec::new(),
        }
    }

    /// What is kept until the backward pass when numbers of that shape come in, and the shape that goes out.
    pub(super) fn kept(&self, shape: &[usize], to: &mut Keeps) -> Vec<usize> {
        let rows: usize = shape[..shape.len() - 1].iter().product();
        let mut out = shape.to_vec();
        let last = shape.len() - 1;
        match self {
            Layer::Conv { outputs, window, .. } => {
                out = vec![shape[0], *outputs, shape[2] + 1 - window, shape[3] + 1 - window];
                to.keep(self, &out, &[("product", 1), ("with bias", 1)]);
            }
            Layer::Relu | Layer::Gelu => to.keep(self, &out, &[("result", 1)]),
            Layer::MaxPool => {
                out = vec![shape[0], shape[1], shape[2] / 2, shape[3] / 2];
                to.keep(self, &out, &[("result", 1)]);
            }
            Layer::Flatten => out = vec![shape[0], shape[1..].iter().product()],
            Layer::Linear { outputs, .. } => {
                out[last] = *outputs;
                to.keep(self, &out, &[("product", 1), ("with bias", 1)]);
            }
            Layer::LayerNorm { .. } => {
                let whole =
                    [("less mean", 1), ("squared", 1), ("divided", 1), ("times factor", 1), ("plus summand", 1)];
                to.keep(self, &out, &whole);
                to.keep(self, &[rows], &[("mean, variance and steps between", 6)]);
            }
            Layer::Attention { width, heads } => {
                let (batch, tokens) = (shape[0], shape[1]);
                out[last] = *width;
                to.keep(self, shape, &[("queries, keys, values by head", 1)]);
                let scores =
                    [("scores", 1), ("scaled", 1), ("masked", 1), ("less maximum", 1), ("exp", 1), ("softmax", 1)];
                to.keep(self, &[batch, *heads, tokens, tokens], &scores);
                to.keep(self, &[batch, *heads, tokens], &[("maximum and sum of a row", 2)]);
                to.keep(self, &[tokens, tokens], &[("mask", 1)]);
                to.keep(self, &out, &[("heads", 1), ("side by side", 1)]);
            }
            Layer::Residual(inner) => {
                inner.iter().fold(shape.to_vec(), |shape, layer| layer.kept(&shape, to));
                to.keep(self, &out, &[("sum", 1)]);
            }
        }
        out
    }

    /// Runs it on candle; takes its parameters off the front of `parameters`.
    pub fn run(&self, parameters: &mut &[Tensor], x: &Tensor) -> Result<Tensor> {
        let mut next = || {
            let (first, rest) = parameters.split_first().expect("as many as `parameters` lists");
            *parameters = rest;
            first
        };
        Ok(match self {
            Layer::Conv { outputs, .. } => {
                let (weight, bias) = (next(), next());
                x.conv2d(weight, 0, 1, 1, 1)?.broadcast_add(&bias.reshape((1, *outputs, 1, 1))?)?
            }
            Layer::Relu => x.relu()?,
            Layer::Gelu => x.gelu()?,
            Layer::MaxPool => x.max_pool2d(2)?,
            Layer::Flatten => x.flatten_from(1)?,
            Layer::Linear { inputs, outputs } => {
                let (weight, bias) = (next(), next());
                let mut shape = x.dims().to_vec();
                *shape.last_mut().expect("a batch at least") = *outputs;
                x.reshape(((), *inputs))?.matmul(&weight.t()?)?.broadcast_add(bias)?.reshape(shape)?
            }
            Layer::LayerNorm { width } => {
                let (factor, summand) = (next(), next());
                let x = x.broadcast_sub(&(x.sum_keepdim(D::Minus1)? / *width as f64)?)?;
                let variance = (x.sqr()?.sum_keepdim(D::Minus1)? / *width as f64)?;
                x.broadcast_div(&(variance + 1e-5)?.sqrt()?)?.broadcast_mul(factor)?.broadcast_add(summand)?
            }
            Layer::Attention { width, heads } => attention(x, *width, *heads)?,
            Layer::Residual(inner) => {
                let mut y = x.clone();
                for layer in inner {
                    y = layer.run(parameters, &y)?;
                }
                (x + y)?
            }
        })
    }
}

fn attention(x: &Tensor, width: usize, heads: usize) -> Result<Tensor> {
    let (batch, tokens, _) = x.dims3()?;
    let head = width / heads;
    let by_head = x.reshape((batch, tokens, 3, heads, head))?.permute((2, 0, 3, 1, 4))?.contiguous()?;
    let (q, k, v) = (by_head.get(0)?, by_head.get(1)?, by_head.get(2)?);
    let hidden = (0..tokens * tokens).map(|at| if at % tokens > at / tokens { f32::NEG_INFINITY } else { 0.0 });
    let mask = Tensor::from_vec(hidden.collect::<Vec<f32>>(), (tokens, tokens), x.device())?.to_dtype(x.dtype())?;
    let scores = (q.matmul(&k.t()?)? * (1.0 / (head as f64).sqrt()))?.broadcast_add(&mask)?;
    let y = candle_nn::ops::softmax(&scores, D::Minus1)?.matmul(&v)?;
    Ok(y.transpose(1, 2)?.reshape((batch, tokens, width))?)
}
