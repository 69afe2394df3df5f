//! A tensor on the host, as it goes into a model and comes out: a shape and numbers.

use gpulab::error::{Error, Result};
use ort::session::SessionInputValue;
use ort::value::{DynValue, Tensor, TensorElementType, TensorRef};

/// The numbers of a tensor, row-major.
#[derive(Debug, Clone, PartialEq)]
#[allow(missing_docs)] // a variant an element type
pub enum OnnxData {
    F32(Vec<f32>),
    I64(Vec<i64>),
    I32(Vec<i32>),
    I8(Vec<i8>),
    U8(Vec<u8>),
    Bool(Vec<bool>),
}

impl OnnxData {
    /// The element type: `f32`, `i64` …
    pub fn kind(&self) -> &'static str {
        match self {
            OnnxData::F32(_) => "f32",
            OnnxData::I64(_) => "i64",
            OnnxData::I32(_) => "i32",
            OnnxData::I8(_) => "i8",
            OnnxData::U8(_) => "u8",
            OnnxData::Bool(_) => "bool",
        }
    }

    /// How many numbers.
    pub fn len(&self) -> usize {
        match self {
            OnnxData::F32(data) => data.len(),
            OnnxData::I64(data) => data.len(),
            OnnxData::I32(data) => data.len(),
            OnnxData::I8(data) => data.len(),
            OnnxData::U8(data) => data.len(),
            OnnxData::Bool(data) => data.len(),
        }
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

macro_rules! from_vec {
    ($($variant:ident: $type:ty),*) => {
        $(impl From<Vec<$type>> for OnnxData {
            fn from(data: Vec<$type>) -> OnnxData {
                OnnxData::$variant(data)
            }
        })*
    };
}
from_vec!(F32: f32, I64: i64, I32: i32, I8: i8, U8: u8, Bool: bool);

/// A tensor on the host: what a model is given, and what it gives.
#[derive(Debug, Clone, PartialEq)]
pub struct OnnxTensor {
    /// Its extents, outermost first.
    pub shape: Vec<usize>,
    /// Its numbers, row-major.
    pub data: OnnxData,
}

impl OnnxTensor {
    /// A tensor of this shape: `OnnxTensor::new(&[1, 28, 28], vec![0f32; 784])?`.
    ///
    /// # Errors
    /// When the shape asks for another number of elements.
    pub fn new(shape: &[usize], data: impl Into<OnnxData>) -> Result<OnnxTensor> {
        let data = data.into();
        let expected = shape.iter().product();
        match data.len() == expected {
            true => Ok(OnnxTensor { shape: shape.to_vec(), data }),
            false => Err(Error::LengthMismatch { what: format!("a tensor {shape:?}"), expected, given: data.len() }),
        }
    }

    /// The numbers of an f32 tensor.
    ///
    /// # Errors
    /// When they are of another type.
    pub fn f32s(&self) -> Result<&[f32]> {
        match &self.data {
            OnnxData::F32(data) => Ok(data),
            other => Err(Error::Invalid {
                what: format!("this tensor holds {}, and no f32", other.kind()),
                fix: "match on its field `data`".to_string(),
            }),
        }
    }

    /// What ONNX Runtime reads, without a copy.
    pub(super) fn view(&self) -> ort::Result<SessionInputValue<'_>> {
        let shape = self.shape.clone();
        Ok(match &self.data {
            OnnxData::F32(data) => TensorRef::from_array_view((shape, data.as_slice()))?.into_dyn().into(),
            OnnxData::I64(data) => TensorRef::from_array_view((shape, data.as_slice()))?.into_dyn().into(),
            OnnxData::I32(data) => TensorRef::from_array_view((shape, data.as_slice()))?.into_dyn().into(),
            OnnxData::I8(data) => TensorRef::from_array_view((shape, data.as_slice()))?.into_dyn().into(),
            OnnxData::U8(data) => TensorRef::from_array_view((shape, data.as_slice()))?.into_dyn().into(),
            OnnxData::Bool(data) => TensorRef::from_array_view((shape, data.as_slice()))?.into_dyn().into(),
        })
    }

    /// A copy that ONNX Runtime keeps. Binding asks for one: `ort` would copy what it does not own by a session of its own,
    /// whose lock it holds already then, and wait for ever (2.0.0-rc.15).
    pub(super) fn owned(&self) -> ort::Result<DynValue> {
        let shape = self.shape.clone();
        Ok(match &self.data {
            OnnxData::F32(data) => Tensor::from_array((shape, data.clone()))?.into_dyn(),
            OnnxData::I64(data) => Tensor::from_array((shape, data.clone()))?.into_dyn(),
            OnnxData::I32(data) => Tensor::from_array((shape, data.clone()))?.into_dyn(),
            OnnxData::I8(data) => Tensor::from_array((shape, data.clone()))?.into_dyn(),
            OnnxData::U8(data) => Tensor::from_array((shape, data.clone()))?.into_dyn(),
            OnnxData::Bool(data) => Tensor::from_array((shape, data.clone()))?.into_dyn(),
        })
    }

    /// A copy of what came out; it must lie on the host.
    pub(super) fn of(name: &str, value: &DynValue) -> Result<OnnxTensor> {
        let extract = || -> ort::Result<Option<OnnxTensor>> {
            let Some(kind) = value.dtype().tensor_type() else { return Ok(None) };
            let shape = value.dtype().tensor_shape().map(|shape| shape.iter().map(|&extent| extent as usize).collect());
            let data = match kind {
                TensorElementType::Float32 => value.try_extract_tensor::<f32>()?.1.to_vec().into(),
                TensorElementType::Int64 => value.try_extract_tensor::<i64>()?.1.to_vec().into(),
                TensorElementType::Int32 => value.try_extract_tensor::<i32>()?.1.to_vec().into(),
                TensorElementType::Int8 => value.try_extract_tensor::<i8>()?.1.to_vec().into(),
                TensorElementType::Uint8 => value.try_extract_tensor::<u8>()?.1.to_vec().into(),
                TensorElementType::Bool => value.try_extract_tensor::<bool>()?.1.to_vec().into(),
                _ => return Ok(None),
            };
            Ok(Some(OnnxTensor { shape: shape.unwrap_or_default(), data }))
        };
        let fix = "export the model with outputs of f32 or whole numbers".to_string();
        match extract() {
            Ok(Some(tensor)) => Ok(tensor),
            Ok(None) => Err(Error::Unsupported {
                what: format!("output `{name}` is a {}, which this crate does not read", value.dtype()),
                fix,
            }),
            Err(error) => Err(super::said::said(&format!("output `{name}` was not read"), &error, &fix)),
        }
    }
}

/// From candle and back, where both are there.
mod candle {
    use super::{OnnxData, OnnxTensor};
    use candle_core::{DType, Device, Tensor};
    use gpulab::error::{Error, Result};

    impl TryFrom<&Tensor> for OnnxTensor {
        type Error = Error;

        /// A copy on the host; f32, i64, u8 as they are, u32 as i64, halves as f32.
        fn try_from(tensor: &Tensor) -> Result<OnnxTensor> {
            let read = || -> candle_core::Result<OnnxData> {
                let flat = tensor.flatten_all()?;
                Ok(match flat.dtype() {
                    DType::I64 => flat.to_vec1::<i64>()?.into(),
                    DType::U32 => flat.to_dtype(DType::I64)?.to_vec1::<i64>()?.into(),
                    DType::U8 => flat.to_vec1::<u8>()?.into(),
                    _ => flat.to_dtype(DType::F32)?.to_vec1::<f32>()?.into(),
                })
            };
            let data = read().map_err(|error| failed("copy a candle tensor", &error))?;
            Ok(OnnxTensor { shape: tensor.dims().to_vec(), data })
        }
    }

    impl OnnxTensor {
        /// The same numbers in candle.
        ///
        /// # Errors
        /// For element types that candle lacks (i8, bool), and what candle reports.
        pub fn to_candle(&self, device: &Device) -> Result<Tensor> {
            let shape = self.shape.as_slice();
            let made = match &self.data {
                OnnxData::F32(data) => Tensor::from_slice(data, shape, device),
                OnnxData::I64(data) => Tensor::from_slice(data, shape, device),
                OnnxData::U8(data) => Tensor::from_slice(data, shape, device),
                OnnxData::I32(data) => {
                    let data: Vec<i64> = data.iter().map(|&value| i64::from(value)).collect();
                    Tensor::from_slice(&data, shape, device)
                }
                other => {
                    return Err(Error::Unsupported {
                        what: format!("candle has no tensors of {}", other.kind()),
                        fix: "read the field `data` itself".to_string(),
                    });
                }
            };
            made.map_err(|error| failed("make a candle tensor", &error))
        }
    }

    fn failed(what: &str, error: &candle_core::Error) -> Error {
        Error::Unsupported {
            what: format!("cannot {what}: {error}"),
            fix: "look at the tensor's device, type and shape".to_string(),
        }
    }
}
