//! Random numbers that a seed names, the same on every machine.

use gpulab::cpu::random::mix;

/// SplitMix64 (Steele, Lea, Flood: "Fast splittable pseudorandom number generators").
#[derive(Debug, Clone, PartialEq)]
pub struct Random {
    state: u64,
}

impl Random {
    /// The numbers of that seed.
    pub fn new(seed: u64) -> Random {
        Random { state: seed }
    }

    /// The next 64 bits.
    pub fn bits(&mut self) -> u64 {
        self.state = self.state.wrapping_add(0x9E37_79B9_7F4A_7C15);
        mix(self.state)
    }

    /// The next number in [0, 1).
    pub fn unit(&mut self) -> f64 {
        (self.bits() >> 11) as f64 / (1u64 << 53) as f64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_generator_is_splitmix64() {
        let mut random = Random::new(1_234_567);
        let first: Vec<u64> = (0..3).map(|_| random.bits()).collect();
        assert_eq!(first, [6_457_827_717_110_365_317, 3_203_168_211_198_807_973, 9_817_491_932_198_370_423]);
        assert!((0..1000).all(|_| (0.0..1.0).contains(&random.unit())));
    }
}
