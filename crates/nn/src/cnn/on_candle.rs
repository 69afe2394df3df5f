//! Steps on candle: on the CPU, on a Mac's GPU, and on an NVIDIA GPU where candle was built for it.

use super::adamw::all_finite;
use super::images::Resident;
use super::way::{NotFinite, Way};
use super::{AdamW, Checkpoint, Cnn, Epoch, Kernels, Plan, Precision, State, memory, order};
use crate::data::Images;
use gpulab::error::Result;
use candle_core::{DType, Device, Tensor};

/// Images of a test's batch.
const TEST_BATCH: usize = 500;
/// Good steps after which a loss scale is doubled again.
pub(super) const STEADY: u64 = 200;

/// The network of a run on one of candle's devices.
#[derive(Debug)]
pub(super) struct OnCandle {
    cnn: Cnn,
    adamw: AdamW,
    train: Resident,
    test: Resident,
    batch: usize,
    state: State,
    order: Vec<u32>,
    /// Images of this epoch that all steps so far took.
    seen: usize,
    /// Losses and right answers on the device that were not fetched yet, with the images of their steps.
    pending: Vec<(Tensor, Tensor, usize)>,
}

impl OnCandle {
    /// Puts network and images on the device.
    ///
    /// # Errors
    /// [`gpulab::Error::Invalid`] for a batch larger than the CPU's memory; as [`Cnn::new`].
    pub fn new(device: &Device, kernels: Kernels, images: &Images, plan: &Plan, start: Checkpoint) -> Result<OnCandle> {
        if device.is_cpu() {
            memory::check_cpu(kernels, plan.batch)?;
        }
        let cnn = Cnn::new(&start.parameters, device, kernels, plan.precision)?;
        let mut adamw = AdamW::with(&cnn, &start.m, &start.v, start.state.step)?;
        adamw.learning_rate = plan.learning_rate;
        let size = images.width * images.height;
        let (train, test) = (Resident::new(&images.train, size, device)?, Resident::new(&images.test, size, device)?);
        let mut state = start.state;
        state.loss_scale = plan.precision.loss_scale(state.loss_scale);
        if plan.precision != Precision::F16 {
            state.steady = 0;
        }
        let (order, seen) = (order(state.seed, state.epoch, train.len()), state.seen as usize);
        Ok(OnCandle { cnn, adamw, train, test, batch: plan.batch, state, order, seen, pending: Vec::new() })
    }

    /// The loss and the number of right answers, on the device.
    fn train_on(&mut self, which: std::ops::Range<usize>) -> Result<(Tensor, Tensor)> {
        // Before the first tensor: this step may be made in another cell than the network.
        self.cnn.count_on_behind([])?;
        let (x, digits) = self.train.batch(&self.order[which])?;
        let logits = self.cnn.logits(&x)?;
        let loss = candle_nn::loss::cross_entropy(&logits, &digits)?;
        let scale = self.state.loss_scale;
        let gradients = if scale == 1.0 { loss.backward()? } else { (&loss * f64::from(scale))?.backward()? };
        let f16 = self.cnn.precision() == Precision::F16;
        if !f16 || all_finite(&self.cnn, &gradients)? {
            self.adamw.step(&self.cnn, &gradients, scale)?;
            self.state.steady += u64::from(f16);
            if self.state.steady >= STEADY {
                (self.state.loss_scale, self.state.steady) = (scale * 2.0, 0);
            }
        } else {
            // Too large for f16: this step is left out, and the next is scaled less.
            (self.state.loss_scale, self.state.steady) = ((scale / 2.0).max(1.0), 0);
        }
        let right = logits.argmax(1)?.eq(&digits)?.to_dtype(DType::F32)?.sum_all()?;
        Ok((loss.detach(), right))
    }

    /// What is pending, on the host: a loss and a number of right answers for each step.
    fn fetch(&self) -> Result<(Vec<f32>, Vec<f32>)> {
        let host = |which: fn(&(Tensor, Tensor, usize)) -> &Tensor| -> Result<Vec<f32>> {
            Ok(Tensor::stack(&self.pending.iter().map(which).collect::<Vec<_>>(), 0)?.to_vec1()?)
        };
        Ok((host(|step| &step.0)?, host(|step| &step.1)?))
    }
}

impl Way for OnCandle {
    fn state(&self) -> &State {
        &self.state
    }

    fn state_mut(&mut self) -> &mut State {
        &mut self.state
    }

    fn left(&self) -> usize {
        self.order.len() - self.seen
    }

    fn steps(&mut self, most: usize) -> Result<()> {
        for _ in 0..most {
            let which = self.seen..(self.seen + self.batch).min(self.order.len());
            if which.is_empty() {
                break;
            }
            let (end, count) = (which.end, which.len());
            let (loss, right) = self.train_on(which).map_err(|error| memory::explain(&self.cnn, count, error))?;
            self.pending.push((loss, right, count));
            self.seen = end;
        }
        Ok(())
    }

    fn collect(&mut self) -> Result<Option<NotFinite>> {
        if self.pending.is_empty() {
            return Ok(None);
        }
        let most = self.pending.iter().map(|step| step.2).max().unwrap_or(0);
        // A GPU works behind the program's back: here it may say that its memory was full.
        let (losses, right) = self.fetch().map_err(|error| memory::explain(&self.cnn, most, error))?;
        self.state.step = self.adamw.steps();
        for (at, (_, _, count)) in std::mem::take(&mut self.pending).into_iter().enumerate() {
            if !losses[at].is_finite() {
                return Ok(Some(NotFinite { step: self.state.taken() + 1, loss: losses[at] }));
            }
            self.state.losses.push(losses[at]);
            self.state.right.push(right[at] / count as f32);
            self.state.seen += count as u64;
        }
        Ok(None)
    }

    fn test(&mut self) -> Result<(f32, f32)> {
        let all: Vec<u32> = (0..self.test.len() as u32).collect();
        let (mut right, mut losses) = (0.0, 0.0);
        for which in all.chunks(TEST_BATCH) {
            let (x, digits) = self.test.batch(which)?;
            // Detached from the parameters' graph: nothing is kept for a way back that never comes.
            let logits = self.cnn.logits(&x)?.detach();
            let loss = candle_nn::loss::cross_entropy(&logits, &digits)?.to_scalar::<f32>()?;
            losses += f64::from(loss) * which.len() as f64;
            right += f64::from(logits.argmax(1)?.eq(&digits)?.to_dtype(DType::F32)?.sum_all()?.to_scalar::<f32>()?);
        }
        Ok(((right / all.len() as f64) as f32, (losses / all.len() as f64) as f32))
    }

    fn next_epoch(&mut self, epoch: Epoch) -> Result<()> {
        self.state.next_epoch(epoch);
        self.seen = 0;
        self.order = order(self.state.seed, self.state.epoch, self.order.len());
        Ok(())
    }

    fn checkpoint(&mut self) -> Result<Checkpoint> {
        let (m, v) = self.adamw.moments()?;
        Ok(Checkpoint { parameters: self.cnn.parameters()?, m, v, state: self.state.clone() })
    }
}
