//! The vendor's libraries that can be loaded, beside the rungs.

use super::contest::{Peer, PeerWork};
use super::{Array, Ladder, Size, reason};
use gpulab::error::Result;
use gpulab::gpu::{Cublas, Gpu};

impl Ladder {
    /// The vendor's library for it, on the rungs' own arrays; where it is not there, a note says so.
    pub(super) fn vendor<'a>(self, gpu: &Gpu, size: Size, notes: &mut Vec<String>) -> Result<Option<Peer<'a>>> {
        let bf16 = match self {
            Ladder::Matmul => false,
            Ladder::MatmulBf16 => true,
            // CUB and PyTorch are no libraries to load: `env/record_ladders.py` brings them along.
            _ => return Ok(None),
        };
        let sides = size.three()?;
        let blas = match Cublas::new(gpu) {
            Ok(blas) => blas,
            Err(error) => {
                notes.push(format!("left out: {}", reason(&error)));
                return Ok(None);
            }
        };
        notes.push(format!("cuBLAS {}: f32 without TF32, bf16 with sums in f32", blas.version()));
        let call = move |inputs: &[Array], outputs: &mut [Array]| match bf16 {
            true => blas.multiply(inputs[0].bf16()?, inputs[1].bf16()?, outputs[0].bf16_mut()?, sides),
            false => blas.multiply(inputs[0].f32()?, inputs[1].f32()?, outputs[0].f32_mut()?, sides),
        };
        Ok(Some(Peer { name: "cuBLAS".to_string(), error: None, work: PeerWork::OnArrays(Box::new(call)) }))
    }
}
