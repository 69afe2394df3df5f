//! Inputs and outputs that stay where the provider computes.

use super::port::Port;
use super::said::said;
use super::tensor::OnnxTensor;
use gpulab::error::{Error, Result};
use ort::memory::{AllocationDevice, AllocatorType, MemoryInfo, MemoryType};
use ort::session::{IoBinding, Session};

fn wrong(what: &str, error: &ort::Error) -> Error {
    said(what, error, "use `model.run`, which needs no binding")
}

/// A binding of that session, without inputs and outputs yet.
pub(super) fn begin(session: &Session) -> Result<IoBinding> {
    session.create_binding().map_err(|error| wrong("inputs and outputs were not bound", &error))
}

/// These inputs in place of those before, copied to where the provider computes.
pub(super) fn set(binding: &mut IoBinding, inputs: &[(&str, &OnnxTensor)]) -> Result<()> {
    for (name, tensor) in inputs {
        let bound = tensor.owned().and_then(|value| binding.bind_input(*name, &value));
        bound.map_err(|error| wrong(&format!("input `{name}` was not bound"), &error))?;
    }
    binding.synchronize_inputs().map_err(|error| wrong("the inputs did not arrive", &error))
}

/// Outputs stay on the GPU, or come to the host; their shapes follow from the inputs of each run.
pub(super) fn outputs(binding: &mut IoBinding, ports: &[Port], on_cuda: bool) -> Result<()> {
    let device = if on_cuda { AllocationDevice::CUDA } else { AllocationDevice::CPU };
    let place = |binding: &mut IoBinding| -> ort::Result<()> {
        binding.clear_outputs();
        let memory = MemoryInfo::new(device, 0, AllocatorType::Device, MemoryType::Default)?;
        ports.iter().try_for_each(|port| binding.bind_output_to_device(port.name.as_str(), &memory))
    };
    place(binding).map_err(|error| wrong("the outputs were not bound", &error))
}
