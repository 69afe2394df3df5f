//! The random numbers of one image.

use gpulab::cpu::random::mix;

/// SplitMix64 (see [`gpulab::cpu::random_f32`]), begun anew for each image.
pub(super) struct Chance(u64);

impl Chance {
    pub(super) fn new(seed: u64, image: u64) -> Chance {
        Chance(mix(mix(seed.wrapping_add(0x1234_5678_9ABC_DEF1)) ^ image.wrapping_mul(0xD134_2543_DE82_EF95)))
    }

    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        mix(self.0)
    }

    /// A whole number from 0 to `end` - 1.
    pub(super) fn below(&mut self, end: u64) -> u64 {
        ((u128::from(self.next()) * u128::from(end)) >> 64) as u64
    }

    /// Even between the two.
    pub(super) fn between(&mut self, low: f32, high: f32) -> f32 {
        low + (high - low) * ((self.next() >> 40) as f32 / (1u32 << 24) as f32)
    }

    /// About a normal distribution around 0 with this standard deviation: the sum of four even numbers, which needs no
    /// logarithm, and is the same on every machine.
    pub(super) fn around(&mut self, deviation: f32) -> f32 {
        let sum: f32 = (0..4).map(|_| self.between(-1.0, 1.0)).sum();
        sum * deviation * 0.866_025_4
    }
}
