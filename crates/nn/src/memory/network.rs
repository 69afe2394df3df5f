//! A network as a list of layers, and what a step of training must hold, from the list alone.

use super::Numbers;
use super::kept::{Keeps, Kept};
use super::layer::Layer;
use super::prediction::{LayerBytes, Prediction};
use gpulab::error::{Error, Result};
use crate::gpt::Config;

/// What a network is trained for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Goal {
    /// Mean cross-entropy against a class for each example.
    Class,
    /// The mean of the squared outputs: for a part of a network, which has no classes.
    SmallSquares,
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
    /// Numbers that it remembers for each parameter.
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
    pub goal: Goal,
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
        Network { name: "CNN".to_string(), input: vec![1, 28, 28], layers, goal: Goal::Class }
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
        Network { name, input: vec![tokens, width], layers, goal: Goal::SmallSquares }
    }

    /// How many numbers its parameters hold.
    pub fn parameters(&self) -> u64 {
        self.layers.iter().map(count).sum()
    }

    /// Everything that is kept between the forward and the backward pass of that many examples, in the order in which it
    /// is made.
    pub fn kept(&self, batch: usize) -> Vec<Kept> {
        let mut keeps = Keeps::default();
        let shape = self.layers.iter().fold(self.shape(batch), |shape, layer| layer.kept(&shape, &mut keeps));
        match self.goal {
            Goal::Class => {
                keeps.add("cross-entropy", &shape, &[("less maximum", 1), ("exp", 1), ("log-softmax", 1)]);
                keeps.add("cross-entropy", &[batch], &[("maximum, sum, its log, picked", 4)]);
            }
            Goal::SmallSquares => keeps.add("mean square", &shape, &[("squared", 1)]),
        }
        keeps.0
    }

    /// The shape of a batch.
    pub fn shape(&self, batch: usize) -> Vec<usize> {
        [&[batch][..], &self.input].concat()
    }

    /// What a step of training on that many examples must hold, layer by layer. `numbers` is the type of the parameters and of
    /// all that follows from them.
    pub fn predict(&self, batch: usize, numbers: Numbers, optimiser: Optimiser) -> Prediction {
        let size = numbers.size();
        let mut shape = self.shape(batch);
        let mut layers = Vec::new();
        for layer in &self.layers {
            let mut keeps = Keeps::default();
            shape = layer.kept(&shape, &mut keeps);
            let activations = size * keeps.0.iter().map(|kept| kept.numbers).sum::<u64>();
            let name = match layer {
                Layer::Residual(inner) => inner.iter().map(Layer::name).collect::<Vec<_>>().join(", "),
                layer => layer.name(),
            };
            layers.push(LayerBytes { name, shape: shape.clone(), parameters: size * count(layer), activations });
        }
        let all: u64 = size * self.kept(batch).iter().map(|kept| kept.numbers).sum::<u64>();
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
    /// predicted (measure it with a small batch: [`super::Measured::workspace_each`]).
    ///
    /// # Errors
    /// [`Error::Invalid`] when not even one example fits; it says how much that would take.
    pub fn largest_batch(&self, budget: u64, optimiser: Optimiser, workspace: f64) -> Result<usize> {
        // All shapes begin with the batch, so two points make the line. What does not grow is in `one`.
        let total = |batch| self.predict(batch, Numbers::F32, optimiser).total();
        let (one, two) = (total(1), total(2));
        let each = (two - one) as f64 + workspace;
        let fixed = (2 * one - two) as f64;
        let fits = ((budget as f64 - fixed) / each).floor();
        if fits >= 1.0 {
            return Ok(fits as usize);
        }
        Err(Error::Invalid {
            what: format!(
                "{} do not hold a step of {} with even one example, which takes {}",
                gpulab::error::bytes(budget),
                self.name,
                gpulab::error::bytes((fixed + each) as u64)
            ),
            fix: "use a smaller network, an optimiser that remembers less, or checkpointing".to_string(),
        })
    }
}

fn count(layer: &Layer) -> u64 {
    layer.parameters().iter().map(|shape| shape.iter().product::<usize>() as u64).sum()
}
