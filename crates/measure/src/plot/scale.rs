//! From values to pixels, and where the ticks stand.

use crate::error::bytes;
use crate::measurement::figures;

/// One axis: values from `min` to `max` lie at pixels from `start` to `end`.
#[derive(Debug, Clone, Copy)]
pub(super) struct Scale {
    pub log: bool,
    pub min: f64,
    pub max: f64,
    pub start: f64,
    pub end: f64,
}

impl Scale {
    /// The pixel of a value; values beyond the axis lie on its end.
    pub(super) fn at(&self, value: f64) -> f64 {
        let share = if self.log {
            (value / self.min).ln() / (self.max / self.min).ln()
        } else {
            (value - self.min) / (self.max - self.min)
        };
        self.start + (self.end - self.start) * share.clamp(0.0, 1.0)
    }
}

/// Widens a range of positive values for a log axis: a margin at both ends, and at least the factor `least`.
pub(super) fn log_range(min: f64, max: f64, least: f64) -> (f64, f64) {
    let spare = (least / (max / min)).max(1.0).sqrt();
    let margin = (max / min).powf(0.04).max(1.03);
    (min / spare / margin, max * spare * margin)
}

/// Ticks of a log axis: powers of ten, with 2 and 5 between them where there are few, or round steps on a short axis.
pub(super) fn log_ticks(min: f64, max: f64) -> Vec<f64> {
    let decades = (min.log10().floor() as i32)..=(max.log10().ceil() as i32);
    let inside = |value: &f64| *value >= min * (1.0 - 1e-9) && *value <= max * (1.0 + 1e-9);
    let power = |e: i32| {
        if e < 0 { 1.0 / 10f64.powi(-e) } else { 10f64.powi(e) }
    };
    let tens: Vec<f64> = decades.clone().map(power).filter(inside).collect();
    if tens.len() >= 3 {
        return tens.iter().copied().step_by(tens.len().div_ceil(9)).collect();
    }
    let finer: Vec<f64> = decades.flat_map(|e| [1.0, 2.0, 5.0].map(|m| m * power(e))).filter(inside).collect();
    if finer.len() >= 3 { finer } else { linear_ticks(min, max, 4) }
}

/// Ticks of a size axis: powers of two, at most nine, or the sizes themselves where a short axis holds fewer than two.
pub(super) fn size_ticks(min: f64, max: f64, sizes: &[f64]) -> Vec<f64> {
    let (first, last) = (min.log2().ceil() as i32, max.log2().floor() as i32);
    let step = ((last - first + 1).max(1) as usize).div_ceil(9);
    let ticks: Vec<f64> = (first..=last).filter(|e| e.rem_euclid(step as i32) == 0).map(|e| 2f64.powi(e)).collect();
    if ticks.len() >= 2 || sizes.len() > 6 {
        return ticks;
    }
    let mut own = sizes.to_vec();
    own.sort_by(f64::total_cmp);
    own.dedup();
    own
}

/// About `count` round steps from `min` to `max`, both ends included where they are round.
pub(super) fn linear_ticks(min: f64, max: f64, count: usize) -> Vec<f64> {
    let rough = (max - min) / count as f64;
    let power = 10f64.powf(rough.log10().floor());
    let step = [1.0, 2.0, 5.0, 10.0].into_iter().map(|m| m * power).find(|s| *s >= rough * 0.999).unwrap_or(rough);
    let first = (min / step - 1e-9).ceil() as i64;
    let last = (max / step + 1e-9).floor() as i64;
    (first..=last).map(|n| n as f64 * step).collect()
}

/// `0.001`, `10`, `2000`, `5 M`: a tick's number with no digit too many.
pub(super) fn number(value: f64) -> String {
    let (value, suffix) = match value.abs() {
        v if v >= 1e15 => return format!("{value:.2e}"),
        v if v >= 1e9 => (value / 1e9, " G"),
        v if v >= 1e6 => (value / 1e6, " M"),
        v if v > 0.0 && v < 1e-5 => return format!("{value:e}"),
        _ => (value, ""),
    };
    // Six decimals hide what adding up tenths leaves behind.
    let digits = format!("{value:.6}");
    format!("{}{suffix}", digits.trim_end_matches('0').trim_end_matches('.'))
}

/// A number as the reader wrote it where that is short, else three figures of it.
pub(super) fn short(value: f64) -> String {
    let text = number(value);
    if text.len() <= 6 && text.parse() == Ok(value) { text } else { figures(value) }
}

/// A tick of a size axis: `256`, `4096`, `64K`, `1M`, or `1 KiB`, `2 MiB` where sizes are bytes.
/// K, M and G are powers of 1024 here, as sizes are powers of two.
pub(super) fn size(value: f64, in_bytes: bool) -> String {
    const UNITS: [(f64, &str); 4] = [(1024.0, "K"), (1048576.0, "M"), (1073741824.0, "G"), (1099511627776.0, "T")];
    if value < if in_bytes { 1024.0 } else { 16384.0 } {
        return format!("{}{}", number(value), if in_bytes { " B" } else { "" });
    }
    let whole = UNITS.into_iter().rev().find(|(unit, _)| value >= *unit && value % unit == 0.0);
    match whole {
        Some((unit, letter)) if in_bytes => format!("{} {letter}iB", number(value / unit)),
        Some((unit, letter)) => format!("{}{letter}", number(value / unit)),
        None if in_bytes => bytes(value as u64),
        None => number(value),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_log_scale_puts_the_middle_in_the_middle() {
        let scale = Scale { log: true, min: 1.0, max: 100.0, start: 0.0, end: 200.0 };
        assert!((scale.at(10.0) - 100.0).abs() < 1e-9);
        assert_eq!(scale.at(1e9), 200.0);
    }

    #[test]
    fn decades_or_ones_twos_and_fives() {
        assert_eq!(log_ticks(0.0008, 150.0), [0.001, 0.01, 0.1, 1.0, 10.0, 100.0]);
        assert_eq!(log_ticks(9.0, 110.0), [10.0, 20.0, 50.0, 100.0]);
        assert!(log_ticks(1e-12, 1e12).len() <= 9);
        let (min, max) = log_range(4200.0, 4300.0, 4.0);
        assert!(max / min >= 4.0 && log_ticks(min, max).len() >= 2, "{:?}", log_ticks(min, max));
    }

    #[test]
    fn sizes_are_powers_of_two() {
        assert_eq!(size_ticks(250.0, 4100.0, &[]), [256.0, 512.0, 1024.0, 2048.0, 4096.0]);
        let ticks = size_ticks(1.0, 2f64.powi(30), &[]);
        assert!(ticks.len() <= 9 && ticks.contains(&1048576.0), "{ticks:?}");
        assert_eq!(size_ticks(700.0, 1000.0, &[900.0, 720.0, 900.0]), [720.0, 900.0]);
    }

    #[test]
    fn labels_read_well() {
        let plain: Vec<String> = [1.0, 256.0, 8192.0, 65536.0, 1048576.0].map(|v| size(v, false)).to_vec();
        assert_eq!(plain, ["1", "256", "8192", "64K", "1M"]);
        let in_bytes: Vec<String> = [512.0, 1024.0, 3.0 * 1048576.0, 1073741824.0].map(|v| size(v, true)).to_vec();
        assert_eq!(in_bytes, ["512 B", "1 KiB", "3 MiB", "1 GiB"]);
        let numbers: Vec<String> = [0.001, 0.1 + 0.2, 10.0, 50000.0, 2e6, 0.0].map(number).to_vec();
        assert_eq!(numbers, ["0.001", "0.3", "10", "50000", "2 M", "0"]);
    }

    #[test]
    fn linear_ticks_are_round_and_inside() {
        assert_eq!(linear_ticks(0.0, 10.0, 5), [0.0, 2.0, 4.0, 6.0, 8.0, 10.0]);
        assert_eq!(
            linear_ticks(139.2, 139.8, 3).iter().map(|v| number(*v)).collect::<Vec<_>>(),
            ["139.2", "139.4", "139.6", "139.8"]
        );
    }
}
