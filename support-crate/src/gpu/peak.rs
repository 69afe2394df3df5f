//! How fast a GPU can add and multiply, as its own figures say.

use super::Gpu;
use cudarc::driver::sys::CUdevice_attribute as Attribute;

impl Gpu {
    /// f32 additions and multiplications a second in TFLOP/s, outside the tensor cores: multiprocessors × lanes × 2 ×
    /// the highest clock, as the driver tells them. `None` where it does not, and on Apple and simulated GPUs.
    pub fn fp32_peak(&self) -> Option<f64> {
        let Gpu::Cuda(gpu) = self else { return None };
        let lanes = lanes(gpu.capability().ok()?)?;
        let khz = f64::from(gpu.attribute(Attribute::CU_DEVICE_ATTRIBUTE_CLOCK_RATE));
        let peak = f64::from(gpu.multiprocessors()) * f64::from(lanes) * 2.0 * khz * 1e3 / 1e12;
        (peak > 0.0).then_some(peak)
    }
}

/// f32 results a clock and multiprocessor, by compute capability: the table of arithmetic instructions' throughput in
/// the CUDA C++ Programming Guide.
fn lanes(capability: u32) -> Option<u32> {
    match capability {
        75 | 80 => Some(64),
        86..=89 | 90 | 100..=129 => Some(128),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hopper_has_128_lanes_and_a_simulator_has_no_peak() {
        assert_eq!([75, 80, 89, 90, 120, 30].map(lanes), [Some(64), Some(64), Some(128), Some(128), Some(128), None]);
        assert_eq!(Gpu::simulated().unwrap().fp32_peak(), None);
        let Ok(gpu) = Gpu::open_index(0) else { return };
        assert!(gpu.fp32_peak().is_none_or(|peak| (1.0..1000.0).contains(&peak)), "{:?}", gpu.fp32_peak());
    }
}
