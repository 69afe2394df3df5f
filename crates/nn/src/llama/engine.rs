//! A GGUF file's Llama as [`gpulab_kernels::engine`] takes it: unpacked, with the rows of queries and keys in the order of halves.

use super::{GgufFile, LlamaConfig, Projection};
use candle_core::Device;
use gpulab::error::{Error, Result};
use gpulab_kernels::engine::{EngineConfig, EngineWeights, Family, Matrix};
use std::collections::HashMap;

/// What the engine's norms add to the mean square.
const EPSILON: f32 = 1e-5;

/// A Llama's weights, unpacked to f32 on the host.
#[derive(Debug)]
pub struct UnpackedLlama {
    config: EngineConfig,
    /// By layer; the table has layer 0.
    matrices: HashMap<(&'static str, usize), Vec<f32>>,
    vectors: Vec<f32>,
}

impl UnpackedLlama {
    /// Unpacks all tensors of a file; texts may have `context` tokens, at most the model's.
    ///
    /// # Errors
    /// As [`LlamaConfig::of`] and [`GgufFile::tensor`]; [`Error::Unsupported`] when its last matrix is not the embedding's, or its norms
    /// add something else than 1e-5 to the mean square.
    pub fn load(file: &GgufFile, context: usize) -> Result<UnpackedLlama> {
        let llama = LlamaConfig::of(file)?;
        if file.has("output.weight") || llama.epsilon != EPSILON {
            return Err(Error::unsupported(
                format!("{} on the engine's kernels: a last matrix of its own, or other norms", file.path().display()),
                "let candle compute it",
            ));
        }
        let config = EngineConfig {
            family: Family::Llama,
            layers: llama.layers,
            width: llama.width,
            heads: llama.heads,
            kv_heads: llama.kv_heads,
            head: llama.head_dim(),
            inner: llama.inner,
            vocabulary: llama.vocabulary,
            context: context.min(llama.context),
            rope_base: f64::from(llama.rope_base),
        };
        let numbers = |name: &str, shape: &[usize]| -> Result<Vec<f32>> {
            Ok(file.tensor(name, shape, &Device::Cpu)?.dequantize(&Device::Cpu)?.flatten_all()?.to_vec1()?)
        };
        let (mut matrices, mut vectors) = (HashMap::new(), Vec::new());
        matrices.insert(("token_embd", 0), numbers("token_embd.weight", &[llama.vocabulary, llama.width])?);
        for layer in 0..llama.layers {
            for one in Projection::ALL {
                let values = numbers(&format!("blk.{layer}.{}.weight", one.name()), &one.shape(&llama))?;
                matrices.insert((one.name(), layer), values);
            }
            for norm in ["attn_norm", "ffn_norm"] {
                vectors.extend(numbers(&format!("blk.{layer}.{norm}.weight"), &[llama.width])?);
            }
        }
        vectors.extend(numbers("output_norm.weight", &[llama.width])?);
        Ok(UnpackedLlama { config, matrices, vectors })
    }

    /// The model's shape.
    pub fn config(&self) -> EngineConfig {
        self.config
    }
}

impl EngineWeights for UnpackedLlama {
    fn row(&self, matrix: Matrix, layer: usize, row: usize, to: &mut [f32]) {
        let EngineConfig { heads, kv_heads, head, .. } = self.config;
        let (queries, keys) = (heads * head, kv_heads * head);
        // A GGUF file has the two numbers that RoPE turns beside each other, and the engine half a head apart.
        let turned = |row: usize| {
            let (first, i) = (row / head * head, row % head);
            first + if i < head / 2 { 2 * i } else { 2 * (i - head / 2) + 1 }
        };
        let (projection, row) = match matrix {
            Matrix::Table => (None, row),
            Matrix::Qkv if row < queries => (Some(Projection::Q), turned(row)),
            Matrix::Qkv if row < queries + keys => (Some(Projection::K), turned(row - queries)),
            Matrix::Qkv => (Some(Projection::V), row - queries - keys),
            Matrix::Out => (Some(Projection::Out), row),
            Matrix::Gate => (Some(Projection::Gate), row),
            Matrix::Up => (Some(Projection::Up), row),
            Matrix::Down => (Some(Projection::Down), row),
            Matrix::Positions => unreachable!("a Llama has no table of positions"),
        };
        let all = &self.matrices[&(projection.map_or("token_embd", Projection::name), layer)];
        to.copy_from_slice(&all[row * to.len()..][..to.len()]);
    }

    fn vectors(&self) -> Vec<f32> {
        self.vectors.clone()
    }
}

#[cfg(test)]
mod tests {
    use super::super::tiny::{Tiny, TinyFile};
    use super::super::{ChatModel, WeightDtype};
    use super::*;
    use candle_core::DType;
    use gpulab::gpu::Gpu;
    use gpulab_kernels::engine::{BatchEngine, BatchLimits, TextPart};

    #[test]
    fn the_engine_reads_a_gguf_file_as_candle_does() {
        let path = TinyFile::new("engine", |_| ());
        let candle = ChatModel::load(&path.0, &Device::Cpu, WeightDtype::Dense(DType::F32)).unwrap().llama;
        let weights = UnpackedLlama::load(&GgufFile::open(&path.0).unwrap(), 40).unwrap();
        let gpu = Gpu::simulated().unwrap();
        let limits = BatchLimits { rows: 24, texts: 2, blocks: 6, block_size: 8 };
        let mut engine = BatchEngine::new(&gpu, &weights.config(), &weights, limits).unwrap();
        let cache = candle.paged_cache(6, 8).unwrap();
        let tokens: Vec<u32> = (0..23).map(|i| (11 + 29 * i) % 259).collect();
        let part = |range: std::ops::Range<usize>, blocks: &'static [u32]| TextPart {
            tokens: &tokens[range.clone()],
            first: range.start,
            blocks,
            samples: true,
        };
        for parts in [vec![part(0..14, &[3, 1])], vec![part(14..15, &[3, 1]), part(0..23, &[5, 0, 4])]] {
            engine.step(&parts).unwrap();
            let exact: Vec<Vec<f32>> = candle.paged_step(&parts, &cache).unwrap().to_vec2().unwrap();
            for (at, exact) in exact.iter().enumerate() {
                let given = engine.logits(at).unwrap();
                let rms = |numbers: &mut dyn Iterator<Item = f32>| {
                    (numbers.map(|x| x * x).sum::<f32>() / given.len() as f32).sqrt()
                };
                let off = rms(&mut given.iter().zip(exact).map(|(a, b)| a - b)) / rms(&mut exact.iter().copied());
                // bf16 beside f32; queries turned the wrong way are off by as much as the logits are large.
                assert!(off < 6e-2, "part {at}: off by {off}");
            }
        }
    }

    #[test]
    fn a_model_that_the_engine_cannot_take_is_named() {
        let path = TinyFile::new("engine-norms", |tiny: &mut Tiny| {
            for (name, value) in &mut tiny.metadata {
                if name == "llama.attention.layer_norm_rms_epsilon" {
                    *value = candle_core::quantized::gguf_file::Value::F32(1e-6);
                }
            }
        });
        let error = UnpackedLlama::load(&GgufFile::open(&path.0).unwrap(), 40).unwrap_err().to_string();
        assert!(error.contains("next: let candle compute it"), "{error}");
    }
}
