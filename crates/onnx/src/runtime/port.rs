//! An input or an output of a model: its name, its type, its shape, and whether a tensor fits.

use super::{OnnxData, OnnxTensor};
use gpulab::error::{Error, Result};
use ort::value::{Outlet, TensorElementType, ValueType};
use std::collections::BTreeMap;
use std::fmt;

/// One extent of a port.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Dimension {
    /// It is this.
    Fixed(usize),
    /// It may be anything; extents of one name agree. The name may be empty.
    Free(String),
}

/// An input or an output of a model.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Port {
    /// Its name.
    pub name: String,
    /// Its element type as ONNX calls it: `f32`, `i64` …
    pub kind: String,
    /// Its extents, outermost first.
    pub shape: Vec<Dimension>,
}

impl fmt::Display for Port {
    /// `image: f32 [batch, 1, 28, 28]`
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let extents = self.shape.iter().map(|extent| match extent {
            Dimension::Fixed(n) => n.to_string(),
            Dimension::Free(name) if name.is_empty() => "?".to_string(),
            Dimension::Free(name) => name.clone(),
        });
        write!(f, "{}: {} [{}]", self.name, self.kind, extents.collect::<Vec<String>>().join(", "))
    }
}

impl Port {
    pub(super) fn of(outlet: &Outlet) -> Result<Port> {
        let ValueType::Tensor { ty, shape, dimension_symbols } = outlet.dtype() else {
            return Err(Error::Unsupported {
                what: format!("`{}` is a {}, and no tensor", outlet.name(), outlet.dtype()),
                fix: "export a model whose inputs and outputs are tensors".to_string(),
            });
        };
        let extent = |(at, extent): (usize, &i64)| match usize::try_from(*extent) {
            Ok(extent) => Dimension::Fixed(extent),
            Err(_) => Dimension::Free(dimension_symbols.get(at).map_or(String::new(), |name| name.to_string())),
        };
        let shape = shape.iter().enumerate().map(extent).collect();
        Ok(Port { name: outlet.name().to_string(), kind: kind(*ty), shape })
    }

    /// Whether a tensor fits; `named` holds the extents that names have got so far.
    fn takes(&self, tensor: &OnnxTensor, named: &mut BTreeMap<String, (usize, String)>) -> Result<()> {
        let refuse = |what: String, fix: &str| Err(Error::Invalid { what, fix: fix.to_string() });
        if tensor.data.kind() != self.kind {
            let fix = format!("give `{}` a tensor of {}", self.name, self.kind);
            return refuse(format!("input `{}` takes {}, and got {}", self.name, self.kind, tensor.data.kind()), &fix);
        }
        if tensor.shape.len() != self.shape.len() {
            let fix = format!("shape it to {self}");
            let (wanted, given) = (self.shape.len(), tensor.shape.len());
            return refuse(
                format!("input `{self}` has {wanted} dimensions, and got {given}: {:?}", tensor.shape),
                &fix,
            );
        }
        for (at, (extent, &given)) in self.shape.iter().zip(&tensor.shape).enumerate() {
            match extent {
                Dimension::Fixed(wanted) if *wanted != given => {
                    return refuse(
                        format!("input `{self}` got the shape {:?}: dimension {at} must be {wanted}", tensor.shape),
                        "shape the tensor so; only the named dimensions are free",
                    );
                }
                Dimension::Free(name) if !name.is_empty() => {
                    let (before, by) = named.entry(name.clone()).or_insert_with(|| (given, self.name.clone())).clone();
                    if before != given {
                        return refuse(
                            format!("`{name}` is {before} in input `{by}` and {given} in input `{}`", self.name),
                            "dimensions of one name must agree",
                        );
                    }
                }
                _ => {}
            }
        }
        Ok(())
    }
}

/// Checks a call's inputs: each name once, known, none missing, types and shapes as the ports ask.
pub(super) fn check(ports: &[Port], inputs: &[(&str, &OnnxTensor)]) -> Result<()> {
    let all = ports.iter().map(|port| format!("`{port}`")).collect::<Vec<String>>().join(", ");
    for (at, (name, _)) in inputs.iter().enumerate() {
        if !ports.iter().any(|port| port.name == *name) {
            return Err(Error::Invalid {
                what: format!("the model has no input `{name}`; it takes {all}"),
                fix: "give each of these by its name; `model.inputs()` lists them".to_string(),
            });
        }
        if inputs[..at].iter().any(|(before, _)| before == name) {
            let fix = "give each input once".to_string();
            return Err(Error::Invalid { what: format!("input `{name}` was given twice"), fix });
        }
    }
    let mut named = BTreeMap::new();
    for port in ports {
        let Some((_, tensor)) = inputs.iter().find(|(name, _)| *name == port.name) else {
            return Err(Error::Invalid {
                what: format!("input `{port}` is missing; the model takes {all}"),
                fix: "give all of them by their names".to_string(),
            });
        };
        port.takes(tensor, &mut named)?;
    }
    Ok(())
}

fn kind(of: TensorElementType) -> String {
    match of {
        TensorElementType::Float32 => OnnxData::F32(Vec::new()).kind().to_string(),
        TensorElementType::Int64 => OnnxData::I64(Vec::new()).kind().to_string(),
        TensorElementType::Int32 => OnnxData::I32(Vec::new()).kind().to_string(),
        TensorElementType::Int8 => OnnxData::I8(Vec::new()).kind().to_string(),
        TensorElementType::Uint8 => OnnxData::U8(Vec::new()).kind().to_string(),
        TensorElementType::Bool => OnnxData::Bool(Vec::new()).kind().to_string(),
        other => other.to_string(),
    }
}
