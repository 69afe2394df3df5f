//! Static quantisation to 8-bit integers: weights once, activations by ranges that were seen beforehand.
//!
//! [`calibrate`] runs examples through the network on candle and notes each value's range. From it [`Quantised`] takes a step
//! and a zero point for each value, and for each channel of a weight; it writes them as ONNX's pairs of
//! `QuantizeLinear` and `DequantizeLinear` (QDQ), which a runtime turns into integer arithmetic. It also computes on
//! candle what the integers make of an example, value by value.

use super::graph::{Attribute, DataType, GraphBuilder, Node, Onnx, Value, ValueInfo, WeightNumber};
use super::models::{names, network};
use super::schema::NodeProto;
use candle_core::{Device, Tensor};
use gpulab::error::{Error, Result};
use gpulab_nn::memory::{Layer, Network};
use rayon::prelude::*;
use std::collections::BTreeMap;
use std::fmt::Write;

/// Between which two numbers a value lies. 0 always is among them: pads and ReLUs need it exactly.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct ValueRange {
    /// The smallest, at most 0.
    pub low: f32,
    /// The largest, at least 0.
    pub high: f32,
}

/// Which integers stand for activations.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Activations {
    /// 0 to 255 with a zero point: all of them stand for numbers of the range. CPUs multiply these by signed weights.
    U8,
    /// −127 to 127, and 0 is 0: behind a ReLU half of them are of no use. TensorRT takes these alone.
    I8,
}

/// How many steps a weight has.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Granularity {
    /// One for each output channel.
    Channel,
    /// One for all of it.
    Tensor,
}

/// Integers for numbers: `number ≈ scale · (integer − zero)`.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct QuantParams {
    /// From one integer to the next.
    pub scale: f32,
    /// The integer that stands for 0.
    pub zero_point: i32,
    /// The smallest integer.
    pub qmin: i32,
    /// The largest integer.
    pub qmax: i32,
}

impl ValueRange {
    /// The range of these numbers, with 0; NaN is left out.
    pub fn of(numbers: &[f32]) -> ValueRange {
        let range = ValueRange { low: 0.0, high: 0.0 };
        numbers.iter().fold(range, |range, &x| ValueRange { low: range.low.min(x), high: range.high.max(x) })
    }

    /// As [`ValueRange::of`], but at each end a share of the numbers may lie outside: with 0.001 one of a thousand.
    pub fn without(numbers: &mut [f32], share: f64) -> ValueRange {
        let out = (share.clamp(0.0, 0.5) * numbers.len() as f64) as usize;
        if out == 0 {
            return ValueRange::of(numbers);
        }
        let last = numbers.len() - 1;
        let low = *numbers.select_nth_unstable_by(out, f32::total_cmp).1;
        let high = *numbers.select_nth_unstable_by(last - out, f32::total_cmp).1;
        ValueRange { low: low.min(0.0), high: high.max(0.0) }
    }
}

impl QuantParams {
    /// For an activation of that range.
    pub fn of(range: ValueRange, kind: Activations) -> QuantParams {
        match kind {
            Activations::I8 => QuantParams::symmetric(range),
            Activations::U8 => {
                let scale = usable((range.high - range.low) / 255.0);
                let zero = (-range.low / scale).round_ties_even() as i32;
                QuantParams { scale, zero_point: zero.clamp(0, 255), qmin: 0, qmax: 255 }
            }
        }
    }

    /// For a weight, or a symmetric activation: 0 is 0, and the number farthest from it is ±127.
    pub fn symmetric(range: ValueRange) -> QuantParams {
        QuantParams { scale: usable(range.high.max(-range.low) / 127.0), zero_point: 0, qmin: -128, qmax: 127 }
    }

    /// The integer nearest to a number; what lies outside becomes the last one.
    pub fn quantize(&self, number: f32) -> i32 {
        // As ONNX rounds: halves to the even one.
        let near = (number / self.scale).round_ties_even();
        // Through f64: the sum must not overflow before it is clamped.
        (f64::from(near) + f64::from(self.zero_point)).clamp(f64::from(self.qmin), f64::from(self.qmax)) as i32
    }

    /// The number that an integer stands for.
    pub fn dequantize(&self, integer: i32) -> f32 {
        self.scale * (integer - self.zero_point) as f32
    }

    /// What is left of a number.
    pub fn fake_quantize(&self, number: f32) -> f32 {
        self.dequantize(self.quantize(number))
    }
}

/// A value that is 0 throughout has any step.
fn usable(scale: f32) -> f32 {
    if scale > 0.0 && scale.is_finite() { scale } else { 1.0 }
}

/// The range of each value that is quantised, in the order in which they come.
#[derive(Debug, Clone, PartialEq)]
pub struct ActivationRanges {
    /// Examples that it was seen on.
    pub examples: usize,
    /// Value and range; the first is the input.
    pub ranges: Vec<(String, ValueRange)>,
}

/// Runs examples (`[B, …]`, on the CPU) through the network and notes each value's range. `outside` is the share of numbers
/// that may lie outside it at each end: 0 takes all, 0.0001 leaves out the rarest.
///
/// # Errors
/// [`Error::Unsupported`] names a layer that is not quantised; [`Error::Invalid`] when there are no examples; candle's
/// error when they have another shape.
pub fn calibrate(
    network: &Network,
    parameters: &[&[f32]],
    examples: &Tensor,
    outside: f64,
) -> Result<ActivationRanges> {
    if examples.dim(0)? == 0 {
        return Err(Error::invalid(
            "there are no examples to take ranges from",
            "give some hundred of those that the network is for; they need no labels",
        ));
    }
    let mut ranges = Vec::new();
    let mut note = |name: &str, value: &Tensor| -> Result<Tensor> {
        ranges.push((name.to_string(), ValueRange::without(&mut value.flatten_all()?.to_vec1()?, outside)));
        Ok(value.clone())
    };
    walk(network, &tensors(network, parameters)?, examples, &mut note)?;
    Ok(ActivationRanges { examples: examples.dim(0)?, ranges })
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
            return Err(Error::unsupported(
                format!("the layer `{name}` ({}) is not quantised", layer.name()),
                "quantise a network of convolutions, linear layers, ReLU, max-pool and flatten",
            ));
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

/// How to quantise.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct QuantConfig {
    /// Which integers stand for activations.
    pub activations: Activations,
    /// How many steps a weight has.
    pub weights: Granularity,
}

impl Default for QuantConfig {
    /// What ONNX Runtime's CPU computes fastest and most exactly.
    fn default() -> QuantConfig {
        QuantConfig { activations: Activations::U8, weights: Granularity::Channel }
    }
}

/// A network in 8-bit integers.
#[derive(Debug, Clone)]
pub struct Quantised {
    network: Network,
    parameters: Vec<Vec<f32>>,
    /// Value and range, as calibrated; the first is the input.
    pub ranges: Vec<(String, ValueRange)>,
    /// Value and step, in the same order.
    pub steps: Vec<(String, QuantParams)>,
    /// The steps of each weight, biases left out: one for each channel, or one.
    pub weights: Vec<Vec<QuantParams>>,
}

impl Quantised {
    /// Takes the steps from ranges that [`calibrate`] noted for the same network.
    ///
    /// # Errors
    /// [`Error::Invalid`] when the arrays are not those of the layers.
    pub fn new(
        network: &Network,
        parameters: &[&[f32]],
        seen: &ActivationRanges,
        settings: QuantConfig,
    ) -> Result<Quantised> {
        let shapes: Vec<Vec<usize>> = network.layers.iter().flat_map(Layer::parameters).collect();
        if shapes.len() != parameters.len() {
            return Err(Error::invalid(
                format!("the network has {} parameters, and {} arrays were given", shapes.len(), parameters.len()),
                "give one array for each shape that `Layer::parameters` lists, in order",
            ));
        }
        let step = |(name, range): &(String, ValueRange)| (name.clone(), QuantParams::of(*range, settings.activations));
        let weight = |(shape, numbers): (&Vec<usize>, &&[f32])| {
            let channels = if settings.weights == Granularity::Channel { shape[0] } else { 1 };
            numbers
                .chunks(numbers.len() / channels)
                .map(|channel| QuantParams::symmetric(ValueRange::of(channel)))
                .collect()
        };
        Ok(Quantised {
            network: network.clone(),
            parameters: parameters.iter().map(|numbers| numbers.to_vec()).collect(),
            ranges: seen.ranges.clone(),
            steps: seen.ranges.iter().map(step).collect(),
            // A layer has a weight and a bias.
            weights: shapes.iter().zip(parameters).step_by(2).map(weight).collect(),
        })
    }

    /// The model as ONNX, with a pair of `QuantizeLinear` and `DequantizeLinear` for each value, weights in 8 bits and
    /// biases in 32.
    ///
    /// # Errors
    /// As [`crate::export::network`].
    pub fn model(&self, input: &str, output: &str) -> Result<Onnx> {
        let arrays: Vec<&[f32]> = self.parameters.iter().map(Vec::as_slice).collect();
        pairs(network(&self.network, &arrays, input, output)?, self)
    }

    /// What the integers make of examples, computed on candle: each value and each weight rounded to its step.
    ///
    /// # Errors
    /// candle's error when the examples have another shape.
    pub fn outputs(&self, examples: &Tensor) -> Result<Tensor> {
        walk(&self.network, &self.rounded_parameters()?, examples, &mut |name, value| self.round(name, value))
    }

    /// How far each value is from that of the network in f32, in the order in which they come; the last is the output.
    ///
    /// # Errors
    /// As [`Quantised::outputs`].
    pub fn errors(&self, examples: &Tensor) -> Result<Vec<ValueError>> {
        let arrays: Vec<&[f32]> = self.parameters.iter().map(Vec::as_slice).collect();
        let mut exact = Vec::new();
        let last = walk(&self.network, &tensors(&self.network, &arrays)?, examples, &mut |_, value| {
            exact.push(value.flatten_all()?.to_vec1::<f32>()?);
            Ok(value.clone())
        })?;
        exact.push(last.flatten_all()?.to_vec1()?);
        let mut exact = exact.iter();
        let mut errors = Vec::new();
        let last = walk(&self.network, &self.rounded_parameters()?, examples, &mut |name, value| {
            let rounded = self.round(name, value)?;
            errors.push(value_error(name, exact.next(), &rounded.flatten_all()?.to_vec1()?));
            Ok(rounded)
        })?;
        errors.push(value_error("output", exact.next(), &last.flatten_all()?.to_vec1()?));
        Ok(errors)
    }

    /// The step of a value.
    pub(super) fn step(&self, name: &str) -> Option<QuantParams> {
        self.steps.iter().find(|(own, _)| own == name).map(|(_, step)| *step)
    }

    fn round(&self, name: &str, value: &Tensor) -> Result<Tensor> {
        let step = self.step(name).ok_or_else(|| {
            Error::invalid(format!("the calibration has no range of `{name}`"), "calibrate the same network")
        })?;
        let mut numbers: Vec<f32> = value.flatten_all()?.to_vec1()?;
        numbers.par_iter_mut().for_each(|x| *x = step.fake_quantize(*x));
        Ok(Tensor::from_vec(numbers, value.shape(), value.device())?)
    }

    /// Weights as their integers stand for them. A bias is 32 bits wide: what that rounds off is no more than f32 does.
    fn rounded_parameters(&self) -> Result<Vec<Tensor>> {
        let rounded: Vec<Vec<f32>> = self
            .parameters
            .iter()
            .enumerate()
            .map(|(at, numbers)| match at % 2 {
                0 => self
                    .weight_integers(at / 2)
                    .iter()
                    .zip(self.weight_steps(at / 2))
                    .map(|(&q, step)| step.dequantize(q))
                    .collect(),
                _ => numbers.clone(),
            })
            .collect();
        tensors(&self.network, &rounded.iter().map(Vec::as_slice).collect::<Vec<_>>())
    }

    /// The integers of a weight.
    pub(super) fn weight_integers(&self, weight: usize) -> Vec<i32> {
        self.parameters[2 * weight].iter().zip(self.weight_steps(weight)).map(|(&x, step)| step.quantize(x)).collect()
    }

    /// For each number of a weight its step.
    fn weight_steps(&self, weight: usize) -> impl Iterator<Item = &QuantParams> {
        let (steps, count) = (&self.weights[weight], self.parameters[2 * weight].len());
        let each = count / steps.len();
        (0..count).map(move |at| &steps[at / each])
    }

    /// The name of the layer that a weight belongs to.
    pub(super) fn layer(&self, weight: usize) -> String {
        let names = names(&self.network.layers);
        let with = names.iter().zip(&self.network.layers).filter(|(_, layer)| !layer.parameters().is_empty());
        with.map(|(name, _)| name.clone()).nth(weight).unwrap_or_default()
    }

    /// The shape of a weight.
    pub(super) fn shape(&self, weight: usize) -> Vec<usize> {
        self.network.layers.iter().flat_map(Layer::parameters).step_by(2).nth(weight).unwrap_or_default()
    }

    #[cfg(test)]
    pub(super) fn parameters_mut(&mut self) -> &mut Vec<Vec<f32>> {
        &mut self.parameters
    }

    /// A layer's bias.
    pub(super) fn bias(&self, weight: usize) -> &[f32] {
        &self.parameters[2 * weight + 1]
    }
}

pub(super) fn pairs(model: Onnx, from: &Quantised) -> Result<Onnx> {
    let mut graph = GraphBuilder::new(&format!("{}, 8 bits", model.name()));
    for (key, text) in model.notes() {
        graph.note(key, text);
    }
    let (inputs, outputs) = (model.inputs(), model.outputs());
    let one = |ports: &[ValueInfo]| ports.first().cloned().expect("a list of layers has one");
    let (input, output) = (one(&inputs), one(&outputs));
    let x = graph.input(&input.name, DataType::F32, &input.shape);
    let mut writer =
        Writer { graph, from, input: input.name, exact: BTreeMap::new(), rounded: BTreeMap::new(), weights: 0 };
    writer.exact.insert(x.name().to_string(), x);
    for node in model.nodes() {
        writer.node(&node)?;
    }
    let last = writer.exact[&output.name].clone();
    writer.graph.output(&last, DataType::F32, &output.shape);
    writer.graph.finish()
}

struct Writer<'a> {
    graph: GraphBuilder,
    from: &'a Quantised,
    /// The graph's name for what the calibration calls `input`.
    input: String,
    /// Values as the nodes give them.
    exact: BTreeMap<String, Value>,
    /// Values behind their pair, each with its step.
    rounded: BTreeMap<String, (Value, QuantParams)>,
    /// Weights so far.
    weights: usize,
}

impl Writer<'_> {
    fn node(&mut self, node: &Node) -> Result<()> {
        let told: Vec<(&str, Attribute)> =
            node.attributes.iter().map(|(name, value)| (name.as_str(), value.clone())).collect();
        let value = match node.operator.as_str() {
            "Conv" | "Gemm" => {
                let (x, step) = self.pair(&node.inputs[0])?;
                let (weight, bias) = self.parameters(&node.inputs[1], &node.inputs[2], step);
                self.graph.node(&node.name, &node.operator, &[&x, &weight, &bias], &told)
            }
            // What moves numbers keeps their step: integer code needs no rounding there.
            "MaxPool" | "Flatten" => {
                let (x, step) = self.pair(&node.inputs[0])?;
                let moved = self.graph.node(&node.name, &node.operator, &[&x], &told);
                let behind = self.quantise(&moved, step);
                self.rounded.insert(node.name.clone(), (behind, step));
                moved
            }
            "Relu" => {
                let x = self.exact[&node.inputs[0]].clone();
                self.graph.node(&node.name, "Relu", &[&x], &told)
            }
            other => {
                return Err(Error::unsupported(
                    format!("the node `{}` ({other}) is not quantised", node.name),
                    "quantise a network of convolutions, linear layers, ReLU, max-pool and flatten",
                ));
            }
        };
        self.exact.insert(node.name.clone(), value);
        Ok(())
    }

    /// The value rounded to its step; a value that several nodes take has one pair.
    fn pair(&mut self, name: &str) -> Result<(Value, QuantParams)> {
        if let Some(found) = self.rounded.get(name) {
            return Ok(found.clone());
        }
        let own = if name == self.input { "input" } else { name };
        let step = self.from.step(own).ok_or_else(|| {
            Error::invalid(format!("the calibration has no range of `{own}`"), "calibrate the same network")
        })?;
        let x = self.exact[name].clone();
        let pair = (self.quantise(&x, step), step);
        self.rounded.insert(name.to_string(), pair.clone());
        Ok(pair)
    }

    fn quantise(&mut self, x: &Value, step: QuantParams) -> Value {
        let name = x.name();
        let scale = self.graph.weight(&format!("{name}.scale"), &[], &[step.scale]);
        let zero = format!("{name}.zero");
        let zero = match step.qmin {
            0 => self.graph.weight(&zero, &[], &[step.zero_point as u8]),
            _ => self.graph.weight(&zero, &[], &[step.zero_point as i8]),
        };
        let integers = self.graph.node(&format!("{name}.integers"), "QuantizeLinear", &[x, &scale, &zero], &[]);
        self.graph.node(&format!("{name}.rounded"), "DequantizeLinear", &[&integers, &scale, &zero], &[])
    }

    /// A layer's weight in 8 bits and its bias in 32: the bias is added to sums of products, so its step is the product of
    /// both steps.
    fn parameters(&mut self, weight: &str, bias: &str, of_x: QuantParams) -> (Value, Value) {
        let (at, steps) = (self.weights, &self.from.weights[self.weights]);
        self.weights += 1;
        let (shape, numbers) = (self.from.shape(at), self.from.bias(at));
        let integers: Vec<i8> = self.from.weight_integers(at).iter().map(|&q| q as i8).collect();
        let scales: Vec<f32> = steps.iter().map(|step| step.scale).collect();
        let of_sums: Vec<f32> = scales.iter().map(|scale| scale * of_x.scale).collect();
        let each = numbers.len() / of_sums.len();
        let wide = |(at, x): (usize, &f32)| (f64::from(*x) / f64::from(of_sums[at / each])).round_ties_even() as i32;
        let biases: Vec<i32> = numbers.iter().enumerate().map(wide).collect();
        let weight = self.unpacked(weight, &shape, &integers, &scales);
        let bias = self.unpacked(bias, &[numbers.len()], &biases, &of_sums);
        (weight, bias)
    }

    /// The zero points are all 0, which is what a file means that names none; but ONNX Runtime computes a Gemm in integers only
    /// where they stand.
    fn unpacked<T: WeightNumber>(&mut self, name: &str, shape: &[usize], integers: &[T], scales: &[f32]) -> Value {
        let (axes, told) = match scales.len() {
            1 => (vec![], vec![]),
            many => (vec![many], vec![("axis", Attribute::Int(0))]),
        };
        let integers = self.graph.weight(&format!("{name}.integers"), shape, integers);
        let scale = self.graph.weight(&format!("{name}.scale"), &axes, scales);
        let zero = self.graph.weight(&format!("{name}.zero"), &axes, &vec![T::default(); scales.len()]);
        self.graph.node(name, "DequantizeLinear", &[&integers, &scale, &zero], &told)
    }
}

impl Onnx {
    /// A copy in which the 8-bit weight of this dense layer (`fc1`) has its steps by blocks, each as long as a row: the same numbers,
    /// as each output channel still has one step. ONNX Runtime multiplies no such weight in integers.
    ///
    /// # Errors
    /// [`Error::Invalid`] where the file has no such weight with a step for each channel.
    pub fn with_blocks(&self, layer: &str) -> Result<Onnx> {
        let mut model = self.clone();
        let graph = model.proto.graph.get_or_insert_default();
        let name = format!("{layer}.weight");
        let by_channel = |node: &NodeProto| {
            let told = |name: &str| node.attribute.iter().any(|attribute| attribute.name() == name);
            node.op_type() == "DequantizeLinear" && node.name() == name && told("axis") && !told("block_size")
        };
        let node = graph.node.iter_mut().find(|node| by_channel(node));
        let dims = node.as_ref().and_then(|node| graph.initializer.iter().find(|one| one.name() == node.input[0]));
        let (Some(node), Some(&[rows, columns])) = (node, dims.map(|weight| weight.dims.as_slice())) else {
            let fix = "name a dense layer of a network in 8 bits, such as `fc1`; `model.nodes()` lists them";
            return Err(Error::invalid(
                format!("the file has no 8-bit matrix `{name}` with a step for each channel"),
                fix,
            ));
        };
        for step in graph.initializer.iter_mut().filter(|one| node.input[1..].iter().any(|name| one.name() == name)) {
            step.dims = vec![rows, 1];
        }
        node.attribute = vec![Attribute::Int(1).proto("axis"), Attribute::Int(columns).proto("block_size")];
        Ok(model)
    }
}

/// A value of the quantised network beside that of the network in f32.
#[derive(Debug, Clone, PartialEq)]
pub struct ValueError {
    /// The value: `input`, the layer's name, or `output`.
    pub name: String,
    /// The root of the mean square of what f32 gives.
    pub size: f64,
    /// The root of the mean square of the difference.
    pub error: f64,
    /// The largest difference.
    pub largest: f64,
}

impl ValueError {
    /// The error as a share of the value.
    pub fn share(&self) -> f64 {
        if self.size > 0.0 { self.error / self.size } else { 0.0 }
    }
}

pub(super) fn value_error(name: &str, exact: Option<&Vec<f32>>, rounded: &[f32]) -> ValueError {
    let exact = exact.expect("both walks see the same values");
    let root = |sum: f64| (sum / exact.len().max(1) as f64).sqrt();
    let apart = || exact.iter().zip(rounded).map(|(x, y)| f64::from(x - y).abs());
    ValueError {
        name: name.to_string(),
        size: root(exact.iter().map(|&x| f64::from(x).powi(2)).sum()),
        error: root(apart().map(|x| x * x).sum()),
        largest: apart().fold(0.0, f64::max),
    }
}

impl Quantised {
    /// A line a value (range, step, the integer that stands for 0, the error as a share of the value), then a line a weight.
    pub fn table(&self, errors: &[ValueError]) -> String {
        let mut text = format!("{:<8} {:>9} {:>9} {:>9} {:>5} {:>8}\n", "value", "from", "to", "step", "zero", "error");
        let share = |name: &str| {
            let own = errors.iter().find(|error| error.name == name);
            own.map_or_else(String::new, |error| format!("{:.2} %", 100.0 * error.share()))
        };
        for ((name, range), (_, step)) in self.ranges.iter().zip(&self.steps) {
            let (low, high, scale, zero) = (range.low, range.high, step.scale, step.zero_point);
            let _ = writeln!(text, "{name:<8} {low:>9.4} {high:>9.4} {scale:>9.6} {zero:>5} {:>8}", share(name));
        }
        let _ = writeln!(text, "{:<8} {:>44}\n", "output", share("output"));
        let _ = writeln!(text, "{:<8} {:>9} {:>12} {:>12}", "weight", "steps", "finest", "widest");
        for (at, steps) in self.weights.iter().enumerate() {
            let scales = || steps.iter().map(|step| step.scale);
            let (finest, widest) = (scales().fold(f32::MAX, f32::min), scales().fold(0.0, f32::max));
            let _ = writeln!(text, "{:<8} {:>9} {finest:>12.6} {widest:>12.6}", self.layer(at), steps.len());
        }
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::runtime::{ExecutionProvider, NodeProfile, OnnxModel, OnnxTensor};
    use gpulab::cpu::random_f32;
    use gpulab_nn::memory::Loss;

    fn network() -> Network {
        let layers = vec![
            Layer::Conv { inputs: 1, outputs: 4, window: 3 },
            Layer::Relu,
            Layer::MaxPool,
            Layer::Flatten,
            Layer::Linear { inputs: 36, outputs: 8 },
            Layer::Linear { inputs: 8, outputs: 3 },
        ];
        Network { name: "small".to_string(), input: vec![1, 8, 8], layers, loss: Loss::CrossEntropy }
    }

    fn parameters(network: &Network) -> Vec<Vec<f32>> {
        let shapes = network.layers.iter().flat_map(Layer::parameters);
        shapes.enumerate().map(|(at, shape)| random_f32(shape.iter().product(), at as u64)).collect()
    }

    fn images(count: usize) -> Tensor {
        let pixels: Vec<f32> = random_f32(count * 64, 9).iter().map(|x| 0.5 + 0.5 * x).collect();
        Tensor::from_vec(pixels, (count, 1, 8, 8), &Device::Cpu).unwrap()
    }

    fn quantised(settings: QuantConfig) -> Quantised {
        let (network, parameters) = (network(), parameters(&network()));
        let arrays: Vec<&[f32]> = parameters.iter().map(Vec::as_slice).collect();
        let seen = calibrate(&network, &arrays, &images(16), 0.0).unwrap();
        Quantised::new(&network, &arrays, &seen, settings).unwrap()
    }

    #[test]
    fn a_layer_in_blocks_is_the_same_but_for_its_steps() {
        let model = quantised(QuantConfig::default()).model("images", "logits").unwrap();
        let other = model.with_blocks("fc1").unwrap();
        assert_eq!((model.nodes().len(), model.weight_bytes()), (other.nodes().len(), other.weight_bytes()));
        let changed: Vec<_> = model.weights().into_iter().zip(other.weights()).filter(|(a, b)| a != b).collect();
        assert_eq!(changed.len(), 2, "its steps and its zero points");
        for missing in [other.with_blocks("fc1"), model.with_blocks("conv1"), model.with_blocks("fc9")] {
            let text = missing.unwrap_err().to_string();
            assert!(text.contains(".weight`") && text.contains("\nnext: name a dense layer"), "{text}");
        }
    }

    #[test]
    fn onnx_runtime_computes_a_layer_in_blocks_in_f32() {
        let folder = std::env::temp_dir().join(format!("gpulab-blocks-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        let model = quantised(QuantConfig::default()).model("images", "logits").unwrap();
        let x = OnnxTensor::try_from(&images(3)).unwrap();
        let run = |model: &Onnx, name: &str| {
            let file = folder.join(name);
            model.write(&file).unwrap();
            let given = [("images", &x)];
            let profile = NodeProfile::of(&file, ExecutionProvider::Cpu, &given, 2).unwrap();
            let logits = OnnxModel::open(&file, ExecutionProvider::Cpu).unwrap().run(&given).unwrap().swap_remove(0).1;
            let count = |operator: &str| profile.nodes.iter().filter(|node| node.operator == operator).count();
            ((count("QGemm"), count("Gemm")), logits.f32s().unwrap().to_vec())
        };
        let (in_integers, exact) = run(&model, "good.onnx");
        let (mixed, logits) = run(&model.with_blocks("fc1").unwrap(), "odd.onnx");
        assert_eq!((in_integers, mixed), ((2, 0), (1, 1)));
        let (most, apart) = exact
            .iter()
            .zip(&logits)
            .fold((0f32, 0f32), |(most, apart), (a, b)| (most.max(a.abs()), apart.max((a - b).abs())));
        // A sum in f32 may fall on the other side of a step's middle.
        assert!(apart <= 0.02 * most, "{apart} of {most}");
        std::fs::remove_dir_all(folder).unwrap();
    }

    #[test]
    fn steps_cover_their_range_and_keep_zero() {
        for (low, high) in [(0.0, 6.0), (-1.0, 3.0), (-5.0, 0.0), (-0.001, 1000.0), (0.0, 0.0)] {
            let range = ValueRange { low, high };
            for kind in [Activations::U8, Activations::I8] {
                let step = QuantParams::of(range, kind);
                assert_eq!(step.fake_quantize(0.0), 0.0, "{range:?}");
                for part in 0..=100 {
                    let x = low + (high - low) * part as f32 / 100.0;
                    // The zero point is rounded, too: an end may be half a step outside.
                    assert!((step.fake_quantize(x) - x).abs() <= step.scale * 1.01, "{x} of {range:?}: {step:?}");
                }
                assert!(
                    step.fake_quantize(f32::MAX) <= high.max(-low) + step.scale * 256.0
                        && step.fake_quantize(f32::MAX).is_finite()
                );
            }
        }
        // Behind a ReLU, signed integers have half as many.
        let range = ValueRange { low: 0.0, high: 2.55 };
        assert!((QuantParams::of(range, Activations::U8).scale - 0.01).abs() < 1e-7);
        assert!((QuantParams::of(range, Activations::I8).scale - 0.02).abs() < 1e-3);
    }

    #[test]
    fn a_range_may_leave_out_the_rarest() {
        let mut numbers: Vec<f32> = (0..1000).map(|x| x as f32).collect();
        assert_eq!(ValueRange::of(&numbers), ValueRange { low: 0.0, high: 999.0 });
        assert_eq!(ValueRange::without(&mut numbers, 0.01), ValueRange { low: 0.0, high: 989.0 });
        assert_eq!(ValueRange::without(&mut [], 0.1), ValueRange { low: 0.0, high: 0.0 });
        assert_eq!(ValueRange::of(&[f32::NAN, -1.0]), ValueRange { low: -1.0, high: 0.0 });
    }

    #[test]
    fn values_that_integers_multiply_have_ranges() {
        let quantised = quantised(QuantConfig::default());
        let names: Vec<&str> = quantised.ranges.iter().map(|(name, _)| name.as_str()).collect();
        assert_eq!(names, ["input", "relu1", "fc1"]);
        assert!(quantised.ranges[1].1.low == 0.0 && quantised.ranges[2].1.low < 0.0);
        let steps: Vec<usize> = quantised.weights.iter().map(Vec::len).collect();
        assert_eq!(steps, [4, 8, 3]);
    }

    #[test]
    fn eight_bits_err_little_and_one_step_for_all_channels_errs_more() {
        let share = |weights| {
            let mut of = quantised(QuantConfig { weights, ..QuantConfig::default() });
            // One channel a hundred times as large as the others: where all share a step, theirs is too wide.
            of.parameters_mut()[0][..9].iter_mut().for_each(|x| *x *= 100.0);
            let (network, parameters) = (network(), of.parameters_mut().clone());
            let arrays: Vec<&[f32]> = parameters.iter().map(Vec::as_slice).collect();
            let seen = calibrate(&network, &arrays, &images(16), 0.0).unwrap();
            let again =
                Quantised::new(&network, &arrays, &seen, QuantConfig { weights, ..QuantConfig::default() }).unwrap();
            let errors = again.errors(&images(4)).unwrap();
            let names: Vec<&str> = errors.iter().map(|error| error.name.as_str()).collect();
            assert_eq!(names, ["input", "relu1", "fc1", "output"]);
            assert!(errors[0].share() < 0.01, "{errors:?}");
            // The three channels that are not large.
            let weight = &again.weights[0];
            weight[weight.len() - 1].scale
        };
        assert!(share(Granularity::Tensor) > 50.0 * share(Granularity::Channel));
        for activations in [Activations::U8, Activations::I8] {
            let last = quantised(QuantConfig { activations, ..QuantConfig::default() })
                .errors(&images(4))
                .unwrap()
                .pop()
                .unwrap();
            assert!(last.share() > 1e-5 && last.share() < 0.05, "{last:?}");
        }
    }

    #[test]
    fn the_model_has_pairs_and_a_quarter_of_the_bytes() {
        let quantised = quantised(QuantConfig::default());
        let model = quantised.model("images", "logits").unwrap();
        let nodes = model.nodes();
        let count = |operator: &str| nodes.iter().filter(|node| node.operator == operator).count();
        // Input, relu1, pool1, flatten1, fc1; and six parameters.
        assert_eq!((count("QuantizeLinear"), count("DequantizeLinear")), (5, 11));
        let weight = model.weights().into_iter().find(|(name, ..)| *name == "fc1.weight.integers").unwrap();
        assert_eq!((weight.1, weight.2), (vec![8, 36], 288));
        assert_eq!(model.outputs()[0].to_string(), "logits: f32 [batch, 3]");
    }

    #[test]
    fn what_is_not_quantised_is_named() {
        let network = Network { layers: vec![Layer::Gelu, Layer::Relu], ..network() };
        let text = calibrate(&network, &[], &images(1), 0.0).unwrap_err().to_string();
        assert!(text.contains("the layer `gelu1` (GELU) is not quantised") && text.contains("\nnext: "), "{text}");
        let none = images(1).narrow(0, 0, 0).unwrap();
        assert!(calibrate(&super::tests::network(), &[], &none, 0.0).unwrap_err().to_string().contains("no examples"));
    }
}
