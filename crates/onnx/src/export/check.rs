//! Whether a graph holds together. ONNX's own checker (`make export-onnx` runs it) also knows each operator's rules.

use super::schema::{GraphProto, TensorProto};
use super::value::Kind;
use std::collections::HashSet;

/// The operators that exporters write, and [`super::Graph::finish`] lets pass: each is held against candle by a test.
pub(super) const OPERATORS: [&str; 26] = [
    "Add",
    "Concat",
    "Conv",
    "DequantizeLinear",
    "Equal",
    "Flatten",
    "Gather",
    "Gelu",
    "Gemm",
    "Greater",
    "LayerNormalization",
    "MatMul",
    "MaxPool",
    "Mul",
    "Or",
    "QuantizeLinear",
    "Range",
    "Relu",
    "Reshape",
    "Shape",
    "Softmax",
    "Split",
    "Sub",
    "Transpose",
    "Unsqueeze",
    "Where",
];

/// The first node whose operator is not among those that are exported.
pub(super) fn operators(graph: &GraphProto) -> Result<(), String> {
    match graph.node.iter().find(|node| !OPERATORS.contains(&node.op_type())) {
        None => Ok(()),
        Some(node) => Err(format!(
            "the node `{}` asks for the operator `{}`, and these are exported: {}",
            node.name(),
            node.op_type(),
            OPERATORS.join(", ")
        )),
    }
}

/// Every name is given once, and before it is taken.
pub(super) fn edges(graph: &GraphProto) -> Result<(), String> {
    let mut given = HashSet::new();
    let own = graph.input.iter().map(|input| input.name()).chain(graph.initializer.iter().map(|weight| weight.name()));
    for name in own {
        if name.is_empty() || !given.insert(name) {
            return Err(format!("the input or weight `{name}` has no name, or another's"));
        }
    }
    for node in &graph.node {
        if let Some(missing) = node.input.iter().find(|name| !name.is_empty() && !given.contains(name.as_str())) {
            return Err(format!("the node `{}` takes `{missing}`, which nothing before it gives", node.name()));
        }
        for output in node.output.iter().filter(|name| !name.is_empty()) {
            if !given.insert(output) {
                return Err(format!("the node `{}` gives `{output}`, a name that is taken", node.name()));
            }
        }
    }
    if graph.output.is_empty() {
        return Err("it has no output".to_string());
    }
    match graph.output.iter().find(|output| !given.contains(output.name())) {
        None => Ok(()),
        Some(output) => Err(format!("nothing gives the output `{}`", output.name())),
    }
}

/// A weight's bytes are as many as its shape asks for; `external` is how many lie in another file.
pub(super) fn weight(weight: &TensorProto, external: Option<u64>) -> Result<(), String> {
    let name = weight.name();
    let Some(kind) = Kind::from_code(weight.data_type()) else {
        // Of kinds that others write we know no size.
        return Ok(());
    };
    let lengths = weight.dims.iter().map(|&length| u64::try_from(length).ok());
    let room = lengths.chain([Some(kind.size() as u64)]).try_fold(1u64, |all, length| all.checked_mul(length?));
    let held = external.or_else(|| weight.raw_data.as_ref().map(|bytes| bytes.len() as u64));
    match (room, held) {
        (None, _) => Err(format!("the weight `{name}` has the impossible shape {:?}", weight.dims)),
        (Some(room), Some(held)) if room != held => {
            Err(format!("the weight `{name}` of shape {:?} takes {room} bytes and has {held}", weight.dims))
        }
        // Numbers may also stand in lists of their own kind: other programs write small weights so.
        _ => Ok(()),
    }
}
