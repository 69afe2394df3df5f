//! Who takes part in a race: a file on every provider, and the course's CNN.

use super::{Provider, Race};
use gpulab::error::Result;
use std::path::Path;

impl Race {
    /// A file on the CPU, CUDA, TensorRT (fp32, fp16) and CoreML. Who is missing is noted. Engines of TensorRT hold for
    /// batches from 1 to `most`.
    ///
    /// # Errors
    /// When ONNX Runtime is missing, or a provider that is there does not take the file.
    pub fn of_file(path: &Path, most: usize) -> Result<Race> {
        let mut race = Race::new(path)?;
        let (fp32, fp16) = (race.tensorrt(false, most), race.tensorrt(true, most));
        race.join(path, &[Provider::Cuda, fp32, fp16, Provider::CoreMl])?;
        Ok(race)
    }

    /// The CNN with these numbers: written to `folder` as `cnn.onnx`, with operators of version [`CUDA_OPSET`], and run as
    /// [`Race::of_file`] does; beside it candle, on the CPU and on CUDA. On CUDA the newest version of operators ([`OPSET`])
    /// runs as well, from `cnn-newest.onnx`: what one operator without a kernel costs.
    ///
    /// # Errors
    /// When a file cannot be written, and as [`Race::of_file`].
    ///
    /// [`CUDA_OPSET`]: crate::export::CUDA_OPSET
    /// [`OPSET`]: crate::export::OPSET
    pub fn of_cnn(parameters: &gpulab_nn::cnn::Parameters, folder: &Path, most: usize) -> Result<Race> {
        use super::{CandleCnn, Entry};
        use crate::export::{CUDA_OPSET, OPSET, cnn};
        use gpulab_nn::DeviceKind;
        let (path, newest) = (folder.join("cnn.onnx"), folder.join("cnn-newest.onnx"));
        let model = cnn(parameters)?;
        model.write(&newest)?;
        model.with_opset(CUDA_OPSET)?.write(&path)?;
        let mut race = Race::of_file(&path, most)?;
        race.join_as(&format!("{}, operators {OPSET}", Provider::Cuda), &newest, Provider::Cuda)?;
        for place in [DeviceKind::Cpu, DeviceKind::Cuda] {
            match CandleCnn::new(parameters, place) {
                Ok(contestant) => race.entries.push(Entry::of(contestant)),
                Err(error) => race.absent.push((format!("candle {}", place.name()), error)),
            }
        }
        Ok(race)
    }
}
