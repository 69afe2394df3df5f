//! Between which numbers each value lies, from examples.

use super::step::Range;
use crate::export::layers::names;
use candle_core::{Device, Tensor};
use gpulab::error::{Error, Result};
use gpulab_nn::memory::{Layer, Network};

/// The range of each value that is quantised, in the order in which they come.
#[derive(Debug, Clone, PartialEq)]
pub struct Calibration {
    /// Examples that it was seen on.
    pub examples: usize,
    /// Value and range; the first is the input.
    pub ranges: Vec<(String, Range)>,
}

/// Runs examples (`[B, …]`, on the CPU) through the network and notes each value's range. `outside` is the share of numbers
/// that may lie outside it at each end: 0 takes all, 0.0001 leaves out the rarest.
///
/// # Errors
/// [`Error::Unsupported`] names a layer that is not quantised; [`Error::Invalid`] when there are no examples; candle's
/// error when they have another shape.
pub fn calibrate(network: &Network, parameters: &[&[f32]], examples: &Tensor, outside: f64) -> Result<Calibration> {
    if examples.dim(0)? == 0 {
        return Err(Error::Invalid {
            what: "there are no examples to take ranges from".to_string(),
            fix: "give some hundred of those that the network is for; they need no labels".to_string(),
        });
    }
    let mut ranges = Vec::new();
    let mut note = |name: &str, value: &Tensor| -> Result<Tensor> {
        ranges.push((name.to_string(), Range::without(&mut value.flatten_all()?.to_vec1()?, outside)));
        Ok(value.clone())
    };
    walk(network, &tensors(network, parameters)?, examples, &mut note)?;
    Ok(Calibration { examples: examples.dim(0)?, ranges })
}

/// The parameters on the CPU, in their shapes.
pub(super) fn tensors(network: &Network, parameters: &[&[f32]]) -> Result<Vec<Tensor>> {
    let shapes = network.layers.iter().flat_map(Layer::parameters);
    let tensor = |(shape, numbers): (Vec<usize>, &&[f32])| Ok(Tensor::from_slice(numbers, shape, &Device::Cpu)?);
    shapes.zip(parameters).map(tensor).collect()
}

/// Runs the network; what `change` makes of each value that an integer product or a max-pool takes goes on. Gives the last
/// value.
pub(super) fn walk(
    network: &Network,
    parameters: &[Tensor],
    examples: &Tensor,
    change: &mut dyn FnMut(&str, &Tensor) -> Result<Tensor>,
) -> Result<Tensor> {
    let (mut rest, names) = (parameters, names(&network.layers));
    let mut x = change("input", examples)?;
    for (at, (layer, name)) in network.layers.iter().zip(&names).enumerate() {
        if !matches!(layer, Layer::Conv { .. } | Layer::Linear { .. } | Layer::Relu | Layer::MaxPool | Layer::Flatten) {
            return Err(Error::Unsupported {
                what: format!("the layer `{name}` ({}) is not quantised", layer.name()),
                fix: "quantise a network of convolutions, linear layers, ReLU, max-pool and flatten".to_string(),
            });
        }
        x = layer.run(&mut rest, &x)?;
        let next = network.layers.get(at + 1);
        // A product's sums are 32 bits wide until the ReLU behind it is done, and what only moves numbers needs no other
        // step than they have.
        let own_step = match layer {
            Layer::Conv { .. } | Layer::Linear { .. } => next != Some(&Layer::Relu),
            layer => *layer == Layer::Relu,
        };
        if own_step && next.is_some() {
            x = change(name, &x)?;
        }
    }
    Ok(x)
}
