//! What GPUs can reach at most, as their maker says.

/// Figures of a GPU from NVIDIA's data sheet.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Peak {
    /// How the driver's name begins.
    name: &'static str,
    /// The memory's bandwidth in GB/s.
    pub memory: f64,
    /// bf16 on tensor cores with sums in f32, without sparsity, in TFLOP/s.
    pub bf16: f64,
}

/// From the data sheets "NVIDIA H200 Tensor Core GPU", "NVIDIA H100 Tensor Core GPU", "NVIDIA A100 Tensor Core GPU",
/// "NVIDIA L40S", "NVIDIA L4" and "NVIDIA A10"; those that give figures with sparsity alone are halved. Longer names
/// stand before shorter ones that they begin with.
const PEAKS: [Peak; 9] = [
    Peak { name: "NVIDIA H200", memory: 4800.0, bf16: 989.5 },
    Peak { name: "NVIDIA H100 PCIe", memory: 2000.0, bf16: 756.5 },
    Peak { name: "NVIDIA H100 NVL", memory: 3900.0, bf16: 835.5 },
    Peak { name: "NVIDIA H100", memory: 3350.0, bf16: 989.5 },
    Peak { name: "NVIDIA A100-SXM4-80GB", memory: 2039.0, bf16: 312.0 },
    Peak { name: "NVIDIA A100-SXM4-40GB", memory: 1555.0, bf16: 312.0 },
    Peak { name: "NVIDIA L40S", memory: 864.0, bf16: 362.0 },
    Peak { name: "NVIDIA L4", memory: 300.0, bf16: 121.0 },
    Peak { name: "NVIDIA A10", memory: 600.0, bf16: 125.0 },
];

/// The figures of the GPU of that name. A name that goes on with a letter or digit is another GPU's.
pub(super) fn peak(machine: &str) -> Option<Peak> {
    let is = |peak: &&Peak| {
        machine.strip_prefix(peak.name).is_some_and(|rest| !rest.starts_with(|next: char| next.is_alphanumeric()))
    };
    PEAKS.iter().find(is).copied()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_as_the_driver_gives_them() {
        let memory = |name: &str| peak(name).map(|peak| peak.memory);
        assert_eq!(memory("NVIDIA H200"), Some(4800.0));
        assert_eq!(memory("NVIDIA H100 80GB HBM3"), Some(3350.0));
        assert_eq!(memory("NVIDIA H100 PCIe"), Some(2000.0));
        assert_eq!([memory("NVIDIA A10G"), memory("NVIDIA L40"), memory("NVIDIA A100")], [None; 3]);
        assert_eq!((memory("NVIDIA L4"), memory("NVIDIA L40S")), (Some(300.0), Some(864.0)));
    }
}
