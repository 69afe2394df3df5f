//! A graph in f32 becomes one with pairs of `QuantizeLinear` and `DequantizeLinear`.

use super::quantised::Quantised;
use super::step::Step;
use crate::export::attribute::Attribute;
use crate::export::graph::Graph;
use crate::export::model::{Node, Onnx, Port};
use crate::export::value::{Kind, Numbers, Value};
use gpulab::error::{Error, Result};
use std::collections::BTreeMap;

pub(super) fn pairs(model: Onnx, from: &Quantised) -> Result<Onnx> {
    let mut graph = Graph::new(&format!("{}, 8 bits", model.name()));
    for (key, text) in model.notes() {
        graph.note(key, text);
    }
    let (inputs, outputs) = (model.inputs(), model.outputs());
    let one = |ports: &[Port]| ports.first().cloned().expect("a list of layers has one");
    let (input, output) = (one(&inputs), one(&outputs));
    let x = graph.input(&input.name, Kind::F32, &input.shape);
    let mut writer =
        Writer { graph, from, input: input.name, exact: BTreeMap::new(), rounded: BTreeMap::new(), weights: 0 };
    writer.exact.insert(x.name().to_string(), x);
    for node in model.nodes() {
        writer.node(&node)?;
    }
    let last = writer.exact[&output.name].clone();
    writer.graph.output(&last, Kind::F32, &output.shape);
    writer.graph.finish()
}

struct Writer<'a> {
    graph: Graph,
    from: &'a Quantised,
    /// The graph's name for what the calibration calls `input`.
    input: String,
    /// Values as the nodes give them.
    exact: BTreeMap<String, Value>,
    /// Values behind their pair, each with its step.
    rounded: BTreeMap<String, (Value, Step)>,
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
                return Err(Error::Unsupported {
                    what: format!("the node `{}` ({other}) is not quantised", node.name),
                    fix: "quantise a network of convolutions, linear layers, ReLU, max-pool and flatten".to_string(),
                });
            }
        };
        self.exact.insert(node.name.clone(), value);
        Ok(())
    }

    /// The value rounded to its step; a value that several nodes take has one pair.
    fn pair(&mut self, name: &str) -> Result<(Value, Step)> {
        if let Some(found) = self.rounded.get(name) {
            return Ok(found.clone());
        }
        let own = if name == self.input { "input" } else { name };
        let step = self.from.step(own).ok_or_else(|| Error::Invalid {
            what: format!("the calibration has no range of `{own}`"),
            fix: "calibrate the same network".to_string(),
        })?;
        let x = self.exact[name].clone();
        let pair = (self.quantise(&x, step), step);
        self.rounded.insert(name.to_string(), pair.clone());
        Ok(pair)
    }

    fn quantise(&mut self, x: &Value, step: Step) -> Value {
        let name = x.name();
        let scale = self.graph.weight(&format!("{name}.scale"), &[], Numbers::F32(&[step.scale]));
        let zero = format!("{name}.zero");
        let zero = match step.least {
            0 => self.graph.weight(&zero, &[], Numbers::U8(&[step.zero as u8])),
            _ => self.graph.weight(&zero, &[], Numbers::I8(&[step.zero as i8])),
        };
        let integers = self.graph.node(&format!("{name}.integers"), "QuantizeLinear", &[x, &scale, &zero], &[]);
        self.graph.node(&format!("{name}.rounded"), "DequantizeLinear", &[&integers, &scale, &zero], &[])
    }

    /// A layer's weight in 8 bits and its bias in 32: the bias is added to sums of products, so its step is the product of
    /// both steps.
    fn parameters(&mut self, weight: &str, bias: &str, of_x: Step) -> (Value, Value) {
        let (at, steps) = (self.weights, &self.from.weights[self.weights]);
        self.weights += 1;
        let (shape, numbers) = (self.from.shape(at), self.from.bias(at));
        let integers: Vec<i8> = self.from.weight_integers(at).iter().map(|&q| q as i8).collect();
        let scales: Vec<f32> = steps.iter().map(|step| step.scale).collect();
        let of_sums: Vec<f32> = scales.iter().map(|scale| scale * of_x.scale).collect();
        let each = numbers.len() / of_sums.len();
        let wide = |(at, x): (usize, &f32)| (f64::from(*x) / f64::from(of_sums[at / each])).round_ties_even() as i32;
        let biases: Vec<i32> = numbers.iter().enumerate().map(wide).collect();
        let weight = self.unpacked(weight, &shape, Numbers::I8(&integers), &scales);
        let bias = self.unpacked(bias, &[numbers.len()], Numbers::I32(&biases), &of_sums);
        (weight, bias)
    }

    /// The zero points are all 0, which is what a file means that names none; but ONNX Runtime computes a Gemm in integers only
    /// where they stand.
    fn unpacked(&mut self, name: &str, shape: &[usize], integers: Numbers, scales: &[f32]) -> Value {
        let (of_bias, of_weight) = (vec![0i32; scales.len()], vec![0i8; scales.len()]);
        let zeros = if matches!(integers, Numbers::I32(_)) { Numbers::I32(&of_bias) } else { Numbers::I8(&of_weight) };
        let (axes, told) = match scales.len() {
            1 => (vec![], vec![]),
            many => (vec![many], vec![("axis", Attribute::Int(0))]),
        };
        let integers = self.graph.weight(&format!("{name}.integers"), shape, integers);
        let scale = self.graph.weight(&format!("{name}.scale"), &axes, Numbers::F32(scales));
        let zero = self.graph.weight(&format!("{name}.zero"), &axes, zeros);
        self.graph.node(name, "DequantizeLinear", &[&integers, &scale, &zero], &told)
    }
}
