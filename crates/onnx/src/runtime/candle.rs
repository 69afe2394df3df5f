//! The course's CNN on candle, beside the same network as an ONNX file.

use super::{Contestant, OnnxTensor};
use gpulab::error::{Error, Result};
use gpulab::measurement::Backend;
use gpulab_nn::cnn::{Cnn, Kernels, Parameters, Precision};
use gpulab_nn::{Device, DeviceKind, Tensor};

/// The CNN on candle: on the CPU with the course's own layers, on a GPU with candle's.
pub struct CandleCnn {
    cnn: Cnn,
    place: DeviceKind,
    images: Option<Tensor>,
}

impl CandleCnn {
    /// The network with these numbers, on this place.
    ///
    /// # Errors
    /// When candle was built without that place, or it does not open.
    pub fn new(parameters: &Parameters, place: DeviceKind) -> Result<CandleCnn> {
        let device = place.open()?;
        let cnn = Cnn::new(parameters, &device, Kernels::best(&device), Precision::F32)?;
        Ok(CandleCnn { cnn, place, images: None })
    }
}

impl Contestant for CandleCnn {
    fn name(&self) -> String {
        format!("candle {}", self.place.name())
    }

    fn backend(&self) -> Backend {
        self.place.backend()
    }

    fn set(&mut self, inputs: &[(&str, &OnnxTensor)]) -> Result<()> {
        let Some((_, images)) = inputs.first() else {
            let fix = "give the images".to_string();
            return Err(Error::Invalid { what: "the CNN takes one input".to_string(), fix });
        };
        self.images = Some(images.to_candle(self.cnn.device())?);
        Ok(())
    }

    fn call(&mut self) -> Result<()> {
        let logits = self.logits()?;
        // A GPU's work is only queued until somebody waits.
        match logits.device() {
            Device::Cpu => Ok(()),
            device => Ok(device.synchronize()?),
        }
    }

    fn output(&mut self) -> Result<Vec<f32>> {
        Ok(self.logits()?.flatten_all()?.to_vec1()?)
    }
}

impl CandleCnn {
    fn logits(&self) -> Result<Tensor> {
        let images = self.images.as_ref().ok_or_else(|| Error::Invalid {
            what: "the CNN was given no images".to_string(),
            fix: "call `set` first".to_string(),
        })?;
        // Weights that are variables would keep each call for a way back.
        self.cnn.logits(images).map(|logits| logits.detach())
    }
}
