//! Images that lie on the GPU as bytes, and the order in which they are gone through.

use gpulab::error::{Error, Result};
use gpulab::gpu::{Buffer, Gpu};

/// A set of images on one GPU.
#[derive(Debug)]
pub(super) struct DeviceImages {
    pub pixels: Buffer<u8>,
    pub labels: Buffer<u8>,
    pub order: Buffer<u32>,
    pub count: usize,
}

impl DeviceImages {
    /// Copies them: 784 bytes an image, a label from 0 to 9 each.
    pub fn new(gpu: &Gpu, pixels: &[u8], labels: &[u8]) -> Result<DeviceImages> {
        let count = labels.len();
        if pixels.len() != count * 784 || count == 0 {
            return Err(Error::LengthMismatch {
                what: "the images' pixels (784 for each label)".to_string(),
                expected: count.max(1) * 784,
                given: pixels.len(),
            });
        }
        if let Some(at) = labels.iter().position(|&label| label > 9) {
            return Err(Error::Invalid {
                what: format!("image {at} has the label {}", labels[at]),
                fix: "give labels from 0 to 9".to_string(),
            });
        }
        let order: Vec<u32> = (0..count as u32).collect();
        Ok(DeviceImages {
            pixels: gpu.to_device(pixels)?,
            labels: gpu.to_device(labels)?,
            order: gpu.to_device(&order)?,
            count,
        })
    }

    /// Sets the order. A kernel reads images by it unchecked, so it is checked here.
    pub fn set_order(&mut self, order: &[u32]) -> Result<()> {
        match order.iter().find(|&&image| image as usize >= self.count) {
            None => self.order.copy_from(order),
            Some(image) => Err(Error::Invalid {
                what: format!("image {image} of {}", self.count),
                fix: "count images from 0".to_string(),
            }),
        }
    }
}
