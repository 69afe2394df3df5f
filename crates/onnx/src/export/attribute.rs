//! What a node is told beside its inputs.

use super::schema::AttributeProto;
use super::schema::attribute_proto::AttributeType;

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
