//! A network as a list of layers, and what a step of training must hold, from the list alone.

use crate::gpt::Config;
use candle_core::{D, DType, Tensor};
use gpulab::error::{Error, Result, bytes};
use gpulab::measurement::{Backend, Measurement, Summary};
use gpulab::table::{Cell, Table};

/// What a network is trained for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Loss {
    /// Mean cross-entropy against a class for each example.
    CrossEntropy,
    /// The mean of the squared outputs: for a part of a network, which has no classes.
    MeanSquare,
}

/// What moves the parameters.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Optimiser {
    /// Parameters less a part of their gradient; remembers nothing.
    Sgd,
    /// AdamW: remembers two numbers for each parameter.
    AdamW,
}

impl Optimiser {
    /// DType that it remembers for each parameter.
    pub fn state(self) -> u64 {
        match self {
            Optimiser::Sgd => 0,
            Optimiser::AdamW => 2,
        }
    }
}

/// Layers in a row.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Network {
    /// What it is called in tables.
    pub name: String,
    /// The shape of one example.
    pub input: Vec<usize>,
    /// From the input to the output.
    pub layers: Vec<Layer>,
    /// What it is trained for.
    pub loss: Loss,
}

impl Network {
    /// The course's CNN (see [`crate::cnn`]): digits of 28 × 28, ten classes.
    pub fn cnn() -> Network {
        let layers = vec![
            Layer::Conv { inputs: 1, outputs: 32, window: 3 },
            Layer::Relu,
            Layer::Conv { inputs: 32, outputs: 64, window: 3 },
            Layer::Relu,
            Layer::MaxPool,
            Layer::Flatten,
            Layer::Linear { inputs: 9216, outputs: 128 },
            Layer::Relu,
            Layer::Linear { inputs: 128, outputs: 10 },
        ];
        Network { name: "CNN".to_string(), input: vec![1, 28, 28], layers, loss: Loss::CrossEntropy }
    }

    /// So many blocks of a GPT-2 of that shape, on texts of `tokens` tokens, without the embedding and the head.
    pub fn gpt_blocks(config: &Config, blocks: usize, tokens: usize) -> Network {
        let width = config.n_embd;
        let attention = vec![
            Layer::LayerNorm { width },
            Layer::Linear { inputs: width, outputs: 3 * width },
            Layer::Attention { width, heads: config.n_head },
            Layer::Linear { inputs: width, outputs: width },
        ];
        let feed_forward = vec![
            Layer::LayerNorm { width },
            Layer::Linear { inputs: width, outputs: 4 * width },
            Layer::Gelu,
            Layer::Linear { inputs: 4 * width, outputs: width },
        ];
        let block = [Layer::Residual(attention), Layer::Residual(feed_forward)];
        let layers = (0..blocks).flat_map(|_| block.clone()).collect();
        let name = format!("{blocks} GPT-2 block{}", if blocks == 1 { "" } else { "s" });
        Network { name, input: vec![tokens, width], layers, loss: Loss::MeanSquare }
    }

    /// How many numbers its parameters hold.
    pub fn parameters(&self) -> u64 {
        self.layers.iter().map(count).sum()
    }

    /// Everything that is kept between the forward and the backward pass of that many examples, in the order in which it
    /// is made.
    pub fn kept(&self, batch: usize) -> Vec<Activation> {
        let mut keeps = Activations::default();
        let shape = self.layers.iter().fold(self.shape(batch), |shape, layer| layer.kept(&shape, &mut keeps));
        match self.loss {
            Loss::CrossEntropy => {
                keeps.add("cross-entropy", &shape, &[("less maximum", 1), ("exp", 1), ("log-softmax", 1)]);
                keeps.add("cross-entropy", &[batch], &[("maximum, sum, its log, picked", 4)]);
            }
            Loss::MeanSquare => keeps.add("mean square", &shape, &[("squared", 1)]),
        }
        keeps.0
    }

    /// The shape of a batch.
    pub fn shape(&self, batch: usize) -> Vec<usize> {
        [&[batch][..], &self.input].concat()
    }

    /// What a step of training on that many examples must hold, layer by layer. `numbers` is the type of the parameters and of
    /// all that follows from them.
    pub fn predict(&self, batch: usize, dtype: DType, optimiser: Optimiser) -> Prediction {
        let size = dtype.size_in_bytes() as u64;
        let mut shape = self.shape(batch);
        let mut layers = Vec::new();
        for layer in &self.layers {
            let mut keeps = Activations::default();
            shape = layer.kept(&shape, &mut keeps);
            let activations = size * keeps.0.iter().map(|kept| kept.elements).sum::<u64>();
            let name = match layer {
                Layer::Residual(inner) => inner.iter().map(Layer::name).collect::<Vec<_>>().join(", "),
                layer => layer.name(),
            };
            layers.push(LayerBytes { name, shape: shape.clone(), parameters: size * count(layer), activations });
        }
        let all: u64 = size * self.kept(batch).iter().map(|kept| kept.elements).sum::<u64>();
        let loss = all - layers.iter().map(|layer| layer.activations).sum::<u64>();
        layers.push(LayerBytes { name: "loss".to_string(), shape: vec![], parameters: 0, activations: loss });
        let parameters = size * self.parameters();
        Prediction {
            batch,
            layers,
            parameters,
            gradients: parameters,
            optimiser: parameters * optimiser.state(),
            activations: all,
            input: size * self.shape(batch).iter().product::<usize>() as u64,
        }
    }

    /// The largest batch whose step fits `budget` bytes, when a step needs `workspace` bytes an example beside what is
    /// predicted (measure it with a small batch: [`super::StepMemory::workspace_each`]).
    ///
    /// # Errors
    /// [`gpulab::Error::Invalid`] when not even one example fits; it says how much that would take.
    pub fn largest_batch(&self, budget: u64, optimiser: Optimiser, workspace: f64) -> Result<usize> {
        // All shapes begin with the batch, so two points make the line. What does not grow is in `one`.
        let total = |batch| self.predict(batch, DType::F32, optimiser).total();
        let (one, two) = (total(1), total(2));
        let each = (two - one) as f64 + workspace;
        let fixed = (2 * one - two) as f64;
        let fits = ((budget as f64 - fixed) / each).floor();
        if fits >= 1.0 {
            return Ok(fits as usize);
        }
        Err(Error::invalid(
            format!(
                "{} do not hold a step of {} with even one example, which takes {}",
                gpulab::error::bytes(budget),
                self.name,
                gpulab::error::bytes((fixed + each) as u64)
            ),
            "use a smaller network, an optimizer that remembers less, or checkpointing",
        ))
    }
}

fn count(layer: &Layer) -> u64 {
    layer.parameters().iter().map(|shape| shape.iter().product::<usize>() as u64).sum()
}

// ----------------------------------------------------------------------
// Layers as plain data: their parameters, what the backward pass needs of them, and how candle runs them.
//
// candle keeps the result of every operation until the loss is dropped, since each tensor holds the ones that it was made
// from. Only a change of shape shares its memory. So a layer's share of the memory is the list of its operations' results, and
// [`Layer::kept`] and [`Layer::run`] must say the same thing twice; the tests compare the two.

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
        /// DType that come in.
        inputs: usize,
        /// DType that go out.
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
    pub(super) fn kept(&self, shape: &[usize], to: &mut Activations) -> Vec<usize> {
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

// ----------------------------------------------------------------------
// What lies in memory between the forward and the backward pass, as a list.

/// Results of one layer that are kept until the backward pass.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Activation {
    /// The layer's name.
    pub layer: String,
    /// Which results.
    pub what: String,
    /// The shape of each.
    pub shape: Vec<usize>,
    /// DType in all of them.
    pub elements: u64,
}

/// Collects them, layer by layer.
#[derive(Debug, Default)]
pub(super) struct Activations(pub Vec<Activation>);

impl Activations {
    /// Notes that the layer keeps results of that shape: names, and how many of each.
    pub(super) fn keep(&mut self, layer: &Layer, shape: &[usize], results: &[(&str, u64)]) {
        self.add(&layer.name(), shape, results);
    }

    pub(super) fn add(&mut self, layer: &str, shape: &[usize], results: &[(&str, u64)]) {
        let times: u64 = results.iter().map(|(_, times)| times).sum();
        let what: Vec<&str> = results.iter().map(|(what, _)| *what).collect();
        let numbers = shape.iter().product::<usize>() as u64 * times;
        self.0.push(Activation {
            layer: layer.to_string(),
            what: what.join(", "),
            shape: shape.to_vec(),
            elements: numbers,
        });
    }
}

// ----------------------------------------------------------------------
// Predicted bytes, layer by layer, and how they show themselves.

/// One layer's part, in bytes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LayerBytes {
    /// Its name.
    pub name: String,
    /// The shape of what goes out, the batch first.
    pub shape: Vec<usize>,
    /// Its parameters.
    pub parameters: u64,
    /// What is kept of it until the backward pass.
    pub activations: u64,
}

/// What a step of training must hold, in bytes, from the layers' shapes alone. As a cell's last line it shows itself.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Prediction {
    /// Examples.
    pub batch: usize,
    /// Layer by layer; the loss last.
    pub layers: Vec<LayerBytes>,
    /// The parameters.
    pub parameters: u64,
    /// Their gradients: as large.
    pub gradients: u64,
    /// What the optimiser remembers.
    pub optimiser: u64,
    /// Everything kept between the forward and the backward pass.
    pub activations: u64,
    /// The examples themselves.
    pub input: u64,
}

impl Prediction {
    /// All of it together: what is held when the backward pass has ended and nothing was dropped yet.
    pub fn total(&self) -> u64 {
        self.parameters + self.gradients + self.optimiser + self.activations + self.input
    }

    /// The four parts that a measurement is compared with.
    pub fn parts(&self) -> [(&'static str, u64); 4] {
        [
            ("parameters", self.parameters),
            ("gradients", self.gradients),
            ("optimizer state", self.optimiser),
            ("activations", self.activations),
        ]
    }

    /// A row for each part, for [`gpulab::plot::stacked`]; `bar` names the bar.
    pub fn rows(&self, bar: &str) -> Vec<Measurement> {
        self.parts().map(|(part, bytes)| part_row(bar, self.batch, Backend::Derived, part, bytes)).to_vec()
    }

    /// What the notebook calls to show a value.
    pub fn evcxr_display(&self) {
        let rows = self.layers.iter().map(|layer| {
            let share = 100.0 * layer.activations as f64 / self.activations.max(1) as f64;
            let shape: Vec<String> = layer.shape.iter().map(usize::to_string).collect();
            [
                layer.name.clone(),
                shape.join(" × "),
                bytes(layer.parameters),
                bytes(layer.activations),
                format!("{share:.1} %"),
            ]
            .map(Cell::of)
            .to_vec()
        });
        let sums = [
            "together".to_string(),
            String::new(),
            bytes(self.parameters),
            bytes(self.activations),
            "100 %".to_string(),
        ];
        let table = Table {
            title: format!("Predicted from the layers alone, {} examples", self.batch),
            heads: ["layer", "gives", "parameters", "activations kept", "share"].map(str::to_string).to_vec(),
            rows: rows.chain([sums.map(Cell::of).to_vec()]).collect(),
            notes: vec![format!(
                "and gradients {}, optimizer state {}, the examples {}: {} in all, before any workspace",
                bytes(self.gradients),
                bytes(self.optimiser),
                bytes(self.input),
                bytes(self.total())
            )],
            ..Table::default()
        };
        table.show();
    }
}

/// One part of a bar, in MB (10⁶ bytes).
pub(super) fn part_row(bar: &str, batch: usize, backend: Backend, part: &str, bytes: u64) -> Measurement {
    Measurement::new(bar, backend, batch, part, "MB", Summary::of(&[bytes as f64 / 1e6]))
}
