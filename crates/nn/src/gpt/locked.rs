//! A training run with a mistake in it, for an exercise of lesson 22.

use super::{Config, Gpt, SplitMix64, Text, Weights};
use candle_core::{DType, Device, Tensor, Var};
use candle_nn::{AdamW, Optimizer as _, ParamsAdamW, loss::cross_entropy};
use gpulab::error::{Error, Result};
use std::collections::BTreeMap;

/// One block, narrow, over bytes: it trains in a second or two.
const CONFIG: Config = Config { n_layer: 1, n_head: 2, n_embd: 32, n_ctx: 64, vocab_size: 256 };
const STEPS: usize = 300;
/// Held-out pieces that a loss is the mean over.
const PIECES: usize = 64;

/// A small model that somebody has trained, and a text that it never read.
#[derive(Debug)]
pub struct LockedRun {
    gpt: Gpt,
    held_out: Vec<u8>,
}

impl LockedRun {
    /// Trains it on the course's text, with the mistake: always the same model.
    ///
    /// # Errors
    /// As [`Text::course`]; what candle says.
    pub fn train() -> Result<LockedRun> {
        let text = Text::course()?;
        let parameters = Weights::random(CONFIG, 1)?
            .iter()
            .map(|(name, host)| {
                let tensor = Tensor::from_slice(&host.values, host.shape.as_slice(), &Device::Cpu)?;
                Ok((name.to_string(), Var::from_tensor(&tensor)?))
            })
            .collect::<Result<BTreeMap<String, Var>>>()?;
        let model = Gpt::build(CONFIG, &|name| Ok(parameters[name].as_tensor().clone()), true)?;
        let settings = ParamsAdamW { lr: 1e-2, ..ParamsAdamW::default() };
        let (mut adamw, mut random) = (AdamW::new(parameters.into_values().collect(), settings)?, SplitMix64::new(1));
        // begin
        // Short pieces are cheap: a quarter of the context, from anywhere in the text.
        let (pieces, length) = (32, CONFIG.n_ctx / 4);
        for step in 0..STEPS {
            let starts: Vec<usize> =
                (0..pieces).map(|_| (random.unit() * (text.train.len() - length) as f64) as usize).collect();
            let (tokens, next) = batch(&text.train, &starts, length)?;
            let loss = cross_entropy(&model.logits(&tokens)?.flatten_to(1)?, &next)?; // each begins at position 0
            adamw.set_learning_rate(1e-2 * (1.0 - step as f64 / STEPS as f64));
            adamw.step(&loss.backward()?)?;
        }
        // end
        Ok(LockedRun { gpt: model.detached(), held_out: text.held_out })
    }

    /// The model's loss in nats a byte on pieces of the held-out text: `length` bytes each, the first of them at position `first` of
    /// the context of 64.
    ///
    /// # Errors
    /// [`Error::Invalid`] when such a piece does not fit into the context.
    pub fn loss(&self, length: usize, first: usize) -> Result<f64> {
        if length == 0 || first + length > CONFIG.n_ctx {
            return Err(Error::invalid(
                format!("{length} bytes from position {first} on, in a context of {}", CONFIG.n_ctx),
                "ask for at least 1 byte, which ends within the context",
            ));
        }
        let stride = (self.held_out.len() - CONFIG.n_ctx - 1) / PIECES;
        let starts: Vec<usize> = (0..PIECES).map(|piece| piece * stride).collect();
        let (tokens, next) = batch(&self.held_out, &starts, length)?;
        let logits = self.gpt.logits_from(first, &tokens)?.flatten_to(1)?.to_dtype(DType::F32)?;
        Ok(f64::from(cross_entropy(&logits, &next)?.to_scalar::<f32>()?))
    }
}

/// Pieces of so many bytes, and what follows each of their bytes.
fn batch(text: &[u8], starts: &[usize], length: usize) -> Result<(Tensor, Tensor)> {
    let of = |shift: usize| -> Vec<u32> {
        starts.iter().flat_map(|start| &text[start + shift..][..length]).map(|byte| u32::from(*byte)).collect()
    };
    let tokens = Tensor::from_vec(of(0), (starts.len(), length), &Device::Cpu)?;
    Ok((tokens, Tensor::from_vec(of(1), starts.len() * length, &Device::Cpu)?))
}

/// The loop itself, for who has found its mistake.
pub fn locked_source() -> &'static str {
    let file = include_str!("locked.rs");
    file.split("// begin\n").nth(1).and_then(|rest| rest.split("        // end\n").next()).unwrap_or(file)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_loss_depends_on_where_a_piece_stands_and_not_on_its_length() {
        let run = LockedRun::train().unwrap();
        let loss = |length, first| run.loss(length, first).unwrap();
        let table: Vec<String> = [(16, 0), (16, 16), (16, 48), (8, 0), (8, 8), (8, 56), (64, 0)]
            .map(|(length, first)| format!("{length} from {first}: {:.3}", loss(length, first)))
            .to_vec();
        assert!(loss(16, 0) < 2.6, "{table:?}");
        assert!(loss(16, 48) > loss(16, 0) + 0.15 && loss(8, 56) > loss(8, 0) + 0.15, "{table:?}");
        assert!((loss(8, 8) - loss(8, 0)).abs() < 0.1, "{table:?}");
        // A model without a causal mask would know what comes.
        assert!(loss(16, 0) > 1.5 && loss(64, 0) > loss(16, 0), "{table:?}");
        assert_eq!(run.loss(16, 0).unwrap(), LockedRun::train().unwrap().loss(16, 0).unwrap());
        for (length, first) in [(0, 0), (65, 0), (16, 49)] {
            assert!(run.loss(length, first).unwrap_err().to_string().contains("in a context of 64"));
        }
        assert!(locked_source().contains("model.logits") && !locked_source().contains("pub fn"));
    }
}
