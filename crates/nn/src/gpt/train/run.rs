//! A whole training run with its files and lines of progress.

use super::{Plan, Trainer};
use gpulab::error::Result;
use crate::gpt::Text;
use crate::tensors::Stored;
use candle_core::Device;
use std::path::Path;
use std::time::Instant;

/// Steps between two checkpoints, and two looks at the held-out part.
const CHECKPOINT: u64 = 100;
/// Steps between two lines.
const LINE: u64 = 20;

/// How far a run is.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Progress {
    /// Steps that were made, of `steps`.
    pub step: u64,
    /// Steps in all.
    pub steps: u64,
    /// Mean over the last steps, in nats a byte.
    pub loss: f64,
    /// On words that were never trained on, where it was measured.
    pub held_out: Option<f64>,
    /// Bytes of text a second, since this program began.
    pub rate: f64,
    /// Seconds that are left at this rate.
    pub left: f64,
}

impl std::fmt::Display for Progress {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Progress { step, steps, loss, rate, left, .. } = self;
        let minutes = left / 60.0;
        write!(f, "step {step:>5} of {steps}   loss {loss:.3}   {rate:>7.0} bytes/s   {minutes:>5.1} min left")?;
        match self.held_out {
            Some(held_out) => write!(f, "   held out {held_out:.3}"),
            None => Ok(()),
        }
    }
}

/// Trains to the plan's end. Every hundred steps, and at the end, `folder` gets `checkpoint.safetensors` (to go on from) and
/// `config.json` with `model.safetensors` (to generate with, in bf16). `resume` goes on from that checkpoint, with the plan it had.
///
/// # Errors
/// As [`Trainer::new`], [`Trainer::resume`], [`Trainer::step`] and [`Trainer::save`].
pub fn run(
    plan: Plan,
    text: Text,
    device: &Device,
    folder: &Path,
    resume: bool,
    tell: &mut dyn FnMut(Progress),
) -> Result<Trainer> {
    let checkpoint = folder.join("checkpoint.safetensors");
    let mut trainer = match resume {
        true => Trainer::resume(&checkpoint, text, device)?,
        false => Trainer::new(plan, text, device)?,
    };
    let (start, before, plan) = (Instant::now(), trainer.steps_made(), *trainer.plan());
    while trainer.steps_made() < plan.steps {
        trainer.step()?;
        let (step, last) = (trainer.steps_made(), trainer.steps_made() == plan.steps);
        let kept = step % CHECKPOINT == 0 || last;
        if kept {
            trainer.save(&checkpoint)?;
            trainer.weights()?.save(folder, Stored::Bf16)?;
        }
        // Of a model that has read short pieces only, a loss over whole contexts would say nothing.
        let told = kept && (last || trainer.reads_whole_contexts());
        let held_out = if told { Some(trainer.held_out_loss()?) } else { None };
        if step % LINE == 0 || last {
            let seconds = start.elapsed().as_secs_f64() / (step - before) as f64;
            let recent = &trainer.losses()[trainer.losses().len().saturating_sub(LINE as usize)..];
            tell(Progress {
                step,
                steps: plan.steps,
                loss: recent.iter().map(|loss| f64::from(*loss)).sum::<f64>() / recent.len() as f64,
                held_out,
                rate: (plan.batch * plan.config.n_ctx) as f64 / seconds,
                left: seconds * (plan.steps - step) as f64,
            });
        }
    }
    Ok(trainer)
}
