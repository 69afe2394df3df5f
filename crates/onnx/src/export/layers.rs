//! Networks that are lists of layers: each layer becomes a node or two.

use super::attribute::Attribute;
use super::graph::Graph;
use super::model::Onnx;
use super::value::{Dim, Kind, Numbers, Value};
use gpulab::error::{Error, Result};
use gpulab_nn::cnn::Parameters;
use gpulab_nn::memory::{Layer, Network};
use std::collections::BTreeMap;

/// The course's CNN: `images` [batch, 1, 28, 28] in 0 … 1, and `logits` [batch, 10], in f32.
///
/// # Errors
/// None for numbers in their shapes; see [`network`].
pub fn cnn(parameters: &Parameters) -> Result<Onnx> {
    let arrays: Vec<&[f32]> = parameters.arrays.iter().map(Vec::as_slice).collect();
    network(&Network::cnn(), &arrays, "images", "logits")
}

/// A list of layers with one array for each parameter, in the order of [`Layer::parameters`]; all in f32. The batch may have any
/// length.
///
/// # Errors
/// [`Error::Unsupported`] names the layer that is not exported, [`Error::Invalid`] arrays that do not fit the layers.
pub fn network(network: &Network, parameters: &[&[f32]], input: &str, output: &str) -> Result<Onnx> {
    let mut graph = Graph::new(&network.name);
    let x = graph.input(input, Kind::F32, &with_batch(&network.input));
    let mut writer = Writer { graph, rest: parameters, numbers: BTreeMap::new() };
    let (value, shape) = writer.layers(&network.layers, (x, network.input.clone()), Some(output))?;
    if !writer.rest.is_empty() {
        return Err(unfit(format!("{} arrays are left over after the last layer", writer.rest.len())));
    }
    let mut graph = writer.graph;
    graph.output(&value, Kind::F32, &with_batch(&shape));
    graph.finish()
}

fn with_batch(example: &[usize]) -> Vec<Dim> {
    [Dim::from("batch")].into_iter().chain(example.iter().map(|&length| length.into())).collect()
}

/// A value, and the shape of one example of it.
type Shaped = (Value, Vec<usize>);

struct Writer<'a> {
    graph: Graph,
    /// Parameters that no layer has taken yet.
    rest: &'a [&'a [f32]],
    /// How many layers of each kind there were: `conv1`, `conv2`.
    numbers: Numbering,
}

type Numbering = BTreeMap<&'static str, usize>;

/// The names of the values that the layers of a list give, without those inside a residual sum.
pub(super) fn names(layers: &[Layer]) -> Vec<String> {
    let mut numbers = Numbering::new();
    layers.iter().map(|layer| next_name(&mut numbers, layer)).collect()
}

/// `conv1`, `relu1`, `conv2`, …: as the CNN's checkpoint names its parameters.
fn next_name(numbers: &mut Numbering, layer: &Layer) -> String {
    let kind = match layer {
        Layer::Conv { .. } => "conv",
        Layer::Relu => "relu",
        Layer::Gelu => "gelu",
        Layer::MaxPool => "pool",
        Layer::Flatten => "flatten",
        Layer::Linear { .. } => "fc",
        Layer::LayerNorm { .. } => "norm",
        Layer::Attention { .. } => "attention",
        Layer::Residual(_) => "sum",
    };
    let number = numbers.entry(kind).or_default();
    *number += 1;
    format!("{kind}{number}")
}

impl Writer<'_> {
    fn layers(&mut self, layers: &[Layer], x: Shaped, last: Option<&str>) -> Result<Shaped> {
        let mut x = x;
        for (at, layer) in layers.iter().enumerate() {
            let name = next_name(&mut self.numbers, layer);
            let out = last.filter(|_| at + 1 == layers.len()).map_or_else(|| name.clone(), str::to_string);
            x = self.layer(layer, x, &name, &out)?;
        }
        Ok(x)
    }

    /// `out` is the name of the value that the layer gives.
    fn layer(&mut self, layer: &Layer, (x, mut shape): Shaped, name: &str, out: &str) -> Result<Shaped> {
        let value = match layer {
            Layer::Conv { outputs, window, .. } => {
                let [weight, bias] = self.parameters(layer, name)?;
                let side = *window as i64;
                (shape[0], shape[1], shape[2]) = (*outputs, shape[1] + 1 - window, shape[2] + 1 - window);
                self.graph.node(out, "Conv", &[&x, &weight, &bias], &[("kernel_shape", [side, side].into())])
            }
            Layer::Relu => self.graph.node(out, "Relu", &[&x], &[]),
            // GPT-2's form: by tanh.
            Layer::Gelu => self.graph.node(out, "Gelu", &[&x], &[("approximate", "tanh".into())]),
            Layer::MaxPool => {
                (shape[1], shape[2]) = (shape[1] / 2, shape[2] / 2);
                let told = [("kernel_shape", [2, 2].into()), ("strides", [2, 2].into())];
                self.graph.node(out, "MaxPool", &[&x], &told)
            }
            Layer::Flatten => {
                shape = vec![shape.iter().product()];
                self.graph.node(out, "Flatten", &[&x], &[("axis", Attribute::Int(1))])
            }
            Layer::Linear { outputs, .. } => {
                let [weight, bias] = self.parameters(layer, name)?;
                let rows = shape.len();
                shape[rows - 1] = *outputs;
                if rows == 1 {
                    self.graph.node(out, "Gemm", &[&x, &weight, &bias], &[("transB", Attribute::Int(1))])
                } else {
                    // Gemm takes two axes alone. A runtime turns the weight once, when it loads the model.
                    let turned = self.graph.node(&format!("{name}.turned"), "Transpose", &[&weight], &[]);
                    let product = self.graph.node(&format!("{name}.product"), "MatMul", &[&x, &turned], &[]);
                    self.graph.node(out, "Add", &[&product, &bias], &[])
                }
            }
            Layer::LayerNorm { .. } => {
                let [factor, summand] = self.parameters(layer, name)?;
                let told = [("axis", Attribute::Int(-1)), ("epsilon", 1e-5f32.into())];
                self.graph.node(out, "LayerNormalization", &[&x, &factor, &summand], &told)
            }
            Layer::Residual(inner) => {
                let (inner, _) = self.layers(inner, (x.clone(), shape.clone()), None)?;
                self.graph.node(out, "Add", &[&x, &inner], &[])
            }
            Layer::Attention { .. } => {
                return Err(Error::Unsupported {
                    what: format!("the layer `{name}` ({}) is not exported from a list of layers", layer.name()),
                    fix: "use `export::gpt`, which has attention with its KV cache, or a list without this layer"
                        .to_string(),
                });
            }
        };
        Ok((value, shape))
    }

    /// The layer's two parameters, taken off the front.
    fn parameters(&mut self, layer: &Layer, name: &str) -> Result<[Value; 2]> {
        let mut take = |shape: &[usize], part: &str| {
            let (first, rest) = self
                .rest
                .split_first()
                .ok_or_else(|| unfit(format!("the layer `{name}` ({}) finds none left", layer.name())))?;
            self.rest = rest;
            if first.len() != shape.iter().product::<usize>() {
                return Err(unfit(format!(
                    "the layer `{name}` ({}) has a {part} of shape {shape:?}, and the array holds {} numbers",
                    layer.name(),
                    first.len()
                )));
            }
            Ok(self.graph.weight(&format!("{name}.{part}"), shape, Numbers::F32(first)))
        };
        let shapes = layer.parameters();
        Ok([take(&shapes[0], "weight")?, take(&shapes[1], "bias")?])
    }
}

fn unfit(what: String) -> Error {
    Error::Invalid {
        what: format!("the arrays are not those of the layers: {what}"),
        fix: "give one array for each shape that `Layer::parameters` lists, in order".to_string(),
    }
}
