//! A model as text, and its graph as a picture: a box a node from top to bottom, what flows between them, and the weights that each one takes.

use super::graph::{Node, Onnx, ValueInfo};
use gpulab::error::bytes;
use gpulab::plot::Figure;
use gpulab::plot::canvas::{Align, BLUE, Canvas, GREEN, GREY, LINE, MARGIN, ORANGE, Pen, Rgb, figure};
use std::collections::BTreeMap;
use std::fmt;

impl fmt::Display for ValueInfo {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let shape: Vec<String> = self.shape.iter().map(ToString::to_string).collect();
        write!(f, "{}: {} [{}]", self.name, self.dtype, shape.join(", "))
    }
}

impl fmt::Display for Onnx {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (operators, format) = self.versions();
        writeln!(f, "{}: operators of version {operators}, file format {format}", self.name())?;
        for (word, ports) in [("in", self.inputs()), ("out", self.outputs())] {
            for port in ports {
                writeln!(f, "  {word:<4}{port}")?;
            }
        }
        let mut counts: BTreeMap<String, usize> = BTreeMap::new();
        let nodes = self.nodes();
        for node in &nodes {
            *counts.entry(node.operator.clone()).or_default() += 1;
        }
        let counts: Vec<String> = counts.iter().map(|(name, count)| format!("{count} {name}")).collect();
        writeln!(f, "  {} nodes: {}", nodes.len(), counts.join(", "))?;
        writeln!(f, "  {} weights, {}", self.tensors().count(), bytes(self.weight_bytes()))?;
        for (key, text) in self.notes() {
            writeln!(f, "  {key}: {text}")?;
        }
        Ok(())
    }
}

/// Boxes that are drawn; of a longer graph the first ones are, and a line says how many are left out.
const MOST: usize = 44;
const BOX: f64 = 22.0;
const ROW: f64 = 34.0;
/// The boxes' left and right edge; left of them run the edges that pass over a node, right of them stand the weights.
const SIDES: (f64, f64) = (90.0, 350.0);
/// From one such edge to the next.
const LANE: f64 = 9.0;

impl Onnx {
    /// The graph as a picture; as the last expression of a cell it shows itself.
    #[must_use = "a figure shows itself as the last expression of a cell, without a semicolon"]
    pub fn picture(&self) -> Figure {
        let (nodes, inputs) = (self.nodes(), self.inputs());
        let weights: BTreeMap<String, (Vec<usize>, u64)> =
            self.weights().into_iter().map(|(name, shape, size)| (name.to_string(), (shape, size))).collect();
        figure(&format!("The graph of {}", self.name()), |canvas| {
            let mut y = canvas.title(&format!("The graph of {}", self.name())) + BOX;
            let mut given: BTreeMap<String, (usize, f64)> = BTreeMap::new();
            let shown = inputs.len() + nodes.len().min(MOST);
            let mut lanes: Vec<usize> = Vec::new();
            for (row, port) in inputs.iter().enumerate() {
                boxed(canvas, y, GREEN, &port.to_string());
                given.insert(port.name.clone(), (row, y));
                y += ROW;
            }
            for (at, node) in nodes.iter().take(MOST).enumerate() {
                let row = inputs.len() + at;
                edges(canvas, node, (row, y), &given, &mut lanes);
                boxed(canvas, y, colour(&node.operator), &format!("{}: {}", node.name, node.operator));
                canvas.small(&beside(node, &weights), (SIDES.1 + 12.0, y), Align::Left);
                given.extend(node.outputs.iter().map(|name| (name.clone(), (row, y))));
                y += ROW;
            }
            let last = match nodes.len() + inputs.len() - shown {
                0 => self.outputs().iter().map(|port| format!("out {port}")).collect::<Vec<_>>().join("; "),
                left => format!("and {left} nodes more"),
            };
            canvas.text(&last, (SIDES.0, y - 6.0), Align::Left);
            y + LINE
        })
    }
}

fn boxed(canvas: &mut Canvas, y: f64, color: Rgb, text: &str) {
    let (from, to) = ((SIDES.0, y - BOX / 2.0), (SIDES.1, y + BOX / 2.0));
    canvas.rect(from, to, color, 0.16);
    canvas.outline(from, to, &Pen::solid(color, 1.2));
    canvas.small(text, (SIDES.0 + 8.0, y), Align::Left);
}

/// From what gives a value to the node: straight down from the box above, else around at the left.
fn edges(
    canvas: &mut Canvas,
    node: &Node,
    (row, y): (usize, f64),
    given: &BTreeMap<String, (usize, f64)>,
    lanes: &mut Vec<usize>,
) {
    let pen = Pen::solid(GREY, 1.3);
    let mut from: Vec<&(usize, f64)> = node.inputs.iter().filter_map(|name| given.get(name)).collect();
    from.dedup();
    for &(above, from_y) in from {
        if above + 1 == row {
            let middle = (SIDES.0 + SIDES.1) / 2.0;
            canvas.line((middle, from_y + BOX / 2.0), (middle, y - BOX / 2.0), &pen);
            continue;
        }
        // The first lane whose last edge has ended.
        let free = lanes.iter().position(|&until| until <= above);
        let lane = free.unwrap_or(lanes.len());
        match free {
            Some(at) => lanes[at] = row,
            None => lanes.push(row),
        }
        let x = (SIDES.0 - 8.0 - LANE * lane as f64).max(MARGIN);
        canvas.path(&[(SIDES.0, from_y + 4.0), (x, from_y + 4.0), (x, y - 4.0), (SIDES.0, y - 4.0)], &pen);
    }
}

/// The node's attributes, and its weights with shape and size.
fn beside(node: &Node, weights: &BTreeMap<String, (Vec<usize>, u64)>) -> String {
    let told = node.attributes.iter().map(|(name, value)| format!("{name} {value}"));
    let taken = node.inputs.iter().filter_map(|name| Some((name, weights.get(name)?)));
    let large = taken.filter(|(_, (shape, _))| !shape.is_empty());
    let weights = large.map(|(name, (shape, size))| {
        let part = name.strip_prefix(&format!("{}.", node.name)).unwrap_or(name);
        // The size of what is large.
        if *size < 1024 { format!("{part} {shape:?}") } else { format!("{part} {shape:?} {}", bytes(*size)) }
    });
    let text = told.chain(weights).collect::<Vec<_>>().join(", ");
    // What does not fit beside the boxes would leave the picture.
    match text.char_indices().nth(68) {
        Some((end, _)) => format!("{} …", &text[..end]),
        None => text,
    }
}

fn colour(operator: &str) -> Rgb {
    match operator {
        "Conv" | "Gemm" | "MatMul" => BLUE,
        "QuantizeLinear" | "DequantizeLinear" => ORANGE,
        _ => GREY,
    }
}
