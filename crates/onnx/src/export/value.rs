//! What flows along a graph's edges: names, kinds of numbers, shapes.

use super::schema::tensor_proto::DataType;
use super::schema::tensor_shape_proto::{Dimension, dimension};
use super::schema::{TensorShapeProto, TypeProto, ValueInfoProto, type_proto};

/// The name of what a node, an input or a weight gives.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Value(pub(super) String);

impl Value {
    /// Its name, as it stands in the file.
    pub fn name(&self) -> &str {
        &self.0
    }
}

/// Kinds of numbers that are written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
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

impl Kind {
    const ALL: [Kind; 5] = [Kind::F32, Kind::I64, Kind::I32, Kind::I8, Kind::U8];

    /// Bytes of a number.
    pub fn size(self) -> usize {
        match self {
            Kind::F32 | Kind::I32 => 4,
            Kind::I64 => 8,
            Kind::I8 | Kind::U8 => 1,
        }
    }

    /// `f32`, `i64`, `i32`, `i8`, `u8`.
    pub fn name(self) -> &'static str {
        match self {
            Kind::F32 => "f32",
            Kind::I64 => "i64",
            Kind::I32 => "i32",
            Kind::I8 => "i8",
            Kind::U8 => "u8",
        }
    }

    pub(super) fn code(self) -> i32 {
        let kind = match self {
            Kind::F32 => DataType::Float,
            Kind::I64 => DataType::Int64,
            Kind::I32 => DataType::Int32,
            Kind::I8 => DataType::Int8,
            Kind::U8 => DataType::Uint8,
        };
        kind as i32
    }

    pub(super) fn from_code(code: i32) -> Option<Kind> {
        Kind::ALL.into_iter().find(|kind| kind.code() == code)
    }
}

/// An axis of an input or output.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Dim {
    /// As long as this.
    Fixed(usize),
    /// As long as the caller likes; the same name means the same length.
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
            Dim::Free(name) => f.write_str(name),
        }
    }
}

/// A weight's numbers.
#[derive(Debug, Clone, Copy, PartialEq)]
#[allow(missing_docs)] // the kinds are explained in `Kind`
pub enum Numbers<'a> {
    F32(&'a [f32]),
    I64(&'a [i64]),
    I32(&'a [i32]),
    I8(&'a [i8]),
    U8(&'a [u8]),
}

impl Numbers<'_> {
    pub(super) fn kind(self) -> Kind {
        match self {
            Numbers::F32(_) => Kind::F32,
            Numbers::I64(_) => Kind::I64,
            Numbers::I32(_) => Kind::I32,
            Numbers::I8(_) => Kind::I8,
            Numbers::U8(_) => Kind::U8,
        }
    }

    pub(super) fn count(self) -> usize {
        match self {
            Numbers::F32(values) => values.len(),
            Numbers::I64(values) => values.len(),
            Numbers::I32(values) => values.len(),
            Numbers::I8(values) => values.len(),
            Numbers::U8(values) => values.len(),
        }
    }
}

/// An input or output as the format wants it.
pub(super) fn port(name: &str, kind: Kind, shape: &[Dim]) -> ValueInfoProto {
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
