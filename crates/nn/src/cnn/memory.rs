//! A batch that is larger than the memory: caught, with the largest that fits.

use super::{Cnn, Kernels};
use gpulab::cpu;
use gpulab::error::{Error, Result, bytes};
use candle_core::{DType, Tensor};

/// Bytes that a step needs for each image on the CPU, beside what does not grow with the batch.
fn bytes_an_image(kernels: Kernels) -> u64 {
    match kernels {
        // Measured: the process grew by 224 KiB an image from a batch of 512 to one of 2048.
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

/// The error for a batch that is too large; `fits` names the largest that is not, 0 where none is.
pub(super) fn too_large(batch: u64, fits: u64, why: &str) -> Error {
    Error::Invalid {
        what: format!("a step of {batch} images does not fit into memory: {why}"),
        fix: match fits {
            0 => "not even one image fits: end other programs that use this device".to_string(),
            _ => format!("use a batch of {fits} or less; nothing was lost"),
        },
    }
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
        let other = Error::Invalid { what: "x".into(), fix: "y".into() };
        assert_eq!(explain(&cnn, 4, other.clone()), other);
        let full = explain(&cnn, 4, Error::Invalid { what: "CUDA_ERROR_OUT_OF_MEMORY".into(), fix: "y".into() });
        assert!(full.to_string().contains("next: use a batch of 3 or less"), "{full}");
    }
}
