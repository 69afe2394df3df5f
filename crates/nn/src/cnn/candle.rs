//! Steps on candle: on the CPU, on a Mac's GPU, and on an NVIDIA GPU where candle was built for it.

use super::adamw::all_finite;
use super::backend::{NotFinite, STEADY, TrainingBackend, too_large};
use super::images::ImageTensors;
use super::{AdamW, Checkpoint, Cnn, Epoch, Kernels, Precision, TrainConfig, TrainingState, order};
use crate::data::Images;
use candle_core::{DType, Device, Tensor};
use gpulab::cpu;
use gpulab::error::{Error, Result, bytes};

/// Images of a test's batch.
const TEST_BATCH: usize = 500;

/// The network of a run on one of candle's devices.
#[derive(Debug)]
pub(super) struct CandleBackend {
    cnn: Cnn,
    adamw: AdamW,
    train: ImageTensors,
    test: ImageTensors,
    batch: usize,
    state: TrainingState,
    order: Vec<u32>,
    /// Images of this epoch that all steps so far took.
    seen: usize,
    /// Losses and right answers on the device that were not fetched yet, with the images of their steps.
    pending: Vec<(Tensor, Tensor, usize)>,
}

impl CandleBackend {
    /// Puts network and images on the device.
    ///
    /// # Errors
    /// [`Error::Invalid`] for a batch larger than the CPU's memory; as [`Cnn::new`].
    pub fn new(
        device: &Device,
        kernels: Kernels,
        images: &Images,
        config: &TrainConfig,
        start: Checkpoint,
    ) -> Result<CandleBackend> {
        if device.is_cpu() {
            check_cpu(kernels, config.batch)?;
        }
        let cnn = Cnn::new(&start.parameters, device, kernels, config.precision)?;
        let mut adamw = AdamW::with(&cnn, &start.m, &start.v, start.state.step)?;
        adamw.learning_rate = config.learning_rate;
        let size = images.width * images.height;
        let (train, test) =
            (ImageTensors::new(&images.train, size, device)?, ImageTensors::new(&images.test, size, device)?);
        let mut state = start.state;
        state.loss_scale = config.precision.loss_scale(state.loss_scale);
        if config.precision != Precision::F16 {
            state.steady = 0;
        }
        let (order, seen) = (order(state.seed, state.epoch, train.len()), state.seen as usize);
        Ok(CandleBackend { cnn, adamw, train, test, batch: config.batch, state, order, seen, pending: Vec::new() })
    }

    /// The loss and the number of right answers, on the device.
    fn train_on(&mut self, which: std::ops::Range<usize>) -> Result<(Tensor, Tensor)> {
        // Before the first tensor: this step may be made in another cell than the network.
        self.cnn.reserve_tensor_ids([])?;
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

impl TrainingBackend for CandleBackend {
    fn cnn(&self) -> Option<&Cnn> {
        Some(&self.cnn)
    }

    fn state(&self) -> &TrainingState {
        &self.state
    }

    fn state_mut(&mut self) -> &mut TrainingState {
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
            let (loss, right) = self.train_on(which).map_err(|error| explain(&self.cnn, count, error))?;
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
        let (losses, right) = self.fetch().map_err(|error| explain(&self.cnn, most, error))?;
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
            // Detached from the parameters' graph: nothing is kept for a backward pass that never comes.
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

// ----------------------------------------------------------------------
// A batch that is larger than the memory: caught, with the largest that fits.

/// Bytes that a step needs for each image on the CPU, beside what does not grow with the batch.
fn bytes_an_image(kernels: Kernels) -> u64 {
    match kernels {
        // Measured: the process grew by 224 KiB per image from a batch of 512 to one of 2048.
        Kernels::Own => 240 << 10,
        // Derived: three tensors for each convolution (sum, bias added, ReLU; 87 and 147 KiB) and their gradients.
        Kernels::Candle => 1600 << 10,
    }
}

/// Refuses a batch that the CPU's memory cannot hold: there a failed allocation would end the process.
pub(super) fn check_cpu(kernels: Kernels, batch: usize) -> Result<()> {
    let info = cpu::info();
    let limits = [info.memory_bytes, info.memory_limit_bytes];
    let Some(memory) = limits.into_iter().flatten().min() else { return Ok(()) };
    check(bytes_an_image(kernels), batch as u64, memory)
}

fn check(an_image: u64, batch: u64, memory: u64) -> Result<()> {
    // A tenth is for the rest of the machine.
    let fits = memory / 10 * 9 / an_image;
    match batch <= fits {
        true => Ok(()),
        false => {
            Err(too_large(batch, fits, &format!("it needs about {} of {}", bytes(batch * an_image), bytes(memory))))
        }
    }
}

/// On a GPU, where a step failed for want of memory: the error that names the largest batch that does fit, found by
/// trying.
pub(super) fn explain(cnn: &Cnn, batch: usize, error: Error) -> Error {
    let full = ["OUT_OF_MEMORY", "out of memory", "memory is full"].iter().any(|text| error.to_string().contains(text));
    if !full {
        return error;
    }
    let fits = largest(batch as u64, |batch| step(cnn, batch as usize).is_ok());
    too_large(batch as u64, fits, "the device's memory is full")
}

/// A step on images of nothing.
fn step(cnn: &Cnn, batch: usize) -> Result<()> {
    let x = Tensor::zeros((batch, 1, 28, 28), DType::F32, cnn.device())?;
    let digits = Tensor::zeros(batch, DType::U32, cnn.device())?;
    let loss = cnn.loss(&x, &digits)?;
    loss.backward()?;
    // The GPU works behind the program's back: an error may show only when a number is read.
    loss.to_scalar::<f32>()?;
    Ok(())
}

/// The largest number below `failed` for which `fits` holds, to an eighth; 0 where none does.
fn largest(failed: u64, mut fits: impl FnMut(u64) -> bool) -> u64 {
    let (mut low, mut high) = (failed / 2, failed);
    while low > 0 && !fits(low) {
        (low, high) = (low / 2, low);
    }
    while low > 0 && high - low > low.div_ceil(8) {
        let middle = low + (high - low) / 2;
        if fits(middle) { low = middle } else { high = middle }
    }
    low
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_largest_that_fits_is_named() {
        for limit in [1, 5, 100, 777, 4096] {
            let found = largest(10_000, |batch| batch <= limit);
            assert!(found <= limit && found * 9 >= limit * 8 - 8, "{found} of {limit}");
        }
        assert_eq!(largest(64, |_| false), 0);
        let text = check(1 << 20, 2000, 1 << 30).unwrap_err().to_string();
        assert!(text.contains("a step of 2000 images") && text.contains("1.95 GiB of 1.00 GiB"), "{text}");
        assert!(text.contains("next: use a batch of 921 or less"), "{text}");
        check(1 << 20, 921, 1 << 30).unwrap();
        assert!(check_cpu(Kernels::Own, 1 << 40).is_err());
        check_cpu(Kernels::Own, 128).unwrap();
    }

    #[test]
    fn another_error_stays_as_it_is() {
        let device = candle_core::Device::Cpu;
        let cnn = Cnn::new(&super::super::Parameters::zeros(), &device, Kernels::Candle, super::super::Precision::F32)
            .unwrap();
        let other = Error::invalid("x", "y");
        assert_eq!(explain(&cnn, 4, other.clone()), other);
        let full = explain(&cnn, 4, Error::invalid("CUDA_ERROR_OUT_OF_MEMORY", "y"));
        assert!(full.to_string().contains("next: use a batch of 3 or less"), "{full}");
    }
}
