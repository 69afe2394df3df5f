//! Where two curves cross.

use super::curves::{Curve, Spot, curves};
use crate::measurement::{Backend, Measurement};

/// The size at which the first CPU curve and the first GPU curve of `rows` cross, as [`SizeChart::crossover`] marks it.
///
/// Between measured sizes the curves are straight lines on logarithmic axes. `None` when there are not both curves,
/// when they share no range of sizes, or when one is below the other everywhere.
///
/// [`SizeChart::crossover`]: super::SizeChart::crossover
pub fn crossing(rows: &[Measurement]) -> Option<f64> {
    let curves = curves(rows, rows.first().map(|row| row.metric.as_str())).curves;
    let (cpu, gpu) = cpu_and_gpu(&curves)?;
    crossings(&cpu.spots, &gpu.spots).first().map(|(size, _)| *size)
}

/// The first CPU curve and the first curve of a real GPU.
pub(super) fn cpu_and_gpu(curves: &[Curve]) -> Option<(&Curve, &Curve)> {
    let first = |kinds: [Backend; 2]| curves.iter().find(|curve| kinds.contains(&curve.backend));
    Some((first([Backend::Cpu, Backend::CpuOneCore])?, first([Backend::Cuda, Backend::Metal])?))
}

/// All crossings of two curves, by rising size: size and value.
pub(super) fn crossings(a: &[Spot], b: &[Spot]) -> Vec<(f64, f64)> {
    let mut sizes: Vec<f64> = a.iter().chain(b).map(|spot| spot.size).collect();
    sizes.sort_by(f64::total_cmp);
    sizes.dedup();
    let mut found = Vec::new();
    // The last size at which the curves differed: log of the size, and how far a lies above b there.
    let mut before: Option<(f64, f64)> = None;
    for size in sizes {
        let (Some(va), Some(vb)) = (value_at(a, size), value_at(b, size)) else {
            continue;
        };
        let (here, gap) = (size.ln(), va.ln() - vb.ln());
        if gap == 0.0 {
            continue;
        }
        if let Some((there, other)) = before
            && other.signum() != gap.signum()
        {
            let cross = (there + (here - there) * other / (other - gap)).exp();
            found.push((cross, value_at(a, cross).unwrap_or(va)));
        }
        before = Some((here, gap));
    }
    found
}

/// The curve's value at a size within its range.
pub(super) fn value_at(spots: &[Spot], size: f64) -> Option<f64> {
    let after = spots.iter().position(|spot| spot.size >= size)?;
    let right = spots[after];
    if right.size == size {
        return Some(right.mid);
    }
    let left = *spots.get(after.checked_sub(1)?)?;
    let share = (size / left.size).ln() / (right.size / left.size).ln();
    Some((left.mid.ln() + (right.mid.ln() - left.mid.ln()) * share).exp())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn spots(points: &[(f64, f64)]) -> Vec<Spot> {
        points.iter().map(|&(size, mid)| Spot { size, mid, low: mid, high: mid }).collect()
    }

    #[test]
    fn straight_lines_cross_where_the_formulas_say() {
        // t = n / 100 and t = 1 cross at 100; the two curves share no measured size.
        let cpu = spots(&[(10.0, 0.1), (1000.0, 10.0)]);
        let gpu = spots(&[(20.0, 1.0), (500.0, 1.0)]);
        let found = crossings(&cpu, &gpu);
        assert!(found.len() == 1 && (found[0].0 - 100.0).abs() < 1e-9 && (found[0].1 - 1.0).abs() < 1e-9, "{found:?}");
    }

    #[test]
    fn a_touch_is_no_crossing_and_a_common_point_is_one() {
        let flat = spots(&[(1.0, 1.0), (2.0, 1.0), (4.0, 1.0)]);
        assert!(crossings(&flat, &spots(&[(1.0, 2.0), (2.0, 1.0), (4.0, 2.0)])).is_empty());
        let through = crossings(&flat, &spots(&[(1.0, 2.0), (2.0, 1.0), (4.0, 0.5)]));
        assert!(through.len() == 1 && (through[0].0 - 2.0).abs() < 1e-9, "{through:?}");
    }

    #[test]
    fn apart_or_side_by_side_there_is_none() {
        let low = spots(&[(1.0, 1.0), (2.0, 1.0)]);
        assert!(crossings(&low, &spots(&[(1.0, 3.0), (2.0, 2.0)])).is_empty());
        assert!(crossings(&low, &spots(&[(4.0, 0.1), (8.0, 3.0)])).is_empty());
        assert!(crossings(&low, &[]).is_empty());
    }
}
