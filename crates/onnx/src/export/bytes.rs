//! A weight's numbers as the bytes of a file: little-endian, as the format asks for.

use super::schema::TensorProto;
use super::value::{Kind, Numbers};
use gpulab_nn::tensors::HostTensor;
use prost::bytes::Bytes;
use rayon::prelude::*;
use std::sync::Arc;

impl Numbers<'_> {
    /// A weight with bytes of its own.
    pub(super) fn proto(self, name: &str, shape: &[usize]) -> TensorProto {
        let bytes = match self {
            Numbers::F32(values) => spread(values, f32::to_le_bytes),
            Numbers::I64(values) => spread(values, i64::to_le_bytes),
            Numbers::I32(values) => spread(values, i32::to_le_bytes),
            Numbers::I8(values) => spread(values, i8::to_le_bytes),
            Numbers::U8(values) => values.to_vec(),
        };
        proto(name, self.kind(), shape, bytes.into())
    }
}

/// A weight whose bytes are the tensor's own memory, where the machine keeps numbers as the file does.
pub(super) fn shared(name: &str, tensor: &Arc<HostTensor>) -> TensorProto {
    if cfg!(target_endian = "big") {
        return Numbers::F32(&tensor.values).proto(name, &tensor.shape);
    }
    proto(name, Kind::F32, &tensor.shape, Bytes::from_owner(Memory(tensor.clone())))
}

struct Memory(Arc<HostTensor>);

impl AsRef<[u8]> for Memory {
    fn as_ref(&self) -> &[u8] {
        bytemuck::cast_slice(&self.0.values)
    }
}

fn proto(name: &str, kind: Kind, shape: &[usize], bytes: Bytes) -> TensorProto {
    TensorProto {
        name: Some(name.to_string()),
        dims: shape.iter().map(|&length| length as i64).collect(),
        data_type: Some(kind.code()),
        raw_data: Some(bytes),
        ..TensorProto::default()
    }
}

/// On all cores: a large layer is a hundred megabytes.
fn spread<T: Copy + Sync, const N: usize>(values: &[T], bytes: impl Fn(T) -> [u8; N] + Sync) -> Vec<u8> {
    const CHUNK: usize = 1 << 16;
    let mut all = vec![0; values.len() * N];
    all.par_chunks_mut(CHUNK * N).zip(values.par_chunks(CHUNK)).for_each(|(to, from)| {
        for (to, from) in to.as_chunks_mut::<N>().0.iter_mut().zip(from) {
            *to = bytes(*from);
        }
    });
    all
}
