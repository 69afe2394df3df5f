//! A whole model, as it is written and read.

use super::attribute::Attribute;
use super::schema::tensor_shape_proto::dimension;
use super::schema::{ModelProto, StringStringEntryProto, TensorProto, ValueInfoProto, type_proto};
use super::value::{Dim, Kind};

/// A model: its graph, its weights, and what its producer says of it.
#[derive(Debug, Clone, PartialEq)]
pub struct Onnx {
    pub(super) proto: ModelProto,
}

/// An input or output.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Port {
    /// Its name: what the caller names it by.
    pub name: String,
    /// `f32`, `i64`, …; `?` for kinds that this crate does not write.
    pub kind: String,
    /// How long each axis is.
    pub shape: Vec<Dim>,
}

/// A step of the graph.
#[derive(Debug, Clone, PartialEq)]
pub struct Node {
    /// Its name, after the layer that it came from.
    pub name: String,
    /// What it computes, by ONNX's name.
    pub operator: String,
    /// Names of what it takes: other nodes' values, inputs, weights.
    pub inputs: Vec<String>,
    /// Names of what it gives.
    pub outputs: Vec<String>,
    /// What it is told beside.
    pub attributes: Vec<(String, Attribute)>,
}

impl Onnx {
    /// The graph's name.
    pub fn name(&self) -> &str {
        self.proto.graph.as_ref().map_or("", |graph| graph.name())
    }

    /// The version of the operators, and of the file format.
    pub fn versions(&self) -> (i64, i64) {
        let own = |domain: &str| domain.is_empty() || domain == "ai.onnx";
        let operators = self.proto.opset_import.iter().find(|set| own(set.domain())).map_or(0, |set| set.version());
        (operators, self.proto.ir_version())
    }

    /// What the caller gives.
    pub fn inputs(&self) -> Vec<Port> {
        self.proto.graph.iter().flat_map(|graph| &graph.input).map(Port::read).collect()
    }

    /// What the caller gets.
    pub fn outputs(&self) -> Vec<Port> {
        self.proto.graph.iter().flat_map(|graph| &graph.output).map(Port::read).collect()
    }

    /// The steps, in the order in which they compute.
    pub fn nodes(&self) -> Vec<Node> {
        let nodes = self.proto.graph.iter().flat_map(|graph| &graph.node);
        let read = nodes.map(|node| Node {
            name: node.name().to_string(),
            operator: node.op_type().to_string(),
            inputs: node.input.clone(),
            outputs: node.output.clone(),
            attributes: node
                .attribute
                .iter()
                .filter_map(|told| Some((told.name().to_string(), Attribute::read(told)?)))
                .collect(),
        });
        read.collect()
    }

    /// A few words that travel with it.
    pub fn note(&mut self, key: &str, text: &str) {
        let entry = StringStringEntryProto { key: Some(key.to_string()), value: Some(text.to_string()) };
        self.proto.metadata_props.push(entry);
    }

    /// Words that travel with it, by key.
    pub fn notes(&self) -> Vec<(&str, &str)> {
        self.proto.metadata_props.iter().map(|entry| (entry.key(), entry.value())).collect()
    }

    /// Name, shape and bytes of each weight.
    pub fn weights(&self) -> Vec<(&str, Vec<usize>, u64)> {
        let bytes = |weight: &TensorProto| weight.raw_data.as_ref().map_or(0, |bytes| bytes.len() as u64);
        let shape = |weight: &TensorProto| weight.dims.iter().map(|&length| length as usize).collect();
        self.tensors().map(|weight| (weight.name(), shape(weight), bytes(weight))).collect()
    }

    /// Bytes of all weights.
    pub fn weight_bytes(&self) -> u64 {
        self.weights().iter().map(|(_, _, bytes)| bytes).sum()
    }

    pub(super) fn tensors(&self) -> impl Iterator<Item = &TensorProto> {
        self.proto.graph.iter().flat_map(|graph| &graph.initializer)
    }
}

impl Port {
    fn read(port: &ValueInfoProto) -> Port {
        let tensor = port.r#type.as_ref().and_then(|kind| match &kind.value {
            Some(type_proto::Value::TensorType(tensor)) => Some(tensor),
            _ => None,
        });
        let dims = tensor.and_then(|tensor| tensor.shape.as_ref()).map_or(&[][..], |shape| &shape.dim);
        let dim = dims.iter().map(|dim| match &dim.value {
            Some(dimension::Value::DimValue(length)) => Dim::Fixed(usize::try_from(*length).unwrap_or(0)),
            Some(dimension::Value::DimParam(name)) => Dim::Free(name.clone()),
            None => Dim::Free("?".to_string()),
        });
        let kind = tensor.and_then(|tensor| Kind::from_code(tensor.elem_type())).map_or("?", Kind::name);
        Port { name: port.name().to_string(), kind: kind.to_string(), shape: dim.collect() }
    }
}
