//! A run on the course's own kernels: [`gpulab_kernels::lora_step`] makes the steps.

use super::frozen::FrozenWeight;
use super::model::{Training, TunedLlama};
use crate::llama::Projection;
use crate::quantize::{MiniFloat, NF4};
use candle_core::{DType, Tensor};
use gpulab::error::{Error, Result};
use gpulab::gpu::Gpu;
use gpulab_kernels::gpt_step::{AdamWConfig, StepResult};
use gpulab_kernels::lora_step::{Frozen, LoraMatrix, LoraSettings, LoraShape, LoraTraining, LoraWeights};

/// Adapters that are trained on the course's own kernels: what is frozen in bf16 or NF4, activations in bf16, adapters, gradients and AdamW's
/// moments in f32. It needs an adapter beside each matrix of each layer, heads of 64 and tied embeddings.
///
/// The model that it was made from stays where it is; [`KernelTuner::write_back`] gives it what was learned.
///
/// ```no_run
/// use gpulab::prelude::*;
/// use gpulab_kernels::{gpt_step::AdamWConfig, lora_step::LoraSettings};
/// use gpulab_nn::{Device, llama::{Llama, LlamaConfig, Projection}, lora::*};
/// let llama = Llama::random(LlamaConfig::SMOLLM2_135M, &Device::Cpu, 1)?;
/// let config = LoraConfig { rank: 8, alpha: 16.0, targets: Projection::ALL.to_vec(), layers: 0..30, seed: 1 };
/// let model = TunedLlama::new(&llama, Base::Nf4, Training::Lora(config))?;
/// let settings = LoraSettings { batch: 8, length: 512, graph: true, plain_products: false };
/// let mut tuner = KernelTuner::new(&Gpu::open()?, &model, settings)?;
/// tuner.set_batch(&vec![7; 8 * 513])?;
/// println!("loss {}", tuner.step(&AdamWConfig::default())?.loss);
/// tuner.write_back(&model)?;
/// # Ok::<(), Error>(())
/// ```
#[derive(Debug)]
pub struct KernelTuner {
    training: LoraTraining,
}

fn bf16(tensor: &Tensor) -> Result<Vec<u16>> {
    let values = tensor.to_dtype(DType::BF16)?.flatten_all()?.to_vec1::<half::bf16>()?;
    Ok(values.into_iter().map(half::bf16::to_bits).collect())
}

fn f32(tensor: &Tensor) -> Result<Vec<f32>> {
    Ok(tensor.to_dtype(DType::F32)?.flatten_all()?.to_vec1()?)
}

impl KernelTuner {
    /// Takes the weights and adapters as they stand.
    ///
    /// # Errors
    /// [`Error::Unsupported`] for a model that these kernels do not take; as [`LoraTraining::new`].
    pub fn new(gpu: &Gpu, model: &TunedLlama, settings: LoraSettings) -> Result<KernelTuner> {
        let refuse = |what: String, fix: &str| Err(Error::unsupported(what, fix));
        let config = model.config();
        let Training::Lora(lora) = model.training() else {
            return refuse("whole matrices that learn, on the kernels of adapters".to_string(), "take `Tuner`");
        };
        if lora.layers != (0..config.layers) || Projection::ALL.iter().any(|of| !lora.targets.contains(of)) {
            return refuse(
                format!("adapters in layers {:?} beside {} kinds of matrices", lora.layers, lora.targets.len()),
                "put one beside each matrix of each layer, or take `Tuner`",
            );
        }
        if config.head_dim() != gpulab_kernels::lora_step::HEAD {
            return refuse(
                format!("heads of {} numbers", config.head_dim()),
                "take a model with heads of 64, or `Tuner`",
            );
        }
        let Some(table) = model.tied_table() else {
            return refuse(
                "a last matrix that is not the table".to_string(),
                "take a model with tied embeddings, or `Tuner`",
            );
        };
        let adapters = |layer: usize| Projection::ALL.map(|of| model.adapted(layer, of).expect("checked above"));
        let scale = adapters(0)[0].scale() as f32;
        let shape = LoraShape {
            layers: config.layers,
            heads: config.heads,
            kv_heads: config.kv_heads,
            inner: config.inner,
            vocabulary: config.vocabulary,
            epsilon: config.epsilon,
            rank: lora.rank,
            scale,
        };
        let matrix = |adapter: &super::LoraLinear| -> Result<LoraMatrix> {
            let frozen = match adapter.weight() {
                FrozenWeight::Dense(weight) => Frozen::Bf16(bf16(weight)?),
                FrozenWeight::Nf4(matrix, _) => match matrix.double_quantized() {
                    Some(stored) => Frozen::Nf4 {
                        codes: stored.codes.to_vec(),
                        scales: stored.scales.to_vec(),
                        of_group: stored.of_group.to_vec(),
                        mean: stored.mean,
                    },
                    None => return Err(Error::unsupported("NF4 with scales in f32", "take `Base::Nf4`")),
                },
            };
            Ok(LoraMatrix { frozen, a: f32(adapter.a())?, b: f32(adapter.b())? })
        };
        let layer = |at: usize| -> Result<[LoraMatrix; 7]> {
            let all = adapters(at).into_iter().map(matrix).collect::<Result<Vec<_>>>()?;
            Ok(all.try_into().expect("seven matrices"))
        };
        let (cosines, sines) = model.rope();
        let rope = Tensor::cat(&[cosines, sines], 1)?;
        let levels = NF4.into_iter().chain((0..=u8::MAX).map(|code| MiniFloat::E4M3.decode(code)));
        let weights = LoraWeights {
            table: bf16(table)?,
            norms: model.norms().map(f32).collect::<Result<Vec<_>>>()?.concat(),
            rope: f32(&rope)?,
            layers: (0..config.layers).map(layer).collect::<Result<_>>()?,
            levels: levels.collect(),
        };
        Ok(KernelTuner { training: LoraTraining::new(gpu, shape, &weights, settings)? })
    }

    /// What the next step reads, as [`LoraTraining::set_batch`].
    ///
    /// # Errors
    /// As there.
    pub fn set_batch(&mut self, tokens: &[u32]) -> Result<()> {
        self.training.set_batch(tokens)
    }

    /// A step on it: its loss before the update, and the norm of its gradients.
    ///
    /// # Errors
    /// As [`LoraTraining::step`].
    pub fn step(&mut self, adamw: &AdamWConfig) -> Result<StepResult> {
        self.training.step(adamw)
    }

    /// Queues one and returns at once.
    ///
    /// # Errors
    /// As [`LoraTraining::queue`].
    pub fn queue(&mut self, adamw: &AdamWConfig) -> Result<()> {
        self.training.queue(adamw)
    }

    /// Writes what was learned into the adapters of a model of that shape.
    ///
    /// # Errors
    /// What the GPU says, and candle.
    pub fn write_back(&self, model: &TunedLlama) -> Result<()> {
        let mut layers = self.training.adapters()?;
        for (layer, of, adapter) in model.adapters() {
            let (a, b) = std::mem::take(&mut layers[layer][of as usize]);
            for (var, values) in [(adapter.a(), a), (adapter.b(), b)] {
                var.set(&Tensor::from_vec(values, var.dims(), var.device())?)?;
            }
        }
        Ok(())
    }

    /// What makes the steps.
    pub fn training(&self) -> &LoraTraining {
        &self.training
    }
}
