//! From rows to curves: what belongs together, what it is called, what cannot be drawn, and where two curves cross.

use crate::cpu_info::clean_name;
use crate::measurement::{Backend, Measurement};

/// One point of a curve.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Spot {
    pub size: f64,
    pub mid: f64,
    pub low: f64,
    pub high: f64,
}

/// Points of one experiment on one machine, by rising size.
#[derive(Debug, Clone)]
pub(super) struct Curve {
    pub label: String,
    pub backend: Backend,
    pub recorded: bool,
    /// Its place in the palette: a recorded curve shares that of the same experiment measured here.
    pub color: usize,
    pub spots: Vec<Spot>,
}

/// All curves of a chart, and the remarks that stand below it.
#[derive(Debug, Clone, Default)]
pub(super) struct Curves {
    pub curves: Vec<Curve>,
    pub notes: Vec<String>,
    pub metric: String,
    pub unit: String,
}

/// The rows of one metric and unit, those of the first row that fits `metric`; notes count the ones left out.
pub(super) fn one_unit<'a>(
    rows: &'a [Measurement],
    metric: Option<&str>,
    notes: &mut Vec<String>,
) -> Vec<&'a Measurement> {
    let asked: Vec<&Measurement> = rows.iter().filter(|row| metric.is_none_or(|metric| row.metric == metric)).collect();
    let Some(first) = asked.first().copied() else {
        return Vec::new();
    };
    let (same, other): (Vec<&Measurement>, Vec<&Measurement>) =
        asked.into_iter().partition(|row| row.metric == first.metric && row.unit == first.unit);
    if let Some(row) = other.first() {
        notes.push(format!(
            "Not drawn: {} of another kind ({} in {}).",
            count(other.len(), "row"),
            row.metric,
            row.unit
        ));
    }
    same
}

/// The rows of one unit that a linear axis holds, and a note on the others.
pub(super) fn linear_rows(rows: &[Measurement], metric: Option<&str>) -> (Vec<Measurement>, Vec<String>) {
    let mut notes = Vec::new();
    let same = one_unit(rows, metric, &mut notes);
    let kept: Vec<Measurement> = same.iter().filter(|row| fits_linear(row.summary.median)).copied().cloned().collect();
    if kept.len() < same.len() {
        let left = count(same.len() - kept.len(), "row");
        notes.push(format!("Not drawn: {left} whose value is no number from 0 up."));
    }
    (kept, notes)
}

/// The remark in place of a prediction that its reader has not made.
pub(super) fn none_yet(label: &str) -> String {
    format!("{label}: none yet.")
}

/// `1 row`, `3 rows`.
pub fn count(n: usize, what: &str) -> String {
    format!("{n} {what}{}", if n == 1 { "" } else { "s" })
}

/// Whether a log axis can hold this value. Far beyond anything measured, arithmetic on the axis would overflow.
pub(super) fn fits_log(value: f64) -> bool {
    (1e-100..=1e100).contains(&value)
}

/// Whether an axis that starts at 0 can hold this value.
pub(super) fn fits_linear(value: f64) -> bool {
    (0.0..=1e100).contains(&value)
}

/// Whether a higher value is the faster one; `None` where speed is not the matter.
pub(super) fn better(metric: &str, unit: &str) -> Option<bool> {
    match metric {
        "time" | "latency" => Some(false),
        _ if unit.ends_with("/s") => Some(true),
        "bandwidth" | "throughput" => Some(true),
        _ => None,
    }
}

pub(super) fn curves(rows: &[Measurement], metric: Option<&str>) -> Curves {
    let mut out = Curves::default();
    let rows = one_unit(rows, metric, &mut out.notes);
    if let Some(first) = rows.first() {
        (out.metric, out.unit) = (first.metric.clone(), first.unit.clone());
    }
    let several_types = rows.iter().any(|row| row.dtype != rows[0].dtype);
    let (mut unfit, mut twice) = (0, 0);
    // The first row of each curve, to compare with: curves are few.
    let mut firsts: Vec<&Measurement> = Vec::new();
    for row in rows {
        if row.size == 0 || !fits_log(row.summary.median) {
            unfit += 1;
            continue;
        }
        let own = firsts.iter().position(|first| same_curve(first, row)).unwrap_or_else(|| {
            let color = color(row, &firsts, &out.curves);
            firsts.push(row);
            let label = label(row, several_types);
            let Measurement { backend, recorded, .. } = *row;
            out.curves.push(Curve { label, backend, recorded, color, spots: Vec::new() });
            firsts.len() - 1
        });
        twice += usize::from(put(&mut out.curves[own].spots, spot(row)));
    }
    if unfit > 0 {
        out.notes.push(format!("Not drawn: {}; a logarithmic axis holds only numbers above 0.", count(unfit, "row")));
    }
    if twice > 0 {
        out.notes.push(format!("Measured more than once: {}; the last one is drawn.", count(twice, "point")));
    }
    out
}

fn same_curve(a: &Measurement, b: &Measurement) -> bool {
    (a.recorded, a.backend, &a.experiment, &a.machine, &a.dtype)
        == (b.recorded, b.backend, &b.experiment, &b.machine, &b.dtype)
}

/// A recorded curve takes the colour of the same experiment measured here (and the other way round), once.
fn color(row: &Measurement, firsts: &[&Measurement], curves: &[Curve]) -> usize {
    let twin = firsts.iter().position(|first| {
        first.recorded != row.recorded
            && (first.backend, &first.experiment, &first.dtype) == (row.backend, &row.experiment, &row.dtype)
    });
    let used = |color: usize| curves.iter().filter(|curve| curve.color == color).count();
    match twin.map(|at| curves[at].color) {
        Some(color) if used(color) == 1 => color,
        _ => curves.iter().map(|curve| curve.color + 1).max().unwrap_or(0),
    }
}

fn spot(row: &Measurement) -> Spot {
    let mid = row.summary.median;
    let sound = |value: f64| if fits_log(value) { value } else { mid };
    Spot { size: row.size as f64, mid, low: sound(row.summary.p10).min(mid), high: sound(row.summary.p90).max(mid) }
}

/// Puts a spot in its place; true when it replaced one of the same size.
fn put(spots: &mut Vec<Spot>, spot: Spot) -> bool {
    let at = spots.partition_point(|other| other.size < spot.size);
    if spots.get(at).is_some_and(|other| other.size == spot.size) {
        spots[at] = spot;
        return true;
    }
    spots.insert(at, spot);
    false
}

/// The row's label with the machine's name shortened, and the element type where a chart holds several.
pub(super) fn label(row: &Measurement, with_type: bool) -> String {
    let mut row = row.clone();
    row.machine = clean_name(&row.machine);
    if with_type && !row.dtype.is_empty() {
        row.experiment = format!("{}, {}", row.experiment, row.dtype);
    }
    row.label()
}

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
