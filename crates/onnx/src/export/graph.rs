//! A model: what flows along its edges, its nodes and weights, put together node by node and checked; and the version of the operators.

use super::schema::attribute_proto::AttributeType;
use super::schema::tensor_proto::DataType as Code;
use super::schema::tensor_shape_proto::{Dimension, dimension};
use super::schema::{
    AttributeProto, GraphProto, ModelProto, NodeProto, OperatorSetIdProto, StringStringEntryProto, TensorProto,
    TensorShapeProto, TypeProto, ValueInfoProto, type_proto,
};
use gpulab::error::{Error, Result};
use gpulab_nn::tensors::HostTensor;
use prost::bytes::Bytes;
use std::collections::HashSet;
use std::sync::Arc;

/// A model: its graph, its weights, and what its producer says of it.
#[derive(Debug, Clone, PartialEq)]
pub struct Onnx {
    pub(super) proto: ModelProto,
}

/// An input or output.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ValueInfo {
    /// Its name: what the caller names it by.
    pub name: String,
    /// `f32`, `i64`, …; `?` for kinds that this crate does not write.
    pub dtype: String,
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
    pub fn inputs(&self) -> Vec<ValueInfo> {
        self.proto.graph.iter().flat_map(|graph| &graph.input).map(ValueInfo::read).collect()
    }

    /// What the caller gets.
    pub fn outputs(&self) -> Vec<ValueInfo> {
        self.proto.graph.iter().flat_map(|graph| &graph.output).map(ValueInfo::read).collect()
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

impl ValueInfo {
    fn read(port: &ValueInfoProto) -> ValueInfo {
        let tensor = port.r#type.as_ref().and_then(|kind| match &kind.value {
            Some(type_proto::Value::TensorType(tensor)) => Some(tensor),
            _ => None,
        });
        let dims = tensor.and_then(|tensor| tensor.shape.as_ref()).map_or(&[][..], |shape| &shape.dim);
        let dim = dims.iter().map(|dim| match &dim.value {
            Some(dimension::Value::DimValue(length)) => Dim::Fixed(usize::try_from(*length).unwrap_or(0)),
            Some(dimension::Value::DimParam(name)) => Dim::Free(name.clone()),
            None => Dim::Free(String::new()),
        });
        let dtype = tensor.and_then(|tensor| DataType::from_code(tensor.elem_type())).map_or("?", DataType::name);
        ValueInfo { name: port.name().to_string(), dtype: dtype.to_string(), shape: dim.collect() }
    }
}

/// The name of what a node, an input or a weight gives.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Value(pub(super) String);

impl Value {
    /// Its name, as it stands in the file.
    pub fn name(&self) -> &str {
        &self.0
    }
}

/// The dtypes that are written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DataType {
    /// 32 bits, floating point.
    F32,
    /// 64-bit integers: indices and shapes.
    I64,
    /// 32-bit integers: sums of products of 8-bit numbers.
    I32,
    /// 8-bit integers, −128 to 127.
    I8,
    /// 8-bit integers, 0 to 255.
    U8,
}

impl DataType {
    const ALL: [DataType; 5] = [DataType::F32, DataType::I64, DataType::I32, DataType::I8, DataType::U8];

    /// Bytes of a number.
    pub fn size(self) -> usize {
        match self {
            DataType::F32 | DataType::I32 => 4,
            DataType::I64 => 8,
            DataType::I8 | DataType::U8 => 1,
        }
    }

    /// `f32`, `i64`, `i32`, `i8`, `u8`.
    pub fn name(self) -> &'static str {
        match self {
            DataType::F32 => "f32",
            DataType::I64 => "i64",
            DataType::I32 => "i32",
            DataType::I8 => "i8",
            DataType::U8 => "u8",
        }
    }

    pub(super) fn code(self) -> i32 {
        let kind = match self {
            DataType::F32 => Code::Float,
            DataType::I64 => Code::Int64,
            DataType::I32 => Code::Int32,
            DataType::I8 => Code::Int8,
            DataType::U8 => Code::Uint8,
        };
        kind as i32
    }

    pub(super) fn from_code(code: i32) -> Option<DataType> {
        DataType::ALL.into_iter().find(|kind| kind.code() == code)
    }
}

/// An axis of an input or output.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Dim {
    /// As long as this.
    Fixed(usize),
    /// As long as the caller likes; the same name means the same length. The name may be empty.
    Free(String),
}

impl From<usize> for Dim {
    fn from(length: usize) -> Dim {
        Dim::Fixed(length)
    }
}

impl From<&str> for Dim {
    fn from(name: &str) -> Dim {
        Dim::Free(name.to_string())
    }
}

impl std::fmt::Display for Dim {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Dim::Fixed(length) => write!(f, "{length}"),
            Dim::Free(name) if name.is_empty() => f.write_str("?"),
            Dim::Free(name) => f.write_str(name),
        }
    }
}

/// A type that a weight's numbers have.
pub trait WeightNumber: bytemuck::NoUninit + Default {
    /// Its kind.
    const KIND: DataType;
}

impl WeightNumber for f32 {
    const KIND: DataType = DataType::F32;
}

impl WeightNumber for i64 {
    const KIND: DataType = DataType::I64;
}

impl WeightNumber for i32 {
    const KIND: DataType = DataType::I32;
}

impl WeightNumber for i8 {
    const KIND: DataType = DataType::I8;
}

impl WeightNumber for u8 {
    const KIND: DataType = DataType::U8;
}

/// An input or output as the format wants it.
pub(super) fn port(name: &str, kind: DataType, shape: &[Dim]) -> ValueInfoProto {
    let dim = shape.iter().map(|dim| Dimension {
        value: Some(match dim {
            Dim::Fixed(length) => dimension::Value::DimValue(*length as i64),
            Dim::Free(name) => dimension::Value::DimParam(name.clone()),
        }),
        ..Dimension::default()
    });
    let tensor =
        type_proto::Tensor { elem_type: Some(kind.code()), shape: Some(TensorShapeProto { dim: dim.collect() }) };
    let kind = TypeProto { value: Some(type_proto::Value::TensorType(tensor)), ..TypeProto::default() };
    ValueInfoProto { name: Some(name.to_string()), r#type: Some(kind), ..ValueInfoProto::default() }
}

/// An attribute's value, such as a convolution's pads.
#[derive(Debug, Clone, PartialEq)]
pub enum Attribute {
    /// A whole number.
    Int(i64),
    /// Whole numbers.
    Ints(Vec<i64>),
    /// A number.
    Float(f32),
    /// A word.
    Text(String),
}

impl Attribute {
    pub(super) fn proto(&self, name: &str) -> AttributeProto {
        let mut proto = AttributeProto { name: Some(name.to_string()), ..AttributeProto::default() };
        match self {
            Attribute::Int(value) => {
                proto.i = Some(*value);
                proto.set_type(AttributeType::Int);
            }
            Attribute::Ints(values) => {
                proto.ints.clone_from(values);
                proto.set_type(AttributeType::Ints);
            }
            Attribute::Float(value) => {
                proto.f = Some(*value);
                proto.set_type(AttributeType::Float);
            }
            Attribute::Text(value) => {
                proto.s = Some(value.clone().into_bytes());
                proto.set_type(AttributeType::String);
            }
        }
        proto
    }

    /// `None` for kinds that this crate does not write.
    pub(super) fn read(proto: &AttributeProto) -> Option<Attribute> {
        Some(match proto.r#type() {
            AttributeType::Int => Attribute::Int(proto.i()),
            AttributeType::Ints => Attribute::Ints(proto.ints.clone()),
            AttributeType::Float => Attribute::Float(proto.f()),
            AttributeType::String => Attribute::Text(String::from_utf8_lossy(proto.s()).into_owned()),
            _ => return None,
        })
    }
}

impl From<i64> for Attribute {
    fn from(value: i64) -> Attribute {
        Attribute::Int(value)
    }
}

impl From<&[i64]> for Attribute {
    fn from(values: &[i64]) -> Attribute {
        Attribute::Ints(values.to_vec())
    }
}

impl<const N: usize> From<[i64; N]> for Attribute {
    fn from(values: [i64; N]) -> Attribute {
        Attribute::Ints(values.to_vec())
    }
}

impl From<f32> for Attribute {
    fn from(value: f32) -> Attribute {
        Attribute::Float(value)
    }
}

impl From<&str> for Attribute {
    fn from(value: &str) -> Attribute {
        Attribute::Text(value.to_string())
    }
}

impl std::fmt::Display for Attribute {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Attribute::Int(value) => write!(f, "{value}"),
            Attribute::Ints(values) => write!(f, "{values:?}"),
            Attribute::Float(value) => write!(f, "{value}"),
            Attribute::Text(value) => write!(f, "{value}"),
        }
    }
}

/// Nodes in the order in which they compute, the weights that they take, and what goes in and comes out.
///
/// Names are the caller's: a node `conv1` gives a value `conv1`. What does not fit together is an error of
/// [`GraphBuilder::finish`], which names the node.
#[derive(Debug, Clone)]
pub struct GraphBuilder {
    graph: GraphProto,
    metadata: Vec<StringStringEntryProto>,
    wrong: Option<String>,
}

impl GraphBuilder {
    /// An empty graph of that name.
    pub fn new(name: &str) -> GraphBuilder {
        let graph = GraphProto { name: Some(name.to_string()), ..GraphProto::default() };
        GraphBuilder { graph, metadata: Vec::new(), wrong: None }
    }

    /// What the caller gives with each call.
    pub fn input(&mut self, name: &str, kind: DataType, shape: &[Dim]) -> Value {
        self.graph.input.push(port(name, kind, shape));
        Value(name.to_string())
    }

    /// Numbers that belong to the model; an empty shape is a single number.
    pub fn weight(&mut self, name: &str, shape: &[usize], numbers: &[impl WeightNumber]) -> Value {
        self.fits(name, shape, numbers.len());
        self.graph.initializer.push(tensor(name, shape, numbers));
        Value(name.to_string())
    }

    /// As [`GraphBuilder::weight`], for numbers that are kept as they lie in memory and not copied: a large model has half a gigabyte.
    pub fn shared_weight(&mut self, name: &str, tensor: &Arc<HostTensor>) -> Value {
        self.fits(name, &tensor.shape, tensor.values.len());
        self.graph.initializer.push(shared(name, tensor));
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
    pub fn output(&mut self, value: &Value, kind: DataType, shape: &[Dim]) {
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
        check_operators(graph).and_then(|()| check_edges(graph)).map_err(invalid)?;
        Ok(Onnx { proto })
    }

    /// The first mistake is the one to tell.
    fn fault(&mut self, what: String) {
        self.wrong.get_or_insert(what);
    }
}

fn invalid(what: String) -> Error {
    Error::invalid(
        format!("the graph does not fit together: {what}"),
        "correct that node, or the one that its input should come from",
    )
}

/// The operators that exporters write, and [`super::GraphBuilder::finish`] lets pass: each is compared with candle by a test.
const OPERATORS: &str = "Add, Concat, Conv, DequantizeLinear, Equal, Flatten, Gather, Gelu, Gemm, \
     Greater, LayerNormalization, MatMul, MaxPool, Mul, Or, QuantizeLinear, Range, Relu, \
     Reshape, Shape, Softmax, Split, Sub, Transpose, Unsqueeze, Where";

/// The first node whose operator is not among those that are exported.
pub(super) fn check_operators(graph: &GraphProto) -> Result<(), String> {
    match graph.node.iter().find(|node| !OPERATORS.split(", ").any(|known| known == node.op_type())) {
        None => Ok(()),
        Some(node) => Err(format!(
            "the node `{}` asks for the operator `{}`, and these are exported: {}",
            node.name(),
            node.op_type(),
            OPERATORS
        )),
    }
}

/// Every name is given once, and before it is taken.
pub(super) fn check_edges(graph: &GraphProto) -> Result<(), String> {
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
pub(super) fn check_weight(weight: &TensorProto, external: Option<u64>) -> Result<(), String> {
    let name = weight.name();
    let Some(kind) = DataType::from_code(weight.data_type()) else {
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

/// The version of ONNX's operators that is written when nothing else is asked for: that of ONNX 1.19.
pub const OPSET: i64 = 24;
/// The version of the file format that goes with it.
pub const IR: i64 = 12;
/// The newest version for which ONNX Runtime 1.31 has CUDA kernels of all that the course exports. MaxPool got a new
/// version in 22, which its CUDA provider does not know: the pooling goes to the CPU, and its numbers with it.
pub const CUDA_OPSET: i64 = 21;

/// All operators that are exported mean the same from this version on, in what they are told here …
const OLDEST: i64 = 13;
/// … but for these, which came, or got the attribute that is used, in a later one.
const LATER: [(&str, i64); 4] = [("Shape", 15), ("LayerNormalization", 17), ("Split", 18), ("Gelu", 20)];

impl Onnx {
    /// The same graph, as a file of another version of ONNX's operators, 13 to [`OPSET`]. The numbers are the same: only
    /// what a runtime must know is less.
    ///
    /// # Errors
    /// [`Error::Invalid`] for a version that is not written, or one that lacks an operator of the graph (named, with its node).
    pub fn with_opset(mut self, opset: i64) -> Result<Onnx> {
        if !(OLDEST..=OPSET).contains(&opset) {
            return Err(Error::invalid(
                format!("operators of version {opset} are not written"),
                format!("ask for a version from {OLDEST} to {OPSET}"),
            ));
        }
        let came = |node: &Node| LATER.iter().find(|(name, _)| *name == node.operator).map_or(OLDEST, |(_, at)| *at);
        if let Some(newest) = self.nodes().iter().filter(|node| came(node) > opset).max_by_key(|node| came(node)) {
            return Err(Error::invalid(
                format!(
                    "the node `{}` is a {}, which operators of version {opset} do not have as it is used here",
                    newest.name, newest.operator
                ),
                format!("ask for version {} or newer", came(newest)),
            ));
        }
        self.proto.ir_version = Some(format_of(opset));
        self.proto.opset_import = import(opset);
        Ok(self)
    }
}

/// What a file says of its operators.
pub(super) fn import(opset: i64) -> Vec<OperatorSetIdProto> {
    vec![OperatorSetIdProto { domain: Some(String::new()), version: Some(opset) }]
}

/// The file format of the ONNX that brought these operators: its `docs/Versioning.md`.
fn format_of(opset: i64) -> i64 {
    match opset {
        ..15 => 7,
        15..19 => 8,
        19..21 => 9,
        21..23 => 10,
        23 => 11,
        _ => IR,
    }
}

/// A weight with bytes of its own. The format's bytes are little-endian, as all machines are that have a GPU of the course.
pub(super) fn tensor<T: WeightNumber>(name: &str, shape: &[usize], numbers: &[T]) -> TensorProto {
    proto(name, T::KIND, shape, Bytes::copy_from_slice(bytemuck::cast_slice(numbers)))
}

/// A weight whose bytes are the tensor's own memory.
pub(super) fn shared(name: &str, tensor: &Arc<HostTensor>) -> TensorProto {
    proto(name, DataType::F32, &tensor.shape, Bytes::from_owner(Memory(tensor.clone())))
}

struct Memory(Arc<HostTensor>);

impl AsRef<[u8]> for Memory {
    fn as_ref(&self) -> &[u8] {
        bytemuck::cast_slice(&self.0.values)
    }
}

fn proto(name: &str, kind: DataType, shape: &[usize], bytes: Bytes) -> TensorProto {
    TensorProto {
        name: Some(name.to_string()),
        dims: shape.iter().map(|&length| length as i64).collect(),
        data_type: Some(kind.code()),
        raw_data: Some(bytes),
        ..TensorProto::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::export::{cnn, gpt};
    use gpulab_nn::cnn::Parameters;
    use gpulab_nn::gpt::{Config, Weights};

    #[test]
    fn an_older_version_changes_two_numbers_and_nothing_else() {
        let model = cnn(&Parameters::random(1)).unwrap();
        assert_eq!(model.versions(), (OPSET, IR));
        for (opset, format) in [(13, 7), (18, 8), (20, 9), (21, 10), (22, 10), (23, 11)] {
            let older = model.clone().with_opset(opset).unwrap();
            assert_eq!(older.versions(), (opset, format));
            assert_eq!((older.nodes(), older.weights()), (model.nodes(), model.weights()));
        }
        assert_eq!(model.clone().with_opset(OPSET).unwrap(), model);
    }

    #[test]
    fn a_version_that_lacks_an_operator_is_refused_with_the_node() {
        let model = cnn(&Parameters::random(1)).unwrap();
        for opset in [-1, 12, OPSET + 1] {
            let text = model.clone().with_opset(opset).unwrap_err().to_string();
            assert!(
                text.contains(&format!("{opset} are not written\nnext: ask for a version from 13 to 24")),
                "{text}"
            );
        }
        let config = Config { n_layer: 1, n_head: 2, n_embd: 8, n_ctx: 16, vocab_size: 11 };
        let model = gpt(&Weights::random(config, 1).unwrap()).unwrap();
        let text = model.clone().with_opset(18).unwrap_err().to_string();
        assert!(text.contains("`h.0.mlp.gelu` is a Gelu") && text.contains("ask for version 20"), "{text}");
        assert_eq!(model.with_opset(20).unwrap().versions(), (20, 9));
    }
}
