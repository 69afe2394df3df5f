//! A graph put together node by node.

use super::attribute::Attribute;
use super::schema::{GraphProto, ModelProto, NodeProto, StringStringEntryProto, ValueInfoProto};
use super::value::{Dim, Kind, Numbers, Value, port};
use super::versions::import;
use super::{IR, OPSET, Onnx, bytes, check};
use gpulab::error::{Error, Result};
use gpulab_nn::tensors::HostTensor;
use std::sync::Arc;

/// Nodes in the order in which they compute, the weights that they take, and what goes in and comes out.
///
/// Names are the caller's: a node `conv1` gives a value `conv1`. What does not fit together is an error of
/// [`Graph::finish`], which names the node.
#[derive(Debug, Clone)]
pub struct Graph {
    graph: GraphProto,
    metadata: Vec<StringStringEntryProto>,
    wrong: Option<String>,
}

impl Graph {
    /// An empty graph of that name.
    pub fn new(name: &str) -> Graph {
        let graph = GraphProto { name: Some(name.to_string()), ..GraphProto::default() };
        Graph { graph, metadata: Vec::new(), wrong: None }
    }

    /// What the caller gives with each call.
    pub fn input(&mut self, name: &str, kind: Kind, shape: &[Dim]) -> Value {
        self.graph.input.push(port(name, kind, shape));
        Value(name.to_string())
    }

    /// Numbers that belong to the model; an empty shape is a single number.
    pub fn weight(&mut self, name: &str, shape: &[usize], numbers: Numbers) -> Value {
        self.fits(name, shape, numbers.count());
        self.graph.initializer.push(numbers.proto(name, shape));
        Value(name.to_string())
    }

    /// As [`Graph::weight`], for numbers that are kept as they lie in memory and not copied: a large model has half a gigabyte.
    pub fn shared_weight(&mut self, name: &str, tensor: &Arc<HostTensor>) -> Value {
        self.fits(name, &tensor.shape, tensor.values.len());
        self.graph.initializer.push(bytes::shared(name, tensor));
        Value(name.to_string())
    }

    fn fits(&mut self, name: &str, shape: &[usize], count: usize) {
        if shape.iter().product::<usize>() != count {
            self.fault(format!("the weight `{name}` has {count} numbers for a shape of {shape:?}"));
        }
    }

    /// An operator that gives one value, of the node's own name. An input that is left out is `""`.
    pub fn node(&mut self, name: &str, operator: &str, inputs: &[&Value], told: &[(&str, Attribute)]) -> Value {
        let [only] = self.node_with(name, operator, inputs, told, [name]);
        only
    }

    /// An operator that gives several values, which are named one by one.
    pub fn node_with<const N: usize>(
        &mut self,
        name: &str,
        operator: &str,
        inputs: &[&Value],
        told: &[(&str, Attribute)],
        outputs: [&str; N],
    ) -> [Value; N] {
        self.graph.node.push(NodeProto {
            name: Some(name.to_string()),
            op_type: Some(operator.to_string()),
            input: inputs.iter().map(|value| value.0.clone()).collect(),
            output: outputs.iter().map(|name| (*name).to_string()).collect(),
            attribute: told.iter().map(|(name, value)| value.proto(name)).collect(),
            ..NodeProto::default()
        });
        outputs.map(|name| Value(name.to_string()))
    }

    /// What the caller gets: a value with its kind and shape.
    pub fn output(&mut self, value: &Value, kind: Kind, shape: &[Dim]) {
        self.graph.output.push(port(&value.0, kind, shape));
    }

    /// A few words that travel with the model.
    pub fn note(&mut self, key: &str, text: &str) {
        self.metadata.push(StringStringEntryProto { key: Some(key.to_string()), value: Some(text.to_string()) });
    }

    /// The whole model.
    ///
    /// # Errors
    /// [`Error::Invalid`] names the node or weight that does not fit: a name that two have, an input that nothing before
    /// gives, an output that nothing gives, an operator that is not exported.
    pub fn finish(self) -> Result<Onnx> {
        if let Some(what) = self.wrong {
            return Err(invalid(what));
        }
        let proto = ModelProto {
            ir_version: Some(IR),
            opset_import: import(OPSET),
            producer_name: Some("gpulab".to_string()),
            producer_version: Some(env!("CARGO_PKG_VERSION").to_string()),
            model_version: Some(1),
            graph: Some(self.graph),
            metadata_props: self.metadata,
            ..ModelProto::default()
        };
        let graph = proto.graph.as_ref().expect("set above");
        check::operators(graph).and_then(|()| check::edges(graph)).map_err(invalid)?;
        Ok(Onnx { proto })
    }

    /// The first mistake is the one to tell.
    fn fault(&mut self, what: String) {
        self.wrong.get_or_insert(what);
    }
}

impl From<Onnx> for Graph {
    /// To go on from a model that is whole already: nodes may be added behind its outputs.
    fn from(model: Onnx) -> Graph {
        Graph { graph: model.proto.graph.unwrap_or_default(), metadata: model.proto.metadata_props, wrong: None }
    }
}

impl Graph {
    /// Takes the outputs away, so that others can be named in their stead; gives them in order.
    pub fn take_outputs(&mut self) -> Vec<Value> {
        let name = |port: ValueInfoProto| Value(port.name.unwrap_or_default());
        std::mem::take(&mut self.graph.output).into_iter().map(name).collect()
    }
}

fn invalid(what: String) -> Error {
    Error::Invalid {
        what: format!("the graph does not fit together: {what}"),
        fix: "mend that node, or the one that its input should come from".to_string(),
    }
}
