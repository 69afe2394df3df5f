//! The images where the network computes, batches of them, and in which order an epoch goes through them.

use crate::data::ImageSet;
use candle_core::{DType, Device, Tensor};
use gpulab::cpu::random::mix;
use gpulab::error::{Error, Result};
use rayon::prelude::*;

/// Those images of a set as `x` [B, 1, 28, 28] in 0 … 1, and their digits, on the device.
///
/// # Errors
/// [`gpulab::Error::Invalid`] names an image that the set does not have; candle's error when the device's memory is full.
pub fn batch(set: &ImageSet, which: &[u32], device: &Device) -> Result<(Tensor, Tensor)> {
    let size = 28 * 28;
    if let Some(at) = which.iter().find(|&&at| at as usize >= set.len() || (at as usize + 1) * size > set.pixels.len())
    {
        return Err(Error::invalid(
            format!("there is no image {at} of 28 × 28 pixels: the set has {}", set.len()),
            "number images from 0",
        ));
    }
    let (x, digits) = host_batch(&set.pixels, &set.labels, size, which)?;
    Ok((x.to_device(device)?, digits.to_device(device)?))
}

fn host_batch(pixels: &[u8], labels: &[u8], size: usize, which: &[u32]) -> Result<(Tensor, Tensor)> {
    let mut x = vec![0f32; which.len() * size];
    x.par_chunks_mut(size).zip(which).for_each(|(x, &at)| {
        let image = &pixels[at as usize * size..][..size];
        x.iter_mut().zip(image).for_each(|(x, &pixel)| *x = f32::from(pixel) / 255.0);
    });
    let digits: Vec<u32> = which.iter().map(|&at| u32::from(labels[at as usize])).collect();
    let digits = Tensor::from_vec(digits, which.len(), &Device::Cpu)?;
    Ok((Tensor::from_vec(x, (which.len(), 1, 28, 28), &Device::Cpu)?, digits))
}

/// One part of the images on a device.
#[derive(Debug)]
pub(super) enum ImageTensors {
    /// Bytes on the host; a batch becomes f32 on all cores.
    Host { pixels: Vec<u8>, digits: Vec<u8>, size: usize },
    /// Bytes and digits lie on the device once and for all: a step copies only the numbers of its images.
    Device { pixels: Tensor, digits: Tensor },
}

impl ImageTensors {
    pub(super) fn new(set: &ImageSet, size: usize, device: &Device) -> Result<ImageTensors> {
        if device.is_cpu() {
            return Ok(ImageTensors::Host { pixels: set.pixels.clone(), digits: set.labels.clone(), size });
        }
        let digits: Vec<u32> = set.labels.iter().map(|&digit| u32::from(digit)).collect();
        Ok(ImageTensors::Device {
            pixels: Tensor::from_slice(&set.pixels, (set.len(), size), device)?,
            digits: Tensor::from_vec(digits, set.len(), device)?,
        })
    }

    pub(super) fn len(&self) -> usize {
        match self {
            ImageTensors::Host { digits, .. } => digits.len(),
            ImageTensors::Device { digits, .. } => digits.elem_count(),
        }
    }

    /// Those images as [B, 1, 28, 28] in 0 … 1, and their digits.
    pub(super) fn batch(&self, which: &[u32]) -> Result<(Tensor, Tensor)> {
        match self {
            ImageTensors::Host { pixels, digits, size } => host_batch(pixels, digits, *size, which),
            ImageTensors::Device { pixels, digits } => {
                let numbers = Tensor::from_slice(which, which.len(), pixels.device())?;
                let x = pixels.index_select(&numbers, 0)?.to_dtype(DType::F32)?;
                Ok(((x / 255.0)?.reshape((which.len(), 1, 28, 28))?, digits.index_select(&numbers, 0)?))
            }
        }
    }
}

// ----------------------------------------------------------------------
// In which order an epoch goes through the images.

/// The images of that epoch in the order in which they are trained on: a permutation of `0..images`, the same one for
/// the same seed and epoch on every machine, so that a resumed run goes on where it stopped.
pub fn order(seed: u64, epoch: u64, images: usize) -> Vec<u32> {
    let mut state = mix(seed ^ mix(epoch.wrapping_add(1)));
    let mut order: Vec<u32> = (0..images as u32).collect();
    // Fisher and Yates, from the back. The high half of a product is even enough: off by less than 2⁻³⁰ for 60,000.
    for last in (1..images).rev() {
        state = state.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let other = ((u128::from(mix(state)) * (last as u128 + 1)) >> 64) as usize;
        order.swap(last, other);
    }
    order
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_epoch_sees_every_image_once_in_an_order_of_its_own() {
        let (first, second) = (order(7, 0, 1000), order(7, 1, 1000));
        assert_eq!(first, order(7, 0, 1000));
        assert_ne!(first, second);
        assert_ne!(first, order(8, 0, 1000));
        let mut sorted = second.clone();
        sorted.sort_unstable();
        assert!(sorted.into_iter().eq(0..1000));
        // An unshuffled stretch would stay near its place: the mean distance of a fair shuffle is a third of all.
        let distance: usize = first.iter().enumerate().map(|(at, &image)| at.abs_diff(image as usize)).sum();
        assert!((280_000..390_000).contains(&distance), "{distance}");
        assert!(order(1, 0, 0).is_empty() && order(1, 0, 1) == [0]);
    }
}
