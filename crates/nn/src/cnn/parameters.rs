//! The network's parameters on the host: names, shapes, first values.

use gpulab::cpu::random_f32;

/// The eight parameters in f32, each row-major, in the order of [`Parameters::SHAPES`].
#[derive(Debug, Clone, PartialEq)]
pub struct Parameters {
    /// One array for each entry of [`Parameters::SHAPES`].
    pub arrays: [Vec<f32>; 8],
}

impl Parameters {
    /// Name and shape of each, as they stand in a checkpoint. A convolution's weight is [out, in, high, wide], a linear
    /// layer's [out, in].
    pub const SHAPES: [(&'static str, &'static [usize]); 8] = [
        ("conv1.weight", &[32, 1, 3, 3]),
        ("conv1.bias", &[32]),
        ("conv2.weight", &[64, 32, 3, 3]),
        ("conv2.bias", &[64]),
        ("fc1.weight", &[128, 9216]),
        ("fc1.bias", &[128]),
        ("fc2.weight", &[10, 128]),
        ("fc2.bias", &[10]),
    ];

    /// How many numbers parameter `at` holds.
    pub fn len_of(at: usize) -> usize {
        Self::SHAPES[at].1.iter().product()
    }

    /// How many numbers all of them hold: 1,199,882.
    pub fn count() -> usize {
        (0..Self::SHAPES.len()).map(Self::len_of).sum()
    }

    /// All zero: the first moments of an optimiser.
    pub fn zeros() -> Parameters {
        Parameters { arrays: std::array::from_fn(|at| vec![0.0; Self::len_of(at)]) }
    }

    /// Uniform in ±1/√(inputs of one output), weights and biases alike, as PyTorch's layers begin; the same numbers for the
    /// same seed on every machine.
    pub fn random(seed: u64) -> Parameters {
        let array = |at: usize| {
            // A bias follows its weight, and has its bound.
            let inputs: usize = Self::SHAPES[at / 2 * 2].1[1..].iter().product();
            let bound = 1.0 / (inputs as f32).sqrt();
            // Seeds of parameters must not meet those of a neighbouring run.
            let own = seed.wrapping_mul(0x9E37_79B9_7F4A_7C15).wrapping_add(at as u64);
            let mut numbers = random_f32(Self::len_of(at), own);
            numbers.iter_mut().for_each(|number| *number *= bound);
            numbers
        };
        Parameters { arrays: std::array::from_fn(array) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn first_values_fill_their_bounds_and_follow_the_seed() {
        assert_eq!(Parameters::count(), 1_199_882);
        let first = Parameters::random(1);
        assert_eq!(first, Parameters::random(1));
        assert_ne!(first, Parameters::random(2));
        for (at, inputs) in [9, 9, 288, 288, 9216, 9216, 128, 128].into_iter().enumerate() {
            let bound = 1.0 / (inputs as f32).sqrt();
            let largest = first.arrays[at].iter().fold(0f32, |largest, x| largest.max(x.abs()));
            assert!(largest <= bound && largest > 0.5 * bound, "{at}: {largest} of {bound}");
        }
    }
}
