//! The course's models as graphs: networks that are lists of layers, and GPT-2 with its KV cache.

use super::graph::{Attribute, DataType, Dim, GraphBuilder, Onnx, Value};
use gpulab::error::{Error, Result};
use gpulab_nn::cnn::Parameters;
use gpulab_nn::gpt::{Config, Weights};
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
    let mut graph = GraphBuilder::new(&network.name);
    let x = graph.input(input, DataType::F32, &with_batch(&network.input));
    let mut writer = NetworkWriter { graph, rest: parameters, numbers: BTreeMap::new() };
    let (value, shape) = writer.layers(&network.layers, (x, network.input.clone()), Some(output))?;
    if !writer.rest.is_empty() {
        return Err(unfit(format!("{} arrays are left over after the last layer", writer.rest.len())));
    }
    let mut graph = writer.graph;
    graph.output(&value, DataType::F32, &with_batch(&shape));
    graph.finish()
}

fn with_batch(example: &[usize]) -> Vec<Dim> {
    [Dim::from("batch")].into_iter().chain(example.iter().map(|&length| length.into())).collect()
}

/// A value, and the shape of one example of it.
type Shaped = (Value, Vec<usize>);

struct NetworkWriter<'a> {
    graph: GraphBuilder,
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

impl NetworkWriter<'_> {
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
                return Err(Error::unsupported(
                    format!("the layer `{name}` ({}) is not exported from a list of layers", layer.name()),
                    "use `export::gpt`, which has attention with its KV cache, or a list without this layer",
                ));
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
            Ok(self.graph.weight(&format!("{name}.{part}"), shape, first))
        };
        let shapes = layer.parameters();
        Ok([take(&shapes[0], "weight")?, take(&shapes[1], "bias")?])
    }
}

fn unfit(what: String) -> Error {
    Error::invalid(
        format!("the arrays are not those of the layers: {what}"),
        "give one array for each shape that `Layer::parameters` lists, in order",
    )
}

/// What hides a key: exp of it is 0 in f32, and unlike −∞ it makes no NaN where a whole row is hidden.
const HIDDEN: f32 = -1e9;
/// GPT-2's, for all its layer norms.
const EPSILON: f32 = 1e-5;

/// A GPT-2 in f32, with the names that Hugging Face's tools know.
///
/// | in | | out | |
/// | --- | --- | --- | --- |
/// | `input_ids` | i64 [batch, sequence] | `logits` | f32 [batch, sequence, vocabulary] |
/// | `attention_mask` | i64 [batch, total_sequence], 0 for tokens that fill a text up on the left, else 1 | | |
/// | `position_ids` | i64 [batch, sequence], each token's place in its text | | |
/// | `past_key_values.N.key`, `.value` | f32 [batch, heads, past_sequence, head], for each layer N | `present.N.key`, `.value` | [batch, heads, total_sequence, head] |
///
/// `total_sequence` is `past_sequence + sequence`; the past may have a length of 0.
///
/// # Errors
/// None for weights in the shapes of their [`Config`].
pub fn gpt(weights: &Weights) -> Result<Onnx> {
    let config = weights.config();
    let mut graph = GraphBuilder::new("GPT-2");
    let (batch, sequence, past, total) = ("batch", "sequence", "past_sequence", "total_sequence");
    let ids = graph.input("input_ids", DataType::I64, &[batch.into(), sequence.into()]);
    let mask = graph.input("attention_mask", DataType::I64, &[batch.into(), total.into()]);
    let places = graph.input("position_ids", DataType::I64, &[batch.into(), sequence.into()]);
    let kept = |length: &str| -> [Dim; 4] { [batch.into(), config.n_head.into(), length.into(), config.head().into()] };

    let mut writer = GptWriter { graph, weights, config, constants: 0 };
    let table = writer.weight("wte.weight");
    let place_table = writer.weight("wpe.weight");
    let tokens = writer.graph.node("wte", "Gather", &[&table, &ids], &[]);
    let placed = writer.graph.node("wpe", "Gather", &[&place_table, &places], &[]);
    let mut x = writer.graph.node("embedding", "Add", &[&tokens, &placed], &[]);
    let hides = writer.mask(&ids, &mask);
    let mut cached = Vec::new();
    for layer in 0..config.n_layer {
        let name = |part: &str| format!("past_key_values.{layer}.{part}");
        let before = ["key", "value"].map(|part| writer.graph.input(&name(part), DataType::F32, &kept(past)));
        let (y, now) = writer.block(layer, x, &before, &hides);
        x = y;
        cached.extend(now);
    }
    let x = writer.norm("ln_f", &x);
    let logits = writer.head(&x, &table, &ids);
    let mut graph = writer.graph;
    graph.output(&logits, DataType::F32, &[batch.into(), sequence.into(), config.vocab_size.into()]);
    for value in &cached {
        graph.output(value, DataType::F32, &kept(total));
    }
    graph.note("layers, heads, width", &format!("{}, {}, {}", config.n_layer, config.n_head, config.n_embd));
    graph.note("longest text in tokens", &config.n_ctx.to_string());
    graph.note("parameters", &config.parameter_count().to_string());
    graph.finish()
}

struct GptWriter<'a> {
    graph: GraphBuilder,
    weights: &'a Weights,
    config: Config,
    constants: usize,
}

impl GptWriter<'_> {
    fn weight(&mut self, name: &str) -> Value {
        self.graph.shared_weight(name, self.weights.shared(name))
    }

    fn whole(&mut self, shape: &[usize], numbers: &[i64]) -> Value {
        self.constants += 1;
        self.graph.weight(&format!("constant{}", self.constants), shape, numbers)
    }

    fn number(&mut self, number: f32) -> Value {
        self.constants += 1;
        self.graph.weight(&format!("constant{}", self.constants), &[], &[number])
    }

    fn reshape(&mut self, name: &str, x: &Value, shape: &[i64]) -> Value {
        let shape = self.whole(&[shape.len()], shape);
        self.graph.node(name, "Reshape", &[x, &shape], &[])
    }

    fn norm(&mut self, name: &str, x: &Value) -> Value {
        let (factor, summand) = (self.weight(&format!("{name}.weight")), self.weight(&format!("{name}.bias")));
        let told = [("axis", Attribute::Int(-1)), ("epsilon", EPSILON.into())];
        self.graph.node(name, "LayerNormalization", &[x, &factor, &summand], &told)
    }

    fn linear(&mut self, name: &str, x: &Value) -> Value {
        // GPT-2 keeps its weights [inputs, outputs], as MatMul takes them.
        let (weight, bias) = (self.weight(&format!("{name}.weight")), self.weight(&format!("{name}.bias")));
        let product = self.graph.node(&format!("{name}.product"), "MatMul", &[x, &weight], &[]);
        self.graph.node(name, "Add", &[&product, &bias], &[])
    }

    /// What is added to the scores, [batch, 1, sequence, total]: 0, or what hides a key that comes later, or that only fills up.
    fn mask(&mut self, ids: &Value, mask: &Value) -> Value {
        let length = |graph: &mut GraphBuilder, name: &str, of: &Value| {
            let told = [("start", Attribute::Int(1)), ("end", Attribute::Int(2))];
            graph.node(name, "Shape", &[of], &told)
        };
        let sequence = length(&mut self.graph, "mask.sequence", ids);
        let total = length(&mut self.graph, "mask.total", mask);
        // ValueRange takes single numbers, and Shape gives rows of one.
        let (zero, one, single) = (self.whole(&[], &[0]), self.whole(&[], &[1]), self.whole(&[0], &[]));
        let sequence = self.graph.node("mask.queries", "Reshape", &[&sequence, &single], &[]);
        let total = self.graph.node("mask.keys", "Reshape", &[&total, &single], &[]);
        let past = self.graph.node("mask.past", "Sub", &[&total, &sequence], &[]);
        let keys = self.graph.node("mask.key", "Range", &[&zero, &total, &one], &[]);
        let queries = self.graph.node("mask.query", "Range", &[&past, &total, &one], &[]);
        let queries = self.reshape("mask.query_rows", &queries, &[-1, 1]);
        let later = self.graph.node("mask.later", "Greater", &[&keys, &queries], &[]);
        let filling = self.graph.node("mask.filling", "Equal", &[mask, &zero], &[]);
        let filling = self.filling_rows(&filling);
        let hidden = self.graph.node("mask.hidden", "Or", &[&later, &filling], &[]);
        let (hides, shows) = (self.number(HIDDEN), self.number(0.0));
        self.graph.node("mask", "Where", &[&hidden, &hides, &shows], &[])
    }

    /// [batch, total] as [batch, 1, 1, total].
    fn filling_rows(&mut self, filling: &Value) -> Value {
        let axes = self.whole(&[2], &[1, 2]);
        self.graph.node("mask.filling_rows", "Unsqueeze", &[filling, &axes], &[])
    }

    fn block(&mut self, layer: usize, x: Value, before: &[Value; 2], hides: &Value) -> (Value, [Value; 2]) {
        let of = |part: &str| format!("h.{layer}.{part}");
        let normed = self.norm(&of("ln_1"), &x);
        let (seen, now) = self.attention(layer, &normed, before, hides);
        let seen = self.linear(&of("attn.c_proj"), &seen);
        let x = self.graph.node(&of("attn.sum"), "Add", &[&x, &seen], &[]);
        let normed = self.norm(&of("ln_2"), &x);
        let up = self.linear(&of("mlp.c_fc"), &normed);
        let inner = self.graph.node(&of("mlp.gelu"), "Gelu", &[&up], &[("approximate", "tanh".into())]);
        let down = self.linear(&of("mlp.c_proj"), &inner);
        (self.graph.node(&of("mlp.sum"), "Add", &[&x, &down], &[]), now)
    }

    /// softmax(q · kᵀ / √d + mask) · v, with the past's keys and values before the new ones; gives both for the next call.
    fn attention(&mut self, layer: usize, x: &Value, before: &[Value; 2], hides: &Value) -> (Value, [Value; 2]) {
        let of = |part: &str| format!("h.{layer}.attn.{part}");
        let (heads, head, width) = (self.config.n_head as i64, self.config.head(), self.config.n_embd as i64);
        let qkv = self.linear(&of("c_attn"), x);
        let names = [of("q_row"), of("k_row"), of("v_row")];
        let told = [("axis", Attribute::Int(-1)), ("num_outputs", Attribute::Int(3))];
        let rows = self.graph.node_with(&of("split"), "Split", &[&qkv], &told, names.each_ref().map(String::as_str));
        let [q, k, v] = ["q", "k", "v"].map(|part| {
            let row = &rows["qkv".find(part).expect("one of the three")];
            // 0 stands for the axis as it is.
            let split = self.reshape(&of(&format!("{part}_heads")), row, &[0, 0, heads, head as i64]);
            self.graph.node(&of(part), "Transpose", &[&split], &[("perm", [0, 2, 1, 3].into())])
        });
        let along = [("axis", Attribute::Int(2))];
        let keys = self.graph.node(&format!("present.{layer}.key"), "Concat", &[&before[0], &k], &along);
        let values = self.graph.node(&format!("present.{layer}.value"), "Concat", &[&before[1], &v], &along);
        let scale = self.number(1.0 / (head as f32).sqrt());
        let q = self.graph.node(&of("q_scaled"), "Mul", &[&q, &scale], &[]);
        let turned = self.graph.node(&of("k_turned"), "Transpose", &[&keys], &[("perm", [0, 1, 3, 2].into())]);
        let scores = self.graph.node(&of("scores"), "MatMul", &[&q, &turned], &[]);
        let masked = self.graph.node(&of("masked"), "Add", &[&scores, hides], &[]);
        let shares = self.graph.node(&of("softmax"), "Softmax", &[&masked], &[("axis", Attribute::Int(-1))]);
        let seen = self.graph.node(&of("seen"), "MatMul", &[&shares, &values], &[]);
        let joined = self.graph.node(&of("joined"), "Transpose", &[&seen], &[("perm", [0, 2, 1, 3].into())]);
        (self.reshape(&of("row"), &joined, &[0, 0, width]), [keys, values])
    }

    /// The embedding's table again, as a product of two axes: so a runtime need not keep it a second time, turned.
    fn head(&mut self, x: &Value, table: &Value, ids: &Value) -> Value {
        let flat = self.reshape("head.rows", x, &[-1, self.config.n_embd as i64]);
        let product = self.graph.node("head.product", "Gemm", &[&flat, table], &[("transB", Attribute::Int(1))]);
        let (own, tokens) =
            (self.whole(&[1], &[self.config.vocab_size as i64]), self.graph.node("head.tokens", "Shape", &[ids], &[]));
        let shape = self.graph.node("head.shape", "Concat", &[&tokens, &own], &[("axis", Attribute::Int(0))]);
        self.graph.node("logits", "Reshape", &[&product, &shape], &[])
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::export::{IR, OPSET};
    use gpulab_nn::memory::Loss;

    fn small(layers: Vec<Layer>, input: &[usize]) -> Network {
        Network { name: "small".to_string(), input: input.to_vec(), layers, loss: Loss::MeanSquare }
    }

    #[test]
    fn the_cnn_has_a_node_a_layer_and_the_checkpoints_names() {
        let parameters = Parameters::random(1);
        let model = cnn(&parameters).unwrap();
        let nodes = model.nodes();
        let names: Vec<&str> = nodes.iter().map(|node| node.name.as_str()).collect();
        assert_eq!(names, ["conv1", "relu1", "conv2", "relu2", "pool1", "flatten1", "fc1", "relu3", "logits"]);
        for ((name, shape), (found, dims, bytes)) in Parameters::SHAPES.iter().zip(model.weights()) {
            assert_eq!((*name, shape.to_vec()), (found, dims));
            assert_eq!(bytes, 4 * shape.iter().product::<usize>() as u64);
        }
        let ports: Vec<String> = model.inputs().iter().chain(&model.outputs()).map(ToString::to_string).collect();
        assert_eq!(ports, ["images: f32 [batch, 1, 28, 28]", "logits: f32 [batch, 10]"]);
        assert_eq!(model.versions(), (OPSET, IR));
    }

    #[test]
    fn a_layer_that_is_not_exported_is_named() {
        let layers = vec![Layer::Relu, Layer::Attention { width: 8, heads: 2 }];
        let text = network(&small(layers, &[4, 24]), &[], "x", "y").unwrap_err().to_string();
        assert!(
            text.contains("`attention1` (attention, 2 heads)") && text.contains("\nnext: use `export::gpt`"),
            "{text}"
        );
        let text = network(&Network::cnn(), &[&[0.0; 288]], "x", "y").unwrap_err().to_string();
        assert!(text.contains("`conv1` (conv 3×3, 1→32) finds none left"), "{text}");
        let text = network(&Network::cnn(), &[&[0.0; 287]], "x", "y").unwrap_err().to_string();
        assert!(
            text.contains("`conv1`") && text.contains("weight of shape [32, 1, 3, 3]") && text.contains("287"),
            "{text}"
        );
        let text = network(&small(vec![Layer::Relu], &[4]), &[&[1.0]], "x", "y").unwrap_err().to_string();
        assert!(text.contains("1 arrays are left over"), "{text}");
    }

    #[test]
    fn a_graph_that_does_not_fit_together_is_told_with_its_node() {
        let wrong = |build: fn(&mut GraphBuilder, &Value) -> Value| {
            let mut graph = GraphBuilder::new("wrong");
            let x = graph.input("x", DataType::F32, &["batch".into(), 3.into()]);
            let y = build(&mut graph, &x);
            graph.output(&y, DataType::F32, &["batch".into(), 3.into()]);
            let text = graph.finish().unwrap_err().to_string();
            assert!(text.starts_with("the graph does not fit together: ") && text.contains("\nnext: "), "{text}");
            text
        };
        let text = wrong(|graph, x| graph.node("fft", "DFT", &[x], &[]));
        assert!(text.contains("the node `fft` asks for the operator `DFT`") && text.contains("MatMul"), "{text}");
        let text = wrong(|graph, _| graph.node("y", "Relu", &[&Value("z".to_string())], &[]));
        assert!(text.contains("the node `y` takes `z`, which nothing before it gives"), "{text}");
        assert!(wrong(|graph, x| graph.node("x", "Relu", &[x], &[])).contains("a name that is taken"));
        assert!(wrong(|_, _| Value("y".to_string())).contains("nothing gives the output `y`"));
        let text = wrong(|graph, x| {
            let w = graph.weight("w", &[2, 2], &[1.0f32]);
            graph.node("y", "MatMul", &[x, &w], &[])
        });
        assert!(text.contains("`w` has 1 numbers for a shape of [2, 2]"), "{text}");
    }

    #[test]
    fn the_gpt_has_a_cache_for_each_layer() {
        let config = gpulab_nn::gpt::Config { n_layer: 2, n_head: 2, n_embd: 8, n_ctx: 16, vocab_size: 11 };
        let model = gpt(&gpulab_nn::gpt::Weights::random(config, 1).unwrap()).unwrap();
        let ports: Vec<String> = model.inputs().iter().chain(&model.outputs()).map(ToString::to_string).collect();
        assert_eq!(
            ports[..3],
            [
                "input_ids: i64 [batch, sequence]",
                "attention_mask: i64 [batch, total_sequence]",
                "position_ids: i64 [batch, sequence]",
            ]
        );
        assert_eq!(ports[6], "past_key_values.1.value: f32 [batch, 2, past_sequence, 4]");
        assert_eq!(ports[7], "logits: f32 [batch, sequence, 11]");
        assert_eq!(
            ports[10..],
            ["present.1.key: f32 [batch, 2, total_sequence, 4]", "present.1.value: f32 [batch, 2, total_sequence, 4]",]
        );
        // The head is the embedding's table again, and not another copy.
        let numbers = model
            .weights()
            .iter()
            .filter(|(name, ..)| !name.starts_with("constant"))
            .map(|(_, _, bytes)| bytes / 4)
            .sum::<u64>();
        assert_eq!(numbers, config.parameter_count() as u64);
    }

    #[test]
    fn the_picture_has_every_node_and_its_weights() {
        let model = cnn(&Parameters::random(1)).unwrap();
        let svg = model.picture().svg();
        for text in ["images: f32 [batch, 1, 28, 28]", "conv2: Conv", "weight [64, 32, 3, 3]", "out logits"] {
            assert!(svg.contains(text), "{text}: {svg}");
        }
        assert!(!svg.contains("nodes more"));
        let config = gpulab_nn::gpt::Config { n_layer: 2, n_head: 2, n_embd: 8, n_ctx: 16, vocab_size: 11 };
        let long = gpt(&gpulab_nn::gpt::Weights::random(config, 1).unwrap()).unwrap();
        let left = long.nodes().len() - 44;
        assert!(long.picture().svg().contains(&format!("and {left} nodes more")));
    }
}
