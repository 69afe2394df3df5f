//! What the pipeline leaves: plain data, so that two ways can be held against each other.

use gpulab::measurement::figures;

/// Mean and standard deviation (of a sample: divided by n − 1) of a column.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct Moments {
    /// The mean, in the column's unit.
    pub mean: f64,
    /// The standard deviation, in the column's unit; 0 for fewer than two rows.
    pub deviation: f64,
}

impl Moments {
    /// From the sums of x and x² over `n` rows.
    pub(super) fn of_sums(n: u64, sum: u64, squares: u64) -> Moments {
        if n == 0 {
            return Moments::default();
        }
        let (n, sum, squares) = (n as f64, sum as f64, squares as f64);
        let mean = sum / n;
        let variance = if n > 1.0 { ((squares - sum * mean) / (n - 1.0)).max(0.0) } else { 0.0 };
        Moments { mean, deviation: variance.sqrt() }
    }

    /// A value of the column, normalised: (x − mean) ÷ deviation; 0 where there is no spread.
    pub(super) fn normalised(&self, x: u32) -> f32 {
        if self.deviation > 0.0 { ((f64::from(x) - self.mean) / self.deviation) as f32 } else { 0.0 }
    }
}

/// Sums over the rides that began in a zone.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, PartialOrd, Ord)]
pub struct Zone {
    /// Its number.
    pub zone: u32,
    /// How many rides.
    pub rides: u64,
    /// Their fares, in cents.
    pub cents: u64,
    /// Their ways, in metres.
    pub metres: u64,
}

/// The finished table: one row for each ride that is believed and has a known driver.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Joined {
    /// Where it began.
    pub zone: Vec<u32>,
    /// The year of the driver's car.
    pub year: Vec<u32>,
    /// Metres, seconds and cents, normalised.
    pub features: [Vec<f32>; 3],
}

/// All that the pipeline gives.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Outcome {
    /// Rows that the filter keeps.
    pub kept: usize,
    /// Of metres, seconds and cents of the kept rows.
    pub moments: [Moments; 3],
    /// The zones that have rides, by number.
    pub zones: Vec<Zone>,
    /// The finished table, in any order.
    pub joined: Joined,
}

/// What does not depend on the order of rows.
#[derive(Debug, PartialEq, Eq)]
struct Digest {
    rows: usize,
    years: u64,
    zones: u64,
    together: u64,
}

impl Joined {
    fn digest(&self) -> Digest {
        let pairs = || self.zone.iter().zip(&self.year).map(|(&zone, &year)| (u64::from(zone), u64::from(year)));
        Digest {
            rows: self.zone.len(),
            years: pairs().map(|(_, year)| year).sum(),
            zones: pairs().map(|(zone, _)| zone).sum(),
            // Rows whose zone and year were swapped among each other give another sum.
            together: pairs().map(|(zone, year)| zone * zone * (year - 1900)).sum(),
        }
    }

    /// Sum and sum of squares of a feature: 0 and n − 1 before the join.
    fn sums(&self, feature: usize) -> (f64, f64) {
        let values = || self.features[feature].iter().map(|&x| f64::from(x));
        (values().sum(), values().map(|x| x * x).sum())
    }
}

impl Outcome {
    /// How far two outcomes differ: `None` when counts and sums of whole numbers are equal, means and deviations agree to
    /// 10⁻⁹ of them, and the features' sums and sums of squares to 10⁻⁶ a row. Else what is wrong first. The order of the
    /// finished rows is not compared: a join may give them in any.
    pub fn differs(&self, other: &Outcome) -> Option<String> {
        if self.kept != other.kept {
            return Some(format!("the filter keeps {} rows, and {} in the other one", self.kept, other.kept));
        }
        let near = |a: f64, b: f64, within: f64| (a - b).abs() <= within;
        for ((name, a), b) in ["metres", "seconds", "cents"].iter().zip(self.moments).zip(other.moments) {
            let pairs = [("mean", a.mean, b.mean), ("deviation", a.deviation, b.deviation)];
            for (what, a, b) in pairs {
                if !near(a, b, 1e-9 * a.abs().max(b.abs())) {
                    return Some(format!("the {what} of {name} is {a}, and {b} in the other one"));
                }
            }
        }
        if self.zones != other.zones {
            let pair = self.zones.iter().zip(&other.zones).find(|(a, b)| a != b);
            return Some(match pair {
                Some((a, b)) => format!("a zone's sums are {a:?}, and {b:?} in the other one"),
                None => format!("there are {} zones, and {} in the other one", self.zones.len(), other.zones.len()),
            });
        }
        let (a, b) = (self.joined.digest(), other.joined.digest());
        if a != b {
            return Some(format!("the joined table is {a:?}, and {b:?} in the other one"));
        }
        let within = 1e-6 * (a.rows as f64).max(1.0);
        (0..3).find_map(|feature| {
            let (a, b) = (self.joined.sums(feature), other.joined.sums(feature));
            let equal = self.joined.features[feature].len() == other.joined.features[feature].len()
                && near(a.0, b.0, within)
                && near(a.1, b.1, within);
            (!equal).then(|| {
                let [a0, a1, b0, b1] = [a.0, a.1, b.0, b.1].map(figures);
                format!("feature {feature} adds up to {a0} (squares {a1}), and to {b0} (squares {b1}) in the other one")
            })
        })
    }
}

#[cfg(test)]
mod tests {
    use super::super::{drivers, plain, rides};

    #[test]
    fn each_difference_is_found() {
        let (rides, drivers) = (rides(2000, 100, 3), drivers(100, 3));
        let right = plain(&rides, &drivers).unwrap();
        assert_eq!(right.differs(&right), None);
        let mut wrong = right.clone();
        wrong.kept += 1;
        assert!(right.differs(&wrong).unwrap().contains("keeps"));
        let mut wrong = right.clone();
        wrong.moments[1].mean *= 1.0 + 1e-8;
        assert!(right.differs(&wrong).unwrap().contains("mean of seconds"));
        let mut wrong = right.clone();
        wrong.moments[1].deviation = f64::NAN;
        assert!(right.differs(&wrong).unwrap().contains("deviation of seconds"));
        let mut wrong = right.clone();
        wrong.zones[3].cents += 1;
        assert!(right.differs(&wrong).unwrap().contains("a zone's sums"));
        wrong.zones.truncate(3);
        assert!(right.differs(&wrong).unwrap().contains("zones"));
        let mut wrong = right.clone();
        let other = (1..).find(|&row| wrong.joined.year[row] != wrong.joined.year[0]).unwrap();
        wrong.joined.year.swap(0, other);
        assert!(right.differs(&wrong).unwrap().contains("together"));
        let mut wrong = right.clone();
        wrong.joined.features[2][5] += 0.1;
        assert!(right.differs(&wrong).unwrap().contains("feature 2"));
        wrong.joined.features[2][5] = f32::NAN;
        assert!(right.differs(&wrong).unwrap().contains("feature 2"));
        // Another order is no difference.
        let mut turned = right.clone();
        turned.joined.zone.reverse();
        turned.joined.year.reverse();
        turned.joined.features.iter_mut().for_each(|column| column.reverse());
        assert_eq!(right.differs(&turned), None);
    }
}
