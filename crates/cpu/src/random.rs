//! Random numbers that are the same on every machine.

use rayon::prelude::*;

/// `n` numbers, uniform in [-1, 1), the same ones for the same `seed` on every machine and any number of cores.
///
/// Element `i` is SplitMix64's output for the state `mix(seed) + (i + 1) · 0x9E3779B97F4A7C15` (Steele, Lea, Flood:
/// "Fast splittable pseudorandom number generators", OOPSLA 2014); its top 24 bits, which f32 holds exactly,
/// give a multiple of 2⁻²³. Long arrays lie in large pages where the system has them, as NumPy's do. Random data matters for times too: zeros draw less power, so a GPU clocks higher on them.
///
/// # Examples
/// ```
/// use gpulab_cpu as cpu;
/// let x = cpu::random_f32(1000, 1);
/// assert!(x.iter().all(|x| (-1.0..1.0).contains(x)));
/// assert_eq!(x, cpu::random_f32(1000, 1)); // the same seed, the same numbers
/// assert_ne!(x, cpu::random_f32(1000, 2));
/// ```
pub fn random_f32(n: usize, seed: u64) -> Vec<f32> {
    let start = mix(seed);
    let mut numbers = super::pages::reserve(n);
    (0..n).into_par_iter().with_min_len(super::CHUNK).map(|i| element(start, i)).collect_into_vec(&mut numbers);
    numbers
}

fn element(start: u64, i: usize) -> f32 {
    let bits = mix(start.wrapping_add((i as u64 + 1).wrapping_mul(0x9E37_79B9_7F4A_7C15)));
    (bits >> 40) as f32 / (1u32 << 23) as f32 - 1.0
}

/// SplitMix64's output function.
pub fn mix(mut z: u64) -> u64 {
    z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    z ^ (z >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_generator_is_splitmix64() {
        // The first outputs for state 1234567, as the reference implementation gives them.
        let golden = 0x9E37_79B9_7F4A_7C15_u64;
        let outputs: Vec<u64> = (1..=3u64).map(|i| mix(1_234_567u64.wrapping_add(golden.wrapping_mul(i)))).collect();
        assert_eq!(outputs, [6_457_827_717_110_365_317, 3_203_168_211_198_807_973, 9_817_491_932_198_370_423]);
    }

    #[test]
    fn a_seed_names_its_numbers_whatever_their_count() {
        let few = random_f32(1000, 7);
        assert_eq!(random_f32(300_000, 7)[..1000], few[..]);
        assert_ne!(random_f32(1000, 8), few);
        assert!(random_f32(0, 1).is_empty());
    }

    #[test]
    fn the_numbers_fill_their_range_evenly() {
        let x = random_f32(1 << 20, 42);
        assert!(x.iter().all(|v| (-1.0..1.0).contains(v)));
        let mut bins = [0usize; 16];
        x.iter().for_each(|v| bins[((v + 1.0) * 8.0) as usize] += 1);
        // 65536 each; the standard deviation is 248.
        assert!(bins.iter().all(|&n| n.abs_diff(65536) < 1500), "{bins:?}");
    }
}
