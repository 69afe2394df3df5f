//! Whole numbers and a scale: absmax, and with a zero point.

use super::matrix::{Rounded, Share, WeightMatrix};
use gpulab::error::{Error, Result};
use half::f16;

/// Evenly spaced values: `scale · (code − zero)` for the codes from `low` to `high`.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct IntGrid {
    /// The distance of two neighbours; kept in 16 bits (f16), and rounded to that here.
    pub scale: f32,
    /// The code that stands for 0.
    pub zero: i32,
    /// The least code.
    pub low: i32,
    /// The largest code.
    pub high: i32,
}

impl IntGrid {
    /// Symmetric around 0, up to the largest magnitude: for 4 bits the codes −7 to 7, of 16 possible ones 15.
    ///
    /// # Panics
    /// For other than 2 to 8 bits.
    pub fn absmax(values: &[f32], bits: u32) -> IntGrid {
        let high = (1 << (width(bits) - 1)) - 1;
        let most = values.iter().fold(0.0_f32, |most, x| most.max(x.abs()));
        IntGrid { scale: stored(most / high as f32), zero: 0, low: -high, high }
    }

    /// From the least value to the largest, and 0 always among them: for 4 bits the codes 0 to 15.
    ///
    /// # Panics
    /// For other than 2 to 8 bits.
    pub fn zero_point(values: &[f32], bits: u32) -> IntGrid {
        let high = (1 << width(bits)) - 1;
        let least = values.iter().fold(0.0_f32, |least, x| least.min(*x));
        let most = values.iter().fold(0.0_f32, |most, x| most.max(*x));
        let scale = stored((most - least) / high as f32);
        let zero = if scale == 0.0 { 0 } else { (-least / scale).round() as i32 };
        IntGrid { scale, zero: zero.clamp(0, high), low: 0, high }
    }

    /// The code whose value is nearest.
    pub fn encode(&self, x: f32) -> i32 {
        if self.scale == 0.0 {
            return self.zero;
        }
        // A rounded scale may be a little too small for the largest value.
        ((x / self.scale).round_ties_even() as i32).saturating_add(self.zero).clamp(self.low, self.high)
    }

    /// What a code stands for.
    pub fn decode(&self, code: i32) -> f32 {
        self.scale * (code - self.zero) as f32
    }

    /// The nearest value.
    pub fn round(&self, x: f32) -> f32 {
        self.decode(self.encode(x))
    }
}

fn width(bits: u32) -> u32 {
    assert!((2..=8).contains(&bits), "{bits} bits");
    bits
}

/// As it is kept. A scale that is not 0 must not become 0.
fn stored(scale: f32) -> f32 {
    let kept = f16::from_f32(scale);
    if kept.to_f32() == 0.0 && scale > 0.0 { f16::MIN_POSITIVE_SUBNORMAL.to_f32() } else { kept.to_f32() }
}

/// Makes a grid of so many bits for some weights.
pub(super) type Fit = fn(&[f32], u32) -> IntGrid;

/// Checks the number of bits, and gives what makes a grid for some weights, and the bits of that grid.
pub(super) fn fit(bits: u32, zero_point: bool) -> Result<(Fit, u64)> {
    if !(2..=8).contains(&bits) {
        return Err(Error::invalid(format!("whole numbers of {bits} bits"), "use 2 to 8 bits"));
    }
    Ok(match zero_point {
        true => (IntGrid::zero_point, 16 + u64::from(bits)),
        false => (IntGrid::absmax, 16),
    })
}

pub(super) fn round(weights: WeightMatrix, bits: u32, zero_point: bool, share: Share) -> Result<Rounded> {
    let (fit, grid_bits) = fit(bits, zero_point)?;
    let size = weights.shared(share)?;
    let mut values = Vec::with_capacity(weights.values.len());
    for group in weights.values.chunks(size) {
        let grid = fit(group, bits);
        values.extend(group.iter().map(|x| grid.round(*x)));
    }
    let groups = weights.values.len().div_ceil(size) as u64;
    Ok(Rounded { bits: values.len() as u64 * u64::from(bits) + groups * grid_bits, values })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn absmax_by_hand() {
        // The largest magnitude is 7: the scale is 1, and each weight goes to the nearest whole number.
        let grid = IntGrid::absmax(&[-7.0, 2.4, 0.6], 4);
        assert_eq!((grid.scale, grid.zero, grid.low, grid.high), (1.0, 0, -7, 7));
        assert_eq!([-7.0, 2.4, 0.6, -0.5, 1.5, 99.0].map(|x| grid.encode(x)), [-7, 2, 1, 0, 2, 7]);
        let eight = IntGrid::absmax(&[-63.5, 10.2], 8);
        assert_eq!((eight.scale, eight.encode(10.2), eight.round(10.2)), (0.5, 20, 10.0));
    }

    #[test]
    fn a_zero_point_by_hand() {
        // From −1 to 6.5 in 15 steps of a half; 0 is code 2.
        let grid = IntGrid::zero_point(&[-1.0, 6.5, 3.1], 4);
        assert_eq!((grid.scale, grid.zero, grid.low, grid.high), (0.5, 2, 0, 15));
        assert_eq!([-1.0, 6.5, 3.1, 0.0, -9.0].map(|x| grid.encode(x)), [0, 15, 8, 2, 0]);
        assert_eq!(grid.round(3.1), 3.0);
        // All weights above 0: the grid begins at 0 all the same, so that 0 stays 0.
        let above = IntGrid::zero_point(&[1.0, 7.5], 4);
        assert_eq!((above.scale, above.zero), (0.5, 0));
    }

    #[test]
    fn bits_are_those_of_codes_and_scales() {
        let values = vec![0.25; 4 * 64];
        let weights = WeightMatrix { values: &values, columns: 64 };
        let bits = |zero_point, share| round(weights, 4, zero_point, share).unwrap().bits;
        assert_eq!(bits(false, Share::Tensor), 4 * 256 + 16);
        assert_eq!(bits(false, Share::Row), 4 * 256 + 4 * 16);
        assert_eq!(bits(true, Share::Group(32)), 4 * 256 + 8 * 20);
    }

    #[test]
    fn an_outlier_costs_its_neighbours_only() {
        let mut values = [0.1_f32, -0.2, 0.3, -0.4].repeat(16);
        values[0] = 30.0;
        let weights = WeightMatrix { values: &values, columns: 64 };
        let lost = |share| {
            let rounded = round(weights, 4, false, share).unwrap();
            rounded.values.iter().filter(|x| **x == 0.0).count()
        };
        assert_eq!((lost(Share::Row), lost(Share::Group(16))), (63, 15));
    }
}
